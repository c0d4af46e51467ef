"""Data movement in generated code against NumPy: joining, padding, tiling, transposed copies, matrices made of positions."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

FEW = settings(max_examples=15, deadline=None)
TYPES = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
    "uint8": np.uint8,
    "bool": np.bool_,
}


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 99, shape).astype(dtype)


# --- joining


@pytest.mark.parametrize("outputs", ["float[n,4] first, float[n,4] second", "int64[n,1] place, float[n,4] second"])
def test_a_part_that_several_take_is_computed_into_the_first(outputs: str) -> None:
    """The column that both take lies otherwise in memory than they do; there is one place for each of them."""
    text = f"""agraph (float[n,3] x, float[3,n] y) => ({outputs})
        <float[3] limits = {{20, 40, 60}}, int64[1] last = {{2}}, float[1] zero = {{0}}, float[1] one = {{1}}> {{
        turned = Transpose<perm=[1,0]>(y)
        column = Gather<axis=1>(turned, last)
        less = Less(column, limits)
        numbers = Cast<to=1>(less)
        nothing = Mul(column, zero)
        ones = Add(nothing, one)
        first = Concat<axis=1>(numbers, ones)
        second = Concat<axis=1>(x, ones)
        place = ArgMax<axis=1>(first)
    }}"""
    assert_agrees(text, [{"x": numbers(n, 3), "y": numbers(3, n)} for n in (5, 1, 0, 70)])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("axis", (0, 1, -1))
def test_joining(name: str, axis: int) -> None:
    text = f"agraph ({name}[a,b,c] x, {name}[d,e,f] y) => ({name}[p,q,r] z) {{ z = Concat<axis={axis}>(x, y, x) }}"
    feeds = []
    for shape, other in (((2, 3, 4), 5), ((1, 1, 1), 1), ((2, 0, 3), 2), ((3, 7, 70), 1)):
        changed = list(shape)
        changed[axis] = other
        feeds.append({"x": numbers(*shape, dtype=TYPES[name]), "y": numbers(*changed, dtype=TYPES[name])})
    assert_agrees(text, feeds, tolerance=0.0)


def test_what_is_joined_is_computed_in_its_place() -> None:
    text = """agraph (float[n,3] x, float[n,4] y) => (float[n,k] z) {
        s = Add(x, x)
        t = Mul(y, y)
        z = Concat<axis=1>(s, t, s)
    }"""
    assert_agrees(text, [{"x": numbers(n, 3), "y": numbers(n, 4)} for n in (0, 1, 50)], steps=3)


def test_joining_what_does_not_fit_raises_what_numpy_raises() -> None:
    text = "agraph (float[n,3] x, float[m,3] y) => (float[n,6] z) { z = Concat<axis=1>(x, y) }"
    with pytest.raises(Exception, match="mismatched dimensions of 3 and 2"):
        execute(native_plan(text), {"x": numbers(2, 3), "y": numbers(3, 3)})


# --- transposing


@pytest.mark.parametrize("name", TYPES)
def test_transposed_copies(name: str) -> None:
    text = f"agraph ({name}[a,b] x) => ({name}[b,a] y) {{ y = Transpose(x) }}"
    sizes = [(16, 16), (64, 128), (37, 41), (100, 3), (3, 100), (17, 16), (130, 66), (0, 5), (1, 9)]
    assert_agrees(text, [{"x": numbers(*shape, dtype=TYPES[name])} for shape in sizes], tolerance=0.0)


@FEW
@given(st.permutations(range(4)), st.lists(st.integers(1, 20), min_size=4, max_size=4))
def test_any_permutation(perm: list[int], shape: list[int]) -> None:
    text = f"agraph (float[a,b,c,d] x) => (float[e,f,g,h] y) {{ y = Transpose<perm={perm}>(x) }}"
    assert_agrees(text, {"x": numbers(*shape)})


@pytest.mark.parametrize("name", ("float16", "float", "double", "int32"))
def test_chains_with_transposed_operands(name: str) -> None:
    text = f"""agraph ({name}[a,b,c] x, {name}[c,b,a] y, {name}[c,1,a] z) => ({name}[c,b,a] r, {name}[c,b,a] s) {{
        t = Transpose<perm=[2,1,0]>(x)
        r = Add(t, y)
        s = Mul(r, z)
    }}"""
    dtype = {"int32": np.int32, **TYPES}[name]
    sizes = [(16, 1, 16), (40, 2, 37), (3, 5, 19), (65, 1, 65), (0, 2, 3), (1, 1, 1)]
    feeds = [
        {"x": numbers(a, b, c, dtype=dtype), "y": numbers(c, b, a, dtype=dtype), "z": numbers(c, 1, a, dtype=dtype)}
        for a, b, c in sizes
    ]
    assert_agrees(text, feeds)


@pytest.mark.parametrize("channels", (2, 3, 4, 5, 8))
def test_few_channels_to_the_last_axis_and_back(channels: int) -> None:
    text = f"""agraph (float[n,{channels},h,w] x) => (float[n,h,w,{channels}] y, float[n,{channels},h,w] z) {{
        y = Transpose<perm=[0,2,3,1]>(x)
        a = Add(y, y)
        z = Transpose<perm=[0,3,1,2]>(a)
    }}"""
    assert_agrees(text, [{"x": numbers(*size)} for size in ((1, channels, 9, 7), (2, channels, 16, 16), (1, channels, 1, 1))])


@pytest.mark.parametrize("mode", ("DCR", "CRD"))
@pytest.mark.parametrize("block", (1, 2, 3))
def test_blocks_of_pixels(mode: str, block: int) -> None:
    depth = 2 * block * block
    text = f"""agraph (float[n,{depth},h,w] x) => (float[n,2,p,q] y, float[n,{depth},h,w] z) {{
        y = DepthToSpace<blocksize={block}, mode="{mode}">(x)
        z = SpaceToDepth<blocksize={block}>(y)
    }}"""
    assert_agrees(text, [{"x": numbers(n, depth, h, w)} for n, h, w in ((1, 3, 5), (2, 1, 1), (0, 2, 2), (1, 20, 33))])


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("sizes", ["2,3,5,6", "n,3,h,w"], ids=["known", "open"])
@pytest.mark.parametrize(
    ("after", "channels"),
    [("y = Identity(d)", 2), ("y = Conv(d, v)", 2), ("e = Relu(d) y = Concat<axis=1>(e, d)", 4), ("y = Add(d, d)", 2)],
    ids=["given out", "convolved", "joined", "added"],
)
def test_channels_of_a_convolution_become_pixels(mode: str, sizes: str, after: str, channels: int) -> None:
    """Images of convolutions lie with their channels last."""
    rng = np.random.default_rng(3)
    filters = {"w": rng.standard_normal((8, 3, 1, 1)), "v": rng.standard_normal((2, 2, 3, 3))}
    w, v = (", ".join(f"{number:.6f}" for number in filters[name].ravel()) for name in ("w", "v"))
    text = f"""agraph (float[{sizes}] x) => (float[a,{channels},b,c] y) <float[8,3,1,1] w = {{{w}}}, float[2,2,3,3] v = {{{v}}}> {{
        f = Conv(x, w)
        d = DepthToSpace<blocksize=2, mode="{mode}">(f)
        {after} }}"""
    assert_agrees(text, {"x": rng.standard_normal((2, 3, 5, 6)).astype(np.float32)})


# --- tiling and padding


@FEW
@given(st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_tiling(repeats: list[int]) -> None:
    braces = "{" + ",".join(map(str, repeats)) + "}"
    text = f"agraph (int8[a,b,c] x) => (int8[d,e,f] y) <int64[3] repeats = {braces}> {{ y = Tile(x, repeats) }}"
    assert_agrees(text, [{"x": numbers(*shape, dtype=np.int8)} for shape in ((2, 3, 4), (1, 1, 1), (2, 0, 3))])


@pytest.mark.parametrize("mode", ("constant", "edge", "reflect", "wrap"))
@pytest.mark.parametrize("pads", ([1, 0, 2, 0, 3, 1], [0, 0, -1, 2, 0, -1], [0, 0, 0, 0, 0, 0]))
def test_padding(mode: str, pads: list[int]) -> None:
    braces = "{" + ",".join(map(str, pads)) + "}"
    text = f"""agraph (float[a,b,c] x) => (float[d,e,f] y) <int64[6] pads = {braces}, float value = {{2.5}}> {{
        y = Pad<mode="{mode}">(x, pads, value)
    }}"""
    sizes = [(4, 4, 5), (3, 5, 6), (2, 2, 3), (9, 4, 40)]  # some are too small for one reflection: NumPy then
    assert_agrees(text, [{"x": numbers(*shape)} for shape in sizes], tolerance=0.0)


def test_padding_with_zeros_and_an_empty_value() -> None:
    text = "agraph (float16[a,b] x) => (float16[c,d] y) <int64[4] pads = {0,1,2,0}> { y = Pad(x, pads) }"
    assert_agrees(text, [{"x": numbers(*shape, dtype=np.float16)} for shape in ((2, 3), (0, 3), (0, 0))])


# --- made of positions


@pytest.mark.parametrize("upper", (0, 1))
@pytest.mark.parametrize("k", (0, 2, -1, 100, -(2**62)))
def test_triangles(upper: int, k: int) -> None:
    text = f"agraph (float[n,a,b] x) => (float[n,a,b] y) <int64 k = {{{k}}}> {{ y = Trilu<upper={upper}>(x, k) }}"
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((2, 3, 4), (1, 5, 3), (1, 1, 1), (0, 2, 2), (1, 33, 40))])


@pytest.mark.parametrize("to, k", ((1, 0), (10, 2), (7, -1), (9, 1)))
def test_unit_matrices(to: int, k: int) -> None:
    name = {1: "float", 10: "float16", 7: "int64", 9: "bool"}[to]
    text = f"agraph (float[a,b] x) => ({name}[a,b] y) {{ y = EyeLike<dtype={to}, k={k}>(x) }}"
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((3, 4), (1, 1), (0, 2), (5, 3), (70, 70))])


@pytest.mark.parametrize("axis", (-1, 0, 1))
@pytest.mark.parametrize("index", ("int32", "int64", "uint8", "float16", "float"))
def test_one_hot_vectors(axis: int, index: str) -> None:
    text = f"""agraph ({index}[a,b] x, float[2] values) => (float[p,q,r] y) <int64 depth = {{5}}> {{
        y = OneHot<axis={axis}>(x, depth, values)
    }}"""
    indices = np.array([[0, 4, -1], [7, -9, 2]]).astype("float32" if index == "float" else index)
    values = np.array([0.5, 2], np.float32)
    assert_agrees(text, [{"x": one, "values": values} for one in (indices, indices[:, :0], indices[:1, :1])])


@pytest.mark.parametrize("batch_axis", (0, 1))
def test_reversed_sequences(batch_axis: int) -> None:
    text = f"""agraph (float[a,b,c] x, int64[n] lengths) => (float[a,b,c] y) {{
        y = ReverseSequence<batch_axis={batch_axis}, time_axis={1 - batch_axis}>(x, lengths)
    }}"""
    x = numbers(4, 4, 3)
    assert_agrees(text, {"x": x, "lengths": np.array([0, 1, 3, 4])})
    with pytest.raises(Exception, match="Invalid sequence length"):
        execute(native_plan(text), {"x": x, "lengths": np.array([0, 1, 3, 5])})
    assert programs(native_plan(text))


@pytest.mark.parametrize(
    "node, result",
    [
        ("Transpose(x)", "float[b,a]"),
        ("Concat<axis=1>(x, x)", "float[a,c]"),
        ("Concat<axis=0>(x, x)", "float[c,b]"),
        ("Tile(x, repeats)", "float[c,d]"),
        ("Pad(x, pads)", "float[c,d]"),
        ("Trilu(x)", "float[a,b]"),
        ("EyeLike(x)", "float[a,b]"),
    ],
)
def test_work_that_is_shared_by_threads(node: str, result: str) -> None:
    text = f"agraph (float[a,b] x) => ({result} y) <int64[2] repeats = {{2,3}}, int64[4] pads = {{1,2,3,4}}> {{ y = {node} }}"
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((401, 307), (1, 150000), (70000, 2))])


@pytest.mark.parametrize("start,step", [(0, -1), (3, -1), (7, -2), (-1, -3)])
def test_the_beginning_of_an_axis_backward(start: int, step: int) -> None:
    text = f"""agraph (float[a,b] x) => (float[a,c] y) {{
        s = Constant<value_ints=[{start}]>() e = Constant<value_ints=[-9223372036854775807]>()
        i = Constant<value_ints=[1]>() t = Constant<value_ints=[{step}]>()
        z = Slice(x, s, e, i, t)
        y = Add(z, z)
    }}"""
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((3, 4), (2, 1), (5, 40), (2, 0), (2, 8))], level=1)


@pytest.mark.parametrize(
    "node",
    [
        "Slice<starts=[1,-2], ends=[9,100], axes=[0,1]>(x)",
        "Pad<pads=[1,0,0,2], value=1.5>(x)",
        'Pad<pads=[1,0,0,2], mode="edge">(x)',
    ],
)
def test_operands_that_were_attributes_of_old_versions(node: str) -> None:
    text = f"agraph (float[a,b] x) => (float[c,d] y) {{ z = {node} y = Transpose(z) }}"
    assert_agrees(text, [{"x": numbers(*shape)} for shape in ((3, 4), (2, 2), (5, 40))], opset=9)


def test_axes_of_old_versions() -> None:
    text = "agraph (float[a,b] x) => (float[b,a] y) { u = Unsqueeze<axes=[0]>(x) z = Squeeze<axes=[0]>(u) y = Transpose(z) }"
    assert_agrees(text, {"x": numbers(3, 5)}, opset=9)


def test_a_split_of_old_versions() -> None:
    text = """agraph (float[a,5] x) => (float[c,a] y, float[d,a] z) {
        p, q = Split<axis=1, split=[2,3]>(x)
        y = Transpose(p)
        z = Transpose(q)
    }"""
    assert_agrees(text, {"x": numbers(3, 5)}, opset=11)
