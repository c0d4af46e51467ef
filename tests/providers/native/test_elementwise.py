"""Elementwise ops in generated code against NumPy: every op and type that is claimed, special values, broadcasts, random chains."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.compiler.jit import host
from sardonyx.compiler.target import X86_LEVELS
from sardonyx.errors import CODED
from sardonyx.providers.cpu.cast import convert
from sardonyx.providers.cpu.provider import CPUExecutionProvider
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.execution.executor import execute
from sardonyx.runtime.preparation.plan import make_plan
from tests.providers.native.agreement import assert_agrees, model_of, native_plan, programs

FLOATS = {"float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
INTEGERS = {f"{kind}{bits}": np.dtype(f"{kind}{bits}").type for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
TYPES = FLOATS | INTEGERS | {"bool": np.bool_}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -2.5,
    2.0,
    3.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-40,
    -1e-40,
    88.0,
    -88.0,
    100.0,
    -104.0,
    700.0,
]

rng = np.random.default_rng(4)


def numbers(name: str, *shape: int) -> np.ndarray:
    """Random elements, among floats special ones first."""
    kind = TYPES[name]
    if name in FLOATS:
        values = np.asarray(rng.normal(size=shape) * rng.choice([0.1, 1.0, 10.0], size=shape))
        flat = values.reshape(-1)
        flat[: len(SPECIAL)] = SPECIAL[: flat.size]
        with np.errstate(over="ignore"):
            return values.astype(kind)
    if name == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    limits = np.iinfo(kind)
    values = np.asarray(rng.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True))
    flat = values.reshape(-1)
    edges = [limits.min, limits.max, 0, 1, limits.max - 1]
    flat[: len(edges)] = edges[: flat.size]
    return values


def graph(lines: list[str], inputs: dict[str, str], outputs: dict[str, str], constants: str = "") -> str:
    """A model of vectors with N elements."""

    def declare(values: dict[str, str]) -> str:
        return ", ".join(f"{kind}[N] {name}" for name, kind in values.items())

    return f"g ({declare(inputs)}) => ({declare(outputs)}) {f'<{constants}>' if constants else ''} {{ {' '.join(lines)} }}"


NEAR = {"float32": 2e-6, "float64": 2e-14, "float16": 2e-3, "bfloat16": 1.6e-2}
"""How far an element may be off, relatively and absolutely."""


def assert_elements_agree(source: str, sets: list[dict[str, np.ndarray]], opset: int = 22) -> None:
    """Like `assert_agrees`, but each element by itself."""
    plan = native_plan(source, opset=opset)
    left = [step.node.op_type for step in plan.steps if not isinstance(step.call, CompiledProgram)]
    assert not left, f"left to NumPy: {left}"
    reference = make_plan(model_of(source, opset).graph, [CPUExecutionProvider()])
    for feeds in sets:
        for value, got, wanted in zip(plan.outputs, execute(plan, feeds), execute(reference, feeds), strict=True):
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            near = NEAR.get(str(wanted.dtype), 0)
            a, b = (one.astype(np.float64) if near else one for one in (got, wanted))
            np.testing.assert_allclose(a, b, rtol=near, atol=near, err_msg=f"output {value}")


def check_each(expressions: list[str], inputs: dict[str, str], results: str, *, constants: str = "", opset: int = 22) -> None:
    """Several ops at once, each a loop of its own, over 0, 1 and more elements."""
    outputs = {f"y{n}": results for n in range(len(expressions))}
    lines = [f"y{n} = {text}" for n, text in enumerate(expressions)]
    feeds = [{name: numbers(kind, size) for name, kind in inputs.items()} for size in (0, 1, 61)]
    assert_elements_agree(graph(lines, inputs, outputs, constants), feeds, opset)


OF_FLOATS = [
    *("Abs(x)", "Neg(x)", "Sign(x)", "Sqrt(x)", "Reciprocal(x)", "Exp(x)", "Log(x)", "Floor(x)", "Ceil(x)", "Round(x)"),
    *("Tanh(x)", "Sigmoid(x)", "Sinh(x)", "Cosh(x)", "Asinh(x)", "Acosh(x)", "Atanh(x)", "Asin(x)", "Acos(x)", "Atan(x)"),
    *("Relu(x)", "LeakyRelu(x)", "LeakyRelu <alpha=2.0> (x)", "ThresholdedRelu <alpha=0.3> (x)", "Elu <alpha=1.5> (x)"),
    *("Selu(x)", "HardSigmoid(x)", "HardSwish(x)", "Mish(x)", "Softplus(x)", "Softsign(x)", "Dropout(x)"),
    *("com.microsoft.QuickGelu(x)", "com.microsoft.FastGelu(x)", "Clip(x, low, high)"),
    *("Clip(x, low)", "Pow(x, two)", "Pow(x, three)", "Pow(x, half)", "Pow(x, less)", "Pow(x, one)", "Clip(x, , high)"),
]
OF_SINGLES = ["Sin(x)", "Cos(x)", "Tan(x)", "Erf(x)", "Gelu(x)", "com.microsoft.Gelu(x)", 'Gelu <approximate="tanh"> (x)']
OF_TWO_FLOATS = [
    *("Add(x, y)", "Sub(x, y)", "Mul(x, y)", "Div(x, y)", "Max(x, y)", "Min(x, y, x)", "Sum(x, y, x)", "Mean(x, y)"),
    *("PRelu(x, y)", "Max(x)"),
]


def written(kind: str, value: float) -> str:
    """As ONNX's text form has it: floats of 16 bits as those bits."""
    number = np.array(value, FLOATS[kind])
    return str(number.view(np.uint16) if number.itemsize == 2 else number)


