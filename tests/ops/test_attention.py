"""Cases of Attention, FlexAttention, LinearAttention and RotaryEmbedding, against formulas that go query by query."""

import math

import numpy as np
import pytest

from sardonyx import dtypes, errors
from sardonyx.dtypes import FLOATS
from sardonyx.providers.cpu.attention import attention, flex_attention
from tests.ops.cases import booleans, case, f32, f64, refuse

INF = np.inf
PREVIEW = "ai.onnx.preview"


def apart(tensor, heads):
    """(batch, sequence, heads·size) cut into a matrix for each head."""
    if tensor.ndim == 4:
        return tensor.astype(np.float64)
    return np.stack(np.split(tensor.astype(np.float64), heads, axis=2), axis=1)


def softmax(row):
    if not row.size or row.max() == -INF:
        return np.zeros_like(row)
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def attend(
    Q,
    K,
    V,
    attn_mask=None,
    past_key=None,
    past_value=None,
    nonpad_kv_seqlen=None,
    is_causal=0,
    q_num_heads=None,
    kv_num_heads=None,
    left_window_size=-1,
    right_window_size=-1,
    scale=None,
    softcap=0.0,
    qk_matmul_output_mode=0,
):
    """Attention by its definition: every query looks at every key in turn."""
    query, key, value = apart(Q, q_num_heads), apart(K, kv_num_heads), apart(V, kv_num_heads)
    past = 0
    if past_key is not None:
        past = past_key.shape[2]
        key, value = np.concatenate([past_key, key], axis=2), np.concatenate([past_value, value], axis=2)
    batch, heads, queries, size = query.shape
    keys, group = key.shape[2], heads // key.shape[1]
    scale = 1 / math.sqrt(size) if scale is None else scale
    stages = np.zeros((4, batch, heads, queries, keys))
    output = np.zeros((batch, heads, queries, value.shape[3]))
    for b, h, i in np.ndindex(batch, heads, queries):
        offset = past if nonpad_kv_seqlen is None else nonpad_kv_seqlen[b] - queries
        raw = scale * key[b, h // group] @ query[b, h, i]
        capped = softcap * np.tanh(raw / softcap) if softcap > 0 else raw
        row = capped.copy()
        for j in range(keys):
            p = i + offset
            seen = nonpad_kv_seqlen is None or j < nonpad_kv_seqlen[b]
            seen = seen and not (is_causal and j > p)
            seen = seen and (left_window_size < 0 or j >= p - left_window_size)
            seen = seen and (right_window_size < 0 or j <= p + right_window_size)
            if attn_mask is not None:
                if j >= attn_mask.shape[-1]:
                    seen = False
                else:
                    target = (batch, heads, queries, attn_mask.shape[-1])
                    entry = np.broadcast_to(attn_mask, target)[b, h, i, j]
                    if attn_mask.dtype == bool:
                        seen = seen and entry
                    else:
                        row[j] += entry
            if not seen:
                row[j] = -INF
        weights = softmax(row)
        stages[:, b, h, i] = raw, capped, row, weights
        output[b, h, i] = weights @ value[b, h // group]
    if Q.ndim == 3:
        output = output.transpose(0, 2, 1, 3).reshape(batch, queries, -1)
    return output, key, value, stages[qk_matmul_output_mode]


Q, K, V = f32(2, 4, 3, 8), f32(2, 2, 5, 8), f32(2, 2, 5, 6)
case("Attention", Q=Q, K=K, V=V, types={"T1": FLOATS, "T2": FLOATS}, outputs=1, expect=lambda Q, K, V: attend(Q, K, V)[:1])
case("Attention", Q=Q, K=K, V=V, scale=0.25, expect=attend)
case(
    "Attention",
    Q=Q,
    K=f32(2, 2, 20, 8),
    V=f32(2, 2, 20, 6),
    types={"T1": FLOATS, "T2": FLOATS},
    outputs=1,
    expect=lambda Q, K, V: attend(Q, K, V)[:1],
)
case("Attention", Q=f32(2, 3, 8), K=f32(2, 5, 4), V=f32(2, 5, 6), q_num_heads=4, kv_num_heads=2, expect=attend)
case("Attention", Q=Q, K=K[:, :1], V=V[:, :1], expect=attend)
for mode in range(4):
    case("Attention", Q=Q, K=K, V=V, softcap=math.nan, qk_matmul_output_mode=mode, expect=attend)
    case("Attention", Q=Q, K=K, V=V, softcap=0.5, qk_matmul_output_mode=mode, attn_mask=f32(3, 5), expect=attend)
for mask in (
    f32(3, 5),
    f32(1, 5),
    f32(4, 3, 5),
    f32(2, 1, 3, 5),
    f32(2, 4, 3, 5),
    booleans(3, 5),
    booleans(2, 1, 3, 5),
    f32(5),
):
    case("Attention", Q=Q, K=K, V=V, attn_mask=mask, expect=attend)
    case("Attention", Q=Q, K=K, V=V, attn_mask=mask, is_causal=1, expect=attend)
case(
    "Attention",
    Q=Q,
    K=K,
    V=V,
    attn_mask=np.arange(15).reshape(3, 5),
    types={"U": dtypes.INTS - dtypes.SUB_BYTE_INTS},
    expect=attend,
)
case("Attention", Q=Q, K=K, V=V, attn_mask=f32(3, 4), since=24, expect=attend)
case("Attention", Q=Q, K=K, V=V, attn_mask=booleans(1, 1, 3, 1), since=24, expect=attend)
spread = lambda Q, K, V, attn_mask: attend(Q, K, V, np.broadcast_to(attn_mask, (3, 5)))  # noqa: E731
case("Attention", Q=Q, K=K, V=V, attn_mask=f32(3, 1), until=23, expect=spread)

PAST = {"past_key": f32(2, 2, 4, 8), "past_value": f32(2, 2, 4, 6)}
case("Attention", Q=Q, K=K, V=V, **PAST, expect=attend)
case("Attention", Q=Q, K=K, V=V, **PAST, is_causal=1, attn_mask=f32(3, 9), expect=attend)
case("Attention", Q=Q, K=K, V=V, past_key=f32(2, 2, 0, 8), past_value=f32(2, 2, 0, 6), is_causal=1, expect=attend)
for lengths in ([5, 3], [5, 0], [2, 1]):
    counts = np.array(lengths)
    case("Attention", Q=Q, K=K, V=V, nonpad_kv_seqlen=counts, expect=attend)
    case("Attention", Q=Q, K=K, V=V, nonpad_kv_seqlen=counts, is_causal=1, expect=attend)
for left, right in ((1, -1), (-1, 1), (2, 0), (0, 0), (1, 2)):
    windows = {"left_window_size": left, "right_window_size": right}
    case("Attention", Q=Q, K=K, V=V, **windows, expect=attend)
    case("Attention", Q=Q, K=K, V=V, **windows, is_causal=1, expect=attend)
    case("Attention", Q=Q, K=K, V=V, **windows, **PAST, expect=attend)
    case("Attention", Q=Q, K=K, V=V, **windows, nonpad_kv_seqlen=np.array([4, 3]), expect=attend)

# a query that may see nothing gets zeros, even if its scores are infinite or undefined
BLIND = np.array([[0, 0, 0, 0, 0], [-INF, -INF, -INF, -INF, -INF], [-INF, 0, -INF, 0, 1]], np.float32)
case("Attention", Q=Q, K=K, V=V, attn_mask=BLIND, qk_matmul_output_mode=3, expect=attend)
case("Attention", Q=Q, K=K, V=V, attn_mask=BLIND == 0, qk_matmul_output_mode=2, expect=attend)
POISONED = np.where(np.arange(5)[:, None] == 2, np.float32(INF), K)
case(
    "Attention",
    Q=np.ones_like(Q),
    K=POISONED,
    V=V,
    attn_mask=np.array([True, True, False, False, True]),
    expect=lambda Q, K, V, attn_mask: attend(Q, np.where(np.isinf(K), 0, K), V, attn_mask)[0],
    outputs=1,
)

# sizes of zero
case("Attention", Q=f32(0, 4, 3, 8), K=f32(0, 2, 5, 8), V=f32(0, 2, 5, 6), expect=attend)
case("Attention", Q=f32(2, 4, 0, 8), K=K, V=V, is_causal=1, expect=attend)
case("Attention", Q=Q, K=f32(2, 2, 0, 8), V=f32(2, 2, 0, 6), expect=attend)

refuse("Attention", Q=f32(2, 3, 8), K=f32(2, 5, 8), V=f32(2, 5, 8), match="q_num_heads")
refuse("Attention", Q=f32(2, 3, 9), K=f32(2, 5, 8), V=f32(2, 5, 8), q_num_heads=2, kv_num_heads=2, match="9 is not a multiple")
refuse("Attention", Q=Q, K=f32(2, 3, 5, 8), V=f32(2, 3, 5, 8), match="4 query heads cannot share 3")
refuse("Attention", Q=f32(2, 8), K=K, V=V, match="Q must have rank 3 or 4")
for number in (-1e38, -1.0, 0.0):
    refuse("Attention", Q=Q, K=K, V=V, scale=number, match="scale must be greater than 0 if specified")
for number in (-1, 99):
    refuse("Attention", Q=Q, K=K, V=V, softmax_precision=number, match=f"softmax_precision {number} is no element type")
    refuse("Attention", Q=Q, K=K, V=V, qk_matmul_output_mode=number, match="qk_matmul_output_mode must be 0, 1, 2 or 3")
case("Attention", Q=Q, K=K, V=V, softmax_precision=0, against_onnxruntime=True)


def test_softmax_precision_rounds_the_weights_of_attention():
    query, key, value = f64(1, 1, 2, 4), f64(1, 1, 3, 4), f64(1, 1, 3, 4)
    exact, *_ = attention(query, key, value)
    for code, coarse in ((1, 1e-6), (10, 5e-3), (16, 5e-2)):
        output, *_, weights = attention(query, key, value, softmax_precision=code, qk_matmul_output_mode=3)
        kind = dtypes.from_code(code).numpy
        assert (weights == weights.astype(kind).astype(np.float64)).all()
        assert 0 < np.abs(output - exact).max() < coarse


def test_a_row_of_many_keys_keeps_its_weight_in_bfloat16():
    ones = np.ones((1, 1, 1, 4), dtypes.bfloat16.numpy)
    output, *_ = attention(ones, np.ones((1, 1, 1000, 4), ones.dtype), np.ones((1, 1, 1000, 4), ones.dtype))
    np.testing.assert_allclose(output.astype(np.float32), 1, rtol=1e-2)


# --- FlexAttention ---------------------------------------------------------------------------------------------------

case("FlexAttention", Q=Q, K=K, V=V, domain=PREVIEW, types={"T1": FLOATS}, expect=lambda Q, K, V: attend(Q, K, V)[0])
case("FlexAttention", Q=Q, K=K, V=V, scale=0.5, domain=PREVIEW, expect=lambda Q, K, V: attend(Q, K, V, scale=0.5)[0])
case(
    "FlexAttention",
    Q=f32(0, 4, 3, 8),
    K=f32(0, 2, 5, 8),
    V=f32(0, 2, 5, 6),
    domain=PREVIEW,
    expect=lambda: np.zeros((0, 4, 3, 6)),
)
case(
    "FlexAttention",
    Q=Q,
    K=K,
    V=V,
    score_mod="g (float[2,4,3,5] s) => (float[2,4,3,5] t) { t = Tanh(s) }",
    domain=PREVIEW,
    expect=lambda Q, K, V: attend(Q, K, V, softcap=1.0)[0],
)
case(
    "FlexAttention",
    Q=Q,
    K=K,
    V=V,
    prob_mod="g (float[2,4,3,5] p) => (float[2,4,3,5] q) { q = Add(p, p) }",
    domain=PREVIEW,
    expect=lambda Q, K, V: 2 * attend(Q, K, V)[0],
)
refuse(
    "FlexAttention",
    Q=Q,
    K=K,
    V=V,
    score_mod="g (float[2,4,3,5] s) => (float[2,60] t) { t = Flatten(s) }",
    domain=PREVIEW,
    match="score_mod must keep the shape",
)
refuse("FlexAttention", Q=f32(2, 3, 8), K=K, V=V, domain=PREVIEW, match="Q must have rank 4")


def test_score_and_prob_modifiers_see_the_softmax_precision():
    seen = []

    def remember(tensor):
        seen.append(tensor.dtype)
        return [tensor]

    flex_attention(Q, K, V, softmax_precision=10, score_mod=remember, prob_mod=remember)
    flex_attention(Q.astype(np.float64), K.astype(np.float64), V.astype(np.float64), score_mod=remember)
    assert seen == [np.float16, np.float16, np.float64]


# --- RotaryEmbedding -------------------------------------------------------------------------------------------------


def rotated(X, cos_cache, sin_cache, position_ids=None, interleaved=0, num_heads=None, rotary_embedding_dim=0):
    """Each pair of features is a complex number that is turned by multiplying it with another."""
    heads = apart(X, num_heads)
    turn = cos_cache.astype(np.float64) + 1j * sin_cache
    turn = turn if position_ids is None else turn[position_ids]
    width = rotary_embedding_dim or heads.shape[3]
    first, second = (
        (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, width // 2), slice(width // 2, width))
    )
    turned = (heads[..., first] + 1j * heads[..., second]) * turn[:, None]
    result = heads.copy()
    result[..., first], result[..., second] = turned.real, turned.imag
    return result if X.ndim == 4 else result.transpose(0, 2, 1, 3).reshape(X.shape)


POSITIONS = np.array([[0, 3, 1], [9, 9, 2]])
ROTARY = {"T": FLOATS - {dtypes.float64}}
for interleaved in (0, 1):
    settings = {"interleaved": interleaved, "expect": rotated}
    case(
        "RotaryEmbedding",
        X=f32(2, 4, 3, 8),
        cos_cache=f32(10, 4),
        sin_cache=f32(10, 4),
        position_ids=POSITIONS,
        types=ROTARY,
        **settings,
    )
    case("RotaryEmbedding", X=f32(2, 4, 3, 8), cos_cache=f32(2, 3, 4), sin_cache=f32(2, 3, 4), **settings)
    case("RotaryEmbedding", X=f32(2, 3, 16), cos_cache=f32(2, 3, 4), sin_cache=f32(2, 3, 4), num_heads=2, **settings)
    partly = {"rotary_embedding_dim": 4, "num_heads": 2}
    case(
        "RotaryEmbedding",
        X=f32(2, 3, 16),
        cos_cache=f32(10, 2),
        sin_cache=f32(10, 2),
        position_ids=POSITIONS,
        **partly,
        **settings,
    )
case("RotaryEmbedding", X=f32(0, 4, 3, 8), cos_cache=f32(0, 3, 4), sin_cache=f32(0, 3, 4), expect=rotated)
refuse(
    "RotaryEmbedding",
    X=f32(2, 4, 3, 8),
    cos_cache=f32(9, 4),
    sin_cache=f32(9, 4),
    position_ids=POSITIONS,
    kind=errors.InvalidArgument,
    match=r"position_ids value 9 is out of range \[0, 9\)",
)
refuse(
    "RotaryEmbedding", X=f32(2, 4, 3, 8), cos_cache=f32(2, 3, 3), sin_cache=f32(2, 3, 3), match="rotary_embedding_dim/2 is 4"
)
refuse("RotaryEmbedding", X=f32(2, 3, 16), cos_cache=f32(2, 3, 4), sin_cache=f32(2, 3, 4), match="cannot be divided among")


# --- LinearAttention -------------------------------------------------------------------------------------------------


def recur(
    query, key, value, q_num_heads, kv_num_heads, past_state=None, decay=None, beta=None, scale=0.0, update_rule="gated_delta"
):
    """The recurrence head by head and token by token."""
    batch, steps, _ = query.shape
    queries, keys, values = apart(query, q_num_heads), apart(key, kv_num_heads), apart(value, kv_num_heads)
    key_size, value_size = keys.shape[3], values.shape[3]
    gates = None if decay is None else apart(decay, kv_num_heads)
    states = np.zeros((batch, kv_num_heads, key_size, value_size)) if past_state is None else past_state.astype(np.float64)
    states = states.copy()
    output = np.zeros((batch, q_num_heads, steps, value_size))
    for b, t, g in np.ndindex(batch, steps, kv_num_heads):
        state, k, v = states[b, g], keys[b, g, t], values[b, g, t]
        if "gated" in update_rule:
            state = np.exp(gates[b, g, t])[:, None] * state
        if "delta" in update_rule:
            rate = beta[b, t, g if beta.shape[2] > 1 else 0]
            state = state + rate * np.outer(k, v - state.T @ k)
        else:
            state = state + np.outer(k, v)
        states[b, g] = state
        for h in range(q_num_heads // kv_num_heads):
            head = g * (q_num_heads // kv_num_heads) + h
            output[b, head, t] = (scale or 1 / math.sqrt(key_size)) * queries[b, head, t] @ state
    return output.transpose(0, 2, 1, 3).reshape(batch, steps, -1), states


HEADS = {"q_num_heads": 4, "kv_num_heads": 2}
TOKENS = {"query": f32(2, 3, 12), "key": f32(2, 3, 6), "value": f32(2, 3, 10)}
HALF_OR_SINGLE = {"T": FLOATS - {dtypes.float64}}
case("LinearAttention", **TOKENS, **HEADS, update_rule="linear", types=HALF_OR_SINGLE, rtol=3e-2, atol=1e-1, expect=recur)
for shape in ((2, 3, 6), (2, 3, 2)):
    decay = -np.abs(f32(*shape))
    case("LinearAttention", **TOKENS, **HEADS, update_rule="gated", decay=decay, expect=recur)
    for rates in ((2, 3, 2), (2, 3, 1)):
        beta = f32(*rates, low=0, high=1)
        case("LinearAttention", **TOKENS, **HEADS, update_rule="delta", beta=beta, scale=0.5, expect=recur)
        case(
            "LinearAttention", **TOKENS, **HEADS, decay=decay, beta=beta, past_state=f32(2, 2, 3, 5), chunk_size=2, expect=recur
        )
case(
    "LinearAttention",
    **TOKENS,
    **HEADS,
    update_rule="linear",
    past_state=f32(2, 2, 3, 5),
    types={"S": HALF_OR_SINGLE["T"]},
    rtol=2e-2,
    atol=5e-2,
    expect=recur,
)
refuse("LinearAttention", **TOKENS, **HEADS, update_rule="gated", match="needs the input decay")
refuse("LinearAttention", **TOKENS, **HEADS, update_rule="delta", match="needs the input beta")
refuse("LinearAttention", **TOKENS, **HEADS, update_rule="other", match="update_rule is .*, expected one of")
refuse("LinearAttention", **TOKENS, q_num_heads=3, kv_num_heads=2, update_rule="linear", match="cannot share|not a multiple")


@pytest.mark.parametrize("softcap", [0.0, -1.0, math.nan])
def test_a_softcap_that_is_not_positive_caps_nothing(softcap):
    np.testing.assert_array_equal(attention(Q, K, V, softcap=softcap)[0], attention(Q, K, V)[0])
