"""Seeded inputs for a model nobody described: from the declared names, types and shapes alone. Used by corpus.py.

What a dimension or an input is for is told by its place and its name: the first axis is the batch, `attention_mask` is a mask, a
float tensor with one or three channels is a picture, and so on. What cannot be told so stands in the tables by input name.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TYPES = {"float": "float32", "double": "float64"}

SHAPES = {
    "slct_logi_feat": (1, 30, 256),
    "dets": (1, 30, 8),
    "point_positions": (1, 2, 45, 31),
    "img_size": (2,),
    "data": (1, 32),
}
"""Where the declared shape misleads or says nothing."""

LIMITS = {"input_ids": 4000, "ids": 90, "cls": 5, "char_inputs": 40, "diac_inputs": 5, "input_tensor": 70, "bytes": 257}
LIMITS |= {"timestep": 1000, "dets": 190}
"""Integers of an input are below this; of one not listed, below 40."""

PICTURES = {"det": (320, 320), "ocr": (48, 320), "ctl": (488, 488), "seg": (96, 160)}
"""Height and width of a picture by the model's family where the model leaves them open; (48, 192) for other families."""

BATCHES = {"topo": 4}
"""The batch is a multiple of this where a model averages over groups."""

STATES = ("state", "h", "c", "h0")
SENTENCE = ("the", "stone", "is", "banded", "red", "white", "with", "old", "river", "sand", "over", "many", "small", "great")
CATEGORIES = ("名詞", "動詞", "助詞", "一般", "*", "基本形", "カ", "、", "red", "white")


@dataclass
class Sizes:
    batch: int
    length: int
    past: int
    height: int
    width: int
    samples: int


def make_inputs(declared: Sequence[Any], name: str, family: str, variant: int) -> dict[str, Any]:
    """One array per input. Variant 0 is a batch of one; the next, for models with open dimensions, is larger and longer."""
    random = np.random.default_rng(zlib.crc32(f"{name} {variant}".encode()))
    sizes = _sizes(declared, family, variant)
    inputs: dict[str, Any] = {}
    for value in declared:
        inputs[value.name] = _make(value, sizes, family, inputs, random)
    return inputs


def variant_count(declared: Sequence[Any]) -> int:
    return 2 if any(not isinstance(dim, int) for value in declared for dim in value.shape) else 1


def _sizes(declared: Sequence[Any], family: str, variant: int) -> Sizes:
    names = {value.name for value in declared}
    batch, length, past, samples = ((1, 24, 0, 16000), (2, 17, 9, 9600))[variant]
    if family == "ml":
        batch = (1, 200)[variant]
    elif family == "gnn":
        batch = (60, 41)[variant]
    elif _one_at_a_time(declared, family):
        batch = 1
    for name in names & BATCHES.keys():
        batch *= BATCHES[name]
    height, width = PICTURES.get(family, (48, 192))
    return Sizes(
        batch=batch,
        length=length,
        past=past if any(name.startswith("past") for name in names) else 0,
        height=height,
        width=width * 3 // 2 if variant and family != "ctl" else width,
        samples=576 if "state" in names else samples,
    )


def _one_at_a_time(declared: Sequence[Any], family: str) -> bool:
    """A decoder that stops when its one sequence ends, a recurrent state declared for a batch of one."""
    states = [value for value in declared if value.name in STATES and len(value.shape) == 3]
    return family == "ctl" or any(value.shape[1] == 1 for value in states) or any(value.name in SHAPES for value in declared)


def _make(value: Any, sizes: Sizes, family: str, earlier: dict[str, Any], random: np.random.Generator) -> Any:
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    shape = SHAPES.get(value.name) or _shape(value, kind, sizes, family)
    if kind == "string":
        return _text(shape, random)
    make = _integers if "int" in kind else _numbers
    return make(value.name, shape, family, earlier, random).astype(TYPES.get(kind, kind))


def _shape(value: Any, kind: str, sizes: Sizes, family: str) -> tuple[int, ...]:
    """The declared shape, with a size for every dimension that is left open."""
    open_sizes = _open_sizes(value, kind, sizes, family)
    return tuple(dim if isinstance(dim, int) else size for dim, size in zip(value.shape, open_sizes, strict=True))


