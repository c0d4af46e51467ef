"""Weights of few bits as kernels read them: panels of blocks of codes. The lowerings of products with such weights call it."""

from __future__ import annotations

import numpy as np

from sardonyx.ops.coded_weights import weight_sizes
from sardonyx.providers.cpu.contrib.linalg import LONGEST_BLOCK, block_order, is_in_order, unpack
from sardonyx.providers.native.kernels.weight_only.kernel import Codes
from sardonyx.providers.native.program.weights import WeightMemory
from sardonyx.startup.records import dataclass

CHUNK = 1 << 22
"""How many codes are unpacked at a time, where they must be."""


@dataclass(frozen=True)
class Weights:
    """What a node says of its weights (N, K)."""

    K: int
    N: int
    block_size: int
    bits: int

    @property
    def blocks(self) -> int:
        return -(-self.K // self.block_size)

    @property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """How many elements operands may have."""
        return weight_sizes(self.K, self.N, self.block_size, self.bits)

    @property
    def middle(self) -> int:
        """The zero point where there is none."""
        return 1 << (self.bits - 1)

    @property
    def code_bits(self) -> int:
        """Of codes as kernels read them."""
        return next(bits for bits in (2, 4, 8) if bits >= self.bits)


@dataclass(frozen=True)
class Order:
    """Which k a panel has at which place, where neighbours do not belong to one block."""

    columns: np.ndarray
    """-1 for places that only fill a block up."""
    groups: np.ndarray
    """For each block the number of its scale."""


@dataclass(frozen=True)
class Panels:
    """How weights are cut into panels of so many columns."""

    weights: Weights
    codes: Codes
    width: int
    blocks: int

    @property
    def block(self) -> int:
        """Codes of a column in a block."""
        return min(self.weights.block_size, LONGEST_BLOCK)

    @property
    def words(self) -> int:
        return self.block // self.codes.in_word

    @property
    def count(self) -> int:
        return -(-self.weights.N // self.width)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of all panels, in words."""
        return self.count, self.blocks, self.codes.heads + self.words, self.width

    @property
    def stride(self) -> int:
        """Words of a panel."""
        return self.blocks * (self.codes.heads + self.words) * self.width


def order_of(g_idx: np.ndarray | None, weights: Weights) -> Order | None:
    """The order in which blocks have one scale each; None if it is the weights' own."""
    if g_idx is None or is_in_order(g_idx, weights.K, weights.block_size):
        return None
    return Order(*block_order(g_idx, weights.K, weights.block_size))


def zero_kind(zeros: np.ndarray | None, weights: Weights) -> str:
    """Which zero points these are, of those that `Codes` knows."""
    if zeros is None:
        return "middle"
    numbers = zero_numbers(zeros, weights)
    if (numbers == weights.middle).all():
        return "middle"
    is_whole = (numbers == np.rint(numbers)) & (numbers >= 0) & (numbers < 1 << weights.bits)
    return "whole" if is_whole.all() else "real"


def zero_numbers(zeros: np.ndarray, weights: Weights) -> np.ndarray:
    """Zero points (N, blocks) as float32."""
    if zeros.dtype == np.uint8:
        zeros = unpack(zeros.reshape(weights.N, -1), weights.bits, weights.blocks)
    return zeros.reshape(weights.N, weights.blocks).astype(np.float32)


def pack(
    memory: WeightMemory, panels: Panels, order: Order | None, B: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None
) -> np.ndarray:
    """Panels of the weights; what is missing in the last one is 0."""
    packed = memory.empty(panels.shape, np.uint32)
    pack_into(packed, panels, order, B, scales, zeros)
    return packed


def pack_into(
    packed: np.ndarray, panels: Panels, order: Order | None, B: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None
) -> None:
    """Have panels of the weights in memory that is there."""
    weights, width = panels.weights, panels.width
    if weights.N % width:
        packed[-1] = 0
    groups = np.arange(panels.blocks) * panels.block // weights.block_size if order is None else order.groups
    heads = [scales.reshape(weights.N, weights.blocks).astype(np.float32)]
    heads += [] if zeros is None else [zero_numbers(zeros, weights)]
    for head, numbers in enumerate(heads[: panels.codes.heads]):
        _put(packed.view(np.float32)[:, :, head : head + 1, :], numbers[:, groups, None], width)
    rows = B.reshape(weights.N, -1)
    step = weights.N if _is_as_given(panels, order) else max(width, CHUNK // max(weights.K, 1) // width * width)
    for first in range(0, weights.N, step):
        words = _words(panels, order, rows[first : first + step])
        _put(packed[first // width :, :, panels.codes.heads :, :], words, width)


def _is_as_given(panels: Panels, order: Order | None) -> bool:
    return order is None and panels.codes.bits == panels.weights.bits


def _words(panels: Panels, order: Order | None, rows: np.ndarray) -> np.ndarray:
    """Rows of packed bytes as (rows, blocks, words)."""
    if _is_as_given(panels, order):
        words = np.ascontiguousarray(rows).view("<u4")
    else:
        words = _repacked(panels, order, rows)
    shape = (len(rows), panels.blocks, panels.words)
    return words[:, : panels.blocks * panels.words].reshape(shape)


def _repacked(panels: Panels, order: Order | None, rows: np.ndarray) -> np.ndarray:
    weights, bits = panels.weights, panels.codes.bits
    blocks = rows.reshape(len(rows), weights.blocks, -1)
    codes = unpack(blocks, weights.bits, weights.block_size).reshape(len(rows), -1)
    codes = codes if order is None else codes[:, order.columns]  # what fills a block up meets zeros
    size = panels.blocks * panels.block
    whole = np.zeros((len(rows), size), np.uint8)
    whole[:, : min(size, codes.shape[1])] = codes[:, :size]
    parts = whole.reshape(len(rows), -1, 8 // bits)
    packed = np.zeros(parts.shape[:2], np.uint8)
    for number in range(8 // bits):
        packed |= parts[:, :, number] << np.uint8(number * bits)
    return packed.view("<u4")


def _put(target: np.ndarray, rows: np.ndarray, width: int) -> None:
    """Rows (columns of the product, blocks, words) as (panels, blocks, words, width)."""
    whole = len(rows) // width
    blocks = rows[: whole * width].reshape(whole, width, *rows.shape[1:])
    target[:whole] = np.moveaxis(blocks, 1, -1)
    if len(rows) % width:
        target[whole, :, :, : len(rows) - whole * width] = np.moveaxis(rows[whole * width :], 0, -1)
