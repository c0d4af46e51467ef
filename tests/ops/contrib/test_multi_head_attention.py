"""Cases of com.microsoft's attentions without projection, and of QAttention."""

import functools
import math

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.dtypes import bfloat16, float16, float32
from sardonyx.providers.cpu.contrib.multi_head_attention import multi_head_attention
from tests.ops.cases import array, case, f32, i32, refuse

CONTRIB = "com.microsoft"
BOTH = {"domain": CONTRIB, "against_onnxruntime": True}
HEADS, SIZE = 2, 4
HIDDEN = HEADS * SIZE


def heads_apart(tensor):
    return tensor if tensor.ndim == 4 else np.stack(np.split(tensor, HEADS, axis=2), axis=1)


def attend(
    query,
    key=None,
    value=None,
    bias=None,
    key_padding_mask=None,
    attention_bias=None,
    past_key=None,
    past_value=None,
    unidirectional=0,
    scale=None,
    mask_filter_value=-10000.0,
):
    """Output, present_key, present_value and qk by the definition, one query at a time."""
    if query.ndim == 5:
        query, key, value = (query[:, :, :, part].reshape(*query.shape[:2], HIDDEN) for part in range(3))
    elif key.ndim == 5:
        key, value = (key[:, :, :, part].reshape(*key.shape[:2], HIDDEN) for part in range(2))
    if bias is not None:
        query = query + bias[:HIDDEN]
        if key.ndim == 3:
            key, value = key + bias[HIDDEN : 2 * HIDDEN], value + bias[2 * HIDDEN :]
    query, key, value = map(heads_apart, (query, key, value))
    before = 0
    if past_key is not None:
        before = past_key.shape[2]
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    batch, _, queries, size = query.shape
    keys = key.shape[2]
    scores = np.zeros((batch, HEADS, queries, keys), np.float32)
    output = np.zeros((batch, queries, HEADS, value.shape[3]), np.float32)
    for b, h, i in np.ndindex(batch, HEADS, queries):
        row = key[b, h] @ query[b, h, i] * (scale or 1 / math.sqrt(size))
        for j in range(keys):
            if key_padding_mask is not None and not kept(key_padding_mask, b, i, j):
                row[j] += mask_filter_value
            if unidirectional and j > i + before:
                row[j] = np.finfo(np.float32).min
        if attention_bias is not None:
            row = row + np.broadcast_to(attention_bias, scores.shape)[b, h, i]
        chances = np.exp(row - row.max(initial=-np.inf))
        scores[b, h, i], output[b, i, h] = row, chances / chances.sum() @ value[b, h]
    return output.reshape(batch, queries, HEADS * value.shape[3]), key, value, scores


def kept(mask, b, i, j):
    if mask.ndim == 1:
        return j < mask[b]
    return (mask[b, i, j] if mask.ndim == 3 else mask[b, j]) > 0


def expecting(count):
    """An expectation of the first `count` outputs."""

    @functools.wraps(attend)
    def expect(**operands):
        return attend(**operands)[:count]

    return expect


Q, K, V = f32(2, 3, HIDDEN), f32(2, 5, HIDDEN), f32(2, 5, HIDDEN)
PAST = {"past_key": f32(2, HEADS, 2, SIZE), "past_value": f32(2, HEADS, 2, SIZE)}
PLAIN = {"query": Q, "key": K, "value": V, "num_heads": HEADS, **BOTH}
case("MultiHeadAttention", **PLAIN, expect=expecting(3))
case("MultiHeadAttention", **PLAIN, expect=expecting(1), scale=0.25)
case("MultiHeadAttention", **PLAIN, expect=expecting(1), bias=f32(3 * HIDDEN))
MASKS = (
    np.array([4, 2], np.int32),
    np.array([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], np.int32),
    i32(2, 3, 5, low=0, high=2),
    np.array([4, 2, 0, 3, 6, 0, 4, 6], np.int32),
)
for mask in MASKS:
    case("MultiHeadAttention", **PLAIN, key_padding_mask=mask, expect=expecting(1))
    # onnxruntime lets the last query see all keys, also those that come after it
    case(
        "MultiHeadAttention",
        **{**PLAIN, "against_onnxruntime": False},
        key_padding_mask=mask,
        unidirectional=1,
        expect=expecting(1),
    )
