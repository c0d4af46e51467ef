"""An attention on its way to kernels: the form, which shapes code, and all operands, which become the arguments of `operands`."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim
from sardonyx.providers.native.program.steps import At
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import dataclass

LARGEST_SIZE = 512
"""Of a head's vectors: the scratch memory grows with it."""
LARGEST_OPEN_SIZE = 256
"""The same where a run tells the size: the scratch memory is for the largest one."""
ENDLESS = 1 << 40
"""How far a query sees that sees everything."""


@dataclass(frozen=True)
class Mask:
    """Numbers added to scores (floats), keys that are seen (bool), or keys whose scores get no filter value (integers above 0)."""

    type: Type
    per_query: bool
    is_final: bool = False
    """Whether -inf hides a key even where its score is not a number."""


@dataclass(frozen=True)
class Form:
    """What of an attention shapes its code; all sizes come at run time but those of a head's vectors, if they are known before."""

    query: Type
    key: Type
    value: Type
    output: Type
    size: int | None
    """Of vectors of queries and keys; None if a run tells it."""
    value_size: int | None
    masks: tuple[Mask, ...] = ()
    ranges: int = 0
    """1: keys from an end on, by batch, get the filter value; 2: those before a start too."""
    bounded: bool = False
    """Whether a query sees only keys in some range around its position, or of its batch's length."""
    lengths: Type | None = None
    """The type of the numbers that tell for each batch how many keys there are."""
    capped: bool = False
    sink: Type | None = None
    """The type of the scores of nothing, one for each head."""
    empty_is_zero: bool = False
    """Whether the result is 0, not NaN, for a query that sees no key."""
    ragged: bool = False
    """Whether the lengths also tell how many rows of the past each batch has, so that new ones follow these."""

    @property
    def room(self) -> tuple[int, int]:
        """How large vectors of queries and values may be."""
        return self.size or LARGEST_OPEN_SIZE, self.value_size or LARGEST_OPEN_SIZE

    @property
    def computed(self) -> Type:
        return self.query.computed

    @property
    def has_filter(self) -> bool:
        """Whether scores of some keys get a filter value."""
        return bool(self.ranges) or any(mask.type.is_integer for mask in self.masks)


@dataclass(frozen=True)
class Bounds:
    """Query q of a batch stands at position `offset` + q among the keys and sees those from `left` before it to `right` behind it."""

    offset: Dim = 0
    left: Dim = ENDLESS
    right: Dim = ENDLESS
    lengths: At | None = None
    """How many keys each batch has, less `more`."""
    more: Dim = 0
    from_length: Dim = 0
    """1 if the last query of a batch stands at its last key, 0 if `offset` counts."""


ANYWHERE = Bounds()


@dataclass(frozen=True)
class Attention:
    """All operands of one attention. Views are (batch, heads, sequence, size); their innermost stride is 1."""

    form: Form
    query: View
    key: View
    value: View
    output: View
    keys: Dim
    """How many keys there are, those of the past included."""
    scale: float | None
    """What products are multiplied with; None for one by the square root of the size of a head."""
    masks: Sequence[View] = ()
    ranges: At | None = None
    filter_value: float = 0.0
    bounds: Bounds = ANYWHERE
    cap: float = 0.0
    sink: At | None = None
    past: tuple[View, View] | None = None
    """Keys and values that come before `key` and `value`."""
    present: tuple[View | None, View | None] = (None, None)
    """Where all keys and all values are wanted."""

    @property
    def queries(self) -> Dim:
        return self.query.shape[2]

    @property
    def sizes(self) -> Dim:
        """Of a query and a value together."""
        return self.query.shape[3] + self.value.shape[3]
