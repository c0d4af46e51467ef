"""From a part of a model of the transformers package to a file: exported, fused, of the precision that is wanted, and compared.

The converters of `models` are programs around this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sardonyx.transformers.benchmark_helper import Precision
from sardonyx.transformers.float16 import float_to_float16_max_diff
from sardonyx.transformers.fusion_options import FusionOptions
from sardonyx.transformers.onnx_model import OnnxModel
from sardonyx.transformers.optimizer import optimize_model
from sardonyx.transformers.quantize_helper import QuantizeHelper
from sardonyx.transformers.traced import Traced

logger = logging.getLogger(__name__)

OPSET = 17
TOLERANCES = {Precision.FLOAT32: 5e-4, Precision.FLOAT16: 0.2, Precision.INT8: 3.0, Precision.INT4: 3.0}
"""How far outputs may be from PyTorch's before a warning says so."""
WEIGHTS_OF_HALVES = 1e-6
"""Weights that change by less where they become float16 were float16 before."""


@dataclass(frozen=True)
class Conversion:
    """What is done to a file after PyTorch has exported it."""

    model_type: str
    heads: int
    width: int
    is_fused: bool = False
    precision: Precision = Precision.FLOAT32
    use_external_data_format: bool = False
    overwrite: bool = False
    """Whether what was exported before is exported again."""
    half_options: Callable[[OnnxModel], Mapping[str, Any]] = lambda model: {}
    """Arguments of `convert_float_to_float16` for a fused model."""
    opset: int = OPSET

    @property
    def changes(self) -> bool:
        """Whether there is anything to do after the export."""
        return self.is_fused or self.precision is not Precision.FLOAT32

    def write(self, part: Traced, raw: Path, final: Path) -> str:
        """Write the part as PyTorch exports it, and as it is wanted; gives the path of the last file."""
        if self.overwrite or not raw.exists():
            part.export(raw, self.opset, self.use_external_data_format)
        if not self.changes:
            return str(raw)
        self.optimize(raw, final)
        return str(final)

    def optimize(self, raw: Path | str, final: Path | str, options: FusionOptions | None = None) -> OnnxModel:
        """Write an exported model with its blocks fused, in the precision that is wanted."""
        options = options or FusionOptions(self.model_type)
        fused = optimize_model(str(raw), self.model_type, self.heads, self.width, options)
        if self.precision is Precision.FLOAT16:
            fused.convert_float_to_float16(**self.half_options(fused))
        fused.save_model_to_file(str(final), self.use_external_data_format)
        if self.precision is Precision.INT8:
            QuantizeHelper.quantize_onnx_model(str(final), str(final), self.use_external_data_format)
        return fused


def part_path(output_dir: str, model_name_or_path: str, suffix: str = "", new_folder: bool = False) -> str:
    """Where the file of a part is written, by the name of the model."""
    name = Path(model_name_or_path).name + suffix
    folder = Path(output_dir, name) if new_folder else Path(output_dir)
    return str(folder / f"{name}.onnx")


def compare(part: Traced, path: str, precision: Precision, sizes: Sequence[Sequence[int]], cases: int) -> float:
    """How far a file is from PyTorch at most, with a warning where that is too far."""
    difference = part.largest_difference(path, cases, sizes)
    tolerance = TOLERANCES[precision]
    logger.info("%s: outputs differ by up to %g from PyTorch's", path, difference)
    if difference > tolerance:
        logger.warning("%s: outputs differ by up to %g from PyTorch's, %g is allowed", path, difference, tolerance)
    return difference


def mixed_precision(model: OnnxModel, op_block_list: Sequence[str], force_fp16_logits: bool = False) -> dict[str, Any]:
    """Arguments of `convert_float_to_float16` that leave these ops in float32, and logits unless their weights were float16."""
    logits = model.graph().output[0].name
    last = model.output_name_to_node().get(logits)
    weights = None
    if last is not None and last.op_type == "MatMul":
        weights = next((tensor for name in last.input if (tensor := model.get_initializer(name)) is not None), None)
    are_halves = weights is not None and float_to_float16_max_diff(weights) < WEIGHTS_OF_HALVES
    is_kept = weights is not None and not are_halves and not force_fp16_logits
    return {
        "keep_io_types": [logits] if is_kept else [],
        "op_block_list": list(op_block_list),
        "node_block_list": [last.name] if is_kept and last is not None else [],
        "force_fp16_initializers": are_halves,
    }
