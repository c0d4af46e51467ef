"""What the original's Python layer defines: sessions, bindings, values."""

from __future__ import annotations

from sardonyx.capi import _pybind_state as C  # noqa: N812 - the original's name
from sardonyx.runtime.api.adapters import AdapterFormat
from sardonyx.runtime.api.devices import OrtDevice, OrtDeviceVendorId, get_ort_device_type, get_vendor_id_for_device_type
from sardonyx.runtime.api.iobinding import IOBinding
from sardonyx.runtime.api.model_compiler import ModelCompiler, make_get_initializer_location_func_wrapper
from sardonyx.runtime.api.session import InferenceSession, Session
from sardonyx.runtime.api.sparse import SparseTensor
from sardonyx.runtime.api.value import OrtValue, copy_tensors
from sardonyx.runtime.preparation.providers import check_and_normalize_provider_args

__all__ = [
    "AdapterFormat",
    "C",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
    "get_ort_device_type",
    "get_vendor_id_for_device_type",
    "make_get_initializer_location_func_wrapper",
]
