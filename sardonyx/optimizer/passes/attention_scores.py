"""The core of attention: softmax(f(Q Kᵀ)) V, where f scales, caps, adds and masks, in whatever order an exporter wrote that.

`find_core` reads it around one Softmax; `passes/attention.py` makes one op of what it finds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Union

from sardonyx.ir import Node, Value
from sardonyx.ops.reading import operand
from sardonyx.optimizer.values import dtype_of, is_exactly, is_float, rank_of, scalar, shape_of
from sardonyx.startup.records import dataclass

MAX_STEPS = 16
"""How many ops may stand between a product and its softmax."""


class Unfit(Exception):
    """Why an attention cannot become one op."""


@dataclass(frozen=True)
class Factor:
    """Scores multiplied by a number."""

    number: float


@dataclass(frozen=True)
class Shift:
    """Scores plus, or minus, a tensor; `rank` is that of the scores at this point."""

    value: Value
    rank: int
    sign: int = 1


@dataclass(frozen=True)
class Choice:
    """Scores where `condition` is `keeps`, elsewhere a number."""

    condition: Value
    keeps: bool
    number: float
    rank: int


@dataclass(frozen=True)
class Squash:
    """The hyperbolic tangent of scores: between two factors, it caps them."""


Step = Union[Factor, Shift, Choice]


@dataclass(frozen=True)
class Product:
    """A batched matrix product: `alpha · a · b`, or `alpha · a · bᵀ`."""

    a: Value
    b: Value
    alpha: float = 1.0
    transposed: bool = False


@dataclass(frozen=True)
class Core:
    """softmax(steps(query · keyᵀ)) · value. The steps stand in the order in which they are done."""

    softmax: Node
    query: Value
    key: Value
    value: Value
    output: Value
    key_is_transposed: bool
    """Whether the rows of `key` are features and its columns the keys."""
    steps: tuple[Step, ...]
    is_guarded: bool
    """Whether a row of the softmax that is not a number becomes zero."""
    shapes: tuple[Node, ...]
    """Shape nodes of scores or weights; fused, there are none to ask."""
    cap: float
    """If not zero, what the scores are capped at before anything is added: s becomes cap · tanh(s / cap)."""


def find_core(softmax: Node) -> Core | None:
    """The attention whose weights `softmax` makes; None if it makes something else. Unfit if it cannot be taken out of the graph."""
    scores = softmax.inputs[0]
    if scores is None or not _is_along_rows(softmax):
        return None
    weighed = _weighed(softmax)
    read = None if weighed is None else _read(scores, softmax, MAX_STEPS)
    if weighed is None or read is None:
        return None
    weighing, is_guarded, node, weights = weighed
    product, steps, values = read
    if weighing.alpha != 1 or weighing.transposed:
        raise Unfit("the product with the values has a factor or a transposition")
    cap, steps = _capped(steps if product.alpha == 1 else (Factor(product.alpha), *steps))
    return Core(
        softmax,
        product.a,
        product.b,
        weighing.b,
        node.outputs[0],
        not product.transposed,
        steps,
        is_guarded,
        tuple(user for value in (*values, *weights) for user in value.users if _is_shape(user, softmax)),
        cap,
    )


def _capped(steps: Sequence[Step | Squash]) -> tuple[float, tuple[Step, ...]]:
    """The cap, and the steps without it. Scores scaled by f, squashed and scaled by c are those scaled by f · c and capped at c."""
    places = [place for place, step in enumerate(steps) if isinstance(step, Squash)]
    plain = tuple(step for step in steps if not isinstance(step, Squash))
    if not places:
        return 0.0, plain
    place = places[0]
    if len(places) > 1 or not all(isinstance(step, Factor) for step in plain[:place]):
        raise Unfit("scores are capped after something was added to them")
    cap = math.prod(step.number for step in plain[place:] if isinstance(step, Factor))
    if cap <= 0:
        raise Unfit(f"scores are capped at {cap:g}")
    return cap, plain


def _is_along_rows(softmax: Node) -> bool:
    """Up to opset 12 all axes from `axis` on are one row: the same, if it is the last."""
    rank, axis = rank_of(softmax.outputs[0]), operand(softmax, "axis")
    return rank is not None and axis in (-1, rank - 1)


def _only_user(value: Value, softmax: Node) -> Node | None:
    """The one node that takes a value as numbers; others may ask for its shape, which the operands of an attention tell as well."""
    users = [node for node, _ in value.uses if not _is_shape(node, softmax)]
    return users[0] if len(users) == 1 and not value.is_graph_output else None


def _is_shape(node: Node, softmax: Node) -> bool:
    """Whether a node asks for the whole shape of scores, with a known number of heads if they are an axis."""
    if node.op_type != "Shape" or node.domain or node.attributes or node.graph is not softmax.graph or node.inputs[0] is None:
        return False
    shape = shape_of(node.inputs[0])
    return shape is not None and (len(shape) == 3 or (len(shape) == 4 and isinstance(shape[1], int)))


# --- from the softmax to the product with the values


def _weighed(softmax: Node) -> tuple[Product, bool, Node, list[Value]] | None:
    """The product with the values, whether rows are guarded, the product's node, and the weights on the way to it."""
    value, is_guarded = softmax.outputs[0], False
    weights: list[Value] = []
    for _ in range(MAX_STEPS):
        weights.append(value)
        guard = _guard(value)
        if guard is not None:
            value, is_guarded = guard.outputs[0], True
            continue
        users = [node for node in value.users if node.graph is softmax.graph]
        if len(users) != len(value.users):
            return None
        product = next(
            (candidate for node in users if (candidate := product_of(node)) is not None and candidate.a is value), None
        )
        user = _only_user(value, softmax)
        if product is not None and user is not None:
            return product, is_guarded, user, weights
        if product is not None:
            raise Unfit("its weights are used elsewhere")
        if user is None or not _keeps_scores(user):
            return None
        value = user.outputs[0]
    return None


