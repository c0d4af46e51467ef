"""Pointwise convolutions in fewer multiplications, after Strassen. Lowerings of convolutions ask whether it pays.

A pointwise convolution is a product of matrices, pixels by channels and channels by filters. With all three halved it is eight products of
an eighth of the size; seven suffice, of sums of blocks. Channels are added to other channels and filters to other filters, so errors are
about twice those of the direct sum only if all are of like size: it is for the accuracy "fast" alone. An infinity or a NaN spoils more than
its own pixel: all of its tile.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sardonyx.compiler.types import F32
from sardonyx.ir import Dim
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.native.kernels.conv.choice import Candidate, Convolution
from sardonyx.providers.native.kernels.conv.direct import PIXELS
from sardonyx.providers.native.kernels.conv.filters import Filters, pack_bias, pack_panels
from sardonyx.providers.native.kernels.conv.form import Geometry
from sardonyx.providers.native.kernels.conv.strassen_kernel import (
    PRODUCTS,
    Grid,
    StrassenArguments,
    StrassenForm,
    strassen_kernel,
)
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import ScratchSlots
from sardonyx.providers.native.program.steps import Buffer
from sardonyx.providers.native.program.views import View
from sardonyx.providers.prepacking import PackedFormat

STRASSEN = PackedFormat("strassen")
VECTORS = 2
GAIN = 0.94
"""It is taken if it needs at most this part of the direct sum's time."""
CYCLES_PER_SUM = 30
"""Of adding blocks of pixels, per vector of channels."""
CYCLES_PER_RESULT = 6
"""Of going on with a vector of results, more than the direct sum takes."""
PADDING = 16
"""Of rows of sums: those a multiple of a page apart would meet in one set of the first-level cache."""
COMBINATIONS = np.array(
    [
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [1, -1, 0, 1],
        [0, -1, 0, 1],
        [-1, 1, 1, -1],
        [-1, 1, 0, 0],
        [0, 0, 0, 1],
    ],
    np.float64,
)
"""The second factors of all products: sums of the blocks of filters, which lie by halves of channels, then by halves of filters."""


def _grid_of(geometry: Geometry, view: View, flat: Dim | None) -> Grid | None:
    """The pixels that a pointwise convolution reads, with any strides; `flat` is how far they lie apart if that is the same for all."""
    if flat is not None:
        return Grid(columns=geometry.positions, row_step=0, pixel_step=flat)
    if geometry.taps != 1 or len(geometry.kernel) > 2 or any(size != 0 for size in (*geometry.begin, *geometry.end)):
        return None
    steps = [stride * step for stride, step in zip(geometry.strides, view.strides[2:])]
    return Grid(columns=geometry.output[-1], row_step=steps[0], pixel_step=steps[-1])


def candidates(convolution: Convolution) -> Iterator[Candidate]:
    """Itself, if a convolution is pointwise; it counts as slower than it is, as a gain of a few percent is none."""
    geometry = convolution.geometry
    grid = _grid_of(geometry, convolution.view, convolution.flat)
    form = None if grid is None else _form_for(convolution)
    if grid is not None and form is not None and isinstance(geometry.positions, int):
        yield Candidate(
            "Strassen",
            _cycles(geometry, geometry.positions, form) / GAIN,
            lambda sink: strassen_step(convolution, grid, form, sink),
            waits=True,
        )


def _form_for(convolution: Convolution) -> StrassenForm | None:
    """The shape of the code; None if there is none for these sizes, or nobody wants it."""
    lowerer, geometry = convolution.lowerer, convolution.geometry
    counts, lanes = PIXELS.get(lowerer.target.name), lowerer.target.lanes(F32)
    is_fast = Accuracy.of(lowerer.options) is Accuracy.FAST
    if counts is None or convolution.view.type != F32 or not is_fast or not convolution.packs:
        return None
    form = StrassenForm(counts[VECTORS], VECTORS, lanes)
    is_uneven = geometry.groups > 1 or geometry.channels % (2 * lanes) or geometry.filters % (2 * form.width)
    return None if is_uneven else form


