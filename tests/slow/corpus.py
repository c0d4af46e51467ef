"""One model of a directory of models on sardonyx and on onnxruntime; test_corpus.py starts it as a process per model.

python -m tests.slow.corpus DIRECTORY NAME prints what differs as JSON: {"problems": [...], "seconds": {...}}. The directory holds
carried.json or generated.json or both: {name: {"file": ..., "family": ...}}.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.slow import closeness
from tests.slow.model_inputs import make_inputs, variant_count

SETTINGS = ("default", "precise", "plain")
"""How onnxruntime may compute an int8 model: as it likes, without kernels that saturate in 16 bits, without fusing anything."""


def catalogue(directory: Path) -> dict[str, dict[str, Any]]:
    lists = [directory / name for name in ("carried.json", "generated.json")]
    models = {name: entry for path in lists if path.exists() for name, entry in json.loads(path.read_text()).items()}
    return {name: entry for name, entry in models.items() if (directory / entry["file"]).exists()}


def open_session(runtime: str, path: Path, setting: str = "default") -> Any:
    module = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.log_severity_level = 4
    if setting == "precise":
        options.add_session_config_entry("session.x64quantprecision", "1")
    elif setting == "plain":
        options.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    return module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(session: Any, feeds: list[dict[str, Any]]) -> list[Any]:
    """The outputs of all feeds, one after another in one list."""
    return [output for feed in feeds for output in session.run(None, feed)]


def compare(directory: Path, name: str) -> dict[str, Any]:
    """What keeps sardonyx's outputs from being accepted as onnxruntime's, and how long each took."""
    entry = catalogue(directory)[name]
    path, family = directory / entry["file"], entry["family"]
    reference = open_session("onnxruntime", path)
    declared = reference.get_inputs()
    feeds = [make_inputs(declared, base_name(name), family, variant) for variant in range(variant_count(declared))]
    names = [output.name for output in reference.get_outputs()] * len(feeds)
    started = time.perf_counter()
    expected = {"default": run(reference, feeds)}
    reference_seconds = time.perf_counter() - started
    del reference
    started = time.perf_counter()
    session = open_session("sardonyx", path)
    created = time.perf_counter()
    got = run(session, feeds)
    finished = time.perf_counter()
    if family == "int8":
        expected |= {setting: run(open_session("onnxruntime", path, setting), feeds) for setting in SETTINGS[1:]}
    tolerance = closeness.for_family(family)
    problems = min((closeness.disagreements(names, got, outputs, tolerance) for outputs in expected.values()), key=len)
    base = directory / f"{base_name(name)}.onnx"
    if problems and family == "int8" and base != path and base.exists():
        exact = run(open_session("onnxruntime", base), feeds)
        if _as_near(got, list(expected.values()), exact):
            problems = []
    seconds = {"creation": created - started, "run": finished - created, "onnxruntime's run": reference_seconds}
    return {"problems": problems, "seconds": {what: round(value, 3) for what, value in seconds.items()}}


def _as_near(got: list[Any], references: list[list[Any]], exact: list[Any]) -> bool:
    """Quantization moved the outputs from the float model's no further here than it does there."""
    allowed = min(closeness.distance(reference, exact) for reference in references)
    return closeness.distance(got, exact) <= 1.1 * allowed + 1e-3


def base_name(name: str) -> str:
    """Quantized and float16 forms are named after their float model: bert.dyn, bert.fp16."""
    return name.partition(".")[0]


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]), sys.argv[2])))
