"""The matrices of all experts as kernels of products read them: floats in panels, or codes of few bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sardonyx.compiler.types import F32, I32
from sardonyx.ir import Dim, Value, dim
from sardonyx.ops.expert_sizes import scale_block
from sardonyx.providers.cpu.contrib.linalg import unpack
from sardonyx.providers.native.kernels.linalg.packing import packed_view, packed_weights
from sardonyx.providers.native.kernels.linalg.tile_kernel import (
    BandsArguments,
    FactorArguments,
    GemmArguments,
    Tile,
    gemm_kernel,
    grain_of,
    tile_rows,
    tile_vectors,
)
from sardonyx.providers.native.kernels.moe.grouping import Groups
from sardonyx.providers.native.kernels.weight_only.integer_kernel import integer_kernel, tile_height
from sardonyx.providers.native.kernels.weight_only.kernel import Codes, coded_kernel
from sardonyx.providers.native.kernels.weight_only.packing import Panels, Weights, pack_into
from sardonyx.providers.native.kernels.weight_only.steps import shared_rows
from sardonyx.providers.native.program.chain_lowering import Sink
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import Argument
from sardonyx.providers.native.program.values import dims, stored
from sardonyx.providers.native.program.views import View
from sardonyx.providers.prepacking import PackedFormat
from sardonyx.startup.records import dataclass, replace

CODED = PackedFormat("coded-experts")
SHORTEST_BLOCK = 16


@dataclass(frozen=True)
class Part:
    """Which rows of the matrices (experts, rows, inner) are meant: gates and values of a gated layer may share them."""

    start: Dim
    step: int
    count: Dim

    def of(self, array: np.ndarray) -> np.ndarray:
        """The rows of a constant."""
        assert isinstance(self.start, int) and isinstance(self.count, int)
        return array[:, self.start : self.start + self.count * self.step : self.step]

    def of_view(self, view: View) -> View:
        """The same of a view whose second axis they are."""
        return view.sliced(1, self.start, self.count, self.step)


@dataclass(frozen=True)
class Rounding:
    """Rows become blocks of 8-bit numbers."""

    codes: Codes
    block: int
    blocks: int


@dataclass(frozen=True)
class Matrices:
    """One matrix for each expert."""

    kernel: Callable[..., DeclaredKernel]
    tile: Tile
    parameters: tuple[object, ...]
    """Of the kernel, behind the chain."""
    place: Argument
    panel_stride: Dim
    stride: Dim
    """From k to k."""
    batch_stride: Dim
    """From expert to expert."""
    inner: Dim
    columns: Dim
    bytes: int
    """Of an element that is multiplied, rounded up."""
    rounding: Rounding | None = None
    """How rows are to be rounded before they are multiplied."""


def real_matrices(lowerer: Lowerer, value: Value, part: Part) -> Matrices:
    """Floats (experts, rows, inner): packed now if they are constant, else by a step."""
    inner, type = dims(value)[2], stored(value)
    lanes, vectors = lowerer.target.lanes(F32), tile_vectors(lowerer.target, F32, part.count)
    width = vectors * lanes
    if lowerer.can_pack(value):
        packed = packed_weights(lowerer, value, part, lambda array: part.of(array).transpose(0, 2, 1), type, width)
    else:
        packed = packed_view(lowerer, part.of_view(lowerer.view(value)), type, width, width)
    tile = Tile(F32, packed.type, tile_rows(lowerer.target, vectors), vectors, lanes, "k", True, is_banded=True)
    strides = packed.tile_stride, width, packed.batch_stride
    return Matrices(gemm_kernel, tile, (), packed.buffer, *strides, inner, part.count, type.bytes)


# --- codes


@dataclass(frozen=True)
class Coded:
    """Constant weights of few bits: (experts, rows, bytes), with scales (experts, rows) or (experts, rows, blocks)."""

    weights: Value
    scales: Value
    zero_points: Value | None
    global_scale: Value | None
    """A factor for each expert."""
    bits: int
    book: tuple[float, ...] = ()
    """What codes stand for, where that is no whole number."""

    @property
    def inner(self) -> int:
        """How many numbers a row has."""
        bytes = dims(self.weights)[2]
        assert isinstance(bytes, int)
        return bytes * 8 // self.bits

    @property
    def blocks(self) -> int:
        blocks = dims(self.scales)[2] if len(dims(self.scales)) > 2 else 1
        assert isinstance(blocks, int)
        return blocks

    @property
    def has_blocks(self) -> bool:
        """Whether rows have several scales, or might have."""
        return len(dims(self.scales)) > 2

    @property
    def block_size(self) -> int:
        """A power of two of neighbours that surely have one scale; 0 if rows do not fall into such blocks."""
        size = scale_block(self.inner, self.blocks)
        return 0 if self.inner % self.blocks or size < SHORTEST_BLOCK else size

    @property
    def sources(self) -> list[Value]:
        return [value for value in (self.weights, self.scales, self.zero_points, self.global_scale) if value is not None]


def coded_matrices(lowerer: Lowerer, coded: Coded, part: Part, is_rounded: bool) -> Matrices:
    """Codes of constant weights in panels, for rows of floats or rounded ones."""
    assert isinstance(part.count, int)
    lanes, vectors = lowerer.target.lanes(F32), tile_vectors(lowerer.target, F32, part.count)
    weights = Weights(coded.inner, part.count, coded.block_size, coded.bits)
    codes = Codes(coded.bits, "middle" if coded.zero_points is None else "whole", weights.middle, coded.book)
    panels = Panels(weights, codes, vectors * lanes, 0)
    panels = replace(panels, blocks=-(-weights.K // panels.block))
    experts = dims(coded.weights)[0]
    assert isinstance(experts, int)
    memory = lowerer.weights

    def make(*arrays: np.ndarray) -> list[np.ndarray]:
        rest = iter(arrays)
        numbers, scales = part.of(next(rest)), next(rest)
        points = None if coded.zero_points is None else next(rest)
        factors = None if coded.global_scale is None else next(rest)
        packed = memory.empty((experts, *panels.shape), np.uint32)
        for expert in range(experts):
            _pack_expert(packed[expert], panels, part, coded, numbers[expert], scales, points, factors, expert)
        return [packed]

    size = experts * panels.count * panels.stride * F32.bytes
    (buffer,) = lowerer.packed(coded.sources, CODED, (panels, part, coded.bits, coded.blocks), [size], make)
    height = tile_height(lowerer.target, vectors) if is_rounded else shared_rows(lowerer.target)
    tile = Tile(I32 if is_rounded else F32, F32, height, vectors, lanes, "k", True, is_banded=True)
    strides = panels.stride, 0, panels.count * panels.stride
    rounding = Rounding(codes, panels.block, panels.blocks) if is_rounded else None
    kernel = integer_kernel if is_rounded else coded_kernel
    return Matrices(kernel, tile, (codes, panels.words), buffer, *strides, weights.K, part.count, 1, rounding)


def _pack_expert(
    packed: np.ndarray,
    panels: Panels,
    part: Part,
    coded: Coded,
    rows: np.ndarray,
    scales: np.ndarray,
    points: np.ndarray | None,
    factors: np.ndarray | None,
    expert: int,
) -> None:
    weights = panels.weights
    whole = np.zeros((weights.N, panels.blocks * panels.block * weights.bits // 8), np.uint8)
    whole[:, : rows.shape[1]] = rows.view(np.uint8)
    own = part.of(scales[expert : expert + 1]).reshape(weights.N, coded.blocks).astype(np.float32)
    own = own if factors is None else own * factors[expert]
    zeros = None
    if points is not None:
        flat = points.ndim == 2  # one number for each row, packed along the rows
        count = dims(coded.weights)[1] if flat else coded.blocks
        numbers = unpack(points[expert], coded.bits, count)  # type: ignore[arg-type]
        zeros = part.of((numbers[:, None] if flat else numbers)[None])[0].astype(np.float32)
        zeros = _spread(np.broadcast_to(zeros, own.shape), weights.blocks)
    pack_into(packed, panels, None, whole, _spread(own, weights.blocks), zeros)


def _spread(numbers: np.ndarray, blocks: int) -> np.ndarray:
    """Numbers (rows, blocks) for blocks that are cut into several."""
    return np.repeat(numbers, blocks // numbers.shape[1], axis=1)


# --- products


def product(lowerer: Lowerer, groups: Groups, bands: BandsArguments, rows: View, matrices: Matrices, sink: Sink) -> None:
    """Add the step that multiplies the rows of each expert, rounded if they are to be, by its matrix."""
    tile, count, columns = matrices.tile, groups.count, matrices.columns
    stride = rows.strides[0]
    lowerer.call(
        matrices.kernel(lowerer.target, tile, 1, sink.chain, *matrices.parameters),
        GemmArguments(
            left=FactorArguments(place=rows.place, tile_stride=stride * tile.rows, stride=stride, batch_strides=[0]),
            right=FactorArguments(
                place=matrices.place,
                tile_stride=matrices.panel_stride,
                stride=matrices.stride,
                batch_strides=[matrices.batch_stride],
            ),
            rows=count,
            columns=columns,
            inner=rows.shape[1],
            batch_sizes=[groups.experts],
            bands=bands,
            sink=sink.arguments,
        ),
        bands.count * dim.ceildiv(columns, tile.width),
        grain_of(tile, count, matrices.inner),
        flops=count * matrices.inner * columns * 2,
        traffic=count * (matrices.inner + columns) * F32.bytes
        + dim.minimum(count, groups.experts) * matrices.inner * columns * matrices.bytes,
    )
