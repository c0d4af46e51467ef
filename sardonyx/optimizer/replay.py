"""Rewrites that an ORT format file names are made: `prepare` calls `replay` if the session asks for it. `recording` writes such records.

A record says which action an optimizer would take at which nodes, and which ops that makes. The file is not trusted: what an action
needs of its nodes is checked, and a record that does not fit the graph is an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.errors import CODED, Fail
from sardonyx.ir import Attribute, Graph, Model, Node, SavedOptimization, SavedOptimizations, Value, described
from sardonyx.ops import checking
from sardonyx.ops.inference import Evaluate, same_kind
from sardonyx.optimizer.passes.building import TypingBuilder, replace_value
from sardonyx.optimizer.passes.qdq_bits import multiply_node
from sardonyx.optimizer.rewrite import Journal, Skip
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.rules.epilogue import fuse_activation, fuse_clip
from sardonyx.optimizer.rules.quantize_parameters import CONTRIB, is_dequantize, is_quantize
from sardonyx.optimizer.values import dtype_of, shape_of

NO_NODE = 0xFFFFFFFF
"""Stands in a record for an optional node that is not there."""

logger = logging.getLogger("sardonyx.optimizer")


def replay(
    model: Model,
    *,
    evaluate: Evaluate,
    options: Mapping[str, str] | None = None,
    journal: Journal | None = None,
) -> None:
    """Make the saved rewrites of a typed model. Records of optimizers that nobody here knows are ignored."""
    rewriting = Rewriting(model, evaluate, options or {}, journal or Journal())
    for saved in model.saved_optimizations:
        for optimizer, records in saved.by_optimizer.items():
            if optimizer not in OPTIMIZERS:
                logger.warning("The saved runtime optimizations of %s are ignored, it is not known.", optimizer)
                continue
            for record in records:
                _replay(record, optimizer, saved, rewriting)
    model.saved_optimizations = []


def _replay(record: SavedOptimization, optimizer: str, saved: SavedOptimizations, rewriting: Rewriting) -> None:
    action = OPTIMIZERS[optimizer].get(record.action)
    if action is None:
        raise Fail(f"The saved runtime optimizations of {optimizer} ask for the action {record.action!r}, which is not known.")
    nodes = _nodes(record, saved)
    if nodes is None:
        return
    unit = _Unit(record, saved.graph, nodes, rewriting)
    try:
        action(unit)
        unit.finish()
    except CODED as error:
        raise Fail(f"Runtime optimization {record.action!r} at {unit.target}: {error.message}") from error
    rewriting.journal.add(optimizer, unit.target)


def _nodes(record: SavedOptimization, saved: SavedOptimizations) -> list[Node | None] | None:
    """The nodes that a record names, None for an optional one that is left out; no list if some are not in the graph any more."""
    highest = max(saved.nodes, default=-1)
    for number in record.nodes:
        if number > highest and number != NO_NODE:
            raise Fail(f"Runtime optimization {record.action!r} names node {number}, but the last one is {highest}.")
    named = [number for number in record.nodes if number != NO_NODE]
    if not record.nodes or any(number not in saved.nodes or saved.nodes[number].graph is not saved.graph for number in named):
        return None
    return [None if number == NO_NODE else saved.nodes[number] for number in record.nodes]


class _Unit:
    """The nodes of one record: those that feed the target, the target, those that read it. Actions make others in their place."""

    def __init__(self, record: SavedOptimization, graph: Graph, nodes: Sequence[Node | None], rewriting: Rewriting):
        before = _count(record.inputs, record.variadic_inputs)
        after = _count(record.outputs, record.variadic_outputs)
        target = nodes[before] if len(nodes) == before + 1 + after else None
        if target is None:
            raise Fail(
                f"Runtime optimization {record.action!r} names {len(nodes)} nodes, but there are {before} before the target and "
                f"{after} after it."
            )
        self.graph = graph
        self.target = target
        self.sources = list(nodes[:before])
        self.readers = [node for node in nodes[before + 1 :] if node is not None]
        self.rewriting = rewriting
        self.produced = list(record.produced)
        anchor = self.readers[0] if self.readers else target
        self.op = TypingBuilder(graph, anchor, rewriting.model.opsets, target.name or target.outputs[0].name, rewriting.driver)

    def source(self, position: int) -> Node:
        """The DequantizeLinear that feeds the target, which must be there."""
        node = self.sources[position] if position < len(self.sources) else None
        if node is None or not is_dequantize(node) or node.outputs[0] not in self.target.inputs:
            raise Fail(f"no DequantizeLinear feeds it as source {position}")
        return node

    def data(self, position: int) -> Value:
        """What a DequantizeLinear reads."""
        value = self.source(position).inputs[0]
        assert value is not None
        return value

    def tensor(self, position: int) -> list[Value]:
        """What a DequantizeLinear reads, with scale and zero point."""
        node = self.source(position)
        return [self.data(position), *self._parameters(node, self.data(position))]

    def bias(self, position: int) -> Value | None:
        """What an optional DequantizeLinear reads."""
        return None if position >= len(self.sources) or self.sources[position] is None else self.data(position)

    def result(self) -> list[Value]:
        """Scale and zero point of the QuantizeLinear that reads the target."""
        return self._parameters(self.readers[0], self.readers[0].outputs[0])

    def _parameters(self, node: Node, whole: Value) -> list[Value]:
        scale = node.inputs[1]
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        dtype = dtype_of(whole)
        if scale is None or dtype is None:
            raise Fail(f"{node} has no scale, or the type of {whole.name!r} is not known")
        if zero is None:
            zero = self.op.constant(np.zeros(shape_of(scale) or (), dtype.numpy))
        return [scale, zero]

    def check_quantized(self, count: int) -> None:
        """Refuse readers that are not `count` QuantizeLinears, each the only reader of an output of the target."""
        if len(self.readers) != count:
            raise Fail(f"{count} nodes must read it, the record names {len(self.readers)}")
        for reader, output in zip(self.readers, self.target.outputs, strict=False):
            if not is_quantize(reader) or reader.inputs[0] is not output:
                raise Fail(f"{reader} does not quantize its output {output.name!r}")
            self.check_read_by(reader, output)

    def check_read_by(self, reader: Node, output: Value) -> None:
        """Refuse another reader of an output that is to go away."""
        if output.is_graph_output or any(user is not reader for user in output.users):
            raise Fail(f"its output {output.name!r} is used elsewhere too")

    def put(self, op_type: str, domain: str, inputs: Sequence[Value | None], without: str = "", **more: Any) -> None:
        """Make the next op that the record promises, over `inputs`, with the target's attributes but one, in place of the unit."""
        version = self._promised(op_type, domain)
        kept = {key: value for key, value in self.target.attributes.items() if key != without}
        self.add(op_type, domain, version, inputs, {**kept, **{key: Attribute.of(value) for key, value in more.items()}})

    def add(
        self, op_type: str, domain: str, version: int, inputs: Sequence[Value | None], attributes: Mapping[str, Attribute]
    ) -> None:
        """A new op whose outputs stand for what the readers make of the target's, and for those that nobody reads."""
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        outputs = [Value(self.op.unique(op_type) if output.name else "") for output in self.target.outputs]
        node = self.op.add(Node(op_type, operands, outputs, attributes, domain=domain, version=version, name=self.target.name))
        read = [reader.outputs[0] for reader in self.readers]
        for old, new in zip([*read, *self.target.outputs[len(read) :]], node.outputs, strict=True):
            self.replace(old, new)

    def _promised(self, op_type: str, domain: str) -> int:
        """The version in which the record promises an op."""
        if not self.produced:
            raise Fail("Not enough produced nodes in the runtime optimization record.")
        promised = self.produced.pop(0)
        prefix, _, version = promised.rpartition(":")
        if prefix != f"{domain}:{op_type}" or not version.isdigit():
            raise Fail(f"{domain}:{op_type} does not match produced node op in runtime optimization record ({promised}).")
        return int(version)

    def replace(self, old: Value, new: Value) -> None:
        """Let a new value stand where an old one does."""
        if old.type is not None and new.type is not None and not same_kind(old.type, new.type):
            raise Fail(f"{old.name!r} is {described(old.type)}, in its place would come {described(new.type)}")
        replace_value(old, new)

    def finish(self) -> None:
        """Remove what is not needed any more."""
        if self.produced:
            raise Fail("Too many produced nodes in the runtime optimization record.")
        for node in dict.fromkeys([*self.readers, self.target, *(source for source in self.sources if source is not None)]):
            if node.graph is not None and not any(output.uses or output.is_graph_output for output in node.outputs):
                node.graph.remove(node)


