"""The same names as in `onnxruntime_pybind11_state`, under the path by which Python code of the original imports them."""

from typing import Any

from sardonyx.capi import onnxruntime_pybind11_state
from sardonyx.capi.onnxruntime_pybind11_state import *  # noqa: F403
from sardonyx.capi.onnxruntime_pybind11_state import __all__ as __all__


def __getattr__(name: str) -> Any:
    return getattr(onnxruntime_pybind11_state, name)


def __dir__() -> list[str]:
    return dir(onnxruntime_pybind11_state)
