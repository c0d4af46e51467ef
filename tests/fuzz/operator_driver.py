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
from typing import Any

import numpy as np

import sardonyx
from sardonyx import errors
from tests.fuzz import operators
from tests.fuzz.driver import CPU_SECONDS, interrupt, limit_memory
from tests.providers.native.agreement import compare

RANDOM = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
LOGARITHMS = frozenset(("ReduceLogSum", "ReduceLogSumExp"))
"""The logarithm of nothing is minus infinity, of which no standard says what whole number it is."""
TRANSFORMS = frozenset(("DFT", "STFT"))
"""Whether an infinite sample makes a frequency infinite, NaN or, where its sine is 0, nothing depends on how the sum is made."""
TOLERANCE, NARROW_TOLERANCE = 1e-3, 2e-2
"""Of floats in 32 bits and more, and in fewer: it is wrong numbers that are looked for, not the last bits."""
RUNS = 3
"""Later runs of the same shapes have a plan of their own."""
OPTIONS = sardonyx.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.intra_op_num_threads = 1


def run_case(wrong: operators.Wrong, native: str) -> list[Any]:
    """The results of the last run."""
    providers = [("CPUExecutionProvider", {"native": native})]
    session = sardonyx.InferenceSession(wrong.model, OPTIONS, providers=providers, enable_fallback=False)
    for _ in range(RUNS):
        results = session.run(None, wrong.feeds)
    return results


def disagreement(numpy: list[Any] | BaseException, native: list[Any] | BaseException, op: str) -> str:
    """What native code says otherwise than NumPy; empty if nothing is."""
    refused = [isinstance(outcome, BaseException) for outcome in (numpy, native)]
    if all(refused):
        return ""
    if any(refused):
        results = native if isinstance(numpy, BaseException) else numpy
        # where there is no result, nobody looks at what it would be made of
        return f"NumPy {_shown(numpy)}, native code {_shown(native)}" if any(np.size(one) for one in results) else ""
    if op in RANDOM or (op in LOGARITHMS and any(array.dtype.kind in "iu" for array in numpy)):
        return ""
    if op in TRANSFORMS:
        known = [np.isfinite(one) & np.isfinite(other) for one, other in zip(numpy, native, strict=True)]
        numpy, native = ([np.where(at, array, 0) for at, array in zip(known, arrays)] for arrays in (numpy, native))
    try:
        compare_values(native, numpy)
    except AssertionError as error:
        return str(error)
    return ""


def compare_values(got: Any, wanted: Any) -> None:
    """Tensors, and sequences and maps of them."""
    assert type(got) is type(wanted), f"{type(got)} for {type(wanted)}"
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        compare_values([*got.values()], [*wanted.values()])
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for mine, his in zip(got, wanted):
            compare_values(mine, his)
    elif isinstance(wanted, np.ndarray) and wanted.dtype != object:
        assert got.dtype == wanted.dtype, f"{got.dtype} for {wanted.dtype}"
        tolerance = TOLERANCE if wanted.dtype.itemsize >= 4 else NARROW_TOLERANCE
        if wanted.dtype.kind == "V":  # NumPy does not know their NaN
            got, wanted = got.astype(np.float32), wanted.astype(np.float32)
        with np.errstate(all="ignore"):
            compare([got], [wanted], tolerance if wanted.dtype.kind == "f" else None)
    else:
        np.testing.assert_array_equal(got, wanted)


def _shown(outcome: list[Any] | BaseException) -> str:
    return f"refuses: {outcome}" if isinstance(outcome, BaseException) else "computes"


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
    parser.add_argument("--agree", action="store_true", help="native code must say what NumPy says")
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
        outcomes: dict[str, list[Any] | BaseException] = {}
        for native in ("0", "1"):
            if options.trace:
                print(case, native, wrong.label, flush=True)
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            try:
                with np.errstate(all="warn"):
                    outcomes[native] = run_case(wrong, native)
            except errors.CODED as error:
                refused += 1
                outcomes[native] = error
                began = unforeseen(error) if options.causes else None
                if began is not None:
                    failures += 1
                    trace = "".join(traceback.format_exception(began)[-3:])
                    print(f"case {case}, native {native}, {wrong.label}:\n{error}\n{trace}")
            except BaseException as error:
                failures += 1
                outcomes[native] = error
                print(f"case {case}, native {native}, {wrong.label}:\n{traceback.format_exc(limit=-6)}")
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
        difference = disagreement(outcomes["0"], outcomes["1"], wrong.op) if options.agree else ""
        if difference:
            failures += 1
            print(f"case {case}, native disagrees, {wrong.label}: {difference}", flush=True)
    print(f"{options.cases} cases, {refused} refused, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
