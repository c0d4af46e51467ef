"""What inference refuses, runs refuse too: the cases of all ops, each with an operand of another shape, with sizes known and open."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sardonyx.errors import CODED
from sardonyx.ops import schemas
from tests.ops import execution
from tests.ops.cases import Variant, build, feeds_of, inputs_of, type_of, variants, wanted_outputs

FOLDER = Path(__file__).parent
MODULES = sorted(path.relative_to(FOLDER).with_suffix("").as_posix().replace("/", ".") for path in FOLDER.rglob("test_*.py"))
MOST_ELEMENTS = 4000
NEVER_RUN = {"Scan": "a body that runs for no row looks at no state"}


def first_variants(module: str) -> Iterator[Variant]:
    """One form of each case that is computed."""
    seen = set()
    for variant in variants(getattr(importlib.import_module(f"tests.ops.{module}"), "CASES", ())):
        case = variant.case
        if case.refusal is None and (case.where, case.op) not in seen:
            seen.add((case.where, case.op))
            yield variant


def _other_shapes(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array with one element less or more along an axis, and with one more axis."""
    for axis, size in enumerate(array.shape):
        if size > 1:
            yield np.take(array, range(size - 1), axis=axis)
        if size > 0:
            yield np.concatenate([array, np.take(array, [0], axis=axis)], axis=axis)
    yield array[None]


def _changed(variant: Variant) -> Iterator[list[Any]]:
    """The inputs of a case, each array in turn with another shape."""
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    inputs = inputs_of(signature, variant.case, dict(variant.types))
    for place, (name, value, type) in enumerate(inputs):
        if type is not None and isinstance(value, np.ndarray) and value.size <= MOST_ELEMENTS:
            for other in _other_shapes(value):
                yield [*inputs[:place], (name, other, type_of(other)), *inputs[place + 1 :]]


def _is_refused(variant: Variant, inputs: list[Any], view: str, native: str, *, runs: bool) -> bool:
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    wanted = wanted_outputs(variant.case, signature, None)
    try:
        run = execution.start(build(signature, variant.version, variant.case, inputs, wanted, view), native)
        if runs:
            run(feeds_of(inputs))
    except CODED:
        return True
    return False


@pytest.mark.filterwarnings("ignore")  # numbers of other shapes overflow and divide by nothing
@pytest.mark.parametrize("module", MODULES)
def test_runs_refuse_shapes_that_inference_refuses(module: str) -> None:
    for variant in first_variants(module):
        for inputs in _changed(variant):
            if not _is_refused(variant, inputs, "", "0", runs=False):
                continue
            where = f"{variant.case.op} at {variant.case.where}: {[(name, np.shape(value)) for name, value, _ in inputs]}"
            for native in ("0", "1"):
                refused = _is_refused(variant, inputs, "symbolic", native, runs=True)
                assert refused or _never_runs(variant, inputs), f"{where}, native {native}"


def _never_runs(variant: Variant, inputs: list[Any]) -> bool:
    return variant.case.op in NEVER_RUN and any(np.size(value) == 0 for _, value, _ in inputs)
