"""The base of handlers that rewrite a node, and the steps that most of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import NodeProto, helper

from sardonyx.quantization.models import ms_domain
from sardonyx.quantization.onnx_model import names_read_by
from sardonyx.quantization.types import QuantizedValueType
from sardonyx.quantization.values import TENSOR_NAME_QUANT_SUFFIX, QuantizedValue


class QuantOperatorBase:
    """Leaves its node in float: what the node reads is dequantized before it."""

    def __init__(self, onnx_quantizer: Any, onnx_node: NodeProto):
        self.quantizer = onnx_quantizer
        self.node = onnx_node

    def should_quantize(self) -> bool:
        """Whether the node is wanted and works on floats."""
        return bool(self.quantizer.should_quantize_node(self.node)) and bool(self.quantizer.is_float_tensor(self.node.input[0]))

    def quantize(self) -> None:
        for name in sorted(names_read_by(self.node), key=list(self.node.input).count, reverse=True):
            self.quantizer.dequantize(name)
        self.quantizer.new_nodes.append(self.node)

    def keep_float(self) -> None:
        QuantOperatorBase.quantize(self)

    @property
    def quantized_name(self) -> str:
        """The name of the node in its quantized form; none stays none."""
        return f"{self.node.name}_quant" if self.node.name else ""

    def attributes(self) -> dict[str, Any]:
        return {attribute.name: helper.get_attribute_value(attribute) for attribute in self.node.attribute}

    def pass_codes(self, source: int = 0) -> None:
        """Let the node work on codes as they are: what comes out has the parameters of what went in."""
        value = self.quantizer.find_quantized_value(self.node.input[source])
        output = self.node.output[0]
        self.quantizer.quantized_value_map[output] = QuantizedValue(
            output,
            output + TENSOR_NAME_QUANT_SUFFIX,
            value.scale_name,
            value.zp_name,
            QuantizedValueType.Input,
            scale_type=value.scale_type,
        )
        self.node.input[source] = value.q_name
        self.node.output[0] = output + TENSOR_NAME_QUANT_SUFFIX
        self.quantizer.new_nodes.append(self.node)

    def write(
        self, op_type: str, inputs: Sequence[str], before: Sequence[NodeProto], output: tuple[str, str], **more: Any
    ) -> None:
        """Put an op of codes behind the nodes it needs; `output` names its scale and zero point."""
        name = self.node.output[0]
        codes = name + TENSOR_NAME_QUANT_SUFFIX
        domain = more.pop("domain", ms_domain)
        self.quantizer.quantized_value_map[name] = QuantizedValue(
            name, codes, *output, QuantizedValueType.Input, scale_type=self.quantizer.get_tensor_type(name)
        )
        node = helper.make_node(op_type, inputs, [codes], self.quantized_name, domain=domain, **{**self.attributes(), **more})
        self.quantizer.new_nodes += [*before, node]


class QLinearOperator(QuantOperatorBase):
    """Ops that take activations as (codes, scale, zero point) and end with the scale and zero point of their output."""

    op_type = ""
    sources: tuple[int, ...] = (0,)

    def extra_attributes(self) -> dict[str, Any]:
        return {}

    def leading_inputs(self) -> list[str]:
        """Inputs before the activations, which stay as they are."""
        return []

    def quantize(self) -> None:
        output = self.quantizer.parameter_names(self.node.output[0])
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, self.sources)
        if output is None or codes is None:
            self.keep_float()
            return
        inputs = [*self.leading_inputs(), *(name for triple in zip(codes, scales, zero_points) for name in triple)]
        self.write(self.op_type or f"QLinear{self.node.op_type}", [*inputs, *output], nodes, output, **self.extra_attributes())
