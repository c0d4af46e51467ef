"""DFT along other axes than the one before the last, which it is brought to."""

from __future__ import annotations

from sardonyx.ir import Node, Value
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.shape.views import axis_of
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims, rank_of, required

FEW = 16
"""So many points are left to NumPy where they go back: where 0 is exact, ONNX's suite has the last bits of NumPy's transform."""


def _is_along_another(node: Node) -> bool:
    axis, shape = input_named(node, "axis"), dims(required(node.inputs[0]))
    rank = len(shape)
    if (axis is not None and not axis.is_constant) or rank <= 2:
        return False
    along = axis_of(node, rank, default=-2)
    points = shape[along]
    return along < rank - 2 and (not operand(node, "inverse") or not isinstance(points, int) or points > FEW)


@compose("DFT", claims=_is_along_another)
def dft(op: Composer, input: Value, dft_length: Value | None, inverse: int, onesided: int, node: Node) -> Value:
    rank = rank_of(input)
    axis = axis_of(node, rank, default=-2)
    swapped = list(range(rank))
    swapped[axis], swapped[-2] = swapped[-2], swapped[axis]
    spectrum = op.DFT(op.Transpose(input, perm=swapped), dft_length, op.constant(-2), inverse=inverse, onesided=onesided)
    made: Value = op.Transpose(spectrum, perm=swapped)
    return made
