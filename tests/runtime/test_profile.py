"""The trace that profiling writes: names and arguments of events as onnxruntime has them."""

from __future__ import annotations

import gc
import json
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.runtime import models
from tests.runtime.side_by_side import BOTH

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
NAMED = models.parsed(
    "g (float[N,3] x) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { t = Mul(x, w) [last] y = Sigmoid(t) }"
)


def profiled(ort: ModuleType, folder: Path, model: Any = NAMED) -> Any:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    native = {"native": "0"} if ort is sardonyx else {}  # which would make one step of both nodes
    return ort.InferenceSession(model, options, providers=[("CPUExecutionProvider", native)])


@BOTH_APIS
def test_the_file(ort: ModuleType, tmp_path: Path) -> None:
    before = time.time_ns()
    session = profiled(ort, tmp_path)
    assert before <= session.get_profiling_start_time_ns() <= time.time_ns()
    session.run(None, {"x": X})
    session.run(None, {"x": X})
    path = session.end_profiling()
    assert re.fullmatch(r"trace_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d\d\d\.json", Path(path).name)
    assert session.end_profiling() == ""
    events = json.loads(Path(path).read_text())
    assert all(event.keys() >= {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"} for event in events)
    names = [event["name"] for event in events if event["cat"] == "Session"]
    run = ["SequentialExecutor::Execute", "model_run"]
    assert names == ["model_loading_array", "session_initialization", *run, *run]
    nodes = [event for event in events if event["cat"] == "Node" and event["name"].endswith("_kernel_time")]
    assert [event["name"] for event in nodes] == ["Mul_0_kernel_time", "last_kernel_time"] * 2
    arguments = nodes[0]["args"]
    assert arguments["op_name"] == "Mul" and arguments["provider"] == "CPUExecutionProvider" and arguments["node_index"] == "0"
    assert arguments["input_type_shape"] == [{"float": [2, 3]}, {"float": [3]}]
    assert arguments["output_type_shape"] == [{"float": [2, 3]}]
    assert (arguments["parameter_size"], arguments["activation_size"], arguments["output_size"]) == ("12", "24", "24")
    assert "main_thread" in arguments["thread_scheduling_stats"]
    assert all(event["ts"] >= 0 and event["dur"] >= 0 and event["ph"] == "X" for event in events)


def test_events_lie_inside_their_run(tmp_path: Path) -> None:
    session = profiled(sardonyx, tmp_path)
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    (run,) = (event for event in events if event["name"] == "model_run")
    for event in events:
        if event["cat"] == "Node":
            assert run["ts"] <= event["ts"] and event["ts"] + event["dur"] <= run["ts"] + run["dur"] + 1


@BOTH_APIS
def test_models_from_files_are_told_apart(ort: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(NAMED)
    events = json.loads(Path(profiled(ort, tmp_path, str(tmp_path / "m.onnx")).end_profiling()).read_text())
    assert events[0]["name"] == "model_loading_uri"


@BOTH_APIS
def test_without_profiling_there_is_no_file(ort: ModuleType) -> None:
    session = ort.InferenceSession(NAMED)
    assert session.end_profiling() == "" and session.get_profiling_start_time_ns() == 0


def test_a_session_that_goes_away_writes_its_trace(tmp_path: Path) -> None:
    profiled(sardonyx, tmp_path).run(None, {"x": X})
    gc.collect()
    (path,) = tmp_path.glob("trace_*.json")
    assert any(event["name"] == "model_run" for event in json.loads(path.read_text()))


def test_nodes_of_bodies_are_in_the_trace(tmp_path: Path) -> None:
    session = profiled(sardonyx, tmp_path, models.FOREVER)
    session.run(None, {"x": np.float32(1), "count": np.array(3)})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert sum(event["args"].get("op_name") == "Add" for event in events) == 3


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    session = profiled(sardonyx, tmp_path / "no")
    session.run(None, {"x": X})
    assert session.end_profiling().endswith(".json")
