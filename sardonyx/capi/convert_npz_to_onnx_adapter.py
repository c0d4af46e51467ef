"""Turns an .npz file with an array for each parameter into an adapter.

`python -m sardonyx.capi.convert_npz_to_onnx_adapter --npz_file_path A --output_file_path B --adapter_version 1 --model_version 1`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from sardonyx.formats import adapters


def get_args(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Turn an .npz file into an .onnx_adapter file.")
    parser.add_argument("--npz_file_path", required=True, help="path of the .npz file")
    parser.add_argument("--output_file_path", required=True, help="path of the adapter")
    parser.add_argument("--adapter_version", type=int, required=True, help="which version of the adapter this is")
    parser.add_argument("--model_version", type=int, required=True, help="for which version of the model it is")
    return parser.parse_args(arguments)


def export_lora_parameters(npz_file_path: str, adapter_version: int, model_version: int, output_file_path: str) -> None:
    with np.load(npz_file_path, allow_pickle=False) as archive:
        parameters = {name: archive[name] for name in archive.files}
    adapter = adapters.Adapter(adapter_version=adapter_version, model_version=model_version, parameters=parameters)
    adapters.write(adapter, output_file_path)


def main(arguments: Sequence[str] | None = None) -> None:
    options = get_args(arguments)
    export_lora_parameters(options.npz_file_path, options.adapter_version, options.model_version, options.output_file_path)


if __name__ == "__main__":
    main()
