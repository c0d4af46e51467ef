"""Models that were prepared before: a later session is the same as a fresh one, and an entry that is not quite right is never used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import sardonyx
from sardonyx.compiler import features
from sardonyx.errors import Fail, InvalidArgument
from sardonyx.providers.native.aot import container, cpu
from sardonyx.runtime.saving import file_digests, remembered, remembered_keys
from sardonyx.startup import authors, later
from tests.patience import HANG_SECONDS
from tests.runtime.test_suppositions import BY_RATE, SIZES, TEXT, feeds

HEADER = (
    '<ir_version: 10, opset_import: ["": 21], producer_name: "me", model_version: 7, metadata_props: ["author": "somebody"]>'
)
BODIES = {
    "no names": """g (float["?", 4] x) => (float[] y) { t = Exp(x) y = Softmax<axis=1>(t) }""",
    "chain": "g (float[N, 4] x) => (float[N, 4] y) { t = Exp(x) y = Softmax<axis=1>(t) }",
    "weights": """g (float[N, 4] x) => (float[N, 3] y) <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}> {
        t = MatMul(x, w) y = Relu(t) }""",
    "numpy inside": "g (float[N, 4] x) => (float[N, 4] y) { t = Exp(x) u = RandomNormalLike<scale = 0.0>(t) s = Add(t, u) y = Tanh(s) }",
    "branches": """g (float[2, 4] x, bool c) => (float[2, 4] y) {
        y = If(c)<then_branch = a () => (float[2, 4] p) { p = Exp(x) }, else_branch = b () => (float[2, 4] q) { q = Neg(x) }> }""",
    "loop": """g (float[4] x, int64 n) => (float[4] y) { c = Constant<value = bool {1}>()
        y = Loop(n, c, x)<body = b (int64 i, bool k, float[4] v) => (bool k2, float[4] w) { k2 = Identity(k) w = Add(v, x) }> }""",
}
FEEDS: dict[str, Any] = {"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4), "c": np.array(True), "n": np.array(5)}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SARDONYX_REMEMBER", "small")
    monkeypatch.setattr(remembered, "WORTH_KEEPING", 0)
    monkeypatch.setattr(later, "DELAY", 0)
    monkeypatch.setattr(authors, "_others", set())  # which other tests of the process may have filled


def model_of(body: str) -> bytes:
    return onnx.parser.parse_model(HEADER + body).SerializeToString()


def is_remembered(session: sardonyx.InferenceSession) -> bool:
    assert session._sess is not None
    return session._sess._compiled is not None


def entries_kept(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "cache" / "models").glob("??/*"))


def feeds_for(session: sardonyx.InferenceSession) -> dict[str, np.ndarray]:
    fed = {value.name: FEEDS[value.name] for value in session.get_inputs()}
    return {name: value[0] if name == "x" and "n" in fed else value for name, value in fed.items()}


def described(session: sardonyx.InferenceSession) -> list[Any]:
    """All that a user can ask a session for before a run."""
    values = [
        (value.name, value.type, value.shape)
        for value in (*session.get_inputs(), *session.get_outputs(), *session.get_overridable_initializers())
    ]
    meta = session.get_modelmeta()
    return [values, {name: getattr(meta, name) for name in meta.__slots__}, session.get_providers(), session.explain()]


@pytest.mark.parametrize("name", BODIES)
def test_a_remembered_session_is_like_a_fresh_one(name: str) -> None:
    model = model_of(BODIES[name])
    fresh, again = sardonyx.InferenceSession(model), sardonyx.InferenceSession(model)
    assert not is_remembered(fresh) and is_remembered(again)
    assert described(fresh) == described(again)
    for ours, theirs in zip(again.run(None, feeds_for(again)), fresh.run(None, feeds_for(fresh)), strict=True):
        assert np.array_equal(ours, theirs) and ours.dtype == theirs.dtype


def test_what_the_code_does_not_take_is_computed_all_the_same() -> None:
    model = model_of(BODIES["weights"])
    sardonyx.InferenceSession(model)
    again = sardonyx.InferenceSession(model)
    assert is_remembered(again)
    with pytest.raises(InvalidArgument, match="x"):
        again.run(None, {"x": np.zeros((2, 5), np.float32)})
    (inner,) = again.run(["t"], {"x": np.ones((1, 4), np.float32)})
    assert inner.tolist() == [[22, 26, 30]]


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BODIES["chain"]))
    sardonyx.InferenceSession(path)
    moved = shutil.copy(path, tmp_path / "copy.onnx")
    assert is_remembered(sardonyx.InferenceSession(moved))
    status = path.stat()
    path.write_bytes(model_of(BODIES["chain"].replace("Exp(x)", "Abs(x)")))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    session = sardonyx.InferenceSession(path)
    assert path.stat().st_size == status.st_size and not is_remembered(session)
    x = np.array([[-1, 0, 0, 0]], np.float32)
    exponent = np.exp(np.abs(x))
    assert np.allclose(session.run(None, {"x": x})[0], exponent / exponent.sum(), atol=1e-6)


def _flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def checked_positions(content: bytes, step: int) -> list[int]:
    """Places all over an entry, but not in the zeros between its parts."""
    return [position for position in range(128, len(content), step) if content[position]]


def test_damaged_entries_are_not_used(tmp_path: Path) -> None:
    model = model_of(BODIES["weights"])
    sardonyx.InferenceSession(model)
    (path,) = entries_kept(tmp_path)
    whole = path.read_bytes()
    step = max(1, len(whole) // 40)
    damaged = [whole[:length] for length in (0, 15, 63, 64, 1024, len(whole) - 64)]
    damaged += [whole + b"\0", *(_flipped(whole, position) for position in (*range(0, 72, 5), *checked_positions(whole, step)))]
    for content in damaged:
        with pytest.raises(ValueError, match="it"):
            remembered.unpacked(memoryview(content), path.parent.name + path.name)
    path.write_bytes(damaged[-1])
    assert not is_remembered(sardonyx.InferenceSession(model))
    assert path.read_bytes() != damaged[-1] and is_remembered(sardonyx.InferenceSession(model))


def test_an_entry_under_another_name_is_not_used(tmp_path: Path) -> None:
    first, second = model_of(BODIES["chain"]), model_of(BODIES["weights"])
    sardonyx.InferenceSession(first)
    (path,) = entries_kept(tmp_path)
    sardonyx.InferenceSession(second)
    (other,) = set(entries_kept(tmp_path)) - {path}
    shutil.copy(path, other)
    assert not is_remembered(sardonyx.InferenceSession(second))


def _another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_keys, "package_digest", lambda: "another")


def _another_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SARDONYX_CPU", "sse2")


def _another_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "features_here", lambda: frozenset({"sse2"}))


def _another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)


def _foreign_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authors, "_others", {"somebody.else"})


@pytest.mark.parametrize("change", [_another_package, _another_level, _another_cpu, _another_owner, _foreign_kernels])
def test_another_machine_version_or_owner_finds_nothing(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(BODIES["chain"])
    sardonyx.InferenceSession(model)
    change(monkeypatch)
    assert not is_remembered(sardonyx.InferenceSession(model))


def test_code_for_another_cpu_is_refused_though_the_key_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(BODIES["chain"])
    sardonyx.InferenceSession(model)
    monkeypatch.setattr(cpu, "lacking", lambda features: ["something"])
    session = sardonyx.InferenceSession(model)
    assert not is_remembered(session)
    assert np.allclose(session.run(None, {"x": np.zeros((1, 4), np.float32)})[0], 0.25)


def test_links_are_not_followed(tmp_path: Path) -> None:
    model = model_of(BODIES["chain"])
    sardonyx.InferenceSession(model)
    (path,) = entries_kept(tmp_path)
    moved = path.rename(tmp_path / "elsewhere")
    path.symlink_to(moved)
    assert not is_remembered(sardonyx.InferenceSession(model))


def _with(**values: Any) -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    return options


def _configured(key: str, value: str) -> sardonyx.SessionOptions:
    options = sardonyx.SessionOptions()
    options.add_session_config_entry(key, value)
    return options


@pytest.mark.parametrize(
    "options",
    [
        _configured("sardonyx.remember", "off"),
        _configured("sardonyx.accuracy", "exact"),
        _with(graph_optimization_level=sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL),
        _with(intra_op_num_threads=1),
    ],
    ids=["off", "config", "level", "threads"],
)
def test_other_options_are_another_session(options: sardonyx.SessionOptions) -> None:
    model = model_of(BODIES["chain"])
    sardonyx.InferenceSession(model)
    assert not is_remembered(sardonyx.InferenceSession(model, options))
    wanted = options._config.entries.get("sardonyx.remember") != "off"
    assert is_remembered(sardonyx.InferenceSession(model, options)) == wanted


def test_nothing_is_kept_where_that_was_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(BODIES["chain"])
    monkeypatch.setenv("SARDONYX_REMEMBER", "off")
    sardonyx.InferenceSession(model)
    assert not entries_kept(tmp_path)
    monkeypatch.setenv("SARDONYX_REMEMBER", "sometimes")
    with pytest.raises(InvalidArgument, match="SARDONYX_REMEMBER must be one of off, small, all, not 'sometimes'"):
        sardonyx.InferenceSession(model)


def test_what_is_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "SMALL", 1000)
    sardonyx.InferenceSession(model_of(BODIES["chain"]))
    assert not entries_kept(tmp_path)


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sardonyx.InferenceSession(model_of(BODIES["chain"]))
    (first,) = entries_kept(tmp_path)
    os.utime(first, (0, 0))
    monkeypatch.setenv("SARDONYX_MODELS_BYTES", str(first.stat().st_size * 2))
    sardonyx.InferenceSession(model_of(BODIES["weights"]))
    sardonyx.InferenceSession(model_of(BODIES["loop"]))
    assert first not in entries_kept(tmp_path) and entries_kept(tmp_path)


def test_a_disk_that_refuses_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    session = sardonyx.InferenceSession(model_of(BODIES["chain"]))
    assert not entries_kept(tmp_path)
    assert np.allclose(session.run(None, {"x": np.zeros((1, 4), np.float32)})[0], 0.25)


def test_many_threads_may_remember_one_model(tmp_path: Path) -> None:
    model, failed = model_of(BODIES["weights"]), []

    def work() -> None:
        for _ in range(3):
            (y,) = sardonyx.InferenceSession(model).run(None, {"x": np.ones((1, 4), np.float32)})
            if y.tolist() != [[22, 26, 30]]:
                failed.append(y)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(entries_kept(tmp_path)) == 1
    assert is_remembered(sardonyx.InferenceSession(model))


# --- files


def save_with_external_data(path: Path, first: float) -> None:
    model = onnx.parser.parse_model(HEADER + BODIES["weights"])
    weights = np.arange(12, dtype=np.float32).reshape(4, 3) + np.float32(first)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, "w"))
    path.with_name("w.bin").unlink(missing_ok=True)  # or it would be appended to
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)


def first_number(session: sardonyx.InferenceSession) -> float:
    return session.run(None, {"x": np.eye(1, 4, dtype=np.float32)})[0][0, 0]


def test_other_files_of_a_model_are_known_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "SETTLED", 0)
    path, data = tmp_path / "m.onnx", tmp_path / "w.bin"
    save_with_external_data(path, 1)
    assert first_number(sardonyx.InferenceSession(path)) == 1
    again = sardonyx.InferenceSession(path)
    assert is_remembered(again) and first_number(again) == 1
    status = data.stat()
    save_with_external_data(path, 2)
    os.utime(data, ns=(status.st_atime_ns, status.st_mtime_ns))
    session = sardonyx.InferenceSession(path)
    assert data.stat().st_size == status.st_size and not is_remembered(session) and first_number(session) == 2
    assert is_remembered(sardonyx.InferenceSession(path))
    data.unlink()
    with pytest.raises(Exception, match="w.bin"):
        sardonyx.InferenceSession(path)


def test_other_files_that_may_be_changing_are_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_digests, "SETTLED", 1 << 62)
    save_with_external_data(tmp_path / "m.onnx", 1)
    for _ in range(2):
        assert not is_remembered(sardonyx.InferenceSession(tmp_path / "m.onnx"))


def test_a_model_that_was_replaced_while_it_was_prepared_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BODIES["chain"]))
    files_of = remembered.Place._files_of

    def late(self: remembered.Place, prepared: Any) -> Any:
        path.write_bytes(model_of(BODIES["weights"]))
        return files_of(self, prepared)

    monkeypatch.setattr(remembered.Place, "_files_of", late)
    sardonyx.InferenceSession(path)
    assert not entries_kept(tmp_path)


def test_large_entries_are_mapped_and_found_without_being_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "SMALL", 10)
    monkeypatch.setattr(remembered, "WORTH_MAPPING", 10)
    monkeypatch.setattr(file_digests, "READ_ANYWAY", 10)
    monkeypatch.setattr(file_digests, "SETTLED", 0)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BODIES["weights"]))
    assert not is_remembered(sardonyx.InferenceSession(path)) and not entries_kept(tmp_path)
    sardonyx.InferenceSession(path, _configured("sardonyx.remember", "all"))
    (entry,) = entries_kept(tmp_path)
    session = sardonyx.InferenceSession(path)
    assert is_remembered(session)
    assert session.run(None, {"x": np.ones((1, 4), np.float32)})[0].tolist() == [[22, 26, 30]]
    whole = entry.read_bytes()
    payload = whole.index(container.MAGIC)
    for position in (
        whole.index(b"partition_name"),
        payload + 20,
        payload + container.HEADER_BYTES + 40,
        whole.index(b"kernels", payload),
    ):
        entry.unlink()  # sessions map it
        entry.write_bytes(_flipped(whole, position))
        assert not is_remembered(sardonyx.InferenceSession(path))
    entry.unlink()
    entry.write_bytes(whole[:-64])
    assert not is_remembered(sardonyx.InferenceSession(path))


def test_what_is_quickly_prepared_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "WORTH_KEEPING", float("inf"))
    sardonyx.InferenceSession(model_of(BODIES["chain"]))
    assert not entries_kept(tmp_path)


def test_strings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = model_of("""g (string[N] x) => (string[N] y) <string mark = {"–"}> {
        t = StringNormalizer<case_change_action = "LOWER">(x) y = StringConcat(t, mark) }""")
    for turn in range(2):
        session = sardonyx.InferenceSession(model)
        assert is_remembered(session) == bool(turn)
        for words in (["A", "bÇ", ""], ["A"], ["half \ud800"], ["x" * 9000]):
            assert session.run(None, {"x": np.array(words, object)})[0].tolist() == [f"{word.lower()}–" for word in words]
    assert len(entries_kept(tmp_path)) == 1 and not list(tmp_path.glob("*.ort"))


def test_one_node_of_strings_is_prepared_anew(tmp_path: Path) -> None:
    """NumPy computes it sooner for a few strings, which a session of the entry could not."""
    for _ in range(2):
        session = sardonyx.InferenceSession(model_of("g (string[N] x) => (string[N] y) { y = StringConcat(x, x) }"))
        assert not is_remembered(session)
    assert not entries_kept(tmp_path)


@pytest.mark.parametrize("element", ["float", "double", "int64", "uint8"])
def test_defaults_of_inputs_are_remembered(element: str) -> None:
    """They are constants of the code until a run replaces them."""
    model = onnx.load_from_string(
        model_of(f"""g ({element}[N, 2] x) => ({element}[N, 2] y) <{element}[2] w = {{2, 3}}> {{
        a = Add(x, w) y = Add(a, a) }}""")
    )
    model.graph.input.append(onnx.helper.make_tensor_value_info("w", model.graph.initializer[0].data_type, ["two"]))
    model.graph.input[-1].type.tensor_type.shape.dim[0].Clear()
    data = model.SerializeToString()
    fresh, again = sardonyx.InferenceSession(data), sardonyx.InferenceSession(data)
    assert not is_remembered(fresh) and is_remembered(again)
    assert described(fresh) == described(again) and [value.name for value in again.get_overridable_initializers()] == ["w"]
    kind = onnx.helper.tensor_dtype_to_np_dtype(model.graph.initializer[0].data_type)
    x = np.array([[1, 2], [3, 4]], kind)
    for session in (fresh, again):
        assert session.run(None, {"x": x})[0].tolist() == [[6, 10], [10, 14]]
        assert session.run(None, {"x": x, "w": np.array([0, 1], kind)})[0].tolist() == [[2, 6], [6, 10]]
        assert session.run(None, {"x": x})[0].tolist() == [[6, 10], [10, 14]]
        with pytest.raises(InvalidArgument, match=rf"expected: \(tensor\({element}\)\)"):
            session.run(None, {"x": x, "w": np.array(["a", "b"], object)})


@pytest.mark.parametrize("text", [TEXT, BY_RATE])
def test_what_was_supposed_is_kept_and_asked_for(text: str) -> None:
    model = onnx.parser.parse_model(text).SerializeToString()
    fresh, again = sardonyx.InferenceSession(model), sardonyx.InferenceSession(model)
    assert not is_remembered(fresh) and is_remembered(again)
    assert described(fresh)[:3] == described(again)[:3]  # `explain`, behind these, numbers new nodes as they come
    supposed = [session._engine._suppositions for session in (fresh, again)]
    assert supposed[0] is not None and supposed[1] is not None and supposed[0].as_words() == supposed[1].as_words()
    for rate in (16, 8, 16):
        for size in SIZES:
            given = feeds(*size) | ({"rate": np.array(rate)} if text == BY_RATE else {})
            for one, other in zip(fresh.run(None, given), again.run(None, given), strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_model_with_plans_for_its_shapes_is_prepared_anew() -> None:
    body = """g (float[N, M] x) => (float[K] y) {
        shape = Shape(x) one = Constant<value = int64[1] {1}>() size = Gather<axis = 0>(shape, one) is = Equal(size, one) c = Squeeze(is)
        axes = Constant<value = int64[1] {1}>()
        t = If(c)<then_branch = a () => (float[N] p) { p = Squeeze(x, axes) }, else_branch = b () => (float[N, M] q) { q = Identity(x) }>
        flat = Constant<value = int64[1] {-1}>() turned = Transpose(t) f = Reshape(turned, flat) y = Exp(f) }"""
    model = model_of(body)
    for _ in range(2):
        session = sardonyx.InferenceSession(model)
        assert not is_remembered(session)
        for columns in (1, 3):
            x = np.zeros((2, columns), np.float32)
            assert session.run(None, {"x": x})[0].tolist() == [1] * (2 * columns)


def test_our_own_modules_are_not_foreign() -> None:
    loading = "from sardonyx.startup import authors; from sardonyx.ops import load_families; from sardonyx.providers.cpu.table import cpu"
    program = f"{loading}; load_families(); cpu.load_all(); print(authors.others())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "frozenset()\n"


def test_what_cannot_be_opened_is_prepared_anew(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv("SARDONYX_STRICT", "0")
    model = model_of(BODIES["chain"])
    fresh = sardonyx.InferenceSession(model)

    def refuse(*_: Any) -> Any:
        raise Fail("no such program")

    monkeypatch.setattr("sardonyx.providers.native.aot.provider.ContextExecutionProvider.compile", refuse)
    again = sardonyx.InferenceSession(model)
    assert not is_remembered(again) and "prepared anew" in caplog.text
    assert np.array_equal(again.run(None, feeds_for(again))[0], fresh.run(None, feeds_for(fresh))[0])


def test_a_program_that_is_given_a_constant_runs_in_later_sessions_too() -> None:
    body = """g (float[2] x) => (float[2] y, float[2] c, float[2] z) {
        c = Constant<value = float[2] {1, 2}>() y = Add(x, c) z = RandomNormalLike<scale = 0.0>(y) }"""
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = [sardonyx.InferenceSession(model_of(body), options).run(None, {"x": np.ones(2, np.float32)}) for _ in range(2)]
    assert [result.tolist() for result in results[0]] == [result.tolist() for result in results[1]]
    assert results[0][0].tolist() == [2, 3]


# --- first results come before


def test_an_entry_is_written_after_the_first_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    first, second = model_of(BODIES["weights"]), model_of(BODIES["chain"])
    session = sardonyx.InferenceSession(first)
    sardonyx.InferenceSession(second)
    assert not entries_kept(tmp_path)
    assert session.run(None, {"x": np.ones((1, 4), np.float32)})[0].tolist() == [[22, 26, 30]]
    assert is_remembered(sardonyx.InferenceSession(first)) and len(entries_kept(tmp_path)) == 1
    later.finish()
    assert len(entries_kept(tmp_path)) == 2
    sardonyx.InferenceSession(model_of(BODIES["loop"]), _configured("sardonyx.remember", "all"))
    assert len(entries_kept(tmp_path)) == 3


def test_a_process_that_ends_leaves_its_entry(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BODIES["weights"]))
    settings = (
        "from sardonyx.startup import later; from sardonyx.runtime.saving import remembered; remembered.WORTH_KEEPING = 0"
    )
    program = f"{settings}; later.DELAY = 1000; import sardonyx; sardonyx.InferenceSession({str(path)!r})"
    subprocess.run([sys.executable, "-c", program], check=True)
    assert len(entries_kept(tmp_path)) == 1


def test_a_model_that_is_replaced_before_it_is_written_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(later, "DELAY", HANG_SECONDS)
    path = tmp_path / "model.onnx"
    path.write_bytes(model_of(BODIES["chain"]))
    sardonyx.InferenceSession(path)
    path.write_bytes(model_of(BODIES["weights"]))
    later.finish()
    assert not entries_kept(tmp_path)
