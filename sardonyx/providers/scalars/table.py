"""The table of scalar functions: what an elementwise op computes for one element.

    @scalar("Sigmoid")
    def sigmoid(X):
        return 1 / (1 + exp(-X))

Operands come by position, attributes by name if the function asks for them; `type` is the element type of the result. Values are those of
the compiler, scalars or vectors alike; floats of 16 bits come as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import Node
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.startup.families import Families
from sardonyx.startup.parameters import Parameters
from sardonyx.startup.records import dataclass

Claims = Callable[[Node], bool]
Trailing = Callable[[Node, int], int]

SINGLES = frozenset({dtypes.float16, dtypes.bfloat16, dtypes.float32})
"""Types whose values are computed in float32."""
FLOATS = SINGLES | {dtypes.float64}
INTEGERS = dtypes.INTS - dtypes.SUB_BYTE_INTS


@dataclass(frozen=True)
class Scalar(Entry):
    """A scalar function and the nodes that it serves."""

    function: Callable[..., Any]
    types: frozenset[ElementType] | None
    """Element types of the first operand that it is right for; None for all that generated code knows."""
    parameters: frozenset[str]
    positional: tuple[str, ...]
    """Names of the operands as the spec has them."""
    variadic: bool
    claims: Claims | None
    """Asked last, whether it serves a node: of divisions of integers say those that cannot fail."""
    case: str
    trailing: Trailing | None = None
    """How many axes of size 1 an operand gets behind its own before it broadcasts, by its number. None if none ever does."""
    divisor: int | None = None
    """The position of an operand in which a 0 is an error."""
    varies: bool = False
    """Whether constants of one element differ from node to node, as scales do: they are loaded, so that nodes share their code."""

    def overlaps(self, other: Entry) -> bool:
        assert isinstance(other, Scalar)
        return super().overlaps(other) and (self.types is None or other.types is None or bool(self.types & other.types))


scalars: Table[Scalar] = Table("scalar functions", Families("sardonyx.providers.scalars", "scalars"))


def scalar(
    *ops: str,
    domain: str = "",
    since: int = 1,
    until: int = NEWEST,
    types: Collection[ElementType] | None = None,
    claims: Claims | None = None,
    case: str = "",
    trailing: Trailing | None = None,
    divisor: int | None = None,
    varies: bool = False,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the function of one element of `ops`. Keyword-only parameters are attributes, and `type`. `case` is that of `Entry`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        asks = Parameters.of(function)
        keywords = frozenset(asks.keyword_only)
        narrowed = None if types is None else frozenset(types)
        for op in ops:
            scalars.add(
                Scalar(
                    *(domain, op, since, until, function, narrowed, keywords, asks.positional, asks.takes_more, claims, case),
                    *(trailing, divisor, varies),
                )
            )
        return function

    return register


def unlisted(function: Callable[..., Any]) -> Scalar:
    """A function of one element that is no op, for kernels to apply to their own results."""
    asks = Parameters.of(function)
    positional, keywords = asks.positional, frozenset(asks.keyword_only)
    return Scalar("", function.__name__, 1, NEWEST, function, None, keywords, positional, asks.takes_more, None, "")


def newest_scalar(op: str, domain: str = "", attributes: Collection[str] = (), dtype: ElementType = dtypes.float32) -> Scalar:
    """The function of an op's newest version that has these attributes, for a type: kernels apply it to their own results."""
    fitting = (
        entry
        for entry in scalars.candidates(domain, op)
        if not entry.case and entry.parameters.issuperset(attributes) and (entry.types is None or dtype in entry.types)
    )
    return max(fitting, key=lambda entry: entry.until)


_names: dict[str, Scalar] = {}


def name_of(entry: Scalar) -> str:
    """A name by which `scalar_function` finds an entry again: it stands in chains, which are compared and hashed."""
    module = entry.function.__module__
    name = f"{module}.{entry.function.__qualname__}"
    if not module.startswith("sardonyx."):  # somebody else's function may be another one tomorrow
        name += f" at {id(entry):#x}"
    _names[name] = entry
    return name


def scalar_function(name: str) -> Callable[..., Any]:
    """The function behind a name, called with operands, `type` and attributes; it gets those that it asks for."""
    entry = _names[name]

    def call(*operands: Any, **keywords: Any) -> Any:
        return entry.function(*operands, **{key: value for key, value in keywords.items() if key in entry.parameters})

    return call
