"""Generated code that takes rows through the trees of a `ForestTable`. `trees.py` adds the step; scores are then finished by `ml_scores`.

Rows come in groups of 16, their features as keys column by column. A group goes through a tree at once: 16 chains of loads that the CPU
overlaps; the choice between children is arithmetic, so there is nothing to mispredict. (Vectors of rows that gather their nodes took more
than twice the time on Zen 4.) All groups of a block go through a tree before the next one, which so is read from memory once. Few rows go
alone, each through 8 trees at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.types import F32, F64, I8, I32, I64, PTR, U32, U64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernel import KernelFunction, kernel
from sardonyx.providers.native.ml.trees_table import CHAINS, GROUP, IDENTITIES, SENTINEL, VOTE_LANES
from sardonyx.providers.native.sizes import THREADS
from sardonyx.records import dataclass

BLOCK_GROUPS = 64
"""How many groups go through a tree before the next: their keys and scores stay in the second cache."""
FEW_ROWS = 8
"""Up to so many rows of an unfinished group go alone."""
STACK_BYTES = (256 + 1) * GROUP * 4
"""The keys of a group that goes row by row lie on the stack if they are not larger: with up to 256 columns of float32."""


@dataclass(frozen=True)
class WalkSpec:
    """What shapes the code."""

    input: Type
    narrow: bool
    combine: str
    votes: Type | None
    """The type of the leaves' rows; None if a leaf says its weight."""

    @property
    def float(self) -> Type:
        """The type as which features are compared."""
        return F64 if self.input == F64 else F32

    @property
    def keys(self) -> Type:
        return U64 if self.float == F64 else U32

    @property
    def record_bytes(self) -> int:
        return 8 if self.narrow else 16


def score_rows(rows: Dim) -> Dim:
    """For how many rows there must be scores: those of a group that does not go row by row are filled up."""
    return dim.ceildiv(rows, FEW_ROWS) * FEW_ROWS


def key_bytes(rows: Dim, columns: int, type: Type) -> Dim:
    """How much memory keys need: for all groups, or for one block of each thread. A last group that goes row by row has the stack."""
    group = columns * GROUP * type.bytes
    filled = rows + (GROUP - FEW_ROWS - 1) if group <= STACK_BYTES else rows + (GROUP - 1)
    return dim.minimum(dim.floordiv(filled, GROUP), BLOCK_GROUPS * THREADS) * group


@kernel("trees")
def walk_kernel(f: KernelFunction, spec: WalkSpec) -> None:
    """Items are groups of rows. Sums of votes, in float64, go to `scores`: [rows, width], filled up as `score_rows` says."""
    _Walk(f, spec).emit()


