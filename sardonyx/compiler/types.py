"""Types of values inside generated code: scalars, vectors of them, pointers. Builder and kernels name them."""

from __future__ import annotations

import functools

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Type:
    """A scalar (`lanes` is 1) or a vector. `kind` is "float", "int" (signed), "uint", "bool", "bits" or "pointer".

    Elements of "bits" are moved as they are; `small_types` converts those that stand for numbers.
    """

    kind: str
    bits: int
    lanes: int = 1
    brain: bool = False
    """Whether the 16 bits of a float are bfloat16's."""
    format: str = ""
    """What bits stand for: the name of the element type."""

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind == "int"

    @property
    def is_number(self) -> bool:
        """Whether code computes with it."""
        return self.is_float or self.is_integer

    @property
    def is_narrow_float(self) -> bool:
        """Whether values of it are computed in float32 and only stored so."""
        return self.kind == "float" and self.bits == 16

    @property
    def bytes(self) -> int:
        """How many bytes one element takes in memory."""
        return max(1, self.bits // 8)

    @property
    def scalar(self) -> Type:
        return self.vector(1)

    @property
    def computed(self) -> Type:
        """The type in which arithmetic on values of this storage type is done."""
        return F32.vector(self.lanes) if self.is_narrow_float else self

    def vector(self, lanes: int) -> Type:
        return self if lanes == self.lanes else _type(self.kind, self.bits, lanes, self.brain, self.format)

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        scalar = self._name()
        return scalar if self.lanes == 1 else f"<{self.lanes} x {scalar}>"

    def _name(self) -> str:
        if self.kind == "pointer":
            return "ptr"
        if self.kind == "float":
            return {16: "bfloat" if self.brain else "half", 32: "float", 64: "double"}[self.bits]
        return f"i{self.bits}"


@functools.cache
def _type(kind: str, bits: int, lanes: int, brain: bool, format: str) -> Type:
    """There are few, and code names them again and again."""
    return Type(kind, bits, lanes, brain, format)


F16 = Type("float", 16)
BF16 = Type("float", 16, brain=True)
F32 = Type("float", 32)
F64 = Type("float", 64)
I8, I16, I32, I64 = (Type("int", bits) for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (Type("uint", bits) for bits in (8, 16, 32, 64))
BOOL = Type("bool", 1)
"""True or false while computing; in memory a byte."""
PTR = Type("pointer", 64)
TEXT = Type("bits", 64, format="string")
"""A string: a reference, which says where its bytes lie and how many they are (`texts`)."""

_OF_ELEMENTS = {
    dtypes.float16: F16,
    dtypes.bfloat16: BF16,
    dtypes.float32: F32,
    dtypes.float64: F64,
    dtypes.int8: I8,
    dtypes.int16: I16,
    dtypes.int32: I32,
    dtypes.int64: I64,
    dtypes.uint8: U8,
    dtypes.uint16: U16,
    dtypes.uint32: U32,
    dtypes.uint64: U64,
    dtypes.bool_: BOOL,
}
_OF_ELEMENTS |= {dtype: Type("bits", 8, format=dtype.name) for dtype in (*dtypes.SMALL_FLOATS, *dtypes.SUB_BYTE_INTS)}
_OF_ELEMENTS |= {dtype: Type("bits", dtype.bits, format=dtype.name) for dtype in dtypes.COMPLEX}
_OF_ELEMENTS[dtypes.string] = TEXT


def of_elements(dtype: ElementType | None) -> Type | None:
    """The type for a tensor's elements, None for those that generated code does not know."""
    return None if dtype is None else _OF_ELEMENTS.get(dtype)
