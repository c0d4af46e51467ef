"""Rules around matrix products."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.optimizer.rules import linalg
from tests.optimizer.rewriting import assert_rewrites
from tests.optimizer.test_conv import reasons, rewritten

MATRICES = "g (float[N,3] a, float[3,2] b) => (float[N,2] y) <float[2] c = {1, 2}> "
TRANSPOSES = [linalg.transpose_first_factor, linalg.transpose_second_factor, linalg.transpose_product]


@pytest.mark.parametrize("node", ["Sum(t, c)", "Sum(c, t)", "Add(t, c)"])
def test_a_gemm_takes_a_sum(node):
    assert_rewrites(
        linalg.add_in_gemm,
        MATRICES + f"{{ t = Gemm<alpha=2.0>(a, b) y = {node} }}",
        MATRICES + "{ y = Gemm<alpha=2.0, beta=1.0>(a, b, c) }",
    )


def test_a_sum_that_enlarges_the_product_stays():
    text = "g (float[1,3] a, float[3,2] b, float[4,2] c) => (float[4,2] y) { t = Gemm(a, b) y = Add(t, c) }"
    assert reasons(assert_rewrites(linalg.add_in_gemm, text, None)) == ["what is added may enlarge the result"]
    text = text.replace("Gemm", "MatMul")
    assert reasons(assert_rewrites(linalg.bias_of_matrix, text, None)) == ["what is added may enlarge the result"]


@pytest.mark.parametrize("opset", [7, 13, 21])
@pytest.mark.parametrize("rule", [linalg.bias_of_matrix, linalg.bias_outside_attention])
def test_a_product_of_matrices_and_a_sum_are_a_gemm(opset, rule):
    assert_rewrites(rule, MATRICES + "{ t = MatMul(a, b) y = Add(c, t) }", MATRICES + "{ y = Gemm(a, b, c) }", opset=opset)


def test_products_of_stacks_stay():
    text = "g (float[N,S,3] a, float[3,2] b) => (float[N,S,2] y) <float[2] c = {1, 2}> { t = MatMul(a, b) y = Add(t, c) }"
    assert reasons(assert_rewrites(linalg.bias_of_matrix, text, None)) == ["the factors are not two matrices"]


def test_projections_of_heads_wait():
    text = "g (float[N,3] a, float[3,2] b) => (float[N,2,1] y) <float[2] c = {1, 2}, int64[3] s = {0, 2, 1}>"
    text += "{ t = MatMul(a, b) u = Add(t, c) y = Reshape(u, s) }"
    assert reasons(assert_rewrites(linalg.bias_outside_attention, text, None)) == ["it may be a projection of attention"]


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("float[3,N] a, float[3,2] b | t = Transpose<perm=[1,0]>(a) y = Gemm(t, b, c)", "Gemm<transA=1>(a, b, c)"),
        ("float[3,N] a, float[2,3] b | t = Transpose(a) y = Gemm<transB=1>(t, b)", "Gemm<transA=1, transB=1>(a, b)"),
        ("float[N,3] a, float[2,3] b | t = Transpose(b) y = Gemm(a, t)", "Gemm<transB=1>(a, b)"),
        ("float[N,3] a, float[3,2] b | t = Transpose(b) y = Gemm<transB=1>(a, t, c)", "Gemm<transB=0>(a, b, c)"),
    ],
)
def test_a_gemm_transposes_itself(text, after):
    inputs, nodes = text.split("|")
    head = f"g ({inputs}) => (float[N,2] y) <float[2] c = {{1, 2}}> "
    assert_rewrites(TRANSPOSES, head + f"{{ {nodes} }}", head + f"{{ y = {after} }}")


def test_the_transpose_of_a_product():
    head = "g (float[N,3] a, float[3,2] b) => (float[2,N] y) "
    assert_rewrites(
        TRANSPOSES,
        head + "{ t = Gemm<alpha=2.0>(a, b) y = Transpose(t) }",
        head + "{ y = Gemm<alpha=2.0, transA=1, transB=1>(b, a) }",
    )


def test_a_transpose_that_is_used_elsewhere_is_bypassed():
    head = "g (float[3,N] a, float[3,2] b) => (float[N,2] y, float[N,3] t) "
    assert_rewrites(
        TRANSPOSES,
        head + "{ t = Transpose(a) y = Gemm(t, b) }",
        head + "{ t = Transpose(a) y = Gemm<transA=1>(a, b) }",
    )


STACK = "g (float[N,S,3] x) => (float[N,S,2] y) <float[3,2] w = {1, 2, 3, 4, 5, 6}, float[2,3] v = {1, 2, 3, 4, 5, 6}, float[2] c = {1, 2}"


@pytest.mark.parametrize(("gemm", "weights"), [("Gemm(f, w, c)", "w"), ("Gemm<transB=1>(f, v, c)", "u")])
def test_a_stack_need_not_be_flattened(gemm, weights):
    flat = "flat = Constant<value_ints=[-1,3]>() f = Reshape(x, flat)"
    back = "n = Shape<start=0, end=2>(x) k = Constant<value_ints=[2]>() t = Concat<axis=0>(n, k) y = Reshape(g, t)"
    assert_rewrites(
        linalg.product_of_stack,
        STACK + f"> {{ {flat} g = {gemm} {back} }}",
        STACK + f", float[3,2] u = {{1, 4, 2, 5, 3, 6}}> {{ m = MatMul(x, {weights}) y = Add(m, c) }}",
    )


def test_a_stack_that_comes_back_in_another_shape_is_flattened():
    text = STACK.replace("float[N,S,2] y", "float[K,2] y")
    text += (
        ", int64[2] flat = {-1, 3}, int64[2] back = {-1, 2}> { f = Reshape(x, flat) g = Gemm(f, w, c) y = Reshape(g, back) }"
    )
    assert_rewrites(linalg.product_of_stack, text, None)


# --- batch normalization

BN = "float[2] s = {2, 4}, float[2] o = {1, 2}, float[2] m = {3, 5}, float[2] v = {3, 15}, float[3,2] w = {1, 2, 3, 4, 5, 6}"


def test_batch_normalization_of_columns_joins_the_product():
    ops, _ = rewritten(
        [linalg.fold_into_matmul],
        f"g (float[N,3] a) => (float[N,2] y) <{BN}> {{ t = MatMul(a, w) y = BatchNormalization(t, s, o, m, v) }}",
    )
    assert ops == ["Gemm"]


@pytest.mark.parametrize(
    ("between", "shape"),
    [
        ("u = Transpose<perm=[0,2,1]>(t)", "N,2,S"),
        ("u = Reshape(t, flat)", "K,2"),
        ("r = Reshape(t, split) u = Transpose<perm=[0,3,1,2]>(r)", "N,2,1,S"),
        ("r = Transpose<perm=[0,2,1]>(t) u = Reshape(r, image)", "N,2,S,1"),
    ],
)
def test_columns_may_be_moved_in_between(between, shape):
    constants = f"<{BN}, int64[2] flat = {{-1, 2}}, int64[4] split = {{0, 1, -1, 2}}, int64[4] image = {{0, 2, -1, 1}}>"
    ops, _ = rewritten(
        [linalg.fold_into_matmul],
        f"g (float[N,S,3] a) => (float[{shape}] y) {constants} {{ t = MatMul(a, w) {between} y = BatchNormalization(u, s, o, m, v) }}",
    )
    assert "BatchNormalization" not in ops
    assert ops.count("MatMul") == ops.count("Add") == 1


def test_batch_normalization_of_other_axes_stays():
    text = f"g (float[N,2,3] a) => (float[N,2,2] y) <{BN}> {{ t = MatMul(a, w) y = BatchNormalization(t, s, o, m, v) }}"
    journal = assert_rewrites(linalg.fold_into_matmul, text, None)
    assert reasons(journal) == ["the channels are not the columns of the product"]


@pytest.mark.parametrize("attributes", ["", "<alpha=0.5, beta=2.0>", "<transB=1>"])
@pytest.mark.parametrize("bias", ["", ", c", ", d"])
def test_batch_normalization_joins_a_gemm(attributes, bias):
    weights = BN.replace("float[3,2] w", "float[2,3] w") if "transB" in attributes else BN
    text = f"g (float[4,3] a) => (float[4,2] y) <{weights}, float[2] c = {{1, -1}}, float[4,1] d = {{1, 2, 3, 4}}> "
    ops, _ = rewritten(
        [linalg.fold_into_gemm], text + f"{{ t = Gemm{attributes}(a, w{bias}) y = BatchNormalization(t, s, o, m, v) }}"
    )
    assert ops == ["Gemm"]


# --- FusedMatMul

FUSING = [linalg.transposed_first, linalg.transposed_second]


@pytest.mark.parametrize(
    ("a", "b", "nodes", "after"),
    [
        ("N,3,S", "N,3,2", "t = Transpose<perm=[0,2,1]>(a) y = MatMul(t, b)", "<transA=1>(a, b)"),
        ("N,S,3", "N,2,3", "t = Transpose<perm=[0,2,1]>(b) y = MatMul(a, t)", "<transB=1>(a, b)"),
        ("S,N,3", "N,3,2", "t = Transpose<perm=[1,0,2]>(a) y = MatMul(t, b)", "<transBatchA=1>(a, b)"),
        ("3,N,S", "N,3,2", "t = Transpose<perm=[1,2,0]>(a) y = MatMul(t, b)", "<transA=1, transBatchA=1>(a, b)"),
    ],
)
def test_a_product_reads_its_factors_in_another_order(a, b, nodes, after):
    head = f"g (float[{a}] a, float[{b}] b) => (float[N,S,2] y) "
    assert_rewrites(FUSING, head + f"{{ {nodes} }}", head + f"{{ y = com.microsoft.FusedMatMul{after} }}")


def test_both_factors_and_a_cast():
    head = "g (float[N,3,S] a, float16[N,2,3] b) => (float[N,S,2] y) "
    assert_rewrites(
        FUSING,
        head + "{ t = Transpose<perm=[0,2,1]>(a) u = Transpose<perm=[0,2,1]>(b) v = Cast<to=1>(u) y = MatMul(t, v) }",
        head + "{ v = Cast<to=1>(b) y = com.microsoft.FusedMatMul<transA=1, transB=1>(a, v) }",
    )


@pytest.mark.parametrize(
    ("type", "a", "perm"),
    [("double", "N,3,S", [0, 2, 1]), ("float", "N,2,3,S", [0, 1, 3, 2]), ("float", "2,3,N,S", [2, 0, 3, 1])],
)
def test_other_orders_and_types_stay(type, a, perm):
    fits = type == "float" and perm == [0, 1, 3, 2]
    text = f"g ({type}[{a}] a, {type}[3,2] b) => ({type}[K] y) <int64[1] s = {{-1}}>"
    text += f"{{ t = Transpose<perm={perm}>(a) u = MatMul(t, b) y = Reshape(u, s) }}"
    ops, _ = rewritten(FUSING, text)
    assert ("FusedMatMul" in ops) == fits


SCALING = [linalg.scale_product, linalg.scale_first, linalg.scale_second]


@pytest.mark.parametrize(
    ("nodes", "alpha"),
    [
        ("t = MatMul(a, b) y = Mul(t, k)", 4.0),
        ("t = MatMul(a, b) y = Div(t, k)", 0.25),
        ("t = Mul(k, a) y = MatMul(t, b)", 4.0),
        ("t = Div(b, k) y = MatMul(a, t)", 0.25),
        ("t = Mul(a, k) u = Mul(b, k) v = MatMul(t, u) y = Div(v, k)", 4.0),
    ],
)
def test_constant_factors_are_alpha(nodes, alpha):
    head = "g (float[N,S,3] a, float[3,2] b) => (float[N,S,2] y) <float k = {4}> "
    assert_rewrites(SCALING, head + f"{{ {nodes} }}", head + f"{{ y = com.microsoft.FusedMatMul<alpha={alpha}>(a, b) }}")


@pytest.mark.parametrize("constant", ["float[2] k = {2, 3}", "float[1,1,1,1] k = {2}", "float k = {0}"])
def test_other_factors_stay(constant):
    text = f"g (float[N,S,3] a, float[3,2] b) => (float y) <{constant}> {{ t = MatMul(a, b) u = Div(t, k) y = ReduceMin<keepdims=0>(u) }}"
    with np.errstate(all="ignore"):
        assert_rewrites(SCALING, text, None, compare=False)


def test_weights_of_few_bits_take_a_bias():
    weights = ",".join(str(17 * i % 251) for i in range(16))
    constants = f"<uint8[2,1,8] w = {{{weights}}}, float[2] scales = {{0.5, 2}}, float[2] c = {{1, -1}}, float[1] d = {{1}}>"
    head = "g (float[N,S,16] a) => (float[N,S,2] y) " + constants
    node = "com.microsoft.MatMulNBits<K=16, N=2, block_size=16>(a, w, scales{})"
    assert_rewrites(
        linalg.bias_of_bits,
        head + f"{{ t = {node.format('')} y = Add(t, c) }}",
        head + f"{{ y = {node.format(', , , c')} }}",
    )
    assert_rewrites(linalg.bias_of_bits, head + f"{{ t = {node.format('')} y = Add(t, d) }}", None)
