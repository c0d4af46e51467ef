"""`python -m benchmarks.attention`: attention ops side by side with onnxruntime, in turns, for shapes that transformers have.

Encoders with and without a mask, causal prompts, and decoders that make one token with a past of 512. What counts are the ratios; the
smallest time of many is taken.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.gemm import PEER, SECONDS, TOLERANCE, best_times
from sardonyx.cli.bench import compare_outputs, enter
from sardonyx.cli.terminal import time_text


@dataclass(frozen=True)
class Case:
    """One attention. With fewer key heads than heads it is a GroupQueryAttention with rotary embedding, else a MultiHeadAttention."""

    heads: int
    size: int
    queries: int
    past: int = 0
    key_heads: int = 0
    masked: bool = False
    causal: bool = False
    dtype: str = "float"

    @property
    def keys(self) -> int:
        return self.past + self.queries


CASES = {
    "BERT, 128 tokens": Case(12, 64, 128),
    "BERT, 128 tokens, masked": Case(12, 64, 128, masked=True),
    "BERT, 128 tokens, masked, float16": Case(12, 64, 128, masked=True, dtype="float16"),
    "BERT, 384 tokens, masked": Case(12, 64, 384, masked=True),
    "MiniLM, 128 tokens, masked": Case(12, 32, 128, masked=True),
    "ViT": Case(12, 64, 197, masked=True),
    "Whisper tiny": Case(6, 64, 1500),
    "GPT-2 prompt of 512": Case(12, 64, 512, causal=True),
    "small GPT-2, one token": Case(4, 64, 1, past=512, masked=True),
    "GPT-2, one token": Case(12, 64, 1, past=512, masked=True),
    "small Llama, one token": Case(8, 64, 1, past=512, key_heads=2),
    "Llama, one token": Case(32, 128, 1, past=512, key_heads=8),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__)
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"time per case and runtime (default {SECONDS})")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    options = parser.parse_args(arguments)
    chosen = {name: case for name, case in CASES.items() if options.only in name}
    for threads in options.threads or [1, 2]:
        _show(threads, [measure(name, case, threads, options.seconds) for name, case in chosen.items()])
    return 0


def attention_model(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """A model of one node with its feeds."""
    from onnx import TensorProto, helper, numpy_helper

    feeds = _feeds(case)
    key_heads = case.key_heads or case.heads
    kind = TensorProto.FLOAT16 if case.dtype == "float16" else TensorProto.FLOAT
    outputs = {"y": [1, case.queries, case.heads * case.size]}
    if case.past:
        outputs |= {f"present_{part}": [1, key_heads, case.keys, case.size] for part in ("key", "value")}
    constants = []
    if case.key_heads:
        names = ["q", "k", "v", "past_key", "past_value", "lengths", "total", "cos", "sin"]
        attributes = {"num_heads": case.heads, "kv_num_heads": case.key_heads, "do_rotary": 1}
        constants = [numpy_helper.from_array(np.array(case.keys, np.int32), "total")]
        op = "GroupQueryAttention"
    else:
        names = ["q", "k", "v", "", "", "mask" if case.masked else "", *(["past_key", "past_value"] if case.past else [])]
        attributes = {"num_heads": case.heads, "unidirectional": int(case.causal)}
        op = "MultiHeadAttention"
    graph = helper.make_graph(
        [helper.make_node(op, names, list(outputs), domain="com.microsoft", **attributes)],
        "attention",
        [
            helper.make_tensor_value_info(name, TensorProto.INT32 if name == "lengths" else kind, array.shape)
            for name, array in feeds.items()
        ],
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString(), feeds


def _feeds(case: Case) -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    key_heads = case.key_heads or case.heads

    def floats(*shape: int) -> np.ndarray:
        return random.standard_normal(shape).astype(np.float16 if case.dtype == "float16" else np.float32)

    feeds = {"q": floats(1, case.queries, case.heads * case.size)}
    feeds |= {name: floats(1, case.queries, key_heads * case.size) for name in ("k", "v")}
    if case.masked:
        feeds["mask"] = floats(1, 1, case.queries, case.keys)
    if case.past:
        feeds |= {name: floats(1, key_heads, case.past, case.size) for name in ("past_key", "past_value")}
    if case.key_heads:
        feeds["lengths"] = np.array([case.keys - 1], np.int32)
        feeds |= {name: floats(case.keys, case.size // 2) for name in ("cos", "sin")}
    return feeds


def measure(name: str, case: Case, threads: int, seconds: float) -> dict[str, Any]:
    """The best times of both."""
    model, feeds = attention_model(case)
    contestants = [enter(module, model, feeds, threads) for module in ("sardonyx", PEER)]
    tolerance = TOLERANCE if case.dtype == "float" else 100 * TOLERANCE
    if not compare_outputs(contestants) <= tolerance:
        raise SystemExit(f"{name}: results differ by {compare_outputs(contestants)}")
    ours, theirs = best_times([contestant.run for contestant in contestants], seconds)
    return {"name": name, "case": case, "ours": ours, "theirs": theirs}


def _show(threads: int, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}", title_justify="left")
    for heading in ("attention", "sardonyx", PEER, "Gflop/s", "speed"):
        table.add_column(heading, justify="left" if heading == "attention" else "right")
    for row in rows:
        case = row["case"]
        rate = 4 * case.heads * case.queries * case.keys * case.size / row["ours"] / 1e9
        cells = [time_text(row["ours"]), time_text(row["theirs"]), f"{rate:.1f}", f"{row['theirs'] / row['ours']:.2f}"]
        table.add_row(row["name"], *cells)
    mean = math.exp(sum(math.log(row["theirs"] / row["ours"]) for row in rows) / len(rows)) if rows else 1
    table.caption = f"speed: time of {PEER} / time of sardonyx; geometric mean {mean:.2f}"
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
