"""Networks of many kinds with every axis open: which of their steps are not native is counted, and each has a reason that is known."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.providers.native.networks import Network, assert_runs_alike, open_session, steps_of
from tests.providers.native.open_networks import NETWORKS, Distinct, Nameless

ALLOWED: dict[str, dict[tuple[str, str], int]] = {}
"""By network: op and reason of the steps that NumPy computes, and how many there may be."""


@pytest.mark.parametrize("axes", [Network, Distinct, Nameless], ids=["shared names", "names of their own", "no names"])
@pytest.mark.parametrize("name", NETWORKS)
def test_steps_are_native_but_for_those_that_are_listed(
    name: str, axes: type[Network], caplog: pytest.LogCaptureFixture
) -> None:
    write, runs = NETWORKS[name]
    model = write(axes())
    session = open_session(model)
    _, others = steps_of(session)
    left = Counter((step.node.op_type, step.reason) for step in others)
    assert left == Counter(ALLOWED.get(name, {}))
    assert_runs_alike(session, model, runs)
    assert not [record for record in caplog.records if "NumPy computes" in record.getMessage()]


def test_the_list_names_networks_that_there_are() -> None:
    assert set(ALLOWED) <= set(NETWORKS)
