"""Ops on strings, element by element: Equal, StringConcat, RegexFullMatch."""

from __future__ import annotations

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.text_code import are_equal, bytes_of, copy_bytes, length_of, reference_to
from sardonyx.compiler.texts import LONGEST
from sardonyx.compiler.types import I8, I64, TEXT
from sardonyx.ir import Node, Value, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS
from sardonyx.providers.native.kernels.text.automaton import AutomatonArguments, matches_whole, tables_of, whole_pattern
from sardonyx.providers.native.kernels.text.bytes import base_of, reserve
from sardonyx.providers.native.program.arguments import Arguments, Operands, Pointer, group
from sardonyx.providers.native.program.chain import Chain, ChainCode
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.settled import WRONG
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, is_text, required
from sardonyx.providers.native.program.views import Dims, View, contiguous_strides

GRAIN = PIECE_ELEMENTS // 64
"""Strings that are worth a thread."""


def _spread(lowerer: Lowerer, value: Value | None, shape: Dims) -> View:
    """An operand without gaps in the shape of the result."""
    view = lowerer.broadcast(lowerer.view(required(value)), shape)
    if view.is_contiguous:
        return view
    copied = View(lowerer.scratch(dim.product(shape) * TEXT.bytes), TEXT, shape, contiguous_strides(shape))
    lowerer.copy(view, copied)
    return copied


# --- Equal


class EqualArguments(Arguments):
    texts: Pointer
    A: Pointer
    B: Pointer
    sink: Operands = group(lambda sink: sink.slots)


@kernel("equal strings", EqualArguments)
def equal_kernel(f: KernelFunction, a: EqualArguments, sink: Chain) -> None:
    """Items are elements."""
    results, base = ChainCode(f, sink, a.sink).row([]), base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        same = are_equal(f, base, f.load(a.A, item, I64), f.load(a.B, item, I64))
        results.emit(item, 1, None, given=[same])


@lower("Equal", since=19, text=True, claims=lambda node: is_text(node.inputs[0]))
def equal(lowerer: Lowerer, node: Node) -> None:
    """Whether strings have the same bytes."""
    shape = dims(node.outputs[0])
    A, B = (_spread(lowerer, value, shape).place for value in node.inputs)
    sink = lowerer.sink(node, (len(shape),))
    arguments = EqualArguments(texts=lowerer.text_memory(), A=A, B=B, sink=sink.arguments)
    lowerer.call(equal_kernel(lowerer.target, sink.chain), arguments, dim.product(shape), GRAIN)


# --- StringConcat


class JoinArguments(Arguments):
    texts: Pointer
    X: Pointer
    Y: Pointer
    target: Pointer
    status: Pointer


@kernel("join strings", JoinArguments)
def join_kernel(f: KernelFunction, a: JoinArguments) -> None:
    """Items are elements. First it is counted how many bytes they will have."""
    base, total = base_of(f, a.texts), f.variable(0, I64)

    def lengths(item: Code) -> tuple[Code, Code]:
        return length_of(f, f.load(a.X, item, I64)), length_of(f, f.load(a.Y, item, I64))

    with f.loop(f.begin, f.end) as item:
        first, second = lengths(item)
        total.set(total.get() + first + second)
        with f.if_(first + second > LONGEST):
            f.store(WRONG, a.status, 0, I64)
    place = f.variable(0, I64)
    with reserve(f, a.texts, a.status, total.get(), place), f.loop(f.begin, f.end) as item:
        first, second = lengths(item)
        target = f.address(base, place.get(), I8)
        copy_bytes(f, bytes_of(f, base, f.load(a.X, item, I64)), target, first)
        copy_bytes(f, bytes_of(f, base, f.load(a.Y, item, I64)), f.address(target, first, I8), second)
        f.store(reference_to(place.get(), first + second), a.target, item, I64)
        place.set(place.get() + first + second)


@lower("StringConcat", text=True)
def string_concat(lowerer: Lowerer, node: Node) -> None:
    """Strings behind strings."""
    target = lowerer.output(node.outputs[0])
    X, Y = (_spread(lowerer, value, target.shape).place for value in node.inputs)
    arguments = JoinArguments(texts=lowerer.text_memory(), X=X, Y=Y, target=target.place, status=lowerer.status())
    lowerer.call(join_kernel(lowerer.target), arguments, dim.product(target.shape), GRAIN)


# --- RegexFullMatch


class MatchArguments(Arguments):
    texts: Pointer
    X: Pointer
    automaton: AutomatonArguments
    sink: Operands = group(lambda sink: sink.slots)


@kernel("match strings", MatchArguments)
def match_kernel(f: KernelFunction, a: MatchArguments, sink: Chain) -> None:
    """Items are elements."""
    results, base = ChainCode(f, sink, a.sink).row([]), base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        text = f.load(a.X, item, I64)
        results.emit(item, 1, None, given=[matches_whole(f, bytes_of(f, base, text), length_of(f, text), a.automaton)])


def _claims_pattern(node: Node) -> bool:
    pattern = all_attributes(node).get("pattern")
    return pattern is not None and whole_pattern(pattern) is not None


@lower("RegexFullMatch", text=True, claims=_claims_pattern)
def regex_full_match(lowerer: Lowerer, node: Node) -> None:
    """Whether strings match a pattern."""
    automaton = whole_pattern(all_attributes(node)["pattern"])
    assert automaton is not None
    X = lowerer.contiguous(required(node.inputs[0]))
    sink = lowerer.sink(node, (len(X.shape),))
    tables = tables_of(lowerer, automaton)
    arguments = MatchArguments(texts=lowerer.text_memory(), X=X.place, automaton=tables, sink=sink.arguments)
    lowerer.call(match_kernel(lowerer.target, sink.chain), arguments, dim.product(X.shape), GRAIN)
