"""EmbedLayerNormalization with quantized tables."""

from __future__ import annotations

import logging

from onnx import helper

from sardonyx.quantization.models import ms_domain
from sardonyx.quantization.operators.base_operator import QuantOperatorBase

TABLES = (2, 3, 4, 5, 6)
MASK = 7


class EmbedLayerNormalizationQuant(QuantOperatorBase):
    def should_quantize(self) -> bool:
        return bool(self.quantizer.should_quantize_node(self.node))

    def quantize(self) -> None:
        if len(self.node.output) > 2:
            logging.getLogger(__name__).info("EmbedLayerNormalization %r writes its sum and stays in float", self.node.name)
            self.keep_float()
            return
        codes, zero_points, scales, nodes = self.quantizer.quantize_activation(self.node, TABLES)
        if codes is None:
            self.keep_float()
            return
        mask = self.node.input[MASK] if len(self.node.input) > MASK else ""
        inputs = [*self.node.input[:2], *codes, mask, *scales, *zero_points]
        made = helper.make_node(
            "QEmbedLayerNormalization",
            inputs,
            list(self.node.output),
            self.quantized_name,
            domain=ms_domain,
            **self.attributes(),
        )
        self.quantizer.new_nodes += [*nodes, made]
