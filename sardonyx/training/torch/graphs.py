"""From a graph of ATen ops to a model of ours, with word on where its inputs come from and what becomes of its outputs.

Outputs that are views of inputs or of other outputs are not computed: torch makes them again, without a copy. Inputs whose axes lie in
another order in memory come in that order, and a Transpose in the model, which products take in, puts them right.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils import _pytree as pytree

from sardonyx import ops
from sardonyx.ir import Graph, Model, Tensor, TensorType, Value
from sardonyx.ops import schemas
from sardonyx.runtime.preparation.expand import Expansion
from sardonyx.startup.records import dataclass, field
from sardonyx.training.torch.aten.table import AtenBuilder, Drawing, lowering_of
from sardonyx.training.torch.sizes import dim_of, expression_of
from sardonyx.training.torch.tensors import array_of
from sardonyx.training.torch.types import Unsupported, element_type

_aten = torch.ops.aten
WHOLE_VIEWS: dict[Any, Any] = {
    _aten.t.default: torch.t,
    _aten.transpose.int: torch.transpose,
    _aten.permute.default: torch.permute,
    _aten.view.default: torch.Tensor.view,
    _aten._unsafe_view.default: torch.Tensor.view,
    _aten.unsqueeze.default: torch.unsqueeze,
    _aten.squeeze.default: torch.squeeze,
    _aten.squeeze.dim: torch.squeeze,
    _aten.squeeze.dims: torch.squeeze,
    _aten.expand.default: torch.Tensor.expand,
    _aten.alias.default: torch.Tensor.detach,
    _aten.detach.default: torch.Tensor.detach,
}
"""Views that show all elements of what they are views of, each with the function that takes torch the least time."""
PARTIAL_VIEWS = {_aten.slice.Tensor, _aten.select.int}

Source = tuple[str, Any]
"""Where a result comes from: ("input", number), ("output", number), ("view", number), ("size", SymInt) or ("constant", anything)."""


@dataclass(frozen=True)
class Fed:
    """An input of the model that is one of the traced graph's, its axes in the order in which they lie in memory."""

    position: int
    order: tuple[int, ...] | None = None


@dataclass(frozen=True)
class View:
    """A view that torch makes of a result."""

    function: Any
    base: Source
    arguments: Sequence[Any]
    keywords: Mapping[str, Any]
    is_open: bool
    """Whether sizes among the arguments are known in a run only."""


@dataclass
class Lowered:
    """A model, and what its callers have to know."""

    model: Model
    feeds: list[Fed] = field(default_factory=list)
    """Of the first inputs of the model; sizes and what is drawn come behind."""
    sizes: list[str] = field(default_factory=list)
    """Symbols that are fed."""
    draws: list[Drawing] = field(default_factory=list)
    symbols: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    """Where a run reads the symbols: an input, and one of its axes if it is a tensor."""
    views: list[View] = field(default_factory=list)
    results: list[Source] = field(default_factory=list)


class NotLowered(Exception):
    """A node that has no counterpart."""

    def __init__(self, node: fx.Node, reason: str):
        super().__init__(f"{node.target}: {reason}")
        self.node = node
        self.reason = reason


def lower_graph(module: fx.GraphModule, name: str) -> Lowered:
    """Raises NotLowered at the first node that has no counterpart."""
    return _Lowering(module, name).run()


