"""Makes sessions of wrong one-node models and runs them: `python -m tests.fuzz.operator_driver FIRST_CASE CASES [--op NAME]`.

A program of its own, as `tests.fuzz.driver` is, with the same limits. Case numbers are seeds: `python -m tests.fuzz.operator_driver 1234 1`
repeats a failure, with `--save FILE` to keep the model. `--causes` also counts errors of ours that began as another exception.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np

import sardonyx
from sardonyx import errors
from tests.fuzz import operators
from tests.fuzz.driver import CPU_SECONDS, interrupt, limit_memory

RUNS = 3
"""Later runs of the same shapes have a plan of their own."""
OPTIONS = sardonyx.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


def run_case(wrong: operators.Wrong, native: str) -> None:
    providers = [("CPUExecutionProvider", {"native": native})]
    session = sardonyx.InferenceSession(wrong.model, OPTIONS, providers=providers, enable_fallback=False)
    for _ in range(RUNS):
        session.run(None, wrong.feeds)


def unforeseen(error: BaseException) -> BaseException | None:
    """What an error of ours began as, if that is neither of ours."""
    cause: BaseException | None = error
    while cause is not None and isinstance(cause, (*errors.CODED, errors.KernelError, errors.InferenceError)):
        cause = cause.__cause__
    return cause


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("cases", type=int)
    parser.add_argument("--op", help="this op alone")
    parser.add_argument("--without", action="append", default=[], metavar="OP", help="leave out an op (repeatable)")
    parser.add_argument("--agree", action="store_true", help="native code must refuse what NumPy refuses, and nothing else")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--causes", action="store_true")
    parser.add_argument(
        "--trace", action="store_true", help="say each case before it is run, to find one that kills the process"
    )
    options = parser.parse_args()
    warnings.simplefilter("error")
    groups = operators.by_op(
        [one for one in operators.seeds() if options.op in (None, one.case.op) and one.case.op not in options.without]
    )
    limit_memory()
    signal.signal(signal.SIGPROF, interrupt)
    failures = refused = 0
    for case in range(options.first, options.first + options.cases):
        wrong = operators.make(random.Random(case), groups)
        if wrong is None:
            continue
        if options.save:
            options.save.write_bytes(wrong.model)
        refusals: dict[str, object] = {"0": None, "1": None}
        for native in refusals:
            if options.trace:
                print(case, native, wrong.label, flush=True)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                with np.errstate(all="warn"):
                    run_case(wrong, native)
            except errors.CODED as error:
                refused += 1
                refusals[native] = error
                began = unforeseen(error) if options.causes else None
                if began is not None:
                    failures += 1
                    trace = "".join(traceback.format_exception(began)[-3:])
                    print(f"case {case}, native {native}, {wrong.label}:\n{error}\n{trace}")
            except BaseException:
                failures += 1
                print(f"case {case}, native {native}, {wrong.label}:\n{traceback.format_exc(limit=-6)}")
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        if options.agree and (refusals["0"] is None) != (refusals["1"] is None):
            failures += 1
            print(f"case {case}, native disagrees, {wrong.label}: NumPy {refusals['0']}, native code {refusals['1']}")
    print(f"{options.cases} cases, {refused} refused, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
