"""Filters in the order in which kernels of convolutions read them, packed by generated code: when a node is lowered, if they are constant.

A panel holds, for each tap and channel, as many filters side by side as a register tile is wide. Winograd's filters have points for taps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from sardonyx.compiler.builder import Value as Register
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.types import F64, I64, Type, of_elements
from sardonyx.compiler.values import Variable
from sardonyx.dtypes import from_numpy
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.execution.immediate import memory_of, run_now
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.kernels.conv.tiles import grain_for
from sardonyx.providers.native.kernels.shape.interleaving import taken_apart
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, regrouped
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass, replace

FILTERS = PackedFormat("filters")
CHANNELS = 16
"""How many channels of a panel are made in a row: what is read and what is written comes in pieces that are not too small."""
PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""
MOST_TAPS = 16
"""Up to so many taps filters that alternate with them are taken apart by shuffles."""


@dataclass(frozen=True)
class PanelForm:
    """What shapes the code."""

    source: Type
    target: Type
    width: int
    by_channel: bool = False
    """Whether channels lie farther apart in the source than filters. Then all panels of some channels are made before the next ones."""
    matrices: tuple[tuple[tuple[float, ...], ...], ...] = ()
    """If filters are transformed along one or two axes: the rows of the matrices."""
    along: str = ""
    """What lies without gaps in the source: "filters", "taps" (and channels behind them), "both" (filters, each with all its taps),
    or nothing."""
    turned: bool = False
    """Whether taps lie from the last to the first."""
    taps: int = 0
    """How many taps there are, where filters are taken apart."""


def pack_panels(
    lowerer: Lowerer,
    weights: np.ndarray,
    groups: int,
    width: int,
    type: Type,
    matrices: Sequence[np.ndarray] = (),
    apart: bool = False,
) -> np.ndarray:
    """(M, C, …) as (groups, panels, taps, C, width), with points for taps if they are transformed; `apart` puts these before panels.

    What is missing in a panel is 0.
    """
    weights = np.ascontiguousarray(weights)
    count, channels = weights.shape[0] // groups, weights.shape[1]
    taps = int(np.prod(weights.shape[2:]))
    panels = -(-count // width)
    points = math.prod(len(matrix) for matrix in matrices) if matrices else taps
    shape = (groups, points, panels, channels, width) if apart else (groups, panels, points, channels, width)
    packed = lowerer.weights.empty(shape, f"f{type.bytes}")
    source = of_elements(from_numpy(weights.dtype))
    assert source is not None
    rows = tuple(tuple(tuple(map(float, row)) for row in matrix) for matrix in matrices)
    form = PanelForm(source, type, width, False, rows, along="" if rows else "taps")
    arguments = PanelArguments(
        source=memory_of(weights),
        target=memory_of(packed),
        count=count,
        channels=channels,
        taps=taps,
        panels=panels,
        filter_stride=channels * taps,
        channel_stride=taps,
        tap_stride=1,
        tap_step=channels * width * (panels if apart else 1),
        panel_step=channels * width * (1 if apart else points),
        group_step=points * panels * channels * width,
    )
    items, grain = groups * panels * -(-channels // CHANNELS), max(1, PIECE_ELEMENTS // (points * width * CHANNELS))
    run_now(panels_kernel(lowerer.target, form), arguments, items=items, grain=grain)
    return packed


@dataclass(frozen=True)
class Filters:
    """The filters of a convolution and its bias, on their way into panels."""

    W: Value
    B: Value | None = None
    arrangement: tuple[Hashable, ...] = ()
    """How the filters are made of W, if not as they are."""
    arrange: Callable[[np.ndarray], np.ndarray] | None = None
    """The same as a function of W's array: (M, C, …)."""
    arrange_view: Callable[[View], View] | None = None
    """The same for filters that are computed: of a view of W without gaps, (…, C)."""

    def panels(self, lowerer: Lowerer, geometry: Geometry, width: int, type: Type) -> tuple[Pointer, Pointer]:
        """Filters and bias in panels: packed now if they may be, else by steps."""
        if not lowerer.can_pack(self.W):
            filters = _panels_step(lowerer, self._computed(lowerer), geometry.groups, width, type)
            return filters, _bias_panels(lowerer, self.B, geometry, width, type)
        known = self.B is not None and lowerer.can_pack(self.B)
        count = geometry.groups * -(-geometry.filters // width) * width * type.bytes
        filters, *bias = lowerer.packed(
            [self.W, self.B] if known and self.B is not None else [self.W],
            FILTERS,
            (self.arrangement, geometry.groups, width, str(type)),
            [count * geometry.channels * geometry.taps, *[count] * known],
            lambda *arrays: self._packed(lowerer, geometry.groups, width, type, *arrays),
        )
        return filters, bias[0] if known else _bias_panels(lowerer, self.B, geometry, width, type)

    def _computed(self, lowerer: Lowerer) -> View:
        """Filters of this run, (M, C, …); their taps lie evenly in memory, perhaps from the last to the first."""
        if self.arrange_view is None:
            view = lowerer.view(self.W)
            return view if _strides_of(view) is not None else lowerer.contiguous(self.W)
        view = self.arrange_view(lowerer.contiguous(self.W))
        bytes = dim.product(view.shape) * view.type.bytes
        made = View(lowerer.scratch(bytes), view.type, view.shape, contiguous_strides(view.shape))
        lowerer.copy(view, made)
        filters = made.reshaped((dim.product(view.shape[:-1]), view.shape[-1], 1))
        assert filters is not None
        return filters

    def _packed(
        self, lowerer: Lowerer, groups: int, width: int, type: Type, W: np.ndarray, B: np.ndarray | None = None
    ) -> list[np.ndarray]:
        weights = [W if self.arrange is None else self.arrange(W), *([] if B is None else [B.reshape(len(B), 1, 1)])]
        return [pack_panels(lowerer, array, groups, width, type) for array in weights]


def _bias_panels(lowerer: Lowerer, B: Value | None, geometry: Geometry, width: int, type: Type) -> Pointer:
    """A bias as filters of one tap and channel."""
    if B is None:
        return lowerer.zeros(geometry.groups * dim.ceildiv(geometry.filters, width) * width, type)
    return _panels_step(lowerer, lowerer.contiguous(B), geometry.groups, width, type)


def pack_bias(bias: np.ndarray | None, groups: int, filters: int, width: int, dtype: np.dtype) -> np.ndarray:
    """(M,) as (groups, panels, width)."""
    panels = -(-filters // width)
    packed = aligned_empty((groups, panels * width), dtype)
    packed[...] = 0
    if bias is not None:
        packed[:, :filters] = bias.reshape(groups, filters)
    return packed


def _blocks(channels: Dim) -> Dim:
    return dim.ceildiv(channels, CHANNELS)


def _strides_of(view: View) -> Dims | None:
    """From filter to filter, from channel to channel and from tap to tap; None if taps do not lie evenly."""
    missing = (0,) * max(0, 2 - len(view.shape))  # a bias has neither channels nor taps
    return regrouped((*view.shape, *(1 for _ in missing)), (*view.strides, *missing), (1, 1, max(0, len(view.shape) - 2)))


def _panels_step(lowerer: Lowerer, view: View, groups: int, width: int, type: Type) -> Buffer:
    """Filters that a step packs in each run."""
    count, channels, *kernel = (*view.shape, 1, 1)[: max(3, len(view.shape))]
    count = dim.floordiv(count, groups)  # of a group
    taps, panels = dim.product(kernel), dim.ceildiv(count, width)
    strides = _strides_of(view)
    assert strides is not None
    panel_size = channels * width * taps
    buffer = lowerer.scratch(groups * panels * panel_size * type.bytes)
    lowerer.call(
        panels_kernel(lowerer.target, _form_of(view.type, type, width, taps, strides)),
        PanelArguments(
            source=view.place,
            target=buffer,
            count=count,
            channels=channels,
            taps=taps,
            panels=panels,
            filter_stride=strides[0],
            channel_stride=strides[1],
            tap_stride=strides[2],
            tap_step=channels * width,
            panel_step=panel_size,
            group_step=panels * panel_size,
        ),
        groups * panels * _blocks(channels),
        grain_for(taps * width * 8 * CHANNELS),
    )
    return buffer


def _form_of(source: Type, target: Type, width: int, taps: Dim, strides: Dims) -> PanelForm:
    """How filters are read that lie so far apart, as their channels and taps do."""
    if strides[0] == 1 and not isinstance(strides[1], int):
        return PanelForm(source, target, width, by_channel=True, along="filters")
    if not isinstance(taps, int) or not all(isinstance(stride, int) for stride in strides):
        return PanelForm(source, target, width)
    by_filter, by_channel, by_tap = (int(stride) for stride in strides)  # type: ignore[arg-type]
    form = PanelForm(source, target, width, abs(by_channel) > abs(by_filter))
    if by_filter == 1:
        return replace(form, along="filters")
    is_even = taps == 1 or abs(by_tap) == 1
    if by_channel == taps and is_even and (taps == 1 or by_tap == 1):
        return replace(form, along="taps")
    if by_filter == taps and 1 < taps <= MOST_TAPS and is_even:
        return replace(form, along="both", turned=by_tap < 0, taps=taps)
    return form


class PanelArguments(Arguments):
    source: Pointer
    target: Pointer
    count: Size
    """Filters of a group."""
    channels: Size
    taps: Size
    panels: Size
    """Of a group."""
    filter_stride: Size
    """In the source, as those that follow."""
    channel_stride: Size
    tap_stride: Size
    tap_step: Size
    """From tap to tap, or from point to point, in the target."""
    panel_step: Size
    group_step: Size


@kernel("filters", PanelArguments)
def panels_kernel(f: KernelFunction, a: PanelArguments, form: PanelForm) -> None:
    """Items are some channels of panels."""
    blocks = (a.channels + (CHANNELS - 1)) // CHANNELS
    with f.loop(f.begin, f.end) as item:
        number, rest = item // (blocks * a.panels), item % (blocks * a.panels)
        panel = rest % a.panels if form.by_channel else rest // blocks
        block = rest // a.panels if form.by_channel else rest % blocks
        begin = block * CHANNELS
        end = f.minimum(begin + CHANNELS, a.channels)
        if form.along == "taps":
            _panel_squares(f, a, form, number, panel, begin, end)
        else:
            with f.loop(begin, end) as channel:
                _panel_row(f, a, form, number, panel, channel)


def _panel_squares(
    f: KernelFunction, a: PanelArguments, form: PanelForm, number: Register, panel: Register, begin: Register, end: Register
) -> None:
    """Some channels of all filters in a panel, as many filters and elements at a time as a vector has lanes."""
    lanes = math.gcd(f.lanes(form.target), form.width)
    first, length = panel * form.width, (end - begin) * a.taps
    whole = (length // lanes) * lanes
    place = number * a.group_step + panel * a.panel_step + begin * form.width
    for column in range(0, form.width, lanes):
        count = f.minimum(f.maximum(a.count - first - column, 0), lanes)
        filters = [f.minimum(number * a.count + first + column + row, (number + 1) * a.count - 1) for row in range(lanes)]
        starts = [filter * a.filter_stride + begin * a.channel_stride for filter in filters]
        rows = [f.address(a.source, start, form.source) for start in starts]
        target = f.address(a.target, place + column, form.target)
        mask = f.first_lanes(count, lanes)
        channel, tap = f.variable(0, I64), f.variable(0, I64)

        with f.loop(0, whole, lanes) as element:
            vectors = transposed(f, [f.load(row, element, form.source, lanes, align=1) for row in rows])
            for vector in vectors:
                _put(f, a, form, target, f.select(mask, vector, 0), channel, tap)
        with f.if_(whole < length):
            rest = length - whole
            vectors = transposed(f, [f.load(row, whole, form.source, lanes, remaining=rest, align=1) for row in rows])
            for index, vector in enumerate(vectors[:-1]):
                with f.if_(rest > index):
                    _put(f, a, form, target, f.select(mask, vector, 0), channel, tap)


def _put(
    f: KernelFunction,
    a: PanelArguments,
    form: PanelForm,
    target: Register,
    vector: Register,
    channel: Variable,
    tap: Variable,
) -> None:
    """One element of all filters into its place, and on to the next."""
    f.store(vector, target, tap.get() * a.tap_step + channel.get() * form.width, form.target)
    following = tap.get() + 1
    is_last = following == a.taps
    tap.set(f.select(is_last, 0, following))
    channel.set(channel.get() + f.convert(is_last, I64))


def _panel_row(
    f: KernelFunction, a: PanelArguments, form: PanelForm, number: Register, panel: Register, channel: Register
) -> None:
    """A channel of all filters in a panel of the group with that number."""
    lanes = math.gcd(f.lanes(form.target), form.width)
    first = panel * form.width
    start = (number * a.count + first) * a.filter_stride + channel * a.channel_stride
    place = number * a.group_step + panel * a.panel_step + channel * form.width
    target = f.address(a.target, place, form.target)
    for column in range(0, form.width, lanes):
        left = f.maximum(a.count - first - column, 0)
        if form.along == "both":
            _alternating(f, a, form, start + column * form.taps, f.address(target, column, form.target), left)
            continue
        if form.along == "filters":
            with f.loop(0, a.taps) as index:
                place = start + a.tap_stride * index + column
                vector = f.load(a.source, place, form.source, lanes, remaining=left, align=1)
                f.store(vector, target, index * a.tap_step + column, form.target)
            continue
        mask = f.first_lanes(left, lanes)
        indices = (f.iota(I64, lanes) + column) * f.splat(a.filter_stride, lanes)

        def tap(number: Register | int, mask: Register = mask, indices: Register = indices) -> Register:
            source = f.address(a.source, start + a.tap_stride * number, form.source)
            return f.gather(source, indices, form.source, mask=mask, align=1)

        if form.matrices:
            _transform(f, form, tap, f.address(target, column, form.target), a.tap_step)
        else:
            with f.loop(0, a.taps) as index:
                f.store(tap(index), target, index * a.tap_step + column, form.target)


def _alternating(
    f: KernelFunction, a: PanelArguments, form: PanelForm, start: Register, target: Register, left: Register
) -> None:
    """A channel of as many filters as a vector has lanes, each of which has its taps side by side in the source."""
    lanes = math.gcd(f.lanes(form.target), form.width)
    source = f.address(a.source, start - (form.taps - 1 if form.turned else 0), form.source)
    length = left * form.taps
    places = [row * lanes for row in range(form.taps)]
    vectors = [f.load(source, place, form.source, lanes, remaining=f.maximum(length - place, 0), align=1) for place in places]
    for place in places:  # rows are too short for the machine to see what comes
        f.prefetch(source, place + form.width * form.taps, form.source)
    vectors = taken_apart(f, vectors)
    for tap, vector in enumerate(reversed(vectors) if form.turned else vectors):
        f.store(vector, target, a.tap_step * tap, form.target)


def _transform(
    f: KernelFunction, form: PanelForm, tap: Callable[[int], Register], target: Register, tap_step: Register
) -> None:
    """A filter at all points, in float64."""
    *outer, inner = form.matrices
    taps = len(inner[0])
    wide = [f.convert(tap(number), F64) for number in range(taps * (len(outer[0][0]) if outer else 1))]
    lines = [wide]
    if outer:
        columns = [_at_points(f, outer[0], wide[column::taps]) for column in range(taps)]
        lines = [[column[i] for column in columns] for i in range(len(outer[0]))]
    for i, line in enumerate(lines):
        for j, value in enumerate(_at_points(f, inner, line)):
            f.store(f.convert(value, form.target), target, tap_step * (i * len(inner) + j), form.target)


def _at_points(f: KernelFunction, matrix: Sequence[Sequence[float]], taps: list[Register]) -> list[Register]:
    totals = []
    for row in matrix:
        terms = [(factor, tap) for factor, tap in zip(row, taps) if factor]
        total = terms[0][1] * terms[0][0]
        for factor, tap in terms[1:]:
            total = f.fma(factor, tap, total)
        totals.append(total)
    return totals
