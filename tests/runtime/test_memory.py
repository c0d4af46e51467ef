"""Memory plans: what lies where is never needed twice, peaks are upper bounds, and running by plan changes no bit."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sardonyx
from sardonyx import formats, ops
from sardonyx.errors import InvalidArgument
from sardonyx.providers.arena import aligned, find_conflicts, place, side_by_side
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.steps import StepCall
from sardonyx.runtime.api.enums import ExecutionOrder
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.memory import Kind, MemoryOptions
from sardonyx.runtime.preparation.plan import Plan, PlanOptions, make_plan
from sardonyx.startup.records import replace
from tests.runtime.models import parsed
from tests.runtime.random_models import models

PROVIDERS = [CPUExecutionProvider()]
MEMORY = [MemoryOptions(reuse, pattern) for reuse in (True, False) for pattern in (True, False)]


def planned(text: str, options: PlanOptions | None = None) -> Plan:
    model = formats.load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'))
    ops.infer(model, evaluate)
    return make_plan(model.graph, PROVIDERS, options or PlanOptions())


def by_name(plan: Plan):
    return {one.name: one for one in plan.memory.allocations}


# --- placement


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.integers(0, 5000)), max_size=30), st.booleans())
def test_buffers_in_use_together_never_overlap(blocks, limited):
    sizes = [size for _, _, size in blocks]
    spans = [(first, first + length) for first, length, _ in blocks]
    placement = place(sizes, spans, None if limited else find_conflicts(spans))
    ends = [offset + size for offset, size in zip(placement.offsets, sizes, strict=True)]
    for one in range(len(blocks)):
        assert placement.offsets[one] % 64 == 0 and ends[one] <= placement.size
        for other in range(one):
            together = spans[one][0] <= spans[other][1] and spans[other][0] <= spans[one][1]
            apart = ends[one] <= placement.offsets[other] or ends[other] <= placement.offsets[one]
            assert not together or apart or not sizes[one] or not sizes[other]
    alive = [
        sum(aligned(size) for size, (first, last) in zip(sizes, spans, strict=True) if first <= step <= last)
        for step in range(43)
    ]
    assert max(alive) <= placement.size <= side_by_side(sizes).size


# --- plans of random models


def readers_of(plan: Plan) -> dict[int, int]:
    """The last step that needs each slot."""
    last = {slot: at for at, step in enumerate(plan.steps) for slot in (*step.inputs, *step.captured)}
    return last | dict.fromkeys(plan.outputs, len(plan.steps))


def check(plan: Plan, sizes: dict[str, int]) -> None:
    memory, last = plan.memory, readers_of(plan)
    placement = memory.placement(sizes)
    of = {one.slot: one for one in memory.allocations}
    values = [one for one in memory.allocations if one.buffer is not None]
    for at, step in enumerate(plan.steps):
        alive = [one for one in values if one.first <= at <= max(last.get(one.slot, one.first), one.first)]
        for one in alive:
            assert memory.buffers[one.buffer].first <= at <= memory.buffers[one.buffer].last
        places = {
            (placement.offsets[b], aligned(sizes_of(memory.buffers[b].bytes, sizes)), b) for b in {one.buffer for one in alive}
        }
        inside = sorted((offset, size) for offset, size, _ in places if offset is not None and size)
        for (left, size), (right, _) in itertools.pairwise(inside):
            assert left + size <= right, "two buffers in use lie on each other"
        for slot in step.outputs:
            one = of.get(slot)
            if one is None or one.buffer is None or one.kind in (Kind.SHARE, Kind.OUTPUT):
                continue
            lost = [other for other in values if other.buffer == one.buffer and other is not one and other.first < at]
            assert all(last.get(other.slot, other.first) <= at for other in lost), "a value is overwritten that is needed"
            others = [
                other for other in lost if last.get(other.slot, -1) == at and other.slot in (*step.inputs, *step.captured)
            ]
            assert all(other.slot == one.source for other in others), "a step overwrites what it reads under another name"
    if memory.options.reuse or not memory.options.pattern:
        assert memory.peak(sizes) >= max(memory.in_use(sizes))
    for slot in plan.outputs:
        if of[slot].buffer is not None:
            assert memory.buffers[of[slot].buffer].outside


def sizes_of(size, sizes) -> int:
    return sardonyx.ir.dim.evaluate(size, sizes)


@settings(max_examples=120, deadline=None)
@given(models(), st.sampled_from(list(ExecutionOrder)), st.sampled_from(MEMORY), st.integers(0, 40), st.booleans())
def test_plans_hold_for_every_graph_order_and_size(model, order, memory, n, shapes_first):
    plan = make_plan(model.graph, PROVIDERS, PlanOptions(order, shapes_first, memory))
    check(plan, {"N": n})
    for step in plan.steps:
        for body in step.bodies.values():
            check(body, {"N": n})


def as_kernels_like(plan: Plan) -> Plan:
    """The plan without what it says about memory."""
    steps = [
        replace(step, overwrites=None, bodies={name: as_kernels_like(body) for name, body in step.bodies.items()})
        for step in plan.steps
    ]
    return replace(plan, steps=steps)


@settings(max_examples=120, deadline=None)
@given(models(), st.sampled_from(list(ExecutionOrder)), st.integers(1, 5), st.booleans(), st.data())
def test_running_by_plan_changes_no_bit(model, order, n, cond, data):
    plan = make_plan(model.graph, PROVIDERS, PlanOptions(order))
    feeds = {"x": np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32), "cond": np.array(cond)}
    names = [one.name for one in plan.memory.allocations if one.kind not in (Kind.STATIC, Kind.EXTERNAL)]
    fetched = data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))
    given_x = feeds["x"].copy()
    for outputs in (None, fetched):
        for got, want in zip(execute(plan, feeds, outputs), execute(as_kernels_like(plan), feeds, outputs), strict=True):
            assert got.dtype == want.dtype and got.shape == want.shape
            assert np.ascontiguousarray(got).tobytes() == np.ascontiguousarray(want).tobytes()
    assert np.array_equal(feeds["x"], given_x)


# --- single rules


def test_a_chain_of_elementwise_ops_takes_one_buffer():
    plan = planned(
        "g (float[N,4] x) => (float y) { a = Neg(x) b = Exp(a) c = Relu(b) d = Mul(c, c) y = ReduceSum<keepdims=0>(d) }"
    )
    found = by_name(plan)
    assert found["a"].kind is Kind.ALLOCATE
    assert {found[name].kind for name in "bcd"} == {Kind.REUSE}
    assert len({found[name].buffer for name in "abcd"}) == 1
    assert plan.memory.peak(N=16) == 16 * 4 * 4 + 64
    assert [step.overwrites for step in plan.steps] == [None, 0, 0, 0, None]


def test_kernels_really_write_over_operands_that_only_the_run_holds():
    plan = planned("g (float[4] x) => (float[4] y) { a = Neg(x) b = Exp(a) c = Relu(b) y = Softplus(c) }")
    given_out = []

    class Watching(StepCall):
        def __init__(self, call):
            self._call = call
            self.sharing, self.takes_out = call.sharing, call.takes_out

        def __call__(self, inputs):
            given_out.append(False)
            return self._call(inputs)

        def run_into(self, inputs, out):
            given_out.append(out is inputs[0])
            return self._call.run_into(inputs, out)

    watched = replace(plan, steps=[replace(step, call=Watching(step.call)) for step in plan.steps])
    x = np.array([1, 2, 3, -4], np.float32)
    (y,) = execute(watched, {"x": x})
    assert given_out == [False, True, True, False]
    np.testing.assert_allclose(y, np.log1p(np.exp(np.exp(-x))), rtol=1e-6)
    held = execute(watched, {"x": x}, ["a", "b", "c"])
    assert len({array.ctypes.data for array in held}) == 3


def test_a_small_view_that_would_keep_a_large_buffer_is_copied():
    text = """g (float[64,64] x) => (float[64,1] y) <int64[1] zero = {{0}}, int64[1] one = {{1}}> {{
        a = Neg(x) v = Slice(a, zero, one, one) {} w = Slice(b, zero, one, one) y = Add(v, w) }}"""
    chain = "b0 = Neg(x) b1 = Softplus(b0) b2 = Exp(b1) b = Softplus(b2)"
    plan = planned(text.format(chain), PlanOptions(ExecutionOrder.PRIORITY_BASED))
    found = by_name(plan)
    assert found["v"].kind is Kind.ALLOCATE and found["v"].slot in plan.memory.copied
    assert plan.memory.buffers[found["a"].buffer].last < found["v"].last
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    begun = replace(plan, outputs=(found["v"].slot,), steps=plan.steps[: found["v"].first + 1])
    (v,) = execute(begun, {"x": x})
    assert v.base is None


def test_half_of_a_buffer_that_is_read_at_once_is_a_view():
    text = """g (float[64,64] x) => (float[64,32] y) <int64[1] zero = {0}, int64[1] half = {32}, int64[1] one = {1}> {
        a = Neg(x) v = Slice(a, zero, half, one) y = Exp(v) }"""
    assert by_name(planned(text))["v"].kind is Kind.SHARE


def test_an_operand_that_is_needed_later_is_not_overwritten():
    found = by_name(planned("g (float[4] x) => (float[4] y) { a = Neg(x) b = Exp(a) y = Add(a, b) }"))
    assert found["b"].kind is Kind.ALLOCATE


def test_an_operand_with_a_living_alias_is_not_overwritten():
    plan = planned(
        "g (float[4,2] x) => (float[4,2] y) { a = Neg(x) v = Transpose(a) b = Exp(a) w = Transpose(v) y = Add(b, w) }",
        PlanOptions(ExecutionOrder.PRIORITY_BASED),
    )
    found = by_name(plan)
    assert found["v"].kind is Kind.SHARE and found["v"].buffer == found["a"].buffer
    assert found["b"].kind is Kind.ALLOCATE


def test_an_alias_of_a_strided_view_is_a_copy():
    text = "g (float[4,2] x) => (float[8] y) <int64[1] s = {{-1}}> {{ a = Neg(x) {} r = Reshape({}, s) y = Exp(r) }}"
    assert by_name(planned(text.format("", "a")))["r"].kind is Kind.SHARE
    assert by_name(planned(text.format("v = Transpose(a)", "v")))["r"].kind is Kind.ALLOCATE


def test_what_an_output_is_an_alias_of_is_computed_in_the_outputs_memory():
    plan = planned("g (float[4,2] x) => (float[8] y) <int64[1] s = {-1}> { a = Neg(x) y = Reshape(a, s) }")
    found = by_name(plan)
    assert found["y"].kind is Kind.OUTPUT and found["y"].buffer == found["a"].buffer
    assert plan.memory.buffers[found["a"].buffer].outside
    assert plan.memory.peak() == 64


def test_sizes_are_compared_as_expressions():
    text = """g (float[N,4] x, float[4,N] z) => (float y)
        { a = Abs(x) s = ReduceSum<keepdims=0>(a) b = Abs(z) t = ReduceSum<keepdims=0>(b) y = Add(s, t) }"""
    plan = planned(text, PlanOptions(ExecutionOrder.PRIORITY_BASED, memory=MemoryOptions(pattern=False)))
    found = by_name(plan)
    assert found["b"].kind is Kind.REUSE and found["b"].buffer == found["a"].buffer
    alone = planned(text, PlanOptions(memory=MemoryOptions(reuse=False, pattern=False)))
    assert by_name(alone)["b"].kind is Kind.ALLOCATE


def test_without_reuse_no_two_buffers_share_memory():
    text = "g (float[64] x) => (float y) { a = Abs(x) b = Softplus(x) c = Add(a, b) d = ReduceSum<keepdims=0>(c) y = Neg(d) }"
    together, apart = (planned(text, PlanOptions(memory=MemoryOptions(reuse=reuse))).memory for reuse in (True, False))
    assert apart.placement().size >= together.placement().size
    offsets = [offset for offset in apart.placement().offsets if offset is not None]
    assert len(offsets) == len(set(offsets))


def test_sizes_that_depend_on_data_are_not_in_the_arena_but_count_when_given():
    plan = planned("g (float[N] x) => (int64[1,K] y) { i = NonZero(x) j = Neg(i) y = Abs(j) }")
    assert plan.memory.placement(N=8).size == 0
    assert plan.memory.placement({"N": 8, **dict.fromkeys(plan.memory.late_symbols, 5)}).size == 64


def test_what_goes_into_a_sequence_stays():
    plan = planned(
        "g (float[4] x) => (float[4] y) <int64 i = {0}> { a = Neg(x) s = SequenceConstruct(a) b = Exp(a) y = SequenceAt(s, i) }"
    )
    found = by_name(plan)
    assert found["s"].kind is Kind.EXTERNAL
    assert found["b"].kind is Kind.ALLOCATE and plan.memory.buffers[found["a"].buffer].last == len(plan.steps)


def test_inner_graphs_count_where_they_run():
    text = """g (bool c, float[64] x) => (float[64] y) { a = Neg(x) y = If(c) <
        then_branch = t () => (float[64] p) { u = Exp(a) v = Abs(a) p = Add(u, v) }, else_branch = e () => (float[64] q) { q = Neg(a) }>
    }"""
    memory = planned(text).memory
    assert memory.peak() == 256 + 256 + 256 * 3
    assert memory.in_use() == [256, 256 + 256 + 256 * 3]


# --- sessions

NUMPY = [("CPUExecutionProvider", {"native": "0"})]
"""Step by step: native code makes one step of these models, with hardly anything to plan."""

TWO_SIZES = parsed(
    "g (float[N,M] x) => (float[N,M] y) { a = Neg(x) b = Exp(a) c = Transpose(b) d = Transpose(c) y = Add(d, x) }"
)


def test_a_sessions_plan_prints_and_knows_its_peak():
    report = sardonyx.InferenceSession(TWO_SIZES, providers=NUMPY).memory_plan()
    assert report.symbols == ["M", "N"]
    assert "4*M*N" in str(report) and "reuse of a" in str(report) and "pre-existing" in str(report)
    assert report.peak(N=4, M=8) == 128 + 128
    numeric = str(report.at(N=4, M=8))
    assert "128 = 4*M*N" in numeric and "with M=8, N=4" in numeric
    with pytest.raises(InvalidArgument, match="the memory of this model depends on M, N; M is not given"):
        report.peak(N=4)
    assert "with M=8, N=4" in report.svg(N=4, M=8)
    with pytest.raises(InvalidArgument, match="N is not given"):
        report.html(M=4)
    with pytest.raises(InvalidArgument, match="no size of this model is called Q"):
        report.at(Q=1)


def test_a_picture_names_every_buffer_and_escapes_names():
    model = parsed('g (float[8] x) => (float y) { ["n"] a = Neg(x) b = Cos(a) y = ReduceSum<keepdims=0>(b) }')
    report = sardonyx.InferenceSession(model, providers=NUMPY).memory_plan()
    assert "buffer 0: 32 bytes at 0, steps 0 to" in report.svg()
    odd = replace(report, types=dict.fromkeys(report.types, "<&>"))
    assert "&lt;&amp;&gt;" in odd.html() and "<&>" not in odd.html()


@pytest.mark.parametrize(
    ("option", "expected"),
    [("enable_mem_reuse", (False, True)), ("enable_mem_pattern", (True, False)), ("enable_cpu_mem_arena", (True, False))],
)
def test_memory_options_reach_the_plan(option, expected):
    options = sardonyx.SessionOptions()
    setattr(options, option, False)
    session = sardonyx.InferenceSession(TWO_SIZES, options)
    found = session._sess.plan.memory.options
    assert (found.reuse, found.pattern) == expected
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(-x) + x, rtol=1e-6)


def test_feeds_and_fetched_values_are_not_overwritten():
    session = sardonyx.InferenceSession(parsed("g (float[N] x) => (float[N] y) { a = Neg(x) b = Exp(a) y = Abs(b) }"))
    x = np.array([1.0, 2.0], np.float32)
    a, b, y = session.run(["a", "b", "y"], {"x": x})
    np.testing.assert_array_equal(a, [-1, -2])
    np.testing.assert_allclose(b, np.exp(-x), rtol=1e-6)
    np.testing.assert_allclose(y, b)
    np.testing.assert_array_equal(x, [1, 2])
