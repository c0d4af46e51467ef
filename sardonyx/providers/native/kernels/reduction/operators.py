"""Lowerings of reductions: any axes of any types, and pools over all pixels. The table of lowerings holds them."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import F64, I64, U64, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.reduction.domain import borders_of
from sardonyx.providers.native.kernels.reduction.kernels import (
    CHUNK,
    CHUNK_ROWS,
    STRIP,
    ReduceRowsArguments,
    ReduceStripsArguments,
    Reduction,
    reduce_rows_kernel,
    reduce_strips_kernel,
)
from sardonyx.providers.native.program.chain import Chain, Given, Load, Store, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Sink, Source
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, shape_of
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, grouped_shape, permuted
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""
FEW_RESULTS = 8
"""Up to so many results are not enough to give every thread some: then the elements of each are shared."""
SHORT_ROW = 8
"""Rows of so many elements and less are folded side by side."""
NARROW = 256
"""Up to so many results side by side are one strip, which threads share by its rows."""

_FOLDS = {"Max": "max", "Min": "min", "Prod": "mul"}
_OPS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")


# --- which axes -----------------------------------------------------------------------------------------------------


def reduced_axes(node: Node) -> frozenset[int] | None:
    """The axes that a node reduces; None if they are known at run time only."""
    data = node.inputs[0]
    shape = None if data is None else shape_of(data)
    if shape is None:
        return None
    axes = operand(node, "axes")
    axes_input = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is None and axes_input is not None and shape_of(axes_input) != (0,):
        return None
    if not axes:
        return frozenset() if operand(node, "noop_with_empty_axes") else frozenset(range(len(shape)))
    return frozenset(int(axis) % len(shape) for axis in (axes if isinstance(axes, Sequence) else [axes]))


@dataclass(frozen=True)
class Runs:
    """The axes of an operand as runs that are kept or reduced."""

    kinds: str
    """K or R for each run."""
    groups: tuple[int, ...]
    """How many axes of the operand each run has."""
    kept: tuple[int, ...]
    """How many axes of the result each kept run has, or all of them in one if none is kept."""


def runs_of(shape: Dims, axes: frozenset[int], keepdims: bool, borders: frozenset[int] = frozenset()) -> Runs:
    """Axes of one element belong to whichever run is around them. At `borders` a run begins in any case."""
    kinds: list[str] = []
    groups: list[int] = []
    kept: list[int] = []
    waiting = 0  # axes of the result before the first kept run
    for axis, size in enumerate(shape):
        kind = "R" if axis in axes else "K"
        if not kinds or (kind != kinds[-1] and size != 1) or axis in borders:
            kinds.append(kind)
            groups.append(0)
            if kind == "K":
                kept.append(waiting)
                waiting = 0
        groups[-1] += 1
        if keepdims or axis not in axes:
            if kept:
                kept[-1] += 1
            else:
                waiting += 1
    if not kinds:
        return Runs("K", (0,), (0,))
    return Runs("".join(kinds), tuple(groups), tuple(kept) or (waiting,))


# --- reductions -----------------------------------------------------------------------------------------------------


def computed_type(op: str, type: Type) -> Type:
    """The type in which elements are folded."""
    if type.is_float or op in ("Sum", "Max", "Min", "Prod", "L1", "SumSquare"):
        return type.computed
    if op == "Mean":
        return I64 if type.is_signed else U64
    return F64


def _claims(node: Node) -> bool:
    type = None if node.inputs[0] is None else element_of(node.inputs[0])
    if type is None or reduced_axes(node) is None:
        return False
    return type.kind != "bool" or node.op_type in ("ReduceMax", "ReduceMin")


@lower(*(f"Reduce{op}" for op in _OPS), claims=_claims)
def reduce(lowerer: Lowerer, node: Node) -> None:
    axes = reduced_axes(node)
    assert axes is not None
    _reduce(lowerer, node, node.op_type.removeprefix("Reduce"), axes, bool(operand(node, "keepdims")))


def _claims_pool(node: Node) -> bool:
    value = node.inputs[0]
    shape = None if value is None else shape_of(value)
    return value is not None and shape is not None and len(shape) > 2 and element_of(value) is not None


@lower("GlobalAveragePool", "GlobalMaxPool", claims=_claims_pool, strided=True)
@lower("GlobalLpPool", claims=lambda node: _claims_pool(node) and operand(node, "p") in (1, 2))
def global_pool(lowerer: Lowerer, node: Node) -> None:
    shape = shape_of(node.outputs[0])
    assert shape is not None
    op = {"GlobalAveragePool": "Mean", "GlobalMaxPool": "Max"}.get(node.op_type) or f"L{int(operand(node, 'p'))}"
    _reduce(lowerer, node, op, frozenset(range(2, len(shape))), True)


def _reduce(lowerer: Lowerer, node: Node, op: str, axes: frozenset[int], keepdims: bool) -> None:
    """Add the steps of a reduction."""
    data = node.inputs[0]
    assert data is not None
    shape, element = shape_of(data), element_of(data)
    assert shape is not None and element is not None
    runs, order = runs_of(shape, axes, keepdims, borders_of(data)), None
    if _is_over_pixels_with_channels_last(lowerer, data, axes):
        order = _channels_last(len(shape))
        runs = Runs("KRK", (1, len(shape) - 2, 1), (1, len(shape) - 1 if keepdims else 1))
    elif _is_over_images_with_channels_last(lowerer, data, axes):
        order = _channels_last(len(shape))
        runs = Runs("RK", (len(shape) - 1, 1), (len(shape) if keepdims else 1,))
    elif _has_short_rows(runs, shape):
        order = (*range(runs.groups[0], len(shape)), *range(runs.groups[0]))
        runs = Runs("RK", runs.groups[::-1], runs.kept)
    source = lowerer.source(data, runs.groups, order)
    sizes = grouped_shape(shape if order is None else permuted(shape, order), runs.groups)
    sink = lowerer.sink(node, runs.kept)
    type = computed_type(op, element)
    reduction = Reduction(op, _FOLDS.get(op, "add"), type, runs.kinds, source.chain, sink.chain)
    fold_steps(lowerer, reduction, source, sink, sizes)


def fold_steps(lowerer: Lowerer, reduction: Reduction, source: Source, sink: Sink, sizes: Sequence[Dim]) -> None:
    """Add the steps that fold a source of some sizes into a sink."""
    count = dim.product(size for kind, size in zip(reduction.runs, sizes) if kind == "R")
    if _is_worth_sharing(reduction, sizes):
        _in_two_steps(lowerer, reduction, source, sink, sizes, count)
    else:
        add_step(lowerer, reduction, source.arguments, sink.arguments, sizes, count)


def _is_over_pixels_with_channels_last(lowerer: Lowerer, data: Value, axes: frozenset[int]) -> bool:
    """Whether whole images become one element per channel, and channels lie in a row: pixels are then added up in vectors of channels."""
    rank = len(shape_of(data) or ())
    if rank < 4 or axes != frozenset(range(2, rank)):
        return False
    strides = lowerer.view(data).strides
    return strides[1] == 1 and strides[-1] != 1


def _is_over_images_with_channels_last(lowerer: Lowerer, data: Value, axes: frozenset[int]) -> bool:
    """The same where all images together become one element per channel, as statistics of batches do."""
    rank = len(shape_of(data) or ())
    return rank > 2 and axes == frozenset(range(rank)) - {1} and lowerer.memory_order(data) == _channels_last(rank)


def _channels_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def _has_short_rows(runs: Runs, shape: Dims) -> bool:
    """Whether rows are so short that vectors are better filled with the results of many rows."""
    length = dim.product(shape[runs.groups[0] :]) if runs.kinds == "KR" else 0
    return isinstance(length, int) and 0 < length <= SHORT_ROW and dim.product(shape[: runs.groups[0]]) != 1


def _is_worth_sharing(reduction: Reduction, sizes: Sequence[Dim]) -> bool:
    """Whether there are so few results that threads must share the elements of each."""
    if reduction.op == "LogSumExp" or reduction.in_order:
        return False
    if reduction.runs == "RK":
        return isinstance(sizes[1], int) and sizes[1] <= NARROW and not _is_small(sizes[0], 2 * CHUNK_ROWS)
    if reduction.runs not in ("R", "KR"):
        return False
    results = dim.product(sizes[:-1])
    return isinstance(results, int) and results <= FEW_RESULTS and not _is_small(sizes[-1], 2 * CHUNK)


def _is_small(size: Dim, limit: int) -> bool:
    return isinstance(size, int) and size < limit


def _in_two_steps(lowerer: Lowerer, reduction: Reduction, source: Source, sink: Sink, sizes: Sequence[Dim], count: Dim) -> None:
    """Fold chunks first, then what they gave."""
    rows = reduction.runs == "RK"
    chunks = dim.ceildiv(sizes[0 if rows else -1], CHUNK_ROWS if rows else CHUNK)
    shape = (chunks, sizes[1]) if rows else (*sizes[:-1], chunks)
    type = reduction.type if rows else reduction.fold.total_type
    parts = View(lowerer.scratch(dim.product(shape) * type.bytes), type, shape, contiguous_strides(shape))
    arguments = stride_arguments(parts, parts.strides)
    kinds = pattern(parts.strides)
    stored = Chain(len(shape), (Given(type),), (Store(0, type, kinds),))
    first = Reduction(reduction.op, reduction.how, reduction.type, reduction.runs, source.chain, stored, makes_parts=True)
    add_step(lowerer, first, source.arguments, arguments, sizes, count, chunks)
    loaded = Chain(len(shape), (Load(type, kinds),), ())
    second = Reduction(reduction.op, reduction.how, type, reduction.runs, loaded, sink.chain, takes_parts=True)
    add_step(lowerer, second, arguments, sink.arguments, shape, count)


def add_step(
    lowerer: Lowerer,
    reduction: Reduction,
    source: Sequence[Argument],
    sink: Sequence[Argument],
    sizes: Sequence[Dim],
    count: Dim,
    chunks: Dim | None = None,
) -> None:
    """Add one step; with `chunks` it makes parts of results."""
    total = dim.product(sizes)
    arguments: ReduceRowsArguments
    if reduction.runs[-1] == "R":
        kernel, kept = reduce_rows_kernel(lowerer.target, reduction), _kept_product(reduction.runs, sizes)
        items = kept * (1 if chunks is None else chunks)
        arguments = ReduceRowsArguments(sizes=sizes, count=count, chunks=chunks, source=source, sink=sink)
    else:
        width = _strip_width(sizes)
        strips = dim.ceildiv(sizes[-1], width)
        kernel, kept = reduce_strips_kernel(lowerer.target, reduction), _kept_product(reduction.runs[:-1], sizes)
        items = kept * (1 if chunks is None else chunks) * strips
        arguments = ReduceStripsArguments(
            sizes=sizes, count=count, chunks=chunks, source=source, sink=sink, strips=strips, width=width
        )
    each = dim.floordiv(total, dim.maximum(1, items))
    grain = dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, each)))
    load = sum(item.type.bytes for item in reduction.source.items if isinstance(item, Load))
    lowerer.call(kernel, arguments, items, grain, flops=total, traffic=total * load)


def _kept_product(runs: str, sizes: Sequence[Dim]) -> Dim:
    """How many elements the kept axes among some runs have."""
    return dim.product(size for kind, size in zip(runs, sizes) if kind == "K")


def _strip_width(sizes: Sequence[Dim]) -> Dim:
    """How many results are done at a time: a few strips for the threads to share, in whole cache lines."""
    return dim.minimum(STRIP, dim.maximum(64, dim.ceildiv(dim.ceildiv(sizes[-1], 1), 64) * 64))
