"""GPT-2 with one tensor of keys and values for each layer: how the transformers package is called for it, and how it is exported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package
from sardonyx.transformers.traced import Traced, causal_bias


def stacked_outputs(
    call: Callable[..., Any], dtype: Any, words: Any, places: Any, mask: Any, past: Sequence[Any]
) -> tuple[Any, tuple[Any, ...]]:
    """The first output of a decoder and the present of each layer, (2, batch, heads, length, size)."""
    torch = loaded_torch()
    earlier, length = past[0].shape[-2] if past else 0, words.shape[1]
    if mask is None:
        mask = torch.ones(words.shape[0], earlier + length)
    cache = transformers_package().DynamicCache()
    for layer, pair in enumerate(past):
        cache.update(pair[0], pair[1], layer)
    if places is None:
        places = (torch.arange(length) + earlier)[None]
    outputs = call(
        input_ids=words.long(),
        position_ids=places.long(),
        attention_mask=causal_bias(mask, length, earlier, dtype),
        past_key_values=cache,
        use_cache=True,
        return_dict=True,
    )
    present = tuple(torch.stack((layer.keys, layer.values)) for layer in outputs.past_key_values.layers)
    return outputs[0], present


@dataclass(frozen=True)
class Stacked(Traced):
    """A module of `gpt2_helper`, and how the file of it is to look."""

    model: Any
    output: str = "logits"
    has_places: bool = True
    has_mask: bool = True
    integers: Mapping[str, Any] = field(default_factory=dict)
    """Types of the words, places and mask; int32 for those that are not named."""
    example_sizes = 2, 3, 4

    @property
    def _decoder(self) -> Decoder:
        return Decoder(self.model, stacked=True, integers=np.int32)

    @property
    def input_names(self) -> list[str]:
        left_out = {"position_ids": not self.has_places, "attention_mask": not self.has_mask}
        return [name for name in self._decoder.input_names if not left_out.get(name)]

    @property
    def output_names(self) -> list[str]:
        return [self.output, *self._decoder.cache_names("present")]

    def open_axes(self) -> dict[str, dict[int, str]]:
        axes = self._decoder.open_axes()
        axes[self.output] = axes["logits"]
        return {name: axes[name] for name in (*self.input_names, *self.output_names)}

    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        feeds = self._decoder.feeds(sizes, rng)
        return {name: feeds[name].astype(self.integers.get(name, feeds[name].dtype)) for name in self.input_names}

    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        first, present = model(*(inputs[name] for name in self.input_names))
        return first, *present
