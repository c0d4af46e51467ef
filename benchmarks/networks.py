"""The networks that are measured, built here with seeded weights: nothing is downloaded, and everybody measures the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 20


@dataclass(frozen=True)
class Network:
    """A model's bytes with feeds for it."""

    name: str
    model: bytes
    feeds: dict[str, np.ndarray]


class Layers:
    """Collects nodes and weights one after the other."""

    def __init__(self, seed: int = 0, type: type[np.floating[Any]] = np.float32) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.rng = np.random.default_rng(seed)
        self.type = type

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op}_{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=names[0], **attributes))
        return names[0]

    def weight(self, *shape: int, fan_in: int | None = None) -> str:
        """Random weights that keep the size of what they are applied to."""
        scale = 1 / np.sqrt(fan_in if fan_in is not None else shape[0])
        return self.constant((self.rng.standard_normal(shape, np.float32) * np.float32(scale)).astype(self.type))

    def zeros(self, *shape: int) -> str:
        return self.constant(np.zeros(shape, self.type))

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        product = self.add("MatMul", x, self.weight(inputs, outputs))
        return self.add("Add", product, self.zeros(outputs))

    def convolution(self, x: str, inputs: int, outputs: int, size: int, group: int = 1) -> str:
        weight = self.weight(outputs, inputs // group, size, size, fan_in=inputs // group * size * size)
        return self.add("Conv", x, weight, self.zeros(outputs), pads=[size // 2] * 4, group=group)

    def finish(
        self, name: str, shape: Sequence[int], *outputs: str, ml: bool = False, any_batch: bool = False, **more: Sequence[int]
    ) -> Network:
        """The model with the input x of this shape, and others of the shapes in `more`; with `any_batch` the first axis is open."""
        element = helper.np_dtype_to_tensor_dtype(np.dtype(self.type))
        shapes = {"x": shape, **more}
        declared = {key: ["N", *size[1:]] if any_batch else list(size) for key, size in shapes.items()}
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(key, element, size) for key, size in declared.items()],
            [helper.make_tensor_value_info(output, element, None) for output in outputs],
            [numpy_helper.from_array(array, key) for key, array in self.weights.items()],
        )
        opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid("ai.onnx.ml", 3)] if ml else [])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        feeds = {key: self.rng.standard_normal(tuple(size), np.float32).astype(self.type) for key, size in shapes.items()}
        return Network(name, model.SerializeToString(), feeds)


def tiny() -> Network:
    """One addition: what a run costs before anything is computed."""
    layers = Layers()
    return layers.finish("tiny", (1, 4), layers.add("Add", "x", layers.weight(4)))


def mlp() -> Network:
    """784-512-256-10 on 32 rows."""
    layers = Layers()
    x = "x"
    for inputs, outputs in ((784, 512), (512, 256)):
        x = layers.add("Relu", layers.dense(x, inputs, outputs))
    return layers.finish("mlp", (32, 784), layers.add("Softmax", layers.dense(x, 256, 10), axis=-1))


def cnn() -> Network:
    """Plain, depthwise and pointwise convolutions on a picture of 64×64."""
    layers = Layers()
    x = layers.add("Relu", layers.convolution("x", 3, 32, 3))
    x = layers.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = layers.add("Relu", layers.convolution(x, 32, 64, 3))
    for _ in range(3):
        deep = layers.add("Relu", layers.convolution(x, 64, 64, 3, group=64))
        x = layers.add("Add", x, layers.convolution(deep, 64, 64, 1))
    x = layers.add("Flatten", layers.add("GlobalAveragePool", x))
    return layers.finish("cnn", (1, 3, 64, 64), layers.dense(x, 64, 10))


def transformer() -> Network:
    """Two encoder blocks: width 256, 4 heads, 64 tokens."""
    layers = Layers()
    x = "x"
    for _ in range(2):
        x = _encoder_block(layers, x, width=256, heads=4, tokens=64)
    return layers.finish("transformer", (1, 64, 256), x)


