"""Type and shape inference over a whole model: `infer` gives every value a type and, for small integer tensors, its content.

The functions that know an op stand in the files of this package and register themselves on `ops.table`; here is the driver that walks
the graph, checks nodes against their signatures, binds type constraints, calls those functions, and merges what they find with
what the model's file declares.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import CODED, Fail, InferenceError, unforeseen
from sardonyx.ir import (
    Attribute,
    Function,
    FunctionKey,
    Graph,
    Kind,
    Model,
    Node,
    OptionalType,
    SequenceType,
    SparseTensorType,
    Tensor,
    TensorType,
    Type,
    Value,
    described,
    dim,
    edit,
)
from sardonyx.ir.dim import Dim
from sardonyx.ir.types import MAX_RANK, Shape
from sardonyx.ops import checking, schemas
from sardonyx.ops.operand import MAX_KNOWN_ELEMENTS, Known, Operand, settled
from sardonyx.ops.signatures import Signature
from sardonyx.ops.table import Inference, find_inference
from sardonyx.startup.properties import cached_property

logger = logging.getLogger("sardonyx.ops")

Evaluate = Callable[[Node, Sequence[np.ndarray | None]], Sequence[Any]]
"""Computes one node; inference is handed it because kernels stand above this layer."""

REPEAT_BUDGET = 64
"""How many times a node may be inferred on average, as control flow asks for its bodies again: bounds hostile nesting."""
MAX_ELEMENTS = 1 << 62
"""No tensor has more: their bytes could not be counted in 64 bits."""
LEAST_BUDGET = 64_000
"""So many nodes may be inferred in any model."""


def infer(model: Model, evaluate: Evaluate | None = None, *, strict: bool = False) -> None:
    """Set the type of every value in `model`.

    With `evaluate`, small constants are computed through the graph. `strict` makes a declared shape that inference contradicts an
    error; otherwise it is a warning and the inferred shape holds.
    """
    Driver(model, evaluate, strict).run()


class Driver:
    """One walk over a model."""

    def __init__(self, model: Model, evaluate: Evaluate | None = None, strict: bool = False):
        self.model = model
        self.evaluate = evaluate
        self.strict = strict
        self._inferred = 0
        """How many nodes were inferred, each time counted."""
        self._calls: list[FunctionKey] = []

    @cached_property
    def _budget(self) -> int:
        return LEAST_BUDGET + REPEAT_BUDGET * (sum(1 for _ in self.model.graph.all_nodes()) + len(self.model.functions))

    @cached_property
    def _given(self) -> set[str]:
        """Symbols whose sizes the inputs tell."""
        return {
            symbol.name
            for value in self.model.graph.inputs
            if isinstance(value.type, TensorType)
            for size in value.type.shape or ()
            for symbol in dim.symbols(size)
        }

    def run(self) -> None:
        self.graph(self.model.graph)

    def graph(self, graph: Graph) -> None:
        """Infer all nodes of a graph whose inputs have their types."""
        for value in graph.initializers.values():
            _check_initializer(value)
        for node in graph.nodes:
            self.node(node)

    def node(self, node: Node) -> None:
        self._inferred += 1
        if self._inferred > LEAST_BUDGET and self._inferred > self._budget:
            raise Fail(f"{node}: control flow or functions are nested too deeply to infer types")
        functions = self.model.functions
        function = functions.get((node.domain, node.op_type, node.overload)) if functions else None
        try:
            if function is not None:
                results = self._call(node, function)
            else:
                results = self._operator(node, [None if value is None else operand_of(value) for value in node.inputs])
            for value, inferred in zip(node.outputs, results, strict=True):
                self._assign(node, value, inferred)
        except CODED:
            raise
        except Exception as error:
            unforeseen(error, f"type inference of {node} (inputs {checking.describe_inputs(node)})")

    # --- operators

    def _operator(self, node: Node, operands: Sequence[Operand | None]) -> list[Operand]:
        signature = checking.signature_of(node)
        checking.check_node(node, signature)
        bound = checking.bind_types(node, signature, [None if o is None else o.type for o in operands])
        entry = find_inference(signature)
        results: list[Any] = [None] * len(node.outputs)
        if entry is not None:
            returned = self._ask(entry, node, signature, operands)
            results[: len(returned)] = returned[: len(results)]
        try:
            typed = [_typed(result, signature, index, bound) for index, result in enumerate(results)]
        except InferenceError as error:
            raise _with_node(node, str(error)) from error
        return self._evaluated(node, signature, operands, typed)

    def _ask(self, entry: Inference, node: Node, signature: Signature, operands: Sequence[Operand | None]) -> list[Any]:
        arguments = self._arguments(entry, node, signature, operands)
        try:
            result = entry.function(**arguments)
        except InferenceError as error:
            raise _with_node(node, str(error)) from error
        return result if isinstance(result, list) else [result]

    def _arguments(
        self, entry: Inference, node: Node, signature: Signature, operands: Sequence[Operand | None]
    ) -> dict[str, Any]:
        everything = entry.takes_everything
        names = (*signature.attributes, *signature.operand_names, *_ASIDE) if everything else entry.parameters
        return {name: self._argument(name, node, signature, operands) for name in names}

    def _argument(self, name: str, node: Node, signature: Signature, operands: Sequence[Operand | None]) -> Any:
        if name in signature.operand_names:
            index = signature.operand_names.index(name)
            if signature.inputs[index].variadic:
                return list(operands[index:])
            return operands[index] if index < len(operands) else None
        if name in signature.attributes:
            is_input_now = name in schemas.newest_inputs(signature.domain, signature.name)
            return self._attribute(node.attributes.get(name), signature.attributes[name].default, is_input_now)
        # what is neither may be an operand that only other versions of the op have
        return _ASIDE[name](node, signature, operands) if name in _ASIDE else None

    def _attribute(self, attribute: Attribute | None, default: Any, is_input_now: bool) -> Any:
        if attribute is not None and attribute.reference is not None:
            return None
        value = default if attribute is None else attribute.value
        if isinstance(value, Graph):
            return Body(self, value)
        if isinstance(value, Tensor):
            value = value.numpy()
        if is_input_now and value is not None:
            array = np.asarray(value)
            array = array.astype(np.float32) if array.dtype == np.float64 else array
            return operand_of_array(array)
        return value

    def _evaluated(
        self, node: Node, signature: Signature, operands: Sequence[Operand | None], results: list[Operand]
    ) -> list[Operand]:
        """Compute the node where all inputs are small and known and some output's content is not."""
        if self.evaluate is None or not operands or any(o is not None and not o.is_concrete for o in operands):
            return results
        if not signature.deterministic or any(True for _ in node.subgraphs):
            return results
        if all(r.value is not None for r in results) or any(not _is_small(r) for r in results):
            return results
        for value, result in zip(node.outputs, results, strict=True):
            value.type = result.type  # kernels that compute in a wider type round to this one
        try:
            arrays = self.evaluate(node, [None if o is None else o.value for o in operands])
        except Exception as error:
            logger.debug("%s: not computed during inference: %s", node, error)
            return results
        computed = [operand_of_array(a) if isinstance(a, np.ndarray) else r for a, r in zip(arrays, results, strict=False)]
        return computed + results[len(computed) :]

    # --- functions of the model

    def _call(self, node: Node, function: Function) -> list[Operand]:
        if function.key in self._calls:
            raise Fail(f"{node}: function {function.domain}:{function.name} calls itself")
        nodes, outputs = edit.instantiate(function, node)
        self._calls.append(function.key)
        for inner in nodes:
            self.node(inner)
        self._calls.pop()
        results = [operand_of(value) for value in outputs]
        edit.discard(nodes)
        return results[: len(node.outputs)] + [Operand(None)] * (len(node.outputs) - len(results))

    # --- what is found meets what is declared

    def _assign(self, node: Node, value: Value, inferred: Operand) -> None:
        value.type = self._merged(node, value, inferred.type)
        value.inferred = None if inferred.type is value.type or inferred.type == value.type else inferred.type
        value.known = inferred.value

    def _merged(self, node: Node, value: Value, inferred: Type | None) -> Type | None:
        declared = value.declared
        if declared is None or inferred is None:
            return inferred if declared is None else declared
        if declared == inferred:
            return inferred
        if not same_kind(declared, inferred):
            raise Fail(
                f"Type Error: Type ({declared}) of output arg ({value.name}) of node ({node.name or node.op_type}) "
                f"does not match expected type ({inferred})."
            )
        merged = refined(inferred, self._without_fixed_sizes(declared, inferred))
        if merged is not None:
            return merged
        text = f"{node}: output {value.name!r} is declared {described(declared)}, inference gives {described(inferred)}"
        if self.strict:
            raise Fail(text)
        logger.warning("%s; the inferred shape is used", text)
        return inferred

    def _without_fixed_sizes(self, declared: Type, inferred: Type) -> Type:
        """A declaration without numbers for sizes that follow from the inputs': exporters declare [1] for labels of any batch."""
        if (
            not isinstance(declared, TensorType)
            or not isinstance(inferred, TensorType)
            or not declared.shape
            or not inferred.shape
        ):
            return declared
        if len(declared.shape) != len(inferred.shape):
            return declared
        sizes = [mine if self._is_given(mine) else theirs for mine, theirs in zip(inferred.shape, declared.shape, strict=True)]
        return TensorType(declared.dtype, tuple(sizes))

    def _is_given(self, size: Dim) -> bool:
        if isinstance(size, int):
            return False
        return {symbol.name for symbol in dim.symbols(size)} <= self._given


