"""A small builder of ONNX models for the examples: nodes by calls, weights by arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Network:
    """Nodes and weights in order; values are their names."""

    def __init__(self, seed: int):
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(seed)

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array, dtype)
        return name

    def random(self, *shape: int) -> str:
        """Weights that keep the size of what they multiply."""
        return self.constant(self.rng.normal(size=shape) / np.sqrt(shape[0]))

    def table(self, rows: int, width: int, size: float) -> str:
        """Vectors to look up."""
        return self.constant(self.rng.normal(size=(rows, width)) * size)

    def add(self, op: str, *inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Append a node; the name of its output, or several."""
        names = [f"{op}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.add("Add", self.add("MatMul", x, self.random(inputs, outputs)), self.constant(np.zeros(outputs)))

    def normalized(self, x: str, width: int) -> str:
        return self.add("LayerNormalization", x, self.constant(np.ones(width)), self.constant(np.zeros(width)), axis=-1)

    def heads(self, x: str, count: int, width: int) -> str:
        """(batch, tokens, count · width) as (batch, count, tokens, width)."""
        split = self.add("Reshape", x, self.constant([0, 0, count, width], np.int64))
        return self.add("Transpose", split, perm=[0, 2, 1, 3])

    def joined(self, x: str, width: int) -> str:
        """The way back."""
        return self.add("Reshape", self.add("Transpose", x, perm=[0, 2, 1, 3]), self.constant([0, 0, width], np.int64))

    def model(self, inputs: Sequence[Any], outputs: Sequence[tuple[str, Any]], **opsets: int) -> onnx.ModelProto:
        """The model; `outputs` are values and what they are to be called and typed as."""
        for value, info in outputs:
            self.nodes.append(helper.make_node("Identity", [value], [info.name]))
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "network", inputs, [info for _, info in outputs], weights)
        imports = [helper.make_opsetid("", 21), *(helper.make_opsetid(name.replace("_", "."), n) for name, n in opsets.items())]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        onnx.checker.check_model(model)
        return model
