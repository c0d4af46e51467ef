"""Caches of keys and values as GroupQueryAttention and SparseAttention of com.microsoft have them.

Each row of a batch has its own number of valid tokens, so keys carry the position in the sequence that they belong to.
"""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.cast import convert
from sardonyx.providers.cpu.shape import bounded, whole
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Lengths:
    """How many tokens each row of the batch has, and which positions the new ones take."""

    total: np.ndarray
    """Valid tokens of each row, past and new."""
    longest: int
    before: np.ndarray
    """Tokens of each row whose keys are in the cache already."""
    query_positions: np.ndarray
    key_positions: np.ndarray

    @staticmethod
    def of(seqlens_k, total_sequence_length, queries, keys):
        total = seqlens_k.astype(np.int64).reshape(-1) + 1
        longest = whole(total_sequence_length, "total_sequence_length")
        # a batch of whole prompts is padded on the right; otherwise all new tokens are valid
        first = np.zeros_like(total) if queries == longest else total - queries
        if total.size and (first.min() < 0 or total.max() > longest or total.min() < 1):
            raise KernelError(
                f"seqlens_k {seqlens_k.reshape(-1).tolist()} does not go with {queries} new tokens"
                f" and a total_sequence_length of {longest}",
                InvalidArgument,
            )
        before = first + queries - keys  # layers that share their cache bring no new keys
        return Lengths(total, longest, before, first[:, None] + np.arange(queries), before[:, None] + np.arange(keys))


@dataclass(frozen=True)
class Window:
    """Keys and values to attend, as the cache stores them, the positions they belong to (-1: none), and the new cache."""

    key: np.ndarray
    value: np.ndarray
    positions: np.ndarray
    present_key: np.ndarray
    present_value: np.ndarray
    is_linear: bool
    """Whether key i belongs to position i."""

    def columns_of(self, attention_bias):
        """What a bias by positions adds to the keys at hand."""
        if self.is_linear:
            return attention_bias[..., : self.positions.shape[1]]
        columns = np.maximum(self.positions, 0)[:, None, None]
        batch = max(len(attention_bias), len(columns))
        rows = np.broadcast_to(attention_bias, (batch, *attention_bias.shape[1:]))
        return np.take_along_axis(rows, np.broadcast_to(columns, (*rows.shape[:3], columns.shape[3])), axis=3)

    def by_position(self, values, longest):
        """Columns of keys moved to the positions of these keys, zeros where there is none."""
        if self.is_linear:
            return values
        column = np.where(self.positions < 0, longest, self.positions)[:, None, None]
        result = np.zeros((*values.shape[:3], longest + 1), values.dtype)
        np.put_along_axis(result, np.broadcast_to(column, values.shape), values, axis=3)
        return result[..., :longest]


def linear_cache(past_key, past_value, key, value, lengths):
    """A cache in which row i holds position i."""
    capacity = 0 if past_key is None else past_key.shape[2]
    if lengths.before.max(initial=0) > capacity:
        raise KernelError(f"{lengths.before.max()} tokens came before, the cache has {capacity} rows", InvalidArgument)
    rows = max(capacity, lengths.longest)
    present_key, present_value = (_appended(past, new, lengths, rows) for past, new in ((past_key, key), (past_value, value)))
    position = np.arange(lengths.longest)
    positions = np.where(position < lengths.total[:, None], position, -1)
    visible = (slice(None), slice(None), slice(lengths.longest))
    return Window(present_key[visible], present_value[visible], positions, present_key, present_value, is_linear=True)


def _appended(past, new, lengths, rows):
    batch, heads, _, size = new.shape
    present = np.zeros(bounded((batch, heads, rows, size), new.dtype), new.dtype)
    if past is not None:
        least = lengths.before.min(initial=past.shape[2])
        present[:, :, :least] = past[:, :, :least]
        for row in np.flatnonzero(lengths.before > least):
            more = slice(least, lengths.before[row])
            present[row, :, more] = past[row, :, more]
    # the advanced indices stand apart, so their axes come first: (row, token, head, size)
    present[np.arange(batch)[:, None], :, lengths.key_positions] = new.transpose(0, 2, 1, 3)
    return present


