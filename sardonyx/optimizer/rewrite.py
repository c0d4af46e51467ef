"""Rewrite rules: a pattern and one function that returns what stands in its place, or the reason why not.

`@rule` makes a rule of a function, `apply_rules` drives a list of them over a graph to a fixed point, and remembers every application
and every refusal so that they can be explained.
"""

from __future__ import annotations

import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple, Union

from sardonyx.ir import Graph, Model, Node, Type, Value, described, edit
from sardonyx.ir.suppositions import Supposition
from sardonyx.ops.builder import Builder
from sardonyx.ops.inference import Driver, Evaluate, refined, same_kind
from sardonyx.optimizer import bounds, matching
from sardonyx.optimizer.bounds import Bound
from sardonyx.optimizer.matching import Match
from sardonyx.optimizer.pattern import OpName, Pattern, PatternError, read, words
from sardonyx.startup.records import dataclass, field

logger = logging.getLogger("sardonyx.optimizer")


@dataclass
class Skip:
    """A rule's answer when its pattern fits but it must not apply."""

    reason: str


Answer = Union[Value, Sequence[Union[Value, None]], Mapping[str, Value], Skip]
"""What a rule returns: the value in place of its root, a list for several outputs, values in place of some names of its pattern (kept
ones too, whose other users then follow), or a refusal."""


def skip(reason: str) -> Skip:
    """Why a rule does not apply here."""
    return Skip(reason)


@dataclass(frozen=True)
class Rule:
    """A named rewrite. `keep` names inner values that may be used outside the match too."""

    name: str
    patterns: tuple[Pattern, ...]
    function: Callable[..., Any]
    keep: frozenset[str]
    parameters: frozenset[str]
    """What the function asks for."""

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)


def rule(*texts: str, keep: Iterable[str] = (), name: str | None = None) -> Callable[[Callable[..., Any]], Rule]:
    """Make a rewrite rule of a function `(op, names of the pattern…) -> value, list of values, or skip(reason)`."""

    def make(function: Callable[..., Any]) -> Rule:
        assert isinstance(function, FunctionType)
        patterns = tuple(map(read, texts))  # whether they are well formed a test asks, not every process
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        needed = set(names[: len(names) - len(function.__defaults__ or ())]) - {"op", "root"}
        for pattern in patterns:
            for unknown in needed - words(pattern.text):
                raise PatternError(f"rule {function.__name__} asks for {unknown!r}, which its pattern {pattern.text!r} lacks")
        return Rule(name or function.__name__, patterns, function, frozenset(keep), frozenset(names))

    return make


class Event(NamedTuple):
    """A rule that was applied (`reason` is None) or refused at a node."""

    rule: str
    node: str
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.rule} at {self.node}" + (f": not applied, {self.reason}" if self.reason else "")


