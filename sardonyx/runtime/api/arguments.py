"""Which Python values a typed argument takes: the conversions of the original's binding, and the TypeError that it raises otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def mismatch(function: str, wanted: str, *arguments: Any) -> TypeError:
    """The error of a call with arguments of the wrong types."""
    kind = "constructor" if function == "__init__" else "function"
    return TypeError(
        f"{function}(): incompatible {kind} arguments. The following argument types are supported:\n"
        f"    1. {wanted}\n\nInvoked with: {', '.join(map(repr, arguments))}"
    )


def integer(value: Any, function: str = "", bits: int = 32) -> int:
    """Anything that converts to an integer and fits, except text and Python's floats."""
    if isinstance(value, float) or not (hasattr(value, "__int__") or hasattr(value, "__index__")):
        raise mismatch(function, f"(value: int of {bits} bits)", value)
    number = int(value)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise mismatch(function, f"(value: int of {bits} bits)", value)
    return number


def boolean(value: Any, function: str = "") -> bool:
    """Numbers and None count as truth values, text and containers do not."""
    if value is None:
        return False
    if not hasattr(type(value), "__bool__"):
        raise mismatch(function, "(value: bool)", value)
    return bool(value)


def text(value: Any, function: str = "") -> str:
    """A string, or bytes that are one in UTF-8; others are not refused, as the original takes any."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    raise mismatch(function, "(value: str)", value)


def texts(value: Any, function: str) -> dict[str, str]:
    """A mapping of strings to strings."""
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for pair in value.items() for text in pair):
        raise mismatch(function, "(options: Mapping[str, str])", value)
    return dict(value)
