"""Taking and putting elements in generated code against NumPy, with indices that are negative, repeated and out of bounds."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import InvalidArgument
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import assert_agrees, model_of, native_plan, programs

FEW = settings(max_examples=15, deadline=None)
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64, "int8": np.int8}
random = np.random.default_rng(0)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return random.integers(-99, 99, shape).astype(dtype)


def indices_into(size: int, *shape: int, dtype: type = np.int64) -> np.ndarray:
    return random.integers(-size, size, shape).astype(dtype) if size else np.zeros(shape, dtype)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("axis", (0, 1, -1))
def test_gather(name: str, axis: int) -> None:
    text = f"agraph ({name}[a,b,c] x, int64[n,m] i) => ({name}[p,q,r,s] y) {{ y = Gather<axis={axis}>(x, i) }}"
    feeds = [
        {"x": numbers(*shape, dtype=TYPES[name]), "i": indices_into(shape[axis], *count)}
        for shape, count in (
            ((3, 4, 5), (2, 3)),
            ((1, 1, 1), (1, 1)),
            ((3, 2, 70), (0, 2)),
            ((5, 33, 17), (40, 2)),
            ((2, 0, 2), (0, 1)),
        )
    ]
    assert_agrees(text, feeds, tolerance=0.0)


def test_gather_of_one_slice_and_of_a_transposed_value() -> None:
    text = """agraph (float[a,b,c] x, int32 i) => (float[p,q] y, float[r,s] z) {
        y = Gather<axis=1>(x, i)
        t = Transpose<perm=[2,0,1]>(x)
        z = Gather<axis=2>(t, i)
    }"""
    assert_agrees(text, [{"x": numbers(3, 4, 5), "i": np.array(i, np.int32)} for i in (0, 3, -4)])


@pytest.mark.parametrize("index", (4, -5, 2**40))
def test_an_index_out_of_bounds_raises_what_numpy_raises(index: int) -> None:
    text = "agraph (float[n,3] x, int64[m] i) => (float[m,3] y) { g = Gather(x, i) y = Add(g, g) }"
    plan = native_plan(text)
    assert len(programs(plan)) == 1
    feeds = {"x": numbers(4, 3), "i": np.array([0, index, 1])}
    with pytest.raises(InvalidArgument, match=f"idx={index} must be within the inclusive range"):
        execute(plan, feeds)
    execute(plan, {**feeds, "i": np.array([0, -4, 3])})


NOTHING = np.zeros
OUT_OF_BOUNDS: dict[str, tuple[str, dict[str, np.ndarray]]] = {
    "Gather": (
        "agraph (float[n,3] x, int64[m] i) => (float[n,m] y) { y = Gather<axis=1>(x, i) }",
        {"x": NOTHING((0, 3), np.float32), "i": np.array([7])},
    ),
    "ScatterND": (
        "agraph (float[n,k] x, int64[m,1] i, float[m,k] u) => (float[n,k] y) { y = ScatterND(x, i, u) }",
        {"x": NOTHING((2, 0), np.float32), "i": np.array([[7]]), "u": NOTHING((1, 0), np.float32)},
    ),
    "batch first": (
        "agraph (float[n,k] x, int64[n] i) => (float[n,k] y) { y = ReverseSequence<batch_axis=0, time_axis=1>(x, i) }",
        {"x": NOTHING((2, 0), np.float32), "i": np.array([0, 7])},
    ),
    "time first": (
        "agraph (float[k,n] x, int64[n] i) => (float[k,n] y) { y = ReverseSequence<batch_axis=1, time_axis=0>(x, i) }",
        {"x": NOTHING((0, 2), np.float32), "i": np.array([0, 7])},
    ),
    "TensorScatter": (
        "agraph (float[n,k,d] x, float[n,m,d] u, int64[n] i) => (float[n,k,d] y) { y = TensorScatter(x, u, i) }",
        {"x": NOTHING((2, 3, 4), np.float32), "u": NOTHING((2, 0, 4), np.float32), "i": np.array([0, 7])},
    ),
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_indices_into_nothing_are_looked_at(name: str) -> None:
    """Steps without elements do nothing, and numbers that a feed has wrong are refused all the same, as in onnxruntime."""
    text, feeds = OUT_OF_BOUNDS[name]
    plan = native_plan(text, opset=24)
    assert len(programs(plan)) == 1
    for refusing in (plan, make_plan(model_of(text, 24).graph, [CPUExecutionProvider()])):
        with pytest.raises(InvalidArgument, match="7"):
            execute(refusing, feeds)
    right = {**feeds, "i": np.zeros_like(feeds["i"])}
    assert execute(plan, right)[0].size == feeds["x"].size


@FEW
@given(st.integers(0, 2), st.lists(st.integers(1, 6), min_size=3, max_size=3), st.data())
def test_elements(axis: int, shape: list[int], data: st.DataObject) -> None:
    text = f"""agraph (float[a,b,c] x, int64[d,e,f] i, float[d,e,f] u) => (float[d,e,f] y, float[a,b,c] z) {{
        y = GatherElements<axis={axis}>(x, i)
        z = ScatterElements<axis={axis}>(x, i, y)
    }}"""
    count = [data.draw(st.integers(0, size + 2 if position == axis else size)) for position, size in enumerate(shape)]
    assert_agrees(text, {"x": numbers(*shape), "i": indices_into(shape[axis], *count), "u": numbers(*count)})


@pytest.mark.parametrize("reduction", ("none", "add", "mul", "min", "max"))
@pytest.mark.parametrize("name", ("float", "double", "int32", "uint8", "float16", "bfloat16"))
def test_elements_joined(reduction: str, name: str) -> None:
    text = f"""agraph ({name}[a,b] x, int64[c,d] i, {name}[c,d] u) => ({name}[a,b] y, {name}[a,b] z) {{
        y = ScatterElements<axis=0, reduction="{reduction}">(x, i, u)
        z = ScatterElements<axis=1, reduction="{reduction}">(y, i, u)
    }}"""
    dtype = {"uint8": np.uint8, "int32": np.int32, **TYPES}[name]
    feeds = [{"x": numbers(n, n, dtype=dtype), "i": indices_into(n, n, n), "u": numbers(n, n, dtype=dtype)} for n in (1, 5, 30)]
    if reduction == "mul":  # stays finite
        feeds = [{**one, "x": one["x"] % 5, "u": one["u"] % 3} for one in feeds]
    if name in ("float", "float16"):
        feeds[1]["u"][2, 2], feeds[1]["x"][1, 1] = np.nan, np.nan
    assert_agrees(text, feeds)


@pytest.mark.parametrize("name", TYPES)
def test_slices_at_tuples(name: str) -> None:
    text = f"""agraph ({name}[a,b,c] x, int64[n,2] i, {name}[n,c] u) => ({name}[n,c] y, {name}[a,b,c] z) {{
        y = GatherND(x, i)
        z = ScatterND(x, i, u)
    }}"""
    dtype = TYPES[name]
    feeds = [
        {"x": numbers(3, 4, c, dtype=dtype), "i": indices_into(3, n, 2), "u": numbers(n, c, dtype=dtype)}
        for n, c in ((5, 7), (1, 1), (0, 3), (9, 40), (2, 0))
    ]
    assert_agrees(text, feeds, tolerance=0.0)


@pytest.mark.parametrize("batch_dims", (0, 1, 2))
def test_slices_at_tuples_of_batches(batch_dims: int) -> None:
    result = {0: "p,q,r,s,t", 1: "p,q,r,s", 2: "p,q,r"}[batch_dims]
    text = f"agraph (float[a,b,c,d] x, int64[a,b,1] i) => (float[{result}] y) {{ y = GatherND<batch_dims={batch_dims}>(x, i) }}"
    assert_agrees(text, [{"x": numbers(3, 3, 3, 2), "i": indices_into(3, 3, 3, 1)}])


@pytest.mark.parametrize("reduction", ("add", "mul", "min", "max"))
@pytest.mark.parametrize("name", ("float", "float16", "bfloat16"))
def test_slices_joined(reduction: str, name: str) -> None:
    text = f"""agraph ({name}[a,b] x, int64[n,1] i, {name}[n,b] u) => ({name}[a,b] y) {{
        y = ScatterND<reduction="{reduction}">(x, i, u)
    }}"""
    dtype = TYPES[name]
    feeds = [
        {"x": numbers(4, b, dtype=dtype) % 9, "i": indices_into(4, n, 1), "u": numbers(n, b, dtype=dtype) % 4}
        for n, b in ((9, 5), (3, 100), (0, 2))
    ]
    assert_agrees(text, feeds)


def test_tuples_out_of_bounds_raise_what_numpy_raises() -> None:
    text = "agraph (float[a,b] x, int64[n,2] i) => (float[n] y) { y = GatherND(x, i) }"
    plan = native_plan(text)
    assert programs(plan)
    with pytest.raises(InvalidArgument, match="idx=3 must be within"):
        execute(plan, {"x": numbers(3, 3), "i": np.array([[0, 1], [0, 3]])})


@pytest.mark.parametrize(
    "node",
    [
        "Gather<axis=0>(x, i)",
        "Gather<axis=1>(x, i)",
        "GatherElements<axis=0>(x, i)",
        "GatherElements<axis=1>(x, i)",
        "ScatterElements<axis=0>(x, i, u)",
        "ScatterElements<axis=1>(x, i, u)",
    ],
)
def test_work_that_is_shared_by_threads(node: str) -> None:
    shape = "p,q,r" if node.startswith("Gather<") else "p,q"
    text = f"agraph (float[a,b] x, int64[c,d] i, float[c,d] u) => (float[{shape}] y) {{ y = {node} }}"
    rows = 30 if node.startswith("Gather<") else 290
    assert_agrees(text, {"x": numbers(303, 301), "i": indices_into(301, rows, 300), "u": numbers(rows, 300)})
