"""Gradients of attention of com.microsoft: it is written in products and a softmax. ONNX's Attention has a body."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import Fail
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import gradient

HIDDEN = -1e9
"""What is added to scores of positions that must not be seen."""


@gradient("MultiHeadAttention", domain=CONTRIB)
def multi_head_attention(op, node, query, key, value, bias, attention_bias, num_heads, scale, unidirectional, through):
    _check(op, node, query, key, value)
    parts = [query, key, value]
    if bias is not None:
        parts = [op.Add(part, piece) for part, piece in zip(parts, op.Split(bias, axis=0, outputs=3, num_outputs=3))]
    rows, keys, values = (_heads(op, part, num_heads) for part in parts)
    size = op.shape(rows)[-1]
    scores = op.scaled(op.MatMul(rows, op.Transpose(keys, perm=[0, 1, 3, 2])), scale or 1 / math.sqrt(size))
    if attention_bias is not None:
        scores = op.Add(scores, attention_bias)
    if unidirectional:
        scores = op.Add(scores, _later(op, scores))
    mixed = op.MatMul(op.Softmax(scores, axis=-1), values)
    output = op.Reshape(op.Transpose(mixed, perm=[0, 2, 1, 3]), op.constant(np.array([0, 0, -1], np.int64)))
    return through(output)


def _check(op, node, query, key, value):
    if key is None or value is None or any(op.rank(part) != 3 for part in (query, key, value)):
        raise Fail(f"{node}: there is no gradient of packed or cached keys, only of query, key and value with three axes each")
    names = ("key_padding_mask", "past_key", "past_value", "past_sequence_length", "cache_indirection")
    for name, position in zip(names, (4, 6, 7, 8, 9), strict=True):
        if position < len(node.inputs) and node.inputs[position] is not None:
            raise Fail(f"{node}: there is no gradient of {node.op_type} with {name}")
    hidden = op.shape(query)[-1]
    if not isinstance(hidden, int):
        raise Fail(f"{node}: its gradient needs to know the size of a head, the query's last size is {hidden}")


def _heads(op, value, count):
    """[batch, length, hidden] as [batch, head, length, size]."""
    sizes = [0, 0, count, -1] if not isinstance(op.shape(value)[-1], int) else [0, 0, count, op.shape(value)[-1] // count]
    return op.Transpose(op.Reshape(value, op.constant(np.array(sizes, np.int64))), perm=[0, 2, 1, 3])


def _later(op, scores):
    """What hides from each position those behind it. The last query sees the last key."""
    rows, columns = (op.Slice(op.Shape(scores), starts=[axis], ends=[axis + 1]) for axis in (2, 3))
    ones = op.ConstantOfShape(op.Concat(rows, columns, axis=0), value=np.array([1], op.dtype(scores).numpy))
    difference = op.Add(op.Squeeze(op.Sub(columns, rows), axes=[0]), op.constant(np.array(1, np.int64)))
    return op.scaled(op.Trilu(ones, difference, upper=1), HIDDEN)