def encoder(type: type[np.floating[Any]] = np.float32, name: str = "encoder") -> Network:
    """Three blocks of BERT-base's size: width 768, 12 heads, 128 tokens."""
    layers = Layers(type=type)
    x = "x"
    for _ in range(3):
        x = _encoder_block(layers, x, width=768, heads=12, tokens=128)
    return layers.finish(name, (1, 128, 768), x)


def encoder16() -> Network:
    """The encoder in float16."""
    return encoder(np.float16, "encoder16")


def decoder(name: str = "decoder", blocks: int = 4, width: int = 512, past: int = 512) -> Network:
    """One token through four blocks of width 512, 8 heads, with 512 tokens in the cache."""
    layers, heads = Layers(), width // 64
    x, outputs, caches = "x", [], {}
    for block in range(blocks):
        for one in ("key", "value"):
            caches[f"{one}{block}"] = (1, heads, past, 64)
        x, *present = _decoder_block(layers, x, f"key{block}", f"value{block}", width=width, heads=heads)
        outputs += present
    return layers.finish(name, (1, 1, width), x, *outputs, **caches)


def _decoder_block(layers: Layers, x: str, past_key: str, past_value: str, width: int, heads: int) -> tuple[str, str, str]:
    normal = _layer_normalization(layers, x, width)
    split = layers.constant(np.array([1, -1, heads, width // heads], np.int64))
    query, key, value = (
        layers.add("Transpose", layers.add("Reshape", layers.dense(normal, width, width), split), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    key, value = (layers.add("Concat", past, new, axis=2) for past, new in ((past_key, key), (past_value, value)))
    scores = layers.add("MatMul", query, layers.add("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = layers.add("Mul", scores, layers.constant(layers.type(1 / np.sqrt(width // heads))))
    mixed = layers.add("Transpose", layers.add("MatMul", layers.add("Softmax", scaled, axis=-1), value), perm=[0, 2, 1, 3])
    joined = layers.add("Reshape", mixed, layers.constant(np.array([1, -1, width], np.int64)))
    x = layers.add("Add", x, layers.dense(joined, width, width))
    hidden = layers.add("Gelu", layers.dense(_layer_normalization(layers, x, width), width, 4 * width))
    return layers.add("Add", x, layers.dense(hidden, 4 * width, width)), key, value


def chain() -> Network:
    """Twenty elementwise ops on a million numbers."""
    layers = Layers()
    x = "x"
    ops = ("Mul", "Add", "Sigmoid", "Mul", "Tanh", "Add", "Relu", "Sub", "Exp", "Neg")
    for op in ops * 2:
        two = op in ("Mul", "Add", "Sub")
        x = layers.add(op, x, layers.constant(np.float32(0.75))) if two else layers.add(op, x)
    return layers.finish("chain", (1000, 1000), x)


def softmax() -> Network:
    """Softmax over rows of 1,024, four million numbers."""
    layers = Layers()
    return layers.finish("softmax", (4096, 1024), layers.add("Softmax", "x", axis=-1))


def layer_norm() -> Network:
    """Layer normalization over rows of 1,024, four million numbers."""
    layers = Layers()
    return layers.finish("layer_norm", (4096, 1024), _layer_normalization(layers, "x", 1024))


def transpose_add() -> Network:
    """A transposed matrix and another one, four million numbers each."""
    layers = Layers()
    return layers.finish("transpose_add", (2048, 2048), layers.add("Add", layers.add("Transpose", "x"), "y"), y=(2048, 2048))


def lstm() -> Network:
    """Bidirectional LSTM: 100 steps, 128 inputs, 256 hidden."""
    layers = Layers()
    weights = [layers.weight(2, 1024, 128, fan_in=128), layers.weight(2, 1024, 256, fan_in=256), layers.zeros(2, 2048)]
    y = layers.add("LSTM", "x", *weights, outputs=3, hidden_size=256, direction="bidirectional")
    return layers.finish("lstm", (100, 1, 128), y)


def gru() -> Network:
    """GRU: 100 steps, 128 inputs, 256 hidden."""
    layers = Layers()
    weights = [layers.weight(1, 768, 128, fan_in=128), layers.weight(1, 768, 256, fan_in=256), layers.zeros(1, 1536)]
    y = layers.add("GRU", "x", *weights, outputs=2, hidden_size=256, linear_before_reset=1)
    return layers.finish("gru", (100, 1, 128), y)


def _encoder_block(layers: Layers, x: str, width: int, heads: int, tokens: int) -> str:
    normal = _layer_normalization(layers, x, width)
    split = layers.constant(np.array([1, tokens, heads, width // heads], np.int64))
    query, key, value = (layers.add("Reshape", layers.dense(normal, width, width), split) for _ in range(3))
    query, value = (layers.add("Transpose", one, perm=[0, 2, 1, 3]) for one in (query, value))
    scores = layers.add("MatMul", query, layers.add("Transpose", key, perm=[0, 2, 3, 1]))
    scaled = layers.add("Mul", scores, layers.constant(layers.type(1 / np.sqrt(width // heads))))
    mixed = layers.add("MatMul", layers.add("Softmax", scaled, axis=-1), value)
    joined = layers.add(
        "Reshape", layers.add("Transpose", mixed, perm=[0, 2, 1, 3]), layers.constant(np.array([1, tokens, width], np.int64))
    )
    x = layers.add("Add", x, layers.dense(joined, width, width))
    hidden = layers.add("Gelu", layers.dense(_layer_normalization(layers, x, width), width, 4 * width))
    return layers.add("Add", x, layers.dense(hidden, 4 * width, width))


def _layer_normalization(layers: Layers, x: str, width: int) -> str:
    scale, bias = layers.constant(np.ones(width, layers.type)), layers.zeros(width)
    return layers.add("LayerNormalization", x, scale, bias, axis=-1)


def trees(count: int = 100, depth: int = 6, features: int = 30, rows: int = 1000) -> Network:
    """A regression forest: 100 full trees of depth 6 on 1000 rows."""
    layers = Layers()
    inner, total = 2**depth - 1, 2 ** (depth + 1) - 1
    node = np.arange(total)
    is_leaf = node >= inner
    per_tree = {
        "nodes_nodeids": node,
        "nodes_featureids": np.zeros(total, int),
        "nodes_truenodeids": np.where(is_leaf, 0, 2 * node + 1),
        "nodes_falsenodeids": np.where(is_leaf, 0, 2 * node + 2),
    }
    attributes: dict[str, Any] = {key: np.tile(array, count).tolist() for key, array in per_tree.items()}
    attributes["nodes_featureids"] = layers.rng.integers(0, features, size=count * total).tolist()
    attributes["nodes_values"] = layers.rng.normal(size=count * total).tolist()
    attributes["nodes_modes"] = np.tile(np.where(is_leaf, "LEAF", "BRANCH_LEQ"), count).tolist()
    attributes["nodes_treeids"] = np.repeat(np.arange(count), total).tolist()
    leaves = total - inner
    attributes["target_treeids"] = np.repeat(np.arange(count), leaves).tolist()
    attributes["target_nodeids"] = np.tile(node[is_leaf], count).tolist()
    attributes["target_ids"] = [0] * (count * leaves)
    attributes["target_weights"] = layers.rng.normal(size=count * leaves).tolist()
    y = layers.add("TreeEnsembleRegressor", "x", domain="ai.onnx.ml", n_targets=1, **attributes)
    return layers.finish("trees", (rows, features), y, ml=True)


def trees_one_row() -> Network:
    """A forest of 100 trees on one row."""
    return trees(rows=1)


def trees_many_rows() -> Network:
    """A forest of 100 trees on 10,000 rows."""
    return trees(rows=10_000)


_ALL = (
    *(tiny, mlp, cnn, transformer, encoder, encoder16, decoder, chain, softmax, layer_norm, transpose_add, lstm, gru),
    *(trees_one_row, trees, trees_many_rows),
)
NETWORKS: dict[str, Callable[[], Network]] = {make.__name__: make for make in _ALL}
