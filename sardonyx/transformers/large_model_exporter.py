"""Language models of the transformers package as ONNX files, with a cache of keys and values or without.

`python -m sardonyx.transformers.large_model_exporter -m MODEL -s FOLDER --with_past`
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sardonyx.transformers.decoders import Decoder
from sardonyx.transformers.onnx_exporter import transformers_package

GIBIBYTE = 2**30


def get_model_parameter_size(model: Any) -> float:
    """What the weights and buffers of a module take, in GiB."""
    tensors = [*model.parameters(), *model.buffers()]
    return float(sum(tensor.numel() * tensor.element_size() for tensor in tensors)) / GIBIBYTE


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
