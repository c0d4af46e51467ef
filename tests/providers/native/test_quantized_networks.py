"""Whole quantized networks: one cluster with whole numbers between layers, each layer as exact arithmetic has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sardonyx.quantization import QuantFormat, QuantType, quantize_static
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import native_plan, programs
from tests.quantization.small import Feeds, batches, model, normal

FLOAT_PRODUCTS = {"Conv", "MatMul", "Gemm", "FusedConv", "FusedMatMul", "FusedGemm"}
NEAR = 1e-3
"""How near to the middle between two codes either of them is right."""


def _convolutional(rng: np.random.Generator) -> onnx.ModelProto:
    def w(*shape: int) -> np.ndarray:
        return normal(rng, *shape, scale=0.3)

    return model(
        """cnn (float[2,3,12,12] x) => (float[2,10] y) {
        a0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w0, b0) a = Relu(a0)
        d0 = Conv<kernel_shape=[3,3], pads=[1,1,1,1], group=16>(a, w1, b1) d = Clip(d0, low, high)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(d)
        e = Conv(p, w2) f0 = Conv<pads=[1,1,1,1], kernel_shape=[3,3]>(p, w3, b3) f = LeakyRelu<alpha=0.1>(f0)
        c = Concat<axis=1>(e, f) g0 = Conv(c, w4, b4) g = Add(g0, p)
        m = GlobalAveragePool(g) s0 = Conv(m, w5, b5) s = Sigmoid(s0) h = Mul(g, s)
        u = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(h, , scales)
        t = ConvTranspose<kernel_shape=[2,2], strides=[2,2]>(h, w6, b6) v = Add(u, t)
        i, j = Split<axis=1>(v, halves) k = Concat<axis=1>(j, i)
        l0 = Pad(k, pads) l = AveragePool<kernel_shape=[3,3], strides=[2,2]>(l0)
        o0 = Transpose<perm=[0,2,3,1]>(l) o1 = Reshape(o0, flat) q0 = Gemm(o1, w7, b7) y = Softmax<axis=-1>(q0) }""",
        w0=w(16, 3, 3, 3),
        b0=w(16),
        w1=w(16, 1, 3, 3),
        b1=w(16),
        w2=w(8, 16, 1, 1),
        w3=w(8, 16, 3, 3),
        b3=w(8),
        w4=w(16, 16, 1, 1),
        b4=w(16),
        w5=w(16, 16, 1, 1),
        b5=w(16),
        w6=w(16, 16, 2, 2),
        b6=w(16),
        w7=w(576, 10) / 8,
        b7=w(10),
        low=np.float32(0),
        high=np.float32(6),
        scales=np.array([1, 1, 2, 2], np.float32),
        halves=np.array([8, 8]),
        flat=np.array([2, -1]),
        pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    )


def _transformer(rng: np.random.Generator) -> onnx.ModelProto:
    def w(*shape: int) -> np.ndarray:
        return normal(rng, *shape, scale=0.2)

    return model(
        """encoder (float[2,6,32] x) => (float[2,6,32] y) {
        q0 = MatMul(x, wq) q1 = Add(q0, bq) q2 = Reshape(q1, heads) q = Transpose<perm=[0,2,1,3]>(q2)
        k0 = MatMul(x, wk) k1 = Add(k0, bk) k2 = Reshape(k1, heads) k = Transpose<perm=[0,2,3,1]>(k2)
        v0 = MatMul(x, wv) v1 = Add(v0, bv) v2 = Reshape(v1, heads) v = Transpose<perm=[0,2,1,3]>(v2)
        s0 = MatMul(q, k) s1 = Mul(s0, factor) s = Softmax<axis=-1>(s1)
        c0 = MatMul(s, v) c1 = Transpose<perm=[0,2,1,3]>(c0) c = Reshape(c1, rows)
        o0 = MatMul(c, wo) o1 = Add(o0, bo) o2 = Add(o1, x) o = LayerNormalization<axis=-1>(o2, g, bn)
        f0 = MatMul(o, w1) f1 = Add(f0, b1) e0 = Div(f1, root) e1 = Erf(e0) e2 = Add(e1, one) e3 = Mul(f1, e2) f = Mul(e3, half)
        h0 = MatMul(f, w2) h1 = Add(h0, b2) h = Add(h1, o) y = LayerNormalization<axis=-1>(h, g, bn) }""",
        **{name: w(32, 32) for name in ("wq", "wk", "wv", "wo")},
        **{name: w(32) for name in ("bq", "bk", "bv", "bo", "bn", "b2")},
        g=1 + w(32),
        w1=w(32, 64),
        b1=w(64),
        w2=w(64, 32),
        heads=np.array([0, 0, 4, 8]),
        rows=np.array([0, 0, 32]),
        factor=np.float32(8**-0.5),
        root=np.float32(2**0.5),
        one=np.float32(1),
        half=np.float32(0.5),
    )


NETWORKS = {"convolutional": (_convolutional, (2, 3, 12, 12)), "transformer": (_transformer, (2, 6, 32))}


def _quantized(
    name: str, path: Path, format: QuantFormat, type: QuantType
) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    rng = np.random.default_rng(7)
    build, shape = NETWORKS[name]
    feeds = batches(rng, "x", *shape, count=3)
    is_pairs = format == QuantFormat.QDQ
    quantize_static(
        build(rng),
        path / "quantized.onnx",
        Feeds(feeds),
        quant_format=format,
        activation_type=type,
        weight_type=QuantType.QInt8,
        per_channel=is_pairs,
        extra_options={"QuantizeBias": True},
    )
    return onnx.load(path / "quantized.onnx"), feeds


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("format", list(QuantFormat))
def test_a_quantized_network_is_one_cluster_without_products_of_floats(name: str, format: QuantFormat, tmp_path: Path) -> None:
    proto, feeds = _quantized(name, tmp_path, format, QuantType.QUInt8)
    plan = native_plan(proto, level=99)
    (program,) = programs(plan)
    assert len(plan.steps) == 1
    assert not FLOAT_PRODUCTS & {node.op_type for step in program.program.steps for node in step.nodes}
    assert np.isfinite(execute(plan, feeds[0])[0]).all()


@pytest.mark.parametrize(("name", "type"), [("convolutional", QuantType.QUInt8), ("transformer", QuantType.QInt8)])
def test_each_layer_is_what_exact_arithmetic_makes_of_the_one_before(name: str, type: QuantType, tmp_path: Path) -> None:
    """In float64, from the codes that native code made of its inputs: of two codes in whose middle a number lies either is right."""
    proto, feeds = _quantized(name, tmp_path, QuantFormat.QDQ, type)
    quantizing = [node for node in proto.graph.node if node.op_type == "QuantizeLinear"]
    element = onnx.TensorProto.UINT8 if type == QuantType.QUInt8 else onnx.TensorProto.INT8
    proto.graph.output.extend(helper.make_tensor_value_info(node.output[0], element, None) for node in quantizing)
    plan = native_plan(proto, level=99)
    assert len(programs(plan)) == len(plan.steps) == 1
    names = [output.name for output in proto.graph.output]
    network = _Exact(proto, feeds[1] | dict(zip(names, execute(plan, feeds[1]), strict=True)))
    for node in quantizing:
        codes, wanted = network.known[node.output[0]], network.steps(node)
        limits = np.iinfo(codes.dtype)
        assert np.abs(codes - np.clip(wanted, limits.min, limits.max)).max() <= 0.5 + NEAR, node.name


class _Exact:
    """The real numbers of a network, computed in float64 from the codes of a run."""

    def __init__(self, proto: onnx.ModelProto, known: Mapping[str, np.ndarray]):
        self.known: dict[str, np.ndarray] = {one.name: numpy_helper.to_array(one) for one in proto.graph.initializer}
        self.known |= known
        self.producers = {output: node for node in proto.graph.node for output in node.output}

    def steps(self, quantize: Any) -> np.ndarray:
        """What is rounded to codes."""
        scale, zero_point = (np.asarray(self.known[name], np.float64) for name in quantize.input[1:])
        quotient: np.ndarray = self.value(quantize.input[0]) / scale + zero_point
        return quotient

    def value(self, name: str) -> np.ndarray:
        array = self.known.get(name)
        if array is None:
            node = self.producers[name]
            results = [self._dequantized(node)] if node.op_type == "DequantizeLinear" else self._computed(node)
            self.known |= dict(zip(node.output, results, strict=True))
            array = self.known[name]
        return array.astype(np.float64) if array.dtype == np.float32 else array

    def _dequantized(self, node: Any) -> np.ndarray:
        codes, scale, zero_point = (np.asarray(self.known[name], np.float64) for name in node.input)
        if scale.size > 1:
            axis = next(one.i for one in node.attribute if one.name == "axis")
            scale, zero_point = (one.reshape(-1, *(1,) * (codes.ndim - 1 - axis % codes.ndim)) for one in (scale, zero_point))
        return (codes - zero_point) * scale

    def _computed(self, node: Any) -> list[np.ndarray]:
        feeds = {name: self.known[name] if name == "scales" else self.value(name) for name in node.input if name}
        results: list[np.ndarray] = ReferenceEvaluator(node).run(None, feeds)
        return results
