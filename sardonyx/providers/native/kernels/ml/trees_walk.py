"""Generated code that takes rows through the trees of a `ForestTable`. `trees.py` adds the step; scores are then finished by `ml_scores`.

Rows come in groups of 16, their features as keys column by column. A group goes through a tree at once: 16 chains of loads that the CPU
overlaps; the choice between children is arithmetic, so there is nothing to mispredict. (Vectors of rows that gather their nodes took more
than twice the time on Zen 4.) All groups of a block go through a tree before the next one, which so is read from memory once. Few rows go
alone, each through 8 trees at once.

From the outside in: `_Walk.emit` cuts rows into blocks, `_through_trees` takes a block through all trees, `_leaves` takes 16 rows down one
tree, `_descend` is the inner loop, and `_step` what it does for a row: from a node to its child.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.builder import Value, Variable
from sardonyx.compiler.squares import transposed
from sardonyx.compiler.types import F32, F64, I8, I32, I64, PTR, U32, U64, Type
from sardonyx.ir import Dim, dim
from sardonyx.providers.native.kernels.ml.trees_table import CHAINS, GROUP, IDENTITIES, SENTINEL, VOTE_LANES
from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size, when
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.startup.records import dataclass

BLOCK_GROUPS = 64
"""Groups of a block: their keys and scores stay in the second-level cache."""
FEW_ROWS = 8
"""A last group of at most so many rows goes through the trees row by row."""
SQUARE = 8
"""So many rows and features are turned at once."""
STACK_BYTES = (256 + 1) * GROUP * 4
"""The keys of a group that goes row by row lie on the stack if they are not larger: with up to 256 columns of float32."""


@dataclass(frozen=True)
class WalkSpec:
    """What shapes the code."""

    input: Type
    narrow: bool
    combine: str
    votes: Type | None
    """The type of votes, if leaves name rows of a table of votes; None if a leaf holds its one weight."""
    whole: bool = False
    """Whether the columns are all features of float32, one after the other: then rows are read as they lie."""

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


class WalkArguments(Arguments):
    """The fields of a `ForestTable`, and where rows come from and scores go."""

    X: Pointer
    rows: Size
    features: Size
    columns: Pointer
    column_count: Size
    flag: Size
    nodes: Pointer
    trees: Pointer
    tree_count: Size
    votes: Pointer | None = when(lambda spec: spec.votes is not None)
    width: Size
    keys: Pointer
    """Scratch memory, as large as `key_bytes` says."""
    scores: Pointer
    """[rows, width] in float64, filled up as `score_rows` says."""
    threads: Size


@kernel("trees", WalkArguments)
def walk_kernel(f: KernelFunction, a: WalkArguments, spec: WalkSpec) -> None:
    """Sums of votes for each row. Items are groups of rows."""
    _Walk(f, a, spec).emit()


@dataclass(frozen=True)
class _Descent:
    """One row on its way down one tree: the root, and the keys that decide at which child the row goes on."""

    root: Value
    keys: Value


@dataclass(frozen=True)
class _Tree:
    root: Value
    """The address of its first record."""
    target: Value
    """The class or output that it votes for."""
    depth: Value
    """How many levels there are above its leaves."""


class _Walk:
    """The code of one form of the kernel."""

    def __init__(self, f: KernelFunction, a: WalkArguments, spec: WalkSpec):
        self.f = f
        self.a = a
        self.spec = spec
        self.group_bytes = (a.flag + 1) * (GROUP * spec.keys.bytes)
        """Of the keys of a group."""
        self.near_keys = f.stack(I8, STACK_BYTES, align=16)  # a larger alignment would take a register
        self.shares_keys = (a.rows + (GROUP - 1)) // GROUP > a.threads * BLOCK_GROUPS
        """Whether each thread has keys for one block, which it uses again for the next; else all groups have their own."""

    def emit(self) -> None:
        """Blocks of groups; then the rows of the last group one by one, if it has few of them."""
        f, a = self.f, self.a
        whole = a.rows // GROUP
        few = a.rows - whole * GROUP
        last = f.select(few > FEW_ROWS, whole + 1, whole)
        with f.loop(f.begin, f.minimum(f.end, last), BLOCK_GROUPS) as first:
            self._block(first, f.minimum(first + BLOCK_GROUPS, f.minimum(f.end, last)))
        with f.if_((f.end > last) & (few > 0)):
            self._last_rows(last, few)

    def _block(self, first: Value, stop: Value) -> None:
        """The groups from `first` to `stop`."""
        f = self.f
        keys = f.opaque(self._keys_of_block(first))
        with f.loop(first, stop) as group:
            self._make_keys(group, self._group_keys(keys, group))
        self._clear(first * GROUP, stop * GROUP)
        self._through_trees(first, stop, keys)

    def _last_rows(self, group: Value, count: Value) -> None:
        """The first `count` rows of a group, one by one. Their keys lie on the stack if that is large enough."""
        f = self.f
        is_near = self.group_bytes <= STACK_BYTES
        far_keys = self._group_keys(self._keys_of_block(group), group)
        keys = f.emit(PTR, f"select {is_near}, {self.near_keys}, {far_keys}")
        self._make_keys(group, keys)
        self._clear(group * GROUP, self.a.rows)
        self._rows_alone(group, count, keys)

    # --- keys

    def _keys_of_block(self, first: Value) -> Value:
        """Where the keys of the block that begins with group `first` are kept: of group 0, if it were one of them."""
        f = self.f
        return self._group_keys(self.a.keys, f.select(self.shares_keys, f.worker * BLOCK_GROUPS - first, 0))

    def _group_keys(self, keys: Value, group: Value) -> Value:
        return self.f.address(keys, group * self.group_bytes, I8)

    def _make_keys(self, group: Value, place: Value) -> None:
        """The keys of a group. Those of rows behind the last one are anything, but nobody asks what they lead to."""
        f, a, spec = self.f, self.a, self.spec
        lanes = min(GROUP, f.lanes(I64))
        f.store(f.const(spec.keys.vector(GROUP), SENTINEL), place, a.flag * GROUP, spec.keys)
        if spec.whole:
            self._make_whole_keys(group, place)
            return
        for part in range(0, GROUP, lanes):
            first = group * GROUP + part
            with f.if_(first < a.rows):
                row = f.minimum(f.iota(I64, lanes) + f.splat(first, lanes), f.splat(a.rows - 1, lanes))
                start = row * f.splat(a.features, lanes)
                with f.loop(0, a.column_count) as column:
                    feature, nan = f.load(a.columns, column * 2, I64), f.load(a.columns, column * 2 + 1, I64)
                    value = f.convert(f.gather(a.X, start + f.splat(feature, lanes), spec.input), spec.float)
                    f.store(self._key(value, f.convert(nan, spec.keys)), place, column * GROUP + part, spec.keys)

    def _make_whole_keys(self, group: Value, place: Value) -> None:
        """The keys of a group from squares of rows and features, which are turned in registers."""
        f, a, spec = self.f, self.a, self.spec
        width = min(SQUARE, f.lanes(F32))
        for part in range(0, GROUP, width):
            rows = [f.minimum(group * GROUP + (part + row), a.rows - 1) * a.features for row in range(width)]
            with f.loop(0, a.features, width) as first:
                left = a.features - first
                square = [f.load(a.X, row + first, F32, width, remaining=left) for row in rows]
                for number, value in enumerate(transposed(f, square)):
                    column = first + number
                    with f.if_(column < a.features):
                        nan = f.load(a.columns, column * 2 + 1, I64)
                        f.store(self._key(value, f.convert(nan, spec.keys)), place, column * GROUP + part, spec.keys)

    def _key(self, value: Value, nan: Value) -> Value:
        """An unsigned integer that orders as the number does."""
        f, lanes = self.f, value.type.lanes
        with f.exact():
            bits = f.bitcast(value + 0.0, self.spec.keys.vector(lanes))
        top = 1 << (self.spec.keys.bits - 1)
        key = f.select(bits >= top, ~bits, bits | top)
        return f.select(f.is_nan(value), f.splat(nan, lanes), key)

    # --- scores

    def _clear(self, first: Value, stop: Value) -> None:
        """Set the scores of the rows from `first` to `stop` to those of no vote."""
        with self.f.loop(first * self.a.width, stop * self.a.width) as place:
            self.f.store(self.f.const(F64, IDENTITIES[self.spec.combine]), self.a.scores, place, F64)

    def _vote(self, leaf: Value, row: Value, target: Value) -> None:
        """Add a leaf's vote to the scores of a row."""
        f, a, spec = self.f, self.a, self.spec
        if spec.votes is None:
            self._combine(row * a.width + target, f.load(leaf, 0, spec.float))
            return
        assert a.votes is not None
        votes = f.address(a.votes, f.convert(f.load(leaf, 0, spec.keys), I64) * a.width, spec.votes)
        with f.loop(0, a.width, VOTE_LANES) as number:
            self._combine(row * a.width + number, f.load(votes, number, spec.votes, VOTE_LANES))

    def _combine(self, place: Value, vote: Value) -> None:
        f, scores = self.f, self.a.scores
        before, vote = f.load(scores, place, F64, vote.type.lanes), f.convert(vote, F64)
        if self.spec.combine == "SUM":
            f.store(before + vote, scores, place, F64)
        else:
            f.store((f.minimum if self.spec.combine == "MIN" else f.maximum)(before, vote), scores, place, F64)

    # --- trees

    def _tree(self, number: Value) -> _Tree:
        f = self.f
        start, target, depth = (f.load(self.a.trees, number * 3 + field, I64) for field in range(3))
        return _Tree(f.address(self.a.nodes, start * self.spec.record_bytes, I8), target, depth)

    def _through_trees(self, first: Value, stop: Value, block: Value) -> None:
        """All groups of a block through one tree after the other."""
        f = self.f
        # what LLVM sees through here it keeps in registers, and the descent needs all of them
        with f.loop(0, f.opaque(self.a.tree_count)) as number:
            tree = self._tree(number)
            levels = f.variable(tree.depth)
            with f.loop(first, stop) as group:
                keys = self._group_keys(block, group)
                descents = [_Descent(tree.root, f.address(keys, row, self.spec.keys)) for row in range(GROUP)]
                for row, leaf in enumerate(self._leaves(descents, levels)):
                    self._vote(leaf, group * GROUP + row, tree.target)

    def _rows_alone(self, group: Value, count: Value, keys: Value) -> None:
        """The first rows of a group, each through several trees at once."""
        f = self.f
        with f.loop(0, self.a.tree_count, CHAINS) as number:
            trees = [self._tree(number + chain) for chain in range(CHAINS)]
            levels = f.variable(trees[0].depth)
            for tree in trees[1:]:
                levels.set(f.maximum(levels.get(), tree.depth))
            with f.loop(0, count) as row:
                own_keys = f.address(keys, row, self.spec.keys)
                leaves = self._leaves([_Descent(tree.root, own_keys) for tree in trees], levels)
                for leaf, tree in zip(leaves, trees):
                    self._vote(leaf, group * GROUP + row, tree.target)

    # --- the descent

    def _leaves(self, descents: Sequence[_Descent], levels: Variable) -> list[Value]:
        """Follow descents until all have reached leaves; returns the addresses of these.

        The first `levels` levels are descended without a test for leaves. The CPU predicts a loop whose length rarely changes, so the next
        descents begin before these have ended. `levels` grows where it does not suffice.
        """
        f = self.f
        places = [f.variable(0, I64) for _ in descents]
        with f.loop(0, levels.get()):
            self._descend(descents, places)
        with f.while_() as going:
            going.leave_if(self._all_ended(descents, places))
            self._descend(descents, places)
            self._descend(descents, places)
            levels.set(levels.get() + 1)
        return [self._record(descent.root, place.get()) for descent, place in zip(descents, places)]

    def _descend(self, descents: Sequence[_Descent], places: Sequence[Variable]) -> None:
        """One level down, on all descents side by side."""
        for descent, place in zip(descents, places):
            place.set(self._step(descent, place.get()))

    def _step(self, descent: _Descent, place: Value) -> Value:
        """The place of the child to which a row goes: the left one if its key is at most the record's, else the right one behind it."""
        f, type = self.f, self.spec.keys
        column, child = self._word(descent.root, place)
        key = f.load(f.address(descent.keys, column, I8), 0, type)
        return child + f.convert(f.load(self._record(descent.root, place), 0, type) < key, I64)

    def _all_ended(self, descents: Sequence[_Descent], places: Sequence[Variable]) -> Value:
        """Whether all are at leaves. Only the records of leaves have the flag's bit in their column."""
        f = self.f
        together = f.const(I64, -1)
        for descent, place in zip(descents, places):
            together = together & self._word(descent.root, place.get())[0]
        return (together & (self.a.flag * (GROUP * self.spec.keys.bytes))) != 0

    def _record(self, root: Value, place: Value) -> Value:
        return self.f.address(root, place * self.spec.record_bytes, I8)

    def _word(self, root: Value, place: Value) -> tuple[Value, Value]:
        """A record's column, in bytes, and the place of its left child."""
        f = self.f
        record = self._record(root, place)
        if self.spec.narrow:
            word = f.load(record, 1, U32)
            return f.convert(word & 0xFFFF, I64), f.convert(word >> 16, I64)
        return f.convert(f.load(record, 2, I32), I64), f.convert(f.load(record, 3, I32), I64)
