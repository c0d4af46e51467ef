"""Machine code and NumPy agree about attributes that a case gives and a model may not: both refuse the node, or both compute the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sardonyx.ops import schemas
from tests.ops.cases import Variant, inputs_of
from tests.ops.test_empty_sizes import without_elements
from tests.ops.test_open_refusals import MODULES, MOST_ELEMENTS
from tests.ops.test_other_ranks import a_few_variants, check


def _fewer_attributes(variant: Variant) -> Iterator[tuple[str, Variant]]:
    """The case without each of its attributes, and with lists that have nothing in them."""
    case = variant.case
    signature = schemas.find(case.domain, case.op, variant.version)
    assert signature is not None
    for name in sorted(case.operands.keys() & signature.attributes.keys() - set(signature.operand_names)):
        others = {key: value for key, value in case.operands.items() if key != name}
        yield f"without {name}", replace(variant, case=replace(case, operands=others))
        if np.ndim(case.operands[name]):
            yield f"with nothing in {name}", replace(variant, case=replace(case, operands=others | {name: []}))


def _inputs(variant: Variant) -> Iterator[tuple[str, list[Any]]]:
    """What goes in, also with no elements along an axis: then what an attribute tells has to be of no elements, too."""
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    inputs = inputs_of(signature, variant.case, dict(variant.types))
    if any(isinstance(value, np.ndarray) and value.size > MOST_ELEMENTS for _, value, _ in inputs):
        return
    yield "", inputs
    for size, emptied in without_elements(inputs):
        yield f" and 0 for {size}", emptied


@pytest.mark.filterwarnings("ignore")  # numbers that were not meant so overflow and divide by nothing
@pytest.mark.parametrize("module", MODULES)
def test_machine_code_and_numpy_agree_about_missing_attributes(module: str) -> None:
    for variant in a_few_variants(module):
        for change, changed in _fewer_attributes(variant):
            for sizes, inputs in _inputs(changed):
                for view in ("", "symbolic"):
                    check(changed, inputs, f"{change}{sizes}, sizes {view or 'known'}", view)
