"""Tokens in the order of the experts that they chose, and back. The lowerings of mixtures of experts call it.

A token that chose k experts has k places in that order, its rows: those of the first expert come first. Rows are cut into bands, as the
kernel of products asks for them.
"""

from __future__ import annotations

from sardonyx.compiler.types import F32, I64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.linalg.tile_kernel import BAND_WORDS, BandsArguments
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, Size, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 8192
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class Groups:
    """Which rows there are."""

    experts: Dim
    k: int
    count: Dim
    """Of rows."""
    ends: Buffer
    """For each expert the row behind its last, as int64."""
    tokens: Buffer
    """For each row its token, as int64."""
    places: Buffer
    """For each token and each expert that it chose the row, as int64."""
    weights: Buffer
    """For each row its weight, as float32."""


class GroupArguments(Arguments):
    chosen: Pointer
    weights: Pointer
    rows: Size
    k: Size
    experts: Size
    ends: Pointer
    tokens: Pointer
    places: Pointer
    sorted_weights: Pointer


def grouped(lowerer: Lowerer, chosen: View, weights: View, experts: Dim) -> Groups:
    """The rows of tokens that chose experts (tokens, k)."""
    tokens, k = chosen.shape
    assert isinstance(k, int)
    count = tokens * k
    groups = Groups(
        experts,
        k,
        count,
        lowerer.scratch(experts * I64.bytes),
        lowerer.scratch(count * I64.bytes),
        lowerer.scratch(count * I64.bytes),
        lowerer.scratch(count * F32.bytes),
    )
    lowerer.call(
        group_kernel(lowerer.target),
        GroupArguments(
            chosen=chosen.place,
            weights=weights.place,
            rows=count,
            k=k,
            experts=experts,
            ends=groups.ends,
            tokens=groups.tokens,
            places=groups.places,
            sorted_weights=groups.weights,
        ),
        1,
        traffic=count * (4 * I64.bytes),
    )
    return groups


@kernel("group rows", GroupArguments)
def group_kernel(f: KernelFunction, a: GroupArguments) -> None:
    """Sort by counting: `ends` holds first how many rows experts have, then where these begin, at last where they end."""
    with f.loop(0, a.experts) as expert:
        f.store(0, a.ends, expert, I64)
    with f.loop(0, a.rows) as place:
        expert = f.load(a.chosen, place, I64)
        f.store(f.load(a.ends, expert, I64) + 1, a.ends, expert, I64)
    start = f.variable(0, I64)
    with f.loop(0, a.experts) as expert:
        rows = f.load(a.ends, expert, I64)
        f.store(start.get(), a.ends, expert, I64)
        start.set(start.get() + rows)
    with f.loop(0, a.rows) as place:
        expert = f.load(a.chosen, place, I64)
        row = f.load(a.ends, expert, I64)
        f.store(row + 1, a.ends, expert, I64)
        f.store(place // a.k, a.tokens, row, I64)
        f.store(row, a.places, place, I64)
        f.store(f.load(a.weights, place, F32), a.sorted_weights, row, F32)


# --- bands


class CutArguments(Arguments):
    ends: Pointer
    experts: Size
    height: Size
    bands: BandsArguments


def bands_of(lowerer: Lowerer, groups: Groups, height: int) -> BandsArguments:
    """The rows in bands of up to `height`, none of which has rows of two experts."""
    count = dim.floordiv(groups.count, height) + dim.minimum(groups.experts, groups.count)
    bands = BandsArguments(table=lowerer.scratch(count * (BAND_WORDS * I64.bytes)), count=count)
    record = CutArguments(ends=groups.ends, experts=groups.experts, height=height, bands=bands)
    lowerer.call(cut_kernel(lowerer.target), record, 1)
    return bands


@kernel("cut into bands", CutArguments)
def cut_kernel(f: KernelFunction, a: CutArguments) -> None:
    """Bands that are not needed have no rows."""
    band, start = f.variable(0, I64), f.variable(0, I64)

    def add(expert: object, first: object, rows: object) -> None:
        for word, number in enumerate((expert, first, rows)):
            f.store(number, a.bands.table, band.get() * BAND_WORDS + word, I64)  # type: ignore[arg-type]
        band.set(band.get() + 1)

    with f.loop(0, a.experts) as expert:
        end = f.load(a.ends, expert, I64)
        with f.loop(start.get(), end, a.height) as first:
            add(expert, first, f.minimum(end - first, a.height))
        start.set(end)
    with f.loop(band.get(), a.bands.count):
        add(0, 0, 0)


# --- rows of tokens


class TakeArguments(Arguments):
    source: Pointer
    stride: Size
    columns: Size
    tokens: Pointer
    target: Pointer
    target_stride: Size


def taken_rows(lowerer: Lowerer, tokens: View, groups: Groups, stride: Dim) -> View:
    """The rows of tokens (tokens, columns) as float32, `stride` apart from each other."""
    columns = tokens.shape[1]
    rows = View(lowerer.scratch(groups.count * stride * F32.bytes), F32, (groups.count, columns), (stride, 1))
    lowerer.call(
        take_kernel(lowerer.target, tokens.type),
        TakeArguments(
            source=tokens.place,
            stride=tokens.strides[0],
            columns=columns,
            tokens=groups.tokens,
            target=rows.place,
            target_stride=stride,
        ),
        groups.count,
        _grain(columns),
        traffic=groups.count * columns * (tokens.type.bytes + F32.bytes),
    )
    return rows


def _grain(columns: Dim) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, columns)))


@kernel("take rows", TakeArguments)
def take_kernel(f: KernelFunction, a: TakeArguments, type: Type) -> None:
    """Items are rows."""
    lanes = f.lanes(F32)
    with f.loop(f.begin, f.end) as row:
        source = f.address(a.source, f.load(a.tokens, row, I64) * a.stride, type)
        target = f.address(a.target, row * a.target_stride, F32)
        with f.loop(0, a.columns, lanes) as column:
            remaining = a.columns - column
            f.store(f.load(source, column, type, lanes, remaining=remaining), target, column, F32, remaining=remaining)


class MixArguments(Arguments):
    rows: Pointer
    stride: Size
    columns: Size
    places: Pointer
    k: Size
    sink: Operands = group(lambda chain: chain.slots)


def mix(lowerer: Lowerer, rows: View, groups: Groups, sink: Sink) -> None:
    """Add the step that sums up the weighed rows of each token."""
    tokens, columns = sink.shape
    lowerer.call(
        mix_kernel(lowerer.target, sink.chain),
        MixArguments(
            rows=rows.place,
            stride=rows.strides[0],
            columns=columns,
            places=groups.places,
            k=groups.k,
            sink=sink.arguments,
        ),
        tokens,
        _grain(columns),
        flops=groups.count * columns,
        traffic=groups.count * columns * F32.bytes,
    )


@kernel("mix rows", MixArguments)
def mix_kernel(f: KernelFunction, a: MixArguments, chain: Chain) -> None:
    """Items are tokens."""
    lanes = f.lanes(F32)
    code = ChainCode(f, chain, a.sink)
    with f.loop(f.begin, f.end) as token:
        target = code.row([token])
        with f.loop(0, a.columns, lanes) as column:
            remaining = a.columns - column
            total = f.variable(f.const(F32.vector(lanes), 0.0))
            with f.loop(0, a.k) as slot:
                row = f.address(a.rows, f.load(a.places, token * a.k + slot, I64) * a.stride, F32)
                total.set(total.get() + f.load(row, column, F32, lanes, remaining=remaining))
            target.emit(column, lanes, remaining, given=[total.get()])
