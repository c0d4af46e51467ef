"""`python -m benchmarks.quantized`: quantized networks and single ops of 8 bits, in turns with onnxruntime, our own float32 and OpenVINO.

Networks are those of `benchmarks.networks` and `benchmarks.convnets`, quantized here by `sardonyx.quantization`. What counts are the
ratios; the smallest time of many is taken, of one thread in processor time. Results are held against the float model: on CPUs without
VNNI onnxruntime's sums of uint8 by int8 saturate, and differ.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import enter_openvino
from benchmarks.convnets import CONVNETS
from benchmarks.gemm import PEER, SECONDS, best_times, clock_for
from benchmarks.networks import NETWORKS, Network, decoder
from sardonyx.cli.bench import Contestant, enter
from sardonyx.cli.terminal import time_text
from sardonyx.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from sardonyx.quantization.shape_inference import quant_pre_process

SOURCES: dict[str, Callable[[], Network]] = {
    "resnet50": CONVNETS["resnet50"],
    "mobilenet_v2": CONVNETS["mobilenet_v2"],
    "encoder": NETWORKS["encoder"],
    "token": lambda: decoder("token", blocks=12, width=768, past=128),
}
"""The encoder is three blocks of BERT-base; the token goes through the blocks of GPT-2, with 128 others in the cache."""
FORMS = ("QDQ u8s8", "QDQ s8s8", "QOperator", "dynamic")
ONLY_DYNAMIC = ("token",)
ELEMENTS = {np.dtype(np.uint8): TensorProto.UINT8, np.dtype(np.int8): TensorProto.INT8, np.dtype(np.int32): TensorProto.INT32}
PRODUCTS = {
    "BERT projection": (128, 768, 768),
    "BERT up": (128, 768, 3072),
    "1024³": (1024, 1024, 1024),
    "one row": (1, 768, 768),
}
CONVOLUTIONS = {
    "3×3": (64, 64, 3, 56, 1, 1),
    "1×1": (64, 256, 1, 56, 1, 1),
    "depthwise": (144, 144, 3, 56, 1, 144),
    "strided": (128, 128, 3, 56, 2, 1),
    "7×7 of a picture": (3, 64, 7, 224, 2, 1),
}
"""Channels, filters, size of the window, of the image, stride, groups."""
TURNS = 12
"""Of each runtime, at least: beside other work fewer give times that vary by a fifth."""
SIGNS = {"u8s8": (np.uint8, np.int8), "s8s8": (np.int8, np.int8), "u8u8": (np.uint8, np.uint8)}


@dataclass(frozen=True)
class Entry:
    """Something to measure; `original` is the float model of the same network."""

    name: str
    model: bytes
    feeds: dict[str, np.ndarray]
    original: bytes | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantized", description=__doc__)
    parser.add_argument("--threads", type=int, action="append", help="threads inside an op (default: 1, then 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="time per entry and runtime (default 0.4)")
    parser.add_argument("--only", default="", help="entries whose name contains this")
    parser.add_argument("--openvino", action="store_true", help="measure OpenVINO too, on networks of pairs")
    options = parser.parse_args(arguments)
    chosen = [make() for name, make in entries() if options.only in name]
    for threads in options.threads or [1, 2]:
        _show(threads, [measure(entry, threads, options.seconds, options.openvino) for entry in chosen])
    return 0


def entries() -> Iterator[tuple[str, Callable[[], Entry]]]:
    """All names, with what makes each."""
    for source in SOURCES:
        for form in FORMS[-1:] if source in ONLY_DYNAMIC else FORMS:
            yield f"{source} {form}", lambda source=source, form=form: network(source, form)  # type: ignore[misc]
    for signs in SIGNS:
        for shape in PRODUCTS:
            yield f"{shape} {signs}", lambda signs=signs, shape=shape: product(shape, signs)  # type: ignore[misc]
        for window in CONVOLUTIONS:
            yield f"{window} {signs}", lambda signs=signs, window=window: convolution(window, signs)  # type: ignore[misc]


# --- networks


class _Feeds(CalibrationDataReader):
    def __init__(self, feeds: dict[str, np.ndarray]):
        self.rest = [feeds]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self.rest.pop() if self.rest else None


def network(source: str, form: str) -> Entry:
    """A network quantized with its own feeds for calibration."""
    original = SOURCES[source]()
    with tempfile.TemporaryDirectory() as folder, _quiet():
        prepared, path = Path(folder) / "prepared.onnx", Path(folder) / "quantized.onnx"
        quant_pre_process(onnx.load_model_from_string(original.model), prepared)
        if form == "dynamic":
            quantize_dynamic(prepared, path)
        else:
            _quantize_static(prepared, path, original, form)
        return Entry(f"{source} {form}", path.read_bytes(), original.feeds, original.model)


def _quantize_static(prepared: Path, path: Path, original: Network, form: str) -> None:
    quantize_static(
        prepared,
        path,
        _Feeds(original.feeds),
        quant_format=QuantFormat.QOperator if form == "QOperator" else QuantFormat.QDQ,
        activation_type=QuantType.QInt8 if form.endswith("s8s8") else QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        per_channel=form != "QOperator",
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


# --- single ops


def product(name: str, signs: str) -> Entry:
    """A product of 8-bit matrices, of which the second is constant."""
    rows, inner, columns = PRODUCTS[name]
    a, b = (_numbers(dtype, *shape) for dtype, shape in zip(SIGNS[signs], ((rows, inner), (inner, columns))))
    constants = {"b": b, "za": _point(a, 3), "zb": _point(b, 0)}
    return Entry(f"{name} {signs}", _model("MatMulInteger", {"a": a}, ["a", *constants], constants, np.int32), {"a": a})


def convolution(name: str, signs: str) -> Entry:
    """A QLinearConv with a scale for each filter."""
    channels, filters, size, width, stride, group = CONVOLUTIONS[name]
    x_type, w_type = SIGNS[signs]
    x, w = _numbers(x_type, 1, channels, width, width), _numbers(w_type, filters, channels // group, size, size)
    constants = {
        "sx": np.float32(0.02),
        "zx": _point(x, 3),
        "w": w,
        "sw": np.full(filters, 0.01, np.float32),
        "zw": np.full(filters, 128 if w_type == np.uint8 else 0, w_type),
        "sy": np.float32(3),
        "zy": _point(x, 5),
    }
    window = {"pads": [size // 2] * 4, "strides": [stride] * 2, "group": group}
    return Entry(f"{name} {signs}", _model("QLinearConv", {"x": x}, ["x", *constants], constants, x_type, **window), {"x": x})


def _numbers(dtype: type, *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def _point(like: np.ndarray, number: int) -> np.ndarray:
    return np.array(number, like.dtype)


def _model(
    op: str, feeds: dict[str, np.ndarray], inputs: list[str], constants: dict[str, Any], result: type, **attributes: Any
) -> bytes:
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attributes)],
        "op",
        [helper.make_tensor_value_info(name, ELEMENTS[array.dtype], array.shape) for name, array in feeds.items()],
        [helper.make_tensor_value_info("y", ELEMENTS[np.dtype(result)], None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(model.SerializeToString())


# --- measuring


def measure(entry: Entry, threads: int, seconds: float, openvino: bool = False) -> dict[str, Any]:
    """The best times of all, and how far our result is from that of floats."""
    contestants = {name: enter(name, entry.model, entry.feeds, threads) for name in ("sardonyx", PEER)}
    if entry.original is not None:
        contestants["float32"] = enter("sardonyx", entry.original, entry.feeds, threads)
        if openvino and "QDQ" in entry.name:  # it has none of onnxruntime's own ops
            contestants["OpenVINO"] = enter_openvino(Network(entry.name, entry.model, entry.feeds), threads)
    times = best_times([contestant.run for contestant in contestants.values()], seconds, clock_for(threads), TURNS)
    return {"name": entry.name, "times": dict(zip(contestants, times)), "decibels": _decibels(contestants)}


def _decibels(contestants: dict[str, Contestant]) -> float | None:
    """Signal to noise of our result, if there is a float model."""
    if "float32" not in contestants:
        return None
    found, wanted = (np.asarray(contestants[name].run()[0], np.float64) for name in ("sardonyx", "float32"))
    noise = float(np.square(found - wanted).sum())
    return 10 * float(np.log10(np.square(wanted).sum() / max(noise, 1e-300)))


def _show(threads: int, rows: Sequence[dict[str, Any]]) -> None:
    table = Table(title=f"{threads} thread{'s' if threads > 1 else ''}", title_justify="left")
    others = [PEER, "float32", "OpenVINO"]
    for heading in ("quantized", "sardonyx", *others, "signal to noise"):
        table.add_column(heading, justify="left" if heading == "quantized" else "right")
    for row in rows:
        ours = row["times"]["sardonyx"]
        ratios = [f"{row['times'][other] / ours:.2f}" if other in row["times"] else "" for other in others]
        decibels = "" if row["decibels"] is None else f"{row['decibels']:.0f} dB"
        table.add_row(row["name"], time_text(ours), *ratios, decibels)
    table.caption = (
        "others: their time / that of sardonyx, above 1 we are faster; float32 is sardonyx with the original network"
    )
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
