"""The mask decoder of SAM 2 as a module, its file, and a comparison of both."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.models.sam2.image_encoder import encoder_part
from sardonyx.transformers.models.sam2.prompt_encoder import prompt_part
from sardonyx.transformers.models.sam2.sam2_parts import FEATURES, LABELS, Sam2Part
from sardonyx.transformers.torch_modules import TorchModule

INPUTS = [*FEATURES, "image_pe", "sparse_embeddings", "dense_embeddings"]
OUTPUTS = ["low_res_masks", "iou_predictions"]


class SAM2MaskDecoder(TorchModule):
    """Masks and how good they are, of what the encoders made of an image and of prompts."""

    def __init__(self, sam_model: Any, multimask_output: bool, dynamic_multimask_via_stability: bool = True) -> None:
        super().__init__()
        self.model = sam_model
        self.multimask_output = multimask_output
        self.dynamic_multimask_via_stability = dynamic_multimask_via_stability

    def forward(
        self,
        image_features_0: Any,
        image_features_1: Any,
        image_embeddings: Any,
        image_pe: Any,
        sparse_embeddings: Any,
        dense_embeddings: Any,
    ) -> tuple[Any, Any]:
        """Three masks for each label; or one, which is the best of the three where the single one is not stable."""
        decoder = self.model.sam_mask_decoder
        masks, scores = decoder.predict_masks(
            image_embeddings=image_embeddings,
            image_pe=image_pe,
            sparse_prompt_embeddings=sparse_embeddings,
            dense_prompt_embeddings=dense_embeddings,
            repeat_image=sparse_embeddings.shape[0] > 1,
            high_res_features=[image_features_0, image_features_1],
        )[:2]
        if self.multimask_output:
            return masks[:, 1:], scores[:, 1:]
        if self.dynamic_multimask_via_stability:
            stable: tuple[Any, Any] = decoder._dynamic_multimask_via_stability(masks, scores)
            return stable
        return masks[:, :1], scores[:, :1]


def mask_part(sam2_model: Any, multimask_output: bool, dynamic_multimask_via_stability: bool = True) -> Sam2Part:
    """What becomes a file."""
    module = SAM2MaskDecoder(sam2_model, multimask_output, dynamic_multimask_via_stability)
    axes = {"sparse_embeddings": {0: "num_labels", 1: "num_points+1"}}
    axes |= {name: dict(LABELS) for name in ("dense_embeddings", *OUTPUTS)}
    sources = encoder_part(sam2_model), prompt_part(sam2_model)
    return Sam2Part(module, sam2_model, INPUTS, OUTPUTS, axes, sources)


def export_mask_decoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    multimask_output: bool,
    dynamic_multimask_via_stability: bool = True,
    verbose: bool = False,
) -> None:
    """Write the mask decoder."""
    mask_part(sam2_model, multimask_output, dynamic_multimask_via_stability).write(onnx_model_path, verbose)


def test_mask_decoder_onnx(
    sam2_model: Any, onnx_model_path: str, multimask_output: bool, dynamic_multimask_via_stability: bool
) -> bool:
    """Whether a file gives about what the module gives."""
    return mask_part(sam2_model, multimask_output, dynamic_multimask_via_stability).is_near(onnx_model_path)
