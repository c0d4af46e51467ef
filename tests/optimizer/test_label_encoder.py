"""Two LabelEncoders in a row."""

from __future__ import annotations

import numpy as np
import pytest

from sardonyx.optimizer.passes.label_encoder import compose_label_encoders
from sardonyx.optimizer.rewrite import Journal
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.providers.cpu.provider import evaluate
from tests.optimizer.rewriting import assert_rewrites, run, typed

FIRST = 'a = ai.onnx.ml.LabelEncoder<keys_int64s=[0,1,2,1], values_strings=["x","y","z","w"], default_string="?">(i)'


def composed(nodes, version, feeds, types=("int64", "float")):
    text = f'<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : {version}]> g ({types[0]}[N] i) => ({types[1]}[N] y) {{ {nodes} }}'
    model = typed(text)
    want = run(model, {"i": feeds})
    assert compose_label_encoders(model.graph, Rewriting(model, evaluate, {}, Journal(strict=True)))
    assert [node.op_type for node in model.graph.nodes] == ["LabelEncoder"]
    got = run(model, {"i": feeds})
    np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    "default",
    [
        'keys_strings=["x","w","y"], values_floats=[1.5,2.5,3.5], default_float=-7.0',
        'keys_strings=["?","x"], values_floats=[9.0,1.0], default_float=-7.0',
    ],
)
def test_values_and_defaults_go_through_both(version, default):
    composed(f"{FIRST} y = ai.onnx.ml.LabelEncoder<{default}>(a)", version, np.array([0, 1, 2, 3, -5]))


def test_tensors_of_other_types():
    second = (
        'y = ai.onnx.ml.LabelEncoder<keys_tensor=string[2] {"x", "?"}, values_tensor=double[2] {0.1, 0.2},'
        " default_tensor=double[1] {0.3}>(a)"
    )
    composed(f"{FIRST} {second}", 4, np.array([0, 1, 2, 3]), ("int64", "double"))


def test_a_label_that_is_used_elsewhere_keeps_its_encoder():
    second = 'y = ai.onnx.ml.LabelEncoder<keys_strings=["x"], values_int64s=[1]>(a)'
    text = f"g (int64[N] i) => (int64[N] y, string[N] a) {{ {FIRST} {second} }}"
    assert_rewrites(compose_label_encoders, text, None, compare=False)
