"""Rewrites that a model in the ORT format leaves to the runtime that loads it: found here, written into the file, made by `replay`.

Which rewrites these can be, what they are called and which nodes they name in which order is the original's convention: an action has
the nodes that feed a target node, the target, and the nodes that read its outputs. `pipeline` comes here instead of rewriting when a
model is saved with `optimization.minimal_build_optimizations` = "save".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sardonyx.ir import Graph, Node, SavedOptimization, SavedOptimizations, Value, edit
from sardonyx.ops import checking, schemas
from sardonyx.optimizer.matching import Match
from sardonyx.optimizer.passes.qdq_bits import dequantized_blocks
from sardonyx.optimizer.rewrite import Rule, applicable
from sardonyx.optimizer.rewriting import Rewriting
from sardonyx.optimizer.rules.quantize_parameters import is_dequantize, is_quantize

CONV = "ConvActivationFusion"
QDQ = "QDQSelectorActionTransformer"
BITS = "MatMulNBitsFusion"
OPTIMIZERS = (CONV, QDQ, BITS)
"""The only ones that a runtime without op signatures can replay."""
NO_NODE = 0xFFFFFFFF
"""The number of a node that is left out."""
CONTRIB = "com.microsoft"

QUANTIZED = {
    **dict.fromkeys(
        ("Expand", "Flatten", "Gather", "GatherElements", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
        "drop",
    ),
    "Resize": "drop_no_int16_support",
    **dict.fromkeys(("MaxPool", "ReduceMax", "ReduceMin"), "drop_no_int16_support_and_positive_scale"),
    "Split": "dropSplitQDQ",
    "ArgMax": "dropDQ",
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "Sigmoid"), "1DQ"),
    **dict.fromkeys(("LeakyRelu", "Softmax"), "1DQ_CPU"),
    **dict.fromkeys(("Add", "Mul"), "2DQ"),
    "Concat": "*DQ",
    "Conv": "Conv",
    "MatMul": "MatMul",
    "Gemm": "Gemm",
    "Where": "Where",
}
"""The action for each op between DequantizeLinear and QuantizeLinear."""
FEW_BITS = "DQMatMulToMatMulNBits"
"""The action for products with weights that are dequantized in blocks."""
MAX_POOL_VERSION = 12
"""Of MaxPool the original takes this version alone."""
BIAS_SLOTS = 3
"""Conv and Gemm always have three inputs in a record; one without a bias leaves the last out."""


def record(rewriting: Rewriting, rules: Mapping[str, Sequence[Rule]]) -> None:
    """Note on the model what the rules of these optimizers would do to it, and change nothing."""
    records_of: dict[Graph, _Records] = {}
    for optimizer, group in rules.items():
        for match in applicable(rewriting.model, group, evaluate=rewriting.evaluate, journal=rewriting.journal):
            graph = match.root.graph
            assert graph is not None
            records = records_of.get(graph) or records_of.setdefault(graph, _Records(graph))
            records.add(optimizer, match)
    if rules[QDQ]:
        for graph in edit.all_graphs(rewriting.model.graph):
            records = records_of.get(graph) or records_of.setdefault(graph, _Records(graph))
            records.add_few_bits(rewriting)
    rewriting.model.saved_optimizations = [records.saved for records in records_of.values() if records.saved.by_optimizer]


class _Records:
    """The records of one graph while they are collected."""

    def __init__(self, graph: Graph):
        self.numbers = {node: number for number, node in enumerate(graph.nodes)}
        self.saved = SavedOptimizations(graph, {number: node for node, number in self.numbers.items()}, {})
        self.taken: set[tuple[str, Node]] = set()

    def add(self, optimizer: str, match: Match) -> None:
        target = next((node for node in match.nodes if _TARGETS[optimizer](node)), None)
        if target is None or (optimizer, target) in self.taken:
            return
        record = _MAKERS[optimizer](target, self._numbered)
        if record is not None:
            self.taken.add((optimizer, target))
            self.saved.by_optimizer.setdefault(optimizer, []).append(record)

    def add_few_bits(self, rewriting: Rewriting) -> None:
        """Products whose weights are dequantized in blocks; a pass finds them, not a rule."""
        for product in self.saved.graph.nodes:
            before = dequantized_blocks(product, rewriting)
            if before is not None and before in self.numbers and _is_used_once(before):
                record = SavedOptimization(
                    FEW_BITS, self._numbered([before, product]), inputs=1, produced=(f"{CONTRIB}:MatMulNBits:1",)
                )
                self.saved.by_optimizer.setdefault(QDQ, []).append(record)

    def _numbered(self, nodes: Iterable[Node | None]) -> tuple[int, ...]:
        return tuple(NO_NODE if node is None else self.numbers[node] for node in nodes)


Numbered = Callable[[Iterable[Node | None]], tuple[int, ...]]


def _activation(conv: Node, numbered: Numbered) -> SavedOptimization | None:
    (act,) = conv.outputs[0].users
    return SavedOptimization("ConvAct", numbered([conv, act]), outputs=1, produced=(f"{CONTRIB}:FusedConv:1",))


def _bias(product: Node, numbered: Numbered) -> SavedOptimization | None:
    (add,) = product.outputs[0].users
    return SavedOptimization("FuseBias", numbered([product, add]), outputs=1)


# --- units of quantized graphs


def _unit(target: Node, numbered: Numbered) -> SavedOptimization | None:
    """The record of an op with what stands around it; None if the original would not do as we would."""
    action, version = QUANTIZED.get(target.op_type), checking.signature_of(target).since_version
    if action is None or target.domain or (target.op_type == "MaxPool" and version != MAX_POOL_VERSION):
        return None
    before, after = _before(target, action), _after(target)
    known = [node for node in (*before, *after) if node is not None]
    if not all(_is_whole(node) for node in known) or any(not _is_used_once(node) for node in before if node is not None):
        return None
    variadic_inputs = len(before) if action == "*DQ" else None
    variadic_outputs = len(after) if action == "dropSplitQDQ" else None
    return SavedOptimization(
        action,
        numbered([*before, target, *after]),
        inputs=len(before) if variadic_inputs is None else 1,
        outputs=len(after) if variadic_outputs is None else 1,
        variadic_inputs=variadic_inputs,
        variadic_outputs=variadic_outputs,
        produced=_produced(target, action, bool(after), version),
    )


def _before(target: Node, action: str) -> list[Node | None]:
    """The nodes that feed the target, one for each place of the record."""
    match action:
        case "Where":
            operands: list[Value | None] = list(target.inputs[1:])
        case "2DQ" | "*DQ" | "MatMul":
            operands = list(target.inputs)
        case "Conv" | "Gemm":
            operands = [*target.inputs, *[None] * (BIAS_SLOTS - len(target.inputs))]
        case _:
            operands = [target.inputs[0]]
    return [None if value is None else value.producer or target for value in operands]


def _after(target: Node) -> list[Node]:
    """The QuantizeLinear nodes that read the target's outputs; none if one of them is read otherwise."""
    users = [user for output in target.outputs for user in output.users]
    lone = all(len(output.uses) == 1 and not output.is_graph_output for output in target.outputs)
    return users if lone and all(is_quantize(user) for user in users) else []


