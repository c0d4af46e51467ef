"""Gradients of convolutions."""

from __future__ import annotations

from sardonyx.ops.gradients.conv_bodies import refuse_computed_pads
from sardonyx.ops.gradients.table import gradient
from sardonyx.ops.reading import given_attributes


@gradient("Conv")
def conv(op, node, X, W, Y_grad, wanted):
    parts = op.contrib("ConvGrad", Y_grad, X, W, outputs=3, **given_attributes(node))
    return {name: part for name, part in zip(("X", "W", "B"), parts, strict=True) if name in wanted}


@gradient("ConvTranspose")
def conv_transpose(op, node, X, W, Y_grad, wanted):
    refuse_computed_pads(node)
    parts = op.contrib("ConvTransposeGrad", Y_grad, X, W, outputs=3, **given_attributes(node))
    return {name: part for name, part in zip(("X", "W", "B"), parts, strict=True) if name in wanted}
