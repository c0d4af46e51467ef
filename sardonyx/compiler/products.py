"""The innermost step of products: what is multiplied and added at once. Kernels of matrix products and convolutions ask here.

Small integers are multiplied in groups: a group of a row, spread over all lanes, by the groups of as many columns as a vector has lanes,
each of which adds its products to one sum of 32 bits. All products are exact, so results are the same on every CPU; sums wrap.

    words   a group is 2 numbers of 16 bits; columns of 8 bits are widened when they are loaded
    bytes   a group is 4 bytes, without sign in rows and with one in columns: CPUs with VNNI do this in one instruction
"""

from __future__ import annotations

from sardonyx.compiler.instructions import Instructions
from sardonyx.compiler.target import X86_LEVELS, Target
from sardonyx.compiler.types import I8, I16, I32, U8, U16, Type
from sardonyx.compiler.values import Value
from sardonyx.startup.records import dataclass

_MULTIPLY_WORDS = {16: "sse2.pmadd.wd", 32: "avx2.pmadd.wd", 64: "avx512.pmaddw.d.512"}
_MULTIPLY_BYTE_PAIRS = {32: "avx2.pmadd.ub.sw", 64: "avx512.pmaddubs.w.512"}
_MULTIPLY_BYTES = {16: "avx512.vpdpbusd.128", 32: "avx512.vpdpbusd.256", 64: "avx512.vpdpbusd.512"}
"""Intrinsics by the bytes of a vector."""


@dataclass(frozen=True)
class Product:
    """How a kernel multiplies. Its rows and columns consist of groups, which code loads as one number each."""

    row: Type
    """What a row's elements are in memory."""
    column: Type
    sum: Type
    depth: int = 1
    """Elements of a group."""

    @property
    def row_group(self) -> Type:
        return self.row if self.depth == 1 else I32

    @property
    def column_group(self) -> Type:
        return self.column if self.depth == 1 else {16: U16, 32: I32}[self.column.bits * self.depth]

    def widened(self, f: Instructions, columns: Value) -> Value:
        """Groups of columns as they were loaded, for `add`."""
        if self.depth == 1:
            return columns
        elements = f.bitcast(columns, self.column.vector(columns.type.lanes * self.depth))
        return elements if self.row.bits == 8 else f.convert(elements, I16)

    def add(self, f: Instructions, row: Value, columns: Value, sums: Value) -> Value:
        """Sums with the products of a row's group, in all lanes, and the groups of columns."""
        if self.depth == 1:
            return f.fma(row, columns, sums)
        left = f.bitcast(row, self.row.vector(sums.type.lanes * self.depth))
        return add_bytes(f, left, columns, sums) if self.row.bits == 8 else sums + multiply_words(f, left, columns)


def real(type: Type) -> Product:
    """One number by one number."""
    return Product(type.computed, type, type.computed)


def integers(target: Target, column: Type = I8) -> Product:
    """What is quickest for rows of 8 bits and columns of this type: `bytes` if both have 8 bits and the CPU has VNNI, else `words`."""
    return Product(U8, I8, I32, 4) if target.vnni and column == I8 else Product(I16, column, I32, 2)


def multiply_words(f: Instructions, left: Value, right: Value) -> Value:
    """Of each pair of lanes, of 16 bits, the sum of products in 32."""
    lanes = left.type.lanes // 2
    if _is_native(f, 4 * lanes):
        name = f"llvm.x86.{_MULTIPLY_WORDS[4 * lanes]}"
        f.declare(f"declare {I32.vector(lanes)} @{name}({left.type}, {right.type})")
        return f.emit(I32.vector(lanes), f"call {I32.vector(lanes)} @{name}({left}, {right})")
    return _sum_of_products(f, left, right, 2)


def multiplies_byte_pairs(target: Target) -> bool:
    """Whether `multiply_byte_pairs` is there."""
    return target.name in X86_LEVELS and target.vector_bytes in _MULTIPLY_BYTE_PAIRS


def multiply_byte_pairs(f: Instructions, left: Value, right: Value) -> Value:
    """Of each pair of lanes the sum of products in 16 bits, which must hold it; `left` has no sign."""
    result = I16.vector(left.type.lanes // 2)
    name = f"llvm.x86.{_MULTIPLY_BYTE_PAIRS[left.type.lanes]}"
    f.declare(f"declare {result} @{name}({left.type}, {right.type})")
    return f.emit(result, f"call {result} @{name}({left}, {right})")


def add_group_sums(f: Instructions, bytes: Value, sums: Value) -> Value:
    """Sums with those of four bytes each, which have a sign or not."""
    ones = f.const((U8 if bytes.type.is_signed else I8).vector(bytes.type.lanes), 1)
    return add_bytes(f, ones, bytes, sums) if bytes.type.is_signed else add_bytes(f, bytes, ones, sums)


def add_bytes(f: Instructions, left: Value, right: Value, sums: Value) -> Value:
    """Sums with those of the products of four lanes each; `left` has no sign, `right` has one."""
    if f.target is not None and f.target.vnni and 4 * sums.type.lanes in _MULTIPLY_BYTES:
        type = sums.type
        name = f"llvm.x86.{_MULTIPLY_BYTES[4 * type.lanes]}"
        f.declare(f"declare {type} @{name}({type}, {type}, {type})")
        groups = [f.bitcast(one, type) for one in (left, right)]
        return f.emit(type, f"call {type} @{name}({sums}, {groups[0]}, {groups[1]})")
    return sums + _sum_of_products(f, left, right, 4)


def _is_native(f: Instructions, bytes: int) -> bool:
    target = f.target
    return target is not None and target.name in X86_LEVELS and bytes in _MULTIPLY_WORDS and bytes <= target.vector_bytes


def _sum_of_products(f: Instructions, left: Value, right: Value, count: int) -> Value:
    """The same for any CPU: of `count` neighbouring lanes the sum of products."""
    products = f.convert(left, I32) * f.convert(right, I32)
    lanes = products.type.lanes
    parts = [_every(f, products, range(first, lanes, count)) for first in range(count)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _every(f: Instructions, x: Value, lanes: range) -> Value:
    return f.shuffle(x, x, lanes) if len(lanes) > 1 else f.extract(x, lanes[0])