def _cycles(geometry: Geometry, positions: int, form: StrassenForm) -> float:
    depth, pairs, tiles = geometry.channels // 2, _pairs(geometry, form), _tiles(positions, form)
    registers = form.rows * form.vectors
    product = PRODUCTS * depth * registers + 4 * registers * CYCLES_PER_RESULT
    sums = form.rows * depth // form.lanes * CYCLES_PER_SUM
    return tiles * (pairs * product + sums)


def _pairs(geometry: Geometry, form: StrassenForm) -> int:
    """Of panels of filters."""
    return geometry.filters // (2 * form.width)


def _tiles(positions: int, form: StrassenForm) -> int:
    return -(-positions // (2 * form.rows))


def strassen_step(convolution: Convolution, grid: Grid, form: StrassenForm, sink: Sink) -> None:
    """Add the step."""
    lowerer, geometry, view = convolution.lowerer, convolution.geometry, convolution.view
    assert isinstance(geometry.positions, int)
    tiles, pairs, pitch = _tiles(geometry.positions, form), _pairs(geometry, form), geometry.channels // 2 + PADDING
    limit, chunk = _blocks(tiles, pairs, PRODUCTS * form.rows * pitch * 4, lowerer.threads, lowerer.budgets.strassen_sums)
    scratch_slots = ScratchSlots(geometry.batch * -(-tiles // limit) * -(-pairs // chunk))
    scratch = lowerer.scratch(limit * PRODUCTS * form.rows * pitch * 4 * scratch_slots.count)
    u, bias = _packed(lowerer, geometry, form, convolution.filters)
    lowerer.call(
        strassen_kernel(lowerer.target, form, sink.chain),
        StrassenArguments(
            x=view.place,
            u=u,
            bias=bias,
            v=scratch,
            scratch_slots=scratch_slots.arguments,
            depth=geometry.channels // 2,
            positions=geometry.positions,
            pairs=pairs,
            chunk=chunk,
            limit=limit,
            pitch=pitch,
            image_step=view.strides[0],
            grid=grid,
            sink=sink.arguments,
        ),
        scratch_slots.items,
        scratch_slots.grain,
        flops=geometry.flops,
        traffic=geometry.batch * geometry.positions * (geometry.channels + geometry.filters) * 4,
    )


def _blocks(tiles: int, pairs: int, tile_bytes: int, threads: int, budget: int) -> tuple[int, int]:
    """How many tiles a block has, whose sums are made at once, and how many pairs of panels a chunk.

    Larger blocks read filters less often. Threads share the blocks, and the filters too where blocks are not the same for all.
    """
    fitting = max(1, budget // tile_bytes)
    rounds = -(-tiles // (threads * fitting))
    limit = -(-tiles // (threads * rounds))
    blocks = -(-tiles // limit)
    is_even = blocks % threads == 0 and tiles % blocks == 0
    return limit, pairs if is_even else -(-pairs // threads)


def _packed(lowerer: Lowerer, geometry: Geometry, form: StrassenForm, filters: Filters) -> list[Buffer]:
    """Sums of the blocks of filters in panels, and the bias."""
    pairs, depth = _pairs(geometry, form), geometry.channels // 2

    def pack(weights: np.ndarray, bias: np.ndarray | None = None) -> list[np.ndarray]:
        halves = weights.reshape(pairs, 2, form.width, 2, depth)
        blocks = np.empty((pairs, form.width, depth, 4), weights.dtype)
        for number in range(4):
            blocks[..., number] = halves[:, number % 2, :, number // 2]
        panels = pack_panels(lowerer, blocks.reshape(-1, depth, 4), 1, form.width, F32, [COMBINATIONS])
        return [panels, pack_bias(bias, 1, geometry.filters, form.width, np.dtype(np.float32))]

    sizes = [PRODUCTS * pairs * depth * form.width * 4, geometry.filters * 4]
    sources = [filters.W] if filters.B is None else [filters.W, filters.B]
    return lowerer.packed(sources, STRASSEN, (form.width,), sizes, pack)