def is_size(node: Any) -> bool:
    """Whether a node of the traced graph is a number that follows from sizes."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else node
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, int, float, bool))


class _Lowering:
    def __init__(self, module: fx.GraphModule, name: str):
        ops.load_families()
        opsets = {"": schemas.newest_version("") or 1, "com.microsoft": 1}
        self.module = module
        self.graph = Graph(name)
        self.lowered = Lowered(Model(self.graph, opsets))
        self.op = AtenBuilder(self.graph, Expansion(self.lowered.model).infer, opsets)
        self.values: dict[fx.Node, Any] = {}
        self.places: dict[fx.Node, int] = {}
        """Positions of the traced graph's inputs."""

    def run(self) -> Lowered:
        lazy = self._lazy_nodes()
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self._take_input(node)
            elif node.op == "get_attr":
                self._take_attribute(node)
            elif node.op == "call_function" and node not in lazy and not is_size(node):
                self._write(node)
        self.lowered.draws, self.lowered.sizes = self.op.draws, list(self.op.sizes.fed)
        self._order_inputs()
        self._return_results()
        return self.lowered

    # --- inputs

    def _take_input(self, node: fx.Node) -> None:
        position = self.places[node] = len(self.places)
        traced = node.meta.get("val")
        symbols = self.lowered.symbols
        if isinstance(traced, torch.SymInt) and expression_of(traced).is_Symbol:
            symbols.setdefault(expression_of(traced).name, (position, None))
        if not isinstance(traced, torch.Tensor):
            return
        for axis, size in enumerate(traced.shape):
            if isinstance(size, torch.SymInt) and expression_of(size).is_Symbol:
                symbols.setdefault(expression_of(size).name, (position, axis))
        if not any(user.op == "call_function" for user in node.users):
            return
        self.values[node] = self._input_value(node, traced, position)
        self.op.traced[self.values[node]] = traced

    def _input_value(self, node: fx.Node, traced: torch.Tensor, position: int) -> Value:
        order = _memory_order(traced)
        sizes = list(traced.shape) if order is None else [traced.shape[axis] for axis in order]
        try:
            value = Value(node.name, TensorType(element_type(traced.dtype), tuple(map(dim_of, sizes))))
        except Unsupported as error:
            raise NotLowered(node, str(error)) from None
        self.graph.add_input(value)
        self.op.sizes.learn(value, sizes)
        self.lowered.feeds.append(Fed(position, order))
        if order is None:
            return value
        return self.op.Transpose(value, perm=[order.index(axis) for axis in range(len(order))])

    def _take_attribute(self, node: fx.Node) -> None:
        content = operator.attrgetter(str(node.target))(self.module)
        if not isinstance(content, torch.Tensor):
            raise NotLowered(node, "an attribute that is no tensor")
        try:
            element_type(content.dtype)
        except Unsupported as error:
            raise NotLowered(node, str(error)) from None
        with unset_fake_temporarily():
            value = self.op.constant(Tensor.of(array_of(content).copy()))
        self.values[node], self.op.traced[value] = value, content

    def _order_inputs(self) -> None:
        """Inputs of the traced graph first, then sizes, then what is drawn: each kind in its own order."""
        fed = [value for value in self.graph.inputs if value in self.op.sizes.fed.values()]
        drawn = [value for value in self.graph.inputs if value.name.startswith("aten/drawn")]
        rest = [value for value in self.graph.inputs if value not in fed and value not in drawn]
        self.graph.inputs = [*rest, *fed, *drawn]

    # --- nodes

    def _write(self, node: fx.Node) -> None:
        if node.target is operator.getitem:
            base, place = node.args
            self.values[node] = self.values[base][place]  # type: ignore[index]
        else:
            self.values[node] = self._lowered_op(node)
        if isinstance(self.values[node], Value):
            self.op.traced.setdefault(self.values[node], node.meta["val"])

    def _lowered_op(self, node: fx.Node) -> Any:
        function = lowering_of(node.target)
        if function is None:
            raise NotLowered(node, "no lowering")
        try:
            arguments = fx.map_arg(node.args, self._argument)
            keywords = fx.map_arg(node.kwargs, self._argument)
            return self.op.lower(function, node.target, arguments, keywords, node.meta["val"])
        except Unsupported as error:
            raise NotLowered(node, str(error)) from error

    def _argument(self, node: fx.Node) -> Any:
        if node in self.values:
            return self.values[node]
        if is_size(node):
            return node.meta["val"]
        raise Unsupported(f"{node.name} is no tensor")

    # --- outputs

    def _results(self) -> list[Any]:
        (output,) = (node for node in self.module.graph.nodes if node.op == "output")
        results = output.args[0]
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def _lazy_nodes(self) -> set[fx.Node]:
        """Views that only the caller sees: torch makes them."""
        lazy: set[fx.Node] = set()
        results = {node for node in self._results() if isinstance(node, fx.Node)}
        for node in reversed(self.module.graph.nodes):
            is_wanted = node in results or any(user in lazy for user in node.users)
            is_seen = all(user in lazy or user.op == "output" for user in node.users)
            if is_wanted and is_seen and self._is_lazy_view(node, results):
                lazy.add(node)
        return lazy

    def _is_lazy_view(self, node: fx.Node, results: set[fx.Node]) -> bool:
        if node.target in WHOLE_VIEWS:
            return True
        base = node.args[0] if node.args else None
        return node.target in PARTIAL_VIEWS and isinstance(base, fx.Node) and (base.op == "placeholder" or base in results)

    def _return_results(self) -> None:
        outputs: dict[fx.Node, int] = {}
        views: dict[fx.Node, int] = {}
        for result in self._results():
            self.lowered.results.append(self._source(result, outputs, views))

    def _source(self, result: Any, outputs: dict[fx.Node, int], views: dict[fx.Node, int]) -> Source:
        if not isinstance(result, fx.Node):
            return "constant", result
        if result in self.places:
            return "input", self.places[result]
        if is_size(result):
            return "size", result.meta["val"]
        if result in self.values:
            if self.values[result] is None:
                return "constant", None
            return self._output(result, outputs, views)
        if twice := _turned_twice(result):
            return self._source(twice, outputs, views)
        if result not in views:
            base = self._source(result.args[0], outputs, views)
            arguments = fx.map_arg(result.args[1:], lambda node: node.meta["val"])
            function = WHOLE_VIEWS.get(result.target, result.target)
            view = View(function, base, arguments, dict(result.kwargs), _is_open((arguments, result.kwargs)))
            self.lowered.views.append(view)
            views[result] = len(self.lowered.views) - 1
        return "view", views[result]

    def _output(self, result: fx.Node, outputs: dict[fx.Node, int], views: dict[fx.Node, int]) -> Source:
        """A computed result. It lies in memory as torch's would: a backward graph is traced for that."""
        order = _memory_order(result.meta["val"])
        if result not in outputs:
            outputs[result] = len(outputs)
            value = self.values[result]
            self._return(value if order is None else self.op.Transpose(value, perm=list(order)), result.name)
        if order is None:
            return "output", outputs[result]
        if result not in views:
            inverse = [order.index(axis) for axis in range(len(order))]
            views[result] = len(self.lowered.views)
            self.lowered.views.append(View(torch.permute, ("output", outputs[result]), [inverse], {}, False))
        return "view", views[result]

    def _return(self, value: Value, name: str) -> None:
        """A value as an output of its own: it may be an input, a constant or another output."""
        taken = value.producer is None or value in self.graph.outputs or value.name in self.graph.initializers
        returned = self.op.Identity(value) if taken else value
        returned.name = f"{name}.out"
        self.graph.outputs.append(returned)


def _is_open(arguments: Any) -> bool:
    found = False

    def look(part: Any) -> Any:
        nonlocal found
        found = found or isinstance(part, torch.SymInt)
        return part

    pytree.tree_map(look, arguments)
    return found


def _turned_twice(node: fx.Node) -> fx.Node | None:
    """What a matrix is that was transposed, and back."""
    base = node.args[0]
    is_matrix = isinstance(base, fx.Node) and node.target is base.target is _aten.t.default
    return base.args[0] if is_matrix else None  # type: ignore[union-attr,return-value]


def _memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor in the order in which they lie in memory, if that is another one and there are no gaps."""
    sizes, strides = ([_hint(number) for number in numbers] for numbers in (tensor.shape, tensor.stride()))
    order = sorted(range(len(sizes)), key=lambda axis: (-strides[axis], axis))
    if 0 in sizes or _lies_in(range(len(sizes)), sizes, strides) or not _lies_in(order, sizes, strides):
        return None
    return tuple(order)


def _lies_in(order: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether axes lie in memory in this order, without gaps. Those of size 1 lie anywhere."""
    expected = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != expected:
            return False
        expected *= sizes[axis]
    return True


def _hint(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else int(size)
