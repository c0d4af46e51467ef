"""Signatures: the table that ships with the package says what the onnx package says, and the text form goes both ways."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import onnx
import onnx.defs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sardonyx import dtypes
from sardonyx.ir import opsets
from sardonyx.ir.attribute import Kind
from sardonyx.ops import onnx_schemas, schemas, signatures, standard
from sardonyx.ops.signatures import AttributeDef, Parameter, Signature
from tests.counting import executed_lines

OPS = [(domain, name) for domain in onnx_schemas.DOMAINS for name in onnx_schemas.operators(domain)]


@pytest.mark.parametrize("domain", onnx_schemas.DOMAINS)
def test_the_table_has_the_ops_of_the_onnx_package(domain: str) -> None:
    assert sorted(standard.operators(domain)) == onnx_schemas.operators(domain)


@pytest.mark.parametrize(("domain", "name"), OPS)
def test_the_table_says_of_an_op_what_the_onnx_package_says(domain: str, name: str) -> None:
    ours, theirs = standard.versions(domain, name), onnx_schemas.versions(domain, name)
    assert list(ours) == list(theirs)
    for since, signature in theirs.items():
        assert ours[since] == signature
        assert list(ours[since].attributes) == list(signature.attributes)


def test_the_newest_opsets_are_those_of_the_onnx_package() -> None:
    assert {domain: newest for domain, (_, newest) in onnx.defs.C.schema_version_map().items()} == opsets.NEWEST
    assert all(schemas.newest_version(domain) == newest for domain, newest in opsets.NEWEST.items())


def test_the_file_is_what_the_program_writes() -> None:
    assert standard.PATH.read_text(encoding="utf-8") == onnx_schemas.table_text()


def test_reading_the_table_is_little_work_for_each_version_and_takes_no_signature_apart() -> None:
    reading = executed_lines(standard._table.__wrapped__)
    table = standard._table.__wrapped__()
    versions = [(history, since) for history in table.histories.values() for since in history]
    parsing = [executed_lines(history.__getitem__, since) for history, since in versions]
    assert reading < 20 * len(versions)
    assert sorted(parsing)[len(parsing) // 2] < 600


def test_what_a_signature_of_the_table_is() -> None:
    gelu = schemas.find("", "Gelu", 21)
    assert gelu is not None and gelu.since_version == 20 and gelu.has_function and not gelu.deprecated
    assert gelu.attributes == {"approximate": AttributeDef("approximate", Kind.STRING, default="none")}
    assert gelu is schemas.find("ai.onnx", "Gelu", 20)
    assert schemas.find("", "Gelu", 19) is None and schemas.find("", "Nonesuch", 20) is None
    scatter, noise = schemas.find("", "Scatter", 11), schemas.find("", "RandomNormal", 22)
    assert scatter is not None and scatter.deprecated
    assert noise is not None and not noise.deterministic


# --- opsets beyond the table


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The table as it was when the standard ended an opset earlier; gives the opset that is missing."""
    missing = opsets.NEWEST[""]
    monkeypatch.setitem(opsets.NEWEST, "", missing - 1)
    schemas._learn_newer.cache_clear()
    schemas._forget_found()
    yield missing
    schemas._learn_newer.cache_clear()
    schemas._newer.clear()
    schemas._forget_found()


def test_newer_opsets_come_from_a_newer_onnx_package(shorter: int) -> None:
    name = next(name for name in standard.operators("") if shorter in standard.versions("", name))
    signature = schemas.find("", name, shorter)
    assert signature is not None and signature.since_version == shorter and schemas._newer
    assert schemas.versions("", name)[shorter] is signature
    unchanged = schemas.find("", "Identity", shorter)
    assert unchanged is not None and unchanged.since_version < shorter


def test_opsets_that_nobody_knows_have_no_signatures(shorter: int) -> None:
    assert schemas.find("", "Identity", shorter + 1) is None
    assert schemas.find("ai.onnx.ml", "Scaler", 99) is None
    assert schemas.find("com.microsoft", "Gelu", 99) is schemas.find("com.microsoft", "Gelu", 1)


