"""Hostile numbers for every operand of the audit: as attribute, as initializer, as fed value, and as sizes of what is fed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from sardonyx import ops
from sardonyx.ir.attribute import Kind
from sardonyx.ops import schemas
from sardonyx.startup.records import dataclass
from tests.fuzz.edges import (  # noqa: F401 - they fill the table
    chains,
    composed,
    control,
    images,
    models,
    movement,
    packed,
    products,
    quantized,
    random_numbers,
    sequences,
    texts,
)
from tests.fuzz.edges.table import CONTRIB, ENTRIES, ML, TRAINING, Entry

FILLING = (chains, composed, control, images, models, movement, packed, products, quantized, random_numbers, texts)
"""The modules that fill the table."""

NUMBERS = (0, -1, 1, -2, 5, 300, 2**31 - 1, -(2**31), 2**31, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e9, 1e30, -1e30, float("nan"), float("inf"), float("-inf"))
TEXTS = ("nonsense", "")


@dataclass(frozen=True)
class Case:
    """An entry with one thing about it changed. `where` is attribute, initializer, fed, fed unsized or shape."""

    entry: Entry
    operand: str
    where: str
    value: Any

    def __str__(self) -> str:
        shown = repr(self.value.tolist() if isinstance(self.value, np.ndarray) else self.value)
        if self.where == "shape":
            shown = f"of shape {list(self.value.shape)}"
        number = next(number for number, entry in enumerate(ENTRIES) if entry is self.entry)
        return f"{self.entry.name}#{number} {self.operand} {self.where} {shown[:200]}"


def unharmed() -> list[Case]:
    """Each entry as it is."""
    return [Case(entry, "", "as it is", None) for entry in ENTRIES]


def hostile() -> list[Case]:
    """All cases, in an order that does not change."""
    ops.load_families()
    return [case for entry in ENTRIES for case in _cases(entry)]


def chosen(count: int) -> list[Case]:
    """So many of them, each entry and operand in turn."""
    cases = hostile()
    if count >= len(cases):
        return cases
    return random.Random(0).sample(cases, count)


def _cases(entry: Entry) -> Iterator[Case]:
    for operand in entry.checks:
        if operand in entry.attributes:
            for value in _attribute_values(entry.attributes[operand]):
                yield Case(entry, operand, "attribute", value)
        elif entry.inputs.get(operand) is not None:
            for value in _contents(entry.inputs[operand]):
                yield Case(entry, operand, "initializer", value)
                yield Case(entry, operand, "fed", value)
                yield Case(entry, operand, "fed unsized", value)
    for attribute in _text_attributes(entry):
        for text in TEXTS:
            yield Case(entry, attribute, "attribute", text)
    for operand, array in entry.inputs.items():
        if array is not None and not isinstance(array, tuple):
            for shape in _shapes(array.shape):
                yield Case(entry, operand, "shape", np.resize(array, shape))


def _text_attributes(entry: Entry) -> list[str]:
    """Attributes that are words: modes and the like. Each word that nobody knows must be refused, and not taken for another."""
    signature = schemas.find(entry.domain, entry.op, _version(entry))
    assert signature is not None
    return [name for name, definition in signature.attributes.items() if definition.kind is Kind.STRING]


def _attribute_values(value: Any) -> Iterator[Any]:
    """Other numbers in place of an attribute's: each place of a list in turn, and lists of other lengths."""
    if isinstance(value, int):
        yield from (number for number in (*NUMBERS, value + 1, value - 1) if number != value)
        return
    for place in range(len(value)):
        for number in (*NUMBERS, value[place] + 1):
            yield [*value[:place], number, *value[place + 1 :]]
    yield from ([], [*value, value[-1]], value[:-1], [2**62] * len(value), [-(2**62)] * len(value))


