"""`python -m benchmarks.optimizing`: how the time of optimizing grows with the number of nodes, from 1,000 to 50,000.

The graphs are chains of blocks as exporters write them: a projection with its bias, GELU and layer normalization spelled out, a residual,
transposes that cancel. Time per node should stay the same.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sardonyx import ops
from sardonyx.dtypes import float32
from sardonyx.ir import Graph, Model, TensorType, Value, dim
from sardonyx.ops.builder import Builder
from sardonyx.optimizer.pipeline import Level, optimize
from sardonyx.providers.cpu.provider import evaluate

SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
WIDTH = 8
OPSETS = {"": 20, "com.microsoft": 1}


def chain(nodes: int) -> Model:
    """A model of at least `nodes` nodes."""
    graph = Graph("chain")
    x: Any = graph.add_input(Value("x", TensorType(float32, (dim.symbol("N"), dim.symbol("S"), WIDTH))))
    op = Builder(graph, opsets=OPSETS)
    weights = op.constant(np.eye(WIDTH, dtype=np.float32))
    while len(graph) < nodes:
        x = _block(op, x, weights)
    graph.outputs.append(op.Identity(x))
    return Model(graph, dict(OPSETS))


def _block(op: Builder, x: Any, weights: Value) -> Any:
    h = op.Add(op.MatMul(x, weights), op.constant(np.ones(WIDTH, np.float32)))
    erf = op.Erf(op.Div(h, op.constant(np.float32(2**0.5))))
    h = op.Mul(op.Mul(h, op.Add(erf, op.constant(np.float32(1)))), op.constant(np.float32(0.5)))
    h = op.Transpose(op.Transpose(h, perm=[0, 2, 1]), perm=[0, 2, 1])
    h = op.Add(x, op.Identity(h))
    mean = op.ReduceMean(h, axes=[-1], keepdims=1)
    centred = op.Sub(h, mean)
    variance = op.ReduceMean(op.Pow(centred, op.constant(np.float32(2))), axes=[-1], keepdims=1)
    scaled = op.Div(centred, op.Sqrt(op.Add(variance, op.constant(np.float32(1e-5)))))
    gamma, beta = op.constant(np.full(WIDTH, 1.1, np.float32)), op.constant(np.full(WIDTH, 0.1, np.float32))
    return op.Add(op.Mul(scaled, gamma), beta)


def measure(nodes: int) -> dict[str, Any]:
    """Optimize one chain at the highest level."""
    model = chain(nodes)
    before = len(model.graph)
    start = time.perf_counter()
    ops.infer(model, evaluate)
    inferred = time.perf_counter()
    journal = optimize(model, Level.ALL, evaluate=evaluate)
    seconds = time.perf_counter() - inferred
    return {
        "before": before,
        "after": len(model.graph),
        "infer": inferred - start,
        "optimize": seconds,
        "per_node": seconds / before,
        "applied": len(journal.applied()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimizing", description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES), help="numbers of nodes")
    options = parser.parse_args(arguments)
    console = Console()
    table = Table("nodes", "after", "rewrites", "infer", "optimize", "per node", title="optimizing at level ALL")
    for size in options.sizes:
        row = measure(size)
        table.add_row(
            f"{row['before']:,}",
            f"{row['after']:,}",
            f"{row['applied']:,}",
            f"{row['infer']:.2f} s",
            f"{row['optimize']:.2f} s",
            f"{row['per_node'] * 1e6:.0f} µs",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
