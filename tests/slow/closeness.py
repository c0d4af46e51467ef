"""When the outputs of two runtimes agree: whole models, by their family. `corpus` asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.tolerance import MODEL_INTEGERS, MODEL_SELECTIONS, MODELS, OTHER_MODELS, Tolerance

SELECTIONS = ("selected", "kept", "kept_scores")
"""What NonMaxSuppression keeps of thousands of boxes that nearly tie: onnxruntime with and without its optimizer differs in a sixth of
the rows. So here their number only; the boxes and scores they are chosen from are outputs too."""


def for_family(family: str) -> Tolerance:
    return MODELS.get(family, OTHER_MODELS)


def disagreements(names: Sequence[str], got: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance) -> list[str]:
    """One sentence for every output that differs by more than is tolerated."""
    triples = zip(names, got, expected, strict=True)
    return [f"{name}: {reason}" for name, one, other in triples if (reason := _difference(name, one, other, tolerance))]


def distance(got: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest relative distance of an output from what is expected, in the Euclidean norm."""
    pairs = zip(got, expected, strict=True)
    return max(_norm_distance(*_as_float(one, other)) if np.shape(one) == np.shape(other) else np.inf for one, other in pairs)


def _difference(name: str, got: Any, expected: Any, tolerance: Tolerance) -> str:
    if isinstance(expected, list):
        return _sequence_difference(name, got, expected, tolerance)
    if isinstance(expected, dict):
        keys = _difference(name, np.array(list(got)), np.array(list(expected)), tolerance)
        return keys or _difference(name, np.array(list(got.values())), np.array(list(expected.values())), tolerance)
    got, expected = np.asarray(got), np.asarray(expected)
    if name in SELECTIONS:
        return _selection_difference(got, expected)
    if got.shape != expected.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OUS":
        return "" if got.tolist() == expected.tolist() else "other texts"
    if got.dtype != expected.dtype:
        return f"{got.dtype} instead of {expected.dtype}"
    if expected.dtype.kind in "iub":
        return _integer_difference(got, expected)
    return _float_difference(*_as_float(got, expected), tolerance)


def _sequence_difference(name: str, got: Any, expected: list[Any], tolerance: Tolerance) -> str:
    if len(got) != len(expected):
        return f"{len(got)} elements instead of {len(expected)}"
    reasons = [_difference(name, one, other, tolerance) for one, other in zip(got, expected, strict=True)]
    return next((f"[{index}] {reason}" for index, reason in enumerate(reasons) if reason), "")


def _selection_difference(got: np.ndarray, expected: np.ndarray) -> str:
    same = got.ndim == expected.ndim and np.allclose(got.shape, expected.shape, rtol=MODEL_SELECTIONS, atol=0)
    return "" if same else f"shape {got.shape}, not near {expected.shape}"


def _integer_difference(got: np.ndarray, expected: np.ndarray) -> str:
    share = float(np.mean(got != expected)) if got.size else 0.0
    return "" if share <= MODEL_INTEGERS else f"{share:.2%} of the integers differ"


def _float_difference(got: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> str:
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return "other places of NaN or infinity"
    got, expected = got[finite], expected[finite]
    if not expected.size:
        return ""
    error, magnitude = np.abs(got - expected), np.abs(expected)
    if np.all(error <= tolerance.relative * magnitude + tolerance.absolute * magnitude.max() + 1e-9):
        return ""
    norm = _norm_distance(got, expected)
    if tolerance.low_precision and norm <= tolerance.norm:
        return ""
    return f"largest error {error.max():.3g} of {magnitude.max():.3g}, relative norm {norm:.3g}"


def _as_float(got: Any, expected: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(got, dtype=np.float64), np.asarray(expected, dtype=np.float64)


def _norm_distance(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.linalg.norm((got - expected).ravel()) / (np.linalg.norm(expected.ravel()) + 1e-30))