def _count(number: int, variadic: int | None) -> int:
    return number if variadic is None else number - 1 + variadic


# --- actions --------------------------------------------------------------------------------------------------------


def _drop(unit: _Unit) -> None:
    """The target does with whole numbers what it did with real ones."""
    unit.check_quantized(1)
    _read_whole(unit)


def _drop_before(unit: _Unit) -> None:
    """The target compares whole numbers instead of real ones."""
    unit.check_quantized(0)
    _read_whole(unit)


def _read_whole(unit: _Unit) -> None:
    target = unit.target
    if target.inputs[0] is not unit.source(0).outputs[0]:
        raise Fail(f"its first input is not what {unit.source(0)} makes")
    unit.add(target.op_type, target.domain, target.version, [unit.data(0), *target.inputs[1:]], target.attributes)


def _split(unit: _Unit) -> None:
    """Whole numbers are split."""
    unit.check_quantized(len(unit.target.outputs))
    unit.put("Split", "", [unit.data(0), *unit.target.inputs[1:]])


def _unary(unit: _Unit) -> None:
    target = unit.target
    unit.check_quantized(1)
    if any(step != 1 for step in target.attribute("dilations") or ()):
        raise Fail("there is no such op with dilations")
    version = {"opset": checking.signature_of(target).since_version} if target.op_type == "Softmax" else {}
    unit.put(f"QLinear{target.op_type}", CONTRIB, [*unit.tensor(0), *unit.result()], without="dilations", **version)


