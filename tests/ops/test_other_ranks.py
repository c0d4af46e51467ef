"""Machine code and NumPy agree about operands with more or fewer axes than an op takes: both refuse them, or both compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sardonyx.errors import CODED
from sardonyx.ops import schemas
from tests.ops import execution
from tests.ops.cases import Variant, build, feeds_of, inputs_of, type_of, wanted_outputs
from tests.ops.test_open_refusals import MODULES, MOST_ELEMENTS, first_variants

RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout"}
PER_OP = 2
"""Cases of each op: it is the op that must look at its operands, whatever else they hold."""
FAINT = 1e-30
"""What is less than that beside 1 is not looked at."""


def _other_ranks(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array with an axis more at either end, with one fewer, and its first element alone."""
    yield array[None]
    yield array[..., None]
    if array.ndim and len(array):
        yield np.asarray(array[0], array.dtype)
    if array.ndim > 1 and array.size:
        yield array.reshape(-1)[:1]


SHAPES = [(), (4,), (2, 4), (1, 2, 4), (1, 1, 2, 4), (1, 1, 1, 2, 4)]


def a_few_variants(module: str) -> Iterator[Variant]:
    counts: dict[tuple[str, str], int] = {}
    for variant in first_variants(module):
        key = variant.case.domain, variant.case.op
        counts[key] = counts.get(key, 0) + 1
        if counts[key] <= PER_OP and variant.case.op not in RANDOM:
            yield variant


def a_few_runs(module: str) -> Iterator[tuple[Variant, list[Any]]]:
    """The same with what goes in: names, values and types."""
    for variant in a_few_variants(module):
        signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
        assert signature is not None
        inputs = inputs_of(signature, variant.case, dict(variant.types))
        yield variant, inputs


def _outcome(variant: Variant, inputs: list[Any], native: str, view: str) -> list[Any] | None:
    """The results, None if the model is refused."""
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    wanted = wanted_outputs(variant.case, signature, None)
    try:
        return execution.start(build(signature, variant.version, variant.case, inputs, wanted, view), native)(feeds_of(inputs))
    except CODED:
        return None


@pytest.mark.filterwarnings("ignore")  # numbers of other shapes overflow and divide by nothing
@pytest.mark.parametrize("module", MODULES)
def test_machine_code_and_numpy_agree_about_operands_of_other_ranks(module: str) -> None:
    for variant, inputs in a_few_runs(module):
        for place, (name, value, type) in enumerate(inputs):
            if type is None or not isinstance(value, np.ndarray) or value.size > MOST_ELEMENTS:
                continue
            for other in _other_ranks(value):
                changed = [*inputs[:place], (name, other, type_of(other)), *inputs[place + 1 :]]
                check(variant, changed, f"{name} of {list(other.shape)}")


@pytest.mark.filterwarnings("ignore")  # numbers of other shapes overflow and divide by nothing
@pytest.mark.parametrize("module", MODULES)
def test_machine_code_and_numpy_agree_about_operands_of_one_shape(module: str) -> None:
    """Whatever ranks an op expects, here they go together: then no operand gives away that another is wrong."""
    for variant, inputs in a_few_runs(module):
        for shape in SHAPES:
            changed = [_in_shape(*each, shape) for each in inputs]
            check(variant, changed, f"all of {list(shape)}")


def _in_shape(name: str, value: Any, type: Any, shape: tuple[int, ...]) -> tuple[str, Any, Any]:
    if type is None or not isinstance(value, np.ndarray) or not value.size:
        return name, value, type
    array = np.resize(value, shape)
    return name, array, type_of(array)


def check(variant: Variant, inputs: list[Any], change: str, view: str = "") -> None:
    """Run with both, which refuse, or compute the same."""
    where = f"{variant.case.op} at {variant.case.where}, {change}"
    try:
        numpy, native = (_outcome(variant, inputs, provider, view) for provider in ("0", "1"))
    except Exception as error:
        error.add_note(where)
        raise
    assert (numpy is None) == (native is None), f"{where}: only one refuses"
    for one, two in zip(numpy or (), native or (), strict=True):
        _assert_alike(one, two, where)


def _assert_alike(one: Any, two: Any, where: str) -> None:
    if not isinstance(one, np.ndarray):
        return  # sequences and maps of what is compared elsewhere
    assert (one.shape, one.dtype) == (two.shape, two.dtype), where
    if one.dtype.kind == "f":
        largest = np.abs(one[np.isfinite(one)]).max(initial=FAINT)
        np.testing.assert_allclose(two, one, rtol=2e-2, atol=1e-2 * float(largest), err_msg=where)
