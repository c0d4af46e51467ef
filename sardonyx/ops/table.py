"""The table on which inference functions register themselves."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sardonyx.ops.schemas import Signature, normal_domain

NEWEST = 2**31 - 1


@dataclass(frozen=True)
class Inference:
    """An inference function with the versions it holds for."""

    function: Callable[..., Any]
    since: int
    until: int
    parameters: frozenset[str]
    takes_everything: bool


_table: dict[tuple[str, str], list[Inference]] = {}


def infer(
    *ops: str, domain: str = "", since: int = 1, until: int = NEWEST
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the type and shape inference of `ops` for op versions `since`…`until`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        names = frozenset(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)
        entry = Inference(function, since, until, names, any(p.kind is p.VAR_KEYWORD for p in parameters))
        for op in ops:
            known = _table.setdefault((domain, op), [])
            if any(max(since, other.since) <= min(until, other.until) for other in known):
                raise ValueError(f"two inference functions for {domain}:{op} overlap")
            known.append(entry)
        return function

    return register


def in_domain(domain: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The decorator `infer` for another domain than ONNX's own."""
    return lambda *ops, **keywords: infer(*ops, domain=domain, **keywords)


def find_inference(signature: Signature) -> Inference | None:
    """The inference function for an op version, if one is registered."""
    for entry in _table.get((normal_domain(signature.domain), signature.name), ()):
        if entry.since <= signature.since_version <= entry.until:
            return entry
    return None


def remove_inference(domain: str, op: str) -> None:
    """Forget an op's inference; for tests and for custom ops that are withdrawn."""
    _table.pop((domain, op), None)
