"""Models in the ORT format on their way into a session: which are taken for one and how they are read. `loading` calls this."""

from __future__ import annotations

from typing import Any

from sardonyx import formats, settings
from sardonyx.errors import Fail
from sardonyx.formats.files import Files
from sardonyx.ir import Model
from sardonyx.runtime.api.options import SessionOptions


def is_ort(source: Any, options: SessionOptions) -> bool:
    """Whether `source` is to be read as an ORT format model: the option says so, or else its name or its first bytes."""
    format = options._config.get(settings.LOAD_MODEL_FORMAT)
    return format == "ORT" if format else formats.is_ort(source)


def load(source: Any, options: SessionOptions, files: Files | None = None) -> Model:
    """The model at a path or in bytes.

    What "session.use_ort_model_bytes_for_initializers" asks for is always so here: weights are views of a mapped file or of the bytes.
    """
    from sardonyx.formats.ort import reader

    if hasattr(source, "SerializeToString"):
        raise Fail("ORT model verification failed. It is a protobuf message.")
    config = options._config
    mapped, directly = config.is_on(settings.MAPPED_ORT_MODEL), config.is_on(settings.ORT_BYTES_DIRECTLY)
    model = reader.read_model(source, mapped=mapped, directly=directly, files=files)
    for name in options._external_initializers:
        if name not in model.graph.initializers:
            raise Fail(f"Failed to find existing initializer with name {name}.")
        raise Fail(f"Trying to replace non-external initializer with external data: {name}")
    return model
