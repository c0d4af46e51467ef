"""A run that shall end does so inside long kernels, too: `terminate` is heard in loops whose length a number of the model says."""

from __future__ import annotations

import threading
from collections.abc import Mapping

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import Fail
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import model_of

ENDLESS = 2**62


class Patience:
    """Whether a run shall end: after having been asked so many times."""

    def __init__(self, limit: int):
        self.limit = limit
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self.limit


def pixels(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


LOOP = f"""
    g (float[1] x) => (float[1] y) <int64 M = {{{ENDLESS}}}, bool more = {{1}}>
    {{ y = Loop (M, more, x) <body = b (int64 i, bool c, float[1] state) => (bool c, float[1] state) {{ }}> }}
"""
COUNTING = LOOP.replace("(bool c, float[1] state) { }", "(bool c, float[1] next) { next = Exp(state) }")
NESTED = f"""
    g (float[1] x) => (float[1] y) <int64 M = {{{ENDLESS}}}, bool more = {{1}}> {{
        y = Loop (, more, x) <body = b (int64 i, bool c, float[1] s) => (bool c, float[1] t) {{
            t = Loop (M, more, s) <body = d (int64 j, bool e, float[1] u) => (bool e, float[1] v) {{ v = Tanh(u) }}> }}> }}
"""
KERNELS = {
    "LRN": ("g (float[1,40,1,1] x) => (y) { y = LRN<size=1152921504606846977>(x) }", {"x": pixels(1, 40, 1, 1)}),
    "MaxPool": (
        "g (float[1,1,8] x) => (y) { y = MaxPool<kernel_shape=[4000000], pads=[4000000,4000000]>(x) }",
        {"x": pixels(1, 1, 8)},
    ),
    "RoiAlign": (
        "g (float[1,1,4,4] x, float[9,4] rois, int64[9] images) => (y) { y = RoiAlign<sampling_ratio=1000>(x, rois, images) }",
        {"x": pixels(1, 1, 4, 4), "rois": pixels(9, 4) * [0, 0, 1, 1], "images": np.zeros(9, np.int64)},
    ),
    "RNN": (
        "g (float[50,1,1] x, float[1,1,1] w) => (y) { y = RNN<hidden_size=1>(x, w, w) }",
        {"x": pixels(50, 1, 1), "w": pixels(1, 1, 1)},
    ),
    "ConvTranspose": (
        "g (float[1,1,9,9] x, float[1,1,9,9] w) => (y) { y = ConvTranspose(x, w) }",
        {"x": pixels(1, 1, 9, 9), "w": pixels(1, 1, 9, 9)},
    ),
}


@pytest.mark.parametrize("op", KERNELS)
def test_kernels_that_loop_in_python_hear_that_their_run_shall_end(op: str) -> None:
    text, feeds = KERNELS[op]
    plan = make_plan(model_of(text, opset=17).graph, [CPUExecutionProvider()])
    feeds = {name: array.astype(np.float32) if array.dtype == np.float64 else array for name, array in feeds.items()}
    patience = Patience(4)
    with pytest.raises(Fail, match="terminate flag"):
        execute(plan, feeds, terminated=patience)
    assert patience.asked == 5


def test_a_loop_whose_body_has_no_nodes_can_be_ended() -> None:
    session = session_of(LOOP, native="0")
    assert "terminate flag" in failure_of(session, {"x": pixels(1)})


@pytest.mark.parametrize("text", [COUNTING, NESTED])
def test_native_loops_can_be_ended(text: str) -> None:
    session = session_of(text)
    assert [step.compiled for step in session._sess.plan.steps] == [True]
    for _ in range(2):
        assert "terminate flag" in failure_of(session, {"x": pixels(1)})


def session_of(text: str, native: str = "1") -> sardonyx.InferenceSession:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    return sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": native})])


def failure_of(session: sardonyx.InferenceSession, feeds: Mapping[str, np.ndarray]) -> str:
    """What a run says that is ended from another thread."""
    options, failures = sardonyx.RunOptions(), []

    def run() -> None:
        try:
            session.run(None, feeds, options)
        except Fail as error:
            failures.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    options.terminate = True
    thread.join()
    return failures[0]


def test_a_window_over_channels_is_cut_to_those_that_there_are() -> None:
    """Counted: one addition for each shift that meets two channels."""
    plan = make_plan(model_of(KERNELS["LRN"][0], opset=17).graph, [CPUExecutionProvider()])
    asked = Patience(10**9)
    (result,) = execute(plan, KERNELS["LRN"][1], terminated=asked)
    assert asked.asked == 1 + 2 * 40 - 1
    np.testing.assert_allclose(result, 1, rtol=1e-6)


def test_skips_beyond_the_tokens_are_not_looked_for() -> None:
    text = f"""<ir_version: 8, opset_import: ["" : 17]> g (int64[3] x) => (float[1] y) {{
        y = TfIdfVectorizer<mode="TF", min_gram_length=2, max_gram_length=2, max_skip_count={ENDLESS}, ngram_counts=[0, 0],
        ngram_indexes=[0], pool_int64s=[1, 3]>(x) }}"""
    (counts,) = sardonyx.InferenceSession(onnx.parser.parse_model(text)).run(None, {"x": np.array([1, 2, 3])})
    assert counts.tolist() == [1]
