"""LoRA adapters: files that onnxruntime writes and reads, runs with their parameters, and files that are none."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import sardonyx
from sardonyx.capi import convert_npz_to_onnx_adapter
from sardonyx.errors import InvalidArgument
from tests.runtime import models

MODEL = models.parsed(
    """
    g (float[N, 2] x, float[2, R] A, float[R, 2] B) => (float[N, 2] y) <float[2, R] A = {}, float[R, 2] B = {}> {
        low = MatMul(x, A)
        high = MatMul(low, B)
        y = Add(x, high)
    }
    """.replace("float[2, R] A = {}", "float[2, 0] A = {}").replace("float[R, 2] B = {}", "float[0, 2] B = {}")
)
X = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
A, B = np.array([[1, 0, 2], [0, 1, -1]], np.float32), np.array([[1, 2], [3, 4], [5, 6]], np.float32)
NUMBERS = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ARRAYS = {f"p/{kind}": np.arange(6).reshape(2, 3).astype(kind) for kind in NUMBERS} | {"none": np.zeros((0, 3), np.float32)}


def written(runtime, path: Path, arrays: dict[str, np.ndarray]) -> Path:
    adapter = runtime.AdapterFormat()
    adapter.set_adapter_version(7)
    adapter.set_model_version(-2)
    adapter.set_parameters({name: runtime.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()})
    adapter.export_adapter(str(path))
    return path


@pytest.mark.parametrize(("writer", "reader"), [(sardonyx, onnxruntime), (onnxruntime, sardonyx), (sardonyx, sardonyx)])
def test_files_are_those_of_onnxruntime(tmp_path, writer, reader):
    adapter = reader.AdapterFormat.read_adapter(str(written(writer, tmp_path / "a.onnx_adapter", ARRAYS)))
    versions = adapter.get_format_version(), adapter.get_adapter_version(), adapter.get_model_version()
    assert versions == (1, 7, -2)
    read = {name: value.numpy() for name, value in adapter.get_parameters().items()}
    assert read.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert read[name].dtype == array.dtype and read[name].shape == array.shape
        np.testing.assert_array_equal(read[name], array)


def loaded(path: Path) -> sardonyx.LoraAdapter:
    adapter = sardonyx.LoraAdapter()
    adapter.Load(path)
    return adapter


@pytest.fixture
def options(tmp_path):
    made = sardonyx.RunOptions()
    made.add_active_adapter(loaded(written(sardonyx, tmp_path / "a", {"A": A, "B": B})))
    return made


def test_parameters_take_the_place_of_inputs_in_the_runs_that_name_them(options):
    session = sardonyx.InferenceSession(MODEL)
    wanted = X + X @ A @ B
    for feeds in ({"x": X}, {"x": X, "A": np.ones((2, 1), np.float32)}):
        np.testing.assert_array_equal(session.run(None, feeds, options)[0], wanted)
    np.testing.assert_array_equal(session.run(None, {"x": X}, pickle.loads(pickle.dumps(options)))[0], wanted)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X)
    values = session.run_with_ort_values(["y"], {"x": sardonyx.OrtValue.ortvalue_from_numpy(X)}, options)
    np.testing.assert_array_equal(values[0].numpy(), wanted)
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding, options)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], wanted)


def test_of_two_parameters_of_one_name_the_first_counts(options, tmp_path):
    options.add_active_adapter(loaded(written(sardonyx, tmp_path / "b", {"A": 2 * A, "B": 2 * B})))
    options.add_active_adapter(None)
    options.add_active_adapter(sardonyx.LoraAdapter())
    (y,) = sardonyx.InferenceSession(MODEL).run(None, {"x": X}, options)
    np.testing.assert_array_equal(y, X + X @ A @ B)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"no input": A}, "Invalid input name: no input"),
        ({"A": A.astype(np.float64)}, "Unexpected input data type"),
        ({"A": A[:1], "B": B}, "Got invalid dimensions for input: A"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(tmp_path, parameters, reason):
    options = sardonyx.RunOptions()
    options.add_active_adapter(loaded(written(sardonyx, tmp_path / "a", parameters)))
    with pytest.raises(InvalidArgument, match=reason):
        sardonyx.InferenceSession(MODEL).run(None, {"x": X}, options)


def test_every_byte_of_a_file_may_be_wrong(tmp_path):
    """Truncated and changed files are refused, or read as other numbers; nothing else happens."""
    path = written(sardonyx, tmp_path / "a", {"A": A[:, :1]})
    data = path.read_bytes()
    for position in range(len(data)):
        for changed in (data[:position], data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :]):
            path.write_bytes(changed)
            try:
                sardonyx.AdapterFormat.read_adapter(path)
            except RuntimeError as error:
                assert "lora" in str(error)


@pytest.mark.parametrize("attempt", [sardonyx.AdapterFormat.read_adapter, loaded])
def test_missing_files_and_others_are_refused(tmp_path, attempt):
    with pytest.raises(RuntimeError, match="No such file"):
        attempt(tmp_path / "missing")
    (tmp_path / "other").write_bytes(b"garbage garbage garbage")
    with pytest.raises(RuntimeError, match="valid lora parameter format"):
        attempt(tmp_path / "other")


def test_wrong_arguments_are_refused(tmp_path):
    adapter = sardonyx.AdapterFormat()
    with pytest.raises(RuntimeError, match="non-string"):
        adapter.set_parameters({"s": sardonyx.OrtValue.ortvalue_from_numpy(np.array(["a"], dtype=object))})
    for version in ("1", 2**40):
        with pytest.raises(TypeError):
            adapter.set_adapter_version(version)
    with pytest.raises(TypeError):
        sardonyx.RunOptions().add_active_adapter("a")
    with pytest.raises(RuntimeError, match="Failed to open file"):
        adapter.export_adapter(tmp_path / "no" / "folder")


def test_an_npz_file_becomes_an_adapter(tmp_path):
    np.savez(tmp_path / "a.npz", A=A, B=B)
    words = {"npz_file_path": "a.npz", "output_file_path": "a.onnx_adapter"}
    paths = [word for name, file in words.items() for word in (f"--{name}", str(tmp_path / file))]
    convert_npz_to_onnx_adapter.main([*paths, "--adapter_version", "3", "--model_version", "4"])
    adapter = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "a.onnx_adapter"))
    assert adapter.get_adapter_version() == 3
    np.testing.assert_array_equal(adapter.get_parameters()["B"].numpy(), B)
