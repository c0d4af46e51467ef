"""Small float models, built with onnx.helper from fixed seeds. build_all(folder) writes models/*.onnx and calib/*.npz."""

import os

import numpy as np
import onnx
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper as nh

F = T.FLOAT
I64 = T.INT64


class B:
    """A little graph builder: every weight comes from one generator seeded by the model's name."""

    def __init__(self, name, opset, ir=None, unnamed=False, ms=False):
        self.name, self.opset, self.unnamed, self.ms = name, opset, unnamed, ms
        self.ir = ir or {11: 6, 12: 7, 13: 7, 15: 8, 17: 8, 18: 8, 21: 10}[opset]
        self.rng = np.random.default_rng(sum(ord(c) * (i + 1) for i, c in enumerate(name)))
        self.nodes, self.inits, self.ins, self.outs, self.n = [], [], [], [], 0

    def inp(self, name, shape, ty=F):
        self.ins.append(h.make_tensor_value_info(name, ty, shape))
        return name

    def out(self, name, shape, ty=F):
        self.outs.append(h.make_tensor_value_info(name, ty, shape))

    def const(self, name, a):
        self.inits.append(nh.from_array(np.ascontiguousarray(a), name))
        return name

    def w(self, name, *shape, scale=None, shift=0.0):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else shape[0]
        s = scale if scale is not None else 1.0 / np.sqrt(fan)
        return self.const(name, (self.rng.standard_normal(shape) * s + shift).astype(np.float32))

    def op(self, op_type, ins, out, n_out=None, **kw):
        outs = [out] if isinstance(out, str) else list(out)
        self.n += 1
        name = "" if self.unnamed else f"{op_type.lower()}_{self.n}"
        self.nodes.append(h.make_node(op_type, ins, outs, name=name, **kw))
        return out

    def model(self):
        g = h.make_graph(self.nodes, self.name, self.ins, self.outs, self.inits)
        ops = [h.make_opsetid("", self.opset)] + ([h.make_opsetid("com.microsoft", 1)] if self.ms else [])
        m = h.make_model(g, opset_imports=ops, producer_name="fixture", ir_version=self.ir)
        onnx.checker.check_model(m) if not self.ms else None
        return m


