"""Rules for ops of com.microsoft that diffusion models are optimized to for GPUs. No level of our optimizer has them, because nothing is
gained by them on CPUs, and onnxruntime's CPU has no kernels for them; ours has, so that the models run here. Fusions run the rules.
"""

from __future__ import annotations

import numpy as np

from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import constant, given_attributes, operand
from sardonyx.optimizer.rewrite import Answer, Rule, rule, skip
from sardonyx.optimizer.rules.normalization import SCALED
from sardonyx.optimizer.values import dtype_of, has_one_output, rank_of, same_shape, scalar, shape_of

CONTRIB = "com.microsoft"
CHANNELS_LAST, CHANNELS_FIRST = [0, 2, 3, 1], [0, 3, 1, 2]


def _is_vector(value: Value, size: object = None) -> bool:
    """Whether a value is a constant of one axis, of so many elements if that is known."""
    array = constant(value)
    return array is not None and array.ndim == 1 and size in (None, len(array))


def _vector_of_channels(value: Value, channels: object) -> np.ndarray | None:
    """The elements of a constant (C, 1, 1) or (1, C, 1, 1)."""
    array = constant(value)
    if array is None or array.ndim < 3 or array.shape[-2:] != (1, 1) or array.size != array.shape[-3]:
        return None
    return array.reshape(-1) if channels == array.size else None


# --- sums -----------------------------------------------------------------------------------------------------------


@rule("product = MatMul(a, w); Add(Add(product, bias), residual)")
def add_bias_and_residual(op: Builder, product: Value, bias: Value, residual: Value) -> Answer:
    """A bias and a residual are added at once."""
    shape = shape_of(product)
    if shape is None or len(shape) != 3 or not same_shape(product, residual) or not _is_vector(bias, shape[2]):
        return skip("it is not a vector and a tensor of three axes that are added")
    return op.BiasAdd(product, bias, residual, domain=CONTRIB)


@rule("com.microsoft.FastGelu(MatMul(x, w), bias?)")
def multiply_then_gelu(op: Builder, x: Value, w: Value, bias: Value | None = None) -> Answer:
    """Gelu by tanh behind a product."""
    rank = rank_of(x)
    if constant(w) is None or rank_of(w) != 2 or rank is None or rank < 2 or (bias is not None and not _is_vector(bias)):
        return skip("the factor is not a constant matrix, or the bias no constant vector")
    return op.GemmFastGelu(x, w, *([] if bias is None else [bias]), domain=CONTRIB)


# --- halves of which one gates the other ----------------------------------------------------------------------------


@rule("Mul(left, Gelu|com.microsoft.Gelu(right))")
def gate_by_gelu(op: Builder, left: Value, right: Value) -> Answer:
    """One half of the last axis times Gelu of the other."""
    total = _halved(left, right)
    add = None if total is None else total.producer
    if add is None or add.op_type != "Add" or add.inputs[0] is None or add.inputs[1] is None:
        return skip("these are not the two halves of a sum")
    width, operands = shape_of(total)[2], add.inputs  # type: ignore[arg-type, index]
    place = next((place for place, value in enumerate(operands) if value is not None and _is_vector(value, width)), None)
    if place is None:
        return skip("no vector is added before")
    return op.BiasSplitGelu(operands[1 - place], operands[place], domain=CONTRIB)


