"""Making sessions and asking them: providers and fallback, inputs and outputs, metadata, copies in other processes."""

from __future__ import annotations

import copy
import functools
import io
import multiprocessing
import os
import pickle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sardonyx
from sardonyx.errors import EPFail
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from tests.patience import HANG_SECONDS
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def assert_doubles(session: Any) -> None:
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + X)


def test_a_model_may_come_in_many_forms(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(models.DOUBLE)
    proto = onnx.load_model_from_string(models.DOUBLE)
    with path.open("rb") as file:
        for model in (str(path), path, models.DOUBLE, bytearray(models.DOUBLE), memoryview(models.DOUBLE), proto, file):
            assert_doubles(sardonyx.InferenceSession(model))
    assert_doubles(sardonyx.InferenceSession(io.BytesIO(models.DOUBLE)))


# --- providers


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_a_known_provider_that_is_not_there_is_a_warning(ort: ModuleType) -> None:
    with pytest.warns(
        UserWarning, match="Specified provider 'CUDAExecutionProvider' is not in available provider names.Available"
    ):
        session = ort.InferenceSession(models.DOUBLE, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_an_unknown_provider_falls_back_to_the_cpu(ort: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="not in available"):
        session = ort.InferenceSession(models.DOUBLE, providers=["FooExecutionProvider"])
    assert_doubles(session)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert not session._enable_fallback
    assert capfd.readouterr().out == (
        "*************** EP Error ***************\n"
        "EP Error Unknown Provider Type: FooExecutionProvider when using ['FooExecutionProvider']\n"
        "Falling back to ['CPUExecutionProvider'] and retrying.\n"
        "****************************************\n"
    )


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_without_fallback_an_unknown_provider_is_an_error(ort: ModuleType) -> None:
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: FooExecutionProvider"):
        ort.InferenceSession(models.DOUBLE, providers=["FooExecutionProvider"], enable_fallback=0)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
@pytest.mark.parametrize(
    "arguments",
    [
        {"providers": {"CPUExecutionProvider"}},
        {"providers": ["CPUExecutionProvider"], "provider_options": [{}, {}]},
        {"providers": ["CPUExecutionProvider"], "provider_options": {}},
        {"providers": [("CPUExecutionProvider", {})], "provider_options": [{}]},
        {"providers": [3]},
        {"providers": [], "provider_options": [{}]},
    ],
    ids=str,
)
def test_bad_provider_arguments_end_in_a_session_on_the_cpu(
    ort: ModuleType, arguments: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert_doubles(ort.InferenceSession(models.DOUBLE, **arguments))
    assert "EP Error" in capfd.readouterr().out


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_duplicates_are_ignored_with_a_warning(ort: ModuleType) -> None:
    with pytest.warns(UserWarning, match="Duplicate provider 'CPUExecutionProvider' encountered, ignoring."):
        session = ort.InferenceSession(models.DOUBLE, None, ["CPUExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_options_of_the_cpu_are_not_shown(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.DOUBLE, providers=[("CPUExecutionProvider", {"native": 1})])
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}


def test_one_name_instead_of_a_list_is_that_provider() -> None:
    assert sardonyx.InferenceSession(models.DOUBLE, providers="CPUExecutionProvider").get_providers() == [
        "CPUExecutionProvider"
    ]


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_set_providers_makes_the_session_anew(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.DOUBLE)
    session.set_providers()
    assert_doubles(session)
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type"):
        session.set_providers(["FooExecutionProvider"])
    session.set_providers(["CPUExecutionProvider"])
    assert_doubles(session)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_providers_in_options_give_way_to_the_argument(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.add_provider("CPUExecutionProvider", {})
    assert options.has_providers()
    assert_doubles(ort.InferenceSession(models.DOUBLE, options))
    with pytest.warns(UserWarning, match="SessionOptions has already been configured with providers"):
        ort.InferenceSession(models.DOUBLE, options, ["CPUExecutionProvider"])


class Failing(CPUExecutionProvider):
    """Takes all nodes and fails to run them."""

    name = "FailingExecutionProvider"

    def bind_kernel(self, node: Any) -> Any:
        def fail(inputs: Any) -> Any:
            raise EPFail("the device went away")

        return fail


@pytest.fixture
def failing() -> Any:
    sardonyx.register_provider(Failing.name, Failing)
    yield Failing.name
    sardonyx.unregister_provider(Failing.name)


def test_a_registered_provider_is_used_first(failing: str) -> None:
    assert sardonyx.get_available_providers()[0] == failing
    session = sardonyx.InferenceSession(models.DOUBLE, providers=[(failing, {"key": 1})])
    assert session.get_providers() == [failing, "CPUExecutionProvider"]
    assert session.get_provider_options()[failing] == {"key": "1"}


def test_a_provider_that_fails_in_a_run_is_replaced_by_the_cpu(failing: str, capfd: pytest.CaptureFixture[str]) -> None:
    session = sardonyx.InferenceSession(models.DOUBLE, providers=[failing])
    assert_doubles(session)
    assert "the device went away" in capfd.readouterr().out
    assert session.get_providers() == ["CPUExecutionProvider"]
    session = sardonyx.InferenceSession(models.DOUBLE, providers=[failing])
    session.disable_fallback()
    with pytest.raises(EPFail, match="the device went away"):
        session.run(None, {"x": X})


def test_the_cpu_may_be_forbidden() -> None:
    def use(ort: ModuleType, **arguments: Any) -> Any:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return ort.InferenceSession(models.DOUBLE, options, **arguments)

    assert_same(use)
    assert_same(lambda ort: use(ort, providers=["CPUExecutionProvider"]))


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_assignments_are_told_when_they_are_recorded(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    (subgraph,) = ort.InferenceSession(models.DOUBLE, options).get_provider_graph_assignment_info()
    assert subgraph.ep_name == "CPUExecutionProvider"
    assert [(node.name, node.domain, node.op_type) for node in subgraph.get_nodes()] == [("", "", "Add")]
    with pytest.raises(Exception, match=r"session.record_ep_graph_assignment_info' must be set to \"1\""):
        ort.InferenceSession(models.DOUBLE).get_provider_graph_assignment_info()


def test_each_node_of_the_cpu_is_a_part_of_its_own_and_constants_are_none() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) {
            w = Constant<value = float[4] {1, 2, 3, 4}>()
            a = Mul(x, w) y = Relu(a) b = Sigmoid(x) c = Add(b, w) z = Tanh(c)
        }"""
    ).SerializeToString()

    def use(ort: ModuleType) -> list[tuple[str, list[str]]]:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        parts = session.get_provider_graph_assignment_info()
        return sorted((part.ep_name, [node.op_type for node in part.get_nodes()]) for part in parts)

    assert_same(use)


# --- what a session tells


def described(ort: ModuleType, model: bytes, options: Any = None) -> list[str]:
    session = ort.InferenceSession(model, options)
    return [str(arg) for arg in (*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers())]


@pytest.mark.parametrize(
    "model",
    [
        models.DOUBLE,
        models.OVERRIDABLE,
        models.TAKE_FROM_SEQUENCE,
        models.HAS_ELEMENT,
        models.zip_map(),
        models.TO_BFLOAT16,
        models.parsed(
            "g (float[N] x) => (float[M] y, float[K] z, int64[R,Q] q) { y = Concat<axis=0>(x,x) z = Relu(x) q = NonZero(x) }"
        ),
    ],
    ids=["double", "overridable", "sequence", "optional", "maps", "bfloat16", "inferred"],
)
def test_inputs_and_outputs_are_described_alike(model: bytes) -> None:
    assert_same(lambda ort: described(ort, model))


def test_maps_are_described_alike() -> None:
    assert_same(lambda ort: [str(arg) for arg in ort.InferenceSession(models.dict_vectorizer()).get_inputs()])


def test_odd_shapes_are_described_alike() -> None:
    shapes = {"a": None, "b": [], "c": [None, "", 0, "M"], "d": [-1, 2]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(f"{name}2", TensorProto.FLOAT, None) for name in shapes]
    nodes = [helper.make_node("Identity", [name], [f"{name}2"]) for name in shapes]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    assert_same(lambda ort: described(ort, model))


def test_metadata_is_told_alike() -> None:
    model = onnx.load_model_from_string(models.DOUBLE)
    bare = model.SerializeToString()
    model.producer_name, model.domain, model.doc_string, model.model_version = "p", "d", "doc", 7
    model.graph.doc_string = "graph doc"
    helper.set_model_props(model, {"native": "1"})
    names = ["producer_name", "graph_name", "domain", "description", "graph_description", "version", "custom_metadata_map"]
    for data in (bare, model.SerializeToString()):
        assert_same(lambda ort, data=data: [getattr(ort.InferenceSession(data).get_modelmeta(), name) for name in names])


def test_attributes_that_others_read_are_there() -> None:
    session = sardonyx.InferenceSession(models.DOUBLE)
    assert session._model_path is None and session._model_bytes == models.DOUBLE
    assert session._inputs_meta is session.get_inputs() and session._outputs_meta is session.get_outputs()
    assert session._sess is not None and session._providers == session._fallback_providers == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session._sess.run(["y"], {"x": X}, None)[0], X + X)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_the_session_keeps_a_copy_of_its_options(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.logid = "first"
    session = ort.InferenceSession(models.DOUBLE, options)
    options.logid = "second"
    assert session.get_session_options().logid == "first"


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_what_only_devices_need(ort: ModuleType) -> None:
    session = ort.InferenceSession(models.DOUBLE)
    assert [info.name for info in session.get_input_memory_infos() + session.get_output_memory_infos()] == ["Cpu", "Cpu"]
    assert len(session.get_input_epdevices()) == 1
    assert session.get_tuning_results() == [] and session.set_tuning_results([]) is None
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    session.release_captured_graph(0)
    assert session.create_ortvalue_from_shape_and_type([2], np.float32, "cpu").shape() == [2]


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_raw_sessions_make_values_on_raw_devices(ort: ModuleType) -> None:
    device = ort.capi.onnxruntime_pybind11_state.OrtDevice
    raw = ort.InferenceSession(models.DOUBLE)._sess
    cpu = device(device.cpu(), 0, 0)
    assert raw.create_ortvalue_from_shape_and_type([2, 3], np.float32, cpu).shape() == [2, 3]
    assert raw.create_ortvalue_from_shape_and_onnx_type([2], TensorProto.INT64, cpu).data_type() == "tensor(int64)"
    with pytest.raises(RuntimeError, match="No session allocator found for"):
        raw.create_ortvalue_from_shape_and_type([2], np.float32, device(device.cuda(), 0, 0))
    with pytest.raises(RuntimeError):
        raw.create_ortvalue_from_shape_and_onnx_type([2], 99, cpu)
    assert raw.is_webgpu_graph_capture_enabled() is False and raw.webgpu_context_id() == -1


# --- options that change the model


def test_free_dimensions_can_be_fixed() -> None:
    model = onnx.load_model_from_string(models.DOUBLE)
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"

    def use(ort: ModuleType, method: str, name: str) -> Any:
        options = ort.SessionOptions()
        getattr(options, method)(name, 5)
        session = ort.InferenceSession(model.SerializeToString(), options)
        return [arg.shape for arg in (*session.get_inputs(), *session.get_outputs())]

    assert_same(lambda ort: use(ort, "add_free_dimension_override_by_name", "N"))
    assert_same(lambda ort: use(ort, "add_free_dimension_override_by_name", "other"))
    assert_same(lambda ort: use(ort, "add_free_dimension_override_by_denotation", "DATA_BATCH"))


def test_sizes_without_a_name_are_shown_as_onnxruntime_does() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    shapes = (["?", 3], ["-1", 3], [None, 3], ["", 3], ["*", "N"])

    def shown(ort: ModuleType, shape: Any, result: Any) -> Any:
        ends = [
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)] for name, sizes in (("x", shape), ("y", result))
        ]
        opsets = [helper.make_opsetid("", 17)]
        model = helper.make_model(helper.make_graph([relu], "g", *ends), opset_imports=opsets, ir_version=8)
        session = ort.InferenceSession(model.SerializeToString())
        return [arg.shape for arg in (*session.get_inputs(), *session.get_outputs())]

    for shape in shapes:
        for result in (shape, None, [None, None]):
            assert_same(functools.partial(shown, shape=shape, result=result))


def run_weighted(ort: ModuleType, model: bytes, configure: Any) -> Any:
    options = ort.SessionOptions()
    kept = configure(ort, options)
    result = ort.InferenceSession(model, options).run(None, {"x": np.ones(2, np.float32)})
    del kept
    return result


def value(ort: ModuleType, *numbers: float, dtype: str = "f4") -> Any:
    return ort.OrtValue.ortvalue_from_numpy(np.array(numbers, dtype))


def test_initializers_can_be_replaced() -> None:
    def replace(ort: ModuleType, options: Any) -> Any:
        kept = value(ort, 10, 20)
        options.add_initializer("w", kept)
        return kept

    assert_same(lambda ort: run_weighted(ort, models.WEIGHT, replace))


@pytest.mark.parametrize(
    ("names", "numbers", "dtype"),
    [(["w"], (10, 20), "f4"), (["w"], (10, 20, 30), "f4"), (["w"], (10, 20), "f8"), (["q"], (10, 20), "f4")],
)
def test_external_initializers_can_be_supplied(names: list[str], numbers: tuple[float, ...], dtype: str) -> None:
    def supply(ort: ModuleType, options: Any) -> Any:
        kept = value(ort, *numbers, dtype=dtype)
        options.add_external_initializers(names, [kept])
        return kept

    for ort in BOTH:
        if names == ["w"] and dtype == "f4" and len(numbers) == 2:
            np.testing.assert_array_equal(run_weighted(ort, models.external_weight(), supply)[0], [11, 21])
        else:
            with pytest.raises(Exception, match=r"Replacement tensor's d|Failed to find existing initializer with name q"):
                run_weighted(ort, models.external_weight(), supply)
    with pytest.raises(sardonyx.errors.Fail, match="non-external initializer"):
        run_weighted(sardonyx, models.WEIGHT, lambda ort, options: options.add_external_initializers(["w"], [value(ort, 1, 2)]))


@pytest.mark.parametrize(("name", "size"), [("w.bin", 8), ("w.bin", 4), ("other", 8)])
def test_external_files_can_be_supplied(name: str, size: int) -> None:
    buffer = np.array([5, 6], np.float32).tobytes()[:size]

    def supply(ort: ModuleType, options: Any) -> Any:
        options.add_external_initializers_from_files_in_memory([name], [buffer], [size])

    for ort in BOTH:
        if (name, size) == ("w.bin", 8):
            np.testing.assert_array_equal(run_weighted(ort, models.external_weight(), supply)[0], [6, 7])
        else:
            with pytest.raises(
                Exception, match=r"are out of bounds|External file: w.bin not found from the table user provided"
            ):
                run_weighted(ort, models.external_weight(), supply)


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_the_folder_of_external_data_can_be_given(ort: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(np.array([5, 6], np.float32).tobytes())
    key = "session.model_external_initializers_file_folder_path"
    configure = lambda ort, options: options.add_session_config_entry(key, str(tmp_path))  # noqa: E731
    np.testing.assert_array_equal(run_weighted(ort, models.external_weight(), configure)[0], [6, 7])


def test_the_model_as_it_runs_can_be_written(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    sardonyx.InferenceSession(models.DOUBLE, options)
    assert_doubles(sardonyx.InferenceSession(options.optimized_model_filepath))
    options.optimized_model_filepath = str(tmp_path / "no" / "such" / "folder.onnx")
    with pytest.raises(sardonyx.errors.InvalidArgument, match="SystemError : 2"):
        sardonyx.InferenceSession(models.DOUBLE, options)


def test_weights_of_the_written_model_may_go_to_another_file(tmp_path: Path) -> None:
    options = sardonyx.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "m.onnx")
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "m.bin")
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1")
    sardonyx.InferenceSession(models.WEIGHT, options)
    assert (tmp_path / "m.bin").exists()
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(sardonyx.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})[0], [2, 3])


@pytest.mark.parametrize(
    "text", ["{", '{"session_options": {"intra_op_num_threads": "a"}}', '{"session_options": {"execution_mode": 7}}']
)
def test_bad_options_inside_a_model_are_errors(
    text: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    model = onnx.load_model_from_string(models.DOUBLE)
    helper.set_model_props(model, {"ort_config": text})
    for ort in BOTH:
        with pytest.raises(RuntimeError, match=r"ort_config|must be an integer|Unsupported execution_mode value"):
            ort.InferenceSession(model.SerializeToString())


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_options_can_come_from_the_model(ort: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    model = onnx.load_model_from_string(models.DOUBLE)
    text = '{"session_options": {"intra_op_num_threads": 3, "graph_optimization_level": 1, "execution_mode": 1, "unknown": 5}}'
    helper.set_model_props(model, {"ort_config": text})
    options = ort.InferenceSession(model.SerializeToString()).get_session_options()
    assert options.intra_op_num_threads == 3
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL


@pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)
def test_loading_can_be_cancelled(ort: ModuleType) -> None:
    options = ort.SessionOptions()
    options.set_load_cancellation_flag(True)
    with pytest.raises(Exception, match="MODEL_LOAD_CANCELED.*canceled due to user request"):
        ort.InferenceSession(models.DOUBLE, options)
    options.set_load_cancellation_flag(False)
    assert_doubles(ort.InferenceSession(models.DOUBLE, options))


def test_the_format_can_be_forced() -> None:
    def use(ort: ModuleType, format: str) -> Any:
        options = ort.SessionOptions()
        options.add_session_config_entry("session.load_model_format", format)
        return ort.InferenceSession(models.DOUBLE, options).run(None, {"x": X})

    for format in ("ONNX", "other"):
        assert_same(lambda ort, format=format: use(ort, format))
    for ort in BOTH:
        with pytest.raises(Exception, match="FAIL : .*ORT model verification failed"):  # ours says why
            use(ort, "ORT")


# --- copies and other processes


def test_sessions_can_be_pickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = sardonyx.SessionOptions()
    options.logid = "mine"
    options.add_session_config_entry("a", "b")
    options.add_initializer("w", sardonyx.OrtValue.ortvalue_from_numpy(np.array([1, 1, 1], np.float32)))
    session = sardonyx.InferenceSession(models.CHAIN, options, providers=[("CPUExecutionProvider", {"native": "1"})])
    again = pickle.loads(pickle.dumps(session))
    assert again.get_session_options().logid == "mine"
    assert again.get_session_options().get_session_config_entry("a") == "b"
    assert again._requested_providers == [("CPUExecutionProvider", {"native": "1"})]
    np.testing.assert_array_equal(again.run(None, {"x": X})[0], session.run(None, {"x": X})[0])

    (tmp_path / "m.onnx").write_bytes(models.DOUBLE)
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(sardonyx.InferenceSession("m.onnx"))
    assert models.DOUBLE not in data
    monkeypatch.chdir(tmp_path.parent)
    assert_doubles(pickle.loads(data))


def test_subclasses_of_sessions_can_be_pickled() -> None:
    assert type(pickle.loads(pickle.dumps(Named(models.DOUBLE)))) is Named


class Named(sardonyx.InferenceSession):
    pass


def test_copies_share_the_engine() -> None:
    session = sardonyx.InferenceSession(models.DOUBLE)
    assert copy.copy(session)._sess is session._sess
    assert_doubles(copy.deepcopy(session))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
def test_sessions_survive_a_fork() -> None:
    session = sardonyx.InferenceSession(models.DOUBLE)
    session.run(None, {"x": X})
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=lambda: results.put(session.run(None, {"x": X})[0]))
    child.start()
    np.testing.assert_array_equal(results.get(timeout=HANG_SECONDS), X + X)
    child.join(timeout=HANG_SECONDS)
    assert child.exitcode == 0


def test_a_bare_session_says_what_it_lacks() -> None:
    from sardonyx.runtime.api.session import Session

    with pytest.raises(RuntimeError, match="has no model"):
        Session().run(None, {})
