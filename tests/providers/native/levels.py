"""Feature sets under which tests of quantized kernels run: those of this CPU, and products of bytes without VNNI's instruction."""

from __future__ import annotations

import pytest

from sardonyx.compiler.jit import jit
from sardonyx.compiler.products import Product, integers
from sardonyx.compiler.target import X86_LEVELS, Target
from sardonyx.compiler.types import I8, I32, U8, Type
from sardonyx.providers.native import provider
from sardonyx.providers.native.kernels.quantize import operands
from tests.compiler.functions import levels

BYTES = "bytes"
"""Products of bytes on a CPU that has no instruction for them: all that surrounds it is the same."""
EVERY = [*levels(), BYTES]


def use_level(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Compile for a feature set."""
    target = X86_LEVELS.get(level, jit().target)
    monkeypatch.setattr(provider, "jit", lambda: jit(target))
    if level == BYTES:
        monkeypatch.setattr(operands, "integers", _bytes)


def _bytes(target: Target, column: Type = I8) -> Product:
    return Product(U8, I8, I32, 4) if column == I8 else integers(target, column)
