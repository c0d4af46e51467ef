"""Files <-> Model: `load` reads any format that we know, `save` writes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from sardonyx import ir
from sardonyx.errors import Fail, InvalidProtobuf
from sardonyx.formats import mapping

if TYPE_CHECKING:
    from sardonyx.formats.files import Files
    from sardonyx.formats.onnx.saving import PackedForms
    from sardonyx.formats.ort.derived import Definitions

ORT_IDENTIFIER = b"ORTM"


def load(source: Any, folder: str | os.PathLike[str] | None = None, files: Files | None = None) -> ir.Model:
    """The model in `source`: a path, bytes, a binary file object or an `onnx.ModelProto`.

    `folder` is where external data lies; by default beside the file. Without a file it must be given if there is such data.
    `files` are those that were opened for the same model before.
    """
    if hasattr(source, "read"):
        source = source.read()
    if is_ort(source):
        from sardonyx.formats.ort import reader

        return reader.read_model(source, files=files)
    from sardonyx.formats.onnx.reader import read_model

    try:
        return read_model(source, folder, files)
    except InvalidProtobuf as error:
        if not has_ort_identifier(source):
            raise
        raise InvalidProtobuf(f"{error.message} It is an ORT format model, whose name must end in .ort.") from error


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    external_data: str | None = None,
    size_threshold: int = 1024,
    packed: PackedForms | None = None,
    known: Definitions | None = None,
) -> None:
    """Write the model to `path`; initializers of `size_threshold` bytes or more go to the file `external_data` beside it, if given.

    "per-tensor" gives each of them a file of its own. `packed` tells the packed forms of each that shall follow it there. A name that
    ends in .ort asks for the ORT format, which holds all weights itself and needs `known`, which tells what ops are.
    """
    from sardonyx.formats.onnx import saving

    if is_ort(path):
        from sardonyx.formats.ort import writer

        if known is None:
            raise Fail(
                f"{os.fspath(path)}: a file in the ORT format says what its ops are, which must be given here. "
                "`sardonyx convert` and sessions with optimized_model_filepath do that."
            )
        if external_data is not None:
            raise Fail(f"{os.fspath(path)}: the ORT format holds all weights in its one file.")
        writer.save_model(model, path, known)
        return
    saving.save(model, path, external_data, size_threshold, packed or (lambda tensor: ()))


def is_ort(source: Any) -> bool:
    """Whether a model is taken for one in the ORT format: a file by its name, bytes by their identifier."""
    if isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        return len(name) > 4 and name.lower().endswith(".ort")
    return has_ort_identifier(source)


def has_ort_identifier(source: Any) -> bool:
    """Whether bytes, or the file at a path, say of themselves that they are an ORT format model."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return len(source) > 8 and bytes(source[4:8]) == ORT_IDENTIFIER
    if not isinstance(source, (str, os.PathLike)):
        return False
    try:
        with open(mapping.open_regular(source), "rb") as file:
            return file.read(8)[4:] == ORT_IDENTIFIER
    except (OSError, ValueError):  # the reader says what is wrong
        return False
