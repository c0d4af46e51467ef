"""From an attention to steps: its caches, and the kernel for few queries or for many.

Few queries, as when a decoder makes one token, go to `rows`, many to `tile`; where the number is known only at run time
both steps are there and one has no items. The lowerings of the ops call it.
"""

from __future__ import annotations

from sardonyx.ir import Dim, Value, dim
from sardonyx.providers.native.kernels.attention.cache import append_step, contiguous_heads, widened
from sardonyx.providers.native.kernels.attention.form import Attention
from sardonyx.providers.native.kernels.attention.rows import most_queries, rows_step
from sardonyx.providers.native.kernels.attention.tile import tile_step
from sardonyx.providers.native.kernels.attention.views import with_heads_apart
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import replace


def attend(lowerer: Lowerer, attention: Attention) -> None:
    """Add the steps of an attention, and those that write its caches."""
    few = most_queries(attention)
    many = dim.minimum(1, dim.floordiv(attention.queries, few + 1))
    if many != 1:
        rows_step(lowerer, attention, 1 - many)
    if many != 0:
        tile_step(lowerer, _with_whole_keys(lowerer, attention, many), many)


def _with_whole_keys(lowerer: Lowerer, attention: Attention, when: Dim) -> Attention:
    """Keys and values of past and present one after the other, in the type that is computed with.

    Every element of them is spread over lanes for each block of queries: floats of 16 bits are converted once, not each time.
    """
    form, past, present = attention.form, attention.past or (None, None), attention.present
    views = []
    for new, old, kept in zip((attention.key, attention.value), past, present):
        if old is not None or kept is not None:
            rows = attention.keys if kept is None else kept.shape[2]
            kept = kept or contiguous_heads(lowerer, (*new.shape[:2], rows, new.shape[3]), new.type, when)
            append_step(
                lowerer, old, new, kept, bounds=attention.bounds, lengths=form.lengths if form.ragged else None, when=when
            )
            new = kept
        views.append(widened(lowerer, new, when) if new.type.is_narrow_float else new)
    key, value = views
    form = replace(form, key=key.type, value=value.type)
    return replace(attention, key=key, value=value, form=form, past=None, present=(None, None))


def rows_before(
    lowerer: Lowerer, past: tuple[View, View] | None, present: tuple[View | None, View | None], key: View, value: View
) -> Dim:
    """How long the past is; keys and values must be equally long, and all caches of the batch and heads of the new ones."""
    for caches in (past or (), present):
        for cache, new in zip(caches, (key, value)):
            if cache is not None:
                for axis in (0, 1, 3):
                    lowerer.require(cache.shape[axis], new.shape[axis])
    if past is None:
        return 0
    lowerer.require(past[0].shape[2], past[1].shape[2])
    return past[0].shape[2]


def merged_output(lowerer: Lowerer, value: Value, heads: Dim, size: Dim) -> View:
    """An output (batch, sequence, heads·size) as (batch, heads, sequence, size); one of rank 4 is that already."""
    whole = lowerer.output(value)
    if len(whole.shape) == 4:
        lowerer.require(whole.shape[1], heads)
        lowerer.require(whole.shape[3], size)
        return whole
    return with_heads_apart(lowerer, whole, heads, size)
