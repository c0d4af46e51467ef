"""How op cases are run: written to bytes and given to a session, as a user does; `tests/ops/cases.py` calls this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sardonyx
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model

Run = Callable[[Mapping[str, Any]], Sequence[Any]]


def start(model: Model, provider: str) -> Run:
    """Make a model ready on a provider; the function returned runs it on feeds by name."""
    session = sardonyx.InferenceSession(write_model(model).SerializeToString(), providers=[provider])
    return lambda feeds: session.run(None, dict(feeds))


def ir_version(opsets: Mapping[str, int]) -> int:
    """The oldest IR version that these opsets came with."""
    import onnx.helper

    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return int(onnx.helper.find_min_ir_version_for(imports, ignore_unknown=True))
