"""Generated Einsum agrees with NumPy's: views, products of elements, matrix products and sums, for any equation of one or two operands."""

from __future__ import annotations

import numpy as np
import onnx.numpy_helper
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.errors import InvalidArgument
from sardonyx.providers.native import provider
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

SIZES = dict(zip("abcdhijkwq", (3, 2, 5, 8, 4, 7, 6, 9, 5, 17)))
OTHERS = SIZES | {"i": 1, "j": 1, "b": 1}
LARGER = SIZES | {"i": 50, "j": 40, "h": 7, "c": 70}
EMPTY = SIZES | {"k": 0, "a": 0}


@pytest.fixture(autouse=True)
def _no_way_back(monkeypatch, request):
    """What is compared with NumPy must not be NumPy's own."""
    if "numpy" not in request.node.name:
        monkeypatch.setattr(provider.Interpreted, "__call__", None)


def einsum_text(equation, shapes, name="float"):
    operands = [f"x{number}" for number in range(len(shapes))]

    def typed(shape):
        """In ONNX's text, empty brackets say that nobody knows the rank."""
        return f"{name}[{','.join(map(str, shape))}]" if len(shape) else name

    given = ", ".join(f"{typed(shape)} {one}" for shape, one in zip(shapes, operands))
    rank = len(equation.split("->")[1].replace(".", "")) if "->" in equation else 2
    result = typed([f"o{axis}" for axis in range(rank)])
    return f'g ({given}) => ({result} y) {{ y = Einsum<equation="{equation}">({", ".join(operands)}) }}'


def arrays(rs, shapes, dtype=np.float32):
    return {f"x{number}": (rs.standard_normal(shape) * 4).astype(dtype) for number, shape in enumerate(shapes)}


def terms_of(equation):
    return equation.split("->")[0].replace(" ", "").split(",")


