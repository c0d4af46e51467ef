"""Tensors whose bytes lie outside the model's file: where they may lie, and how they are fetched. So do their packed forms.

The reader checks each location when the model is loaded; data is read when a tensor is first used. A model is not trusted: a
location may name only files in the model's own folder, and a symbolic link does not change that.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.files import File, Files
from sardonyx.formats.onnx.texts import metadata
from sardonyx.ir import ExternalLocation, PackedLocation, packing

IN_MEMORY = "*/_ORT_MEM_ADDR_/*"
"""onnxruntime marks tensors at an address of its process so; from a file that would be a licence to read anything."""
PREPACKED = "prepacked"
"""How the keys of entries begin that tell of packed forms; numbers follow."""


class ExternalFolder:
    """The folder of one model, with the files there that tensors named so far."""

    def __init__(self, folder: Path | None, model_path: Path | None = None, files: Files | None = None):
        self.folder = folder
        self.files = files or Files()
        self.roots = [] if folder is None else [os.path.realpath(folder)]
        if model_path is not None and model_path.is_symlink():
            # download caches link both the model and its data to a folder of blobs: the data is beside the real model
            self.roots.append(os.path.dirname(os.path.realpath(model_path)))
        self._files: dict[str, ExternalFile] = {}

    def find(self, location: str) -> ExternalFile:
        """The file that `location` names, or Fail with the reason."""
        if self.folder is None:
            raise Fail(f"the model was given as bytes, so the folder of its external data '{location}' is not known")
        file = self._files.get(location)
        if file is None:
            file = self._files[location] = ExternalFile(self._resolved(location), self.files)
        return file

    def _resolved(self, location: str) -> str:
        if not location:
            raise Fail("model format error! Missing 'location'")
        if IN_MEMORY in location:
            raise Fail(f"{location} stands for data in memory, which a model file cannot have")
        if "\0" in location:
            raise Fail(f"{location!r} is no path")
        if PurePosixPath(location).is_absolute() or _is_windows_absolute(location):
            raise Fail(f'Absolute path not allowed for external data location: "{location}"')
        assert self.folder is not None
        resolved = os.path.realpath(self.folder / location)
        if ".." in PureWindowsPath(location).parts or not any(_contains(root, resolved) for root in self.roots):
            raise Fail(
                f'External data path escapes model directory. External data path: "{location}" resolved path: "{resolved}" '
                f'allowed directory: "{self.folder}"'
            )
        return resolved


def _is_windows_absolute(location: str) -> bool:
    """A drive without a separator ("w:0") is a plain name elsewhere."""
    path = PureWindowsPath(location)
    return bool(path.root) or bool(path.drive and os.name == "nt")


def _contains(root: str, path: str) -> bool:
    try:
        return os.path.commonpath([root, path]) == root
    except ValueError:  # different drives
        return False


class ExternalFile:
    """One file of weights; each of its tensors is read when it is used."""

    def __init__(self, path: str, files: Files):
        self.path = path
        try:
            self._file: File = files.open(path, follow=False)
        except FileNotFoundError:
            raise Fail(f'External data path does not exist: "{path}"') from None
        except OSError as error:
            raise Fail(f'External data path cannot be read: "{path}": {error.strerror}') from error
        self.size = self._file.size

    def fetch(self, offset: int, length: int, dtype: ElementType, shape: tuple[int, ...], owner: str) -> np.ndarray:
        """The tensor at `offset`."""
        return packing.decode(self.read(owner, offset, length), dtype, shape)

    def read(self, owner: str, offset: int, length: int) -> memoryview:
        """Some bytes, which belong to the tensor that errors call `owner`."""
        try:
            return self._file.read(offset, length)
        except (Fail, OSError) as error:
            raise Fail(f"External data of {owner}: {error.message if isinstance(error, Fail) else error}") from error

    def contents(self) -> memoryview:
        """All of it."""
        return self._file.whole()


def read_location(proto: Any) -> ExternalLocation:
    """Location, offset and length of a TensorProto, and its packed forms; Fail with the reason if they make no sense."""
    entries = metadata(proto.external_data)
    length = _number(entries.get("length", "0"), "length") or None  # writers put 0 where they do not know it
    offset = _number(entries.get("offset", "0"), "offset")
    packed = [_packed_location(value) for key, value in entries.items() if key.startswith(PREPACKED)]
    return ExternalLocation(
        entries.get("location", ""),
        offset,
        length,
        entries.get("checksum"),
        tuple(location for location in packed if location is not None),
    )


def _packed_location(value: str) -> PackedLocation | None:
    """What an entry says: `key|offset;length;checksum`, the latter once per buffer. The original passes over what has no such form."""
    key, *parts = value.split("|")
    buffers = [fields for part in parts if len(fields := part.split(";")) == 3]
    if not buffers:
        return None
    name = f"pre-packed data {key!r}"
    return PackedLocation(
        key,
        tuple((_number(offset, f"offset of {name}"), _number(size, f"length of {name}"), sum) for offset, size, sum in buffers),
    )


def _number(number: str, name: str) -> int:
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise Fail(f"{name} is {number!r}, which is not a number of bytes")
    return int(number)


def check_bounds(external: ExternalLocation, file: ExternalFile, needed: int, name: str) -> None:
    """Fail if the tensor's `needed` bytes are not what the location says, or not in the file."""
    if external.length is not None and external.length != needed:
        raise Fail(f"external data size mismatch. Computed size: {needed}, external_data.length: {external.length}")
    if external.offset + needed > file.size:
        raise Fail(
            f"External initializer: {name} offset: {external.offset} size to read: {needed} given file_length: {file.size} "
            "are out of bounds or can not be read in full."
        )
    for packed in external.prepacked:
        for offset, length, _ in packed.buffers:
            if offset + length > file.size:
                raise Fail(
                    f"Pre-packed blob: {packed.key} offset: {offset} file_length: {file.size} is out of bounds and can not read "
                    f"in full length: {length}"
                )
