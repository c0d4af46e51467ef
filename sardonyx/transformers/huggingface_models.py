"""Names of models of the transformers package: which classes load them, and how they are exported."""

from __future__ import annotations

MODEL_CLASSES = [
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForMaskedLM",
    "AutoModelForQuestionAnswering",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelWithLMHead",
]
"""Classes that `onnx_exporter` takes."""

WORDS = ["input_ids"]
WITH_MASK = [*WORDS, "attention_mask"]
WITH_SEGMENTS = [*WITH_MASK, "token_type_ids"]

MODELS = {
    "bert-base-cased": (WITH_SEGMENTS, 16, False, "bert"),
    "bert-base-uncased": (WITH_SEGMENTS, 16, False, "bert"),
    "bert-large-uncased": (WITH_SEGMENTS, 16, False, "bert"),
    "albert-base-v2": (WORDS, 16, False, "bert"),
    "distilbert-base-uncased": (WITH_MASK, 16, False, "bert"),
    "distilgpt2": (WORDS, 16, False, "gpt2"),
    "google/vit-base-patch16-224": (["pixel_values"], 16, False, "vit"),
    "gpt2": (WORDS, 16, False, "gpt2"),
    "microsoft/deberta-v3-base": (WITH_MASK, 16, False, "bert"),
    "roberta-base": (WITH_MASK, 16, False, "bert"),
    "xlm-roberta-base": (WITH_MASK, 16, False, "bert"),
}
"""By name: inputs, opset, whether weights are a file of their own, type of the model for the optimizer."""

KINDS = {
    "bert": (WITH_SEGMENTS, 16, False, "bert"),
    "albert": (WITH_SEGMENTS, 16, False, "bert"),
    "gpt2": (WORDS, 16, False, "gpt2"),
    "vit": (["pixel_values"], 16, False, "vit"),
    "swin": (["pixel_values"], 16, False, "swin"),
}
"""The same by kinds of configurations, for models whose names do not stand above."""


def described_model(model_name: str, kind: str) -> tuple[list[str], int, bool, str]:
    """What stands above of a model, by its name or by the `model_type` of its configuration."""
    return MODELS.get(model_name) or KINDS.get(kind) or (WITH_MASK, 16, False, "bert")
