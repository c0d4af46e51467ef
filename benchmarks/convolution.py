"""`python -m benchmarks.convolution`: single layers of convolutional networks side by side with onnxruntime, in turns.

For each layer: the algorithm that was chosen, how fast its kernel is, against the machine's measured peak of multiply-adds (operations are
those of the direct sum, so that Winograd's transforms may exceed it), and how much faster than onnxruntime. Kernels are measured apart from
the copies at the model's border, which a layer inside a network does not have; the last column has the whole run, copies included.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from sardonyx import formats, ops
from sardonyx.cli.terminal import time_text
from sardonyx.compiler.roofline import roofline
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.cpu.provider import CPUExecutionProvider, evaluate
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan

PEER = "onnxruntime"
TOLERANCE = 1e-4
"""Largest difference, relative to the largest result: beyond it nothing is measured."""
SECONDS = 0.5
"""For how long each layer of each runtime is measured."""
KERNELS = ("conv", "winograd", "strassen", "depthwise")


@dataclass(frozen=True)
class Layer:
    """A convolution with pads that keep the size, up to the stride."""

    channels: int
    filters: int
    image: tuple[int, ...]
    kernel: int
    stride: int = 1
    group: int = 1
    dilation: int = 1

    def __str__(self) -> str:
        parts = [f"{self.channels}→{self.filters}", "×".join(map(str, self.image)), f"k{self.kernel}"]
        options = (("s", self.stride), ("g", self.group), ("d", self.dilation))
        return " ".join([*parts, *(f"{name}{value}" for name, value in options if value > 1)])


LAYERS: dict[str, Layer] = {
    "ResNet first": Layer(3, 64, (224, 224), 7, 2),
    "ResNet reduce": Layer(256, 64, (56, 56), 1),
    "ResNet expand": Layer(64, 256, (56, 56), 1),
    "ResNet 56": Layer(64, 64, (56, 56), 3),
    "ResNet 28": Layer(128, 128, (28, 28), 3),
    "ResNet 14": Layer(256, 256, (14, 14), 3),
    "ResNet 7": Layer(512, 512, (7, 7), 3),
    "ResNet down": Layer(128, 128, (56, 56), 3, 2),
    "ResNet shortcut": Layer(1024, 2048, (14, 14), 1, 2),
    "ResNet reduce 14": Layer(1024, 256, (14, 14), 1),
    "ResNet expand 7": Layer(512, 2048, (7, 7), 1),
    "VGG first": Layer(3, 64, (224, 224), 3),
    "VGG 112": Layer(128, 128, (112, 112), 3),
    "VGG 28": Layer(512, 512, (28, 28), 3),
    "MobileNet first": Layer(3, 32, (224, 224), 3, 2),
    "MobileNetV3 first": Layer(3, 16, (224, 224), 3, 2),
    "ConvNeXt first": Layer(3, 96, (224, 224), 4, 4),
    "MobileNet expand": Layer(24, 144, (56, 56), 1),
    "MobileNet project": Layer(144, 24, (56, 56), 1),
    "depthwise 112": Layer(32, 32, (112, 112), 3, 1, 32),
    "depthwise down": Layer(96, 96, (112, 112), 3, 2, 96),
    "depthwise 14": Layer(384, 384, (14, 14), 3, 1, 384),
    "depthwise 5×5": Layer(240, 240, (28, 28), 5, 1, 240),
    "ResNeXt 56": Layer(128, 128, (56, 56), 3, 1, 32),
    "ResNeXt 14": Layer(512, 512, (14, 14), 3, 1, 32),
    "Inception 5×5": Layer(32, 96, (14, 14), 5),
    "AlexNet first": Layer(3, 64, (224, 224), 11, 4),
    "DeepLab": Layer(256, 256, (33, 33), 3, 1, 1, 6),
    "odd channels": Layer(70, 50, (31, 33), 3),
    "speech": Layer(64, 64, (1000,), 9),
    "speech first": Layer(1, 258, (16000,), 401, 160),
    "video": Layer(32, 32, (8, 28, 28), 3),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolution", description=__doc__)
    parser.add_argument("--threads", type=int, default=1, help="threads inside an op (default 1)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time per layer and runtime (default 0.5)")
    parser.add_argument("--only", help="layers whose name or sizes contain this")
    parser.add_argument("--accuracy", default="default", choices=[str(level) for level in Accuracy], help="which algorithms")
    options = parser.parse_args(arguments)
    chosen = [(name, layer) for name, layer in LAYERS.items() if options.only is None or options.only in f"{name} {layer}"]
    rows = [measure(name, layer, options.threads, options.seconds, options.accuracy) for name, layer in chosen]
    _show(options.threads, rows)
    return 0


def layer_model(layer: Layer) -> tuple[bytes, np.ndarray]:
    """A model of one convolution, and an image for it."""
    from onnx import TensorProto, helper, numpy_helper

    random, rank = np.random.RandomState(0), len(layer.image)
    depth = layer.channels // layer.group
    weights = random.standard_normal((layer.filters, depth, *(layer.kernel,) * rank)) / math.sqrt(depth * layer.kernel**rank)
    image = random.standard_normal((1, layer.channels, *layer.image)).astype(np.float32)
    pad = (layer.kernel - 1) * layer.dilation // 2
    node = helper.make_node(
        "Conv",
        ["x", "w", "b"],
        ["y"],
        strides=[layer.stride] * rank,
        dilations=[layer.dilation] * rank,
        pads=[pad] * 2 * rank,
        group=layer.group,
    )
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(weights.astype(np.float32), "w"),
            numpy_helper.from_array(random.standard_normal(layer.filters).astype(np.float32), "b"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return model.SerializeToString(), image


def measure(name: str, layer: Layer, threads: int, seconds: float, accuracy: str = "default") -> dict[str, Any]:
    """The best times of both, ours for the kernel alone too."""
    import onnxruntime

    model, image = layer_model(layer)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    peer = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    typed = formats.load(model)
    ops.infer(typed, evaluate)
    plan = make_plan(typed.graph, [NativeExecutionProvider({"accuracy": accuracy}, threads), CPUExecutionProvider()])
    (program,) = (step.call for step in plan.steps if isinstance(step.call, CompiledProgram))
    wanted = peer.run(None, {"x": image})[0]
    difference = np.abs(execute(plan, {"x": image})[0] - wanted).max() / np.abs(wanted).max()
    if not difference <= TOLERANCE:
        raise SystemExit(f"{name}: results differ by {difference}")
    best = {"kernel": math.inf, "ours": math.inf, "theirs": math.inf}
    end = time.perf_counter() + 2 * seconds
    while time.perf_counter() < end:
        for _ in range(3):
            steps = [step for step in program.run_timed([image])[1] if step.kernel in KERNELS]
            best["kernel"] = min(best["kernel"], sum(step.seconds for step in steps))
            best["ours"] = min(best["ours"], _seconds(lambda: execute(plan, {"x": image})))
        for _ in range(3):
            best["theirs"] = min(best["theirs"], _seconds(lambda: peer.run(None, {"x": image})))
    return {"name": name, "layer": layer, "algorithm": steps[-1].kernel, "flops": steps[-1].flops, **best}


def _seconds(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _show(threads: int, rows: Sequence[dict[str, Any]]) -> None:
    peak = roofline(threads).flops
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}, peak {peak / 1e9:.0f} Gflop/s", title_justify="left")
    for heading in ("layer", "sizes", "algorithm", "kernel", PEER, "Gflop/s", "of peak", "speed", "whole run"):
        table.add_column(heading, justify="left" if heading in ("layer", "sizes", "algorithm") else "right")
    for row in rows:
        rate = row["flops"] / row["kernel"]
        cells = [time_text(row["kernel"]), time_text(row["theirs"]), f"{rate / 1e9:.0f}", f"{rate / peak:.0%}"]
        speeds = [f"{row['theirs'] / row[which]:.2f}" for which in ("kernel", "ours")]
        table.add_row(row["name"], str(row["layer"]), row["algorithm"], *cells, *speeds)
    mean = math.exp(sum(math.log(row["theirs"] / row["kernel"]) for row in rows) / len(rows)) if rows else 1
    table.caption = f"speed: time of {PEER} / time of sardonyx's kernel; geometric mean {mean:.2f}"
    Console(width=150).print(table)


if __name__ == "__main__":
    sys.exit(main())
