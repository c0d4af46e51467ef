"""The predictor of the package sam2 with sessions in place of its modules. The package is asked for with the first predictor."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.session import InferenceSession
from sardonyx.runtime.preparation.providers import get_available_providers
from sardonyx.transformers.models.sam2.image_decoder import OUTPUTS
from sardonyx.transformers.models.sam2.sam2_parts import FEATURES
from sardonyx.transformers.torch_modules import derived
from sardonyx.transformers.torch_onnx_export_helper import loaded_torch

logger = logging.getLogger(__name__)

BOX_LABELS = [2, 3]
"""Labels of the upper left and the lower right corner of a box."""


def create_ort_session(
    onnx_path: str,
    session_options: SessionOptions | None = None,
    provider: str = "CPUExecutionProvider",
    enable_cuda_graph: bool = False,
    use_tf32: bool = True,
) -> InferenceSession:
    """A session on the provider that is asked for, on the CPU where that is none of ours."""
    if provider not in get_available_providers():
        logger.warning("%s is not there; the CPU computes", provider)
        provider = "CPUExecutionProvider"
    return InferenceSession(onnx_path, session_options, providers=[provider])


def create_session(
    onnx_path: str,
    session_options: SessionOptions | None = None,
    provider: str = "CPUExecutionProvider",
    device: Any = "cpu",
    enable_cuda_graph: bool = False,
) -> InferenceSession:
    """The same; there is no session of a GPU around it."""
    return create_ort_session(onnx_path, session_options, provider)


class SAM2ImageOnnxPredictor:
    """Masks of an image by sessions of its encoder and of two decoders, for one mask and for three."""

    def __new__(cls, *_arguments: Any, **_options: Any) -> Any:
        kind: Any = cls
        return object.__new__(derived(kind, importlib.import_module("sam2.sam2_image_predictor").SAM2ImagePredictor))

    def __init__(
        self,
        sam_model: Any,
        image_encoder_onnx_path: str = "",
        image_decoder_onnx_path: str = "",
        image_decoder_multi_onnx_path: str = "",
        provider: str = "CPUExecutionProvider",
        device: Any = "cpu",
        onnx_dtype: Any = None,
        mask_threshold: float = 0.0,
        max_hole_area: float = 0.0,
        max_sprinkle_area: float = 0.0,
        **kwargs: Any,
    ) -> None:
        parent: Any = super()
        parent.__init__(
            sam_model, mask_threshold=mask_threshold, max_hole_area=max_hole_area, max_sprinkle_area=max_sprinkle_area
        )
        self.onnx_dtype = onnx_dtype or loaded_torch().float32
        self.encoder_session = create_session(image_encoder_onnx_path, None, provider)
        self.decoder_session = create_session(image_decoder_onnx_path, None, provider)
        self.decoder_session_multi_out = create_session(image_decoder_multi_onnx_path, None, provider)

    def set_image(self: Any, image: Any) -> None:
        """Compute the features of an image: an array of [rows, columns, 3], or one of PIL."""
        self.reset_predictor()
        self._orig_hw = [image.shape[:2] if isinstance(image, np.ndarray) else image.size[::-1]]
        pixels = self._transforms(image)[None].to(self.onnx_dtype)
        features = self._run(self.encoder_session, {"image": pixels}, FEATURES)
        self._features = {"image_embed": features[2], "high_res_feats": features[:2]}
        self._is_image_set = True

    def _predict(
        self: Any,
        point_coords: Any,
        point_labels: Any,
        boxes: Any = None,
        mask_input: Any = None,
        multimask_output: bool = True,
        return_logits: bool = False,
        img_idx: int = -1,
    ) -> tuple[Any, Any, Any]:
        """Masks, how good they are, and small ones for the next call. The files threshold masks, so there are no logits."""
        if return_logits:
            raise NotImplementedError("the files give masks, not logits; export SAM2ImageDecoder with return_logits")
        if not self._is_image_set:
            raise RuntimeError("no image is set: call set_image first")
        coords, labels = _with_boxes(point_coords, point_labels, boxes)
        torch = loaded_torch()
        count = len(coords)
        side = 4 * self._features["image_embed"].shape[-1]
        given = torch.zeros(1, side, side) if mask_input is None else mask_input[img_idx]
        floats = {
            **dict(zip(FEATURES, (*self._features["high_res_feats"], self._features["image_embed"]), strict=True)),
            "point_coords": coords,
            "input_masks": given[None].repeat(count, 1, 1, 1),
            "has_input_masks": torch.full((count,), mask_input is not None),
        }
        integers = {"point_labels": labels, "original_image_size": torch.tensor(self._orig_hw[img_idx])}
        feeds = {name: tensor.to(self.onnx_dtype) for name, tensor in floats.items()}
        feeds |= {name: tensor.to(torch.int32) for name, tensor in integers.items()}
        session = self.decoder_session_multi_out if multimask_output else self.decoder_session
        masks, scores, small = self._run(session, feeds, OUTPUTS)
        return masks.float(), scores.float(), small.float()

    def _run(self: Any, session: InferenceSession, feeds: Mapping[str, Any], outputs: list[str]) -> list[Any]:
        """The outputs of a session as tensors."""
        arrays = {name: tensor.cpu().contiguous().numpy() for name, tensor in feeds.items()}
        return [loaded_torch().from_numpy(array).to(self.device) for array in session.run(outputs, arrays)]


def _with_boxes(coords: Any, labels: Any, boxes: Any) -> tuple[Any, Any]:
    """The corners of boxes as points, before the others."""
    torch = loaded_torch()
    if boxes is not None:
        corners = boxes.reshape(-1, 2, 2)
        kinds = torch.tensor([BOX_LABELS], device=boxes.device).expand(len(corners), -1)
        if coords is None:
            return corners, kinds
        return torch.cat([corners, coords], dim=1), torch.cat([kinds.to(labels.dtype), labels], dim=1)
    if coords is None:
        raise ValueError("points or boxes are wanted")
    return coords, labels
