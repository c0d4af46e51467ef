"""Calibration: run a model on sample data and keep the range of every tensor that will be quantized.

Results are folded batch by batch, so memory does not grow with the amount of data.
"""

from __future__ import annotations

import abc
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from sardonyx.quantization import models
from sardonyx.quantization.progress import progress
from sardonyx.quantization.ranges import TensorsData
from sardonyx.quantization.types import CalibrationMethod
from sardonyx.runtime.api.enums import GraphOptimizationLevel
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession

CALIBRATED_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16)
AXES_ARE_INPUTS = 18
"""From this opset on ReduceMin and ReduceMax take their axes as an input."""


class CalibrationDataReader(abc.ABC):
    """Gives feeds, one batch after the other, until None. Users derive their own."""

    @abc.abstractmethod
    def get_next(self) -> dict[str, Any] | None:
        """The next feed, by the names of inputs."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        feed = self.get_next()
        if feed is None:
            raise StopIteration
        return feed

    def __len__(self) -> int:
        """How many batches there are; only strides and progress bars ask."""
        raise NotImplementedError(f"{type(self).__name__} does not say how many batches it has")

    def set_range(self, start_index: int, end_index: int) -> None:
        """Go on with the batches from one index up to another; only strides ask."""
        raise NotImplementedError(f"{type(self).__name__} cannot give a range of its batches")


class CalibraterBase:
    """Adds outputs to a model and runs it. Derived classes say which outputs, and what becomes of them."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        per_channel: bool = False,
    ):
        if not isinstance(model_path, (str, Path)):
            raise ValueError(f"a calibrator takes the path of a model, got {type(model_path)}")
        self.model: ModelProto = models.load_model_with_shape_infer(Path(model_path))
        self.op_types_to_calibrate = op_types_to_calibrate
        self.augmented_model_path = augmented_model_path
        self.symmetric, self.per_channel = symmetric, per_channel
        self.use_external_data_format = use_external_data_format
        self.augment_model: ModelProto | None = None
        self.infer_session: Any = None
        self.execution_providers = ["CPUExecutionProvider"]

    def set_execution_providers(self, execution_providers: Sequence[str] = ("CPUExecutionProvider",)) -> None:
        """Choose who computes; the session is made anew."""
        self.execution_providers = list(execution_providers)
        self.create_inference_session()

    def create_inference_session(self) -> None:
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
        self.infer_session = InferenceSession(str(self.augmented_model_path), options, providers=self.execution_providers)

    def select_tensors_to_calibrate(self, model: ModelProto) -> tuple[set[str], dict[str, Any]]:
        """(names of float values at the wanted ops, declarations of all values)."""
        graph = model.graph
        declared = {value.name: value for values in (graph.value_info, graph.output, graph.input) for value in values}
        initializers = {tensor.name for tensor in graph.initializer}
        selected = {
            name
            for node in graph.node
            if not self.op_types_to_calibrate or node.op_type in self.op_types_to_calibrate
            for name in (*node.input, *node.output)
            if name in declared and name not in initializers and _is_float(declared[name])
        }
        return selected, declared

    def get_augment_model(self) -> ModelProto | None:
        return self.model

    def augment_graph(self) -> None:
        """Add outputs to the model and write it to `augmented_model_path`."""
        raise NotImplementedError

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        """Run the model on all that the reader gives."""
        raise NotImplementedError

    def compute_data(self) -> TensorsData:
        """What the runs so far tell."""
        raise NotImplementedError

    def save_augmented(self) -> None:
        models.save(self.model, self.augmented_model_path, self.use_external_data_format)

    def batches(self, data_reader: Any) -> Iterator[dict[str, Any]]:
        """The reader's feeds, each checked against the model's inputs."""
        inputs = {value.name for value in self.infer_session.get_inputs()}
        total = _length(data_reader)
        for feed in progress(_feeds(data_reader), total, "calibrating"):
            if not isinstance(feed, dict):
                raise TypeError(f"a calibration reader gives dicts by input names, got {type(feed)}")
            if set(feed) - inputs or inputs - set(feed):
                given, wanted = ", ".join(sorted(feed)) or "nothing", ", ".join(sorted(inputs))
                raise ValueError(f"the calibration reader gives {given}; the model's inputs are {wanted}")
            yield feed


def _is_float(value: Any) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in CALIBRATED_TYPES


def _feeds(reader: Any) -> Iterator[dict[str, Any]]:
    while (feed := reader.get_next()) is not None:
        yield feed


def _length(reader: Any) -> int | None:
    try:
        return len(reader)
    except (NotImplementedError, TypeError):
        return None


