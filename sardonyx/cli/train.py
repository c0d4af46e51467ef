"""`sardonyx train`: make the files that training needs of a model, and look into them."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from sardonyx import dtypes, formats
from sardonyx.cli.terminal import Terminal, UsageError, size_text
from sardonyx.formats import checkpoints
from sardonyx.ir import Graph, Model, Type, described, dim
from sardonyx.ops.inference import infer
from sardonyx.runtime.preparation.sizes import bytes_of
from sardonyx.training.crossing import halves_of

LOSSES = {"mse": "MSELoss", "cross-entropy": "CrossEntropyLoss", "bce": "BCEWithLogitsLoss", "l1": "L1Loss"}
OPTIMIZERS = {"adamw": "AdamW", "sgd": "SGD"}
STATISTICS = {"BatchNormalization": (3, 4)}
"""Inputs of ops that training changes, but not by their gradients."""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("train", help="make the files that training needs", description=__doc__)
    tasks = parser.add_subparsers(dest="task", metavar="TASK", required=True)
    make = tasks.add_parser("artifacts", parents=[common], help="write training, eval and optimizer model and a checkpoint")
    make.add_argument("model", metavar="MODEL", help="path of a .onnx file")
    make.add_argument("-o", "--output", type=Path, default=Path("."), metavar="DIR", help="folder of the files (default: here)")
    make.add_argument("--loss", choices=LOSSES, help="the loss of the first output (default: the model's first output is it)")
    make.add_argument("--optimizer", choices=OPTIMIZERS, default="adamw", help="default adamw")
    make.add_argument("--train", action="append", metavar="NAME", help="initializer to train (default: all of floats)")
    make.add_argument("--freeze", action="append", default=[], metavar="NAME", help="initializer that stays (repeatable)")
    make.add_argument("--prefix", default="", metavar="TEXT", help="what the names of all files begin with")
    make.add_argument("--ort", action="store_true", help="also write the models in the ORT format")
    make.set_defaults(execute=make_artifacts)
    show = tasks.add_parser("inspect", parents=[common], help="show what the files in a folder hold")
    show.add_argument("folder", type=Path, metavar="DIR", help="folder of artifacts")
    show.add_argument("--prefix", default="", metavar="TEXT", help="what the names of the files begin with")
    show.add_argument("--size", action="append", default=[], metavar="NAME=N", help="a symbolic size (repeatable; default 1)")
    show.set_defaults(execute=inspect)


def make_artifacts(options: argparse.Namespace, terminal: Terminal) -> int:
    from sardonyx.training import artifacts

    graph = formats.load(options.model).graph
    frozen = [*dict.fromkeys([*options.freeze, *_statistics(graph)])]
    trained = options.train or [name for name in _parameters(graph) if name not in frozen]
    unknown = next((name for name in (*trained, *frozen) if name not in graph.initializers), None)
    if unknown is not None:
        raise UsageError(f"{unknown!r} is no initializer of the model; there are {', '.join(_parameters(graph))}")
    options.output.mkdir(parents=True, exist_ok=True)
    with terminal.working("differentiating"):
        artifacts.generate_artifacts(
            options.model,
            requires_grad=trained,
            frozen_params=frozen,
            loss=None if options.loss is None else artifacts.LossType[LOSSES[options.loss]],
            optimizer=artifacts.OptimType[OPTIMIZERS[options.optimizer]],
            artifact_directory=options.output,
            prefix=options.prefix,
            ort_format=options.ort,
        )
    terminal.line(f"{options.output}: {len(trained)} parameters are trained, {len(frozen)} stay")
    terminal.result({"folder": str(options.output), "trained": trained, "frozen": frozen})
    return 0


def differentiated(path: str) -> Model:
    """A model with the gradients of its first output's sum by all of its parameters, for `inspect --after gradient`."""
    from sardonyx.training import artifacts, onnxblock

    class Sum(onnxblock.Block):
        def build(self, name: str, *others: str) -> str:
            return str(onnxblock.blocks.ReduceSum(keepdims=False)(name))

    graph = formats.load(path).graph
    frozen = _statistics(graph)
    trained = [name for name in _parameters(graph) if name not in frozen]
    with tempfile.TemporaryDirectory() as folder:
        artifacts.generate_artifacts(path, trained, frozen, loss=Sum(), artifact_directory=folder)
        return formats.load(Path(folder) / "training_model.onnx")


