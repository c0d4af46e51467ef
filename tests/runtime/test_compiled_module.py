"""Members of `capi.onnxruntime_pybind11_state` that tools read, beside the original's."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
import onnxruntime.capi.onnxruntime_pybind11_state as original
import pytest

import sardonyx
from sardonyx.capi import _pybind_state
from sardonyx.capi import onnxruntime_pybind11_state as state
from sardonyx.ops.entries import NEWEST

RELU = """<ir_version: 8, opset_import: ["": 17]> g (float[2, 64] x) => (float[2, 64] y) { y = Relu(x) }"""


# --- schemas


def plain(schema) -> dict[str, object]:
    """What of a schema both must say alike."""
    return {
        "inputs": [(one.name, one.typeStr, int(one.option), one.isHomogeneous, flat(one.types)) for one in schema.inputs],
        "outputs": [(one.name, one.typeStr, int(one.option), flat(one.types)) for one in schema.outputs],
        "attributes": {name: (int(one.type), one.required) for name, one in schema.attributes.items()},
        "types": {one.type_param_str: flat(one.allowed_type_strs) for one in schema.type_constraints},
        "counts": (schema.min_input, schema.max_input, schema.min_output, schema.max_output),
    }


def flat(types) -> set[str]:
    """Type strings; the onnx package writes what maps hold without `tensor`."""
    return {re.sub(r"tensor\((\w+)\)(?=\))", r"\1", type.replace(", ", ",")) for type in types}


def test_schemas_of_the_standard_say_what_the_original_says():
    ours = {(one.domain, one.name, one.since_version): one for one in state.get_all_operator_schema()}
    theirs = {
        (one.domain, one.name, one.since_version): one
        for one in original.get_all_operator_schema()
        if onnx.defs.has(one.name, one.since_version, one.domain)  # onnxruntime has ops of its own in ONNX's domain
    }
    assert len(theirs) > 600
    assert [key for key, one in theirs.items() if plain(ours[key]) != plain(one)] == []


def test_schemas_tell_of_contrib_ops_and_of_documents():
    found = {(one.domain, one.name): one for one in _pybind_state.get_all_operator_schema()}
    fused = found["com.microsoft", "FusedMatMul"]
    assert isinstance(fused, state.schemadef.OpSchema) and fused.has_type_and_shape_inference_function
    assert [one.name for one in fused.inputs] == ["A", "B"] and fused.attributes["transA"].type == fused.AttrType.INT
    assert "convolution" in found["", "Conv"].doc and fused.doc == ""
    assert found["", "Concat"].is_infinite(found["", "Concat"].max_input) and not fused.is_infinite(fused.max_input)


# --- kernels


def test_kernels_cover_what_the_kernels_of_the_original_cover():
    ranges: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for one in state.get_all_opkernel_def():
        ranges.setdefault((one.domain, one.op_name), []).append(one.version_range)
    assert all(low <= high <= NEWEST for versions in ranges.values() for low, high in versions)
    lacking = set()
    for one in original.get_all_opkernel_def():
        first = one.version_range[0]
        if onnx.defs.has(one.op_name, first, one.domain):
            versions = ranges.get((one.domain, one.op_name), [])
            if not any(low <= first <= high for low, high in versions):
                lacking.add(one.op_name)
    assert lacking == set()


def test_kernels_of_a_provider_that_is_not_here_are_refused():
    assert len(state.get_registered_ep_kernel_defs("CPUExecutionProvider")) == len(state.get_all_opkernel_def())
    with pytest.raises(RuntimeError, match="No devices found for EP 'x'"):
        state.get_registered_ep_kernel_defs("x")


# --- weights in blocks


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_of_blocks_are_those_of_the_original(bits, symmetric, dtype):
    rows, columns, size = 64, 6, 16
    weight = np.random.default_rng(bits).standard_normal((rows, columns)).astype(dtype)
    blocks = rows // size
    results = []
    for module in (state, original):
        codes = np.zeros((columns, blocks, size * bits // 8), np.uint8)
        scales, zeros = np.zeros(columns * blocks, dtype), np.zeros(columns * -(-blocks * bits // 8), np.uint8)
        getattr(module, f"quantize_matmul_{bits}bits")(codes, weight, scales, zeros, size, columns, rows, symmetric)
        results.append((codes, scales, zeros))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("symmetric", [True, False])
def test_codes_for_dequantize_linear_are_those_of_the_original(symmetric):
    rows, columns, size = 64, 8, 16
    weight = np.random.default_rng(5).standard_normal((rows, columns)).astype(np.float32)
    results = []
    for module in (state, original):
        codes = np.zeros(rows * columns // 2, np.uint8)
        scales, zeros = np.zeros(columns * rows // size, np.float32), np.zeros(columns * rows // size // 2, np.uint8)
        signed = module.quantize_qdq_matmul_4bits(codes, weight, scales, zeros, size, columns, rows, symmetric)
        results.append((codes, scales, zeros, np.array(signed)))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("kind", [0, 1])
def test_codes_of_bnb4_are_those_of_the_original(kind):
    rows, columns, size = 32, 6, 16
    weight = np.random.default_rng(kind).standard_normal((rows, columns)).astype(np.float32)
    results = []
    for module in (state, original):
        codes, largest = np.zeros(rows * columns // 2, np.uint8), np.zeros(rows * columns // size, np.float32)
        module.quantize_matmul_bnb4(codes, weight, largest, size, kind, columns, rows)
        results.append((codes, largest))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_arrays_of_other_sizes_are_refused_where_the_original_writes_beyond_them():
    weight = np.ones((32, 2), np.float32)
    codes, scales, zeros = np.zeros((2, 2, 8), np.uint8), np.zeros(4, np.float32), np.zeros(2, np.uint8)
    state.quantize_matmul_4bits(codes, weight, scales, zeros, 16, 2, 32, False)
    for wrong in ((codes[:1], scales, zeros), (codes, scales[:3], zeros), (codes, scales, zeros[:1])):
        with pytest.raises(RuntimeError, match="elements"):
            state.quantize_matmul_4bits(wrong[0], weight, wrong[1], wrong[2], 16, 2, 32, False)
    with pytest.raises(RuntimeError, match="said to come"):
        state.quantize_matmul_4bits(codes, weight, scales, zeros, 16, 3, 32, False)
    with pytest.raises(TypeError, match="float32 or float16"):
        state.quantize_matmul_4bits(codes, weight.astype(np.float64), scales, zeros, 16, 2, 32, False)


# --- compiled models


@pytest.fixture
def compiled(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(RELU), path)
    sardonyx.ModelCompiler(sardonyx.SessionOptions(), path).compile_to_file(tmp_path / "compiled.onnx")
    return tmp_path / "compiled.onnx"


def test_a_compiled_model_says_for_whom_it_is(compiled):
    info = state.get_compatibility_info_from_model(compiled, "CPUExecutionProvider")
    assert info == state.get_compatibility_info_from_model_bytes(compiled.read_bytes(), "CPUExecutionProvider")
    assert info.startswith(f"sardonyx {sardonyx.__version__}; ")
    kind = state.OrtCompiledModelCompatibility
    devices = sardonyx.get_ep_devices()
    answers = {
        info: kind.EP_SUPPORTED_OPTIMAL,
        info.replace(sardonyx.__version__, "0.0.1"): kind.EP_SUPPORTED_PREFER_RECOMPILATION,
        "sardonyx 0.1.0; riscv64 generic (generic)": kind.EP_UNSUPPORTED,
        "QNN 2.3": kind.EP_NOT_APPLICABLE,
    }
    for text, answer in answers.items():
        assert state.get_model_compatibility_for_ep_devices(devices, text) == answer
    with pytest.raises(RuntimeError, match="Invalid argument"):
        state.get_model_compatibility_for_ep_devices([], info)


def test_other_models_say_nothing(tmp_path):
    model = onnx.parser.parse_model(RELU).SerializeToString()
    assert state.get_compatibility_info_from_model_bytes(model, "CPUExecutionProvider") is None
    assert state.get_compatibility_info_from_model_bytes(model, "QNNExecutionProvider") is None
    with pytest.raises(RuntimeError, match="doesn't exist"):
        state.get_compatibility_info_from_model(tmp_path / "nothing.onnx", "CPUExecutionProvider")


def test_nothing_is_known_against_the_devices_that_are_here():
    (device,) = state.get_hardware_devices()
    details = state.get_hardware_device_ep_incompatibility_details("CPUExecutionProvider", device)
    assert details == {"reasons_bitmask": 0, "notes": None, "error_code": 0}
    with pytest.raises(state.InvalidArgument, match="No valid factory found"):
        state.get_hardware_device_ep_incompatibility_details("Nope", device)


def test_a_function_says_where_initializers_are(tmp_path):
    """What no program takes keeps its initializers: here NumPy blocks n-grams."""
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[1,3] x, int64[1,2] i) => (float[1,3] y, float[1,3] u)
    <float[1,3] w = {1, 2, 3}> { y = Add(x, w) u = com.microsoft.NGramRepeatBlock<ngram_size = 3>(i, w) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    seen = []

    def locate(name, value, before):
        seen.append((name, value.numpy().tolist(), before))
        (tmp_path / "weights.bin").write_bytes(b"\0" * 64 + value.numpy().tobytes())
        return sardonyx.OrtExternalInitializerInfo("weights.bin", 64, value.tensor_size_in_bytes())

    compiler = sardonyx.ModelCompiler(options, path, get_initializer_location_func=locate)
    compiler.compile_to_file(tmp_path / "compiled.onnx")
    assert seen == [("w", [[1.0, 2.0, 3.0]], None)]
    (stored,) = onnx.load(tmp_path / "compiled.onnx", load_external_data=False).graph.initializer
    assert {entry.key: entry.value for entry in stored.external_data} == {
        "location": "weights.bin",
        "offset": "64",
        "length": "12",
    }
    options.add_session_config_entry("session.allow_compiled_code", "1")
    feeds = {"x": np.ones((1, 3), np.float32), "i": np.zeros((1, 2), np.int64)}
    results = sardonyx.InferenceSession(tmp_path / "compiled.onnx", options).run(None, feeds)
    assert [result.tolist() for result in results] == [[[2, 3, 4]], [[1, 2, 3]]]


def test_a_place_of_another_size_is_refused(tmp_path):
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g (float[1,3] x, int64[1,2] i) => (float[1,3] y, float[1,3] u)
    <float[1,3] w = {1, 2, 3}> { y = Add(x, w) u = com.microsoft.NGramRepeatBlock<ngram_size = 3>(i, w) }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    options = sardonyx.SessionOptions()
    options.graph_optimization_level = sardonyx.GraphOptimizationLevel.ORT_DISABLE_ALL
    compiler = sardonyx.ModelCompiler(
        options, path, get_initializer_location_func=lambda *_: sardonyx.OrtExternalInitializerInfo("w", 0, 4)
    )
    with pytest.raises(state.InvalidArgument, match="w takes 12 bytes"):
        compiler.compile_to_bytes()
    with pytest.raises(ValueError, match="both"):
        sardonyx.ModelCompiler(options, path, external_initializers_file_path="w", get_initializer_location_func=print)
