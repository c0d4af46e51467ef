"""Random models whose values alias, overwrite and outlive each other, for property tests of memory plans."""

from __future__ import annotations

import onnx.parser
from hypothesis import strategies as st

from sardonyx import formats, ops
from sardonyx.ir import Model
from sardonyx.providers.cpu.provider import evaluate

SHAPES = {"rows": "[N,6]", "columns": "[6,N]", "flat": "[M]", "half": "[N,3]", "square": "[N,N]"}
UNARY = ("Neg({})", "Relu({})", "Sigmoid({})", "Identity({})", "Clip({}, low, high)", "Softmax<axis=0>({})", "Exp({})")
BINARY = ("Add({}, {})", "Mul({}, {})", "Sub({}, {})", "Max({}, {})")
CHANGES = {
    "rows": [
        ("columns", "Transpose<perm=[1,0]>({})"),
        ("flat", "Reshape({}, minus_one)"),
        ("half", "Slice({}, zero, three, one)"),
    ],
    "columns": [("rows", "Transpose<perm=[1,0]>({})"), ("flat", "Reshape({}, minus_one)")],
    "flat": [("rows", "Reshape({}, six_wide)")],
    "half": [("rows", "Concat<axis=1>({}, {})")],
    "square": [("flat_square", "Reshape({}, minus_one)")],
    "flat_square": [("flat_square", "Abs({})")],
}
BRANCHES = """If(cond) <
    then_branch = t{0} () => (float{1} p{0}) {{ p{0} = {2} }}, else_branch = e{0} () => (float{1} q{0}) {{ q{0} = Identity({3}) }}>"""
CONSTANTS = """
    float low = {-2.0}, float high = {2.0}, int64[1] minus_one = {-1}, int64[2] six_wide = {-1, 6}, int64[1] zero = {0},
    int64[1] one = {1}, int64[1] three = {3}, int64 first = {0}
"""


@st.composite
def models(draw, largest: int = 24) -> Model:
    """A typed model with inputs x (float[N,6]) and cond (bool)."""
    shapes = {"x": "rows"}
    lines = []
    for number in range(draw(st.integers(1, largest))):
        source = draw(st.sampled_from(sorted(shapes)))
        shape = shapes[source]
        alike = sorted(name for name in shapes if shapes[name] == shape)
        other = draw(st.sampled_from(alike))
        kind = draw(st.sampled_from(["unary", "binary", "change", "change", "split", "product", "branch", "sequence"]))
        name = f"v{number}"
        if kind == "change":
            made, call = draw(st.sampled_from(CHANGES[shape]))
            lines.append(f"{name} = {call.format(source, other)}")
            shapes[name] = made
        elif kind == "split" and shape == "rows":
            lines.append(f"{name}, {name}b = Split<axis=1, num_outputs=2>({source})")
            shapes[name] = shapes[f"{name}b"] = "half"
        elif kind == "product" and shape == "rows":
            lines.append(f"{name}t = Transpose<perm=[1,0]>({source}) {name} = MatMul({other}, {name}t)")
            shapes[f"{name}t"], shapes[name] = "columns", "square"
        elif kind == "branch" and shape in SHAPES:
            lines.append(f"{name} = " + BRANCHES.format(number, SHAPES[shape], f"Neg({source})", other))
            shapes[name] = shape
        elif kind == "sequence":
            lines.append(f"{name}s = SequenceConstruct({source}, {other}) {name} = SequenceAt({name}s, first)")
            shapes[name] = shape
        elif kind == "binary":
            lines.append(f"{name} = {draw(st.sampled_from(BINARY)).format(source, other)}")
            shapes[name] = shape
        else:
            lines.append(f"{name} = {draw(st.sampled_from(UNARY)).format(source)}")
            shapes[name] = shape
    made = [name for name in shapes if name != "x"]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    if made[-1] not in outputs:
        outputs.append(made[-1])
    declared = ", ".join(f"float{SHAPES.get(shapes[name], '[K]')} {name}" for name in outputs)
    text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,6] x, bool cond) => ({declared}) <{CONSTANTS}> {{ {" ".join(lines)} }}"""
    model = formats.load(onnx.parser.parse_model(text))
    ops.infer(model, evaluate)
    return model
