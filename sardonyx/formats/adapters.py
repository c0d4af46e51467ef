"""`.onnx_adapter` files: parameters of a LoRA adapter by the names of a model's inputs. A flatbuffer, as the ORT format is."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import CODED
from sardonyx.formats.ort import decoding, encoding
from sardonyx.formats.ort.tensors import element_type, read_dims
from sardonyx.ir import packing

IDENTIFIER = b"TORT"
ROOT = "Adapter"
FORMAT_VERSION = 1


@dataclass
class Adapter:
    """What a file holds."""

    format_version: int = FORMAT_VERSION
    adapter_version: int = 0
    model_version: int = 0
    parameters: dict[str, np.ndarray] = field(default_factory=dict)


def read(path: str | os.PathLike[str]) -> Adapter:
    """The adapter in a file; RuntimeError if there is none, with the words of the original in the first line."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        text = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid fd was supplied: -1"
        raise RuntimeError(f"{text}\n{os.fspath(path)}: {error.strerror}") from error
    if data[4:8] != IDENTIFIER:
        raise RuntimeError(f"The buffer does not appear to be a valid lora parameter format\n{os.fspath(path)}")
    try:
        return _adapter(decoding.decode(data, ROOT, IDENTIFIER))
    except CODED as error:
        raise RuntimeError(f"The buffer fails lora adapter format verification\n{os.fspath(path)}: {error}") from error


def _adapter(tree: decoding.Tree) -> Adapter:
    parameters = {entry.get("name", ""): _array(entry) for entry in tree.get("parameters", ())}
    return Adapter(tree["format_version"], tree["adapter_version"], tree["model_version"], parameters)


def _array(entry: decoding.Tree) -> np.ndarray:
    owner = f"parameter '{entry.get('name', '')}'"
    dtype = element_type(entry["data_type"], owner)
    shape = read_dims(entry.get("dims", []), dtype, owner)
    raw = entry.get("raw_data", b"")
    needed = dtype.stored_bytes(math.prod(shape))
    if dtype is dtypes.string or len(raw) != needed:
        raise RuntimeError(
            f"The buffer fails lora adapter format verification\n{owner}: {needed} bytes expected, {len(raw)} found"
        )
    return np.array(packing.decode(raw, dtype, shape))


def write(adapter: Adapter, path: str | os.PathLike[str]) -> None:
    """Write a file; RuntimeError if that is not possible."""
    tree = {
        "format_version": adapter.format_version,
        "adapter_version": adapter.adapter_version,
        "model_version": adapter.model_version,
        "parameters": [_entry(name, array) for name, array in adapter.parameters.items()],
    }
    data = encoding.encode(tree, ROOT, IDENTIFIER)
    try:
        with open(path, "wb") as file:
            file.write(data)
    except OSError as error:
        raise RuntimeError(f'Failed to open file:"{os.fspath(path)}" for writing.\n{error.strerror}') from error


def _entry(name: str, array: np.ndarray) -> Mapping[str, object]:
    dtype = dtypes.from_numpy(array.dtype)
    raw = packing.encode(np.ascontiguousarray(array), dtype)
    return {"name": name, "dims": list(array.shape), "data_type": dtype.code, "raw_data": raw}
