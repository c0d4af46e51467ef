"""Checkpoints of training <-> `Checkpoint`: parameters, moments of optimizers and properties, in onnxruntime's format.

It is a flatbuffer whose tensors are those of the ORT format. Large states have the data of their tensors in a second file,
`<checkpoint>.data`. A file is not trusted: its offsets and sizes are checked before anything is read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.formats.onnx.external import ExternalFolder
from sardonyx.formats.onnx.saving import replacing
from sardonyx.formats.ort.decoding import Tree, decode
from sardonyx.formats.ort.encoding import encode
from sardonyx.formats.ort.tensors import element_type, read_dims, read_tensor
from sardonyx.startup.records import dataclass, field

IDENTIFIER = b"ODTC"
ROOT = "Checkpoint"
VERSION = 2
LARGEST_INSIDE = 1800 << 20
"""Bytes of tensors from which on these go to a file of their own."""
SMALLEST_OUTSIDE = 64
"""Tensors of fewer bytes stay in the checkpoint itself."""

Arrays = dict[str, np.ndarray]
Properties = dict[str, int | float | str]


@dataclass
class Group:
    """The state of one optimizer: how many steps it made, and of each parameter its moments by name."""

    step: int = 0
    moments: dict[str, Arrays] = field(default_factory=dict)
    initial_rate: float = 0.001


@dataclass
class Checkpoint:
    """All that a checkpoint holds. A nominal one has parameters without data: arrays of no elements, of their types."""

    trained: Arrays = field(default_factory=dict)
    frozen: Arrays = field(default_factory=dict)
    is_nominal: bool = False
    groups: dict[str, Group] | None = None
    """None where the state never saw an optimizer."""
    properties: Properties = field(default_factory=dict)


# --- reading


def read(path: str | os.PathLike[str]) -> Checkpoint:
    """The checkpoint at `path`; Fail if it is none, or if its data is not all there."""
    if os.path.isdir(path):
        raise Fail(f"{os.fspath(path)} is a folder, as checkpoints of early versions were. A checkpoint is a file.")
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"The checkpoint {os.fspath(path)} cannot be read: {error.strerror}") from error
    try:
        tree = decode(content, ROOT, IDENTIFIER)
    except Fail as error:
        reason = error.message.removeprefix("ORT model verification failed. ")
        raise Fail(f"Checkpoint verification failed. {os.fspath(path)}: {reason}") from error
    if tree["version"] != VERSION:
        raise Fail(f"Checkpoint is invalid. Checkpoint version {tree['version']} is not supported.")
    return _Reader(path).checkpoint(tree)


class _Reader:
    def __init__(self, path: str | os.PathLike[str]):
        self._path = Path(path)
        self._data_path = os.fspath(path) + ".data"
        self._outside: memoryview | None = None
        self._is_nominal = False

    def checkpoint(self, tree: Tree) -> Checkpoint:
        module = tree.get("module_state")
        if module is None:
            raise Fail("Checkpoint is invalid. It has no parameters.")
        self._is_nominal = module["is_nominal_state"]
        if module["has_external_data"]:
            self._outside = self._opened()
        groups = tree.get("optimizer_groups")
        return Checkpoint(
            self._tensors(module.get("requires_grad_params", ())),
            self._tensors(module.get("frozen_params", ())),
            self._is_nominal,
            None if groups is None else {_named(group, "group_name"): self._group(group) for group in groups},
            _properties(tree.get("property_bag", {})),
        )

    def _opened(self) -> memoryview:
        path = Path(self._data_path)
        try:
            return ExternalFolder(path.parent, self._path).find(path.name).contents()
        except Fail as error:
            raise InvalidArgument(
                f"Failed to open checkpoint's external data file: {self._data_path} error:{error.message}"
            ) from error

    def _group(self, tree: Tree) -> Group:
        states = tree.get("optimizer_states", ())
        moments = {_named(state, "param_name"): self._tensors(state.get("momentums", ())) for state in states}
        return Group(tree["step"], moments, tree["initial_learning_rate"])

    def _tensors(self, trees: Iterable[Tree]) -> Arrays:
        arrays: Arrays = {}
        for tree in trees:
            name = _named(tree, "name")
            if name in arrays:
                raise Fail(f"Checkpoint is invalid. It has two tensors named {name!r}.")
            arrays[name] = self._array(tree, f"parameter {name!r}")
        return arrays

    def _array(self, tree: Tree, owner: str) -> np.ndarray:
        if tree["external_data_offset"] >= 0:
            return self._from_outside(tree, owner)
        if self._is_nominal and not len(tree.get("raw_data", b"")):
            return np.empty(0, element_type(tree["data_type"], owner).numpy)
        return np.array(read_tensor(tree, owner).numpy())

    def _from_outside(self, tree: Tree, owner: str) -> np.ndarray:
        dtype = element_type(tree["data_type"], owner)
        if self._outside is None or dtype is dtypes.string:
            raise Fail(f"Checkpoint is invalid. {owner} lies outside of the checkpoint, which says that nothing does.")
        shape, start = read_dims(tree.get("dims", []), dtype, owner), tree["external_data_offset"]
        size = dtype.stored_bytes(math.prod(shape))
        if start + size > len(self._outside):
            raise Fail(
                f"Checkpoint is invalid. {owner} lies at bytes {start} to {start + size} of {self._data_path}, "
                f"which has {len(self._outside)}."
            )
        return np.frombuffer(self._outside[start : start + size], dtype.numpy).reshape(shape).copy()


def _named(tree: Tree, field_name: str) -> str:
    name = tree.get(field_name)
    if not name:
        raise Fail(f"Checkpoint is invalid. A part of it has no {field_name}.")
    return str(name)


def _properties(bag: Tree) -> Properties:
    entries = (entry for kind in ("ints", "floats", "strings") for entry in bag.get(kind, ()))
    return {_named(entry, "name"): entry.get("value", "") for entry in entries}


# --- writing


def write(checkpoint: Checkpoint, path: str | os.PathLike[str], largest_inside: int = LARGEST_INSIDE) -> None:
    """Write a checkpoint, and a file of data beside it if its tensors take `largest_inside` bytes or more."""
    path = Path(path)
    arrays = (*checkpoint.trained.values(), *checkpoint.frozen.values())
    outside = None if sum(array.nbytes for array in arrays) < largest_inside else _Outside()
    module = {
        "requires_grad_params": _tensor_trees(checkpoint.trained, checkpoint.is_nominal, outside),
        "frozen_params": _tensor_trees(checkpoint.frozen, checkpoint.is_nominal, outside),
        "is_nominal_state": checkpoint.is_nominal,
        "has_external_data": outside is not None,
    }
    tree: Tree = {"version": VERSION, "module_state": module}
    if checkpoint.groups is not None:
        tree["optimizer_groups"] = [_group_tree(name, group) for name, group in sorted(checkpoint.groups.items())]
    if checkpoint.properties:
        tree["property_bag"] = _bag(checkpoint.properties)
    if outside is not None:
        with replacing(Path(f"{path}.data")) as file:
            outside.write(file)
    with replacing(path) as file:
        file.write(encode(tree, ROOT, IDENTIFIER))


class _Outside:
    """The tensors that go to a file of their own, and where they will lie."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, np.ndarray]] = []
        self._end = 0

    def add(self, array: np.ndarray) -> int:
        alignment = 8 if array.itemsize == 8 else 4
        start = -(-self._end // alignment) * alignment
        self._parts.append((start, array))
        self._end = start + array.nbytes
        return start

    def write(self, file: Any) -> None:
        position = 0
        for start, array in self._parts:
            file.write(b"\0" * (start - position))
            file.write(np.ascontiguousarray(array).data.cast("B"))
            position = start + array.nbytes


def _tensor_trees(arrays: Mapping[str, np.ndarray], is_nominal: bool = False, outside: _Outside | None = None) -> list[Tree]:
    return [_tensor_tree(name, array, is_nominal, outside) for name, array in arrays.items()]


def _tensor_tree(name: str, array: np.ndarray, is_nominal: bool, outside: _Outside | None) -> Tree:
    tree: Tree = {"name": name, "dims": list(array.shape), "data_type": dtypes.from_numpy(array.dtype).code}
    if is_nominal:
        return {**tree, "dims": [], "raw_data": b""}
    if outside is not None and array.nbytes >= SMALLEST_OUTSIDE:
        return {**tree, "external_data_offset": outside.add(array)}
    return {**tree, "raw_data": np.ascontiguousarray(array).tobytes()}


def _group_tree(name: str, group: Group) -> Tree:
    states = [
        {"param_name": parameter, "momentums": _tensor_trees(dict(sorted(moments.items())))}
        for parameter, moments in sorted(group.moments.items())
    ]
    rate = group.initial_rate
    return {"group_name": name, "step": group.step, "initial_learning_rate": rate, "optimizer_states": states}


def _bag(properties: Properties) -> Tree:
    def entries(kind: type) -> list[Tree]:
        return [{"name": name, "value": value} for name, value in sorted(properties.items()) if type(value) is kind]

    return {"ints": entries(int), "floats": entries(float), "strings": entries(str)}
