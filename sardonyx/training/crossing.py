"""The two halves of a training model, and what crosses from one to the other: values of forward that backward reads.

`sardonyx train inspect` shows it. A value that cheap ops make of what is there anyway need not be kept; backward could compute it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.ir import Model, Node, Value, dim, edit
from sardonyx.runtime.api.memory_halves import nodes_of_forward
from sardonyx.runtime.preparation.sizes import bytes_of
from sardonyx.startup.records import dataclass

CHEAP = frozenset(
    """
    Abs Add And BiasGelu Cast Ceil Clip Concat Cos CumSum Div Einsum Elu Equal Erf Exp Expand FastGelu Flatten Floor Gather Gelu Gemm
    Greater GreaterOrEqual HardSigmoid HardSwish Identity LeakyRelu Less LessOrEqual Log Max Min Mish Mul Neg Not Or PRelu Pow
    QuickGelu Reciprocal Relu Reshape Round Shape Sigmoid Sign Sin Size Slice Softplus Softsign Split Sqrt Squeeze Sub Sum Tanh Tile
    Transpose Trilu Unsqueeze Where Xor
    """.split()  # noqa: SIM905 - a table of words reads better than a list of texts
)
"""What backward may compute again: onnxruntime's basic list of its memory optimizer."""


@dataclass(frozen=True)
class Crossing:
    """A value that forward makes and backward reads."""

    value: Value
    is_cheap: bool
    """Whether cheap ops make it of inputs and of other values that cross."""

    def bytes(self, sizes: Mapping[str, int]) -> int:
        """Its bytes; a size that nobody gives counts as 1."""
        size = bytes_of(self.value.type)
        if size is None:
            return 0
        return max(dim.evaluate(size, {**{symbol.name: 1 for symbol in dim.symbols(size)}, **sizes}), 0)


@dataclass(frozen=True)
class Halves:
    """The nodes of forward and of backward, in order, and what crosses."""

    forward: list[Node]
    backward: list[Node]
    crossing: list[Crossing]

    def kept(self, sizes: Mapping[str, int], *, recompute: bool = False) -> int:
        """How many bytes live from forward to backward; with `recompute` those of values that are not cheap."""
        return sum(part.bytes(sizes) for part in self.crossing if not (recompute and part.is_cheap))


def halves_of(model: Model) -> Halves:
    """Cut a training model whose types are known."""
    graph = model.graph
    needed = nodes_of_forward(graph.outputs)
    forward = [node for node in graph.nodes if node in needed]
    backward = [node for node in graph.nodes if node not in needed]
    read = {value for node in backward for value in edit.operands(node)}
    available = {*graph.inputs, *graph.initializers.values()}
    crossing = []
    for node in forward:
        is_cheap = node.op_type in CHEAP and all(value in available for value in edit.operands(node))
        for value in node.outputs:
            if value in read:
                crossing.append(Crossing(value, is_cheap))
            if value in read or is_cheap:
                available.add(value)
    return Halves(forward, backward, crossing)
