"""Inputs of decoders with keys and values of earlier tokens: random ones, those of a prompt, as tensors of PyTorch or arrays, and bound.

PyTorch is taken as the caller has loaded it. The engine "ort" wants arrays, every other tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.runtime.api.iobinding import IOBinding
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.api.value import OrtValue
from sardonyx.transformers.io_binding_helper import place_of
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

Pairs = Sequence[tuple[Any, Any]]
FOR_ORT = "ort"


def get_position_ids(attention_mask: Any, use_past_kv: bool) -> Any:
    """The place of each token by the mask, 1 for padding; of the last token alone where there is a past."""
    places = attention_mask.long().cumsum(-1) - 1
    places.masked_fill_(attention_mask == 0, 1)
    return places[:, -1:] if use_past_kv else places


def get_sample_inputs(
    config: Any, device: Any, batch_size: int, seq_len: int, engine: str = "pt", return_dict: bool = False
) -> Any:
    """Random inputs of a prompt."""
    words = _words(config, device, batch_size, seq_len, 0, engine)
    return words if return_dict else tuple(words.values())


def get_sample_with_past_kv_inputs(
    config: Any,
    device: Any,
    batch_size: int,
    past_seq_len: int,
    use_fp16: bool = False,
    engine: str = "pt",
    return_dict: bool = False,
    world_size: int = 1,
) -> Any:
    """Random inputs of one token behind a past."""
    return get_merged_sample_with_past_kv_inputs(
        config, device, batch_size, 1, past_seq_len, 0, use_fp16, False, engine, return_dict, world_size
    )


def get_merged_sample_with_past_kv_inputs(
    config: Any,
    device: Any,
    batch_size: int,
    seq_len: int,
    past_seq_len: int,
    max_seq_len: int,
    use_fp16: bool = False,
    use_buffer_share: bool = False,
    engine: str = "pt",
    return_dict: bool = False,
    world_size: int = 1,
) -> Any:
    """Random inputs of tokens behind a past, which may be empty."""
    words = _words(config, device, batch_size, seq_len, past_seq_len, engine)
    past = get_past_kv_inputs(config, batch_size, past_seq_len, use_fp16, world_size)
    if engine != FOR_ORT:
        past = [(keys.to(device), values.to(device)) for keys, values in past]
    if not return_dict:
        return (*words.values(), past)
    if engine != FOR_ORT:
        return {**words, "past_key_values": past}
    inputs = {**words, **flatten_past_kv_inputs(past)}
    return enable_past_present_share_buffer(inputs, past_seq_len, max_seq_len) if use_buffer_share else inputs


def _words(config: Any, device: Any, batch: int, length: int, past: int, engine: str) -> dict[str, Any]:
    torch = loaded_torch()
    mask = torch.ones(batch, past + length, dtype=torch.int64)
    words = {
        "input_ids": torch.randint(0, config.vocab_size, (batch, length)),
        "attention_mask": mask,
        "position_ids": get_position_ids(mask, use_past_kv=past != 0),
    }
    return {name: tensor.numpy() if engine == FOR_ORT else tensor.to(device) for name, tensor in words.items()}


def get_msft_sample_inputs(
    config: Any,
    batch_size: int,
    past_seq_len: int,
    seq_len: int,
    max_seq_len: int,
    use_fp16: bool,
    use_buffer_share: bool,
    split_kv: bool,
) -> dict[str, np.ndarray]:
    """Random inputs of the models of github.com/microsoft/Llama-2-Onnx: with one cache of all layers, or with one of each."""
    rng = np.random.default_rng()
    kind = np.float16 if use_fp16 else np.float32
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    size = config.hidden_size // heads
    later = np.triu(np.ones((batch_size, max_seq_len, max_seq_len)), k=1)
    inputs = {
        "x": rng.random((batch_size, seq_len, config.hidden_size)).astype(kind),
        "attn_mask": (later - 1).astype(np.int32) if split_kv else (-10000.0 * later).astype(kind),
        "pos": np.array(past_seq_len),
    }
    if not split_kv:
        shape: tuple[int, ...] = (batch_size, layers, past_seq_len, heads, size)
        return inputs | {name: rng.random(shape).astype(kind) for name in ("k_cache", "v_cache")}
    shape = batch_size, heads, past_seq_len, size
    names = [f"{part}_{layer}_cache" for layer in range(layers) for part in "kv"]
    inputs |= {name: rng.random(shape).astype(kind) for name in names}
    return enable_past_present_share_buffer(inputs, past_seq_len, max_seq_len) if use_buffer_share else inputs


def get_past_kv_inputs(
    config: Any, batch_size: int, past_seq_len: int, use_fp16: bool, world_size: int = 1
) -> list[tuple[Any, Any]]:
    """Random keys and values of each layer."""
    torch = loaded_torch()
    shape = batch_size, config.num_key_value_heads // world_size, past_seq_len, _head_size(config)
    kind = torch.float16 if use_fp16 else torch.float32
    return [(torch.rand(shape, dtype=kind), torch.rand(shape, dtype=kind)) for _ in range(config.num_hidden_layers)]


def _head_size(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def flatten_past_kv_inputs(past_key_values: Any) -> dict[str, np.ndarray]:
    """Keys and values as arrays by their names; those of a cache of the transformers package have names of their own."""
    layers = getattr(past_key_values, "layers", None)
    if layers is None:
        pairs, names = past_key_values, ("past_key_values.{0}.key", "past_key_values.{0}.value")
    else:
        pairs = [(layer.keys, layer.values) for layer in layers]
        names = "past_key_values_key_cache_{0}", "past_key_values_value_cache_{0}"
    return {
        name.format(layer): tensor.detach().cpu().numpy()
        for layer, pair in enumerate(pairs)
        for name, tensor in zip(names, pair, strict=True)
    }


def convert_inputs_for_ort(
    pt_inputs: Mapping[str, Any], use_buffer_share: bool = False, past_seq_len: int = 0, max_seq_len: int = 2048
) -> dict[str, np.ndarray]:
    """Inputs of PyTorch as arrays."""
    inputs: dict[str, np.ndarray] = {}
    for name, value in pt_inputs.items():
        if name == "past_key_values":
            inputs |= flatten_past_kv_inputs(value)
        else:
            inputs[name] = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    return enable_past_present_share_buffer(inputs, past_seq_len, max_seq_len) if use_buffer_share else inputs


def enable_past_present_share_buffer(
    ort_inputs: dict[str, np.ndarray], past_seq_len: int, max_seq_len: int
) -> dict[str, np.ndarray]:
    """The same dictionary, with keys and values at the beginning of memory for `max_seq_len` tokens."""
    for name, value in ort_inputs.items():
        if _is_cache(name):
            ort_inputs[name] = np.zeros((*value.shape[:2], max_seq_len, value.shape[3]), value.dtype)
            ort_inputs[name][:, :, :past_seq_len] = value
    return ort_inputs


def _is_cache(name: str) -> bool:
    return "cache" in name or "past_key_values" in name


def verify_ort_inputs(model: InferenceSession, ort_inputs: dict[str, Any]) -> dict[str, Any]:
    """Take out of the inputs what a session does not know, and refuse them where something is missing."""
    known = {value.name for value in model.get_inputs()}
    missing = sorted(known - ort_inputs.keys())
    if missing:
        raise ValueError(f"There are missing inputs to the model: {', '.join(missing)}. Please add them and try again.")
    for name in ort_inputs.keys() - known:
        del ort_inputs[name]
    return ort_inputs


def add_io_bindings_as_ortvalues(
    model: InferenceSession,
    ort_inputs: Mapping[str, np.ndarray],
    device: str,
    device_id: int,
    use_buffer_share: bool,
    kv_cache_ortvalues: dict[str, OrtValue],
) -> tuple[IOBinding, dict[str, OrtValue]]:
    """A binding of arrays; with shared buffers keys and values stay in those of `kv_cache_ortvalues`, which gets new ones."""
    binding = model.io_binding()
    known = {value.name for value in model.get_inputs()}
    for name, value in ort_inputs.items():
        if name not in known:
            continue
        is_kept = use_buffer_share and _is_cache(name)
        if is_kept and name in kv_cache_ortvalues:
            kv_cache_ortvalues[name].update_inplace(value)
        bound = kv_cache_ortvalues.get(name) if is_kept else None
        if bound is None:
            bound = OrtValue.ortvalue_from_numpy(value, device, device_id)
        binding.bind_ortvalue_input(name, bound)
        if is_kept:
            kv_cache_ortvalues[name] = bound
    for name in (value.name for value in model.get_outputs()):
        if use_buffer_share and ("out" in name or "present" in name):
            source = name.replace("out", "cache").replace("present", "past_key_values")
            binding.bind_ortvalue_output(name, kv_cache_ortvalues[source])
        else:
            binding.bind_output(name, device, device_id)
    return binding, kv_cache_ortvalues


def add_io_bindings_as_tensors(
    model: InferenceSession, inputs: dict[str, Any], outputs: Mapping[str, Any], use_fp16: bool, use_buffer_share: bool
) -> IOBinding:
    """A binding of tensors of PyTorch in their memory; with shared buffers outputs of keys and values go into the inputs' memory."""
    binding = model.io_binding()
    for name, tensor in verify_ort_inputs(model, inputs).items():
        binding.bind_input(name, *place_of(tensor))
    for name in (value.name for value in model.get_outputs()):
        is_shared = use_buffer_share and "present" in name
        tensor = inputs[name.replace("present", "past_key_values")] if is_shared else outputs[name]
        binding.bind_output(name, *place_of(tensor))
    return binding


