"""What the exports of the parts of SAM 2 have in common: example inputs, files, and comparisons of both.

A model is any that has the modules of Meta's: `image_encoder`, `sam_prompt_encoder`, `sam_mask_decoder` and their sizes.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.transformers.benchmark_helper import create_onnxruntime_session
from sardonyx.transformers.conversion import OPSET
from sardonyx.transformers.models.sam2.sam2_utils import compare_tensors_with_tolerance, random_sam2_input_image
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch
from sardonyx.transformers.traced import Traced

logger = logging.getLogger(__name__)

FEATURES = ["image_features_0", "image_features_1", "image_embeddings"]
PROMPTS = ["point_coords", "point_labels", "input_masks", "has_input_masks"]
EMBEDDINGS = ["sparse_embeddings", "dense_embeddings", "image_pe"]
LABELS: Mapping[int, str] = {0: "num_labels"}
POINTS: Mapping[int, str] = {0: "num_labels", 1: "num_points"}
SIZES = [(1, 1), (3, 2), (2, 5)]
"""Sizes of the inputs of comparisons: labels, points of each."""
IMAGE_SIZE = 120, 180
"""The size of the image for which example masks are computed."""
DIFFERING_PERCENT = 1.0
"""How many elements may differ by more than `compare_tensors_with_tolerance` allows."""
Axes = Mapping[str, Mapping[int, str]]


class Sam2Part(Traced):
    """A module with the names of its inputs, which tell examples of them, and of its outputs."""

    example_sizes = (2, 3)

    def __init__(
        self,
        module: Any,
        sam_model: Any,
        inputs: Sequence[str],
        outputs: Sequence[str],
        axes: Axes,
        sources: Sequence[Sam2Part] = (),
    ):
        self.model, self.sam_model = module.cpu().eval(), sam_model
        self.sources = sources
        """Parts whose outputs are inputs of this one."""
        self._inputs, self._outputs = list(inputs), list(outputs)
        self._axes = {name: dict(sizes) for name, sizes in axes.items()}

    @property
    def input_names(self) -> list[str]:
        return self._inputs

    @property
    def output_names(self) -> list[str]:
        return self._outputs

    def open_axes(self) -> dict[str, dict[int, str]]:
        return self._axes

    def feeds(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Random inputs of (labels or images, points)."""
        feeds = self._images_and_prompts(sizes, rng)
        for source in self.sources:
            outputs = source.run({name: feeds[name] for name in source.input_names})
            feeds |= dict(zip(source.output_names, outputs, strict=True))
        return {name: feeds[name] for name in self.input_names}

    def _images_and_prompts(self, sizes: Sequence[int], rng: np.random.Generator) -> dict[str, np.ndarray]:
        labels, points = sizes
        side = self.sam_model.image_size
        images = labels if "image" in self.input_names else 1
        return {
            "image": random_sam2_input_image(images, side, side).numpy(),
            "point_coords": rng.uniform(0, side, (labels, points, 2)).astype(np.float32),
            "point_labels": rng.integers(-1, 4, (labels, points)).astype(np.int32),
            "input_masks": rng.normal(size=(labels, 1, side // 4, side // 4)).astype(np.float32),
            "has_input_masks": rng.integers(0, 2, labels).astype(np.float32),
            "original_image_size": np.array(IMAGE_SIZE, np.int32),
        }

    def call(self, model: Any, **inputs: Any) -> Sequence[Any]:
        return model(**inputs)

    def write(self, path: str, verbose: bool = False) -> None:
        """Write the part; warnings of PyTorch about what it traces are shown if that is asked for."""
        with warnings.catch_warnings():
            if not verbose:
                warnings.simplefilter("ignore", loaded_torch().jit.TracerWarning)
                warnings.simplefilter("ignore", UserWarning)
            self.export(path, OPSET)
        logger.info("written: %s", path)

    def is_near(self, path: str, sizes: Sequence[Sequence[int]] = SIZES) -> bool:
        """Whether a file gives about what the module gives, with an error in the log where it does not."""
        session = create_onnxruntime_session(path, use_gpu=False)
        if session is None:
            return False
        rng = np.random.default_rng(1)
        near = []
        for case in sizes:
            feeds = self.feeds(case, rng)
            pairs = zip(self.output_names, session.run(self.output_names, feeds), self.run(feeds), strict=True)
            near += [
                compare_tensors_with_tolerance(name, got, wanted, mismatch_percentage_tolerance=DIFFERING_PERCENT)
                for name, got, wanted in pairs
            ]
        return all(near)
