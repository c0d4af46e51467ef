"""What users are told of nodes that are not machine code: by `explain`, the log, the profile and `sardonyx.require_native`."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.ir.text import parse_model
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.runtime.execution import shares
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.execution.shares import TimeShares
from tests.runtime import models

X = np.arange(6, dtype=np.float32)
FOREIGN = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21, "my.ops": 1]> g (float[N] x) => (float[N] y) '
    "{ a = Exp(x) [ours] b = my.ops.Halved(a) y = Sin(b) }"
)


@sardonyx.custom_op("my.ops::Halved", "(X: T) -> (Y: T)", T={sardonyx.dtypes.float32})
def halved(X):
    return X / 2


halved.infer(lambda X: X.shape)


def options_of(**entries: str) -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    options.register_custom_op(halved)
    for key, value in entries.items():
        options.add_session_config_entry(f"sardonyx.{key}", value)
    return options


def ticking(step: int) -> Iterator[int]:
    return itertools.count(0, step)


def test_inner_time_counts_for_inner_nodes() -> None:
    """Each call of the clock is one tick: a step that runs no other takes one, one around it what is left."""
    model = parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (bool c, float[N] x) => (float[N] y) {'
        " y = If(c) <then_branch = t () => (float[N] p) { p = Neg(x) }, else_branch = e () => (float[N] q) { q = Exp(x) }> }"
    )
    plan = models.plan_of(model, [CPUExecutionProvider()])
    measured = TimeShares(ticking(1).__next__)
    execute(plan, {"c": np.array(True), "x": X}, shares=measured)
    assert {node.op_type: elapsed for node, elapsed in measured.numpy.items()} == {"If": 2, "Neg": 1}
    assert measured.native == 0 and measured.outside_share == 1


def test_time_in_machine_code_is_told_from_numpys() -> None:
    model = parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (seq(float[N]) s) { a = Exp(x) s = SequenceConstruct(a, x) }'
    )
    plan = models.plan_of(model, [NativeExecutionProvider(), CPUExecutionProvider()])
    measured = TimeShares(ticking(1).__next__)
    execute(plan, {"x": X}, shares=measured)
    assert measured.native == 1 and measured.outside_share == 0.5
    assert str(measured).startswith("NumPy took 50 % of the time (SequenceConstruct")


def test_explain_says_who_runs_what_and_why() -> None:
    session = sardonyx.InferenceSession(FOREIGN, options_of())
    text = session.explain()
    assert "machine code: 2 nodes in 2 programs" in text and "NumPy: 1 node\n" in text
    assert "Halved 'ours': " in text and "no native code" in text and "first run" not in text
    session.run(None, {"x": X})
    assert "In the first run NumPy took" in session.explain()


def test_explain_says_why_runs_of_compiled_nodes_were_left_to_numpy() -> None:
    """The values are one for each of three columns, so they are read; of four columns all get the first."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 3]> g (float[N,M] x) => (float[N,M] y)
        { y = ai.onnx.ml.Imputer<imputed_value_floats = [1.0, 2.0, 3.0], replaced_value_float = 0.0>(x) }"""
    )
    session = sardonyx.InferenceSession(model.SerializeToString(), options_of())
    session.run(None, {"x": np.zeros((2, 3), np.float32)})
    assert "machine code: 1 node" in session.explain() and "NumPy computed" not in session.explain()
    (result,) = session.run(None, {"x": np.zeros((2, 4), np.float32)})
    assert (result == 1).all() and "NumPy computed a run of 1 node of these: " in session.explain()


def test_a_model_that_is_machine_code_throughout_is_not_measured() -> None:
    session = sardonyx.InferenceSession(models.CHAIN)
    session.run(None, {"x": X.reshape(2, 3)})
    assert "NumPy: 0 nodes" in session.explain() and "first run" not in session.explain()


def test_sessions_without_native_code_are_not_measured() -> None:
    session = sardonyx.InferenceSession(models.CHAIN, providers=[("CPUExecutionProvider", {"native": "0"})])
    session.run(None, {"x": X.reshape(2, 3)})
    assert session._engine.shares is None


def test_users_are_warned_once(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "WARNED_NANOSECONDS", 0)
    monkeypatch.setattr(shares, "WARNED_SHARE", -1.0)
    session = sardonyx.InferenceSession(FOREIGN, options_of())
    with caplog.at_level(logging.WARNING, "sardonyx"):
        session.run(None, {"x": X})
        session.run(None, {"x": X})
    (record,) = (record for record in caplog.records if "NumPy took" in record.getMessage())
    assert "Halved 'ours'" in record.getMessage() and "session.explain()" in record.getMessage()


@pytest.mark.parametrize(("native", "numpy", "is_told"), [(90, 5, False), (10, 5, True), (0, 5, True), (90, 11, True)])
def test_a_tenth_of_the_time_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture, native: int, numpy: int, is_told: bool
) -> None:
    measured = TimeShares()
    measured.native = native * 1_000_000
    measured.numpy = dict.fromkeys(list(parse_model(_ONE_NODE).graph.nodes), numpy * 1_000_000)
    measured.warn()
    assert bool(caplog.records) == is_told


_ONE_NODE = '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Neg(x) }'


def test_native_code_can_be_required() -> None:
    with pytest.raises(
        errors.Fail, match=r"1 node is not machine code.*sardonyx\.require_native.*Halved 'ours'.*no native code"
    ):
        sardonyx.InferenceSession(FOREIGN, options_of(require_native="1"))
    session = sardonyx.InferenceSession(models.CHAIN, options_of(require_native="1"))
    assert session.run(None, {"x": X.reshape(2, 3)})[0].shape == (2, 3)


def test_where_native_code_is_switched_off_it_cannot_be_required() -> None:
    with pytest.raises(errors.Fail, match="not machine code"):
        sardonyx.InferenceSession(
            models.CHAIN, options_of(require_native="1"), providers=[("CPUExecutionProvider", {"native": "0"})]
        )


def test_profiles_tell_the_share_outside_of_machine_code_and_the_nodes_of_kernels(tmp_path: Path) -> None:
    options = options_of()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = sardonyx.InferenceSession(FOREIGN, options)
    session.run(None, {"x": X})
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    summaries = [event["args"] for event in events if event["name"] == "outside_machine_code"]
    assert [summary["nodes"] for summary in summaries] == ["my.ops::Halved 'ours'"] * 2
    assert all(0 <= float(summary["percent"]) <= 100 for summary in summaries)
    kernels = [event["args"]["nodes"] for event in events if event["cat"] == "Kernel"]
    assert [nodes.split()[0] for nodes in kernels] == ["Exp", "Sin"] * 2
