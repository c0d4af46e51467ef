"""`sardonyx cache` and `sardonyx warm`: what later processes find is made, seen and removed."""

from __future__ import annotations

import numpy as np

import sardonyx
from sardonyx.runtime.saving import remembered
from sardonyx.startup import authors


def test_models_are_prepared_seen_and_removed(affine, call, tmp_path, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.delenv("SARDONYX_REMEMBER")
    monkeypatch.setattr(remembered, "WORTH_KEEPING", 0)
    monkeypatch.setattr(authors, "_others", set())  # which other tests of the process may have filled
    assert call("cache", "--json").json["models"]["entries"] == 0
    warmed = call("warm", affine, "--json")
    assert warmed.code == 0 and [row["model"] for row in warmed.json["models"]] == [str(affine)]
    found = call("cache", "--json").json
    assert found["models"]["entries"] == 1 and 0 < found["models"]["bytes"] <= found["models"]["limit"]
    session = sardonyx.InferenceSession(affine)
    assert session._sess is not None and session._sess._compiled is not None  # options of `warm` are those of a plain session
    assert session.run(None, {"x": np.ones((1, 3), np.float32)})[0].tolist() == [[9.5, 11.5]]
    assert "1 models removed" in call("cache", "clear", "--only", "models").out
    left = call("cache", "--json").json
    assert left["models"]["entries"] == 0


def test_nothing_can_be_kept_without_a_folder(affine, call, monkeypatch):
    monkeypatch.setenv("SARDONYX_CACHE_DIR", "")
    for words in (("cache",), ("warm", affine)):
        result = call(*words)
        assert result.code == 2 and "SARDONYX_CACHE_DIR" in result.err
