"""What is attacked, and what an attack finds; every kind of attack speaks in these words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import onnx

import sardonyx
from sardonyx.ops.gradients.writing import NEEDS_TYPES

LEVELS = {
    0: sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL,
    1: sardonyx.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    2: sardonyx.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    99: sardonyx.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


@dataclass
class Subject:
    """A model, what it is fed, and how sessions of it are made."""

    model: onnx.ModelProto
    feeds: dict[str, Any]
    threads: int = 1
    levels: tuple[int, ...] = (99,)
    notes: dict[str, Any] = field(default_factory=dict)


class Problem(Exception):
    """Something that must not happen: a wrong number, a refusal of a sound model, an exception that is not ours.

    With a subject and the function that judged it, the worker looks for a smaller one.
    """

    def __init__(self, text: str, subject: Subject | None = None, judge: Callable[[Subject], None] | None = None):
        super().__init__(text)
        self.subject = subject
        self.judge = judge


def examine(subject: Subject, judge: Callable[[Subject], None], *, reducible: bool = True) -> None:
    """Judge a subject. Any exception is a problem of it; a smaller subject is looked for unless the notes hold what is judged."""

    def judged(candidate: Subject) -> None:
        try:
            judge(candidate)
        except Exception as error:
            if NEEDS_TYPES in str(error):
                return  # random graphs and lies hide ranks, which real graphs with ops of training tell
            if isinstance(error, Problem):
                raise
            raise Problem(f"{type(error).__name__}: {error}") from error

    try:
        judged(subject)
    except Problem as problem:
        raise Problem(str(problem), subject, judged if reducible else None) from problem


def session_of(
    model: onnx.ModelProto | bytes | str, *, native: str = "1", level: int = 99, threads: int = 1, **entries: str
) -> sardonyx.InferenceSession:
    """A session that is silent, with or without machine code, with any session config entries."""
    options = sardonyx.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.graph_optimization_level = LEVELS[level]
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return sardonyx.InferenceSession(
        source, options, providers=[("CPUExecutionProvider", {"native": native})], enable_fallback=False
    )
