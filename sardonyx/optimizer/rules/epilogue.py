"""Convolutions and Gemm with what comes right after them, an activation or another tensor added, as one op of com.microsoft."""

from __future__ import annotations

from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import given_attributes, operand
from sardonyx.optimizer.rewrite import Answer, Skip, rule, skip
from sardonyx.optimizer.values import FIRST_BROADCASTING, dtype_of, same_shape

CONTRIB = "com.microsoft"

PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
"""Attributes of activations in the order in which FusedConv takes them."""


@rule("act:Relu|Sigmoid|Tanh|LeakyRelu|HardSigmoid(conv:Conv(X, W, B?))", name="ConvActivationFusion")
def fuse_activation(op: Builder, act: Node, conv: Node, X: Value, W: Value, B: Value | None) -> Answer:
    """An activation is computed while the convolution's result is at hand."""
    return _fused_conv(op, conv, [X, W, B], _activation(act))


@rule("act:Clip(conv:Conv(X, W, B?), low?, high?)", name="ConvActivationFusion")
def fuse_clip(op: Builder, act: Node, conv: Node, X: Value, W: Value, B: Value | None) -> Answer:
    """So is Clip between constants."""
    activation = _clip(act)
    return activation if isinstance(activation, Skip) else _fused_conv(op, conv, [X, W, B], activation)


@rule("Add(conv:Conv(X, W, B?), Z)", name="ConvAddActivationFusion")
def fuse_sum(op: Builder, conv: Node, X: Value, W: Value, B: Value | None, Z: Value) -> Answer:
    """A tensor of the same shape is added while the convolution's result is at hand."""
    if not same_shape(conv.outputs[0], Z):
        return skip("what is added may have another shape")
    return _fused_conv(op, conv, [X, W, B, Z], {})


@rule("act:Relu|Sigmoid|Tanh|LeakyRelu|HardSigmoid(conv:com.microsoft.FusedConv(X, W, B?, Z?))", name="ConvAddActivationFusion")
def fuse_activation_of_sum(op: Builder, act: Node, conv: Node, X: Value, W: Value, B: Value | None, Z: Value | None) -> Answer:
    """The activation after the sum goes in too."""
    return _fused_conv(op, conv, [X, W, B, Z], _activation(act))


@rule("act:Clip(conv:com.microsoft.FusedConv(X, W, B?, Z?), low?, high?)", name="ConvAddActivationFusion")
def fuse_clip_of_sum(op: Builder, act: Node, conv: Node, X: Value, W: Value, B: Value | None, Z: Value | None) -> Answer:
    """So does Clip between constants."""
    activation = _clip(act)
    return activation if isinstance(activation, Skip) else _fused_conv(op, conv, [X, W, B, Z], activation)


def _fused_conv(op: Builder, conv: Node, inputs: list[Value | None], activation: dict[str, Any]) -> Answer:
    if dtype_of(conv.outputs[0]) is not dtypes.float32:
        return skip("FusedConv is for float32")
    if conv.attribute("activation"):
        return skip("it has an activation already")
    while inputs[-1] is None:
        inputs.pop()
    return op.node("FusedConv", *inputs, domain=CONTRIB, **{**given_attributes(conv), **activation})


def _activation(act: Node) -> dict[str, Any]:
    numbers = [operand(act, name) for name in PARAMETERS.get(act.op_type, ())]
    return {"activation": act.op_type, "activation_params": numbers or None}


def _clip(act: Node) -> dict[str, Any] | Skip:
    bounds = []
    for position, (name, absent) in enumerate((("min", np.finfo(np.float32).min), ("max", np.finfo(np.float32).max)), 1):
        value = act.inputs[position] if position < len(act.inputs) else None
        bound = operand(act, name)
        if value is not None and bound is None:
            return skip("its bounds are not constant")
        bounds.append(float(absent if bound is None else np.asarray(bound).reshape(-1)[0]))
    return {"activation": "Clip", "activation_params": bounds}


@rule(
    "act:Elu|HardSigmoid|LeakyRelu|Relu|Selu|Sigmoid|Softplus|Softsign|Tanh|ThresholdedRelu(gemm:Gemm(A, B, C?))",
    name="GemmActivationFusion",
)
def fuse_gemm_activation(op: Builder, act: Node, gemm: Node, A: Value, B: Value, C: Value | None) -> Answer:
    """An activation is computed while the product is at hand."""
    if dtype_of(gemm.outputs[0]) is not dtypes.float32:
        return skip("FusedGemm is for float32")
    if gemm.version < FIRST_BROADCASTING:
        return skip("up to opset 6 Gemm broadcasts by a flag")
    numbers = {f"activation_{name}": operand(act, name) for name in ("alpha", "beta", "gamma")}
    inputs = [A, B] if C is None else [A, B, C]
    return op.node("FusedGemm", *inputs, domain=CONTRIB, activation=act.op_type, **numbers, **given_attributes(gemm))
