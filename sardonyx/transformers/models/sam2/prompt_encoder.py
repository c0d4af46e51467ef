"""The prompt encoder of SAM 2 as a module, its file, and a comparison of both."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.models.sam2.sam2_parts import EMBEDDINGS, LABELS, POINTS, PROMPTS, Sam2Part
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

NO_POINT = -1


class SAM2PromptEncoder(TorchModule):
    """What SAM 2 makes of points, boxes and earlier masks."""

    def __init__(self, sam_model: Any):
        super().__init__()
        self.model = sam_model

    def forward(self, point_coords: Any, point_labels: Any, input_masks: Any, has_input_masks: Any) -> tuple[Any, Any, Any]:
        """Embeddings of points (one more than there are), of masks, and of places in the image."""
        points = self._embed_points(point_coords, point_labels)
        return points, self._embed_masks(input_masks, has_input_masks), self.model.sam_prompt_encoder.get_dense_pe()

    def _embed_points(self, coords: Any, labels: Any) -> Any:
        """A place has an embedding, and each label (background, foreground, corners of a box) one that is added."""
        pad, encoder = loaded_torch().nn.functional.pad, self.model.sam_prompt_encoder
        coords = pad(coords + 0.5, (0, 0, 0, 1))
        size = self.model.image_size, self.model.image_size
        labels = pad(labels, (0, 1), value=NO_POINT).unsqueeze(-1)
        embedded = encoder.pe_layer.forward_with_coords(coords, size) * (labels != NO_POINT)
        kinds = {NO_POINT: encoder.not_a_point_embed} | dict(enumerate(encoder.point_embeddings))
        for label, table in kinds.items():
            embedded = embedded + table.weight * (labels == label)
        return embedded

    def _embed_masks(self, masks: Any, is_there: Any) -> Any:
        encoder = self.model.sam_prompt_encoder
        is_there = is_there.reshape(-1, 1, 1, 1)
        absent = encoder.no_mask_embed.weight.reshape(1, -1, 1, 1)
        return is_there * encoder.mask_downscaling(masks) + (1 - is_there) * absent


def prompt_part(sam2_model: Any) -> Sam2Part:
    """What becomes a file."""
    axes = {
        "point_coords": POINTS,
        "point_labels": POINTS,
        "input_masks": LABELS,
        "has_input_masks": LABELS,
        "sparse_embeddings": {0: "num_labels", 1: "num_points+1"},
        "dense_embeddings": LABELS,
    }
    return Sam2Part(SAM2PromptEncoder(sam2_model), sam2_model, PROMPTS, EMBEDDINGS, axes)


def export_prompt_encoder_onnx(sam2_model: Any, onnx_model_path: str) -> None:
    """Write the prompt encoder."""
    prompt_part(sam2_model).write(onnx_model_path)


def test_prompt_encoder_onnx(sam2_model: Any, onnx_model_path: str) -> bool:
    """Whether a file gives about what the module gives."""
    return prompt_part(sam2_model).is_near(onnx_model_path)
