"""Lowerings of ops that handle rows: the softmax family and normalizations. The table of lowerings holds them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sardonyx.compiler.types import F16, Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.checking import signature_of
from sardonyx.ops.reading import operand
from sardonyx.providers.native.kernels.normalization.norm_kernel import (
    ChainArguments,
    CountOnesArguments,
    Lookup,
    LookupArguments,
    Norm,
    NormArguments,
    count_ones_kernel,
    norm_kernel,
)
from sardonyx.providers.native.kernels.normalization.softmax_kernel import (
    STRIP,
    SoftmaxArguments,
    softmax_down_kernel,
    softmax_kernel,
)
from sardonyx.providers.native.kernels.reduction.domain import (
    broadcast_source,
    epsilon_of,
    is_float,
    outer_groups,
    row_grain,
    strip_arguments,
    wanted,
)
from sardonyx.providers.native.kernels.reduction.passes import stage_memory, streamed_rows
from sardonyx.providers.native.program.chain import Chain, Given, Load, Store, pattern, stride_arguments
from sardonyx.providers.native.program.chain_lowering import Sink, Source
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import computed, dims, element_of, may_equal, may_have_shape, required, stored
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, grouped_shape
from sardonyx.startup.records import dataclass

# --- softmax --------------------------------------------------------------------------------------------------------


@lower("Softmax", "LogSoftmax", since=13, claims=is_float)
def softmax(lowerer: Lowerer, node: Node) -> None:
    value = required(node.inputs[0])
    rank = len(dims(value))
    axis = int(operand(node, "axis")) % max(rank, 1)
    # trailing axes of size 1 don't keep a row from being one
    if dim.product(dims(value)[axis + 1 :]) == 1:
        softmax_rows(lowerer, node, axis)
    else:
        softmax_down(lowerer, node, axis)


@lower("Softmax", "LogSoftmax", until=12, claims=is_float)
def softmax_flattened(lowerer: Lowerer, node: Node) -> None:
    """Up to opset 12 the axes from `axis` on were one flat row."""
    rank = len(dims(required(node.inputs[0])))
    axis = int(operand(node, "axis"))
    softmax_rows(lowerer, node, axis + rank if axis < 0 else axis)


def _rounds_each_step(node: Node) -> bool:
    """Softmax in float16 is rounded after every step from opset 13 on, as the standard's suite has it."""
    return node.op_type == "Softmax" and element_of(required(node.inputs[0])) == F16 and signature_of(node).since_version >= 13


def softmax_rows(lowerer: Lowerer, node: Node, axis: int) -> None:
    value = required(node.inputs[0])
    groups = (*outer_groups(value, axis), len(dims(value)) - axis)
    source = lowerer.source(value, groups)
    sink = lowerer.sink(node, groups)
    written = streamed_rows(lowerer, sink)
    *outer, columns = sink.shape
    rows, type = dim.product(outer), computed(value)
    lowerer.call(
        softmax_kernel(lowerer.target, source.chain, written, type, node.op_type == "LogSoftmax", _rounds_each_step(node)),
        SoftmaxArguments(
            columns=columns,
            source=source.arguments,
            sink=sink.arguments,
            outer=outer[1:],
            stage=stage_memory(lowerer, written, type, rows, columns),
        ),
        rows,
        row_grain(columns),
        flops=rows * columns * 12,
        traffic=rows * columns * 2 * type.bytes,
    )


def softmax_down(lowerer: Lowerer, node: Node, axis: int) -> None:
    value = required(node.inputs[0])
    view = lowerer.known_view(value)
    if view is not None and view.strides[-1] != 1 and view.shape[-1] != 1:
        lowerer.contiguous(value)  # all passes read whole vectors then
    groups = (axis, 1, len(dims(value)) - axis - 1)
    source = lowerer.source(value, groups)
    sink = lowerer.sink(node, groups)
    outer, rows, columns = sink.shape
    type = computed(value)
    arguments = strip_arguments(source, sink, rows, STRIP)
    lowerer.call(
        softmax_down_kernel(lowerer.target, source.chain, sink.chain, type, node.op_type == "LogSoftmax"),
        arguments,
        outer * arguments.strips,
        row_grain(rows * arguments.width),
        flops=outer * rows * columns * 20,
        traffic=outer * rows * columns * 2 * type.bytes,
    )


# --- normalizations along rows --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """The operands of a normalization in the domain of its rows."""

    sources: Sequence[Source]
    sink: Sink
    scale: Source | None = None
    bias: Source | None = None
    total: Sink | None = None
    mean: View | None = None
    inverse: View | None = None
    lookups: Sequence[tuple[Lookup, LookupArguments]] = ()
    """If the sources are tables, how a row of each is found, and what that needs."""


