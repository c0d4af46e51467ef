"""The networks of the benchmarks give what onnxruntime gives, so that the times compare the same work."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

import sardonyx
from benchmarks.__main__ import NETWORKS
from tests.tolerance import assert_close


@pytest.mark.parametrize("name", NETWORKS)
def test_network_gives_what_onnxruntime_gives(name: str) -> None:
    network = NETWORKS[name]()
    ours, theirs = (
        runtime.InferenceSession(network.model, providers=["CPUExecutionProvider"]).run(None, network.feeds)
        for runtime in (sardonyx, onnxruntime)
    )
    tolerance = 1e-4 if ours[0].dtype == np.float32 else 2e-2  # onnxruntime rounds to float16 in other places
    assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