class _Walk:
    def __init__(self, f: KernelFunction, spec: WalkSpec):
        self.f = f
        self.spec = spec
        self.X, self.rows, self.features = f.pointer(), f.size(), f.size()
        self.columns, self.column_count, self.flag = f.pointer(), f.size(), f.size()
        self.nodes, self.trees, self.tree_count = f.pointer(), f.pointer(), f.size()
        self.keys, self.scores, self.width = f.pointer(), f.pointer(), f.size()
        self.votes = f.pointer() if spec.votes is not None else None
        self.group_bytes = (self.flag + 1) * (GROUP * spec.keys.bytes)
        self.near_keys = f.stack(I8, STACK_BYTES, align=16)  # a larger alignment would take a register
        self.shares_keys = (self.rows + (GROUP - 1)) // GROUP > f.size() * BLOCK_GROUPS
        """Whether each thread has keys for one block, which it uses again for the next; else all groups have their own."""

    def emit(self) -> None:
        f = self.f
        whole = self.rows // GROUP
        few = self.rows - whole * GROUP
        # the last group goes row by row if it has few of them
        last = f.select(few > FEW_ROWS, whole + 1, whole)
        with f.loop(f.begin, f.minimum(f.end, last), BLOCK_GROUPS) as first:
            stop = f.minimum(first + BLOCK_GROUPS, f.minimum(f.end, last))
            keys = f.opaque(self._keys_of_block(first))
            with f.loop(first, stop) as group:
                self._make_keys(group, self._group_keys(keys, group))
            self._clear(first * GROUP, stop * GROUP)
            self._through_trees(first, stop, keys)
        with f.if_((f.end > last) & (few > 0)):
            is_near = self.group_bytes <= STACK_BYTES
            far_keys = self._group_keys(self._keys_of_block(last), last)
            keys = f.emit(PTR, f"select {is_near}, {self.near_keys}, {far_keys}")
            self._make_keys(last, keys)
            self._clear(last * GROUP, self.rows)
            self._rows_alone(last, few, keys)

    # --- keys

    def _keys_of_block(self, first: Value) -> Value:
        """Where the keys of the block that begins with group `first` are kept: of group 0, if it were one of them."""
        f = self.f
        return self._group_keys(self.keys, f.select(self.shares_keys, f.worker * BLOCK_GROUPS - first, 0))

    def _group_keys(self, keys: Value, group: Value) -> Value:
        return self.f.address(keys, group * self.group_bytes, I8)

    def _make_keys(self, group: Value, place: Value) -> None:
        """The keys of a group. Those of rows behind the last one are anything, but nobody asks what they lead to."""
        f, spec = self.f, self.spec
        lanes = min(GROUP, f.lanes(I64))
        f.store(f.const(spec.keys.vector(GROUP), SENTINEL), place, self.flag * GROUP, spec.keys)
        for part in range(0, GROUP, lanes):
            first = group * GROUP + part
            with f.if_(first < self.rows):
                row = f.minimum(f.iota(I64, lanes) + f.splat(first, lanes), f.splat(self.rows - 1, lanes))
                start = row * f.splat(self.features, lanes)
                with f.loop(0, self.column_count) as column:
                    feature, nan = f.load(self.columns, column * 2, I64), f.load(self.columns, column * 2 + 1, I64)
                    value = f.convert(f.gather(self.X, start + f.splat(feature, lanes), spec.input), spec.float)
                    f.store(self._key(value, f.convert(nan, spec.keys)), place, column * GROUP + part, spec.keys)

    def _key(self, value: Value, nan: Value) -> Value:
        f, lanes = self.f, value.type.lanes
        with f.exact():
            bits = f.bitcast(value + 0.0, self.spec.keys.vector(lanes))
        top = 1 << (self.spec.keys.bits - 1)
        key = f.select(bits >= top, ~bits, bits | top)
        return f.select(f.is_nan(value), f.splat(nan, lanes), key)

    # --- scores

    def _clear(self, first: Value, stop: Value) -> None:
        with self.f.loop(first * self.width, stop * self.width) as place:
            self.f.store(self.f.const(F64, IDENTITIES[self.spec.combine]), self.scores, place, F64)

    def _vote(self, leaf: Value, row: Value, target: Value) -> None:
        """Let a row have a leaf's vote."""
        f, spec = self.f, self.spec
        if spec.votes is None:
            self._combine(row * self.width + target, f.load(leaf, 0, spec.float))
            return
        assert self.votes is not None
        said = f.address(self.votes, f.convert(f.load(leaf, 0, spec.keys), I64) * self.width, spec.votes)
        with f.loop(0, self.width, VOTE_LANES) as number:
            self._combine(row * self.width + number, f.load(said, number, spec.votes, VOTE_LANES))

    def _combine(self, place: Value, vote: Value) -> None:
        f = self.f
        before, vote = f.load(self.scores, place, F64, vote.type.lanes), f.convert(vote, F64)
        if self.spec.combine == "SUM":
            f.store(before + vote, self.scores, place, F64)
        else:
            f.store((f.minimum if self.spec.combine == "MIN" else f.maximum)(before, vote), self.scores, place, F64)

    # --- trees

    def _tree(self, number: Value) -> tuple[Value, Value, Value]:
        """Where a tree's records lie, its target, and how deep its leaves are."""
        f = self.f
        start, target, depth = (f.load(self.trees, number * 3 + field, I64) for field in range(3))
        return f.address(self.nodes, start * self.spec.record_bytes, I8), target, depth

    def _through_trees(self, first: Value, stop: Value, block: Value) -> None:
        f = self.f
        # what LLVM sees through here it keeps in registers, which the way down a tree needs all
        with f.loop(0, f.opaque(self.tree_count)) as number:
            root, target, depth = self._tree(number)
            levels = f.variable(depth)
            with f.loop(first, stop) as group:
                keys = self._group_keys(block, group)
                ways = [(root, f.address(keys, row, self.spec.keys)) for row in range(GROUP)]
                for row, leaf in enumerate(self._leaves(ways, levels)):
                    self._vote(leaf, group * GROUP + row, target)

    def _rows_alone(self, group: Value, count: Value, keys: Value) -> None:
        """The first rows of a group, each through several trees at once."""
        f = self.f
        with f.loop(0, self.tree_count, CHAINS) as number:
            trees = [self._tree(number + chain) for chain in range(CHAINS)]
            levels = f.variable(trees[0][2])
            for _, _, depth in trees[1:]:
                levels.set(f.maximum(levels.get(), depth))
            with f.loop(0, count) as row:
                mine = f.address(keys, row, self.spec.keys)
                for leaf, (_, target, _) in zip(self._leaves([(root, mine) for root, _, _ in trees], levels), trees):
                    self._vote(leaf, group * GROUP + row, target)

    def _leaves(self, ways: Sequence[tuple[Value, Value]], levels: Variable) -> list[Value]:
        """Follow ways, given by a tree's root and a row's first key, until all have come to leaves.

        The first `levels` are gone without looking: a loop whose length rarely changes is predicted, so that the next ways begin before
        these have ended. Where it does not suffice it grows.
        """
        f = self.f
        places = [f.variable(0, I64) for _ in ways]
        with f.loop(0, levels.get()):
            self._descend(ways, places)
        with f.while_() as going:
            going.leave_if(self._all_ended(ways, places))
            self._descend(ways, places)
            self._descend(ways, places)
            levels.set(levels.get() + 1)
        return [self._record(root, place.get()) for (root, _), place in zip(ways, places)]

    def _descend(self, ways: Sequence[tuple[Value, Value]], places: Sequence[Variable]) -> None:
        for (root, row), place in zip(ways, places):
            place.set(self._step(root, row, place.get()))

    def _all_ended(self, ways: Sequence[tuple[Value, Value]], places: Sequence[Variable]) -> Value:
        """Leaves alone read the column that has the flag's bit."""
        f = self.f
        together = f.const(I64, -1)
        for (root, _), place in zip(ways, places):
            together = together & self._word(root, place.get())[0]
        return (together & (self.flag * (GROUP * self.spec.keys.bytes))) != 0

    def _record(self, root: Value, place: Value) -> Value:
        return self.f.address(root, place * self.spec.record_bytes, I8)

    def _word(self, root: Value, place: Value) -> tuple[Value, Value]:
        """A record's column, in bytes, and its child."""
        f = self.f
        record = self._record(root, place)
        if self.spec.narrow:
            word = f.load(record, 1, U32)
            return f.convert(word & 0xFFFF, I64), f.convert(word >> 16, I64)
        return f.convert(f.load(record, 2, I32), I64), f.convert(f.load(record, 3, I32), I64)

    def _step(self, root: Value, row: Value, place: Value) -> Value:
        """The place of the child to which a row goes."""
        f, keys = self.f, self.spec.keys
        column, child = self._word(root, place)
        mine = f.load(f.address(row, column, I8), 0, keys)
        return child + f.convert(f.load(self._record(root, place), 0, keys) < mine, I64)
