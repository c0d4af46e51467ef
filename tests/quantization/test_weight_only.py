"""Weights in blocks: codes are as near as codes can be, better algorithms are better, and onnxruntime computes the same."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import sardonyx
from sardonyx.quantization import QuantFormat
from sardonyx.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer
from sardonyx.quantization.matmul_nbits_quantizer import (
    DefaultWeightOnlyQuantConfig,
    DefaultWeightOnlyQuantizer,
    GPTQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantConfig,
    HQQWeightOnlyQuantizer,
    KQuantWeightOnlyQuantConfig,
    MatMulNBitsQuantizer,
    RTNWeightOnlyQuantConfig,
    is_divisible,
    ort_convert_str_to_bool,
    parse_key_value_pair,
    transpose_packed_int4_matrix,
)
from sardonyx.quantization.weight_only import gptq, hqq, kquant, rounding
from sardonyx.quantization.weight_only.blocks import in_blocks, pack, pack_zero_points, round_to_nearest
from tests.quantization.small import Feeds, model, named, normal


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("rows", "columns", "block"), [(3, 64, 32), (5, 40, 16), (1, 7, 16), (2, 33, 32)])
def test_codes_are_within_half_a_step(bits, symmetric, rows, columns, block, rng) -> None:
    weight = normal(rng, rows, columns)
    for blocks in (round_to_nearest(weight, bits, block, symmetric), rounding.rounded(weight, bits, block, symmetric)):
        steps = np.repeat(np.abs(blocks.scales), block, axis=1)[:, :columns]
        error = np.abs(blocks.dequantized() - weight)
        # the code for +2^(bits-1) does not exist, so the far end of a symmetric block may be a whole step off
        assert (error <= steps * (1.0 if symmetric else 0.5) * 1.001 + 1e-6).all()


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_puts_the_first_code_into_the_lowest_bits(bits, rng) -> None:
    codes = rng.integers(0, 2**bits, (3, 2, 16)).astype(np.uint8)
    packed = pack(codes, bits)
    per_byte = 8 // bits
    unpacked = np.stack([(packed >> (bits * place)) & (2**bits - 1) for place in range(per_byte)], axis=-1)
    assert np.array_equal(unpacked.reshape(codes.shape), codes)


def test_zero_points_of_an_odd_number_of_blocks_fill_whole_bytes() -> None:
    assert pack_zero_points(np.array([[1, 2, 3]]), 4).tolist() == [[0x21, 0x83]]


def test_hqq_is_nearer_than_rounding(rng) -> None:
    weight = normal(rng, 32, 128)
    plain = rounding.rounded(weight, 4, 32, False).dequantized()
    made = hqq.half_quadratic(weight, 4, 32).dequantized()
    assert ((made - weight) ** 2).mean() < 0.9 * ((plain - weight) ** 2).mean()


def test_lines_of_k_quant_fit_better_than_the_extremes(rng) -> None:
    """Before the minimum is rounded to a whole zero point."""
    values = in_blocks(normal(rng, 16, 128), 32)
    importance = np.sqrt((values**2).mean(axis=2, keepdims=True)) + np.abs(values)
    scales, lowest = kquant._best_lines(values, importance, 15)
    low, high = values.min(axis=2, keepdims=True), values.max(axis=2, keepdims=True)
    errors = []
    for step, start in ((scales, lowest), ((high - low) / 15, low)):
        codes = np.clip(np.rint((values - start) / step), 0, 15)
        errors.append((importance * (codes * step + start - values) ** 2).sum(axis=2))
    assert errors[0].sum() < 0.95 * errors[1].sum()


@pytest.mark.parametrize("by_importance", [False, True])
@pytest.mark.parametrize("symmetric", [False, True])
def test_gptq_keeps_outputs_nearer_than_rounding(by_importance, symmetric, rng) -> None:
    weight = normal(rng, 24, 64)
    inputs = normal(rng, 512, 64) @ normal(rng, 64, 64)  # columns that depend on each other
    moments = gptq.second_moments(inputs, None)
    made = gptq.optimal_rounding(weight, moments, 3 + 1, 32, symmetric, gptq.GptqOptions(by_importance=by_importance))
    plain = rounding.rounded(weight, 4, 32, symmetric)
    errors = [np.linalg.norm(inputs @ (blocks.dequantized() - weight).T) for blocks in (made, plain)]
    assert errors[0] < 0.8 * errors[1]


def product(rng: np.random.Generator) -> onnx.ModelProto:
    text = "g (float[N, 96] x) => (float[N, 24] y) { a = MatMul(x, w1) b = Relu(a) y = MatMul(b, w2) }"
    return named(model(text, w1=normal(rng, 96, 64, scale=0.1), w2=normal(rng, 64, 24, scale=0.1)))


CONFIGS = {
    "default": lambda feeds: DefaultWeightOnlyQuantConfig(block_size=32),
    "symmetric": lambda feeds: DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True),
    "qdq": lambda feeds: DefaultWeightOnlyQuantConfig(block_size=32, quant_format=QuantFormat.QDQ),
    "8 bits": lambda feeds: DefaultWeightOnlyQuantConfig(block_size=32, bits=8),
    "rtn": lambda feeds: RTNWeightOnlyQuantConfig(),
    "k-quant": lambda feeds: KQuantWeightOnlyQuantConfig(customized_weight_config={"matmul_0": {"bits": 8}}),
    "hqq": lambda feeds: HQQWeightOnlyQuantConfig(block_size=32),
    "gptq": lambda feeds: GPTQWeightOnlyQuantConfig(Feeds(feeds)),
}


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_onnxruntime_computes_what_the_codes_mean(algorithm, rng, tmp_path) -> None:
    feeds = [{"x": normal(rng, 16, 96)} for _ in range(3)]
    proto = product(rng)
    quantizer = MatMulNBitsQuantizer(proto, block_size=32, algo_config=CONFIGS[algorithm](feeds))
    quantizer.process()
    path = tmp_path / "q.onnx"
    quantizer.model.save_model_to_file(path)
    ours, theirs = (
        runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds[0])[0]
        for runtime in (sardonyx, onnxruntime)
    )
    weights = [numpy_helper.to_array(tensor) for tensor in proto.graph.initializer]
    expected = np.maximum(feeds[0]["x"] @ weights[0], 0) @ weights[1]
    # onnxruntime makes MatMulNBits with int8 activations of a DequantizeLinear before a MatMul
    assert np.abs(ours - theirs).max() < (0.03 if algorithm == "qdq" else 1e-4)
    assert 20 * np.log10(np.linalg.norm(expected) / np.linalg.norm(expected - ours)) > 15


def test_odd_numbers_of_blocks_are_packed_by_all_algorithms(rng, tmp_path) -> None:
    proto = named(model("g (float[N, 96] x) => (float[N, 8] y) { y = MatMul(x, w) }", w=normal(rng, 96, 8)))
    for config in (RTNWeightOnlyQuantConfig(), KQuantWeightOnlyQuantConfig()):
        quantizer = MatMulNBitsQuantizer(proto, block_size=32, algo_config=config)
        quantizer.process()
        quantizer.model.save_model_to_file(tmp_path / "q.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "q.onnx"), providers=["CPUExecutionProvider"])
        assert session.run(None, {"x": normal(rng, 2, 96)})[0].shape == (2, 8)


@pytest.mark.parametrize("quant_type", [MatMulBnb4Quantizer.FP4, MatMulBnb4Quantizer.NF4])
def test_four_bit_floats_are_the_nearest_of_their_book(quant_type, rng) -> None:
    from sardonyx.providers.cpu.contrib.quantized_matmul import CODE_BOOKS

    weight = normal(rng, 64, 3)
    quantizer = MatMulBnb4Quantizer(product(rng), quant_type, 32)
    codes, largest = quantizer.bnb4_block_quant(weight)
    values = weight.T.ravel() / np.repeat(largest, 32)
    numbers = CODE_BOOKS[quant_type][np.stack([codes >> 4, codes & 15], axis=1).ravel()]
    nearest = np.abs(values[:, None] - CODE_BOOKS[quant_type]).min(axis=1)
    assert np.allclose(np.abs(values - numbers), nearest, atol=1e-6)


@pytest.mark.parametrize(("options", "message"), [({"block_size": 24}, "power of two"), ({"block_size": 8}, "power of two")])
def test_sizes_of_blocks_that_no_op_takes_are_refused(options, message, rng) -> None:
    with pytest.raises(ValueError, match=message):
        MatMulNBitsQuantizer(product(rng), **options)


def test_gptq_without_data_is_refused(rng) -> None:
    with pytest.raises(ValueError, match="calibration_data_reader"):
        MatMulNBitsQuantizer(product(rng), block_size=32, algo_config=GPTQWeightOnlyQuantConfig()).process()


@pytest.mark.parametrize("kind", ["default", "symmetric", "hqq"])
def test_a_single_node_is_quantized_as_the_whole_model_is(kind, rng) -> None:
    config, quantizer = {
        "default": (DefaultWeightOnlyQuantConfig(32), DefaultWeightOnlyQuantizer),
        "symmetric": (DefaultWeightOnlyQuantConfig(16, True, 4), DefaultWeightOnlyQuantizer),
        "hqq": (HQQWeightOnlyQuantConfig(32), HQQWeightOnlyQuantizer),
    }[kind]
    weight = numpy_helper.from_array(normal(rng, 40, 6), "w")
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "one")
    graph = onnx.parser.parse_graph("g (float[n, 40] x) => (float[n, 6] y) { }")
    graph.initializer.append(weight)
    new = quantizer(config).quantize(node, [graph])
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    graph.node.append(node)
    whole = MatMulNBitsQuantizer(onnx.helper.make_model(graph), algo_config=config)
    whole.process()
    assert new == list(whole.model.nodes())
    assert all(tensors[tensor.name] == tensor for tensor in whole.model.initializer())


def test_what_has_no_weight_stays_and_rows_of_hqq_are_refused() -> None:
    graph = onnx.parser.parse_graph("g (float[n, 4] x, float[4, 4] z) => (float[n, 4] y) { y = MatMul(x, z) }")
    node = graph.node[0]
    assert DefaultWeightOnlyQuantizer(DefaultWeightOnlyQuantConfig()).quantize(node, [graph]) == [node]
    gather = onnx.helper.make_node("Gather", ["z", "i"], ["y"], "rows")
    with pytest.raises(NotImplementedError, match="'rows'.*float zero points"):
        HQQWeightOnlyQuantizer(HQQWeightOnlyQuantConfig()).quantize(gather, [graph])


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("form", list(QuantFormat))
def test_arrays_are_packed_as_onnxruntime_packs_them(form, symmetric, rng) -> None:
    rows, columns, block = 45, 6, 16
    weight = normal(rng, rows, columns)
    config = DefaultWeightOnlyQuantConfig(block, symmetric, quant_format=form)
    ours = DefaultWeightOnlyQuantizer(config).qbits_block_quant(weight)
    theirs = [np.zeros_like(array) for array in ours]
    state = onnxruntime.capi.onnxruntime_pybind11_state
    run = state.quantize_matmul_4bits if form is QuantFormat.QOperator else state.quantize_qdq_matmul_4bits
    codes, scales, zeros = theirs
    run(codes, weight, scales, zeros, block, columns, rows, symmetric)
    for ours_, theirs_ in zip(ours, (codes, scales, zeros), strict=True):
        np.testing.assert_array_equal(ours_, theirs_)


def test_words_of_command_lines(rng) -> None:
    codes = rng.integers(0, 16, (3, 4)).astype(np.uint8)
    assert np.array_equal(transpose_packed_int4_matrix(pack(codes.ravel(), 4), 3, 4), pack(codes.T.ravel(), 4))
    assert is_divisible(64, 32) and not is_divisible(65, 32)
    assert [ort_convert_str_to_bool(word) for word in ("True", "1", "no", "0")] == [True, True, False, False]
    assert parse_key_value_pair("Gather:1") == ("Gather", 1)
