"""Texts in parts: Tokenizer and StringSplit. Parts are counted first, then the longest row decides how many there are in each."""

from __future__ import annotations

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.text_code import bytes_of, length_of, offset_of, reference_to
from sardonyx.compiler.types import I64
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.text.bytes import base_of
from sardonyx.providers.native.kernels.text.ngrams import is_passed_on
from sardonyx.providers.native.kernels.text.tokens import (
    Found,
    TokenArguments,
    Tokens,
    each_token,
    parts_of,
    require_some,
    token_arguments,
    tokens_of,
)
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.computed_sizes import settle_shape
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, required
from sardonyx.providers.native.program.views import View, contiguous_strides

GRAIN = 32
"""Texts that are worth a thread."""


class CountArguments(Arguments):
    texts: Pointer
    source: Pointer
    counts: Pointer
    tokens: TokenArguments


@kernel("count tokens", CountArguments)
def count_kernel(f: KernelFunction, a: CountArguments, tokens: Tokens) -> None:
    """Items are texts."""
    base = base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        text, count = f.load(a.source, item, I64), f.variable(0, I64)

        def add(start: Code, size: Code) -> None:
            count.set(count.get() + 1)

        each_token(f, bytes_of(f, base, text), length_of(f, text), tokens, a.tokens, add)
        f.store(count.get(), a.counts, item, I64)


class LongestArguments(Arguments):
    counts: Pointer
    count: Size
    longest: Pointer


@kernel("longest row", LongestArguments)
def longest_kernel(f: KernelFunction, a: LongestArguments) -> None:
    """One item: the largest number of all."""
    longest = f.variable(0, I64)
    with f.loop(0, a.count) as item:
        longest.set(f.maximum(longest.get(), f.load(a.counts, item, I64)))
    f.store(longest.get(), a.longest, 0, I64)


class SplitArguments(Arguments):
    texts: Pointer
    source: Pointer
    target: Pointer
    width: Size
    pad: Pointer
    """The reference to what rows are filled up with."""
    tokens: TokenArguments


@kernel("split texts", SplitArguments)
def split_kernel(f: KernelFunction, a: SplitArguments, tokens: Tokens) -> None:
    """Items are texts."""
    base = base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        text, place = f.load(a.source, item, I64), f.variable(item * a.width)
        first = offset_of(f, text)

        def put(start: Code, size: Code) -> None:
            f.store(reference_to(first + start, size), a.target, place.get(), I64)
            place.set(place.get() + 1)

        each_token(f, bytes_of(f, base, text), length_of(f, text), tokens, a.tokens, put)
        with f.loop(place.get(), (item + 1) * a.width) as rest:
            f.store(f.load(a.pad, 0, I64), a.target, rest, I64)


def _split(lowerer: Lowerer, node: Node, found: Found, pad: str, counts: View) -> None:
    """Add the steps that split texts; `counts` is where it stands how many parts each has."""
    X, result = lowerer.contiguous(required(node.inputs[0])), node.outputs[0]
    tokens, arguments = found[0], token_arguments(lowerer, found)
    total, texts = dim.product(X.shape), lowerer.text_memory()
    lowerer.call(
        count_kernel(lowerer.target, tokens),
        CountArguments(texts=texts, source=X.place, counts=counts.place, tokens=arguments),
        total,
        GRAIN,
    )
    longest = lowerer.scratch(8)
    lowerer.call(longest_kernel(lowerer.target), LongestArguments(counts=counts.place, count=total, longest=longest), 1)
    settle_shape(lowerer, result, [(len(X.shape), longest)])
    target = lowerer.output(result)
    padding = lowerer.table(lowerer.text_constants.references([pad]))
    parts = SplitArguments(
        texts=texts, source=X.place, target=target.place, width=target.shape[-1], pad=padding, tokens=arguments
    )
    lowerer.call(split_kernel(lowerer.target, tokens), parts, total, GRAIN)


def _claims_tokenizer(node: Node) -> bool:
    users = node.outputs[0].users
    if any(user.op_type == "TfIdfVectorizer" for user in users) and not is_passed_on(node):
        return False  # in NumPy the two are quicker together
    return not all_attributes(node)["mark"] and len(dims(required(node.inputs[0]))) in (1, 2) and tokens_of(node) is not None


@lower("Tokenizer", domain="com.microsoft", text=True, settles=True, claims=_claims_tokenizer, passes=is_passed_on)
def tokenizer(lowerer: Lowerer, node: Node) -> None:
    """Tokens of texts. Where they are counted alone, whoever counts them reads the texts."""
    if is_passed_on(node) and all(map(lowerer.will_lower, node.outputs[0].users)):
        return
    found, shape = tokens_of(node), dims(required(node.inputs[0]))
    assert found is not None
    require_some(lowerer, shape)
    counts = View(lowerer.scratch(dim.product(shape) * 8), I64, shape, contiguous_strides(shape))
    _split(lowerer, node, found, all_attributes(node)["pad_value"], counts)


@lower("StringSplit", text=True, settles=True, claims=lambda node: parts_of(node) is not None)
def string_split(lowerer: Lowerer, node: Node) -> None:
    """Parts of texts, and how many there are of each."""
    found = parts_of(node)
    assert found is not None
    _split(lowerer, node, found, "", lowerer.output(node.outputs[1]))
