"""The kernel of TopK: a heap of the best elements of a row, and a vector comparison that passes over all that don't get in."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, U32, U64, Type
from sardonyx.providers.native.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.rows.selection_kernels import bits_of, lowest_bit

Words = Sequence[Value]


def rank_key(f: KernelFunction, x: Value, largest: bool) -> Value:
    """An unsigned number that is the larger the better an element is. NaN is above all numbers, zeros are equal."""
    type = x.type
    word = (U64 if type.bits == 64 else U32).vector(type.lanes)
    top = 1 << (word.bits - 1)
    if type.is_float:
        bits = f.bitcast(x + 0.0, word)  # -0 becomes 0
        negative = (bits & top) != 0
        key = f.select(negative, ~bits, bits | top)
        key = f.select(f.is_nan(x), (1 << word.bits) - 1, key)
    else:
        key = f.convert(x, word) if type.bits < word.bits else f.bitcast(x, word)
        key = key ^ top if type.is_signed else key
    return key if largest else ~key


class _Heap:
    """A heap in memory whose root is its worst entry. An entry is a word of rank and place, or two words where one is too short."""

    def __init__(self, f: KernelFunction, arrays: Sequence[Value], k: Value):
        self.f = f
        self.arrays = arrays
        self.k = k

    def get(self, n: Value | int) -> list[Value]:
        return [self.f.load(array, n, U64) for array in self.arrays]

    def put(self, n: Value | int, entry: Words) -> None:
        for array, word in zip(self.arrays, entry):
            self.f.store(word, array, n, U64)

    def is_worse(self, one: Words, other: Words) -> Value:
        if len(one) == 1:
            return one[0] < other[0]
        return (one[0] < other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))

    def sink(self, start: Value | int, count: Value, entry: Words) -> None:
        """Let an entry take the place `start` of a heap of `count` entries, or a place below."""
        f = self.f
        place = f.variable(start, I64)
        with f.while_() as body:
            child = place.get() * 2 + 1
            body.leave_if(child >= count)
            right = f.minimum(child + 1, count - 1)
            lower = f.select(self.is_worse(self.get(right), self.get(child)), right, child)
            found = self.get(lower)
            body.leave_if(~self.is_worse(found, entry))
            self.put(place.get(), found)
            place.set(lower)
        self.put(place.get(), entry)

    def build(self) -> None:
        f = self.f
        half = self.k // 2
        with f.loop(0, half) as back:
            place = half - 1 - back
            self.sink(place, self.k, self.get(place))

    def sort(self) -> None:
        """The best first: the worst is moved to the end, again and again."""
        f = self.f
        with f.loop(1, self.k) as done:
            last = self.k - done
            entry = self.get(last)
            self.put(last, self.get(0))
            self.sink(0, last, entry)


class TopKArguments(Arguments):
    source: Pointer
    columns: Size
    k: Size
    values: Pointer
    indices: Pointer


@kernel("top k", TopKArguments)
def top_k_kernel(f: KernelFunction, a: TopKArguments, type: Type, largest: bool) -> None:
    """The k best of each row with their places, the best first, of equal ones the first. Items are rows."""
    columns, k = a.columns, a.k
    wide = type.computed.bits == 64
    lanes = f.lanes(type) if type.computed.bits >= 32 else f.lanes(U32)
    with f.loop(f.begin, f.end) as item, f.if_(k > 0):
        row = f.address(a.source, item * columns, type)
        best, places = f.address(a.values, item * k, type), f.address(a.indices, item * k, I64)
        heap = _Heap(f, [best, places] if wide else [places], k)

        def keys(column: Value, count: int) -> Value:
            x = f.load(row, column, type, count)
            if x.type.kind in ("int", "uint") and x.type.bits < 32:
                x = f.convert(x, Type(x.type.kind, 32))
            return rank_key(f, x, largest)

        def entry(column: Value, key: Value) -> list[Value]:
            place = ~Value(f, U64, column.ref)
            return [key, place] if wide else [(f.convert(key, U64) << 32) | (place & 0xFFFFFFFF)]

        with f.loop(0, k) as column:
            heap.put(column, entry(column, keys(column, 1)))
        heap.build()
        root = f.variable(heap.get(0)[0], U64)

        def offer(column: Value, key: Value) -> None:
            limit = root.get() if wide else root.get() >> 32
            with f.if_(f.convert(key, U64) > limit):
                heap.sink(0, k, entry(column, key))
                root.set(heap.get(0)[0])

        whole = k + ((columns - k) // lanes) * lanes
        with f.loop(k, whole, lanes) as column:
            found = keys(column, lanes)
            limit = root.get() if wide else f.convert(root.get() >> 32, U32)
            bits = f.variable(bits_of(f, found > f.splat(limit, lanes)))
            with f.while_() as body:
                rest = bits.get()
                body.leave_if(rest == 0)
                place = column + lowest_bit(f, rest)
                offer(place, keys(place, 1))
                bits.set(rest & (rest - 1))
        with f.loop(whole, columns) as column:
            offer(column, keys(column, 1))
        heap.sort()
        with f.loop(0, k) as n:
            place = Value(f, I64, (~heap.get(n)[-1]).ref)
            place = place if wide else place & 0xFFFFFFFF
            f.store(place, places, n, I64)
            f.store(f.load(row, place, type), best, n, type)