def _binary(unit: _Unit) -> None:
    unit.check_quantized(1)
    unit.put(f"QLinear{unit.target.op_type}", CONTRIB, [*unit.tensor(0), *unit.tensor(1), *unit.result()])


def _variadic(unit: _Unit) -> None:
    unit.check_quantized(1)
    operands = [operand for position in range(len(unit.target.inputs)) for operand in unit.tensor(position)]
    unit.put(f"QLinear{unit.target.op_type}", CONTRIB, [*unit.result(), *operands])


def _where(unit: _Unit) -> None:
    unit.check_quantized(1)
    unit.put("QLinearWhere", CONTRIB, [unit.target.inputs[0], *unit.tensor(0), *unit.tensor(1), *unit.result()])


def _convolution(unit: _Unit) -> None:
    unit.check_quantized(1)
    unit.put("QLinearConv", "", [*unit.tensor(0), *unit.tensor(1), *unit.result(), unit.bias(2)])


def _product(unit: _Unit) -> None:
    """A product of whole numbers; its result is quantized or stays real."""
    unit.check_quantized(len(unit.readers))
    (a, a_scale, a_zero), (b, b_scale, b_zero) = unit.tensor(0), unit.tensor(1)
    if unit.readers:
        unit.put("QLinearMatMul", "", [a, a_scale, a_zero, b, b_scale, b_zero, *unit.result()])
    else:
        unit.put("MatMulIntegerToFloat", CONTRIB, [a, b, a_scale, b_scale, a_zero, b_zero])


def _gemm(unit: _Unit) -> None:
    unit.check_quantized(len(unit.readers))
    bias, result = unit.bias(2), unit.result() if unit.readers else []
    if bias is not None and unit.target.attribute("beta", 1.0) != 1:
        raise Fail("the sum is weighted")
    unit.put("QGemm", CONTRIB, [*unit.tensor(0), *unit.tensor(1), bias, *result], without="beta")


def _few_bits(unit: _Unit) -> None:
    """A product with weights of few bits reads them as they are stored."""
    unit.check_quantized(0)
    unit._promised("MatMulNBits", CONTRIB)
    if not multiply_node(unit.graph, unit.target, unit.rewriting):
        raise Fail("its weights are not constants of few bits in blocks")


def _activation(unit: _Unit) -> None:
    """A convolution and the activation after it."""
    conv = unit.target
    if len(unit.readers) != 1 or conv.op_type != "Conv" or unit.readers[0].op_type not in ACTIVATIONS:
        raise Fail(f"a Conv and one of {', '.join(sorted(ACTIVATIONS))} are expected")
    act = unit.readers[0]
    if act.inputs[0] is not conv.outputs[0]:
        raise Fail(f"{act} does not read it")
    unit.check_read_by(act, conv.outputs[0])
    unit.op.opsets[CONTRIB] = unit._promised("FusedConv", CONTRIB)
    operands = (*conv.inputs, None)[:3]
    fused = (fuse_clip if act.op_type == "Clip" else fuse_activation)(unit.op, act, conv, *operands)
    if isinstance(fused, Skip):
        raise Fail(fused.reason)
    unit.replace(act.outputs[0], fused)


def _bias(unit: _Unit) -> None:
    """A product with weights of few bits and the vector added to it."""
    target, add = unit.target, unit.readers[0] if len(unit.readers) == 1 else None
    if (target.domain, target.op_type) != (CONTRIB, "MatMulNBits") or add is None or (add.domain, add.op_type) != ("", "Add"):
        raise Fail("a MatMulNBits and an Add are expected")
    added = [value for value in add.inputs if value is not target.outputs[0]]
    if len(added) != 1 or added[0] is None or len([value for value in target.inputs[5:6] if value is not None]):
        raise Fail(f"{add} does not add one vector to it, or it adds one already")
    if shape_of(added[0]) != (target.attribute("N"),):
        raise Fail(f"{added[0].name!r} is not a vector of {target.attribute('N')} numbers")
    unit.check_read_by(add, target.outputs[0])
    inputs = [*target.inputs, *[None] * (5 - len(target.inputs))][:5]
    unit.add(target.op_type, target.domain, target.version, [*inputs, added[0]], target.attributes)


ACTIVATIONS = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Clip"})
OPTIMIZERS: dict[str, dict[str, Callable[[_Unit], None]]] = {
    "QDQSelectorActionTransformer": {
        "drop": _drop,
        "drop_no_int16_support": _drop,
        "drop_no_int16_support_and_positive_scale": _drop,
        "dropDQ": _drop_before,
        "dropSplitQDQ": _split,
        "1DQ": _unary,
        "1DQ_CPU": _unary,
        "2DQ": _binary,
        "2DQ_CPU": _binary,
        "*DQ": _variadic,
        "Conv": _convolution,
        "MatMul": _product,
        "Gemm": _gemm,
        "Where": _where,
        "DQMatMulToMatMulNBits": _few_bits,
    },
    "ConvActivationFusion": {"ConvAct": _activation},
    "MatMulNBitsFusion": {"FuseBias": _bias},
}
"""Actions by name; a later version of the original may have others."""
