"""Packed weights as users meet them: shared between sessions, saved with a model, taken from there, let go of, switched off."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx import formats
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.ir import Tensor
from sardonyx.providers import prepacking
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.preparation.plan import all_steps

SIZE = 64
EXTERNAL = "session.optimized_model_external_initializers_file_name"
SMALLEST = "session.optimized_model_external_initializers_min_size_in_bytes"
PACKED = "session.save_external_prepacked_constant_initializers"
DISABLED = "session.disable_prepacking"


def weights(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32) / 8


def made(nodes: list[Any], constants: Mapping[str, np.ndarray], shape: list[Any], inputs: tuple[Any, ...] = ()) -> bytes:
    """A model with one float input x and one output y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape), *inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


LAYERS = made(
    [
        helper.make_node("MatMul", ["x", "a"], ["t"]),
        helper.make_node("Relu", ["t"], ["u"]),
        helper.make_node("Gemm", ["u", "b", "c"], ["y"], transB=1),
    ],
    {"a": weights(0, SIZE, SIZE), "b": weights(1, SIZE, SIZE), "c": weights(2, SIZE)},
    ["N", SIZE],
)
X = {"x": weights(3, 5, SIZE)}


def run(session: Any, feeds: Mapping[str, np.ndarray] = X) -> np.ndarray:
    result: np.ndarray = session.run(None, feeds)[0]
    return result


def counts(session: Any) -> tuple[int, int, int]:
    """Packed, shared, loaded."""
    found = session.prepacking_counts()
    return found.packed, found.shared, found.loaded


def options(**entries: str) -> sardonyx.SessionOptions:
    found = sardonyx.SessionOptions()
    for key, value in entries.items():
        found.add_session_config_entry(key, value)
    return found


def saved(model: Any, folder: Path, **entries: str) -> Path:
    """The model, optimized, with packed weights beside its own."""
    given = options(**{EXTERNAL: "saved.bin", PACKED: "1", **entries})
    given.optimized_model_filepath = str(folder / "saved.onnx")
    sardonyx.InferenceSession(model, given)
    return folder / "saved.onnx"


def entries(path: Path) -> dict[str, dict[str, str]]:
    """What the model's file says about external data, by initializer."""
    proto = onnx.load_model(path, load_external_data=False)
    return {tensor.name: {entry.key: entry.value for entry in tensor.external_data} for tensor in proto.graph.initializer}


def edit(path: Path, change: Any) -> None:
    """Let `change` turn each entry about packed weights into another."""
    proto = onnx.load_model(path, load_external_data=False)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            if entry.key.startswith("prepacked"):
                entry.value = change(entry.value)
    path.write_bytes(proto.SerializeToString())


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """The warnings about stored weights so far."""
    with caplog.at_level(logging.INFO, logger="sardonyx"):
        yield lambda: [one.message for one in caplog.records if "acked weights" in one.message]


# --- within a session


def test_a_session_packs_its_weights() -> None:
    session = sardonyx.InferenceSession(LAYERS)
    assert counts(session) == (2, 0, 0)


def test_equal_weights_are_packed_once() -> None:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["y"])]
    same = weights(0, SIZE, SIZE)
    session = sardonyx.InferenceSession(made(nodes, {"a": same, "b": same.copy()}, ["N", SIZE]))
    assert counts(session) == (1, 1, 0)
    np.testing.assert_allclose(run(session), X["x"] @ same @ same, rtol=1e-5, atol=1e-5)


