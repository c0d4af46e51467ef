"""What is computed between the pixels of an image as an element of the result, in generated code. Kernels of this folder call it."""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import Type
from sardonyx.providers.cpu.sampling import limits_of
from sardonyx.providers.native.program.kernel import KernelFunction


def element_of_sum(f: KernelFunction, total: Value, type: Type, is_rounded: bool = False) -> Value:
    """A sum of floats as an element. Integers are cut off, or rounded, and saturate."""
    if type.kind not in ("int", "uint"):
        return f.convert(total, type)
    whole = f.round_even(total) if is_rounded else total
    low, high = limits_of(f"{type.kind[0]}{type.bytes}", f"f{total.type.bytes}")  # type: ignore[no-untyped-call]
    return f.convert(f.minimum(f.maximum(whole, float(low)), float(high)), type)
