"""Test-suites of packages that run their models in onnxruntime: what passes there passes here.

They come in the source distributions of skl2onnx and spox, at the versions of the environment. onnxmltools publishes tests that need
Spark alone; torch_packages/boosted_trees.py runs its converters. A suite runs on sardonyx as a whole, and what does not pass runs
again on the real onnxruntime.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.slow import environment

pytestmark = pytest.mark.slow

PLUGIN = "runs_on_sardonyx"
PLUGIN_TEXT = "import sardonyx\n\nsardonyx.install_as_onnxruntime()\n"


@dataclass(frozen=True)
class Suite:
    package: str
    left_out: dict[str, str] = field(default_factory=dict)
    """Tests that do not run, with reasons."""
    contrary: dict[str, str] = field(default_factory=dict)
    """Tests that pass on onnxruntime alone, with reasons why that is so."""


SUITES = [
    Suite(
        "skl2onnx",
        left_out={
            "tests/test_sklearn_gaussian_process_regressor.py::TestSklearnGaussianProcessRegressor::test_x_issue_789": "fits for minutes",
            "tests/test_sklearn_gaussian_process_regressor.py::TestSklearnGaussianProcessRegressor::test_x_issue_789_cdist": "so does this",
        },
        contrary={
            "tests.test_sklearn_dict_vectorizer_converter.TestSklearnDictVectorizerConverter::test_model_dict_vectorizer_pipeline_int": (
                "is left where onnxruntime refuses maps of integers; with the result it compares a row with a table"
            ),
        },
    ),
    Suite("spox"),
]


@pytest.mark.parametrize("suite", SUITES, ids=[suite.package for suite in SUITES])
def test_what_passes_on_onnxruntime_passes_here(suite: Suite, tmp_path: Path) -> None:
    python = environment.interpreter(environment.TORCH)
    folder = unpacked(python, suite.package, tmp_path)
    (tmp_path / f"{PLUGIN}.py").write_text(PLUGIN_TEXT)
    without = [word for name in suite.left_out for word in ("--deselect", name)]
    ours = outcomes(python, folder, tmp_path, ["-p", PLUGIN, *without, "tests"])
    not_passed = [name for name, outcome in ours.items() if outcome != "passed"]
    assert len(ours) > 2 * len(not_passed), f"{suite.package}: {len(not_passed)} of {len(ours)} do not pass"
    files = sorted(
        {f"{name.partition('::')[0].removesuffix(class_of(name)).rstrip('.').replace('.', '/')}.py" for name in not_passed}
    )
    theirs = outcomes(python, folder, tmp_path, [*without, *files])
    better = {name for name in not_passed if theirs.get(name) == "passed"}
    assert better == set(suite.contrary), f"these pass on onnxruntime alone: {sorted(better)}"


def unpacked(python: Path, package: str, folder: Path) -> Path:
    """The source of a package, of the version that the environment has."""
    (line,) = [
        line for line in environment.requirements(environment.TORCH).read_text().splitlines() if line.startswith(f"{package}==")
    ]
    command = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", folder, line]
    subprocess.run(command, check=True, capture_output=True)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return archive.with_name(archive.name.removesuffix(".tar.gz"))


def outcomes(python: Path, folder: Path, plugins: Path, arguments: Sequence[str]) -> dict[str, str]:
    """How each test of a suite ended: passed, failed or skipped."""
    report = plugins / "report.xml"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={report}", *arguments]
    surroundings = {**os.environ, "PYTHONPATH": str(plugins), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        command, cwd=folder, env=surroundings, capture_output=True, encoding="utf-8", timeout=5400, check=False
    )
    assert process.returncode in (0, 1), process.stdout[-2000:] + process.stderr[-2000:]
    return {
        f"{case.get('classname')}::{case.get('name')}": _outcome({part.tag for part in case})
        for case in ElementTree.parse(report).iter("testcase")
    }


def _outcome(parts: Collection[str]) -> str:
    if parts & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in parts else "passed"


def class_of(name: str) -> str:
    """The class in the name of a test's place, which begins with a capital; empty if the test is a function."""
    last = name.partition("::")[0].rpartition(".")[2]
    return last if last[:1].isupper() else ""
