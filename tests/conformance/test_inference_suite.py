"""Inference over all models of the backend suite: never against onnx.shape_inference, and nothing unknown that it knows."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.conformance import suite
from tests.conformance.inference_comparison import compare, contradicts_declaration

ONNX_IS_WRONG = {
    "test_loop13_seq": {"seq_res[]": "onnx takes over rank 0 from the empty sequence at the start; the loop inserts vectors"},
}
"""Case -> value -> why what onnx infers is not true of what comes out."""


@functools.cache
def _cases() -> dict[str, Any]:
    return {case.name: case for _, case in suite.load()}


@pytest.mark.parametrize("name", list(_cases()))
def test_inference_agrees_with_onnx(name: str) -> None:
    model = suite.model_of(_cases()[name])
    differences = [one for one in compare(model) if one.value not in ONNX_IS_WRONG.get(name, {})]
    assert not differences, "\n".join(map(str, differences))
    assert contradicts_declaration(model) is None
