"""Copies between views of one element type. Only the width of elements counts: floats of 16 bits are moved as they are, not converted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import Type
from sardonyx.ir import dim
from sardonyx.providers.native.kernels.shape.interleaving import interleaved_step
from sardonyx.providers.native.kernels.shape.transposing import transposed_step
from sardonyx.providers.native.kernels.shape.walking import StridedTensor, address_of, runs
from sardonyx.providers.native.program.arguments import Arguments, Size, each
from sardonyx.providers.native.program.chain import Load
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.views import View, collapse, dense_order, permuted
from sardonyx.startup.records import replace

if TYPE_CHECKING:
    from sardonyx.providers.native.program.building import ProgramBuilder

PIECE_BYTES = 65536
"""How many bytes are worth handing to another thread."""


def raw(type: Type) -> Type:
    """Elements as mere bits."""
    return Type("uint", 8 * type.bytes)


def copy_step(lowerer: ProgramBuilder, source: View, target: View) -> None:
    """Add the step that copies elements between views of one shape and type."""
    type = raw(target.type)
    source = replace(lowerer.broadcast(source, target.shape), type=type)
    target = replace(target, type=type)
    axes = dense_order(target) or _innermost_last(target)
    domain, strides = collapse(permuted(target.shape, axes), [permuted(view.strides, axes) for view in (source, target)])
    if interleaved_step(lowerer, domain, source, target, strides):
        return
    if transposed_step(lowerer, domain, [Load(type, ())], [source], [(0, target)], strides):
        return
    kinds = [_kind(steps[-1]) for steps in strides]
    total = dim.product(domain)
    lowerer.call(
        copy_kernel(lowerer.target, type, len(domain), kinds[0], kinds[1]),
        CopyArguments(
            sizes=domain[1:],
            source=StridedTensor(place=source.place, strides=strides[0]),
            target=StridedTensor(place=target.place, strides=strides[1]),
        ),
        total,
        PIECE_BYTES // type.bytes,
        traffic=2 * total * type.bytes,
    )


def _innermost_last(view: View) -> list[int]:
    """The axes, the one along which elements lie in a row behind the others."""
    dense = [axis for axis, (size, stride) in enumerate(zip(view.shape, view.strides)) if stride == 1 and size != 1]
    axes = list(range(len(view.shape)))
    return [*(axis for axis in axes if axis != dense[-1]), dense[-1]] if dense else axes


def _kind(stride: object) -> str:
    return str(stride) if stride in (0, 1, -1) else "n"


class CopyArguments(Arguments):
    sizes: Sequence[Size] = each(lambda rank: rank - 1)
    """Of all axes but the first."""
    source: StridedTensor
    target: StridedTensor


@kernel("copy", CopyArguments)
def copy_kernel(f: KernelFunction, a: CopyArguments, type: Type, rank: int, read: str, written: str) -> None:
    """Elements of one view into another. Items are elements; `read` and `written` say how the innermost axis is stepped through."""

    def run(outer: Sequence[Value], column: Value, count: Value) -> None:
        source = address_of(f, a.source, [*outer, column], type)
        target = address_of(f, a.target, [*outer, column], type)
        if written == "1" and read in ("0", "1", "-1"):
            {"0": _repeat_row, "1": copy_row, "-1": _reverse_row}[read](f, source, target, count, type)
            return
        with f.loop(0, count) as index:
            element = f.load(source, index * a.source.strides[-1], type)
            f.store(element, target, index * a.target.strides[-1], type)

    if rank == 1:
        run([], f.begin, f.end - f.begin)
    else:
        runs(f, a.sizes, run)


def copy_row(f: KernelFunction, source: Value, target: Value, count: Value, type: Type) -> None:
    """Elements that lie in a row, to where they lie in a row again."""

    def move(index: Value, lanes: int, remaining: Value | None = None) -> None:
        f.store(f.load(source, index, type, lanes, remaining=remaining), target, index, type, remaining=remaining)

    along_row(f, count, type, move)


def fill_row(f: KernelFunction, element: Value, target: Value, count: Value, type: Type) -> None:
    """The same element all along a row."""

    def put(index: Value, lanes: int, remaining: Value | None = None) -> None:
        f.store(f.splat(element, lanes), target, index, type, remaining=remaining)

    along_row(f, count, type, put)


def _repeat_row(f: KernelFunction, source: Value, target: Value, count: Value, type: Type) -> None:
    fill_row(f, f.load(source, 0, type), target, count, type)


def _reverse_row(f: KernelFunction, source: Value, target: Value, count: Value, type: Type) -> None:
    """Elements that lie in a row, the last one first: `source` is where that lies."""
    lanes = f.lanes(type)
    whole = (count // lanes) * lanes
    with f.loop(0, whole, lanes) as index:
        vector = f.load(source, -index - (lanes - 1), type, lanes)
        f.store(f.shuffle(vector, vector, range(lanes - 1, -1, -1)), target, index, type)
    with f.loop(whole, count) as index:
        f.store(f.load(source, -index, type), target, index, type)


def along_row(f: KernelFunction, count: Value, type: Type, emit: object) -> None:
    """Do `emit(index, lanes, remaining)` for a row of elements; some may be done twice, so it must not matter how often one is.

    CPUs with masks for every width use them for what is left of a row. Elsewhere its last vector overlaps the one before.
    """
    assert callable(emit)
    lanes = f.lanes(type)
    whole = (count // lanes) * lanes
    if f.target.has_avx512:
        with f.loop(0, whole, lanes) as index:
            emit(index, lanes)
        with f.if_(whole < count):
            emit(whole, lanes, count - whole)
        return
    with f.if_else(count >= lanes) as otherwise:
        with f.loop(0, whole, lanes) as index:
            emit(index, lanes)
        with f.if_(whole < count):
            emit(count - lanes, lanes)
        otherwise()
        with f.loop(0, count) as index:
            emit(index, 1)
