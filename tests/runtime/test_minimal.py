"""Fewer packages: models in the ORT format run without onnx, protobuf and llvmlite, and what is missing is said once and clearly."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import sardonyx
from tests.minimal import Environment, Job, convert, expected_of
from tests.tolerance import assert_close

ROOT = Path(__file__).parents[2]
MODELS = sorted((ROOT / "tests" / "models").glob("*.onnx"))
PROTOBUF = ("onnx", "google")
EVERYTHING = (*PROTOBUF, "llvmlite", "flatbuffers", "rich", "PIL", "openvino")


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Job], list[list[Any]]]:
    """Our models in the ORT format, as onnxruntime writes them and as we do, and what they give where everything is installed."""
    folder, made, expected = tmp_path_factory.mktemp("converted"), [], []
    for model in MODELS:
        feeds, outputs = expected_of(model)
        for runtime in (onnxruntime, sardonyx):
            path = folder / f"{model.stem}.{runtime.__name__}.ort"
            convert(runtime, model, path)
            made.append(Job(path, [feeds]))
            expected.append(outputs)
    return made, expected


@pytest.mark.parametrize("absent", [PROTOBUF, EVERYTHING], ids=["without protobuf", "without anything"])
def test_ort_models_run(absent: Sequence[str], jobs: tuple[list[Job], list[list[Any]]], tmp_path: Path) -> None:
    report = Environment(absent=absent).run(jobs[0], tmp_path)
    for job, outputs, (got,) in zip(*jobs, report.results, strict=True):
        assert_close(got, outputs, where=job.path.name)
    assert not set(report.loaded) & set(absent)
    assert ("llvmlite" in report.loaded) == ("llvmlite" not in absent)
    assert report.errors.count("No native code") == ("llvmlite" in absent)
    assert ("native=LLVM" in report.build_info) == ("llvmlite" not in absent)


def python(program: str, *arguments: str, folder: Path | None = None) -> str:
    return Environment().start("-c", program, *arguments, folder=folder).stdout


WITHOUT_ONNX = """
import sys
for name in ("onnx", "google", "google.protobuf"):
    sys.modules[name] = None
import sardonyx
def said(work):
    try:
        work()
    except sardonyx.errors.Fail as error:
        print(error)
"""


def test_onnx_files_say_what_to_install(jobs: tuple[list[Job], list[list[Any]]], tmp_path: Path) -> None:
    program = """
said(lambda: sardonyx.InferenceSession(sys.argv[1]))
said(lambda: sardonyx.InferenceSession(open(sys.argv[1], "rb").read()))
said(lambda: sardonyx.formats.save(sardonyx.formats.load(sys.argv[2]), "written.onnx"))
"""
    said = python(WITHOUT_ONNX + program, str(MODELS[0]), str(jobs[0][0].path), folder=tmp_path).splitlines()
    assert len(said) == 3 and all("pip install onnx" in line for line in said)
    assert said[0].startswith(
        f"[ONNXRuntimeError] : 1 : FAIL : Load model from {MODELS[0]} failed:ONNX files need the package onnx"
    )


def test_a_folder_named_onnx_is_no_package(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    program = """
import sys
from sardonyx.formats.onnx import messages
sys.path = ["", *(path for path in sys.path if "-packages" not in path)]
try:
    messages._messages()
except ModuleNotFoundError as error:
    print(error)
"""
    assert python(program, folder=tmp_path) == "No module named 'onnx'\n"


def test_files_in_both_formats_are_run_without_the_onnx_package(jobs: tuple[list[Job], list[list[Any]]]) -> None:
    program = """
import sys, sardonyx
sardonyx.InferenceSession(sys.argv[1])
print(*{"onnx", "google"} & set(sys.modules))
sardonyx.InferenceSession(sys.argv[2])
print(*{"onnx", "google"} & set(sys.modules))
model = sardonyx.formats.onnx.messages.messages().ModelProto
import onnx
assert onnx.ModelProto is model and onnx.onnx_ml_pb2.ModelProto is model
"""
    assert python(program, str(jobs[0][0].path), str(MODELS[0])).splitlines() == ["", "google"]


def test_the_command_line_says_that_it_needs_rich() -> None:
    program = "import sys\nsys.modules['rich'] = None\nimport sardonyx\nfrom sardonyx.cli import main"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and ended.stdout == ""
    assert ended.stderr.count("\n") == 1 and "pip install rich" in ended.stderr


def test_the_build_info_tells_which_parts_are_there() -> None:
    import onnx

    info = dict(part.split("=", 1) for part in sardonyx.get_build_info().removeprefix("ORT Build Info: ").split(", "))
    assert info["sardonyx"] == sardonyx.__version__ and info["onnx"] == onnx.__version__ and info["flatbuffers"] != "no"
    assert info["native"].startswith(("LLVM ", "no ("))
    print_nothing = "import sys; sys.modules['llvmlite'] = None; import sardonyx; print(sardonyx.get_build_info())"
    assert "native=no (llvmlite does not work here" in python(print_nothing)


def test_the_minimal_distribution_is_the_same_with_fewer_requirements() -> None:
    full = tomllib.loads((ROOT / "pyproject.toml").read_text())
    minimal = tomllib.loads((ROOT / "packaging" / "minimal" / "pyproject.toml").read_text())
    for table in ("license", "requires-python", "scripts"):
        assert minimal["project"][table] == full["project"][table]
    data = minimal["tool"]["setuptools"]["package-data"]
    assert data == full["tool"]["setuptools"]["package-data"]
    optional = [one for extra in minimal["project"]["optional-dependencies"].values() for one in extra]
    required = full["project"]["dependencies"] + [
        one for extra in ("image", "openvino") for one in full["project"]["optional-dependencies"][extra]
    ]
    assert sorted([*minimal["project"]["dependencies"], *optional]) == sorted(required)
    assert not [one for one in minimal["project"]["dependencies"] if one.startswith(("onnx", "protobuf", "llvmlite"))]
    assert (ROOT / "LICENSE").read_text() == (ROOT / "packaging" / "minimal" / "LICENSE").read_text()
