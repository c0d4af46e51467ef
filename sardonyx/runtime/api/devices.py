"""Devices and memory as the public API names them. We compute on the CPU, so most of this is names and numbers."""

from __future__ import annotations

import enum
import platform
from collections.abc import Mapping
from typing import Any

from sardonyx import __version__
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)


class OrtDeviceVendorId(enum.IntEnum):
    """PCI numbers of vendors."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


_DEVICE_TYPES = {"cpu": 0, "cuda": 1, "gpu": 1, "webgpu": 1, "dml": 1, "npu": 3, "cann": 3}
_DEVICE_VENDORS = {
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "cann": OrtDeviceVendorId.HUAWEI,
}
_DEVICE_NAMES = {0: "cpu", 1: "gpu", 2: "fpga", 3: "npu", 4: "dml"}
CPU = 0


def get_ort_device_type(device_type: str) -> int:
    """The number of a device's name."""
    try:
        return _DEVICE_TYPES[device_type]
    except (KeyError, TypeError):
        raise Exception(f"Unsupported device type: {device_type}") from None  # the original raises the plain class


def get_vendor_id_for_device_type(device_type: str) -> OrtDeviceVendorId | None:
    """The vendor that a device's name implies."""
    return _DEVICE_VENDORS.get(device_type)


class OrtDevice:
    """A device: `OrtDevice.make("cpu", 0)`, or from numbers (type, memory type, [vendor,] id). Also wraps another OrtDevice."""

    __slots__ = ("_type", "_memory", "_vendor", "_id")

    def __init__(self, *numbers: Any):
        if len(numbers) == 1 and isinstance(numbers[0], OrtDevice):
            numbers = tuple(getattr(numbers[0], name) for name in self.__slots__)
        if len(numbers) not in (3, 4):
            raise arguments.mismatch("__init__", "OrtDevice(type: int, memory_type: int, vendor: int, id: int)", *numbers)
        checked = [arguments.integer(number, "__init__") for number in numbers]
        self._type, self._memory, self._id = checked[0], checked[1], checked[-1]
        self._vendor = checked[2] if len(checked) == 4 else 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1) -> OrtDevice:
        """The device of a name; a vendor that the name implies need not be given."""
        kind = get_ort_device_type(ort_device_name)
        if vendor_id < 0:
            vendor_id = get_vendor_id_for_device_type(ort_device_name) or 0
        return OrtDevice(kind, 0, int(vendor_id), device_id)

    def _get_c_device(self) -> OrtDevice:
        return self

    def device_id(self) -> int:
        """Which of several devices of its type."""
        return self._id

    def device_type(self) -> int:
        """The number of its type."""
        return self._type

    def device_vendor_id(self) -> int:
        """The PCI number of its vendor, 0 for none."""
        return self._vendor

    def device_mem_type(self) -> int:
        """The number of its kind of memory."""
        return self._memory

    vendor_id = device_vendor_id
    mem_type = device_mem_type

    @property
    def name(self) -> str:
        """The name of its type: "cpu"."""
        return _DEVICE_NAMES.get(self._type, "unknown")

    def __repr__(self) -> str:
        return f"OrtDevice({self.name}:{self._id})"

    # the original's raw class offers the numbers of types so

    @staticmethod
    def cpu() -> int:
        """The number of this type."""
        return 0

    @staticmethod
    def cuda() -> int:
        """The number of this type."""
        return 1

    @staticmethod
    def gpu() -> int:
        """The number of this type."""
        return 1

    @staticmethod
    def webgpu() -> int:
        """The number of this type."""
        return 1

    @staticmethod
    def fpga() -> int:
        """The number of this type."""
        return 2

    @staticmethod
    def npu() -> int:
        """The number of this type."""
        return 3

    @staticmethod
    def cann() -> int:
        """The number of this type."""
        return 3

    @staticmethod
    def dml() -> int:
        """The number of this type."""
        return 4

    @staticmethod
    def default_memory() -> int:
        """The number of a device's ordinary memory."""
        return 0


_MEMORY_NAMES = {
    "Cpu": 0,
    "Cuda": OrtDeviceVendorId.NVIDIA,
    "CudaPinned": OrtDeviceVendorId.NVIDIA,
    "Hip": OrtDeviceVendorId.AMD,
    "HipPinned": OrtDeviceVendorId.AMD,
    "DML": OrtDeviceVendorId.MICROSOFT,
    "OpenVINO_GPU": OrtDeviceVendorId.INTEL,
    "OpenVINO_RT_NPU": OrtDeviceVendorId.INTEL,
    "QnnHtpShared": OrtDeviceVendorId.QUALCOMM,
    "WebGPU_Buf": 0,
    "WebGPU_Buffer": 0,
    "WebNN_Ten": 0,
    "WebNN_Tensor": 0,
}
"""Memories that the short constructor knows, with their vendors."""


