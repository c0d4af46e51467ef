"""Masks of SAM 2 drawn over an image, by PyTorch or by sessions. Matplotlib draws; it is asked for with the first picture."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.transformers.models.sam2.sam2_image_onnx_predictor import SAM2ImageOnnxPredictor
from sardonyx.transformers.models.sam2.sam2_utils import load_sam2_model
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

COLOR = np.array([0.1, 0.5, 1.0, 0.6])
BORDER = np.array([1.0, 1.0, 1.0, 0.5])
IMAGE = "truck.jpg"
"""The picture that is drawn on, out of the current folder; sam2 has it among its notebooks."""
CASES: dict[str, dict[str, Any]] = {
    "multimask": {"point_coords": [[500, 375]], "point_labels": [1], "multimask_output": True},
    "multi_points": {"point_coords": [[500, 375], [1125, 625]], "point_labels": [1, 1]},
    "background_point": {"point_coords": [[500, 375], [1125, 625]], "point_labels": [1, 0]},
    "box": {"box": [[425, 600, 700, 875]]},
    "box_and_point": {"point_coords": [[575, 750]], "point_labels": [0], "box": [425, 600, 700, 875]},
}
"""Prompts of the pictures; those of two points also get the best mask of the first picture."""


def _pyplot() -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("masks are drawn by matplotlib: pip install matplotlib") from error


def show_mask(mask: np.ndarray, ax: Any, random_color: bool = False, borders: bool = True) -> None:
    """Draw a mask, with its border if wanted."""
    inside = np.asarray(mask).reshape(mask.shape[-2:]) > 0
    color = np.append(np.random.random(3), COLOR[3]) if random_color else COLOR
    picture = inside[..., None] * color
    if borders:
        picture[inside & ~_inner(inside)] = BORDER
    ax.imshow(picture)


def _inner(inside: np.ndarray) -> np.ndarray:
    """Where a mask has all four neighbours."""
    wide = np.pad(inside, 1)
    return wide[:-2, 1:-1] & wide[2:, 1:-1] & wide[1:-1, :-2] & wide[1:-1, 2:]


def show_points(coords: np.ndarray, labels: np.ndarray, ax: Any, marker_size: int = 375) -> None:
    """Draw points: green in the foreground, red in the background."""
    for label, color in ((1, "green"), (0, "red")):
        points = coords[labels == label]
        ax.scatter(points[:, 0], points[:, 1], color=color, marker="*", s=marker_size, edgecolor="white", linewidth=1.25)


def show_box(box: Sequence[float], ax: Any) -> None:
    """Draw a box of left, upper, right and lower side."""
    left, upper, right, lower = box
    ax.plot([left, right, right, left, left], [upper, upper, lower, lower, upper], color="green", linewidth=2)


def show_masks(
    image: np.ndarray,
    masks: Sequence[np.ndarray],
    scores: Sequence[float],
    point_coords: np.ndarray | None = None,
    box_coords: np.ndarray | None = None,
    input_labels: np.ndarray | None = None,
    borders: bool = True,
    output_image_file_prefix: str | None = None,
    image_files: list[str] | None = None,
) -> None:
    """A picture for each mask; written to files if a prefix is given, whose paths are appended to `image_files`."""
    plt = _pyplot()
    for number, (mask, score) in enumerate(zip(masks, scores, strict=False)):
        figure, ax = plt.subplots(figsize=(10, 10))
        ax.imshow(image)
        show_mask(mask, ax, borders=borders)
        if point_coords is not None:
            if input_labels is None:
                raise ValueError("points are drawn by their labels: give input_labels")
            show_points(point_coords, input_labels, ax)
        if box_coords is not None:
            show_box(box_coords.ravel().tolist(), ax)
        if len(scores) > 1:
            ax.set_title(f"Mask {number + 1}, Score: {score:.3f}", fontsize=18)
        ax.axis("off")
        if output_image_file_prefix:
            path = f"{output_image_file_prefix}_{number}.png"
            figure.savefig(path, format="png", bbox_inches="tight", pad_inches=0)
            if image_files is not None:
                image_files.append(path)
        plt.close(figure)


def get_predictor(
    sam2_dir: str,
    device: Any,
    dtype: Any,
    model_type: str = "sam2_hiera_large",
    engine: str = "torch",
    image_encoder_onnx_path: str = "",
    image_decoder_onnx_path: str = "",
    image_decoder_multi_onnx_path: str = "",
    provider: str = "CPUExecutionProvider",
) -> Any:
    """The package's own predictor, or that of sessions."""
    model = load_sam2_model(sam2_dir, model_type, device)
    if engine == "torch":
        return importlib.import_module("sam2.sam2_image_predictor").SAM2ImagePredictor(model)
    paths = image_encoder_onnx_path, image_decoder_onnx_path, image_decoder_multi_onnx_path
    return SAM2ImageOnnxPredictor(model, *paths, provider=provider, device=device, onnx_dtype=dtype)