def test_without_the_onnx_package_the_table_is_all_there_is() -> None:
    program = f"""
import sys
sys.modules["onnx"] = None
from sardonyx.ops import schemas
newest = {opsets.NEWEST[""]}
assert schemas.find("", "Identity", newest).name == "Identity"
assert schemas.find("", "Identity", newest + 1) is None
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- the text form

NAMES = st.from_regex(r"[A-Za-z]\w{0,5}", fullmatch=True)
TYPES = st.frozensets(
    st.sampled_from(["tensor(float)", "tensor(int64)", "seq(tensor(string))", "map(int64, float)"]), min_size=1
)
DEFAULTS = {
    Kind.FLOAT: st.floats(-(2.0**100), 2.0**100, width=32),
    Kind.INT: st.integers(-(2**63), 2**63 - 1),
    Kind.STRING: st.text("abcXYZ_, ()[]", max_size=6),
    Kind.INTS: st.lists(st.integers(-9, 9), max_size=3),
    Kind.FLOATS: st.lists(st.floats(-9, 9, width=32), max_size=3),
    Kind.STRINGS: st.lists(st.text("ab_", max_size=3), max_size=3),
}


@st.composite
def parameters(draw: st.DrawFn, constraints: dict[str, frozenset[str]], names: list[str]) -> tuple[Parameter, ...]:
    made = []
    for position, name in enumerate(names):
        key = draw(st.sampled_from([*constraints, "tensor(bool)", "tensor(float8e4m3fn)"]))
        types = constraints.get(key, frozenset({key}))
        if position + 1 == len(names) and draw(st.booleans()):
            arity, homogeneous = draw(st.sampled_from([0, 1])), draw(st.booleans())
            optional = arity == 0 and draw(st.booleans())
            made.append(Parameter(name, key, types, optional, variadic=True, homogeneous=homogeneous, min_arity=arity))
        else:
            made.append(Parameter(name, key, types, optional=draw(st.booleans())))
    return tuple(made)


@st.composite
def made_signatures(draw: st.DrawFn) -> Signature:
    # names of element types stand for tensors of them, so constraints are called otherwise
    constraints = draw(st.dictionaries(st.from_regex(r"T[0-9]?", fullmatch=True), TYPES, max_size=3))
    names = draw(st.lists(NAMES, unique=True, max_size=8))
    cut = draw(st.integers(0, len(names)))
    inputs = draw(parameters(constraints, names[:cut]))
    outputs = draw(parameters(constraints, draw(st.lists(NAMES, unique=True, max_size=3))))
    attributes = {}
    for name in names[cut:]:
        kind = draw(st.sampled_from([*DEFAULTS, Kind.TENSOR, Kind.GRAPH, Kind.SPARSE_TENSOR, Kind.TYPE_PROTO]))
        default = draw(st.none() | DEFAULTS[kind]) if kind in DEFAULTS else None
        attributes[name] = AttributeDef(name, kind, default is None and draw(st.booleans()), default)
    operands = tuple(parameter.name for parameter in inputs)
    return Signature("test", "Op", 3, inputs, outputs, attributes, constraints, operand_names=operands)


@given(made_signatures())
def test_text_goes_both_ways(signature: Signature) -> None:
    text = signatures.to_text(signature)
    assert signatures.parse_with("test", "Op", 3, text, signature.constraints) == signature


def test_a_variadic_parameter_may_be_empty_where_its_mark_says_so() -> None:
    parse = lambda text: signatures.parse("test", "Op", 1, text, T=[dtypes.float32])  # noqa: E731
    assert parse("(*x: T) -> (y: T)").min_inputs == 1
    assert parse("(*x: T?) -> (y: T)").min_inputs == 0
    assert parse("(a: T, **x: T?) -> (y: T)").min_inputs == 1


@pytest.mark.parametrize("text", ["(x: T)", "(x) -> (y: T)", "(x: T, *, a: what) -> (y: T)"])
def test_what_is_no_signature_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a|reads"):
        signatures.parse("test", "Op", 1, text, T=[dtypes.float32])
