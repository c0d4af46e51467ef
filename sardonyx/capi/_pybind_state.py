"""The same names as in `onnxruntime_pybind11_state`, under the path by which Python code of the original imports them."""

from sardonyx.capi.onnxruntime_pybind11_state import *  # noqa: F403
from sardonyx.capi.onnxruntime_pybind11_state import __all__ as __all__
