"""Three tiny models for examples and first steps; `datasets/models.py` makes them."""

from __future__ import annotations

import os


def get_example(name: str) -> str:
    """The absolute path of one of them: "mul_1.onnx", "sigmoid.onnx" or "logreg_iris.onnx"."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name)
    if not name.endswith(".onnx") or not os.path.isfile(path):
        raise FileNotFoundError(f"Unable to find example '{name}'")
    return path
