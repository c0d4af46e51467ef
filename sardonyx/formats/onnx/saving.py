"""Models into ONNX files, with weights inside or beside them, and packed forms of weights beside those. `formats.save` comes here.

Files are written under another name and moved into place when they are complete, the model last: nobody ever sees half of one,
and a model that was read from the old file keeps it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from sardonyx import dtypes, ir
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.filenames import RESERVED
from sardonyx.formats.onnx.writer import Place, write_model
from sardonyx.ir import edit, packing

PER_TENSOR = "per-tensor"
MAX_MESSAGE = 2**31 - 1
"""Protobuf's limit."""
LARGE, PAGE, SMALL_ALIGNMENT = 1 << 20, 4096, 64
"""Large tensors begin at a page, so that each can be mapped by itself; others where vector instructions like them."""

PackedForms = Callable[[ir.Tensor], Iterable[tuple[str, Sequence[tuple[np.ndarray, str]]]]]
"""The packed forms of a tensor: of each its key, and its buffers with their checksums."""


def save(
    model: ir.Model,
    path: str | os.PathLike[str],
    external_data: str | None = None,
    size_threshold: int = 1024,
    packed: PackedForms = lambda tensor: (),
) -> None:
    """Write the model to `path`.

    `external_data` names the file beside the model that takes the initializers of `size_threshold` bytes or more, each followed by
    its `packed` forms; "per-tensor" gives each of them a file of its own. Without it everything is in one file, which must stay
    below 2 GB.
    """
    path = Path(path)
    with ExitStack() as files:
        weights = _Weights(path, external_data, size_threshold, packed, files)
        if external_data is None:
            _check_size(path, sum(tensor.nbytes for tensor in _initializers(model)))
        proto = write_model(model, weights.place)
        _check_size(path, proto.ByteSize())
        weights.commit()
        _write(proto, path)


def save_placed(model: ir.Model, path: Path, place: Place) -> None:
    """Write the model to `path`, whose initializers are where `place` says: the caller has put them there."""
    proto = write_model(model, place)
    _check_size(path, proto.ByteSize())
    _write(proto, path)


def _write(proto: Any, path: Path) -> None:
    with replacing(path) as file:
        file.write(proto.SerializeToString())


def _initializers(model: ir.Model) -> Iterator[ir.Tensor]:
    for graph in edit.all_graphs(model.graph):
        for value in graph.initializers.values():
            if value.constant is not None and value.sparse is None:
                yield value.constant


def _check_size(path: Path, size: int) -> None:
    if size > MAX_MESSAGE:
        raise Fail(
            f"{path}: the model takes {size} bytes, more than the 2 GB that one ONNX file can hold. Save it with external_data, "
            "the name of a file for its weights."
        )


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when all is written; nothing happens to `path` if something fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


class _Weights:
    """The external files of one model while it is written."""

    def __init__(self, model_path: Path, external_data: str | None, size_threshold: int, packed: PackedForms, files: ExitStack):
        self.folder = model_path.parent
        self.external_data = external_data
        self.size_threshold = size_threshold
        self.packed = packed
        self._files = files
        self._shared: IO[bytes] | None = None
        self._names = {model_path.name.casefold()}
        if external_data is not None and external_data != PER_TENSOR:
            _check_name(external_data, model_path)

    def place(self, tensor: ir.Tensor, name: str) -> ir.ExternalLocation | None:
        """Write a tensor that is to be external, and say where it is."""
        if self.external_data is None or tensor.dtype is dtypes.string or tensor.nbytes < max(self.size_threshold, 1):
            return None
        if self.external_data == PER_TENSOR:
            return self._place_alone(tensor, name)
        if self._shared is None:
            self._shared = self._files.enter_context(replacing(self.folder / self.external_data))
        return self._append(self._shared, tensor, self.external_data)

    def _place_alone(self, tensor: ir.Tensor, name: str) -> ir.ExternalLocation:
        stem = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII).strip(".")[:100] or "tensor"
        stem = f"tensor_{stem}" if RESERVED.fullmatch(stem) else stem
        location = edit.unique_name(stem, lambda stem: f"{stem}.bin".casefold() in self._names) + ".bin"
        self._names.add(location.casefold())
        with replacing(self.folder / location) as file:
            return self._append(file, tensor, location)

    def _append(self, file: IO[bytes], tensor: ir.Tensor, location: str) -> ir.ExternalLocation:
        """A tensor, then its packed forms."""
        offset = _append(file, packing.encode(tensor.peek(), tensor.dtype))
        forms = []
        for key, buffers in self.packed(tensor):
            places = tuple((_append(file, array.reshape(-1).view(np.uint8).data), array.nbytes, sum) for array, sum in buffers)
            forms.append(ir.PackedLocation(key, places))
        return ir.ExternalLocation(location, offset, tensor.nbytes, prepacked=tuple(forms))

    def commit(self) -> None:
        """Let the shared file, which is complete now, take its place."""
        self._files.close()


def _check_name(external_data: str, model_path: Path) -> None:
    name = Path(external_data)
    if name.is_absolute() or ".." in name.parts or not name.name or name == Path(model_path.name):
        raise InvalidArgument(f"external_data must name a file in the folder of {model_path}, not {external_data!r}.")


def _append(file: IO[bytes], data: memoryview) -> int:
    """Write bytes at a good place behind what is there; returns where."""
    alignment = PAGE if len(data) >= LARGE else SMALL_ALIGNMENT
    position = file.tell()
    offset = -(-position // alignment) * alignment
    file.write(b"\0" * (offset - position))
    file.write(data)
    return offset
