"""What gradients and bodies of ops are called with: operands by their names in the spec, as the values of a node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sardonyx.ir import Node, Value
from sardonyx.ops import checking, schemas
from sardonyx.ops.gradients.builder import TypedBuilder
from sardonyx.ops.reading import attribute_value
from sardonyx.ops.signatures import Signature
from sardonyx.startup.parameters import Parameters


class NodeArguments:
    """What a function may ask for by name, of one node."""

    def __init__(
        self,
        op: TypedBuilder,
        node: Node,
        incoming: Sequence[Value | None] = (),
        active: Collection[Value] = frozenset(),
        special: Mapping[str, Any] | None = None,
    ):
        """`incoming` are the gradients of the outputs, `active` the values whose gradients are wanted, `special` what else is there."""
        self.node, self.signature, self.incoming = node, checking.signature_of(node), incoming
        self.output_names = _output_names(self.signature)
        self._op = op
        self._special = {"op": op, "node": node, "wanted": self._wanted(active), **(special or {})}

    def call(self, function: Callable[..., Any]) -> Any:
        return function(**{name: self.argument(name) for name in Parameters.of(function).names})

    def _wanted(self, active: Collection[Value]) -> set[str]:
        """The names of inputs whose gradients somebody uses."""
        last = len(self.signature.operand_names) - 1
        places = enumerate(self.node.inputs)
        return {self.signature.operand_names[min(place, last)] for place, value in places if value in active}

    def argument(self, name: str) -> Any:
        if name in self._special:
            return self._special[name]
        if name in self.signature.operand_names:
            return self._input(name)
        if name in self.signature.attributes:
            return self._attribute(name)
        if name in self.output_names:
            return self._among(self.node.outputs, name)
        return self._among(self.incoming, name.removesuffix("_grad"))

    def _input(self, name: str) -> Any:
        position = self.signature.operand_names.index(name)
        if self.signature.inputs[position].variadic:
            return list(self.node.inputs[position:])
        return self.node.inputs[position] if position < len(self.node.inputs) else None

    def _attribute(self, name: str) -> Any:
        """An attribute; what is an input in later versions of the op comes as a constant."""
        attribute = self.node.attributes.get(name)
        value = attribute_value(self.signature.attributes[name].default if attribute is None else attribute.value)
        is_input_now = name in schemas.newest_inputs(self.signature.domain, self.signature.name)
        return self._op.constant(value) if is_input_now and value is not None else value

    def _among(self, values: Sequence[Any], name: str) -> Any:
        if name not in self.output_names:
            return None  # an operand that only other versions of the op have
        position = self.output_names.index(name)
        if self.signature.outputs[position].variadic:
            return list(values[position:])
        return values[position] if position < len(values) else None

    def pairs(self, name: str, part: Any) -> list[tuple[Value, Value]]:
        """Inputs with their gradients, of an operand that may be several."""
        operand = self._input(name)
        pairs = zip(operand, part, strict=True) if isinstance(operand, list) else [(operand, part)]
        return [(value, gradient) for value, gradient in pairs if value is not None and gradient is not None]


def _output_names(signature: Signature) -> list[str]:
    """Names of the outputs in the op's newest version that has as many."""
    newest = schemas.versions(signature.domain, signature.name)
    outputs = newest[max(newest)].outputs if newest else signature.outputs
    return [parameter.name for parameter in (outputs if len(outputs) >= len(signature.outputs) else signature.outputs)]
