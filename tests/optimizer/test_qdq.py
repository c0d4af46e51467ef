"""Passes over quantized graphs: unique and merged DequantizeLinears, weights and biases, weights of few bits, the config keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from sardonyx import dtypes
from sardonyx import ops as infer
from sardonyx.errors import InvalidArgument
from sardonyx.ir import Graph, Model, Node, TensorType, Value, edit, verify
from sardonyx.ops.builder import Builder
from sardonyx.optimizer.passes.constants import fold_dequantized
from sardonyx.optimizer.passes.qdq import merge_dequantization, quantize_weights_and_biases, unique_dequantization
from sardonyx.optimizer.passes.qdq_bits import multiply_few_bits, pack
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from sardonyx.settings import MATMULNBITS_ACCURACY_LEVEL, MATMULNBITS_BLOCK_SIZE
from tests.optimizer.quantized import PARAMETERS, assert_close, assert_quantizes, full_range_feeds
from tests.optimizer.rewriting import run, typed

P = f"<{PARAMETERS}>"
X = "d = DequantizeLinear(x, s, z)"


def ops(model: Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.all_nodes())


# --- one for each, and one for all ----------------------------------------------------------------------------------


def test_each_consumer_gets_a_dequantization_of_its_own_and_they_merge_again():
    model = typed(f"g (uint8[2,3] x) => (y, d) {P} {{ {X} a = Neg(d) b = Abs(d) y = Add(a, b) }}")
    feeds = full_range_feeds(model.graph)
    want = run(model, feeds)
    rewriting = Rewriting(model, evaluate, {}, Journal(strict=True))
    assert unique_dequantization(model.graph, rewriting)
    verify.verify(model)
    assert ops(model)["DequantizeLinear"] == 3
    assert all(len(node.outputs[0].uses) <= 1 for node in model.graph.nodes if node.op_type == "DequantizeLinear")
    assert not unique_dequantization(model.graph, rewriting)
    assert merge_dequantization(model.graph, rewriting)
    verify.verify(model)
    assert ops(model)["DequantizeLinear"] == 1
    for got, wanted in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_consumer_that_uses_it_twice_gets_two():
    model = typed(f"g (uint8[2,3] x) => (y) {P} {{ {X} y = Mul(d, d) }}")
    assert unique_dequantization(model.graph, Rewriting(model, evaluate, {}, Journal(strict=True)))
    first, second = model.graph.outputs[0].producer.inputs
    assert first is not second


def test_constants_that_no_op_takes_quantized_are_dequantized_once():
    assert_quantizes(
        fold_dequantized,
        f"g (float[2] x, uint8[2] v) => (y) <{PARAMETERS}, uint8[2] w = {{120, 130}}> {{"
        " d = DequantizeLinear(w, s, z) a = DequantizeLinear(v, s, z) b = Mul(x, d) y = Add(a, b) }",
        f"g (float[2] x, uint8[2] v) => (y) <{PARAMETERS}, float[2] d = {{0, 0.5}}> {{"
        " a = DequantizeLinear(v, s, z) b = Mul(x, d) y = Add(a, b) }",
    )


# --- weights and biases ---------------------------------------------------------------------------------------------

CONV = (
    f"g (uint8[2,2,4,4] x) => (y) <{PARAMETERS}, int8[2,2,1,1] w = {{1, -20, 35, 42}}, float v = {{0.01}}, int8 o = {{0}},"
    " float[2] vs = {0.01, 0.02}, int8[2] os = {0, 0}, float[2] b = {0.1, -0.7}"
)


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_bias_in_floats_becomes_whole(op):
    graph = CONV if op == "Conv" else CONV.replace("[2,2,4,4]", "[5,2]").replace("[2,2,1,1]", "[2,2]")
    assert_quantizes(
        quantize_weights_and_biases,
        f"{graph}> {{ {X} e = DequantizeLinear(w, v, o) f = {op}(d, e, b) y = QuantizeLinear(f, s2, z2) }}",
        f"{graph}, int32[2] q = {{200, -1400}}, float t = {{0.0005}}>"
        f"{{ {X} e = DequantizeLinear(w, v, o) a = DequantizeLinear(q, t) f = {op}(d, e, a) y = QuantizeLinear(f, s2, z2) }}",
    )


def test_a_bias_of_channels_has_a_scale_for_each():
    assert_quantizes(
        quantize_weights_and_biases,
        f"{CONV}> {{ {X} e = DequantizeLinear<axis=0>(w, vs, os) f = Conv(d, e, b) y = QuantizeLinear(f, s2, z2) }}",
        f"{CONV}, int32[2] q = {{200, -700}}, float[2] t = {{0.0005, 0.001}}> {{ {X} e = DequantizeLinear<axis=0>(w, vs, os)"
        " a = DequantizeLinear<axis=0>(q, t) f = Conv(d, e, a) y = QuantizeLinear(f, s2, z2) }",
        opset=13,
    )


def test_weights_that_are_whole_multiples_of_a_step_become_whole():
    """As training with quantization leaves them: 12.7 is 127 steps of 0.1, 2.54 is 127 of 0.02."""
    assert_quantizes(
        quantize_weights_and_biases,
        f"g (uint8[2,2,4,4] x) => (y) <{PARAMETERS}, float[2,2,1,1] w = {{12.7, -0.3, 0.02, 2.54}}>"
        f"{{ {X} f = Conv(d, w) y = QuantizeLinear(f, s3, z3) }}",
        f"g (uint8[2,2,4,4] x) => (y) <{PARAMETERS}, int8[2,2,1,1] w = {{127, -3, 1, 127}}, float[2] t = {{0.1, 0.02}},"
        f" int8[2] o = {{0, 0}}> {{ {X} e = DequantizeLinear<axis=0>(w, t, o) f = Conv(d, e) y = QuantizeLinear(f, s3, z3) }}",
    )


@pytest.mark.parametrize(
    "body",
    [
        f"{X} f = Conv(d, r) y = QuantizeLinear(f, s3, z3)",
        f"{X} e = DequantizeLinear(w, v, o) y = Conv(d, e, b)",
        "d = Cast<to=1>(x) e = DequantizeLinear(w, v, o) f = Conv(d, e, b) y = QuantizeLinear(f, s3, z3)",
    ],
    ids=["weights that would be rounded", "a result in floats", "an operand in floats"],
)
def test_floats_that_stay(body):
    assert_quantizes(quantize_weights_and_biases, f"{CONV}, float[2,2,1,1] r = {{1, 0.123, 0.77, 3}}> {{ {body} }}", None)


# --- weights of few bits --------------------------------------------------------------------------------------------


Build = Callable[..., Value]
TYPES = {"int4": ml_dtypes.int4, "uint4": ml_dtypes.uint4, "int8": np.int8, "uint8": np.uint8, "int2": ml_dtypes.int2}


def few_bits(
    build: Build,
    dtype: str,
    shape: tuple[int, ...],
    scales: tuple[int, ...],
    has_zero_point: bool = False,
    real: type = np.float32,
) -> Model:
    """A typed model of x [3, 40] and random weights w with scales s and zero points z, which `build` puts together."""
    infer.load_families()
    rng = np.random.default_rng(1)
    limits = ml_dtypes.iinfo(TYPES[dtype])

    def whole(size: tuple[int, ...]) -> np.ndarray:
        return rng.integers(int(limits.min), int(limits.max) + 1, size).astype(np.int16).astype(TYPES[dtype])

    graph = Graph("g")
    op = Builder(graph, opsets={"": 25 if dtype == "int2" else 21})
    x = graph.add_input(Value("x", TensorType(dtypes.from_numpy(np.dtype(real)), (3, 40))))
    operands = [op.constant(whole(shape)), op.constant((rng.random(scales) + 0.01).astype(real))]
    graph.outputs = [build(op, x, *operands, op.constant(whole(scales)) if has_zero_point else None)]
    model = Model(graph, opsets=dict(op.opsets) | {"com.microsoft": 1})
    infer.infer(model, evaluate)
    return model


def assert_multiplies(model: Model, options: dict[str, str] | None = None, rtol: float = 1e-5) -> Node:
    """Check that a product reads its weights as they are stored; returns it."""
    feeds = full_range_feeds(model.graph)
    want = run(model, feeds)
    assert multiply_few_bits(model.graph, Rewriting(model, evaluate, options or {}, Journal(strict=True)))
    edit.remove_unused(model.graph)
    verify.verify(model)
    assert ops(model) == {"MatMulNBits": 1}
    for got, wanted in zip(run(model, feeds), want, strict=True):
        assert_close(got, wanted, rtol=rtol)
    return next(model.graph.nodes)


def blocked(op, x, w, s, z):
    return op.MatMul(x, op.DequantizeLinear(w, s, z, axis=0, block_size=16))


@pytest.mark.parametrize("has_zero_point", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_weights_in_blocks_are_read_as_they_are_stored(dtype, has_zero_point):
    node = assert_multiplies(few_bits(blocked, dtype, (40, 8), (3, 8), has_zero_point))
    bits = {"int2": 2, "int8": 8, "uint8": 8}.get(dtype, 4)
    assert [node.attribute(name) for name in ("K", "N", "bits", "block_size", "accuracy_level")] == [40, 8, bits, 16, 0]
    assert node.inputs[1].constant.shape == (8, 3, 2 * bits)
    assert (len(node.inputs) > 3 and node.inputs[3] is not None) == (has_zero_point or dtype.startswith("u"))


def test_half_precision_has_such_products_too():
    assert_multiplies(few_bits(blocked, "int4", (40, 8), (3, 8), real=np.float16), rtol=5e-3)


@pytest.mark.parametrize(("asked", "block_size"), [(None, 32), ("16", 16), ("-1", 32), ("0", 32)])
@pytest.mark.parametrize("scales", [(), (8,)])
def test_one_scale_for_a_column_is_one_for_all_its_blocks(asked, block_size, scales):
    def build(op, x, w, s, z):
        return op.MatMul(x, op.DequantizeLinear(w, s, z, axis=1))

    options = {} if asked is None else {MATMULNBITS_BLOCK_SIZE: asked}
    node = assert_multiplies(few_bits(build, "int4", (40, 8), scales), options)
    assert node.attribute("block_size") == block_size


def test_a_block_size_that_is_no_power_of_two_is_refused():
    def build(op, x, w, s, z):
        return op.MatMul(x, op.DequantizeLinear(w, s, z, axis=1))

    model = few_bits(build, "int4", (40, 8), (8,))
    with pytest.raises(InvalidArgument, match="is 24, but must be a power of two from 16 to 256"):
        multiply_few_bits(model.graph, Rewriting(model, evaluate, {MATMULNBITS_BLOCK_SIZE: "24"}, Journal(strict=True)))


def test_the_session_may_ask_for_less_accuracy():
    """At level 4 activations are rounded to 8 bits."""
    node = assert_multiplies(few_bits(blocked, "int4", (40, 8), (3, 8)), {MATMULNBITS_ACCURACY_LEVEL: "4"}, rtol=1e-2)
    assert node.attribute("accuracy_level") == 4


def test_gemm_with_a_row_added():
    def build(op, x, w, s, z):
        return op.Gemm(
            x, op.DequantizeLinear(w, s, z, axis=1, block_size=16), op.constant(np.arange(8, dtype=np.float32)), transB=1
        )

    node = assert_multiplies(few_bits(build, "uint4", (8, 40), (8, 3), has_zero_point=True))
    assert node.inputs[5] is not None


@pytest.mark.parametrize("by_columns", [False, True])
def test_weights_stored_block_by_block(by_columns):
    def by_rows(op, x, w, s, z):
        matrix = op.Reshape(op.DequantizeLinear(w, s, z, axis=2, block_size=16), shape=[8, 32])
        return op.MatMul(op.Slice(x, *(op.constant([one]) for one in (0, 32, 1))), op.Transpose(matrix))

    def in_columns(op, x, w, s, z):
        matrix = op.Reshape(op.DequantizeLinear(w, s, z, axis=1, block_size=16), shape=[32, 8])
        return op.MatMul(op.Slice(x, *(op.constant([one]) for one in (0, 32, 1))), matrix)

    shapes = ((2, 16, 8), (2, 1, 8)) if by_columns else ((8, 2, 16), (8, 2, 1))
    model = few_bits(in_columns if by_columns else by_rows, "uint4", *shapes, has_zero_point=True)
    feeds = full_range_feeds(model.graph)
    want = run(model, feeds)
    assert multiply_few_bits(model.graph, Rewriting(model, evaluate, {}, Journal(strict=True)))
    edit.remove_unused(model.graph)
    assert ops(model) == {"Slice": 1, "MatMulNBits": 1}
    assert_close(run(model, feeds)[0], want[0])


@pytest.mark.parametrize(
    ("build", "shape", "scales"),
    [
        (lambda op, x, w, s, z: op.MatMul(x, op.DequantizeLinear(w, s, z, axis=0)), (40, 8), (40,)),
        (lambda op, x, w, s, z: op.MatMul(x, op.DequantizeLinear(w, s, z, axis=0, block_size=8)), (40, 8), (5, 8)),
        (lambda op, x, w, s, z: op.Gemm(x, op.DequantizeLinear(w, s, z), alpha=2.0), (40, 8), ()),
    ],
    ids=["a scale per row", "blocks that are too short", "a weighted product"],
)
def test_products_that_stay(build, shape, scales):
    model = few_bits(build, "int4", shape, scales)
    assert not multiply_few_bits(model.graph, Rewriting(model, evaluate, {}, Journal(strict=True)))


def test_numbers_are_packed_with_the_lowest_bits_first():
    assert pack(np.array([[1, 2, 3]], np.uint8), 4).tolist() == [[0x21, 0x03]]
    assert pack(np.array([[1, 2, 3, 0, 1]], np.uint8), 2).tolist() == [[0b00111001, 1]]


# --- levels and config keys -----------------------------------------------------------------------------------------

UNIT = (
    f"g (float[2,2,4,4] r) => (y) <{PARAMETERS}, int8[2,2,1,1] w = {{1, -20, 35, 42}}, float v = {{0.01}}, int8 o = {{0}},"
    " float[2] b = {0.1, -0.7}, uint8 low = {0}> { x = QuantizeLinear(r, s, z) d = DequantizeLinear(x, s, z)"
    " e = DequantizeLinear(w, v, o) f = Conv(d, e, b) a = Relu(f) m = MaxPool<kernel_shape=[2,2]>(a)"
    " q = QuantizeLinear(m, s2, low) g = DequantizeLinear(q, s2, low) t = Transpose<perm=[0,2,3,1]>(g)"
    " p = QuantizeLinear(t, s2, low) y = DequantizeLinear(p, s2, low) }"
)


def optimized(text: str, level: Level, options: dict[str, str] | None = None, disabled: tuple[str, ...] = ()) -> Counter[str]:
    model = typed(text)
    feeds = full_range_feeds(model.graph)
    want = run(model, feeds)
    optimize(model, level, evaluate=evaluate, options=options, disabled=disabled, journal=Journal(strict=True))
    verify.verify(model)
    for got, wanted in zip(run(model, feeds), want, strict=True):
        assert np.abs(got - wanted).max() <= 0.0201
    return ops(model)


def test_a_quantized_network_works_on_whole_numbers():
    assert optimized(UNIT, Level.EXTENDED) == {
        "QuantizeLinear": 1,
        "QLinearConv": 1,
        "MaxPool": 1,
        "Transpose": 1,
        "DequantizeLinear": 1,
    }


def test_levels_and_keys_hold_it_back():
    assert optimized(UNIT, Level.BASIC)["Conv"] == 1
    floats = optimized(UNIT, Level.EXTENDED, {"session.disable_quant_qdq": "1"})
    assert (floats["QLinearConv"], floats["DequantizeLinear"]) == (0, 3), "weights are dequantized once, before the first run"
    assert optimized(UNIT, Level.EXTENDED, disabled=("QDQSelectorActionTransformer",))["QLinearConv"] == 0
    assert optimized(UNIT, Level.EXTENDED, disabled=("ReluQuantFusion",))["QLinearConv"] == 0


def test_pairs_are_merged_unless_told_otherwise():
    text = f"g (float[2,8] x) => (y) {P} {{ a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z)"
    text += " c = QuantizeLinear(b, s2, z) y = DequantizeLinear(c, s2, z) }"
    model = typed(text)
    for options, count in (({}, 2), ({"session.disable_double_qdq_remover": "1"}, 4)):
        model = typed(text)
        optimize(model, Level.BASIC, evaluate=evaluate, options=options, journal=Journal(strict=True))
        assert len(model.graph) == count


def test_rounding_is_dropped_on_demand_only():
    text = f"g (float[2,8] x) => (y) {P} {{ a = Neg(x) q = QuantizeLinear(a, s, z) d = DequantizeLinear(q, s, z) y = Exp(d) }}"
    for options, count in (({}, 4), ({"session.enable_quant_qdq_cleanup": "1"}, 2)):
        model = typed(text)
        optimize(model, Level.EXTENDED, evaluate=evaluate, options=options, journal=Journal(strict=True))
        assert len(model.graph) == count


def test_few_bits_at_the_basic_level_on_demand_only():
    for options, op in (({}, "MatMul"), ({"session.enable_dq_matmulnbits_fusion": "1"}, "MatMulNBits")):
        model = few_bits(blocked, "int4", (40, 8), (3, 8))
        optimize(model, Level.BASIC, evaluate=evaluate, options=options, journal=Journal(strict=True))
        assert ops(model)[op] == 1
