"""Decoders of the transformers package as ONNX files: keys and values of earlier tokens are inputs, those of all tokens outputs.

`large_model_exporter` and `models.gpt2.convert_to_onnx` are programs around this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package
from sardonyx.transformers.traced import TOTAL_LENGTH, Traced, causal_bias


def cache_of(pairs: Iterable[Any]) -> Any:
    """Keys and values of all layers as the transformers package takes them."""
    cache = transformers_package().DynamicCache()
    for layer, (keys, values) in enumerate(pairs):
        cache.update(keys, values, layer)
    return cache


@dataclass(frozen=True)
class Decoder(Traced):
    """A decoder, and how the file of it is to look."""

    model: Any
    with_past: bool = True
    """Whether keys and values of earlier tokens are inputs."""
    with_present: bool = True
    """Whether keys and values of all tokens are outputs; they are where there are such inputs."""
    stacked: bool = False
    """Whether keys and values of a layer are one tensor of [2, batch, heads, length, size], as GPT-2's are by custom."""
    integers: type[np.generic] = np.int64
    example_sizes = 2, 3, 4

    @property
    def layers(self) -> int:
        """How many layers have keys and values."""
        return int(self.model.config.num_hidden_layers)

    def cache_names(self, prefix: str) -> list[str]:
        """Names of the keys and values of all layers."""
        if self.stacked:
            return [f"{prefix.partition('_')[0]}_{layer}" for layer in range(self.layers)]
        return [f"{prefix}.{layer}.{kind}" for layer in range(self.layers) for kind in ("key", "value")]

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs in their order."""
        words = (
            ["input_ids", "position_ids", "attention_mask"] if self.stacked else ["input_ids", "attention_mask", "position_ids"]
        )
        return words + (self.cache_names("past_key_values") if self.with_past else [])

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs in their order."""
        return ["logits", *(self.cache_names("present") if self.with_present else [])]

    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs of (batch, length, past); the first row begins behind a gap, as padding makes it."""
        batch, length, past = sizes
        past = past if self.with_past else 0
        config = self.model.config
        mask = np.ones((batch, past + length), self.integers)
        mask[0, : past // 2] = 0
        places = np.maximum(np.cumsum(mask, axis=1) - 1, 0)[:, past:]
        words = rng.integers(0, config.vocab_size, (batch, length))
        feeds = {"input_ids": words.astype(self.integers), "attention_mask": mask, "position_ids": places.astype(self.integers)}
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        shape = (2,) * self.stacked + (batch, heads, past, size)
        caches = self.cache_names("past_key_values") if self.with_past else []
        return feeds | {name: rng.normal(size=shape).astype(np.float32) for name in caches}

    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        caches = [inputs.pop(name) for name in self.cache_names("past_key_values")] if self.with_past else []
        words = {name: value.long() for name, value in inputs.items()}
        past_length = caches[0].shape[-2] if caches else 0
        length = words["input_ids"].shape[1]
        words["attention_mask"] = causal_bias(words["attention_mask"], length, past_length, model.dtype)
        if not self.with_present:
            return (model(**words, use_cache=False, return_dict=True).logits,)
        pairs = caches if self.stacked else list(zip(caches[::2], caches[1::2], strict=True))
        outputs = model(**words, past_key_values=cache_of(pairs), use_cache=True, return_dict=True)
        present = [(layer.keys, layer.values) for layer in outputs.past_key_values.layers]
        if self.stacked:
            return outputs.logits, *(loaded_torch().stack(pair) for pair in present)
        return outputs.logits, *(tensor for pair in present for tensor in pair)

    def open_axes(self) -> dict[str, dict[int, str]]:
        words = {0: "batch_size", 1: "sequence_length"}
        whole = {0: "batch_size", 1: TOTAL_LENGTH if self.with_past else "sequence_length"}
        axes = {"input_ids": words, "position_ids": words, "attention_mask": whole, "logits": words}
        batch = int(self.stacked)
        caches = (("past_key_values", "past_sequence_length", self.with_past), ("present", whole[1], self.with_present))
        for prefix, length, is_wanted in caches:
            axes |= {name: {batch: "batch_size", batch + 2: length} for name in self.cache_names(prefix) if is_wanted}
        return axes
