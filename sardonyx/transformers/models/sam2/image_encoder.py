"""The image encoder of SAM 2 as a module, its file, and a comparison of both."""

from __future__ import annotations

from typing import Any

from sardonyx.transformers.models.sam2.sam2_parts import FEATURES, Sam2Part
from sardonyx.transformers.torch_modules import TorchModule


class SAM2ImageEncoder(TorchModule):
    """What SAM 2 makes of images: features of two finer levels, and embeddings."""

    def __init__(self, sam_model: Any) -> None:
        super().__init__()
        self.model = sam_model

    def forward(self, image: Any, enable_nvtx_profile: bool = False) -> tuple[Any, Any, Any]:
        """Maps of a fourth, an eighth and a sixteenth of the image's size."""
        model = self.model
        fine, middle, *coarse = model.image_encoder(image)["backbone_fpn"]
        decoder = model.sam_mask_decoder
        levels = [decoder.conv_s0(fine), decoder.conv_s1(middle), *coarse][-model.num_feature_levels :]
        levels[-1] = levels[-1] + model.no_mem_embed.reshape(1, -1, 1, 1)
        return levels[0], levels[1], levels[2]


def encoder_part(sam2_model: Any, dynamic_batch_axes: bool = False) -> Sam2Part:
    """What becomes a file."""
    axes = {name: {0: "batch_size"} for name in ("image", *FEATURES)} if dynamic_batch_axes else {}
    part = Sam2Part(SAM2ImageEncoder(sam2_model), sam2_model, ["image"], FEATURES, axes)
    part.example_sizes = (2, 1) if dynamic_batch_axes else (1, 1)
    return part


def export_image_encoder_onnx(
    sam2_model: Any,
    onnx_model_path: str,
    dynamic_batch_axes: bool = False,
    verbose: bool = False,
    dynamo: bool = False,
    clear_dynamo_metadata: bool = False,
) -> None:
    """Write the encoder, for one image or for any number of them. It is always traced, whatever `dynamo` says."""
    encoder_part(sam2_model, dynamic_batch_axes).write(onnx_model_path, verbose)


def test_image_encoder_onnx(sam2_model: Any, onnx_model_path: str, dynamic_batch_axes: bool = False) -> bool:
    """Whether a file gives about what the module gives."""
    batches = (1, 2) if dynamic_batch_axes else (1,)
    return encoder_part(sam2_model, dynamic_batch_axes).is_near(onnx_model_path, [(batch, 1) for batch in batches])
