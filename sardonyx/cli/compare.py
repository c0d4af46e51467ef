"""`sardonyx compare`: how far a quantized model is from its float one, or a model from itself in another runtime or at another level,
and in which layers accuracy is lost.

Ratios are signal to noise in decibels: 20 more mean a tenth of the error.
"""

from __future__ import annotations

import argparse
import importlib
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import sardonyx
from sardonyx import formats
from sardonyx.cli import feeds
from sardonyx.cli.preparing import LEVELS, session_options
from sardonyx.cli.quantize import data_reader
from sardonyx.cli.terminal import FATAL, Terminal, UsageError, count_text

CPU = "CPUExecutionProvider"


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "compare",
        parents=[common],
        help="compare a quantized model with its float one, or two ways to run one",
        description=__doc__,
    )
    parser.add_argument("model", metavar="A.onnx", help="path of the float model")
    parser.add_argument("quantized", metavar="B.onnx", nargs="?", help="path of the quantized model; without it, use --against")
    parser.add_argument(
        "--against",
        metavar="WAY",
        help=f"run A.onnx in another way too: numpy, a level ({', '.join(LEVELS)}), or a runtime such as onnxruntime",
    )
    parser.add_argument("--data", type=Path, metavar="PATH", help="a .npz file, or a folder of them or of input_*.pb")
    feeds.add_options(parser)
    parser.add_argument(
        "--layers", type=int, default=20, metavar="N", help="rows of the tables of layers and weights (default 20)"
    )
    parser.add_argument("--suggest", action="store_true", help="name the nodes to leave in float until --wanted is reached")
    parser.add_argument("--wanted", type=float, default=30.0, metavar="DB", help="ratio that --suggest aims at (default 30)")
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    for path in filter(None, (options.model, options.quantized)):
        if not Path(path).exists():
            raise UsageError(f"there is no model {path}")
    if (options.quantized is None) == (options.against is None):
        raise UsageError("give a second model, or --against and one model")
    if options.suggest and options.against:
        raise UsageError("--suggest goes with a quantized model")
    from sardonyx.quantization import comparison

    reader = _reader(options)
    with terminal.working("comparing"):
        if options.against is None:
            found = comparison.compare_models(options.model, options.quantized, reader)
        else:
            found = comparison.compare_runtimes(options.model, reader, _way(options.against), comparison.open_session)
    _show(found, options.layers, terminal)
    result: dict[str, Any] = {
        "outputs": [asdict(output) for output in found.outputs],
        "layers": [asdict(layer) for layer in found.layers],
        "weights": found.weights,
    }
    if options.suggest:
        result["suggestion"] = _suggest(options, reader, found, terminal)
    terminal.result(result)
    return 0


class OneBatch:
    """A reader of one feed."""

    def __init__(self, batch: dict[str, Any]):
        self.batch = batch
        self.rewind()

    def rewind(self) -> None:
        self.left = [self.batch]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def _reader(options: argparse.Namespace) -> Any:
    """What reads `--data`, or one batch from `--input`, `--dim` and `--seed`."""
    if options.data is not None:
        return data_reader(options.model, options.data)
    if options.quantized is not None:
        raise UsageError("--data is needed: what a quantized model loses shows on data like its own alone")
    inputs = feeds.make_feeds(formats.load(options.model).graph.inputs, options)
    return OneBatch({name: feed.value for name, feed in inputs.items()})


def _way(name: str) -> Callable[[str], Any]:
    """How to open a file as `--against` says."""
    if name == "numpy":
        return lambda path: sardonyx.InferenceSession(path, session_options("all"), providers=[(CPU, {"native": "0"})])
    if name in LEVELS:
        return lambda path: sardonyx.InferenceSession(path, session_options(name), providers=[CPU])
    try:
        runtime = importlib.import_module(name)
    except ImportError:
        raise UsageError(f"--against {name}: neither numpy, a level ({', '.join(LEVELS)}) nor an installed runtime") from None
    settings = runtime.SessionOptions()
    settings.log_severity_level = FATAL
    return lambda path: runtime.InferenceSession(path, settings, providers=[CPU])


def _show(found: Any, rows: int, terminal: Terminal) -> None:
    outputs = [(one.name, f"{one.largest:.3g}", f"{one.mean:.3g}", _text(one.ratio)) for one in found.outputs]
    terminal.table("outputs", ("output", "largest error", "mean error", "dB"), outputs, right=(1, 2, 3))
    worst = sorted(found.layers, key=lambda layer: -layer.drop)[:rows]
    layers = [(one.node, one.op_type, one.tensor, _text(one.ratio), _text(one.drop)) for one in worst]
    terminal.table("layers that lose most", ("node", "op", "tensor", "dB", "lost here"), layers, right=(3, 4))
    weights = [(name, _text(ratio)) for name, ratio in list(found.weights.items())[:rows]]
    terminal.table("weights, the worst first", ("weight", "dB"), weights, right=(1,))


def _text(ratio: float) -> str:
    return f"{ratio:.1f}" if math.isfinite(ratio) else "-"


def _suggest(options: argparse.Namespace, reader: Any, found: Any, terminal: Terminal) -> dict[str, Any]:
    from sardonyx.quantization.comparison import suggest

    try:
        with terminal.working("looking for layers to leave in float"):
            made = suggest(options.model, options.quantized, reader, options.wanted, found)
    except ValueError as error:
        raise UsageError(f"--suggest: {error}") from error
    if not made.nodes:
        terminal.line(f"nothing has to stay in float: {_text(made.ratio)} dB are reached")
    else:
        reached = "reach" if made.is_enough else "only reach"
        terminal.line(f"{count_text(len(made.nodes), 'node')} in float {reached} {_text(made.ratio)} dB:")
        for name in made.nodes:
            terminal.line(f"  --exclude {name}")
    return asdict(made)
