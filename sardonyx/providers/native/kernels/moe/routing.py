"""Which experts compute a token, and with what weights. The lowerings of mixtures of experts call it."""

from __future__ import annotations

import math
from collections.abc import Callable

from sardonyx.compiler.builder import Value
from sardonyx.compiler.math import exp
from sardonyx.compiler.types import F32, I64, U64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.cpu.contrib.moe import SPARSE_MIXER_TOLERANCE
from sardonyx.providers.native.kernels.selection.topk_kernel import rank_key
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View, contiguous_strides
from sardonyx.startup.records import dataclass

PIECE_ELEMENTS = 2048
"""How many logits are worth handing to another thread."""
SPARSELY_CHOSEN = 2
"""How many experts the sparse mixer chooses."""
PLACE_BITS = 32
"""Of an entry: its rank stands above the number of the expert."""


@dataclass(frozen=True)
class Routing:
    """How experts are chosen and weighed."""

    logits: Type
    shares: Type | None
    """Of weights that a model gives; None where they are the softmax of the logits."""
    normalizes: bool
    """Whether the weights of the chosen ones are divided by their sum."""
    is_sparse: bool
    """Whether two experts are chosen one after the other, each weighed against those that come near it."""


class RouteArguments(Arguments):
    logits: Pointer
    shares: Pointer | None = when(lambda routing: routing.shares)
    experts: Size
    k: Size
    chosen: Pointer
    weights: Pointer


def routed(lowerer: Lowerer, logits: View, shares: View | None, k: int, normalizes: bool, is_sparse: bool) -> tuple[View, View]:
    """The experts of each token and their weights, (tokens, k), both in the order in which they were chosen."""
    tokens, experts = logits.shape
    shape = (tokens, k)
    chosen, weights = (
        View(lowerer.scratch(tokens * k * type.bytes), type, shape, contiguous_strides(shape)) for type in (I64, F32)
    )
    routing = Routing(logits.type, None if shares is None or is_sparse else shares.type, normalizes, is_sparse)
    lowerer.call(
        route_kernel(lowerer.target, routing),
        RouteArguments(
            logits=logits.place,
            shares=None if routing.shares is None or shares is None else shares.place,
            experts=experts,
            k=k,
            chosen=chosen.place,
            weights=weights.place,
        ),
        tokens,
        _grain(experts),
        traffic=tokens * experts * logits.type.bytes,
    )
    return chosen, weights


def _grain(experts: Dim) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_ELEMENTS, dim.maximum(1, experts)))


@kernel("route tokens", RouteArguments)
def route_kernel(f: KernelFunction, a: RouteArguments, routing: Routing) -> None:
    """Items are tokens."""
    with f.loop(f.begin, f.end) as token:
        row = _Row(f, a, routing, token)
        row.choose_two() if routing.is_sparse else row.choose()


Change = Callable[[Value, Value], Value]
"""Makes others of logits, given the numbers of their experts."""


