"""Sizes of 0: each case with no element along all axes of one of its sizes gives results of the same shapes, known or open, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx.errors import CODED
from sardonyx.ops import schemas
from tests.ops import execution
from tests.ops.cases import Input, Variant, build, feeds_of, inputs_of, type_of, wanted_outputs
from tests.ops.test_open_refusals import MODULES, MOST_ELEMENTS
from tests.ops.test_other_ranks import RANDOM, a_few_variants

EXCEPT = {
    "Scan": "a body that runs for no row looks at no state, and inference looks at it all the same",
    "ConvTranspose": "what no pixel is spread to would have less than no size: inference refuses that, and a run gives nothing",
}


def without_elements(inputs: list[Input]) -> Iterator[tuple[int, list[Input]]]:
    """The inputs with 0 in place of each size that they have."""
    arrays = [value for _, value, _ in inputs if isinstance(value, np.ndarray)]
    for size in sorted({size for array in arrays for size in array.shape}):
        yield size, [_without(size, *one) for one in inputs]


def _without(size: int, name: str, value: Any, type: Any) -> Input:
    if not isinstance(value, np.ndarray):
        return name, value, type
    empty = np.zeros([0 if axis == size else axis for axis in value.shape], value.dtype)
    kept = empty if size in value.shape else value
    return name, kept, type_of(kept)


def _shapes(variant: Variant, inputs: list[Input], view: str) -> list[Any] | None:
    """Those of the results, None if the model is refused."""
    signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
    assert signature is not None
    wanted = wanted_outputs(variant.case, signature, None)
    try:
        results = execution.start(build(signature, variant.version, variant.case, inputs, wanted, view))(feeds_of(inputs))
    except CODED:
        return None
    return [getattr(result, "shape", None) for result in results]


@pytest.mark.filterwarnings("ignore")  # means of nothing
@pytest.mark.parametrize("module", MODULES)
def test_what_has_no_elements_is_the_same_with_open_sizes(module: str) -> None:
    for variant in a_few_variants(module):
        if variant.case.op in RANDOM | EXCEPT.keys():
            continue
        signature = schemas.find(variant.case.domain, variant.case.op, variant.version)
        assert signature is not None
        inputs = inputs_of(signature, variant.case, dict(variant.types))
        if any(isinstance(value, np.ndarray) and value.size > MOST_ELEMENTS for _, value, _ in inputs):
            continue
        for size, emptied in without_elements(inputs):
            known, opened = (_shapes(variant, emptied, view) for view in ("", "symbolic"))
            assert known == opened, f"{variant.case.op} at {variant.case.where} with 0 for {size}"


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("sizes", ["2,3,5,6", "N,3,H,W"])
@pytest.mark.parametrize("op", ["Conv", "ConvInteger"])
def test_constant_filters_may_be_none(op: str, sizes: str, native: str) -> None:
    dtype, name = (np.float32, "float") if op == "Conv" else (np.uint8, "uint8")
    text = f"""<ir_version: 10, opset_import: ["": 21]> g ({name}[{sizes}] x) => (y) <{name}[0,3,3,2] w = {{}}> {{ y = {op}(x, w) }}"""
    providers = [("CPUExecutionProvider", {"native": native})]
    session = sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString(), providers=providers)
    (y,) = session.run(None, {"x": np.ones((2, 3, 5, 6), dtype)})
    assert y.shape == (2, 0, 3, 5)