SELF = {"query": Q, "key": f32(2, 3, HIDDEN), "value": f32(2, 3, HIDDEN), "num_heads": HEADS, **BOTH, "unidirectional": 1}
for mask in (None, np.array([3, 2], np.int32), np.array([[1, 1, 0], [0, 1, 1]], np.int32), i32(2, 3, 3, low=0, high=2)):
    case("MultiHeadAttention", **SELF, key_padding_mask=mask, expect=expecting(1))
case("MultiHeadAttention", **PLAIN, key_padding_mask=MASKS[1], mask_filter_value=-3.0, expect=expecting(1))
for shape in ((1, 1, 3, 5), (2, 1, 3, 5), (1, HEADS, 3, 5), (2, HEADS, 3, 5)):
    case("MultiHeadAttention", **PLAIN, attention_bias=f32(*shape), expect=expecting(1))
case("MultiHeadAttention", **PLAIN, **PAST, expect=expecting(3))
case("MultiHeadAttention", **SELF, **PAST, expect=expecting(3), bias=f32(3 * HIDDEN))
case("MultiHeadAttention", **PLAIN, **PAST, expect=expecting(3), key_padding_mask=i32(2, 7, low=0, high=2))
case("MultiHeadAttention", **PLAIN, **PAST, expect=expecting(3), attention_bias=f32(1, 1, 3, 7))
narrow = {**PLAIN, "value": f32(2, 5, 6)}
case("MultiHeadAttention", **narrow, bias=f32(2 * HIDDEN + 6), expect=expecting(3))
encoder = {"key": f32(2, HEADS, 5, SIZE), "value": f32(2, HEADS, 5, SIZE)}
case("MultiHeadAttention", **{**PLAIN, **encoder}, expect=expecting(1))
case("MultiHeadAttention", **{**PLAIN, **encoder}, bias=f32(3 * HIDDEN), expect=expecting(1))
case("MultiHeadAttention", **{**PLAIN, **encoder}, key_padding_mask=MASKS[1], expect=expecting(1))
ALONE = {"num_heads": HEADS, "domain": CONTRIB}
case("MultiHeadAttention", query=Q, key=K, value=V, **ALONE, expect=expecting(4))
case("MultiHeadAttention", query=Q, key=K, value=V, **ALONE, expect=expecting(4), unidirectional=1, key_padding_mask=MASKS[0])
case("MultiHeadAttention", query=f32(2, 3, HEADS, 3, SIZE), **ALONE, expect=expecting(3))
case(
    "MultiHeadAttention", query=f32(2, 3, HEADS, 3, SIZE), bias=f32(3 * HIDDEN), unidirectional=1, **ALONE, expect=expecting(1)
)
case("MultiHeadAttention", query=Q, key=f32(2, 5, HEADS, 2, SIZE), bias=f32(3 * HIDDEN), **ALONE, expect=expecting(3))
case(
    "MultiHeadAttention",
    query=Q,
    key=K,
    value=V,
    **PAST,
    **ALONE,
    types={"T": {float16, float32, bfloat16}},
    expect=expecting(3),
    rtol=3e-2,
    atol=3e-2,
)
case(
    "MultiHeadAttention", query=f32(1, 1, HIDDEN), key=f32(1, 1, HIDDEN), value=f32(1, 1, HIDDEN), **ALONE, expect=expecting(3)
)
case(
    "MultiHeadAttention", query=f32(0, 3, HIDDEN), key=f32(0, 5, HIDDEN), value=f32(0, 5, HIDDEN), **ALONE, expect=expecting(3)
)
empty = {"past_key": f32(2, HEADS, 0, SIZE), "past_value": f32(2, HEADS, 0, SIZE)}
case("MultiHeadAttention", **PLAIN, **empty, expect=expecting(3))
refuse("MultiHeadAttention", query=Q, key=K, value=V, num_heads=3, domain=CONTRIB, match="not a multiple of num_heads 3")
refuse("MultiHeadAttention", query=Q, **ALONE, match="without a key")
refuse("MultiHeadAttention", query=f32(2, 3, 2, 3, 4), num_heads=1, domain=CONTRIB, match="heads of the query and num_heads")
refuse("MultiHeadAttention", query=f32(2, 3, 1, 2, 4), num_heads=1, domain=CONTRIB, match="query")
refuse("MultiHeadAttention", query=Q, key=f32(2, 5, 1, 2, 4), **ALONE, match="heads of the key and num_heads")
refuse("MultiHeadAttention", query=Q, key=K, **ALONE, match="without a value")
refuse("MultiHeadAttention", query=Q, key=K, value=V, key_padding_mask=i32(2, 4), **ALONE, match="key_padding_mask' shape")

