"""Text ops of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import string
from sardonyx.ir import dim
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

define(
    "com.microsoft",
    "Tokenizer",
    1,
    "(X: T, *, mark: int, mincharnum: int, pad_value: string, separators: strings?, tokenexp: string?) -> (Y: T)",
    T={string},
)


@in_domain("com.microsoft")("Tokenizer")
def tokenizer(X):
    """The longest row decides how many tokens there are. An input without elements comes out as it is."""
    shape = X.require_rank(1, 2, name="X")
    if shape is None:
        return None
    if 0 in shape:
        return shape
    return (*shape, dim.fresh())
