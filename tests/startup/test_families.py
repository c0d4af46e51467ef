"""Modules that wait for their ops: what a process imports for a model is what it needs, and all that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sardonyx
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.startup import families
from sardonyx.startup.families import Families

PROGRAM = """
import json, sys
from sardonyx.startup import families
if sys.argv[1:]:
    families.PATH = sys.argv[1]
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.scalars.table import scalars
from sardonyx.providers.native.program.table import lowerings
tables = (cpu, scalars, lowerings)
entries = [[str(entry) for entry in table.candidates("", op)] for table in tables for op in ("Relu", "Softmax")]
print(json.dumps([entries, [name for name in sys.modules if name.startswith("sardonyx.providers.")]]))
"""


def run(*arguments: object) -> tuple[object, set[str]]:
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    entries, modules = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return entries, set(modules)


def test_a_process_imports_what_its_ops_need(tmp_path: Path) -> None:
    by_table, few = run()
    by_looking, everything = run(tmp_path / "there is no table")
    assert by_table == by_looking
    assert {"sardonyx.providers.cpu.activation", "sardonyx.providers.scalars.activation"} <= few
    assert few < everything and "sardonyx.providers.cpu.signal" in everything - few


@pytest.mark.parametrize("op", ["SimplifiedLayerNormalization", "MaxPoolGrad", "AveragePoolGrad"])
def test_a_process_finds_ops_that_onnxruntime_alone_has_in_the_standard_domain(op: str) -> None:
    program = f"from sardonyx.ops import schemas; print(schemas.find('', {op!r}, 17).name)"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert process.stdout.strip() == op, process.stderr


# --- a package of our own

REGISTER = "from tests.startup import test_families\ntest_families.register"
SOURCES = {
    "__init__": "",
    "first": f"{REGISTER}('A')",
    "second": f"import made.package.first\n{REGISTER}('B')",
    "third": f"{REGISTER}('C')",
}
table: Table[Entry]


def register(op: str) -> None:
    table.add(Entry("", op, 1, NEWEST))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with modules that register ops on a table of their own, and a table of modules that is about to be written."""
    folder = tmp_path / "made" / "package"
    folder.mkdir(parents=True)
    for name, text in SOURCES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(families, "PATH", str(tmp_path / "modules.txt"))
    for known in ("_foreign", "_loaded"):
        monkeypatch.setattr(families, known, set())
    families.listed.cache_clear()
    global table
    table = Table("made", Families("made.package", "entries"))
    yield folder
    families.listed.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "made"]:
        del sys.modules[name]


def write(text: str) -> None:
    Path(families.PATH).write_text(text)


def imported() -> set[str]:
    return {name.removeprefix("made.package.") for name in sys.modules if name.startswith("made.package.")}


LINES = """\
ai.onnx:A entries=package.first others=package.third
ai.onnx:B entries=package.second
ai.onnx:N others=package.third
"""


def test_the_modules_of_an_op_are_imported_and_no_others(package: Path) -> None:
    write(LINES)
    assert not table.candidates("", "N") and not imported()
    assert len(table.candidates("ai.onnx", "A")) == 1 and imported() == {"first"}
    assert len(table.candidates("", "B")) == 1 and imported() == {"first", "second"}


def test_an_op_that_the_table_of_modules_does_not_know_is_found(package: Path) -> None:
    write(LINES)
    assert len(table.candidates("", "C")) == 1 and imported() == {"first", "second", "third"}


def test_an_op_that_moved_to_another_module_is_found(package: Path) -> None:
    write(LINES.replace("A entries=package.first", "A entries=package.third"))
    assert len(table.candidates("", "A")) == 1


def test_a_module_that_is_not_there_is_left_out(package: Path) -> None:
    write(LINES)
    (package / "first.py").unlink()
    (package / "second.py").unlink()
    assert not table.candidates("", "A") and len(table.candidates("", "C")) == 1


def test_a_module_that_lacks_a_module_of_its_own_is_an_error(package: Path) -> None:
    write(LINES)
    (package / "first.py").unlink()
    with pytest.raises(ModuleNotFoundError, match=r"made\.package\.first"):
        table.candidates("", "B")


def test_for_ops_of_somebody_else_nothing_is_imported(package: Path) -> None:
    write(LINES)
    families.is_foreign("other.domain", "C")
    assert not table.candidates("other.domain", "C") and not imported()


CUSTOM = """
import sys
import numpy as np
import onnx.parser
import sardonyx
from sardonyx.dtypes import FLOATS
options = sardonyx.SessionOptions()

@sardonyx.custom_op("my.domain::Twice", "(X: T) -> (Y: T)", T=FLOATS)
def twice(X):
    return X + X

options.register_custom_op(twice)
model = onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21, "my.domain": 1]> '
                                'g (float[N] x) => (float[N] y) { t = my.domain.Twice(x) y = Relu(t) }')
session = sardonyx.InferenceSession(model, options)
assert session.run(None, {"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]
print("sardonyx.providers.cpu.signal" in sys.modules, "sardonyx.providers.native.kernels.signal" in sys.modules)
"""


def test_custom_ops_import_nothing_for_themselves() -> None:
    root = Path(sardonyx.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", CUSTOM], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
