"""Small float models and readers for the tests of quantization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from sardonyx.quantization import CalibrationDataReader

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'


def model(text: str, **weights: Any) -> onnx.ModelProto:
    """A model in ONNX's text form, with arrays as initializers."""
    parsed = onnx.parser.parse_model(HEADER + text)
    for name, array in weights.items():
        parsed.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return parsed


class Feeds(CalibrationDataReader):
    """A reader over feeds in memory."""

    def __init__(self, feeds: Sequence[dict[str, np.ndarray]]):
        self.feeds = list(feeds)
        self.rewind()

    def rewind(self) -> None:
        self.position = 0

    def get_next(self) -> dict[str, np.ndarray] | None:
        self.position += 1
        return self.feeds[self.position - 1] if self.position <= len(self.feeds) else None


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def mlp(rng: np.random.Generator, width: int = 32) -> onnx.ModelProto:
    """Two products with a Relu between them."""
    return model(
        f"mlp (float[N, {width}] x) => (float[N, 8] y) {{ a = MatMul(x, w1) b = Add(a, b1) c = Relu(b) y = MatMul(c, w2) }}",
        w1=normal(rng, width, 48, scale=0.2),
        b1=normal(rng, 48, scale=0.1),
        w2=normal(rng, 48, 8, scale=0.2),
    )


def named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a name for each node."""
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type.lower()}_{number}"
    return proto


def batches(rng: np.random.Generator, name: str, *shape: int, count: int = 4) -> list[dict[str, np.ndarray]]:
    return [{name: normal(rng, *shape)} for _ in range(count)]
