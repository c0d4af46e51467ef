"""What the CPU can do that code is generated for: vector width, registers, features, caches. Kernels ask it; `jit.host` finds it out."""

from __future__ import annotations

import os

from sardonyx.compiler.caches import Caches
from sardonyx.compiler.types import Type
from sardonyx.errors import InvalidArgument
from sardonyx.settings import CPU_LEVEL
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass, replace


@dataclass(frozen=True)
class Target:
    """A CPU, as far as generated code depends on it."""

    name: str
    """sse2, avx2, avx512, avx512vnni, neon or generic."""
    cpu: str
    """LLVM's name of the CPU."""
    features: str
    """LLVM's features, "+avx2,+fma…"."""
    vector_bytes: int
    vector_registers: int
    fma: bool = True
    half_conversion: bool = True
    """Whether the CPU converts between float16 and float32."""
    rounding: bool = True
    """Whether the CPU rounds floats to whole floats."""
    vnni: bool = False
    """Whether the CPU multiplies bytes, four of them at a time, and sums them in 32 bits."""
    caches: Caches = Caches()

    @property
    def has_avx512(self) -> bool:
        return self.name.startswith("avx512")

    @cached_property
    def seen_by_code(self) -> Target:
        """This target as far as the text of a kernel may depend on it, so that CPUs of a level share texts: a choice that takes more of
        the CPU is made where the kernel's parameters are."""
        second = 1 << max(self.caches.second, 1).bit_length() - 1
        return replace(self, cpu="", features="", caches=Caches(second=second, line=self.caches.line))

    def lanes(self, type: Type) -> int:
        """How many elements of a type a vector register holds; narrow floats are computed as float32."""
        return max(1, self.vector_bytes // type.computed.bytes)


X86_LEVELS = {
    "sse2": Target("sse2", "x86-64", "", 16, 16, fma=False, half_conversion=False, rounding=False),
    "avx2": Target("avx2", "x86-64-v3", "", 32, 16),
    "avx512": Target("avx512", "x86-64-v4", "", 64, 32),
    "avx512vnni": Target("avx512vnni", "x86-64-v4", "+avx512vnni", 64, 32, vnni=True),
}
"""Feature sets that can be forced: with SARDONYX_CPU, or in tests."""


def wanted_level() -> str | None:
    """The level that SARDONYX_CPU asks for, if it does."""
    wanted = CPU_LEVEL.of(os.environ)
    if not wanted:
        return None
    if wanted not in X86_LEVELS:
        raise InvalidArgument(f"{CPU_LEVEL} must be one of {', '.join(X86_LEVELS)}, not {wanted!r}")
    return wanted


_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd", "fma", "f16c")
REQUIRED = {
    "avx2": ("avx2", "fma", "f16c"),
    "avx512": _AVX512,
    "avx512vnni": (*_AVX512, "avx512vnni"),
}
"""What a CPU must have for a level."""
