"""`python -m benchmarks.accuracy FOLDER`: how far sardonyx and onnxruntime are from results in float64, for the models of a folder.

Without FOLDER it is what SARDONYX_CORPUS names. The true results are those of the model with all numbers in float64 (`double.py`), node
by node in NumPy, on seeded inputs that are made from declared types and shapes. An error is the root mean square of the differences,
relative to that of the results; a model's is that of its worst output. Errors below the rounding of the output's own type count as that.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

import sardonyx
from benchmarks.double import Unconvertible, in_float64
from benchmarks.prepacking import machine
from sardonyx.providers.accuracy import Accuracy
from tests.slow.corpus import base_name, catalogue
from tests.slow.model_inputs import make_inputs

PEER = "onnxruntime"
PAGE = Path(__file__).parent / "README.md"
MARKS = re.compile(r"(<!-- accuracy -->).*(<!-- end accuracy -->)", re.DOTALL)
LARGEST = 150
"""Megabytes: in float64 a model takes twice as much, several times over."""
MEAN_GOAL, WORST_GOAL = 2.0, 10.0
QUIET = 4
HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Errors:
    """Of one model, relative to the size of the worst output of each runtime."""

    model: str
    ours: float
    theirs: float
    output: str
    """Our worst."""
    is_narrow: bool = False
    """Whether weights are float16 or bfloat16: how often values are rounded to that on the way is each runtime's own choice."""

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


@dataclass(frozen=True)
class Skipped:
    """A model that has no figures, and why."""

    model: str
    reason: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("SARDONYX_CORPUS"), help="where the models are")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models alone")
    parser.add_argument("--accuracy", default="default", choices=[str(level) for level in Accuracy], help="sardonyx's setting")
    parser.add_argument("--largest", type=float, default=LARGEST, help=f"megabytes of the largest model (default {LARGEST})")
    parser.add_argument("--json", action="store_true", help="figures for programs")
    parser.add_argument("--update", action="store_true", help="also put the table into benchmarks/README.md")
    options = parser.parse_args(arguments)
    if options.folder is None:
        parser.error("name a folder of models, or set SARDONYX_CORPUS")
    paths = sorted(Path(options.folder).glob("**/*.onnx"), key=lambda path: (path.stat().st_size, path))
    paths = [path for path in paths if not options.only or path.stem in options.only]
    rows = []
    for number, path in enumerate(paths):
        print(f"[{number + 1}/{len(paths)}] {path.stem}", file=sys.stderr, flush=True)
        rows.append(measure(path, options.accuracy, options.largest))
    show(rows, options.json)
    if options.update:
        PAGE.write_text(MARKS.sub(lambda match: f"{match[1]}\n{markdown(rows)}\n{match[2]}", PAGE.read_text()))
    return 0


def measure(path: Path, level: str, largest: float = LARGEST) -> Errors | Skipped:
    """The errors of both on one model."""
    if path.stat().st_size > largest * 1e6:
        return Skipped(path.stem, f"larger than {largest:g} MB")
    try:
        model = onnx.load(path)
        exact = in_float64(model).SerializeToString()
        theirs = open_session(PEER, path)
        feeds = feeds_for(theirs, path)
        names = [value.name for value in theirs.get_outputs()]
        found = {PEER: theirs.run(None, feeds)}
        del theirs
        found["sardonyx"] = open_session("sardonyx", path, {"accuracy": level}).run(None, feeds)
        wide = {name: _widened(array) for name, array in feeds.items()}
        wanted = open_session("sardonyx", exact, {"native": "0"}, plain=True).run(None, wide)
        errors = compare(path.stem, names, wanted, found["sardonyx"], found[PEER])
        is_narrow = any(tensor.data_type in HALVES for tensor in model.graph.initializer)
        return replace(errors, is_narrow=is_narrow) if isinstance(errors, Errors) else errors
    except Unconvertible as error:
        return Skipped(path.stem, str(error))
    except Exception as error:  # whatever keeps a model from being measured is said in the table
        return Skipped(path.stem, f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")


def open_session(runtime: str, model: Path | bytes, options: Mapping[str, str] | None = None, plain: bool = False) -> Any:
    import onnxruntime

    module = sardonyx if runtime == "sardonyx" else onnxruntime
    settings = module.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = QUIET
    if plain:
        settings.graph_optimization_level = module.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model if isinstance(model, bytes) else str(model)
    return module.InferenceSession(source, settings, providers=[("CPUExecutionProvider", dict(options or {}))])


def feeds_for(session: Any, path: Path) -> dict[str, Any]:
    family = catalogue(path.parent).get(path.stem, {}).get("family", "")
    return make_inputs(session.get_inputs(), base_name(path.stem), family, 0)


def _is_float(array: Any) -> bool:
    return isinstance(array, np.ndarray) and (array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16)


def _widened(array: Any) -> Any:
    return array.astype(np.float64) if _is_float(array) else array


def compare(
    model: str, names: Sequence[str], wanted: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any]
) -> Errors | Skipped:
    """The worst errors over all outputs of floats."""
    worst = {"ours": 0.0, "theirs": 0.0}
    output = ""
    for name, exact, mine, his in zip(names, wanted, ours, theirs, strict=True):
        if not _is_float(exact):
            continue
        if not exact.shape == mine.shape == his.shape:
            return Skipped(
                model, f"{name} has the shapes {exact.shape}, {mine.shape} and {his.shape}: rounding decides on sizes"
            )
        errors = {"ours": error(mine, exact), "theirs": error(his, exact)}
        output = name if errors["ours"] > worst["ours"] else output
        worst = {who: max(worst[who], errors[who]) for who in worst}
    return Errors(model, **worst, output=output) if output else Skipped(model, "no output of floats")


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """Relative to the size of the results, where these are finite; at least the rounding of the type."""
    rounding = float(ml_dtypes.finfo(found.dtype).eps) / 2
    finite = np.isfinite(exact)
    if not finite.any():
        return rounding
    difference = found[finite].astype(np.float64) - exact[finite]
    size = _root_mean_square(exact[finite])
    relative = _root_mean_square(difference) / size if size else float(difference.any())
    return max(rounding, relative) if math.isfinite(relative) else math.inf


