"""Random inputs of the parts of Whisper as tensors of PyTorch, the same as arrays for sessions, and the open sizes of their files.

PyTorch is taken as the caller has loaded it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from sardonyx.runtime.api.session import InferenceSession
from sardonyx.transformers.past_helper import PastKeyValuesHelper
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

FRAMES = 3000
LONGEST = 448
"""Tokens for which there is room where keys and values stay in one place."""
Caches = list[tuple[Any, ...]]


def _random(use_fp16: bool, device: Any, *shape: int) -> Any:
    torch = loaded_torch()
    return torch.randn(shape, device=device, dtype=torch.float16 if use_fp16 else torch.float32)


def _integers(use_int32: bool) -> Any:
    torch = loaded_torch()
    return torch.int32 if use_int32 else torch.int64


# --- single tensors


def get_sample_audio_features(
    config: Any, device: Any, batch_size: int, sequence_length: int = FRAMES, use_fp16: bool = False
) -> Any:
    return _random(use_fp16, device, batch_size, config.num_mel_bins, sequence_length)


def get_sample_decoder_input_ids(
    config: Any, device: Any, batch_size: int, sequence_length: int, use_int32: bool = True
) -> Any:
    shape = batch_size, sequence_length
    return loaded_torch().randint(0, config.vocab_size, shape, device=device, dtype=_integers(use_int32))


def get_sample_encoder_hidden_states(config: Any, device: Any, batch_size: int, use_fp16: bool = False) -> Any:
    return _random(use_fp16, device, batch_size, config.max_source_positions, config.d_model)


def get_sample_past_key_values(config: Any, device: Any, batch_size: int, past_seq_len: int, use_fp16: bool = False) -> Caches:
    """Key and value of self attention, then of cross attention, of each layer."""
    heads = config.decoder_attention_heads
    size = config.d_model // heads

    def pairs(length: int) -> list[tuple[Any, Any]]:
        shape = batch_size, heads, length, size
        return [(_random(use_fp16, device, *shape), _random(use_fp16, device, *shape)) for _ in range(config.decoder_layers)]

    return flatten_past_key_values(pairs(past_seq_len), pairs(config.max_source_positions))


def flatten_past_key_values(
    self_attn_kv_caches: Sequence[tuple[Any, Any]], cross_attn_kv_caches: Sequence[tuple[Any, Any]]
) -> Caches:
    """Four tensors of each layer, of two lists of pairs."""
    return [(*own, *cross) for own, cross in zip(self_attn_kv_caches, cross_attn_kv_caches, strict=True)]


def group_past_key_values(kv_caches: Caches) -> tuple[list[Any], list[Any]]:
    """All tensors of self attention, and all of cross attention."""
    return PastKeyValuesHelper.group_by_self_or_cross(kv_caches)


def get_sample_alignment_heads(config: Any, device: Any, num_alignment_heads: int = 6, use_int32: bool = True) -> Any:
    return loaded_torch().ones((num_alignment_heads, 2), device=device, dtype=_integers(use_int32))


def get_sample_sot_sequence_length(device: Any, sot_sequence_length: int, use_int32: bool = False) -> Any:
    return loaded_torch().tensor([sot_sequence_length], device=device, dtype=_integers(use_int32))


def get_sample_segment_length(device: Any, segment_length: int, use_int32: bool = False) -> Any:
    return loaded_torch().tensor([segment_length], device=device, dtype=_integers(use_int32))


def get_sample_QKs(  # noqa: N802 - the original's name
    config: Any, device: Any, batch_size: int, sequence_length: int, use_fp16: bool = False
) -> list[Any]:
    """Scores of cross attention of each layer."""
    shape = batch_size, config.decoder_attention_heads, sequence_length, config.max_source_positions
    return [_random(use_fp16, device, *shape) for _ in range(config.decoder_layers)]


# --- inputs of parts


def get_sample_encoder_inputs(
    config: Any, device: Any, batch_size: int, sequence_length: int = FRAMES, use_fp16: bool = False
) -> dict[str, Any]:
    return {"audio_features": get_sample_audio_features(config, device, batch_size, sequence_length, use_fp16)}


def get_sample_encoder_decoder_init_inputs(
    config: Any,
    device: Any,
    batch_size: int,
    decoder_sequence_length: int,
    encoder_sequence_length: int = FRAMES,
    use_fp16: bool = False,
    use_int32: bool = True,
) -> dict[str, Any]:
    sound = get_sample_encoder_inputs(config, device, batch_size, encoder_sequence_length, use_fp16)
    words = get_sample_decoder_input_ids(config, device, batch_size, decoder_sequence_length, use_int32)
    return {**sound, "decoder_input_ids": words}


def get_sample_decoder_inputs(
    config: Any,
    device: Any,
    batch_size: int,
    past_sequence_length: int,
    sequence_length: int,
    use_fp16: bool = False,
    use_int32: bool = True,
) -> dict[str, Any]:
    return {
        "decoder_input_ids": get_sample_decoder_input_ids(config, device, batch_size, sequence_length, use_int32),
        "encoder_hidden_states": get_sample_encoder_hidden_states(config, device, batch_size, use_fp16),
        "past_key_values": get_sample_past_key_values(config, device, batch_size, past_sequence_length, use_fp16),
    }


def get_sample_jump_times_inputs(
    config: Any,
    device: Any,
    batch_size: int,
    sequence_length: int,
    num_alignment_heads: int,
    sot_sequence_length: int,
    segment_length: int,
    use_fp16: bool = False,
    use_int32: bool = True,
) -> dict[str, Any]:
    return {
        "alignment_heads": get_sample_alignment_heads(config, device, num_alignment_heads, use_int32),
        "sot_sequence_length": get_sample_sot_sequence_length(device, sot_sequence_length),
        "segment_length": get_sample_segment_length(device, segment_length),
        "QKs": get_sample_QKs(config, device, batch_size, sequence_length, use_fp16),
    }


# --- files

OTHER_NAMES = {"encoder_input_ids": "audio_features", "input_ids": "decoder_input_ids"}


def convert_inputs_for_ort(inputs: Mapping[str, Any], model: InferenceSession) -> dict[str, np.ndarray]:
    """What a session of a part takes of these inputs, as arrays; lists are handed out in the order of its inputs."""
    own, cross = (iter(part) for part in group_past_key_values(inputs.get("past_key_values", [])))
    lists = {"past_*_self*": own, "past_*_cross*": cross, "*cross_qk*": iter(inputs.get("QKs", ()))}
    past = inputs["past_key_values"][0][0].shape if "past_key_values" in inputs else (0, 0, 0, 0)
    names = [value.name for value in model.get_inputs()]
    sizes = {
        "past_sequence_length": np.array([past[2]], np.int32),
        "cache_indirection": np.zeros((past[0], 1, LONGEST), np.int32),
    }
    feeds = {name: sizes[name] if name in sizes else _array(name, inputs, lists) for name in names}
    if "cache_indirection" in names:
        for name in (name for name in names if fnmatchcase(name, "past_*_self*")):
            room = np.zeros((*past[:2], LONGEST, past[3]), feeds[name].dtype)
            room[:, :, : past[2]] = feeds[name]
            feeds[name] = room
    return feeds


def _array(name: str, inputs: Mapping[str, Any], lists: Mapping[str, Iterator[Any]]) -> np.ndarray:
    known = OTHER_NAMES.get(name, name)
    if known in inputs:
        return np.asarray(inputs[known].detach().cpu().numpy())
    tensor = next((next(tensors, None) for pattern, tensors in lists.items() if fnmatchcase(name, pattern)), None)
    if tensor is None:
        raise ValueError(f"nothing of {', '.join(inputs)} is meant for the input {name}")
    return np.asarray(tensor.detach().cpu().numpy())


OPEN_SIZES: Mapping[str, Mapping[int, str]] = {
    "audio_features": {},
    "encoder_input_ids": {},
    "encoder_hidden_states": {},
    "*input_ids": {1: "sequence_length"},
    "logits": {1: "sequence_length"},
    "past_*_self*": {2: "past_sequence_length"},
    "present_*_self*": {2: "total_sequence_length"},
    "*cross_qk*": {2: "sequence_length"},
    "*_cross*": {},
    "*jump_times*": {1: "max_length"},
}
"""Open sizes beside the batch, by patterns of names; the first that fits counts."""


def get_model_dynamic_axes(config: Any, input_names: Sequence[str], output_names: Sequence[str]) -> dict[str, dict[int, str]]:
    """The open sizes of inputs and outputs."""
    axes: dict[str, dict[int, str]] = {}
    for name in (*input_names, *output_names):
        if name == "alignment_heads":
            axes[name] = {0: "num_alignment_heads"}
        elif name not in ("sot_sequence_length", "segment_length"):
            sizes = next((sizes for pattern, sizes in OPEN_SIZES.items() if fnmatchcase(name, pattern)), None)
            if sizes is None:
                raise ValueError(f"{name} is no input or output of a part of Whisper")
            axes[name] = {0: "batch_size", **sizes}
    return axes
