"""Activations of two operands that must have one shape, where only a run tells whether they do."""

from __future__ import annotations

from sardonyx.ir import Node, Value
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, may_have_shape, required, shape_of


def _may_fit(node: Node) -> bool:
    A, B = (shape_of(required(value)) for value in node.inputs[:2])
    return A is not None and A != B and may_have_shape(B, A)


@compose("SwiGLU", claims=_may_fit)
def swi_glu(op: Composer, A: Value, B: Value, alpha: float) -> Value:
    op.require_shape(B, dims(A))
    made: Value = op.SwiGLU(A, op.reshape(B, *dims(A)), alpha=alpha)
    return made
