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
    "runtime.session": ("InferenceSession", "run"),
    "runtime.options": ("RunOptions", "SessionOptions"),
    "runtime.value": ("OrtValue", "OrtValueVector", "copy_tensors"),
    "runtime.sparse": ("SparseTensor",),
    "runtime.iobinding": ("IOBinding", "SessionIOBinding"),
    "runtime.metadata": (
        "ModelMetadata",
        "NodeArg",
        "OrtEpAssignedNode",
        "OrtEpAssignedSubgraph",
        "OrtExternalInitializerInfo",
    ),
    "runtime.devices": (
        "OrtArenaCfg",
        "OrtDevice",
        "OrtDeviceVendorId",
        "OrtEpDevice",
        "OrtHardwareDevice",
        "OrtMemoryInfo",
        "OrtSyncStream",
        "get_ep_devices",
    ),
    "runtime.enums": (
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
    "runtime.environment": (
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
    "runtime.providers": ("get_all_providers", "get_available_providers", "register_provider", "unregister_provider"),
    "runtime.custom_ops": ("CustomOp", "custom_op", "register_custom_op", "unregister_custom_op"),
    "runtime.model_compiler": ("ModelCompiler",),
    "runtime.context_data": ("OrtEpContextData", "OrtEpContextDataBuffer"),
    "runtime.log": ("set_default_logger_severity", "set_default_logger_verbosity"),
    "providers.prepacking": ("PrepackedWeightsContainer",),
    "compat": ("install_as_onnxruntime",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}
_SUBMODULES = frozenset({"backend", "capi", "datasets", "dtypes", "errors", "formats", "ir", "ops", "providers", "runtime"})

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"{__name__}.{name}")
    elif name == "onnxruntime_validation":
        value = importlib.import_module(f"{__name__}.capi.onnxruntime_validation")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_SUBMODULES})


if TYPE_CHECKING:
    from sardonyx.compat import install_as_onnxruntime
    from sardonyx.providers.prepacking import PrepackedWeightsContainer
    from sardonyx.runtime.custom_ops import CustomOp, custom_op, register_custom_op, unregister_custom_op
    from sardonyx.runtime.devices import (
        OrtArenaCfg,
        OrtDevice,
        OrtDeviceVendorId,
        OrtEpDevice,
        OrtHardwareDevice,
        OrtMemoryInfo,
        OrtSyncStream,
        get_ep_devices,
    )
    from sardonyx.runtime.enums import (
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
    from sardonyx.runtime.environment import (
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
    from sardonyx.runtime.iobinding import IOBinding, SessionIOBinding
    from sardonyx.runtime.log import set_default_logger_severity, set_default_logger_verbosity
    from sardonyx.runtime.metadata import (
        ModelMetadata,
        NodeArg,
        OrtEpAssignedNode,
        OrtEpAssignedSubgraph,
        OrtExternalInitializerInfo,
    )
    from sardonyx.runtime.options import RunOptions, SessionOptions
    from sardonyx.runtime.providers import (
        get_all_providers,
        get_available_providers,
        register_provider,
        unregister_provider,
    )
    from sardonyx.runtime.session import InferenceSession, run
    from sardonyx.runtime.sparse import SparseTensor
    from sardonyx.runtime.value import OrtValue, OrtValueVector, copy_tensors
