"""HierarchicalORTModule: for modules that cannot be one graph. ORTModule breaks graphs by itself, so the two are one."""

from __future__ import annotations

from sardonyx.training.ortmodule import ORTModule

__all__ = ["HierarchicalORTModule"]


class HierarchicalORTModule(ORTModule):
    """A module of which parts may stay with torch."""
