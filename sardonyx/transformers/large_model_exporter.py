"""Language models of the transformers package as ONNX files, with a cache of keys and values or without.

`python -m sardonyx.transformers.large_model_exporter -m MODEL -s FOLDER --with_past`
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from sardonyx.transformers.decoders import Decoder, cache_of
from sardonyx.transformers.onnx_exporter import calling, transformers_package
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch, torch_onnx_export
from sardonyx.transformers.traced import causal_bias

GIBIBYTE = 2**30
SAMPLE = "A sentence to try it with"
NamesAndAxes = tuple[tuple[str, ...], tuple[str, ...], dict[str, dict[int, str]]]
"""Names of inputs and of outputs, and of their open sizes."""
INITIALIZERS = tuple(
    f"{name}_" for name in ("kaiming_uniform", "uniform", "normal", "constant", "xavier_uniform", "xavier_normal")
) + ("kaiming_normal_", "orthogonal_")


def get_model_parameter_size(model: Any) -> float:
    """What the weights and buffers of a module take, in GiB."""
    tensors = [*model.parameters(), *model.buffers()]
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors)) / GIBIBYTE


# --- parts, for programs that export models of their own


def disable_huggingface_init() -> None:
    """Let PyTorch make weights as they come, from now on: those of a file replace them anyway."""
    init = loaded_torch().nn.init
    for name in INITIALIZERS:
        setattr(init, name, _as_it_is)


def _as_it_is(tensor: Any, *_arguments: Any, **_options: Any) -> Any:
    return tensor


def initialize_model_and_sample_inputs(
    hf_model: str, cache_dir: str | None, tokenizer: str | None = None
) -> tuple[Any, tuple[Any, Any]]:
    """A module of float32, and the words and mask of a sentence."""
    hub = transformers_package()
    loader = hub.AutoModelForCausalLM
    model = loader.from_pretrained(hf_model, cache_dir=cache_dir, attn_implementation="eager").float().eval()
    words = hub.AutoTokenizer.from_pretrained(tokenizer or hf_model, cache_dir=cache_dir)(SAMPLE, return_tensors="pt")
    return model, (words["input_ids"], words["attention_mask"])


def move_to_appropriate_device(model: Any, sample_inputs_tp: Sequence[Any]) -> Any:
    """The module in float32 on the CPU, where it is exported here."""
    return model.cpu().float()


def adapt_inputs_to_device(sample_inputs: Iterable[Any], device: Any) -> tuple[Any, ...]:
    """The inputs, tensors on a device."""
    return tuple(value.to(device) if hasattr(value, "to") else value for value in sample_inputs)


def _parameters_of(model: Any) -> dict[str, inspect.Parameter]:
    """What a module takes by name."""
    open_kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    parameters = inspect.signature(model.forward).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind not in open_kinds}


def retrieve_onnx_inputs(model: Any, sample_inputs: Sequence[Any], with_past: bool) -> tuple[list[str], list[Any], Any]:
    """Names of all that a module takes, what it takes for words and a mask, and the keys and values that it gives with `with_past`."""
    values = {name: parameter.default for name, parameter in _parameters_of(model).items()}
    values |= {"input_ids": sample_inputs[0], "attention_mask": sample_inputs[1]}
    if "use_cache" in values:
        values["use_cache"] = with_past
    with loaded_torch().no_grad():
        outputs = model(sample_inputs[0], attention_mask=sample_inputs[1], use_cache=with_past)
    return list(values), list(values.values()), getattr(outputs, "past_key_values", None)


def _pairs(past_key_values: Any) -> list[tuple[Any, Any]]:
    """Keys and values of each layer: of a cache of the transformers package, of tuples, or none."""
    layers = getattr(past_key_values, "layers", None)
    return [(layer.keys, layer.values) for layer in layers] if layers is not None else list(past_key_values or ())


def fetch_onnx_inputs_outputs_name(
    model: Any,
    onnx_inputs: list[Any],
    torch_input_names: Sequence[str],
    past_key_values: Any,
    with_past: bool,
    input_with_past: bool,
) -> NamesAndAxes:
    """Names for a file. With `input_with_past` the inputs become those of the last word behind keys and values."""
    torch = loaded_torch()
    names = [name for name, value in zip(torch_input_names, onnx_inputs, strict=True) if isinstance(value, torch.Tensor)]
    if not {"input_ids", "attention_mask"} <= set(names):
        raise ValueError(f"input_ids and attention_mask are inputs of a decoder, the tensors are {', '.join(names)}")
    pairs = _pairs(past_key_values)
    words = onnx_inputs[list(torch_input_names).index("input_ids")]
    total = "past_seq_len + seq_len" if input_with_past else "seq_len"
    axes = {"input_ids": {0: "batch_size", 1: "seq_len"}, "attention_mask": {0: "batch_size", 1: total}}
    for number, (name, value) in enumerate(zip(torch_input_names, onnx_inputs, strict=True)):
        if name in names and name not in axes:
            axes[name] = {axis: f"{name}_{number}_{axis}" for axis in range(value.dim())}
    layers = len(pairs) or model.config.num_hidden_layers
    caches = [f"{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    outputs = ["logits", *(f"present.{name}" for name in caches if with_past or input_with_past)]
    axes["logits"] = {0: "batch_size", 1: "seq_len"}
    if pairs:
        axis = _axis_of_length(pairs[0][0].shape, words.shape[-1])
        axes |= {f"present.{name}": {0: "batch_size", axis: total} for name in caches if len(outputs) > 1}
        if input_with_past:
            axes |= {f"past_key_values.{name}": {0: "batch_size", axis: "past_seq_len"} for name in caches}
    if input_with_past:
        names += [f"past_key_values.{name}" for name in caches]
        _take_the_last_word(onnx_inputs, torch_input_names, past_key_values)
    return tuple(names), tuple(outputs), axes


def _axis_of_length(shape: Sequence[int], length: int) -> int:
    """Which axis of keys goes along the words."""
    axes = [axis for axis, size in enumerate(shape) if size == length]
    if len(axes) != 1:
        raise ValueError(
            f"keys of shape {list(shape)} do not tell which axis has the {length} words: try another count of words"
        )
    return axes[0]


def _take_the_last_word(onnx_inputs: list[Any], names: Sequence[str], past_key_values: Any) -> None:
    for number, name in enumerate(names):
        value = onnx_inputs[number]
        if name == "past_key_values":
            onnx_inputs[number] = past_key_values
        elif name == "attention_mask":
            onnx_inputs[number] = loaded_torch().hstack((value, value.new_ones(len(value), 1)))
        elif name == "input_ids":
            onnx_inputs[number] = value[:, -1:]


def do_export_internal(
    model: Any, onnx_io_tuple: NamesAndAxes, onnx_inputs: Sequence[Any], onnx_path: Path, opset: int
) -> None:
    """Write a file with inputs that stand in the order of what the module takes; large weights are in a file beside it."""
    torch = loaded_torch()
    input_names, output_names, axes = onnx_io_tuple
    taken = dict(zip(_parameters_of(model), onnx_inputs, strict=False))
    tensors = [value for value in taken.values() if isinstance(value, torch.Tensor)]
    caches = [tensor for pair in _pairs(taken.get("past_key_values")) for tensor in pair]

    def forward(module: Any, *given: Any) -> tuple[Any, ...]:
        return _outputs(module, dict(zip(input_names, given, strict=True)), len(output_names) > 1)

    with TemporaryDirectory() as folder, torch.no_grad():
        raw = Path(folder, "raw.onnx")
        torch_onnx_export(
            calling(model, forward),
            (*tensors, *caches),
            str(raw),
            input_names=list(input_names),
            output_names=list(output_names),
            dynamic_axes=axes,
            opset_version=opset,
        )
        exported = onnx.load(raw)
        is_split = len(os.listdir(folder)) > 1
    data = onnx_path.with_name(f"{onnx_path.name}_ext.data")
    onnx_path.parent.mkdir(parents=True, exist_ok=True)
    for path in (onnx_path, data):
        path.unlink(missing_ok=True)
    onnx.save(exported, onnx_path, save_as_external_data=is_split, location=data.name)


def _outputs(module: Any, given: dict[str, Any], with_present: bool) -> tuple[Any, ...]:
    """What a module makes of inputs by the names of a file."""
    caches = [given.pop(name) for name in list(given) if name.startswith("past_key_values.")]
    words, mask = given["input_ids"], given["attention_mask"]
    length = words.shape[1]
    if "position_ids" in _parameters_of(module) and "position_ids" not in given:
        places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -length:]
        given["position_ids"] = places.reshape(words.shape)  # as they are, and so optimizers know the shape
    given["attention_mask"] = causal_bias(mask, length, caches[0].shape[-2] if caches else 0, module.dtype)
    past = cache_of(zip(caches[::2], caches[1::2], strict=True))
    outputs = module(**given, past_key_values=past, use_cache=True, return_dict=True)
    present = _pairs(outputs.past_key_values) if with_present else ()
    return outputs.logits, *(tensor for pair in present for tensor in pair)


# --- the program


def export_onnx(hf_model: str, cache_dir: str | None, onnx_path_str: str, with_past: bool, opset: int) -> None:
    """Write `model.onnx`, and `model_with_past.onnx` beside it if a cache is wanted; the path may also be that of a file."""
    loader = transformers_package().AutoModelForCausalLM
    model = loader.from_pretrained(hf_model, cache_dir=cache_dir, attn_implementation="eager").float().eval()
    given = Path(onnx_path_str).absolute()
    path = given if given.suffix == ".onnx" else given / "model.onnx"
    Decoder(model, with_past=False, with_present=False).export(path, opset)
    if with_past:
        Decoder(model).export(path.with_name("model_with_past.onnx"), opset)


def parse_arguments() -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-m", "--model", required=True, help="name or folder of the model")
    parser.add_argument("-s", "--saved_path", default="./onnx_models/", help="folder or file to write")
    parser.add_argument("--cache_dir", default=None, help="where fetched models are kept")
    parser.add_argument(
        "--with_past", action="store_true", help="also write the model that takes keys and values of earlier tokens"
    )
    parser.add_argument("--opset", type=int, default=17, help="version of ONNX's operators")
    return parser.parse_args()


if __name__ == "__main__":
    arguments = parse_arguments()
    export_onnx(arguments.model, arguments.cache_dir, arguments.saved_path, arguments.with_past, arguments.opset)
