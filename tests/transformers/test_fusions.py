"""onnxruntime's fusions by their names: each runs its stage of our optimizer and nothing else; own fusions over OnnxModel."""

from __future__ import annotations

import importlib

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from sardonyx.transformers.fusion_attention import AttentionMask
from sardonyx.transformers.fusion_base import Fusion, StageFusion
from sardonyx.transformers.fusion_utils import FusionUtils, NumpyHelper
from sardonyx.transformers.onnx_model import OnnxModel
from tests.optimizer import attention_idioms as idioms

their_utils = importlib.import_module("onnxruntime.transformers.fusion_utils").FusionUtils
their_model = importlib.import_module("onnxruntime.transformers.onnx_model").OnnxModel

NUMBERS = "float one = {1}, float half = {0.5}, float root = {1.41421356}, float two = {2}, float tiny = {1e-5}"
ERF = "d = Div(x, root) e = Erf(d) f = Add(e, one) g = Mul(x, f) y = Mul(g, half)"
TANH = (
    "cubed = Pow(x, three) scaled = Mul(cubed, factor) inner = Add(x, scaled) wide = Mul(inner, pi)"
    " t = Tanh(wide) f = Add(t, one) g = Mul(x, f) y = Mul(g, half)"
)
NORM = (
    "m = ReduceMean<axes=[-1]>(x) c = Sub(x, m) p = Pow(c, two) v = ReduceMean<axes=[-1]>(p) w = Add(v, tiny) s = Sqrt(w)"
    " n = Div(c, s) o = Mul(n, gamma) y = Add(o, beta)"
)
RMS = "p = Pow(x, two) v = ReduceMean<axes=[-1]>(p) w = Add(v, tiny) s = Sqrt(w) n = Div(x, s) y = Mul(n, gamma)"
LAYER = "LayerNormalization<axis=-1>"
LOOKUPS = "a = Gather(words, ids) b = Gather(places, ids) s = Add(a, b)"
CASES = [
    ("gelu", "FusionGelu", ERF, {"Gelu": 1}),
    ("fastgelu", "FusionFastGelu", TANH, {"FastGelu": 1}),
    ("quickgelu", "FusionQuickGelu", "w = Mul(x, quick) s = Sigmoid(w) y = Mul(x, s)", {"QuickGelu": 1}),
    ("biasgelu", "FusionBiasGelu", "a = Add(x, beta) y = com.microsoft.Gelu(a)", {"BiasGelu": 1}),
    ("gelu_approximation", "FusionGeluApproximation", "y = com.microsoft.Gelu(x)", {"FastGelu": 1}),
    ("layernorm", "FusionLayerNormalization", NORM, {"LayerNormalization": 1}),
    ("layernorm", "FusionLayerNormalizationTF", NORM, {"LayerNormalization": 1}),
    ("simplified_layernorm", "FusionSimplifiedLayerNormalization", RMS, {"SimplifiedLayerNormalization": 1}),
    (
        "skiplayernorm",
        "FusionSkipLayerNormalization",
        f"a = Neg(x) s = Add(a, x) y = {LAYER}(s, gamma, beta)",
        {"Neg": 1, "SkipLayerNormalization": 1},
    ),
    (
        "skiplayernorm",
        "FusionBiasSkipLayerNormalization",
        "n = Neg(x) a = Add(n, beta) y = com.microsoft.SkipLayerNormalization(a, x, gamma, beta)",
        {"Neg": 1, "SkipLayerNormalization": 1},
    ),
    (
        "simplified_layernorm",
        "FusionSkipSimplifiedLayerNormalization",
        "a = Neg(x) s = Add(a, x) y = SimplifiedLayerNormalization<axis=-1>(s, gamma)",
        {"Neg": 1, "SkipSimplifiedLayerNormalization": 1},
    ),
    ("constant_fold", "FusionConstantFold", "s = Add(gamma, beta) y = Mul(x, s)", {"Mul": 1}),
    ("reshape", "FusionReshape", "s = Shape(ids) e = Concat<axis=0>(s, eight) y = Reshape(x, e)", {"Reshape": 1}),
    (
        "transpose",
        "FusionTranspose",
        "n = Neg(x) a = Transpose<perm=[2, 0, 1]>(n) y = Transpose<perm=[1, 2, 0]>(a)",
        {"Neg": 1},
    ),
    (
        "embedlayer",
        "FusionEmbedLayerNormalization",
        f"{LOOKUPS} y = {LAYER}(s, gamma, beta)",
        {"EmbedLayerNormalization": 1, "Cast": 2},
    ),
    (
        "embedlayer",
        "FusionEmbedLayerNoMask",
        f"{LOOKUPS} y = {LAYER}(s, gamma, beta)",
        {"EmbedLayerNormalization": 1, "Cast": 2},
    ),
]
FEEDS = {"x": np.linspace(-2, 2, 48, dtype=np.float32).reshape(2, 3, 8), "ids": np.array([[0, 1, 2], [2, 1, 0]])}


