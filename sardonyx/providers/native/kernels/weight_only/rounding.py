"""Rounds activations to 8 bits, block by block, for products of whole numbers with weights of few bits.

A row becomes, for each block, groups of four signed bytes, in the order in which codes come out of a word, then a scale and the sum of the
bytes, both as float32. Blocks that reach beyond the row are filled up with zeros. Where a block has an infinity or a NaN its scale is NaN.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import F32, I8, I32
from sardonyx.providers.native.kernels.weight_only.kernel import Codes
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View

LARGEST = 127
CHUNK = 16
"""How many numbers are rounded at a time; all blocks are multiples of it."""
GROUP = 4
HEADS = 2
INFINITY_BITS = 0x7F800000
PIECE_BLOCKS = 64


class RoundArguments(Arguments):
    source: Pointer
    target: Pointer
    stride: Size
    """From row to row of the source."""
    columns: Size
    blocks: Size
    """Of a row."""
    block: Size
    """Numbers in a block."""


def row_words(block: int, blocks: int) -> int:
    """How many words of 32 bits a rounded row takes."""
    return blocks * (block // GROUP + HEADS)


def rounded_rows(lowerer: Lowerer, rows: View, codes: Codes, block: int, blocks: int) -> View:
    """Rows (rows, K) of float32 as blocks of bytes."""
    count, columns = rows.shape
    words = row_words(block, blocks)
    target = lowerer.scratch(count * words * I32.bytes)
    lowerer.call(
        round_kernel(lowerer.target, codes),
        RoundArguments(source=rows.place, target=target, stride=rows.strides[0], columns=columns, blocks=blocks, block=block),
        count * blocks,
        PIECE_BLOCKS,
        flops=count * columns * 2,
        traffic=count * columns * F32.bytes,
    )
    return View(target, I32, (count, blocks), (words, 1))


@kernel("round blocks", RoundArguments)
def round_kernel(f: KernelFunction, a: RoundArguments, codes: Codes) -> None:
    """Items are blocks."""
    with f.loop(f.begin, f.end) as item:
        row, number = item // a.blocks, item % a.blocks
        source = f.address(a.source, row * a.stride + number * a.block, F32)
        target = f.address(a.target, item * (a.block // GROUP + HEADS), I32)
        remaining = a.columns - number * a.block
        scale = _scale(f, a, source, remaining)
        total = _round(f, a, codes, source, remaining, scale, target)
        heads = f.address(target, a.block // GROUP, I32)
        f.store(scale, heads, 0, F32)
        f.store(f.convert(total, F32), heads, 1, F32)


def _scale(f: KernelFunction, a: RoundArguments, source: Value, remaining: Value) -> Value:
    """The largest magnitude of a block over 127. Magnitudes are compared as bits, among which those of NaN are the largest."""
    largest = f.variable(f.const(I32.vector(CHUNK), 0))
    with f.loop(0, f.minimum(a.block, remaining), CHUNK) as k:
        numbers = f.load(source, k, F32, CHUNK, remaining=remaining - k)
        bits = f.bitcast(numbers, I32.vector(CHUNK)) & 0x7FFFFFFF
        largest.set(f.maximum(bits, largest.get()))
    bits = f.reduce("max", largest.get())
    with f.exact():
        return f.select(bits >= INFINITY_BITS, float("nan"), f.bitcast(bits, F32) / float(LARGEST))


def _round(
    f: KernelFunction, a: RoundArguments, codes: Codes, source: Value, remaining: Value, scale: Value, target: Value
) -> Value:
    """Store the bytes of a block; returns their sum."""
    total = f.variable(f.const(I32.vector(CHUNK), 0))
    divisor = f.splat(f.select(scale > 0.0, scale, 1.0), CHUNK)
    with f.loop(0, a.block, CHUNK) as k:
        numbers = f.load(source, k, F32, CHUNK, remaining=f.maximum(remaining - k, 0))
        with f.exact():
            quotients = f.minimum(f.maximum(numbers / divisor, -float(LARGEST)), float(LARGEST))
        bytes = f.nearest(quotients)
        total.set(total.get() + bytes)
        f.store(f.convert(f.shuffle(bytes, bytes, _order(codes)), I8), target, k, I8)
    return f.reduce("add", total.get())


def _order(codes: Codes) -> list[int]:
    """In which order the codes of a chunk come out of words: four at a time, one from each byte."""
    in_byte = 8 // codes.bits
    return [
        word + byte * in_byte + plane
        for word in range(0, CHUNK, codes.in_word)
        for plane in range(in_byte)
        for byte in range(GROUP)
    ]
