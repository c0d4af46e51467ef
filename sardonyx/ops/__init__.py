"""What an op is: its signature by version (`schemas`), and its type and shape inference (one file per family)."""

from __future__ import annotations

from sardonyx.ops.inference import infer
from sardonyx.ops.table import load_families

__all__ = ["infer", "load_families"]