@pytest.mark.parametrize("kind", FLOATS)
def test_functions_of_floats(kind):
    values = {"low": -1.5, "high": 2, "two": 2, "three": 3, "half": 0.5, "less": -1, "one": 1}
    constants = ", ".join(f"{kind} {name} = {{{written(kind, value)}}}" for name, value in values.items())
    check_each(OF_FLOATS + OF_SINGLES * (kind != "double"), {"x": kind}, kind, constants=constants)
    check_each(OF_TWO_FLOATS, {"x": kind, "y": kind}, kind)
    check_each(["IsNaN(x)", "IsInf(x)", "IsInf <detect_negative=0> (x)", "IsInf <detect_positive=0> (x)"], {"x": kind}, "bool")


def test_functions_of_few_types():
    for kind in ("float", "double", "float16"):
        check_each(["Shrink <bias=0.2, lambd=0.4> (x)"], {"x": kind}, kind)
    check_each(["Celu <alpha=0.7> (x)"], {"x": "float"}, "float")
    check_each(["com.microsoft.BiasAdd(x, y, x)", "com.microsoft.BiasGelu(x, y)"], {"x": "float", "y": "float"}, "float")
    check_each(["Swish <alpha=1.3> (x)"], {"x": "float"}, "float", opset=24)


@pytest.mark.parametrize("kind", ["float", "float16", "bfloat16"])
def test_powers(kind):
    check_each(["Pow(x, y)"], {"x": kind, "y": kind}, kind)
    check_each(["Pow(x, y)"], {"x": kind, "y": "int32"}, kind)


