"""Makes a symbolic size, or the shape of an input, fixed: `python -m sardonyx.tools.make_dynamic_shape_fixed --help`."""

from __future__ import annotations

import argparse
import pathlib
import sys

import onnx

from sardonyx.tools.onnx_model_utils import fix_output_shapes, make_dim_param_fixed, make_input_shape_fixed


def make_dynamic_shape_fixed_helper() -> None:
    """Do what the command line says: either a symbol and its value, or an input and its shape."""
    parser = argparse.ArgumentParser(description="Give a symbolic size or an input's shape fixed numbers.")
    parser.add_argument("--dim_param", help="name of a symbolic size; goes with --dim_value")
    parser.add_argument("--dim_value", type=int, help="its number, above 0")
    parser.add_argument("--input_name", help="name of an input; goes with --input_shape")
    parser.add_argument("--input_shape", type=_shape, help="its sizes with commas between, as 1,3,256,256")
    parser.add_argument("input_model", type=pathlib.Path, help="path of the model")
    parser.add_argument("output_model", type=pathlib.Path, help="path of the new model")
    options = parser.parse_args()
    by_symbol = options.dim_param is not None and options.dim_value is not None
    by_input = options.input_name is not None and options.input_shape is not None
    if by_symbol == by_input or (by_symbol and options.dim_value < 1) or (by_input and min(options.input_shape, default=1) < 1):
        parser.print_help()
        sys.exit(-1)
    model = onnx.load(str(options.input_model.resolve(strict=True)))
    if by_symbol:
        make_dim_param_fixed(model.graph, options.dim_param, options.dim_value)
    else:
        make_input_shape_fixed(model.graph, options.input_name, options.input_shape)
    fix_output_shapes(model)
    onnx.save(model, str(options.output_model.resolve()))


def _shape(text: str) -> list[int]:
    return [int(size) for size in text.split(",")]


if __name__ == "__main__":
    make_dynamic_shape_fixed_helper()
