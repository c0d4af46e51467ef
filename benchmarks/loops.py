"""`python -m benchmarks.loops`: decoders that go round in a Loop of their model, side by side with onnxruntime, in turns.

Each makes its tokens greedily, one in each turn, from its own last one: a GRU cell that attends to the states of an encoder, and blocks
of a transformer whose caches grow in the loop. What counts are the ratios of the smallest times, of processor time with one thread.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.decoding import normalized
from benchmarks.gemm import PEER
from benchmarks.networks import OPSET, Layers, Network
from sardonyx.cli.terminal import FATAL, time_text

VOCABULARY = 500
TOKENS = 64
STATES = 32
"""Of the encoder, to which the GRU cell attends."""
ROUNDS = 15
SECONDS = 0.1
"""In which a runtime runs as often as it can, in each round."""


def gru(width: int, tokens: int = TOKENS) -> Network:
    """A GRU cell with attention to the states of an encoder; the state is carried from turn to turn."""
    body = Layers()
    token = body.add("Gather", body.weight(VOCABULARY, width, fan_in=1), "token")
    query = body.add("MatMul", "carried", body.weight(width, width))
    weights = body.add("Softmax", body.add("MatMul", query, body.add("Transpose", "x", perm=[1, 0])), axis=-1)
    inputs = body.add("Concat", token, body.add("MatMul", weights, "x"), axis=1)
    gates, recurrent = body.dense(inputs, 2 * width, 3 * width), body.dense("carried", width, 3 * width)
    parts = [_parts(body, value, width) for value in (gates, recurrent)]
    update, reset = (body.add("Sigmoid", body.add("Add", *pair)) for pair in zip(parts[0][:2], parts[1][:2]))
    hidden = body.add("Tanh", body.add("Add", parts[0][2], body.add("Mul", reset, parts[1][2])))
    kept = body.add("Mul", update, body.add("Sub", "carried", hidden))
    state = body.add("Add", hidden, kept)
    carried = {"carried": (np.zeros((1, width), np.float32), state, [1, width])}
    return _looped(f"gru {width}", body, state, width, carried, tokens)


def transformer(width: int, blocks: int, tokens: int = TOKENS) -> Network:
    """Blocks whose keys and values are joined to those of the turns before."""
    body, heads = Layers(), width // 64
    x = body.add("Add", body.add("Gather", body.weight(VOCABULARY, width, fan_in=1), "token"), "x")
    x = body.add("Unsqueeze", x, body.constant(np.array([0])))
    carried = {}
    for block in range(blocks):
        x, key, value = _growing_block(body, x, block, width, heads)
        empty = np.zeros((1, heads, 0, 64), np.float32)
        shape = [1, heads, None, 64]
        carried |= {f"key{block}": (empty, key, shape), f"value{block}": (empty, value, shape)}
    state = body.add("Squeeze", normalized(body, x, width), body.constant(np.array([0])))
    return _looped(f"transformer {width}, {blocks}", body, state, width, carried, tokens, rows=1)


def _growing_block(body: Layers, x: str, block: int, width: int, heads: int) -> tuple[str, str, str]:
    normal = normalized(body, x, width)
    split = body.constant(np.array([1, 1, heads, 64]))
    query, key, value = (
        body.add("Transpose", body.add("Reshape", body.dense(normal, width, width), split), perm=[0, 2, 1, 3]) for _ in range(3)
    )
    key, value = (body.add("Concat", f"{name}{block}", new, axis=2) for name, new in (("key", key), ("value", value)))
    scores = body.add("MatMul", query, body.add("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = body.add("Mul", scores, body.constant(np.float32(1 / 8)))
    mixed = body.add("Transpose", body.add("MatMul", body.add("Softmax", scaled, axis=-1), value), perm=[0, 2, 1, 3])
    x = body.add("Add", x, body.dense(body.add("Reshape", mixed, body.constant(np.array([1, 1, width]))), width, width))
    hidden = body.add("Gelu", body.dense(normalized(body, x, width), width, 4 * width))
    return body.add("Add", x, body.dense(hidden, 4 * width, width)), key, value


def _parts(body: Layers, value: str, width: int) -> list[str]:
    first = body.add("Split", value, outputs=3, axis=1, num_outputs=3)
    return [f"{first[:-1]}{number}" for number in range(3)]


def _looped(
    name: str, body: Layers, state: str, width: int, carried: dict[str, Any], tokens: int, rows: int = STATES
) -> Network:
    """The whole model: a turn ends with the likeliest token, and the loop when there is no other turn or the token is the last."""
    logits = body.dense(state, width, VOCABULARY)
    token = body.add("ArgMax", logits, axis=1, keepdims=0)
    asked = body.add("Not", body.add("Equal", body.add("Squeeze", token), body.constant(np.array(VOCABULARY))))
    info = helper.make_tensor_value_info
    given = [info("turn", TensorProto.INT64, []), info("going", TensorProto.BOOL, []), info("token", TensorProto.INT64, [1])]
    given += [info(key, TensorProto.FLOAT, shape) for key, (_, _, shape) in carried.items()]
    made = [info(asked, TensorProto.BOOL, []), info(token, TensorProto.INT64, [1])]
    made += [info(then, TensorProto.FLOAT, shape) for _, then, shape in carried.values()]
    body.nodes.append(helper.make_node("Identity", [token], ["collected"]))
    made.append(info("collected", TensorProto.INT64, [1]))
    weights = [numpy_helper.from_array(array, key) for key, array in body.weights.items()]
    started = {"most": np.array(tokens), "start": np.array([1]), "yes": np.array(True)}
    started |= {f"{key} at first": array for key, (array, _, _) in carried.items()}
    inputs = ["most", "yes", "start", *(f"{key} at first" for key in carried)]
    outputs = ["last", *(f"{key} at last" for key in carried), "tokens"]
    loop = helper.make_node("Loop", inputs, outputs, body=helper.make_graph(body.nodes, "turn", given, made))
    graph = helper.make_graph(
        [loop],
        name,
        [info("x", TensorProto.FLOAT, [rows, width])],
        [info("tokens", TensorProto.INT64, None)],
        [*weights, *(numpy_helper.from_array(array, key) for key, array in started.items())],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    return Network(name, model.SerializeToString(), {"x": body.rng.standard_normal((rows, width), np.float32)})


NETWORKS: dict[str, Callable[[], Network]] = {
    "gru 128": lambda: gru(128),
    "gru 256": lambda: gru(256),
    "transformer 128": lambda: transformer(128, 1),
    "transformer 256": lambda: transformer(256, 2),
}


class Contestant:
    """One runtime with its session, and the smallest time of a run."""

    def __init__(self, module: str, network: Network, threads: int):
        runtime = importlib.import_module(module)
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads, settings.log_severity_level = threads, FATAL
        self.session = runtime.InferenceSession(network.model, settings, providers=["CPUExecutionProvider"])
        self.feeds = network.feeds
        self.clock = time.process_time if threads == 1 else time.perf_counter
        self.least = float("inf")

    def run(self) -> np.ndarray:
        (tokens,) = self.session.run(None, self.feeds)
        return np.asarray(tokens)

    def measure(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            begin = self.clock()
            self.run()
            self.least = min(self.least, self.clock() - begin)


def measure(network: Network, threads: int, rounds: int, seconds: float = SECONDS) -> tuple[float, float]:
    """The smallest times of both, which must give the same tokens."""
    contestants = [Contestant(module, network, threads) for module in ("sardonyx", PEER)]
    ours, theirs = (contestant.run() for contestant in contestants)
    if not np.array_equal(ours, theirs):
        raise SystemExit(f"{network.name}: the tokens are {ours.ravel()} and {theirs.ravel()}")
    for _ in range(rounds):
        for contestant in contestants:
            contestant.measure(seconds)
    return contestants[0].least, contestants[1].least


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loops", description=__doc__)
    parser.add_argument("--only", help="decoders whose name contains this")
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"turns of each runtime (default {ROUNDS})")
    options = parser.parse_args(arguments)
    table = Table(caption=f"a run of {TOKENS} tokens; speed: smallest time of {PEER} / that of sardonyx")
    for heading in ("decoder", "threads", "sardonyx", PEER, "speed"):
        table.add_column(heading, justify="left" if heading == "decoder" else "right")
    for name in (name for name in NETWORKS if options.only is None or options.only in name):
        for threads in options.threads or (1, 2):
            ours, theirs = measure(NETWORKS[name](), threads, options.rounds)
            table.add_row(name, str(threads), time_text(ours), time_text(theirs), f"{theirs / ours:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
