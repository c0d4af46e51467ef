"""QEmbedLayerNormalization of com.microsoft: embeddings of 8-bit tables, added up and normalized."""

from __future__ import annotations

from sardonyx.dtypes import float32, int8, int32, uint8
from sardonyx.ops.quantize import check_counts, check_scales
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import fresh_shape, merge_shapes
from sardonyx.ops.table import in_domain

define(
    "com.microsoft",
    "QEmbedLayerNormalization",
    1,
    "(input_ids: T1, segment_ids: T1?, word_embedding_quant: T2, position_embedding_quant: T2, segment_embedding: T2?,"
    " gamma_quant: T2, beta_quant: T2, mask: T1?, word_embedding_scale: T, position_embedding_scale: T,"
    " segment_embedding_scale: T?, gamma_scale: T, beta_scale: T, word_embedding_zero_point: T2,"
    " position_embedding_zero_point: T2, segment_embedding_zero_point: T2?, gamma_zero_point: T2, beta_zero_point: T2, *,"
    " epsilon: float = 1e-12) -> (layernorm_out: T, mask_index_out: T1)",
    T={float32},
    T1={int32},
    T2={uint8, int8},
)


@in_domain("com.microsoft")("QEmbedLayerNormalization")
def q_embed_layer_normalization(
    input_ids,
    word_embedding_quant,
    word_embedding_scale,
    position_embedding_scale,
    segment_embedding_scale,
    gamma_scale,
    beta_scale,
    mask,
):
    scales = {
        "word_embedding_scale": word_embedding_scale,
        "position_embedding_scale": position_embedding_scale,
        "segment_embedding_scale": segment_embedding_scale,
        "gamma_scale": gamma_scale,
        "beta_scale": beta_scale,
    }
    check_scales(**scales)
    check_counts(**scales)
    if mask is not None:
        merge_shapes(input_ids.shape, mask.shape, "input_ids and mask")
    batch, length = input_ids.require_rank(2, name="input_ids") or fresh_shape(2)
    _, hidden = word_embedding_quant.require_rank(2, name="word_embedding_quant") or fresh_shape(2)
    return [(batch, length, hidden), (batch,)]
