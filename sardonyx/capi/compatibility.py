"""Whether compiled models fit this machine, by the names that the original has for these questions.

A compiled model says in its metadata for whom it is: which version of sardonyx made it, and for which CPU.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

from sardonyx import __version__, formats
from sardonyx.compiler.jit import host
from sardonyx.errors import InvalidArgument
from sardonyx.providers.native.aot.cpu import LEVELS
from sardonyx.providers.native.aot.opening import COMPATIBILITY_KEY
from sardonyx.providers.native.aot.writing import architecture_of
from sardonyx.runtime.api.devices import OrtEpDevice, OrtHardwareDevice
from sardonyx.runtime.api.enums import OrtCompiledModelCompatibility, OrtDeviceEpIncompatibilityReason
from sardonyx.runtime.preparation.providers import get_available_providers

CPU = "CPUExecutionProvider"


def get_compatibility_info_from_model(model_path: str | os.PathLike[str], ep_type: str) -> str | None:
    """What a compiled model's file says about a provider; None for a model that is not compiled for it."""
    if not os.path.exists(model_path):
        raise RuntimeError(f"Load model {os.fspath(model_path)} failed. File doesn't exist")
    return _info(formats.load(model_path), ep_type)


def get_compatibility_info_from_model_bytes(model_data: Any, ep_type: str) -> str | None:
    """The same of a model in memory."""
    return _info(formats.load(bytes(model_data)), ep_type)


def _info(model: Any, ep_type: str) -> str | None:
    key = COMPATIBILITY_KEY if ep_type == CPU else f"ep_compatibility_info.{ep_type}"
    return model.metadata.get(key)


def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[OrtEpDevice], compatibility_info: str
) -> OrtCompiledModelCompatibility:
    """Whether a compiled model that says so can be used here as it is, or would better be compiled again."""
    if not ep_devices:
        raise RuntimeError("Invalid argument provided to GetModelCompatibilityForEpDevices.")
    maker, _, architecture = compatibility_info.partition("; ")
    name, _, version = maker.partition(" ")
    if name != "sardonyx" or any(device.ep_name != CPU for device in ep_devices):
        return OrtCompiledModelCompatibility.EP_NOT_APPLICABLE
    if not _can_run(architecture):
        return OrtCompiledModelCompatibility.EP_UNSUPPORTED
    if version != __version__ or architecture != architecture_of(host()):
        return OrtCompiledModelCompatibility.EP_SUPPORTED_PREFER_RECOMPILATION
    return OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL


def _can_run(architecture: str) -> bool:
    """Whether this CPU has the level for which code was generated."""
    machine, _, rest = architecture.partition(" ")
    level, here = rest.partition(" ")[0], host().name
    if machine != platform.machine():
        return False
    return level == here or (level in LEVELS and here in LEVELS and LEVELS.index(level) <= LEVELS.index(here))


def get_hardware_device_ep_incompatibility_details(ep_name: str, hw: OrtHardwareDevice) -> dict[str, Any]:
    """Why a provider cannot use a device: nothing is known against those that are here."""
    if ep_name not in get_available_providers():
        raise InvalidArgument(f"No valid factory found for execution provider '{ep_name}'.")
    return {"reasons_bitmask": int(OrtDeviceEpIncompatibilityReason.NONE), "notes": None, "error_code": 0}
