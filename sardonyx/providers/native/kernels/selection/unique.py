"""Unique: rows are brought into order, byte by byte of their ranks from the last column to the first. Equal ones then follow each other.

How many differ is settled before anything is written of which there is one for each.
"""

from __future__ import annotations

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, I64, U64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.indexing import take
from sardonyx.providers.native.kernels.selection.topk_kernel import rank_key
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.computed_sizes import axes_of, settle_to
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, rank_of, required
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import replace

DIGITS = 256
"""Values of a byte."""


def _has_order(node: Node) -> bool:
    """Whether the elements are numbers, or true and false."""
    type = element_of(required(node.inputs[0]))
    return type is not None and type.kind in ("bool", "int", "uint", "float")


@lower("Unique", claims=_has_order, settles=True)
def unique(lowerer: Lowerer, node: Node) -> None:
    axis = operand(node, "axis")
    indices, inverse, counts = [*node.outputs[1:], None, None, None][:3]
    rank = rank_of(required(node.inputs[0]))
    _unique(
        lowerer,
        node,
        None if axis is None else int(axis) % rank,
        _Results(node.outputs[0], indices, inverse, counts),
        is_sorted=operand(node, "sorted") != 0,
        nan_is_itself=True,
    )


@lower(
    "Unique",
    domain="com.microsoft",
    claims=lambda node: _has_order(node) and rank_of(required(node.inputs[0])) == 1,
    settles=True,
)
def unique_in_order(lowerer: Lowerer, node: Node) -> None:
    """In the order in which they come first; a NaN is not even equal to itself."""
    y, idx, counts = node.outputs
    _unique(lowerer, node, None, _Results(y, None, idx, counts), is_sorted=False, nan_is_itself=False)


class _Results:
    """What is wanted: None for what is not."""

    def __init__(self, Y: Value, indices: Value | None, inverse: Value | None, counts: Value | None):
        self.Y = Y
        self.indices, self.inverse, self.counts = (
            value if value is not None and value.name else None for value in (indices, inverse, counts)
        )


def _unique(lowerer: Lowerer, node: Node, axis: int | None, wanted: _Results, is_sorted: bool, nan_is_itself: bool) -> None:
    data, axis = _data(lowerer, required(node.inputs[0]), axis)
    rows = _rows(lowerer, data, axis)
    count, width = rows.shape
    firsts, counts, spare, inverse = (lowerer.scratch(count * I64.bytes) for _ in range(4))
    total = lowerer.scratch(I64.bytes)
    if wanted.inverse is not None:
        inverse = lowerer.output(wanted.inverse).buffer
    arguments = UniqueArguments(
        rows=rows.place, count=count, width=width, firsts=firsts, counts=counts, inverse=inverse, spare=spare, total=total
    )
    kernel = unique_kernel(lowerer.target, rows.type, is_sorted, nan_is_itself)
    lowerer.call(kernel, arguments, 1, flops=count * width * 8, traffic=count * width * rows.type.bytes)
    _give(lowerer, data, axis, wanted, firsts, counts, total)


def _give(lowerer: Lowerer, data: View, axis: int, wanted: _Results, firsts: Buffer, counts: Buffer, total: Buffer) -> None:
    """Settle how many rows differ, and write what is wanted of each."""
    vectors = [(value, buffer) for value, buffer in ((wanted.indices, firsts), (wanted.counts, counts)) if value is not None]
    sizes = [*axes_of(wanted.Y, [(axis, total)]), *(pair for value, _ in vectors for pair in axes_of(value, [(0, total)]))]
    settle_to(lowerer, sizes)
    length = dims(wanted.Y)[axis]
    if wanted.Y.name:
        take(lowerer, data, axis, _vector(firsts, length), 1, lowerer.output(wanted.Y))
    for value, buffer in vectors:
        lowerer.copy(_vector(buffer, dims(value)[0]), lowerer.output(value))


def _vector(buffer: Buffer, length: Dim) -> View:
    return View(buffer, I64, (length,), (1,))


def _data(lowerer: Lowerer, value: Value, axis: int | None) -> tuple[View, int]:
    """What is looked at, and along which axis: without one, all elements in a row."""
    view = lowerer.contiguous(value)
    if axis is not None:
        return view, axis
    return replace(view, shape=(dim.product(view.shape),), strides=(1,)), 0


def _rows(lowerer: Lowerer, data: View, axis: int) -> View:
    """Slices along an axis as rows without gaps, in memory that nobody else can change meanwhile. Truth is compared as numbers."""
    order = [axis, *(other for other in range(len(data.shape)) if other != axis)]
    view = data.transposed(order)
    if not view.is_contiguous or view.buffer.kind == "input":
        copy = View(
            lowerer.scratch(dim.product(view.shape) * view.type.bytes), view.type, view.shape, contiguous_strides(view.shape)
        )
        lowerer.copy(view, copy)
        view = copy
    shape = (view.shape[0], dim.product(view.shape[1:]))
    type = Type("uint", 8) if view.type.kind == "bool" else view.type
    return replace(view, type=type, shape=shape, strides=contiguous_strides(shape))


# --- the kernel


