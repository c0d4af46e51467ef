"""Modules that wait for their ops: what a process imports for a model is what it needs, and all that it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sardonyx import families
from sardonyx.compiler import cache, sources
from sardonyx.compiler.cache import ObjectCache

PROGRAM = """
import json, sys
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.scalars.table import scalars
from sardonyx.providers.native.program import table
found = [str(one) for one in cpu.candidates("", "Relu")], len(scalars.candidates("", "Relu"))
print(json.dumps([found, [name for name in sys.modules if name.startswith("sardonyx.providers.")]]))
"""


def run(folder: Path) -> tuple[object, set[str]]:
    environment = os.environ | {"SARDONYX_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    found, modules = json.loads(done.stdout)
    return found, set(modules)


def test_a_later_process_imports_what_its_ops_need(tmp_path: Path) -> None:
    first, everything = run(tmp_path)
    later, few = run(tmp_path)
    assert first == later == [[str(one) for one in _relus()], 1]
    assert few < everything and "sardonyx.providers.cpu.signal" in everything - few
    assert "sardonyx.providers.cpu.activation" in few


def _relus() -> object:
    from sardonyx.providers.cpu.table import cpu

    return cpu.candidates("", "Relu")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> families.Families:
    """A package with modules that register ops on a table of their own."""
    package = tmp_path / "sardonyx_made"
    package.mkdir()
    for name, text in {
        "__init__": "",
        "first": "from sardonyx_made.table import register\nregister('A')",
        "second": "import sardonyx_made.first\nfrom sardonyx_made.table import register\nregister('B')\nregister('A')",
        "table": "from tests import test_families\nregister = lambda op: test_families.noted.note(op)",
    }.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(families, "PACKAGE", "sardonyx_made.")
    monkeypatch.setattr(cache, "shared", lambda: ObjectCache(tmp_path / "cache"))
    monkeypatch.setattr(sources, "fingerprint", lambda: "these")
    forget()
    global noted
    noted = families.Families("sardonyx_made")
    return noted


noted: families.Families


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("sardonyx_made")]:
        del sys.modules[name]


def test_who_registers_is_noted_even_if_somebody_else_imports_it(made: families.Families) -> None:
    made.need("B")
    assert made.ops_of("sardonyx_made.first") == {"A"} and made.ops_of("sardonyx_made.second") == {"A", "B"}


def test_notes_hold_for_as_long_as_the_sources_do(made: families.Families, monkeypatch: pytest.MonkeyPatch) -> None:
    made.load_all()
    forget()
    families.Families("sardonyx_made").need("A")
    assert {"sardonyx_made.first", "sardonyx_made.second"} <= sys.modules.keys()
    forget()
    families.Families("sardonyx_made").need("nothing")
    assert "sardonyx_made.first" not in sys.modules
    monkeypatch.setattr(sources, "fingerprint", lambda: "others")
    families.Families("sardonyx_made").need("nothing")
    assert "sardonyx_made.first" in sys.modules
    forget()


def test_without_sources_to_look_at_everything_is_imported(made: families.Families, monkeypatch: pytest.MonkeyPatch) -> None:
    made.load_all()
    forget()
    monkeypatch.setattr(sources, "fingerprint", lambda: None)
    families.Families("sardonyx_made").need("A")
    assert "sardonyx_made.second" in sys.modules
    forget()
