"""IOBinding: arrays, raw memory and OrtValues as inputs and outputs; every failure of a run is a RuntimeError there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import sardonyx
from sardonyx.runtime.execution.destinations import free_places, place_of
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same
from tests.tolerance import assert_close

X = np.arange(6, dtype=np.float32).reshape(2, 3)
BOTH_APIS = pytest.mark.parametrize("ort", BOTH, ids=lambda module: module.__name__)


def bound(ort: ModuleType, model: bytes = models.DOUBLE) -> tuple[Any, Any]:
    session = ort.InferenceSession(model)
    return session, session.io_binding()


@BOTH_APIS
def test_arrays_in_arrays_out(ort: ModuleType) -> None:
    session, binding = bound(ort)
    array = X.copy()
    binding.bind_cpu_input("x", array)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X + X)
    (value,) = binding.get_outputs()
    np.testing.assert_array_equal(value.numpy(), X + X)
    assert len(binding.get_outputs_as_ortvaluevector()) == 1

    array[...] = 1  # the array is seen, not a copy
    session.run_with_iobinding(binding)
    assert (binding.get_outputs()[0].numpy() == 2).all()
    assert (value.numpy() == 2).all()  # and the output keeps its memory


@BOTH_APIS
def test_memory_by_address(ort: ModuleType) -> None:
    session, binding = bound(ort)
    out = np.zeros((2, 3), np.float32)
    for element in (np.float32, TensorProto.FLOAT):
        binding.clear_binding_inputs()
        binding.bind_input("x", "cpu", 0, element, [2, 3], X.ctypes.data)
        binding.bind_output("y", "cpu", 0, element, out.shape, out.ctypes.data)
        out[...] = 0
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(out, X + X)
        assert binding.get_outputs()[0].data_ptr() == out.ctypes.data


@BOTH_APIS
def test_ortvalues(ort: ModuleType) -> None:
    session, binding = bound(ort)
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(X))
    binding.bind_ortvalue_output("y", target)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.numpy(), X + X)


@BOTH_APIS
def test_outputs_come_in_the_order_of_binding(ort: ModuleType) -> None:
    session, binding = bound(ort, models.TWO_OUTPUTS)
    binding.bind_cpu_input("x", X[0])
    binding.bind_output("b")
    binding.bind_output("a")
    session.run_with_iobinding(binding)
    b, a = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(b, np.abs(X[0]))
    np.testing.assert_array_equal(a, -X[0])
    binding.synchronize_inputs()
    binding.synchronize_outputs()


@BOTH_APIS
def test_sequences_can_be_bound_as_outputs(ort: ModuleType) -> None:
    session, binding = bound(ort, models.MAKE_SEQUENCE)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0].data_type() == "seq(tensor(float))"


def test_an_output_without_memory_may_change_its_shape() -> None:
    session, binding = bound(sardonyx)
    binding.bind_output("y")
    for rows in (2, 4):
        binding.bind_cpu_input("x", np.ones((rows, 3), np.float32))
        session.run_with_iobinding(binding)
        assert binding.get_outputs()[0].shape() == [rows, 3]


def test_inner_values_can_be_bound_as_outputs() -> None:
    session, binding = bound(sardonyx, models.CHAIN)
    binding.bind_cpu_input("x", X)
    binding.bind_output("t")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X * [1, 2, 3])


def test_strings_can_be_bound() -> None:
    session, binding = bound(sardonyx, models.STRINGS)
    binding.bind_cpu_input("s", np.array(["a", "b"]))
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == ["a", "b"]


def binding_error(use: Any) -> None:
    """The same error when something is bound."""
    assert_same(lambda ort: use(bound(ort)[1], ort))


def test_errors_while_binding() -> None:
    binding_error(lambda binding, ort: binding.bind_cpu_input("zz", X))
    binding_error(lambda binding, ort: binding.bind_cpu_input("x", [1.0]))
    binding_error(lambda binding, ort: binding.bind_input("zz", "cpu", 0, np.float32, [2, 3], X.ctypes.data))
    binding_error(lambda binding, ort: binding.bind_input("x", "foo", 0, np.float32, [2, 3], X.ctypes.data))
    binding_error(lambda binding, ort: binding.bind_input("x", "cpu", 0, np.str_, [2, 3], X.ctypes.data))
    binding_error(lambda binding, ort: binding.bind_ortvalue_input("zz", ort.OrtValue.ortvalue_from_numpy(X)))
    binding_error(lambda binding, ort: binding.bind_output("y", "cpu", 0, None, None, 123))
    binding_error(lambda binding, ort: binding.bind_output("y", "foo"))


def run_error(use: Any) -> None:
    """The same error when the bound session runs."""

    def bind_and_run(ort: ModuleType) -> None:
        session, binding = bound(ort)
        use(binding, ort)
        session.run_with_iobinding(binding)

    assert_same(bind_and_run)


def test_errors_while_running() -> None:
    def bind(array: np.ndarray, output: str = "y") -> Any:
        def use(binding: Any, ort: ModuleType) -> None:
            binding.bind_cpu_input("x", array)
            binding.bind_output(output)

        return use

    run_error(lambda binding, ort: None)
    run_error(lambda binding, ort: binding.bind_cpu_input("x", X))
    run_error(bind(X, "zz"))
    run_error(bind(X.astype(np.float64)))
    run_error(bind(np.ones((2, 4), np.float32)))
    run_error(bind(np.ones(2, np.float32)))
    run_error(lambda binding, ort: binding.bind_output("y"))


@BOTH_APIS
def test_bound_memory_must_have_the_right_shape(ort: ModuleType) -> None:
    session, binding = bound(ort)
    out = np.zeros((3, 3), np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float32, out.shape, out.ctypes.data)
    with pytest.raises(
        RuntimeError, match=r"Error in execution: .*\{3,3\} but the computed output shape for this run is \{2,3\}"
    ):
        session.run_with_iobinding(binding)


def test_bound_memory_must_have_the_right_type() -> None:
    session, binding = bound(sardonyx)
    out = np.zeros((2, 3), np.float64)
    binding.bind_cpu_input("x", X)
    binding.bind_output("y", "cpu", 0, np.float64, out.shape, out.ctypes.data)
    with pytest.raises(RuntimeError, match=r"Unexpected output data type. Actual: \(tensor\(double\)\)"):
        session.run_with_iobinding(binding)


@BOTH_APIS
def test_a_binding_belongs_to_its_session(ort: ModuleType) -> None:
    session, _ = bound(ort)
    _, binding = bound(ort)
    with pytest.raises(ValueError, match="IOBinding must be used with the session that created it"):
        session.run_with_iobinding(binding)


@BOTH_APIS
def test_raw_bindings(ort: ModuleType) -> None:
    raw = ort.capi.onnxruntime_pybind11_state
    session = ort.InferenceSession(models.DOUBLE)
    binding = ort.SessionIOBinding(session._sess)
    device = raw.OrtDevice(raw.OrtDevice.cpu(), raw.OrtDevice.default_memory(), 0)
    binding.bind_input("x", device, np.float32, [2, 3], X.ctypes.data)
    binding.bind_output("y", device)
    session._sess.run_with_iobinding(binding, ort.RunOptions())
    np.testing.assert_array_equal(next(iter(binding.get_outputs())).numpy(), X + X)
    with pytest.raises(TypeError):
        ort.SessionIOBinding(3)


# --- memory that runs write into


def product(ort: ModuleType) -> tuple[Any, Any]:
    graph = "g (float[n,n] x) => (float[n,n] y, float[n,n] z) { y = MatMul(x, x) z = Add(y, x) }"
    return bound(ort, models.parsed(graph))


@pytest.mark.parametrize("shift", [0, 1, 20, 399, 400])
def test_an_output_in_the_memory_of_an_input_is_right(shift: int) -> None:
    """Nothing may be written there before it is read."""
    session, binding = product(sardonyx)
    memory = np.random.default_rng(0).standard_normal(800, np.float32)
    x, y = (memory[start : start + 400].reshape(20, 20) for start in (0, shift))
    before = x.copy()
    z = np.empty((20, 20), np.float32)
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    binding.bind_output("z", "cpu", 0, np.float32, z.shape, z.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_allclose(y, before @ before, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(z, before @ before + before, rtol=1e-4, atol=1e-4)


def test_outputs_in_one_memory_are_written_one_after_the_other() -> None:
    session, binding = product(sardonyx)
    x, both = np.eye(20, dtype=np.float32), sardonyx.OrtValue.ortvalue_from_numpy(np.zeros((20, 20), np.float32))
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", both)
    binding.bind_ortvalue_output("z", both)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(both.numpy(), 2 * x)


def test_an_output_fed_back_is_right() -> None:
    session, binding = bound(sardonyx)
    binding.bind_output("y")
    binding.bind_cpu_input("x", X)
    for _ in range(4):
        session.run_with_iobinding(binding)
        binding.bind_ortvalue_input("x", binding.get_outputs()[0])
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], 16 * X)


GROUPED = """g (int64[b,t] mask, float[b,s,64] q, float[b,s,32] k, float[b,s,32] v, float[b,2,m,16] pk, float[b,2,m,16] pv)
  => (float[b,s,64] y, float[b,2,c,16] kk, float[b,2,d,16] vv)
  <int64[1] one = {1}>
  { sums = ReduceSum<keepdims=0>(mask, one) less = Sub(sums, one) lengths = Cast<to=6>(less)
    shape = Shape<start=1, end=2>(mask) single = Squeeze(shape) total = Cast<to=6>(single)
    y, kk, vv = com.microsoft.GroupQueryAttention<num_heads=4, kv_num_heads=2>(q, k, v, pk, pv, lengths, total) }"""


def decoded(ort: ModuleType, lengths: list[int], batch: int, shared: bool, threads: int) -> list[np.ndarray]:
    """Outputs and caches of an attention over so many new tokens at a time, in caches with room for 300."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(models.parsed(GROUPED), options, providers=["CPUExecutionProvider"])
    random, found, position = np.random.default_rng(0), [], 0
    caches = [ort.OrtValue.ortvalue_from_numpy(np.full((batch, 2, 300, 16), 7, np.float32)) for _ in range(2)]
    for length in lengths:
        position += length
        binding = session.io_binding()
        mask = np.ones((batch, position), np.int64)
        mask[1:, :3] = position <= max(length, 8)  # later the others are shorter
        binding.bind_cpu_input("mask", mask)
        for name, width in (("q", 64), ("k", 32), ("v", 32)):
            binding.bind_cpu_input(name, random.standard_normal((batch, length, width), np.float32))
        binding.bind_output("y")
        targets = caches if shared else [ort.OrtValue.ortvalue_from_numpy(np.zeros_like(one.numpy())) for one in caches]
        for past, present, source, target in zip(("pk", "pv"), ("kk", "vv"), caches, targets):
            binding.bind_ortvalue_input(past, source)
            binding.bind_ortvalue_output(present, target)
        session.run_with_iobinding(binding)
        found.append(binding.copy_outputs_to_cpu()[0])
        caches = targets
    return [*found, *(one.numpy().copy() for one in caches)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("lengths", "batch"), [([40, *[1] * 20], 1), ([40, *[1] * 20], 3), ([1] * 30, 2), ([130, 1, 20, 1, 7, 1], 1)]
)
def test_a_cache_that_past_and_present_share_grows_in_place(lengths: list[int], batch: int, threads: int) -> None:
    """Rows behind the new ones stay as they are, as in the original; without sharing, they are zeros in both."""
    theirs = decoded(onnxruntime, lengths, batch, True, threads)
    ours = decoded(sardonyx, lengths, batch, True, threads)
    assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert (ours[-1][:, :, sum(lengths) :] == 7).all()
    apart = decoded(sardonyx, lengths, batch, False, threads)
    assert_close(apart[: len(lengths)], theirs[: len(lengths)], rtol=1e-5, atol=1e-5)
    used = sum(lengths) - 3
    assert_close([one[:, :, :used] for one in apart[-2:]], [one[:, :, :used] for one in theirs[-2:]], rtol=0, atol=0)


def test_a_shared_cache_is_not_copied() -> None:
    session = sardonyx.InferenceSession(models.parsed(GROUPED))
    plan = session._engine.plan
    assert any(step.compiled for step in plan.steps)
    key, value = (place_of(np.zeros((1, 2, 300, 16), np.float32)) for _ in range(2))
    assert key is not None and value is not None
    caches = {"pk": key, "pv": value}
    assert len(free_places({"kk": key, "vv": value}, caches).destinations(plan)) == 2
    assert not free_places({"kk": value, "vv": key}, caches).destinations(plan)  # each in the other's memory
    assert not free_places({"kk": key, "vv": key}, caches).destinations(plan)
