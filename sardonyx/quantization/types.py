"""The words of quantization as enums: element types, formats, modes. `quant_utils` and the package show them to users."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

Member = TypeVar("Member", bound=Enum)


def member_named(members: type[Member], name: str) -> Member:
    """The member of that name; a ValueError lists the names there are."""
    try:
        return members[name]
    except KeyError:
        raise ValueError(f"{members.__name__} has no {name!r}; it has {', '.join(members.__members__)}") from None


class QuantizationMode(Enum):
    """What a quantized node becomes: integer ops with dynamic scales, or QLinear ops with calibrated ones."""

    IntegerOps = 0
    QLinearOps = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(mode: str) -> QuantizationMode:
        return member_named(QuantizationMode, mode)


class QuantizedValueType(Enum):
    """Where a quantized value comes from."""

    Input = 0
    Initializer = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(v: str) -> QuantizedValueType:
        return member_named(QuantizedValueType, v)


class QuantType(Enum):
    """The element type that numbers are quantized to."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(t: str) -> QuantType:
        return member_named(QuantType, t)

    @property
    def tensor_type(self) -> Any:
        """The member of `onnx.TensorProto.DataType`."""
        from onnx import TensorProto

        return getattr(TensorProto, self.name.removeprefix("Q").upper())


class QuantFormat(Enum):
    """How a quantized model is written: quantized ops, or float ops between pairs of QuantizeLinear and DequantizeLinear."""

    QOperator = 0
    QDQ = 1

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def from_string(format: str) -> QuantFormat:
        return member_named(QuantFormat, format)


class CalibrationMethod(Enum):
    """How the range of a tensor follows from the values that calibration has seen."""

    MinMax = 0
    Entropy = 1
    Percentile = 2
    Distribution = 3