def run_demo(
    sam2_dir: str,
    model_type: str = "sam2_hiera_large",
    engine: str = "torch",
    dtype: Any = None,
    image_encoder_onnx_path: str = "",
    image_decoder_onnx_path: str = "",
    image_decoder_multi_onnx_path: str = "",
    use_gpu: bool = False,
    enable_batch: bool = False,
) -> list[str]:
    """Draw masks of a picture for points and boxes; gives the paths of the files."""
    if use_gpu:
        raise ValueError("there are no GPUs here; leave use_gpu out")
    torch = loaded_torch()
    kind = torch.float16 if dtype in ("fp16", torch.float16) else torch.float32
    paths = image_encoder_onnx_path, image_decoder_onnx_path, image_decoder_multi_onnx_path
    predictor = get_predictor(sam2_dir, "cpu", kind, model_type, engine, *paths)
    image = np.asarray(importlib.import_module("PIL.Image").open(IMAGE).convert("RGB"))
    predictor.set_image(image)
    return draw(predictor, image, f"sam2_demo_{engine}_", enable_batch)


def draw(predictor: Any, image: np.ndarray, prefix: str, enable_batch: bool = False) -> list[str]:
    """A file for each mask of each case."""
    files: list[str] = []
    best = None
    cases = CASES | ({"batch_prompt": {"box": [[75, 275, 1725, 850], [1375, 550, 1650, 800]]}} if enable_batch else {})
    for name, case in cases.items():
        prompts = {key: np.array(value) if isinstance(value, list) else value for key, value in case.items()}
        if len(case.get("point_coords", ())) > 1:
            prompts["mask_input"] = best
        masks, scores, logits = predictor.predict(
            **{"multimask_output": False, "point_coords": None, "point_labels": None} | prompts
        )
        order = np.argsort(scores.ravel())[::-1]
        masks, scores = masks.reshape(-1, *masks.shape[-2:])[order], scores.ravel()[order]
        if best is None:
            best = logits[order[:1]]
        points = prompts.get("point_coords"), prompts.get("box") if name != "batch_prompt" else None
        show_masks(image, masks, scores, *points, prompts.get("point_labels"), True, prefix + name, files)
    return files


def show_all_images(left_images: Sequence[str], right_images: Sequence[str], suffix: str = "") -> str:
    """One file of two rows of pictures; gives its path."""
    plt = _pyplot()
    figure, axes = plt.subplots(nrows=2, ncols=len(left_images), figsize=(19.2, 10.8), squeeze=False)
    for row, paths in zip(axes, (left_images, right_images), strict=True):
        for ax, path in zip(row, paths, strict=False):
            ax.imshow(plt.imread(path))
            ax.set_title(os.path.basename(path).removeprefix("sam2_demo_").removesuffix(".png"), fontsize=10)
            ax.axis("off")
    target = f"sam2_demo{suffix}.png"
    figure.tight_layout()
    figure.savefig(target, format="png", bbox_inches="tight")
    plt.close(figure)
    return target
