"""Cases of com.microsoft's Attention, against a walk over batch, heads and queries."""

import math

import numpy as np
import pytest

from sardonyx import errors
from sardonyx.dtypes import FLOATS, float64
from sardonyx.providers.cpu.contrib.attention import attention_with_projection
from tests.ops.cases import case, f32, i32, refuse

CONTRIB = "com.microsoft"
HEADS, SIZE, WIDTH = 2, 4, 5


def attend(
    input,
    weights,
    bias=None,
    mask_index=None,
    past=None,
    attention_bias=None,
    unidirectional=0,
    qkv_hidden_sizes=None,
    scale=None,
    mask_filter_value=-10000.0,
):
    """Output and present by the definition."""
    sizes = qkv_hidden_sizes or [weights.shape[1] // 3] * 3
    projected = input.astype(np.float64) @ weights + (0 if bias is None else bias)
    parts = np.split(projected, np.cumsum(sizes)[:2], axis=2)
    query, key, value = (np.stack(np.split(part, HEADS, axis=2), axis=1) for part in parts)
    before = 0 if past is None else past.shape[3]
    if past is not None:
        key, value = np.concatenate([past[0], key], axis=2), np.concatenate([past[1], value], axis=2)
    batch, _, queries, size = query.shape
    keys = key.shape[2]
    output = np.zeros((batch, HEADS, queries, value.shape[3]))
    for b, h, i in np.ndindex(batch, HEADS, queries):
        row = (scale or 1 / math.sqrt(size)) * key[b, h] @ query[b, h, i]
        for j in range(keys):
            if mask_index is not None and not kept(mask_index, batch, b, i, j):
                row[j] += mask_filter_value
            if unidirectional and j > i + before:
                row[j] = -np.inf
        if attention_bias is not None:
            row = row + np.broadcast_to(attention_bias, (batch, HEADS, queries, keys))[b, h, i]
        chances = np.exp(row - row.max())
        output[b, h, i] = chances / chances.sum() @ value[b, h]
    merged = output.transpose(0, 2, 1, 3).reshape(batch, queries, HEADS * value.shape[3])
    return merged if qkv_hidden_sizes else (merged, np.stack([key, value]))


def kept(mask, batch, b, i, j):
    if mask.ndim == 1:
        return j < mask[b] and (len(mask) == batch or j >= mask[batch + b])
    return (mask[b, i, j] if mask.ndim == 3 else mask[b, j]) > 0


X, W, B = f32(2, 3, WIDTH), f32(WIDTH, 3 * HEADS * SIZE), f32(3 * HEADS * SIZE)
COMMON = {"weights": W, "bias": B, "num_heads": HEADS, "domain": CONTRIB, "expect": attend}
PAST = f32(2, 2, HEADS, 2, SIZE)
case("Attention", input=X, **COMMON, types={"T": FLOATS - {float64}}, rtol=3e-2, atol=5e-2)
case("Attention", input=X, **COMMON, scale=0.25)
for masked in (
    {},
    {"mask_index": np.array([2, 3], np.int32)},
    {"mask_index": np.array([3, 2, 1, 0], np.int32)},
    {"mask_index": np.array([[1, 0, 1], [1, 1, 0]], np.int32)},
    {"mask_index": i32(2, 3, 3, low=0, high=2), "mask_filter_value": -5.0},
):
    for unidirectional in (0, 1):
        case("Attention", input=X, **COMMON, **masked, unidirectional=unidirectional)
case("Attention", input=X, **COMMON, mask_index=np.array([2, 3], np.int32), outputs=2)
for mask in (np.array([5, 4], np.int32), np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], np.int32), i32(2, 3, 5, low=0, high=2)):
    for unidirectional in (0, 1):
        settings = {"past": PAST, "mask_index": mask, "unidirectional": unidirectional, "against_onnxruntime": True}
        case("Attention", input=X, **COMMON, **settings)
for shape in ((1, 1, 3, 3), (2, 1, 3, 3), (2, HEADS, 3, 3)):
    case("Attention", input=X, **COMMON, attention_bias=f32(*shape))
case(
    "Attention",
    input=X,
    weights=f32(WIDTH, 20),
    bias=f32(20),
    num_heads=HEADS,
    qkv_hidden_sizes=[8, 8, 4],
    domain=CONTRIB,
    against_onnxruntime=True,
    expect=attend,
)
case("Attention", input=f32(0, 3, WIDTH), **COMMON)
refuse("Attention", input=X, **{**COMMON, "expect": None}, do_rotary=1, match="do_rotary")
refuse("Attention", input=X, **{**COMMON, "expect": None}, mask_index=np.ones(8, np.int32), match=r"mask_index of shape \[8\]")
WRONG_SIZES = {
    (8, 8, 2**31 - 2): "are not the 24 columns",
    (8, 8, 2**31 - 1): "must be multiples of num_heads",
    (8, 8, -8): "must be multiples of num_heads",
    (8, 4, 12): "must be the same for queries and keys",
    (8, 8): "must be three sizes",
}
for sizes, match in WRONG_SIZES.items():
    refuse("Attention", input=X, **{**COMMON, "expect": None}, qkv_hidden_sizes=list(sizes), match=match)
refuse(
    "Attention", input=X, weights=f32(WIDTH, 25), bias=f32(25), num_heads=HEADS, domain=CONTRIB, match="25 columns of weights"
)
refuse("Attention", input=f32(3, WIDTH), **{**COMMON, "expect": None}, match="input must have rank 3")


def test_a_mask_for_all_positions_is_cut_to_those_at_hand():
    whole = np.tril(np.ones((2, 1, 6, 6), np.int32))
    output, _ = attention_with_projection(X, W, B, whole, PAST, num_heads=HEADS)
    causal, _ = attention_with_projection(X, W, B, None, PAST, num_heads=HEADS, unidirectional=1)
    np.testing.assert_allclose(output, causal, atol=1e-6)


def test_a_shared_buffer_is_filled_behind_the_past():
    buffer = np.zeros((2, 2, HEADS, 7, SIZE), np.float32)
    buffer[:, :, :, :2] = PAST
    length = np.array([2], np.int32)
    shared = {"past_sequence_length": length, "past_present_share_buffer": 1}
    output, present = attention_with_projection(X, W, B, None, buffer, num_heads=HEADS, **shared)
    expected, state = attention_with_projection(X, W, B, None, PAST, num_heads=HEADS)
    np.testing.assert_allclose(output, expected, atol=1e-6)
    np.testing.assert_array_equal(present[:, :, :, :5], state)
    assert present.shape == buffer.shape and not present[:, :, :, 5:].any()


def test_heads_must_divide_the_hidden_size():
    with pytest.raises(errors.KernelError, match="cannot be divided among"):
        attention_with_projection(X, W, B, num_heads=3)
