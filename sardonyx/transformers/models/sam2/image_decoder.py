"""The prompt encoder and the mask decoder of SAM 2 as one module, its file, and a comparison of both."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.models.sam2.image_encoder import encoder_part
from sardonyx.transformers.models.sam2.mask_decoder import SAM2MaskDecoder
from sardonyx.transformers.models.sam2.prompt_encoder import SAM2PromptEncoder
from sardonyx.transformers.models.sam2.sam2_parts import FEATURES, LABELS, POINTS, PROMPTS, Sam2Part
from sardonyx.transformers.torch_modules import TorchModule
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

OUTPUTS = ["masks", "iou_predictions", "low_res_masks"]
LARGEST_LOGIT = 32.0


class SAM2ImageDecoder(TorchModule):
    """Masks of the size of the image, of its features and of prompts."""

    def __init__(
        self,
        sam_model: Any,
        multimask_output: bool,
        dynamic_multimask_via_stability: bool = True,
        return_logits: bool = False,
        mask_threshold: float = 0.0,
    ) -> None:
        super().__init__()
        self.prompt_encoder = SAM2PromptEncoder(sam_model)
        self.mask_decoder = SAM2MaskDecoder(sam_model, multimask_output, dynamic_multimask_via_stability)
        self.return_logits, self.mask_threshold = return_logits, mask_threshold

    def forward(
        self,
        image_features_0: Any,
        image_features_1: Any,
        image_embeddings: Any,
        point_coords: Any,
        point_labels: Any,
        input_masks: Any,
        has_input_masks: Any,
        original_image_size: Any,
        enable_nvtx_profile: bool = False,
    ) -> tuple[Any, Any, Any]:
        """Masks, how good they are, and the small ones of which they were made."""
        torch = loaded_torch()
        points, masks, places = self.prompt_encoder(point_coords, point_labels, input_masks, has_input_masks)
        small, scores = self.mask_decoder(image_features_0, image_features_1, image_embeddings, places, points, masks)
        size = original_image_size[0], original_image_size[1]
        whole = torch.nn.functional.interpolate(small, size, mode="bilinear", align_corners=False)
        if not self.return_logits:
            whole = whole > self.mask_threshold
        return whole, scores, small.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)


def decoder_part(sam2_model: Any, multimask_output: bool = False) -> Sam2Part:
    """What becomes a file."""
    axes = {
        "point_coords": POINTS,
        "point_labels": POINTS,
        "input_masks": LABELS,
        "has_input_masks": LABELS,
        "masks": {0: "num_labels", 2: "original_image_height", 3: "original_image_width"},
        "iou_predictions": LABELS,
        "low_res_masks": LABELS,
    }
    inputs = [*FEATURES, *PROMPTS, "original_image_size"]
    module = SAM2ImageDecoder(sam2_model, multimask_output)
    return Sam2Part(module, sam2_model, inputs, OUTPUTS, axes, [encoder_part(sam2_model)])


def export_decoder_onnx(sam2_model: Any, onnx_model_path: str, multimask_output: bool = False, verbose: bool = False) -> None:
    """Write both in one file."""
    decoder_part(sam2_model, multimask_output).write(onnx_model_path, verbose)


def test_decoder_onnx(sam2_model: Any, onnx_model_path: str, multimask_output: bool = False) -> bool:
    """Whether a file gives about what the module gives."""
    return decoder_part(sam2_model, multimask_output).is_near(onnx_model_path)
