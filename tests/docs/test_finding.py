"""The index of ops in docs/finding.md is complete: whoever registers something under an op's name is found."""

from __future__ import annotations

import pytest

from docs.pages.finding import DOMAINS, files_of
from sardonyx import ops
from sardonyx.ops import schemas

NOT_COMPUTED = {"Gradient", "EPContext"}
"""Replaced before anything is computed."""


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_op_has_a_file_of_types_and_one_of_kernels(domain: str) -> None:
    ops.load_families()
    for name in schemas.operators(domain):
        assert files_of("ops")[name], f"what registers the types of {name} is not among REGISTER"
        assert files_of("cpu")[name] or name in NOT_COMPUTED, f"what registers the kernel of {name} is not among REGISTER"


def test_cases_are_found() -> None:
    missing = [name for name in schemas.operators("") if not files_of("cases")[name]]
    assert len(missing) < 5, "what adds cases is not among REGISTER"
