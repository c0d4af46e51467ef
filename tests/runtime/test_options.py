"""SessionOptions, RunOptions and the enums: defaults, checks when a value is set, checks when a session is made."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import sardonyx
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

SESSION_PROPERTIES = [
    "enable_cpu_mem_arena",
    "enable_mem_pattern",
    "enable_mem_reuse",
    "enable_profiling",
    "profile_file_prefix",
    "optimized_model_filepath",
    "logid",
    "log_severity_level",
    "log_verbosity_level",
    "use_per_session_threads",
    "intra_op_num_threads",
    "inter_op_num_threads",
    "execution_mode",
    "execution_order",
    "graph_optimization_level",
    "use_deterministic_compute",
]
RUN_PROPERTIES = ["log_severity_level", "log_verbosity_level", "logid", "terminate", "only_execute_path_to_fetches"]
VALUES = [True, False, None, 0, 1, -3, 17, 2**40, 1.5, "text", b"bytes", [], Path("p"), np.int32(4), np.float32(1)]


def test_defaults_are_the_same() -> None:
    for name in SESSION_PROPERTIES:
        assert_same(lambda ort, name=name: repr(getattr(ort.SessionOptions(), name)))
    for name in RUN_PROPERTIES:
        assert_same(lambda ort, name=name: getattr(ort.RunOptions(), name))


@pytest.mark.parametrize("name", SESSION_PROPERTIES)
def test_session_options_take_the_same_values(name: str) -> None:
    for value in VALUES:
        assert_same(lambda ort, value=value: _set(ort.SessionOptions(), name, value))


@pytest.mark.parametrize("name", RUN_PROPERTIES)
def test_run_options_take_the_same_values(name: str) -> None:
    for value in VALUES:
        assert_same(lambda ort, value=value: _set(ort.RunOptions(), name, value))


def _set(options: Any, name: str, value: Any) -> Any:
    try:
        setattr(options, name, value)
    except TypeError:
        return "TypeError"  # the original's text lists the signatures of C++
    return getattr(options, name)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_unknown_attributes_are_refused(ort: ModuleType) -> None:
    for options in (ort.SessionOptions(), ort.RunOptions()):
        with pytest.raises(AttributeError, match="has no attribute 'graph_optimisation_level'"):
            options.graph_optimisation_level = 1
        with pytest.raises(AttributeError):
            options.graph_optimisation_level  # noqa: B018
        with pytest.raises(AttributeError):
            del options.logid
    with pytest.raises(TypeError):
        ort.SessionOptions(3)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_enums_are_set_by_members(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert options.execution_order == ort.ExecutionOrder.PRIORITY_BASED
    ort.InferenceSession(models.DOUBLE, options)


@pytest.mark.parametrize(
    "entry", [("a", "b"), ("", "1"), ("a" * 1024, "1"), ("a" * 1025, "1"), ("b", "1" * 8192), ("b", "1" * 8193), ("b", "")]
)
def test_config_entries(entry: tuple[str, str]) -> None:
    def session_entry(ort: ModuleType) -> str:
        options = ort.SessionOptions()
        options.add_session_config_entry(*entry)
        return options.get_session_config_entry(entry[0])

    def run_entry(ort: ModuleType) -> str:
        options = ort.RunOptions()
        options.add_run_config_entry(*entry)
        return options.get_run_config_entry(entry[0])

    assert_same(session_entry)
    assert_same(run_entry)


def test_config_entries_are_strings_and_must_be_there() -> None:
    assert_same(lambda ort: ort.SessionOptions().add_session_config_entry("a", 1))
    assert_same(lambda ort: ort.SessionOptions().get_session_config_entry("zz"))
    assert_same(lambda ort: ort.RunOptions().get_run_config_entry("zz"))


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_the_last_value_of_a_config_entry_wins(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("a", "1")
    options.add_session_config_entry("a", "2")
    assert options.get_session_config_entry("a") == "2"


def test_initializers_are_checked_when_added() -> None:
    def twice(ort: ModuleType) -> None:
        options = ort.SessionOptions()
        for _ in range(2):
            options.add_initializer("a", ort.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32)))

    assert_same(lambda ort: ort.SessionOptions().add_initializer("a", 3))
    assert_same(twice)
    assert_same(lambda ort: ort.SessionOptions().add_external_initializers(["a"], []))


def test_providers_in_options() -> None:
    assert_same(lambda ort: ort.SessionOptions().add_provider("FooExecutionProvider", {}))
    assert_same(lambda ort: ort.SessionOptions().add_provider("CUDAExecutionProvider", {}))
    assert_same(lambda ort: ort.SessionOptions().add_provider("CPUExecutionProvider", {1: 2}))
    assert_same(lambda ort: ort.SessionOptions().register_custom_ops_library("/nope.so"))


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_providers_by_device(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.add_provider_for_devices(
        [device for device in ort.get_ep_devices() if device.ep_name == "CPUExecutionProvider"], {}
    )
    assert options.has_providers()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_CPU)
    assert ort.InferenceSession(models.DOUBLE, options).get_providers() == ["CPUExecutionProvider"]


def make_with(ort: ModuleType, key: str, value: str) -> str:
    options = ort.SessionOptions()
    options.add_session_config_entry(key, value)
    ort.InferenceSession(models.DOUBLE, options)
    return "made"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("unknown.key", "1"),
        ("session.set_denormal_as_zero", "1"),
        ("session.strict_shape_type_inference", "1"),
        ("session.use_env_allocators", "1"),
        ("session.disable_prepacking", "1"),
        ("session.intra_op.allow_spinning", "0"),
        ("optimization.minimal_build_optimizations", "foo"),
        ("session.intra_op_thread_affinities", "foo"),
    ],
)
def test_config_keys_are_checked_when_a_session_is_made(key: str, value: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert_same(lambda ort: make_with(ort, key, value))


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_a_wrong_log_severity_is_refused(ort: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.log_severity_level = 17
    with pytest.raises(RuntimeError, match="Not a valid onnxruntime::logging::Severity value: 17"):
        ort.InferenceSession(models.DOUBLE, options)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_global_threads_must_exist_to_be_used(ort: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    with pytest.raises(RuntimeError, match="When the session is not configured to use per session threadpools"):
        ort.InferenceSession(models.DOUBLE, options)


def test_global_threads_bind_all_sessions() -> None:
    program = f"""
