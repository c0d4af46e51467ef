"""Execution providers by name: which there are, how a user's list of them is read, and how they are opened for a session.

Other packages bring providers through the entry point group "sardonyx.providers"; a program registers its own with `register_provider`.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx import settings
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.startup.locks import Lock

if TYPE_CHECKING:
    from sardonyx.providers.native.aot.opening import Context

CPU_PROVIDER = "CPUExecutionProvider"
ENTRY_POINTS = "sardonyx.providers"

Factory = Callable[[Mapping[str, str]], ExecutionProvider]
"""Makes a provider from its options."""

_KNOWN = (
    "NvTensorRTRTX",
    "Tensorrt",
    "CUDA",
    "MIGraphX",
    "OpenVINO",
    "Dnnl",
    "VitisAI",
    "QNN",
    "Nnapi",
    "VSINPU",
    "Js",
    "CoreML",
    "ACL",
    "Dml",
    "Rknpu",
    "WebNN",
    "WebGpu",
    "Xnnpack",
    "CANN",
    "Azure",
)
"""Providers that the original knows, whether or not a build has them."""

_OPTIONAL = {"OpenVINOExecutionProvider": ("openvino", "sardonyx.providers.openvino")}
"""Providers of ours that need a package which may not be installed, and the module where they stand."""

logger = logging.getLogger("sardonyx.runtime")

_registered: dict[str, Factory] = {}
_lock = Lock()


def register_provider(name: str, factory: Factory) -> None:
    """Make a provider of your own known under `name`; sessions may then list it."""
    if name == CPU_PROVIDER:
        raise ValueError(f"{CPU_PROVIDER} is ours")
    with _lock:
        _registered[name] = factory


def unregister_provider(name: str) -> None:
    """Forget a provider; sessions that use it keep it."""
    with _lock:
        _registered.pop(name, None)


@functools.cache
def _from_packages() -> Mapping[str, Any]:
    if not any(map(_may_announce, sys.path)):
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=ENTRY_POINTS)}


def _may_announce(folder: str) -> bool:
    """Whether packages in a folder may bring providers. This look takes a millisecond; `importlib.metadata` takes many."""
    if not os.path.isdir(folder or "."):
        return os.path.exists(folder)  # an archive, which has its own ways
    try:
        with os.scandir(folder or ".") as entries:
            packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info", ".egg"))]
    except OSError:
        return False
    return any(path.endswith(".egg") or _speaks_of_us(os.path.join(path, "entry_points.txt")) for path in packages)


def _speaks_of_us(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return ENTRY_POINTS.encode() in file.read()
    except OSError:
        return False


@functools.cache
def _installed() -> Mapping[str, str]:
    """Our optional providers whose packages are here, with their modules."""
    from importlib.util import find_spec

    return {name: module for name, (package, module) in _OPTIONAL.items() if find_spec(package) is not None}


def get_available_providers() -> list[str]:
    """Providers that sessions can use, best first, CPU last."""
    return [*dict.fromkeys([*_registered, *_from_packages(), *_installed()]), CPU_PROVIDER]


def get_all_providers() -> list[str]:
    """Every provider name that programs for the original may use, in its order of preference, CPU last."""
    known = (f"{name}ExecutionProvider" for name in _KNOWN)
    return [*dict.fromkeys([*_registered, *_from_packages(), *known]), CPU_PROVIDER]


def open_providers(
    names: Sequence[str],
    options: Sequence[Mapping[str, str]],
    threads: int = 0,
    spinning: bool = True,
    defaults: Mapping[str, str] | None = None,
    context: Context | None = None,
) -> list[ExecutionProvider]:
    """Provider objects in the order of `names`, those that are merely known left out, CPU added as the last.

    `threads` and `spinning` are for those that run native code: how many threads a run may use, 0 for all, and whether idle ones may
    look for work a while before they sleep. `defaults` are options of the CPU where the user gives none. `context` is the code of a
    model that was compiled ahead of time.
    """
    opened: list[ExecutionProvider] = []
    for name, provider_options in zip([*names, CPU_PROVIDER], [*options, {}], strict=True):
        if name != CPU_PROVIDER:
            opened += filter(None, [_open(name, provider_options)])
        elif not any(provider.name == CPU_PROVIDER for provider in opened):
            opened += _open_cpu({**(defaults or {}), **provider_options}, threads, spinning, context)
    return opened


def _open(name: str, options: Mapping[str, str]) -> ExecutionProvider | None:
    if name in _registered:
        return _registered[name](options)
    if name in _from_packages():
        return _from_packages()[name].load()(options)
    if name in _installed():
        from importlib import import_module

        return getattr(import_module(_installed()[name]), name)(options)
    if name in get_all_providers():
        return None
    raise RuntimeError(f"Unknown Provider Type: {name}")


def _open_cpu(options: Mapping[str, str], threads: int, spinning: bool, context: Context | None) -> list[ExecutionProvider]:
    """The two providers of the CPU: native code, unless the option "native" is "0" or there is no compiler; and NumPy for the rest."""
    if context is not None:
        from sardonyx.providers.native.aot.provider import ContextExecutionProvider

        compiled = ContextExecutionProvider(context, options, threads, spinning)
        if context.is_whole:
            return [compiled]
    from sardonyx.providers.cpu.provider import CPUExecutionProvider

    if context is not None:
        return [compiled, CPUExecutionProvider(options)]
    native = _open_native(options, threads, spinning) if settings.NATIVE.is_on(options) else None
    return [*filter(None, [native]), CPUExecutionProvider(options)]


def _open_native(options: Mapping[str, str], threads: int, spinning: bool) -> ExecutionProvider | None:
    from sardonyx.compiler.jit import NoCompiler, host

    try:
        host()
    except NoCompiler as error:
        _say_slow(str(error))
        return None
    from sardonyx.providers.native.provider import NativeExecutionProvider

    return NativeExecutionProvider(options, threads, spinning)


@functools.cache
def _say_slow(reason: str) -> None:
    logger.warning("No native code: %s. Models run in NumPy, right but slowly; 'pip install llvmlite' makes them fast.", reason)


def check_and_normalize_provider_args(
    providers: Sequence[str | tuple[str, Mapping[Any, Any]]] | None,
    provider_options: Sequence[Mapping[Any, Any]] | None,
    available_provider_names: Sequence[str],
) -> tuple[list[str], list[dict[str, str]]]:
    """Names and options, checked, without duplicates, options as strings; warns of names that are not available."""
    if providers is None:
        return [], []
    if isinstance(providers, str):  # the original takes it apart into letters
        providers = [providers]
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    pairs = _paired(providers, provider_options)
    chosen: dict[str, dict[str, str]] = {}
    for name, options in pairs:
        if name not in available_provider_names:
            available = ", ".join(available_provider_names)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{available}'",
                stacklevel=4,
            )
        if name in chosen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=4)
            continue
        chosen[name] = {str(key): str(value) for key, value in options.items()}
    return list(chosen), list(chosen.values())


def _paired(
    providers: Sequence[str | tuple[str, Mapping[Any, Any]]], provider_options: Sequence[Mapping[Any, Any]] | None
) -> list[tuple[str, Mapping[Any, Any]]]:
    if provider_options is None:
        return [_pair(entry) for entry in providers]
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    if not all(isinstance(name, str) for name in providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, Mapping) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
    return list(zip(providers, provider_options, strict=True))  # type: ignore[arg-type]


def _pair(entry: Any) -> tuple[str, Mapping[Any, Any]]:
    if isinstance(entry, str):
        return entry, {}
    if isinstance(entry, tuple) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], Mapping):
        return entry[0], entry[1]
    raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
