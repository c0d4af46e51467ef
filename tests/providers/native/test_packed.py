"""Packed weights below sessions: the digest that knows contents, the container, what each family of ops packs and stores."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.formats import mapping
from sardonyx.formats.files import Files
from sardonyx.ir import ExternalLocation, PackedLocation, Tensor
from sardonyx.providers.native.execution import digest
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.providers.native.execution.digest import content_digest
from sardonyx.providers.prepacking import PackedFormat, PrepackedWeightsContainer, Prepacking, Request, sample
from sardonyx.runtime.preparation.plan import all_steps
from tests.providers.native.agreement import compare

# --- digests


def slow_digest(data: np.ndarray, key: bytes = b"") -> str:
    """The same as `content_digest` does, written down for NumPy."""
    sums = []
    for start in range(0, len(data), digest.PIECE_BYTES):
        piece = data[start : start + digest.PIECE_BYTES]
        rows = np.zeros(-(-len(piece) // digest.ROW_BYTES) * digest.ROW_BYTES, np.uint8)
        rows[: len(piece)] = piece
        total = digest._seeds(key).copy()
        with np.errstate(over="ignore"):
            for row in rows.view(np.uint64).reshape(-1, digest.SUMS):
                total = (total ^ row) * np.uint64(digest.FACTOR)
                total ^= total >> np.uint64(digest.SHIFT)
        sums.append(total.tobytes())
    return hashlib.blake2b(b"".join(sums) + len(data).to_bytes(8, "little"), digest_size=16, key=key).hexdigest()


def noise(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8)


@given(st.integers(0, 5000), st.integers(0, 9), st.sampled_from([b"", b"secret"]))
@settings(max_examples=50, deadline=None)
def test_the_digest_is_what_it_says(size: int, skipped: int, key: bytes) -> None:
    data = noise(size + skipped)[skipped:]
    assert content_digest(data, key) == slow_digest(data, key)


@pytest.mark.parametrize("size", [digest.PIECE_BYTES - 1, digest.PIECE_BYTES, 2 * digest.PIECE_BYTES + 300])
def test_large_arrays_are_digested_in_pieces(size: int) -> None:
    assert content_digest(noise(size)) == slow_digest(noise(size))


@given(st.integers(1, 3000), st.data())
@settings(max_examples=50, deadline=None)
def test_a_changed_bit_changes_the_digest(size: int, data: st.DataObject) -> None:
    array = noise(size)
    before = content_digest(array)
    for bit in data.draw(st.sets(st.integers(0, 8 * size - 1), min_size=1, max_size=3)):
        array[bit // 8] ^= 1 << bit % 8
    assert content_digest(array) != before


def test_two_signs_in_one_column_do_not_cancel_out() -> None:
    array = np.ones((8, digest.SUMS), np.float64)
    before = content_digest(array)
    array[2, 5], array[6, 5] = -1, -1
    assert content_digest(array) != before


def test_elements_count_in_their_order() -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert content_digest(array.T) == content_digest(array.T.copy()) != content_digest(array)
    assert content_digest(array) == content_digest(array.reshape(6, 4))


# --- requests


PAIRS = PackedFormat("pairs")


def asked(tensor: Tensor, format: PackedFormat = PAIRS, parameters: tuple[Any, ...] = (2,), features: str = "avx2") -> Request:
    return Request([tensor], format, parameters, features, [tensor.nbytes])


def turned(array: np.ndarray) -> list[np.ndarray]:
    return [np.ascontiguousarray(array[::-1])]


def tensor(seed: int = 0, size: int = 300) -> Tensor:
    return Tensor.of(np.random.default_rng(seed).standard_normal(size, np.float32))


def packed(prepacking: Prepacking, request: Request) -> np.ndarray:
    (found,) = prepacking.packed(request, turned, content_digest)
    return found


@pytest.mark.parametrize("shared", [True, False])
def test_the_same_request_is_answered_once(shared: bool) -> None:
    prepacking = Prepacking(PrepackedWeightsContainer() if shared else None)
    source = tensor()
    first = packed(prepacking, asked(source))
    np.testing.assert_array_equal(first, source.numpy()[::-1])
    assert packed(prepacking, asked(source)) is first
    assert packed(prepacking, asked(tensor())) is first, "equal content is the same"
    assert packed(prepacking, asked(tensor(1))) is not first
    assert (prepacking.counts.packed, prepacking.counts.shared) == (2, 2)


@pytest.mark.parametrize(
    "other",
    [
        lambda source: asked(source, PackedFormat("pairs", 2)),
        lambda source: asked(source, PackedFormat("triples")),
        lambda source: asked(source, parameters=(3,)),
        lambda source: asked(source, features="avx512"),
        lambda source: asked(Tensor.of(source.numpy().reshape(2, -1))),
        lambda source: asked(Tensor.of(source.numpy().view(np.int32))),
    ],
)
@pytest.mark.parametrize("shared", [True, False])
def test_all_that_matters_is_in_the_key(other: Any, shared: bool) -> None:
    prepacking = Prepacking(PrepackedWeightsContainer() if shared else None)
    source = tensor()
    first = packed(prepacking, asked(source))
    assert packed(prepacking, other(source)) is not first
    assert asked(source).stored_key() != other(source).stored_key()


def test_what_is_packed_must_have_the_size_that_was_promised() -> None:
    request = Request([tensor()], PAIRS, (), "avx2", [8])
    with pytest.raises(ValueError, match="pairs-1 was packed into"):
        packed(Prepacking(), request)


def test_a_container_survives_a_failure() -> None:
    container = PrepackedWeightsContainer()
    with pytest.raises(ZeroDivisionError):
        container.obtain(["a"], lambda: (np.zeros(1 // 0),))
    assert len(container) == 0
    assert container.obtain(["a"], lambda: (np.zeros(3),))[0].shape == (3,)
    assert container.obtain(["b", "a"], lambda: (np.zeros(4),))[0].shape == (3,)
    assert container.obtain(["b"], lambda: (np.zeros(4),))[0].shape == (3,)
    assert len(container) == 1 and container.nbytes == 24
    container.clear()
    assert len(container) == 0


def test_a_container_packs_once_for_many_threads() -> None:
    container, made = PrepackedWeightsContainer(), []

    def make() -> tuple[np.ndarray]:
        made.append(1)
        return (np.zeros(1),)

    threads = [threading.Thread(target=lambda: container.obtain(["a"], make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_weights_of_a_file_are_known_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(tensor().numpy().tobytes())

    def from_file() -> Tensor:
        data = np.frombuffer(Files().open(path).whole(), np.float32)
        return Tensor(Tensor.of(data).dtype, data.shape, lambda: data)

    container, digests = PrepackedWeightsContainer(), []

    def counting(array: np.ndarray, key: bytes) -> str:
        digests.append(array)
        return content_digest(array, key)

    found = [Prepacking(container).packed(asked(from_file()), turned, counting)[0] for _ in range(2)]
    assert found[0] is found[1] and len(digests) == 1


@given(st.integers(0, 200), st.booleans())
@settings(max_examples=40, deadline=None)
def test_samples_are_small_and_of_the_content(size: int, strided: bool) -> None:
    array = np.arange(2 * size, dtype=np.int16)[:: 2 if strided else 1]
    assert sample(array) == sample(array.copy())
    assert len(sample(array)) <= 128


def test_places_in_files(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    path.write_bytes(bytes(range(200)) * 400)
    for mapped in (True, False):
        data = np.frombuffer(Files(mapped).open(path).whole(), np.uint8)
        part = data[4001:].reshape(-1)[7:11][::2]
        identity, start = mapping.place_of(part)  # type: ignore[misc]
        assert start == 4008 and identity.size == 80000
        mapping.keep(data[5000:9000])
        mapping.give_back(data)
        mapping.give_back_pages()
        assert bytes(data[:200]) == bytes(range(200))
    assert mapping.place_of(np.zeros(3)) is None and mapping.place_of(data[:0]) is None


# --- stored weights


def stored(data: bytes, key: str, buffers: Sequence[tuple[int, int, str]], source: Tensor) -> Tensor:
    """A tensor beside whose data a file has packed weights."""
    source.external = ExternalLocation("w.bin", prepacked=(PackedLocation(key, tuple(buffers)),))
    source.beside = lambda offset, length: memoryview(data)[offset : offset + length]
    return source


def test_stored_weights_are_taken_if_they_are_whole() -> None:
    source = tensor()
    bytes_ = turned(source.numpy())[0].tobytes()
    checksum = content_digest(np.frombuffer(bytes_, np.uint8))
    prepacking = Prepacking()
    found = packed(prepacking, asked(stored(bytes_, asked(source).stored_key(), [(0, 1200, checksum)], source)))
    np.testing.assert_array_equal(found.view(np.float32), source.numpy()[::-1])
    assert found.ctypes.data % 64 == 0
    assert prepacking.counts.loaded == 1
    other = Prepacking()
    packed(other, asked(stored(bytes_, asked(source).stored_key(), [(0, 1200, "0")], source)))
    assert other.counts.packed == 1


def test_tables_with_indices_are_never_taken_from_files() -> None:
    source, trees = tensor(), PackedFormat("trees", storable=False)
    bytes_ = turned(source.numpy())[0].tobytes()
    checksum = content_digest(np.frombuffer(bytes_, np.uint8))
    prepacking = Prepacking(recording=True)
    packed(prepacking, asked(stored(bytes_, asked(source, trees).stored_key(), [(0, 1200, checksum)], source), trees))
    assert prepacking.counts.packed == 1 and prepacking.packed_weights_of(source) == []


def test_what_is_recorded_can_be_loaded() -> None:
    source, prepacking = tensor(), Prepacking(recording=True)
    packed(prepacking, asked(source))
    ((key, ((array, checksum),)),) = prepacking.packed_weights_of(source)
    assert key == asked(source).stored_key() and checksum == content_digest(array)
    assert not set(key) & set("|;")


# --- families of ops


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(math.prod(shape)).standard_normal(shape, np.float32) / 4


def model(
    op: str, shapes: Mapping[str, Sequence[Any]], constants: Sequence[np.ndarray | None], outputs: int = 1, **attributes: Any
) -> bytes:
    """One node: inputs of these shapes, then constants."""
    domain = attributes.pop("domain", "")
    names = [f"w{index}" if array is not None else "" for index, array in enumerate(constants)]
    made = [f"y{index}" for index in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op, [*shapes, *names], made, domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)) for name, shape in shapes.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in made],
        [numpy_helper.from_array(array, name) for name, array in zip(names, constants) if array is not None],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


IMAGE = {"x": ("N", 32, 12, 12)}
SEQUENCE = {"x": (7, "N", 24)}
FAMILIES = {
    "MatMul": model("MatMul", {"x": ("N", 96)}, [weights(96, 40)]),
    "large MatMul": model("MatMul", {"x": ("N", 515)}, [weights(515, 521)]),
    "batched MatMul": model("MatMul", {"x": ("N", 3, 5, 16)}, [weights(3, 16, 24)]),
    "transposed Gemm": model("Gemm", {"x": ("N", 96)}, [weights(40, 96), weights(40)], transB=1),
    "large transposed Gemm": model("Gemm", {"x": ("N", 515)}, [weights(521, 515), weights(521)], transB=1),
    "direct Conv": model("Conv", IMAGE, [weights(48, 32, 5, 5), weights(48)], pads=[2] * 4),
    "Conv without bias": model("Conv", IMAGE, [weights(48, 32, 1, 1)]),
    "grouped Conv": model("Conv", IMAGE, [weights(64, 16, 3, 3), weights(64)], group=2),
    "Winograd's Conv": model("Conv", IMAGE, [weights(64, 32, 3, 3), weights(64)], pads=[1] * 4),
    "depthwise Conv": model("Conv", IMAGE, [weights(32, 1, 3, 3), weights(32)], pads=[1] * 4, group=32),
    "Conv of few channels": model("Conv", {"x": ("N", 3, 12, 12)}, [weights(32, 3, 3, 3), weights(32)], pads=[1] * 4),
    "tiling ConvTranspose": model("ConvTranspose", IMAGE, [weights(32, 16, 2, 2), weights(16)], strides=[2, 2]),
    "ConvTranspose": model("ConvTranspose", IMAGE, [weights(32, 16, 3, 3), weights(16)], strides=[2, 2]),
    "LSTM": model("LSTM", SEQUENCE, [weights(1, 80, 24), weights(1, 80, 20), weights(1, 160)], 3, hidden_size=20),
    "LSTM with peepholes": model(
        *("LSTM", SEQUENCE),
        [weights(2, 80, 24), weights(2, 80, 20), None, None, None, None, weights(2, 60)],
        hidden_size=20,
        direction="bidirectional",
    ),
    "GRU": model("GRU", SEQUENCE, [weights(1, 60, 24), weights(1, 60, 20), weights(1, 120)], 2, hidden_size=20),
    "GRU that resets late": model(
        *("GRU", SEQUENCE), [weights(1, 60, 24), weights(1, 60, 20), weights(1, 120)], hidden_size=20, linear_before_reset=1
    ),
    "RNN": model("RNN", SEQUENCE, [weights(1, 20, 24), weights(1, 20, 20)], hidden_size=20),
    "BatchNormalization": model("BatchNormalization", IMAGE, [weights(32), weights(32), weights(32), weights(32) ** 2]),
    "Attention": model("Attention", {"x": ("N", 6, 32)}, [weights(32, 96), weights(96)], domain="com.microsoft", num_heads=4),
}


def feeds_for(session: Any) -> dict[str, np.ndarray]:
    return {one.name: weights(*(2 if isinstance(size, str) else size for size in one.shape)) for one in session.get_inputs()}


def session_of(source: Any, native: str = "1", **entries: str) -> Any:
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.optimized_model_filepath = entries.pop("path", "")
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("_", ".", 1), value)
    return sardonyx.InferenceSession(source, options, providers=[("CPUExecutionProvider", {"native": native})])


def is_native(session: Any) -> bool:
    return all(isinstance(step.call, CompiledProgram) for step in all_steps(session._engine.plan))


@pytest.mark.parametrize("name", FAMILIES)
def test_stored_weights_give_the_same_results(name: str, tmp_path: Path) -> None:
    saving = session_of(
        FAMILIES[name],
        path=str(tmp_path / "m.onnx"),
        session_optimized_model_external_initializers_file_name="m.bin",
        session_optimized_model_external_initializers_min_size_in_bytes="1",
        session_save_external_prepacked_constant_initializers="1",
    )
    loading = session_of(str(tmp_path / "m.onnx"))
    given = feeds_for(saving)
    reference = session_of(FAMILIES[name], native="0").run(None, given)
    assert is_native(saving) and saving.prepacking_counts().packed >= 1
    assert loading.prepacking_counts().packed == 0 and loading.prepacking_counts().loaded == saving.prepacking_counts().packed
    wanted = saving.run(None, given)
    compare(wanted, reference, 2e-5)
    compare(loading.run(None, given), wanted, 0)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_packing_results_are_the_same(name: str) -> None:
    session = session_of(FAMILIES[name], session_disable_prepacking="1")
    given = feeds_for(session)
    assert session.prepacking_counts().packed == 0
    assert is_native(session), "weights that nobody packed are read as they are, or laid out in each run"
    compare(session.run(None, given), session_of(FAMILIES[name], native="0").run(None, given), 2e-5)
