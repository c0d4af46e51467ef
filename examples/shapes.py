"""Little pictures of shapes, drawn by formula: what the demo's model was fitted on and what the demo shows it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIZE = 32
Outline = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Which points (x, y) of the plane belong to a shape that fits into the unit circle."""


def _triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    angles = np.deg2rad([270, 30, 150])
    return np.max([np.cos(a) * x + np.sin(a) * -y for a in angles], axis=0) < 0.5


def _star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    angle = np.arctan2(x, -y)
    folded = np.abs((angle + np.pi / 5) % (2 * np.pi / 5) - np.pi / 5)
    return np.hypot(x, y) * (np.cos(folded) + np.sin(folded) * 1.9) < 1.0


OUTLINES: dict[str, Outline] = {
    "circle": lambda x, y: np.hypot(x, y) < 0.85,
    "ring": lambda x, y: (np.hypot(x, y) < 0.95) & (np.hypot(x, y) > 0.6),
    "square": lambda x, y: np.maximum(np.abs(x), np.abs(y)) < 0.72,
    "triangle": _triangle,
    "cross": lambda x, y: (np.minimum(np.abs(x), np.abs(y)) < 0.25) & (np.maximum(np.abs(x), np.abs(y)) < 0.95),
    "star": _star,
}
LABELS = tuple(OUTLINES)


def draw(label: str, rng: np.random.Generator) -> np.ndarray:
    """One picture, float32[SIZE, SIZE] in [0, 1]: of any size and place, turned a little, in weak contrast and noise."""
    radius = rng.uniform(8, 13)
    center = rng.uniform(radius, SIZE - radius, size=2)
    turn = np.deg2rad(rng.uniform(-15, 15))
    # four points per pixel soften the edges
    steps = (np.arange(2 * SIZE) + 0.5) / 2
    y, x = np.meshgrid((steps - center[0]) / radius, (steps - center[1]) / radius, indexing="ij")
    inside = OUTLINES[label](np.cos(turn) * x + np.sin(turn) * y, np.cos(turn) * y - np.sin(turn) * x)
    coverage = inside.reshape(SIZE, 2, SIZE, 2).mean(axis=(1, 3))
    dark, bright = rng.uniform(0.0, 0.25), rng.uniform(0.6, 1.0)
    picture = dark + (bright - dark) * coverage + rng.normal(0, 0.04, size=(SIZE, SIZE))
    return np.clip(picture, 0, 1).astype(np.float32)


def sample(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """`count` pictures, float32[count, 1, SIZE, SIZE], and the index of each one's label."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, len(LABELS), size=count)
    return np.stack([draw(LABELS[index], rng)[None] for index in classes]), classes
