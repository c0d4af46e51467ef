"""Decoders of the transformers package as ONNX files: keys and values of earlier tokens are inputs, those of all tokens outputs.

`large_model_exporter` and `models.gpt2.convert_to_onnx` are programs around this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.onnx_exporter import calling, transformers_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, torch_onnx_export

EXAMPLE_BATCH, EXAMPLE_LENGTH, EXAMPLE_PAST = 2, 3, 4
"""Sizes of the inputs with which a decoder is traced: all different, and none of them 1."""


@dataclass(frozen=True)
class Decoder:
    """A decoder, and how the file of it is to look."""

    model: Any
    with_past: bool = True
    stacked: bool = False
    """Whether keys and values of a layer are one tensor of [2, batch, heads, length, size], as GPT-2's are by custom."""
    integers: type[np.generic] = np.int64

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
        return ["logits", *(self.cache_names("present") if self.with_past else [])]

    def feeds(self, batch: int, length: int, past: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs of these sizes; the first row begins behind a gap, as padding makes it."""
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

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """What PyTorch makes of inputs."""
        torch = loaded_torch()
        with torch.no_grad():
            outputs = self._call(self.model, *(torch.from_numpy(feeds[name]) for name in self.input_names))
        return [output.numpy() for output in outputs]

    def _call(self, model: Any, *arguments: Any) -> tuple[Any, ...]:
        given = dict(zip(self.input_names, arguments, strict=True))
        caches = [given.pop(name) for name in self.cache_names("past_key_values")] if self.with_past else []
        words = {name: value.long() for name, value in given.items()}
        words["attention_mask"] = _causal_bias(words["attention_mask"], words["input_ids"], model.dtype)
        if not self.with_past:
            return (model(**words, use_cache=False, return_dict=True).logits,)
        past = transformers_package().DynamicCache()
        pairs = caches if self.stacked else list(zip(caches[::2], caches[1::2], strict=True))
        for layer, pair in enumerate(pairs):
            past.update(pair[0], pair[1], layer)
        outputs = model(**words, past_key_values=past, use_cache=True, return_dict=True)
        present = [(layer.keys, layer.values) for layer in outputs.past_key_values.layers]
        if self.stacked:
            return outputs.logits, *(loaded_torch().stack(pair) for pair in present)
        return outputs.logits, *(tensor for pair in present for tensor in pair)

    def export(self, path: str | Path, opset: int) -> None:
        """Write the decoder as a file; batch, length and the length of what came before are open."""
        torch = loaded_torch()
        feeds = self.feeds(EXAMPLE_BATCH, EXAMPLE_LENGTH, EXAMPLE_PAST, np.random.default_rng(0))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with torch.no_grad():
            torch_onnx_export(
                calling(self.model, self._call),
                tuple(torch.from_numpy(feeds[name]) for name in self.input_names),
                str(path),
                input_names=self.input_names,
                output_names=self.output_names,
                dynamic_axes=self._open_axes(),
                opset_version=opset,
            )

    def _open_axes(self) -> dict[str, dict[int, str]]:
        words = {0: "batch_size", 1: "sequence_length"}
        whole = {0: "batch_size", 1: "total_sequence_length" if self.with_past else "sequence_length"}
        axes = {"input_ids": words, "position_ids": words, "attention_mask": whole, "logits": words}
        batch = int(self.stacked)
        for prefix, length in (("past_key_values", "past_sequence_length"), ("present", "total_sequence_length")):
            for name in self.cache_names(prefix) if self.with_past else []:
                axes[name] = {batch: "batch_size", batch + 2: length}
        return axes

    def largest_difference(self, path: str | Path, cases: int, sizes: Sequence[tuple[int, int, int]]) -> float:
        """How far the outputs of a file are from PyTorch's at most, over random inputs of (batch, length, past)."""
        session = create_onnxruntime_session(str(path), use_gpu=False)
        if session is None:
            raise RuntimeError(f"{path} cannot be opened")
        rng = np.random.default_rng(1)
        types = {value.name: np.float16 if "float16" in value.type else None for value in session.get_inputs()}
        largest = 0.0
        for case in range(cases):
            feeds = self.feeds(*sizes[case % len(sizes)], rng)
            given = {name: feeds[name].astype(kind or feeds[name].dtype) for name, kind in types.items()}
            pairs = zip(session.run(self.output_names, given), self.run(feeds), strict=True)
            largest = max(largest, *(float(np.abs(got - wanted).max(initial=0)) for got, wanted in pairs))
        return largest


def _causal_bias(mask: Any, words: Any, dtype: Any) -> Any:
    """What is added to scores: tokens see themselves and what came before, as far as the mask has it.

    The package would make the same of the mask, by ways that cannot be traced.
    """
    torch = loaded_torch()
    places = torch.arange(mask.shape[1])
    rows = places[mask.shape[1] - words.shape[1] :]
    is_seen = (places[None, :] <= rows[:, None])[None, None] & (mask[:, None, None, :] > 0)
    return torch.where(is_seen, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)
