"""What this CPU has, by LLVM's names, asked without LLVM, which takes long to load and may not be there."""

from __future__ import annotations

import functools
import platform
import sys

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


@functools.cache
def features_here() -> frozenset[str]:
    """LLVM's names of what this CPU has."""
    told = told_by_system()
    return _features_by_llvm() if told is None else told


@functools.cache
def told_by_system() -> frozenset[str] | None:
    """The same, None where only LLVM knows."""
    flags = _linux_flags() if sys.platform == "linux" and platform.machine() == "x86_64" else None
    if flags is None:
        return None
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
