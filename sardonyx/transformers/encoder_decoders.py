"""Models of the transformers package that encode a source and decode words, such as T5, BART and Whisper, as ONNX files.

A source is words or sound. The converters of `models` are programs around this.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.transformers.past_helper import PastKeyValuesHelper
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, transformers_package
from sardonyx.transformers.traced import TOTAL_LENGTH, Traced, causal_bias

HIDDEN, MASK = "encoder_hidden_states", "encoder_attention_mask"

Kind = tuple[tuple[str, ...], tuple[str, ...]]
"""What a part takes, and what it gives."""
ENCODER: Kind = (("source",), ("hidden",))
ENCODER_OF_CACHES: Kind = (("source",), ("cross",))
FIRST_STEP: Kind = (("source", "words"), ("logits", "hidden", "self", "cross"))
DECODER: Kind = (("words", "mask", "caches"), ("logits", "self"))
DECODER_INIT: Kind = (("words", "mask", "hidden"), ("logits", "self", "cross"))
ENCODER_AND_CACHES: Kind = (("source",), ("hidden", "cross"))
SIZES = [(1, 7, 1, 3), (2, 3, 4, 1), (3, 1, 2, 6), (1, 4, 1, 1)]
"""Sizes of the inputs of comparisons: batch, length of the source, words, earlier words."""


@dataclass(frozen=True)
class Part(Traced):
    """What one file holds of a model: what it takes and what it gives.

    A part takes "source", "words", "mask" (of the source), "hidden" and "caches", and gives "logits", "hidden", "self" and "cross":
    keys and values of the words, and of the source.
    """

    model: Any
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    integers: type[np.generic] = np.int32
    source_name: str = "encoder_input_ids"
    example_sizes = 2, 5, 3, 4

    def with_integers(self, integers: type[np.generic]) -> Part:
        """The same part with words and masks of another type."""
        return replace(self, integers=integers)

    def with_model(self, model: Any) -> Part:
        """The same part of another model."""
        return replace(self, model=model)

    def without_words(self) -> Part:
        """The same part whose only word is the one that begins all texts."""
        return replace(self, takes=tuple(kind for kind in self.takes if kind != "words"))

    @property
    def is_sound(self) -> bool:
        """Whether the source is sound, whose length is fixed and which has no mask."""
        return hasattr(self.model.config, "num_mel_bins")

    @property
    def layers(self) -> int:
        """How many layers of the decoder have keys and values."""
        return int(_first(self.model.config, "num_decoder_layers", "decoder_layers"))

    @property
    def heads(self) -> int:
        """Heads of a layer of the decoder."""
        return int(_first(self.model.config, "num_heads", "decoder_attention_heads"))

    @property
    def head_size(self) -> int:
        """Numbers in a key or value of a head."""
        return int(getattr(self.model.config, "d_kv", None) or self.model.config.d_model // self.heads)

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs in their order."""
        masks = [] if self.is_sound else [MASK]
        names = {
            "source": [self.source_name, *masks],
            "words": ["decoder_input_ids" if "source" in self.takes else "input_ids"],
            "mask": masks,
            "hidden": [HIDDEN],
            "caches": PastKeyValuesHelper.get_past_names(self.layers),
        }
        return [name for kind in self.takes for name in names[kind]]

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs in their order."""
        names = PastKeyValuesHelper.get_past_names(self.layers, present=True)
        split = len(names) // 2
        by_kind = {"logits": ["logits"], "hidden": [HIDDEN], "self": names[:split], "cross": names[split:]}
        return [name for kind in self.gives for name in by_kind[kind]]

    def open_axes(self) -> dict[str, dict[int, str]]:
        batch = {0: "batch_size"}
        words = {**batch, 1: "sequence_length"}
        length = "encode_sequence_length"
        source, cross = (batch, batch) if self.is_sound else ({**batch, 1: length}, {**batch, 2: length})
        axes = {"input_ids": words, "decoder_input_ids": words, "logits": words}
        axes |= {self.source_name: source, MASK: source, HIDDEN: source}
        total = TOTAL_LENGTH if "caches" in self.takes else "sequence_length"
        for name in (*self.input_names, *self.output_names):
            if "_cross_" in name:
                axes[name] = cross
            elif "_self_" in name:
                axes[name] = {**batch, 2: "past_sequence_length" if name.startswith("past") else total}
        return {name: axes[name] for name in (*self.input_names, *self.output_names)}

    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs of (batch, length of the source, words, earlier words); the first source ends early."""
        batch, length, words, past = sizes
        config = self.model.config
        length = config.max_source_positions if self.is_sound else length
        mask = np.ones((batch, length), self.integers)
        mask[0, (length + 1) // 2 :] = 0
        shapes: dict[str, tuple[int, ...]] = {HIDDEN: (batch, length, config.d_model)}
        if self.is_sound:
            shapes[self.source_name] = (batch, config.num_mel_bins, 2 * length)
        for name in PastKeyValuesHelper.get_past_names(self.layers):
            shapes[name] = (batch, self.heads, past if "_self_" in name else length, self.head_size)
        feeds = {MASK: mask} | {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        for name, count in (("encoder_input_ids", length), ("decoder_input_ids", words), ("input_ids", words)):
            feeds.setdefault(name, rng.integers(0, config.vocab_size, (batch, count)).astype(self.integers))
        return {name: feeds[name] for name in self.input_names}

    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        hidden = self._hidden(model, inputs)
        results = {"hidden": [hidden]}
        if "logits" in self.gives:
            start = loaded_torch().full((hidden.shape[0], 1), model.config.decoder_start_token_id)
            words = inputs.get("input_ids", inputs.get("decoder_input_ids", start))
            caches = [inputs[name] for name in PastKeyValuesHelper.get_past_names(self.layers) if name in inputs]
            results |= self._decoded(model, words.long(), hidden, inputs.get(MASK), caches)
        elif "cross" in self.gives:
            results["cross"] = list(self._cross(model, hidden))
        return [tensor for kind in self.gives for tensor in results[kind]]

    def _hidden(self, model: Any, inputs: Mapping[str, Any]) -> Any:
        """What the encoder makes of the source. Where keys and values are there it is not read, and its length alone counts."""
        if HIDDEN in inputs:
            return inputs[HIDDEN]
        if "caches" in self.takes:
            return inputs["past_key_cross_0"][:, 0, :, :1]
        source = inputs[self.source_name]
        if self.is_sound:
            return model.get_encoder()(source).last_hidden_state
        return model.get_encoder()(input_ids=source.long(), attention_mask=inputs[MASK].long()).last_hidden_state

    def _cross(self, model: Any, hidden: Any) -> Iterator[Any]:
        """Keys and values of the source in all layers."""
        for name, attention in model.get_decoder().named_modules():
            if name.endswith(("EncDecAttention", "encoder_attn")):
                for projection in (_first(attention, "k", "k_proj"), _first(attention, "v", "v_proj")):
                    rows = projection(hidden)
                    yield rows.view(rows.shape[0], rows.shape[1], -1, self.head_size).transpose(1, 2)

    def _decoded(self, model: Any, words: Any, hidden: Any, mask: Any, caches: Sequence[Any]) -> dict[str, list[Any]]:
        """Logits of a step, keys and values of the words and of the source."""
        torch = loaded_torch()
        hub = transformers_package()
        own, cross = hub.DynamicCache(), hub.DynamicCache()
        for layer, tensors in enumerate(PastKeyValuesHelper.group_by_layer(caches, self.layers) if caches else []):
            own.update(*tensors[:2], layer)
            cross.update(*tensors[2:], layer)
        past = caches[0].shape[2] if caches else 0
        seen = torch.ones((words.shape[0], words.shape[1] + past), dtype=torch.long)
        outputs = model(
            encoder_outputs=(hidden,),
            decoder_input_ids=words,
            decoder_attention_mask=causal_bias(seen, words.shape[1], past, model.dtype),
            past_key_values=hub.EncoderDecoderCache(own, cross),
            use_cache=True,
            return_dict=True,
            **({} if mask is None else {"attention_mask": mask.long()}),
        )
        present = outputs.past_key_values
        caches_by_kind = {"self": present.self_attention_cache, "cross": present.cross_attention_cache}
        return {"logits": [outputs.logits]} | {kind: _tensors(cache) for kind, cache in caches_by_kind.items()}


def _tensors(cache: Any) -> list[Any]:
    """Keys and values of all layers."""
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def _first(holder: Any, *names: str) -> Any:
    """The first of these that a configuration or a module has."""
    return next(getattr(holder, name) for name in names if getattr(holder, name, None) is not None)
