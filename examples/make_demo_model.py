"""Make shapes.onnx, the demo's model: two layers of seeded convolutions, and a last layer fitted by ridge regression.

No training loop is needed: random convolutions with rectifiers already tell these shapes apart, and the best linear layer above
them has a closed form. Their features are computed by sardonyx itself. Run `python examples/make_demo_model.py` to make the file again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from shapes import LABELS, SIZE, sample

import sardonyx

PATH = Path(__file__).with_name("shapes.onnx")
SEED = 7
CHANNELS = (12, 32)
PICTURES = 8000
RIDGE = 3.0
TEMPERATURE = 10.0
"""Sharpens the fitted scores, which lie between 0 and 1, into probabilities."""


def filters(rng: np.random.Generator, outputs: int, inputs: int, size: int) -> np.ndarray:
    """Random filters that ignore brightness: each has mean 0 and length 1."""
    weights = rng.normal(size=(outputs, inputs, size, size))
    weights -= weights.mean(axis=(1, 2, 3), keepdims=True)
    weights /= np.sqrt((weights**2).sum(axis=(1, 2, 3), keepdims=True))
    return weights.astype(np.float32)


def convolutions() -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """The nodes from `image` to `features`, and their weights."""
    rng = np.random.default_rng(SEED)
    weights = {
        "conv1.weight": filters(rng, CHANNELS[0], 1, 5),
        "conv1.bias": np.zeros(CHANNELS[0], np.float32),
        "conv2.weight": filters(rng, CHANNELS[1], CHANNELS[0], 5),
        "conv2.bias": rng.uniform(-0.2, 0.1, CHANNELS[1]).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["image", "conv1.weight", "conv1.bias"], ["c1"], name="conv1", pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2.weight", "conv2.bias"], ["c2"], name="conv2", pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["p2"], name="pool2", kernel_shape=[4, 4], strides=[4, 4]),
        helper.make_node("Flatten", ["p2"], ["features"], name="flatten"),
    ]
    return nodes, weights


def make_model(nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], output: str, width: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 1, SIZE, SIZE])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", width])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9, producer_name="sardonyx examples"
    )
    helper.set_model_props(model, {"labels": ",".join(LABELS)})
    onnx.checker.check_model(model, full_check=True)
    return model


def fit(features: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of the linear layer that comes nearest to 1 for the right class and 0 for the others."""
    rows = np.concatenate([features, np.ones((len(features), 1))], axis=1, dtype=np.float64)
    wanted = np.eye(len(LABELS))[classes]
    penalty = RIDGE * np.eye(rows.shape[1])
    penalty[-1, -1] = 0
    solution = np.linalg.solve(rows.T @ rows + penalty, rows.T @ wanted) * TEMPERATURE
    return solution[:-1].astype(np.float32), solution[-1].astype(np.float32)


def main() -> None:
    pictures, classes = sample(PICTURES, seed=1)
    nodes, weights = convolutions()
    width = CHANNELS[1] * (SIZE // 8) ** 2
    extractor = sardonyx.InferenceSession(make_model(nodes, weights, "features", width).SerializeToString())
    features = np.concatenate([extractor.run(None, {"image": batch})[0] for batch in np.array_split(pictures, 20)])
    weights["dense.weight"], weights["dense.bias"] = fit(features, classes)
    nodes += [
        helper.make_node("Gemm", ["features", "dense.weight", "dense.bias"], ["scores"], name="dense"),
        helper.make_node("Softmax", ["scores"], ["probabilities"], name="softmax", axis=1),
    ]
    model = make_model(nodes, weights, "probabilities", len(LABELS))
    PATH.write_bytes(model.SerializeToString())
    fresh, truth = sample(1000, seed=2)
    (probabilities,) = sardonyx.InferenceSession(str(PATH)).run(None, {"image": fresh})
    right = (probabilities.argmax(axis=1) == truth).mean()
    print(f"{PATH.name}: {PATH.stat().st_size / 1000:.0f} kB, {right:.1%} of 1000 fresh pictures right")


if __name__ == "__main__":
    main()
