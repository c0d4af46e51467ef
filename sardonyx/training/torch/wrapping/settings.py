"""Constants of `sardonyx.training.ortmodule` that users assign, and the environment variables that win over them."""

from __future__ import annotations

import os
import warnings

from sardonyx.errors import InvalidArgument
from sardonyx.training.torch.wrapping.fallback import DEFAULT_POLICY, FallbackPolicy


class Constants:
    """What users may assign."""

    ONNX_OPSET_VERSION = 17
    ORTMODULE_FALLBACK_POLICY: FallbackPolicy | str = DEFAULT_POLICY
    ORTMODULE_FALLBACK_RETRY = False
    ORTMODULE_IS_DETERMINISTIC = False
    MINIMUM_RUNTIME_PYTORCH_VERSION_STR = "2.6.0"


def policy() -> FallbackPolicy:
    return FallbackPolicy.read(os.environ.get("ORTMODULE_FALLBACK_POLICY") or Constants.ORTMODULE_FALLBACK_POLICY)


def retries() -> bool:
    given = os.environ.get("ORTMODULE_FALLBACK_RETRY")
    if given is None:
        return bool(Constants.ORTMODULE_FALLBACK_RETRY)
    return given.lower() in ("1", "true")


BUDGETS = {"0": 1.0, "1": 0.5, "2": 0.0}
"""What share of the values that backward reads is kept, by ORTMODULE_MEMORY_OPT_LEVEL."""


def memory_budget() -> float:
    level = os.environ.get("ORTMODULE_MEMORY_OPT_LEVEL") or "0"
    if level not in BUDGETS:
        raise InvalidArgument(f"ORTMODULE_MEMORY_OPT_LEVEL must be one of {', '.join(BUDGETS)}, it is {level!r}")
    return BUDGETS[level]


def memory_config() -> str:
    """What ORTMODULE_MEMORY_OPT_CONFIG says backward computes again; as in the original, levels above 0 decide by themselves."""
    config = os.environ.get("ORTMODULE_MEMORY_OPT_CONFIG") or ""
    if config and memory_budget() != BUDGETS["0"]:
        warnings.warn("ORTMODULE_MEMORY_OPT_CONFIG is not read, for ORTMODULE_MEMORY_OPT_LEVEL is above 0", stacklevel=2)
        return ""
    return config