_ASIDE: dict[str, Callable[[Node, Signature, Sequence[Operand | None]], Any]] = {
    "output_count": lambda node, signature, operands: len(node.outputs),
    "domain_version": lambda node, signature, operands: signature.since_version,
    "input_types": lambda node, signature, operands: tuple(None if o is None else o.type for o in operands),
    "declared_types": lambda node, signature, operands: tuple(value.declared for value in node.outputs),
}
"""What inference functions may ask for besides operands."""


class Body:
    """A graph attribute as inference functions see it: call it with the operands of its inputs."""

    def __init__(self, driver: Driver, graph: Graph):
        self._driver = driver
        self._graph = graph

    @property
    def input_count(self) -> int:
        return len(self._graph.inputs)

    @property
    def output_count(self) -> int:
        return len(self._graph.outputs)

    @property
    def declared(self) -> list[Type | None]:
        return [value.declared for value in self._graph.inputs]

    def __call__(self, *operands: Operand) -> list[Operand]:
        graph = self._graph
        if len(operands) != len(graph.inputs):
            raise InferenceError(f"the graph {graph.name!r} takes {len(graph.inputs)} inputs, not {len(operands)}")
        for value, operand in zip(graph.inputs, operands, strict=True):
            value.type, value.known = self._input_type(value, operand.type), operand.value
        self._driver.graph(graph)
        return [operand_of(value) for value in graph.outputs]

    def _input_type(self, value: Value, type: Type | None) -> Type | None:
        declared = value.declared
        if declared is None or type is None:
            return type if declared is None else declared
        if not same_kind(declared, type):
            raise InferenceError(f"input {value.name!r} of graph {self._graph.name!r} is declared {declared} but gets {type}")
        return refined(type, declared) or type


