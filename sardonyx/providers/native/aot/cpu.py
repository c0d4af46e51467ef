"""What a CPU must have to run stored code, and what this one has; asked without LLVM, which takes long to load and may not be there."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence

from sardonyx.compiler import features as cpu_features
from sardonyx.compiler.target import X86_LEVELS, Target, wanted_level
from sardonyx.settings import CPU_LEVEL

LEVELS = tuple(X86_LEVELS)
"""Kinds of x86 CPUs, each of which has what those before it have."""
_V2 = ("cx16", "sahf", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_OF_LEVEL = {"avx2": _V3, "avx512": _V4, "avx512vnni": (*_V4, "avx512vnni")}
"""What LLVM takes for granted in code for a level."""
_USED = frozenset((*_V3, "adx", "cmov", "crc32", "fma4", "gfni", "sse", "sse2", "sse4a", "tbm", "xop"))
"""Features that LLVM uses where it sees fit. Others, those of AVX apart, take instructions that no kernel asks for."""


def needed_by(target: Target) -> list[str]:
    """The features, by LLVM's names, that code for a target may use."""
    listed = [feature[1:] for feature in target.features.split(",") if feature.startswith("+")]
    if platform.machine() not in ("x86_64", "AMD64"):
        return sorted(listed)
    used = (feature for feature in listed if feature in _USED or feature.startswith("avx"))
    wanted = sorted({*used, *_OF_LEVEL.get(target.name, ())})
    # what LLVM knows of this CPU and Linux has no word for could not be checked anywhere
    return [feature for feature in wanted if not lacking([feature])]


def lacking(features: Iterable[str]) -> list[str]:
    """Those of the features that this CPU does not have."""
    here = cpu_features.features_here()
    return [feature for feature in features if feature not in here]


def refusal(machine: str, kind: str, features: Sequence[str]) -> str | None:
    """Why code of a kind cannot run on this CPU; None if it can."""
    if machine != platform.machine():
        return f"it is for {machine}, this machine is {platform.machine()}"
    wanted = wanted_level() if kind in LEVELS else None
    if wanted and LEVELS.index(kind) > LEVELS.index(wanted):
        return f"it is for {kind}, {CPU_LEVEL} asks for {wanted}"
    missing = lacking(features)
    if missing:
        return f"it is for {kind}, this CPU lacks {', '.join(missing)}"
    return None
