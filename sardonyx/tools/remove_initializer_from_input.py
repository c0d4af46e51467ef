"""Takes initializers out of a model's inputs, so that they are constants: `python -m sardonyx.tools.remove_initializer_from_input`."""

from __future__ import annotations

import argparse

import onnx
from onnx import ModelProto

OVERRIDABLE_SINCE_IR = 4


def get_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Take initializers out of a model's inputs.")
    parser.add_argument("--input", required=True, help="path of the model")
    parser.add_argument("--output", required=True, help="path of the new model")
    return parser.parse_args()


def remove_initializer_from_input(model: ModelProto) -> bool:
    """Change the model; whether there was something to do."""
    if model.ir_version < OVERRIDABLE_SINCE_IR:
        print("Model with ir_version below 4 requires to include initializer in graph input")
        return False
    names = {tensor.name for tensor in model.graph.initializer}
    overridable = [value for value in model.graph.input if value.name in names]
    for value in overridable:
        model.graph.input.remove(value)
    return bool(overridable)


def main() -> None:
    options = get_args()
    model = onnx.load(options.input)
    remove_initializer_from_input(model)
    onnx.save(model, options.output)


if __name__ == "__main__":
    main()