class MinMaxCalibrater(CalibraterBase):
    """Keeps the lowest and the highest value: of all, or averaged over batches."""

    def __init__(
        self,
        model_path: str | Path,
        op_types_to_calibrate: Sequence[str] | None = None,
        augmented_model_path: Any = "augmented_model.onnx",
        symmetric: bool = False,
        use_external_data_format: bool = False,
        moving_average: bool = False,
        averaging_constant: float = 0.01,
        max_intermediate_outputs: int | None = None,
        per_channel: bool = False,
    ):
        super().__init__(
            model_path, op_types_to_calibrate, augmented_model_path, symmetric, use_external_data_format, per_channel
        )
        if moving_average and not 0 <= averaging_constant <= 1:
            raise ValueError(f"averaging_constant is between 0 and 1, got {averaging_constant}")
        self.moving_average, self.averaging_constant = moving_average, averaging_constant
        self.max_intermediate_outputs = max_intermediate_outputs
        self.calibrate_tensors_range: TensorsData | None = None
        self.num_model_outputs = len(self.model.graph.output)
        self.model_original_outputs = {value.name for value in self.model.graph.output}
        self.names: list[str] = []
        self.clear_collected_data()

    def augment_graph(self) -> None:
        """Add the extremes of each tensor as outputs; they are small, whatever the tensor's size."""
        selected, declared = self.select_tensors_to_calibrate(self.model)
        opset = models.get_opset_version(self.model)
        shape_name = str(uuid.uuid4())
        self.model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), shape_name))
        for name in sorted(selected):
            for op_type in ("ReduceMin", "ReduceMax"):
                self._add_extreme(name, op_type, declared[name], opset, shape_name)
        self.names = sorted(selected)
        self.save_augmented()

    def _add_extreme(self, name: str, op_type: str, declared: Any, opset: int, shape_name: str) -> None:
        """ReduceMin or ReduceMax over all axes, or over all but the second, as a vector."""
        graph, result = self.model.graph, f"{name}_{op_type}"
        inputs = [name]
        attributes: dict[str, Any] = {"keepdims": 0}
        tensor_type = declared.type.tensor_type
        if self.per_channel and tensor_type.HasField("shape"):
            axes = [axis for axis in range(len(tensor_type.shape.dim)) if axis != 1]
            if opset >= AXES_ARE_INPUTS:
                graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), f"{result}_axes"))
                inputs.append(f"{result}_axes")
            else:
                attributes["axes"] = axes
        graph.node.append(helper.make_node(op_type, inputs, [f"{result}_Reshape"], result, **attributes))
        graph.node.append(helper.make_node("Reshape", [f"{result}_Reshape", shape_name], [result], f"{result}_Reshape"))
        graph.output.append(helper.make_tensor_value_info(result, tensor_type.elem_type, [None]))

    def clear_collected_data(self) -> None:
        self._lows: dict[str, np.ndarray] = {}
        self._highs: dict[str, np.ndarray] = {}
        self._count = 0

    def collect_data(self, data_reader: CalibrationDataReader) -> None:
        outputs = [f"{name}_{op_type}" for op_type in ("ReduceMin", "ReduceMax") for name in self.names]
        for feed in self.batches(data_reader):
            extremes = self.infer_session.run(outputs, feed)
            self._fold(extremes[: len(self.names)], extremes[len(self.names) :])
            if self.max_intermediate_outputs is not None and self._count >= self.max_intermediate_outputs:
                self._merge_collected()
        if not self._count and self.calibrate_tensors_range is None:
            raise ValueError("the calibration reader gave no data")
        self._merge_collected()

    def _fold(self, lows: Sequence[np.ndarray], highs: Sequence[np.ndarray]) -> None:
        """Take a batch in: into sums for averages, into extremes otherwise."""
        self._count += 1
        join = (np.add, np.add) if self.moving_average else (np.minimum, np.maximum)
        for name, low, high in zip(self.names, lows, highs):
            wide = (low.astype(np.float64), high.astype(np.float64)) if self.moving_average else (low, high)
            self._lows[name] = join[0](self._lows[name], wide[0]) if name in self._lows else wide[0]
            self._highs[name] = join[1](self._highs[name], wide[1]) if name in self._highs else wide[1]

    def _merge_collected(self) -> None:
        if self._count:
            self.calibrate_tensors_range = self.merge_range(self.calibrate_tensors_range, self._collected())
            self.clear_collected_data()

    def _collected(self) -> TensorsData:
        return TensorsData(CalibrationMethod.MinMax, {name: self._range_of(name) for name in self.names})

    def _range_of(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        low, high = self._lows[name], self._highs[name]
        if self.moving_average:
            dtype = np.float16 if _element_type(self.model, name) == TensorProto.FLOAT16 else np.float32
            low, high = (low / self._count).astype(dtype), (high / self._count).astype(dtype)
        if self.symmetric:
            high = np.maximum(np.abs(low), np.abs(high))
            low = -high
        return low, high

    def merge_range(self, old_range: TensorsData | None, new_range: TensorsData) -> TensorsData:
        """Two collections as one: the wider range, or with averages a step of `averaging_constant` towards the new."""
        if not old_range:
            return new_range
        merged = {}
        for name, new in new_range.items():
            (old_low, old_high), (low, high) = old_range[name].range_value, new.range_value
            if self.moving_average:
                step = np.asarray(low).dtype.type(self.averaging_constant)
                merged[name] = old_low + step * (low - old_low), old_high + step * (high - old_high)
            else:
                merged[name] = np.minimum(old_low, low), np.maximum(old_high, high)
        return TensorsData(CalibrationMethod.MinMax, merged)

    def compute_data(self) -> TensorsData:
        self._merge_collected()
        if self.calibrate_tensors_range is None:
            raise ValueError("there is nothing to compute ranges of: collect_data comes first")
        return self.calibrate_tensors_range


def _element_type(model: ModelProto, name: str) -> Any:
    for values in (model.graph.value_info, model.graph.input, model.graph.output):
        for value in values:
            if value.name == name:
                return value.type.tensor_type.elem_type
    return None
