"""The table on which inference functions register themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from sardonyx.ops import schemas
from sardonyx.ops.schemas import normal_domain
from sardonyx.ops.signatures import Signature
from sardonyx.parameters import Parameters
from sardonyx.records import dataclass

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
        entry = inference_of(function, since, until)
        for op in ops:
            known = _table.setdefault((domain, op), [])
            if any(max(since, other.since) <= min(until, other.until) for other in known):
                raise ValueError(f"two inference functions for {domain}:{op} overlap")
            known.append(entry)
        return function

    return register


def inference_of(function: Callable[..., Any], since: int = 1, until: int = NEWEST) -> Inference:
    """An inference function with what it asks for."""
    asks = Parameters.of(function)
    return Inference(function, since, until, asks.names, asks.takes_everything)


def in_domain(domain: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The decorator `infer` for another domain than ONNX's own."""
    return lambda *ops, **keywords: infer(*ops, domain=domain, **keywords)


def find_inference(signature: Signature) -> Inference | None:
    """The inference function for an op version, if one is registered."""
    local = _session.get()
    if id(signature) in local:
        return local[id(signature)]
    for entry in _table.get((normal_domain(signature.domain), signature.name), ()):
        if entry.since <= signature.since_version <= entry.until:
            return entry
    return None


def remove_inference(domain: str, op: str, since: int | None = None) -> None:
    """Forget an op's inference, all of it or the one that begins at `since`; for tests and for custom ops that are withdrawn."""
    _table[domain, op] = [entry for entry in _table.get((domain, op), ()) if since is not None and entry.since != since]


_session: ContextVar[Mapping[int, Inference | None]] = ContextVar("_session", default=MappingProxyType({}))
"""Inference of signatures that only the session knows which is being prepared in this thread, by the signature's identity."""


@contextlib.contextmanager
def also_known(inferences: Iterable[tuple[Signature, Callable[..., Any] | None]]) -> Iterator[None]:
    """Let this thread find signatures that nobody else knows, with their inference: those of a session's custom ops."""
    pairs = list(inferences)
    found = {id(signature): None if function is None else inference_of(function) for signature, function in pairs}
    token = _session.set({**_session.get(), **found})
    try:
        with schemas.also_known(signature for signature, _ in pairs):
            yield
    finally:
        _session.reset(token)
