"""Convolutions in fewer multiplications, after Winograd. Lowerings of convolutions ask whether it pays.

Along an axis, some results of a window of two or three taps come from as many inputs and one or two more, transformed at that many points
(`transforms.py`). With a transform along one or two axes, input and filters are multiplied point by point and summed over channels, some
matrix products, and the sums are transformed back. Other windows are made of such small ones, their sections:

- a longer window, of taps that follow each other;
- one that moves by two pixels, of its even and its odd taps, which meet even and odd pixels;
- along an axis without a transform (the depth of a volume), of its single taps.

Sections are added before the inverse transform, so they are like more channels. With a dilation, every so many pixels
make an image of their own.

A NaN or an infinity spoils its whole tile, not only the pixels whose windows meet it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import numpy as np

from sardonyx.compiler.target import Target
from sardonyx.compiler.types import F32
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.native.kernels.conv.choice import Candidate, Convolution, supposed
from sardonyx.providers.native.kernels.conv.direct import SPLITTING_CPUS, pixels_of
from sardonyx.providers.native.kernels.conv.filters import pack_bias, pack_panels
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.kernels.conv.rounding import BOUND, error_ratio, tap_energies, tap_factors
from sardonyx.providers.native.kernels.conv.transforms import PAIRS, Transform
from sardonyx.providers.native.kernels.conv.winograd_kernel import (
    Blocks,
    WinogradArguments,
    WinogradAxis,
    WinogradForm,
    winograd_kernel,
)
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import ScratchSlots
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass

WINOGRAD = PackedFormat("winograd")
ENERGIES = PackedFormat("energies")
POINTS = tuple(PAIRS)
"""How many points a transform may have."""
LONGEST = 3
"""Taps of a section."""
VECTORS = 2
DEPTH_AT_ONCE = 128
"""Sums over sections of together more channels come in several parts, for each of which the transformed input takes the same memory."""
FEWEST_TILES = 4
"""By which a panel is multiplied with enough sums at once."""
FEWEST_CHANNELS = 16
FILTER_BYTES = 26 << 20
"""Transformed filters of a layer take at most so much memory."""
GAIN = 0.9
"""It is taken if it needs at most this part of the direct sum's time."""
FEWEST_STRIDED_TILES = 32
"""Strides save few products and make filters of many sections: below this they come from memory for too little."""
CYCLES_PER_POINT = 7
"""Of a transform, per vector of channels."""
CYCLES_PER_TILE = 150
"""For finding its pixels."""
BYTES_PER_CYCLE = 8
"""At which filters come from memory."""
MULTIPLICATIONS_PER_CYCLE = 2
"""Of vectors, which estimates are counted in; a CPU that splits vectors has one."""


