"""A model that the backend interface has prepared."""

from __future__ import annotations

from typing import Any

from onnx.backend.base import BackendRep

from sardonyx.backend import options
from sardonyx.runtime.api.options import RunOptions
from sardonyx.runtime.api.session import InferenceSession


class OnnxRuntimeBackendRep(BackendRep):  # type: ignore[misc]  # the onnx package has no types
    """Runs one session."""

    def __init__(self, session: InferenceSession):
        self._session = session

    def run(self, inputs: Any, **kwargs: Any) -> list[Any]:
        """The outputs for inputs by position: a list, or the value itself if the model has one input."""
        run_options = options.apply(RunOptions(), options.RUN_OPTIONS, kwargs)
        names = [value.name for value in self._session.get_inputs()]
        if isinstance(inputs, list):
            feeds = dict(zip(names, inputs, strict=False))
        elif len(names) == 1:
            feeds = {names[0]: inputs}
        else:
            raise RuntimeError(f"Model expect {len(names)} inputs")
        return self._session.run(None, feeds, run_options)
