"""What exporters write for softmax(scale · Q Kᵀ + bias) V: a stage of our optimizer under onnxruntime's name, and masks for own fusions."""

from __future__ import annotations

from onnx import TensorProto, helper

from sardonyx.transformers.fusion_base import StageFusion
from sardonyx.transformers.fusion_options import AttentionMaskFormat
from sardonyx.transformers.fusion_utils import FusionUtils
from sardonyx.transformers.onnx_model import OnnxModel

MASK_AXES = "mask_index_axes"
AXES_AS_INPUT = 13
"""From this opset on ReduceSum takes its axes as an input."""


class AttentionMask:
    """Masks of a model, each in the form in which Attention takes it; what that needs is added to the model once."""

    def __init__(self, model: OnnxModel):
        self.model = model
        self.mask_indice: dict[str, str] = {}
        """By a mask of [batch, length], what Attention gets of it."""
        self.mask_casted: dict[str, str] = {}
        """By a mask, the same as int32."""
        self.utils = FusionUtils(model)
        self.mask_format = AttentionMaskFormat.MaskIndexEnd
        self.opset_version = model.get_opset_version()

    def set_mask_format(self, mask_format: int) -> None:
        """Choose one of `AttentionMaskFormat`."""
        self.mask_format = mask_format

    def set_mask_indice(self, mask: str, mask_index: str) -> None:
        """Say what Attention gets of a mask."""
        known = self.mask_indice.setdefault(mask, mask_index)
        if known != mask_index:
            raise ValueError(f"mask '{mask}' is given to Attention as '{known}' already, not as '{mask_index}'")

    def get_first_mask(self) -> str:
        """The mask that was named first."""
        if not self.mask_indice:
            raise ValueError("no mask has been named yet")
        return next(iter(self.mask_indice))

    def process_mask(self, mask_2d: str) -> str | None:
        """What Attention gets of a mask: the mask as int32, or how many tokens each row has; None without masks."""
        if self.mask_format == AttentionMaskFormat.NoMask:
            return None
        if mask_2d not in self.mask_indice:
            as_integers = self._as_integers(mask_2d)
            whole = self.mask_format == AttentionMaskFormat.AttentionMask
            self.mask_indice[mask_2d] = as_integers if whole else self._lengths(as_integers)
        return self.mask_indice[mask_2d]

    def _as_integers(self, mask: str) -> str:
        if self.model.find_graph_input(mask):
            is_cast, name = self.utils.cast_graph_input_to_int32(mask)
        else:
            is_cast, name = True, self.utils.cast_input_to_int32(mask)[0]
        if is_cast:
            self.mask_casted[mask] = name
        return name

    def _lengths(self, mask: str) -> str:
        """How many tokens each row has."""
        output, name = (self.model.create_node_name(kind) for kind in ("mask_index", "ReduceSum"))
        if self.opset_version < AXES_AS_INPUT:
            node = helper.make_node("ReduceSum", [mask], [output], name, axes=[1], keepdims=0)
        else:
            if self.model.get_initializer(MASK_AXES) is None:
                self.model.add_initializer(helper.make_tensor(MASK_AXES, TensorProto.INT64, [1], [1]))
            node = helper.make_node("ReduceSum", [mask, MASK_AXES], [output], name, keepdims=0)
        self.model.add_node(node)
        return output


class FusionAttention(StageFusion):
    """What exporters write for softmax(scale · Q Kᵀ + bias) V."""

    stages = ("AttentionFusion",)
