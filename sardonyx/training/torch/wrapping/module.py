"""ORTModule: a module of torch that is compiled when it is called, and otherwise looks like the module that it wraps."""

from __future__ import annotations

import logging
import os
import types
import warnings
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed, InternalTorchDynamoError, TorchDynamoException

from sardonyx.training.torch.options import Options
from sardonyx.training.torch.wrapping import settings
from sardonyx.training.torch.wrapping.arguments import check_arguments
from sardonyx.training.torch.wrapping.debug_options import DebugOptions
from sardonyx.training.torch.wrapping.fallback import (
    Fallback,
    FallbackPolicy,
    ORTModuleDeviceException,
    ORTModuleFallbackException,
    ORTModuleONNXModelException,
    ORTModuleTorchModelException,
)

OWN = {"_original", "_options", "_fallback", "_compiled", "_versions", "training"}
"""Attributes of the wrapper itself; all others are those of the module inside."""
DELEGATED = (
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
    "state_dict",
    "load_state_dict",
    "register_buffer",
    "register_parameter",
    "get_parameter",
    "get_buffer",
    "get_submodule",
    "zero_grad",
    "_apply",
)

Saved = tuple[torch.Tensor, int, torch.Tensor]
"""A buffer, how often it had been changed, and a copy of it."""

logger = logging.getLogger("sardonyx.training")