def normalize(
    lowerer: Lowerer,
    node: Node,
    form: str,
    axis: int,
    terms: Sequence[Value | None],
    *,
    scale: Value | None = None,
    bias: Value | None = None,
    epsilon: float = 0.0,
    mean: Value | None = None,
    inverse: Value | None = None,
    total: int | None = None,
) -> None:
    """Add the step that normalizes the sum of `terms` over the axes from `axis` on; `total` is the output that gets that sum."""
    summed = [term for term in terms if term is not None]
    shape = dims(summed[0])  # that of the output may be declared where this one is open
    others = [operand for operand in (*summed[1:], scale, bias) if operand is not None]
    groups = (*outer_groups(summed[0], axis, others), len(shape) - axis)
    sources = [_repeated_source(lowerer, term, shape, groups) for term in summed]
    factor, shift = (
        None if operand is None else _repeated_source(lowerer, operand, shape, groups) for operand in (scale, bias)
    )
    total_sink = None if total is None else lowerer.sink(node, groups, total)
    sink = lowerer.sink(node, groups)
    means, inverses = (None if value is None else lowerer.output(value) for value in (mean, inverse))
    rows = Rows(sources, sink, factor, shift, total_sink, means, inverses)
    norm_step(lowerer, form, computed(summed[0]), epsilon, rows)


def _repeated_source(lowerer: Lowerer, value: Value, shape: Dims, groups: Sequence[int]) -> Source:
    """An operand that is repeated along axes of size 1. Its other sizes are those of the shape, or NumPy computes the run."""
    own = _padded(dims(value), len(shape))
    for size, wanted_size in zip(own, shape):
        if size != 1:
            lowerer.require(size, wanted_size)
    known = tuple(wanted_size if size == 1 else size for size, wanted_size in zip(own, shape))
    return broadcast_source(lowerer, value, known, groups)


def _padded(sizes: Dims, rank: int) -> Dims:
    return (1,) * (rank - len(sizes)) + sizes


def norm_step(lowerer: Lowerer, form: str, type: Type, epsilon: float, rows: Rows) -> None:
    """Add the step that normalizes rows."""
    *outer, columns = rows.sink.shape
    count = dim.product(outer)
    written = streamed_rows(lowerer, rows.sink)
    norm = Norm(
        form,
        type,
        tuple(source.chain for source in rows.sources),
        written,
        scale=None if rows.scale is None else rows.scale.chain,
        bias=None if rows.bias is None else rows.bias.chain,
        total=None if rows.total is None else rows.total.chain,
        mean=None if rows.mean is None else rows.mean.type,
        inverse=None if rows.inverse is None else rows.inverse.type,
        lookups=tuple(lookup for lookup, _ in rows.lookups),
    )
    arguments = NormArguments(
        columns=columns,
        outer=outer[1:],
        epsilon=float(epsilon),
        stage=stage_memory(lowerer, written, type, count, columns),
        sources=[ChainArguments(operands=source.arguments) for source in rows.sources],
        lookups=[own for _, own in rows.lookups],
        status=lowerer.status() if rows.lookups else None,
        scale=[] if rows.scale is None else rows.scale.arguments,
        bias=[] if rows.bias is None else rows.bias.arguments,
        total=[] if rows.total is None else rows.total.arguments,
        mean=None if rows.mean is None else rows.mean.place,
        inverse=None if rows.inverse is None else rows.inverse.place,
        sink=rows.sink.arguments,
    )
    moved = len(rows.sources) + 1 + (rows.total is not None)
    lowerer.call(
        norm_kernel(lowerer.target, norm),
        arguments,
        count,
        row_grain(columns),
        flops=count * columns * 7,
        traffic=count * columns * type.bytes * moved,
    )


def normalize_axes(lowerer: Lowerer, node: Node, form: str, axes: Sequence[int], epsilon: float) -> None:
    """The same over any axes: where they are not the last ones, a copy in which they are is normalized and looked at in the old order."""
    value = required(node.inputs[0])
    shape = dims(value)
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    order = [*kept, *sorted(axes)]
    if order == sorted(order):
        normalize(lowerer, node, form, len(kept), [value], epsilon=epsilon)
        return
    view = lowerer.view(value).transposed(order)
    strides = contiguous_strides(view.shape)
    copy, result = (
        View(lowerer.scratch(dim.product(shape) * type.bytes), type, view.shape, strides)
        for type in (view.type, stored(node.outputs[0]))
    )
    lowerer.copy(view, copy)
    groups = (len(kept), len(axes))
    sizes = grouped_shape(view.shape, groups)
    steps = contiguous_strides(sizes)
    kinds = pattern(steps)
    source = Source(Chain(2, (Load(copy.type, kinds),), ()), stride_arguments(copy, steps))
    sink = Sink(sizes, Chain(2, (Given(result.type),), (Store(0, result.type, kinds),)), stride_arguments(result, steps))
    norm_step(lowerer, form, computed(value), epsilon, Rows([source], sink))
    back = [order.index(axis) for axis in range(len(shape))]
    lowerer.set_view(node.outputs[0], result.transposed(back))


