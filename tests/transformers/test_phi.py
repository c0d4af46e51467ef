"""Phi-2 as the dynamo exporter writes it, calls of functions, becomes ops: beside the model's own arithmetic in NumPy."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sardonyx
from sardonyx.transformers import onnx_model_phi as phi
from sardonyx.transformers.fusion_options import AttentionOpType, FusionOptions

HEADS, WIDTH, ROTATED, WORDS, LAYERS, VOCABULARY = 2, 128, 32, 3, 2, 50
SIZE = WIDTH // HEADS
DOMAIN = "pkg.transformers"
rng = np.random.default_rng(0)


def weights() -> dict[str, np.ndarray]:
    shapes = {"self_attn.q_proj": (WIDTH, WIDTH), "self_attn.k_proj": (WIDTH, WIDTH), "self_attn.v_proj": (WIDTH, WIDTH)}
    shapes |= {"self_attn.dense": (WIDTH, WIDTH), "mlp.fc1": (2 * WIDTH, WIDTH), "mlp.fc2": (WIDTH, 2 * WIDTH)}
    found = {"model.embed_tokens.weight": rng.normal(size=(VOCABULARY, WIDTH))}
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            found[f"model.layers.{layer}.{name}.weight"] = rng.normal(size=shape) / np.sqrt(shape[1])
            found[f"model.layers.{layer}.{name}.bias"] = rng.normal(size=shape[0])
        found[f"model.layers.{layer}.input_layernorm.weight"] = rng.normal(size=WIDTH)
        found[f"model.layers.{layer}.input_layernorm.bias"] = rng.normal(size=WIDTH)
        angles = np.arange(40)[:, None] * 10000.0 ** (-np.arange(ROTATED // 2) * 2 / ROTATED)
        for kind, function in (("cos", np.cos), ("sin", np.sin)):
            found[f"model.layers.{layer}.self_attn.rotary_emb.{kind}_cached"] = np.tile(function(angles), 2)
    found |= {"model.final_layernorm.weight": rng.normal(size=WIDTH), "model.final_layernorm.bias": rng.normal(size=WIDTH)}
    found |= {"lm_head.weight": rng.normal(size=(VOCABULARY, WIDTH)) / 8, "lm_head.bias": rng.normal(size=VOCABULARY)}
    return {name: array.astype(np.float32) for name, array in found.items()}


WEIGHTS = weights()


def exported() -> ModelProto:
    names = [name for name in WEIGHTS if name.startswith("model.")]
    caches = [f"{kind}_states{f'_{layer}' if layer else ''}" for layer in range(LAYERS) for kind in ("key", "value")]
    nodes = [
        helper.make_node(
            "torch_nn_modules_sparse_Embedding_model_embed_tokens_1", ["words", names[0]], ["hidden_0"], domain=DOMAIN
        )
    ]
    presents = []
    for layer in range(LAYERS):
        outputs = [f"model_layers_{layer}_1_1", f"model_layers_{layer}_1_2"]
        outputs = outputs if layer == 0 else [f"model_layers_{layer}_1", f"model_layers_{layer}_1_1"]
        own = [name for name in names if f"layers.{layer}." in name]
        op = f"prefix_modeling_phi_PhiDecoderLayer_model_layers_{layer}_1"
        inputs = [f"hidden_{layer}", *caches[2 * layer : 2 * layer + 2], *own]
        nodes.append(helper.make_node(op, inputs, [*outputs, f"hidden_{layer + 1}"], domain=DOMAIN))
        presents += outputs
    final = [f"hidden_{LAYERS}", "model.final_layernorm.weight", "model.final_layernorm.bias"]
    nodes.append(
        helper.make_node("torch_nn_modules_normalization_LayerNorm_model_final_layernorm_1", final, ["last"], domain=DOMAIN)
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    inputs, outputs = ["words", *caches, *names], [*presents, "last"]
    function = helper.make_function(DOMAIN, "modeling_phi_PhiModel_model_1", inputs, outputs, nodes, opsets)
    call = helper.make_node(function.name, ["l_input_ids_", *caches, *names], [*presents, "model_1"], domain=DOMAIN)
    head = ["l_input_ids_", "l_input_ids_", "model_1", "lm_head.weight", "lm_head.bias"]
    graph = helper.make_graph(
        [call, helper.make_node("torch_nn_modules_linear_Linear_lm_head_1", head, ["lm_head_1"], domain=DOMAIN)],
        "phi",
        [
            helper.make_tensor_value_info("l_input_ids_", TensorProto.INT64, [1, WORDS]),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in caches),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("lm_head_1", *presents)],
        [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()],
    )
    return helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)


def normalized(x: np.ndarray, name: str) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * WEIGHTS[f"{name}.weight"] + WEIGHTS[f"{name}.bias"]


def linear(x: np.ndarray, name: str) -> np.ndarray:
    return x @ WEIGHTS[f"{name}.weight"].T.astype(np.float64) + WEIGHTS[f"{name}.bias"]


def rotated(x: np.ndarray, first: int) -> np.ndarray:
    """Pairs of [batch, heads, words, size] at a distance of half of what is rotated."""
    half = ROTATED // 2
    angles = (first + np.arange(x.shape[2]))[:, None] * 10000.0 ** (-np.arange(half) * 2 / ROTATED)
    a, b, rest = x[..., :half], x[..., half:ROTATED], x[..., ROTATED:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles), rest], -1)


def reference(words: np.ndarray, caches: list[tuple[np.ndarray, np.ndarray]], turned=rotated) -> list[np.ndarray]:
    batch, length = words.shape
    past = caches[0][0].shape[2]
    x = WEIGHTS["model.embed_tokens.weight"].astype(np.float64)[words]
    present = []
    for layer, (old_key, old_value) in enumerate(caches):
        name = f"model.layers.{layer}"
        inner = normalized(x, f"{name}.input_layernorm")
        query, key, value = (
            linear(inner, f"{name}.self_attn.{kind}_proj").reshape(batch, length, HEADS, SIZE).transpose(0, 2, 1, 3)
            for kind in "qkv"
        )
        key = np.concatenate([old_key, turned(key, past)], 2)
        value = np.concatenate([old_value, value], 2)
        scores = turned(query, past) @ key.transpose(0, 1, 3, 2) / np.sqrt(SIZE)
        scores = np.where(np.arange(past + length) <= past + np.arange(length)[:, None], scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (shares / shares.sum(-1, keepdims=True)) @ value
        attended = linear(seen.transpose(0, 2, 1, 3).reshape(batch, length, WIDTH), f"{name}.self_attn.dense")
        wide = linear(inner, f"{name}.mlp.fc1")
        wide = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        x = x + attended + linear(wide, f"{name}.mlp.fc2")
        present += [key, value]
    return [linear(normalized(x, "model.final_layernorm"), "lm_head"), *present]


def converted(op: AttentionOpType) -> phi.PhiOnnxModel:
    options = FusionOptions("phi")
    options.set_attention_op_type(op)
    model = phi.PhiOnnxModel(exported(), HEADS, WIDTH)
    model.optimize(options)
    return model


@pytest.mark.parametrize("runtime", [onnxruntime, sardonyx])
@pytest.mark.parametrize(("op", "past"), [("MultiHeadAttention", 4), ("GroupQueryAttention", 0), ("Attention", 0)])
def test_calls_become_ops(op: str, past: int, runtime) -> None:
    model = converted(AttentionOpType(op))
    assert len(model.get_nodes_by_op_type(op)) == LAYERS and not model.model.functions
    assert not [node for node in model.nodes() if node.domain == DOMAIN]
    assert model.is_fully_optimized()
    shape = (1, HEADS, past, SIZE)
    caches = [tuple(rng.normal(size=shape).astype(np.float32) for _ in range(2)) for _ in range(LAYERS)]
    words = rng.integers(0, VOCABULARY, (1, WORDS))
    feeds = {"input_ids": words.astype(np.int32), "attention_mask": np.ones((1, past + WORDS), np.int32)}
    feeds["step"] = np.array([past])
    for layer, (key, value) in enumerate(caches):
        if op == "Attention":
            feeds[f"past_{layer}"] = np.stack([key, value])
        else:
            feeds |= {f"past_key_{layer}": key, f"past_value_{layer}": value}
    turned = rotated
    if op == "Attention":  # no runtime rotates inside of it on a CPU
        turned = lambda x, first: x  # noqa: E731
        for node in model.get_nodes_by_op_type(op):
            rotation = [attribute for attribute in node.attribute if "rotary" in attribute.name]
            assert {attribute.name: attribute.i for attribute in rotation} == {"do_rotary": 1, "rotary_embedding_dim": ROTATED}
            for attribute in rotation:
                node.attribute.remove(attribute)
    session = runtime.InferenceSession(model.model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {value.name: feeds[value.name] for value in session.get_inputs()}
    got = session.run(None, given)
    wanted = reference(words, caches, turned)
    if op == "Attention":
        wanted = [wanted[0], *(np.stack(wanted[2 * layer + 1 : 2 * layer + 3]) for layer in range(LAYERS))]
    for result, expected in zip(got, wanted, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)


def test_blocks_of_keys_and_values_are_an_op_of_another_engine() -> None:
    model = phi.Phi2PreProcessor(exported(), HEADS, WIDTH)
    model.preprocess_onnx(AttentionOpType.PagedAttention)
    names = [value.name for value in model.model.graph().input]
    assert names[:3] == ["input_ids", "position_ids", "input_metadata"] and len(names) == 3 + 2 * LAYERS
    assert [value.name for value in model.model.graph().output] == ["logits"]
    block = phi.FissionTransformerBlockPhi(model.model, HEADS)
    block.set_attention_op_type(AttentionOpType.PagedAttention)
    block.apply()
    paged = model.model.get_nodes_by_op_type("PagedAttention")
    assert len(paged) == LAYERS and list(paged[1].input[3:]) == ["past_key_1", "past_value_1", "input_metadata"]


def test_weights_of_one_layer_out_of_packed_ones() -> None:
    parts = [rng.normal(size=(4, 6)) for _ in range(3)]
    kinds = phi.ProcessMatMulQFunc, phi.ProcessMatMulKFunc, phi.ProcessMatMulVFunc
    for kind, part in zip(kinds, parts):
        assert np.array_equal(kind()(np.concatenate(parts)), part.T)
    biases = phi.ProcessBiasQFunc, phi.ProcessBiasKFunc, phi.ProcessBiasVFunc
    assert [kind()(np.arange(6)).tolist() for kind in biases] == [[0, 1], [2, 3], [4, 5]]
    assert np.array_equal(phi.ProcessGemmWFunc()(parts[0]), parts[0].T)
    assert phi.ProcessRotCacheFunc()(np.zeros((3, 32))).shape == (3, 16)
    assert phi.ProcessRotCacheFunc()(np.zeros((3, 16))).shape == (3, 16)
    with pytest.raises(ValueError, match=r"\[3\]"):
        phi.ProcessRotCacheFunc()(np.zeros(3))


def test_other_exports_are_refused() -> None:
    model = exported()
    del model.functions[:]
    with pytest.raises(ValueError, match="PhiModel"):
        phi.Phi2PreProcessor(model, HEADS, WIDTH).preprocess_onnx(AttentionOpType.Attention)
    fission = phi.FissionTransformerLayerNormPhi(phi.PhiOnnxModel(exported(), HEADS, WIDTH))
    with pytest.raises(ValueError, match="no value of a, b is called c"):
        fission.get_edge_by_name(["a", "b"], "c")
    with pytest.raises(ValueError, match="'a' is no weight"):
        fission.process_initializer("a", phi.ProcessGemmWFunc())
