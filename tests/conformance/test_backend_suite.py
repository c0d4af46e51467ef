"""The backend suite, case by case, with the stock harness; `make conformance` runs the same with a table."""

from __future__ import annotations

import functools
import unittest
from pathlib import Path

import pytest

import sardonyx.backend
from tests.conformance import harness
from tests.conformance.exceptions import EXPECTED_FAILURES


@functools.cache
def _tests() -> dict[tuple[str, str], unittest.TestCase]:
    return harness.load_tests(sardonyx.backend)


@pytest.mark.parametrize(
    "key",
    [key for key in _tests() if key[1] not in EXPECTED_FAILURES],
    ids=lambda key: f"{key[0]}-{key[1].removeprefix('test_')}",
)
def test_case_passes(key: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONNX_HOME", str(tmp_path))  # where the harness keeps data of real models
    outcome = harness.run(key, _tests()[key])
    assert outcome.passed, outcome.reason


def test_the_suite_is_complete_and_its_exceptions_are_cases_of_it() -> None:
    names = {name for _, name in _tests()}
    assert len(names) == 2033  # of onnx 1.23.2, which the development environment pins
    assert names >= EXPECTED_FAILURES.keys() and len(EXPECTED_FAILURES) == 9
