"""What runs at each level, in this order. A rule or pass that is not listed here does not run."""

from __future__ import annotations

from sardonyx.optimizer.pipeline import Level, Stage

LEVELS: dict[Level, list[Stage]] = {
    Level.BASIC: [],
    Level.EXTENDED: [],
    Level.LAYOUT: [],
    Level.ALL: [],
}
