"""MatMulNBits: products with weights of two to eight bits, in NumPy."""

from __future__ import annotations

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.ops.coded_weights import weight_sizes, wrong_size
from sardonyx.providers.cpu.prepared import prepared, unchanging
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

KEPT_BYTES = 1 << 26
"""Weights are kept dequantized up to this size; larger ones are dequantized in passing, some rows at a time."""

CHUNK_BYTES = 1 << 23

ROUNDED = 4
"""The accuracy level at which activations are rounded to 8 bits, block by block."""
LONGEST_BLOCK = 128
"""Longer blocks are cut into such, which have the same scale: errors of a sum grow with its length."""


@cpu.kernel("MatMulNBits", domain="com.microsoft", widen=True)
def mat_mul_n_bits(
    A,
    B,
    scales,
    zero_points=None,
    g_idx=None,
    bias=None,
    *,
    K,
    N,
    block_size,
    accuracy_level=0,
    bits=4,
    weight_prepacked=0,
):
    """`accuracy_level` is the least precision that the model is content with: at 4 activations are rounded to 8 bits."""
    if weight_prepacked:
        raise KernelError(
            f"weights packed for a GPU (weight_prepacked={weight_prepacked}) cannot be used here", InvalidArgument
        )
    if A.shape[-1] != K:
        raise KernelError(f"A has {A.shape[-1]} columns, K is {K}", InvalidArgument)
    operands = {"B": B, "scales": scales, "zero_points": zero_points, "g_idx": g_idx, "bias": bias}
    _check_sizes(weight_sizes(K, N, block_size, bits), **operands)
    if g_idx is not None and g_idx.size:
        _check_groups(g_idx, -(-K // block_size))
    rows = A.reshape(-1, K)
    if accuracy_level == ROUNDED:
        rows = _rounded_in_order(rows, g_idx, K, block_size)
    output = np.empty((len(rows), N), np.float32)
    if 4 * N * K <= KEPT_BYTES and unchanging(B, scales, zero_points, g_idx):
        layout = (K, N, block_size, bits)
        weights = prepared(_kept_weights, B, scales, zero_points, g_idx, _LAYOUTS.setdefault(layout, layout), size=4 * N * K)
        np.matmul(rows, weights.T, out=output)
    else:
        step = max(1, CHUNK_BYTES // (4 * K))
        for start in watched(range(0, N, step)):
            chunk = _dequantized(B, scales, zero_points, g_idx, (K, N, block_size, bits), slice(start, start + step))
            np.matmul(rows, chunk.T, out=output[:, start : start + step])
    if bias is not None:
        output += bias
    return output.reshape(*A.shape[:-1], N)


def is_in_order(g_idx: np.ndarray | None, K: int, block_size: int) -> bool:
    """Whether neighbours along K belong to one block."""
    if g_idx is None or not g_idx.size:
        return True
    return bool((g_idx.reshape(-1)[:K] == np.arange(K) // block_size).all())


def block_order(g_idx: np.ndarray, K: int, block_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Which k stand together where neighbours do not belong to one block, and for each block the number of its scale.

    Blocks have equal sizes; -1 are places that only fill one up.
    """
    groups = g_idx.reshape(-1)[:K]
    block = min(block_size, LONGEST_BLOCK)
    counts = np.bincount(groups, minlength=-(-K // block_size))
    blocks = -(-counts // block)
    columns = np.full(int(blocks.sum()) * block, -1, np.int32)
    starts = (np.cumsum(blocks) - blocks) * block
    first = np.cumsum(counts) - counts
    sorted_columns = np.argsort(groups, kind="stable")
    ranks = np.arange(K) - first[groups[sorted_columns]]
    columns[starts[groups[sorted_columns]] + ranks] = sorted_columns
    return columns, np.repeat(np.arange(len(counts)), blocks)


def _rounded_in_order(rows, g_idx, K, block_size):
    """Rows rounded to 8 bits, those together that are multiplied by weights of one scale."""
    block = min(block_size, LONGEST_BLOCK)
    if is_in_order(g_idx, K, block_size):
        return rounded(rows, block)
    columns, _ = block_order(g_idx, K, block_size)
    together = np.where(columns >= 0, rows[:, columns], np.float32(0))
    places = np.empty(K, np.int64)
    places[columns[columns >= 0]] = np.flatnonzero(columns >= 0)
    return rounded(together, block)[:, places]


def rounded(rows, block):
    """Rows as multiples of a scale for each block, the largest magnitude over 127; NaN where that is not finite."""
    count, K = rows.shape
    blocks = -(-K // block)
    whole = np.zeros((count, blocks, block), np.float32)
    whole.reshape(count, -1)[:, :K] = rows
    with np.errstate(invalid="ignore"):
        scales = np.abs(whole).max(axis=2, keepdims=True) / np.float32(127)
        scales[~np.isfinite(scales)] = np.nan
        whole = np.rint(whole / np.where(scales > 0, scales, np.float32(1))).clip(-127, 127) * scales
    return whole.reshape(count, -1)[:, :K]


def _check_sizes(sizes, **operands):
    for name, array in operands.items():
        wanted = sizes[
            "packed zero_points" if name == "zero_points" and array is not None and array.dtype == np.uint8 else name
        ]
        if array is not None and array.size not in wanted:
            raise KernelError(wrong_size(name, array.shape, wanted), InvalidArgument)


def _check_groups(g_idx, blocks):
    low, high = g_idx.min(), g_idx.max()
    if low < 0 or high >= blocks:
        raise KernelError(f"g_idx goes from {low} to {high}, there are {blocks} blocks", InvalidArgument)


_LAYOUTS: dict[tuple[int, int, int, int], tuple[int, int, int, int]] = {}
"""One object for each layout, because `prepared` goes by identity."""


def _kept_weights(B, scales, zero_points, g_idx, layout):
    return _dequantized(B, scales, zero_points, g_idx, layout, slice(None))


def _dequantized(B, scales, zero_points, g_idx, layout, rows):
    """Rows of the (N, K) weights as float32."""
    K, N, block_size, bits = layout
    blocks = -(-K // block_size)
    values = unpack(B.reshape(N, blocks, -1)[rows], bits, block_size)
    scales = scales.reshape(N, blocks)[rows].astype(np.float32, copy=False)
    shift = _zero_points(zero_points, N, blocks, bits, rows)
    if g_idx is not None and g_idx.size:
        group = g_idx[:K]
        values = values.reshape(len(values), -1)[:, :K].astype(np.float32)
        values -= shift[:, group] if isinstance(shift, np.ndarray) else shift
        return values * scales[:, group]
    weights = values.astype(np.float32)
    weights -= shift[:, :, None] if isinstance(shift, np.ndarray) else shift
    weights *= scales[:, :, None]
    return weights.reshape(len(weights), -1)[:, :K]


def _zero_points(zero_points, N, blocks, bits, rows):
    if zero_points is None:
        return np.float32(1 << (bits - 1))
    if zero_points.dtype == np.uint8:
        return unpack(zero_points.reshape(N, -1)[rows], bits, blocks).astype(np.float32)
    return zero_points.reshape(N, blocks)[rows].astype(np.float32, copy=False)


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """`count` numbers of `bits` bits along the last axis, the lowest bits first."""
    if bits == 8:
        return packed[..., :count]
    if 8 % bits == 0:
        shifts = np.arange(0, 8, bits, dtype=np.uint8)
        spread = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
        return spread.reshape(*packed.shape[:-1], packed.shape[-1] * shifts.size)[..., :count]
    flags = np.unpackbits(packed, axis=-1, bitorder="little")[..., : count * bits]
    powers = np.uint8(1) << np.arange(bits, dtype=np.uint8)
    return (flags.reshape(*packed.shape[:-1], count, bits) * powers).sum(axis=-1, dtype=np.uint8)