def _parameters(graph: Graph) -> list[str]:
    """The initializers that training may change: floats of at least one axis."""
    tensors = {name: value.constant for name, value in graph.initializers.items()}
    return [name for name, tensor in tensors.items() if tensor is not None and tensor.dtype in dtypes.FLOATS and tensor.shape]


def _statistics(graph: Graph) -> list[str]:
    nodes = [node for node in graph.nodes if node.op_type in STATISTICS]
    inputs = [node.inputs[place] for node in nodes for place in STATISTICS[node.op_type]]
    return [value.name for value in inputs if value is not None and value.name in graph.initializers]


def inspect(options: argparse.Namespace, terminal: Terminal) -> int:
    checkpoint = checkpoints.read(options.folder / f"{options.prefix}checkpoint")
    model = formats.load(options.folder / f"{options.prefix}training_model.onnx")
    parameters = {**checkpoint.trained, **checkpoint.frozen}
    rows = [
        (name, described_array(array), "trained" if name in checkpoint.trained else "frozen")
        for name, array in parameters.items()
    ]
    terminal.table("parameters", ("name", "type", ""), rows)
    trained, frozen = (sum(array.size for array in part.values()) for part in (checkpoint.trained, checkpoint.frozen))
    inputs, outputs = _ends(model, set(parameters))
    terminal.line(f"{trained:,} elements are trained, {frozen:,} stay")
    terminal.line(f"inputs of a step: {', '.join(inputs)}")
    terminal.line(f"outputs of a step: {', '.join(outputs)}")
    memory = _show_crossing(model, _sizes(options.size), terminal)
    ops = Counter(node.op_id for node in model.graph.nodes)
    terminal.table("nodes of the training model", ("op", "count"), sorted(ops.items()), right=(1,))
    terminal.result({"trained": trained, "frozen": frozen, "inputs": inputs, "outputs": outputs, "ops": dict(ops), **memory})
    return 0


def _sizes(given: list[str]) -> dict[str, int]:
    sizes = {}
    for text in given:
        name, _, number = text.rpartition("=")
        if not name or not number.isdecimal():
            raise UsageError(f"--size takes NAME=N, such as batch=8, not {text!r}")
        sizes[name] = int(number)
    return sizes


def _show_crossing(model: Model, sizes: dict[str, int], terminal: Terminal) -> dict[str, Any]:
    """What forward hands to backward, and how much of it could be computed again."""
    infer(model)
    halves = halves_of(model)
    symbols = {symbol for part in halves.crossing for symbol in _symbols(part.value.type)}
    unknown = next((name for name in sizes if name not in symbols), None)
    if unknown is not None:
        raise UsageError(
            f"--size {unknown}: no value that crosses has this size; there are {', '.join(sorted(symbols)) or 'none'}"
        )
    rows = [
        (
            part.value.name,
            described(part.value.type),
            str(part.value.producer),
            size_text(part.bytes(sizes)),
            "cheap" * part.is_cheap,
        )
        for part in halves.crossing
    ]
    terminal.table("what crosses from forward to backward", ("value", "type", "made by", "bytes", ""), rows, right=(3,))
    kept, least = halves.kept(sizes), halves.kept(sizes, recompute=True)
    at = ", ".join(f"{name} = {sizes.get(name, 1)}" for name in sorted(symbols))
    terminal.line(f"forward has {len(halves.forward)} nodes, backward {len(halves.backward)}")
    terminal.line(f"{size_text(kept)} cross{f' ({at})' if at else ''}, {size_text(least)} if what is cheap were computed again")
    names = [part.value.name for part in halves.crossing]
    return {"crossing": names, "crossing_bytes": kept, "crossing_bytes_with_recompute": least}


def _symbols(type: Type | None) -> list[str]:
    size = bytes_of(type)
    return [] if size is None else [symbol.name for symbol in dim.symbols(size)]


def described_array(array: Any) -> str:
    return f"{dtypes.from_numpy(array.dtype)}{list(array.shape)}"


def _ends(model: Model, parameters: set[str]) -> tuple[list[str], list[str]]:
    """What a step is given and what it returns, without parameters and buffers."""
    graph = model.graph
    inputs = [
        value for value in graph.inputs if value.name not in parameters and not value.name.endswith(".accumulation.buffer")
    ]
    outputs = [value for value in graph.outputs if not value.name.endswith(".accumulation.out")]
    shown = [[f"{value.name} {described(value.type)}" for value in values] for values in (inputs, outputs)]
    return [text for text in shown[0] if not text.startswith("lazy_reset_grad ")], shown[1]
