"""Attention of Megatron's GPT: the attention fusion under onnxruntime's name."""

from __future__ import annotations

import math

from sardonyx.transformers.fusion_gpt_attention import FusionGptAttentionPastBase


def is_close(value: float, expected_value: float) -> bool:
    """Whether a number of a mask or a scale is the one that is meant."""
    return math.isclose(value, expected_value, rel_tol=0, abs_tol=1e-6)


class FusionGptAttentionMegatron(FusionGptAttentionPastBase):
    """Causal attention of Megatron's GPT with a cache."""
