"""The real onnxruntime as a second opinion. Only tests may import it; the product never does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model

NEWEST_OPSET = 26
"""Of the standard domain, as far as the version that we pin knows it."""


def run(model: Model, feeds: Mapping[str, Any]) -> list[Any] | None:
    """Its outputs for the same model and feeds, None where it has no kernel, does not know the opset, or NumPy lacks the type."""
    import onnxruntime

    if model.opsets.get("", 1) > NEWEST_OPSET:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    state = onnxruntime.capi.onnxruntime_pybind11_state
    names = {value.name for value in model.graph.inputs}
    try:
        session = onnxruntime.InferenceSession(
            write_model(model).SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return list(session.run(None, {name: value for name, value in feeds.items() if name in names}))
    except (state.NotImplemented, RuntimeError) as error:
        if isinstance(error, state.NotImplemented) or "Numpy" in str(error):
            return None
        raise