class ORTModule(torch.nn.Module):  # type: ignore[misc]
    """`model = ORTModule(model)`, and the loop stays as it is."""

    _original: torch.nn.Module
    _options: DebugOptions
    _fallback: Fallback
    _compiled: Any
    _versions: dict[int, int]
    """How often each buffer had been changed before the last call."""

    def __init__(self, module: torch.nn.Module, debug_options: DebugOptions | None = None):
        if not isinstance(module, torch.nn.Module):
            raise ORTModuleTorchModelException(f"ORTModule only supports torch.nn.Module, {type(module)} was given.")
        if isinstance(module, torch.nn.DataParallel):
            raise ORTModuleTorchModelException(
                "ORTModule is not compatible with torch.nn.DataParallel. Please use torch.nn.parallel.DistributedDataParallel."
            )
        super().__init__()
        self.__dict__["_original"] = module
        self.__dict__["_options"] = debug_options or DebugOptions()
        self.__dict__["training"] = module.training
        self._begin()
        _warn_of_collisions(module)

    def _begin(self) -> None:
        """What is not pickled: it is made again."""
        self.__dict__["_fallback"] = Fallback(settings.policy(), settings.retries())
        self.__dict__["_compiled"] = None
        self.__dict__["_versions"] = {}

    # --- calls

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        if self._fallback.is_active:
            return self._original(*arguments, **keywords)
        if FallbackPolicy.FALLBACK_FORCE_TORCH_FORWARD in self._fallback.policy:
            self._fallback.begin(ORTModuleFallbackException("the policy is FALLBACK_FORCE_TORCH_FORWARD"))
            return self._original(*arguments, **keywords)
        generator, buffers = torch.get_rng_state(), self._saved_buffers()
        try:
            try:
                return self._run(arguments, keywords)
            except ORTModuleFallbackException as error:
                if not self._fallback.covers(error):
                    raise
                reason = error
            _restore(generator, buffers)  # a part of the module may have run
            result = self._original(*arguments, **keywords)
        except Exception:  # of torch too: then it is no reason to give the module up
            _restore(generator, buffers)
            raise
        self._fallback.begin(reason)
        return result

    def _saved_buffers(self) -> list[Saved]:
        """The buffers that changed since the call before the last one; all of them at first."""
        known, self.__dict__["_versions"] = self._versions, {}
        saved = []
        for buffer in self._original.buffers():
            version = self._versions[id(buffer)] = buffer._version
            if known.get(id(buffer)) != version:
                saved.append((buffer, version, buffer.detach().clone()))
        return saved

    def _run(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        check_arguments(arguments, keywords)
        for name, parameter in self._original.named_parameters():
            if parameter.device.type != "cpu":
                raise ORTModuleDeviceException(f"ORTModule runs on the CPU, the parameter {name!r} is on {parameter.device}.")
        if self._compiled is None:
            self.__dict__["_compiled"] = torch.compile(self._original, backend="sardonyx", options=self._backend_options())
        try:
            return self._compiled(*arguments, **keywords)
        except (BackendCompilerFailed, InternalTorchDynamoError) as error:
            raise ORTModuleONNXModelException(str(getattr(error, "inner_exception", error))) from error
        except TorchDynamoException as error:
            raise ORTModuleTorchModelException(str(error)) from error

    def _backend_options(self) -> dict[str, Any]:
        saved = self._options.save_onnx_models
        options: dict[str, Any] = {"log_severity_level": self._options.log_severity_level}
        options |= {"memory_budget": settings.memory_budget(), "recompute": settings.memory_config()}
        Options.read(options)  # what cannot be read is an error of the user's, no reason to fall back
        if saved.save:
            options["save_models"] = os.path.join(saved.path, saved.name_prefix)
        return options

    # --- as the module inside

    @property
    def module(self) -> torch.nn.Module:
        """The module that is wrapped."""
        return self._original

    def train(self, mode: bool = True) -> ORTModule:
        self.__dict__["training"] = bool(mode)
        self._original.train(mode)
        return self

    def apply(self, fn: Any) -> ORTModule:
        self._original.apply(fn)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> ORTModule:
        self._original.requires_grad_(requires_grad)
        return self

    def add_module(self, name: str, module: torch.nn.Module | None) -> None:
        raise NotImplementedError("ORTModule does not support adding modules to it.")

    def _replicate_for_data_parallel(self) -> Any:
        raise NotImplementedError(
            "ORTModule is not compatible with torch.nn.DataParallel. Please use torch.nn.parallel.DistributedDataParallel."
        )

    def __getattr__(self, name: str) -> Any:
        if "_original" not in self.__dict__:
            return super().__getattr__(name)
        found = getattr(self._original, name)
        if isinstance(found, types.MethodType) and found.__self__ is self._original and _is_users(found):
            return types.MethodType(found.__func__, self)  # methods of users see the wrapper
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if "_original" not in self.__dict__ or name in OWN:
            super().__setattr__(name, value)
        else:
            setattr(self._original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._original, name)

    def __repr__(self) -> str:
        return f"ORTModule({self._original!r})"

    # --- copies

    def __getstate__(self) -> dict[str, Any]:
        return {"_original": self._original, "_options": self._options, "training": self.training}

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.nn.Module.__init__(self)
        self.__dict__.update(state)
        self._begin()


def reconfigure(module: ORTModule, debug_options: DebugOptions | None, policy: FallbackPolicy | None) -> None:
    """Give a module other options, with which its graphs are made again, or another policy."""
    if debug_options is not None:
        module.__dict__["_options"], module.__dict__["_compiled"] = debug_options, None
    if policy is not None:
        module._fallback.policy = policy


@torch.no_grad()  # type: ignore[untyped-decorator]
def _restore(generator: torch.Tensor, buffers: list[Saved]) -> None:
    torch.set_rng_state(generator)
    for buffer, version, copy in buffers:
        if buffer._version != version:
            buffer.copy_(copy)


def _delegate(name: str) -> None:
    def method(self: ORTModule, *arguments: Any, **keywords: Any) -> Any:
        result = getattr(self._original, name)(*arguments, **keywords)
        return self if result is self._original else result

    method.__name__ = name
    method.__doc__ = f"That of the module inside: `torch.nn.Module.{name}`."
    setattr(ORTModule, name, method)


for _name in DELEGATED:
    _delegate(_name)


def _is_users(method: types.MethodType) -> bool:
    """Whether a method is none of torch.nn.Module's own."""
    return not hasattr(torch.nn.Module, method.__name__)


def _warn_of_collisions(module: torch.nn.Module) -> None:
    own = {name for name in vars(ORTModule) if not name.startswith("_")} - {"forward"}
    theirs = {name for kind in type(module).__mro__ if not kind.__module__.startswith("torch.") for name in vars(kind)}
    inherited = {name for name in own if hasattr(torch.nn.Module, name)}
    held = {name for name, _ in (*module.named_children(), *module.named_parameters(recurse=False))}
    for name in sorted((own - inherited) & (theirs | held)):
        warnings.warn(f"The attribute {name!r} of the module is hidden by ORTModule's own.", stacklevel=3)
