"""Names of fused ops, and where attention reads and writes what."""

from __future__ import annotations


class Operators:
    """Names of ops."""

    ATTENTION = "Attention"
    LAYERNORM = "LayerNormalization"
    MULTI_HEAD_ATTENTION = "MultiHeadAttention"
    PACKEDATTENTION = "PackedAttention"
    PACKED_MULTI_HEAD_ATTENTION = "PackedMultiHeadAttention"
    REMOVEPADDING = "RemovePadding"
    RESTOREPADDING = "RestorePadding"
    SKIPLAYERNORM = "SkipLayerNormalization"


class AttentionInputIDs:
    """Inputs of Attention."""

    INPUT, WEIGHTS, BIAS, MASK_INDEX, PAST, ATTENTION_BIAS, PAST_SEQUENCE_LENGTH = range(7)


class AttentionOutputIDs:
    """Outputs of Attention."""

    OUTPUT, PRESENT = range(2)


class MultiHeadAttentionInputIDs:
    """Inputs of MultiHeadAttention."""

    QUERY, KEY, VALUE, BIAS, KEY_PADDING_MASK, ATTENTION_BIAS, PAST_KEY, PAST_VALUE = range(8)


class MultiHeadAttentionOutputIDs:
    """Outputs of MultiHeadAttention."""

    OUTPUT, PRESENT_KEY, PRESENT_VALUE = range(3)
