"""A BERT-like encoder that turns sentences into vectors: padded batches, a mask, the mean of the tokens, and cosine similarity.

The weights are random, so the vectors say which words sentences share and not what they mean. With a real model,
exported to ONNX with the same three inputs, nothing else changes.
"""

from __future__ import annotations

import re
import zlib

import numpy as np
import onnx
from networks import Network
from onnx import TensorProto, helper

import sardonyx

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 1000, 64, 4, 2, 32


def make_model() -> onnx.ModelProto:
    """Token ids and a mask to one vector of length 1 for each sentence."""
    net = Network(seed=1)
    x = net.add("Gather", net.table(VOCABULARY, WIDTH, 1.0), "input_ids")
    positions = net.add("Slice", net.table(LENGTH, WIDTH, 0.1), *_first(net, "input_ids"))
    types = net.add("Gather", net.table(2, WIDTH, 0.1), "token_type_ids")
    x = net.normalized(net.add("Add", net.add("Add", x, positions), types), WIDTH)
    mask = net.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    hidden = net.add("Sub", net.constant(1.0), net.add("Unsqueeze", mask, net.constant([1, 2], np.int64)))
    bias = net.add("Mul", hidden, net.constant(-1e4))
    for _ in range(LAYERS):
        x = net.normalized(net.add("Add", x, _attention(net, x, bias)), WIDTH)
        inner = net.add("Gelu", net.linear(x, WIDTH, 4 * WIDTH))
        x = net.normalized(net.add("Add", x, net.linear(inner, 4 * WIDTH, WIDTH)), WIDTH)
    weights = net.add("Unsqueeze", mask, net.constant([2], np.int64))
    tokens = net.constant([1], np.int64)
    total = net.add("ReduceSum", net.add("Mul", x, weights), tokens, keepdims=0)
    mean = net.add("Div", total, net.add("ReduceSum", weights, tokens, keepdims=0))
    vector = net.add("LpNormalization", mean, axis=-1, p=2)
    names = ("input_ids", "attention_mask", "token_type_ids")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in names]
    return net.model(inputs, [(vector, helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH]))])


def _first(net: Network, ids: str) -> list[str]:
    """Operands of a Slice that takes as many rows as there are tokens."""
    count = net.add("Shape", ids, start=1, end=2)
    return [net.constant([0], np.int64), count, net.constant([0], np.int64)]


def _attention(net: Network, x: str, bias: str) -> str:
    width = WIDTH // HEADS
    query, key, value = (net.heads(net.linear(x, WIDTH, WIDTH), HEADS, width) for _ in range(3))
    scores = net.add("MatMul", query, net.add("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = net.add("Div", scores, net.constant(np.sqrt(width)))
    shares = net.add("Softmax", net.add("Add", scaled, bias), axis=-1)
    return net.linear(net.joined(net.add("MatMul", shares, value), WIDTH), WIDTH, WIDTH)


def encode(sentences: list[str]) -> dict[str, np.ndarray]:
    """Sentences as padded token ids: a stand-in for a tokenizer."""
    rows = [[zlib.crc32(word.encode()) % VOCABULARY for word in re.findall(r"\w+", text.lower())] for text in sentences]
    length = max(map(len, rows))
    mask = np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows], np.int64)
    ids = np.array([row + [0] * (length - len(row)) for row in rows], np.int64)
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


def main() -> None:
    session = sardonyx.InferenceSession(make_model())
    sentences = ["The cat sat on the mat", "The cat sat on a mat", "Prices of oil fell sharply last week"]
    (vectors,) = session.run(None, encode(sentences))
    similarity = vectors @ vectors.T
    for sentence, row in zip(sentences, similarity, strict=True):
        print(f"{sentence:40}", " ".join(f"{value:6.3f}" for value in row))
    assert similarity[0, 1] > similarity[0, 2]


if __name__ == "__main__":
    main()
