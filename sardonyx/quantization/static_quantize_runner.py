"""`python -m sardonyx.quantization.static_quantize_runner -i … -o …`: `quantize_static` from a terminal.

Calibration data are the folders `test_data_set_*` beside the model, with inputs as `input_*.pb`, as ONNX's own models have them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from sardonyx.quantization.calibrate import CalibrationDataReader
from sardonyx.quantization.data_files import read_tensor
from sardonyx.quantization.quantize import quantize_static
from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantType, member_named


class OnnxModelCalibrationDataReader(CalibrationDataReader):
    """The data sets in the folder of a model."""

    def __init__(self, model_path: str | Path):
        path = Path(model_path)
        graph = onnx.load(str(path), load_external_data=False).graph
        tensors = {tensor.name for tensor in graph.initializer}
        self.names = [value.name for value in graph.input if value.name not in tensors]
        self.folders = sorted(path.parent.glob("test_data_set_*"))
        if not self.folders:
            raise FileNotFoundError(f"{str(path.parent)!r} has no folders test_data_set_* to calibrate with")
        self.position = 0

    def __len__(self) -> int:
        return len(self.folders)

    def get_next(self) -> dict[str, Any] | None:
        if self.position >= len(self.folders):
            return None
        folder = self.folders[self.position]
        self.position += 1
        return {name: self.read_onnx_pb_data(folder / f"input_{index}.pb") for index, name in enumerate(self.names)}

    def read_onnx_pb_data(self, file_pb: str | Path) -> np.ndarray:
        return read_tensor(file_pb)


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Quantize a model with the data sets in its folder.")
    parser.add_argument("-i", "--input_model_path", required=True, help="path of the float model")
    parser.add_argument("-o", "--output_quantized_model_path", required=True, help="path of the quantized model")
    types = [member.name.removeprefix("Q").lower() for member in QuantType]
    parser.add_argument("--activation_type", default="quint8", help=f"one of {', '.join(types)}, with q before it")
    parser.add_argument("--weight_type", default="qint8", help="as for activations")
    parser.add_argument("--per_channel", action="store_true", help="scales of weights for each channel")
    parser.add_argument("--activation_symmetric", action="store_true", help="zero points of activations in the middle")
    parser.add_argument("--weight_symmetric", action="store_true", default=None, help="zero points of weights in the middle")
    parser.add_argument("--disable_bias_quantize", action="store_true", help="biases stay in float")
    parser.add_argument("--quant_format", default="qdq", choices=("qdq", "qoperator"), help="how the model is written")
    methods = [member.name.lower() for member in CalibrationMethod]
    parser.add_argument("--calibration_method", default="minmax", choices=methods, help="how ranges are found")
    parser.add_argument("--op_types_to_quantize", nargs="+", help="all that can be if left out")
    parser.add_argument("--exclude_node", action="append", default=[], help="name of a node that stays in float (repeatable)")
    parser.add_argument("--tensor_quant_overrides", help="path of a JSON file with overrides of single tensors")
    return parser.parse_args(arguments)


def get_tensor_quant_overrides(file: str | Path) -> dict[str, list[dict[str, Any]]]:
    """Overrides from a JSON file, in which types are names and numbers are plain."""
    overrides = json.loads(Path(file).read_text(encoding="utf-8"))
    for entries in overrides.values():
        for entry in entries:
            for part in (entry, entry.get("convert", {})):
                _convert(part)
    return overrides


def _convert(entry: dict[str, Any]) -> None:
    if "quant_type" in entry:
        entry["quant_type"] = member_named(QuantType, entry["quant_type"])
    if "scale" in entry:
        entry["scale"] = np.array(entry["scale"], dtype=np.float32)
    if "zero_point" in entry:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(entry["quant_type"].tensor_type) if "quant_type" in entry else np.uint8
        entry["zero_point"] = np.array(entry["zero_point"], dtype=dtype)
    if "recv_nodes" in entry:
        entry["recv_nodes"] = set(entry["recv_nodes"])


def _member(members: Any, text: str) -> Any:
    named = {member.name.lower(): member for member in members}
    if text.lower() not in named:
        raise SystemExit(f"{text!r} is none of {', '.join(named)}")
    return named[text.lower()]


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    extra: dict[str, Any] = {
        "ActivationSymmetric": options.activation_symmetric,
        "QuantizeBias": not options.disable_bias_quantize,
    }
    if options.weight_symmetric is not None:
        extra["WeightSymmetric"] = options.weight_symmetric
    if options.tensor_quant_overrides:
        extra["TensorQuantOverrides"] = get_tensor_quant_overrides(options.tensor_quant_overrides)
    quantize_static(
        options.input_model_path,
        options.output_quantized_model_path,
        OnnxModelCalibrationDataReader(options.input_model_path),
        quant_format=_member(QuantFormat, options.quant_format),
        op_types_to_quantize=options.op_types_to_quantize,
        per_channel=options.per_channel,
        activation_type=_member(QuantType, options.activation_type),
        weight_type=_member(QuantType, options.weight_type),
        nodes_to_exclude=options.exclude_node,
        calibrate_method=_member(CalibrationMethod, options.calibration_method),
        extra_options=extra,
    )


if __name__ == "__main__":
    main()
