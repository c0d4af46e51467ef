"""The kernel of products of whole numbers: activations that were rounded to 8 bits, block by block, by weights of few bits.

Panels are those of `kernel.py`. Of a word of codes each step takes one from each byte: four, as a group, which are multiplied by a group of
a row's bytes in all lanes. How sums are kept depends on the CPU:

    vnni    four products are added to a sum of 32 bits in one instruction
    pairs   two products are added in 16 bits, and as many such sums as these surely hold; then pairs of them in 32
    words   bytes are widened to 16 bits first: for codes of 8 bits, and CPUs without the others

The sum of a block is exact; it is then reduced by the zero point times the sum of the row's bytes, and multiplied by both scales.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.products import Product, multiplies_byte_pairs, multiply_byte_pairs, multiply_words
from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32, I8, I16, I32, I64, U8, U32, Type
from sardonyx.providers.native.kernels.linalg.tile_kernel import GemmArguments, Tile, TiledProduct
from sardonyx.providers.native.kernels.weight_only.kernel import AHEAD, Codes
from sardonyx.providers.native.kernels.weight_only.rounding import GROUP, HEADS, LARGEST
from sardonyx.providers.native.program.chain import LINE, Chain
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

BYTES = Product(U8, I8, I32, GROUP)
LARGEST_WORD = (1 << 15) - 1
CHAINS_OF_ADDITIONS = 8
"""How many sums are under way at least, where the CPU has VNNI."""
Sums = list[list[Variable]]


def tile_height(target: Target, vectors: int) -> int:
    """How many rows leave registers for decoding."""
    return (16 if target.vector_registers >= 32 else 8) // vectors


def way_of(target: Target, codes: Codes) -> str:
    """How groups are multiplied and added."""
    if target.vnni:
        return "vnni"
    return "pairs" if multiplies_byte_pairs(target) and codes.bits < 8 else "words"


@kernel("gemm of bytes and codes", GemmArguments)
def integer_kernel(
    f: KernelFunction, a: GemmArguments, tile: Tile, batch_axes: int, chain: Chain, codes: Codes, words: int
) -> None:
    """Items are tiles of the result, as in `gemm_kernel`; `words` of a column make a block. What `inner` counts are blocks."""
    _IntegerProduct(f, a, tile, chain, codes, words).emit()


class _IntegerProduct(TiledProduct):
    def __init__(self, f: KernelFunction, a: GemmArguments, tile: Tile, chain: Chain, codes: Codes, words: int):
        self.codes = codes
        self.words = words
        self.planes = 8 // codes.bits
        self.way = way_of(f.target, codes)
        super().__init__(f, a, tile, chain)

    def panel_elements(self) -> Value:
        return self.a.right.tile_stride

    def sums(self, rows: int, left: Value, right: Value) -> list[list[Value]]:
        f, shape = self.f, self.shape
        totals = self._zeros(rows, F32)
        row_step = self.words * self.planes + HEADS
        column_step = (self.words + self.codes.heads) * shape.width
        with f.loop(0, self.a.inner) as number:
            row, column = f.address(left, number * row_step, I32), f.address(right, number * column_step, F32)
            self._block(rows, row, column, totals)
        return [[total.get() for total in vectors] for vectors in totals]

    def _zeros(self, rows: int, type: Type) -> Sums:
        zero = self.f.const(type.vector(self.shape.lanes * F32.bits // type.bits), 0)
        return [[self.f.variable(zero) for _ in range(self.shape.vectors)] for _ in range(rows)]

    def _block(self, rows: int, left: Value, right: Value, totals: Sums) -> None:
        """Add a block."""
        f, shape = self.f, self.shape
        sets = [self._zeros(rows, I32) for _ in range(self._sums_apart(rows))]
        codes = f.address(right, self.codes.heads * shape.width, F32)
        part = min(self.words, self._words_in_part())
        with f.loop(0, self.words, part) as word:
            row, column = f.address(left, word * self.planes, I32), f.address(codes, word * shape.width, F32)
            self._part(rows, row, column, part, sets)
        self._scale(rows, left, right, _added(sets), totals)

    def _sums_apart(self, rows: int) -> int:
        """How many sums of one element are under way: VNNI's instruction takes as long as several others, and few rows have few sums."""
        return max(1, CHAINS_OF_ADDITIONS // (rows * self.shape.vectors)) if self.way == "vnni" else 1

    def _words_in_part(self) -> int:
        """How many words' products a sum of 16 bits holds; elsewhere few, so that code stays short."""
        if self.way != "pairs":
            return max(1, 8 // self.planes)
        largest = ((1 << self.codes.bits) - 1) * LARGEST * 2
        return 1 << ((LARGEST_WORD // (largest * self.planes)).bit_length() - 1)

    def _part(self, rows: int, left: Value, right: Value, words: int, sets: list[Sums]) -> None:
        """Add some words of a block."""
        f = self.f
        shorts = [self._zeros(rows, I16)] if self.way == "pairs" else sets
        if rows == 1:
            for number in range(words):
                self._word(rows, left, right, f.const(I64, number), shorts[number * self.planes % len(shorts) :] + shorts)
        else:  # of all words of several rows at once LLVM would hold more than there are registers
            with f.loop(0, f.opaque(f.const(I64, words))) as word:
                self._word(rows, left, right, word, shorts)
        if self.way == "pairs":
            for total, pairs in zip((one for row in sets[0] for one in row), (one for row in shorts[0] for one in row)):
                vector = pairs.get()
                total.set(total.get() + multiply_words(f, vector, f.const(vector.type, 1)))

    def _word(self, rows: int, left: Value, right: Value, word: Value, sets: list[Sums]) -> None:
        """Add a word; its planes go to one set of sums after the other."""
        f, lanes = self.f, self.shape.lanes
        left, right = f.address(left, word * self.planes, I32), f.address(right, word * self.shape.width, F32)
        for line in range(0, self.shape.width, LINE // F32.bytes):
            f.prefetch(right, AHEAD + line, F32)
        starts = range(0, self.shape.width, lanes)
        vectors = [f.load(right, start, U32, lanes, align=4 * lanes) for start in starts]
        for plane in range(self.planes):
            columns = [self._group(vector, plane) for vector in vectors]
            for row in range(rows):
                self._add(self._row(left, row, plane), columns, sets[plane % len(sets)][row])

    def _group(self, words: Value, plane: int) -> Value:
        """One code of each byte, in bytes."""
        bits = self.codes.bits
        shifted = words >> (plane * bits) if plane else words
        codes = shifted if bits == 8 else shifted & ((1 << bits) - 1) * 0x01010101
        return self.f.bitcast(codes, U8.vector(words.type.lanes * GROUP))

    def _row(self, left: Value, row: int, group: int) -> Value:
        """A group of a row in all lanes."""
        f, lanes = self.f, self.shape.lanes
        place = f.address(left, self.a.left.stride * row if row else 0, I32)
        return f.bitcast(f.splat(f.load(place, group, I32), lanes), I8.vector(lanes * GROUP))

    def _add(self, row: Value, columns: list[Value], sums: list[Variable]) -> None:
        """Add the products of a group of a row and those of columns."""
        f = self.f
        for column, total in zip(columns, sums):
            if self.way == "vnni":
                total.set(BYTES.add(f, column, row, total.get()))
            elif self.way == "pairs":
                total.set(total.get() + multiply_byte_pairs(f, column, row))
            else:
                for one, other in zip(_halves(f, column), _halves(f, row)):
                    total.set(total.get() + multiply_words(f, one, other))

    def _scale(self, rows: int, left: Value, right: Value, sums: list[list[Value]], totals: Sums) -> None:
        """Add sums of a block, less those of zero points, to the totals."""
        f, shape = self.f, self.shape
        scales, *zeros = (
            [f.load(right, head * shape.width + number * shape.lanes, F32, shape.lanes) for number in range(shape.vectors)]
            for head in range(self.codes.heads)
        )
        for row in range(rows):
            place = f.address(left, self.a.left.stride * row if row else 0, I32)
            scale, total = (f.splat(f.load(place, self.words * self.planes + head, F32), shape.lanes) for head in range(HEADS))
            for number in range(shape.vectors):
                zero = zeros[0][number] if zeros else float(self.codes.middle)
                centered = f.fma(-total, zero, f.convert(sums[row][number], F32))
                result = totals[row][number]
                result.set(f.fma(centered, scale * scales[number], result.get()))


def _added(sets: list[Sums]) -> list[list[Value]]:
    """The sums of all sets together."""
    sums = [[total.get() for total in row] for row in sets[0]]
    for others in sets[1:]:
        sums = [[one + other.get() for one, other in zip(row, more)] for row, more in zip(sums, others)]
    return sums


def _halves(f: KernelFunction, bytes: Value) -> list[Value]:
    """The even and the odd bytes, widened to 16 bits."""
    pairs = f.bitcast(bytes, I16.vector(bytes.type.lanes // 2))
    return [(pairs << 8) >> 8, pairs >> 8] if bytes.type.is_signed else [pairs & 0xFF, (pairs >> 8) & 0xFF]
