"""ConvTransposeWithDynamicPads of com.microsoft, where its pads are known."""

from __future__ import annotations

from typing import Any

from sardonyx.ir import Node, Value
from sardonyx.ops.reading import constant
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.provider import CannotCompile


@compose("ConvTransposeWithDynamicPads", domain="com.microsoft")
def conv_transpose_with_dynamic_pads(
    op: Composer, X: Value, W: Value, Pads: Value | None, B: Value | None, node: Node
) -> Value:
    pads = None if Pads is None else constant(Pads)
    if Pads is not None and pads is None:
        raise CannotCompile("how much is cut off depends on data", quiet=True)
    attributes: dict[str, Any] = {name: attribute.value for name, attribute in node.attributes.items()}
    made: Value = op.ConvTranspose(X, W, B, pads=None if pads is None else pads.reshape(-1).tolist(), **attributes)
    return made