import sardonyx
sardonyx.set_global_thread_pool_sizes(1, 1)
options = sardonyx.SessionOptions()
try:
    sardonyx.InferenceSession({models.DOUBLE!r}, options)
except RuntimeError as error:
    assert "use_per_session_threads must be false" in str(error)
else:
    raise AssertionError
options.use_per_session_threads = False
sardonyx.InferenceSession({models.DOUBLE!r}, options)
try:
    sardonyx.set_global_thread_pool_sizes()
except sardonyx.errors.Fail as error:
    assert "cannot replace them" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_strict_inference_makes_a_wrong_declaration_an_error() -> None:
    model = models.parsed("g (float[N,3] x) => (float[N,4] y) { y = Add(x, x) }")
    sardonyx.InferenceSession(model)
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    with pytest.raises(sardonyx.errors.Fail):
        sardonyx.InferenceSession(model, options)


def test_options_can_be_copied_and_pickled() -> None:
    options = sardonyx.SessionOptions()
    options.intra_op_num_threads = 3
    options.add_session_config_entry("a", "b")
    options.add_free_dimension_override_by_name("N", 2)
    options.add_external_initializers_from_files_in_memory(["f"], [b"abc"], [2])
    for other in (copy.copy(options), pickle.loads(pickle.dumps(options))):
        assert other.intra_op_num_threads == 3
        assert other.get_session_config_entry("a") == "b"
        assert other._dims_by_name == {"N": 2} and bytes(other._external_files["f"]) == b"ab"
        other.add_session_config_entry("c", "d")
    with pytest.raises(RuntimeError):
        options.get_session_config_entry("c")
    run_options = sardonyx.RunOptions()
    run_options.logid = "x"
    assert pickle.loads(pickle.dumps(run_options)).logid == "x"


@pytest.mark.parametrize("device", ["cpu:0", "cpu:0;cpu:1", "foo:0", "gpu:0"])
def test_arenas_to_shrink_must_exist(device: str) -> None:
    def use(ort: ModuleType) -> Any:
        options = ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", device)
        return ort.InferenceSession(models.DOUBLE).run(None, {"x": np.ones((1, 3), np.float32)}, options)

    if device in ("cpu:0", "foo:0"):
        assert_same(use)
    elif device == "gpu:0":
        with pytest.raises(sardonyx.errors.InvalidArgument):
            use(sardonyx)


# --- enums

NAMES = [
    "GraphOptimizationLevel",
    "ExecutionMode",
    "ExecutionOrder",
    "OrtAllocatorType",
    "OrtMemType",
    "OrtMemoryInfoDeviceType",
    "OrtDeviceMemoryType",
    "OrtHardwareDeviceType",
    "OrtSparseFormat",
    "OrtExecutionProviderDevicePolicy",
    "OrtCompileApiFlags",
    "ArenaExtendStrategy",
    "OrtCompiledModelCompatibility",
    "OrtDeviceEpIncompatibilityReason",
]


def enum(ort: ModuleType, name: str) -> Any:
    return getattr(ort.capi.onnxruntime_pybind11_state, name)


@pytest.mark.parametrize("name", NAMES)
def test_enums_are_the_same(name: str) -> None:
    assert_same(lambda ort: {key: int(value) for key, value in enum(ort, name).__members__.items()})
    assert_same(lambda ort: [repr(value) for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: [str(value) for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: [value.name for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: [value == value.value for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: [hash(value) == hash(value.value) for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: [bool(value) for value in enum(ort, name).__members__.values()])
    assert_same(lambda ort: repr(enum(ort, name)(77)))
    assert_same(lambda ort: repr(pickle.loads(pickle.dumps(next(iter(enum(ort, name).__members__.values()))))))


@pytest.mark.parametrize("name", NAMES)
def test_enums_take_numbers_only(name: str) -> None:
    for ort in BOTH:
        with pytest.raises(TypeError):
            enum(ort, name)("x")


def test_flags_can_be_combined() -> None:
    flags = sardonyx.OrtCompileApiFlags
    assert flags.ERROR_IF_NO_NODES_COMPILED | flags.ERROR_IF_OUTPUT_FILE_EXISTS == 3
