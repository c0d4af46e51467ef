"""Files <-> Model: `load` reads any format that we know, `save` writes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sardonyx import ir
from sardonyx.errors import Fail
from sardonyx.formats import mapping

ORT_IDENTIFIER = b"ORTM"


def load(source: Any, folder: str | os.PathLike[str] | None = None) -> ir.Model:
    """The model in `source`: a path, bytes, a binary file object or an `onnx.ModelProto`.

    `folder` is where external data lies; by default beside the file. Without a file it must be given if there is such data.
    """
    from sardonyx.formats.onnx.reader import read_model

    if hasattr(source, "read"):
        source = source.read()
    if _is_ort(source):
        where = f"Load model from {os.fspath(source)} failed:" if isinstance(source, (str, os.PathLike)) else ""
        raise Fail(f"{where}ORT format models are not supported yet in this version.")
    return read_model(source, folder)


def save(model: ir.Model, path: str | os.PathLike[str], external_data: str | None = None, size_threshold: int = 1024) -> None:
    """Write the model to `path`; initializers of `size_threshold` bytes or more go to the file `external_data` beside it, if given.

    "per-tensor" gives each of them a file of its own.
    """
    from sardonyx.formats.onnx import saving

    if Path(path).suffix == ".ort":
        raise Fail(f"{os.fspath(path)}: ORT format models are not supported yet in this version.")
    saving.save(model, path, external_data, size_threshold)


def _is_ort(source: Any) -> bool:
    return (isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".ort") or has_ort_identifier(source)


def has_ort_identifier(source: Any) -> bool:
    """Whether bytes, or the file at a path, say of themselves that they are an ORT format model."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[4:8]) == ORT_IDENTIFIER
    if not isinstance(source, (str, os.PathLike)):
        return False
    try:
        with open(mapping.open_regular(source), "rb") as file:
            return file.read(8)[4:] == ORT_IDENTIFIER
    except (OSError, ValueError):  # the reader says what is wrong
        return False