class UniqueArguments(Arguments):
    rows: Pointer
    count: Size
    width: Size
    firsts: Pointer
    """For each row that differs from others, where it is first."""
    counts: Pointer
    """How often it is there."""
    inverse: Pointer
    """For each row, the number of its kind."""
    spare: Pointer
    total: Pointer


@kernel("unique rows", UniqueArguments)
def unique_kernel(f: KernelFunction, a: UniqueArguments, type: Type, is_sorted: bool, nan_is_itself: bool) -> None:
    """The distinct rows: in order, or as they come first."""
    order = a.spare
    _sort(f, a, order, a.inverse, type)  # nothing stands in `inverse` yet
    kinds = f.variable(0, I64)
    with f.loop(0, a.count) as place:
        row = f.load(order, place, I64)
        is_new = f.variable(True, BOOL)
        with f.if_(place > 0):
            is_new.set(_differ(f, a, row, f.load(order, place - 1, I64), type, nan_is_itself))
        with f.if_(is_new.get()):
            f.store(row, a.firsts, kinds.get(), I64)
            f.store(0, a.counts, kinds.get(), I64)
            kinds.set(kinds.get() + 1)
        number = kinds.get() - 1
        f.store(f.load(a.counts, number, I64) + 1, a.counts, number, I64)
        f.store(number, a.inverse, row, I64)
    f.store(kinds.get(), a.total, 0, I64)
    if not is_sorted:
        _as_they_come(f, a, kinds.get())


def _key(f: KernelFunction, a: UniqueArguments, row: Code, column: Code, type: Type) -> Code:
    """The rank of an element among all of its type."""
    key = rank_key(f, f.load(a.rows, row * a.width + column, type), largest=True)
    return f.convert(key, U64)


def _sort(f: KernelFunction, a: UniqueArguments, order: Code, spare: Code, type: Type) -> None:
    """Write the numbers of the rows in the order of their content, those of equal rows in theirs."""
    counters = f.stack(I64, DIGITS)
    bits = 64 if type.computed.bits == 64 else 32
    with f.loop(0, a.count) as place:
        f.store(place, order, place, I64)
    with f.loop(0, a.width) as back:
        column = a.width - 1 - back
        with f.loop(0, bits, 8) as shift:

            def digit(row: Code) -> Code:
                return f.bitcast((_key(f, a, row, column, type) >> f.bitcast(shift, U64)) & (DIGITS - 1), I64)

            _count_digits(f, a.count, order, counters, digit)
            _spread(f, a.count, order, spare, counters, digit)


def _count_digits(f: KernelFunction, count: Code, order: Code, counters: Code, digit: object) -> None:
    assert callable(digit)
    with f.loop(0, DIGITS) as value:
        f.store(0, counters, value, I64)
    with f.loop(0, count) as place:
        value = digit(f.load(order, place, I64))
        f.store(f.load(counters, value, I64) + 1, counters, value, I64)


def _spread(f: KernelFunction, count: Code, order: Code, spare: Code, counters: Code, digit: object) -> None:
    """Bring rows into the order of a digit, unless all have the same."""
    assert callable(digit)
    with f.if_(count > 1), f.if_(f.load(counters, digit(f.load(order, 0, I64)), I64) < count):
        start = f.variable(0, I64)
        with f.loop(0, DIGITS) as value:
            found = f.load(counters, value, I64)
            f.store(start.get(), counters, value, I64)
            start.set(start.get() + found)
        with f.loop(0, count) as place:
            row = f.load(order, place, I64)
            value = digit(row)
            target = f.load(counters, value, I64)
            f.store(row, spare, target, I64)
            f.store(target + 1, counters, value, I64)
        with f.loop(0, count) as place:
            f.store(f.load(spare, place, I64), order, place, I64)


def _differ(f: KernelFunction, a: UniqueArguments, row: Code, other: Code, type: Type, nan_is_itself: bool) -> Code:
    """Whether two rows are not the same."""
    column, differs = f.variable(0, I64), f.variable(False, BOOL)
    with f.while_() as body:
        place = column.get()
        body.leave_if(place >= a.width)
        unequal = _key(f, a, row, place, type) != _key(f, a, other, place, type)
        if type.is_float and not nan_is_itself:
            unequal = unequal | f.is_nan(f.load(a.rows, row * a.width + place, type))
        differs.set(unequal)
        body.leave_if(unequal)
        column.set(place + 1)
    return differs.get()


def _as_they_come(f: KernelFunction, a: UniqueArguments, kinds: Code) -> None:
    """Number the rows anew, by where each is first. What was found is kept in `spare` meanwhile."""
    ranks = a.spare
    with f.loop(0, kinds) as number:
        f.store(-1, ranks, number, I64)
    seen = f.variable(0, I64)
    with f.loop(0, a.count) as row:
        kind = f.load(a.inverse, row, I64)
        with f.if_(f.load(ranks, kind, I64) < 0):
            f.store(seen.get(), ranks, kind, I64)
            f.store(row, a.firsts, seen.get(), I64)
            seen.set(seen.get() + 1)
        f.store(f.load(ranks, kind, I64), a.inverse, row, I64)
    with f.loop(0, kinds) as number:
        f.store(0, a.counts, number, I64)
    with f.loop(0, a.count) as row:
        kind = f.load(a.inverse, row, I64)
        f.store(f.load(a.counts, kind, I64) + 1, a.counts, kind, I64)
