"""The class that ONNX's own test suite drives. Unlike the original it refuses no opset that the onnx package knows."""

from __future__ import annotations

import os
from typing import Any

from onnx.backend.base import Backend

from sardonyx import settings
from sardonyx.backend import options
from sardonyx.backend.backend_rep import OnnxRuntimeBackendRep
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.environment import get_device
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.preparation.providers import get_available_providers

LEVEL = GraphOptimizationLevel.ORT_ENABLE_BASIC
"""Ops stay as the model has them: a fused idiom in half precision is rounded once, where the suite expects it after every step."""
DISABLED = ("CastFloat16Transformer",)
"""Likewise left out unless a level is asked for: it spares the roundings between nodes of half precision."""


class OnnxRuntimeBackend(Backend):  # type: ignore[misc]  # the onnx package has no types
    """ONNX's backend interface on top of sessions."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **kwargs: Any) -> bool:
        """Whether a model can run on a device; only the device matters."""
        return cls.supports_device(get_device() if device is None else device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether `device` ("CPU") is there."""
        return device in get_device().split("-")

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **kwargs: Any) -> OnnxRuntimeBackendRep:
        """A model (path, bytes, ModelProto, session) ready to run."""
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"Incompatible device expected '{device}', got '{get_device()}'")
        if not isinstance(model, (str, bytes, os.PathLike)):
            from onnx.checker import check_model

            check_model(model)
        session_options = SessionOptions()
        session_options.graph_optimization_level = LEVEL
        options.apply(session_options, options.SESSION_OPTIONS, kwargs)
        disabled = () if "graph_optimization_level" in kwargs else DISABLED
        session = InferenceSession(model, session_options, providers=_providers(), disabled_optimizers=disabled)
        return OnnxRuntimeBackendRep(session)

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **kwargs: Any) -> list[Any]:
        """Prepare a model and run it once."""
        prepared = cls.prepare(
            model, device, **{name: value for name, value in kwargs.items() if name in options.SESSION_OPTIONS}
        )
        return prepared.run(inputs, **{name: value for name, value in kwargs.items() if name not in options.SESSION_OPTIONS})

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str | None = None, outputs_info: Any = None, **kwargs: Any) -> Any:
        raise NotImplementedError("It is much more efficient to run a whole model than every node independently.")


def _providers() -> list[str]:
    excluded = settings.BACKEND_EXCLUDES.of(os.environ).split(",")
    return [name for name in get_available_providers() if name not in excluded]


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device
