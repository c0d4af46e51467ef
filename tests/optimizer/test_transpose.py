"""Transposes pushed through other ops: every handler, costs, constants, subgraphs, and random graphs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from sardonyx.ir import Graph, Model, dim, verify
from sardonyx.optimizer.passes import transpose_search
from sardonyx.optimizer.passes.transpose import optimize_transposes
from sardonyx.optimizer.passes.transpose_search import Movable
from sardonyx.optimizer.pipeline import Level
from sardonyx.optimizer.pipeline import optimize as optimize_all
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, described, random_feeds, run, typed
from tests.optimizer.transposed_graphs import transposed_models, whole_feeds

TO_LAST = "Transpose<perm=[0,2,3,1]>"
"""Channels from the second place to the last."""
TO_FIRST = "Transpose<perm=[0,3,1,2]>"


def transposes(graph: Graph) -> int:
    return sum(node.op_type == "Transpose" for node in graph.all_nodes())


def optimize(model: Model) -> bool:
    changed = optimize_transposes(model.graph, Rewriting(model, evaluate, {}, Journal(strict=True)))
    verify.verify(model)
    return changed


def assert_vanish(text: str, opset: int, left: int = 0, rtol: float = 0.0) -> Model:
    """Check that no more than `left` Transposes remain, and that results stay."""
    model = typed(text, opset)
    feeds = random_feeds(model.graph)
    want = run(model, feeds)
    assert optimize(model)
    assert transposes(model.graph) == left, described(model.graph)
    for got, wanted in zip(run(model, feeds), want, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)
    return model


# --- cancelling -----------------------------------------------------------------------------------------------------


def test_inverse_transposes_cancel_across_an_elementwise_op():
    assert_rewrites(
        optimize_transposes,
        f"g (float[N,3,H,W] x) => (float[N,3,H,W] y) {{ t = {TO_LAST}(x) r = Relu(t) y = {TO_FIRST}(r) }}",
        "g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }",
    )


def test_constants_are_stored_as_the_op_works():
    assert_rewrites(
        optimize_transposes,
        "g (float[N,2,H,W] x) => (float[N,2,H,W] y) <float[2] b = {1, 2}, float[1,1,1,2] c = {3, 4}, float d = {5}>"
        f"{{ t = {TO_LAST}(x) p = Add(t, b) q = Mul(c, p) r = Sub(q, d) y = {TO_FIRST}(r) }}",
        "g (float[N,2,H,W] x) => (float[N,2,H,W] y) <float[2,1,1] b = {1, 2}, float[1,2,1,1] c = {3, 4}, float d = {5}>"
        "{ p = Add(x, b) q = Mul(c, p) y = Sub(q, d) }",
    )


def test_an_operand_of_lower_rank_gets_axes_of_size_one():
    assert_rewrites(
        optimize_transposes,
        f"g (float[N,3,H,W] x, float[3] b) => (float[N,3,H,W] y) {{ t = {TO_LAST}(x) p = Add(t, b) y = {TO_FIRST}(p) }}",
        "g (float[N,3,H,W] x, float[3] b) => (float[N,3,H,W] y) <int64[2] a = {1, 2}> { u = Unsqueeze(b, a) y = Add(x, u) }",
    )


def test_transposes_in_a_row_are_one():
    assert_rewrites(
        optimize_transposes,
        "g (float[2,3,4] x) => (float[3,4,2] y) { a = Transpose(x) b = Transpose<perm=[1,0,2]>(a) y = Neg(b) }",
        "g (float[2,3,4] x) => (float[3,4,2] y) { b = Transpose<perm=[1,2,0]>(x) y = Neg(b) }",
    )


def test_the_same_transposition_is_made_once():
    assert_rewrites(
        optimize_transposes,
        "g (float[2,3] x) => (float[3,2] y) { a = Transpose(x) b = Transpose<perm=[1,0]>(x) c = MatMul(x, b) y = MatMul(a, c) }",
        "g (float[2,3] x) => (float[3,2] y) { a = Transpose(x) c = MatMul(x, a) y = MatMul(a, c) }",
    )


def test_a_transposition_of_axes_of_size_one_is_a_reshape():
    assert_rewrites(
        optimize_transposes,
        "g (float[1,S,1,8] x) => (float[1,1,S,8] y) { y = Transpose<perm=[0,2,1,3]>(x) }",
        "g (float[1,S,1,8] x) => (float[1,1,S,8] y) <int64[4] s = {1, 1, -1, 8}> { y = Reshape(x, s) }",
    )
    assert_rewrites(
        optimize_transposes,
        "g (float[N,S,1,8] x) => (float[N,S,8,1] y) { y = Transpose<perm=[0,1,3,2]>(x) }",
        "g (float[N,S,1,8] x) => (float[N,S,8,1] y) <int64[4] s = {0, 0, 8, 1}> { y = Reshape(x, s) }",
    )


def test_a_reshape_that_cannot_be_written_stays_a_transpose():
    assert_rewrites(
        optimize_transposes, "g (float[N,S,1,8] x) => (float[1,N,S,8] y) { y = Transpose<perm=[2,0,1,3]>(x) }", None
    )


def test_an_identity_transposition_goes():
    assert_rewrites(
        optimize_transposes,
        "g (float[2,3] x) => (float[2,3] y) { a = Transpose<perm=[0,1]>(x) y = Neg(a) }",
        "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }",
    )


# --- costs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        f"t = {TO_LAST}(x) y = Relu(t)",
        f"t = {TO_LAST}(x) r = Relu(t) y = Add(r, z)",
        f"t = {TO_LAST}(x) r = Relu(t) s = Sigmoid(t) y = Add(r, s)",
        "y = Transpose<perm=[0,2,3,1]>(x)",
    ],
)
def test_what_gains_nothing_stays_as_it_is(body):
    assert_rewrites(optimize_transposes, f"g (float[N,3,H,W] x, float[N,H,W,3] z) => (float[N,H,W,3] y) {{ {body} }}", None)


def test_two_small_transpositions_are_not_traded_for_a_large_one():
    assert_rewrites(
        optimize_transposes,
        "g (float[1,64,2] x, float[64,1,2] y) => (float[2,64,64] z)"
        "{ a = Transpose<perm=[2,1,0]>(x) b = Transpose<perm=[2,1,0]>(y) z = Add(a, b) }",
        None,
    )


def test_a_transposition_moves_where_tensors_are_smaller():
    assert_rewrites(
        optimize_transposes,
        "g (float[N,8,16,3] x) => (float[N,3] y) <int64[2] a = {2, 3}, int64[2] b = {1, 2}>"
        f"{{ t = {TO_FIRST}(x) r = Relu(t) y = ReduceMax<keepdims=0>(r, a) }}",
        "g (float[N,8,16,3] x) => (float[N,3] y) <int64[2] b = {1, 2}> { r = Relu(x) y = ReduceMax<keepdims=0>(r, b) }",
    )
    assert_rewrites(
        optimize_transposes,
        "g (float[1,3,8] x, int64[3] s) => (float[8,A,B] y) <int64[3] t = {4, 2, 1}>"
        "{ e = Tile(x, t) r = Relu(e) y = Transpose<perm=[2,0,1]>(r) }",
        "g (float[1,3,8] x, int64[3] s) => (float[8,A,B] y) <int64[3] t = {1, 4, 2}>"
        "{ p = Transpose<perm=[2,0,1]>(x) e = Tile(p, t) y = Relu(e) }",
    )


def test_bytes_are_moved_rather_than_floats():
    quantized = "<float s = {0.5}, uint8 z = {7}>"
    assert_rewrites(
        optimize_transposes,
        f"g (uint8[N,3,H,W] x) => (float[N,H,W,3] y) {quantized} {{ d = DequantizeLinear(x, s, z) y = {TO_LAST}(d) }}",
        f"g (uint8[N,3,H,W] x) => (float[N,H,W,3] y) {quantized} {{ t = {TO_LAST}(x) y = DequantizeLinear(t, s, z) }}",
    )
    assert_rewrites(
        optimize_transposes,
        f"g (float[N,3,H,W] x) => (uint8[N,H,W,3] y) {quantized} {{ t = {TO_LAST}(x) y = QuantizeLinear(t, s, z) }}",
        f"g (float[N,3,H,W] x) => (uint8[N,H,W,3] y) {quantized} {{ q = QuantizeLinear(x, s, z) y = {TO_LAST}(q) }}",
    )


def test_a_residual_network_with_channels_last_is_turned_as_a_whole():
    """Activations that use their operand twice and skip connections block any step taken alone."""
    block = (
        f"a{{0}} = {TO_FIRST}(h{{0}}) c{{0}} = Conv(a{{0}}, w) d{{0}} = {TO_LAST}(c{{0}}) b{{0}} = Add(d{{0}}, b)"
        " s{0} = Sigmoid(b{0}) m{0} = Mul(s{0}, b{0}) h{1} = Add(m{0}, h{0})"
    )
    blocks = " ".join(block.format(number, number + 1) for number in range(3))
    model = assert_vanish(
        "g (float[N,H,W,2] h0) => (float[N,2] y) <float[2,2,1,1] w = {1, 2, 3, 4}, float[2] b = {1, 2}, int64[2] axes = {1, 2}>"
        f"{{ {blocks} y = ReduceMean<keepdims=0>(h3, axes) }}",
        opset=18,
        left=1,
        rtol=1e-5,
    )
    first = next(node for node in model.graph.nodes if node.op_type == "Transpose")
    assert first.inputs[0].name == "h0"


def test_a_transposition_that_others_need_stays_for_them():
    assert_rewrites(
        optimize_transposes,
        f"g (float[N,3,H,W] x) => (float[N,3,H,W] y, float[N,H,W,3] t) {{ t = {TO_LAST}(x) r = Relu(t) y = {TO_FIRST}(r) }}",
        f"g (float[N,3,H,W] x) => (float[N,3,H,W] y, float[N,H,W,3] t) {{ t = {TO_LAST}(x) y = Relu(x) }}",
    )


def test_a_large_constant_that_others_use_is_not_stored_twice():
    ones = ", ".join(["1"] * 512)
    assert_rewrites(
        optimize_transposes,
        f"g (float[2,32,16] x) => (float[2,32,16] y, float[16,16] z) <float[32,16] w = {{{ones}}}>"
        "{ v = Transpose(w) y = Add(x, w) z = MatMul(v, w) }",
        f"g (float[2,32,16] x) => (float[2,32,16] y, float[16,16] z) <float[32,16] w = {{{ones}}}, float[16,32] v = {{{ones}}}>"
        "{ y = Add(x, w) z = MatMul(v, w) }",
    )


# --- handlers -------------------------------------------------------------------------------------------------------

LAST = "t = Transpose<perm=[0,2,3,1]>(x)"
"""t is [2,4,5,3]."""
HANDLED = {
    "cast": ("", f"{LAST} r = Cast<to=7>(t) y = {TO_FIRST}(r)"),
    "clip": ("float a = {-1}, float b = {1}", f"{LAST} r = Clip(t, a, b) y = {TO_FIRST}(r)"),
    "where": (
        "bool[5,3] c = {1,0,1,0,1,0,1,0,1,0,1,0,1,0,1}, float z = {2}",
        f"{LAST} r = Where(c, t, z) y = {TO_FIRST}(r)",
    ),
    "max of three": ("float a = {0}", f"{LAST} n = Neg(t) r = Max(t, a, n) y = {TO_FIRST}(r)"),
    "reduction that keeps axes": ("int64[1] a = {-1}", f"{LAST} r = ReduceSum(t, a) y = {TO_FIRST}(r)"),
    "reduction that drops axes": ("int64[1] a = {3}", f"{LAST} r = ReduceMax<keepdims=0>(t, a) y = Neg(r)"),
    "reduction of all": ("", f"{LAST} y = ReduceMin<keepdims=0>(t)"),
    "reduction of nothing": ("", f"{LAST} r = ReduceSum<noop_with_empty_axes=1>(t) y = {TO_FIRST}(r)"),
    "argmax": ("", f"{LAST} r = ArgMax<axis=-1, keepdims=0>(t) y = Neg(r)"),
    "argmin": ("", f"{LAST} r = ArgMin<axis=1, keepdims=1>(t) y = {TO_FIRST}(r)"),
    "softmax": ("", f"{LAST} r = Softmax<axis=-1>(t) y = {TO_FIRST}(r)"),
    "cumulative sum": ("int64 a = {3}", f"{LAST} r = CumSum(t, a) y = {TO_FIRST}(r)"),
    "topk": ("int64[1] k = {2}", f"{LAST} v, i = TopK<axis=3>(t, k) y = {TO_FIRST}(v)"),
    "layer normalization": (
        "float[5] s = {1,2,3,4,5}",
        "t = Transpose<perm=[2,0,1,3]>(x) r = LayerNormalization(t, s) y = Transpose<perm=[1,2,0,3]>(r)",
    ),
    "concat": ("", f"{LAST} n = Neg(t) r = Concat<axis=3>(t, n, t) y = {TO_FIRST}(r)"),
    "split": (
        "int64[2] p = {1, 2}",
        f"{LAST} a, b = Split<axis=-1>(t, p) c = {TO_FIRST}(a) d = {TO_FIRST}(b) y = Concat<axis=1>(d, c)",
    ),
    "pad": ("int64[8] p = {0,1,0,2,0,0,1,0}", f"{LAST} r = Pad(t, p) y = {TO_FIRST}(r)"),
    "pad of some axes": (
        "int64[4] p = {1,2,0,1}, int64[2] a = {1,-1}, float v = {9}",
        f"{LAST} r = Pad(t, p, v, a) y = {TO_FIRST}(r)",
    ),
    "slice": (
        "int64[2] s = {0,2}, int64[2] e = {2,-9}, int64[2] a = {3,1}, int64[2] p = {1,-1}",
        f"{LAST} r = Slice(t, s, e, a, p) y = {TO_FIRST}(r)",
    ),
    "slice from the first axis on": ("int64[2] s = {1,1}, int64[2] e = {2,3}", f"{LAST} r = Slice(t, s, e) y = {TO_FIRST}(r)"),
    "slice by narrow numbers": ("int32[2] s = {1,1}, int32[2] e = {2,3}", f"{LAST} r = Slice(t, s, e) y = {TO_FIRST}(r)"),
    "gather of a number": ("int64 i = {1}", f"{LAST} r = Gather<axis=3>(t, i) y = Neg(r)"),
    "gather of a matrix": (
        "int64[1,2] i = {1, 0}",
        f"{LAST} r = Gather<axis=3>(t, i) y = Transpose<perm=[0,3,4,1,2]>(r)",
    ),
    "gather elements": (
        "int64[2,1,1,1] i = {1, 0}",
        f"{LAST} r = GatherElements<axis=3>(t, i) y = {TO_FIRST}(r)",
    ),
    "tile": ("int64[4] p = {1,2,1,3}", f"{LAST} r = Tile(t, p) y = {TO_FIRST}(r)"),
    "expand": ("int64[5] p = {2,1,1,1,1}", f"{LAST} r = Expand(t, p) y = Transpose<perm=[0,1,4,2,3]>(r)"),
    "squeeze": (
        "int64[1] a = {1}, int64[1] b = {0}, int64[1] c = {3}",
        f"{LAST} m = ReduceMax(t, c) r = Squeeze(m, c) y = Neg(r)",
    ),
    "unsqueeze": ("int64[2] a = {0,-2}", f"{LAST} r = Unsqueeze(t, a) y = Transpose<perm=[0,1,5,4,2,3]>(r)"),
    "reshape that merges": ("int64[3] p = {2,20,3}", f"{LAST} r = Reshape(t, p) y = Transpose<perm=[0,2,1]>(r)"),
    "reshape that splits": (
        "int64[5] p = {2,2,2,5,3}",
        f"{LAST} r = Reshape(t, p) y = Transpose<perm=[0,4,1,2,3]>(r)",
    ),
    "reshape that adds an axis": ("int64[5] p = {2,4,5,1,3}", f"{LAST} r = Reshape(t, p) y = Transpose<perm=[0,4,1,2,3]>(r)"),
    "quantization of channels": (
        "float[3] s = {1, 0.5, 2}, int8[3] z = {1, 2, 3}",
        f"{LAST} q = QuantizeLinear<axis=3>(t, s, z) d = DequantizeLinear<axis=-1>(q, s, z) y = {TO_FIRST}(d)",
    ),
    "shape": ("", f"{LAST} s = Shape(t) r = Neg(s) y = Abs(r)"),
    "some of the shape": ("", f"{LAST} s = Shape<start=-2, end=4>(t) r = Neg(s) y = Abs(r)"),
    "size": ("", f"{LAST} y = Size(t)"),
}


OLD = {
    "softmax over rows": (11, "", f"{LAST} r = Softmax<axis=1>(t) y = {TO_FIRST}(r)"),
    "reduction": (12, "", f"{LAST} r = ReduceMax<axes=[3], keepdims=1>(t) y = {TO_FIRST}(r)"),
    "pad": (10, "", f"{LAST} r = Pad<pads=[0,1,0,2,0,0,1,0], value=3.0>(t) y = {TO_FIRST}(r)"),
    "slice": (9, "", f"{LAST} r = Slice<starts=[1,0], ends=[3,2], axes=[1,3]>(t) y = {TO_FIRST}(r)"),
    "slice from the first axis on": (9, "", f"{LAST} r = Slice<starts=[1,1], ends=[2,3]>(t) y = {TO_FIRST}(r)"),
    "unsqueeze": (11, "", f"{LAST} r = Unsqueeze<axes=[0]>(t) y = Transpose<perm=[0,1,4,2,3]>(r)"),
    "squeeze": (11, "", f"{LAST} m = ReduceMax<axes=[3]>(t) r = Squeeze<axes=[3]>(m) y = Neg(r)"),
    "split": (
        11,
        "",
        f"{LAST} a, b = Split<axis=3, split=[1, 2]>(t) c = {TO_FIRST}(a) d = {TO_FIRST}(b) y = Concat<axis=1>(d, c)",
    ),
    "clip": (6, "", f"{LAST} r = Clip<min=-1.0, max=1.0>(t) y = {TO_FIRST}(r)"),
    "quantization": (
        10,
        "float s = {0.5}, uint8 z = {100}",
        f"{LAST} q = QuantizeLinear(t, s, z) d = DequantizeLinear(q, s, z) y = {TO_FIRST}(d)",
    ),
}


@pytest.mark.parametrize("name", HANDLED)
def test_pushed_through(name):
    initializers, body = HANDLED[name]
    assert_vanish(_graph(initializers, body), opset=21, rtol=1e-6)


@pytest.mark.parametrize("name", OLD)
def test_pushed_through_as_older_opsets_spell_it(name):
    opset, initializers, body = OLD[name]
    assert_vanish(_graph(initializers, body), opset=opset, rtol=1e-6)


def _graph(initializers: str, body: str) -> str:
    return f"g (float[2,3,4,5] x) => (y) {'<' + initializers + '>' if initializers else ''} {{ {body} }}"


CONTRIB = {
    "QLinearAdd": "c = com.microsoft.QLinearAdd(t, s, z, b, s, z, s, z)",
    "QLinearSigmoid": "c = com.microsoft.QLinearSigmoid(t, s, z, s, z)",
    "QLinearConcat": "c = com.microsoft.QLinearConcat<axis=3>(s, z, t, s, z, t, s, z)",
    "QLinearSoftmax": "c = com.microsoft.QLinearSoftmax<axis=3, opset=13>(t, s, z, s, z)",
    "QLinearWhere": "c = com.microsoft.QLinearWhere(k, t, s, z, b, s, z, s, z)",
}


@pytest.mark.parametrize("name", CONTRIB)
def test_pushed_through_quantized_ops(name):
    assert_vanish(
        "g (uint8[2,3,4,5] x) => (y) <float s = {0.01}, uint8 z = {5}, uint8[3] b = {1, 2, 3}, bool[3] k = {0, 1, 1}>"
        f"{{ {LAST} {CONTRIB[name]} y = {TO_FIRST}(c) }}",
        opset=21,
    )


@pytest.mark.parametrize(
    ("opset", "initializers", "body"),
    [
        (21, "int64[3] p = {2,3,20}", "r = Reshape(t, p) y = Transpose<perm=[0,2,1]>(r)"),
        (21, "float[3] s = {1,2,3}", "r = LayerNormalization(t, s) y = Transpose<perm=[0,3,1,2]>(r)"),
        (11, "", "r = Softmax<axis=3>(t) y = Transpose<perm=[0,3,1,2]>(r)"),
        (21, "float[3] s = {1,2,3}", "r = BatchNormalization(x, s, s, s, s) y = Transpose<perm=[0,2,3,1]>(r)"),
    ],
    ids=["reshape across the order", "normalized axes move", "rows of axes that move", "an op without handler"],
)
def test_not_pushed_through(opset, initializers, body):
    assert_rewrites(
        optimize_transposes, _graph(initializers, f"{LAST} {body}").replace(f"{LAST} r = Batch", "r = Batch"), None, opset=opset
    )


def test_parameters_that_are_not_constant_are_put_in_order():
    assert_rewrites(
        optimize_transposes,
        f"g (float[N,3,H,W] x, int64[4] p) => (float[A,B,C,D] y) {{ {LAST} r = Tile(t, p) y = {TO_FIRST}(r) }}",
        "g (float[N,3,H,W] x, int64[4] p) => (float[A,B,C,D] y) <int64[4] i = {0, 3, 1, 2}>"
        "{ q = Gather<axis=0>(p, i) y = Tile(x, q) }",
        compare=False,
    )


def test_blocks_of_scales_move_along():
    ones = ", ".join(["1"] * 8)
    assert_vanish(
        f"g (int8[4,4] x) => (y) <float[4,2] s = {{1, 2, 3, 4, 5, 6, 7, 8}}, int8[4,2] z = {{{ones}}}>"
        "{ t = Transpose(x) u = Transpose(s) v = Transpose(z) d = DequantizeLinear<axis=0, block_size=2>(t, u, v) y = Transpose(d) }",
        opset=21,
    )


# --- graphs inside graphs -------------------------------------------------------------------------------------------


def test_a_transposed_value_that_a_branch_uses_stays_for_it():
    assert_vanish(
        f"g (float[2,3,4,5] x, bool c) => (y, z) {{ {LAST} r = Relu(t) y = {TO_FIRST}(r)"
        " z = If<then_branch = a () => (float[2,4,5,3] p) { p = Neg(t) }, else_branch = b () => (float[2,4,5,3] q) { q = Abs(t) }>(c) }",
        opset=21,
        left=1,
    )


def test_a_value_that_a_branch_returns_keeps_its_layout():
    model = typed(
        f"g (float[2,3,4,5] x, bool c) => (y, z) {{ {LAST} r = Relu(t) y = {TO_FIRST}(r)"
        " z = If<then_branch = a () => (r) { n = Neg(t) }, else_branch = b () => (float[2,4,5,3] q) { q = Abs(r) }>(c) }"
    )
    feeds = random_feeds(model.graph)
    want = run(model, feeds)
    optimize(model)
    for got, wanted in zip(run(model, feeds), want, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_graphs_inside_are_optimized_on_their_own():
    model = typed(
        "g (float[2,3,4,5] x, bool c) => (y) { y = If<"
        f"then_branch = a () => (float[2,3,4,5] p) {{ {LAST} r = Relu(t) p = {TO_FIRST}(r) }},"
        "else_branch = b () => (float[2,3,4,5] q) { q = Abs(x) }>(c) }"
    )
    inner = next(model.graph.outputs[0].producer.subgraphs)
    assert optimize_transposes(inner, Rewriting(model, evaluate, {}, Journal(strict=True)))
    verify.verify(model)
    assert transposes(model.graph) == 0


# --- random graphs --------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(transposed_models())
def test_random_graphs_compute_the_same_with_no_more_transposes(model):
    feeds = whole_feeds(model)
    want = run(model, feeds)
    for _ in range(4):
        before = transposes(model.graph)
        changed = optimize(model)
        assert transposes(model.graph) <= before
        for got, wanted in zip(run(model, feeds), want, strict=True):
            assert np.asarray(got).dtype == np.asarray(wanted).dtype
            np.testing.assert_array_equal(got, wanted)
        if not changed:
            return
    raise AssertionError("no fixed point")


def test_time_grows_with_the_number_of_nodes():
    """The search looks at each node a bounded number of times."""
    looks = [_looks(count) for count in (50, 200)]
    assert looks[1] <= 4.5 * looks[0]


def _looks(blocks: int) -> int:
    steps = " ".join(
        f"a{i} = {TO_LAST}(r{i}) b{i} = Sigmoid(a{i}) c{i} = {TO_FIRST}(b{i}) r{i + 1} = Add(c{i}, r{i})" for i in range(blocks)
    )
    model = typed(f"g (float[N,3,H,W] r0) => (float[N,3,H,W] y) {{ {steps} y = Neg(r{blocks}) }}")
    turns = 0

    class Counting(Movable):
        def turn(self, order):
            nonlocal turns
            turns += 1
            super().turn(order)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transpose_search, "Movable", Counting)
        assert optimize(model)
    assert transposes(model.graph) == 0
    return turns


def test_what_rules_before_have_found_out_about_shapes_is_kept():
    """Whether Squeeze drops the batch depends on data; where a Reshape needs it no more, sizes behind are known."""
    text = """g (float[N,7,1,1] x) => (float[M] y) <int64[2] s = {4, -1}>
        { q = Squeeze(x) r = Reshape(q, s) t = Transpose<perm=[1,0]>(r) m = ReduceMean<axes=[1], keepdims=0>(t) y = Neg(m) }"""
    model = typed(text, 13)
    optimize_all(model, Level.ALL, evaluate=evaluate)
    assert "Transpose" not in described(model.graph)
    (mean,) = [node for node in model.graph.nodes if node.op_type == "ReduceMean"]
    (size,) = mean.outputs[0].type.shape
    assert [symbol.name for symbol in dim.symbols(size)] == ["N"]


def test_a_transposition_whose_size_only_its_result_tells_stays_as_it_is():
    """The graph's output says how many elements there are, the operand does not: that is no reason to write the same once more."""
    model = typed("g (int32[N,M] x) => (int64[226,2] y) { v = NonZero(x) y = Transpose<perm=[1,0]>(v) }")
    assert not optimize(model)
