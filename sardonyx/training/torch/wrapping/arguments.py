"""Trees of arguments and results: which leaves they may have, and data apart from its structure."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from sardonyx.startup.records import dataclass
from sardonyx.training.torch.wrapping.fallback import ORTModuleDeviceException, ORTModuleIOError

PLAIN = (str, bytes, bool, numbers.Number, type(None))


def check_arguments(arguments: Any, keywords: Mapping[str, Any]) -> None:
    """Refuse leaves that are neither tensors nor plain values, and tensors of other devices."""
    for leaf in leaves((arguments, keywords)):
        if isinstance(leaf, torch.Tensor):
            if leaf.device.type != "cpu":
                raise ORTModuleDeviceException(f"ORTModule runs on the CPU, an argument is on {leaf.device}.")
            if leaf.layout is not torch.strided:
                raise ORTModuleIOError(f"ORTModule does not support arguments of layout {leaf.layout}.")
        elif not isinstance(leaf, PLAIN):
            raise ORTModuleIOError(f"ORTModule does not support arguments of type {type(leaf)}.")


def leaves(tree: Any) -> Iterator[Any]:
    """All that is no container, depth first."""
    if isinstance(tree, Mapping):
        for part in tree.values():
            yield from leaves(part)
    elif isinstance(tree, Sequence) and not isinstance(tree, (str, bytes)):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor stood: its number in the flat list."""

    number: int
    dtype: Any = None
    dims: int = 0


def extract_data_and_schema(data: Any) -> tuple[list[torch.Tensor], Any]:
    """The tensors of a structure, in order, and the structure with their places; what is no tensor is a part of the structure."""
    tensors: list[torch.Tensor] = []

    def walk(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            tensors.append(part)
            return TensorPlace(len(tensors) - 1, part.dtype, part.dim())
        return _rebuilt(part, walk)

    schema = walk(data)
    return tensors, schema


def unflatten_data_using_schema(data: Sequence[torch.Tensor], schema: Any) -> Any:
    """The way back."""

    def walk(part: Any) -> Any:
        if isinstance(part, TensorPlace):
            if part.number >= len(data):
                raise ORTModuleIOError(f"the structure has a tensor {part.number}, {len(data)} are given")
            return data[part.number]
        return _rebuilt(part, walk)

    return walk(schema)


def _rebuilt(part: Any, walk: Any) -> Any:
    """A container of the same type, its parts walked through."""
    if isinstance(part, Mapping):
        walked = {key: walk(inner) for key, inner in part.items()}
        return walked if type(part) is dict else type(part)(**walked)
    if isinstance(part, tuple) and hasattr(part, "_fields"):
        return type(part)(*map(walk, part))
    if isinstance(part, (list, tuple)):
        return type(part)(map(walk, part))
    if isinstance(part, PLAIN):
        return part
    raise ORTModuleIOError(f"ORTModule does not support data of type {type(part)}.")
