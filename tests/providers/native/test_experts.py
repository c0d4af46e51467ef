"""Mixtures of experts in native code as NumPy and onnxruntime have them: every activation, type, size and number of bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper, numpy_helper

import sardonyx
from sardonyx import errors
from tests.compiler.functions import levels
from tests.providers.native.agreement import assert_agrees, native_plan, programs
from tests.providers.native.levels import use_level

Arrays = dict[str, np.ndarray]
INPUTS = {
    "MoE": "input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights fc2_experts_bias fc3_experts_weights"
    " fc3_experts_bias",
    "QMoE": "input router_probs fc1_experts_weights fc1_scales fc1_experts_bias fc2_experts_weights fc2_scales fc2_experts_bias"
    " fc3_experts_weights fc3_scales fc3_experts_bias fc1_zero_points fc2_zero_points fc3_zero_points router_weights"
    " fc1_global_scale fc2_global_scale",
}
FLOATS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
ROUNDED = 1e-3
"""A last bit of a hidden number may decide to which of two 8-bit numbers it is rounded."""


def model(op: str, feeds: Arrays, constants: Arrays, is_open: bool = False, **attributes: Any) -> ModelProto:
    """A model of one node; with `is_open` no size of what is fed is known."""
    present = {**feeds, **constants}
    names = [name if name in present else "" for name in INPUTS[op].split()]
    node = helper.make_node(op, names, ["Y"], domain="com.microsoft", name="mixture", **attributes)
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(array.dtype),
            [f"{name}{axis}" for axis in range(array.ndim)] if is_open else array.shape,
        )
        for name, array in feeds.items()
    ]
    output = helper.make_tensor_value_info("Y", helper.np_dtype_to_tensor_dtype(feeds["input"].dtype), None)
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def tokens_of(rng: np.random.Generator, tokens: int, hidden: int, experts: int) -> Arrays:
    return {"input": numbers(rng, tokens, hidden), "router_probs": numbers(rng, tokens, experts)}


def gating(draw: Any) -> dict[str, Any]:
    """Attributes of a gated activation."""
    limits = draw(st.sampled_from([{}, {"swiglu_limit": 0.5}, {"swiglu_limit": -0.5}, {"swiglu_limit": float("inf")}]))
    alpha, beta = draw(st.sampled_from([(1.0, 0.0), (1.702, 1.0)]))
    return {"activation_type": "swiglu", "activation_alpha": alpha, "activation_beta": beta, **limits}


@st.composite
def forms(draw: Any) -> tuple[dict[str, Any], bool, bool]:
    """Attributes, whether there is a third matrix, and whether the first is twice as wide."""
    experts = draw(st.integers(1, 9))
    attributes = {"k": draw(st.integers(1, experts)), "normalize_routing_weights": draw(st.integers(0, 1))}
    if experts > 1 and draw(st.integers(0, 7)) == 0:
        attributes |= {"k": 2, "use_sparse_mixer": 1}
    kind = draw(st.sampled_from(["plain", "third", "gated third", "interleaved", "halves"]))
    if kind in ("plain", "third"):
        attributes["activation_type"] = draw(st.sampled_from(["relu", "gelu", "silu", "identity"]))
    else:
        attributes |= gating(draw) | {"swiglu_fusion": {"interleaved": 1, "halves": 2}.get(kind, 0)}
    return {"experts": experts, **attributes}, "third" in kind, kind in ("interleaved", "halves")


@settings(max_examples=60, deadline=None)
@given(forms(), st.integers(0, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from(list(FLOATS)), st.data())
def test_mixtures_of_any_form_and_size(form, tokens, hidden, inner, type, data) -> None:
    attributes, has_third, is_wide = form
    experts = attributes["experts"]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    rows = 2 * inner if is_wide else inner
    weights = {
        "fc1_experts_weights": numbers(rng, experts, rows, hidden),
        "fc2_experts_weights": numbers(rng, experts, hidden, inner),
    }
    biases = {"fc1_experts_bias": numbers(rng, experts, rows), "fc2_experts_bias": numbers(rng, experts, hidden)}
    if has_third:
        weights["fc3_experts_weights"] = numbers(rng, experts, inner, hidden)
        biases["fc3_experts_bias"] = numbers(rng, experts, inner)
    weights |= biases if data.draw(st.booleans()) else {}
    fed = tokens_of(rng, tokens, hidden, experts)
    fed, weights = ({name: array.astype(FLOATS[type]) for name, array in part.items()} for part in (fed, weights))
    if data.draw(st.booleans()):
        fed["input"] = fed["input"].reshape(1, tokens, hidden)
    if data.draw(st.booleans()):
        fed, weights = {**fed, **weights}, {}
    given = {name: value for name, value in attributes.items() if name != "experts"}
    source = model("MoE", fed, weights, is_open=data.draw(st.booleans()), **given)
    assert_agrees(source, fed, tolerance=None if type != "float32" else 1e-5)


def codes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def coded_layer(
    rng: np.random.Generator, layer: str, sizes: tuple[int, int, int], bits: int, block: int | None, has_points: bool
) -> Arrays:
    """Weights of one layer, (experts, rows, inner)."""
    experts, rows, inner = sizes
    blocks = () if block is None else (inner // block,)
    arrays = {
        f"{layer}_experts_weights": codes(rng, experts, rows, inner * bits // 8),
        f"{layer}_scales": rng.uniform(0.01, 0.03, (experts, rows, *blocks)).astype(np.float32),
    }
    if has_points:
        shape = (experts, -(-rows * bits // 8)) if block is None else (experts, rows, -(-blocks[0] * bits // 8))
        arrays[f"{layer}_zero_points"] = codes(rng, *shape)
    return arrays


@settings(max_examples=60, deadline=None)
@given(forms(), st.integers(0, 40), st.sampled_from([2, 4, 8]), st.sampled_from([None, 16, 32, 48]), st.booleans(), st.data())
def test_quantized_mixtures_of_any_form(form, tokens, bits, block, has_points, data) -> None:
    attributes, has_third, is_wide = form
    experts = attributes["experts"]
    rng = np.random.default_rng(data.draw(st.integers(0, 2**16)))
    unit = block or 4
    hidden, inner = (unit * data.draw(st.integers(1, 5)) for _ in range(2))
    rows = 2 * inner if is_wide else inner
    second_bits = data.draw(st.sampled_from([bits, 4, 8]))
    weights = coded_layer(rng, "fc1", (experts, rows, hidden), bits, block, has_points)
    weights |= coded_layer(rng, "fc2", (experts, hidden, inner), second_bits, block, has_points)
    weights |= coded_layer(rng, "fc3", (experts, inner, hidden), bits, block, has_points) if has_third else {}
    fed = tokens_of(rng, tokens, hidden, experts)
    if data.draw(st.booleans()):
        fed["router_weights"] = rng.uniform(0, 1, (tokens, experts)).astype(np.float32)
    if data.draw(st.booleans()):
        fed |= {"fc1_experts_bias": numbers(rng, experts, rows), "fc2_experts_bias": numbers(rng, experts, hidden)}
    given = {name: value for name, value in attributes.items() if name != "experts"}
    given |= {"expert_weight_bits": bits, "fc2_expert_weight_bits": second_bits}
    given |= {} if block is None else {"block_size": block}
    level = data.draw(st.sampled_from([0, 4]))
    source = model("QMoE", fed, weights, is_open=data.draw(st.booleans()), accuracy_level=level, **given)
    assert_agrees(source, fed, tolerance=1e-5 if level == 0 or block is None else ROUNDED)


@pytest.mark.parametrize("level", levels())
def test_every_feature_set_computes_the_same(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_level(monkeypatch, level)
    rng = np.random.default_rng(4)
    fed = tokens_of(rng, 70, 96, 3)
    gated = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
    real = {"fc1_experts_weights": numbers(rng, 3, 160, 96), "fc2_experts_weights": numbers(rng, 3, 96, 80)}
    assert_agrees(model("MoE", fed, real, **gated), fed, tolerance=1e-5)
    for bits in (2, 4, 8):
        weights = coded_layer(rng, "fc1", (3, 160, 96), bits, 16, True) | coded_layer(rng, "fc2", (3, 96, 80), bits, 16, True)
        for accuracy, tolerance in ((0, 1e-5), (4, ROUNDED)):
            attributes = {**gated, "expert_weight_bits": bits, "block_size": 16, "accuracy_level": accuracy}
            assert_agrees(model("QMoE", fed, weights, **attributes), fed, tolerance=tolerance)


@pytest.mark.parametrize(("quant_type", "block"), [("fp4", 32), ("nvfp4", 16)])
def test_codes_of_float4_are_looked_up(quant_type: str, block: int) -> None:
    rng = np.random.default_rng(5)
    fed = tokens_of(rng, 20, 64, 4)
    scale_type = ml_dtypes.float8_e8m0fnu if quant_type == "fp4" else ml_dtypes.float8_e4m3fn
    weights: Arrays = {}
    for layer, rows in (("fc1", 32), ("fc2", 64)):
        inner = 96 - rows
        weights |= {
            f"{layer}_experts_weights": codes(rng, 4, rows, inner // 2),
            f"{layer}_scales": (2.0 ** rng.integers(-3, 1, (4, rows, inner // block))).astype(scale_type),
            f"{layer}_global_scale": rng.uniform(0.1, 0.3, 4).astype(np.float32),
        }
    assert_agrees(model("QMoE", fed, weights, k=2, quant_type=quant_type, block_size=block), fed, tolerance=1e-5)


EXPERTS = {"fc1_experts_weights": np.ones((5, 8, 8), np.float32), "fc2_experts_weights": np.ones((5, 8, 8), np.float32)}
EXPERTS["fc1_experts_weights"] *= np.arange(1, 6, dtype=np.float32)[:, None, None]
"""Each expert gives another number, so that results tell who was chosen."""
LOGITS = {
    "equal": [0, 0, 0, 0, 0],
    "zeros": [-0.0, 0.0, -0.0, 0.0, -0.0],
    "infinite": [np.inf, 1, np.inf, 2, -np.inf],
    "nowhere": [-np.inf] * 5,
    "no number": [1, np.nan, 2, np.nan, 3],
    "denormal": [1e-40, 2e-40, -1e-40, 0, 1e-41],
    "large": [3e38, -3e38, 3e38, 1, 0],
    "near": [5.0, 4.95, 4.9, -4.99, 5.0],
    "below": [-5.0, -4.95, -4.9, -4.99, -5.0],
}


@pytest.mark.parametrize("logits", LOGITS.values(), ids=LOGITS)
@pytest.mark.parametrize("sparse", [0, 1])
def test_odd_logits_choose_the_same_experts(logits: list[float], sparse: int) -> None:
    fed = {"input": np.full((1, 8), 0.25, np.float32), "router_probs": np.array([logits], np.float32)}
    for normalize in (0, 1):
        attributes = {"k": 2, "use_sparse_mixer": sparse, "normalize_routing_weights": normalize}
        with np.errstate(all="ignore"):
            assert_agrees(model("MoE", fed, EXPERTS, **attributes), fed, tolerance=1e-5)


def test_odd_numbers_go_through_as_in_numpy() -> None:
    rng = np.random.default_rng(6)
    fed = tokens_of(rng, 6, 16, 2)
    fed["input"][:5, 3] = [np.nan, np.inf, -np.inf, 1e-40, -0.0]
    weights = {"fc1_experts_weights": numbers(rng, 2, 24, 16), "fc2_experts_weights": numbers(rng, 2, 16, 12)}
    attributes = {"activation_type": "swiglu", "swiglu_fusion": 1, "swiglu_limit": 7.0}
    with np.errstate(all="ignore"):
        assert_agrees(model("MoE", fed, weights, **attributes), fed, tolerance=1e-5)


def test_one_session_takes_any_number_of_tokens() -> None:
    rng = np.random.default_rng(7)
    weights = coded_layer(rng, "fc1", (6, 64, 32), 4, 16, False) | coded_layer(rng, "fc2", (6, 32, 64), 4, 16, False)
    sets = [tokens_of(rng, tokens, 32, 6) for tokens in (1, 300, 0, 7, 64)]
    assert_agrees(model("QMoE", sets[0], weights, is_open=True, k=3, block_size=16), sets, tolerance=1e-5)


@pytest.mark.parametrize("tokens", [1, 130])
@pytest.mark.parametrize("bits", [4, 8])
def test_onnxruntime_gives_the_same(tokens: int, bits: int) -> None:
    rng = np.random.default_rng(8)
    fed = tokens_of(rng, tokens, 128, 8)
    weights = coded_layer(rng, "fc1", (8, 512, 128), bits, None, True) | coded_layer(
        rng, "fc2", (8, 128, 256), bits, None, True
    )
    attributes = {"k": 3, "activation_type": "swiglu", "swiglu_fusion": 1, "expert_weight_bits": bits}
    compare_with_onnxruntime(model("QMoE", fed, weights, **attributes), fed, 1e-5)
    real = {"fc1_experts_weights": numbers(rng, 8, 256, 128), "fc2_experts_weights": numbers(rng, 8, 128, 256)}
    compare_with_onnxruntime(model("MoE", fed, real, k=3, activation_type="silu"), fed, 1e-5)


@pytest.mark.parametrize("block", [32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_tokens_are_rounded_as_onnxruntime_rounds_them(block: int, bits: int) -> None:
    rng = np.random.default_rng(9)
    fed = tokens_of(rng, 9, 256, 4)
    weights = coded_layer(rng, "fc1", (4, 512, 256), bits, block, False)
    weights |= coded_layer(rng, "fc2", (4, 256, 512), bits, block, False)
    attributes = {"k": 2, "activation_type": "silu", "expert_weight_bits": bits, "block_size": block}
    compare_with_onnxruntime(model("QMoE", fed, weights, accuracy_level=4, **attributes), fed, ROUNDED)


def compare_with_onnxruntime(source: ModelProto, feeds: Mapping[str, np.ndarray], tolerance: float) -> None:
    content = source.SerializeToString()
    wanted = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, dict(feeds))[0]
    options = sardonyx.SessionOptions()
    options.add_session_config_entry("sardonyx.require_native", "1")
    session = sardonyx.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, dict(feeds))[0], wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def test_weights_are_never_held_dequantized() -> None:
    rng = np.random.default_rng(10)
    fed = tokens_of(rng, 2, 256, 8)
    weights = coded_layer(rng, "fc1", (8, 512, 256), 4, 32, False) | coded_layer(rng, "fc2", (8, 256, 512), 4, 32, False)
    (program,) = programs(native_plan(model("QMoE", fed, weights, block_size=32)))
    given = sum(array.nbytes for array in weights.values())
    held = sum(constant.array.nbytes for constant in program.program.constants)
    assert held <= given + 4096


@pytest.mark.parametrize(("k", "experts", "sparse"), [(3, 2, 0), (2, 0, 0), (2, 0, 1)])
def test_more_experts_than_a_run_has_are_refused(k: int, experts: int, sparse: int) -> None:
    rng = np.random.default_rng(11)
    fed = tokens_of(rng, 3, 8, experts)
    fed |= {"fc1_experts_weights": numbers(rng, experts, 8, 8), "fc2_experts_weights": numbers(rng, experts, 8, 8)}
    proto = model("MoE", fed, {}, is_open=True, k=k, use_sparse_mixer=sparse)
    session = sardonyx.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with pytest.raises(errors.InvalidArgument, match=f"mixture.*k is {k}, there are {experts} experts"):
        session.run(None, fed)


@pytest.mark.parametrize(
    ("name", "shape", "fault"),
    [
        ("router_probs", (4, 2), "router_probs has 4 rows for 3 tokens"),
        ("fc1_experts_weights", (2, 8, 9), r"fc1_experts_weights is \[2, 8, 9\]"),
        ("fc1_experts_weights", (1, 8, 8), r"fc1_experts_weights is \[1, 8, 8\]"),
        ("fc2_experts_weights", (2, 8, 7), r"fc2_experts_weights is \[2, 8, 7\]"),
        ("fc2_experts_bias", (2, 1), r"fc2_experts_bias is \[2, 1\]"),
    ],
)
def test_sizes_that_a_run_contradicts_are_refused(name: str, shape: tuple[int, ...], fault: str) -> None:
    rng = np.random.default_rng(12)
    fed = tokens_of(rng, 3, 8, 2)
    fed |= {"fc1_experts_weights": numbers(rng, 2, 8, 8), "fc2_experts_weights": numbers(rng, 2, 8, 8)}
    fed |= {"fc2_experts_bias": numbers(rng, 2, 8)}
    session = sardonyx.InferenceSession(
        model("MoE", fed, {}, is_open=True).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    session.run(None, fed)
    with pytest.raises(errors.InvalidArgument, match=f"mixture.*{fault}"):
        session.run(None, fed | {name: numbers(rng, *shape)})


def test_scales_that_are_no_numbers_are_refused() -> None:
    rng = np.random.default_rng(13)
    fed = tokens_of(rng, 2, 32, 2)
    weights = coded_layer(rng, "fc1", (2, 32, 32), 4, None, False) | coded_layer(rng, "fc2", (2, 32, 32), 4, None, False)
    weights["fc2_scales"][1, 3] = np.nan
    with pytest.raises(errors.Fail, match="mixture.*fc2_scales must be finite, but has nan"):
        sardonyx.InferenceSession(model("QMoE", fed, weights).SerializeToString(), providers=["CPUExecutionProvider"])
