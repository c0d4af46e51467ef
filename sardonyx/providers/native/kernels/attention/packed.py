"""Attention over batches without their padding, of com.microsoft, composed of the ops over whole ones."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx import dtypes
from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.cpu.contrib.packed import NOTHING
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims
from sardonyx.providers.native.program.views import Dims
from sardonyx.providers.provider import CannotCompile

CONTRIB = "com.microsoft"


@compose("RestorePadding", domain=CONTRIB)
def restore_padding(op: Composer, input: Value, token_offset: Value) -> Value:
    return restored(op, input, token_offset)


def sizes_of(value: Value, rank: int) -> Dims:
    """The sizes of a value that must have so many axes."""
    if len(dims(value)) != rank:
        raise CannotCompile(f"{value.name} has {len(dims(value))} axes instead of {rank}", quiet=True)
    return dims(value)


def restored(op: Composer, tokens: Value, token_offset: Value) -> Value:
    """Tokens at their places in (batch, sequence, …), zeros for padding."""
    batch, length = sizes_of(token_offset, 2)
    zeros = op.Expand(op.number(0, tokens), op.sizes(batch * length, *dims(tokens)[1:]))
    places = op.reshape(_places(op, token_offset, dims(tokens)[0]), dims(tokens)[0], 1)
    return op.reshape(op.ScatterND(zeros, places, tokens), batch, length, *dims(tokens)[1:])


def _places(op: Composer, token_offset: Value, count: Dim) -> Value:
    """Where tokens stand: the first of the numbers, behind which those of padding come."""
    places = op.reshape(op.cast_to(token_offset, dtypes.int64), dim.product(dims(token_offset)))
    made: Value = op.Gather(places, op.counted(count))
    return made


def _tokens(op: Composer, output: Value, token_offset: Value, count: Dim) -> Value:
    """The other way around."""
    rows = op.reshape(output, dim.product(dims(output)[:2]), dims(output)[2])
    made: Value = op.Gather(rows, _places(op, token_offset, count), axis=0)
    return made


def _lengths(op: Composer, cumulative: Value, token_offset: Value) -> Value:
    """How many tokens each batch has."""
    batch = dims(token_offset)[0]
    op.require_shape(cumulative, (batch + 1,))
    made: Value = op.Sub(*(op.Gather(cumulative, op.counted(batch, first)) for first in (1, 0)))
    return made


@compose("PackedAttention", domain=CONTRIB, widen=True)
def packed_attention(
    op: Composer,
    input: Value,
    weights: Value,
    bias: Value,
    token_offset: Value,
    cumulative_sequence_length: Value,
    attention_bias: Value | None,
    num_heads: int,
    qkv_hidden_sizes: Sequence[int] | None,
    scale: float | None,
) -> Value:
    output = op.node(
        "Attention",
        restored(op, input, token_offset),
        weights,
        bias,
        _lengths(op, cumulative_sequence_length, token_offset),
        domain=CONTRIB,
        attention_bias=attention_bias,
        num_heads=num_heads,
        qkv_hidden_sizes=qkv_hidden_sizes,
        scale=scale,
        mask_filter_value=NOTHING,
    )
    return _tokens(op, output, token_offset, dims(input)[0])


@compose("PackedMultiHeadAttention", domain=CONTRIB, widen=True)
def packed_multi_head_attention(
    op: Composer,
    query: Value,
    key: Value | None,
    value: Value | None,
    bias: Value | None,
    token_offset: Value,
    cumulative_sequence_length: Value,
    attention_bias: Value | None,
    num_heads: int,
    mask_filter_value: float,
    scale: float | None,
) -> Value:
    if (key is None) != (value is None):
        raise CannotCompile("keys and values are together or not at all", quiet=True)
    parts = [None if part is None else restored(op, part, token_offset) for part in (query, key, value)]
    output = op.node(
        "MultiHeadAttention",
        *parts,
        bias,
        _lengths(op, cumulative_sequence_length, token_offset),
        attention_bias,
        domain=CONTRIB,
        num_heads=num_heads,
        mask_filter_value=min(mask_filter_value, NOTHING),
        scale=scale,
    )
    return _tokens(op, output, token_offset, dims(query)[0])