def _guard(value: Value) -> Node | None:
    """Where(IsNaN(value), 0, value), which PyTorch writes so that a row without any key becomes zero.

    That is what a fused op keeps of it: where a query or key itself is not a number, its rows are not, either.
    """
    users = {node.op_type: node for node in value.users if not node.domain}
    if len(value.uses) != 2 or set(users) != {"IsNaN", "Where"} or value.is_graph_output:
        return None
    test, choice = users["IsNaN"].outputs[0], users["Where"]
    if len(test.uses) != 1 or choice.inputs[0] is not test or choice.inputs[2] is not value:
        return None
    return choice if choice.inputs[1] is not None and is_exactly(choice.inputs[1], 0) else None


def product_of(node: Node) -> Product | None:
    """A node as a product of batches of matrices."""
    if (node.domain, node.op_type) not in (("", "MatMul"), ("", "Einsum"), ("com.microsoft", "FusedMatMul")):
        return None
    if len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if a is None or b is None or rank_of(a) not in (3, 4) or rank_of(a) != rank_of(b):
        return None
    if node.op_type == "MatMul":
        return Product(a, b)
    if node.op_type == "Einsum":
        is_transposed = _einsum_is_transposed(operand(node, "equation"))
        return None if is_transposed is None else Product(a, b, transposed=is_transposed)
    if any(operand(node, name) for name in ("transA", "transBatchA", "transBatchB")):
        return None
    return Product(a, b, operand(node, "alpha"), bool(operand(node, "transB")))


