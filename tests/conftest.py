"""Hooks of pytest that the whole suite shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

os.environ["SARDONYX_STRICT"] = "1"
os.environ["SARDONYX_REMEMBER"] = "off"  # tests are about how models are prepared
os.environ.setdefault("SARDONYX_HURRY", "0")  # and about the code that stays
# how long an example takes tells how busy the machine is, and nothing else
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
"""The same examples in each run; HYPOTHESIS_PROFILE=new looks for others."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module with op cases has one test function; here it becomes one test per case, opset and element type."""
    cases = getattr(metafunc.module, "CASES", None)
    if cases is not None and "variant" in metafunc.fixturenames:
        from tests.ops.cases import variants

        found = list(variants(cases))
        metafunc.parametrize("variant", found, ids=[variant.label for variant in found])
