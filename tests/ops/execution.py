"""How op cases are run: written to bytes and given to a session, as a user does; `tests/ops/cases.py` calls this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sardonyx
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


def start(model: Model, native: str = "0") -> Run:
    """Make a model ready in NumPy, or with `native="1"` in machine code as far as there is some; the function runs it on feeds by name."""
    return _run_of(_session(model, native))


def start_native(model: Model) -> Run | None:
    """The same in machine code, None if there is none for this model."""
    session = _session(model, "1")
    compiled = any(isinstance(step.call, CompiledProgram) for step in all_steps(session._engine.plan))
    return _run_of(session) if compiled else None


def _session(model: Model, native: str) -> sardonyx.InferenceSession:
    providers = [("CPUExecutionProvider", {"native": native})]
    return sardonyx.InferenceSession(write_model(model).SerializeToString(), providers=providers)


def _run_of(session: sardonyx.InferenceSession) -> Run:
    return lambda feeds: session.run(None, dict(feeds))


def ir_version(opsets: Mapping[str, int]) -> int:
    """The oldest IR version that these opsets came with."""
    import onnx.helper

    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return int(onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True))