@pytest.mark.parametrize("kind", INTEGERS)
def test_functions_of_integers(kind):
    signed = kind.startswith("int")
    of_one = [
        "Abs(x)",
        "Sign(x)",
        "BitwiseNot(x)",
        "Div(x, seven)",
        "Mod(x, seven)",
        "Mod <fmod=1> (x, seven)",
        "Clip(x, three, seven)",
    ]
    of_one += ["Neg(x)", "Div(x, minus)", "Mod(x, minus)", "Mod <fmod=1> (x, minus)", "Div(x, few)", "Mod(x, few)"] * signed
    of_one += ["Relu(x)"] * signed
    constants = f"{kind} seven = {{7}}, {kind} three = {{3}}" + f", {kind} minus = {{-1}}, {kind} few = {{-3}}" * signed
    check_each(of_one, {"x": kind}, kind, constants=constants)
    of_two = [
        "Add(x, y)",
        "Sub(x, y)",
        "Mul(x, y)",
        "Max(x, y, x)",
        "Min(x, y)",
        "BitwiseAnd(x, y)",
        "BitwiseOr(x, y)",
        "BitwiseXor(x, y)",
    ]
    of_two += ["PRelu(x, y)"] * (kind[-2:] in ("32", "64"))
    check_each(of_two, {"x": kind, "y": kind}, kind)


@pytest.mark.parametrize("kind", ["uint8", "uint16", "uint32", "uint64"])
def test_shifts_may_move_all_bits_out(kind):
    source = graph(
        ['y0 = BitShift <direction="LEFT"> (x, y)', 'y1 = BitShift <direction="RIGHT"> (x, y)'],
        {"x": kind, "y": kind},
        {"y0": kind, "y1": kind},
    )
    amounts = (np.arange(71) % 70).astype(TYPES[kind])
    assert_elements_agree(source, [{"x": numbers(kind, 71), "y": amounts}])


@pytest.mark.parametrize("kind", TYPES)
def test_comparisons_and_choices(kind):
    two = {"x": kind, "y": kind}
    ordered = ["Less(x, y)", "LessOrEqual(x, y)", "Greater(x, y)", "GreaterOrEqual(x, y)"]
    boolean = ["And(x, y)", "Or(x, y)", "Xor(x, y)", "Not(x)"]
    check_each(["Equal(x, y)", "Equal(x, x)", *(boolean if kind == "bool" else ordered)], two, "bool")
    check_each(["Where(c, x, y)"], two | {"c": "bool"}, kind)


def castable(source: str, target: str) -> np.ndarray:
    """Elements of a type that another one can hold, up to rounding."""
    values = numbers(source, 61)
    if source not in FLOATS or target not in INTEGERS:
        return values
    limits = np.iinfo(TYPES[target])
    bound = min(float(limits.max) * 0.99, 6e4 if source == "float16" else np.inf)
    spread = rng.uniform(max(limits.min * 0.99, -bound), bound, 61)
    return np.concatenate([spread, rng.uniform(0, 3, 10), [0.0, -0.0, 0.5, 1.5, 2.5]]).astype(TYPES[source])


@pytest.mark.parametrize("source", TYPES)
def test_casts_to_every_type(source):
    for target in TYPES:
        if target == source:
            continue
        code = dtypes.from_numpy(np.dtype(TYPES[target])).code
        text = graph([f"y = Cast <to={code}> (x)"], {"x": source}, {"y": target})
        x = castable(source, target)
        assert_elements_agree(text, [{"x": x}, {"x": x[:0]}])
        exact = [
            one.astype(np.float64) for one in (execute(native_plan(text), {"x": x})[0], convert(x, dtypes.from_code(code)))
        ]
        np.testing.assert_array_equal(*exact)


@pytest.mark.skipif(host().name not in X86_LEVELS, reason="what C leaves undefined is compared on x86 alone")
@pytest.mark.parametrize("source", ["float", "double"])
def test_floats_out_of_range_become_what_numpy_makes_of_them(source):
    far = [-1, -1.5, 300, -300, 7e4, 3e9, -3e9, 5e9, 1e19, -1e19, 1e20, np.inf, -np.inf, np.nan, 2.0**31, 2.0**63, 1.8e19]
    x = np.array(far * 3, TYPES[source])
    for target in INTEGERS:
        code = dtypes.from_numpy(np.dtype(TYPES[target])).code
        text = graph([f"y = Cast <to={code}> (x)"], {"x": source}, {"y": target})
        assert_elements_agree(text, [{"x": x}, *({"x": x[at : at + 1]} for at in range(len(far)))])


