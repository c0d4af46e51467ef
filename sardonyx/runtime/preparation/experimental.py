"""Ops that ONNX had for trial until opset 9, in words of the ops that it kept. onnxruntime has kernels for them still.

Converters of CoreML and Caffe2 wrote them. `loading` asks for this module where a model has one; what they mean is checked against
onnxruntime in tests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature

import numpy as np

from sardonyx.errors import InvalidGraph
from sardonyx.ir import Node, Value, edit
from sardonyx.ops.builder import Builder

logger = logging.getLogger("sardonyx.runtime")

ENDLESS = 2**63 - 1
OPSET = 10
"""The first that has all ops that are used here: Slice with operands and ThresholdedRelu came with it."""


def rewrite(nodes: Iterable[Node]) -> None:
    """Put ops of the standard in the place of these."""
    for node in nodes:
        assert node.graph is not None
        form = FORMS[node.op_type]
        _check_attributes(node, form)
        logger.warning("%s is an experimental op that ONNX has no more; it is computed by ops of the standard.", node)
        op = Builder(node.graph, before=node, opsets={"": OPSET}, prefix=node.name or node.op_type)
        try:
            result = form(op, *node.inputs, **{name: attribute.value for name, attribute in node.attributes.items()})
        except (TypeError, ValueError) as error:
            raise _invalid(node, str(error)) from error
        edit.replace_node(node, [], [result])


def _check_attributes(node: Node, form: Callable[..., Value]) -> None:
    known = {name: one.default for name, one in signature(form).parameters.items() if one.kind is Parameter.KEYWORD_ONLY}
    for name, default in known.items():
        if default is Parameter.empty and name not in node.attributes:
            raise _invalid(node, f"Required attribute '{name}' is missing.")
    for name in node.attributes.keys() - known.keys():
        raise _invalid(node, f"Unrecognized attribute: {name} for operator {node.op_type}")


def _invalid(node: Node, reason: str) -> InvalidGraph:
    return InvalidGraph(f"This is an invalid model. In Node, {node}, Error {reason}")


def _affine(op: Builder, input: Value, *, alpha: float = 1.0, beta: float = 0.0) -> Value:
    return op.Add(op.Mul(input, op.constant(alpha)), op.constant(beta))


def _parametric_softplus(op: Builder, input: Value, *, alpha: float, beta: float) -> Value:
    return op.Mul(op.Softplus(op.Mul(input, op.constant(beta))), op.constant(alpha))


def _scaled_tanh(op: Builder, input: Value, *, alpha: float, beta: float) -> Value:
    return op.Mul(op.Tanh(op.Mul(input, op.constant(beta))), op.constant(alpha))


def _scale(op: Builder, input: Value, *, scale: float = 1.0) -> Value:
    return op.Mul(input, op.constant(scale))


def _image_scaler(op: Builder, input: Value, *, bias: Sequence[float], scale: float = 1.0) -> Value:
    return op.Add(op.Mul(input, op.constant(scale)), op.constant(np.array(bias, np.float32).reshape(-1, 1, 1)))


def _crop(op: Builder, input: Value, *, border: Sequence[int], scale: Sequence[int] | None = None) -> Value:
    left, top, right, bottom = border
    ends = [-bottom or ENDLESS, -right or ENDLESS]
    if scale:
        height, width = scale
        ends = [top + height, left + width]
    return op.Slice(input, starts=[top, left], ends=ends, axes=[2, 3])


def _dynamic_slice(op: Builder, data: Value, starts: Value, ends: Value, axes: Value | None = None) -> Value:
    return op.Slice(data, starts, ends, axes)


def _thresholded_relu(op: Builder, input: Value, *, alpha: float = 1.0) -> Value:
    return op.ThresholdedRelu(input, alpha=alpha)


def _normalization(op: Builder, input: Value, *, across_channels: int = 0, normalize_variance: int = 1) -> Value:
    axes = [0, 1, 2, 3] if across_channels else [0, 2, 3]
    if normalize_variance:
        return op.MeanVarianceNormalization(input, axes=axes)
    return op.Sub(input, op.ReduceMean(input, axes=axes, keepdims=1))


FORMS: dict[str, Callable[..., Value]] = {
    "Affine": _affine,
    "Crop": _crop,
    "DynamicSlice": _dynamic_slice,
    "ImageScaler": _image_scaler,
    "MeanVarianceNormalization": _normalization,
    "ParametricSoftplus": _parametric_softplus,
    "Scale": _scale,
    "ScaledTanh": _scaled_tanh,
    "ThresholdedRelu": _thresholded_relu,
}
