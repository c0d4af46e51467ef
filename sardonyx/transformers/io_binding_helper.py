"""Types of a session's inputs and outputs, and bound memory for decoders with a past.

Tensors may be of PyTorch or of NumPy; buffers are OrtValues, whose memory `numpy()` shows.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.runtime.api.iobinding import IOBinding
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.api.value import OrtValue


def _element(ort_type: str) -> dtypes.ElementType:
    name = ort_type.removeprefix("tensor(").removesuffix(")")
    found = next((element for element in dtypes.ALL if element.name == name), None)
    if found is None or not ort_type.startswith("tensor("):
        raise ValueError(f"{ort_type} is no type of tensors")
    return found


def _torch_name(element: dtypes.ElementType) -> str:
    """What PyTorch calls an element type."""
    name = {"float": "float32", "double": "float64", "bool": "bool"}.get(element.name, element.name)
    return name.replace("float8e", "float8_e")


def _torch_type(element: dtypes.ElementType) -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        raise ImportError("types of PyTorch are asked for, which is not imported")
    found = getattr(torch, _torch_name(element), None)
    if found is None:
        raise ValueError(f"PyTorch has no type for {element}")
    return found


class TypeHelper:
    """Types by name of an input or output."""

    @staticmethod
    def get_input_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an input as text: "tensor(float)"."""
        return _type_of(ort_session.get_inputs(), name)

    @staticmethod
    def get_output_type(ort_session: InferenceSession, name: str) -> str:
        """The type of an output."""
        return _type_of(ort_session.get_outputs(), name)

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        """NumPy's type."""
        return _element(ort_type).numpy.type

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """ONNX's number."""
        return _element(ort_type).code

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """PyTorch's type; whoever asks for one has imported PyTorch."""
        return _torch_type(_element(ort_type))

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """PyTorch's type for NumPy's."""
        return _torch_type(dtypes.from_numpy(np.dtype(numpy_type)))

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> Any:
        """NumPy's type for PyTorch's."""
        found = next(
            (element for element in dtypes.ALL if _torch_name(element) == str(torch_type).removeprefix("torch.")), None
        )
        if found is None:
            raise ValueError(f"{torch_type} has no NumPy type")
        return found.numpy.type

    @staticmethod
    def get_io_torch_type_map(ort_session: InferenceSession) -> dict[str, Any]:
        """PyTorch's types of all inputs and outputs."""
        values = (*ort_session.get_inputs(), *ort_session.get_outputs())
        return {value.name: TypeHelper.ort_type_to_torch_type(value.type) for value in values}

    @staticmethod
    def get_io_numpy_type_map(ort_session: InferenceSession) -> dict[str, Any]:
        """NumPy's types of all inputs and outputs."""
        values = (*ort_session.get_inputs(), *ort_session.get_outputs())
        return {value.name: TypeHelper.ort_type_to_numpy_type(value.type) for value in values}

    @staticmethod
    def get_io_onnx_type_map(ort_session: InferenceSession) -> dict[str, int]:
        """ONNX's numbers of the types of all inputs and outputs."""
        values = (*ort_session.get_inputs(), *ort_session.get_outputs())
        return {value.name: TypeHelper.ort_type_to_onnx_type(value.type) for value in values}


def _type_of(values: Sequence[Any], name: str) -> str:
    found = next((value.type for value in values if value.name == name), None)
    if found is None:
        raise ValueError(f"there is no {name}; there are {', '.join(value.name for value in values)}")
    return str(found)


def place_of(tensor: Any) -> tuple[str, int, Any, tuple[int, ...], int]:
    """Device, element type, shape and address of a tensor of PyTorch: what a binding asks for."""
    kind = TypeHelper.torch_type_to_numpy_type(tensor.dtype)
    return tensor.device.type, tensor.device.index or 0, kind, tuple(tensor.shape), tensor.data_ptr()


class IOBindingHelper:
    """Inputs `input_ids`, `position_ids`, `attention_mask` and `past_0`… of a decoder, and its outputs, bound to memory."""

    @staticmethod
    def get_output_buffers(
        ort_session: InferenceSession, output_shapes: Mapping[str, Sequence[int]], device: Any = "cpu"
    ) -> dict[str, OrtValue]:
        """Memory for outputs of these shapes or smaller."""
        return {
            name: OrtValue.ortvalue_from_shape_and_type(
                [int(np.prod(shape))], TypeHelper.ort_type_to_numpy_type(TypeHelper.get_output_type(ort_session, name))
            )
            for name, shape in output_shapes.items()
        }

    @staticmethod
    def prepare_io_binding(
        ort_session: InferenceSession,
        input_ids: Any,
        position_ids: Any,
        attention_mask: Any,
        past: Sequence[Any] | None,
        output_buffers: Mapping[str, OrtValue],
        output_shapes: Mapping[str, Sequence[int]],
    ) -> IOBinding:
        """A binding of these inputs, and of outputs in the buffers."""
        binding = ort_session.io_binding()
        known = {value.name for value in ort_session.get_inputs()}
        feeds = {"input_ids": input_ids, "position_ids": position_ids, "attention_mask": attention_mask}
        feeds |= {f"past_{number}": tensor for number, tensor in enumerate(past or ())}
        for name, tensor in feeds.items():
            if tensor is not None and name in known:
                binding.bind_cpu_input(name, np.ascontiguousarray(tensor))
        for name, buffer in output_buffers.items():
            element = TypeHelper.ort_type_to_numpy_type(TypeHelper.get_output_type(ort_session, name))
            binding.bind_output(name, "cpu", 0, element, list(output_shapes[name]), buffer.data_ptr())
        return binding

    @staticmethod
    def get_outputs_from_io_binding_buffer(
        ort_session: InferenceSession,
        output_buffers: Mapping[str, OrtValue],
        output_shapes: Mapping[str, Sequence[int]],
        return_numpy: bool = True,
    ) -> list[np.ndarray]:
        """Copies of the outputs of the last run, in the session's order; arrays, whatever was asked for."""
        outputs = []
        for value in ort_session.get_outputs():
            shape = tuple(output_shapes[value.name])
            outputs.append(output_buffers[value.name].numpy()[: int(np.prod(shape))].reshape(shape).copy())
        return outputs