def _check_initializer(value: Value) -> None:
    if value.constant is None:
        return
    if value.declared is not None and not same_kind(value.declared, value.constant.type):
        text = f"initializer {value.name!r} is declared {value.declared} but holds {value.constant.type}"
        if not value.is_constant:
            raise Fail(f"Type Error: {text}")
        logger.warning("%s; what it holds counts", text)
        value.declared = value.constant.type
    if value.is_constant or value.type is None:
        value.type = value.constant.type


def operand_of(value: Value) -> Operand:
    """What is known of a value."""
    constant = value.constant
    if constant is not None and not value.is_input and constant.size <= MAX_KNOWN_ELEMENTS:
        return Operand(constant.type, constant.numpy())
    return Operand(value.type, value.known)


def operand_of_array(array: np.ndarray) -> Operand:
    """A constant operand."""
    tensor = Tensor.of(array)
    return Operand(tensor.type, tensor.numpy() if tensor.size <= MAX_KNOWN_ELEMENTS else None)


def _is_small(operand: Operand) -> bool:
    size = dim.fresh() if operand.shape is None else dim.product(operand.shape)
    return isinstance(size, int) and size <= MAX_KNOWN_ELEMENTS


def _typed(result: Any, signature: Signature, index: int, bound: dict[str, Type]) -> Operand:
    """A returned result with the element type that the schema gives it."""
    value = None
    if isinstance(result, Known):
        result, value = result.type, result.value
    if isinstance(result, Operand):
        result, value = result.type, result.value
    if result is None or isinstance(result, tuple):
        base = _schema_type(signature, index, bound)
        if isinstance(result, tuple) and (base is None or isinstance(base, (TensorType, SparseTensorType))):
            base = type(base)(base.dtype, result) if base is not None else TensorType(None, result)
        elif result is None and isinstance(base, TensorType):
            base = TensorType(base.dtype)
        result = base
    if isinstance(result, (TensorType, SparseTensorType)) and result.shape is not None:
        result = type(result)(result.dtype, _checked_shape(result.shape))
    if value is not None and isinstance(result, TensorType):
        value = settled(value, result.dtype)
    return Operand(result, value)


