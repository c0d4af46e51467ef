"""Resize in the place of Upsample, which opsets from 10 on no longer have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from sardonyx.quantization.fusions.fusion import Fusion
from sardonyx.quantization.onnx_model import ONNXModel

SCALES_AS_ATTRIBUTE = 7
"""Upsample 7 has its scales as an attribute, the one before has two, the one behind an input."""


class ReplaceUpsampleWithResize(Fusion):
    """Each Upsample of a model whose ops are of `opset`; the caller raises the model's opset to 11 or more then."""

    def __init__(self, model: ONNXModel, opset: int):
        super().__init__(model, "Resize", "Upsample")
        self.opset = opset

    def fuse(
        self,
        node: NodeProto,
        input_name_to_nodes: Mapping[str, Sequence[NodeProto]],
        output_name_to_node: Mapping[str, NodeProto],
    ) -> None:
        """Upsample takes the pixel whose number is rounded down; Resize is told to do so, too."""
        scales = node.input[1] if self.opset > SCALES_AS_ATTRIBUTE else self._constant(node, "scales", self._scales(node))
        mode = (self.get_node_attribute(node, "mode") or b"nearest").decode()
        how = {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
        name = node.name or self.create_unique_node_name()
        self.nodes_to_add.append(
            helper.make_node("Resize", [node.input[0], "", scales], list(node.output), name, mode=mode, **how)
        )
        self.nodes_to_remove.append(node)

    def _scales(self, node: NodeProto) -> list[float]:
        if self.opset == SCALES_AS_ATTRIBUTE:
            return list(self.get_node_attribute(node, "scales"))
        return [1.0, 1.0, *(self.get_node_attribute(node, f"{side}_scale") or 1.0 for side in ("height", "width"))]

    def _constant(self, node: NodeProto, what: str, values: list[float]) -> str:
        name = f"{node.output[0]}_{what}"
        tensor: TensorProto = numpy_helper.from_array(np.asarray(values, np.float32), name)
        self.model.add_initializer(tensor)
        return name

    def apply(self) -> bool:
        """Replace all, and sort the nodes."""
        is_changed = super().apply()
        if is_changed:
            self.model.topological_sort()
        return is_changed