def _einsum_is_transposed(equation: str) -> bool | None:
    """False for "bik,bkj->bij", True for "bik,bjk->bij", None for all that is no product of matrices."""
    matched = re.fullmatch(r"(\w*)(\w)(\w),(\w*)(\w)(\w)->(\w*)(\w)(\w)", equation.replace(" ", ""))
    if matched is None:
        return None
    batch, i, k, batch_b, row, column, batch_out, i_out, j = matched.groups()
    if not batch == batch_b == batch_out or i != i_out or len({*batch, i, j, k}) != len(batch) + 3:
        return None
    return {(k, j): False, (j, k): True}.get((row, column))


# --- from the softmax back to the product with the keys


def _read(value: Value, softmax: Node, budget: int) -> tuple[Product, tuple[Step | Squash, ...], tuple[Value, ...]] | None:
    """The product that `value` is made from, how, and through which values.

    All is in the graph of the softmax, so that nothing moves into a loop.
    """
    node = value.producer
    if node is None or budget == 0 or _only_user(value, softmax) is None or node.graph is not softmax.graph:
        return None
    product = product_of(node)
    if product is not None:
        return product, (), (value,)
    for inner, step in _steps(node):
        scores = _read(inner, softmax, budget - 1)
        if scores is not None:
            return scores[0], (scores[1] if step is None else (*scores[1], step)), (*scores[2], value)
    return None


def _steps(node: Node) -> Iterator[tuple[Value, Step | Squash | None]]:
    """The operands of `node` that may be scores, and what it does to them."""
    if node.domain or any(value is None for value in node.inputs[:2]):
        return
    rank = rank_of(node.outputs[0])
    first, *others = node.inputs
    if first is None or rank is None:
        return
    if _keeps_scores(node):
        yield first, None
    elif node.op_type == "Tanh":
        yield first, Squash()
    elif node.op_type in ("Mul", "Div", "Add", "Sub"):
        second = others[0]
        assert second is not None
        yield from _arithmetic(node, first, second, rank)
    elif node.op_type == "Where":
        yield from _choices(node, rank)


def _arithmetic(node: Node, first: Value, second: Value, rank: int) -> Iterator[tuple[Value, Step]]:
    number = scalar(second)
    if node.op_type in ("Mul", "Div"):
        if number:
            yield first, Factor(number if node.op_type == "Mul" else 1 / number)
        elif node.op_type == "Mul" and scalar(first):
            yield second, Factor(scalar(first) or 1.0)
        return
    if node.op_type == "Sub":
        yield first, Shift(second, rank, -1)
        return
    shape = shape_of(node.outputs[0])
    # what is added to scores has often fewer axes or sizes of 1: the operand of full shape comes first
    for scores, shift in sorted(((first, second), (second, first)), key=lambda pair: shape_of(pair[0]) != shape):
        yield scores, Shift(shift, rank)


def _choices(node: Node, rank: int) -> Iterator[tuple[Value, Step]]:
    condition, x, y = node.inputs
    assert condition is not None and x is not None and y is not None
    for scores, other, keeps in ((x, y, True), (y, x, False)):
        number = scalar(other)
        if number is not None:
            yield scores, Choice(condition, keeps, number, rank)


def _keeps_scores(node: Node) -> bool:
    """Whether a node does nothing to the numbers, beside rounding: a Cast, or heads joined with the batch or set apart again."""
    if node.domain or node.inputs[0] is None:
        return False
    if node.op_type == "Identity":
        return True
    if node.op_type == "Cast":
        return is_float(node.inputs[0]) and is_float(node.outputs[0])
    shapes = [shape_of(value) for value in (node.inputs[0], node.outputs[0])]
    if node.op_type not in ("Reshape", "Squeeze", "Unsqueeze") or shapes[0] is None or shapes[1] is None:
        return False
    small, large = sorted((shapes[0], shapes[1]), key=len)
    return len(small) == 3 and len(large) == 4 and small[1:] == large[2:] and small[0] == large[0] * large[1]


def types_agree(core: Core) -> bool:
    """Whether query, key and value have one element type, which the output has, too."""
    return len({dtype_of(value) for value in (core.query, core.key, core.value, core.output)}) == 1