def test_weights_that_differ_in_one_element_are_not_equal() -> None:
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["y"])]
    first = weights(0, SIZE, SIZE)
    second = first.copy()
    second[SIZE // 8, 7] += 1  # no place that a sample looks at
    session = sardonyx.InferenceSession(made(nodes, {"a": first, "b": second}, ["N", SIZE]))
    assert counts(session) == (2, 0, 0)
    np.testing.assert_allclose(run(session), X["x"] @ first @ second, rtol=1e-5, atol=1e-5)


def test_branches_share_the_weights_around_them() -> None:
    def branch(name: str, op: str) -> Any:
        nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node(op, ["t"], ["y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("then", "Relu"), else_branch=branch("else", "Neg"))
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    model = made([node], {"a": weights(0, SIZE, SIZE)}, ["N", SIZE], (condition,))
    session = sardonyx.InferenceSession(model)
    assert counts(session) == (1, 1, 0)
    product = X["x"] @ weights(0, SIZE, SIZE)
    np.testing.assert_allclose(run(session, {**X, "c": np.array(False)}), -product, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(session, {**X, "c": np.array(True)}), np.maximum(product, 0), rtol=1e-5, atol=1e-5)


# --- between sessions


def test_without_a_container_each_session_packs_for_itself() -> None:
    sessions = [sardonyx.InferenceSession(LAYERS) for _ in range(2)]
    assert [counts(one) for one in sessions] == [(2, 0, 0), (2, 0, 0)]


@pytest.mark.parametrize("as_file", [True, False])
def test_sessions_with_one_container_pack_once(tmp_path: Path, as_file: bool) -> None:
    model: Any = LAYERS
    if as_file:
        model = str(tmp_path / "m.onnx")
        Path(model).write_bytes(LAYERS)
    container = sardonyx.PrepackedWeightsContainer()
    first, second = (sardonyx.InferenceSession(model, prepacked_weights_container=container) for _ in range(2))
    assert counts(first) == (2, 0, 0)
    assert counts(second) == (0, 2, 0)
    assert len(container) == 2 and container.nbytes >= 2 * 4 * SIZE * SIZE
    del first
    np.testing.assert_array_equal(run(second), run(sardonyx.InferenceSession(LAYERS)))


def test_programs_of_two_sessions_have_the_same_memory() -> None:
    container = sardonyx.PrepackedWeightsContainer()
    sessions = [sardonyx.InferenceSession(LAYERS, prepacked_weights_container=container) for _ in range(2)]
    first, second = ({buffer.array.ctypes.data for buffer in program_of(one).constants} for one in sessions)
    assert len(first & second) == 2


def program_of(session: Any) -> Any:
    (program,) = (step.call.program for step in all_steps(session._engine.plan) if isinstance(step.call, CompiledProgram))
    return program


def test_a_file_that_was_written_anew_is_packed_anew(tmp_path: Path) -> None:
    path, container = tmp_path / "m.onnx", sardonyx.PrepackedWeightsContainer()
    for seed in range(2):
        node = helper.make_node("MatMul", ["x", "a"], ["y"])
        path.write_bytes(made([node], {"a": weights(seed, SIZE, SIZE)}, ["N", SIZE]))
        session = sardonyx.InferenceSession(str(path), prepacked_weights_container=container)
        assert counts(session) == (1, 0, 0)
        np.testing.assert_allclose(run(session), X["x"] @ weights(seed, SIZE, SIZE), rtol=1e-5, atol=1e-5)


def test_weights_that_users_supply_are_shared() -> None:
    value = sardonyx.OrtValue.ortvalue_from_numpy(weights(9, SIZE, SIZE))
    container = sardonyx.PrepackedWeightsContainer()
    sessions = []
    for _ in range(2):
        given = sardonyx.SessionOptions()
        given.add_initializer("a", value)
        sessions.append(sardonyx.InferenceSession(LAYERS, given, prepacked_weights_container=container))
    assert [counts(one) for one in sessions] == [(2, 0, 0), (0, 2, 0)]
    wanted = np.maximum(X["x"] @ weights(9, SIZE, SIZE), 0) @ weights(1, SIZE, SIZE).T + weights(2, SIZE)
    for session in sessions:
        np.testing.assert_allclose(run(session), wanted, rtol=1e-5, atol=1e-5)


def test_supplied_weights_that_change_are_packed_anew() -> None:
    value = sardonyx.OrtValue.ortvalue_from_numpy(weights(9, SIZE, SIZE))
    container = sardonyx.PrepackedWeightsContainer()
    found = []
    for seed in (9, 10):
        value.update_inplace(weights(seed, SIZE, SIZE))
        given = sardonyx.SessionOptions()
        given.add_initializer("a", value)
        session = sardonyx.InferenceSession(LAYERS, given, prepacked_weights_container=container)
        found.append(counts(session))
    assert found == [(2, 0, 0), (1, 1, 0)]


def test_external_weights_that_users_supply_are_shared(tmp_path: Path) -> None:
    path = saved(LAYERS, tmp_path)
    value = sardonyx.OrtValue.ortvalue_from_numpy(weights(0, SIZE, SIZE))
    container = sardonyx.PrepackedWeightsContainer()
    found = []
    for _ in range(2):
        given = sardonyx.SessionOptions()
        given.add_external_initializers(["a"], [value])
        session = sardonyx.InferenceSession(str(path), given, prepacked_weights_container=container)
        found.append(counts(session))
        np.testing.assert_allclose(run(session), run(sardonyx.InferenceSession(LAYERS)), rtol=1e-6)
    assert found == [(1, 0, 1), (0, 2, 0)]


def test_many_threads_may_fill_one_container() -> None:
    container = sardonyx.PrepackedWeightsContainer()
    sessions: list[Any] = []

    def make() -> None:
        sessions.append(sardonyx.InferenceSession(LAYERS, prepacked_weights_container=container))

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts(one)[0] for one in sessions) == 2 and len(container) == 2
    wanted = run(sardonyx.InferenceSession(LAYERS))
    for session in sessions:
        np.testing.assert_array_equal(run(session), wanted)


def test_tables_of_trees_are_shared() -> None:
    count = 300
    node = helper.make_node(
        *("TreeEnsembleRegressor", ["x"], ["y"]),
        domain="ai.onnx.ml",
        n_targets=1,
        nodes_treeids=[tree for tree in range(count) for _ in range(3)],
        nodes_nodeids=[0, 1, 2] * count,
        nodes_featureids=[0] * (3 * count),
        nodes_values=[0.5, 0.0, 0.0] * count,
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"] * count,
        nodes_truenodeids=[1, 0, 0] * count,
        nodes_falsenodeids=[2, 0, 0] * count,
        target_treeids=[tree for tree in range(count) for _ in range(2)],
        target_nodeids=[1, 2] * count,
        target_ids=[0] * (2 * count),
        target_weights=[1.0, 2.0] * count,
    )
    model = onnx.load_model_from_string(made([node], {}, ["N", 4]))
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    container = sardonyx.PrepackedWeightsContainer()
    sessions = [sardonyx.InferenceSession(model.SerializeToString(), prepacked_weights_container=container) for _ in range(2)]
    first, second = ({buffer.array.ctypes.data for buffer in program_of(one).constants} for one in sessions)
    assert first & second
    assert float(run(sessions[1], {"x": np.zeros((1, 4), np.float32)})[0, 0]) == count


def test_a_container_must_be_one() -> None:
    with pytest.raises(TypeError, match="prepacked_weights_container"):
        sardonyx.InferenceSession(LAYERS, prepacked_weights_container={})  # type: ignore[arg-type]


def test_a_session_with_a_container_can_be_pickled() -> None:
    container = sardonyx.PrepackedWeightsContainer()
    session = sardonyx.InferenceSession(LAYERS, prepacked_weights_container=container)
    np.testing.assert_array_equal(run(pickle.loads(pickle.dumps(session))), run(session))
    assert len(pickle.loads(pickle.dumps(container))) == 0


def test_other_providers_keep_the_container() -> None:
    container = sardonyx.PrepackedWeightsContainer()
    session = sardonyx.InferenceSession(LAYERS, prepacked_weights_container=container)
    session.set_providers(["CPUExecutionProvider"])
    assert counts(session) == (0, 2, 0)


# --- switched off


def test_nothing_is_packed_if_that_is_disabled() -> None:
    session = sardonyx.InferenceSession(LAYERS, options(**{DISABLED: "1"}))
    assert counts(session) == (0, 0, 0)
    assert any(isinstance(step.call, CompiledProgram) for step in all_steps(session._engine.plan))
    np.testing.assert_allclose(run(session), run(sardonyx.InferenceSession(LAYERS)), rtol=1e-5, atol=1e-6)


def test_nothing_is_saved_if_packing_is_disabled(tmp_path: Path) -> None:
    path = saved(LAYERS, tmp_path, **{DISABLED: "1"})
    assert not any(key.startswith("prepacked") for found in entries(path).values() for key in found)


def test_stored_weights_are_not_used_if_packing_is_disabled(tmp_path: Path, warnings: Any) -> None:
    session = sardonyx.InferenceSession(str(saved(LAYERS, tmp_path)), options(**{DISABLED: "1"}))
    assert counts(session) == (0, 0, 0) and not warnings()


# --- saved


def test_saved_weights_are_not_packed_again(tmp_path: Path, warnings: Any) -> None:
    session = sardonyx.InferenceSession(str(saved(LAYERS, tmp_path)))
    assert counts(session) == (0, 0, 2)
    np.testing.assert_array_equal(run(session), run(sardonyx.InferenceSession(LAYERS)))
    assert not warnings()


def test_what_is_saved_says_for_what_it_is_good(tmp_path: Path) -> None:
    found = entries(saved(LAYERS, tmp_path))
    key, *buffers = found["a"]["prepacked_0"].split("|")
    form, layout, features, _ = key.split(":")
    assert (form, layout) == ("sardonyx-1", "panels-1") and features in (*X86_LEVELS, "neon", "generic")
    ((offset, length, checksum),) = (buffer.split(";") for buffer in buffers)
    assert int(offset) + int(length) <= (tmp_path / "saved.bin").stat().st_size and len(checksum) == 32
    assert "prepacked_0" in found["b"] and not found["c"]


def test_without_a_file_for_weights_nothing_is_added(tmp_path: Path) -> None:
    path = saved(LAYERS, tmp_path, **{EXTERNAL: ""})
    assert not any(entries(path).values()) and counts(sardonyx.InferenceSession(str(path))) == (2, 0, 0)


def test_small_weights_stay_in_the_model_and_are_packed_anew(tmp_path: Path) -> None:
    path = saved(LAYERS, tmp_path, **{SMALLEST: str(1 << 20)})
    assert counts(sardonyx.InferenceSession(str(path))) == (2, 0, 0)


def test_a_model_with_stored_weights_can_be_saved_again(tmp_path: Path) -> None:
    first = saved(LAYERS, tmp_path)
    (tmp_path / "again").mkdir()
    again = saved(str(first), tmp_path / "again")
    assert counts(sardonyx.InferenceSession(str(again))) == (0, 0, 2)
    plain = options(**{EXTERNAL: "plain.bin"})
    plain.optimized_model_filepath = str(tmp_path / "plain.onnx")
    sardonyx.InferenceSession(str(first), plain)
    assert counts(sardonyx.InferenceSession(str(tmp_path / "plain.onnx"))) == (2, 0, 0)


def test_stored_weights_of_large_files_are_known_by_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats.mapping, "READ_BELOW", 0)
    monkeypatch.setattr(prepacking, "WORTH_A_THREAD", 0)
    session = sardonyx.InferenceSession(str(saved(LAYERS, tmp_path)))
    assert counts(session) == (0, 0, 2)
    places = [formats.mapping.place_of(buffer.array) for buffer in program_of(session).constants]
    assert len([place for place in places if place is not None]) == 2
    np.testing.assert_array_equal(run(session), run(sardonyx.InferenceSession(LAYERS)))


def test_stored_weights_are_shared_through_a_container(tmp_path: Path) -> None:
    path, container = str(saved(LAYERS, tmp_path)), sardonyx.PrepackedWeightsContainer()
    sessions = [sardonyx.InferenceSession(path, prepacked_weights_container=container) for _ in range(2)]
    assert [counts(one) for one in sessions] == [(0, 0, 2), (0, 2, 0)]


def test_the_original_loads_what_we_save(tmp_path: Path) -> None:
    session = onnxruntime.InferenceSession(str(saved(LAYERS, tmp_path)), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(run(session), run(sardonyx.InferenceSession(LAYERS)), rtol=1e-5, atol=1e-6)


def test_weights_that_the_original_packed_are_passed_over(tmp_path: Path, warnings: Any) -> None:
    given = onnxruntime.SessionOptions()
    given.log_severity_level = 3
    given.optimized_model_filepath = str(tmp_path / "theirs.onnx")
    given.add_session_config_entry(EXTERNAL, "theirs.bin")
    given.add_session_config_entry(PACKED, "1")
    onnxruntime.InferenceSession(LAYERS, given, providers=["CPUExecutionProvider"])
    assert "prepacked_0" in entries(tmp_path / "theirs.onnx")["a"]
    session = sardonyx.InferenceSession(str(tmp_path / "theirs.onnx"))
    assert counts(session) == (2, 0, 0)
    np.testing.assert_allclose(run(session), run(sardonyx.InferenceSession(LAYERS)), rtol=1e-6, atol=1e-6)
    assert warnings() == ["2 packed weights that are stored with the model are another runtime's."]


def test_the_ort_format_has_no_packed_weights(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = options(**{EXTERNAL: "saved.bin", PACKED: "1"})
    given.optimized_model_filepath = str(tmp_path / "saved.ort")
    with caplog.at_level(logging.WARNING, logger="sardonyx"):
        sardonyx.InferenceSession(LAYERS, given)
    assert [one.message for one in caplog.records if PACKED in one.message]
    assert counts(sardonyx.InferenceSession(str(tmp_path / "saved.ort"))) == (2, 0, 0)


# --- stored weights that do not fit


def assert_packed_anew(path: Path, reason: str, warnings: Any, expected: np.ndarray | None = None) -> None:
    session = sardonyx.InferenceSession(str(path))
    assert counts(session) == (2, 0, 0)
    wanted = run(sardonyx.InferenceSession(LAYERS)) if expected is None else expected
    np.testing.assert_allclose(run(session), wanted, rtol=1e-5, atol=1e-5)
    (message,) = warnings()
    assert reason in message


def test_those_for_another_cpu_are_not_used(tmp_path: Path, warnings: Any) -> None:
    path = saved(LAYERS, tmp_path)
    edit(path, lambda value: ":".join([*value.split(":")[:2], "avx9", value.split(":")[3]]))
    assert_packed_anew(path, "2 for CPUs with avx9", warnings)


@pytest.mark.parametrize("change", [("panels-1", "panels-2"), ("sardonyx-1", "sardonyx-7")])
def test_those_of_another_version_are_not_used(tmp_path: Path, warnings: Any, change: tuple[str, str]) -> None:
    path = saved(LAYERS, tmp_path)
    edit(path, lambda value: value.replace(*change))
    assert_packed_anew(path, "2 of another version", warnings)


@pytest.mark.parametrize("at", [0, SIZE * SIZE * 2 + 13, SIZE * SIZE * 4 - 1])
def test_damaged_ones_are_not_used(tmp_path: Path, warnings: Any, at: int) -> None:
    path = saved(LAYERS, tmp_path)
    data = bytearray((tmp_path / "saved.bin").read_bytes())
    for name in "ab":
        data[int(entries(path)[name]["prepacked_0"].split("|")[1].split(";")[0]) + at] ^= 1
    (tmp_path / "saved.bin").write_bytes(data)
    assert_packed_anew(path, "2 damaged", warnings)


def test_those_of_other_weights_are_not_used(tmp_path: Path, warnings: Any) -> None:
    path = saved(LAYERS, tmp_path)
    data = bytearray((tmp_path / "saved.bin").read_bytes())
    for name in "ab":
        start = int(entries(path)[name]["offset"])
        data[start : start + 4 * SIZE * SIZE] = np.eye(SIZE, dtype=np.float32).tobytes()
    (tmp_path / "saved.bin").write_bytes(data)
    assert_packed_anew(path, "2 of other weights", warnings, np.maximum(X["x"], 0) + weights(2, SIZE))


@pytest.mark.parametrize("change", [lambda length: length - 4, lambda length: 0, lambda length: 1])
def test_those_of_another_size_are_not_used(tmp_path: Path, warnings: Any, change: Any) -> None:
    path = saved(LAYERS, tmp_path)

    def shorten(value: str) -> str:
        key, buffer = value.split("|")
        offset, length, checksum = buffer.split(";")
        return f"{key}|{offset};{change(int(length))};{checksum}"

    edit(path, shorten)
    assert_packed_anew(path, "2 of the wrong size", warnings)


def test_a_wrong_number_of_buffers_is_the_wrong_size(tmp_path: Path, warnings: Any) -> None:
    path = saved(LAYERS, tmp_path)
    edit(path, lambda value: f"{value}|{value.split('|')[1]}")
    assert_packed_anew(path, "2 of the wrong size", warnings)


@pytest.mark.parametrize("value", ["sardonyx-1", "", "k|", "k|1;2", "|0;4;0", "sardonyx-1:panels-1|0;4;0", "::::|0;4;0"])
def test_entries_without_sense_are_passed_over(tmp_path: Path, value: str) -> None:
    path = saved(LAYERS, tmp_path)
    edit(path, lambda _: value)
    assert counts(sardonyx.InferenceSession(str(path))) == (2, 0, 0)


@pytest.mark.parametrize(
    ("buffer", "reason"),
    [
        ("99999999;16;0", "out of bounds"),
        ("0;99999999;0", "out of bounds"),
        ("18446744073709551615;16;0", "not a number"),
        ("9999999999999999999;16;0", "out of bounds"),
        ("-5;16;0", "not a number"),
        ("a;16;0", "not a number"),
        ("0;x;0", "not a number"),
    ],
)
def test_entries_that_lead_out_of_the_file_are_refused(tmp_path: Path, buffer: str, reason: str) -> None:
    path = saved(LAYERS, tmp_path)
    edit(path, lambda value: f"{value.split('|')[0]}|{buffer}")
    with pytest.raises(Fail, match=reason):
        sardonyx.InferenceSession(str(path))


def test_a_location_outside_the_folder_is_refused_as_ever(tmp_path: Path) -> None:
    path = saved(LAYERS, tmp_path)
    proto = onnx.load_model(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../saved.bin"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(Fail, match="escapes model directory"):
        sardonyx.InferenceSession(str(path))


# --- originals


def normalized(product: Any, weight: np.ndarray, shape: list[Any]) -> bytes:
    """A product or convolution of x and w, normalized, and of that what i names."""
    return made(
        [
            product,
            helper.make_node("BatchNormalization", ["t", "s", "b", "m", "v"], ["u"]),
            helper.make_node("Gather", ["u", "i"], ["y"], axis=1),
        ],
        {"w": weight, **{name: np.abs(weights(number, 64)) + 0.5 for number, name in enumerate("sbmv")}},
        shape,
        (helper.make_tensor_value_info("i", TensorProto.INT64, [2]),),
    )


FUSED = normalized(helper.make_node("Gemm", ["x", "w"], ["t"]), weights(0, 288, 64), ["N", 288])
"""The optimizer makes the weights anew."""
SCALED = normalized(
    helper.make_node("Conv", ["x", "w"], ["t"], pads=[1, 1, 1, 1]), weights(0, 64, 32, 3, 3), ["N", 32, "H", "W"]
)
"""It says how filters are made, they are computed when they are packed."""
FED = {"x": weights(1, 2, 288), "i": np.array([0, 63])}


def filters(session: Any) -> Tensor:
    (found,) = (
        value.constant
        for value in session._engine._model.graph.initializers.values()
        if value.constant is not None and value.constant.size == 64 * 288
    )
    return found


def test_weights_that_were_packed_are_let_go_of() -> None:
    session = sardonyx.InferenceSession(FUSED)
    assert not filters(session).is_loaded
    peer = sardonyx.InferenceSession(FUSED, providers=[("CPUExecutionProvider", {"native": "0"})])
    np.testing.assert_allclose(run(session, FED), run(peer, FED), rtol=1e-4, atol=1e-5)
    assert not filters(session).is_loaded


def test_weights_that_are_needed_after_all_come_back() -> None:
    session = sardonyx.InferenceSession(FUSED)
    with pytest.raises(InvalidArgument, match="out of data bounds"):  # NumPy says what is wrong with the data
        run(session, {**FED, "i": np.array([0, 64])})
    assert filters(session).is_loaded
    assert filters(session).numpy().std() > 0


def test_weights_made_of_defaults_of_inputs_come_back_too() -> None:
    model = onnx.load_from_string(FUSED)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    session = sardonyx.InferenceSession(model)
    assert not filters(session).is_loaded
    with pytest.raises(InvalidArgument, match="out of data bounds"):
        run(session, {**FED, "i": np.array([0, 64])})
    np.testing.assert_array_equal(filters(session).numpy(), filters(sardonyx.InferenceSession(FUSED)).numpy())


def test_weights_come_back_from_the_same_model_only(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(FUSED)
    session = sardonyx.InferenceSession(str(path))
    path.write_bytes(LAYERS)
    with pytest.raises(Fail, match="has changed since it was opened"):
        filters(session).numpy()


def test_filters_that_are_made_of_others_are_never_kept(tmp_path: Path) -> None:
    image = {"x": weights(1, 1, 32, 8, 8), "i": np.array([0, 63])}
    path = tmp_path / "m.onnx"
    path.write_bytes(SCALED)
    session = sardonyx.InferenceSession(str(path))
    peer = sardonyx.InferenceSession(SCALED, providers=[("CPUExecutionProvider", {"native": "0"})])
    np.testing.assert_allclose(run(session, image), run(peer, image), rtol=1e-4, atol=1e-5)
    assert not filters(session).is_loaded
    path.write_bytes(LAYERS)  # what was read of a small file stays
    np.testing.assert_array_equal(filters(session).numpy(), filters(peer).numpy())


def test_a_model_is_saved_before_weights_are_let_go_of(tmp_path: Path) -> None:
    path = saved(FUSED, tmp_path)
    session = sardonyx.InferenceSession(str(path))
    assert counts(session) == (0, 0, 1)
    np.testing.assert_array_equal(run(session, FED), run(sardonyx.InferenceSession(FUSED), FED))


def test_inner_values_can_still_be_fetched() -> None:
    session = sardonyx.InferenceSession(FUSED)
    (inner,) = session.run(["t"], FED)
    assert inner.shape == (2, 64)


def test_weights_that_feeds_may_replace_are_packed_until_they_do() -> None:
    given = helper.make_tensor_value_info("a", TensorProto.FLOAT, [SIZE, SIZE])
    model = made([helper.make_node("MatMul", ["x", "a"], ["y"])], {"a": weights(0, SIZE, SIZE)}, ["N", SIZE], (given,))
    session = sardonyx.InferenceSession(model)
    assert counts(session) == (1, 0, 0)
    other = weights(5, SIZE, SIZE)
    np.testing.assert_allclose(run(session, {**X, "a": other}), X["x"] @ other, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(run(session), X["x"] @ weights(0, SIZE, SIZE), rtol=1e-5, atol=1e-5)