def convnet(name="convnet13", opset=13, unnamed=False):
    b = B(name, opset, unnamed=unnamed)
    b.inp("x", [1, 3, 16, 16])
    b.op("Conv", ["x", b.w("w1", 8, 3, 3, 3), b.w("b1", 8, scale=0.1)], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    b.op("Relu", ["c1"], "r1")
    b.op("Conv", ["r1", b.w("w2", 8, 8, 3, 3), b.w("b2", 8, scale=0.1)], "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    b.op("Add", ["c2", "r1"], "a1")
    b.op("Relu", ["a1"], "r2")
    b.op("MaxPool", ["r2"], "p1", kernel_shape=[2, 2], strides=[2, 2])
    b.op("Conv", ["p1", b.w("w3", 12, 8, 1, 1)], "c3", kernel_shape=[1, 1])
    b.op("Relu", ["c3"], "r3")
    b.op("GlobalAveragePool", ["r3"], "g1")
    b.op("Flatten", ["g1"], "f1", axis=1)
    b.op("Gemm", ["f1", b.w("w4", 10, 12), b.w("b4", 10, scale=0.2)], "y", transB=1)
    b.out("y", [1, 10])
    return b.model()


def dwconv():
    b = B("dwconv17", 17)
    b.inp("x", [1, 3, 12, 12])
    b.op(
        "Conv",
        ["x", b.w("w1", 8, 3, 3, 3), b.w("b1", 8, scale=0.1)],
        "c1",
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
    )
    b.op("HardSwish", ["c1"], "h1")
    b.op("Conv", ["h1", b.w("w2", 8, 1, 3, 3), b.w("b2", 8, scale=0.1)], "c2", kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=8)
    b.op("Clip", ["c2", b.const("lo", np.float32(0)), b.const("hi", np.float32(6))], "r6")
    b.op("AveragePool", ["r6"], "ap", kernel_shape=[6, 6])
    b.op("Conv", ["ap", b.w("w3", 8, 8, 1, 1), b.w("b3", 8, scale=0.1)], "se", kernel_shape=[1, 1])
    b.op("Sigmoid", ["se"], "sg")
    b.op("Mul", ["r6", "sg"], "m1")
    b.op("Conv", ["m1", b.w("w4", 4, 8, 1, 1)], "y", kernel_shape=[1, 1])
    b.out("y", [1, 4, 6, 6])
    return b.model()


def mlp():
    b = B("mlp13", 13, unnamed=True)
    b.inp("x", ["N", 16])
    b.op("MatMul", ["x", b.w("w1", 16, 32, scale=0.25)], "m1")
    b.op("Add", ["m1", b.w("b1", 32, scale=0.1)], "a1")
    b.op("Relu", ["a1"], "r1")
    b.op("MatMul", ["r1", b.w("w2", 32, 24, scale=0.2)], "m2")
    b.op("Add", ["m2", b.w("b2", 24, scale=0.1)], "a2")
    b.op("LeakyRelu", ["a2"], "r2", alpha=0.1)
    b.op("MatMul", ["r2", b.w("w3", 24, 6, scale=0.2)], "m3")
    b.op("Softmax", ["m3"], "y", axis=-1)
    b.out("y", ["N", 6])
    return b.model()


def transformer(name, opset):
    b = B(name, opset)
    S, D, H, V = 8, 16, 2, 32
    b.inp("ids", ["B", S], I64)
    b.op("Gather", [b.w("emb", V, D, scale=0.5), "ids"], "e0")
    b.op("Add", ["e0", b.w("pos", S, D, scale=0.1)], "e1")
    b.op("LayerNormalization", ["e1", b.w("g1", D, scale=0.1, shift=1.0), b.w("n1", D, scale=0.1)], "l1", axis=-1, epsilon=1e-5)
    shp = b.const("hs", np.array([0, S, H, D // H], np.int64))
    for t, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        b.op("MatMul", ["l1", b.w(f"w{t}", D, D)], f"{t}0")
        b.op("Add", [f"{t}0", b.w(f"b{t}", D, scale=0.1)], f"{t}1")
        b.op("Reshape", [f"{t}1", shp], f"{t}2")
        b.op("Transpose", [f"{t}2"], f"{t}3", perm=perm)
    b.op("MatMul", ["q3", "k3"], "s0")
    b.op("Div", ["s0", b.const("sq", np.float32(np.sqrt(D // H)))], "s1")
    b.op("Softmax", ["s1"], "p", axis=-1)
    b.op("MatMul", ["p", "v3"], "c0")
    b.op("Transpose", ["c0"], "c1", perm=[0, 2, 1, 3])
    b.op("Reshape", ["c1", b.const("ms", np.array([0, S, D], np.int64))], "c2")
    b.op("MatMul", ["c2", b.w("wo", D, D)], "o0")
    b.op("Add", ["o0", b.w("bo", D, scale=0.1)], "o1")
    b.op("Add", ["o1", "e1"], "o2")
    b.op("LayerNormalization", ["o2", b.w("g2", D, scale=0.1, shift=1.0), b.w("n2", D, scale=0.1)], "l2", axis=-1, epsilon=1e-5)
    b.op("MatMul", ["l2", b.w("wf", D, 2 * D)], "f0")
    b.op("Add", ["f0", b.w("bf", 2 * D, scale=0.1)], "f1")
    if opset >= 20:
        b.op("Gelu", ["f1"], "f2")
    else:
        b.op("Div", ["f1", b.const("r2", np.float32(np.sqrt(2)))], "f1a")
        b.op("Erf", ["f1a"], "f1b")
        b.op("Add", ["f1b", b.const("one", np.float32(1))], "f1c")
        b.op("Mul", ["f1", "f1c"], "f1d")
        b.op("Mul", ["f1d", b.const("half", np.float32(0.5))], "f2")
    b.op("MatMul", ["f2", b.w("wp", 2 * D, D)], "h0")
    b.op("Add", ["h0", b.w("bp", D, scale=0.1)], "h1")
    b.op("Add", ["h1", "o2"], "y")
    b.out("y", ["B", S, D])
    return b.model()


def lstm():
    b = B("lstm13", 13)
    S, I, H = 5, 6, 8
    b.inp("x", [S, 1, I])
    b.op(
        "LSTM",
        ["x", b.w("W", 1, 4 * H, I, scale=0.3), b.w("R", 1, 4 * H, H, scale=0.3), b.w("Bi", 1, 8 * H, scale=0.1)],
        ["Y", "Yh", "Yc"],
        hidden_size=H,
    )
    b.op("Squeeze", ["Yh", b.const("ax", np.array([0], np.int64))], "s")
    b.op("MatMul", ["s", b.w("wo", H, 4)], "m")
    b.op("Add", ["m", b.w("bo", 4, scale=0.1)], "y")
    b.out("y", [1, 4])
    b.out("Y", [S, 1, 1, H])
    return b.model()


def shapes():
    b = B("shapes13", 13)
    b.inp("x", [1, 4, 8, 8])
    b.inp("z", [1, 4, 8, 8])
    b.inp("cond", [1, 4, 8, 8], T.BOOL)
    b.op("Concat", ["x", "z"], "cc", axis=1)
    b.op("Conv", ["cc", b.w("w1", 8, 8, 3, 3), b.w("b1", 8, scale=0.1)], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    b.op("Split", ["c1", b.const("sp", np.array([4, 4], np.int64))], ["s1", "s2"], axis=1)
    b.op("Where", ["cond", "s1", "s2"], "wh")
    b.op("Resize", ["wh", "", b.const("rs", np.array([1, 1, 2, 2], np.float32))], "rz", mode="nearest")
    b.op("Pad", ["rz", b.const("pd", np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)), b.const("pv", np.float32(0.25))], "pp")
    b.op(
        "Slice",
        [
            "pp",
            b.const("st", np.array([1, 1], np.int64)),
            b.const("en", np.array([17, 17], np.int64)),
            b.const("sx", np.array([2, 3], np.int64)),
            b.const("ss", np.array([2, 2], np.int64)),
        ],
        "sl",
    )
    b.op("Transpose", ["sl"], "tr", perm=[0, 2, 3, 1])
    b.op("Reshape", ["tr", b.const("sh", np.array([1, 16, 16], np.int64))], "re")
    b.op("MatMul", ["re", b.w("w2", 16, 12, scale=0.25)], "mm")
    b.op("Unsqueeze", ["mm", b.const("ua", np.array([0], np.int64))], "us")
    b.op("Squeeze", ["us", b.const("sa", np.array([0], np.int64))], "y")
    b.op("ArgMax", ["y"], "am", axis=-1, keepdims=0)
    b.out("y", [1, 16, 12])
    b.out("am", [1, 16], I64)
    return b.model()


def convtranspose(name, opset):
    b = B(name, opset)
    b.inp("x", [1, 4, 6, 6])
    b.op(
        "ConvTranspose",
        ["x", b.w("w1", 4, 6, 3, 3), b.w("b1", 6, scale=0.1)],
        "d1",
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[1, 1, 1, 1],
        output_padding=[1, 1],
    )
    b.op("LeakyRelu", ["d1"], "l1", alpha=0.2)
    b.op("Conv", ["l1", b.w("w2", 3, 6, 3, 3), b.w("b2", 3, scale=0.1)], "c1", kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    b.op("Sigmoid", ["c1"], "y")
    b.out("y", [1, 3, 12, 12])
    return b.model()


def if_model():
    b = B("if13", 13)
    b.inp("x", [2, 8])
    b.inp("c", [], T.BOOL)
    b.op("MatMul", ["x", b.w("w0", 8, 8)], "m0")
    b.op("Relu", ["m0"], "r0")

    def branch(tag, act):
        w = nh.from_array((b.rng.standard_normal((8, 5)) * 0.3).astype(np.float32), f"{tag}_w")
        bi = nh.from_array((b.rng.standard_normal(5) * 0.1).astype(np.float32), f"{tag}_b")
        n = [
            h.make_node("MatMul", ["r0", f"{tag}_w"], [f"{tag}_m"], name=f"{tag}_matmul"),
            h.make_node("Add", [f"{tag}_m", f"{tag}_b"], [f"{tag}_a"], name=f"{tag}_add"),
            h.make_node(act, [f"{tag}_a"], [f"{tag}_y"], name=f"{tag}_act"),
        ]
        return h.make_graph(n, tag, [], [h.make_tensor_value_info(f"{tag}_y", F, [2, 5])], [w, bi])

    b.op("If", ["c"], "i0", then_branch=branch("then", "Relu"), else_branch=branch("else", "Tanh"))
    b.op("MatMul", ["i0", b.w("w9", 5, 3)], "y")
    b.out("y", [2, 3])
    return b.model()


def external():
    b = B("external17", 17)
    b.inp("x", ["N", 64])
    b.op("MatMul", ["x", b.w("w1", 64, 64, scale=0.12)], "m1")
    b.op("Add", ["m1", b.w("b1", 64, scale=0.1)], "a1")
    b.op("Relu", ["a1"], "r1")
    b.op("Gemm", ["r1", b.w("w2", 16, 64, scale=0.12), b.w("b2", 16, scale=0.1)], "y", transB=1)
    b.out("y", ["N", 16])
    return b.model()


def shared():
    b = B("shared17", 17)
    b.inp("x", ["N", 12])
    w, bi = b.w("w", 12, 12, scale=0.28), b.w("bias", 12, scale=0.1)
    b.op("MatMul", ["x", w], "m1")
    b.op("Add", ["m1", bi], "a1")
    b.op("Relu", ["a1"], "r1")
    b.op("MatMul", ["r1", w], "m2")
    b.op("Add", ["m2", bi], "a2")
    b.op("Gemm", ["a2", w, bi], "g1")
    b.op("Gemm", ["x", w, bi], "g2", alpha=1.0, beta=1.0)
    b.op("Mul", ["g1", "g2"], "u")
    b.op("Identity", ["u"], "y")
    b.out("y", ["N", 12])
    b.out("g1", ["N", 12])
    return b.model()


def conv21():
    b = B("norm21", 21)
    b.inp("x", [1, 4, 8, 8])
    b.op("Conv", ["x", b.w("w1", 6, 4, 3, 3), b.w("b1", 6, scale=0.1)], "c1", kernel_shape=[3, 3], auto_pad="SAME_UPPER")
    b.op(
        "BatchNormalization",
        [
            "c1",
            b.w("bs", 6, scale=0.1, shift=1.0),
            b.w("bb", 6, scale=0.1),
            b.w("bm", 6, scale=0.1),
            b.const("bv", np.linspace(0.5, 1.5, 6, dtype=np.float32)),
        ],
        "n1",
    )
    b.op("Relu", ["n1"], "r1")
    b.op("InstanceNormalization", ["r1", b.w("is", 6, scale=0.1, shift=1.0), b.w("ib", 6, scale=0.1)], "n2")
    b.op("Conv", ["n2", b.w("w2", 4, 6, 1, 1), b.w("b2", 4, scale=0.1)], "c2", kernel_shape=[1, 1])
    b.op("GlobalAveragePool", ["c2"], "gp")
    b.op("Reshape", ["gp", b.const("sh", np.array([1, 4], np.int64))], "re")
    b.op("Gemm", ["re", b.w("w3", 4, 6, scale=0.5), b.w("b3", 6, scale=0.1)], "y")
    b.out("y", [1, 6])
    return b.model()


def nbits(name="nbits17", m=96, n=40):
    b = B(name, 17)
    b.inp("ids", ["B", 4], I64)
    b.op("Gather", [b.w("emb", 20, 64, scale=0.5), "ids"], "e")
    b.op("MatMul", ["e", b.w("w1", 64, m, scale=0.12)], "m1")
    b.op("Add", ["m1", b.w("b1", m, scale=0.1)], "a1")
    b.op("Relu", ["a1"], "r1")
    b.op("MatMul", ["r1", b.w("w2", m, n, scale=0.1)], "m2")
    b.op("MatMul", ["m2", b.w("w3", n, 24, scale=0.15)], "m3")
    b.op("Transpose", ["m3"], "t", perm=[0, 2, 1])
    b.op("MatMul", ["m3", "t"], "y")
    b.out("y", ["B", 4, 4])
    b.out("m3", ["B", 4, 24])
    return b.model()


def bigbias():
    """Weights so small beside the bias that the bias does not fit int32 at scale sx * sw: the tool widens the weight scale."""
    b = B("bigbias17", 17)
    b.inp("x", [1, 3, 6, 6])
    w = b.rng.standard_normal((4, 3, 3, 3)) * 0.2
    w[2] *= 1e-9
    b.op(
        "Conv",
        ["x", b.const("w1", w.astype(np.float32)), b.const("b1", np.array([0.1, -0.2, 3.0, 0.4], np.float32))],
        "c1",
        kernel_shape=[3, 3],
    )
    b.op("Relu", ["c1"], "y")
    b.out("y", [1, 4, 4, 4])
    return b.model()


def tail():
    b = B("tail17", 17)
    b.inp("x", [2, 3, 8])
    b.op("MatMul", ["x", b.w("w1", 8, 8)], "m1")
    b.op("GatherElements", ["m1", b.const("gi", b.rng.integers(0, 8, (2, 3, 6)).astype(np.int64))], "ge", axis=2)
    b.op("CumSum", ["ge", b.const("ca", np.array(2, np.int64))], "cs")
    b.op("TopK", ["cs", b.const("k", np.array([4], np.int64))], ["tk", "ti"], axis=-1)
    b.op("Unsqueeze", ["tk", b.const("ua", np.array([1], np.int64))], "us")
    b.op("InstanceNormalization", ["tk", b.w("g", 3, scale=0.1, shift=1.0), b.w("c", 3, scale=0.1)], "n1")
    b.op("Add", ["n1", b.w("ac", 4, scale=0.5)], "a1")
    b.op("ReduceMean", ["us"], "rm", axes=[1], keepdims=0)
    b.op("Sub", ["a1", "rm"], "s1")
    b.op("Mul", ["s1", b.const("two", np.array([2.0], np.float32))], "y")
    b.out("y", [2, 3, 4])
    return b.model()


def half():
    b = B("half21", 21)
    H = T.FLOAT16
    b.inp("x", ["N", 32], H)

    def w16(name, *shape, scale):
        return b.const(name, (b.rng.standard_normal(shape) * scale).astype(np.float16))

    b.op("MatMul", ["x", w16("w1", 32, 24, scale=0.2)], "m1")
    b.op("Add", ["m1", w16("b1", 24, scale=0.1)], "a1")
    b.op("Relu", ["a1"], "r1")
    b.op("Gemm", ["r1", w16("w2", 24, 8, scale=0.2), w16("b2", 8, scale=0.1)], "y")
    b.out("y", ["N", 8], H)
    return b.model()


def const():
    """Weights in Constant nodes, an initializer that is also a graph input, Conv of rank 3, Gemm with alpha and without bias."""
    b = B("const13", 13)
    b.inp("x", [1, 4, 10])
    b.op("Constant", [], "kw", value=nh.from_array((b.rng.standard_normal((6, 4, 3)) * 0.3).astype(np.float32), "kw_value"))
    b.op("Conv", ["x", "kw", b.w("cb", 6, scale=0.1)], "c1", kernel_shape=[3], pads=[1, 1])
    b.op("Relu", ["c1"], "r1")
    b.op("Conv", ["r1", b.w("w2", 6, 6, 3, scale=0.2)], "c2", kernel_shape=[3], pads=[1, 1], dilations=[1])
    b.op("Add", ["c2", "r1"], "a1")
    b.op("Flatten", ["a1"], "f1")
    b.inp("wi", [60, 5])
    b.op("Gemm", ["f1", b.w("wi", 60, 5, scale=0.15)], "g1", alpha=0.5)
    b.op("Constant", [], "half", value=nh.from_array(np.array([0.5], np.float32), "half_value"))
    b.op("Mul", ["g1", "half"], "m1")
    b.op("Clip", ["m1"], "y")
    b.out("y", [1, 5])
    return b.model()


def edge():
    """Degenerate ranges: a channel of zeros, a channel of one sign, an activation that is always zero, an outlier, a one-element weight."""
    b = B("edge17", 17)
    b.inp("x", [1, 2, 6, 6])
    w = b.rng.standard_normal((5, 2, 3, 3)) * 0.3
    w[0] = 0
    w[1] = np.abs(w[1])
    w[2] = -np.abs(w[2])
    w[3, 0, 1, 1] = 40.0
    w[4] = 0.25
    b.op(
        "Conv",
        ["x", b.const("w1", w.astype(np.float32)), b.const("b1", np.array([0, 1e-6, -1, 2, 0.5], np.float32))],
        "c1",
        kernel_shape=[3, 3],
    )
    b.op("Conv", ["c1", b.const("w2", np.zeros((3, 5, 1, 1), np.float32))], "c2", kernel_shape=[1, 1])
    b.op("Relu", ["c2"], "r2")
    b.op("Add", ["r2", b.const("k", np.array([[[[3.0]]]], np.float32))], "a1")
    b.op("GlobalAveragePool", ["c1"], "gp")
    b.op("Reshape", ["gp", b.const("sh", np.array([1, 5], np.int64))], "re")
    b.op("MatMul", ["re", b.const("w3", np.full((5, 1), -0.75, np.float32))], "y")
    b.out("y", [1, 1])
    b.out("a1", [1, 3, 4, 4])
    return b.model()


def embed():
    b = B("embed17", 17, ms=True)
    b.inp("ids", [1, 6], T.INT32)
    b.inp("seg", [1, 6], T.INT32)
    b.op(
        "EmbedLayerNormalization",
        [
            "ids",
            "seg",
            b.w("we", 20, 16, scale=0.5),
            b.w("pe", 8, 16, scale=0.2),
            b.w("se", 20, 16, scale=0.2),
            b.w("g", 16, scale=0.1, shift=1.0),
            b.w("be", 16, scale=0.1),
        ],
        ["e", "mi"],
        epsilon=1e-5,
        domain="com.microsoft",
    )
    b.op("MatMul", ["e", b.w("w", 16, 8)], "y")
    b.out("y", [1, 6, 8])
    return b.model()


def attention():
    b = B("attention17", 17, ms=True)
    S, D = 6, 16
    b.inp("x", [1, S, D])
    b.op(
        "Attention",
        ["x", b.w("w", D, 3 * D, scale=0.25), b.w("b", 3 * D, scale=0.1), ""],
        "at",
        num_heads=2,
        domain="com.microsoft",
    )
    b.op("MatMul", ["at", b.w("wo", D, D)], "m")
    b.op("Add", ["m", "x"], "y")
    b.out("y", [1, S, D])
    return b.model()


BUILD = {
    "convnet13": convnet,
    "convnet11": lambda: convnet("convnet11", 11, unnamed=True),
    "dwconv17": dwconv,
    "mlp13": mlp,
    "transformer17": lambda: transformer("transformer17", 17),
    "transformer21": lambda: transformer("transformer21", 21),
    "lstm13": lstm,
    "shapes13": shapes,
    "deconv11": lambda: convtranspose("deconv11", 11),
    "deconv13": lambda: convtranspose("deconv13", 13),
    "bigbias17": bigbias,
    "if13": if_model,
    "external17": external,
    "shared17": shared,
    "norm21": conv21,
    "nbits17": nbits,
    "nbits_even17": lambda: nbits("nbits_even17", 128, 64),
    "attention17": attention,
    "embed17": embed,
    "tail17": tail,
    "half21": half,
    "const13": const,
    "edge17": edge,
}
N_CALIB = 4  # batches in each calib/*.npz; the last one is also the input of the stored outputs


def feeds(name, model):
    rng = np.random.default_rng(1000 + len(name) + sum(map(ord, name)))
    out = []
    for k in range(N_CALIB):
        d = {}
        for v in model.graph.input:
            if v.name in {i.name for i in model.graph.initializer}:
                continue
            t = v.type.tensor_type
            shape = [x.dim_value or 2 for x in t.shape.dim]
            if t.elem_type in (I64, T.INT32):
                d[v.name] = rng.integers(0, 20, shape).astype(np.int64 if t.elem_type == I64 else np.int32)
            elif t.elem_type == T.BOOL:
                d[v.name] = (rng.random(shape) < 0.5) if shape else np.array(k % 2 == 1)
            else:
                d[v.name] = (rng.standard_normal(shape) * (0.6 + 0.2 * k) + 0.1).astype(
                    np.float16 if t.elem_type == T.FLOAT16 else np.float32
                )
        out.append(d)
    return out


def build_all(folder):
    for sub in ("models", "calib"):
        os.makedirs(os.path.join(folder, sub), exist_ok=True)
    for name, f in BUILD.items():
        m = f()
        p = os.path.join(folder, "models", name + ".onnx")
        for q in (p, p + ".data"):
            if os.path.exists(q):
                os.remove(q)
        arrays = {f"{k}/{i}": a for k, d in enumerate(feeds(name, m)) for i, a in d.items()}
        np.savez_compressed(os.path.join(folder, "calib", name + ".npz"), **arrays)
        if name.startswith("external"):
            onnx.save_model(m, p, save_as_external_data=True, location=name + ".onnx.data", size_threshold=1024)
        else:
            onnx.save_model(m, p)
