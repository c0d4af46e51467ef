"""Whatever goes wrong with a model's content inside, users see errors of ours: a fault of each stage is put in, and looked for outside."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx import errors, ops
from sardonyx.compiler.cache import ObjectCache
from sardonyx.compiler.jit import host
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.ops import table
from sardonyx.optimizer import levels
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.provider import NativeExecutionProvider
from sardonyx.runtime.api import raw_session
from sardonyx.runtime.execution import engine
from tests.runtime.models import parsed

X = np.arange(6, dtype=np.float32).reshape(2, 3)
MODEL = parsed("g (float[N,3] x) => (float[N,3] y) { [early] t = Abs(x) [late] y = HardSwish(t) }")
FAULTS = [TypeError, ZeroDivisionError, ValueError, OverflowError, KeyError, IndexError, AttributeError, RecursionError]
FAULTS += [AssertionError, MemoryError, RuntimeError, OSError]


@pytest.fixture(params=FAULTS, ids=lambda kind: kind.__name__)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that raises, in a process that is not strict."""
    monkeypatch.delenv(errors.STRICT)

    def fail(*arguments: Any, **keywords: Any) -> Any:
        raise request.param("put in by a test")

    fail.kind = request.param  # type: ignore[attr-defined]
    return fail


def session(native: str = "0", model: Any = MODEL) -> sardonyx.InferenceSession:
    options = sardonyx.SessionOptions()
    options.log_severity_level = 4
    providers = [("CPUExecutionProvider", {"native": native})]
    return sardonyx.InferenceSession(model, options, providers=providers, enable_fallback=False)


def assert_told(error: Any, fault: Any, *words: str) -> None:
    assert all(word in str(error.value) for word in ("put in by a test", fault.kind.__name__, *words))
    assert isinstance(error.value.__cause__, fault.kind)


def put_in(monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]) -> None:
    """Let a function stand in for the inference of HardSwish."""
    ops.load_families()
    monkeypatch.setitem(table.inferences._entries, ("", "HardSwish"), [])
    table.infer("HardSwish")(function)


