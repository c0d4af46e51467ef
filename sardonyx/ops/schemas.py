"""Signatures of ops by version: which one holds for a node. Type and shape inference, partition and kernel matching ask `find`.

The standard domains come from the table in `standard`; opsets that it does not reach come from the `onnx` package, if that is
installed and newer. Other domains come from `define`, whose signature is a line of text; its module is imported when somebody asks for
the op.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType

from sardonyx.dtypes import ElementType
from sardonyx.ir import opsets
from sardonyx.ops import signatures, standard
from sardonyx.ops.signatures import Signature
from sardonyx.startup.families import Families
from sardonyx.startup.locks import Lock
from sardonyx.startup.records import replace

STANDARD_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview.training", "ai.onnx.preview")
NHWC_DOMAIN = "com.ms.internal.nhwc"
"""Ops of the default domain whose first input and output have their channels last; the signatures are the same."""


def normal_domain(domain: str) -> str:
    """The default domain has two spellings; we use the empty one."""
    return "" if domain == "ai.onnx" else domain


FAMILIES = Families("sardonyx.ops", "ops", but="sardonyx.ops.gradients")
"""The modules that define ops and say which types and shapes follow. Gradients wait until somebody asks for one."""
_defined: dict[tuple[str, str], dict[int, Signature]] = {}
_unread: dict[tuple[str, str], list[tuple[int, Callable[[], Signature]]]] = {}
"""Signatures that nobody has asked for yet: their versions, and what reads their text."""
_session: ContextVar[Mapping[tuple[str, str], Mapping[int, Signature]]] = ContextVar("_session", default=MappingProxyType({}))
"""Signatures that only the session knows which is being prepared in this thread."""
_lock = Lock()
_found: dict[tuple[str, str, int], Signature] = {}
"""What `find` has found among signatures that everybody knows."""


def _forget_found() -> None:
    """What everybody knows has changed."""
    _found.clear()
    newest_version.cache_clear()
    _newest_inputs.cache_clear()


def find(domain: str, name: str, version: int) -> Signature | None:
    """The signature of op `name` in force at opset `version`, or None if there is none."""
    if _session.get():
        return _find(domain, name, version)
    signature = _found.get((domain, name, version))
    if signature is None:
        signature = _find(domain, name, version)
        if signature is not None:
            _found[domain, name, version] = signature
    return signature


def _find(domain: str, name: str, version: int) -> Signature | None:
    domain = normal_domain(domain)
    if version > opsets.NEWEST.get(domain, version) and version > _learn_newer(domain):
        return None
    history, newest = versions(domain, name), -1
    for since in history:
        if newest < since <= version:
            newest = since
    return history[newest] if newest >= 0 else None


def versions(domain: str, name: str) -> Mapping[int, Signature]:
    """All signatures of an op by since_version, empty if nobody knows it."""
    if domain == NHWC_DOMAIN:
        return {since: replace(signature, domain=domain) for since, signature in versions("", name).items()}
    local = _session.get().get((domain, name))
    own = _own(domain, name)
    if own is None:
        known = _standard_versions(domain, name)
    else:
        known = {**own, **_standard_versions(domain, name)} if (domain, name) in EXTENDED else own
    return known if local is None else {**known, **local}


def newest_inputs(domain: str, name: str) -> tuple[str, ...]:
    """Names of the inputs of an op's newest version."""
    return (_newest_inputs.__wrapped__ if _session.get() else _newest_inputs)(domain, name)


@functools.cache
def _newest_inputs(domain: str, name: str) -> tuple[str, ...]:
    history = versions(domain, name)
    return history[max(history)].operand_names


EXTENDED = frozenset({("", "LayerNormalization")})
"""Standard ops of which onnxruntime has versions of its own, before the first standard one."""


@functools.cache
def newest_version(domain: str) -> int | None:
    """The highest opset of `domain` that we know, None for an unknown domain."""
    domain = normal_domain(domain)
    _load_all(domain)
    own = [since for (other, _), history in _defined.items() if other == domain for since in history]
    own += [since for (other, _), waiting in _unread.items() if other == domain for since, _ in waiting]
    return max([*own, *([opsets.NEWEST[domain]] if domain in opsets.NEWEST else [])], default=None)


