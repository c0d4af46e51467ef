"""What all quantizers share: options, which nodes are wanted, ranges, and the codes of weights and biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from sardonyx.quantization import arithmetic, models
from sardonyx.quantization.onnx_model import ONNXModel
from sardonyx.quantization.ranges import TensorData, TensorsData, float_range
from sardonyx.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from sardonyx.quantization.types import QuantType
from sardonyx.quantization.values import TENSOR_NAME_QUANT_SUFFIX, QuantizationParams

FLOAT_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT16)
INT32 = np.iinfo(np.int32)
BIAS_MARGIN = 1.0001
"""How much of int32 a bias leaves free, so that rounding and a calibration that is a little off do not overflow it."""


class BaseQuantizer:
    """Options and state of one quantization. `QDQQuantizer` and `ONNXQuantizer` say what becomes of the nodes."""

    def __init__(
        self,
        model: ModelProto,
        per_channel: bool,
        reduce_range: bool,
        weight_qType: Any,
        activation_qType: Any,
        tensors_range: Any,
        nodes_to_quantize: Sequence[str] | None,
        nodes_to_exclude: Sequence[str] | None,
        op_types_to_quantize: Sequence[str] | None,
        extra_options: dict[str, Any] | None = None,
    ):
        if not models.model_has_infer_metadata(model):
            model = models.save_and_reload_model_with_shape_infer(model)
        self.model = ONNXModel(model)
        self.opset_version = models.get_opset_version(model)
        self.extra_options = dict(extra_options or {})
        self.per_channel, self.reduce_range = per_channel, reduce_range
        self.activation_qType = _tensor_type(activation_qType)
        self.weight_qType = _tensor_type(weight_qType)
        self.tensors_range = _checked_ranges(tensors_range)
        self.nodes_to_quantize, self.nodes_to_exclude = nodes_to_quantize, nodes_to_exclude
        self.op_types_to_quantize = op_types_to_quantize
        self.parent: Any = None
        self._read_options()
        self.read_graph()
        self.tensor_quant_overrides = self._checked_overrides()
        self.adjust_tensor_ranges()

    def _read_options(self) -> None:
        option = self.extra_options.get
        self.enable_subgraph_quantization = bool(option("EnableSubgraph", False))
        self.force_quantize_no_input_check = bool(option("ForceQuantizeNoInputCheck", False))
        self.is_activation_symmetric = bool(option("ActivationSymmetric", False))
        self.is_activation_restricted_asymmetric = bool(option("ActivationRestrictedAsymmetric", False))
        self._is_weight_symmetric = option("WeightSymmetric")
        self.min_real_range = option("MinimumRealRange")

    def read_graph(self) -> None:
        """Look again at the values and initializers of the graph."""
        graph = self.model.graph()
        self.value_infos = {value.name: value for values in (graph.value_info, graph.output, graph.input) for value in values}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}

    def _checked_overrides(self) -> TensorQuantOverridesHelper:
        overrides = TensorQuantOverridesHelper(self.extra_options.get("TensorQuantOverrides", {}))
        activations = set(self.value_infos) - set(self.initializers)
        is_valid, fault = overrides.is_valid(self.initializers, activations, self.activation_qType)
        if not is_valid:
            raise ValueError(fault)
        return overrides

    def is_weight_symmetric(self, weight_quant_type: Any) -> bool:
        if self._is_weight_symmetric is not None:
            return bool(self._is_weight_symmetric)
        return arithmetic.is_symmetric_by_default(weight_quant_type)

    def quantize_model(self) -> ModelProto:
        raise NotImplementedError

    def is_input_a_initializer(self, input_name: str) -> bool:
        return input_name in self.initializers

    def is_per_channel(self) -> bool:
        return self.per_channel

    def is_valid_quantize_weight(self, weight_name: str) -> bool:
        """Whether a name is an initializer of floats, here or in a graph around this one."""
        tensor = self.initializers.get(weight_name)
        if tensor is not None:
            return tensor.data_type in FLOAT_TYPES
        return self.parent is not None and bool(self.parent.is_valid_quantize_weight(weight_name))

    def should_quantize_node(self, node: NodeProto) -> bool:
        """Whether the caller's lists of nodes and ops ask for this node."""
        if self.nodes_to_quantize and node.name not in self.nodes_to_quantize:
            return False
        if node.op_type not in (self.op_types_to_quantize or ()):
            return False
        return not (self.nodes_to_exclude and node.name in self.nodes_to_exclude)

    def add_initializer(self, tensor: TensorProto) -> None:
        """Add a tensor to the graph unless one of its name is there."""
        if tensor.name not in self.initializers:
            self.model.initializer_extend([tensor])
            self.initializers[tensor.name] = self.model.initializer()[-1]

    def replace_initializer(self, tensor: TensorProto) -> None:
        """Put a tensor in the place of the one of its name."""
        present = self.initializers.get(tensor.name)
        if present is None:
            self.add_initializer(tensor)
        else:
            present.CopyFrom(tensor)

    def is_symmetric(self, element_type: Any) -> bool:
        """Whether initializers of this type are: as the weights if it is theirs, else as the activations."""
        return self.is_weight_symmetric(element_type) if element_type == self.weight_qType else self.is_activation_symmetric

    def initializer_params(
        self,
        name: str,
        data: np.ndarray,
        element_type: Any,
        reduce_range: bool,
        overrides: dict[str, Any] | None,
        symmetric: bool | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(zero point, scale) of an initializer or of one channel of it; what the overrides say goes before."""
        wanted = overrides or {}
        if "scale" in wanted and "zero_point" in wanted:
            zero_point = np.asarray(wanted["zero_point"], dtype=arithmetic.ONNX_TYPE_TO_NP_TYPE[element_type])
            return zero_point, np.asarray(wanted["scale"], dtype=data.dtype)
        if not np.isfinite(data).all():
            raise ValueError(
                f"initializer {name!r} holds NaN or infinity and cannot be quantized; list its nodes in nodes_to_exclude"
            )
        return arithmetic.compute_data_quant_params(
            data,
            element_type,
            wanted.get("symmetric", self.is_symmetric(element_type) if symmetric is None else symmetric),
            reduce_range=wanted.get("reduce_range", self.reduce_range and reduce_range),
            min_real_range=self.min_real_range,
            rmin_override=wanted.get("rmin"),
            rmax_override=wanted.get("rmax"),
        )

    def quantize_bias_static_impl(
        self, bias_name: str, input_scale: np.ndarray, weight_scale: np.ndarray, beta: float = 1.0
    ) -> tuple[str, str, str, Any, str, Any]:
        """Add a bias as int32 codes of input scale × weight scale: (codes, scale, zero point, type of the scale, op, type)."""
        bias = self.initializers[bias_name]
        data = arithmetic.tensor_proto_to_array(bias)
        name = bias_name + TENSOR_NAME_QUANT_SUFFIX
        if self.weight_qType == TensorProto.FLOAT8E4M3FN:
            return self._add_float_bias(name, data, bias.data_type)
        scale = np.asarray(input_scale * weight_scale * beta, dtype=data.dtype)
        steps = np.rint(data.astype(np.float64) / scale.astype(np.float64))
        codes = np.clip(steps, INT32.min, INT32.max).astype(np.int32).reshape(bias.dims)
        self.replace_initializer(numpy_helper.from_array(codes, name))
        self.replace_initializer(numpy_helper.from_array(scale.reshape(-1), f"{name}_scale"))
        shape = (scale.size,) if np.ndim(weight_scale) else ()
        self.replace_initializer(numpy_helper.from_array(np.zeros(shape, np.int32), f"{name}_zero_point"))
        return name, f"{name}_scale", f"{name}_zero_point", bias.data_type, "DequantizeLinear", TensorProto.INT32

    def _add_float_bias(self, name: str, data: np.ndarray, element_type: Any) -> tuple[str, str, str, Any, str, Any]:
        """Beside float8 weights a bias stays a float; its scale of 1 and zero point of 0 are there for the form."""
        self.replace_initializer(numpy_helper.from_array(data, name))
        self.replace_initializer(numpy_helper.from_array(np.ones(1, data.dtype), f"{name}_scale"))
        self.replace_initializer(numpy_helper.from_array(np.zeros(1, data.dtype), f"{name}_zero_point"))
        return name, f"{name}_scale", f"{name}_zero_point", element_type, "Cast", element_type

    def bias_fitting_scale(
        self, bias_name: str, input_scale: np.ndarray, weight_scale: np.ndarray, beta: float = 1.0
    ) -> np.ndarray | None:
        """The least weight scale with which the bias fits into int32, where the present one is too small; else None."""
        bias = np.abs(arithmetic.tensor_proto_to_array(self.initializers[bias_name]).astype(np.float64))
        needed = BIAS_MARGIN * 2.0 * bias / (float(INT32.max) - float(INT32.min + 1))
        if weight_scale.size == 1:
            needed = np.asarray(np.max(needed, initial=0.0))
        elif needed.size != weight_scale.size:
            return None
        present = np.asarray(input_scale, np.float64).reshape(-1) * weight_scale.astype(np.float64).reshape(-1) * beta
        too_small = (present < np.reshape(needed, -1)) & (present > 0)
        if not too_small.any():
            return None
        factor = np.where(too_small, np.reshape(needed, -1) / np.where(present > 0, present, 1.0), 1.0)
        return (weight_scale.astype(np.float64) * factor.reshape(weight_scale.shape)).astype(weight_scale.dtype)

    def quantize_initializer_impl(
        self, weight: TensorProto, qType: Any, reduce_range: bool = False, keep_float_weight: bool = False
    ) -> tuple[str, str, str]:
        """Add the codes, zero point and scale of an initializer; returns their names in that order."""
        data = arithmetic.tensor_proto_to_array(weight)
        overrides = self.tensor_quant_overrides.get_per_tensor_overrides(weight.name, default_val={}) or {}
        element_type = overrides["quant_type"].tensor_type if "quant_type" in overrides else qType
        zero_point, scale = self.initializer_params(weight.name, data, element_type, reduce_range, overrides)
        return self._add_quantized(weight, element_type, zero_point.reshape(()), scale.reshape(()), None, keep_float_weight)

    def quantize_weight_per_channel_impl(
        self, weight_name: str, weight_qType: Any, channel_axis: int, reduce_range: bool = True, keep_float_weight: bool = False
    ) -> tuple[str, str, str]:
        """The same with a scale and a zero point for each index of an axis."""
        weight = self.initializers.get(weight_name)
        if weight is None:
            raise ValueError(f"{weight_name!r} is no initializer, so it has no channels to quantize")
        element_type, axis, zero_points, scales = self.channel_params(weight, weight_qType, channel_axis, reduce_range)
        return self._add_quantized(weight, element_type, zero_points, scales, axis, keep_float_weight)

    def channel_params(
        self, weight: TensorProto, element_type: Any, axis: int, reduce_range: bool, symmetric: bool | None = None
    ) -> tuple[Any, int, np.ndarray, np.ndarray]:
        """(type, axis from the front, zero points, scales) for the channels of a weight; overrides may change type and axis."""
        data = arithmetic.tensor_proto_to_array(weight)
        overrides = self.tensor_quant_overrides.get_per_channel_overrides(weight.name, default_val=[]) or [{"axis": axis}]
        is_axis, axis = arithmetic.normalize_axis(overrides[0].get("axis", axis), data.ndim)
        if not is_axis:
            raise ValueError(f"weight {weight.name!r} of shape {list(data.shape)} has no axis {overrides[0]['axis']}")
        channels = data.shape[axis]
        if len(overrides) not in (1, channels):
            raise ValueError(
                f"weight {weight.name!r} has {channels} channels along axis {axis}, and overrides for {len(overrides)}"
            )
        if "quant_type" in overrides[0]:
            element_type = overrides[0]["quant_type"].tensor_type
        per_channel = overrides if len(overrides) == channels else overrides * channels
        pairs = [
            self.initializer_params(
                weight.name, np.asarray(data.take(index, axis)), element_type, reduce_range, wanted, symmetric
            )
            for index, wanted in enumerate(per_channel)
        ]
        zero_points = np.array([pair[0] for pair in pairs], dtype=arithmetic.ONNX_TYPE_TO_NP_TYPE[element_type])
        return element_type, axis, zero_points, np.array([pair[1] for pair in pairs], dtype=data.dtype)

    def _add_quantized(
        self, weight: TensorProto, element_type: Any, zero_point: Any, scale: Any, axis: int | None, keep_float: bool
    ) -> tuple[str, str, str]:
        names = weight.name + TENSOR_NAME_QUANT_SUFFIX, f"{weight.name}_zero_point", f"{weight.name}_scale"
        self.add_initializer(numpy_helper.from_array(scale, names[2]))
        self.add_initializer(arithmetic.tensor_of_codes(zero_point, element_type, names[1]))
        if not keep_float:
            self.add_initializer(arithmetic.quantize_onnx_initializer(weight, element_type, zero_point, scale, axis, names[0]))
        return names

    def adjust_tensor_ranges(self) -> None:
        """What goes into a Relu or Clip alone needs no range beyond what comes out; a Softmax ends in 0 … 1."""
        if self.tensors_range is None:
            return
        readers = self.model.input_name_to_nodes()
        for node in filter(self.should_quantize_node, self.model.nodes()):
            if node.op_type in ("Clip", "Relu"):
                self._narrow(node, readers)
            elif node.op_type == "Softmax" and node.output[0] in self.tensors_range:
                self.tensors_range[node.output[0]] = TensorData(lowest=np.float32(0.0), highest=np.float32(1.0))

    def _narrow(self, node: NodeProto, readers: dict[str, list[NodeProto]]) -> None:
        source, result = node.input[0], node.output[0]
        is_known = source in self.tensors_range and result in self.tensors_range
        if is_known and not self.is_activation_symmetric and len(readers.get(source, ())) == 1:
            self.tensors_range[source] = self.tensors_range[result]

    def activation_params(self, name: str, data: TensorData, overrides: dict[str, Any]) -> QuantizationParams:
        """Scale and zero point of a tensor whose range calibration has found; the overrides go before."""
        element_type = overrides["quant_type"].tensor_type if "quant_type" in overrides else self.activation_qType
        if "scale" in overrides and "zero_point" in overrides:
            zero_point, scale = np.asarray(overrides["zero_point"]), np.asarray(overrides["scale"])
        elif element_type == TensorProto.FLOAT8E4M3FN:
            zero_point, scale = arithmetic.compute_scale_zp_float8(element_type, data.avg_std[1])
        else:
            zero_point, scale = self._range_params(name, data, element_type, overrides)
        parameters = {"zero_point": np.asarray(zero_point).reshape(()), "scale": np.asarray(scale).reshape(())}
        return QuantizationParams(**parameters, quant_type=int(element_type))

    def _range_params(self, name: str, data: TensorData, element_type: Any, overrides: dict[str, Any]) -> list[np.ndarray]:
        low, high = float_range(name, data)
        low = np.asarray(overrides.get("rmin", low), dtype=low.dtype)
        high = np.asarray(overrides.get("rmax", high), dtype=high.dtype)
        symmetric = overrides.get("symmetric", self.is_activation_symmetric)
        reduce_range = overrides.get("reduce_range", False)
        qmin, qmax = arithmetic.get_qmin_qmax_for_qType(element_type, reduce_range=reduce_range, symmetric=symmetric)
        if self.is_activation_restricted_asymmetric and element_type == TensorProto.UINT8 and not symmetric:
            return arithmetic.snap_zero_point_to_uint8(low, high, int(qmin), int(qmax), self.min_real_range)
        return arithmetic.compute_scale_zp(low, high, qmin, qmax, symmetric, self.min_real_range)

    def remove_dead(self) -> None:
        """Drop initializers that nobody reads any more, and say who wrote the model."""
        self.model.clean_initializers()
        self.model.model.producer_name, self.model.model.producer_version = "onnx.quantize", "0.1.0"


def _tensor_type(element_type: Any) -> Any:
    return element_type.tensor_type if isinstance(element_type, QuantType) else element_type


def _checked_ranges(ranges: Any) -> Any:
    if ranges is None:
        return None
    entries = ranges.data if isinstance(ranges, TensorsData) else ranges
    for name, data in entries.items():
        if not isinstance(data, TensorData):
            raise TypeError(f"the range of {name!r} is {type(data)}, a TensorData was expected: see TensorsData")
    return ranges
