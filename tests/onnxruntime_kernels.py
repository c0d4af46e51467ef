"""The table of onnxruntime's CPU kernels (`runtime/saving/onnxruntime_kernels.txt`), made from the installed onnxruntime.

`python -m tests.onnxruntime_kernels` writes it anew; a test compares.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from sardonyx.runtime.saving import portable

Constraints = dict[str, frozenset[str]]
OPEN = 2**31 - 1
HEADER = """\
# CPU kernels of onnxruntime {version}: domain, op, versions of the op, and the types behind each type string.
# A line that begins with = gives a set of types a number. An open range of versions means its first version alone.
"""


def listed() -> dict[tuple[str, str, int, int], list[Constraints]]:
    """What onnxruntime itself lists, for its default provider."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    found: dict[tuple[str, str, int, int], list[Constraints]] = {}
    for one in state.get_all_opkernel_def():
        if one.provider == "CPUExecutionProvider":
            since, until = one.version_range
            key = "" if one.domain == "ai.onnx" else one.domain, one.op_name, since, until
            found.setdefault(key, []).append({name: frozenset(types) for name, types in one.type_constraints.items()})
    return {key: _merged(kernels) for key, kernels in found.items()}


def _merged(kernels: list[Constraints]) -> list[Constraints]:
    """Kernels that differ in one type string alone as one."""
    kernels = list(kernels)
    while True:
        for a, b in combinations(kernels, 2):
            different = [name for name in {*a, *b} if a.get(name) != b.get(name)]
            if len(different) <= 1 and a.keys() == b.keys():
                kernels.remove(a)
                kernels.remove(b)
                kernels.append({name: a[name] | b[name] for name in a})
                break
        else:
            return kernels


def text() -> str:
    """The table as the package keeps it."""
    import onnxruntime

    sets: dict[frozenset[str], int] = {}
    lines = []
    for (domain, op, since, until), kernels in sorted(listed().items()):
        spelled = sorted(
            ";".join(f"{name}={sets.setdefault(types, len(sets))}" for name, types in sorted(kernel.items()))
            for kernel in kernels
        )
        lines.append(f"{domain}:{op} {since}-{'' if until == OPEN else until} {' '.join(spelled)}".rstrip())
    numbered = [f"={number} {' '.join(sorted(types))}" for types, number in sets.items()]
    return HEADER.format(version=onnxruntime.__version__) + "\n".join([*numbered, *lines]) + "\n"


if __name__ == "__main__":
    Path(portable.TABLE).write_text(text())
