"""The audit of generated code: for every op with a lowering, the numbers of a model or a feed that could reach an address or a loop bound.

An entry is a small node that runs in native code, and tells for each of its whole numbers where it is checked. `docs/safety.md` shows the
table, `test_fuzz_edges.py` holds it complete and feeds hostile numbers to each operand in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sardonyx.startup.records import dataclass, field

CHECKS = {
    "inference": "refused when the session is made, or before the run where the number is fed",
    "status": "the kernel compares it with the size that it points into, and sets the status word",
    "sizes": "becomes a size of the result: memory is laid out from it, a size that contradicts another goes to NumPy",
    "settled": "a step of the run makes it a size, unless it is negative or there is no room; then NumPy or a longer run takes it",
    "claims": "native code takes the node only with a constant in range; NumPy computes or refuses all others",
    "clamped": "cut to what the tensor has, for more would change nothing; what points beyond a table of blocks gives zeros",
    "flag": "chooses code; nothing is addressed by it",
    "data": "a number that is computed with or compared, like any other element",
}
"""Where a number is checked: word by word what `docs/safety.md` explains."""


@dataclass(frozen=True)
class Entry:
    """One op of the lowering table with operands that native code takes as they are."""

    op: str
    inputs: Mapping[str, Any]
    """Arrays by the spec's names, in order; None for one that is left out, names of captured ones for a sequence of them."""
    checks: Mapping[str, str]
    """Operand: one of CHECKS."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    opset: int = 21
    outputs: int = 1
    constants: Sequence[str] = ()
    """Inputs that are initializers unless a case says otherwise."""
    captured: Sequence[str] = ()
    """Inputs that only graphs inside of the node read, or that sequences are made of."""
    behind: str = ""
    """The op that makes a tensor of the first output, if that is none."""

    @property
    def name(self) -> str:
        return f"{self.domain}:{self.op}" if self.domain else self.op


ENTRIES: list[Entry] = []

CONTRIB, ML, TRAINING = "com.microsoft", "ai.onnx.ml", "ai.onnx.preview.training"


def audit(
    ops: str,
    inputs: Mapping[str, Any],
    checks: str = "",
    *,
    domain: str = "",
    opset: int = 21,
    outputs: int = 1,
    constants: str = "",
    captured: str = "",
    behind: str = "",
    **attributes: Any,
) -> None:
    """Enter ops, names with spaces between them; `checks` reads `axis=inference indices=status`."""
    told = dict(item.split("=") for item in checks.split())
    for op in ops.split():
        names = constants.split(), captured.split()
        ENTRIES.append(Entry(op, inputs, told, attributes, domain, opset, outputs, *names, behind))


def floats(*shape: int) -> np.ndarray:
    """Numbers of both signs that are none of them equal."""
    count = int(np.prod(shape, dtype=np.int64))
    return (((np.arange(count) * 7919 % 1009) / 504 - 1).astype(np.float32)).reshape(shape)


def ints(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int64)


def int32s(*numbers: Any) -> np.ndarray:
    return np.array(numbers, np.int32)


def scalar(number: int) -> np.ndarray:
    return np.array(number, np.int64)
