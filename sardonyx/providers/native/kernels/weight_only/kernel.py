"""The kernel of products with weights of few bits: tiles as in other products, whose columns are decoded in registers.

A panel consists of blocks of K. A block begins with the scale of each column, then its zero point if there are any, both as float32.
Then come the codes, in words of 32 bits: the first word of each column, the second, … The lowest bits of a word are the first code.

A code becomes a float without being converted: its bits are put below the exponent of a power of two so large that they count ones.
What is subtracted then, that power and the zero point, leaves the exact difference. A block is summed up before it is multiplied by its
scale. With some rows all this costs nothing: other units are busy with it than those that multiply.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import F32, I32, U32, Type
from sardonyx.providers.native.kernels.linalg.tile_kernel import GemmArguments, Tile, TiledProduct
from sardonyx.providers.native.program.chain import Chain
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

WORD_BITS = 32
FRACTION_BITS = 23
EXPONENT_OF_ONES = 127 + FRACTION_BITS
"""Of a float whose last bit counts ones."""
CHAINS_OF_ADDITIONS = 4
"""How many sums are under way at least: decoding takes as long as the additions of some."""
HALF = 16
"""Codes that lie too high in a word are moved down by so many bits."""


@dataclass(frozen=True)
class Codes:
    """How weights are written."""

    bits: int
    """2, 4 or 8."""
    zero: str
    """Zero points: "middle" if all are that, "whole" for numbers in the codes' range, "real" for any."""
    middle: int
    """Of the range of the model's codes."""

    @property
    def in_word(self) -> int:
        return WORD_BITS // self.bits

    @property
    def heads(self) -> int:
        """How many floats a column has at the beginning of a block."""
        return 1 if self.zero == "middle" else 2


@kernel("gemm of codes", GemmArguments)
def coded_kernel(
    f: KernelFunction, a: GemmArguments, tile: Tile, batch_axes: int, chain: Chain, codes: Codes, words: int
) -> None:
    """Items are tiles of the result, as in `gemm_kernel`; so many words of a column make a block."""
    _CodedProduct(f, a, tile, chain, codes, words).emit()


Sums = list[list[Variable]]


class _CodedProduct(TiledProduct):
    def __init__(self, f: KernelFunction, a: GemmArguments, tile: Tile, chain: Chain, codes: Codes, words: int):
        self.codes = codes
        self.words = words
        super().__init__(f, a, tile, chain)

    def panel_elements(self) -> Value:
        return self.a.right.tile_stride

    def sums(self, rows: int, left: Value, right: Value) -> list[list[Value]]:
        f, a = self.f, self.a
        totals = self._zeros(rows)
        block = self.words * self.codes.in_word
        stride = (self.words + self.codes.heads) * self.shape.width
        column = f.variable(right)
        with f.loop(0, a.inner, block) as k:
            self._block(rows, f.address(left, k, F32), column.get(), f.minimum(a.inner - k, block), totals)
            column.set(f.address(column.get(), stride, F32))
        return [[total.get() for total in vectors] for vectors in totals]

    def _zeros(self, rows: int) -> Sums:
        zero = self.f.const(F32.vector(self.shape.lanes), 0)
        return [[self.f.variable(zero) for _ in range(self.shape.vectors)] for _ in range(rows)]

    def _block(self, rows: int, left: Value, right: Value, count: Value, totals: Sums) -> None:
        """Add the products of so many codes of a block: whole words, then what the last block has of another one."""
        f, shape, codes = self.f, self.shape, self.codes
        apart = max(1, CHAINS_OF_ADDITIONS // (rows * shape.vectors))
        sums = [self._zeros(rows) for _ in range(apart)]
        scales, *zeros = (self._vectors(right, head * shape.width) for head in range(codes.heads))
        first, words = f.address(right, codes.heads * shape.width, F32), count // codes.in_word
        with f.loop(0, words) as word:
            row, column = f.address(left, word * codes.in_word, F32), f.address(first, word * shape.width, F32)
            self._word(rows, row, column, zeros, sums)
        row, column = f.address(left, words * codes.in_word, F32), f.address(first, words * shape.width, F32)
        self._codes(rows, row, column, zeros, count % codes.in_word, sums[0])
        for row_number, vectors in enumerate(totals):
            for number, total in enumerate(vectors):
                parts = [part[row_number][number].get() for part in sums]
                total.set(f.fma(_total(parts), scales[number], total.get()))

    def _vectors(self, place: Value, first: int, type: Type = F32) -> list[Value]:
        f, lanes = self.f, self.shape.lanes
        place = f.address(place, first, F32)
        return [f.load(place, number * lanes, type, lanes, align=4 * lanes) for number in range(self.shape.vectors)]

    def _word(self, rows: int, left: Value, right: Value, zeros: list[list[Value]], sums: list[Sums]) -> None:
        """Add the codes of a word."""
        words = self._vectors(right, 0, U32)
        halves = [word >> HALF for word in words]
        for code in range(self.codes.in_word):
            columns = [
                self._number(words[number], halves[number], code, zeros[0][number] if zeros else None)
                for number in range(self.shape.vectors)
            ]
            self._add(rows, left, code, columns, sums[code % len(sums)])

    def _add(self, rows: int, left: Value, k: Value | int, columns: list[Value], sums: Sums) -> None:
        f, lanes = self.f, self.shape.lanes
        for row in range(rows):
            place = f.address(left, self.a.left.stride * row if row else 0, F32)
            factor = f.splat(f.load(place, k, F32), lanes)
            for column, total in zip(columns, sums[row]):
                total.set(f.fma(factor, column, total.get()))

    def _number(self, word: Value, half: Value, code: int, zero: Value | None) -> Value:
        """A code less its zero point."""
        f, bits = self.f, self.codes.bits
        place = code * bits
        if place + bits > FRACTION_BITS:
            word, place = half, place - HALF
        large = 2.0 ** (FRACTION_BITS - place)
        raw = (word & (((1 << bits) - 1) << place)) | ((EXPONENT_OF_ONES - place) << FRACTION_BITS)
        number = f.bitcast(raw, F32.vector(word.type.lanes))
        with f.exact():
            if zero is None:
                return number - (large + self.codes.middle)
            return number - (zero + large) if self.codes.zero == "whole" else (number - large) - zero

    def _codes(self, rows: int, left: Value, right: Value, zeros: list[list[Value]], count: Value, sums: Sums) -> None:
        """Add some codes of a word, one after the other."""
        f, bits, lanes = self.f, self.codes.bits, self.shape.lanes
        with f.loop(0, count) as code:
            shift = f.splat(f.convert(code * bits, U32), lanes)
            columns = []
            for number, word in enumerate(self._vectors(right, 0, U32)):
                whole = f.bitcast((word >> shift) & ((1 << bits) - 1), I32.vector(lanes))
                zero = zeros[0][number] if zeros else float(self.codes.middle)
                with f.exact():
                    columns.append(f.convert(whole, F32) - zero)
            self._add(rows, left, code, columns, sums)


def _total(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