# --- shared buffers and beams

STEP = {"query": f32(4, 1, HIDDEN), "key": f32(4, 1, HIDDEN), "value": f32(4, 1, HIDDEN)}
BUFFER = {"past_key": f32(4, HEADS, 6, SIZE), "past_value": f32(4, HEADS, 6, SIZE)}
BEAMS = i32(2, 2, 6, low=0, high=2)
LENGTH = np.array([3], np.int32)


def step(query, key, value, past_key, past_value, bias=None, cache_indirection=None, mask_index=None):
    """One step behind LENGTH old tokens of which beams share some."""
    old = [past_key[:, :, : LENGTH[0]].copy(), past_value[:, :, : LENGTH[0]].copy()]
    if cache_indirection is not None:
        for i, j, k in np.ndindex(2, 2, int(LENGTH[0])):
            origin = 2 * i + cache_indirection[i, j, k]
            for tensor, buffer in zip(old, (past_key, past_value), strict=True):
                tensor[2 * i + j, :, k] = buffer[origin, :, k]
    output, _, _, _ = attend(query, key, value, bias, mask_index, None, *old)
    shift = np.zeros(3 * HIDDEN, np.float32) if bias is None else bias
    presents = [past_key.copy(), past_value.copy()]
    for tensor, new, part in zip(presents, (key, value), np.split(shift, 3)[1:], strict=True):
        tensor[:, :, LENGTH[0]] = heads_apart(new + part)[:, :, 0]
    return output, *presents


shared = {**STEP, **BUFFER, "past_sequence_length": LENGTH, "num_heads": HEADS, **BOTH, "expect": step}
case("MultiHeadAttention", **shared)
case("MultiHeadAttention", **shared, cache_indirection=BEAMS)
MASKED = {**shared, "past_present_share_buffer": 1}
case("DecoderMaskedMultiHeadAttention", **MASKED)
case("DecoderMaskedMultiHeadAttention", **MASKED, mask_index=i32(4, 4, low=0, high=2))
case("DecoderMaskedMultiHeadAttention", **MASKED, beam_width=np.array([2], np.int32), cache_indirection=BEAMS)
case(
    "DecoderMaskedMultiHeadAttention",
    **MASKED,
    beam_width=np.array([2], np.int32),
    cache_indirection=BEAMS,
    bias=f32(3 * HIDDEN),
)
case(
    "DecoderMaskedMultiHeadAttention",
    query=f32(2, 1, HIDDEN),
    key=f32(2, HEADS, 5, SIZE),
    value=f32(2, HEADS, 5, SIZE),
    output_qk=1,
    **ALONE,
    expect=lambda query, key, value: (attend(query, key, value)[0], ..., ..., attend(query, key, value)[3]),
)
case(
    "DecoderMaskedMultiHeadAttention",
    query=f32(2, 1, 3 * HIDDEN),
    past_key=f32(2, HEADS, 2, SIZE),
    past_value=f32(2, HEADS, 2, SIZE),
    **ALONE,
    expect=lambda query, past_key, past_value: attend(*np.split(query, 3, axis=2), past_key=past_key, past_value=past_value)[
        :3
    ],
)


