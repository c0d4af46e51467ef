"""What the original's Python layer defines: sessions, bindings, values."""

from __future__ import annotations

from sardonyx.capi import _pybind_state as C  # noqa: N812 - the original's name
from sardonyx.runtime.devices import OrtDevice, OrtDeviceVendorId, get_ort_device_type, get_vendor_id_for_device_type
from sardonyx.runtime.iobinding import IOBinding
from sardonyx.runtime.model_compiler import ModelCompiler
from sardonyx.runtime.providers import check_and_normalize_provider_args
from sardonyx.runtime.session import InferenceSession, Session
from sardonyx.runtime.sparse import SparseTensor
from sardonyx.runtime.value import OrtValue, copy_tensors

__all__ = [
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
]
