"""Embeddings: words, positions and segments looked up, added and normalized become one EmbedLayerNormalization."""

from __future__ import annotations

from sardonyx import dtypes
from sardonyx.ir import Node, Value
from sardonyx.ir.dim import minimum
from sardonyx.ops.builder import Builder
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.values import dtype_of, has_one_output, rank_of, shape_of
from sardonyx.startup.records import dataclass

SUM = "Add(Gather<axis=0>(a, ids_a), Gather<axis=0>(b, ids_b))"


@dataclass(frozen=True)
class _Lookup:
    table: Value
    ids: Value


@rule("rows = Gather<axis=0>(table, ids); Shape<start=start?, end=end?>(rows)", keep=("rows",), name="EmbedLayerNormFusion")
def shape_of_lookup(
    op: Builder, table: Value, ids: Value, rows: Value, start: int | None = None, end: int | None = None
) -> Answer:
    """Ids tell the shape of the rows that they look up: positions that are counted by it need no row."""
    sizes = shape_of(table)
    if sizes is None or len(sizes) != 2 or not isinstance(sizes[1], int) or start or end is not None:
        return skip("the table has not two axes, or a part of the shape is asked for")
    if not any(user.op_type == "Add" for user in rows.users):
        return skip("no rows are added")
    return op.Concat(op.Shape(ids), op.constant([sizes[1]]), axis=0)


@rule(
    f"s = Add({SUM}, Gather<axis=0>(c, ids_c)); y = norm:LayerNormalization<axis=axis, epsilon=epsilon>(s, gamma, beta)",
    f"s = {SUM}; y = norm:LayerNormalization<axis=axis, epsilon=epsilon>(s, gamma, beta)",
    keep=("s",),
    name="EmbedLayerNormFusion",
)
def embed_layer_normalization(
    op: Builder,
    a: Value,
    ids_a: Value,
    b: Value,
    ids_b: Value,
    gamma: Value,
    beta: Value,
    axis: int,
    epsilon: float,
    norm: Node,
    s: Value,
    c: Value | None = None,
    ids_c: Value | None = None,
) -> Answer:
    """Two or three tables, of which one is looked up by position: which of the others is words' and which segments' does not matter.

    Their sum is there for others, too: where blocks begin with their normalization, it goes around it.
    """
    lookups = [_Lookup(a, ids_a), _Lookup(b, ids_b)] + ([_Lookup(c, ids_c)] if c is not None and ids_c is not None else [])
    if axis not in (-1, 2) or not has_one_output(norm):
        return skip("it normalizes more than features, or its statistics are used")
    if (
        any(rank_of(lookup.table) != 2 or rank_of(lookup.ids) != 2 for lookup in lookups)
        or not rank_of(gamma) == rank_of(beta) == 1
    ):
        return skip("ids have not two axes, or tables have more")
    if {dtype_of(value) for value in (a, b, gamma, beta)} not in ({dtypes.float32}, {dtypes.float16}):
        return skip("onnxruntime takes float and float16 only")
    # sorted by how far a lookup may be from being one of (batch, length): positions come last, and are mostly the same for all batches
    words, *segments, positions = sorted(lookups, key=lambda lookup: shape_of(lookup.ids)[0] == 1)  # type: ignore[index]
    if any(shape_of(lookup.ids) != shape_of(words.ids) for lookup in segments) or not _follows(positions.ids, words.ids):
        return skip("shapes of ids may differ")
    is_used = s.is_graph_output or any(user is not norm for user in s.users)
    if is_used and not gamma.producer is beta.producer is None:
        return skip("scale or bias may be computed from the sum")
    segment = segments[0] if segments else None
    result, _, *total = op.node(
        "EmbedLayerNormalization",
        _as_int32(op, words.ids),
        None if segment is None else _as_int32(op, segment.ids),
        words.table,
        positions.table,
        None if segment is None else segment.table,
        gamma,
        beta,
        None,
        _as_int32(op, positions.ids),
        outputs=3 if is_used else 2,
        domain="com.microsoft",
        epsilon=epsilon,
    )
    return {"y": result, "s": total[0]} if total else result


def _follows(positions: Value, ids: Value) -> bool:
    """Whether positions are those of the ids, for each batch or for all, so that their sum is no larger than the ids' own lookup."""
    sizes, wanted = shape_of(positions), shape_of(ids)
    if sizes is None or wanted is None or sizes[0] not in (1, wanted[0]):
        return False
    return sizes[1] == wanted[1] or (sizes[1] != 1 and minimum(sizes[1], wanted[1]) == sizes[1])


def _as_int32(op: Builder, ids: Value) -> Value:
    if dtype_of(ids) is dtypes.int32:
        return ids
    cast: Value = op.Cast(ids, to=dtypes.int32.code)
    return cast
