"""What becomes of a wrapped module that cannot be compiled: its policy says whether torch runs it or an exception comes."""

from __future__ import annotations

import logging
from enum import IntFlag

logger = logging.getLogger("sardonyx.training")


class FallbackPolicy(IntFlag):
    """Kinds of failures after which torch runs the module."""

    FALLBACK_DISABLE = 1
    FALLBACK_FORCE_TORCH_FORWARD = 2
    FALLBACK_FORCE_TORCH_BACKWARD = 4
    FALLBACK_UNSUPPORTED_DEVICE = 8
    FALLBACK_UNSUPPORTED_DATA = 16
    FALLBACK_UNSUPPORTED_TORCH_MODEL = 32
    FALLBACK_UNSUPPORTED_ONNX_MODEL = 64
    FALLBACK_BAD_INITIALIZATION = 128

    @classmethod
    def read(cls, text: str | FallbackPolicy) -> FallbackPolicy:
        """Names joined by `|`, as the environment has them."""
        if isinstance(text, FallbackPolicy):
            return text
        policy = cls(0)
        for name in text.split("|"):
            if name.strip() not in cls.__members__:
                raise ValueError(f"{name.strip()!r} is no fallback policy. There are {', '.join(cls.__members__)}.")
            policy |= cls[name.strip()]
        return policy


DEFAULT_POLICY = (
    FallbackPolicy.FALLBACK_UNSUPPORTED_DEVICE
    | FallbackPolicy.FALLBACK_UNSUPPORTED_DATA
    | FallbackPolicy.FALLBACK_UNSUPPORTED_TORCH_MODEL
    | FallbackPolicy.FALLBACK_UNSUPPORTED_ONNX_MODEL
)


class ORTModuleFallbackException(Exception):
    """Something about a module or its arguments cannot be compiled."""

    policy = FallbackPolicy(0)


class ORTModuleInitException(ORTModuleFallbackException):
    """Something about the environment."""

    policy = FallbackPolicy.FALLBACK_BAD_INITIALIZATION


class ORTModuleDeviceException(ORTModuleFallbackException):
    """Something is not on the CPU."""

    policy = FallbackPolicy.FALLBACK_UNSUPPORTED_DEVICE


class ORTModuleIOError(ORTModuleFallbackException):
    """Something about arguments or results."""

    policy = FallbackPolicy.FALLBACK_UNSUPPORTED_DATA


class ORTModuleTorchModelException(ORTModuleFallbackException):
    """Something about the module."""

    policy = FallbackPolicy.FALLBACK_UNSUPPORTED_TORCH_MODEL


class ORTModuleONNXModelException(ORTModuleFallbackException):
    """Something about the graphs that it becomes."""

    policy = FallbackPolicy.FALLBACK_UNSUPPORTED_ONNX_MODEL


class Fallback:
    """Whether torch runs a module now, and why."""

    def __init__(self, policy: FallbackPolicy, retries: bool):
        self.policy = policy
        self.retries = retries
        """Whether each call tries to compile again."""
        self.reason: ORTModuleFallbackException | None = None
        self._is_told = False

    @property
    def is_active(self) -> bool:
        return self.reason is not None and not self.retries

    def covers(self, error: Exception) -> bool:
        """Whether the policy is for an exception."""
        if FallbackPolicy.FALLBACK_DISABLE in self.policy:
            return False
        known = isinstance(error, ORTModuleFallbackException) and type(error).policy in self.policy
        return known or FallbackPolicy.FALLBACK_FORCE_TORCH_FORWARD in self.policy

    def begin(self, reason: ORTModuleFallbackException) -> None:
        """From now on torch runs the module. Users are told of the first reason."""
        self.reason = reason
        if not self._is_told:
            self._is_told = True
            logger.warning("Fallback to PyTorch due to exception %s: %s", type(reason).__name__, reason)
