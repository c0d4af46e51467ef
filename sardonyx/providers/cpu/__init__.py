"""The NumPy provider: a kernel for every op, every version and every type; the measure of the other providers."""

from __future__ import annotations

from sardonyx.providers.cpu.table import cpu

load_kernels = cpu.load_all
"""Import all kernel modules of this package; otherwise they are imported when a node wants one of their kernels."""

__all__ = ["cpu", "load_kernels"]
