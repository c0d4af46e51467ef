"""Runs the cases of the audit in native code and in NumPy: `python -m tests.fuzz.edges.driver FIRST LAST [--of COUNT]`.

A program of its own, so that a crash or a memory bomb is one failed test. What it is about to run stands in its output first, so that
the last line names the case that killed it. `--only TEXT` repeats the cases whose description contains a text.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import traceback
import warnings
from typing import Any

import numpy as np

import sardonyx
from sardonyx import errors
from sardonyx.providers.native.execution.compiled import CompiledProgram
from tests.fuzz.driver import Hang, limit_memory, limited_time
from tests.fuzz.edges.cases import Case, chosen, hostile, model_of, unharmed
from tests.fuzz.edges.guarded import Guarded
from tests.providers.native.agreement import compare
from tests.tolerance import NATIVE_HOSTILE

NATIVE: list[Any] = ["CPUExecutionProvider"]
NUMPY: list[Any] = [("CPUExecutionProvider", {"native": "0"})]
COMPARED_BYTES = 1 << 28
"""A case has no memory for two results that are larger."""

OPTIONS = sardonyx.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1
OPTIONS.graph_optimization_level = (
    sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
)  # constants would be computed before native code sees them


def outcome(model: bytes, feeds: dict[str, np.ndarray], providers: list[Any], options: Any = None) -> list[Any] | Exception:
    """The results of a model, or the error of ours that it ends in."""
    try:
        session = sardonyx.InferenceSession(model, OPTIONS, providers, enable_fallback=False)
        sardonyx.set_seed(0)
        return session.run(None, feeds, options)
    except errors.CODED as error:
        return error


def check(case: Case) -> None:
    """Both agree on what a case computes, or both refuse it."""
    model, feeds = model_of(case)
    numpy = outcome(model, feeds, NUMPY)
    if isinstance(numpy, list) and sum(array.nbytes for array in numpy) > COMPARED_BYTES:
        del numpy
        outcome(model, feeds, NATIVE)
        return
    for at_end in (False, True):
        memory = Guarded()
        options = sardonyx.RunOptions() if at_end else None  # a run that can be stopped takes another way
        native = outcome(model, {name: memory.copy(array, at_end) for name, array in feeds.items()}, NATIVE, options)
        if isinstance(native, list):
            native = [np.array(array) for array in native]  # a result may be a view of a feed
        compare_outcomes(native, numpy)
        memory.close()


def compare_outcomes(native: list[Any] | Exception, numpy: list[Any] | Exception) -> None:
    if isinstance(native, Exception) and isinstance(numpy, Exception):
        return
    if isinstance(numpy, Exception) and not any(array.size for array in native):
        return  # where there is no result, nobody looks at what it would be made of
    if isinstance(native, Exception) or isinstance(numpy, Exception):
        raise AssertionError(f"native: {_shown(native)}\n  numpy: {_shown(numpy)}")
    compare(native, numpy, NATIVE_HOSTILE)


def check_unharmed(case: Case) -> None:
    """An entry as it is runs in native code."""
    session = sardonyx.InferenceSession(model_of(case)[0], OPTIONS, NATIVE)
    steps = session._engine.plan.steps
    if not any(isinstance(step.call, CompiledProgram) for step in steps):
        raise AssertionError("left to NumPy")
    check(case)


def _shown(result: list[Any] | Exception) -> str:
    if isinstance(result, Exception):
        return f"{type(result).__name__}: {str(result)[:300]}"
    return ", ".join(f"{array.dtype}{list(array.shape)}" for array in result)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--of", type=int, default=sys.maxsize)
    parser.add_argument("--only", default="")
    parser.add_argument("--unharmed", action="store_true")
    options = parser.parse_args()
    os.environ[errors.STRICT] = "1"  # what no check foresaw is a failure
    warnings.simplefilter("error")
    faulthandler.enable()
    run = check_unharmed if options.unharmed else check
    cases = (unharmed() if options.unharmed else hostile() if options.only else chosen(options.of))[
        options.first : options.last
    ]
    cases = [case for case in cases if options.only in str(case)]
    outcome(*model_of(unharmed()[0]), NATIVE)  # what is loaded once is no part of a case's memory
    limit_memory()
    failures = 0
    for case in cases:
        print(f"case {case}", flush=True)
        try:
            with limited_time():
                run(case)
        except (Exception, Hang):
            failures += 1
            print(f"FAILED {case}:\n{traceback.format_exc(limit=-4)}", flush=True)
    print(f"{len(cases)} cases, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
