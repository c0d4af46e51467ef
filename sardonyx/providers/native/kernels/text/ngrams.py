"""TfIdfVectorizer of strings: tokens are followed through a tree of known n-grams, row by row. A Tokenizer before it makes no tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.builder import Variable
from sardonyx.compiler.text_code import FACTOR, bytes_of, length_of, offset_of, reference_to
from sardonyx.compiler.types import F32, I64
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.cpu.ngrams import Steps, known_grams
from sardonyx.providers.native.kernels.text.bytes import LookupArguments, base_of, lookup, place_of
from sardonyx.providers.native.kernels.text.tokens import (
    TokenArguments,
    Tokens,
    each_token,
    require_some,
    token_arguments,
    tokens_of,
)
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, is_text, required
from sardonyx.startup.records import dataclass

MAX_LENGTH = 8
"""Longer n-grams are left to NumPy."""
MAX_COLUMNS = 1 << 24
"""Rows with more of them are NumPy's to refuse."""
GRAIN = 16
"""Texts that are worth a thread."""
ROW = 2
"""Words of a row of the table of edges: which they are, and where they lead."""
MODES = ("TF", "IDF", "TFIDF")


@dataclass(frozen=True)
class GramForm:
    """What shapes the code."""

    shortest: int
    longest: int
    mode: str
    weighted: bool

    @property
    def has_edges(self) -> bool:
        return self.longest > 1


class GramArguments(Arguments):
    texts: Pointer
    source: Pointer
    target: Pointer
    columns: Size
    """Columns of the result."""
    count: Size
    """Tokens of a row, where they lie in memory."""
    table: LookupArguments
    first: Pointer
    """The n-gram of each token alone; -1 for none."""
    column: Pointer
    """The column of each n-gram; -1 for none."""
    edges: Pointer | None = when(lambda form: form.has_edges)
    """Where a known token leads from a known n-gram."""
    last_edge: Size | None = when(lambda form: form.has_edges)
    weights: Pointer | None = when(lambda form: form.mode != "TF" and form.weighted)
    tokens: TokenArguments


@kernel("n-grams", GramArguments)
def gram_kernel(f: KernelFunction, a: GramArguments, form: GramForm, tokens: Tokens | None) -> None:
    """Items are rows: texts, or without `tokens` so many tokens each, which lie in memory."""
    base = base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        target = f.address(a.target, item * a.columns, F32)
        _each_column(
            f,
            a,
            lambda column, lanes, remaining: f.store(f.const(F32.vector(lanes), 0.0), target, column, F32, remaining=remaining),
        )
        nodes = [f.variable(-1, I64) for _ in range(form.longest)]

        def take(token: Code) -> None:
            place = place_of(f, base, token, a.table)
            _follow_all(f, a, nodes, place)
            for length, node in enumerate(nodes, start=1):
                if length >= form.shortest:
                    _count(f, a, target, node.get())

        if tokens is None:
            with f.loop(0, a.count) as number:
                take(f.load(a.source, item * a.count + number, I64))
        else:
            text = f.load(a.source, item, I64)
            start, place = offset_of(f, text), bytes_of(f, base, text)
            each_token(
                f, place, length_of(f, text), tokens, a.tokens, lambda first, size: take(reference_to(start + first, size))
            )
        _weigh(f, a, form, target)


