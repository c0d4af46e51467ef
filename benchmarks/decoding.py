"""`python -m benchmarks.decoding`: one token after the other with a past in the cache, side by side with onnxruntime, in turns.

Two decoders with seeded weights are built here, or `--model` names exports with inputs past… and outputs present…. Ways to decode:
"again" runs one step again and again, "growing" feeds the caches that come out back in, "shared" binds one memory to past and present, so
that new rows are appended where the old ones are. What counts are the ratios of medians; outputs are compared before anything is measured.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.gemm import PEER
from benchmarks.networks import Layers
from sardonyx.cli.bench import PAUSE, largest_difference
from sardonyx.cli.terminal import FATAL, time_text

PAST = 512
TURNS = 20
TOKENS = 24
"""Of a turn; the first ones find caches and threads as the other runtime left them, and do not count."""
UNCOUNTED = 4
CAPACITY = 1024
"""Rows of a cache that past and present share, beyond the past."""
TOLERANCE = 1e-3
LONGEST = 8192
WEIGHTS_SEED = 0

Decoding = Generator[Callable[[], Any], Any, None]


@dataclass(frozen=True)
class Decoder:
    """A model's bytes, and whether its caches may be longer than the past."""

    name: str
    model: bytes
    has_capacity: bool = False


def gpt2() -> Decoder:
    """Four blocks of width 256 with 4 heads, learned positions, a vocabulary of 4,000; caches are concatenated."""
    layers, width, heads = Layers(WEIGHTS_SEED), 256, 4
    past = layers.add("Shape", "past.0.key", start=2, end=3)
    token = layers.add("Gather", layers.weight(4000, width), "input_ids")
    x = layers.add("Add", token, layers.add("Gather", layers.weight(LONGEST, width), past))
    caches = []
    for block in range(4):
        x, *present = _concatenating_block(layers, x, f"past.{block}", width, heads)
        caches += present
    logits = layers.add("MatMul", normalized(layers, x, width), layers.weight(width, 4000))
    return Decoder("gpt2", _finished(layers, logits, caches, heads, width // heads))


def llama() -> Decoder:
    """Six blocks of width 512 with 8 heads on 2 heads of keys, rotary positions, gated layers, a vocabulary of 8,000."""
    layers, width, heads, key_heads, size = Layers(WEIGHTS_SEED), 512, 8, 2, 64
    lengths = layers.add("ReduceSum", "attention_mask", layers.constant(np.array([1])), keepdims=0)
    last = layers.add("Sub", lengths, layers.constant(np.array([1])))
    total = layers.add("Squeeze", layers.add("Shape", "attention_mask", start=1, end=2))
    told = [layers.add("Cast", one, to=TensorProto.INT32) for one in (last, total)]
    angles = np.arange(LONGEST)[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))
    tables = [layers.constant(function(angles).astype(np.float32)) for function in (np.cos, np.sin)]
    x, caches = layers.add("Gather", layers.weight(8000, width), "input_ids"), []
    for block in range(6):
        normal = _simplified(layers, x, width)
        parts = [layers.add("MatMul", normal, layers.weight(width, one * size)) for one in (heads, key_heads, key_heads)]
        past = [f"past.{block}.{part}" for part in ("key", "value")]
        attributes = {"num_heads": heads, "kv_num_heads": key_heads, "do_rotary": 1, "domain": "com.microsoft"}
        mixed = layers.add("GroupQueryAttention", *parts, *past, *told, *tables, outputs=3, **attributes)
        caches += [f"{mixed[:-1]}{number}" for number in (1, 2)]
        x = layers.add("Add", x, layers.add("MatMul", mixed, layers.weight(heads * size, width)))
        x = layers.add("Add", x, _gated(layers, _simplified(layers, x, width), width, 1376))
    logits = layers.add("MatMul", _simplified(layers, x, width), layers.weight(width, 8000))
    return Decoder("llama", _finished(layers, logits, caches, key_heads, size, masked=True), has_capacity=True)


def _concatenating_block(layers: Layers, x: str, past: str, width: int, heads: int) -> tuple[str, str, str]:
    normal = normalized(layers, x, width)
    split = layers.constant(np.array([0, 0, heads, width // heads], np.int64))
    query, key, value = (
        layers.add("Transpose", layers.add("Reshape", layers.dense(normal, width, width), split), perm=[0, 2, 1, 3])
        for _ in range(3)
    )
    key, value = (layers.add("Concat", f"{past}.{part}", new, axis=2) for part, new in (("key", key), ("value", value)))
    scores = layers.add("MatMul", query, layers.add("Transpose", key, perm=[0, 1, 3, 2]))
    scaled = layers.add("Mul", scores, layers.constant(np.float32(1 / np.sqrt(width // heads))))
    mixed = layers.add("Transpose", layers.add("MatMul", layers.add("Softmax", scaled, axis=-1), value), perm=[0, 2, 1, 3])
    joined = layers.add("Reshape", mixed, layers.constant(np.array([0, 0, width], np.int64)))
    x = layers.add("Add", x, layers.dense(joined, width, width))
    hidden = layers.add("Gelu", layers.dense(normalized(layers, x, width), width, 4 * width), approximate="tanh")
    return layers.add("Add", x, layers.dense(hidden, 4 * width, width)), key, value


def normalized(layers: Layers, x: str, width: int) -> str:
    ones, zeros = layers.constant(np.ones(width, np.float32)), layers.zeros(width)
    return layers.add("LayerNormalization", x, ones, zeros, axis=-1)


def _simplified(layers: Layers, x: str, width: int) -> str:
    return layers.add("SimplifiedLayerNormalization", x, layers.constant(np.ones(width, np.float32)), axis=-1, epsilon=1e-5)


def _gated(layers: Layers, x: str, width: int, hidden: int) -> str:
    gate, up = (layers.add("MatMul", x, layers.weight(width, hidden)) for _ in range(2))
    swish = layers.add("Mul", gate, layers.add("Sigmoid", gate))
    return layers.add("MatMul", layers.add("Mul", swish, up), layers.weight(hidden, width))


def _finished(layers: Layers, logits: str, caches: Sequence[str], heads: int, size: int, masked: bool = False) -> bytes:
    blocks = [f"{block}.{part}" for block in range(len(caches) // 2) for part in ("key", "value")]
    names = dict(zip(caches, (f"present.{name}" for name in blocks)))
    for node in layers.nodes:
        for ends in (node.input, node.output):
            ends[:] = [names.get(name, name) for name in ends]
    inputs = [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "length"])]
    if masked:
        inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "total"]))
    inputs += [helper.make_tensor_value_info(f"past.{name}", 1, ["batch", heads, "past", size]) for name in blocks]
    outputs = [helper.make_tensor_value_info(logits, 1, ["batch", "length", None])]
    outputs += [helper.make_tensor_value_info(f"present.{name}", 1, ["batch", heads, None, size]) for name in blocks]
    weights = [numpy_helper.from_array(array, name) for name, array in layers.weights.items()]
    graph = helper.make_graph(layers.nodes, "decoder", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


class Contestant:
    """One runtime with its session of a decoder."""

    def __init__(self, module: str, decoder: Decoder, threads: int, past: int):
        self.runtime = importlib.import_module(module)
        settings = self.runtime.SessionOptions()
        settings.intra_op_num_threads, settings.log_severity_level = threads, FATAL
        self.session = self.runtime.InferenceSession(decoder.model, settings, providers=["CPUExecutionProvider"])
        self.inputs = self.session.get_inputs()
        self.outputs = [one.name for one in self.session.get_outputs()]
        self.caches = [one.name for one in self.inputs if "past" in one.name]
        self.presents = [self._present_of(name, index) for index, name in enumerate(self.caches)]
        self.past = past
        self.seconds: list[float] = []

    def _present_of(self, cache: str, index: int) -> str:
        """The output that becomes an input of the next step: by name, or by order behind the logits."""
        wanted = cache.replace("past_key_values", "present").replace("past", "present")
        return wanted if wanted in self.outputs else self.outputs[1 + index]

    def feeds(self, past: int, rows: int | None = None) -> dict[str, np.ndarray]:
        """One token behind a past of so many, in caches of so many rows."""
        random = np.random.default_rng(past)
        made = {}
        for one in self.inputs:
            if one.name in self.caches:
                shape = (1, one.shape[1], past if rows is None else rows, one.shape[3])
                made[one.name] = random.standard_normal(shape, np.float32).astype(_TYPES[one.type]) * _TYPES[one.type](0.5)
            else:
                made[one.name] = _numbers(one.name, past).astype(_TYPES[one.type])
        return made

    # --- ways to decode: what to call for each token; the result is sent back

    def again(self, start: int) -> Decoding:
        run = functools.partial(self.session.run, None, self.feeds(self.past))
        while True:
            yield run

    def growing(self, start: int) -> Decoding:
        feeds = self.feeds(start)
        for past in itertools.count(start):
            feeds |= {one.name: _numbers(one.name, past) for one in self.inputs if one.name not in self.caches}
            outputs = dict(zip(self.outputs, (yield functools.partial(self.session.run, None, feeds))))
            feeds |= {cache: outputs[present] for cache, present in zip(self.caches, self.presents)}

    def shared(self, start: int) -> Decoding:
        """Caches in memory of the caller, with room for all that is to come."""
        feeds = self.feeds(start, self.past + CAPACITY)
        values = {name: self.runtime.OrtValue.ortvalue_from_numpy(feeds[name]) for name in self.caches}
        binding = self.session.io_binding()
        for cache, present in zip(self.caches, self.presents):
            binding.bind_ortvalue_input(cache, values[cache])
            binding.bind_ortvalue_output(present, values[cache])
        binding.bind_output(self.outputs[0])
        for past in itertools.count(start):
            for one in self.inputs:
                if one.name not in self.caches:
                    binding.bind_cpu_input(one.name, _numbers(one.name, past))
            yield functools.partial(self.session.run_with_iobinding, binding)

    def measure(self, way: str, start: int) -> None:
        """The times of a turn's tokens."""
        time.sleep(PAUSE)
        steps: Decoding = getattr(self, way)(start)
        run = next(steps)
        for number in range(TOKENS):
            begin = time.perf_counter()
            made = run()
            if number >= UNCOUNTED:
                self.seconds.append(time.perf_counter() - begin)
            run = steps.send(made)


_TYPES: dict[str, Any] = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
_TYPES |= {"tensor(int32)": np.int32, "tensor(bool)": np.bool_}


def _numbers(name: str, past: int) -> np.ndarray:
    """What is fed beside the caches for one token behind a past."""
    if "mask" in name:
        return np.ones((1, past + 1), np.int64)
    return np.array([[past if "position" in name else past % 1000]])


def measure(decoder: Decoder, way: str, threads: int, past: int, turns: int) -> dict[str, Any]:
    """Medians of both, in turns; every turn begins with other lengths, so that few come twice."""
    contestants = [Contestant(module, decoder, threads, past) for module in ("sardonyx", PEER)]
    difference = largest_difference(*(one.session.run(None, one.feeds(past)) for one in contestants))
    if not difference <= TOLERANCE:
        raise SystemExit(f"{decoder.name}: results differ by {difference}")
    for turn in range(turns):
        for contestant in contestants:
            contestant.measure(way, past + turn * TOKENS % (CAPACITY - TOKENS))
    ours, theirs = ((statistics.median(one.seconds), min(one.seconds)) for one in contestants)
    return {"name": decoder.name, "way": way, "threads": threads, "ours": ours, "theirs": theirs}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.decoding", description=__doc__)
    parser.add_argument("--model", action="append", type=Path, help="a decoder with caches, instead of those built here")
    parser.add_argument("--past", type=int, default=PAST, help=f"tokens in the cache (default {PAST})")
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--turns", type=int, default=TURNS, help=f"turns of {TOKENS} tokens for each (default {TURNS})")
    options = parser.parse_args(arguments)
    decoders = [Decoder(path.stem, path.read_bytes()) for path in options.model or ()] or [gpt2(), llama()]
    rows = [
        measure(decoder, way, threads, options.past, options.turns)
        for decoder in decoders
        for way in ("again", "growing", *(["shared"] if decoder.has_capacity else []))
        for threads in options.threads or [1, 2]
    ]
    _show(rows)
    return 0


def _show(rows: Sequence[dict[str, Any]]) -> None:
    table = Table(caption=f"per token; speed: median of {PEER} / median of sardonyx, in brackets of the smallest times")
    for heading in ("decoder", "way", "threads", "sardonyx", PEER, "speed"):
        table.add_column(heading, justify="left" if heading in ("decoder", "way") else "right")
    for row in rows:
        (ours, our_least), (theirs, their_least) = row["ours"], row["theirs"]
        speed = f"{theirs / ours:.2f} ({their_least / our_least:.2f})"
        table.add_row(row["name"], row["way"], str(row["threads"]), time_text(ours), time_text(theirs), speed)
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
