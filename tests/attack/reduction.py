"""A smaller model that shows the same problem: outputs are dropped, and nodes whose results can be fed instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper

from sardonyx import errors
from tests.attack.reference import Reference, captured, type_proto
from tests.attack.subject import Problem, Subject

Judge = Callable[[Subject], None]


def reduced(subject: Subject, judge: Judge, text: str) -> Subject:
    """The smallest that was found before time was up; `Hang` from outside ends the search."""
    wanted = category(text)

    def still(candidate: Subject) -> bool:
        try:
            judge(candidate)
        except Problem as problem:
            return category(str(problem)) == wanted
        except Exception as error:
            return category(f"{type(error).__name__}: {error}") == wanted
        return False

    try:
        values = Reference(subject.model).values(subject.feeds)
    except errors.CODED:
        return subject
    best = pruned(subject)
    if not still(best):
        return subject
    while (smaller := _one_step(best, values, still)) is not None:
        best = smaller
    return best


def category(text: str) -> str:
    """Who was wrong, without the numbers: a reduction must not slip from one problem to another."""
    head = text.split(":")[0].removesuffix(", second run")
    return head if "elements differ" in text or "elements for" in text else " ".join(text.split()[:6])


def _one_step(subject: Subject, values: dict[str, Any], still: Callable[[Subject], bool]) -> Subject | None:
    outputs, nodes = list(subject.model.graph.output), list(subject.model.graph.node)
    candidates: list[Callable[[], Subject]] = []
    if len(outputs) > 1:
        candidates += [lambda kept=one: _with_outputs(subject, [kept]) for one in outputs]
        candidates += [lambda out=one: _with_outputs(subject, [o for o in outputs if o is not out]) for one in outputs]
    count = len(nodes)
    if count > 3:
        candidates += [lambda: _without_nodes(subject, set(range(count // 2)), values)]
    candidates += [lambda at=at: _ending_at(subject, at) for at in range(count - 1) if len(outputs) == 1]
    candidates += [lambda at=at: _without_nodes(subject, {at}, values) for at in range(count)]
    for candidate in candidates:
        smaller = candidate()
        if smaller.model.graph.node and _size(smaller) < _size(subject) and still(smaller):
            return smaller
    return None


def _size(subject: Subject) -> tuple[int, int]:
    return len(subject.model.graph.node), len(subject.model.graph.output)


def _copy(subject: Subject) -> Subject:
    model = onnx.ModelProto()
    model.CopyFrom(subject.model)
    return replace(subject, model=model, feeds=dict(subject.feeds))


def _with_outputs(subject: Subject, outputs: list[onnx.ValueInfoProto]) -> Subject:
    smaller = _copy(subject)
    del smaller.model.graph.output[:]
    smaller.model.graph.output.extend(outputs)
    return pruned(smaller)


def _ending_at(subject: Subject, position: int) -> Subject:
    """The results of an earlier node as the outputs."""
    names = [name for name in subject.model.graph.node[position].output if name]
    return _with_outputs(subject, [onnx.ValueInfoProto(name=name) for name in names])


def _without_nodes(subject: Subject, positions: set[int], values: dict[str, Any]) -> Subject:
    """Some nodes dropped; what they gave becomes inputs."""
    smaller = _copy(subject)
    graph = smaller.model.graph
    kept = [node for at, node in enumerate(graph.node) if at not in positions]
    dropped = [name for at, node in enumerate(graph.node) if at in positions for name in node.output if name]
    outputs = {value.name for value in graph.output}
    if any(not isinstance(values.get(name), np.ndarray) for name in dropped) or outputs & set(dropped):
        return subject
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(kept)
    for name in dropped:
        typed = type_proto(values[name])
        for dim, size in zip(typed.tensor_type.shape.dim, values[name].shape):
            dim.dim_value = size
        graph.input.append(helper.make_value_info(name, typed))
        smaller.feeds[name] = values[name]
    return pruned(smaller)


def pruned(subject: Subject) -> Subject:
    """Without nodes, initializers and inputs that no output needs."""
    smaller = _copy(subject)
    graph = smaller.model.graph
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            needed |= set(captured(node))
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(reversed(kept))
    for values in (graph.input, graph.initializer, graph.value_info):
        keep = [type(one).FromString(one.SerializeToString()) for one in values if one.name in needed]
        del values[:]
        values.extend(keep)
    smaller.feeds = {name: value for name, value in smaller.feeds.items() if name in needed}
    return smaller
