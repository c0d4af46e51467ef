"""The index of ops in docs/finding.md is complete: whoever registers something under an op's name is found."""

from __future__ import annotations

import pytest

from docs.pages.domains import domains
from docs.pages.finding import FOLDERS, files, files_of
from sardonyx.ops import schemas
from sardonyx.ops.gradients.table import bodies
from sardonyx.providers.native.program.table import lowerings
from sardonyx.providers.scalars.table import scalars

NOT_COMPUTED = {"Gradient", "EPContext"}
"""Replaced before anything is computed."""


@pytest.mark.parametrize("kind", FOLDERS)
def test_folders_exist(kind: str) -> None:
    assert [folder for folder in FOLDERS[kind] if not folder.is_dir()] == []


@pytest.mark.parametrize("domain", domains())
def test_every_op_has_a_file_of_types_and_one_of_kernels(domain: str) -> None:
    for name in schemas.operators(domain):
        assert files_of("ops")[name], f"what registers the types of {name} is not among REGISTER"
        is_computed = files_of("cpu")[name] or bodies.candidates(domain, name)
        assert is_computed or name in NOT_COMPUTED, f"what registers the kernel of {name} is not among REGISTER"


def test_machine_code_is_found() -> None:
    for domain in domains():
        for name in schemas.operators(domain):
            found = files("native", domain, name)
            has_some = scalars.candidates(domain, name) or lowerings.candidates(domain, name)
            assert found or not has_some, f"what registers machine code of {name} is not among REGISTER"
            assert all(any(map(path.is_relative_to, FOLDERS["native"])) for path in found), f"{name} is registered elsewhere"


def test_no_machine_code_is_invented() -> None:
    assert files("native", "", "Conv") and not files("native", "com.microsoft.nchwc", "Conv")
    assert not files("native", "", "ImageDecoder")


def test_cases_are_found() -> None:
    missing = [name for name in schemas.operators("") if not files_of("cases")[name]]
    assert len(missing) < 5, "what adds cases is not among REGISTER"


def test_domains_are_those_of_the_package() -> None:
    assert {"", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"} <= set(domains())
    schemas.define("another.domain", "Mine", 1, "(X: T) -> (Y: T)", T=["tensor(float)"])
    try:
        assert "another.domain" not in domains()
    finally:
        schemas.undefine("another.domain", "Mine")
