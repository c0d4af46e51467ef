"""What a CPU must have to run stored code, and what this one has; asked without LLVM, which takes long to load and may not be there."""

from __future__ import annotations

import functools
import platform
import sys
from collections.abc import Iterable, Sequence

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
_LINUX_NAMES = {
    "bmi": "bmi1",
    "crc32": "sse4_2",
    "lzcnt": "abm",
    "sahf": "lahf_lm",
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "avx512bf16": "avx512_bf16",
    "avx512bitalg": "avx512_bitalg",
    "avx512fp16": "avx512_fp16",
    "avx512vbmi2": "avx512_vbmi2",
    "avx512vnni": "avx512_vnni",
    "avx512vp2intersect": "avx512_vp2intersect",
    "avx512vpopcntdq": "avx512_vpopcntdq",
    "avxvnni": "avx_vnni",
}
"""Linux's names of features, where they are not LLVM's."""


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
    here = features_here()
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


@functools.cache
def features_here() -> frozenset[str]:
    """LLVM's names of what this CPU has."""
    flags = _linux_flags() if sys.platform == "linux" and platform.machine() == "x86_64" else None
    if flags is None:
        return _features_by_llvm()
    known = {ours for ours, theirs in _LINUX_NAMES.items() if theirs in flags}
    return frozenset(known | (flags - set(_LINUX_NAMES)))


def _linux_flags() -> frozenset[str] | None:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:  # the first CPU speaks for all
                if line.startswith("flags"):
                    return frozenset(line.partition(":")[2].split())
    except OSError:
        pass
    return None


def _features_by_llvm() -> frozenset[str]:
    from sardonyx.compiler.jit import this_machine

    return this_machine().has
