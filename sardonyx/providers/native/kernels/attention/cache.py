"""Keys and values as attention wants them: new rows behind those of the past, a bias added, floats of 16 bits widened."""

from __future__ import annotations

from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import BOOL, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.attention.form import Bounds
from sardonyx.providers.native.kernels.attention.operands import (
    LengthArguments,
    Tensor,
    TensorArguments,
    length_arguments,
    tensor_arguments,
    told,
    told_length,
)
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class AppendForm:
    """What shapes the code."""

    new: Type
    target: Type
    size: int | None
    """Of a head; None if a run tells it."""
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
    size = target.shape[3]
    known = size if isinstance(size, int) else None
    form = AppendForm(new.type, target.type, known, None if past is None else past.type, bias is not None, lengths)
    grain = dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, rows * size)))
    lowerer.call(
        append_kernel(lowerer.target, form),
        AppendArguments(
            new=tensor_arguments(new),
            target=tensor_arguments(target),
            heads=heads,
            before=0 if past is None else past.shape[2],
            added=new.shape[2],
            rows=rows,
            size=size if known is None else None,
            past=None if past is None else tensor_arguments(past),
            bias=bias,
            lengths=None if lengths is None or bounds is None else length_arguments(bounds),
        ),
        batch * heads * when,
        grain,
        traffic=2 * dim.product(target.shape) * target.type.bytes,
    )


class AppendArguments(Arguments):
    new: TensorArguments
    target: TensorArguments
    heads: Size
    before: Size
    """Rows of the past, at most."""
    added: Size
    """New rows."""
    rows: Size
    """For which the target has room."""
    size: Size | None = when(lambda form: form.size is None)
    past: TensorArguments | None = when(lambda form: form.past is not None)
    bias: Pointer | None = when(lambda form: form.biased)
    """Added to new rows: one row for each head."""
    lengths: LengthArguments | None = when(lambda form: form.lengths is not None)


@kernel("append to cache", AppendArguments)
def append_kernel(f: KernelFunction, a: AppendArguments, form: AppendForm) -> None:
    """Items are heads of all batches."""
    new, target = Tensor(f, a.new, form.new), Tensor(f, a.target, form.target)
    past = None if a.past is None or form.past is None else Tensor(f, a.past, form.past)
    size = told(form.size, a.size)
    with f.loop(f.begin, f.end) as item:
        batch, head = item // a.heads, item % a.heads
        start = _rows_before(f, a, form, batch)
        into = target.at(batch, head)
        is_apart = f.const(BOOL, True) if past is None or a.lengths is None else past.is_apart(target)
        if past is not None:
            _copy(f, size, past, past.at(batch, head), target, into, f.select(is_apart, start, 0))
        added = f.minimum(a.added, a.rows - start)
        bias = None if a.bias is None else f.address(a.bias, head * size, form.new)
        _copy(f, size, new, new.at(batch, head), target, target.row(into, start), added, bias)
        _clear(f, size, target, target.row(into, start + added), f.select(is_apart, a.rows - start - added, 0))


def _rows_before(f: KernelFunction, a: AppendArguments, form: AppendForm, batch: Value) -> Value:
    """How many rows of the past a batch has."""
    if a.lengths is None or form.lengths is None:
        return a.before
    length = told_length(f, a.lengths, form.lengths, batch)
    return f.minimum(f.maximum((length - a.added) * a.lengths.from_length, 0), a.before)


def _copy(
    f: KernelFunction,
    size: Value | int,
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

        along(f, size, f.lanes(target.type), move)


def _clear(f: KernelFunction, size: Value | int, target: Tensor, into: Value, count: Value) -> None:
    with f.loop(0, count) as i:
        clear_row(f, target, target.row(into, i), size, f.lanes(target.type))


def clear_row(f: KernelFunction, tensor: Tensor, place: Value, size: Value | int, lanes: int) -> None:
    """Zeros in a row."""

    def zero(h: Value, lanes: int, remaining: Value | None) -> None:
        f.store(f.const(tensor.type.computed.vector(lanes), 0), place, h, tensor.type, remaining=remaining)

    along(f, size, lanes, zero)


def along(f: KernelFunction, size: Value | int, lanes: int, emit: Callable[[Value, int, Value | None], None]) -> None:
    """`emit(column, lanes, remaining)` for the elements of a row: whole vectors, then what is left."""
    if not isinstance(size, int):
        _along_told(f, size, lanes, emit)
        return
    whole = size - size % lanes
    if whole <= 8 * lanes:
        for h in range(0, whole, lanes):
            emit(f.const(I64, h), lanes, None)
    else:
        with f.loop(0, whole, lanes) as column:
            emit(column, lanes, None)
    if size > whole:
        emit(f.const(I64, whole), lanes, f.const(I64, size - whole))


def _along_told(f: KernelFunction, size: Value, lanes: int, emit: Callable[[Value, int, Value | None], None]) -> None:
    whole = size - size % lanes
    with f.loop(0, whole, lanes) as column:
        emit(column, lanes, None)
    with f.if_(whole < size):
        emit(whole, lanes, size - whole)


def widened(lowerer: Lowerer, view: View, when: Dim = 1) -> View:
    """Rows in the type that is computed with."""
    type = view.type.computed
    wide = contiguous_heads(lowerer, view.shape, type, when)
    append_step(lowerer, None, view, wide, when=when)
    return wide


def contiguous_heads(lowerer: Lowerer, shape: tuple[Dim, ...], type: Type, when: Dim = 1) -> View:
    """Memory for (batch, heads, rows, size); none where `when` is 0."""
    _, heads, rows, size = shape
    strides = (heads * rows * size, rows * size, size, 1)
    return View(lowerer.scratch(dim.product(shape) * type.bytes * when), type, shape, strides)


def check_lengths(lowerer: Lowerer, lengths: View, more: Dim, least: Dim, most: Dim) -> None:
    """Have NumPy say what is wrong if one of the lengths, plus `more`, is not between `least` and `most`."""
    arguments = CheckArguments(lengths=lengths.place, more=more, least=least, most=most, status=lowerer.status())
    lowerer.call(lengths_kernel(lowerer.target, lengths.type), arguments, dim.product(lengths.shape), 1 << 10)


class CheckArguments(Arguments):
    lengths: Pointer
    more: Size
    least: Size
    most: Size
    status: Pointer


@kernel("check lengths", CheckArguments)
def lengths_kernel(f: KernelFunction, a: CheckArguments, type: Type) -> None:
    """Items are batches."""
    with f.loop(f.begin, f.end) as batch:
        length = f.convert(f.load(a.lengths, batch, type), I64) + a.more
        with f.if_((length < a.least) | (length > a.most)):
            f.store(1, a.status, 0, I64)
