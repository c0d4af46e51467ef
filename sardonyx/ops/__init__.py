"""What an op is: its signature by version (`schemas`), and its type and shape inference (one file per family)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sardonyx.ops.inference import infer
    from sardonyx.ops.table import load_families

__all__ = ["infer", "load_families"]


def __getattr__(name: str) -> Any:
    """What is asked for, from its module: a session of a model that was prepared before needs neither."""
    if name == "infer":
        from sardonyx.ops import inference

        return inference.infer
    if name == "load_families":
        from sardonyx.ops import table

        return table.load_families
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
