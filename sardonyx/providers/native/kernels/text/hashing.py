"""MurmurHash3 of com.microsoft: the variant x86_32 of Austin Appleby's hash, over the UTF-8 of strings."""

from __future__ import annotations

from sardonyx.compiler.builder import Function, Value
from sardonyx.compiler.text_code import bytes_of, length_of, word_at
from sardonyx.compiler.types import I64, U32
from sardonyx.ir import Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.native.kernels.reduction.domain import PIECE_ELEMENTS
from sardonyx.providers.native.kernels.text.bytes import base_of
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import is_text, required

WORD = 4
GRAIN = PIECE_ELEMENTS // 64


class HashArguments(Arguments):
    texts: Pointer
    source: Pointer
    target: Pointer
    seed: Size


@kernel("hash strings", HashArguments)
def hash_kernel(f: KernelFunction, a: HashArguments) -> None:
    """Items are elements."""
    base = base_of(f, a.texts)
    with f.loop(f.begin, f.end) as item:
        text = f.load(a.source, item, I64)
        f.store(_hash(f, bytes_of(f, base, text), length_of(f, text), f.convert(a.seed, U32)), a.target, item, U32)


def _hash(f: Function, place: Value, length: Value, seed: Value) -> Value:
    state, whole = f.variable(seed), length & -WORD
    with f.loop(0, whole, WORD) as done:
        mixed = state.get() ^ _scrambled(f, f.convert(word_at(f, place, done, done + WORD), U32))
        state.set(((mixed << 13) | (mixed >> 19)) * 5 + 0xE6546B64)
    with f.if_(whole < length):
        state.set(state.get() ^ _scrambled(f, f.convert(word_at(f, place, whole, length), U32)))
    mixed = state.get() ^ f.convert(length, U32)
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B
    mixed = (mixed ^ (mixed >> 13)) * 0xC2B2AE35
    return mixed ^ (mixed >> 16)


def _scrambled(f: Function, word: Value) -> Value:
    product = word * 0xCC9E2D51
    return ((product << 15) | (product >> 17)) * 0x1B873593


@lower("MurmurHash3", domain="com.microsoft", text=True, claims=lambda node: is_text(node.inputs[0]))
def murmur_hash3(lowerer: Lowerer, node: Node) -> None:
    """Strings become numbers."""
    source, target = lowerer.contiguous(required(node.inputs[0])), lowerer.output(node.outputs[0])
    arguments = HashArguments(
        texts=lowerer.text_memory(),
        source=source.place,
        target=target.place,
        seed=int(all_attributes(node)["seed"]) & 0xFFFFFFFF,
    )
    lowerer.call(hash_kernel(lowerer.target), arguments, dim.product(source.shape), GRAIN)
