"""`get_all_opkernel_def`: which ops the CPU provider has kernels for, as the original's compiled module tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from sardonyx.capi.schemadef import all_signatures
from sardonyx.ops.entries import NEWEST
from sardonyx.ops.signatures import Signature, types_of
from sardonyx.providers.cpu.table import cpu
from sardonyx.runtime.preparation.providers import get_available_providers

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class KernelDef:
    """A kernel: for an op, in a range of versions, with the types that it takes."""

    op_name: str
    domain: str
    provider: str
    version_range: tuple[int, int]
    type_constraints: Mapping[str, Sequence[str]]


def get_all_opkernel_def() -> list[KernelDef]:
    """The kernels of the CPU provider: one for each version of an op, with all of its types."""
    cpu.load_all()
    definitions = []
    for _, versions in groupby(all_signatures(), key=lambda signature: (signature.domain, signature.name)):
        known = list(versions)
        ends = [later.since_version - 1 for _, later in pairwise(known)] + [NEWEST]
        for signature, end in zip(known, ends, strict=True):
            definitions += _definitions(signature, end)
    return definitions


def _definitions(signature: Signature, end: int) -> list[KernelDef]:
    entries = [entry for entry in cpu.candidates(signature.domain, signature.name) if entry.covers(signature.since_version)]
    found = []
    for entry in entries:
        narrowed = {name: types_of(types) for name, types in entry.constraints.items()}
        types = {name: sorted(all & narrowed.get(name, all)) for name, all in signature.constraints.items()}
        found.append(KernelDef(signature.name, signature.domain, CPU, (signature.since_version, end), types))
    return found


def get_registered_ep_kernel_defs(ep_name: str) -> list[KernelDef]:
    """The kernels of a provider."""
    if ep_name not in get_available_providers():
        raise RuntimeError(
            f"No devices found for EP '{ep_name}'. The providers here are {', '.join(get_available_providers())}."
        )
    return get_all_opkernel_def() if ep_name == CPU else []
