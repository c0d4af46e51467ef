"""How tests write small networks as exporters do: nodes with names, weights as initializers, axes that may all be open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import sardonyx
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.runtime.preparation.plan import Step, all_steps

Size = int | str | None


class Network:
    """A graph being written: `net.Conv(x, w, pads=[1, 1, 1, 1])` adds a node and gives the name of its output."""

    def __init__(self, opset: int = 17, domains: Mapping[str, int] | None = None):
        self._opsets = {"": opset} | dict(domains or {})
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._initializers: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)
        self._types: dict[str, int] = {}

    def input(self, name: str, shape: Sequence[Size], dtype: Any = np.float32) -> str:
        type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self._inputs.append(helper.make_tensor_value_info(name, type, shape))
        return name

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant_{len(self._initializers)}"
        self._initializers.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Random numbers whose products with activations keep their size."""
        size = 1 / np.sqrt(np.prod(shape[1:]) or 1) if scale is None else scale
        return self.constant(self._random.normal(scale=size, size=shape), np.float32)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        def add(*inputs: str, outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
            number = len(self._nodes)
            names = [f"{op_type.lower()}_{number}_{place}" for place in range(outputs)]
            self._nodes.append(
                helper.make_node(op_type, inputs, names, name=f"{op_type}_{number}", domain=domain, **attributes)
            )
            return names[0] if outputs == 1 else names

        return add

    def model(self, *outputs: str | tuple[str, Sequence[Size]], dtypes: Mapping[str, Any] | None = None) -> bytes:
        """Serialized, with these outputs: names, or names with the shapes that the model declares."""
        declared = []
        for output in outputs:
            name, shape = (output, None) if isinstance(output, str) else output
            type = helper.np_dtype_to_tensor_dtype(np.dtype((dtypes or {}).get(name, np.float32)))
            declared.append(helper.make_tensor_value_info(name, type, shape))
        graph = helper.make_graph(self._nodes, "network", self._inputs, declared, self._initializers)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self._opsets.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    # --- what exporters write for one line of a framework

    def conv(self, x: str, inputs: int, outputs: int, size: int = 3, stride: int = 1, **attributes: Any) -> str:
        """A convolution with a bias that keeps the image's size, or divides it by the stride."""
        weight, bias = self.weight(outputs, inputs // attributes.get("group", 1), size, size), self.weight(outputs)
        return self.Conv(x, weight, bias, pads=[size // 2] * 4, strides=[stride, stride], **attributes)

    def size(self, x: str, axis: int) -> str:
        """`x.shape[axis]`: a scalar."""
        return self.Gather(self.Shape(x), self.constant(axis), axis=0)

    def sizes(self, *parts: str | int) -> str:
        """Scalars and numbers side by side, as the shape of a Reshape."""
        rows = [self.constant([one]) if isinstance(one, int) else self.Unsqueeze(one, self.constant([0])) for one in parts]
        return self.Concat(*rows, axis=0)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.Add(self.MatMul(x, self.weight(inputs, outputs)), self.weight(outputs))


def open_session(model: bytes) -> sardonyx.InferenceSession:
    return sardonyx.InferenceSession(model, providers=["CPUExecutionProvider"])


def steps_of(session: sardonyx.InferenceSession) -> tuple[list[Step], list[Step]]:
    """The steps of a session that are native, and those that are not."""
    steps = list(all_steps(session._engine.plan))
    native = [step for step in steps if isinstance(step.provider, NativeExecutionProvider)]
    return native, [step for step in steps if step not in native]


def assert_runs_alike(
    session: sardonyx.InferenceSession, model: bytes, runs: Iterable[Mapping[str, np.ndarray]], tolerance: float = 1e-4
) -> None:
    """Compare each run in one session with onnxruntime's, relative to the largest magnitude of a result."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    for feeds in runs:
        for mine, theirs in zip(session.run(None, dict(feeds)), peer.run(None, dict(feeds)), strict=True):
            assert mine.dtype == theirs.dtype and mine.shape == theirs.shape, f"{mine.shape} for {theirs.shape}"
            if theirs.dtype.kind == "f":
                np.testing.assert_allclose(
                    mine, theirs, rtol=tolerance, atol=tolerance * max(1.0, float(np.abs(theirs).max(initial=0)))
                )
            else:
                np.testing.assert_array_equal(mine, theirs)