def _each_column(f: KernelFunction, a: GramArguments, emit: Callable[[Code, int, Code | None], None]) -> None:
    lanes = f.lanes(F32)
    whole = (a.columns // lanes) * lanes
    with f.loop(0, whole, lanes) as column:
        emit(column, lanes, None)
    with f.if_(whole < a.columns):
        emit(whole, lanes, a.columns - whole)


def _follow_all(f: KernelFunction, a: GramArguments, nodes: Sequence[Variable], place: Code) -> None:
    """Let every n-gram that ends before a token be the one that ends with it; the longest first."""
    for length in range(len(nodes) - 1, 0, -1):
        nodes[length].set(_edge(f, a, nodes[length - 1].get(), place))
    nodes[0].set(f.load(a.first, place, I64))


def _edge(f: KernelFunction, a: GramArguments, node: Code, place: Code) -> Code:
    """Where a token leads from an n-gram; -1 for nowhere."""
    end = f.variable(-1, I64)
    with f.if_((node >= 0) & (place < a.table.count)):
        key = node * a.table.count + place
        assert a.edges is not None
        row = f.variable(_mixed(f, key) & a.last_edge)
        with f.while_() as rows:
            words = f.address(a.edges, row.get() * ROW, I64)
            found = f.load(words, 0, I64)
            rows.leave_if(found < 0)
            with f.if_(found == key):
                end.set(f.load(words, 1, I64))
            rows.leave_if(found == key)
            row.set((row.get() + 1) & a.last_edge)
    return end.get()


def _mixed(f: KernelFunction, key: Code) -> Code:
    product = key * (FACTOR - (1 << 64))
    return product ^ (product >> 32)


def _count(f: KernelFunction, a: GramArguments, target: Code, node: Code) -> None:
    with f.if_(node >= 0):
        column = f.load(a.column, node, I64)
        with f.if_(column >= 0):
            f.store(f.load(target, column, F32) + 1.0, target, column, F32)


def _weigh(f: KernelFunction, a: GramArguments, form: GramForm, target: Code) -> None:
    if form.mode == "TF":
        return

    def emit(column: Code, lanes: int, remaining: Code | None) -> None:
        counts = f.load(target, column, F32, lanes, remaining=remaining)
        if form.mode == "IDF":
            counts = f.minimum(counts, 1.0)
        if a.weights is not None:
            counts = counts * f.load(a.weights, column, F32, lanes, remaining=remaining)
        f.store(counts, target, column, F32, remaining=remaining)

    _each_column(f, a, emit)


# --- lowerings


def reads_texts(node: Node) -> bool:
    """Whether a TfIdfVectorizer may read the texts of the Tokenizer before it."""
    tokenizer = required(node.inputs[0]).producer
    return tokenizer is not None and tokenizer.op_type == "Tokenizer" and is_passed_on(tokenizer)


def is_passed_on(tokenizer: Node) -> bool:
    """Whether the tokens of a Tokenizer are counted alone, so that nobody has to make them."""
    text, tokens = required(tokenizer.inputs[0]), tokenizer.outputs[0]
    attributes = all_attributes(tokenizer)
    graph = tokenizer.graph
    is_plain = not attributes["mark"] and len(dims(text)) == 1 and tokens_of(tokenizer) is not None
    if not is_plain or graph is None or tokens in graph.outputs or len(tokens.users) != 1:
        return False
    (user,) = tokens.users
    # what rows are filled up with must not be among the words that count
    return (
        user.op_type == "TfIdfVectorizer"
        and user.graph is graph
        and _can_count(user)
        and attributes["pad_value"] not in _pool(user)
    )


def _pool(node: Node) -> Sequence[str]:
    return all_attributes(node).get("pool_strings") or []


def _can_count(node: Node) -> bool:
    attributes = all_attributes(node)
    lengths = attributes["min_gram_length"], attributes["max_gram_length"]
    return (
        bool(_pool(node) and attributes["ngram_counts"])
        and attributes["max_skip_count"] == 0
        and 1 <= lengths[0] <= lengths[1] <= MAX_LENGTH
        and attributes["mode"] in MODES
        and 0 <= max(attributes["ngram_indexes"], default=-1) < MAX_COLUMNS
        and min(attributes["ngram_indexes"]) >= 0
        and len(attributes.get("weights") or attributes["ngram_indexes"]) == len(attributes["ngram_indexes"])
    )


def _claims(node: Node) -> bool:
    X = required(node.inputs[0])
    return is_text(X) and _can_count(node) and (reads_texts(node) or len(dims(X)) in (1, 2))


@lower("TfIdfVectorizer", text=True, claims=_claims)
def tf_idf_vectorizer(lowerer: Lowerer, node: Node) -> None:
    """How often known n-grams come."""
    attributes = all_attributes(node)
    known = {name: attributes[name] for name in ("ngram_counts", "ngram_indexes", "pool_strings")}
    steps = known_grams(**known).steps
    target = lowerer.output(node.outputs[0])
    X = required(node.inputs[0])
    found = tokens_of(X.producer) if X.producer is not None and reads_texts(node) else None
    source, rows, count = _rows(lowerer, X, found is not None)
    weights = attributes.get("weights")
    form = GramForm(attributes["min_gram_length"], attributes["max_gram_length"], attributes["mode"], weights is not None)
    words = [token for token, number in steps.tokens.items() if number >= 0]
    edges = _edges(steps) if form.has_edges else None
    arguments = GramArguments(
        texts=lowerer.text_memory(),
        source=source,
        target=target.place,
        columns=target.shape[-1],
        count=count,
        table=lookup(lowerer, words),
        first=lowerer.table(_first(steps, len(words))),
        column=lowerer.table(steps.columns),
        edges=None if edges is None else lowerer.table(edges),
        last_edge=None if edges is None else len(edges) - 1,
        weights=lowerer.table(_factors(attributes)) if form.mode != "TF" and form.weighted else None,
        tokens=token_arguments(lowerer, found),
    )
    lowerer.call(gram_kernel(lowerer.target, form, None if found is None else found[0]), arguments, rows, GRAIN)


def _rows(lowerer: Lowerer, X: Value, is_tokenized: bool) -> tuple[At, Dim, Dim]:
    """What is read, how many rows there are, and tokens in a row; those of texts are found."""
    if not is_tokenized:
        view = lowerer.contiguous(X)
        return view.place, dim.product(view.shape[:-1]), view.shape[-1]
    assert X.producer is not None
    view = lowerer.contiguous(required(X.producer.inputs[0]))
    require_some(lowerer, view.shape)
    return view.place, view.shape[0], 0


def _first(steps: Steps, count: int) -> np.ndarray:
    """The n-gram of each token alone, and behind these -1 for unknown ones."""
    first = np.full(count + 1, -1, np.int64)
    is_first = steps.keys < count
    first[steps.keys[is_first]] = steps.ends[is_first]
    return first


def _edges(steps: Steps) -> np.ndarray:
    """The table of edges, at least half of it free."""
    size = 2
    while size < 2 * len(steps.keys):
        size *= 2
    rows = np.full((size, ROW), -1, np.int64)
    for key, end in zip(steps.keys.tolist(), steps.ends.tolist()):
        product = (key * FACTOR + (1 << 63)) % (1 << 64) - (1 << 63)
        row = (product ^ (product >> 32)) % size
        while rows[row, 0] >= 0:
            row = (row + 1) % size
        rows[row] = key, end
    return rows


def _factors(attributes: Mapping[str, Any]) -> np.ndarray:
    factors = np.ones(max(attributes["ngram_indexes"]) + 1, np.float32)
    factors[attributes["ngram_indexes"]] = attributes["weights"]
    return factors
