"""`sardonyx shim` in a virtual environment of its own: packages find a distribution named onnxruntime, and then find none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from sardonyx.cli.shim import install, remove
from sardonyx.compat import API_VERSION
from sardonyx.errors import Fail

ROOT = Path(__file__).parent.parent.parent
ASKING = """
import importlib.metadata, importlib.util, json
spec = importlib.util.find_spec("onnxruntime")
version = importlib.metadata.version("onnxruntime")
requires = importlib.metadata.requires("onnxruntime")
import onnxruntime, sardonyx
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
import onnxruntime.tools.file_utils
print(json.dumps({
    "origin": spec.origin, "version": version, "requires": requires, "inner": onnxruntime.__version__,
    "same": onnxruntime.InferenceSession is sardonyx.InferenceSession and Fail is sardonyx.errors.Fail,
    "module": quantize_dynamic.__module__, "tools": onnxruntime.tools.file_utils.__name__,
}))
"""


class Environment:
    """A virtual environment without pip, in which everything of this one is importable but onnxruntime."""

    def __init__(self, folder: Path):
        venv.create(folder / "env", with_pip=False, symlinks=True)
        self.python = folder / "env" / "bin" / "python"
        self.packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
        borrowed = folder / "borrowed"
        borrowed.mkdir()
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if not entry.name.startswith("onnxruntime") and entry.suffix != ".pth":
                (borrowed / entry.name).symlink_to(entry)
        self.variables = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(borrowed)))}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.python, *words], env=self.variables, capture_output=True, text=True, cwd=self.python.parent)

    def shim(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("-m", "sardonyx", "shim", *words)

    def content(self) -> set[str]:
        return {entry.name for entry in self.packages.iterdir() if "onnxruntime" in entry.name}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    if os.name == "nt":
        pytest.skip("links to folders need a privilege on Windows")
    return Environment(tmp_path)


def test_packages_find_a_distribution_named_onnxruntime_and_then_none(environment):
    assert environment.run("-c", "import onnxruntime").returncode == 1
    first = environment.shim()
    assert first.returncode == 0 and API_VERSION in first.stdout, first.stderr
    assert environment.shim("--json").returncode == 0  # once more is no error

    asked = environment.run("-c", ASKING)
    assert asked.returncode == 0, asked.stderr
    found = json.loads(asked.stdout)
    assert found.pop("origin") == str(environment.packages / "onnxruntime" / "__init__.py")
    assert found == {
        "version": API_VERSION,
        "requires": ["sardonyx"],
        "inner": API_VERSION,
        "same": True,
        "module": "sardonyx.quantization.quantize",
        "tools": "sardonyx.tools.file_utils",
    }

    script = environment.run("-m", "onnxruntime.tools.make_dynamic_shape_fixed", "--help")
    assert script.returncode == 0 and "--dim_param" in script.stdout, script.stderr

    removed = environment.shim("--remove", "--json")
    assert removed.returncode == 0 and json.loads(removed.stdout)["version"] is None
    assert environment.content() == set() and environment.run("-c", "import onnxruntime").returncode == 1
    again = environment.shim("--remove")
    assert again.returncode == 1 and "no onnxruntime of ours" in again.stderr


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    """Site-packages of an environment with nothing in it; metadata of distributions is looked for along sys.path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def test_every_file_is_recorded_for_pip(folder):
    install(folder)
    (info,) = folder.glob("onnxruntime-*.dist-info")
    recorded = {line.split(",")[0] for line in (info / "RECORD").read_text().splitlines()}
    assert recorded == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    remove(folder)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ["onnxruntime", "onnxruntime-gpu"])
def test_it_refuses_where_the_real_one_is_installed(folder, name):
    info = folder / f"{name.replace('-', '_')}-1.30.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.30.0\n")
    (info / "INSTALLER").write_text("pip\n")
    with pytest.raises(Fail, match=f"{name} 1.30.0 is installed .* pip uninstall {name}"):
        install(folder)
    with pytest.raises(Fail, match="no onnxruntime of ours"):
        remove(folder)
    assert list(folder.iterdir()) == [info]


def test_it_refuses_where_another_package_has_the_name(folder):
    (folder / "onnxruntime").mkdir()
    other = folder / "onnxruntime" / "__init__.py"
    other.write_text("mine = 1\n")
    with pytest.raises(Fail, match="not ours"):
        install(folder)
    with pytest.raises(Fail, match="no onnxruntime of ours"):
        remove(folder)
    assert other.read_text() == "mine = 1\n"
