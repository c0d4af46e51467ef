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
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.providers.native.program.weights import aligned_empty
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass

FILTERS = PackedFormat("filters")
PIECE_ELEMENTS = 16384
"""How many elements are worth handing to another thread."""


@dataclass(frozen=True)
class PanelForm:
    """What shapes the code."""

    source: Type
    target: Type
    width: int
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
    form = PanelForm(source, type, width, tuple(tuple(tuple(map(float, row)) for row in matrix) for matrix in matrices))
    arguments = PanelArguments(
        source=memory_of(weights),
        target=memory_of(packed),
        count=count,
        channels=channels,
        taps=taps,
        panels=panels,
        tap_step=channels * width * (panels if apart else 1),
        panel_step=channels * width * (1 if apart else points),
        group_step=points * panels * channels * width,
    )
    items, grain = groups * panels * channels, max(1, PIECE_ELEMENTS // (points * width))
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
        """Filters of this run, (M, C, …) without gaps."""
        view = lowerer.contiguous(self.W)
        if self.arrange_view is None:
            return view
        view = self.arrange_view(view)
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


def _panels_step(lowerer: Lowerer, view: View, groups: int, width: int, type: Type) -> Buffer:
    """Filters that a step packs in each run."""
    count, channels, *kernel = (*(int(size) for size in view.shape), 1, 1)[: max(3, len(view.shape))]  # type: ignore[arg-type]
    taps, panels = int(np.prod(kernel)), -(-(count // groups) // width)
    panel_size = channels * width * taps
    buffer = lowerer.scratch(groups * panels * panel_size * type.bytes)
    lowerer.call(
        panels_kernel(lowerer.target, PanelForm(view.type, type, width)),
        PanelArguments(
            source=view.place,
            target=buffer,
            count=count // groups,
            channels=channels,
            taps=taps,
            panels=panels,
            tap_step=channels * width,
            panel_step=panel_size,
            group_step=panels * panel_size,
        ),
        groups * panels * channels,
        grain_for(taps * width * 8),
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
    tap_step: Size
    """From tap to tap, or from point to point, in the target."""
    panel_step: Size
    group_step: Size


@kernel("filters", PanelArguments)
def panels_kernel(f: KernelFunction, a: PanelArguments, form: PanelForm) -> None:
    """Items are channels of panels."""
    lanes = math.gcd(f.lanes(form.target), form.width)
    with f.loop(f.begin, f.end) as item:
        channel, rest = item % a.channels, item // a.channels
        panel, number = rest % a.panels, rest // a.panels
        first = panel * form.width
        start = f.address(a.source, ((number * a.count + first) * a.channels + channel) * a.taps, form.source)
        place = number * a.group_step + panel * a.panel_step + channel * form.width
        target = f.address(a.target, place, form.target)
        for column in range(0, form.width, lanes):
            mask = f.first_lanes(f.maximum(a.count - first - column, 0), lanes)
            indices = (f.iota(I64, lanes) + column) * f.splat(a.channels * a.taps, lanes)

            def tap(number: Register | int, mask: Register = mask, indices: Register = indices) -> Register:
                return f.gather(f.address(start, number, form.source), indices, form.source, mask=mask, align=1)

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
