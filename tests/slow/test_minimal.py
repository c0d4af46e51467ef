"""The minimal distribution: installed in environments of its own without onnx and protobuf, it runs models in the ORT format."""

from __future__ import annotations

import json
import os
import shutil
import venv
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

import sardonyx
from tests.minimal import Environment, Job, convert, expected_of
from tests.slow import closeness
from tests.slow.corpus import catalogue, open_session
from tests.slow.model_inputs import make_inputs, variant_count
from tests.tolerance import assert_close

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODELS = sorted((ROOT / "tests" / "models").glob("*.onnx"))
CORPUS = Path(os.environ.get("SARDONYX_CORPUS") or "nowhere").resolve()
NAMES = sorted(catalogue(CORPUS))
UNSET = pytest.mark.skipif(
    not os.environ.get("SARDONYX_CORPUS"), reason="SARDONYX_CORPUS is not set: it names a directory of models"
)
SMALL = 20_000_000
"""Models of up to so many bytes run in NumPy too, which takes its time."""

PACKAGES = {"numpy", "ml-dtypes", "flatbuffers"}
EXTRAS = {"": set(), "native": {"llvmlite"}}
INSTALLED = """
import importlib.metadata, json
print(json.dumps(sorted(found.name.lower().replace("_", "-") for found in importlib.metadata.distributions())))
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the distribution is built from; building leaves files, so not in the repository itself."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("sardonyx", "packaging"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    return folder / "packaging" / "minimal"


@pytest.fixture(scope="module", params=EXTRAS, ids=["numpy", "native"])
def environment(request: pytest.FixtureRequest, sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder: Path = tmp_path_factory.mktemp(f"minimal_{request.param}")
    venv.create(folder, with_pip=True)
    made = Environment(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"), variables={})
    wanted = f"{sources}[{request.param}]" if request.param else str(sources)
    made.start("-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted, folder=folder)
    (folder / "extra").write_text(request.param)
    return made


def extra_of(environment: Environment) -> str:
    return (environment.python.parents[1] / "extra").read_text()


def test_nothing_else_is_installed(environment: Environment) -> None:
    found = set(json.loads(environment.start("-c", INSTALLED, folder=environment.python.parent).stdout))
    assert found - {"pip", "setuptools"} == {"sardonyx-minimal"} | PACKAGES | EXTRAS[extra_of(environment)]


def test_our_models_give_what_they_give_in_the_full_environment(environment: Environment, tmp_path: Path) -> None:
    jobs: list[Job] = []
    expected: list[list[Any]] = []
    for model in MODELS:
        feeds, outputs = expected_of(model)
        for runtime in (onnxruntime, sardonyx):
            path = tmp_path / f"{model.stem}.{runtime.__name__}.ort"
            convert(runtime, model, path)
            jobs.append(Job(path, [feeds]))
            expected.append(outputs)
    report = environment.run(jobs, tmp_path)
    for job, outputs, (got,) in zip(jobs, expected, report.results, strict=True):
        assert_close(got, outputs, where=job.path.name)
    native = extra_of(environment) == "native"
    assert "onnx=no" in report.build_info and ("native=LLVM" in report.build_info) == native
    assert report.errors.count("No native code") == (not native)


@pytest.mark.parametrize("name", NAMES or [pytest.param("any", marks=UNSET)])
def test_converted_models_give_what_they_give_in_the_full_environment(
    environment: Environment, name: str, tmp_path: Path
) -> None:
    entry = catalogue(CORPUS)[name]
    path, family = CORPUS / entry["file"], entry["family"]
    if path.stat().st_size > SMALL and extra_of(environment) != "native":
        pytest.skip("large models run natively only")
    converted = tmp_path / "model.ort"
    convert(sardonyx, path, converted, optimize=True)
    session = open_session("sardonyx", path)
    declared = session.get_inputs()
    feeds = [make_inputs(declared, name.partition(".")[0], family, variant) for variant in range(variant_count(declared))]
    expected = [session.run(None, feed) for feed in feeds]
    names = [output.name for output in session.get_outputs()]
    del session
    (results,) = environment.run([Job(converted, feeds)], tmp_path).results
    shutil.rmtree(tmp_path)  # pytest keeps the folders of several runs, and models are large
    for got, outputs in zip(results, expected, strict=True):
        assert not closeness.disagreements(names, got, outputs, closeness.for_family(family))