@dataclass
class Journal:
    """What happened during optimization."""

    events: list[Event] = field(default_factory=list)
    strict: bool = False
    """Whether a rule that raises ends the optimization (in tests) or is skipped with a warning."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Time spent, by stage."""
    suppositions: list[Supposition] | None = None
    """What is true of the runs for which the model is right now; None where it must be right for all runs."""
    outputs: Sequence[Type | None] = ()
    """The types of the model's outputs before sizes were supposed."""

    def time(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def applied(self) -> list[Event]:
        return [event for event in self.events if event.reason is None]

    def add(self, rule: str, node: Node, reason: str | None = None) -> None:
        event = Event(rule, str(node), reason)
        if reason is None or event not in self._refusals:
            self.events.append(event)
            self._refusals.add(event)

    def __post_init__(self) -> None:
        self._refusals: set[Event] = set()


@dataclass
class Extent:
    """Where rules are tried."""

    graphs: Sequence[Graph]
    ops: set[OpName]
    """All ops of the graphs' nodes, and maybe some more; those that rules bring are added."""
    near: Mapping[Node, int] | None = None
    """What `surroundings` has told: rules have been tried everywhere else."""
    bound: Bound | None = None
    """How many applications are left; a new one where none is given."""

    @staticmethod
    def of(model: Model) -> Extent:
        """All graphs of a model."""
        graphs = list(edit.all_graphs(model.graph))
        return Extent(graphs, {(node.domain, node.op_type) for graph in graphs for node in graph.nodes})


def apply_rules(
    model: Model,
    rules: Sequence[Rule],
    extent: Extent | None = None,
    *,
    evaluate: Evaluate | None = None,
    journal: Journal | None = None,
) -> bool:
    """Apply rules everywhere in a model's graphs until none fits any more; True if something changed."""
    rewriter = _Rewriter(model, rules, extent or Extent.of(model), Driver(model, evaluate), journal or Journal())
    changed = False
    for graph in rewriter.extent.graphs:
        is_there = edit.outermost(graph) is model.graph  # else it has been thrown away with its node
        if is_there and not rewriter.bound.is_spent:
            changed = rewriter.graph(graph) or changed
    return changed


def surroundings(nodes: Iterable[Node], depth: int) -> dict[Node, int]:
    """Where patterns of at most some depth may fit otherwise than before these nodes changed, and how far that is behind them.

    What stands right before them counts as changed too, for rules ask who uses a value.
    """
    distances = {node: 0 for node in nodes if node.graph is not None}
    border = [value.producer for node in distances for value in node.inputs if value is not None and value.producer]
    distances.update(dict.fromkeys(border, 0))
    border = list(distances)
    for distance in range(1, depth):
        behind = dict.fromkeys(user for node in border for output in node.outputs for user, _ in output.uses)
        border = [node for node in behind if node not in distances]
        distances.update(dict.fromkeys(border, distance))
    return distances


def applicable(
    model: Model, rules: Sequence[Rule], *, evaluate: Evaluate | None = None, journal: Journal | None = None
) -> Iterator[Match]:
    """What the rules would be applied to in a model's graphs as they are; nothing is changed."""
    rewriter = _Rewriter(model, rules, Extent.of(model), Driver(model, evaluate), journal or Journal())
    for graph in rewriter.extent.graphs:
        for node in list(graph.nodes):
            match = rewriter.applicable(graph, node)
            if match is not None:
                yield match


class _Rewriter:
    def __init__(self, model: Model, rules: Sequence[Rule], extent: Extent, driver: Driver, journal: Journal):
        self.model = model
        self.extent = extent
        self.driver = driver
        self.journal = journal
        self.bound = extent.bound or Bound(f"graph {model.graph.name!r}", bounds.applications(sum(map(len, extent.graphs))))
        self.disordered = False
        """Whether a node may stand before one that it uses, because a rule replaced an inner value of its match."""
        self.by_op: dict[OpName, list[tuple[Rule, Pattern]]] = {}
        for rule in rules:
            for pattern in rule.patterns:
                for op in pattern.roots:
                    self.by_op.setdefault(op, []).append((rule, pattern))

    def graph(self, graph: Graph) -> bool:
        distances = dict(self.extent.near or {})
        queue = deque(self._candidates(graph))
        queued = set(queue)
        changed = self.disordered = False
        while queue:
            node = queue.popleft()
            queued.discard(node)
            if node.graph is not graph:
                continue
            touched = self._try(graph, node, distances.get(node, 0))
            if touched is None:
                continue
            changed = True
            if not self.bound.spend():
                break
            for other in touched:
                distances.pop(other, None)
                if other.graph is graph and other not in queued and (other.domain, other.op_type) in self.by_op:
                    queue.append(other)
                    queued.add(other)
        if self.disordered:
            edit.topological_sort(graph)
        return changed

    def _candidates(self, graph: Graph) -> Iterable[Node]:
        """The nodes to begin with, in the graph's order."""
        if self.extent.near is None:
            return (node for node in graph.nodes if (node.domain, node.op_type) in self.by_op)
        near = {node for node in self.extent.near if (node.domain, node.op_type) in self.by_op and node.graph is graph}
        return (node for node in graph.nodes if node in near) if near else ()

    def _try(self, graph: Graph, node: Node, distance: int) -> list[Node] | None:
        """Apply the first rule that fits at `node` and reaches what has changed; the nodes to look at again, or None."""
        refusals: list[tuple[str, str]] = []
        sources = None
        for rule, pattern in self.by_op.get((node.domain, node.op_type), ()):
            if not pattern.needs <= self.extent.ops or pattern.depth <= distance:
                continue
            sources = matching.sources(node) if sources is None else sources
            if not pattern.may_have(sources):
                continue
            for match in matching.find_all(pattern, node):
                touched = self._used_elsewhere(rule, match) or self._apply(graph, rule, match)
                if not isinstance(touched, Skip):
                    self._explain(node, [refusal for refusal in refusals if refusal[0] != rule.name])
                    return touched
                refusals.append((rule.name, touched.reason))
        self._explain(node, refusals)
        return None

    def applicable(self, graph: Graph, node: Node) -> Match | None:
        """What the first rule that fits at `node` would replace."""
        for rule, pattern in self.by_op.get((node.domain, node.op_type), ()):
            for match in matching.find_all(pattern, node):
                if self._used_elsewhere(rule, match) is None:
                    op = self._builder(graph, rule, match)
                    results = self._tried(rule, match, op)
                    self._undo(graph, op)
                    if not isinstance(results, Skip):
                        return match
        return None

    def _explain(self, node: Node, refusals: Iterable[tuple[str, str]]) -> None:
        for name, reason in dict.fromkeys(refusals):
            self.journal.add(name, node, reason)

    def _used_elsewhere(self, rule: Rule, match: Match) -> Skip | None:
        """A refusal if somebody outside the match uses its inner values, apart from those that the rule keeps."""
        if len(match.nodes) == 1:
            return None
        kept = {id(match.bindings[name]) for name in rule.keep if name in match.bindings}
        for node in match.nodes:
            if node is match.root:
                continue
            for output in node.outputs:
                if id(output) in kept:
                    continue
                if output.is_graph_output or any(user not in match.nodes for user, _ in output.uses):
                    return skip(f"{output.name!r} is used elsewhere")
        return None

    def _apply(self, graph: Graph, rule: Rule, match: Match) -> list[Node] | Skip:
        op = self._builder(graph, rule, match)
        results = self._tried(rule, match, op)
        if isinstance(results, Skip):
            self._undo(graph, op)
            return results
        self.journal.add(rule.name, match.root)
        self.bound.note(rule.name)
        return self._replace(match, op, results)

    def _builder(self, graph: Graph, rule: Rule, match: Match) -> Builder:
        return Builder(graph, before=match.root, opsets=_opsets(self.model, match.root), prefix=match.root.name or rule.name)

    def _tried(self, rule: Rule, match: Match, op: Builder) -> list[tuple[Value, Value]] | Skip:
        """What the rule makes, or its refusal, for which an error counts too."""
        try:
            return self._results(rule, match, op)
        except Exception as error:
            if self.journal.strict:
                raise
            logger.warning("rule %s failed at %s and is skipped: %s", rule.name, match.root, error)
            return skip(f"the rule raised {type(error).__name__}: {error}")

    def _results(self, rule: Rule, match: Match, op: Builder) -> list[tuple[Value, Value]] | Skip:
        """Old values and what stands in their place."""
        known = match.bindings | {"op": op, "root": match.root}
        answer: Answer | None = rule.function(**{name: known[name] for name in rule.parameters if name in known})
        if isinstance(answer, Skip) or answer is None:
            return answer or skip("no reason given")
        for new_node in op.made:
            edit.mark_alike(new_node, match.root)
            self.driver.node(new_node)
        pairs = [(old, new) for old, new in _pairs(answer, match) if new is not old]
        for old, new in pairs:
            if _merged_type(old, new) is None and (old.type or new.type):
                raise TypeError(f"{old.name!r} is {described(old.type)}, in its place would come {described(new.type)}")
        return pairs

    def _undo(self, graph: Graph, op: Builder) -> None:
        for new_node in reversed(op.made):
            graph.remove(new_node)
        for value in op.constants:
            graph.remove_initializer(value)

    def _replace(self, match: Match, op: Builder, results: Sequence[tuple[Value, Value]]) -> list[Node]:
        self.extent.ops.update((new.domain, new.op_type) for new in op.made)
        users = [user for old, _ in results for user in old.users]
        sources = [value.producer for node in match.nodes for value in node.inputs if value is not None and value.producer]
        for old, new in results:
            self.disordered = self.disordered or old.producer is not match.root
            _keep_knowledge(old, new)
            edit.replace_all_uses(old, new)
        _remove_unused(match.nodes)
        return [
            *op.made,
            *users,
            *(user for user_node in users for output in user_node.outputs for user in output.users),
            *sources,
        ]


def _pairs(answer: Value | Sequence[Value | None] | Mapping[str, Value], match: Match) -> list[tuple[Value, Value]]:
    if isinstance(answer, Mapping):
        return [(match.bindings[name], new) for name, new in answer.items()]
    news = [answer] if isinstance(answer, Value) else answer
    return [(old, new) for old, new in zip(match.root.outputs, news, strict=False) if new is not None]


def _keep_knowledge(old: Value, new: Value) -> None:
    """Two values that are always the same have the same type and content: what was known of the old one holds for the new one."""
    if new.producer is not None:
        new.type = _merged_type(old, new)
        new.known = old.known if new.known is None else new.known


def _merged_type(old: Value, new: Value) -> Type | None:
    """What is known of the type of two values that are always the same; None if their types contradict each other."""
    if old.type is None or new.type is None:
        return old.type or new.type
    return refined(new.type, old.type) if same_kind(old.type, new.type) else None


def _remove_unused(nodes: Iterable[Node]) -> None:
    """Remove those of a match's nodes that nobody uses any more; most users come before what they use, but not all."""
    left = list(nodes)
    count = -1
    while count != len(left):
        waiting, count, left = left, len(left), []
        for node in waiting:
            if _is_used(node):
                left.append(node)
            else:
                assert node.graph is not None
                node.graph.remove(node)


def _is_used(node: Node) -> bool:
    return any(output.uses or output.is_graph_output for output in node.outputs)


def _opsets(model: Model, node: Node) -> dict[str, int]:
    return {**model.opsets, node.domain: node.version}
