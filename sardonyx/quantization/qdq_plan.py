"""The plan of a QDQ quantization: marks on tensors and biases, and parameters that may differ between readers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from onnx import TensorProto

from sardonyx.quantization.values import QuantizationParams, QuantizedValue


class QDQQuantTensorType(Enum):
    """As what a tensor is quantized."""

    ACTIVATION = 0
    WEIGHT = 1
    BIAS = 2


@dataclass
class QDQQuantParamProvider:
    """The value, as one node reads it, whose parameters another value has."""

    input_name: str
    node_name: str


class QDQTensorQuantInfo:
    """The mark on a tensor."""

    def __init__(
        self,
        tensor_type: QDQQuantTensorType = QDQQuantTensorType.ACTIVATION,
        quant_para_provider: QDQQuantParamProvider | None = None,
        axis: int | None = None,
        data_type: Any = None,
    ):
        self.tensor_type = tensor_type
        self.quant_para_provider: Any = quant_para_provider
        self.axis = axis
        self.is_shared = quant_para_provider is not None
        self.data_type = data_type


@dataclass
class QDQBiasQuantInfo:
    """The mark on a bias: the node, and the values whose scales it has."""

    node_name: str
    input_name: str
    weight_name: str
    beta: float


@dataclass
class QDQTensorQuantParams:
    """Parameters of a value, and others for the nodes that read it converted."""

    original: QuantizationParams
    converted: QuantizationParams | None
    converted_recv_nodes: set[str] | None

    def get_for_consumer(self, consumer_node_name: str) -> QuantizationParams:
        is_receiver = consumer_node_name in (self.converted_recv_nodes or ())
        return self.converted if self.converted is not None and is_receiver else self.original


@dataclass
class QDQScaleZpInitializers:
    """Scale and zero point as initializers."""

    scale: TensorProto
    zero_point: TensorProto


@dataclass
class QDQTensorScaleZpInitializers:
    """The same for a value and its converted form."""

    original: QDQScaleZpInitializers
    converted: QDQScaleZpInitializers | None
    converted_recv_nodes: set[str] | None


@dataclass
class QDQTensorQuantizedValue:
    """What a value has become, for most readers and for those that read it converted."""

    original: QuantizedValue
    converted: QuantizedValue | None
    converted_recv_nodes: set[str] | None

    def get_for_consumer(self, consumer_node_name: str) -> QuantizedValue:
        is_receiver = consumer_node_name in (self.converted_recv_nodes or ())
        return self.converted if self.converted is not None and is_receiver else self.original
