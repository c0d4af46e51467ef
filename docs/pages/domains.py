"""The domains of ops that generated pages tell of."""

from __future__ import annotations

from sardonyx import ops
from sardonyx.ops import schemas
from sardonyx.ops.table import inferences


def domains() -> list[str]:
    """All domains whose ops the package knows; those that a program adds for itself do not count."""
    ops.load_families()
    own = {entry.domain for entry in inferences if entry.function.__module__.startswith("sardonyx.")}
    return sorted(domain for domain in map(schemas.normal_domain, own) if schemas.operators(domain))