def _root_mean_square(numbers: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(numbers))))


# --- what is shown


def _measured(rows: Sequence[Errors | Skipped]) -> list[Errors]:
    return sorted((row for row in rows if isinstance(row, Errors)), key=lambda row: -row.ratio)


def summary(rows: Sequence[Errors | Skipped]) -> dict[str, Any]:
    """Of models of float32."""
    measured = [row for row in _measured(rows) if not row.is_narrow]
    mean = math.exp(sum(math.log(row.ratio) for row in measured) / len(measured)) if measured else None
    return {"models": len(measured), "mean": mean, "worst": measured[0].ratio if measured else None}


def _sentence(rows: Sequence[Errors | Skipped]) -> str:
    about = summary(rows)
    if not about["models"]:
        return "Nothing was measured."
    return (
        f"{about['models']} models: the geometric mean of sardonyx's error / {PEER}'s is {about['mean']:.2f} "
        f"(goal: at most {MEAN_GOAL:g}), the largest {about['worst']:.2f} (goal: at most {WORST_GOAL:g})."
    )


def show(rows: Sequence[Errors | Skipped], as_json: bool) -> None:
    if as_json:
        models = [{**asdict(row), "ratio": row.ratio} for row in _measured(rows)]
        skipped = [asdict(row) for row in rows if isinstance(row, Skipped)]
        print(json.dumps({"summary": summary(rows), "models": models, "skipped": skipped}, indent=1))
        return
    table = Table("model", "sardonyx", PEER, "ratio", "worst output")
    for row in _measured(rows):
        table.add_row(
            row.model + " (16 bits)" * row.is_narrow, f"{row.ours:.1e}", f"{row.theirs:.1e}", f"{row.ratio:.2f}", row.output
        )
    console = Console(width=150)
    console.print(table)
    for skipped in rows:
        if isinstance(skipped, Skipped):
            console.print(f"{skipped.model}: {skipped.reason}", markup=False)
    console.print(_sentence(rows))


def markdown(rows: Sequence[Errors | Skipped]) -> str:
    """The summary, and models with more than the mean that is the goal."""
    today = datetime.date.today().isoformat()
    skipped = [row for row in rows if isinstance(row, Skipped)]
    lines = [f"{today}, {machine()}, 1 thread. {_sentence(rows)} {len(skipped)} models have no figures.", ""]
    lines += [f"| model, above {MEAN_GOAL:g} or of 16 bits | sardonyx | {PEER} | ratio |", "|---|---:|---:|---:|"]
    for row in _measured(rows):
        if row.is_narrow or row.ratio > MEAN_GOAL:
            name = row.model + " (16 bits)" * row.is_narrow
            lines.append(f"| {name} | {row.ours:.1e} | {row.theirs:.1e} | {row.ratio:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
