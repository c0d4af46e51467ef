"""The table on which inference functions register themselves, with the facts about their ops."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from sardonyx.ir import Node
from sardonyx.ops import schemas
from sardonyx.ops.entries import NEWEST, Entry, Table
from sardonyx.ops.facts import NO_FACTS, Facts
from sardonyx.ops.signatures import Signature
from sardonyx.startup.parameters import Parameters
from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Inference(Entry):
    """An inference function with what it asks for."""

    function: Callable[..., Any]
    parameters: frozenset[str]
    takes_everything: bool
    facts: Facts = NO_FACTS


inferences: Table[Inference] = Table("inference functions", schemas.FAMILIES)


def load_families() -> None:
    """Import all modules of this package once, for who wants to see all ops; signatures and inference functions register themselves."""
    schemas.FAMILIES.load_all()


def infer(
    *ops: str, domain: str = "", since: int = 1, until: int = NEWEST, **facts: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as the type and shape inference of `ops` for op versions `since`…`until`, with what `Facts` can say."""
    known = Facts(**facts) if facts else NO_FACTS

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        asks = Parameters.of(function)
        for op in ops:
            inferences.add(Inference(domain, op, since, until, function, asks.names, asks.takes_everything, known))
        return function

    return register


def in_domain(domain: str) -> Callable[..., Callable[[Callable[..., Any]], Callable[..., Any]]]:
    """The decorator `infer` for another domain than ONNX's own."""
    return lambda *ops, **keywords: infer(*ops, domain=domain, **keywords)


def find_inference(signature: Signature) -> Inference | None:
    """The inference function for an op version, if one is registered."""
    local = _session.get()
    if id(signature) in local:
        return local[id(signature)]
    return inferences.entry_of(signature.domain, signature.name, signature.since_version)


def facts_of(node: Node) -> Facts:
    """What is true of a node's op in its version."""
    signature = schemas.find(node.domain, node.op_type, node.version)
    entry = None if signature is None else find_inference(signature)
    return NO_FACTS if entry is None else entry.facts


_session: ContextVar[Mapping[int, Inference | None]] = ContextVar("_session", default=MappingProxyType({}))
"""Inference of signatures that only the session knows which is being prepared in this thread, by the signature's identity."""


@contextlib.contextmanager
def also_known(inferences: Iterable[tuple[Signature, Callable[..., Any] | None]]) -> Iterator[None]:
    """Let this thread find signatures that nobody else knows, with their inference: those of a session's custom ops."""
    pairs = list(inferences)
    functions = {
        id(signature): None if function is None else _inference_of(signature, function) for signature, function in pairs
    }
    token = _session.set({**_session.get(), **functions})
    try:
        with schemas.also_known(signature for signature, _ in pairs):
            yield
    finally:
        _session.reset(token)


def _inference_of(signature: Signature, function: Callable[..., Any]) -> Inference:
    """The entry of a function that holds for one signature."""
    asks, since = Parameters.of(function), signature.since_version
    return Inference(signature.domain, signature.name, since, since, function, asks.names, asks.takes_everything)
