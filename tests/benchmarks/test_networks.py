"""The networks of the benchmarks give what onnxruntime gives, so that the times compare the same work."""

from __future__ import annotations

import onnxruntime
import pytest

import sardonyx
from benchmarks.networks import NETWORKS
from tests.tolerance import assert_close


@pytest.mark.parametrize("name", NETWORKS)
def test_network_gives_what_onnxruntime_gives(name: str) -> None:
    network = NETWORKS[name]()
    ours, theirs = (
        runtime.InferenceSession(network.model, providers=["CPUExecutionProvider"]).run(None, network.feeds)
        for runtime in (sardonyx, onnxruntime)
    )
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
