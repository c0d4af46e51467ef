"""What the original's compiled module defines: raw classes, enums and every exception.

Where the original has a raw class and a Python wrapper of the same name, both are one class here; its raw InferenceSession is our Engine.
"""

from __future__ import annotations

import importlib
from typing import Any

from sardonyx.errors import (
    DeviceReset,
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,  # noqa: A004 - the original's name
    RuntimeException,
)
from sardonyx.runtime.api.adapters import AdapterFormat, LoraAdapter
from sardonyx.runtime.api.context_data import OrtEpContextData, OrtEpContextDataBuffer
from sardonyx.runtime.api.devices import (
    OrtArenaCfg,
    OrtDevice,
    OrtEpDevice,
    OrtHardwareDevice,
    OrtMemoryInfo,
    OrtSyncStream,
    get_ep_devices,
    get_hardware_devices,
)
from sardonyx.runtime.api.dlpack import is_uint8 as is_dlpack_uint8_tensor
from sardonyx.runtime.api.enums import (
    ArenaExtendStrategy,
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    OrtAllocatorType,
    OrtCompileApiFlags,
    OrtCompiledModelCompatibility,
    OrtDeviceEpIncompatibilityReason,
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
    register_execution_provider_library,
    set_global_thread_pool_sizes,
    set_seed,
    unregister_execution_provider_library,
)
from sardonyx.runtime.api.iobinding import SessionIOBinding
from sardonyx.runtime.api.log import set_default_logger_severity, set_default_logger_verbosity
from sardonyx.runtime.api.metadata import (
    ModelMetadata,
    NodeArg,
    OrtEpAssignedNode,
    OrtEpAssignedSubgraph,
    OrtExternalInitializerInfo,
)
from sardonyx.runtime.api.model_compiler import ModelCompiler
from sardonyx.runtime.api.options import RunOptions, SessionOptions
from sardonyx.runtime.api.raw_session import RawSession as InferenceSession
from sardonyx.runtime.api.sparse import SparseBlockSparseView, SparseCooView, SparseCsrView, SparseTensor
from sardonyx.runtime.api.value import OrtValue, OrtValueVector, copy_tensors
from sardonyx.runtime.preparation.providers import get_all_providers, get_available_providers

kNextPowerOfTwo = ArenaExtendStrategy.kNextPowerOfTwo  # noqa: N816 - the original's spelling
kSameAsRequested = ArenaExtendStrategy.kSameAsRequested  # noqa: N816


_LATER = {
    "get_all_operator_schema": "schemadef",
    "get_all_opkernel_def": "opkernel",
    "get_compatibility_info_from_model": "compatibility",
    "get_compatibility_info_from_model_bytes": "compatibility",
    "get_hardware_device_ep_incompatibility_details": "compatibility",
    "get_model_compatibility_for_ep_devices": "compatibility",
    "get_registered_ep_kernel_defs": "opkernel",
    "opkernel": "opkernel",
    "quantize_matmul_2bits": "block_quantizers",
    "quantize_matmul_4bits": "block_quantizers",
    "quantize_matmul_8bits": "block_quantizers",
    "quantize_matmul_bnb4": "block_quantizers",
    "quantize_qdq_matmul_2bits": "block_quantizers",
    "quantize_qdq_matmul_4bits": "block_quantizers",
    "schemadef": "schemadef",
}
"""What few ask for, and the module here that has it: loaded when it is asked for, which takes some time."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__package__}.{_LATER[name]}")
    return module if name == _LATER[name] else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def get_default_session_options() -> SessionOptions:
    """New options with nothing set."""
    return SessionOptions()


__all__ = [
    "AdapterFormat",
    "ArenaExtendStrategy",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "LoraAdapter",
    "ModelCompiler",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDevice",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "SparseBlockSparseView",
    "SparseCooView",
    "SparseCsrView",
    "SparseTensor",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_default_session_options",
    "get_device",
    "get_ep_devices",
    "get_hardware_devices",
    "get_version_string",
    "has_collective_ops",
    "is_dlpack_uint8_tensor",
    "kNextPowerOfTwo",
    "kSameAsRequested",
    "register_execution_provider_library",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]
