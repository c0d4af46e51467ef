"""Tracing data movement back: each stage of a trace says truly where the traced tensor's numbers stand in it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx import ops
from sardonyx.dtypes import float32
from sardonyx.ir import Graph, Model, TensorType, Value
from sardonyx.ops.builder import Builder
from sardonyx.optimizer.axes import Stage, Trace, part_of
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import run, typed


def restored(trace: Trace, stage: Stage, array: np.ndarray) -> np.ndarray:
    """The traced tensor, made from the content of a stage as its axes tell."""
    atoms = [atom for axis in stage.axes for atom in axis]
    wanted = [atom for axis in trace.axes for atom in axis]
    array = array.reshape([atom.size for atom in atoms])
    array = array[tuple(slice(None) if atom.index is None else atom.index for atom in atoms)]
    kept = [atom for atom in atoms if atom.index is None]
    missing = [atom for atom in wanted if atom not in kept]
    assert all(atom.repeated for atom in missing)
    array = np.reshape(array, [*np.shape(array), *[1] * len(missing)])
    array = array.transpose([[*kept, *missing].index(atom) for atom in wanted])
    array = np.broadcast_to(array, [atom.size for atom in wanted])
    return array.reshape([int(np.prod([atom.size for atom in axis], dtype=int)) for axis in trace.axes]) * stage.factor


def moved(draw: st.DrawFn, op: Builder, value: Value, shape: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """One random data movement."""
    kind = draw(st.sampled_from(["Transpose", "Merge", "Divide", "Unsqueeze", "Expand", "Slice", "Gather", "Split", "Mul"]))
    rank = len(shape)
    axis = draw(st.integers(0, max(rank - 1, 0)))
    if kind == "Transpose":
        perm = draw(st.permutations(range(rank)))
        return op.Transpose(value, perm=perm), tuple(shape[one] for one in perm)
    if kind == "Merge" and axis + 1 < rank:
        new = (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])
        return op.Reshape(value, op.constant(np.array(new, np.int64))), new
    if kind == "Divide" and rank:
        by = draw(st.sampled_from([one for one in range(1, shape[axis] + 1) if shape[axis] % one == 0]))
        new = (*shape[:axis], by, shape[axis] // by, *shape[axis + 1 :])
        return op.Reshape(value, op.constant(np.array(new, np.int64))), new
    if kind == "Unsqueeze":
        return op.Unsqueeze(value, axes=[axis]), (*shape[:axis], 1, *shape[axis:])
    if kind == "Expand":
        new = (draw(st.integers(1, 2)), *(draw(st.integers(1, 3)) if size == 1 else size for size in shape))
        return op.Expand(value, op.constant(np.array(new, np.int64))), new
    if kind == "Slice" and rank:
        start = draw(st.integers(0, shape[axis] - 1))
        end = draw(st.integers(start + 1, shape[axis]))
        return op.Slice(value, starts=[start], ends=[end], axes=[axis]), (*shape[:axis], end - start, *shape[axis + 1 :])
    if kind == "Split" and rank and shape[axis] > 1:
        first = draw(st.integers(1, shape[axis] - 1))
        parts = op.node("Split", value, op.constant([first, shape[axis] - first]), outputs=2, axis=axis)
        which = draw(st.integers(0, 1))
        return parts[which], (*shape[:axis], (first, shape[axis] - first)[which], *shape[axis + 1 :])
    if kind == "Gather" and rank:
        index = op.constant(np.array(draw(st.integers(-shape[axis], shape[axis] - 1))))
        return op.Gather(value, index, axis=axis), (*shape[:axis], *shape[axis + 1 :])
    return op.Mul(value, op.constant(np.float32(2.0))), shape


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_every_stage_restores_the_traced_tensor(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    source = Value("x", TensorType(float32, shape))
    graph = Graph("g", [source])
    op = Builder(graph, opsets={"": 18})
    value, sizes = source, shape
    for _ in range(data.draw(st.integers(1, 6))):
        if int(np.prod(sizes)) <= 2000 and len(sizes) < 7:
            value, sizes = moved(data.draw, op, value, sizes)
    model = Model(graph, opsets={"": 18})
    ops.infer(model, evaluate)
    trace = Trace(value, factors=True)
    graph.outputs = [value] if value.producer else []
    inner = [stage for stage in trace.stages if stage.value.producer is not None and stage.value is not value]
    graph.outputs += [stage.value for stage in inner if all(stage.value is not output for output in graph.outputs)]
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    content = {id(source): array}
    if graph.outputs:
        content.update({id(output): result for output, result in zip(graph.outputs, run(model, {"x": array}), strict=True)})
    for stage in trace.stages:
        np.testing.assert_array_equal(restored(trace, stage, content[id(stage.value)]), content[id(value)])


def test_sizes_may_be_symbolic():
    model = typed(
        "g (float[N,S,24] x) => (float[M,S,4] y) { a = Constant<value_ints=[0,0,6,4]>() r = Reshape(x, a)"
        " t = Transpose<perm=[0,2,1,3]>(r) d = Shape(t) n = Shape<start=1,end=2>(x) h = Constant<value_ints=[4]>()"
        " m = Constant<value_ints=[-1]>() s = Concat<axis=0>(m, n, h) y = Reshape(t, s) }"
    )
    trace = Trace(model.graph.outputs[0])
    assert [str([atom.size for atom in axis]) for axis in trace.axes] == ["[<N>, 6]", "[<S>]", "[4]"]
    assert trace.stages[-1].value.name == "x"
    batch, heads = trace.axes[0]
    assert trace.stages[-1].axes == [[batch], trace.axes[1], [heads, *trace.axes[2]]]


def test_parts_are_told_from_what_is_no_part():
    model = typed(
        "g (float[N,6] x) => (float[N,3] a, float[N,2] b, float[N,3] c) { s = Constant<value_ints=[-3]>() e = Constant<value_ints=[100]>()"
        " one = Constant<value_ints=[1]>() two = Constant<value_ints=[2]>() zero = Constant<value_ints=[0]>() a = Slice(x, s, e, one)"
        " sizes = Constant<value_ints=[4,2]>() unused, b = Split<axis=1>(x, sizes) c = Slice(x, zero, e, one, two) }"
    )
    a, b, c = (part_of(value) for value in model.graph.outputs)
    assert (a.axis, a.start, a.length, a.size) == (1, 3, 3, 6)
    assert (b.axis, b.start, b.length, b.size) == (1, 4, 2, 6)
    assert c is None
