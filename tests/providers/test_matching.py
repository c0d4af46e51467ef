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
from sardonyx.providers.kernel_search import constraint_types
from sardonyx.providers.kernel_table import KernelTable
from sardonyx.providers.matching import (
    OPEN,
    SCHEMAS,
    Argument,
    KernelDefinition,
    KernelDefinitions,
    OpId,
    SchemaResolver,
    Side,
    StoredResolver,
)
from sardonyx.providers.provider import ExecutionProvider

DATA = json.loads((Path(__file__).parent / "data" / "kernel_matching.json").read_text())
FLOAT = frozenset({"tensor(float)"})
INT64 = frozenset({"tensor(int64)"})


def definition(op: str, domain: str, since: int, until: int = OPEN, **constraints: frozenset[str]) -> KernelDefinition:
    return KernelDefinition(domain, op, since, until, constraints)


def table_of(*definitions: KernelDefinition) -> KernelDefinitions:
    table = KernelDefinitions("kernels of a test")
    for one in definitions:
        table.add(one)
    return table


@functools.cache
def registry() -> KernelDefinitions:
    return table_of(
        *(
            definition(op, "", since, until, **{key: frozenset(_types(text)) for key, text in constraints.items()})
            for op, rows in DATA["definitions"].items()
            for since, until, constraints in rows
        )
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
        by_schema = registry().find_for(node, SCHEMAS)
        by_table = registry().find_for(node, stored, since)
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
    open_end = definition("Add", "", 7, OPEN)
    assert open_end.covers(7)
    assert not open_end.covers(13)
    assert definition("Add", "", 7, 13).covers(13)
    assert not definition("Add", "", 7, 12).covers(13)


def test_only_the_first_existing_argument_counts():
    definitions = table_of(definition("Add", "", 14, T=FLOAT))
    assert definitions.find_for(add(a="float", b="int64")) is not None
    assert definitions.find_for(add(a="int64", b="float")) is None


def test_a_constraint_without_an_existing_argument_holds():
    table = StoredResolver.of({"d:Op:1": {"T": [[0, 1], [1, 1]]}})
    definitions = table_of(definition("Op", "d", 1, T=FLOAT))
    node = Node("Op", [Value("x", TensorType(dtypes.int64))], ["y"], domain="d", version=1)
    assert definitions.find_for(node, table, 1) is not None


def test_a_missing_optional_argument_is_skipped():
    table = StoredResolver.of({"d:Op:1": {"T": [[0, 0], [0, 1]]}})
    definitions = table_of(definition("Op", "d", 1, T=FLOAT))
    for type, fits in ((dtypes.float32, True), (dtypes.int64, False)):
        node = Node("Op", [None, Value("x", TensorType(type))], ["y"], domain="d", version=1)
        assert (definitions.find_for(node, table, 1) is not None) is fits


def test_types_tell_definitions_of_one_version_apart():
    two = table_of(definition("Add", "", 14, T=FLOAT), definition("Add", "", 14, T=INT64))
    assert two.find_for(add(a="int64")).constraints == {"T": INT64}


def test_a_type_may_stand_for_another():
    definitions = table_of(definition("Add", "", 14, T=FLOAT))
    assert definitions.find_for(add(a="float16")) is None
    assert definitions.find_for(add(a="float16"), instead={"tensor(float16)": "tensor(float)"}) is not None


def test_the_latest_table_of_custom_ops_is_asked_first_and_the_provider_s_own_last():
    def tables(*names: str) -> list[KernelTable]:
        made = [KernelTable(name) for name in names]
        for table in made:
            table.kernel("Add")(lambda A, B, name=table.name: name)
        return made

    provider = ExecutionProvider()
    (provider.kernels,) = tables("own")
    assert provider.find_kernel(add()).function(1, 2) == "own"
    provider.custom_kernels = tables("older", "newer")
    assert provider.find_kernel(add()).function(1, 2) == "newer"


def test_an_unknown_type_string_is_an_error():
    definitions = table_of(definition("Add", "", 14, U=FLOAT))
    with pytest.raises(Fail, match=r"'U' is not a type string of Add"):
        definitions.find_for(add())


def test_definitions_that_overlap_are_refused():
    definitions = table_of(definition("Add", "", 7, 13, T=FLOAT))
    definitions.add(definition("Add", "", 14, T=FLOAT))
    definitions.add(definition("Add", "", 13, T=INT64))
    with pytest.raises(ValueError, match="overlaps"):
        definitions.add(definition("Add", "", 13, T=FLOAT | INT64))


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
