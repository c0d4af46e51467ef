"""QEmbedLayerNormalization of com.microsoft, in NumPy."""

from __future__ import annotations

from sardonyx.providers.cpu.contrib.normalization import embed_layer_normalization
from sardonyx.providers.cpu.contrib.quantize import real_values
from sardonyx.providers.cpu.table import cpu


@cpu.kernel("QEmbedLayerNormalization", domain="com.microsoft")
def q_embed_layer_normalization(
    input_ids,
    segment_ids,
    word_embedding_quant,
    position_embedding_quant,
    segment_embedding,
    gamma_quant,
    beta_quant,
    mask=None,
    word_embedding_scale=None,
    position_embedding_scale=None,
    segment_embedding_scale=None,
    gamma_scale=None,
    beta_scale=None,
    word_embedding_zero_point=None,
    position_embedding_zero_point=None,
    segment_embedding_zero_point=None,
    gamma_zero_point=None,
    beta_zero_point=None,
    *,
    epsilon=1e-12,
):
    segments = None
    if segment_embedding is not None:
        segments = real_values(segment_embedding, segment_embedding_scale, segment_embedding_zero_point)
    output, mask_index, _ = embed_layer_normalization(
        input_ids,
        segment_ids,
        real_values(word_embedding_quant, word_embedding_scale, word_embedding_zero_point),
        real_values(position_embedding_quant, position_embedding_scale, position_embedding_zero_point),
        segments,
        real_values(gamma_quant, gamma_scale, gamma_zero_point),
        real_values(beta_quant, beta_scale, beta_zero_point),
        mask,
        epsilon=epsilon,
    )
    return output, mask_index