@pytest.mark.parametrize("target", INTEGERS)
def test_constants_out_of_range_become_what_variables_become(target):
    code = dtypes.from_numpy(np.dtype(TYPES[target])).code
    far = ["300.0", "-3e9", "1e20", "-1e20"]
    nodes = [f"c{at} = Constant <value_float={number}> () y{at} = Cast <to={code}> (c{at})" for at, number in enumerate(far)]
    folded = execute(native_plan(graph(nodes, {}, {f"y{at}": target for at in range(len(far))})), {})
    text = graph([f"y = Cast <to={code}> (x)"], {"x": "float"}, {"y": target})
    (computed,) = execute(native_plan(text), {"x": np.array([float(number) for number in far], np.float32)})
    np.testing.assert_array_equal(np.array(folded).reshape(-1), computed)


def test_float64_becomes_float16_in_one_rounding():
    x = np.array(
        [
            1 + 2.0**-11 + 2.0**-40,
            1 + 2.0**-11,
            1 + 2.0**-11 - 2.0**-40,
            -1 - 2.0**-11 - 2.0**-40,
            2.0**-25 + 2.0**-60,
            65519.99999,
        ]
    )
    text = graph([f"y = Cast <to={dtypes.float16.code}> (x)"], {"x": "double"}, {"y": "float16"})
    np.testing.assert_array_equal(execute(native_plan(text), {"x": x})[0], x.astype(np.float16))


def test_narrowing_in_a_chain_rounds():
    text = graph(["a = Cast <to=10> (x)", "b = Cast <to=1> (a)", "y = Sub(x, b)"], {"x": "float"}, {"y": "float"})
    x = rng.normal(size=40).astype(np.float32)
    np.testing.assert_array_equal(execute(native_plan(text), {"x": x})[0], x - x.astype(np.float16).astype(np.float32))


def test_cast_like_takes_the_type_alone():
    assert_agrees(
        "g (float[N] x, int32[1] like) => (int32[N] y) { y = CastLike(x, like) }",
        {"x": rng.normal(size=9).astype(np.float32) * 9, "like": np.zeros(1, np.int32)},
    )


def test_old_clip_has_its_bounds_as_attributes():
    source = "g (float[N] x) => (float[N] y) { y = Clip <min=-0.5, max=0.25> (x) }"
    assert_agrees(source, {"x": numbers("float", 33)}, opset=10)


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_division_by_computed_integers_is_refused_at_zeros_alone(op):
    source = f"g (int32[N] x, int32[N] y) => (int32[N] z) {{ z = {op}(x, y) }}"
    x, y = np.arange(-20, 20, dtype=np.int32), np.tile(np.int32([1, -1, 3, -7]), 10)
    assert_elements_agree(source, [{"x": x, "y": y}])
    plan = native_plan(source)
    assert programs(plan)
    y[33] = 0
    with pytest.raises(CODED) as native:
        execute(plan, {"x": x, "y": y})
    with pytest.raises(CODED) as reference:
        execute(make_plan(model_of(source).graph, [CPUExecutionProvider()]), {"x": x, "y": y})
    assert str(native.value) == str(reference.value)


@pytest.mark.parametrize("kind", ["int32", "uint8"])
def test_divisors_may_differ(kind):
    source = f"g ({kind}[N, 5] x) => ({kind}[N, 5] y, {kind}[N, 5] z) <{kind}[5] d = {{1, 2, 3, 7, 100}}> {{ y = Div(x, d) z = Mod(x, d) }}"
    assert_elements_agree(source, [{"x": numbers(kind, rows, 5)} for rows in (1, 4, 13)])


