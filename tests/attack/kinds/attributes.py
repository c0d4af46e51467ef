"""Hostile numbers in attributes and integer operands of every op: an error of ours, or what NumPy gives.

Small numbers and huge ones come alone and in lists; a model that asks for more memory than there is must be refused as well.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from sardonyx import errors, ops
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Kind
from sardonyx.ops import schemas
from tests.attack.borrowed import RANDOM, op_cases
from tests.attack.reference import Expectation, Reference, is_float
from tests.attack.subject import Problem, Subject, examine, session_of
from tests.ops import cases

NUMBERS = (
    -(2**63),
    -(2**31),
    -(2**31) - 1,
    -100,
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    7,
    100,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
)
FLOATS = (0.0, -0.0, -1.0, 1e-45, 1e30, -1e38, float("nan"), float("inf"), float("-inf"))
HUGE = 1e35
"""Numbers of some hundreds are finite when they are multiplied by it."""
COUNTS = {("Loop", "M")}
MOST_ROUNDS = 100
"""A loop that is to run 2**31 times does so: that it takes long is no fault."""
WORDS = ("", "x", "NONE", "\0", "linear", "é" * 50)


def make(rng: random.Random) -> Subject:
    table = op_cases()
    while True:
        domain, op = rng.choice(sorted(table))
        case = rng.choice(table[domain, op])
        if op in RANDOM or any(isinstance(value, cases.Typed) for value in case.operands.values()):
            continue
        version = rng.choice(sorted(schemas.versions(domain, op)))
        signature = schemas.find(domain, op, version)
        if signature is None or not cases.takes(signature, case, {}):
            continue
        operands = damaged(rng, case, signature)
        if operands is None:
            continue
        hostile = cases.Case(op=op, operands=operands, where="attack", domain=domain, outputs=case.outputs)
        try:
            given = cases.inputs_of(signature, hostile, {})
            view = rng.choice(("", "known", "known", "symbolic"))
            model = cases.build(signature, version, hostile, given, cases.wanted_outputs(hostile, signature, None), view)
            proto = write_model(model)
        except (
            OverflowError,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ):  # a value does not fit where a case would put it
            continue
        names = {value.name for value in proto.graph.input} - {one.name for one in proto.graph.initializer}
        feeds = {name: value for name, value, type in given if type is not None and name in names}
        if all(isinstance(value, np.ndarray) for value in feeds.values()):
            return Subject(proto, feeds)


def damaged(rng: random.Random, case: cases.Case, signature: Any) -> dict[str, Any] | None:
    """The operands of a case with one or two changed; None if there is nothing to change."""
    operands = dict(case.operands)
    attributes = {name: one.kind for name, one in signature.attributes.items() if one.kind in CHANGES}
    integers = [name for name, value in operands.items() if _is_integers(value) and name in signature.operand_names]
    choices = [*attributes, *integers]
    if not choices:
        return None
    for name in rng.sample(choices, min(len(choices), rng.choice((1, 1, 2)))):
        if name in attributes and name not in signature.operand_names:
            operands[name] = CHANGES[attributes[name]](rng, operands.get(name))
        elif name in integers:
            operands[name] = changed_integers(rng, operands[name])
            if (case.op, name) in COUNTS and np.max(operands[name], initial=0) > MOST_ROUNDS:
                return None
    return operands


def _is_integers(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype in (np.int64, np.int32)
    items = value if isinstance(value, (list, tuple)) else [value]
    return bool(items) and all(isinstance(item, int) and not isinstance(item, bool) for item in items)


def changed_integers(rng: random.Random, value: Any) -> Any:
    array = np.array(value, copy=True)
    if array.dtype.kind != "i":
        array = array.astype(np.int64)
    limits = np.iinfo(array.dtype)
    fitting = [number for number in NUMBERS if limits.min <= number <= limits.max]
    if array.size and rng.random() < 0.8:
        array.flat[rng.randrange(array.size)] = rng.choice(fitting)
    elif array.ndim == 1:
        array = np.asarray([rng.choice(fitting) for _ in range(rng.choice((0, 1, 2, len(array) + 1)))], array.dtype)
    return array


def changed_list(rng: random.Random, value: Any) -> list[int]:
    numbers = [int(one) for one in np.asarray([] if value is None else value).reshape(-1)]
    if numbers and rng.random() < 0.7:
        numbers[rng.randrange(len(numbers))] = rng.choice(NUMBERS)
        return numbers
    return [rng.choice(NUMBERS) for _ in range(rng.choice((0, 1, 2, 4, len(numbers))))]


CHANGES: dict[Kind, Any] = {
    Kind.INT: lambda rng, value: rng.choice(NUMBERS),
    Kind.INTS: changed_list,
    Kind.FLOAT: lambda rng, value: rng.choice(FLOATS),
    Kind.FLOATS: lambda rng, value: [rng.choice(FLOATS) for _ in range(rng.choice((0, 1, 2, 3)))],
    Kind.STRING: lambda rng, value: rng.choice(WORDS),
}


def overflow_depends_on_order(subject: Subject) -> bool:
    """Whether it is left to a kernel what becomes infinite on the way."""
    fed = [*subject.feeds.values(), *(numpy_helper.to_array(one) for one in subject.model.graph.initializer)]
    with_huge_elements = any(is_float(array) and bool((np.abs(array) > HUGE).any()) for array in fed)
    return any(_scores_overflow(node) or _sum_overflows(node, with_huge_elements) for node in subject.model.graph.node)


def _scores_overflow(node: onnx.NodeProto) -> bool:
    """Whether attention is to scale its scores beyond float: kernels scale the queries or their products, and do not compute what is
    masked, or do.
    """
    return node.op_type.endswith("Attention") and any(one.name == "scale" and abs(one.f) > HUGE for one in node.attribute)


def _sum_overflows(node: onnx.NodeProto, with_huge_elements: bool) -> bool:
    """Whether a product of huge numbers may be added to an infinite one: rounded once, it does not overflow before."""
    numbers = [abs(number) for one in node.attribute for number in (one.f, *one.floats)]
    return float("inf") in numbers and (with_huge_elements or any(HUGE < number < float("inf") for number in numbers))


def judge(subject: Subject) -> None:
    ops.load_families()
    refusals: dict[str, Exception] = {}
    expectation = None
    try:
        expectation = Expectation(Reference(subject.model), subject.feeds)
    except errors.CODED as error:
        refusals["the node alone"] = error
    for native in ("0", "1"):
        try:
            results = session_of(subject.model, native=native).run(None, dict(subject.feeds))
        except errors.CODED as error:
            refusals["machine code" if native == "1" else "NumPy"] = error
            continue
        if expectation is not None and not overflow_depends_on_order(subject):
            expectation.check(results, "machine code" if native == "1" else "NumPy")
    if any("MemoryError" in str(error) for error in refusals.values()):
        return  # whoever keeps more results than another has less memory left
    if 0 < len(refusals) < 3:
        text = "; ".join(f"{who}: {error}" for who, error in refusals.items())
        raise Problem(f"only some refuse: {text}") from next(iter(refusals.values()))


def run(rng: random.Random) -> None:
    examine(make(rng), judge)
