"""Small models for tests of the runtime, as serialized protobuf that sardonyx and onnxruntime both read."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx
import onnx.parser
from onnx import TensorProto, helper

from sardonyx.ir import Model
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.plan import Plan
from sardonyx.runtime.preparation.prepare import Prepared, planned
from sardonyx.runtime.preparation.recipe import Recipe


def plan_of(model: Model, providers: Sequence[ExecutionProvider], *, optimizes: bool = False) -> Plan:
    """A loaded model, prepared for providers as a session would."""
    return planned(Prepared(Recipe(None, SessionOptions(), providers, optimizes=optimizes), model))


@functools.cache
def parsed(text: str, opset: int = 17, ir_version: int = 8) -> bytes:
    """A model from the text of its graph."""
    return onnx.parser.parse_model(f'<ir_version: {ir_version}, opset_import: ["" : {opset}]> {text}').SerializeToString()


DOUBLE = parsed("g (float[N,3] x) => (float[N,3] y) { y = Add(x, x) }")
CHAIN = parsed(
    "g (float[N,3] x) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { t = Mul(x, w) u = Relu(t) y = Add(u, x) }",
)
PASS_THROUGH = parsed("g (float[N] x) => (float[N] y) { y = Identity(x) }")
STRINGS = parsed("g (string[N] s) => (string[N] y) { y = Identity(s) }")
TAKE_FROM_SEQUENCE = parsed("g (seq(float[N]) s, int64 i) => (float[N] y) { y = SequenceAt(s, i) }")
MAKE_SEQUENCE = parsed("g (float[N,3] x) => (seq(float[N,3]) y) { y = SequenceConstruct(x, x) }")
HAS_ELEMENT = parsed("g (optional(float[2]) x) => (bool y) { y = OptionalHasElement(x) }", opset=18)
EMPTY_OPTIONAL = parsed("g (float[N] x) => (optional(float[N]) y) { y = Optional<type=float[N]>() }")
OVERRIDABLE = parsed("g (float[N] x, float[2] w) => (float[N] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }")
OLD_DEFAULTS = parsed("g (float[N] x, float[2] w) => (float[N] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }", ir_version=3)
WEIGHT = parsed("g (float[N] x) => (float[N] y) <float[2] w = {1.0, 2.0}> { y = Add(x, w) }")
TWO_OUTPUTS = parsed("g (float[N] x) => (float[N] a, float[N] b) { a = Neg(x) b = Abs(x) }")
TO_BFLOAT16 = parsed("g (float[N] x) => (bfloat16[N] y) { y = Cast<to=16>(x) }")
FROM_BFLOAT16 = parsed("g (bfloat16[N] x) => (float[N] y) { y = Cast<to=1>(x) }")
FOREVER = parsed(
    """g (float x, int64 count) => (float y) <bool go = {1}> {
        y = Loop(count, go, x) <body = b (int64 i, bool c, float s) => (bool c2, float s2) { c2 = Identity(c) s2 = Add(s, s) }>
    }"""
)


def _model(nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], outputs: list[onnx.ValueInfoProto]) -> bytes:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=opsets, ir_version=8
    ).SerializeToString()


def dict_vectorizer(key: int = TensorProto.STRING) -> bytes:
    """A map in, a row of its values out."""
    vocabulary = {"string_vocabulary": ["a", "b"]} if key == TensorProto.STRING else {"int64_vocabulary": [1, 2]}
    kind = helper.make_map_type_proto(key, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", **vocabulary)
    return _model([node], [helper.make_value_info("x", kind)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])


def zip_map() -> bytes:
    """Rows in, a sequence of maps out."""
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[1, 2, 3])
    return _model([node], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 3])], [onnx.ValueInfoProto(name="y")])


def external_weight(location: str = "w.bin") -> bytes:
    """WEIGHT with its initializer in another file."""
    model = onnx.load_model_from_string(WEIGHT)
    tensor = model.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    return model.SerializeToString()
