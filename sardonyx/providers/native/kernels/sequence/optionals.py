"""Lowerings of optional values, and of Identity where it hands on a sequence or an optional value. What is in an optional value, or that
nothing is, must be known when the program is made; branches that decide it are left to NumPy.
"""

from __future__ import annotations

import numpy as np

from sardonyx.compiler.types import BOOL
from sardonyx.ir import Node, Value
from sardonyx.providers.native.kernels.sequence.operators import copy_sequence, own_sequence
from sardonyx.providers.native.program.held import held_sequence
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, is_optional, is_plain, required, tensors_in
from sardonyx.providers.native.program.views import View
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import replace


@lower("Optional", costly=False)
def optional(lowerer: Lowerer, node: Node) -> None:
    lowerer.scope.contents[node.outputs[0]] = node.inputs[0] if node.inputs else None


def _content(lowerer: Lowerer, value: Value | None) -> Value | None:
    """What is in a value that is optional or there in any case."""
    if value is None or not is_optional(value):
        return value
    if value not in lowerer.scope.contents:
        raise CannotCompile(f"only a run tells whether {value.name} is there", quiet=True)
    return lowerer.scope.contents[value]


@lower("OptionalHasElement", costly=False)
def optional_has_element(lowerer: Lowerer, node: Node) -> None:
    content = _content(lowerer, node.inputs[0] if node.inputs else None)
    buffer = lowerer.constant(np.array([content is not None]))
    lowerer.set_view(node.outputs[0], View(buffer, BOOL, (), ()))


@lower("OptionalGetElement", costly=False)
def optional_get_element(lowerer: Lowerer, node: Node) -> None:
    content, result = _content(lowerer, required(node.inputs[0])), node.outputs[0]
    if content is None:
        raise CannotCompile("there is nothing in the optional value", quiet=True)
    if tensors_in(content) is None:
        _hand_on(lowerer, content, result)
        return
    held = lowerer.sequence(content)
    copy = held_sequence(held.type, held.rank, held.count, held.total)
    copy_sequence(lowerer, held, copy)
    lowerer.set_sequence(result, copy)


def _hand_on(lowerer: Lowerer, value: Value, result: Value) -> None:
    """Let a result be a tensor that is there already."""
    view = lowerer.view(value)
    for size, wanted in zip(view.shape, dims(result), strict=True):
        lowerer.require(size, wanted)
    lowerer.set_view(result, replace(view, shape=dims(result)))


@lower("Identity", claims=lambda node: not is_plain(node.inputs[0]), case="sequences and optional values", costly=False)
def identity(lowerer: Lowerer, node: Node) -> None:
    value, result = required(node.inputs[0]), node.outputs[0]
    if is_optional(value):
        lowerer.scope.contents[result] = _content(lowerer, value)
    else:
        lowerer.set_sequence(result, own_sequence(lowerer, value, node))
