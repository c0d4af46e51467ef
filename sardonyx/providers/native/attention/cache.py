"""Keys and values as attention wants them: new rows behind those of the past, a bias added, floats of 16 bits widened."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.attention.form import Bounds, Tensor
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.lowering import Lowerer
from sardonyx.providers.native.program import Argument, At
from sardonyx.providers.native.values import fixed
from sardonyx.providers.native.views import View
from sardonyx.records import dataclass

PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class AppendForm:
    """What shapes the code."""

    new: Type
    target: Type
    size: int
    past: Type | None = None
    biased: bool = False
    lengths: Type | None = None
    """The type of the numbers that tell how many rows each batch has, if they do."""


def append_step(
    lowerer: Lowerer,
    past: View | None,
    new: View,
    target: View,
    *,
    bias: At | None = None,
    bounds: Bounds | None = None,
    lengths: Type | None = None,
    when: Dim = 1,
) -> None:
    """Fill `target` with the rows of the past, then the new ones, then zeros. Views are (batch, heads, rows, size).

    Where lengths tell how many rows there are, `target` may be the past itself: then the new ones alone are written.
    """
    batch, heads, rows = target.shape[:3]
    size = fixed(target.shape[3], "the size of a head")
    form = AppendForm(new.type, target.type, size, None if past is None else past.type, bias is not None, lengths)
    arguments: list[Argument] = [new.place, *new.strides[:3], target.place, *target.strides[:3]]
    arguments += [heads, 0 if past is None else past.shape[2], new.shape[2], rows]
    if past is not None:
        arguments += [past.place, *past.strides[:3]]
    if bias is not None:
        arguments.append(bias)
    if lengths is not None:
        assert bounds is not None and bounds.lengths is not None
        arguments += [bounds.lengths, bounds.more, bounds.from_length]
    grain = dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, rows * size)))
    traffic = 2 * dim.product(target.shape) * target.type.bytes
    lowerer.call(append_kernel(lowerer.target, form), arguments, batch * heads * when, grain, traffic=traffic)


@kernel("append to cache")
def append_kernel(f: KernelFunction, form: AppendForm) -> None:
    """Items are heads of all batches."""
    new, target = Tensor(f, form.new), Tensor(f, form.target)
    heads, before, added, rows = (f.size() for _ in range(4))
    past = Tensor(f, form.past) if form.past is not None else None
    bias = f.pointer() if form.biased else None
    lengths, more, from_length = (f.pointer(), f.size(), f.size()) if form.lengths is not None else (None, None, None)
    with f.loop(f.begin, f.end) as item:
        batch, head = item // heads, item % heads
        start = before
        if lengths is not None and form.lengths is not None:
            told = f.convert(f.load(lengths, batch, form.lengths), I64) + more
            start = f.minimum(f.maximum((told - added) * from_length, 0), before)
        into = target.at(batch, head)
        is_apart = f.const(BOOL, True) if past is None or lengths is None else past.is_apart(target)
        if past is not None:
            _copy(f, form, past, past.at(batch, head), target, into, f.select(is_apart, start, 0))
        added_rows = f.minimum(added, rows - start)
        behind = target.row(into, start)
        if bias is None:
            _copy(f, form, new, new.at(batch, head), target, behind, added_rows)
        else:
            shift = f.address(bias, head * form.size, form.new)
            _copy(f, form, new, new.at(batch, head), target, behind, added_rows, shift)
        _clear(f, form, target, target.row(into, start + added_rows), f.select(is_apart, rows - start - added_rows, 0))


def _copy(
    f: KernelFunction,
    form: AppendForm,
    source: Tensor,
    start: Value,
    target: Tensor,
    into: Value,
    count: Value,
    bias: Value | None = None,
) -> None:
    with f.loop(0, count) as i:
        row, place = source.row(start, i), target.row(into, i)

        def move(h: Value, lanes: int, remaining: Value | None) -> None:
            value = f.load(row, h, source.type, lanes, remaining=remaining)
            if bias is not None:
                value = value + f.load(bias, h, source.type, lanes, remaining=remaining)
            f.store(value, place, h, target.type, remaining=remaining)

        along(f, form.size, f.lanes(form.target), move)


def _clear(f: KernelFunction, form: AppendForm, target: Tensor, into: Value, count: Value) -> None:
    with f.loop(0, count) as i:
        place = target.row(into, i)

        def zero(h: Value, lanes: int, remaining: Value | None) -> None:
            f.store(f.const(target.type.computed.vector(lanes), 0), place, h, target.type, remaining=remaining)

        along(f, form.size, f.lanes(form.target), zero)


def along(f: KernelFunction, size: int, lanes: int, emit: Callable[[Value, int, Value | None], None]) -> None:
    """`emit(column, lanes, remaining)` for the elements of a row: whole vectors, then what is left."""
    whole = size - size % lanes
    if whole <= 8 * lanes:
        for h in range(0, whole, lanes):
            emit(f.const(I64, h), lanes, None)
    else:
        with f.loop(0, whole, lanes) as column:
            emit(column, lanes, None)
    if size > whole:
        emit(f.const(I64, whole), lanes, f.const(I64, size - whole))


def widened(lowerer: Lowerer, view: View, when: Dim = 1) -> View:
    """Rows in the type that is computed with."""
    type = view.type.computed
    made = contiguous_heads(lowerer, view.shape, type, when)
    append_step(lowerer, None, view, made, when=when)
    return made


def contiguous_heads(lowerer: Lowerer, shape: tuple[Dim, ...], type: Type, when: Dim = 1) -> View:
    """Memory for (batch, heads, rows, size); none where `when` is 0."""
    _, heads, rows, size = shape
    strides = (heads * rows * size, rows * size, size, 1)
    return View(lowerer.scratch(dim.product(shape) * type.bytes * when), type, shape, strides)


def check_lengths(lowerer: Lowerer, lengths: View, more: Dim, least: Dim, most: Dim) -> None:
    """Have NumPy say what is wrong if one of the lengths, plus `more`, is not between `least` and `most`."""
    arguments = [lengths.place, more, least, most, lowerer.status()]
    lowerer.call(lengths_kernel(lowerer.target, lengths.type), arguments, dim.product(lengths.shape), 1 << 10)


@kernel("check lengths")
def lengths_kernel(f: KernelFunction, type: Type) -> None:
    """Items are batches."""
    lengths, more, least, most, status = f.pointer(), f.size(), f.size(), f.size(), f.pointer()
    with f.loop(f.begin, f.end) as batch:
        length = f.convert(f.load(lengths, batch, type), I64) + more
        with f.if_((length < least) | (length > most)):
            f.store(1, status, 0, I64)
