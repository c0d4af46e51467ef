"""Attention as torch's CPU has it: forward keeps the logarithm of each row's sum, backward makes the scores again from it."""

from __future__ import annotations

import math

import numpy as np

from sardonyx import dtypes
from sardonyx.training.torch.aten.table import aten
from sardonyx.training.torch.types import Unsupported


def _factor(op, query, scale):
    if scale is not None:
        return float(scale)
    width = op.shape(query)[-1]
    if not isinstance(width, int):
        raise Unsupported("attention over heads of open width")
    return 1 / math.sqrt(width)


def _scores(op, query, key, scale, attn_mask, is_causal):
    scores = op.MatMul(op.scaled(query, _factor(op, query, scale)), op.Transpose(key, perm=[0, 1, 3, 2]))
    if is_causal:
        scores = op.Add(scores, _causal(op, query, key))
    if attn_mask is None:
        return scores
    if op.dtype(attn_mask) is dtypes.bool_:
        return op.Where(attn_mask, scores, op.number(-math.inf, scores))
    return op.Add(scores, attn_mask)


def _causal(op, query, key):
    """Minus infinity where a key comes after its query."""
    shape = op.Concat(op.Shape(query, start=2, end=3), op.Shape(key, start=2, end=3), axis=0)
    whole = op.ConstantOfShape(shape, value=np.array([-math.inf], op.dtype(query).numpy))
    return op.Trilu(whole, op.constant(np.array(1, np.int64)), upper=1)


@aten("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(op, query, key, value, dropout_p=0.0, is_causal=False, attn_mask=None, scale=None):
    if dropout_p:
        raise Unsupported("dropout inside of attention")
    if op.dtype(query) in dtypes.HALVES:
        raise Unsupported("attention in half precision")
    scores = _scores(op, query, key, scale, attn_mask, is_causal)
    rows = op.ReduceLogSumExp(scores, axes=[3], keepdims=0)
    shares = op.Softmax(scores, axis=3)
    if attn_mask is not None:
        shares = _without_empty_rows(op, shares, rows)
    return op.MatMul(shares, value), rows


def _without_empty_rows(op, shares, rows):
    """A query that sees no key at all gets zeros."""
    return op.where(op.Greater(op.Unsqueeze(rows, axes=[3]), op.number(-math.inf, rows)), shares)


@aten("_scaled_dot_product_flash_attention_for_cpu_backward.default")
def attention_backward(op, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask=None, scale=None):
    if dropout_p:
        raise Unsupported("dropout inside of attention")
    scores = _scores(op, query, key, scale, attn_mask, is_causal)
    shares = op.Exp(op.Sub(scores, op.Unsqueeze(logsumexp, axes=[3])))
    if attn_mask is not None:
        shares = _without_empty_rows(op, shares, logsumexp)
    by_value = op.MatMul(op.Transpose(shares, perm=[0, 1, 3, 2]), grad_out)
    by_share = op.MatMul(grad_out, op.Transpose(value, perm=[0, 1, 3, 2]))
    rows = op.ReduceSum(op.Mul(grad_out, out), axes=[3], keepdims=1)
    by_score = op.scaled(op.Mul(shares, op.Sub(by_share, rows)), _factor(op, query, scale))
    by_key = op.MatMul(op.Transpose(by_score, perm=[0, 1, 3, 2]), query)
    return op.MatMul(by_score, key), by_key, by_value
