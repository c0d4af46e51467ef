"""Filters in the order in which kernels of convolutions read them, packed by generated code: when a node is lowered, if they are constant.

A panel holds, for each tap and channel, as many filters side by side as a register tile is wide. Winograd's filters have points for taps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np

from sardonyx.compiler.builder import Value as Register
from sardonyx.compiler.types import F64, I64, Type, of_elements
from sardonyx.dtypes import from_numpy
from sardonyx.ir import Value, dim
from sardonyx.providers.native.execution.immediate import memory_of, run_now
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.kernels.conv.tiles import grain_for
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides, regrouped
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass

FILTERS = PackedFormat("filters")
CHANNELS = 16
"""How many channels of a panel are made in a row: what is read and what is written comes in pieces that are not too small."""
PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""


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
    form = PanelForm(source, type, width, False, tuple(tuple(tuple(map(float, row)) for row in matrix) for matrix in matrices))
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
    items, grain = groups * panels * _blocks(channels), max(1, PIECE_ELEMENTS // (points * width * CHANNELS))
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

    def panels(self, lowerer: Lowerer, geometry: Geometry, width: int, type: Type) -> tuple[Buffer, Buffer]:
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


def _bias_panels(lowerer: Lowerer, B: Value | None, geometry: Geometry, width: int, type: Type) -> Buffer:
    """A bias as filters of one tap and channel."""
    if B is None:
        return lowerer.constant(np.zeros(geometry.groups * -(-geometry.filters // width) * width, f"f{type.bytes}"))
    return _panels_step(lowerer, lowerer.contiguous(B), geometry.groups, width, type)


def pack_bias(bias: np.ndarray | None, groups: int, filters: int, width: int, dtype: np.dtype) -> np.ndarray:
    """(M,) as (groups, panels, width)."""
    panels = -(-filters // width)
    packed = aligned_empty((groups, panels * width), dtype)
    packed[...] = 0
    if bias is not None:
        packed[:, :filters] = bias.reshape(groups, filters)
    return packed


def _blocks(channels: int) -> int:
    return -(-channels // CHANNELS)


def _strides_of(view: View) -> Dims | None:
    """From filter to filter, from channel to channel and from tap to tap; None if taps do not lie evenly."""
    missing = (0,) * max(0, 2 - len(view.shape))  # a bias has neither channels nor taps
    return regrouped((*view.shape, *(1 for _ in missing)), (*view.strides, *missing), (1, 1, max(0, len(view.shape) - 2)))


def _panels_step(lowerer: Lowerer, view: View, groups: int, width: int, type: Type) -> Buffer:
    """Filters that a step packs in each run."""
    count, channels, *kernel = (*(int(size) for size in view.shape), 1, 1)[: max(3, len(view.shape))]  # type: ignore[arg-type]
    taps, panels = int(np.prod(kernel)), -(-(count // groups) // width)
    strides = _strides_of(view)
    assert strides is not None
    panel_size = channels * width * taps
    buffer = lowerer.scratch(groups * panels * panel_size * type.bytes)
    by_channel = all(isinstance(stride, int) for stride in strides) and abs(int(strides[1])) > abs(int(strides[0]))  # type: ignore[arg-type]
    lowerer.call(
        panels_kernel(lowerer.target, PanelForm(view.type, type, width, by_channel)),
        PanelArguments(
            source=view.place,
            target=buffer,
            count=count // groups,
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
        with f.loop(begin, f.minimum(begin + CHANNELS, a.channels)) as channel:
            _panel_row(f, a, form, number, panel, channel)


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
        mask = f.first_lanes(f.maximum(a.count - first - column, 0), lanes)
        indices = (f.iota(I64, lanes) + column) * f.splat(a.filter_stride, lanes)

        def tap(number: Register | int, mask: Register = mask, indices: Register = indices) -> Register:
            source = f.address(a.source, start + a.tap_stride * number, form.source)
            return f.gather(source, indices, form.source, mask=mask, align=1)

        if form.matrices:
            _transform(f, form, tap, f.address(target, column, form.target), a.tap_step)
        else:
            with f.loop(0, a.taps) as index:
                f.store(tap(index), target, index * a.tap_step + column, form.target)


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
