"""Second moments of the inputs of MatMul over calibration data: what GPTQ knows of activations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto

from sardonyx.quantization.observation import observe
from sardonyx.quantization.weight_only.gptq import second_moments


def input_moments(model: ModelProto, names: Sequence[str], reader: Any) -> dict[str, np.ndarray]:
    """xᵀx of each value over all batches. A batch at a time is in memory, and a square of the width of each value."""
    moments: dict[str, np.ndarray] = {}
    for batch in observe(model, sorted(set(names)), reader, "calibrating"):
        for name, array in batch.items():
            moments[name] = second_moments(array, moments.get(name))
    return moments
