"""Inner values of a model while it runs on a reader's feeds, a batch at a time."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper

from sardonyx.quantization import models
from sardonyx.quantization.progress import progress
from sardonyx.runtime.api.session import InferenceSession


def observe(model: ModelProto, names: Sequence[str], reader: Any, what: str = "observing") -> Iterator[dict[str, np.ndarray]]:
    """The named values in each batch; inputs of the model are taken from the feeds. No batch at all is an error."""
    inputs = {value.name for value in model.graph.input}
    outputs = [name for name in names if name not in inputs]
    batches = 0
    with models.temporary_folder() as folder:
        path = Path(folder) / "observed.onnx"
        models.save(_with_outputs(model, outputs), path)
        session = InferenceSession(str(path), providers=["CPUExecutionProvider"])
        for feed in progress(iter(reader.get_next, None), None, what):
            batches += 1
            seen = dict(zip(outputs, session.run(outputs, feed))) if outputs else {}
            yield {name: seen[name] if name in seen else np.asarray(feed[name]) for name in names}
    if not batches:
        raise ValueError("the calibration reader gave no data")


def _with_outputs(model: ModelProto, names: Sequence[str]) -> ModelProto:
    extended = models.load(model)
    declared = {value.name: value for value in extended.graph.value_info}
    own = {value.name for value in extended.graph.output}
    for name in names:
        if name not in own:
            element_type = declared[name].type.tensor_type.elem_type if name in declared else TensorProto.FLOAT
            extended.graph.output.append(helper.make_tensor_value_info(name, element_type, None))
    return extended


def second_reader(reader: Any) -> Any:
    """A reader of the same feeds for another pass: a copy, or the reader itself if it can be rewound."""
    try:
        return copy.deepcopy(reader)
    except Exception as error:
        if hasattr(reader, "rewind"):
            return reader
        raise ValueError(
            f"two passes over the data are needed, and the reader can be neither copied nor rewound: {error}"
        ) from error