def model_of(body: str) -> onnx.ModelProto:
    constants = (
        f"{NUMBERS}, float three = {{3}}, float factor = {{0.044715}}, float pi = {{0.7978845608}}, float quick = {{1.702}},"
        " int64[1] eight = {8}"
    )
    made = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    block (float[batch, length, 8] x, int64[batch, length] ids) => (float[batch, length, 8] y) <{constants}> {{ {body} }}""")
    rng = np.random.default_rng(5)
    for name, shape in (("gamma", 8), ("beta", 8), ("words", (3, 8)), ("places", (3, 8))):
        made.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    return made


def results(model: onnx.ModelProto) -> np.ndarray:
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, FEEDS)[0]


@pytest.mark.parametrize(("module", "name", "body", "counts"), CASES, ids=[name for _, name, _, _ in CASES])
def test_a_fusion_by_its_name_does_its_part_and_no_other(module, name, body, counts):
    fusion = getattr(importlib.import_module(f"sardonyx.transformers.fusion_{module}"), name)
    model = OnnxModel(model_of(body))
    wanted = results(model.model)
    fusion(model).apply()
    assert model.get_operator_statistics() == counts
    np.testing.assert_allclose(results(model.model), wanted, rtol=1e-4, atol=1e-3)


def test_a_fusion_leaves_what_another_fuses():
    model = OnnxModel(model_of(f"{ERF} m = ReduceMean<axes=[-1]>(y) c = Sub(y, m) z = {LAYER}(c, gamma, beta)"))
    model.model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    importlib.import_module("sardonyx.transformers.fusion_gelu").FusionGelu(model).apply()
    assert model.get_operator_statistics() == {"Gelu": 1, "ReduceMean": 1, "Sub": 1, "LayerNormalization": 1}


ATTENTION = [
    ("fusion_attention", "FusionAttention"),
    ("fusion_attention_clip", "FusionAttentionClip"),
    ("fusion_attention_sam2", "FusionMultiHeadAttentionSam2"),
    ("fusion_attention_unet", "FusionAttentionUnet"),
    ("fusion_attention_vae", "FusionAttentionVae"),
    ("fusion_bart_attention", "FusionBartAttention"),
    ("fusion_conformer_attention", "FusionConformerAttention"),
    ("fusion_gpt_attention", "FusionGptAttention"),
    ("fusion_gpt_attention_megatron", "FusionGptAttentionMegatron"),
    ("fusion_gpt_attention_no_past", "FusionGptAttentionNoPast"),
    ("fusion_mha_dit", "FusionMultiHeadAttentionDiT"),
    ("fusion_mha_mmdit", "FusionMultiHeadAttentionMMDit"),
    ("fusion_rotary_attention", "FusionRotaryAttention"),
    ("onnx_model_t5", "FusionT5Attention"),
    ("onnx_model_tnlr", "FusionTnlrAttention"),
]


@pytest.mark.parametrize(("module", "name"), ATTENTION, ids=[name for _, name in ATTENTION])
def test_attention_by_its_names(module, name):
    text = f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> {idioms.self_attention(idioms.SCALED)}'
    model = OnnxModel(onnx.parser.parse_model(text))
    feeds = {
        value.name: np.ones(
            [2 if not size.dim_value else size.dim_value for size in value.type.tensor_type.shape.dim], np.float32
        )
        / 8
        for value in model.model.graph.input
    }
    wanted = onnxruntime.InferenceSession(model.model.SerializeToString()).run(None, feeds)[0]
    getattr(importlib.import_module(f"sardonyx.transformers.{module}"), name)(model, 32, 4).apply()
    assert model.get_operator_statistics()["MultiHeadAttention"] == 1
    got = onnxruntime.InferenceSession(model.model.SerializeToString()).run(None, feeds)[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


their_masks = importlib.import_module("onnxruntime.transformers.fusion_attention").AttentionMask


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize("form", [0, 2, 3], ids=["lengths", "mask", "none"])
def test_masks_come_as_onnxruntime_gives_them(form, opset):
    text = f"""<ir_version: 8, opset_import: ["": {opset}]>
    g (int64[N, M] mask, bool[N, M] inner) => (bool[N, M] y) {{ other = Not(inner) y = Not(other) }}"""
    given = {"mask": np.array([[1, 1, 0], [1, 1, 1]]), "inner": np.array([[True, False, False], [True, True, False]])}

    def use(masks_of, model_of_it):
        model = model_of_it(onnx.parser.parse_model(text))
        masks = masks_of(model)
        masks.set_mask_format(form)
        names = [masks.process_mask(name) for name in ("mask", "other", "mask")]
        if form == 3:
            return names
        assert names[0] == names[2] and masks.get_first_mask() == "mask" and set(masks.mask_casted) == {"mask", "other"}
        model.model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.INT32, None) for name in names[:2])
        model.topological_sort()
        return [out.tolist() for out in onnxruntime.InferenceSession(model.model.SerializeToString()).run(names[:2], given)]

    assert use(AttentionMask, OnnxModel) == use(their_masks, their_model)


def test_a_mask_is_one_thing():
    masks = AttentionMask(OnnxModel(model_of("y = Neg(x)")))
    with pytest.raises(ValueError, match="no mask has been named yet"):
        masks.get_first_mask()
    masks.set_mask_indice("mask", "lengths")
    with pytest.raises(ValueError, match="mask 'mask' is given to Attention as 'lengths' already, not as 'mask'"):
        masks.set_mask_indice("mask", "mask")


class DoubledNeg(Fusion):
    """Neg(Neg(x)) is x, times a new weight that is 1."""

    def __init__(self, model):
        super().__init__(model, "Mul", "Neg", "two of them")

    def fuse(self, node, input_name_to_nodes, output_name_to_node):
        inner = output_name_to_node.get(node.input[0])
        if inner is None or inner.op_type != "Neg" or len(input_name_to_nodes[inner.output[0]]) != 1:
            return
        self.add_initializer("unit", TensorProto.FLOAT, [1], [1.0])
        self.add_nodes_to_remove([node, inner, node])
        name = self.model.create_node_name("Mul")
        self.nodes_to_add.append(helper.make_node("Mul", [inner.input[0], "unit"], [node.output[0]], name))
        self.node_name_to_graph_name[name] = self.this_graph_name
        self.increase_counter("Mul")


NEGATED = "a = Neg(x) y = Neg(a)"
BRANCHES = """n = Shape(x) f = ReduceSum<keepdims=0>(n) c = Cast<to=9>(f)
    y = If(c) <then_branch = first () => (float[batch, length, 8] t) { a = Neg(x) t = Neg(a) },
               else_branch = second () => (float[batch, length, 8] e) { b = Neg(x) e = Neg(b) }>"""


@pytest.mark.parametrize(("body", "count"), [(NEGATED, 1), (BRANCHES, 2)])
def test_own_fusions_work_in_every_graph(body, count):
    model = OnnxModel(model_of(body))
    wanted = results(model.model)
    fusion = DoubledNeg(model)
    fusion.apply()
    counts = model.get_operator_statistics()
    assert "Neg" not in counts and counts["Mul"] == fusion.fused_count["Mul"] == count
    np.testing.assert_array_equal(results(model.model), wanted)


def test_stages_are_those_of_the_optimizer():
    from sardonyx.optimizer.levels import LEVELS

    names = {stage.name for level in LEVELS.values() for stage in level}
    assert all(set(fusion.stages) <= names for fusion in StageFusion.__subclasses__())


EDITED = """
<ir_version: 8, opset_import: ["": 13]>
g (int64[N, 4] ids, float[N, 4] x) => (float[N, 4] y, float[N, 4] z) <int64[2] shape = {-1, 4}, int64[1] axes = {0}, float two = {2}> {
    c = Cast<to = 6>(ids)
    i = Identity(x)
    r = Reshape(i, shape)
    y = Add(r, two)
    j = Identity(y)
    z = Identity(j)
    t = Transpose<perm = [1, 0]>(x)
    s = Squeeze(r, axes)
    n = Neg(c)
}"""
CALLS = {
    "an input as int32": lambda utils, nodes: [utils.cast_graph_input_to_int32(name) for name in ("ids", "x", "none")],
    "a value in another type": lambda utils, nodes: [utils.cast_input("x", kind)[0] for kind in ("int32", "float16")],
    "a new Cast": lambda utils, nodes: utils.add_cast_node("r", 10).output[0],
    "a Cast that is named": lambda utils, nodes: utils.add_cast_node("r", 10, "half", None, "g").output[0],
    "no Cast": lambda utils, nodes: utils.remove_cast_int32("ids"),
    "axes": lambda utils, nodes: list(utils.get_squeeze_or_unsqueeze_axes(nodes[7])),
    "attributes": lambda utils, nodes: [
        bool(utils.check_node_attribute(nodes[number], *arguments))
        for number, arguments in ((6, ("perm", [1, 0])), (6, ("perm", [0, 1])), (0, ("to", 6)), (0, ("none", 6, 6)), (0, ("none", 6)))
    ],
    "constants": lambda utils, nodes: [
        bool(utils.check_node_input_value(nodes[number], *arguments))
        for number, arguments in ((3, (1, 2.0)), (3, (1, 3.0)), (2, (1, [-1, 4])), (3, (0, 2.0)))
    ],
    "no Identity": lambda utils, nodes: utils.remove_identity_nodes(),
    "no Cast after a Cast": lambda utils, nodes: utils.remove_cascaded_cast_nodes(),
}  # fmt: skip


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_edits_are_those_of_onnxruntime(call):
    def edited(utils, model_class):
        model = model_class(onnx.parser.parse_model(EDITED))
        answer = call(utils(model), list(model.model.graph.node))
        return answer, [(node.op_type, list(node.input), list(node.output)) for node in model.model.graph.node]

    assert edited(FusionUtils, OnnxModel) == edited(their_utils, their_model)


def test_a_parent_is_skipped():
    for utils, model_class in ((FusionUtils, OnnxModel), (their_utils, their_model)):
        model = model_class(onnx.parser.parse_model(EDITED))
        readers, nodes = model.input_name_to_nodes(), model.model.graph.node
        assert utils.skip_parent(model, nodes[2], nodes[1], readers) is True
        assert nodes[2].input[0] == "x" and not readers["i"] and len(readers["x"]) == 3
        assert not utils.skip_parent(model, nodes[4], nodes[3], readers)  # y is an output


def test_a_reshape_to_its_own_shape_goes():
    model = OnnxModel(onnx.parser.parse_model(EDITED))
    FusionUtils(model).remove_useless_reshape_nodes()
    assert "Reshape" not in model.get_operator_statistics()
    assert [list(node.input) for node in model.get_nodes_by_op_type("Add")] == [["i", "two"]]


def test_scales_that_a_fusion_takes():
    text = """<ir_version: 8, opset_import: ["": 13]> g (float[2, 3] x) => (float[2, 3] y)
    <float s = {0.5}, uint8 z = {3}, float[3] many = {0.1, 0.2, 0.3}, int8[3] zeros = {0, 0, 0}, int8 zero = {0}> {
        q = QuantizeLinear(x, s, z) q2 = QuantizeLinear<axis = 1>(x, many, zeros) q3 = QuantizeLinear(x, s, zero)
        y = DequantizeLinear(q3, s)
    }"""
    answers = []
    for utils, model_class in ((FusionUtils, OnnxModel), (their_utils, their_model)):
        model = model_class(onnx.parser.parse_model(text))
        nodes = model.model.graph.node
        answers.append([bool(utils.check_qdq_node_for_fusion(node, model, one)) for node in nodes for one in (True, False)])
    assert answers[0] == answers[1] == [False, False, False, True, True, True, True, True]


def test_a_matrix_is_transposed_with_its_sizes():
    tensor = numpy_helper.from_array(np.arange(6, dtype=np.int8).reshape(2, 3), "w")
    np.testing.assert_array_equal(NumpyHelper.to_array(FusionUtils.transpose_2d_int8_tensor(tensor)), [[0, 3], [1, 4], [2, 5]])
    np.testing.assert_array_equal(NumpyHelper.to_array(tensor, fill_zeros=True), np.zeros((3, 2), np.int8))
    with pytest.raises(ValueError, match="INT8"):
        FusionUtils.transpose_2d_int8_tensor(numpy_helper.from_array(np.zeros((2, 2), np.float32)))


def test_a_type_that_is_unknown_is_named():
    with pytest.raises(ValueError, match="'double' is not one of int32"):
        FusionUtils(OnnxModel(onnx.parser.parse_model(EDITED))).cast_input("x", "double")
