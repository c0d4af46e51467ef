"""What programs around the parts of SAM 2 need. The package sam2 itself is imported by `load_sam2_model` alone."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import Any

import numpy as np

from sardonyx.transformers import benchmark_helper
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

SIDE = 1024
"""Rows and columns of the images that SAM 2 takes."""
CONFIGS = {"tiny": "sam2_hiera_t", "small": "sam2_hiera_s", "base_plus": "sam2_hiera_b+", "large": "sam2_hiera_l"}
"""Names of its configurations by the size of the model."""
COMPONENTS = ("image_encoder", "mask_decoder", "prompt_encoder", "image_decoder")
Shapes = dict[str, list[int]]


def load_sam2_model(sam2_dir: str, model_type: str, device: Any = "cpu") -> Any:
    """A module of PyTorch out of a clone of the repository sam2, with the weights in its folder `checkpoints`."""
    size = model_type.removeprefix("sam2_hiera_")
    if size not in CONFIGS:
        raise ValueError(f"{model_type!r} is not one of {', '.join(f'sam2_hiera_{known}' for known in CONFIGS)}")
    weights = os.path.join(sam2_dir, "checkpoints", f"{model_type}.pt")
    for path in (sam2_dir, os.path.dirname(weights), os.path.join(sam2_dir, "sam2_configs"), weights):
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{path} does not exist: --sam2_dir names a clone of sam2 whose checkpoints were downloaded"
            )
    if sam2_dir not in sys.path:
        sys.path.append(sam2_dir)
    return importlib.import_module("sam2.build_sam").build_sam2(f"{CONFIGS[size]}.yaml", weights, device=device)


def sam2_onnx_path(output_dir: str, model_type: str, component: str, multimask_output: bool = False, suffix: str = "") -> str:
    """Where the file of a part is written."""
    if component not in COMPONENTS:
        raise ValueError(f"{component!r} is not one of {', '.join(COMPONENTS)}")
    several = "_multi" if multimask_output and component == "image_decoder" else ""
    return os.path.join(output_dir, f"{model_type}_{component}{several}{suffix}.onnx")


def encoder_shape_dict(batch_size: int, height: int, width: int) -> Shapes:
    """The shape of the encoder's input and of each output."""
    if (height, width) != (SIDE, SIDE):
        raise ValueError(f"images have {SIDE} rows and columns, not {height} and {width}")
    return {"image": [batch_size, 3, SIDE, SIDE], **_features(batch_size)}


def _features(batch: int) -> Shapes:
    scales = {"image_features_0": (32, 4), "image_features_1": (64, 8), "image_embeddings": (256, 16)}
    return {name: [batch, channels, SIDE // scale, SIDE // scale] for name, (channels, scale) in scales.items()}


def decoder_shape_dict(
    original_image_height: int, original_image_width: int, num_labels: int = 1, max_points: int = 16, num_masks: int = 1
) -> Shapes:
    """The shape of each input and output of the decoder."""
    quarter = SIDE // 4
    return {
        **_features(1),
        "point_coords": [num_labels, max_points, 2],
        "point_labels": [num_labels, max_points],
        "input_masks": [num_labels, 1, quarter, quarter],
        "has_input_masks": [num_labels],
        "original_image_size": [2],
        "masks": [num_labels, num_masks, original_image_height, original_image_width],
        "iou_predictions": [num_labels, num_masks],
        "low_res_masks": [num_labels, num_masks, quarter, quarter],
    }


def compare_tensors_with_tolerance(
    name: str,
    tensor1: Any,
    tensor2: Any,
    atol: float = 5e-3,
    rtol: float = 1e-4,
    mismatch_percentage_tolerance: float = 0.1,
) -> bool:
    """Whether fewer elements than so many percent differ by more than is allowed."""
    first, second = (np.asarray(tensor, np.float32) for tensor in (tensor1, tensor2))
    if first.shape != second.shape:
        raise ValueError(f"{name}: shapes {first.shape} and {second.shape} differ")
    allowed = rtol * np.maximum(np.abs(first), np.abs(second)) + atol
    share = 100 * float(np.mean(np.abs(first - second) > allowed))
    is_near = share < mismatch_percentage_tolerance
    logger.log(logging.INFO if is_near else logging.ERROR, "%s: %.2f percent of the elements differ", name, share)
    return is_near


def random_sam2_input_image(batch_size: int = 1, image_height: int = SIDE, image_width: int = SIDE) -> Any:
    """Noise as a tensor of PyTorch."""
    return loaded_torch().randn(batch_size, 3, image_height, image_width)


def setup_logger(verbose: bool = True) -> None:
    """Messages of programs on standard error."""
    benchmark_helper.setup_logger(verbose)
