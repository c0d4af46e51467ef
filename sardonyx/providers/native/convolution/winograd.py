"""Convolutions by 3×3 filters in fewer multiplications: Winograd's F(2×2) and F(4×4). Lowerings of convolutions ask whether it pays.

An output tile of m×m pixels comes from n×n input pixels, n = m + 2. Transformed at n points per axis, input and filters are multiplied
point by point and summed over channels, n² matrix products, and the sums are transformed back. The points are 0, ±p…, ∞; with p = 3/4 and
3/2 for F(4×4) the error is at most about twice that of the direct sum, where the usual 1 and 2 have it five times as large.

A NaN or an infinity spoils its whole tile, not only the pixels whose windows meet it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sardonyx.compiler.types import F32
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.convolution.filters import pack_bias, pack_panels
from sardonyx.providers.native.convolution.form import Geometry
from sardonyx.providers.native.convolution.winograd_kernel import Transform, WinogradForm, winograd_kernel
from sardonyx.providers.native.lowering import Lowerer, Sink
from sardonyx.providers.native.program import Argument, Buffer
from sardonyx.providers.native.sizes import THREADS
from sardonyx.providers.native.views import View
from sardonyx.providers.prepacking import Layout

WINOGRAD = Layout("winograd")
PAIRS = {2: (1.0,), 4: (0.75, 1.5)}
"""The points ±p of the transforms, by the size of an output tile."""
ROWS = {"avx512": 14, "avx2": 6, "neon": 12}
VECTORS = 2
SCRATCH_BYTES = 640 << 10
"""Transformed input and sums of a block of tiles should stay in the second-level cache."""
CACHED_BYTES = 16 << 20
"""Transformed filters up to this size are likely to stay in the last-level cache from one block of tiles to the next."""
LARGE_SCRATCH_BYTES = 2 << 20
"""What transformed input and sums may take if filters are larger."""
FEWEST_CHANNELS = 16
FILTER_BYTES = 20 << 20
"""Transformed filters of a layer take at most so much memory."""
SUPPOSED_SIZE = 56
"""For how large an image it must pay if sizes are not known."""
GAIN = 0.9
"""It is taken if it needs at most this part of the direct sum's time."""
CYCLES_PER_POINT = 6
"""Of a transform, per vector of channels."""
BYTES_PER_CYCLE = 8
"""At which filters come from memory."""
ALIASING = 4096


def transform_of(size: int) -> Transform:
    """The transforms whose output tile has `size`×`size` pixels."""
    return Transform(size, PAIRS[size])


def filter_matrix(transform: Transform) -> np.ndarray:
    """G: filters at the points, each divided by what the input's transform is too large by."""
    points = transform.points
    rows = []
    for point in points:
        others = [point - other for other in points if other != point]
        rows.append([point**power / np.prod(others) for power in range(3)])
    return np.array([*rows, [0, 0, 1]], np.float64)


def choose(lowerer: Lowerer, geometry: Geometry, type: object) -> Transform | None:
    """The transform that makes a convolution quickest, None if none pays."""
    usual = geometry.kernel == (3, 3) and geometry.strides == geometry.dilations == (1, 1) and geometry.groups == 1
    if not usual or type != F32 or lowerer.options.get("winograd", "auto") == "off":
        return None
    if min(geometry.channels, geometry.filters) < FEWEST_CHANNELS:
        return None
    lanes, rows = lowerer.target.lanes(F32), ROWS.get(lowerer.target.name, 5)
    costs = {
        size: _cost(geometry, size, lanes, rows)
        for size in PAIRS
        if (size + 2) ** 2 * geometry.channels * geometry.filters * 4 <= FILTER_BYTES
    }
    best = min(costs, key=lambda size: costs[size], default=None)
    if best is None or costs[best] > GAIN * _direct_cost(geometry, lanes, rows):
        return None
    return transform_of(best)


def _sizes(geometry: Geometry) -> tuple[int, int]:
    height, width = (size if isinstance(size, int) else SUPPOSED_SIZE for size in geometry.output)
    return height, width


