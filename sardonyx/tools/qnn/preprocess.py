"""Bring a float model into the form that QNN likes: the program around `quantization.execution_providers.qnn`.

`python -m sardonyx.tools.qnn.preprocess -i MODEL -o MODEL`
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from onnx import ModelProto

from sardonyx.quantization.execution_providers import qnn


def qnn_preprocess_model(
    model_input: str | Path | ModelProto,
    model_output: str | Path,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: list[str] | None = None,
    outputs_to_make_channel_last: list[str] | None = None,
    dynamic_input_shapes: list[tuple[str, str]] | None = None,
    exclude_initializer_from_input: bool = False,
) -> bool:
    """Whether anything was changed, and written; the function of quantization with its arguments in another order."""
    return qnn.qnn_preprocess_model(
        model_input,
        model_output,
        exclude_initializer_from_input,
        fuse_layernorm,
        save_as_external_data,
        all_tensors_to_one_file,
        external_data_location,
        external_data_size_threshold,
        external_data_convert_attribute,
        inputs_to_make_channel_last,
        outputs_to_make_channel_last,
        dynamic_input_shapes,
    )


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of the program, which are those of `qnn_preprocess_model`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-i", "--input_model_path", dest="model_input", required=True, help="the model to read")
    parser.add_argument("-o", "--output_model_path", dest="model_output", required=True, help="the file to write")
    parser.add_argument("--save_as_external_data", action="store_true", help="weights in files beside the model")
    parser.add_argument("--all_tensors_to_one_file", action="store_true", help="weights in one file")
    parser.add_argument("--external_data_location", help="the name of that file")
    parser.add_argument("--external_data_size_threshold", type=int, default=1024, help="bytes of weights that leave the model")
    parser.add_argument("--external_data_convert_attribute", action="store_true", help="tensors of attributes, too")
    parser.add_argument("--fuse_layernorm", action="store_true", help="make nodes of LayerNormalization")
    for kind in ("inputs", "outputs"):
        parser.add_argument(f"--{kind}_to_make_channel_last", nargs="+", help=f"names of {kind} whose channels go last")
    parser.add_argument(
        "--dynamic_input_shapes", nargs=2, action="append", metavar=("NAME", "SIZES"), help="fixed sizes: data 1,3,256,256"
    )
    parser.add_argument("--exclude_initializer_from_input", action="store_true", help="weights are no inputs of the graph")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> bool:
    """Run the program."""
    return qnn_preprocess_model(**vars(parse_arguments(argv)))


if __name__ == "__main__":
    main()
