"""Which class quantizes which op, for each way to write a model. Other packages add ops of their own to these dicts."""

from __future__ import annotations

from typing import Any

from onnx import NodeProto

from sardonyx.quantization.operators.activation import QDQRemovableActivation, QLinearActivation
from sardonyx.quantization.operators.argmax import QArgMax
from sardonyx.quantization.operators.attention import AttentionQuant
from sardonyx.quantization.operators.base_operator import QuantOperatorBase
from sardonyx.quantization.operators.binary_op import QLinearBinaryOp
from sardonyx.quantization.operators.concat import QLinearConcat
from sardonyx.quantization.operators.conv import ConvInteger, QDQConv, QLinearConv
from sardonyx.quantization.operators.direct_q8 import Direct8BitOp, QDQDirect8BitOp
from sardonyx.quantization.operators.embed_layernorm import EmbedLayerNormalizationQuant
from sardonyx.quantization.operators.gather import GatherQuant, QDQGather
from sardonyx.quantization.operators.gavgpool import QGlobalAveragePool
from sardonyx.quantization.operators.gemm import QDQGemm, QLinearGemm
from sardonyx.quantization.operators.lstm import LSTMQuant
from sardonyx.quantization.operators.matmul import MatMulInteger, QDQMatMul, QLinearMatMul
from sardonyx.quantization.operators.maxpool import QDQMaxPool, QMaxPool
from sardonyx.quantization.operators.norm import QDQNormalization
from sardonyx.quantization.operators.pad import QDQPad, QPad
from sardonyx.quantization.operators.pooling import QLinearPool
from sardonyx.quantization.operators.qdq_base_operator import QDQOperatorBase
from sardonyx.quantization.operators.resize import QDQResize, QResize
from sardonyx.quantization.operators.softmax import QLinearSoftmax
from sardonyx.quantization.operators.split import QDQSplit, QSplit
from sardonyx.quantization.operators.where import QDQWhere, QLinearWhere
from sardonyx.quantization.types import QuantizationMode

CommonOpsRegistry: dict[str, Any] = {
    "Gather": GatherQuant,
    "Transpose": Direct8BitOp,
    "EmbedLayerNormalization": EmbedLayerNormalizationQuant,
}
IntegerOpsRegistry: dict[str, Any] = {
    "Conv": ConvInteger,
    "MatMul": MatMulInteger,
    "Attention": AttentionQuant,
    "LSTM": LSTMQuant,
    **CommonOpsRegistry,
}
QLinearOpsRegistry: dict[str, Any] = {
    "ArgMax": QArgMax,
    "Conv": QLinearConv,
    "Gemm": QLinearGemm,
    "MatMul": QLinearMatMul,
    **dict.fromkeys(("Add", "Mul"), QLinearBinaryOp),
    **dict.fromkeys(("Relu", "Clip", "LeakyRelu", "Sigmoid"), QLinearActivation),
    "MaxPool": QMaxPool,
    "GlobalAveragePool": QGlobalAveragePool,
    "Split": QSplit,
    "Pad": QPad,
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), Direct8BitOp),
    "Resize": QResize,
    "AveragePool": QLinearPool,
    "Concat": QLinearConcat,
    "Softmax": QLinearSoftmax,
    "Where": QLinearWhere,
    **CommonOpsRegistry,
}
QDQRegistry: dict[str, Any] = {
    **dict.fromkeys(("Conv", "ConvTranspose"), QDQConv),
    "Gemm": QDQGemm,
    **dict.fromkeys(("Clip", "Relu"), QDQRemovableActivation),
    **dict.fromkeys(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"), QDQDirect8BitOp),
    "Resize": QDQResize,
    "MaxPool": QDQMaxPool,
    **dict.fromkeys(("AveragePool", "Slice"), QDQDirect8BitOp),
    "Pad": QDQPad,
    "MatMul": QDQMatMul,
    "Split": QDQSplit,
    **dict.fromkeys(("Gather", "GatherElements"), QDQGather),
    "Where": QDQWhere,
    **dict.fromkeys(("InstanceNormalization", "LayerNormalization", "BatchNormalization"), QDQNormalization),
    "TopK": QDQDirect8BitOp,
    "CumSum": QDQOperatorBase,
}


def CreateDefaultOpQuantizer(onnx_quantizer: Any, node: NodeProto) -> QuantOperatorBase:
    """What leaves a node in float."""
    return QuantOperatorBase(onnx_quantizer, node)


def CreateOpQuantizer(onnx_quantizer: Any, node: NodeProto) -> QuantOperatorBase:
    """What quantizes a node in the quantizer's mode, or leaves it in float."""
    is_integer = onnx_quantizer.mode == QuantizationMode.IntegerOps
    registry = IntegerOpsRegistry if is_integer else QLinearOpsRegistry
    if node.op_type in registry:
        quantizer: QuantOperatorBase = registry[node.op_type](onnx_quantizer, node)
        if quantizer.should_quantize():
            return quantizer
    return QuantOperatorBase(onnx_quantizer, node)


def CreateQDQQuantizer(onnx_quantizer: Any, node: NodeProto) -> QDQOperatorBase:
    """What marks the tensors of a node for pairs of QuantizeLinear and DequantizeLinear."""
    quantizer: QDQOperatorBase = QDQRegistry.get(node.op_type, QDQOperatorBase)(onnx_quantizer, node)
    return quantizer
