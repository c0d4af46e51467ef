"""`python -m benchmarks.accuracy_layers FOLDER`: errors of transformed convolutions, on networks' own weights and activations.

Every convolution that the default accuracy computes by Winograd's transforms is taken out of its network, with the image that it gets
there, and computed at the levels "default" and "exact" and in float64. A ratio is that of the largest errors of one filter; a direct sum
without errors to speak of counts as one of four roundings of the largest sum of absolute products, as in docs/accuracy.md.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.accuracy import LARGEST, feeds_for, open_session
from benchmarks.double import in_float64
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps

FLOOR = 4 * 2.0**-24
PROMISED = 10


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy_layers", description=__doc__)
    parser.add_argument("folder", nargs="?", default=os.environ.get("SARDONYX_CORPUS"), help="where the models are")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these models alone")
    parser.add_argument("--largest", type=float, default=LARGEST, help=f"megabytes of the largest model (default {LARGEST})")
    options = parser.parse_args(arguments)
    if options.folder is None:
        parser.error("name a folder of models, or set SARDONYX_CORPUS")
    paths = sorted(Path(options.folder).glob("**/*.onnx"), key=lambda path: (path.stat().st_size, path))
    table = Table("model", "layers", "median ratio", "worst ratio", "worst layer")
    for path in paths:
        if path.stat().st_size > options.largest * 1e6 or (options.only and path.stem not in options.only):
            continue
        print(path.stem, file=sys.stderr, flush=True)
        try:
            ratios = dict(layer_ratios(path))
        except Exception as error:  # a model that does not run says so, and the others go on
            print(f"{path.stem}: {type(error).__name__}: {str(error)[:160]}", file=sys.stderr)
            continue
        if ratios:
            worst = max(ratios, key=lambda name: ratios[name])
            table.add_row(path.stem, str(len(ratios)), f"{np.median(list(ratios.values())):.2f}", f"{ratios[worst]:.2f}", worst)
    table.caption = f"error of the default / error of the direct sum, promised are {PROMISED}"
    Console(width=150).print(table)
    return 0


def layer_ratios(path: Path) -> Iterator[tuple[str, float]]:
    """The ratio of each layer's worst filter."""
    model = onnx.load(path)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    constants = [node for node in model.graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"]
    weights |= {node.output[0]: node.attribute[0].t for node in constants}
    layers = [node for node in model.graph.node if _may_be_transformed(node, weights)]
    if not layers:
        return
    session = open_session("sardonyx", path, {"native": "0"}, plain=True)
    feeds = feeds_for(session, path)
    names = list(dict.fromkeys(node.input[0] for node in layers if node.input[0] not in feeds))
    images = feeds | dict(zip(names, session.run(names, feeds) if names else [], strict=True))
    for node in layers:
        image = images[node.input[0]]
        filters = numpy_helper.to_array(weights[node.input[1]])
        if image.dtype == filters.dtype == np.float32:
            ratio = ratio_of(_layer(model, node, image, filters), image)
            if ratio is not None:
                yield node.name or node.output[0], ratio


def _may_be_transformed(node: NodeProto, weights: dict[str, onnx.TensorProto]) -> bool:
    return node.op_type == "Conv" and node.input[1] in weights and max(weights[node.input[1]].dims[2:]) > 1


def _layer(model: ModelProto, node: NodeProto, image: np.ndarray, filters: np.ndarray) -> ModelProto:
    """The convolution alone, without its bias."""
    layer = helper.make_node("Conv", ["x", "w"], ["y"])
    layer.attribute.extend(node.attribute)
    graph = helper.make_graph(
        [layer],
        "layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, image.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(filters, "w")],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def ratio_of(layer: ModelProto, image: np.ndarray) -> float | None:
    """The worst filter's, None if the layer is not transformed."""
    session = open_session("sardonyx", layer.SerializeToString(), {"accuracy": "default"})
    calls = (step.call for step in all_steps(session._engine.plan))
    programs = [call.program for call in calls if isinstance(call, CompiledProgram) and call.program is not None]
    if not any(step.kernel.title == "winograd" for program in programs for step in program.steps):
        return None
    direct = open_session("sardonyx", layer.SerializeToString(), {"accuracy": "exact"})
    exact, sizes = _exactly(layer, image), _exactly(_absolute(layer), np.abs(image))
    axes = (0, *range(2, exact.ndim))
    found, allowed = (np.abs(one.run(None, {"x": image})[0] - exact).max(axis=axes) for one in (session, direct))
    floors = FLOOR * sizes.max(axis=axes)
    with np.errstate(invalid="ignore"):
        ratios = found / np.maximum(allowed, floors)
    return float(np.nan_to_num(ratios).max())


def _exactly(layer: ModelProto, image: np.ndarray) -> np.ndarray:
    session = open_session("sardonyx", in_float64(layer).SerializeToString(), {"native": "0"}, plain=True)
    return np.asarray(session.run(None, {"x": image.astype(np.float64)})[0])


def _absolute(layer: ModelProto) -> ModelProto:
    absolute = ModelProto()
    absolute.CopyFrom(layer)
    (tensor,) = absolute.graph.initializer
    tensor.CopyFrom(numpy_helper.from_array(np.abs(numpy_helper.to_array(tensor)), tensor.name))
    return absolute


if __name__ == "__main__":
    sys.exit(main())
