"""Writes a model in a newer opset: `python -m sardonyx.tools.update_onnx_opset --opset 17 MODEL NEW`."""

from __future__ import annotations

import argparse
import pathlib

from sardonyx.tools.onnx_model_utils import update_onnx_opset


def update_onnx_opset_helper() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Write a model in a newer opset.")
    parser.add_argument("--opset", type=int, default=15, help="the new opset (default 15)")
    parser.add_argument("input_model", type=pathlib.Path, help="path of the model")
    parser.add_argument("output_model", type=pathlib.Path, help="path of the new model")
    options = parser.parse_args()
    update_onnx_opset(options.input_model, options.opset, options.output_model)


if __name__ == "__main__":
    update_onnx_opset_helper()
