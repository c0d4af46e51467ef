"""Copies a QDQ model: sessions do by themselves what this tool once did. `python -m sardonyx.tools.qdq_helpers.optimize_qdq_model`."""

from __future__ import annotations

import argparse
import pathlib

import onnx


def optimize_qdq_model() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="Copy a QDQ model.")
    parser.add_argument("input_model", type=pathlib.Path, help="path of the model")
    parser.add_argument("output_model", type=pathlib.Path, help="path of the new model")
    options = parser.parse_args()
    model = onnx.load(str(options.input_model.resolve(strict=True)))
    print("As of ORT 1.15, the fixing up of DQ nodes with multiple consumers is done by an ORT graph transformer.")
    onnx.save(model, str(options.output_model.resolve()))


if __name__ == "__main__":
    optimize_qdq_model()