class _Row:
    """The logits of one token."""

    def __init__(self, f: KernelFunction, a: RouteArguments, routing: Routing, token: Value):
        self.f = f
        self.a = a
        self.routing = routing
        self.lanes = f.lanes(F32)
        self.logits = f.address(a.logits, token * a.experts, routing.logits)
        if routing.shares is not None and a.shares is not None:
            self.shares = f.address(a.shares, token * a.experts, routing.shares)
        self.chosen, self.weights = f.address(a.chosen, token * a.k, I64), f.address(a.weights, token * a.k, F32)

    def choose(self) -> None:
        """The k best experts, of equal ones the last."""
        f, a = self.f, self.a
        highest, total = self._normalizer(lambda logits, experts: logits) if self.routing.shares is None else (None, None)
        before = f.variable((1 << 64) - 1, U64)
        sum = f.variable(0.0, F32)
        with f.loop(0, a.k) as slot:
            entry = self._best(before.get(), lambda logits, experts: logits)
            expert = f.convert(entry & ((1 << PLACE_BITS) - 1), I64)
            if self.routing.shares is not None:
                weight = f.load(self.shares, expert, self.routing.shares)
            else:
                weight = exp(f.load(self.logits, expert, self.routing.logits) - highest) / total
            f.store(expert, self.chosen, slot, I64)
            f.store(weight, self.weights, slot, F32)
            sum.set(sum.get() + weight)
            before.set(entry)
        if self.routing.normalizes:
            divisor = f.select(sum.get() == 0.0, 1.0, sum.get())
            with f.loop(0, a.k) as slot:
                f.store(f.load(self.weights, slot, F32) / divisor, self.weights, slot, F32)

    def choose_two(self) -> None:
        """The best expert, of equal ones the first, and then the best of the others."""
        f = self.f
        taken = f.const(I64, -1)
        for slot in range(SPARSELY_CHOSEN):
            already = taken

            def rest(logits: Value, experts: Value, already: Value = already) -> Value:
                return f.select(experts == _spread(f, already, experts), -math.inf, logits)

            last = f.const(U64, (1 << PLACE_BITS) - 1)
            entry = self._best(f.const(U64, (1 << 64) - 1), rest, from_last=True)
            expert = f.convert(last - (entry & ((1 << PLACE_BITS) - 1)), I64)
            best = rest(f.load(self.logits, expert, self.routing.logits), expert)

            def near(logits: Value, experts: Value, best: Value = best, rest: Callable[..., Value] = rest) -> Value:
                with f.exact():
                    wide = _spread(f, best, logits)
                    distance = (wide - logits) / f.maximum(f.abs(logits), wide)
                    return f.select(distance <= float(SPARSE_MIXER_TOLERANCE), rest(logits, experts), -math.inf)

            highest, total = self._normalizer(near)
            logit = near(f.load(self.logits, expert, self.routing.logits), expert)
            f.store(expert, self.chosen, slot, I64)
            f.store(exp(logit - highest) / total, self.weights, slot, F32)
            taken = expert

    def _best(self, before: Value, change: Change, from_last: bool = False) -> Value:
        """The best entry below another one: a rank, and the number of the expert, counted from the last possible one if that is asked."""
        f, lanes = self.f, self.lanes
        best = f.variable(f.const(U64.vector(lanes), 0))
        with f.loop(0, self.a.experts, lanes) as first:
            logits, experts, is_there = self._vector(first)
            places = f.convert(experts, U64.vector(lanes))
            places = f.splat(f.const(U64, (1 << PLACE_BITS) - 1), lanes) - places if from_last else places
            ranks = f.convert(rank_key(f, change(logits, experts), largest=True), U64)
            entries = (ranks << PLACE_BITS) | places
            counts = is_there & (entries < f.splat(before, lanes))
            best.set(f.maximum(best.get(), f.select(counts, entries, 0)))
        return f.reduce("max", best.get())

    def _normalizer(self, change: Change) -> tuple[Value, Value]:
        """The largest of all logits, and the sum of their exponentials less that. A NaN makes the sum NaN."""
        f, lanes = self.f, self.lanes
        largest = f.variable(f.const(F32.vector(lanes), -math.inf))
        with f.loop(0, self.a.experts, lanes) as first:
            logits, experts, is_there = self._vector(first)
            largest.set(f.maximum(f.select(is_there, change(logits, experts), -math.inf), largest.get()))
        highest = f.reduce("max", largest.get())
        total = f.variable(f.const(F32.vector(lanes), 0.0))
        with f.loop(0, self.a.experts, lanes) as first:
            logits, experts, is_there = self._vector(first)
            powers = exp(change(logits, experts) - f.splat(highest, lanes))
            total.set(total.get() + f.select(is_there, powers, 0.0))
        return highest, f.reduce("add", total.get())

    def _vector(self, first: Value) -> tuple[Value, Value, Value]:
        """Some logits, the numbers of their experts, and which of them there are."""
        f, lanes = self.f, self.lanes
        remaining = self.a.experts - first
        logits = f.load(self.logits, first, self.routing.logits, lanes, remaining=remaining)
        return logits, f.iota(I64, lanes) + f.splat(first, lanes), f.first_lanes(remaining, lanes)


def _spread(f: KernelFunction, number: Value, like: Value) -> Value:
    """A number in as many lanes as another value has."""
    return number if like.type.lanes == 1 else f.splat(number, like.type.lanes)