def test_type_inference_names_the_node(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put_in(monkeypatch, fault)
    with pytest.raises(errors.RuntimeException) as caught:
        session()
    assert_told(caught, fault, "HardSwish 'late'")


def test_binding_a_kernel_names_the_node(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sardonyx.providers import kernel_search

    monkeypatch.setattr(kernel_search, "bind", fault)
    with pytest.raises(errors.RuntimeException) as caught:
        session()
    assert_told(caught, fault, "Abs 'early'")


def test_a_kernel_names_the_node(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    step = made._engine.plan.steps[-1]
    monkeypatch.setattr(type(step.call), "__call__", fault)
    with pytest.raises(errors.Fail) as caught:
        made.run(None, {"x": X})
    assert_told(caught, fault, "Abs 'early'")


@pytest.mark.parametrize("method", ["_first_obstacle", "_compiled"])
def test_what_native_code_cannot_do_numpy_does(fault: Any, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = session("0").run(None, {"x": X})[0]
    monkeypatch.setattr(NativeExecutionProvider, method, fault)
    np.testing.assert_array_equal(session("1").run(None, {"x": X})[0], wanted)


def test_a_stage_of_the_optimizer_is_left_out(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sardonyx.optimizer import pipeline

    monkeypatch.setattr(pipeline, "_run_pass", fault)
    monkeypatch.setattr(pipeline, "apply_rules", fault)
    assert levels.LEVELS
    np.testing.assert_allclose(session().run(None, {"x": X})[0], X * np.clip(X / 6 + 0.5, 0, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("place", "stage"),
    [(raw_session, "load_model"), (raw_session, "Originals"), (sardonyx.SessionOptions, "_knows_custom_ops")],
)
def test_everything_else_says_what_was_being_done(fault: Any, place: Any, stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, stage, fault)
    with pytest.raises(errors.RuntimeException) as caught:
        session()
    assert_told(caught, fault, "while the model is")


def test_providers_of_others_too(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPUExecutionProvider, "get_capability", fault)
    with pytest.raises(errors.RuntimeException) as caught:
        session()
    assert_told(caught, fault)


def test_what_follows_the_steps_of_a_run(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session()
    monkeypatch.setattr(engine, "release", fault)
    with pytest.raises(errors.RuntimeException) as caught:
        made.run(None, {"x": X})
    assert_told(caught, fault, "while the model runs")


def test_the_direct_way_leaves_failures_to_the_ordinary_one(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made = session("1")
    expected = made.run(None, {"x": X})[0]
    direct = made._engine.direct
    assert direct is not None and direct.program is not None
    monkeypatch.setattr(type(direct), "_are_right", fault)
    direct.program = fault
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], expected)


def test_a_strict_process_sees_faults_as_they_are_with_the_node_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(X: Any) -> Any:
        raise KeyError("as it is")

    assert errors.is_strict()
    put_in(monkeypatch, fail)
    with pytest.raises(KeyError) as caught:
        session()
    assert any("HardSwish 'late'" in note for note in caught.value.__notes__)


# --- settings and the environment


@pytest.mark.parametrize("text", ["abc", "1e9", "-1", "²", " 5"])
def test_a_limit_of_the_cache_that_is_no_number_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_BYTES", text)
    with pytest.raises(errors.InvalidArgument, match="SARDONYX_CACHE_BYTES must be a number of bytes"):
        ObjectCache(None)


def test_an_empty_limit_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = ObjectCache(None).max_bytes
    monkeypatch.setenv("SARDONYX_CACHE_BYTES", "")
    assert ObjectCache(None).max_bytes == usual


PROGRAM = """
import sys, numpy, sardonyx
try:
    session = sardonyx.InferenceSession(sys.argv[1])
    print("y =", session.run(None, {"x": numpy.ones((2, 3), numpy.float32)})[0].sum())
except sardonyx.errors.InvalidArgument as error:
    print("refused:", error)
"""


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SARDONYX_CACHE_BYTES", "abc", "refused:"),
        ("SARDONYX_CPU", "", "y = 4.0"),
        ("SARDONYX_CACHE_DIR", "{file}", "y = 4.0"),
        ("SARDONYX_CACHE_DIR", "{file}/below", "y = 4.0"),
        ("SARDONYX_CACHE_DIR", "/proc/nowhere", "y = 4.0"),
        ("ORT_LOAD_CONFIG_FROM_MODEL", "abc", "y = 4.0"),
    ],
)
def test_an_environment_that_makes_no_sense(name: str, value: str, said: str, tmp_path: Path) -> None:
    import os

    model, file = tmp_path / "model.onnx", tmp_path / "file"
    model.write_bytes(MODEL)
    file.write_bytes(b"")
    surroundings = os.environ | {name: value.format(file=file)}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(model)], env=surroundings, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout


@pytest.mark.skipif(host().name not in X86_LEVELS, reason="the levels are of x86")
@pytest.mark.parametrize("level", ["foo", "AVX2", "avx2,avx512"])
def test_a_level_of_cpu_that_there_is_not_is_refused(level: str, tmp_path: Path) -> None:
    ended = _run_with_level(level, tmp_path)
    assert f"SARDONYX_CPU must be one of sse2, avx2, avx512, avx512vnni, not {level!r}" in ended.stdout, ended.stderr
    assert "llvmlite" not in ended.stderr


@pytest.mark.skipif(host().name not in ("sse2", "avx2"), reason="this CPU has every level")
def test_a_level_that_this_cpu_lacks_is_refused(tmp_path: Path) -> None:
    assert "SARDONYX_CPU must be a level that this CPU has" in _run_with_level("avx512", tmp_path).stdout


def test_build_information_says_that_the_level_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise errors.InvalidArgument("no such level")

    monkeypatch.setattr("sardonyx.compiler.jit.description", refuse)
    assert "native=no (" in sardonyx.get_build_info() and "no such level" in sardonyx.get_build_info()


def _run_with_level(level: str, folder: Path) -> subprocess.CompletedProcess[str]:
    import os

    model = folder / "model.onnx"
    model.write_bytes(MODEL)
    surroundings = os.environ | {"SARDONYX_CPU": level}
    return subprocess.run([sys.executable, "-c", PROGRAM, str(model)], env=surroundings, capture_output=True, text=True)


SETTINGS = [
    ("session.optimized_model_external_initializers_min_size_in_bytes", "abc"),
    ("session.optimized_model_external_initializers_min_size_in_bytes", "-1"),
    ("session.optimized_model_external_initializers_file_name", "a\0b"),
    ("optimization.constant_folding_max_output_size_in_bytes", "abc"),
    ("session.model_external_initializers_file_folder_path", "\0"),
    ("session.winograd", "abc"),
    ("sardonyx.accuracy", "abc"),
    ("ep.context_embed_mode", "abc"),
]


@pytest.mark.parametrize(("key", "value"), SETTINGS)
def test_a_setting_that_makes_no_sense_is_refused(key: str, value: str, tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    options.add_session_config_entry("ep.context_enable", "1" if key.startswith("ep.") else "0")
    with pytest.raises(errors.CODED):
        options.add_session_config_entry(key, value)
        sardonyx.InferenceSession(MODEL, options, enable_fallback=False)


@pytest.mark.parametrize("path", ["/nowhere/saved.onnx", "a\0b.onnx", "a\0b.ort", "/"])
def test_a_place_where_no_model_can_be_saved_is_refused(path: str) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = path
    with pytest.raises((errors.InvalidArgument, errors.Fail)):
        sardonyx.InferenceSession(MODEL, options, enable_fallback=False)


def test_a_profile_that_cannot_be_written_is_said_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    options = sardonyx.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, "a\0b"
    sardonyx.InferenceSession(MODEL, options).end_profiling()
    assert "The profile cannot be written" in caplog.text


@pytest.mark.parametrize("number", ["abc", "-1", "²", "1e3", ""])
def test_a_provider_option_that_is_no_number_is_refused(number: str) -> None:
    providers = [("CPUExecutionProvider", {"max_constant_bytes": number})]
    with pytest.raises(errors.InvalidArgument, match="max_constant_bytes must be a number"):
        sardonyx.InferenceSession(MODEL, providers=providers, enable_fallback=False)


@pytest.mark.parametrize("source", ["no\0file.onnx", "/nowhere/model.onnx", "/"])
def test_a_path_without_a_model_is_refused(source: str) -> None:
    with pytest.raises(errors.CODED):
        sardonyx.InferenceSession(source, enable_fallback=False)


# --- arguments: the exceptions that onnxruntime raises, or errors of ours


def compiler(ort: Any, **keywords: Any) -> Any:
    return ort.ModelCompiler(ort.SessionOptions(), MODEL, **keywords)


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "a shape beyond all memory": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([2**40, 2**40], np.float32),
    "a type that is none": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([1], "nothing"),
    "a number that is no type": lambda ort: ort.OrtValue.ortvalue_from_shape_and_type([1], 999),
    "no device": lambda ort: ort.SessionOptions().add_provider_for_devices([3], {}),
    "a level that is a number": lambda ort: setattr(ort.SessionOptions(), "graph_optimization_level", 7),
    "a number of threads that is text": lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", "a"),
    "an initializer that is an array": lambda ort: ort.SessionOptions().add_initializer("w", X),
    "a threshold that is text": lambda ort: compiler(ort, external_initializers_size_threshold="a"),
    "a writer that fails": lambda ort: compiler(ort).compile_to_stream(lambda data: 1 // 0),
    "a folder to compile to": lambda ort: compiler(ort).compile_to_file("/"),
    "no model": lambda ort: ort.InferenceSession(None),
    "no options": lambda ort: ort.InferenceSession(MODEL, 3),
}


@pytest.mark.parametrize("label", ARGUMENTS)
def test_a_wrong_argument_raises_what_it_raises_in_onnxruntime(label: str) -> None:
    import onnxruntime

    with pytest.raises(Exception) as theirs:
        ARGUMENTS[label](onnxruntime)
    with pytest.raises(Exception) as ours:
        ARGUMENTS[label](sardonyx)
    assert type(ours.value).__name__ == type(theirs.value).__name__


def test_a_name_with_a_nul_in_it_is_refused_when_compiling() -> None:
    with pytest.raises(errors.InvalidArgument, match="is no name of a file"):
        compiler(sardonyx).compile_to_file("a\0b.onnx")


def test_bytes_that_are_no_text_are_taken_as_onnxruntime_takes_them() -> None:
    options = sardonyx.SessionOptions()
    options.logid = b"\xff"  # type: ignore[assignment]
    sardonyx.InferenceSession(MODEL, options)
