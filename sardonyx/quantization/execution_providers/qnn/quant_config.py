"""`get_qnn_qdq_config`: a QDQ config in which every op has types that QNN computes."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto

from sardonyx.quantization import models
from sardonyx.quantization.calibrate import CalibrationDataReader
from sardonyx.quantization.configs import StaticQuantConfig
from sardonyx.quantization.execution_providers.qnn.mixed_precision_overrides_utils import (
    MixedPrecisionTensorQuantOverridesFixer,
)
from sardonyx.quantization.quantize import is_large
from sardonyx.quantization.tensor_quant_overrides import TensorQuantOverridesHelper
from sardonyx.quantization.types import CalibrationMethod, QuantFormat, QuantType

Q16_TYPES = {QuantType.QInt16, QuantType.QUInt16}
Q8_TYPES = {QuantType.QInt8, QuantType.QUInt8}
Q4_TYPES = {QuantType.QInt4, QuantType.QUInt4}
OP_TYPES_TO_EXCLUDE = {"Cast"}
MODEL_SIZE_THRESHOLD = models.MODEL_SIZE_THRESHOLD
LEAST_RANGE = 0.0001
"""QNN divides by scales; a range of nothing would make them tiny."""
SATURATING = {
    ("Sigmoid", QuantType.QUInt16): (1.0 / 65536.0, 0, np.uint16),
    ("Sigmoid", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
    ("Tanh", QuantType.QUInt16): (1.0 / 32768.0, 32768, np.uint16),
    ("Tanh", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
}
"""(scale, zero point, type) that QNN wants for outputs of 16 bits."""


def warn_unable_to_override(node: NodeProto, what_str: str, tensor_name: str, io_kind: str) -> None:
    logging.getLogger(__name__).warning(
        "%s %r: QNN wants %s for its %s %r, which has another already", node.op_type, node.name, what_str, io_kind, tensor_name
    )


def get_qnn_qdq_config(
    model_input: str | Path | ModelProto,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QUInt8,
    per_channel: bool = False,
    init_overrides: dict[str, list[dict[str, Any]]] | None = None,
    add_qtype_converts: bool = True,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    keep_removable_activations: bool = False,
    stride: int | None = None,
    calibration_providers: Sequence[str] | None = None,
    op_types_to_quantize: Sequence[str] | None = None,
    nodes_to_exclude: Sequence[str] | None = None,
) -> StaticQuantConfig:
    """A config that quantizes all ops of a model with types, scales and conversions that QNN takes."""
    model = model_input if isinstance(model_input, ModelProto) else onnx.load(str(model_input), load_external_data=False)
    if weight_symmetric is None:
        weight_symmetric = weight_type in {QuantType.QInt8, QuantType.QInt16}
    overrides = TensorQuantOverridesHelper(copy.deepcopy(init_overrides or {}))
    if not overrides.empty() and add_qtype_converts:
        fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, model, activation_type)
        fixer.apply(activation_type, activation_symmetric)
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    compatibility = QnnCompatibilityOverrides(
        activation_type, weight_type, activation_symmetric, weight_symmetric, per_channel, overrides, initializers
    )
    excluded = set(nodes_to_exclude or ())
    op_types = set()
    for node in model.graph.node:
        if node.name in excluded or (op_types_to_quantize is not None and node.op_type not in op_types_to_quantize):
            continue
        op_types.add(node.op_type)
        compatibility.process_node(node)
    options: dict[str, Any] = {
        "MinimumRealRange": LEAST_RANGE,
        "DedicatedQDQPair": False,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "TensorQuantOverrides": overrides.get_dict(),
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "CalibStridedMinMax": stride,
    }
    wide = overrides.get_quant_types() | {activation_type, weight_type}
    if wide & (Q16_TYPES | Q4_TYPES) and models.get_opset_version(model) < 21:
        options["UseQDQContribOps"] = True
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        quant_format=QuantFormat.QDQ,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=sorted(op_types - OP_TYPES_TO_EXCLUDE),
        nodes_to_exclude=list(nodes_to_exclude or []),
        per_channel=per_channel,
        use_external_data_format=is_large(model_input),
        calibration_providers=calibration_providers,
        extra_options=options,
    )


class QnnCompatibilityOverrides:
    """Adds overrides for what QNN wants of single ops."""

    def __init__(
        self,
        default_activation_qtype: QuantType,
        default_weight_qtype: QuantType,
        activation_symmetric: bool,
        weight_symmetric: bool,
        per_channel: bool,
        overrides: TensorQuantOverridesHelper,
        initializers: dict[str, TensorProto],
    ):
        self.default_activation_qtype, self.default_weight_qtype = default_activation_qtype, default_weight_qtype
        self.activation_symmetric, self.weight_symmetric = activation_symmetric, weight_symmetric
        self.per_channel = per_channel
        self.overrides, self.initializers = overrides, initializers
        self.process_fns = {
            "MatMul": self._process_matmul,
            "LayerNormalization": self._process_layernorm,
            "Sigmoid": self._process_saturating,
            "Tanh": self._process_saturating,
        }

    def process_node(self, node: NodeProto) -> None:
        process = self.process_fns.get(node.op_type)
        if process is not None:
            process(node)

    def _activation_type(self, node: NodeProto) -> QuantType:
        info = self.overrides.get_node_input_qtype_info(node.input[0], node.name, self.default_activation_qtype)
        return info.quant_type

    def _use_weight_type(self, node: NodeProto, name: str) -> None:
        """An initializer beside 16-bit activations has the type of weights."""
        if name not in self.initializers:
            return
        wanted = {"quant_type": self.default_weight_qtype, "symmetric": self.weight_symmetric}
        if not self.overrides.update_tensor_overrides(name, wanted, overwrite=False):
            warn_unable_to_override(node, "the type of weights", name, "input")

    def _process_matmul(self, node: NodeProto) -> None:
        is_mixed = self._activation_type(node) in Q16_TYPES and self.default_weight_qtype in Q8_TYPES
        if is_mixed and not self.per_channel:
            for name in node.input:
                self._use_weight_type(node, name)

    def _process_layernorm(self, node: NodeProto) -> None:
        has_wide_input = self._activation_type(node) in Q16_TYPES
        if has_wide_input and self.default_weight_qtype in Q8_TYPES and len(node.input) > 1:
            self._use_weight_type(node, node.input[1])

    def _process_saturating(self, node: NodeProto) -> None:
        info = self.overrides.get_node_output_qtype_info(node.output[0], self.default_activation_qtype)
        if (node.op_type, info.quant_type) not in SATURATING:
            return
        scale, zero_point, dtype = SATURATING[node.op_type, info.quant_type]
        wanted = {
            "quant_type": info.quant_type,
            "scale": np.array(scale, dtype=np.float32),
            "zero_point": np.array(zero_point, dtype=dtype),
        }
        if not self.overrides.update_tensor_overrides(node.output[0], wanted, overwrite=False):
            warn_unable_to_override(node, "a fixed scale", node.output[0], "output")
