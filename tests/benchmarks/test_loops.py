"""The decoders of the benchmark of loops are one program each, and make the tokens that onnxruntime makes."""

from __future__ import annotations

import numpy as np
import pytest

import sardonyx
from benchmarks import loops
from benchmarks.networks import Network

NETWORKS = {"gru": lambda: loops.gru(64, tokens=6), "transformer": lambda: loops.transformer(64, 2, tokens=6)}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]()


def test_a_decoder_is_one_program(network: Network) -> None:
    settings = sardonyx.SessionOptions()
    settings.add_session_config_entry("sardonyx.require_native", "1")
    (tokens,) = sardonyx.InferenceSession(network.model, settings).run(None, network.feeds)
    assert np.shape(tokens) == (6, 1)
    assert len(np.unique(tokens)) > 1


def test_a_measurement_compares_tokens(network: Network) -> None:
    assert all(0 < seconds < float("inf") for seconds in loops.measure(network, 1, 1, seconds=0.001))


def test_other_tokens_stop_a_measurement(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([np.array([[1]]), np.array([[2]])])
    monkeypatch.setattr(loops.Contestant, "run", lambda self: next(answers))
    with pytest.raises(SystemExit, match=r"the tokens are \[1\] and \[2\]"):
        loops.measure(network, 1, 1)
