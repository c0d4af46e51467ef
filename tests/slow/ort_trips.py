"""One model of a directory of models through the ORT format and back; test_ort_trips.py starts it as a process per model.

python -m tests.slow.ort_trips DIRECTORY NAME prints what differs as JSON: {"problems": {trip: [...]}, "seconds": {...}, "bytes": {...}}.
The outputs of the model as it is, on onnxruntime, are the measure. `corpus.py` says what the directory holds.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.slow import closeness
from tests.slow.corpus import SETTINGS, base_name, catalogue, open_session, run
from tests.slow.model_inputs import make_inputs, variant_count


def convert(source: Path, target: Path) -> None:
    from sardonyx.cli import main

    code = main(["convert", str(source), str(target), "--force", "--json"])
    assert code == 0, f"sardonyx convert {source} {target} ended with {code}"


def save_by_onnxruntime(source: Path, target: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(target)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


TRIPS: dict[str, tuple[Callable[[Path, Path], None], str, str, str]] = {
    "onnx to our ort, on onnxruntime": (convert, "source", "ours.ort", "onnxruntime"),
    "onnx to our ort, on sardonyx": (convert, "source", "ours.ort", "sardonyx"),
    "our ort to onnx, on onnxruntime": (convert, "ours.ort", "back.onnx", "onnxruntime"),
    "onnx to its ort, on sardonyx": (save_by_onnxruntime, "source", "its.ort", "sardonyx"),
}
"""How a file is made, from which, and who runs it."""


def make_trips(directory: Path, name: str) -> dict[str, Any]:
    """What keeps the outputs after each trip from being accepted."""
    entry = catalogue(directory)[name]
    path, family = directory / entry["file"], entry["family"]
    reference = open_session("onnxruntime", path)
    declared = reference.get_inputs()
    feeds = [make_inputs(declared, base_name(name), family, variant) for variant in range(variant_count(declared))]
    names = [output.name for output in reference.get_outputs()] * len(feeds)
    expected = [run(reference, feeds)]
    del reference
    if family == "int8":
        expected += [run(open_session("onnxruntime", path, setting), feeds) for setting in SETTINGS[1:]]
    report: dict[str, Any] = {"problems": {}, "seconds": {}, "bytes": {"source": path.stat().st_size}}
    with tempfile.TemporaryDirectory() as folder:
        for trip, (make, source, target, runtime) in TRIPS.items():
            made = Path(folder) / target
            if not made.exists():
                started = time.perf_counter()
                make(path if source == "source" else Path(folder) / source, made)
                report["seconds"][target] = round(time.perf_counter() - started, 3)
                report["bytes"][target] = made.stat().st_size
            session = open_session(runtime, made)
            got = run(session, [_completed(session, one) for one in feeds])
            tolerance = closeness.for_family(family)
            found = min((closeness.disagreements(names, got, outputs, tolerance) for outputs in expected), key=len)
            if found:
                report["problems"][trip] = found
    return report


def _completed(session: Any, feed: dict[str, Any]) -> dict[str, Any]:
    """onnxruntime drops constants that it has folded, but not the inputs of the same name that old models have: nobody reads these."""
    missing = [value for value in session.get_inputs() if value.name not in feed]
    return feed | {value.name: np.zeros(value.shape, np.int64) for value in missing}


if __name__ == "__main__":
    print(json.dumps(make_trips(Path(sys.argv[1]), sys.argv[2])))
