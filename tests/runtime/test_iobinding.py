"""IOBinding: arrays, raw memory and OrtValues as inputs and outputs; every failure of a run is a RuntimeError there."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import sardonyx
from tests.runtime import models
from tests.runtime.side_by_side import BOTH, assert_same

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
