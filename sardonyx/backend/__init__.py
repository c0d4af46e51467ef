"""The ONNX backend interface: `prepare`, `run`, `supports_device`, `is_compatible`."""

from sardonyx.backend.backend import is_compatible, prepare, run, supports_device

__all__ = ["is_compatible", "prepare", "run", "supports_device"]
