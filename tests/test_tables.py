"""Tables by op: all that is registered stands on one kind of table, and what could serve the same node twice is refused."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sardonyx import ops
from sardonyx.dtypes import float32, float64, int64
from sardonyx.ops import schemas
from sardonyx.ops.entries import Entry, Table
from sardonyx.ops.gradients.table import bodies, body, gradient, gradients
from sardonyx.ops.table import infer, inferences
from sardonyx.optimizer.passes.transpose_handlers import handlers, handles
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.native.program.table import lower, lowerings
from sardonyx.providers.scalars.table import scalar, scalars

Register = Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]

TABLES: dict[str, tuple[Table[Any], Register]] = {
    "inference": (inferences, infer),
    "kernels": (cpu, cpu.kernel),
    "scalars": (scalars, scalar),
    "lowerings": (lowerings, lower),
    "gradients": (gradients, gradient),
    "bodies": (bodies, body),
    "handlers of axes": (handlers, handles),
}
each_table = pytest.mark.parametrize(("table", "register"), TABLES.values(), ids=TABLES.keys())
DOMAIN = "test.tables"
ROOT = Path(ops.__file__).parent.parent


@pytest.fixture(autouse=True)
def leave_nothing_behind() -> Any:
    yield
    for table, _ in TABLES.values():
        table.remove(DOMAIN, "Op")


def functions(table: Table[Any], version: int | None = None) -> list[Any]:
    entries = [entry for entry in table.candidates(DOMAIN, "Op") if version is None or entry.covers(version)]
    return [entry.function for entry in entries]


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
    assert functions(table) == [one]


@each_table
def test_the_order_of_registrations_does_not_decide(table: Table[Any], register: Register) -> None:
    for first, second in ((one, other), (other, one)):
        for function in (first, second):
            register("Op", domain=DOMAIN, **({"until": 12} if function is one else {"since": 13}))(function)
        by_version = {version: functions(table, version) for version in (1, 12, 13, 21)}
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
    assert functions(table) == [other, one]
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


# --- nothing else lists ops

LISTS = {
    "optimizer/axes.py": "how single ops move axes, one function each",
    "optimizer/levels.py": "which ops make a pass worth running",
    "optimizer/passes/attention_masks.py": "the ways in which exporters write masks",
    "optimizer/passes/attention_scores.py": "the ways in which exporters write scores",
    "optimizer/passes/nchwc_ops.py": "which ops the original computes in blocks",
    "optimizer/passes/rotary.py": "the ways in which exporters write rotations",
    "optimizer/passes/sequences.py": "what takes the place of each of its own ops",
    "optimizer/passes/categories.py": "where the names of classes stand in each of its own ops",
    "optimizer/recording.py": "which ops the original quantizes when it loads a model",
    "optimizer/replay.py": "which ops the original quantizes when it loads a model",
    "optimizer/rules/quantize.py": "which ops the original quantizes",
    "optimizer/rules/quantize_units.py": "which ops the original quantizes",
    "providers/native/kernels/conv/form.py": "values of the attribute `activation` of FusedConv",
    "providers/native/kernels/conv/fused.py": "its own ops",
    "providers/native/kernels/pool/form.py": "the kernel behind each of its own ops",
    "providers/native/kernels/linalg/matmul.py": "values of the attribute `activation` of FusedGemm",
    "providers/native/kernels/recurrent/cells.py": "the kernel behind each of its own ops",
    "providers/native/kernels/recurrent/operators.py": "the kernel behind each of its own ops",
    "providers/native/kernels/reduction/operators.py": "the kernel behind each of its own ops",
    "providers/openvino/support.py": "which ops OpenVINO is given",
    "runtime/preparation/experimental.py": "what takes the place of each of its own ops",
    "runtime/saving/required_operators.py": "which types the original's build files count",
}
"""Modules that have a set, tuple or dict of three ops or more, and what it says that is no fact about the ops."""
REGISTERED = ("providers/cpu/", "providers/scalars/", "ops/")


def listed(path: Path, known: set[str]) -> list[set[str]]:
    """The sets, tuples, lists and dicts of a module that are made of names of ops. What a decorator is given registers something."""
    tree = ast.parse(path.read_text())
    decorators = [call for node in ast.walk(tree) for call in getattr(node, "decorator_list", ())]
    registering = {id(inner) for call in decorators for inner in ast.walk(call)}
    found = []
    for node in ast.walk(tree):
        items = node.keys if isinstance(node, ast.Dict) else getattr(node, "elts", ())
        names = {item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)}
        if id(node) not in registering and len(names & known) >= 3:
            found.append(names)
    return found


def test_facts_about_ops_stand_in_their_entries() -> None:
    ops.load_families()
    known = {op for domain in ("", "ai.onnx.ml", "com.microsoft") for op in schemas.operators(domain)}
    found = {}
    for folder in ("optimizer", "providers", "runtime"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(REGISTERED) and listed(path, known):
                found[name] = listed(path, known)
    assert not {name: lists for name, lists in found.items() if name not in LISTS}
    assert not LISTS.keys() - found.keys(), "nothing is listed there any more"
