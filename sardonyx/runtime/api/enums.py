"""The enums of the public API: named numbers as the original's binding makes them.

Unlike a plain `enum`, any number may be made a member's type (`GraphOptimizationLevel(7)` is a nameless value), every member is true,
and `str` gives `Class.NAME`.
"""

from __future__ import annotations

import enum
from typing import Any, Self

UNNAMED = "???"


class _Printed(enum.Enum):
    """What all of them share: how they print and how they take numbers without a name."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __bool__(self) -> bool:
        return True


class Number(int, _Printed):
    """An enum whose members equal the integers that they stand for."""

    __str__ = _Printed.__str__
    __repr__ = _Printed.__repr__
    __bool__ = _Printed.__bool__

    @classmethod
    def _missing_(cls, value: object) -> Self:
        if not isinstance(value, int):
            raise TypeError(f"__init__(): incompatible constructor arguments. {cls.__name__} takes an integer, not {value!r}")
        member = int.__new__(cls, value)
        member._name_ = UNNAMED
        member._value_ = value
        return member


class Tag(_Printed):
    """An enum whose members convert to integers but equal none."""

    @classmethod
    def _missing_(cls, value: object) -> Any:
        if not isinstance(value, int):
            raise TypeError(f"__init__(): incompatible constructor arguments. {cls.__name__} takes an integer, not {value!r}")
        member = object.__new__(cls)
        member._name_ = UNNAMED
        member._value_ = value
        return member

    def __int__(self) -> int:
        return int(self.value)

    def __index__(self) -> int:
        return int(self.value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


class GraphOptimizationLevel(Number):
    """How far a graph is rewritten before it runs."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(Number):
    """Whether independent nodes may run at the same time."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Tag):
    """In which of the possible orders nodes run."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(Number):
    """Whether memory comes from an arena or straight from the device."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Number):
    """What memory is for."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtMemoryInfoDeviceType(Number):
    """Kinds of devices that have memory."""

    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtDeviceMemoryType(Number):
    """Whether the host can reach a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtHardwareDeviceType(Number):
    """Kinds of hardware."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtSparseFormat(Number):
    """How a sparse tensor lays out its values."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtExecutionProviderDevicePolicy(Number):
    """Which device to prefer when providers are chosen automatically."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtCompileApiFlags(Number):
    """Bits that `ModelCompiler` takes."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(Number):
    """Whether code that was compiled elsewhere can be used here."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(Number):
    """Why a device cannot be used by a provider."""

    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4
    UNKNOWN = -(2**31)


class ArenaExtendStrategy(Tag):
    """How an arena grows."""

    kNextPowerOfTwo = 0  # noqa: N815 - the original's spelling
    kSameAsRequested = 1  # noqa: N815
