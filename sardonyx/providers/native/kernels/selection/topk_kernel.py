"""The kernel of TopK: a heap of the best elements of a row, and a vector comparison that passes over all that don't get in."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value
from sardonyx.compiler.types import I64, U32, U64, Type
from sardonyx.providers.native.kernels.selection.kernels import bits_of, lowest_bit
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.kernel import KernelFunction, kernel

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

    def is_worse(self, left: Words, right: Words) -> Value:
        if len(left) == 1:
            return left[0] < right[0]
        return (left[0] < right[0]) | ((left[0] == right[0]) & (left[1] < right[1]))

    def sink(self, start: Value | int, count: Value, entry: Words) -> None:
        """Let an entry take the place `start` of a heap of `count` entries, or a place below."""
        f = self.f
        place = f.variable(start, I64)
        with f.while_() as body:
            child = place.get() * 2 + 1
            body.leave_if(child >= count)
            right = f.minimum(child + 1, count - 1)
            lower = f.select(self.is_worse(self.get(right), self.get(child)), right, child)
            worse = self.get(lower)
            body.leave_if(~self.is_worse(worse, entry))
            self.put(place.get(), worse)
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
    with f.loop(f.begin, f.end) as item, f.if_(a.k > 0):
        best = _Best(f, a, type, largest, item)
        best.offer_rest()
        best.write()


class _Best:
    """The k best elements of one row, in a heap that lies where the results go; at first the first k of them."""

    def __init__(self, f: KernelFunction, a: TopKArguments, type: Type, largest: bool, item: Value):
        self.f = f
        self.a = a
        self.type = type
        self.largest = largest
        self.is_wide = type.computed.bits == 64
        """Whether rank and place are words of their own."""
        self.row = f.address(a.source, item * a.columns, type)
        self.values, self.places = f.address(a.values, item * a.k, type), f.address(a.indices, item * a.k, I64)
        self.heap = _Heap(f, [self.values, self.places] if self.is_wide else [self.places], a.k)
        with f.loop(0, a.k) as column:
            self.heap.put(column, self._entry(column, self._keys(column, 1)))
        self.heap.build()
        self.root = f.variable(self.heap.get(0)[0], U64)
        """The rank of the worst among them."""

    def _keys(self, column: Value, count: int) -> Value:
        """The ranks of elements from a column on."""
        f = self.f
        x = f.load(self.row, column, self.type, count)
        if x.type.kind in ("int", "uint") and x.type.bits < 32:
            x = f.convert(x, Type(x.type.kind, 32))
        return rank_key(f, x, self.largest)

    def _entry(self, column: Value, key: Value) -> list[Value]:
        f = self.f
        place = ~Value(f, U64, column.ref)
        return [key, place] if self.is_wide else [(f.convert(key, U64) << 32) | (place & 0xFFFFFFFF)]

    def _offer(self, column: Value) -> None:
        """Take an element in if it is better than the worst."""
        f, key = self.f, self._keys(column, 1)
        limit = self.root.get() if self.is_wide else self.root.get() >> 32
        with f.if_(f.convert(key, U64) > limit):
            self.heap.sink(0, self.a.k, self._entry(column, key))
            self.root.set(self.heap.get(0)[0])

    def offer_rest(self) -> None:
        """Go through all others. Vectors of them are compared with the worst, which nearly all are behind."""
        f, k, columns = self.f, self.a.k, self.a.columns
        lanes = f.lanes(self.type) if self.type.computed.bits >= 32 else f.lanes(U32)
        whole = k + ((columns - k) // lanes) * lanes
        with f.loop(k, whole, lanes) as column:
            keys = self._keys(column, lanes)
            limit = self.root.get() if self.is_wide else f.convert(self.root.get() >> 32, U32)
            bits = f.variable(bits_of(f, keys > f.splat(limit, lanes)))
            with f.while_() as body:
                rest = bits.get()
                body.leave_if(rest == 0)
                self._offer(column + lowest_bit(f, rest))
                bits.set(rest & (rest - 1))
        with f.loop(whole, columns) as column:
            self._offer(column)

    def write(self) -> None:
        """Sort, and put elements and places where entries were."""
        f = self.f
        self.heap.sort()
        with f.loop(0, self.a.k) as n:
            place = Value(f, I64, (~self.heap.get(n)[-1]).ref)
            place = place if self.is_wide else place & 0xFFFFFFFF
            f.store(place, self.places, n, I64)
            f.store(f.load(self.row, place, self.type), self.values, n, self.type)
