"""sardonyx: ONNX Runtime written in Python. `import sardonyx as ort` runs programs written for onnxruntime.

Importing the package loads nothing else: each name below is fetched from its module when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__author__ = "sardonyx contributors"

version = __version__
package_name = "sardonyx"
cuda_version = ""

_MODULES = {
    "runtime.api.session": ("InferenceSession", "run"),
    "runtime.api.options": ("RunOptions", "SessionOptions"),
    "runtime.api.value": ("OrtValue", "OrtValueVector", "copy_tensors"),
    "runtime.api.sparse": ("SparseTensor",),
    "runtime.api.adapters": ("AdapterFormat", "LoraAdapter"),
    "runtime.api.iobinding": ("IOBinding", "SessionIOBinding"),
    "runtime.api.metadata": (
        "ModelMetadata",
        "NodeArg",
        "OrtEpAssignedNode",
        "OrtEpAssignedSubgraph",
        "OrtExternalInitializerInfo",
    ),
    "runtime.api.devices": (
        "OrtArenaCfg",
        "OrtDevice",
        "OrtDeviceVendorId",
        "OrtEpDevice",
        "OrtHardwareDevice",
        "OrtMemoryInfo",
        "OrtSyncStream",
        "get_ep_devices",
    ),
    "runtime.api.enums": (
        "ExecutionMode",
        "ExecutionOrder",
        "GraphOptimizationLevel",
        "OrtAllocatorType",
        "OrtCompileApiFlags",
        "OrtDeviceMemoryType",
        "OrtExecutionProviderDevicePolicy",
        "OrtHardwareDeviceType",
        "OrtMemType",
        "OrtMemoryInfoDeviceType",
        "OrtSparseFormat",
    ),
    "runtime.api.environment": (
        "create_and_register_allocator",
        "create_and_register_allocator_v2",
        "disable_telemetry_events",
        "enable_telemetry_events",
        "get_build_info",
        "get_device",
        "get_version_string",
        "has_collective_ops",
        "preload_dlls",
        "print_debug_info",
        "register_execution_provider_library",
        "set_global_thread_pool_sizes",
        "set_seed",
        "unregister_execution_provider_library",
    ),
    "runtime.preparation.providers": (
        "get_all_providers",
        "get_available_providers",
        "register_provider",
        "unregister_provider",
    ),
    "runtime.api.custom_ops": ("CustomOp", "custom_op", "register_custom_op", "unregister_custom_op"),
    "runtime.api.model_compiler": ("ModelCompiler",),
    "runtime.api.context_data": ("OrtEpContextData", "OrtEpContextDataBuffer"),
    "runtime.api.log": ("set_default_logger_severity", "set_default_logger_verbosity"),
    "providers.prepacking": ("PrepackedWeightsContainer",),
    "compat": ("install_as_onnxruntime",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = frozenset(
    {"backend", "capi", "datasets", "dtypes", "errors", "formats", "ir", "ops", "providers", "runtime", "training"}
)

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(_imported(_HOMES[name]), name)
    elif name in _SUBMODULES:
        value = _imported(name)
    elif name == "onnxruntime_validation":
        value = _imported("capi.onnxruntime_validation")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def _imported(module: str) -> Any:
    """A module of ours. Modules stay, so there is nothing to collect while they are imported."""
    from sardonyx.startup.garbage import rarely_collected

    with rarely_collected("imports"):
        return importlib.import_module(f"{__name__}.{module}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBMODULES})


if TYPE_CHECKING:
    from sardonyx.compat import install_as_onnxruntime
    from sardonyx.providers.prepacking import PrepackedWeightsContainer
    from sardonyx.runtime.api.adapters import AdapterFormat, LoraAdapter
    from sardonyx.runtime.api.custom_ops import CustomOp, custom_op, register_custom_op, unregister_custom_op
    from sardonyx.runtime.api.devices import (
        OrtArenaCfg,
        OrtDevice,
        OrtDeviceVendorId,
        OrtEpDevice,
        OrtHardwareDevice,
        OrtMemoryInfo,
        OrtSyncStream,
        get_ep_devices,
    )
    from sardonyx.runtime.api.enums import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        OrtAllocatorType,
        OrtCompileApiFlags,
        OrtDeviceMemoryType,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDeviceType,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
    )
    from sardonyx.runtime.api.environment import (
        create_and_register_allocator,
        create_and_register_allocator_v2,
        disable_telemetry_events,
        enable_telemetry_events,
        get_build_info,
        get_device,
        get_version_string,
        has_collective_ops,
        preload_dlls,
        print_debug_info,
        register_execution_provider_library,
        set_global_thread_pool_sizes,
        set_seed,
        unregister_execution_provider_library,
    )
    from sardonyx.runtime.api.iobinding import IOBinding, SessionIOBinding
    from sardonyx.runtime.api.log import set_default_logger_severity, set_default_logger_verbosity
    from sardonyx.runtime.api.metadata import (
        ModelMetadata,
        NodeArg,
        OrtEpAssignedNode,
        OrtEpAssignedSubgraph,
        OrtExternalInitializerInfo,
    )
    from sardonyx.runtime.api.options import RunOptions, SessionOptions
    from sardonyx.runtime.api.session import InferenceSession, run
    from sardonyx.runtime.api.sparse import SparseTensor
    from sardonyx.runtime.api.value import OrtValue, OrtValueVector, copy_tensors
    from sardonyx.runtime.preparation.providers import (
        get_all_providers,
        get_available_providers,
        register_provider,
        unregister_provider,
    )
