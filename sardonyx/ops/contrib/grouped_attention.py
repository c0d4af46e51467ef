"""GroupQueryAttention and SparseAttention of com.microsoft: with a cache of keys and values that groups of query heads share."""

from __future__ import annotations

from sardonyx.dtypes import bfloat16, float8e4m3fn, float16, float32, int8, int32, uint8
from sardonyx.errors import InferenceError
from sardonyx.ir import TensorType, dim
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, require_positive
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "GroupQueryAttention",
    1,
    "(query: T, key: T?, value: T?, past_key: T_CACHE?, past_value: T_CACHE?, seqlens_k: M, total_sequence_length: M,"
    " cos_cache: T?, sin_cache: T?, position_ids: int64?, attention_bias: T?, head_sink: T?, k_scale: T_KV_SCALE?,"
    " v_scale: T_KV_SCALE?, q_norm_weight: T?, k_norm_weight: T?, *, num_heads: int, kv_num_heads: int, scale: float?,"
    " softcap: float = 0.0, local_window_size: int = -1, do_rotary: int = 0, rotary_interleaved: int = 0,"
    " smooth_softmax: int = -1, causal: int = 1, qk_output: int = 0, k_quant_type: string = 'NONE',"
    " v_quant_type: string = 'NONE', kv_cache_bit_width: int = 0, sliding_window_cache: int = 0,"
    " qk_norm_epsilon: float = 1e-6)"
    " -> (output: T, present_key: T_CACHE?, present_value: T_CACHE?, output_qk: T?)",
    T={float32, float16, bfloat16},
    T_CACHE={float32, float16, bfloat16, float8e4m3fn, int8, uint8},
    T_KV_SCALE={float32},
    M={int32},
)
define(
    "com.microsoft",
    "SparseAttention",
    1,
    "(query: T, key: T?, value: T?, past_key: T, past_value: T, block_row_indices: M, block_col_indices: M,"
    " total_sequence_length: M, key_total_sequence_lengths: M, cos_cache: T?, sin_cache: T?, *, num_heads: int,"
    " kv_num_heads: int, sparse_block_size: int, scale: float?, do_rotary: int = 0, rotary_interleaved: int = 0)"
    " -> (output: T, present_key: T, present_value: T)",
    T={float32, float16, bfloat16},
    M={int32},
)


@contrib("GroupQueryAttention")
def group_query_attention(
    query,
    key,
    past_key,
    past_value,
    total_sequence_length,
    k_scale,
    v_scale,
    num_heads,
    kv_num_heads,
    k_quant_type,
    v_quant_type,
    kv_cache_bit_width,
    sliding_window_cache,
):
    for kind, scale, past in ((k_quant_type, k_scale, past_key), (v_quant_type, v_scale, past_value)):
        if (kind != "NONE" or scale is not None) and (scale is None or past is None):
            raise InferenceError(f"a {kind} quantized cache needs past_key, past_value and their scales")
    if kv_cache_bit_width not in (0, 4, 8):
        raise InferenceError(f"kv_cache_bit_width must be 4 or 8, or 0 if nothing is quantized; it is {kv_cache_bit_width}")
    batch, length, size = _sizes(query, key, num_heads, kv_num_heads)
    total = total_sequence_length.as_size("total_sequence_length")
    before = None if past_key is None else past_key.require_rank(4, name="past_key") or fresh_shape(4)
    if before is None:
        rows, columns = total, size
    else:
        rows = before[2] if sliding_window_cache else dim.maximum(before[2], total)
        columns = dim.floordiv(size + 1, 2) if kv_cache_bit_width == 4 else size
    present = TensorType(query.dtype if past_key is None else past_key.dtype, (batch, kv_num_heads, rows, columns))
    return [(batch, length, num_heads * size), present, present, (batch, num_heads, length, total)]


def _sizes(query, key, num_heads, kv_num_heads):
    """Batch, sequence length and head size."""
    require_positive(num_heads=num_heads, kv_num_heads=kv_num_heads)
    if num_heads % kv_num_heads:
        raise InferenceError(f"num_heads {num_heads} is not a multiple of kv_num_heads {kv_num_heads}")
    batch, length, width = query.require_rank(3, name="query") or fresh_shape(3)
    heads = num_heads if key is not None else num_heads + 2 * kv_num_heads
    if isinstance(width, int) and width % heads:
        raise InferenceError(f"the query's hidden size {width} is not a multiple of its {heads} heads")
    return batch, length, dim.floordiv(width, heads)


@contrib("SparseAttention")
def sparse_attention(query, key, past_key, past_value, num_heads, kv_num_heads):
    batch, length, size = _sizes(query, key, num_heads, kv_num_heads)
    caches = [cache.require_rank(4, name=name) for cache, name in ((past_key, "past_key"), (past_value, "past_value"))]
    return [(batch, length, num_heads * size), *caches]
