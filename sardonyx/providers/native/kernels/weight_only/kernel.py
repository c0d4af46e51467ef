"""The kernel of products with weights of few bits: tiles as in other products, whose columns are decoded in registers.

A panel consists of blocks of K. A block begins with the scale of each column, then its zero point if there are any, both as float32.
Then come the codes, in words of 32 bits: the first word of each column, the second, … The lowest bits of a word are the first code.

A code becomes a float without being converted: its bits are put below the exponent of a power of two so large that they count ones.
What is subtracted then, that power and the zero point, leaves the exact difference. Codes with a book are looked up in it instead.

Up to four rows decode for themselves, which costs little: other units are busy with it than those that multiply. A block is summed up
before it is multiplied by its scale. Many rows share weights that are decoded to memory, scale and all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.code_books import looked_up
from sardonyx.compiler.types import F32, I8, I32, U32, Type
from sardonyx.providers.native.kernels.linalg.tile_kernel import ROWS_PER_POINTER, GemmArguments, Tile, TiledProduct
from sardonyx.providers.native.program.chain import Chain
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.startup.records import dataclass

WORD_BITS = 32
FRACTION_BITS = 23
EXPONENT_OF_ONES = 127 + FRACTION_BITS
"""Of a float whose last bit counts ones."""
CHAINS_OF_ADDITIONS = 4
"""How many sums are under way at least: decoding takes as long as the additions of some."""
MAX_DECODED_TWICE = 8
"""How many vectors of sums there are where rows decode for themselves: up to four rows at a time."""
DECODED = 128
"""How many weights of a column are decoded for many rows: they fill half of the first-level cache."""
UNROLL = 2
AHEAD = 1024
"""How many words before they are needed weights are fetched: those of large models come from memory."""
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
    book: tuple[float, ...] = ()
    """What codes of 4 bits stand for, where that is no whole number."""

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
        self.is_light = False
        self.block_length = words * codes.in_word
        self.block_stride = (words + codes.heads) * tile.width

    def panel_elements(self) -> Value:
        return self.a.right.tile_stride

    def heights(self) -> Sequence[int]:
        """Few, as each has code of its own."""
        rows = self.shape.rows
        return sorted({rows, *(height for height in (rows // 4, 4, 2, 1) if 0 < height < rows)}, reverse=True)

    def sums(self, rows: int, left: Value, right: Value) -> list[list[Value]]:
        if rows * self.shape.vectors > MAX_DECODED_TWICE:
            return self._tall_sums(rows, left, right)
        f, a = self.f, self.a
        totals = self._zeros(rows)
        column = f.variable(right)
        with f.loop(0, a.inner, self.block_length) as k:
            self._block(rows, f.address(left, k, F32), column.get(), f.minimum(a.inner - k, self.block_length), totals)
            column.set(f.address(column.get(), self.block_stride, F32))
        return [[total.get() for total in vectors] for vectors in totals]

    # --- many rows

    def _tall_sums(self, rows: int, left: Value, right: Value) -> list[list[Value]]:
        """The sums of many rows: some blocks are decoded to memory, and then multiplied by as many rows at a time as registers hold."""
        f, a, shape = self.f, self.a, self.shape
        blocks = max(1, DECODED // self.block_length)
        length = blocks * self.block_length
        decoded = f.stack(F32, length * shape.width)
        with f.loop(0, rows * shape.width, shape.lanes) as place:
            f.store(f.const(F32.vector(shape.lanes), 0), self.parts, place, F32)
        column = f.variable(right)
        with f.loop(0, a.inner, length) as k:
            count = f.minimum(a.inner - k, length)
            with f.loop(0, count, self.block_length) as first:
                target = f.address(decoded, first * shape.width, F32)
                self._decode(column.get(), target, f.minimum(count - first, self.block_length))
                column.set(f.address(column.get(), self.block_stride, F32))
            self._multiply(rows, f.address(left, k, F32), decoded, count)
        return [self.vectors(self.parts, row * shape.width) for row in range(rows)]

    def _decode(self, right: Value, decoded: Value, count: Value) -> None:
        """Have the weights of a block in memory; whole words of them."""
        f, width, lanes, in_word = self.f, self.shape.width, self.shape.lanes, self.codes.in_word
        scales, *zeros = (self.vectors(right, head * width) for head in range(self.codes.heads))
        first = f.address(right, self.codes.heads * width, F32)
        with f.loop(0, (count + (in_word - 1)) // in_word) as word:
            target = f.address(decoded, word * (in_word * width), F32)
            for code, columns in enumerate(self._columns(f.address(first, word * width, F32), zeros)):
                for number, (vector, scale) in enumerate(zip(columns, scales)):
                    f.store(vector * scale, target, code * width + number * lanes, F32, align=4 * lanes)

    def _multiply(self, rows: int, left: Value, decoded: Value, count: Value) -> None:
        """Add what is decoded to the totals, some rows at a time."""
        f, width, lanes = self.f, self.shape.width, self.shape.lanes
        together = self._rows_together(rows)
        with f.loop(0, rows, together) as first:
            sums = self._zeros(together)
            walk = _Walk(self, f.address(left, first * self.a.left.stride, F32), decoded, sums)
            whole = count - count % UNROLL
            with f.loop(0, whole, UNROLL):
                walk.step(UNROLL)
            with f.loop(whole, count):
                walk.step(1)
            totals = f.address(self.parts, first * width, F32)
            for number, vectors in enumerate(sums):
                for total, place in zip(vectors, range(number * width, (number + 1) * width, lanes)):
                    before = f.load(totals, place, F32, lanes, align=4 * lanes)
                    f.store(before + total.get(), totals, place, F32, align=4 * lanes)

    def _rows_together(self, rows: int) -> int:
        """How many rows of a multiple of four leave registers for a row of columns and an element."""
        registers = self.f.target.vector_registers
        most = (24 if registers >= 32 else 12 if self.f.target.fma else 8) // self.shape.vectors
        return max(count for count in range(1, most + 1) if rows % count == 0)

    # --- few rows

    def _zeros(self, rows: int) -> Sums:
        zero = self.f.const(F32.vector(self.shape.lanes), 0)
        return [[self.f.variable(zero) for _ in range(self.shape.vectors)] for _ in range(rows)]

    def _block(self, rows: int, left: Value, right: Value, count: Value, totals: Sums) -> None:
        """Add the products of so many codes of a block: whole words, then what the last block has of another one."""
        f, shape, codes = self.f, self.shape, self.codes
        apart = max(1, CHAINS_OF_ADDITIONS // (rows * shape.vectors))
        sums = [self._zeros(rows) for _ in range(apart)]
        scales, *zeros = (self.vectors(right, head * shape.width) for head in range(codes.heads))
        first, words = f.address(right, codes.heads * shape.width, F32), count // codes.in_word
        with f.loop(0, words) as word:
            row, column = f.address(left, word * codes.in_word, F32), f.address(first, word * shape.width, F32)
            f.prefetch(column, AHEAD, F32)
            self._word(rows, row, column, zeros, sums)
        row, column = f.address(left, words * codes.in_word, F32), f.address(first, words * shape.width, F32)
        self._codes(rows, row, column, zeros, count % codes.in_word, sums[0])
        for row_number, vectors in enumerate(totals):
            for number, total in enumerate(vectors):
                parts = [part[row_number][number].get() for part in sums]
                total.set(f.fma(_total(parts), scales[number], total.get()))

    def vectors(self, place: Value, first: int, type: Type = F32) -> list[Value]:
        f, lanes = self.f, self.shape.lanes
        place = f.address(place, first, F32)
        return [f.load(place, number * lanes, type, lanes, align=4 * lanes) for number in range(self.shape.vectors)]

    def _word(self, rows: int, left: Value, right: Value, zeros: list[list[Value]], sums: list[Sums]) -> None:
        """Add the codes of a word."""
        for code, columns in enumerate(self._columns(right, zeros)):
            self._add(rows, left, code, columns, sums[code % len(sums)])

    def _columns(self, place: Value, zeros: list[list[Value]]) -> Iterator[list[Value]]:
        """For each code of a word vectors of columns."""
        words = self.vectors(place, 0, U32)
        halves = [word >> HALF for word in words]
        for code in range(self.codes.in_word):
            yield [
                self._number(word, half, code, zeros[0][number] if zeros else None)
                for number, (word, half) in enumerate(zip(words, halves))
            ]

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
        if self.codes.book:
            return looked_up(self.codes.book, word >> place)
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
            for number, word in enumerate(self.vectors(right, 0, U32)):
                if self.codes.book:
                    columns.append(looked_up(self.codes.book, word >> shift))
                    continue
                whole = f.bitcast((word >> shift) & ((1 << bits) - 1), I32.vector(lanes))
                zero = zeros[0][number] if zeros else float(self.codes.middle)
                with f.exact():
                    columns.append(f.convert(whole, F32) - zero)
            self._add(rows, left, code, columns, sums)


class _Walk:
    """Pointers into rows and decoded columns that go along K. Some rows share one, as in `tile_kernel`."""

    def __init__(self, product: _CodedProduct, left: Value, decoded: Value, sums: Sums):
        f, stride = product.f, product.a.left.stride
        self.f, self.product, self.sums = f, product, sums
        self.row_bytes = f.opaque(stride * F32.bytes)
        groups = range(0, len(sums), ROWS_PER_POINTER)
        self.left = [f.variable(f.address(left, stride * row if row else 0, F32)) for row in groups]
        self.right = f.variable(decoded)

    def step(self, count: int) -> None:
        """Add the products of so many k. LLVM must not see how pointers are related, or it holds more than there are registers."""
        f, width = self.f, self.product.shape.width
        pointers, right = [f.opaque(pointer.get()) for pointer in self.left], f.opaque(self.right.get())
        for k in range(count):
            columns = self.product.vectors(right, k * width)
            for row, totals in enumerate(self.sums):
                group, number = divmod(row, ROWS_PER_POINTER)
                place = f.address(pointers[group], self.row_bytes * number, I8) if number else pointers[group]
                factor = f.splat(f.load(place, k, F32), self.product.shape.lanes)
                for column, total in zip(columns, totals):
                    total.set(f.fma(factor, column, total.get()))
        for pointer, variable in zip(pointers, self.left):
            variable.set(f.address(pointer, count, F32))
        self.right.set(f.address(right, count * width, F32))


def _total(values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
