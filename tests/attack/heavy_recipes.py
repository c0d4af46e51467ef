"""How random graphs grow by ops that do much work: products, convolutions, pools, normalizations, recurrences, quantization; and bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from sardonyx import dtypes
from tests.attack.growth import Grower, Place, Refused, evaluated, undone
from tests.attack.recipes import RECIPES, apply_unary, axis_of, broadcastable, clip, recipe, softmax
from tests.attack.reference import captured, is_float, type_proto


def weights(g: Grower, dtype: Any, *shape: int) -> Place:
    return g.constant((g.numbers.standard_normal(shape) / max(1, shape[-1]) ** 0.5).astype(dtype))


@recipe(8)
def matmul(g: Grower) -> None:
    A = g.floats(least=1)
    inner = A.shape[-1]
    B = g.find(lambda one: one.dtype == A.dtype and one.ndim >= 2 and one.shape[-2] == inner and one.ndim <= 3)
    if B is None or g.rng.random() < 0.5:
        columns = g.rng.choice((1, 3, 8, 16, 17, 40))
        batch = A.shape[:-2] if g.rng.random() < 0.2 else ()
        B = weights(g, A.dtype, *batch, inner, columns)
    if g.rng.random() < 0.2 and A.ndim >= 2:
        g.apply("FusedMatMul", domain="com.microsoft", A=A, B=B, alpha=0.5)
    else:
        g.apply("MatMul", A=A, B=B)


@recipe(5)
def gemm(g: Grower) -> None:
    A = g.floats(rank=2)
    transA, transB = g.rng.randrange(2), g.rng.randrange(2)
    rows, inner = A.shape[::-1] if transA else A.shape
    columns = g.rng.choice((1, 3, 8, 17, 32))
    B = weights(g, A.dtype, *((columns, inner) if transB else (inner, columns)))
    shape = g.rng.choice(((), (columns,), (1, columns), (rows, 1), (rows, columns)))
    C = g.random_array(A.dtype, shape) if g.rng.random() < 0.8 else None
    numbers = {"alpha": g.rng.choice((1.0, 0.5)), "beta": g.rng.choice((1.0, 2.0, 0.0))} if g.rng.random() < 0.4 else {}
    g.apply("Gemm", A=A, B=B, C=C, transA=transA, transB=transB, **numbers)


@recipe(8)
def conv(g: Grower) -> None:
    rank = g.rng.choice((3, 4, 4, 4, 4, 5))
    X = g.floats(rank=rank)
    channels = X.shape[1]
    group = g.rng.choice((1, 1, 1, channels or 1))
    filters = group * g.rng.choice((1, 1, 2)) if group > 1 else g.rng.choice((1, 3, 8, 16, 20))
    kernel = [g.rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(rank - 2)]
    W = weights(g, X.dtype, filters, channels // group, *kernel)
    B = g.random_array(X.dtype, (filters,)) if g.rng.random() < 0.6 else None
    g.apply("Conv", X=X, W=W, B=B, group=group, **_windows(g, kernel, dilate=True))


def _windows(g: Grower, kernel: list[int], dilate: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"kernel_shape": kernel}
    if g.rng.random() < 0.5:
        found["strides"] = [g.rng.choice((1, 1, 2, 3)) for _ in kernel]
    if dilate and g.rng.random() < 0.2:
        found["dilations"] = [g.rng.choice((1, 2, 3)) for _ in kernel]
    if g.rng.random() < 0.6:
        found["pads"] = [g.rng.randrange(size) for size in (*kernel, *kernel)]
    elif g.rng.random() < 0.3:
        found["auto_pad"] = g.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return found


@recipe(2)
def conv_transpose(g: Grower) -> None:
    X = g.floats(rank=g.rng.choice((3, 4)))
    kernel = [g.rng.choice((1, 2, 3, 4)) for _ in range(X.ndim - 2)]
    W = weights(g, X.dtype, X.shape[1], g.rng.choice((1, 3, 8)), *kernel)
    strides = [g.rng.choice((1, 2, 3)) for _ in kernel]
    pads = [g.rng.choice((0, 0, 1)) for _ in range(2 * len(kernel))]
    g.apply("ConvTranspose", X=X, W=W, strides=strides, pads=pads)


@recipe(5)
def pool(g: Grower) -> None:
    X = g.floats(rank=g.rng.choice((3, 4, 4, 5)), nonempty=True)
    op = g.rng.choice(("MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):
        g.apply(op, X=X)
        return
    kernel = [min(g.rng.choice((1, 2, 3)), max(size, 1)) for size in X.shape[2:]]
    more = _windows(g, kernel)
    if op == "MaxPool":
        g.apply(op, X=X, ceil_mode=g.rng.randrange(2), outputs=g.rng.choice((1, 1, 2)), **more)
    elif op == "AveragePool":
        g.apply(op, X=X, ceil_mode=g.rng.randrange(2), count_include_pad=g.rng.randrange(2), **more)
    else:
        g.apply(op, X=X, p=g.rng.choice((1, 2, 3)), **more)


NORMALIZATIONS = (
    "BatchNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "GroupNormalization",
    "RMSNormalization",
    "LRN",
)


@recipe(6)
def normalization(g: Grower) -> None:
    op = g.rng.choice(NORMALIZATIONS)
    X = g.floats(least=3 if op not in ("LayerNormalization", "RMSNormalization") else 1, nonempty=True)
    channels = X.shape[1] if X.ndim > 1 else 1

    def per(count: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
        return g.numbers.uniform(low, high, (count,)).astype(X.dtype)

    if op == "BatchNormalization":
        g.apply(op, X=X, scale=per(channels), B=per(channels), input_mean=per(channels), input_var=per(channels, 0.3, 2.0))
    elif op == "InstanceNormalization":
        g.apply(op, input=X, scale=per(channels), B=per(channels), epsilon=0.01)
    elif op == "GroupNormalization":
        groups = g.rng.choice([count for count in (1, 2, 3, 4, channels) if channels % count == 0])
        count = channels if g.opsets[""] >= 21 else groups
        g.apply(op, X=X, scale=per(count), bias=per(count), num_groups=groups, epsilon=0.01)
    elif op == "LRN":
        g.apply(op, X=X, size=g.rng.choice((1, 3, 5)))
    else:
        axis = axis_of(g, X.ndim)
        shape = X.shape[axis:]
        scale = g.numbers.uniform(-1, 1, shape).astype(X.dtype)
        bias = {"B": g.random_array(X.dtype, shape)} if op == "LayerNormalization" and g.rng.random() < 0.6 else {}
        name = "Scale" if op == "LayerNormalization" else "scale"
        g.apply(op, X=X, axis=axis, epsilon=0.01, **{name: scale}, **bias)


@recipe(2)
def skip_normalization(g: Grower) -> None:
    X = g.floats(rank=3, nonempty=True)
    width = X.shape[-1]
    skip = g.find(lambda one: one.dtype == X.dtype and one.shape == X.shape) or g.fresh(X.dtype, X.shape)
    gamma = g.random_array(X.dtype, (width,))
    if g.rng.random() < 0.5:
        beta = g.random_array(X.dtype, (width,))
        g.apply("SkipLayerNormalization", domain="com.microsoft", input=X, skip=skip, gamma=gamma, beta=beta, epsilon=0.01)
    else:
        g.apply("SkipSimplifiedLayerNormalization", domain="com.microsoft", input=X, skip=skip, gamma=gamma, epsilon=0.01)


@recipe(1)
def whole_normalization(g: Grower) -> None:
    X = g.floats(least=1, nonempty=True)
    chance = g.rng.random()
    if chance < 0.4:
        (X,) = g.apply("Add", A=X, B=np.asarray(0.5, X.dtype))
        g.apply("LpNormalization", input=X, axis=axis_of(g, X.ndim), p=g.rng.choice((1, 2)))
    elif chance < 0.7:
        axes = sorted(g.rng.sample(range(X.ndim), g.rng.randint(1, X.ndim)))
        g.apply("MeanVarianceNormalization", X=X, axes=axes)
    else:
        g.apply("Normalizer", domain="ai.onnx.ml", X=g.floats(rank=2, nonempty=True), norm=g.rng.choice(("L1", "L2", "MAX")))


@recipe(2)
def einsum(g: Grower) -> None:
    A = g.floats(rank=3, nonempty=True)
    equation, shape = g.rng.choice(
        (
            ("abc,acd->abd", (A.shape[0], A.shape[2], 5)),
            ("abc,dc->abd", (7, A.shape[2])),
            ("abc,abc->ac", A.shape),
            ("abc,ab->c", A.shape[:2]),
            ("abc,cd->bda", (A.shape[2], 3)),
        )
    )
    g.apply("Einsum", Inputs=[A, g.constant(g.random_array(A.dtype, shape))], equation=equation)


@recipe(2)
def resize(g: Grower) -> None:
    X = g.floats(rank=4, nonempty=True)
    mode = g.rng.choice(("nearest", "linear", "linear", "cubic"))
    place = g.rng.choice(("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"))
    scales = np.asarray([1, 1, g.rng.choice((0.5, 1, 2, 1.6)), g.rng.choice((0.5, 1, 2, 3))], np.float32)
    g.apply("Resize", X=X, scales=scales, mode=mode, coordinate_transformation_mode=place)


@recipe(1)
def grid_sample(g: Grower) -> None:
    X = g.floats(rank=4, nonempty=True)
    grid = g.numbers.uniform(-1.2, 1.2, (X.shape[0], 3, 5, 2)).astype(X.dtype)
    padding = g.rng.choice(("zeros", "border", "reflection"))
    g.apply("GridSample", X=X, grid=grid, padding_mode=padding, align_corners=g.rng.randrange(2))


@recipe(2)
def recurrent(g: Grower) -> None:
    X = g.floats(rank=3, nonempty=True)
    op, gates = g.rng.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    hidden, direction = g.rng.choice((1, 3, 8, 16)), g.rng.choice(("forward", "reverse", "bidirectional"))
    directions = 2 if direction == "bidirectional" else 1
    W, R = weights(g, X.dtype, directions, gates * hidden, X.shape[2]), weights(g, X.dtype, directions, gates * hidden, hidden)
    B = g.random_array(X.dtype, (directions, 2 * gates * hidden)) if g.rng.random() < 0.6 else None
    more: dict[str, Any] = {"linear_before_reset": g.rng.randrange(2)} if op == "GRU" else {}
    if g.rng.random() < 0.3:
        more["sequence_lens"] = g.numbers.integers(1, X.shape[0] + 1, (X.shape[1],)).astype(np.int32)
    g.apply(op, X=X, W=W, R=R, B=B, hidden_size=hidden, direction=direction, outputs=g.rng.choice((1, 2)), **more)


@recipe(2)
def attention(g: Grower) -> None:
    heads, width = g.rng.choice((1, 2, 4)), g.rng.choice((4, 8, 16))
    batch, length, keys = g.rng.choice((1, 2)), g.rng.choice((1, 3, 7)), g.rng.choice((1, 4, 9))
    Q, K, V = (g.fresh(np.float32, (batch, heads, size, width)) for size in (length, keys, keys))
    g.apply("Attention", Q=Q, K=K, V=V, is_causal=g.rng.randrange(2) if keys >= length else 0)


@recipe(1)
def multi_head_attention(g: Grower) -> None:
    heads, width = g.rng.choice((1, 2, 4)), g.rng.choice((4, 8))
    batch, length, keys = g.rng.choice((1, 2)), g.rng.choice((1, 3, 7)), g.rng.choice((1, 4, 9))
    query, key, value = (g.fresh(np.float32, (batch, size, heads * width)) for size in (length, keys, keys))
    g.apply("MultiHeadAttention", domain="com.microsoft", query=query, key=key, value=value, num_heads=heads)


@recipe(3)
def quantize(g: Grower) -> None:
    x = g.floats(nonempty=True)
    if x.dtype != np.float32 or not np.isfinite(x.array).all():
        raise Refused
    kind = g.rng.choice((np.uint8, np.int8))
    zero = np.asarray(g.rng.choice((0, 3, 100)), kind)
    scale = np.asarray(g.rng.choice((0.05, 0.013)), np.float32)
    if g.rng.random() < 0.2:
        g.apply("DynamicQuantizeLinear", x=x, outputs=3)
        return
    (q,) = g.apply("QuantizeLinear", x=x, y_scale=scale, y_zero_point=zero)
    if g.rng.random() < 0.7:
        g.apply("DequantizeLinear", x=q, x_scale=scale, x_zero_point=zero)


@recipe(2)
def quantized_product(g: Grower) -> None:
    kind = g.rng.choice((np.uint8, np.int8))
    A = g.find(lambda one: one.dtype == kind and one.ndim >= 2) or g.fresh(kind, g.shape(2))
    columns = g.rng.choice((1, 5, 16))
    b_kind = g.rng.choice((np.uint8, np.int8))
    info = np.iinfo(b_kind)
    B = g.constant(g.numbers.integers(info.min, info.max + 1, (A.shape[-1], columns)).astype(b_kind))
    a_zero, b_zero = np.asarray(3, kind), np.asarray(2, b_kind)
    if g.rng.random() < 0.5:
        g.apply("MatMulInteger", A=A, B=B, a_zero_point=a_zero, b_zero_point=b_zero)
        return
    scales = [np.asarray(number, np.float32) for number in (0.05, 0.02, 0.3)]
    g.apply(
        "QLinearMatMul", a=A, a_scale=scales[0], a_zero_point=a_zero, b=B, b_scale=scales[1], b_zero_point=b_zero,
        y_scale=scales[2], y_zero_point=np.asarray(1, kind),
    )  # fmt: skip


@recipe(2)
def quantized_conv(g: Grower) -> None:
    x = g.find(lambda one: one.dtype == np.uint8 and one.ndim == 4) or g.fresh(np.uint8, g.shape(4))
    w = g.constant(g.numbers.integers(-128, 128, (g.rng.choice((1, 4, 9)), x.shape[1], 3, 3)).astype(np.int8))
    zero = np.asarray(3, np.uint8)
    pads = [1, 1, 1, 1]
    if g.rng.random() < 0.4:
        g.apply("ConvInteger", x=x, w=w, x_zero_point=zero, pads=pads)
        return
    scales = [np.asarray(number, np.float32) for number in (0.05, 0.02, 0.3)]
    g.apply(
        "QLinearConv", x=x, x_scale=scales[0], x_zero_point=zero, w=w, w_scale=scales[1], w_zero_point=np.asarray(0, np.int8),
        y_scale=scales[2], y_zero_point=np.asarray(10, np.uint8), pads=pads,
    )  # fmt: skip


# --- bodies

STEADY_UNARY = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Identity", "Softplus")
STEADY_ARITHMETIC = ("Add", "Mul", "Max", "Min")
"""Ops of bodies. The reference puts no noise on values inside them, so that nothing may stand there that magnifies the last bit of a
float as Asin does near 1."""


def steady_unary(g: Grower) -> None:
    apply_unary(g, g.rng.choice(STEADY_UNARY), g.floats(), None)


def steady_arithmetic(g: Grower) -> None:
    op, A = g.rng.choice(STEADY_ARITHMETIC), g.floats()
    B = broadcastable(g, A)
    if op in ("Max", "Min"):
        g.apply(op, data_0=[A, B])
    else:
        g.apply(op, A=A, B=B)


BODY_RECIPES = (steady_unary, steady_arithmetic, clip, softmax)


def body(g: Grower, first: Place, steps: int, *, keep_shape: bool) -> tuple[list[onnx.NodeProto], Place, dict[str, np.ndarray]]:
    """Nodes that begin with a value and end with one of the same type; what they need besides goes to the graph around them."""
    start, known = len(g.nodes), len(g.places)
    inputs, initializers = dict(g.inputs), dict(g.initializers)
    current = first
    for _ in range(steps):
        step: Callable[[Grower], None] = g.rng.choice(BODY_RECIPES)
        count = len(g.places)
        try:
            with undone(g):
                step(g)
        except Refused:
            continue
        fitting = [one for one in g.places[count:] if one.dtype == first.dtype and (one.shape == first.shape or not keep_shape)]
        current = fitting[-1] if fitting else current
    nodes = g.nodes[start:]
    del g.nodes[start:]
    del g.places[known:]
    g.inputs, g.initializers = inputs | {k: v for k, v in g.inputs.items() if k not in inputs}, g.initializers | initializers
    return nodes, current, {}


@recipe(3)
def branch(g: Grower) -> None:
    data = g.floats()
    cond = g.constant(np.asarray(g.rng.random() < 0.5))
    graphs = []
    for label in ("then_branch", "else_branch"):
        nodes, last, _ = body(g, data, g.rng.randint(1, 3), keep_shape=False)
        name = g.name("b")
        nodes.append(helper.make_node("Identity", [last.name], [name]))
        typed = helper.make_tensor_type_proto(dtypes.from_numpy(last.dtype).code, None)
        graphs.append((label, helper.make_graph(nodes, label, [], [helper.make_value_info(name, typed)])))
    add_evaluated(g, [helper.make_node("If", [cond.name], [g.name()], **dict(graphs))])


@recipe(2)
def loop(g: Grower) -> None:
    data = g.floats()
    iteration, condition, carried, result = g.name("i"), g.name("k"), g.name("s"), g.name("b")
    inside = Place(carried, data.array)
    g.places.append(inside)
    nodes, last, _ = body(g, inside, g.rng.randint(1, 3), keep_shape=True)
    g.places.remove(inside)
    nodes += [
        helper.make_node("Identity", [condition], [f"{condition}_out"]),
        helper.make_node("Identity", [last.name], [result]),
    ]
    element = dtypes.from_numpy(data.dtype).code
    sizes = list(data.shape)
    inputs = [
        helper.make_tensor_value_info(iteration, onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info(condition, onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info(carried, element, sizes),
    ]
    outputs = [
        helper.make_tensor_value_info(f"{condition}_out", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info(result, element, sizes),
    ]
    rounds = g.rng.randrange(4)
    scans = rounds > 0 and g.rng.random() < 0.4  # sizes of rows that were never computed are not defined
    if scans:
        nodes.append(helper.make_node("Identity", [last.name], [f"{result}_scan"]))
        outputs.append(helper.make_tensor_value_info(f"{result}_scan", element, sizes))
    graph = helper.make_graph(nodes, "body", inputs, outputs)
    trips, keep = g.constant(np.asarray(rounds, np.int64)), g.constant(np.asarray(True))
    names = [g.name() for _ in range(1 + scans)]
    add_evaluated(g, [helper.make_node("Loop", [trips.name, keep.name, data.name], names, body=graph)])


@recipe(1)
def through_a_sequence(g: Grower) -> None:
    """A tensor cut into a sequence, of which one element is taken, or which is joined again."""
    data = g.pick(lambda one: one.ndim and one.array.size)
    axis, sequence, result = axis_of(g, data.ndim), g.name("q"), g.name()
    first = helper.make_node("SplitToSequence", [data.name], [sequence], axis=axis)
    if g.rng.random() < 0.5:
        second = helper.make_node("ConcatFromSequence", [sequence], [result], axis=axis)
    else:
        second = helper.make_node("SequenceAt", [sequence, g.constant(np.asarray(-1, np.int64)).name], [result])
    add_evaluated(g, [first, second])


def add_evaluated(g: Grower, nodes: list[onnx.NodeProto]) -> None:
    """Add nodes that were made by hand, of which the last one's outputs are tensors."""
    node = nodes[-1]
    values = {**g.initializers, **g.inputs, **{place.name: place.array for place in g.places}}
    values |= {one.output[0]: onnx.numpy_helper.to_array(one.attribute[0].t) for one in g.nodes if _is_tensor(one)}
    inner = {name for one in nodes for name in one.output}
    names = list(dict.fromkeys(name for one in nodes for name in captured(one) if name not in inner))
    if any(name not in values for name in names):
        raise Refused
    inputs = [helper.make_value_info(name, type_proto(values[name])) for name in names]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    imports = [helper.make_opsetid(domain, version) for domain, version in g.opsets.items()]
    model = helper.make_model(helper.make_graph(nodes, "body", inputs, outputs), opset_imports=imports, ir_version=10)
    results = evaluated(model, {name: values[name] for name in names})
    if any(not isinstance(one, np.ndarray) or one.size > 1 << 16 for one in results):
        raise Refused
    g.nodes += nodes
    g.places += [Place(name, one) for name, one in zip(node.output, results, strict=True)]


def _is_tensor(node: onnx.NodeProto) -> bool:
    """Whether a node is a Constant of the attribute `value`; those of other attributes are places."""
    return node.op_type == "Constant" and node.attribute[0].name == "value"


def grow(g: Grower, steps: int, recipes: Any = None) -> None:
    """Add so many ops, or try a few times as often."""
    chosen = list(recipes or RECIPES)
    functions, chances = [one for one, _ in chosen], [weight for _, weight in chosen]
    attempts, start = 0, len(g.nodes)
    while len(g.nodes) - start < steps and attempts < 4 * steps:
        attempts += 1
        try:
            with undone(g):
                g.rng.choices(functions, chances)[0](g)
        except Refused:
            continue


def float_outputs(places: list[Place]) -> list[Place]:
    return [place for place in places if is_float(place.array)]