def opset_for(domain: str, name: str) -> int:
    """The opset of `domain` that a model imports for the sake of one op."""
    return opsets.NEWEST.get(domain) or max(versions(domain, name), default=1)


def operators(domain: str) -> list[str]:
    """Names of all ops of a domain."""
    _load_all(domain)
    return sorted(standard.operators(domain) | {name for (other, name) in (*_defined, *_unread) if other == domain})


def _load_all(domain: str) -> None:
    """Make all ops of a domain known. Those of the standard are."""
    if domain not in STANDARD_DOMAINS:
        FAMILIES.load_all()


# --- the standard domains

_newer: dict[tuple[str, str], Mapping[int, Signature]] = {}
"""Ops of which the onnx package knows versions beyond our table, with all their versions."""


def _standard_versions(domain: str, name: str) -> Mapping[int, Signature]:
    return _newer.get((domain, name)) or standard.versions(domain, name)


@functools.cache
def _learn_newer(domain: str) -> int:
    """Take over what an installed onnx package knows of opsets beyond our table; returns the newest that is known then."""
    from sardonyx.ops import onnx_schemas

    known = opsets.NEWEST[domain]
    try:
        newest = onnx_schemas.newest_opset(domain)
    except ImportError:
        return known
    for name in onnx_schemas.operators(domain) if newest > known else ():
        fresh = {since: signature for since, signature in onnx_schemas.versions(domain, name).items() if since > known}
        if fresh:
            _newer[domain, name] = {**standard.versions(domain, name), **fresh}
    _forget_found()
    return max(newest, known)


# --- other domains


def define(domain: str, name: str, since_version: int, text: str, **constraints: Iterable[ElementType | str]) -> None:
    """Make an op known that the standard lacks; `signatures.parse` explains the text, which is read when somebody asks for the op."""
    read = functools.partial(signatures.parse, domain, name, since_version, text, **constraints)
    with _lock:
        _unread.setdefault((domain, name), []).append((since_version, read))
        _forget_found()


def add(signature: Signature) -> None:
    """Make a signature known to everybody."""
    _own(signature.domain, signature.name)
    with _lock:
        _add(signature)


def _add(signature: Signature) -> None:
    history = _defined.setdefault((signature.domain, signature.name), {})
    if history.get(signature.since_version, signature) != signature:
        raise ValueError(f"{signature} is defined twice")
    history[signature.since_version] = signature
    _forget_found()


def _own(domain: str, name: str) -> Mapping[int, Signature] | None:
    """What was defined for an op, None if nothing was."""
    if (domain, name) in EXTENDED or not _standard_versions(domain, name):  # onnxruntime has ops of its own in ONNX's domain
        FAMILIES.need(domain, name)
    if (domain, name) in _unread:
        with _lock:
            for _, read in _unread.get((domain, name), ()):
                _add(read())
            _unread.pop((domain, name), None)
    return _defined.get((domain, name))


def undefine(domain: str, name: str, since_version: int | None = None) -> None:
    """Forget what `define` added, all versions or one; for tests and for custom ops that are withdrawn."""
    _own(domain, name)
    with _lock:
        history = _defined.get((domain, name), {})
        for since in list(history) if since_version is None else [since_version]:
            history.pop(since, None)
        if not history:
            _defined.pop((domain, name), None)
        _forget_found()


@contextlib.contextmanager
def also_known(more: Iterable[Signature]) -> Iterator[None]:
    """Let this thread find signatures that nobody else knows: those of a session's custom ops, while it prepares its model."""
    table: dict[tuple[str, str], dict[int, Signature]] = {key: dict(versions) for key, versions in _session.get().items()}
    for signature in more:
        table.setdefault((signature.domain, signature.name), {})[signature.since_version] = signature
    token = _session.set(table)
    try:
        yield
    finally:
        _session.reset(token)