def _open_sizes(value: Any, kind: str, sizes: Sizes, family: str) -> list[int]:
    rank = len(value.shape)
    if value.name.startswith("past"):
        return [sizes.batch, 1, sizes.past, 1]
    if value.name in STATES and rank == 3:
        return [1, sizes.batch, 1]
    if "mask" in value.name:
        return [sizes.batch, sizes.length + sizes.past]
    if kind == "float" and rank == 4 and family == "rnn":
        return [sizes.batch, 1, 4 * sizes.length, 1]
    if kind == "float" and rank >= 4:
        return [sizes.batch, *[1] * (rank - 3), sizes.height, sizes.width]
    first = sizes.length if rank and "seq" in str(value.shape[0]) else sizes.batch
    last = sizes.samples if kind == "float" and family in ("audio", "dsp") else sizes.length
    return [first, *[last] * (rank - 1)][:rank]


def _text(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Sentences in a list, single words in a table."""
    result = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        result[place] = " ".join(random.choice(SENTENCE, 12)) if len(shape) == 1 else str(random.choice(CATEGORIES))
    return result


def _integers(
    name: str, shape: tuple[int, ...], family: str, earlier: dict[str, Any], random: np.random.Generator
) -> np.ndarray:
    first = next(iter(earlier.values()), np.zeros((1, 1)))
    if "mask" in name:
        return _mask(shape)
    if name == "token_type_ids":
        return np.zeros(shape)
    if name == "sr":
        return np.full(shape, 16000)
    if "len" in name:
        return np.full(shape, first.shape[-1])
    if name == "img_size":
        return np.array(first.shape[:-3:-1])
    if name == "edges":
        return random.integers(0, len(first), shape)
    return random.integers(1, LIMITS.get(name, 40), shape)


def _mask(shape: tuple[int, ...]) -> np.ndarray:
    """All ones for the first sequence; the others end a little earlier."""
    length = shape[-1] - 3 * np.arange(shape[0])
    return np.arange(shape[-1]) < length[:, np.newaxis]


def _numbers(
    name: str, shape: tuple[int, ...], family: str, earlier: dict[str, Any], random: np.random.Generator
) -> np.ndarray:
    if name in STATES:
        return np.zeros(shape)
    if name == "point_positions":
        return _grid(shape) + 0.02 * random.standard_normal(shape)
    if name == "data":
        return random.integers(0, 2, shape)
    if len(shape) >= 4 and shape[1] in (1, 3) and shape[-1] > 3:
        return _picture(shape, random)
    if family in ("audio", "dsp") and shape[-1] >= 500:
        return _sound(shape, random)
    return random.standard_normal(shape)


def _grid(shape: tuple[int, ...]) -> np.ndarray:
    return np.stack(np.meshgrid(np.linspace(-0.9, 0.9, shape[3]), np.linspace(-0.9, 0.9, shape[2])))[np.newaxis]


def _picture(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Lines of dark strokes like print on a paper with soft shadows, and some noise: about within 0 to 1."""
    rows, columns = np.mgrid[0 : 1 : shape[-2] * 1j, 0 : 1 : shape[-1] * 1j]
    waves = random.uniform(2, 9, (*shape[:-2], 2, 1, 1))
    paper = 0.8 + 0.2 * np.sin(waves[..., 0, :, :] * columns + 1) * np.cos(waves[..., 1, :, :] * rows)
    strokes = random.random((-(-shape[-2] // 2), -(-shape[-1] // 3))) < 0.5
    strokes[:, ::9] = False
    ink = np.kron(strokes, np.ones((2, 3)))[: shape[-2], : shape[-1]]
    ink[np.arange(shape[-2]) % 24 > 13] = 0
    return paper - 0.6 * ink + 0.02 * random.standard_normal(shape)


def _sound(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """A gliding tone with harmonics that swells and fades, over quiet noise."""
    time = np.arange(shape[-1]) / 16000
    phase = 2 * np.pi * (random.uniform(90, 220, (*shape[:-1], 1)) * time + 40 * time**2)
    tone = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 8)) * np.clip(np.sin(9 * time + 1), 0.05, 1)
    return 0.2 * tone + 0.003 * random.standard_normal(shape)
