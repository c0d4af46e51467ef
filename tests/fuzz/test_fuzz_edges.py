"""No number of a model or a feed reaches an address or a loop bound of generated code unchecked.

The audit (`tests/fuzz/edges`) names every whole number that an op with a lowering takes; these tests hold it complete, and give
hostile numbers to each of them. `SARDONYX_FUZZ_CASES` says how many cases; `tests/fuzz/edges/driver.py` how to repeat one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx import ops
from sardonyx.ir.attribute import Kind
from sardonyx.ops import schemas
from sardonyx.providers.kernel_table import IGNORED_ATTRIBUTES
from sardonyx.providers.native.program.table import lowerings
from sardonyx.providers.scalars.table import scalars
from tests.fuzz.edges import cases, page
from tests.fuzz.edges.cases import ENTRIES, hostile
from tests.fuzz.edges.table import CHECKS

ROOT = Path(__file__).parent.parent.parent
CASES = int(os.environ.get("SARDONYX_FUZZ_CASES", "1000"))
PARTS = 4
WHOLE = frozenset(f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64))

FILES = [f"tests/fuzz/edges/{name}.py" for name, module in vars(cases).items() if hasattr(module, "audit")]
"""Where the entries of the audit stand."""

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="limits of memory and time are of POSIX")


def lowered() -> list[tuple[str, str]]:
    """Domain and name of every op with a lowering."""
    ops.load_families()
    return sorted(lowerings.operators())


def chained() -> dict[tuple[str, str], int]:
    """The same of the ops that chains are made of, and since which version."""
    return {key: min(entry.since for entry in scalars.candidates(*key)) for key in scalars.operators()}


def whole_numbers(domain: str, op: str, since: int = 1) -> set[str]:
    """Attributes and inputs of an op, in all its versions, that are nothing but whole numbers."""
    found = set()
    for version, signature in schemas.versions(domain, op).items():
        if version < since:
            continue
        found |= {name for name, one in signature.attributes.items() if one.kind in (Kind.INT, Kind.INTS)}
        found |= {one.name for one in signature.inputs if one.types and one.types <= WHOLE}
    return found - IGNORED_ATTRIBUTES


def require_told(domain: str, op: str, names: set[str]) -> None:
    told = {name for entry in ENTRIES if (entry.domain, entry.op) == (domain, op) for name in entry.checks}
    assert names <= told, (
        f"{sorted(names - told)} of {domain}:{op} reach generated code: say where each is checked, one of {list(CHECKS)}, "
        f"in the op's entry in one of {FILES}"
    )


@pytest.mark.parametrize(("domain", "op"), lowered())
def test_audit_names_every_whole_number_of_a_lowered_op(domain: str, op: str) -> None:
    entries = [entry for entry in ENTRIES if (entry.domain, entry.op) == (domain, op)]
    assert entries, (
        f"{domain}:{op} has a lowering, but no entry: call `audit` in one of {FILES}, even if the op takes no whole number"
    )
    require_told(domain, op, whole_numbers(domain, op))


@pytest.mark.parametrize(("domain", "op"), sorted(chained()))
def test_audit_names_every_whole_number_of_a_chain(domain: str, op: str) -> None:
    require_told(domain, op, whole_numbers(domain, op, chained()[domain, op]))


def test_audit_holds_nothing_else() -> None:
    known = {*lowered(), *chained()}
    for entry in ENTRIES:
        assert (entry.domain, entry.op) in known, f"{entry.name} has no lowering"
        versions = schemas.versions(entry.domain, entry.op).values()
        names = {name for one in versions for name in (*one.attributes, *(parameter.name for parameter in one.inputs))}
        assert entry.checks.keys() <= names, f"{entry.name} does not have all of {list(entry.checks)}"
        assert set(entry.checks.values()) <= CHECKS.keys()


def test_page_shows_the_audit() -> None:
    text = page.PAGE.read_text()
    assert text == page.written(text), "run make docs"


def test_page_explains_every_check() -> None:
    text = " ".join(page.PAGE.read_text().split())
    for check, meaning in CHECKS.items():
        assert f"**{check}**: {meaning}" in text


def run_driver(*arguments: str) -> str:
    command = [sys.executable, "-m", "tests.fuzz.edges.driver", *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # each BLAS thread reserves address space
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    last = [line for line in done.stdout.splitlines() if line.startswith("case ")][-1:]
    failures = "\n".join(block for block in done.stdout.split("case ") if "FAILED" in block)
    assert done.returncode == 0, f"ended with {done.returncode} at {last}\n{failures[-6000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@posix_only
def test_entries_run_in_native_code_and_agree_with_numpy() -> None:
    assert f"{len(ENTRIES)} cases, 0 failed" in run_driver("0", str(len(ENTRIES)), "--unharmed")


@posix_only
@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_numbers_are_refused_or_computed_as_numpy_does(part: int) -> None:
    total = min(CASES, len(hostile()))
    count = -(-total // PARTS)
    assert "0 failed" in run_driver(str(part * count), str((part + 1) * count), "--of", str(CASES))