def get_initial_inputs_and_outputs(
    config: Any,
    tokenizer: Any,
    requested_length: int,
    prompt: Sequence[str],
    device: Any,
    use_fp16: bool,
    use_buffer_share: bool,
    engine: str,
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Inputs of prompts that are cut or filled up on their left to a length, and, for "ort", memory for the outputs."""
    torch = loaded_torch()
    tokenizer.pad_token = tokenizer.eos_token
    tokens = tokenizer(list(prompt), padding=True)
    kind = torch.float16 if use_fp16 else torch.float32
    words, mask = (
        _of_length(torch.tensor(tokens[name], device=device, dtype=torch.int64), requested_length)
        for name in ("input_ids", "attention_mask")
    )
    inputs = {"input_ids": words, "attention_mask": mask, "position_ids": get_position_ids(mask, use_past_kv=False)}
    shape = (
        len(words),
        config.num_key_value_heads,
        config.max_position_embeddings if use_buffer_share else 0,
        _head_size(config),
    )

    def zeros(*sizes: int) -> Any:
        return torch.zeros(sizes, device=device, dtype=kind)

    if engine != FOR_ORT:
        pairs = [(zeros(*shape), zeros(*shape)) for _ in range(config.num_hidden_layers)]
        return {**inputs, "past_key_values": pairs}, None
    names = [f"{layer}.{part}" for layer in range(config.num_hidden_layers) for part in ("key", "value")]
    inputs |= {f"past_key_values.{name}": zeros(*shape) for name in names}
    outputs = {"logits": zeros(*words.shape, config.vocab_size)}
    if not use_buffer_share:
        outputs |= {f"present.{name}": zeros(*shape[:2], requested_length, shape[3]) for name in names}
    return {name: tensor.contiguous() for name, tensor in inputs.items()}, outputs


def _of_length(tokens: Any, length: int) -> Any:
    """The first tokens of each row, or the row behind copies of its first token."""
    missing = length - tokens.shape[1]
    return tokens[:, :length] if missing <= 0 else loaded_torch().hstack((tokens[:, :1].expand(-1, missing), tokens))
