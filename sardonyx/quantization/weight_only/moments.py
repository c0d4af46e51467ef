"""Second moments of the inputs of MatMul over calibration data: what GPTQ knows of activations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from sardonyx.quantization import models
from sardonyx.quantization.progress import progress
from sardonyx.quantization.weight_only.gptq import second_moments
from sardonyx.runtime.api.session import InferenceSession


def input_moments(model: ModelProto, names: Sequence[str], reader: Any) -> dict[str, np.ndarray]:
    """xᵀx of each value over all batches. A batch at a time is in memory, and a square of the width of each value."""
    own = {value.name for value in model.graph.output}
    inputs = {value.name for value in model.graph.input}
    wanted = sorted(set(names))
    with models.temporary_folder() as folder:
        path = Path(folder) / "augmented.onnx"
        copy = models.load(model)
        for name in wanted:
            if name not in own and name not in inputs:
                copy.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
        models.save(copy, path)
        session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
        moments: dict[str, np.ndarray] = {}
        outputs = [name for name in wanted if name not in inputs]
        for feed in progress(iter(reader.get_next, None), None, "calibrating"):
            seen = dict(zip(outputs, session.run(outputs, feed))) if outputs else {}
            for name in wanted:
                array = seen[name] if name in seen else np.asarray(feed[name])
                moments[name] = second_moments(array, moments.get(name))
    if not moments and wanted:
        raise ValueError("the calibration reader gave no data")
    return moments