def _checked_shape(shape: Shape) -> Shape:
    """A shape that a tensor can have: sizes that are not negative, and not more elements than can be counted."""
    if len(shape) > MAX_RANK:
        raise InferenceError(f"an output would have {len(shape)} axes, at most {MAX_RANK} are supported")
    sizes = tuple(map(_checked_dim, shape))
    if math.prod(size for size in sizes if isinstance(size, int)) > MAX_ELEMENTS and 0 not in sizes:
        raise InferenceError(f"an output would have the sizes {list(map(str, sizes))}, more elements than can be counted")
    return sizes


def _checked_dim(size: Dim) -> Dim:
    if isinstance(size, (int, np.integer)):
        if size < 0:
            raise InferenceError(f"a size would be negative ({size})")
        return int(size)
    return size


def _schema_type(signature: Signature, index: int, bound: dict[str, Type]) -> Type | None:
    parameter = signature.output_at(index)
    name = parameter.type_string
    if name in bound and not (parameter.variadic and not parameter.homogeneous):
        return bound[name]
    if name in signature.constraints:
        allowed = signature.constraints[name]
        return checking.type_from_string(next(iter(allowed))) if len(allowed) == 1 else None
    return checking.type_from_string(name)


def same_kind(a: Type, b: Type) -> bool:
    """Whether two types agree in all but shapes; an unknown element type agrees with any."""
    if isinstance(a, (SequenceType, OptionalType)) and type(a) is type(b):
        return same_kind(a.element, b.element)  # type: ignore[union-attr]
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return a.dtype is None or b.dtype is None or a.dtype is b.dtype
    return type(a) is type(b) and str(a) == str(b)


def refined(inferred: Type, declared: Type) -> Type | None:
    """The inferred type, with what only the declaration knows; None if their shapes contradict each other."""
    if inferred == declared:
        return inferred
    if isinstance(inferred, (SequenceType, OptionalType)):
        element = refined(inferred.element, declared.element)  # type: ignore[union-attr]
        return None if element is None else type(inferred)(element)
    if not isinstance(inferred, (TensorType, SparseTensorType)):
        return inferred
    assert isinstance(declared, (TensorType, SparseTensorType))
    dtype = inferred.dtype or declared.dtype
    if inferred.shape is None or declared.shape is None:
        return type(inferred)(dtype, declared.shape if inferred.shape is None else inferred.shape)
    if len(inferred.shape) != len(declared.shape):
        return None
    shape = _refined_shape(inferred.shape, declared.shape)
    return None if shape is None else type(inferred)(dtype, shape)


def _refined_shape(inferred: Shape, declared: Shape) -> Shape | None:
    result: list[Dim] = []
    for mine, theirs in zip(inferred, declared, strict=True):
        if isinstance(mine, int) and isinstance(theirs, int) and mine != theirs:
            return None
        better = dim.is_anonymous(mine) or (isinstance(theirs, int) and not isinstance(mine, int))
        result.append(theirs if better and not dim.is_anonymous(theirs) else mine)
    return tuple(result)


def _with_node(node: Node, reason: str) -> Fail:
    where = node.name or (node.outputs[0].name if node.outputs else "")
    return Fail(f"Node ({where}) Op ({node.op_type}) [ShapeInferenceError] {reason} (inputs {checking.describe_inputs(node)})")


__all__ = ["Body", "Driver", "Evaluate", "Kind", "infer", "operand_of", "refined", "same_kind"]
