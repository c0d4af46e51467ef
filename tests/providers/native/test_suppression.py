"""Generated suppression of overlapping boxes keeps those that NumPy's keeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sardonyx.errors import CODED
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import model_of, native_plan


def text(center=0, threshold=True):
    last = ", threshold" if threshold else ""
    return f"""g (float[b,n,4] boxes, float[b,l,n] scores, int64[1] most, float[1] overlap, float[1] threshold) => (int64[k,3] Y) {{
        Y = NonMaxSuppression<center_point_box={center}>(boxes, scores, most, overlap{last})
    }}"""


def assert_keeps_the_same(feeds, **options):
    wanted = execute(make_plan(model_of(text(**options)).graph, [CPUExecutionProvider()]), feeds)
    for threads in (1, 2):
        plan = native_plan(text(**options), threads=threads)
        assert [type(step.call) for step in plan.steps] == [CompiledProgram]
        np.testing.assert_array_equal(execute(plan, feeds)[0], wanted[0])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_boxes(data):
    draw = data.draw
    rs = np.random.RandomState(draw(st.integers(0, 1000)))
    images, labels, count = draw(st.integers(0, 2)), draw(st.integers(1, 4)), draw(st.sampled_from([0, 1, 15, 16, 40, 100]))
    coarse = draw(st.booleans())
    boxes, scores = rs.rand(images, count, 4) * 20, rs.rand(images, labels, count)
    feeds = {
        "boxes": (np.floor(boxes) if coarse else boxes).astype(np.float32),
        "scores": (np.floor(scores * 6) / 6 if coarse else scores).astype(np.float32),
        "most": np.array([draw(st.sampled_from([-1, 0, 1, 5, 1000, 1 << 60]))]),
        "overlap": np.array([draw(st.sampled_from([0, 0.3, 0.5, 1]))], np.float32),
        "threshold": np.array([draw(st.sampled_from([-1, 0.5, 2]))], np.float32),
    }
    assert_keeps_the_same(feeds, center=draw(st.integers(0, 1)), threshold=draw(st.booleans()))


def test_what_is_not_finite_is_left_to_numpy():
    feeds = {
        "boxes": np.array([[[0, 0, 1, 1], [0, 0, 1, np.inf], [2, 2, 3, 3]]], np.float32),
        "scores": np.array([[[0.5, 0.9, -np.inf]]], np.float32),
        "most": np.array([3]),
        "overlap": np.array([0.5], np.float32),
        "threshold": np.array([0.1], np.float32),
    }
    assert_keeps_the_same(feeds)


@pytest.mark.parametrize("name", ["most", "overlap", "threshold"])
@pytest.mark.parametrize("count", [0, 2])
def test_what_has_not_one_number_is_refused_as_by_numpy(name, count):
    source = text().replace("[1]", "[]")
    feeds = {
        "boxes": np.array([[[0, 0, 1, 1], [2, 2, 3, 3]]], np.float32),
        "scores": np.array([[[0.5, 0.9]]], np.float32),
        "most": np.array([3]),
        "overlap": np.array([0.5], np.float32),
        "threshold": np.array([0.1], np.float32),
    }
    feeds[name] = np.repeat(feeds[name], count)
    said = []
    for plan in (native_plan(source), make_plan(model_of(source).graph, [CPUExecutionProvider()])):
        with pytest.raises(CODED) as raised:
            execute(plan, feeds)
        said.append(str(raised.value))
    assert said[0] == said[1]
