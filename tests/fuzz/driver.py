"""Feeds damaged models to the loader and says what went wrong: `python -m tests.fuzz.driver FIRST_CASE CASES [--ort]`.

A program of its own, so that a crash, a hang or a memory bomb is one failed test and not the end of all. Case numbers are seeds:
`python -m tests.fuzz.driver 1234 1` repeats a failure, with `--save FILE` to keep the model. With `--ort` models are in the ORT
format; with `--load-only` no session is made of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx import errors, formats, ops
from sardonyx.ir import edit
from sardonyx.ir.verify import verify
from tests.fuzz import mutation, ort_mutation
from tests.fuzz.mutation import MODELS

CPU_SECONDS = 60
"""What a case may compute; a moment is enough, but a machine has more to do."""
MEMORY = 3 << 30
"""Beyond what the process has when it begins; a sparse initializer may ask for 2 GiB."""


OPTIONS = sardonyx.SessionOptions()
OPTIONS.log_severity_level = 4
OPTIONS.add_session_config_entry("session.model_external_initializers_file_folder_path", str(MODELS))
OPTIONS.add_session_config_entry("session.enable_saved_runtime_optimizations", "1")


class Hang(BaseException):
    """A case computed for too long."""


def run_case(data: bytes, load_only: bool = False) -> None:
    """The stages that a session begins with, one by one, and then a session; only our own errors may come out."""
    model = formats.load(data, folder=MODELS)
    verify(model)
    if load_only:
        return
    edit.inline_functions(model, node_limit=10_000)
    verify(model)
    ops.infer(model)
    verify(model)
    sardonyx.InferenceSession(data, OPTIONS, enable_fallback=False)


def interrupt(number: int, frame: Any) -> None:
    raise Hang


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Raise Hang in what computes for too long."""
    signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("cases", type=int)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--ort", action="store_true")
    parser.add_argument("--load-only", action="store_true")
    options = parser.parse_args()
    os.environ[errors.STRICT] = "1"  # what no check foresaw is a failure
    warnings.simplefilter("error")
    damage = ort_mutation if options.ort else mutation
    models = damage.seeds()
    for data in models:
        with contextlib.suppress(errors.CODED):  # one of the ORT format names a rewrite that cannot be made
            run_case(data, options.load_only)
    limit_memory()
    failures = refused = 0
    for case in range(options.first, options.first + options.cases):
        data = damage.mutate(random.Random(case), models)
        if options.save:
            options.save.write_bytes(data)
        try:
            with limited_time():
                run_case(data, options.load_only)
        except errors.CODED:
            refused += 1
        except BaseException:
            failures += 1
            print(f"case {case}:\n{traceback.format_exc(limit=-6)}")
    print(f"{options.cases} cases, {refused} refused, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
