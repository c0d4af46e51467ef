"""LinearAttention: a state matrix for each batch entry and head, which each token changes and its queries read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from sardonyx.compiler.builder import Value as Register
from sardonyx.compiler.math import exp
from sardonyx.compiler.types import F32
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.attention.operands import scale_of
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, when
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, may_equal, rank_of, required, stored
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.records import dataclass

CONTRIB = "com.microsoft"
RULES = ("linear", "gated", "delta", "gated_delta")
OPERANDS = ("query", "key", "value", "past_state", "decay", "beta")


@dataclass(frozen=True)
class Recurrence:
    """What shapes the code."""

    has_past: bool
    gates: str
    """Whether the state decays: "" if not, "head" by one number for each head, "key" by one for each of its rows, "told" by either."""
    rates: str
    """Whether a token adds what its value differs from what its key finds: "" if not, "head" at a rate of each head, "shared" at one
    of all heads, "told" at either. What is told a run tells."""
    has_size: bool
    """Whether the size of a key, which the scale depends on, is known."""


def _sizes(node: Node) -> tuple[Dim, Dim, int, int, Dim, Dim]:
    """Batch, steps, heads of keys, queries of each, and sizes of a key and a value."""
    query, key, value = (dims(required(one)) for one in node.inputs[:3])
    heads, queries = int(operand(node, "kv_num_heads")), int(operand(node, "q_num_heads"))
    if not 0 < heads <= queries or queries % heads:
        raise CannotCompile(f"{queries} heads of queries are not a multiple of {heads} of keys", quiet=True)
    columns = ((query[-1], queries), (key[-1], heads), (value[-1], heads))
    if any(isinstance(count, int) and count % parts for count, parts in columns):
        raise CannotCompile("heads must have equal sizes", quiet=True)
    sizes = [dim.floordiv(count, parts) for count, parts in columns]
    if not may_equal(sizes[0], sizes[1]):
        raise CannotCompile("queries and keys must have one size", quiet=True)
    size = sizes[1] if isinstance(sizes[1], int) else sizes[0]
    return query[0], query[1], heads, queries // heads, size, sizes[2]


def _claims(node: Node) -> bool:
    """Tensors of float32."""
    rule, decay, beta = str(operand(node, "update_rule")), input_named(node, "decay"), input_named(node, "beta")
    if rule not in RULES or (rule.startswith("gated") and decay is None) or (rule.endswith("delta") and beta is None):
        return False
    tensors = [value for value in (*node.inputs, *node.outputs) if value is not None]
    if any(stored(value) != F32 for value in tensors) or any(rank_of(required(value)) != 3 for value in node.inputs[:3]):
        return False
    try:
        return _recurrence(node) is not None
    except CannotCompile:
        return False


def _recurrence(node: Node) -> Recurrence | None:
    _, _, heads, _, size, _ = _sizes(node)
    rule, decay, beta = str(operand(node, "update_rule")), input_named(node, "decay"), input_named(node, "beta")
    gates = ""
    if rule.startswith("gated"):
        width = dims(required(decay))[-1]
        if not may_equal(width, heads) and not may_equal(width, heads * size):
            return None
        gates = "told"
        if isinstance(width, int) and isinstance(size, int):
            gates = "key" if width == heads * size and size > 1 else "head"
    rates = ""
    if rule.endswith("delta"):
        count = dims(required(beta))[-1]
        if not may_equal(count, heads) and not may_equal(count, 1):
            return None
        rates = "told" if not isinstance(count, int) else "shared" if heads > 1 and count == 1 else "head"
    return Recurrence(input_named(node, "past_state") is not None, gates, rates, isinstance(size, int))


@lower("LinearAttention", claims=_claims)
def linear_attention(lowerer: Lowerer, node: Node) -> None:
    form = _recurrence(node)
    assert form is not None
    batch, steps, heads, queries, size, width = _sizes(node)
    views = {name: lowerer.contiguous(value) for name in OPERANDS if (value := input_named(node, name)) is not None}
    for name, columns in (("query", queries * heads * size), ("key", heads * size), ("value", heads * width)):
        lowerer.require(views[name].shape[2], columns)
    lowerer.require(dim.maximum(1, size), size)
    for name in ("key", "value", "decay", "beta"):
        if name in views:
            lowerer.require_shape(views[name].shape[:2], (batch, steps))
    if form.has_past:
        lowerer.require_shape(views["past_state"].shape, (batch, heads, size, width))
    state = lowerer.output(node.outputs[1]).place if _is_wanted(node, 1) else _scratch(lowerer, batch * heads * size * width)
    scale = float(operand(node, "scale") or 0.0)
    lowerer.call(
        linear_attention_kernel(lowerer.target, form),
        LinearArguments(
            **{name: views[name].place for name in ("query", "key", "value")},
            past=views["past_state"].place if form.has_past else None,
            decay=views["decay"].place if form.gates else None,
            gates=_gates(lowerer, views["decay"].shape[2], heads, size) if form.gates == "told" else None,
            beta=views["beta"].place if form.rates else None,
            rates=lowerer.require_fit(views["beta"].shape[2], heads) if form.rates == "told" else None,
            output=lowerer.output(node.outputs[0]).place,
            state=state,
            steps=steps,
            heads=heads,
            queries=queries,
            size=size,
            width=width,
            by_root=None if form.has_size else int(not scale),
            scale=scale or 1 / math.sqrt(size if isinstance(size, int) else 1),
        ),
        batch * heads,
        dim.maximum(1, dim.floordiv(1 << 14, dim.maximum(1, steps * (size * width)))),
        flops=batch * heads * steps * (size * width * (4 + 2 * queries)),
    )


def _gates(lowerer: Lowerer, width: Dim, heads: int, size: Dim) -> Dim:
    """By how many numbers each head decays."""
    count: Dim = dim.floordiv(width, heads)
    lowerer.require(count * heads, width)
    lowerer.require_fit(count, size)
    return count


def _is_wanted(node: Node, number: int) -> bool:
    return number < len(node.outputs) and bool(node.outputs[number].name)


def _scratch(lowerer: Lowerer, count: Dim) -> object:
    return lowerer.scratch(count * F32.bytes)


class LinearArguments(Arguments):
    query: Pointer
    key: Pointer
    value: Pointer
    past: Pointer | None = when(lambda form: form.has_past)
    decay: Pointer | None = when(lambda form: form.gates)
    gates: Size | None = when(lambda form: form.gates == "told")
    """Of a head: 1, or as many as its keys are long."""
    beta: Pointer | None = when(lambda form: form.rates)
    rates: Size | None = when(lambda form: form.rates == "told")
    """Of a token: 1, or one for each head."""
    output: Pointer
    state: Pointer
    steps: Size
    heads: Size
    queries: Size
    """Heads of queries that share one of keys."""
    size: Size
    """Of a key."""
    width: Size
    """Of a value."""
    by_root: Size | None = when(lambda form: not form.has_size)
    """1 if the scale is to be divided by the square root of the size."""
    scale: Number


@kernel("linear attention", LinearArguments)
def linear_attention_kernel(f: KernelFunction, a: LinearArguments, form: Recurrence) -> None:
    """Items are heads of batch entries. Vectors run along the values."""
    with f.loop(f.begin, f.end) as item:
        state = f.address(a.state, item * a.size * a.width, F32)
        _begin(f, a, item, state)
        with f.loop(0, a.steps) as step:
            row = ((item // a.heads) * a.steps + step) * a.heads + item % a.heads
            _Token(f, a, form, state, row).run()


def _begin(f: KernelFunction, a: LinearArguments, item: Register, state: Register) -> None:
    lanes, count = f.lanes(F32), a.size * a.width
    with f.loop(0, count, lanes) as place:
        zero = f.const(F32.vector(lanes), 0.0)
        found = zero if a.past is None else f.load(a.past, item * count + place, F32, lanes, remaining=count - place)
        f.store(found, state, place, F32, remaining=count - place)


class _Token:
    """One token of one head; `row` counts them as the tensors have them."""

    def __init__(self, f: KernelFunction, a: LinearArguments, form: Recurrence, state: Register, row: Register):
        self.f, self.a, self.form, self.state, self.row = f, a, form, state, row
        self.lanes = f.lanes(F32)
        self.key = f.address(a.key, row * a.size, F32)
        if a.beta is not None:
            self.rate = f.load(a.beta, self._rate_place(), F32)
        if a.decay is not None and form.gates == "head":
            self.gate = exp(f.load(a.decay, row, F32))

    def _rate_place(self) -> Register:
        a, row = self.a, self.row
        if a.rates is None:
            return row // a.heads if self.form.rates == "shared" else row
        return row // a.heads * a.rates + row % a.heads * self.f.minimum(1, a.rates - 1)

    def run(self) -> None:
        f, a = self.f, self.a
        with f.loop(0, a.width, self.lanes) as column:
            remaining = a.width - column
            value = f.load(a.value, self.row * a.width + column, F32, self.lanes, remaining=remaining)
            if self.form.gates:
                self._rows(column, remaining, lambda key, state: state, decays=True)
            if self.form.rates:
                found = self._sum(self.key, column, remaining)
                value = (value - found) * f.splat(self.rate, self.lanes)
            self._rows(column, remaining, lambda key, state: f.fma(f.splat(key, self.lanes), value, state))
            self._answer(column, remaining)

    def _gate(self, number: Register) -> Register:
        """By what a row of the state decays."""
        if self.form.gates == "head":
            return self.gate
        assert self.a.decay is not None
        a, f = self.a, self.f
        assert a.decay is not None
        if a.gates is None:
            return exp(f.load(a.decay, self.row * a.size + number, F32))
        return exp(f.load(a.decay, self.row * a.gates + number * f.minimum(1, a.gates - 1), F32))

    def _rows(
        self, column: Register, remaining: Register, change: Callable[[Register, Register], Register], decays: bool = False
    ) -> None:
        """Change each row of the state."""
        f, a = self.f, self.a
        with f.loop(0, a.size) as number:
            place = number * a.width + column
            old = f.load(self.state, place, F32, self.lanes, remaining=remaining)
            old = old * f.splat(self._gate(number), self.lanes) if decays else old
            f.store(change(f.load(self.key, number, F32), old), self.state, place, F32, remaining=remaining)

    def _sum(self, factors: Register, column: Register, remaining: Register) -> Register:
        """Rows of the state, each times a number."""
        f, a = self.f, self.a
        total = f.variable(f.const(F32.vector(self.lanes), 0.0))
        with f.loop(0, a.size) as number:
            row = f.load(self.state, number * a.width + column, F32, self.lanes, remaining=remaining)
            total.set(f.fma(f.splat(f.load(factors, number, F32), self.lanes), row, total.get()))
        return total.get()

    def _answer(self, column: Register, remaining: Register) -> None:
        """What the queries of the token find."""
        f, a = self.f, self.a
        scale = f.splat(f.convert(scale_of(f, a), F32), self.lanes)
        with f.loop(0, a.queries) as number:
            query = self.row * a.queries + number
            found = self._sum(f.address(a.query, query * a.size, F32), column, remaining)
            f.store(found * scale, a.output, query * a.width + column, F32, remaining=remaining)


# --- other types, and com.microsoft's op


def _is_narrow(node: Node) -> bool:
    return any(stored(value) != F32 for value in node.inputs if value is not None)


@compose("LinearAttention", claims=_is_narrow, widen=True)
def linear_attention_of_halves(
    op: Composer,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None,
    decay: Value | None,
    beta: Value | None,
    q_num_heads: int,
    kv_num_heads: int,
    update_rule: str,
    scale: float,
) -> Sequence[Value]:
    given = {"past_state": past_state, "decay": decay, "beta": beta, "update_rule": update_rule, "scale": scale}
    made: Sequence[Value] = op.LinearAttention(
        query, key, value, outputs=2, q_num_heads=q_num_heads, kv_num_heads=kv_num_heads, **given
    )
    return made


@compose("LinearAttention", domain=CONTRIB, widen=True)
def contrib_linear_attention(
    op: Composer,
    query: Value,
    key: Value,
    value: Value,
    past_state: Value | None,
    decay: Value | None,
    beta: Value | None,
    q_num_heads: int,
    kv_num_heads: int,
    update_rule: str,
    scale: float,
    state_window: int | None,
) -> Sequence[Value]:
    """There may be more heads of keys than of queries."""
    if state_window:
        raise CannotCompile("states of several tokens are left to NumPy", quiet=True)
    if kv_num_heads > q_num_heads:
        batch, steps, width = dims(query)
        size: Dim = dim.floordiv(width, q_num_heads)
        op.require(size * q_num_heads, width)
        apart = op.reshape(query, batch, steps, q_num_heads, 1, size)
        shared = op.Expand(apart, op.sizes(batch, steps, q_num_heads, kv_num_heads // q_num_heads, size))
        query, q_num_heads = op.reshape(shared, batch, steps, size * kv_num_heads), kv_num_heads
    operands = (query, key, value, past_state, decay, beta)
    return linear_attention_of_halves(op, *operands, q_num_heads, kv_num_heads, update_rule, scale)
