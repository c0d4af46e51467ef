"""A process that runs cases: `python -m tests.attack.worker FOLDER`, with `run KIND NUMBER` in each line of its input.

It answers with two lines of JSON for each, one when it begins and one when it is through, so that its parent knows which case a crash
belongs to. A wrong result is made small before it is reported; models go to FOLDER. `save KIND NUMBER` makes the model of a case and does
not run it, for those that end the process.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import random
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import printer

from sardonyx import errors
from tests.attack.limits import Hang, cpu_limit, limit_memory
from tests.attack.reduction import reduced
from tests.attack.subject import Problem, Subject

SECONDS = {"leaks": 120, "threads": 60, "cache": 60, "shapes": 60, "planted": 2}
USUAL_SECONDS = 20
"""CPU time of a case. Compiling takes one or two seconds of it; the slowest sound case of each kind takes a fifth."""
REDUCTION_SECONDS = 30


def kind_module(kind: str) -> Any:
    return importlib.import_module(f"tests.attack.kinds.{kind}")


def run_case(kind: str, number: int, folder: Path) -> dict[str, Any]:
    """What came of one case: nothing, or what the finding says."""
    result = _outcome(kind, number, folder)
    if "problem" in result and "model" not in result:
        result |= save_case(kind, number, folder)
    return result


def save_case(kind: str, number: int, folder: Path) -> dict[str, Any]:
    """Make the model of a case again and keep it, for kinds that begin with one."""
    make = getattr(kind_module(kind), "make", None)
    try:
        with cpu_limit(USUAL_SECONDS):
            return {} if make is None else save(make(random.Random(f"{kind}:{number}")), folder / f"{kind}-{number}")
    except BaseException:  # the fault lies in the making
        return {}


def _outcome(kind: str, number: int, folder: Path) -> dict[str, Any]:
    rng = random.Random(f"{kind}:{number}")
    try:
        with cpu_limit(SECONDS.get(kind, USUAL_SECONDS)):
            module = kind_module(kind)
            module.run(rng, number) if kind == "planted" else module.run(rng)
    except Problem as problem:
        return _finding(str(problem), problem, kind, number, folder)
    except Hang as error:
        return {"problem": f"takes more than {SECONDS.get(kind, USUAL_SECONDS)} s of CPU time", "where": _place(error)}
    except errors.CODED as error:
        return {"problem": f"one of our errors where none may come: {error}", "where": _place(error)}
    except BaseException as error:
        text = "".join(traceback.format_exception(error, limit=-6))
        return {"problem": f"{type(error).__name__}: {error}", "where": _place(error), "traceback": text}
    return {}


def _place(error: BaseException) -> str:
    """The innermost line of ours that an exception came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "sardonyx/" in frame.filename] or list(frames)
    return f"{ours[-1].filename.split('sardonyx/', 1)[-1]}:{ours[-1].name}" if ours else ""


def _finding(text: str, problem: Problem, kind: str, number: int, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"problem": text, "where": ""}
    cause = problem.__cause__
    while cause is not None and isinstance(cause, Problem):
        cause = cause.__cause__
    if cause is not None:
        found["where"] = _place(cause)
        found["traceback"] = "".join(traceback.format_exception(cause, limit=-4))
    if problem.subject is None:
        return found
    subject = problem.subject
    if problem.judge is not None:
        try:
            with cpu_limit(REDUCTION_SECONDS):
                subject = reduced(subject, problem.judge, text)
                problem.judge(subject)
        except Problem as smaller:
            found["problem"] = str(smaller)
        except BaseException:  # time is up, or the small one does something else: the large one is saved
            subject = problem.subject
    found |= save(subject, folder / f"{kind}-{number}")
    return found


def save(subject: Subject, stem: Path) -> dict[str, Any]:
    """Write a model and its feeds, and say what it is."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".onnx").write_bytes(subject.model.SerializeToString())
    np.savez(
        stem.with_suffix(".npz"), **{name: value for name, value in subject.feeds.items() if isinstance(value, np.ndarray)}
    )
    ops = [node.op_type for node in subject.model.graph.node]
    return {"model": str(stem.with_suffix(".onnx")), "ops": ops, "text": printed(subject.model) if len(ops) <= 6 else ""}


def printed(model: onnx.ModelProto) -> str:
    """ONNX text with long constants left out."""
    short = onnx.ModelProto()
    short.CopyFrom(model)
    for tensor in short.graph.initializer:
        if np.prod(tensor.dims, dtype=np.int64) > 8:
            for field in ("raw_data", "float_data", "int64_data", "int32_data", "double_data"):
                tensor.ClearField(field)
    try:
        return printer.to_text(short)
    except Exception:  # the printer knows less than the format
        return ""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--without-peer", action="store_true", help="do not ask onnxruntime")
    options = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever others print must not mix with the answers
    faulthandler.enable()
    warnings.simplefilter("ignore")
    if options.without_peer:
        importlib.import_module("tests.attack.kinds.graphs").PEER = False
    limit_memory()
    for line in sys.stdin:
        action, kind, number = line.split()
        answers.write(json.dumps({"begin": f"{kind}:{number}"}) + "\n")
        result = (run_case if action == "run" else save_case)(kind, int(number), options.folder)
        answers.write(json.dumps({"end": f"{kind}:{number}", **result}) + "\n")


if __name__ == "__main__":
    main()
