"""Kernels on the tables of sequences (`program/held.py`), and those that move tensors in and out. The lowerings of sequences call them.

A row of a table says where a tensor begins and what sizes it has. Positions and sizes that cannot be set the status word.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import I64, Type
from sardonyx.providers.native.kernels.shape.copying import copy_row
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, each, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel


class FindArguments(Arguments):
    table: Pointer | None = when(lambda rank: rank is not None)
    count: Size
    position: Pointer | None = when(lambda position: position is not None)
    row: Pointer
    """The row of the table, then its number, then how many elements the tensor has."""
    status: Pointer


@kernel("find tensor", FindArguments)
def find_kernel(f: KernelFunction, a: FindArguments, position: Type | None, rank: int | None) -> None:
    """Look a tensor up by its position, the last one if there is none. Without a rank only the place between tensors is found."""
    wanted = f.const(I64, -1) if a.position is None else f.convert(f.load(a.position, 0, position or I64), I64)
    number = f.select(wanted < 0, wanted + a.count, wanted)
    most = a.count if rank is None else a.count - 1
    with f.if_else((number < 0) | (number > most)) as otherwise:
        f.store(1, a.status, 0, I64)
        otherwise()
        columns = 0 if rank is None else 1 + rank
        elements = f.const(I64, 1)
        for column in range(columns):
            assert a.table is not None
            word = f.load(a.table, number * columns + column, I64)
            f.store(word, a.row, column, I64)
            elements = elements * word if column else elements
        f.store(number, a.row, columns, I64)
        f.store(elements, a.row, columns + 1, I64)


class TakeArguments(Arguments):
    data: Pointer
    row: Pointer
    target: Pointer


@kernel("take tensor", TakeArguments)
def take_kernel(f: KernelFunction, a: TakeArguments, type: Type) -> None:
    """Copy the tensor of a row. Items are elements."""
    source = f.address(a.data, f.load(a.row, 0, I64) + f.begin, type)
    copy_row(f, source, f.address(a.target, f.begin, type), f.end - f.begin, type)


class InsertArguments(Arguments):
    table: Pointer
    count: Size
    """Of rows before."""
    number: Pointer | None = when(lambda is_between: is_between)
    """Where the row is to be."""
    start: Size
    sizes: Sequence[Size] = each(lambda rank: rank)


@kernel("insert row", InsertArguments)
def insert_kernel(f: KernelFunction, a: InsertArguments, rank: int, is_between: bool) -> None:
    """Put a row into a table, at the end or in front of others."""
    columns = 1 + rank
    number = a.count if a.number is None else f.load(a.number, 0, I64)
    if is_between:
        with f.loop(0, (a.count - number) * columns) as back:
            word = a.count * columns - 1 - back
            f.store(f.load(a.table, word, I64), a.table, word + columns, I64)
    for column, size in enumerate((a.start, *a.sizes)):
        f.store(size, a.table, number * columns + column, I64)


class EraseArguments(Arguments):
    table: Pointer
    data: Pointer
    count: Size
    total: Size
    row: Pointer
    """What was found of the tensor that goes."""


@kernel("erase tensor", EraseArguments)
def erase_kernel(f: KernelFunction, a: EraseArguments, type: Type, rank: int) -> None:
    """Close the gap that a tensor and its row leave."""
    columns = 1 + rank
    start, number, elements = (f.load(a.row, word, I64) for word in (0, columns, columns + 1))
    with f.loop(start, a.total - elements) as place:
        f.store(f.load(a.data, place + elements, type), a.data, place, type)
    with f.loop(number * columns, (a.count - 1) * columns) as word:
        f.store(f.load(a.table, word + columns, I64), a.table, word, I64)
    with f.loop(0, a.count - 1) as row:
        begins = f.load(a.table, row * columns, I64)
        f.store(f.select(begins > start, begins - elements, begins), a.table, row * columns, I64)


# --- cutting and joining --------------------------------------------------------------------------------------------


class PartsArguments(Arguments):
    size: Size
    split: Pointer
    parts: Pointer
    status: Pointer


@kernel("count parts", PartsArguments)
def parts_kernel(f: KernelFunction, a: PartsArguments, type: Type) -> None:
    """Into how many parts of one length an axis falls."""
    length = f.convert(f.load(a.split, 0, type), I64)
    with f.if_else(length <= 0) as otherwise:
        f.store(1, a.status, 0, I64)
        otherwise()
        f.store(a.size // length + f.select(a.size % length > 0, f.const(I64, 1), 0), a.parts, 0, I64)


class CutArguments(Arguments):
    size: Size
    """Of the axis."""
    split: Pointer | None = when(lambda split: split is not None)
    step: Size
    """Elements of the result for each one along the axis."""
    sizes: Sequence[Size] = each(lambda rank: rank)
    """Those of a part; that of the axis is put in."""
    table: Pointer
    offsets: Pointer
    """Where parts begin along the axis."""
    count: Size
    status: Pointer


@kernel("cut axis", CutArguments)
def cut_kernel(f: KernelFunction, a: CutArguments, split: Type | None, is_list: bool, rank: int, axis: int | None) -> None:
    """Write the table of an axis that is cut: into single elements, into parts of one length, or of a list of lengths.

    `axis` is that of the parts, None if they do not have it.
    """
    columns, begin, is_wrong = 1 + rank, f.variable(0, I64), f.variable(0, I64)
    with f.loop(0, a.count) as part:
        length = f.const(I64, 1)
        if a.split is not None:
            length = f.convert(f.load(a.split, part if is_list else 0, split or I64), I64)
        length = length if is_list else f.minimum(length, a.size - begin.get())
        is_wrong.set(f.select((length < 0) | (length > a.size - begin.get()), f.const(I64, 1), is_wrong.get()))
        f.store(begin.get(), a.offsets, part, I64)
        words = [begin.get() * a.step, *(length if number == axis else size for number, size in enumerate(a.sizes))]
        for column, word in enumerate(words):
            f.store(word, a.table, part * columns + column, I64)
        begin.set(f.select(is_wrong.get() != 0, begin.get(), begin.get() + length))
    with f.if_((is_wrong.get() != 0) | (begin.get() != a.size)):
        f.store(1, a.status, 0, I64)


class MeasureArguments(Arguments):
    table: Pointer
    count: Size
    offsets: Pointer
    """Where tensors begin along the axis of the result."""
    sizes: Pointer
    """Those of the result."""
    status: Pointer


@kernel("measure tensors", MeasureArguments)
def measure_kernel(f: KernelFunction, a: MeasureArguments, rank: int, axis: int, is_new: bool) -> None:
    """Find the shape of tensors joined along an axis, which is new or one of theirs."""
    columns, begin = 1 + rank, f.variable(0, I64)
    with f.if_else(a.count <= 0) as otherwise:
        f.store(1, a.status, 0, I64)
        otherwise()
        with f.loop(0, a.count) as row:
            f.store(begin.get(), a.offsets, row, I64)
            sizes = [f.load(a.table, row * columns + 1 + number, I64) for number in range(rank)]
            for number, size in enumerate(sizes):
                if is_new or number != axis:
                    with f.if_(size != f.load(a.table, 1 + number, I64)):
                        f.store(1, a.status, 0, I64)
            begin.set(begin.get() + (1 if is_new else sizes[axis]))
        sizes = [f.load(a.table, 1 + number, I64) for number in range(rank)]
        if is_new:
            sizes.insert(axis, begin.get())
        else:
            sizes[axis] = begin.get()
        for number, size in enumerate(sizes):
            f.store(size, a.sizes, number, I64)


class JoinArguments(Arguments):
    table: Pointer
    data: Pointer
    offsets: Pointer
    whole: Pointer
    """A tensor without gaps: what is cut, or the result."""
    outer: Size
    size: Size
    """Of the axis along which parts lie."""
    inner: Size


@kernel("move parts", JoinArguments)
def join_kernel(f: KernelFunction, a: JoinArguments, type: Type, rank: int, axis: int | None, is_join: bool) -> None:
    """Copy parts of an axis out of a sequence, or into it. Items are tensors; without an axis of their own they have 1 along it."""
    with f.loop(f.begin, f.end) as part:
        row = f.address(a.table, part * (1 + rank), I64)
        start, offset = f.load(row, 0, I64), f.load(a.offsets, part, I64)
        length = (f.const(I64, 1) if axis is None else f.load(row, 1 + axis, I64)) * a.inner
        with f.loop(0, a.outer) as outer:
            tensor = f.address(a.data, start + outer * length, type)
            whole = f.address(a.whole, (outer * a.size + offset) * a.inner, type)
            source, target = (tensor, whole) if is_join else (whole, tensor)
            copy_row(f, source, target, length, type)


def row_words(rank: int | None) -> int:
    """Words that `find_kernel` writes."""
    return (0 if rank is None else 1 + rank) + 2


def number_word(rank: int | None) -> int:
    """Which of them is the number of the row."""
    return 0 if rank is None else 1 + rank