def test_a_full_buffer_is_refused():
    buffer = np.zeros((4, HEADS, 4, SIZE), np.float32)
    with pytest.raises(errors.KernelError, match="room for 4 rows, 6 are needed"):
        multi_head_attention(
            *STEP.values(), past_key=buffer, past_value=buffer, past_sequence_length=np.array([5], np.int32), num_heads=HEADS
        )


# --- QAttention


def quantized(
    input,
    weight,
    bias,
    input_scale,
    weight_scale,
    mask_index=None,
    input_zero_point=0,
    weight_zero_point=0,
    past=None,
    unidirectional=0,
):
    product = (input.astype(np.int64) - int(input_zero_point)) @ (
        weight.astype(np.int64) - np.asarray(weight_zero_point, np.int64)
    )
    parts = np.split((product * (np.float32(input_scale) * weight_scale) + bias).astype(np.float32), 3, axis=2)
    before = {} if past is None else {"past_key": past[0], "past_value": past[1]}
    output, key, value, _ = attend(*parts, key_padding_mask=mask_index, unidirectional=unidirectional, **before)
    return output, np.stack([key, value])


X, BIAS = array(np.uint8, 2, 3, 5, low=0, high=256), f32(3 * HIDDEN)
for dtype in (np.uint8, np.int8):
    # on CPUs without VNNI onnxruntime adds two products with uint8 in 16 bits, which saturate for weights of 8 bits
    low, high = (0, 256) if dtype == np.uint8 else (-64, 64)
    weights = {"weight": array(dtype, 5, 3 * HIDDEN, low=low, high=high), "bias": BIAS, "input_scale": 0.02}
    QUANTIZED = {"input": X, **weights, "num_heads": HEADS, **BOTH, "expect": quantized, "rtol": 1e-4, "atol": 1e-5}
    points = {"input_zero_point": np.array(120, np.uint8), "weight_zero_point": np.array(9, dtype)}
    case("QAttention", **QUANTIZED, weight_scale=0.01)
    case("QAttention", **QUANTIZED, **points, weight_scale=0.01, mask_index=np.array([2, 3], np.int32))
    case("QAttention", **QUANTIZED, **points, weight_scale=0.01, unidirectional=1, past=f32(2, 2, HEADS, 2, SIZE))
    columns = {"weight_scale": f32(3 * HIDDEN, low=0.01, high=0.02), "weight_zero_point": array(dtype, 3 * HIDDEN)}
    case("QAttention", **QUANTIZED, **columns, input_zero_point=np.array(120, np.uint8))
case(
    "QAttention",
    input=X,
    weight=array(np.uint8, 5, 3 * HIDDEN),
    bias=BIAS,
    input_scale=0.0625,
    weight_scale=0.125,
    types={"T3": {float16, float32}},
    num_heads=HEADS,
    domain=CONTRIB,
    expect=quantized,
    rtol=3e-2,
    atol=3e-2,
)
case(
    "QAttention",
    input=array(np.uint8, 0, 3, 5),
    weight=array(np.uint8, 5, 3 * HIDDEN),
    bias=BIAS,
    input_scale=0.1,
    weight_scale=0.1,
    num_heads=HEADS,
    domain=CONTRIB,
    expect=quantized,
)
REFUSED = {"input": X, "weight": array(np.uint8, 5, 24), "bias": BIAS, "input_scale": 1.0, "weight_scale": 1.0, **ALONE}
refuse("QAttention", **REFUSED, do_rotary=1, match="do_rotary")


def test_scores_have_the_type_that_the_model_declares():
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>'
        " g (float16[1,2,8] q, float16[1,3,8] k, float16[1,3,8] v) => (float16[1,2,8] y, float[1,2,2,3] scores)"
        " { y, , , scores = com.microsoft.MultiHeadAttention<num_heads=2>(q, k, v) }"
    )
    query, key, value = (f32(1, length, HIDDEN).astype(np.float16) for length in (2, 3, 3))
    output, scores = sardonyx.InferenceSession(model.SerializeToString()).run(None, {"q": query, "k": key, "v": value})
    assert output.dtype == np.float16 and scores.dtype == np.float32
    expected = attend(*(part.astype(np.float32) for part in (query, key, value)))[3]
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