def _is_whole(node: Node) -> bool:
    """Whether a node quantizes or dequantizes, with a zero point written out: actions take over its three operands."""
    return (is_dequantize(node) or is_quantize(node)) and len(node.inputs) > 2 and node.inputs[2] is not None


def _is_used_once(node: Node) -> bool:
    output = node.outputs[0]
    return len(output.uses) == 1 and not output.is_graph_output


def _produced(target: Node, action: str, quantized: bool, version: int) -> tuple[str, ...]:
    """Ids of the ops that an action makes. Those that only drop nodes make none.

    For MatMul and Split the original writes none either and then cannot replay its own records; with them it can.
    """
    match action:
        case "1DQ" | "1DQ_CPU" | "2DQ" | "*DQ" | "Where":
            return (f"{CONTRIB}:QLinear{target.op_type}:1",)
        case "Conv":
            return (":QLinearConv:10",)
        case "Gemm":
            return (f"{CONTRIB}:QGemm:1",)
        case "MatMul" if not quantized:
            return (f"{CONTRIB}:MatMulIntegerToFloat:1",)
        case "MatMul":
            product = schemas.find("", "QLinearMatMul", target.version)
            return () if product is None else (f":QLinearMatMul:{product.since_version}",)
        case "dropSplitQDQ":
            return (f":Split:{version}",)
    return ()


_TARGETS: dict[str, Callable[[Node], bool]] = {
    CONV: lambda node: node.op_type == "Conv",
    QDQ: lambda node: not is_quantize(node) and not is_dequantize(node),
    BITS: lambda node: node.op_type == "MatMulNBits",
}
_MAKERS: dict[str, Callable[[Node, Numbered], SavedOptimization | None]] = {CONV: _activation, QDQ: _unit, BITS: _bias}