class OrtMemoryInfo:
    """Describes memory: of which device, from which kind of allocator."""

    __slots__ = ("name", "device_id", "mem_type", "allocator_type", "device_mem_type", "device_vendor_id")

    def __init__(self, name: str, allocator_type: OrtAllocatorType, id: int, mem_type: OrtMemType):
        if name not in _MEMORY_NAMES:
            raise RuntimeError("Specified device is not supported. Try CreateMemoryInfo_V2.")
        self.name = name
        self.device_id = arguments.integer(id, "__init__")
        self.mem_type = mem_type
        self.allocator_type = allocator_type
        pinned = name.endswith("Pinned") or name == "QnnHtpShared"
        self.device_mem_type = OrtDeviceMemoryType.HOST_ACCESSIBLE if pinned else OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = int(_MEMORY_NAMES[name])

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Memory of any name."""
        if not isinstance(device_type, OrtMemoryInfoDeviceType):
            raise arguments.mismatch("create_v2", "(…, device_type: OrtMemoryInfoDeviceType, …)", name, device_type)
        arguments.integer(alignment, "create_v2", bits=64)
        info = OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        info.name = name
        info.device_mem_type = mem_type
        info.device_vendor_id = vendor_id
        return info

    def __repr__(self) -> str:
        return f"OrtMemoryInfo({self.name!r}, {self.allocator_type}, {self.device_id}, {self.mem_type})"


class OrtArenaCfg:
    """How an arena grows; -1 leaves a setting to us. Takes four numbers or a dict of settings."""

    __slots__ = (
        "max_mem",
        "arena_extend_strategy",
        "initial_chunk_size_bytes",
        "max_dead_bytes_per_chunk",
        "initial_growth_chunk_size_bytes",
        "max_power_of_two_extend_bytes",
    )

    def __init__(self, *positional: Any):
        for name in self.__slots__:
            setattr(self, name, 0 if name == "max_mem" else -1)
        if len(positional) == 1 and isinstance(positional[0], Mapping):
            self._set(positional[0])
        elif len(positional) == 4:
            for name, number in zip(self.__slots__, positional, strict=False):
                setattr(self, name, arguments.integer(number, "__init__", bits=64))
        else:
            raise arguments.mismatch("__init__", "OrtArenaCfg(settings: dict)", *positional)

    def _set(self, settings: Mapping[str, Any]) -> None:
        for name, number in settings.items():
            if name not in self.__slots__:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {name}")
            try:
                setattr(self, name, arguments.integer(number, bits=64))
            except TypeError:
                raise RuntimeError(f"OrtArenaCfg option {name} must be an integer, not {type(number)}") from None


class OrtHardwareDevice:
    """A piece of hardware in this machine."""

    __slots__ = ("type", "vendor_id", "vendor", "device_id", "metadata")

    def __init__(self, type: OrtHardwareDeviceType, vendor_id: int, vendor: str, device_id: int, metadata: dict[str, str]):
        self.type = type
        self.vendor_id = vendor_id
        self.vendor = vendor
        self.device_id = device_id
        self.metadata = metadata


class OrtSyncStream:
    """A queue of a device; the CPU has none."""

    def __init__(self) -> None:
        raise TypeError("OrtSyncStream: No constructor defined!")


class OrtEpDevice:
    """A provider together with hardware that it can use."""

    __slots__ = ("ep_name", "ep_vendor", "ep_metadata", "ep_options", "device")

    def __init__(self, ep_name: str, device: OrtHardwareDevice):
        self.ep_name = ep_name
        self.ep_vendor = "sardonyx"
        self.ep_metadata = {"version": __version__}
        self.ep_options: dict[str, str] = {}
        self.device = device

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """Memory of the device's own; None for the CPU."""
        return None

    def create_sync_stream(self) -> OrtSyncStream:
        """Always a RuntimeError: the CPU has no queues."""
        raise RuntimeError("ep_device does not use DEFAULT memory of a non-CPU device.")


def get_hardware_devices() -> list[OrtHardwareDevice]:
    """What this machine computes with, as far as we use it."""
    machine = platform.machine().lower()
    vendor = "ARM" if machine.startswith(("arm", "aarch")) else ""
    number = int(OrtDeviceVendorId.ARM) if vendor else 0
    return [OrtHardwareDevice(OrtHardwareDeviceType.CPU, number, vendor, 0, {"architecture": machine})]


def get_ep_devices() -> list[OrtEpDevice]:
    """Each provider with each device that it can use."""
    return [OrtEpDevice("CPUExecutionProvider", device) for device in get_hardware_devices()]


def cpu_memory_info() -> OrtMemoryInfo:
    """Where all inputs and outputs of a session live."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)
