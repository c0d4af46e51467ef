"""What belongs to the process and not to one session: versions, seeds, global threads, shared allocators, libraries of providers."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping

from sardonyx import __version__
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.providers import random_state
from sardonyx.runtime.api import arguments
from sardonyx.runtime.api.devices import OrtArenaCfg, OrtMemoryInfo
from sardonyx.runtime.api.options import SessionOptions

_global_pools: tuple[int, int] | None = None


def get_version_string() -> str:
    """The version of sardonyx."""
    return __version__


PACKAGES = ("numpy", "ml_dtypes", "onnx", "flatbuffers", "llvmlite", "rich", "pillow", "openvino")
"""What we use where it is installed; docs/minimal.md says what for."""


def get_build_info() -> str:
    """Which parts are there: versions of packages, "no" for those that are missing, and what native code is made for."""
    from sardonyx.compiler import jit

    try:
        native = jit.description()
    except (jit.NoCompiler, InvalidArgument) as error:
        native = f"no ({error})"
    parts = {"sardonyx": __version__, "python": platform.python_version(), **_installed(), "native": native}
    return f"ORT Build Info: {', '.join(f'{name}={value}' for name, value in parts.items())}"


def _installed() -> dict[str, str]:
    """The versions of our packages, found without importing them."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "no"
    return versions


def get_device() -> str:
    """The kind of device that runs use by default."""
    return "CPU"


def set_seed(seed: int) -> None:
    """Make random ops without a seed of their own repeatable."""
    random_state.set_seed(arguments.integer(seed, "set_seed", bits=64))


def has_collective_ops() -> bool:
    """Whether there are ops for several machines; there are none."""
    return False


def enable_telemetry_events() -> None:
    """Does nothing: we send nothing anywhere."""


def disable_telemetry_events() -> None:
    """Does nothing: we send nothing anywhere."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Have sessions share threads; from then on each must set `use_per_session_threads` to False."""
    global _global_pools
    function = "set_global_thread_pool_sizes"
    sizes = arguments.integer(intra_op_num_threads, function), arguments.integer(inter_op_num_threads, function)
    if _global_pools is not None:
        raise Fail("Global thread pools have already been created, cannot replace them")
    _global_pools = sizes


def check_thread_options(options: SessionOptions) -> None:
    """Refuse a session that wants global threads where there are none, or the other way round."""
    if options.use_per_session_threads and _global_pools is not None:
        raise RuntimeError("use_per_session_threads must be false when using a global thread pool")
    if not options.use_per_session_threads and _global_pools is None:
        raise RuntimeError(
            "When the session is not configured to use per session threadpools, the global thread pools must be created first: "
            "call set_global_thread_pool_sizes."
        )


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None = None) -> None:
    """Accepted for compatibility: memory comes from NumPy's own allocator."""
    if not isinstance(memory_info, OrtMemoryInfo):
        raise arguments.mismatch("create_and_register_allocator", "(info: OrtMemoryInfo, config: OrtArenaCfg)", memory_info)


def create_and_register_allocator_v2(
    provider_type: str, memory_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg
) -> None:
    """Accepted for compatibility, for the CPU's provider only."""
    if provider_type != "CPUExecutionProvider":
        raise RuntimeError(f"{provider_type} is not implemented in CreateAndRegisterAllocatorV2()")
    create_and_register_allocator(memory_info, arena_cfg)


def register_execution_provider_library(name: str, path: str) -> None:
    """Load a provider from a shared library. Libraries for the original's C interface cannot be used here."""
    path = os.path.join(os.path.dirname(__file__), path)
    reason = (
        "it is written for the C interface of onnxruntime; providers for sardonyx come through entry points or `register_provider`"
        if os.path.exists(path)
        else f"{path}: cannot open shared object file: No such file or directory"
    )
    raise Fail(f"Failed to load library {path} with error: {reason}")


def unregister_execution_provider_library(name: str) -> None:
    """Always an error, for no library of providers can be registered."""
    raise Fail(f"Execution provider library: {name} was not registered.")


def preload_dlls(cuda: bool = True, cudnn: bool = True, msvc: bool = True, directory: str | None = None) -> None:
    """Does nothing: there are no libraries of GPUs to load."""


def print_debug_info() -> None:
    """Write to stdout what a bug report should tell."""
    lines = [f"package: sardonyx {__version__}", f"platform: {platform.platform()}", f"python: {sys.version.split()[0]}"]
    lines += [f"{package}: {'not installed' if version == 'no' else version}" for package, version in _installed().items()]
    sys.stdout.write("\n".join(lines) + "\n")