def _contents(array: np.ndarray) -> Iterator[np.ndarray]:
    """Other contents of an input: its first or last element, or all of them."""
    numbers = FLOATS if array.dtype.kind == "f" else NUMBERS
    bounds = None if array.dtype.kind == "f" else np.iinfo(array.dtype)
    largest = array.max().item()
    for number in (*numbers, *(() if bounds is None else (largest + 1, largest + 2))):
        if bounds is not None and not bounds.min <= number <= bounds.max:
            continue
        for place in {0, array.size - 1}:
            changed = array.copy()
            changed.reshape(-1)[place] = number
            yield changed
        if array.size > 2:
            yield np.full_like(array, number)


def _shapes(shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """A size more or less along each axis, none at all, and an axis more or less."""
    for axis, size in enumerate(shape):
        for other in {size + 1, size - 1, 0, 1} - {size}:
            yield (*shape[:axis], other, *shape[axis + 1 :])
    yield (1, *shape)
    if shape:
        yield shape[1:]


def model_of(case: Case) -> tuple[bytes, dict[str, np.ndarray]]:
    """The model of a case and what to feed it. Sizes of inputs are symbols in cases that are about them."""
    entry = case.entry
    arrays = {name: array for name, array in entry.inputs.items() if array is not None and not isinstance(array, tuple)}
    attributes = dict(entry.attributes)
    constants = set(entry.constants)
    if case.where == "attribute":
        attributes[case.operand] = case.value
    elif case.operand:
        arrays[case.operand] = case.value
        constants = constants | {case.operand} if case.where == "initializer" else constants - {case.operand}
    names = [name if array is not None else "" for name, array in entry.inputs.items() if name not in entry.captured]
    while names and not names[-1]:
        names.pop()
    outputs = [f"out{index}" for index in range(entry.outputs)]
    node = helper.make_node(entry.op, names, outputs, domain=entry.domain)
    node.attribute.extend(_attribute(name, value) for name, value in attributes.items())
    made_sequences = [(name, made_of) for name, made_of in entry.inputs.items() if isinstance(made_of, tuple)]
    nodes = [*(helper.make_node("SequenceConstruct", made_of, [name]) for name, made_of in made_sequences), node]
    if entry.behind:
        settings = {"axis": 0} if entry.behind == "ConcatFromSequence" else {}
        nodes.append(helper.make_node(entry.behind, outputs[:1], ["unwrapped"], **settings))
        outputs[0] = "unwrapped"
    nodes.append(_behind(outputs[0], entry.opset))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), _declared(name, array, case))
        for name, array in arrays.items()
        if name not in constants
    ]
    initializers = [numpy_helper.from_array(arrays[name], name) for name in constants if name in arrays]
    graph = helper.make_graph(
        nodes, "edges", inputs, [helper.make_empty_tensor_value_info(name) for name in (*outputs, "behind")], initializers
    )
    versions = {"": entry.opset, CONTRIB: 1, ML: 3} | {entry.domain: _version(entry)}
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return model.SerializeToString(), {name: arrays[name] for name in arrays if name not in constants}


def _version(entry: Entry) -> int:
    """The version of the entry's domain that its model asks for."""
    if entry.domain == ML:
        return 5 if entry.op == "TreeEnsemble" else 3
    return 1 if entry.domain in (CONTRIB, TRAINING) else entry.opset


def _behind(value: str, opset: int) -> NodeProto:
    """A node that takes any value: views alone are no cluster."""
    if opset < 6:  # there Cast takes another kind of attribute
        return helper.make_node("Abs", [value], ["behind"])
    return helper.make_node("Cast", [value], ["behind"], to=TensorProto.DOUBLE)


def _attribute(name: str, value: Any) -> AttributeProto:
    if isinstance(value, np.ndarray):
        value = numpy_helper.from_array(value, name)
    return helper.make_attribute(name, value, attr_type=AttributeProto.INTS if value == [] else None)


def _declared(name: str, array: np.ndarray, case: Case) -> list[Any]:
    if case.where not in ("shape", "fed unsized"):
        return list(array.shape)
    return [f"{name}{axis}" for axis in range(array.ndim)]