def _vectors(geometry: Geometry, lanes: int) -> int:
    return -(-geometry.filters // (VECTORS * lanes)) * VECTORS


def _direct_cost(geometry: Geometry, lanes: int, rows: int) -> float:
    """About how many cycles an image takes, where a vector multiplication takes one."""
    height, width = _sizes(geometry)
    return height * width * 9 * geometry.channels * _vectors(geometry, lanes)


def _cost(geometry: Geometry, size: int, lanes: int, rows: int) -> float:
    height, width = _sizes(geometry)
    points = (size + 2) ** 2
    tiles = -(-height // size) * -(-width // size)
    groups = -(-tiles // rows)
    panel_row = VECTORS * lanes * 4 / BYTES_PER_CYCLE
    products = groups * max(VECTORS * -(-tiles // groups), panel_row) * points * geometry.channels
    moved = tiles * points * CYCLES_PER_POINT * (geometry.channels + geometry.filters) / lanes
    return products * (_vectors(geometry, lanes) // VECTORS) + moved


@dataclass(frozen=True)
class _Blocks:
    """How the work is cut: tiles of a block, panels of filters of a chunk, and the distance of rows in scratch memory."""

    tiles: int
    panels: int
    v_pitch: int
    m_pitch: int


def winograd_steps(
    lowerer: Lowerer,
    geometry: Geometry,
    transform: Transform,
    view: View,
    W: Value,
    B: Value | None,
    sink: Sink,
) -> None:
    """Add the step."""
    lanes = lowerer.target.lanes(F32)
    width = VECTORS * lanes
    form = WinogradForm(transform, ROWS.get(lowerer.target.name, 5), VECTORS, lanes, geometry.channels % lanes != 0)
    panels = -(-geometry.filters // width)
    down, across = (dim.ceildiv(size, transform.size) for size in geometry.output)
    blocks = _blocks(lowerer, geometry, form, down * across, panels)
    points = transform.width**2
    v_size, m_size = points * blocks.tiles * blocks.v_pitch, points * blocks.tiles * blocks.m_pitch
    constants = [
        *_packed(lowerer, geometry, transform, W, B, width),
        lowerer.constant(np.zeros(-(-geometry.channels // lanes) * lanes, np.float32)),
    ]
    scratch = [lowerer.scratch(size * 4 * THREADS) for size in (v_size, m_size)]
    numbers: list[Argument] = [geometry.channels, geometry.filters, panels, blocks.panels, blocks.tiles]
    numbers += [blocks.v_pitch, blocks.m_pitch, view.strides[0], down, across]
    for axis in range(2):
        numbers += [geometry.input[axis], geometry.output[axis], geometry.begin[axis], view.strides[2 + axis]]
    lowerer.call(
        winograd_kernel(lowerer.target, form, sink.chain),
        [view.place, *constants, *scratch, *numbers, *sink.arguments],
        geometry.batch * dim.ceildiv(down * across, blocks.tiles) * -(-panels // blocks.panels),
        1,
        flops=geometry.flops,
        traffic=geometry.batch * (dim.product(geometry.input) * geometry.channels + geometry.positions * geometry.filters) * 4,
    )


def _packed(lowerer: Lowerer, geometry: Geometry, transform: Transform, W: Value, B: Value | None, width: int) -> list[Buffer]:
    """Transformed filters in panels, and the bias."""
    size = -(-geometry.filters // width) * width * 4

    def pack(weights: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        panels = pack_panels(lowerer.target, weights, 1, width, F32, filter_matrix(transform))
        return [panels, pack_bias(bias, 1, geometry.filters, width, np.dtype(np.float32))]

    sizes = [transform.width**2 * geometry.channels * size, size]
    return lowerer.packed([W] if B is None else [W, B], WINOGRAD, (transform.size, transform.pairs, width), sizes, pack)


def _blocks(lowerer: Lowerer, geometry: Geometry, form: WinogradForm, total: Dim, panels: int) -> _Blocks:
    """Blocks of tiles that fit into a cache, and enough pieces of work for all threads.

    Filters that stay in the last-level cache are read again for each block of tiles. Larger ones should be read once: then blocks are
    larger. Where there are few blocks, threads share the filters, and each transforms the input for itself.
    """
    width, points, threads = form.vectors * form.lanes, form.transform.width**2, lowerer.threads
    v_pitch = _pitch(-(-geometry.channels // form.lanes) * form.lanes)
    supposed = total if isinstance(total, int) else (SUPPOSED_SIZE // form.transform.size) ** 2
    is_large = points * geometry.channels * geometry.filters * 4 > CACHED_BYTES
    budget = LARGE_SCRATCH_BYTES if is_large else SCRATCH_BYTES
    tiles = max(1, budget // (points * 4 * (v_pitch + panels * width)) // form.rows) * form.rows
    while threads > 1 and not is_large and tiles > form.rows and -(-supposed // tiles) < 4 * threads:
        tiles -= form.rows
    tiles = max(1, min(tiles, supposed)) if isinstance(total, int) else tiles
    blocks = max(1, -(-supposed // tiles))
    chunks = 1 if threads == 1 or blocks >= 2 * threads else min(panels, -(-2 * threads // blocks))
    chunk = -(-panels // chunks)
    return _Blocks(tiles, chunk, v_pitch, _pitch(chunk * width))


def _pitch(size: int) -> int:
    """Rows a multiple of a page apart would meet in one set of the first-level cache."""
    return size + 16 if size * 4 % ALIASING == 0 else size
