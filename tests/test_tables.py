"""Tables by op: everything that is registered stands on one kind of table, and what could serve the same node twice is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sardonyx import ops
from sardonyx.dtypes import float32, float64, int64
from sardonyx.ops import schemas
from sardonyx.ops.entries import Entry, Table
from sardonyx.ops.table import infer, inferences
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.lowering.table import scalar, scalars
from sardonyx.providers.native.table import lower, lowerings

Register = Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]

TABLES: dict[str, tuple[Table[Any], Register]] = {
    "inference": (inferences, infer),
    "kernels": (cpu, cpu.kernel),
    "scalars": (scalars, scalar),
    "lowerings": (lowerings, lower),
}
each_table = pytest.mark.parametrize(("table", "register"), TABLES.values(), ids=TABLES.keys())
DOMAIN = "test.tables"


@pytest.fixture(autouse=True)
def leave_nothing_behind() -> Any:
    yield
    for table, _ in TABLES.values():
        table.remove(DOMAIN, "Op")


def one(X: Any) -> Any:
    return X


def other(X: Any) -> Any:
    return X


@each_table
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"until": 12}, {"since": 12}),
        ({"since": 9}, {"until": 9}),
        ({"since": 3, "until": 5}, {}),
        ({}, {"since": 3, "until": 5}),
        ({"since": 7, "until": 7}, {"since": 7, "until": 7}),
    ],
)
def test_overlapping_versions_are_refused(table: Table[Any], register: Register, first: Any, second: Any) -> None:
    register("Op", domain=DOMAIN, **first)(one)
    with pytest.raises(ValueError, match=r"test\.tables:Op\[.*overlaps test\.tables:Op\["):
        register("Op", domain=DOMAIN, **second)(other)
    assert [entry.function for entry in table.candidates(DOMAIN, "Op")] == [one]


@each_table
def test_the_order_of_registrations_does_not_decide(table: Table[Any], register: Register) -> None:
    for first, second in ((one, other), (other, one)):
        for function in (first, second):
            register("Op", domain=DOMAIN, **({"until": 12} if function is one else {"since": 13}))(function)
        by_version = {v: [e.function for e in table.candidates(DOMAIN, "Op") if e.covers(v)] for v in (1, 12, 13, 21)}
        assert by_version == {1: [one], 12: [one], 13: [other], 21: [other]}
        table.remove(DOMAIN, "Op")


@each_table
def test_both_spellings_of_the_default_domain_are_one(table: Table[Any], register: Register) -> None:
    assert table.candidates("ai.onnx", "Softmax") == table.candidates("", "Softmax")
    try:
        register("Op", domain="")(one)
        with pytest.raises(ValueError, match="overlaps"):
            register("Op", domain="ai.onnx")(other)
    finally:
        table.remove("", "Op")


@pytest.mark.parametrize("keyword", ["T", "types"])
def test_entries_for_different_types_do_not_overlap(keyword: str) -> None:
    register = cpu.kernel if keyword == "T" else scalar
    register("Op", domain=DOMAIN, **{keyword: {float32}})(one)
    register("Op", domain=DOMAIN, **{keyword: {int64}})(one)
    with pytest.raises(ValueError, match="overlaps"):
        register("Op", domain=DOMAIN, **{keyword: {float64, int64}})(other)


@pytest.mark.parametrize(("table", "register"), [TABLES["scalars"], TABLES["lowerings"]], ids=["scalars", "lowerings"])
def test_a_case_is_asked_before_the_rest_and_two_of_one_name_are_refused(table: Table[Any], register: Register) -> None:
    register("Op", domain=DOMAIN)(one)
    register("Op", domain=DOMAIN, case="it is Tuesday")(other)
    assert [entry.function for entry in table.candidates(DOMAIN, "Op")] == [other, one]
    with pytest.raises(ValueError, match="where it is Tuesday overlaps"):
        register("Op", domain=DOMAIN, case="it is Tuesday")(one)


@each_table
def test_all_families_register_ops_that_exist_without_an_overlap(table: Table[Any], register: Register) -> None:
    ops.load_families()
    for domain, op in sorted(table.operators()):
        versions = schemas.versions(domain, op)
        assert versions, f"{table.name}: there is no op {domain}:{op}"
        for entry in table.candidates(domain, op):
            assert isinstance(entry, Entry) and (entry.domain, entry.op) == (domain, op)
            assert any(map(entry.covers, versions)), f"{table.name}: {entry} holds for no version of its op"
    pairs = [
        (first, second)
        for key in table.operators()
        for number, first in enumerate(table.candidates(*key))
        for second in table.candidates(*key)[:number]
    ]
    assert not [pair for pair in pairs if pair[0].overlaps(pair[1])]
