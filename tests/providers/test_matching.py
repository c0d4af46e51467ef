"""Kernel matching says of 1513 (op, version, type) combinations what onnxruntime says, whichever source its type strings come from."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from sardonyx import dtypes, ops
from sardonyx.errors import Fail
from sardonyx.ir import Node, TensorType, Value
from sardonyx.ops import checking, schemas
from sardonyx.providers.matching import (
    OPEN,
    SCHEMAS,
    Argument,
    KernelDefinition,
    KernelRegistry,
    OpId,
    SchemaResolver,
    Side,
    StoredResolver,
    find_definition,
)
from sardonyx.providers.provider import constraint_types

DATA = json.loads((Path(__file__).parent / "data" / "kernel_matching.json").read_text())
CPU = "CPUExecutionProvider"
FLOAT = frozenset({"tensor(float)"})
INT64 = frozenset({"tensor(int64)"})


@functools.cache
def registry() -> KernelRegistry:
    return KernelRegistry(
        KernelDefinition(op, "", since, until, CPU, {key: frozenset(_types(text)) for key, text in constraints.items()})
        for op, rows in DATA["definitions"].items()
        for since, until, constraints in rows
    )


def _types(text: str) -> list[str]:
    """The file writes "float" for "tensor(float)"."""
    return [name if "(" in name else f"tensor({name})" for name in text.split()]


@pytest.fixture(scope="module")
def stored() -> StoredResolver:
    ops.load_families()
    return StoredResolver.of(DATA["type_strings"])


def call(op: str, since: int, type_name: str) -> Node:
    """A node whose required inputs all have one type."""
    signature = schemas.find("", op, since)
    assert signature is not None
    given = TensorType(dtypes.from_name(type_name))
    required = [parameter for parameter in signature.inputs if not parameter.optional]
    output = signature.outputs[0].type_string
    made = checking.type_from_string(output) if output not in signature.constraints else None
    if output == required[0].type_string:
        made = given
    elif made is None and len(signature.constraints[output]) == 1:
        made = checking.type_from_string(next(iter(signature.constraints[output])))
    return Node(op, [Value(f"i{n}", given) for n in range(len(required))], [Value("y", made)], version=since)


def combinations() -> list[tuple[str, int, str, bool]]:
    found = []
    for op_id, sides in DATA["accepted_and_refused"].items():
        op, since = op_id.split(":")
        found += [(op, int(since), name, accepted) for accepted, names in zip((True, False), sides) for name in names.split()]
    return found


def test_all_combinations_are_answered_as_onnxruntime_answers_them(stored):
    cases = combinations()
    assert len(cases) == 1513
    for op, since, type_name, accepted in cases:
        node = call(op, since, type_name)
        by_schema = find_definition(node, CPU, registry(), resolver=SCHEMAS)
        by_table = find_definition(node, CPU, registry(), resolver=stored, since_version=since)
        assert by_schema is by_table
        assert (by_schema is not None) == accepted, f"{op}:{since} {type_name}"


def test_signatures_and_stored_tables_give_the_same_type_strings(stored):
    resolver = SchemaResolver()
    for op, arguments in stored.table.items():
        assert resolver.arguments(op) == arguments, op


# --- single rules


def add(version: int = 14, a: str = "float", b: str = "float") -> Node:
    types = [TensorType(dtypes.from_name(name)) for name in (a, b)]
    return Node("Add", [Value("a", types[0]), Value("b", types[1])], [Value("c", types[0])], version=version)


def test_an_open_end_covers_its_start_alone():
    open_end = KernelDefinition("Add", "", 7, OPEN)
    assert open_end.covers(7)
    assert not open_end.covers(13)
    assert KernelDefinition("Add", "", 7, 13).covers(13)
    assert not KernelDefinition("Add", "", 7, 12).covers(13)


def test_only_the_first_existing_argument_counts():
    definitions = KernelRegistry([KernelDefinition("Add", "", 14, constraints={"T": FLOAT})])
    assert find_definition(add(a="float", b="int64"), CPU, definitions) is not None
    assert find_definition(add(a="int64", b="float"), CPU, definitions) is None


def test_a_constraint_without_an_existing_argument_holds():
    table = StoredResolver.of({"d:Op:1": {"T": [[0, 1], [1, 1]]}})
    definitions = KernelRegistry([KernelDefinition("Op", "d", 1, constraints={"T": FLOAT})])
    node = Node("Op", [Value("x", TensorType(dtypes.int64))], ["y"], domain="d", version=1)
    assert find_definition(node, CPU, definitions, resolver=table, since_version=1) is not None


def test_a_missing_optional_argument_is_skipped():
    table = StoredResolver.of({"d:Op:1": {"T": [[0, 0], [0, 1]]}})
    definitions = KernelRegistry([KernelDefinition("Op", "d", 1, constraints={"T": FLOAT})])
    for type, fits in ((dtypes.float32, True), (dtypes.int64, False)):
        node = Node("Op", [None, Value("x", TensorType(type))], ["y"], domain="d", version=1)
        assert (find_definition(node, CPU, definitions, resolver=table, since_version=1) is not None) is fits


def test_the_first_registered_wins_and_the_latest_custom_registry_comes_first():
    own = KernelRegistry([KernelDefinition("Add", "", 14, make="own", constraints={"T": FLOAT})])
    custom = [KernelRegistry([KernelDefinition("Add", "", 14, make=name)]) for name in ("older", "newer")]
    assert find_definition(add(), CPU, own).make == "own"
    assert find_definition(add(), CPU, own, custom).make == "newer"
    two = KernelRegistry(
        [KernelDefinition("Add", "", 14, make=k, constraints={"T": t}) for k, t in (("f", FLOAT), ("i", INT64))]
    )
    assert find_definition(add(a="int64"), CPU, two).make == "i"


def test_another_provider_is_not_asked():
    definitions = KernelRegistry([KernelDefinition("Add", "", 14)])
    assert find_definition(add(), "OtherExecutionProvider", definitions) is None


def test_an_unknown_type_string_is_an_error():
    definitions = KernelRegistry([KernelDefinition("Add", "", 14, constraints={"U": FLOAT})])
    with pytest.raises(Fail, match=r"'U' is not a type string of Add"):
        find_definition(add(), CPU, definitions)


def test_definitions_that_overlap_are_refused():
    definitions = KernelRegistry([KernelDefinition("Add", "", 7, 13, constraints={"T": FLOAT})])
    definitions.add(KernelDefinition("Add", "", 14, constraints={"T": FLOAT}))
    definitions.add(KernelDefinition("Add", "", 13, constraints={"T": INT64}))
    with pytest.raises(Fail, match="conflicts with"):
        definitions.add(KernelDefinition("Add", "", 13, constraints={"T": FLOAT | INT64}))


def test_op_ids_have_three_parts_and_one_spelling_of_the_default_domain():
    assert OpId.parse("ai.onnx:Add:14") == OpId("", "Add", 14)
    assert str(OpId.parse(":Add:14")) == ":Add:14"
    for text in ("Add", "a:b:c", "a:b:1:2", "a:b:"):
        with pytest.raises(Fail, match="Invalid operator identifier"):
            OpId.parse(text)


def test_ops_of_another_layout_resolve_as_what_they_come_from():
    table = StoredResolver.of({":Conv:11": {"T": [[0, 0]]}, "com.microsoft:QLinearAveragePool:1": {"T": [[0, 0], [1, 0]]}})
    assert table.arguments(OpId("com.ms.internal.nhwc", "Conv", 11)) == {"T": [Argument(Side.INPUT, 0)]}
    assert "T" in table.arguments(OpId("com.ms.internal.nhwc", "QLinearAveragePool", 1))
    with pytest.raises(Fail, match="no entry for"):
        table.arguments(OpId("", "QLinearAveragePool", 1))


def test_what_a_stored_table_has_wins_over_what_is_merged():
    table = StoredResolver.of({":Add:14": {"T": [[0, 0]]}})
    table.merge({":Add:14": {"U": [[0, 0]]}, ":Sub:14": {"T": [[0, 0]]}})
    assert "T" in table.arguments(OpId("", "Add", 14))
    assert "T" in table.arguments(OpId("", "Sub", 14))


def test_a_parameter_of_a_fixed_type_is_known_by_its_own_name():
    node = Node(
        "Reshape",
        [Value("x", TensorType(dtypes.float32)), Value("s", TensorType(dtypes.int64))],
        [Value("y", TensorType(dtypes.float32))],
        version=14,
    )
    assert constraint_types(node) == {"T": dtypes.float32, "shape": dtypes.int64}