def test_a_chain_is_one_loop():
    source = """g (float[A, B] x, float[B] y, float[A, 1] z) => (float[A, B] r) {
        a = Mul(x, y) b = Add(a, z) c = Tanh(b) d = Mul(c, x) r = Sigmoid(d) }"""
    feeds = [
        {"x": numbers("float", a, b), "y": numbers("float", b), "z": numbers("float", a, 1)}
        for a, b in ((3, 50), (70, 1), (40, 3), (1, 9), (0, 4))
    ]
    assert_agrees(source, feeds, steps=1)


# --- random chains

SHAPES = [("A", "B", "C"), ("B", "C"), ("C",), ("A", 1, "C"), ("A", "B", 1), (1, "B", 1), (1,), ()]
SIZES = st.sampled_from([0, 1, 2, 3, 5, 17, 40])
STEPS = {
    "float": [
        "Add",
        "Sub",
        "Mul",
        "Max",
        "Min",
        "Tanh",
        "Sigmoid",
        "Relu",
        "Abs",
        "Where",
        "Neg",
        "Sin",
        "Erf",
        "Softplus",
        "Floor",
    ],
    "double": ["Add", "Sub", "Mul", "Max", "Min", "Tanh", "Sigmoid", "Relu", "Abs", "Where"],
    "float16": ["Max", "Min", "Relu", "Abs", "Where", "Neg"],
    "int8": ["Add", "Sub", "Mul", "Max", "Min", "Relu", "Abs", "Where", "Neg"],
    "uint16": ["Add", "Sub", "Mul", "Max", "Min", "Where"],
    "int64": ["Add", "Sub", "Mul", "Max", "Min", "Relu", "Abs", "Where", "Neg"],
    "bool": ["And", "Or", "Xor", "Not", "Where"],
}
OF_ONE = {"Tanh", "Sigmoid", "Relu", "Abs", "Neg", "Sin", "Erf", "Softplus", "Floor", "Not"}


@st.composite
def chains(draw):
    """A type, shapes of inputs, and lines that combine what is there already."""
    kind = draw(st.sampled_from(sorted(STEPS)))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    names = [f"x{n}" for n in range(len(shapes))]
    lines = []
    for n in range(draw(st.integers(1, 6))):
        op = draw(st.sampled_from(STEPS[kind]))
        operands = [draw(st.sampled_from(names)) for _ in range(1 if op in OF_ONE else 2)]
        lines.append(f"t{n} = {op}({', '.join((['c'] if op == 'Where' else []) + operands)})")
        names.append(f"t{n}")
    sizes = draw(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=3))
    return kind, shapes, lines, sizes


def bracketed(shape: tuple[str | int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]" if shape else ""


@given(chains())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_random_chains_agree(case):
    kind, shapes, lines, sizes = case
    last = len(lines) - 1
    inputs = [f"{kind}{bracketed(shape)} x{n}" for n, shape in enumerate(shapes)]
    source = f"g ({', '.join(inputs)}, bool[C] c) => ({kind}[] t{last}) {{ {' '.join(lines)} }}"
    sets = []
    for triple in sizes:
        size = dict(zip("ABC", triple)) | {1: 1}
        sets.append({f"x{n}": numbers(kind, *(size[one] for one in shape)) for n, shape in enumerate(shapes)})
        sets[-1]["c"] = numbers("bool", size["C"])
    assert_elements_agree(source, sets)


def test_what_was_integer_is_rounded_op_by_op():
    """Quantized models round such results to integers again: a fused multiply-add would make some of them others than elsewhere."""
    text = "g (int32[N,64] x, float[64] s, float[64] b) => (float[N,64] y) { f = Cast<to=1>(x) t = Mul(f, s) y = Add(t, b) }"
    random = np.random.default_rng(5)
    x = random.integers(-(10**6), 10**6, (50, 64)).astype(np.int32)
    s, b = (random.standard_normal(64).astype(np.float32) for _ in range(2))
    (got,) = execute(native_plan(text), {"x": x, "s": s, "b": b})
    np.testing.assert_array_equal(got, x.astype(np.float32) * s + b)
