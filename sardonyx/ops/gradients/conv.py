"""Gradients of convolutions."""

from __future__ import annotations

from sardonyx.errors import Fail
from sardonyx.ops.gradients.table import gradient
from sardonyx.ops.reading import given_attributes


@gradient("Conv")
def conv(op, node, X, W, Y_grad, wanted):
    parts = op.contrib("ConvGrad", Y_grad, X, W, outputs=3, **given_attributes(node))
    return {name: part for name, part in zip(("X", "W", "B"), parts, strict=True) if name in wanted}


@gradient("ConvTranspose")
def conv_transpose(op, node, X, W, Y_grad, wanted, auto_pad, output_shape):
    """It is the gradient of a convolution from Y to X, so its own gradient by X is that convolution."""
    if output_shape is not None or auto_pad not in ("NOTSET", "VALID", ""):
        raise Fail(f"{node}: there is no gradient of ConvTranspose with output_shape or auto_pad, give it pads instead")
    form = {name: value for name, value in given_attributes(node).items() if name not in ("output_padding", "auto_pad")}
    parts = {}
    if "X" in wanted:
        parts["X"] = op.Conv(Y_grad, W, **form)
    if "W" in wanted:
        parts["W"] = op.contrib("ConvGrad", X, Y_grad, W, outputs=3, **form)[1]
    if "B" in wanted:
        parts["B"] = op.ReduceSum(Y_grad, axes=[0, *range(2, op.rank(Y_grad))], keepdims=0)
    return parts
