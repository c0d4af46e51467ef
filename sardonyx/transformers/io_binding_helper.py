"""`TypeHelper`: element types of a session's inputs and outputs, as NumPy, ONNX and torch call them.

torch is never imported here: whoever asks for its types has it.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int16)": np.int16,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": bool,
}
_TORCH = {np.dtype(type): "bool" if type is bool else np.dtype(type).name for type in _NUMPY.values()}
"""What torch calls a type."""


def _torch_type(name: str) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise ImportError("types of torch are asked for, but torch was not imported")
    return getattr(torch, name)


class TypeHelper:
    @staticmethod
    def get_input_type(ort_session: Any, name: str) -> str:
        return _type_of(ort_session.get_inputs(), name, "input")

    @staticmethod
    def get_output_type(ort_session: Any, name: str) -> str:
        return _type_of(ort_session.get_outputs(), name, "output")

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        if ort_type not in _NUMPY:
            raise ValueError(f"{ort_type} has no NumPy type here")
        return _NUMPY[ort_type]

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        if ort_type == "tensor(bfloat16)":
            return _torch_type("bfloat16")
        return _torch_type(_TORCH[np.dtype(TypeHelper.ort_type_to_numpy_type(ort_type))])

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        from onnx import helper

        return int(helper.np_dtype_to_tensor_dtype(np.dtype(TypeHelper.ort_type_to_numpy_type(ort_type))))

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        if np.dtype(numpy_type) not in _TORCH:
            raise ValueError(f"{numpy_type} has no type of torch here")
        return _torch_type(_TORCH[np.dtype(numpy_type)])

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> Any:
        for dtype, name in _TORCH.items():
            if _torch_type(name) == torch_type:
                return bool if name == "bool" else dtype.type
        raise ValueError(f"{torch_type} has no NumPy type here")

    @staticmethod
    def get_io_numpy_type_map(ort_session: Any) -> dict[str, Any]:
        return {value.name: TypeHelper.ort_type_to_numpy_type(value.type) for value in _values(ort_session)}

    @staticmethod
    def get_io_onnx_type_map(ort_session: Any) -> dict[str, int]:
        return {value.name: TypeHelper.ort_type_to_onnx_type(value.type) for value in _values(ort_session)}

    @staticmethod
    def get_io_torch_type_map(ort_session: Any) -> dict[str, Any]:
        return {value.name: TypeHelper.ort_type_to_torch_type(value.type) for value in _values(ort_session)}


def _values(ort_session: Any) -> list[Any]:
    return [*ort_session.get_inputs(), *ort_session.get_outputs()]


def _type_of(values: Any, name: str, kind: str) -> str:
    for value in values:
        if value.name == name:
            return str(value.type)
    raise ValueError(f"the session has no {kind} {name!r}")