def _halved(left: Value, right: Value) -> Value | None:
    """The value of three axes whose halves along the last these are."""
    cut = left.producer, right.producer
    if cut[0] is None or cut[1] is None or cut[0].op_type != cut[1].op_type or cut[0].inputs[0] is not cut[1].inputs[0]:
        return None
    whole, parts = cut[0].inputs[0], (left, right)
    shape = None if whole is None else shape_of(whole)
    if whole is None or shape is None or len(shape) != 3 or not isinstance(shape[2], int):
        return None
    half = (*shape[:2], shape[2] // 2)
    if shape[2] % 2 or any(shape_of(part) != half for part in parts):
        return None
    if cut[0].op_type == "Split":
        return whole if cut[0] is cut[1] and list(cut[0].outputs) == [left, right] else None
    return whole if cut[0].op_type == "Slice" and _first(cut[0]) == 0 and _first(cut[1]) == shape[2] // 2 else None


def _first(cut: Node) -> int | None:
    """Where a Slice of the last axis begins."""
    starts, axes, steps = (operand(cut, name) for name in ("starts", "axes", "steps"))
    return starts[0] if isinstance(starts, list) and axes in ([-1], [2]) and steps in (None, [1]) else None


# --- groups of channels ---------------------------------------------------------------------------------------------


def group_norm_rules(channels_last: bool) -> tuple[Rule, ...]:
    """Rules for GroupNorm on images with their channels last, between Transposes, or where they are."""

    @rule("Add(Mul(Reshape(InstanceNormalization<epsilon=epsilon>(groups, ones, zeros), _), gamma), beta)")
    def normalize_groups(
        op: Builder, root: Node, groups: Value, ones: Value, zeros: Value, epsilon: float, gamma: Value, beta: Value
    ) -> Answer:
        """Groups of channels are instances for a while, and scaled by channel then."""
        x = _grouped(groups, root.outputs[0])
        scale, shift = constant(ones), constant(zeros)
        if x is None or scale is None or shift is None or not (scale == 1).all() or (shift != 0).any():
            return skip("these are not groups of channels that are normalized alike")
        shape = shape_of(x)
        factors = [_vector_of_channels(value, shape[1]) for value in (gamma, beta)]  # type: ignore[index]
        if any(factor is None for factor in factors):
            return skip("there is no constant scale and bias for each channel")
        parameters = [op.constant(factor.astype(np.float32)) for factor in factors if factor is not None]
        how = {"epsilon": epsilon, "groups": len(scale), "activation": 0, "domain": CONTRIB}
        if not channels_last:
            return op.GroupNorm(x, *parameters, channels_last=0, **how)
        moved = op.GroupNorm(op.Transpose(x, perm=CHANNELS_LAST), *parameters, channels_last=1, **how)
        return op.Transpose(moved, perm=CHANNELS_FIRST)

    return (normalize_groups, activate_groups)


@rule(
    "y = Transpose<perm=[0, 3, 1, 2]>(norm:com.microsoft.GroupNorm<activation=0>(x, gamma, beta)); Mul(y, Sigmoid(y))",
    "y = norm:com.microsoft.GroupNorm<activation=0, channels_last=0>(x, gamma, beta); Mul(y, Sigmoid(y))",
)
def activate_groups(op: Builder, norm: Node, x: Value, gamma: Value, beta: Value) -> Answer:
    """SiLU behind GroupNorm."""
    how = {**given_attributes(norm), "activation": 1}
    activated = op.GroupNorm(x, gamma, beta, domain=CONTRIB, **how)
    return op.Transpose(activated, perm=CHANNELS_FIRST) if operand(norm, "channels_last") else activated


def _grouped(groups: Value, result: Value) -> Value | None:
    """The image whose channels a Reshape puts into groups, (N, groups, rest); its result must have the image's shape."""
    reshape = groups.producer
    x = None if reshape is None or reshape.op_type != "Reshape" else reshape.inputs[0]
    if x is None or rank_of(x) != 4 or not same_shape(x, result):
        return None
    shape, parts = shape_of(x), shape_of(groups)
    assert shape is not None
    if parts is None or len(parts) != 3 or parts[0] != shape[0] or not isinstance(shape[1], int):
        return None
    return x if isinstance(parts[1], int) and shape[1] % parts[1] == 0 else None


@rule("total = Add(a, b); y = norm:com.microsoft.GroupNorm(Transpose<perm=[0, 2, 3, 1]>(total), gamma, beta)", keep=("total",))
def add_then_normalize_groups(op: Builder, norm: Node, total: Value, a: Value, b: Value, gamma: Value, beta: Value) -> Answer:
    """An image, or one number for each of its channels, is added before; the sum is there for others too."""
    if same_shape(a, b) or _is_of_channels(b, a):
        image, added = a, b
    elif _is_of_channels(a, b):
        image, added = b, a
    else:
        return skip("these are not two images, or an image and a number for each of its channels")
    image, added = (op.Transpose(value, perm=CHANNELS_LAST) for value in (image, added))
    y, sums = op.node("SkipGroupNorm", image, gamma, beta, added, domain=CONTRIB, outputs=2, **given_attributes(norm))
    if not total.is_graph_output and len(total.uses) == 1:
        sums.name = ""
        return y
    return {"y": y, "total": op.Transpose(sums, perm=CHANNELS_FIRST)}


def _is_of_channels(small: Value, image: Value) -> bool:
    shape, whole = shape_of(small), shape_of(image)
    if shape is None or whole is None or len(shape) != 4 or len(whole) != 4:
        return False
    return shape[:2] == whole[:2] and tuple(shape[2:]) == (1, 1)


@rule(
    "deep = Unsqueeze<axes=[3]>(Unsqueeze<axes=[2]>(Gemm(p, q, r?)));"
    " com.microsoft.GroupNorm(Transpose<perm=[0, 2, 3, 1]>(Add(x, deep)), gamma, beta)"
)
def raise_with_channels_last(op: Builder, deep: Value) -> Answer:
    """What is added before groups are normalized comes from a Transpose, which meets the one behind the sum."""
    outer = deep.producer
    inner = None if outer is None or outer.inputs[0] is None else outer.inputs[0].producer
    vector = None if inner is None else inner.inputs[0]
    if vector is None or rank_of(vector) != 2:
        return skip("it is not one number for each channel that is added")
    raised = op.Unsqueeze(op.Unsqueeze(vector, axes=[1]), axes=[2])
    return {"deep": op.Transpose(raised, perm=CHANNELS_FIRST)}


# --- images ---------------------------------------------------------------------------------------------------------


@rule("conv:Conv(x, w, bias?)")
def convolve_channels_last(op: Builder, conv: Node, x: Value, w: Value, bias: Value | None = None) -> Answer:
    """A convolution of images whose channels stand last, between Transposes; so do those of its weights."""
    weights = constant(w)
    if weights is None or weights.ndim != 4:
        return skip("its weights are not constant, or it is not over images")
    moved = op.constant(np.ascontiguousarray(np.moveaxis(weights, 1, -1)))
    rest = [] if bias is None else [bias]
    y = op.NhwcConv(op.Transpose(x, perm=CHANNELS_LAST), moved, *rest, domain=CONTRIB, **given_attributes(conv))
    return op.Transpose(y, perm=CHANNELS_FIRST)


@rule(*(f"Add({text}, bias)" for text in SCALED))
def normalize_channels(
    op: Builder, root: Node, x: Value, axes: list[int], over: list[int], epsilon: Value, scale: Value, bias: Value
) -> Answer:
    """Layer normalization over the channels of an image."""
    shape, least = shape_of(x), scalar(epsilon)
    if shape is None or len(shape) != 4 or list(axes) != [1] or list(over) != [1] or least is None:
        return skip("it is not over the channels of an image")
    factors = [_vector_of_channels(value, shape[1]) for value in (scale, bias)]
    if any(factor is None for factor in factors) or dtype_of(x) is not dtype_of(root.outputs[0]):
        return skip("there is no constant scale and bias for each channel")
    parameters = [op.constant(factor) for factor in factors if factor is not None]
    moved = op.LayerNormalization(op.Transpose(x, perm=CHANNELS_LAST), *parameters, axis=-1, epsilon=least)
    return op.Transpose(moved, perm=CHANNELS_FIRST)


# --- sizes ----------------------------------------------------------------------------------------------------------


@rule("Concat<axis=0>(first, ...)")
def whole_shape(op: Builder, root: Node) -> Answer:
    """All sizes of a tensor, taken one by one and put together again."""
    sources = [_size_of(value, place) for place, value in enumerate(root.inputs)]
    source = sources[0]
    if source is None or any(other is not source for other in sources) or rank_of(source) != len(sources):
        return skip("these are not the sizes of one tensor in their order")
    return op.Shape(source)


def _size_of(value: Value | None, place: int) -> Value | None:
    """The tensor whose size along an axis a vector of one element holds."""
    chain: list[Node] = []
    for op_type in ("Unsqueeze", "Gather", "Shape"):
        node = None if value is None else value.producer
        if node is None or node.op_type != op_type:
            return None
        chain.append(node)
        value = node.inputs[0]
    index = None if chain[1].inputs[1] is None else scalar(chain[1].inputs[1])
    return value if index == place and rank_of(chain[1].outputs[0]) == 0 and has_one_output(chain[2]) else None