@dataclass(frozen=True)
class AxisAlgorithm:
    """How one axis is convolved: into which sections its windows are cut, and by which transform these are computed, if by one."""

    transform: Transform | None
    kernel: int
    stride: int
    dilation: int
    sections: int
    offsets: int = 1
    """How many sections begin at neighbouring taps."""

    @property
    def moves(self) -> int:
        """How far apart the results of a tile lie."""
        return 1 if self.transform is None else self.dilation

    @property
    def jump(self) -> int:
        """How far sections lie apart that don't begin beside each other."""
        taps = 1 if self.transform is None else self.transform.taps * self.stride
        return taps * self.dilation

    def tiles(self, output: Dim) -> Dim:
        if self.transform is None:
            return output
        return self.phases(output) * dim.ceildiv(dim.ceildiv(output, self.moves), self.transform.size)

    def phases(self, output: Dim) -> Dim:
        """How many tiles lie between each other."""
        return dim.minimum(self.moves, output)

    def taps(self) -> list[range]:
        """Which taps each section has; beyond the last one there are none."""
        if self.transform is None:
            return [range(tap, tap + 1) for tap in range(self.kernel)]
        length = self.transform.taps * self.stride
        firsts = [number // self.offsets * length + number % self.offsets for number in range(self.sections)]
        return [range(first, min(first + length, self.kernel), self.stride) for first in firsts]


def axis_algorithms(kernel: int, stride: int, dilation: int) -> list[AxisAlgorithm]:
    """The algorithms for one axis: the direct sum, and every transform that fits."""
    algorithms = [AxisAlgorithm(None, kernel, stride, dilation, kernel)]
    longest = -(-kernel // stride)
    if longest == 1 or (stride > 1 and dilation > 1):
        return algorithms
    parts = -(-longest // LONGEST)
    taps = -(-longest // parts)
    for points in POINTS:
        algorithms.append(AxisAlgorithm(Transform(points - taps + 1, taps), kernel, stride, dilation, stride * parts, stride))
    return algorithms


AxisAlgorithms = tuple[AxisAlgorithm, ...]


def candidates(convolution: Convolution) -> Iterator[Candidate]:
    """All transforms that fit a convolution; they count as slower than they are, as a gain of a few percent is none."""
    lowerer, geometry = convolution.lowerer, convolution.geometry
    is_exact = Accuracy.of(lowerer.options) is Accuracy.EXACT
    if convolution.view.type != F32 or is_exact or not convolution.packs:
        return
    if min(geometry.channels, geometry.filters) < FEWEST_CHANNELS:
        return
    energies = functools.cache(lambda: _tap_energies(lowerer, geometry, convolution.filters.W))
    axes = map(axis_algorithms, geometry.kernel, geometry.strides, geometry.dilations)
    for algorithms in itertools.product(*axes):
        if 1 <= len(_transforms(algorithms)) <= 2 and _is_worth_a_try(geometry, algorithms):
            yield _candidate(convolution, algorithms, energies)


def _candidate(convolution: Convolution, algorithms: AxisAlgorithms, energies: Callable[[], np.ndarray]) -> Candidate:
    lowerer, geometry, view, filters = convolution.lowerer, convolution.geometry, convolution.view, convolution.filters
    lanes, rows = lowerer.target.lanes(F32), pixels_of(lowerer.target)[VECTORS]
    sizes = "×".join(str(1 if algorithm.transform is None else algorithm.transform.size) for algorithm in algorithms)
    return Candidate(
        f"Winograd {sizes}",
        _cost(geometry, algorithms, lanes, rows, _panel_row(lowerer.target)) / GAIN,
        lambda sink: winograd_steps(lowerer, geometry, algorithms, view, filters.W, filters.B, sink),
        lambda: error_ratio(energies(), _tap_factors(algorithms)) <= BOUND,
    )


def _tap_energies(lowerer: Lowerer, geometry: Geometry, W: Value) -> np.ndarray:
    """Kept with packed weights: what is stored is chosen without a look at the filters."""
    shape = (geometry.groups * geometry.filters, *geometry.kernel)
    (energies,) = lowerer.packed_arrays([W], ENERGIES, (), [math.prod(shape) * 8], lambda weights: [tap_energies(weights)])
    return energies.reshape(-1).view(np.float64).reshape(shape)


def _tap_factors(algorithms: AxisAlgorithms) -> list[np.ndarray]:
    """For each axis: by how much errors of a weight are enlarged, by its tap."""
    factors = [np.ones(algorithm.kernel) for algorithm in algorithms]
    for algorithm, factor in zip(algorithms, factors):
        for taps in algorithm.taps() if algorithm.transform is not None else ():
            assert algorithm.transform is not None
            factor[taps.start : taps.stop : taps.step] = tap_factors(algorithm.transform)[: len(taps)]
    return factors


def _is_worth_a_try(geometry: Geometry, algorithms: AxisAlgorithms) -> bool:
    """Whether filters have a bearable size, and are used often enough if strides make sections of them along two axes."""
    strided = sum(algorithm.transform is not None and algorithm.stride > 1 for algorithm in algorithms)
    enough = strided < 2 or _supposed_tiles(geometry, algorithms) >= FEWEST_STRIDED_TILES
    return enough and _filter_bytes(geometry, algorithms) <= FILTER_BYTES


def _transforms(algorithms: AxisAlgorithms) -> list[Transform]:
    return [algorithm.transform for algorithm in algorithms if algorithm.transform is not None]


def _points(algorithms: AxisAlgorithms) -> int:
    return math.prod(transform.width for transform in _transforms(algorithms))


def _depth(geometry: Geometry, algorithms: AxisAlgorithms) -> int:
    """Over how many products a sum goes, at each point."""
    return geometry.channels * math.prod(algorithm.sections for algorithm in algorithms)


def _short_depth(geometry: Geometry, algorithms: AxisAlgorithms) -> int:
    """The same where the first axis is at infinity: sections whose last tap is none are 0 there, and come last if no axis goes before."""
    algorithm = algorithms[0]
    if algorithm.transform is None:
        return _depth(geometry, algorithms)
    whole = sum(len(taps) == algorithm.transform.taps for taps in algorithm.taps())
    return _depth(geometry, algorithms) // algorithm.sections * whole


def _filter_bytes(geometry: Geometry, algorithms: AxisAlgorithms) -> int:
    return _points(algorithms) * geometry.groups * geometry.filters * _depth(geometry, algorithms) * 4


def _supposed_tiles(geometry: Geometry, algorithms: AxisAlgorithms) -> int:
    counts = (algorithm.tiles(output) for algorithm, output in zip(algorithms, supposed(geometry.output)))
    return math.prod(count for count in counts if isinstance(count, int))


def _panel_row(target: Target) -> float:
    """How many multiplications take as long as a row of a panel takes to come from memory."""
    at_once = 1 if target.cpu in SPLITTING_CPUS else MULTIPLICATIONS_PER_CYCLE
    return VECTORS * target.lanes(F32) * 4 / BYTES_PER_CYCLE * at_once


def _cost(geometry: Geometry, algorithms: AxisAlgorithms, lanes: int, rows: int, panel_row: float) -> float:
    points, depth, tiles = _points(algorithms), _depth(geometry, algorithms), _supposed_tiles(geometry, algorithms)
    groups = max(1, -(-tiles // rows))
    short = points // _transforms(algorithms)[0].width
    summed = (points - short) * depth + short * _short_depth(geometry, algorithms)
    group = VECTORS * -(-tiles // groups)
    # the first group of tiles waits for a row of a panel, the others find it near
    products = (max(group, panel_row) + (groups - 1) * group) * summed
    moved = tiles * (points * CYCLES_PER_POINT * (depth + geometry.filters) / lanes + CYCLES_PER_TILE)
    return products * -(-geometry.filters // (VECTORS * lanes)) + moved


def winograd_steps(
    lowerer: Lowerer, geometry: Geometry, algorithms: AxisAlgorithms, view: View, W: Value, B: Value | None, sink: Sink
) -> None:
    """Add the step of a convolution by these algorithms of its axes."""
    lanes = lowerer.target.lanes(F32)
    width = VECTORS * lanes
    transforms = tuple(algorithm.transform for algorithm in algorithms)
    form = WinogradForm(transforms, pixels_of(lowerer.target)[VECTORS], VECTORS, lanes, geometry.channels % lanes != 0)
    panels = -(-geometry.filters // width)
    tiles = dim.product([algorithm.tiles(output) for algorithm, output in zip(algorithms, geometry.output)])
    blocks = _blocks(lowerer, geometry, algorithms, form, tiles)
    u, bias = _packed(lowerer, geometry, algorithms, W, B, width)
    chunks = -(-panels // blocks.panels)
    scratch_slots = ScratchSlots(geometry.batch * geometry.groups * dim.ceildiv(tiles, blocks.tiles) * chunks)
    rows = form.points * blocks.tiles * scratch_slots.count
    lowerer.call(
        winograd_kernel(lowerer.target, form, sink.chain),
        WinogradArguments(
            x=view.place,
            u=u,
            bias=bias,
            zeros=lowerer.constant(np.zeros(-(-geometry.channels // lanes) * lanes, np.float32)),
            v=lowerer.scratch(rows * blocks.v_pitch * 4),
            m=lowerer.scratch(rows * blocks.m_pitch * 4),
            scratch_slots=scratch_slots.arguments,
            groups=geometry.groups,
            channels=geometry.channels,
            filters=geometry.filters,
            panels=panels,
            blocks=blocks,
            image_step=view.strides[0],
            short_depth=_short_depth(geometry, algorithms),
            axes=[_axis(geometry, algorithm, view, number) for number, algorithm in enumerate(algorithms)],
            sink=sink.arguments,
        ),
        scratch_slots.items,
        scratch_slots.grain,
        flops=geometry.flops,
        traffic=_traffic(geometry),
    )


def _traffic(geometry: Geometry) -> Dim:
    """Bytes of the images."""
    images = dim.product(geometry.input) * geometry.channels + geometry.positions * geometry.filters
    return geometry.batch * geometry.groups * images * F32.bytes


def _axis(geometry: Geometry, algorithm: AxisAlgorithm, view: View, number: int) -> WinogradAxis:
    output = geometry.output[number]
    return WinogradAxis(
        input=geometry.input[number],
        output=output,
        begin=geometry.begin[number],
        step=view.strides[2 + number],
        tiles=algorithm.tiles(output),
        stride=algorithm.stride,
        dilation=algorithm.moves,
        phases=algorithm.phases(output),
        spread=algorithm.stride * algorithm.dilation,
        sections=algorithm.sections,
        offsets=algorithm.offsets,
        jump=algorithm.jump,
    )


def _packed(
    lowerer: Lowerer, geometry: Geometry, algorithms: AxisAlgorithms, W: Value, B: Value | None, width: int
) -> list[Buffer]:
    """Transformed filters in panels, and the bias."""
    groups, transforms = geometry.groups, _transforms(algorithms)
    size = groups * -(-geometry.filters // width) * width * 4

    def pack(weights: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        matrices = [transform.filter_matrix for transform in transforms]
        panels = pack_panels(lowerer, in_sections(weights, algorithms), groups, width, F32, matrices, apart=True)
        return [panels, pack_bias(bias, groups, geometry.filters, width, np.dtype(np.float32))]

    parameters = tuple(
        (algorithm.stride, algorithm.transform, algorithm.transform and algorithm.transform.pairs) for algorithm in algorithms
    )
    sizes = [_points(algorithms) * _depth(geometry, algorithms) * size, size]
    return lowerer.packed([W] if B is None else [W, B], WINOGRAD, (parameters, groups, width), sizes, pack)


def in_sections(weights: np.ndarray, algorithms: AxisAlgorithms) -> np.ndarray:
    """(M, C, taps…) as (M, sections · C, a section's taps…); taps that the window has not are 0."""
    if all(
        algorithm.transform is not None and algorithm.sections == 1 and algorithm.transform.taps == algorithm.kernel
        for algorithm in algorithms
    ):
        return weights
    counts = [algorithm.sections for algorithm in algorithms]
    lengths = [1 if algorithm.transform is None else algorithm.transform.taps for algorithm in algorithms]
    sections = np.zeros((len(weights), *counts, weights.shape[1], *lengths), weights.dtype)
    for choice in itertools.product(*(enumerate(algorithm.taps()) for algorithm in algorithms)):
        places, ranges = zip(*choice)
        source = (slice(None), slice(None), *(slice(taps.start, taps.stop, taps.step) for taps in ranges))
        sections[(slice(None), *places, slice(None), *(slice(len(taps)) for taps in ranges))] = weights[source]
    lengths = [transform.taps for transform in _transforms(algorithms)]
    return sections.reshape(len(weights), math.prod(counts) * weights.shape[1], *lengths)


def _blocks(lowerer: Lowerer, geometry: Geometry, algorithms: AxisAlgorithms, form: WinogradForm, total: Dim) -> Blocks:
    """Blocks of tiles that fit into a cache, and enough pieces of work for all threads.

    Filters that stay in the last-level cache are read again for each block of tiles. Larger ones should be read once: then blocks are
    larger. Where there are few blocks, threads share the filters, and each transforms the input for itself; but filters so small that every
    thread has them near are no reason for that: then blocks are smaller.
    """
    width, points, threads = form.vectors * form.lanes, form.points, lowerer.threads
    budgets, distance = lowerer.budgets, lowerer.target.caches.distance
    panels = -(-geometry.filters // width)
    sections = math.prod(algorithm.sections for algorithm in algorithms)
    together = min(sections, max(1, DEPTH_AT_ONCE // geometry.channels))
    v_pitch, v_whole = (_section_pitch(geometry.channels, count, form.lanes, distance) for count in (together, sections))
    supposed = _supposed_tiles(geometry, algorithms)
    is_large = _filter_bytes(geometry, algorithms) // geometry.groups > budgets.cached_filters
    budget = budgets.transformed_beside_large_filters if is_large else budgets.transformed
    tiles = max(1, budget // (points * 4 * (v_whole + panels * width)) // form.rows) * form.rows
    while threads > 1 and not is_large and tiles > form.rows and -(-supposed // tiles) * geometry.groups < 4 * threads:
        tiles -= form.rows
    tiles = max(1, min(tiles, supposed)) if isinstance(total, int) else tiles
    blocks = max(1, -(-supposed // tiles)) * geometry.groups
    is_small = _filter_bytes(geometry, algorithms) // geometry.groups <= budgets.near_filters
    if is_small and blocks < threads:
        tiles = min(tiles, max(FEWEST_TILES, -(-supposed * geometry.groups // threads)))
    chunks = 1 if is_small or threads == 1 or blocks >= 2 * threads else min(panels, -(-2 * threads // blocks))
    chunk = -(-panels // chunks)
    kept = 1 if together == sections and points * tiles * v_pitch * 4 <= budgets.near_input else chunk
    even = dim.maximum(1, dim.ceildiv(total, dim.maximum(1, dim.ceildiv(total, tiles))))
    return Blocks(
        tiles=even, panels=chunk, kept=kept, together=together, v_pitch=v_pitch, m_pitch=_pitch(kept * width, distance)
    )


def _section_pitch(channels: int, sections: int, lanes: int, distance: int) -> int:
    """How far rows of transformed input lie apart: the last vector of the last section may have too much."""
    size = (sections - 1) * channels + -(-channels // lanes) * lanes
    return _pitch(-(-size // lanes) * lanes, distance)


def _pitch(size: int, distance: int) -> int:
    """Rows a multiple of a page apart would meet in one set of the first-level cache."""
    return size + 16 if size * 4 % distance == 0 else size
