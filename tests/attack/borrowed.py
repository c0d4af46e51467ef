"""Op cases as recipes: every op of tests/ops grows into random graphs, on a case's operands or on values of their shapes."""

from __future__ import annotations

import functools
import importlib
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.attack.growth import Grower, Place, Refused
from tests.attack.recipes import recipe
from tests.attack.reference import is_float
from tests.ops.cases import Case, Typed

ROOT = Path(__file__).resolve().parents[2]
DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
"""Their results are draws; no two runtimes draw alike."""
UNTYPED = {"Optional"}
"""Their results look like tensors to NumPy, and must not be declared as such."""


@functools.cache
def op_cases() -> dict[tuple[str, str], list[Case]]:
    """All cases of tests/ops that are not refusals, by op."""
    found: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for path in sorted((ROOT / "tests" / "ops").rglob("test_*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for case in getattr(module, "CASES", ()):
            if case.refusal is None and case.domain in DOMAINS:
                found[case.domain, case.op].append(case)
    return dict(found)


@recipe(30)
def borrowed(g: Grower) -> None:
    """An op by chance, so that those with few cases come as often as those with many."""
    table = op_cases()
    key = g.rng.choice(sorted(table))
    if key[1] in RANDOM | UNTYPED:
        raise Refused
    case = g.rng.choice(table[key])
    if any(isinstance(value, Typed) for value in case.operands.values()):
        raise Refused
    operands = {name: _grown(g, value) for name, value in case.operands.items()}
    g.apply(case.op, domain=case.domain, outputs=case.outputs, **operands)


def _grown(g: Grower, value: Any) -> Any:
    """An operand of a case, or a value of the graph in its place."""
    if not is_float(value) or value.size == 0 or g.rng.random() < 0.5:
        return value
    place = g.find(lambda one: one.dtype == value.dtype and one.shape == value.shape)
    return place or (adapted(g, value) if g.rng.random() < 0.7 else value)


def adapted(g: Grower, like: np.ndarray) -> Place:
    """A value of the graph, cut or repeated, in the shape of an array."""
    source = g.pick(lambda one: one.dtype == like.dtype and one.array.size)
    (flat,) = g.apply("Reshape", data=source, shape=np.asarray([-1], np.int64))
    size = like.size
    if flat.array.size < size:
        times = -(-size // flat.array.size)
        (flat,) = g.apply("Tile", input=flat, repeats=np.asarray([times], np.int64))
    start = g.rng.randint(0, flat.array.size - size)
    bounds = [np.asarray([number], np.int64) for number in (start, start + size, 0)]
    (cut,) = g.apply("Slice", data=flat, starts=bounds[0], ends=bounds[1], axes=bounds[2])
    (place,) = g.apply("Reshape", data=cut, shape=np.asarray(like.shape, np.int64))
    return place
