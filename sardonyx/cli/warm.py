"""`sardonyx warm`: prepare models now, so that later processes find their code. For images of containers, and after an upgrade."""

from __future__ import annotations

import argparse
import time
from typing import Any

import sardonyx
from sardonyx import settings
from sardonyx.cli.terminal import FATAL, Terminal, UsageError, time_text
from sardonyx.compiler.cache import default_folder


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "warm",
        parents=[common],
        help="prepare models now for processes to come",
        description=f"Makes a session of each model, so that its kernels and what became of it are in {settings.CACHE_DIRECTORY}.",
    )
    parser.add_argument("models", nargs="+", metavar="MODEL", help="paths of .onnx or .ort files")
    parser.add_argument("--threads", type=int, default=0, help="threads inside an op, as the sessions to come will have them")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    if default_folder() is None:
        raise UsageError(f"there is no folder to keep anything in: {settings.CACHE_DIRECTORY} is empty")
    rows = [(path, *warm(path, options.threads)) for path in terminal.progress(options.models, "warming")]
    terminal.table(
        "", ("model", "prepared in", "again in"), [(path, *map(time_text, times)) for path, *times in rows], right=(1, 2)
    )
    terminal.result({"models": [{"model": path, "first": first, "again": again} for path, first, again in rows]})
    return 0


def warm(path: str, threads: int) -> tuple[float, float]:
    """How long a session of a model takes, and how long another one."""
    return _seconds(path, threads), _seconds(path, threads)


def _seconds(path: str, threads: int) -> float:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, FATAL
    options.add_session_config_entry(settings.REMEMBER, "all")
    start = time.perf_counter()
    sardonyx.InferenceSession(path, options, providers=[("CPUExecutionProvider", {settings.CPU_HURRY: "0"})])
    return time.perf_counter() - start
