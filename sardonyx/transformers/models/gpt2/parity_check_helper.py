"""Inner values of a model as files, and those of two models compared: where do differences begin?

The variables of the environment are those with which a debug build of onnxruntime writes inner values. Here `inference` reads them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import onnx
from onnx import numpy_helper

from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.settings import DEBUG_NODES
from sardonyx.transformers.model_timing import refuse_gpu
from sardonyx.transformers.models.gpt2.gpt2_helper import Gpt2Inputs
from sardonyx.transformers.parity import largest_difference

logger = logging.getLogger(__name__)
NAMES, OPS, FOLDER = f"{DEBUG_NODES}NAME_FILTER", f"{DEBUG_NODES}OP_TYPE_FILTER", f"{DEBUG_NODES}OUTPUT_DIR"
SWITCHES = ("DUMP_SHAPE_DATA", "DUMP_INPUT_DATA", "DUMP_OUTPUT_DATA", "DUMPING_DATA_TO_FILES_FOR_ALL_NODES_IS_OK")
DESTINATION = f"{DEBUG_NODES}DUMP_DATA_DESTINATION"
TOLERANCE = 1e-3
"""How near values are that count as close."""


def environ_setting_nodes(node_name_filter: str | None = None, node_type_filter: str | None = None) -> None:
    """Choose whose values are written: nodes by names or ops, with semicolons between them; all without either."""
    os.environ |= {f"{DEBUG_NODES}{switch}": "1" for switch in SWITCHES}
    for variable, chosen in ((NAMES, node_name_filter), (OPS, node_type_filter)):
        os.environ.pop(variable, None)
        if chosen is not None:
            os.environ[variable] = chosen


def environ_setting_paths(output_path: str) -> None:
    """Choose the folder of the files."""
    os.environ |= {DESTINATION: "files", FOLDER: str(output_path)}


def environ_reset() -> None:
    """Forget what was chosen."""
    for variable in [variable for variable in os.environ if variable.startswith(DEBUG_NODES)]:
        del os.environ[variable]


def inference(model_path: str, dummy_inputs: Gpt2Inputs, outputs_path: str, use_gpu: bool) -> None:
    """Run a model as its file has it, and write the values of the chosen nodes."""
    refuse_gpu(use_gpu)
    environ_setting_paths(outputs_path)
    names = list(_chosen_values(model_path))
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    session = InferenceSession(model_path, options, providers=["CPUExecutionProvider"])
    inputs = (value.name for value in session.get_inputs())
    feeds = dict(zip(inputs, (np.asarray(tensor.cpu()) for tensor in dummy_inputs.to_list()), strict=True))
    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in zip(names, session.run(names, feeds), strict=True):
        if isinstance(value, np.ndarray):
            message = numpy_helper.from_array(np.ascontiguousarray(value), name)
            (folder / f"{quote(name, safe='')}.tensorproto").write_bytes(message.SerializeToString())


def _chosen_values(model_path: str) -> Iterator[str]:
    """Names of the outputs of the nodes that the environment chooses."""
    chosen = [os.environ.get(variable) for variable in (NAMES, OPS)]
    names, ops = (None if text is None else text.split(";") for text in chosen)
    for node in onnx.load(model_path, load_external_data=False).graph.node:
        if (names is None or node.name in names) and (ops is None or node.op_type in ops):
            yield from filter(None, node.output)


def generate_outputs_files(model_path: str, dummy_inputs: Gpt2Inputs, outputs_path: str, use_gpu: bool) -> None:
    """Write the values of all nodes into a folder, instead of such files that are there."""
    for path in Path(outputs_path).glob("*.tensorproto"):
        path.unlink()
    environ_setting_nodes()
    try:
        inference(model_path, dummy_inputs, outputs_path, use_gpu)
    finally:
        environ_reset()


def post_processing(outputs_path: str, outputs_path_other: str) -> list[tuple[str, float, bool]]:
    """Compare values of the same names and shapes in two folders: (name, largest difference, whether they are close).

    The largest differences stand first; they are printed, too.
    """
    rows = []
    for path in sorted(Path(outputs_path).glob("*.tensorproto")):
        other = Path(outputs_path_other, path.name)
        pair = [_array(file) for file in (path, other) if file.exists()]
        if len(pair) == 2 and pair[0].shape == pair[1].shape and pair[0].dtype.kind in "biuf":
            first, second = (array.astype(np.float64) for array in pair)
            rows.append(
                (_name(path), largest_difference(first, second), np.allclose(first, second, rtol=TOLERANCE, atol=TOLERANCE))
            )
    rows.sort(key=lambda row: -np.nan_to_num(row[1], nan=np.inf))
    print("Node\tDiff\tClose")
    for name, difference, is_close in rows:
        print(f"{name}\t{difference:g}\t{is_close}")
    return rows


def _array(path: Path) -> np.ndarray:
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def _name(path: Path) -> str:
    return onnx.TensorProto.FromString(path.read_bytes()).name