def sliding_cache(past_key, past_value, key, value, lengths, window):
    """A cache that holds the most recent positions only, in order, from row 0 on."""
    capacity = 0 if past_key is None else past_key.shape[2]
    if past_key is None or not 0 < window <= capacity:
        raise KernelError(
            f"sliding_window_cache needs a cache of at least local_window_size rows, they are {capacity} and {window}",
            InvalidArgument,
        )
    before, total = lengths.before[:, None], lengths.total[:, None]
    held, kept = _resident(before, capacity, window), _resident(total, capacity, window)
    row = np.arange(capacity)
    positions = np.concatenate(
        [
            np.where(row < held, before - held + row, -1),
            np.where(lengths.key_positions < total, lengths.key_positions, -1),
        ],
        axis=1,
    )
    # where the rows of the new cache stand now: among the old ones or behind them
    position = total - kept + row
    source = np.where(position < before, position - before + held, capacity + position - before)
    source = np.where(row < kept, source, 0)[:, None, :, None]
    both = [_cleared(np.concatenate(pair, axis=2), positions >= 0) for pair in ((past_key, key), (past_value, value))]
    presents = [_cleared(np.take_along_axis(tensor, source, axis=2), row < kept) for tensor in both]
    return Window(*both, positions, *presents, is_linear=False)


def _cleared(cache, kept):
    """Zeros in the rows that hold nothing: what stands there may be anything, also NaN."""
    return np.where(kept[:, None, :, None], cache, cache.dtype.type(0))


def _resident(total, capacity, window):
    """How many positions are held after `total` tokens: when the cache is full, all that left the window go at once."""
    group = capacity - window + 1
    return np.where(total <= capacity, total, total - group * -((capacity - total) // group))


@dataclass(frozen=True)
class Format:
    """How a cache stores keys or values: as they are (scale None), or divided by a scale and rounded."""

    scale: np.ndarray | None
    dtype: dtypes.ElementType | None
    bits: int

    @staticmethod
    def of(scale, quant_type, dtype, bits):
        if quant_type == "NONE" and scale is None:
            return Format(None, None, 0)
        if scale is None or dtype is None:
            raise KernelError(f"a {quant_type} quantized cache needs past_key, past_value and their scales", InvalidArgument)
        return Format(scale, dtype, bits or (4 if dtype is dtypes.uint8 else 8))

    def stored(self, heads):
        if self.scale is None:
            return heads
        scaled = heads / self._spread(heads)
        if self.dtype is dtypes.float8e4m3fn:
            return convert(scaled, self.dtype).astype(np.float32)
        limit = 2 ** (self.bits - 1)
        whole = np.clip(np.rint(scaled), -limit, limit - 1).astype(np.int8)
        return whole if self.bits == 8 else _packed(whole)

    def real(self, stored):
        if self.scale is None:
            return stored
        heads = _unpacked(stored) if self.bits == 4 else stored.astype(np.float32)
        return heads * self._spread(heads)

    def _spread(self, heads):
        """One scale, or one for each channel of each head."""
        return self.scale.reshape(()) if self.scale.size == 1 else self.scale.reshape(heads.shape[1], 1, heads.shape[3])


def _packed(whole):
    """Two numbers of four bits in a byte, the first one in the lower half, each raised by 8."""
    if whole.shape[-1] % 2:
        whole = np.concatenate([whole, np.zeros_like(whole[..., :1])], axis=-1)
    nibbles = (whole + np.int8(8)).view(np.uint8)
    return nibbles[..., 0::2] | (nibbles[..., 1::2] << np.uint8(4))


def _unpacked(stored):
    nibbles = np.stack([stored & np.uint8(15), stored >> np.uint8(4)], axis=-1).reshape(*stored.shape[:-1], -1)
    return nibbles.astype(np.float32) - np.float32(8)
