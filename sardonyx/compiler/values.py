"""Values of a function being written: typed, with operators that emit instructions; and how constants stand in LLVM's text."""

from __future__ import annotations

import math
import struct
from typing import Any

from sardonyx.compiler.types import BF16, F32, F64, Type

Number = int | float | bool


class Value:
    """One SSA value of a function being written."""

    __slots__ = ("f", "type", "ref")

    def __init__(self, f: Any, type: Type, ref: str):
        self.f = f
        self.type = type
        self.ref = ref

    def __str__(self) -> str:
        return f"{self.type} {self.ref}"

    def __add__(self, other: Any) -> Value:
        return self.f.binary("add", self, other)

    def __radd__(self, other: Any) -> Value:
        return self.f.binary("add", other, self)

    def __sub__(self, other: Any) -> Value:
        return self.f.binary("sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.f.binary("sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.f.binary("mul", self, other)

    def __rmul__(self, other: Any) -> Value:
        return self.f.binary("mul", other, self)

    def __truediv__(self, other: Any) -> Value:
        return self.f.binary("div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self.f.binary("div", other, self)

    def __floordiv__(self, other: Any) -> Value:
        """Integer division rounds toward zero, as in C. Code that may divide by zero must check first."""
        return self.f.binary("div", self, other)

    def __mod__(self, other: Any) -> Value:
        """The remainder with the dividend's sign."""
        return self.f.binary("rem", self, other)

    def __and__(self, other: Any) -> Value:
        return self.f.binary("and", self, other)

    def __rand__(self, other: Any) -> Value:
        return self.f.binary("and", other, self)

    def __or__(self, other: Any) -> Value:
        return self.f.binary("or", self, other)

    def __ror__(self, other: Any) -> Value:
        return self.f.binary("or", other, self)

    def __xor__(self, other: Any) -> Value:
        return self.f.binary("xor", self, other)

    def __lshift__(self, other: Any) -> Value:
        return self.f.binary("shl", self, other)

    def __rshift__(self, other: Any) -> Value:
        """Arithmetic for signed, logical for unsigned integers."""
        return self.f.binary("shr", self, other)

    def __invert__(self) -> Value:
        return self.f.binary("xor", self, True if self.type.kind == "bool" else -1)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.f.emit(self.type, f"fneg {self}")
        return self.f.binary("sub", 0, self)

    def __lt__(self, other: Any) -> Value:
        return self.f.compare("lt", self, other)

    def __le__(self, other: Any) -> Value:
        return self.f.compare("le", self, other)

    def __gt__(self, other: Any) -> Value:
        return self.f.compare("gt", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.f.compare("ge", self, other)

    def __eq__(self, other: Any) -> Value:  # type: ignore[override]
        return self.f.compare("eq", self, other)

    def __ne__(self, other: Any) -> Value:  # type: ignore[override]
        return self.f.compare("ne", self, other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError("a value of generated code is not known yet; use f.select or f.if_")


class Variable:
    """A place for a value that changes in loops or branches."""

    __slots__ = ("f", "type", "_slot")

    def __init__(self, f: Any, type: Type, slot: str):
        self.f = f
        self.type = type
        self._slot = slot

    def get(self) -> Value:
        return self.f.emit(self.type, f"load {self.type}, ptr {self._slot}")

    def set(self, value: Value | Number) -> None:
        self.f.line(f"store {self.f.as_value(value, self.type)}, ptr {self._slot}")


def mangled(type: Type) -> str:
    """A type as it stands in the name of an intrinsic."""
    scalar = (
        "p0" if type.kind == "pointer" else {BF16: "bf16"}.get(type.scalar) or ("f" if type.is_float else "i") + str(type.bits)
    )
    return scalar if type.lanes == 1 else f"v{type.lanes}{scalar}"


def literal(type: Type, number: Number) -> str:
    if type.is_float:
        return _floatliteral(type, float(number))
    if type.kind == "bool":
        return "true" if number else "false"
    if type.kind == "pointer":
        return "null"
    whole = int(number)
    if whole != number:
        raise TypeError(f"{number} is not a whole number, as {type} needs it")
    return str(whole)


def _floatliteral(type: Type, number: float) -> str:
    """LLVM writes a float32 constant as the double of the same value, in hexadecimal."""
    if type.bits == 32 and math.isfinite(number):
        number = _as_float32(number)
    elif type.bits not in (32, 64):
        raise TypeError(f"constants of {type} are not written: narrow floats are computed as {F32} or {F64}")
    bits = struct.unpack("<Q", struct.pack("<d", number))[0]
    return f"0x{bits:016X}"


def _as_float32(number: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
