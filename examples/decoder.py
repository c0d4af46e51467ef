"""A decoder that generates text token by token, with a cache of keys and values: each step computes one token and hands the cache on.

The weights are random, so what it says is nonsense; that it says the same with and without a cache is the point.
"""

from __future__ import annotations

import numpy as np
import onnx
from networks import Network
from onnx import TensorProto, helper

import sardonyx

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 256, 64, 4, 2, 64
HEAD = WIDTH // HEADS


def make_model() -> onnx.ModelProto:
    """New tokens, their positions and the cache to scores of the next token and the longer cache."""
    net = Network(seed=2)
    x = net.add(
        "Add",
        net.add("Gather", net.table(VOCABULARY, WIDTH, 1.0), "ids"),
        net.add("Gather", net.table(LENGTH, WIDTH, 0.5), "positions"),
    )
    caches = []
    for layer in range(LAYERS):
        attended, key, value = _attention(net, net.normalized(x, WIDTH), f"past_key_{layer}", f"past_value_{layer}")
        caches += [(key, _cache(f"key_{layer}", "total")), (value, _cache(f"value_{layer}", "total"))]
        x = net.add("Add", x, attended)
        inner = net.add("Gelu", net.linear(net.normalized(x, WIDTH), WIDTH, 4 * WIDTH))
        x = net.add("Add", x, net.linear(inner, 4 * WIDTH, WIDTH))
    scores = net.linear(net.normalized(x, WIDTH), WIDTH, VOCABULARY)
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "new"]) for name in ("ids", "positions")]
    inputs += [_cache(name, "past") for name in cache_names()]
    scored = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "new", VOCABULARY])
    return net.model(inputs, [(scores, scored), *caches])


def cache_names() -> list[str]:
    return [f"past_{kind}_{layer}" for layer in range(LAYERS) for kind in ("key", "value")]


def _cache(name: str, length: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", HEADS, length, HEAD])


def _attention(net: Network, x: str, past_key: str, past_value: str) -> tuple[str, str, str]:
    """Attention of the new tokens to all before them; the result, and the longer keys and values."""
    query, key, value = (net.heads(net.linear(x, WIDTH, WIDTH), HEADS, HEAD) for _ in range(3))
    keys = net.add("Concat", past_key, key, axis=2)
    values = net.add("Concat", past_value, value, axis=2)
    scores = net.add("Mul", net.add("MatMul", query, net.add("Transpose", keys, perm=[0, 1, 3, 2])), net.constant(HEAD**-0.5))
    # a key is seen if it is no later than the query: positions count from the first token of all
    order = net.add(
        "Range",
        net.constant(0, np.int64),
        net.add("Squeeze", net.add("Shape", keys, start=2, end=3)),
        net.constant(1, np.int64),
    )
    seen = net.add("GreaterOrEqual", net.add("Unsqueeze", "positions", net.constant([1, 3], np.int64)), order)
    masked = net.add("Where", seen, scores, net.constant(-1e9))
    attended = net.add("MatMul", net.add("Softmax", masked, axis=-1), values)
    return net.linear(net.joined(attended, WIDTH), WIDTH, WIDTH), keys, values


def empty_cache() -> dict[str, np.ndarray]:
    return {name: np.zeros((1, HEADS, 0, HEAD), np.float32) for name in cache_names()}


def generate(session: sardonyx.InferenceSession, prompt: list[int], count: int) -> list[int]:
    """The likeliest tokens after a prompt: the prompt goes through at once, then one token at a time."""
    tokens, new, cache = list(prompt), list(prompt), empty_cache()
    for _ in range(count):
        positions = np.arange(len(tokens) - len(new), len(tokens))
        feeds = {"ids": np.array([new]), "positions": positions[None]}
        scores, *longer = session.run(None, feeds | cache)
        cache = dict(zip(cache_names(), longer, strict=True))
        new = [int(scores[0, -1].argmax())]
        tokens += new
    return tokens


def generate_without_cache(session: sardonyx.InferenceSession, prompt: list[int], count: int) -> list[int]:
    """The same by computing all tokens anew in each step."""
    tokens = list(prompt)
    for _ in range(count):
        feeds = {"ids": np.array([tokens]), "positions": np.arange(len(tokens))[None]}
        tokens.append(int(session.run(["scores"], feeds | empty_cache())[0][0, -1].argmax()))
    return tokens


def main() -> None:
    session = sardonyx.InferenceSession(make_model())
    prompt = list(b"Once upon a time")
    tokens = generate(session, prompt, 24)
    print(tokens[len(prompt) :])
    assert tokens == generate_without_cache(session, prompt, 24)


if __name__ == "__main__":
    main()
