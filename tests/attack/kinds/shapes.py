"""One session whose sizes are all open, on many shapes in turn, against new sessions with fixed sizes in NumPy."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnx.parser

from sardonyx import errors
from tests.attack.reference import Expectation, Reference
from tests.attack.subject import Problem, Subject, examine, session_of

SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 33)
ROUNDS = 14

WEIGHTS = {
    "w": (8, 12),
    "v": (12, 8),
    "filters": (6, 3, 3, 3),
    "points": (5, 6, 1, 1),
    "deep": (6, 1, 3, 3),
    "b": (12,),
    "g": (8,),
}
MODELS = {
    "dense": (
        "float[A,B,8] x",
        {"x": "AB8"},
        "p = MatMul(x, w) q = Add(p, b) r = Gelu(q) s = MatMul(r, v) t = Add(s, x) y = LayerNormalization<axis=-1>(t, g, g)",
    ),
    "attention": (
        "float[A,B,8] x, float[A,C,8] z",
        {"x": "AB8", "z": "AC8"},
        "t = Transpose<perm=[0,2,1]>(z) s = MatMul(x, t) p = Softmax<axis=-1>(s) y = MatMul(p, z)",
    ),
    "images": (
        "float[A,3,B,C] x",
        {"x": "A3BC"},
        "a = Conv<pads=[1,1,1,1]>(x, filters) r = Relu(a) d = Conv<pads=[1,1,1,1], group=6>(r, deep) s = Sigmoid(d) m = Mul(s, d)"
        " p = Conv(m, points) y = GlobalAveragePool(p)",
    ),
    "pools": (
        "float[A,3,B,C] x",
        {"x": "A3BC"},
        "a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, filters) r = LeakyRelu(a)"
        " m = MaxPool<kernel_shape=[2,2], strides=[2,2], pads=[0,0,1,1]>(r) y = Tanh(m)",
    ),
    "broadcast": (
        "float[A,B,C] x, float[A,1,C] z, float[C] u",
        {"x": "ABC", "z": "A1C", "u": "C"},
        "a = Mul(x, z) b1 = Add(a, u) c = Exp(u) d = Div(b1, c) e = Neg(d) y = Max(e, x)",
    ),
    "reductions": (
        "float[A,B,C] x",
        {"x": "ABC"},
        "m = ReduceMean<keepdims=1>(x, last) d = Sub(x, m) s = Mul(d, d) v1 = ReduceSum<keepdims=1>(s, last) r = Sqrt(v1)"
        " e = Add(r, small) q = Div(d, e) t = Transpose<perm=[2,0,1]>(q) y = ReduceL2<keepdims=0>(t, first)",
    ),
    "views": (
        "float[A,B,C] x",
        {"x": "ABC"},
        "r = Slice(x, backwards, far, first, backwards) t = Transpose<perm=[1,2,0]>(r) n = Neg(t) f = Flatten<axis=1>(n)"
        " s = Shape(x) k = Reshape<allowzero=1>(f, s) y = Concat<axis=1>(k, x)",
    ),
    "rows": (
        "float[A,B] x, int64[C] i",
        {"x": "AB", "i": "C"},
        "s = Sigmoid(x) z = Mul(s, x) p = Gather<axis=0>(z, i) q = CumSum(p, axis) y = LogSoftmax<axis=1>(q)",
    ),
    "counts": (
        "float[A,B] x",
        {"x": "AB"},
        "c = Greater(x, zero) n = Not(c) f = Cast<to=1>(n) g1 = Mul(f, x) h = ReduceSum<keepdims=0>(g1, first) y = Clip(h, zero, one)",
    ),
    "products": (
        "float[A,B] x, float[C,B] z",
        {"x": "AB", "z": "CB"},
        "e = Relu(x) k = Gemm<transB=1, alpha=0.5>(e, z) t = Transpose(k) m = MatMul(t, x) y = Softplus(m)",
    ),
}
CONSTANTS = """int64[1] last = {-1}, int64[1] first = {0}, float small = {0.01}, int64[1] backwards = {-1}, int64[1] far = {-99999},
    int64 axis = {1}, float zero = {0}, float one = {1}"""


def make(rng: random.Random) -> Subject:
    numbers = np.random.default_rng(rng.getrandbits(32))
    name = rng.choice(sorted(MODELS))
    inputs, shapes, nodes = MODELS[name]
    open_names = {"A": "A", "B": "B", "C": "C"}
    if rng.random() < 0.3:  # not even the names are there
        open_names = dict.fromkeys(open_names, "?")
    declared = "".join(open_names.get(letter, letter) for letter in inputs)
    text = f"""<ir_version: 10, opset_import: ["" : 21]> g ({declared}) => (y) <{CONSTANTS}> {{ {nodes} }}"""
    model = onnx.parser.parse_model(text)
    for weight, shape in WEIGHTS.items():
        if f" {weight})" in text or f" {weight}," in text:
            array = (numbers.standard_normal(shape) * 0.3).astype(np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, weight))
    feeds = []
    for _ in range(ROUNDS):
        sizes = {letter: rng.choice(SIZES) for letter in "ABC"}
        arrays = {}
        for value, letters in shapes.items():
            shape = [sizes[letter] if letter in sizes else int(letter) for letter in letters]
            if value == "i":
                rows = sizes["A"]
                arrays[value] = numbers.integers(-rows, rows, shape).astype(np.int64) if rows else np.zeros(0, np.int64)
            else:
                arrays[value] = numbers.standard_normal(shape).astype(np.float32)
        feeds.append(arrays)
    levels = (rng.choice((0, 1, 2, 99, 99)),)
    return Subject(model, feeds[0], threads=rng.choice((1, 2)), levels=levels, notes={"feeds": feeds, "name": name})


def judge(subject: Subject) -> None:
    session = session_of(subject.model, level=subject.levels[0], threads=subject.threads)
    reference = Reference(subject.model)
    for at, feeds in enumerate(subject.notes["feeds"]):
        shapes = {name: list(array.shape) for name, array in feeds.items()}
        who = f"run {at} on {shapes} of {subject.notes['name']} at level {subject.levels[0]}"
        try:
            expectation: Expectation | None = Expectation(reference, feeds)
        except errors.CODED:
            expectation = None
        try:
            results = session.run(None, dict(feeds))
        except errors.CODED as error:
            if expectation is not None:
                raise Problem(f"{who}: refused: {error}") from error
            continue
        if expectation is None:
            raise Problem(f"{who}: gives something where the nodes one by one refuse")
        expectation.check(results, who)


def run(rng: random.Random) -> None:
    examine(make(rng), judge, reducible=False)