def _axis(node: Node) -> int:
    return int(operand(node, "axis")) % len(dims(required(node.inputs[0])))


def _fits(value: Value | None, shape: Dims, axis: int) -> bool:
    """Whether an operand is one number, or one for each column of the rows that begin at `axis`, or as large as the whole.

    Sizes that are open are compared in each run.
    """
    if value is None:
        return True
    if len(dims(value)) > len(shape):
        return False
    pairs = list(zip(_padded(dims(value), len(shape)), shape))
    outer_fits = all(size == 1 or may_equal(size, other) for size, other in pairs[:axis])
    has_rows = all(size == other or (size != 1 and may_equal(size, other)) for size, other in pairs[axis:])
    return outer_fits and (has_rows or all(size == 1 for size, _ in pairs[axis:]))


def _claims_layer(node: Node) -> bool:
    value = required(node.inputs[0])
    shape = dims(value)
    if not is_float(node) or not shape or computed(value) != computed(node.outputs[0]):
        return False
    return all(_fits(operand, shape, _axis(node)) for operand in node.inputs[1:3])


@lower("LayerNormalization", claims=_claims_layer)
def layer_normalization(lowerer: Lowerer, node: Node) -> None:
    X, scale, bias = (*node.inputs, None)[:3]
    normalize(
        lowerer,
        node,
        "layer",
        _axis(node),
        [X],
        scale=scale,
        bias=bias,
        epsilon=epsilon_of(node, computed(required(X))),
        mean=wanted(node, 1),
        inverse=wanted(node, 2),
    )


@lower("RMSNormalization", "SimplifiedLayerNormalization", claims=_claims_layer)
def rms_normalization(lowerer: Lowerer, node: Node) -> None:
    X, scale = node.inputs[:2]
    epsilon = epsilon_of(node, computed(required(X)))
    normalize(lowerer, node, "rms", _axis(node), [X], scale=scale, epsilon=epsilon, inverse=wanted(node, 1))


def _claims_skip(node: Node) -> bool:
    shape = dims(required(node.inputs[0]))
    axis = len(shape) - 1
    return bool(shape) and is_float(node) and all(_fits(operand, shape, axis) for operand in node.inputs[1:])


@lower("SkipLayerNormalization", domain="com.microsoft", claims=_claims_skip)
def skip_layer_normalization(lowerer: Lowerer, node: Node) -> None:
    input, skip, gamma, beta, bias = (*node.inputs, None, None)[:5]
    _skip_normalization(lowerer, node, "layer", [input, skip, bias], gamma, beta)


@lower("SkipSimplifiedLayerNormalization", domain="com.microsoft", claims=_claims_skip)
def skip_simplified_layer_normalization(lowerer: Lowerer, node: Node) -> None:
    input, skip, gamma, bias = (*node.inputs, None)[:4]
    _skip_normalization(lowerer, node, "rms", [input, skip, bias], gamma, None)


def _skip_normalization(
    lowerer: Lowerer, node: Node, form: str, terms: Sequence[Value | None], gamma: Value | None, beta: Value | None
) -> None:
    normalize(
        lowerer,
        node,
        form,
        len(dims(node.outputs[0])) - 1,
        terms,
        scale=gamma,
        bias=beta,
        epsilon=epsilon_of(node, computed(node.outputs[0])),
        mean=wanted(node, 1) if form == "layer" else None,
        inverse=wanted(node, 2),
        total=3 if wanted(node, 3) is not None else None,
    )


# --- others over axes -----------------------------------------------------------------------------------------------


@lower("MeanVarianceNormalization", claims=is_float)
def mean_variance_normalization(lowerer: Lowerer, node: Node) -> None:
    value = required(node.inputs[0])
    rank = len(dims(value))
    axes = sorted({int(axis) % rank for axis in operand(node, "axes")})
    # the epsilon of the op's function body
    normalize_axes(lowerer, node, "deviation", axes, 1e-9 if computed(value).bits == 64 else float(np.float32(1e-9)))


