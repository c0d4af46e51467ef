"""Models that declare what is not true, and feeds that contradict what is declared: an error of ours, or the true result."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from onnx import helper

from sardonyx import dtypes, errors
from tests.attack.kinds import graphs
from tests.attack.reference import Expectation, Reference
from tests.attack.subject import Problem, Subject, examine, session_of

SIZES = (0, 1, 2, 3, 5, 64, 2**31, 2**62, -1)


def make(rng: random.Random) -> Subject:
    subject = graphs.make(rng)
    values = Reference(subject.model).values(subject.feeds)
    subject.notes["values"] = values
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(LIES)(rng, subject, values)
    return subject


def lie_about_inner(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    names = [name for node in subject.model.graph.node for name in node.output if isinstance(values.get(name), np.ndarray)]
    name = rng.choice(names)
    subject.model.graph.value_info.append(helper.make_value_info(name, lying_type(rng, values[name])))


def lie_about_output(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    value = rng.choice(subject.model.graph.output)
    if isinstance(values[value.name], np.ndarray):
        value.type.CopyFrom(lying_type(rng, values[value.name]))


def lie_about_input(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    if subject.model.graph.input:
        value = rng.choice(subject.model.graph.input)
        value.type.CopyFrom(lying_type(rng, values[value.name], keep_dtype=rng.random() < 0.9))


def lie_by_name(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    """One name for sizes that differ."""
    for value in subject.model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if rng.random() < 0.5:
                dim.dim_param = "N"


def feed_otherwise(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    if not subject.feeds:
        return
    name = rng.choice(sorted(subject.feeds))
    array = subject.feeds[name]
    shape = list(array.shape)
    match rng.randrange(4):
        case 0 if shape:
            shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 5))
        case 1:
            shape.append(1)
        case 2 if shape:
            shape.pop()
        case 3:
            subject.feeds[name] = array.astype(rng.choice((np.float32, np.int64, np.float64)))
            return
    subject.feeds[name] = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)


def lie_about_initializer(rng: random.Random, subject: Subject, values: dict[str, Any]) -> None:
    """Sizes that are not the data's."""
    if subject.model.graph.initializer:
        tensor = rng.choice(subject.model.graph.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(SIZES)
        else:
            tensor.dims.append(rng.choice(SIZES))


LIES = (lie_about_inner, lie_about_inner, lie_about_output, lie_about_input, lie_by_name, feed_otherwise, lie_about_initializer)


def lying_type(rng: random.Random, array: np.ndarray, keep_dtype: bool = False) -> onnx.TypeProto:
    sizes: list[Any] = list(array.shape)
    match rng.randrange(4):
        case 0 if sizes:
            sizes[rng.randrange(len(sizes))] = rng.choice(SIZES)
        case 1:
            sizes.append(rng.choice(SIZES))
        case 2 if sizes:
            sizes.pop(rng.randrange(len(sizes)))
        case 3:
            sizes = [rng.choice(("N", "M", "")) if rng.random() < 0.5 else size for size in sizes]
    code = dtypes.from_numpy(array.dtype).code
    if not keep_dtype and rng.random() < 0.15:
        code = rng.choice((1, 2, 7, 9, 10, 11))
    return helper.make_tensor_type_proto(code, sizes)


def truth(subject: Subject) -> Expectation | None:
    """What the nodes give one by one for these feeds, whatever is declared; None if they refuse them."""
    bare = onnx.ModelProto()
    bare.CopyFrom(subject.model)
    del bare.graph.value_info[:]
    try:
        return Expectation(Reference(bare), as_declared(subject))
    except errors.CODED:
        return None
    except ValueError:  # an initializer whose sizes are not its data's
        return None


def as_declared(subject: Subject) -> dict[str, Any]:
    """The feeds, with one element of any rank as the scalar that is declared: sessions take it so (docs/api.md)."""
    types = {value.name: value.type.tensor_type for value in subject.model.graph.input}
    scalars = {name for name, type in types.items() if type.HasField("shape") and not type.shape.dim}
    return {name: value.reshape(()) if name in scalars and value.size == 1 else value for name, value in subject.feeds.items()}


def judge(subject: Subject) -> None:
    expectation = truth(subject)
    for native in ("1", "0"):
        for level in (99, subject.levels[-1]):
            try:
                session = session_of(subject.model, native=native, level=level, threads=subject.threads)
                results = session.run(None, dict(subject.feeds))
            except errors.CODED:
                continue
            who = f"{'machine code' if native == '1' else 'NumPy'} at level {level}"
            if expectation is None:
                raise Problem(f"{who} gives something where the nodes one by one refuse")
            expectation.check(results, who)


def run(rng: random.Random) -> None:
    examine(make(rng), judge)