@pytest.mark.parametrize(
    "equation",
    [
        *("ij->ji", "ijk->kij", "ii->i", "iij->ji", "ij->", "ijk->ik", "ijk->j", "ijk->ki"),
        *("i,j->ij", "i,j->ji", "ij,ji->ij", "i,j,k->ijk", "ij,ij->", "ij,ij->i", "ij,j->i", "ij,i->j", "ijk,jk->i"),
        *("ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "bij,bkj->bki", "bhid,bhjd->bhij", "bhij,bhjd->bhid", "ij,jk"),
        *("bkd,hdj->bkhj", "bid,hdk->bhik", "bhwc,hkc->bhwk", "bhwc,wkc->bhwk", "bqc,bchw->bqhw", "bhwc,hkc->bkhw"),
        *("abk,ck->acb", "abk,bkc->abc", "abcd,cdk->abk", "abcd,dck->abk", "bchw,bkhw->bck", "bqhd,bkhd->bhqk"),
        *("bhqk,bkhd->bqhd", "ii,ij->j", "iji,jk->ik", "ijk,k->", "ij,kj->"),
    ],
)
def test_equations(equation):
    rs, terms = np.random.RandomState(0), terms_of(equation)
    feeds = [arrays(rs, [[sizes[label] for label in term] for term in terms]) for sizes in (SIZES, OTHERS, LARGER, EMPTY)]
    assert_agrees(einsum_text(equation, terms), feeds, tolerance=1e-5)
    for sizes, one in zip((SIZES, OTHERS), feeds):
        assert_agrees(einsum_text(equation, [[sizes[label] for label in term] for term in terms]), one, tolerance=1e-5)


@pytest.mark.parametrize("name", ["float16", "double", "int32", "uint8"])
@pytest.mark.parametrize("equation", ["ij,jk->ik", "bij,bkj->bik", "ij,ij->i", "i,j->ij", "ij->j"])
def test_types(name, equation):
    dtype = {"float16": np.float16, "double": np.float64, "int32": np.int32, "uint8": np.uint8}[name]
    rs, terms = np.random.RandomState(0), terms_of(equation)
    shapes = [[LARGER[label] for label in term] for term in terms]
    feeds = {one: np.abs(array) for one, array in arrays(rs, shapes).items()}
    feeds = {one: array.astype(dtype) for one, array in feeds.items()}
    assert_agrees(einsum_text(equation, terms, name), feeds)


@pytest.mark.parametrize("equation", ["...ij,...jk->...ik", "...ij,jk->...ik", "i...,...->i...", "...ij->...ji"])
def test_ellipses(equation):
    rs = np.random.RandomState(0)
    shapes = {
        "...ij,...jk->...ik": [(2, 1, 3, 4), (5, 4, 6)],
        "...ij,jk->...ik": [(2, 5, 3, 4), (4, 6)],
        "i...,...->i...": [(3, 4, 5), (4, 5)],
        "...ij->...ji": [(2, 3, 4)],
    }[equation]
    text = einsum_text(equation, shapes)
    rank = {"...ij,...jk->...ik": 4, "...ij,jk->...ik": 4, "i...,...->i...": 3, "...ij->...ji": 3}[equation]
    text = text[: text.index("=> (float")] + f"=> (float[{','.join('pqrs'[:rank])}] y)" + text[text.index(") {") + 1 :]
    assert_agrees(text, arrays(rs, shapes), tolerance=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_equation(data):
    draw = data.draw
    labels = draw(st.sampled_from(["ijk", "ijkl", "abcde"]))
    sizes = {label: draw(st.sampled_from([1, 2, 5, 19])) for label in labels}
    count = draw(st.integers(1, 2))
    terms = ["".join(draw(st.lists(st.sampled_from(labels), max_size=4))) for _ in range(count)]
    there = sorted(set("".join(terms)))
    output = "".join(draw(st.permutations(there)))[: draw(st.integers(0, len(there)))]
    # an operand may be repeated along an axis
    shapes = [[1 if draw(st.integers(0, 9)) == 0 else sizes[label] for label in term] for term in terms]
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    equation = f"{','.join(terms)}->{output}"
    assert_agrees(einsum_text(equation, shapes), arrays(rs, shapes), tolerance=1e-5)


@pytest.mark.parametrize(
    "equation,right", [("bid,hdk->bihk", (3, 20, 9)), ("bid,kd->bik", (50, 20)), ("bid,hdk->bhik", (3, 20, 9))]
)
def test_weights_are_packed_beforehand(equation, right):
    rs = np.random.RandomState(0)
    W = rs.standard_normal(right).astype(np.float32)
    node = helper.make_node("Einsum", ["x0", "W"], ["y"], equation=equation)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, ["b", "i", 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(W, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    feeds = [arrays(rs, [(b, i, 20)]) for b, i in ((1, 1), (2, 30), (0, 3))]
    assert_agrees(model, feeds, tolerance=1e-5)
    assert not any("pack" in step.kernel.title for one in programs(native_plan(model)) for step in one.program.steps)


def test_what_follows_is_fused():
    text = """g (float[b,i,d] x0, float[b,j,d] x1, float[j] bias) => (float[b,i,j] y) {
        p = Einsum<equation="bid,bjd->bij">(x0, x1)
        s = Add(p, bias)
        y = Relu(s)
    }"""
    rs = np.random.RandomState(0)
    feeds = arrays(rs, [(2, 20, 30), (2, 40, 30)]) | {"bias": rs.standard_normal(40).astype(np.float32)}
    assert_agrees(text, feeds, steps=2, tolerance=1e-5)


def test_not_a_number_and_infinity():
    rs = np.random.RandomState(0)
    feeds = arrays(rs, [(20, 30), (30, 40)])
    feeds["x0"][3, 4], feeds["x0"][5, 6], feeds["x1"][7, 8] = np.nan, np.inf, -np.inf
    assert_agrees(einsum_text("ij,jk->ik", ["ij", "jk"]), feeds, tolerance=1e-5)
    assert_agrees(einsum_text("ij,jk->i", ["ij", "jk"]), feeds, tolerance=1e-5)


def test_sizes_that_differ_raise_what_numpy_raises():
    plan = native_plan(einsum_text("ij,jk->ik", ["ij", "lk"]))
    assert programs(plan)
    with pytest.raises(InvalidArgument, match="could not be broadcast"):
        execute(plan, arrays(np.random.RandomState(0), [(2, 3), (4, 5)]))


def test_one_that_repeats_itself_is_computed_by_numpy():
    text = einsum_text("ij,jk->ik", ["ij", "lk"])
    assert_agrees(text, [arrays(np.random.RandomState(0), [(2, 3), (1, 5)])], tolerance=1e-5)


@pytest.mark.parametrize("equation", ["ij,jk,kl->il", "i,j,k->kji", "bi,bij,bj->b"])
def test_three_operands_agree(equation):
    operands = equation.split("->")[0].split(",")
    text = einsum_text(equation, operands)
    assert programs(native_plan(text))
    sizes = {"b": 2, "i": 4, "j": 7, "k": 5, "l": 3}
    feeds = arrays(np.random.RandomState(0), [[sizes[axis] for axis in one] for one in operands])
    assert_agrees(text, [feeds], tolerance=1e-5)