def _claims_lp(node: Node) -> bool:
    return is_float(node) and operand(node, "p") in (1, 2) and bool(dims(required(node.inputs[0])))


@lower("LpNormalization", claims=_claims_lp)
def lp_normalization(lowerer: Lowerer, node: Node) -> None:
    normalize_axes(lowerer, node, f"l{operand(node, 'p')}", [_axis(node)], 0.0)


# --- embeddings -----------------------------------------------------------------------------------------------------


def _claims_embed(node: Node) -> bool:
    """Ids of one shape, tables of one width, as far as these are known."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = (*node.inputs, *(None,) * 9)[:9]
    if (segments is None) != (kinds is None) or (mask is not None and len(dims(mask)) != 2):
        return False
    if any(dims(table)[0] == 0 for table in (required(words), required(positions), kinds) if table is not None):
        return False
    shape = dims(required(ids))
    width = dims(required(words))[1:]
    if not all(may_have_shape(dims(table)[1:], width) for table in (required(positions), kinds) if table is not None):
        return False
    fits = places is None or _covers(dims(places), shape)
    vectors = all(may_have_shape(dims(required(vector)), width) for vector in (gamma, beta))
    return fits and vectors and (segments is None or may_have_shape(dims(segments), shape))


def _covers(places: Dims, shape: Dims) -> bool:
    """Whether there may be positions for ids of a shape: for each, or for one row of them."""
    return len(places) == 2 and (places[0] == 1 or may_equal(places[0], shape[0])) and may_equal(places[1], shape[1])


@lower("EmbedLayerNormalization", domain="com.microsoft", claims=_claims_embed)
def embed_layer_normalization(lowerer: Lowerer, node: Node) -> None:
    """Rows of up to three tables, added up and normalized."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = (*node.inputs, *(None,) * 9)[:9]
    batch, length = dims(required(ids))
    shape, groups = dims(node.outputs[0]), (2, 1)
    _require_fit(lowerer, shape, (words, positions, kinds), (gamma, beta), (segments, mask))
    lookups = [_lookup(lowerer, words, ids, None)]
    period: Dim | None = length
    if places is not None:
        lowerer.require(dims(places)[1], length)
        row_count = lowerer.require_fit(dims(places)[0], batch)
        period = None if row_count == batch else row_count * length
    lookups.append(_lookup(lowerer, positions, places, period))
    tables = [words, positions]
    if kinds is not None:
        lookups.append(_lookup(lowerer, kinds, segments, None))
        tables.append(kinds)
    for table in tables:
        pending = lowerer.pending_node(required(table))
        if pending is None or pending.op_type != "DequantizeLinear":  # of that the rows alone are computed
            lowerer.contiguous(required(table))
    sources = [lowerer.source(required(table), (1, 1)) for table in tables]
    factor, shift = (broadcast_source(lowerer, required(vector), shape, groups) for vector in (gamma, beta))
    total = None if wanted(node, 2) is None else lowerer.sink(node, groups, 2)
    rows = Rows(sources, lowerer.sink(node, groups), factor, shift, total, lookups=lookups)
    norm_step(lowerer, "layer", computed(node.outputs[0]), epsilon_of(node, computed(node.outputs[0])), rows)
    if wanted(node, 1) is not None:
        size = 0 if mask is None else dims(mask)[1]
        arguments = CountOnesArguments(
            mask=None if mask is None else lowerer.contiguous(mask).place,
            columns=size,
            target=lowerer.output(node.outputs[1]).place,
        )
        lowerer.call(count_ones_kernel(lowerer.target, mask is not None), arguments, batch, row_grain(size))


def _require_fit(
    lowerer: Lowerer,
    shape: Dims,
    tables: Sequence[Value | None],
    vectors: Sequence[Value | None],
    others: Sequence[Value | None],
) -> None:
    """Tables of one width that have rows, vectors as wide, and others of the shape of ids."""
    for table in tables:
        if table is not None:
            rows, width = dims(table)
            lowerer.require(width, shape[2])
            lowerer.require(dim.maximum(1, rows), rows)
    for vector in vectors:
        lowerer.require_shape(dims(required(vector)), shape[2:])
    for other in others:
        if other is not None:
            lowerer.require_shape(dims(other), shape[:2])


def _lookup(lowerer: Lowerer, table: Value | None, indices: Value | None, period: Dim | None) -> tuple[Lookup, LookupArguments]:
    arguments = LookupArguments(
        size=dims(required(table))[0],
        indices=None if indices is None else lowerer.contiguous(indices).place,
        period=period,
    )
    return Lookup(None if indices is None else stored(indices), period is not None), arguments
