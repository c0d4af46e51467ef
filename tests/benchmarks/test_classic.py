"""The benchmark of classic machine learning measures what it says."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import classic, estimators
from sardonyx.startup.records import replace


def test_models_of_text_ops_run_alike_in_both_runtimes() -> None:
    for name in ("CategoryMapper", "StringSplit at a text"):
        rows = list(classic.measure(name, estimators.TABLE[name](), 1, (1, 50), rounds=1))
        assert [row.rows for row in rows] == [1, 50] and all(row.agree and row.speed > 0 for row in rows)
        assert not rows[0].numpy and rows[0].cells[-2] == "yes"
        assert replace(rows[0], numpy=["Unique"]).cells[-2] == "no"


def test_feeds_are_as_long_as_asked_for() -> None:
    fitted = estimators.Fitted(b"", {"X": estimators.words()})
    feeds = fitted.feeds(1000)
    assert feeds is not None and feeds["X"].shape == (1000, 4)
    single = estimators.Fitted(b"", {"X": {"a": 1.0}}, single=True)
    assert single.feeds(1) == {"X": {"a": 1.0}} and single.feeds(2) is None


def test_results_are_close_or_not() -> None:
    ones = np.ones(3, np.float32)
    assert classic.are_close([ones, [{"a": 1.0}]], [ones + 1e-5, [{"a": 1.00001}]])
    for theirs in ([ones + 1, [{"a": 1.0}]], [ones, [{"a": 2.0}]], [ones, [{"b": 1.0}]], [ones, []]):
        assert not classic.are_close([ones, [{"a": 1.0}]], theirs)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic, "missing_packages", lambda: ["scikit-learn", "skl2onnx"])
    with pytest.raises(SystemExit, match="pip install scikit-learn skl2onnx"):
        classic.fitted_model("LinearRegression", None)
