"""What of a training step NumPy computes: next to nothing, in networks of all common kinds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.runtime.preparation.plan import numpy_steps  # noqa: E402
from sardonyx.training.torch import running  # noqa: E402
from tests.training.pytorch.networks import networks  # noqa: E402

torch.manual_seed(0)
NETWORKS = networks()
VIEWS = {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Shape", "Flatten", "Slice"}
"""They compute nothing: an array of NumPy looks at the same memory in another way."""
CASES = [(name, sizes) for name in NETWORKS for sizes in ("fixed", "open batch", "open")]
CASES.remove(
    ("average pools", "open")
)  # windows of adaptive pools differ in size, so where sizes are open they are left to torch
ALLOWED: dict[str, set[str]] = {}
"""Of networks, ops that NumPy computes besides these, each with its reason."""


@pytest.fixture
def runners(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """All graphs that are compiled."""
    made: list[Any] = []
    initialize = running.Runner.__init__

    def note(self: Any, *arguments: Any) -> None:
        initialize(self, *arguments)
        made.append(self)

    monkeypatch.setattr(running.Runner, "__init__", note)
    torch._dynamo.reset()
    yield made
    torch._dynamo.reset()


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_numpy_computes_nothing_of_a_step(name: str, sizes: str, runners: list[Any]) -> None:
    """The last batch of an epoch is smaller: torch compiles once more then, with sizes that are open."""
    model, batch = NETWORKS[name]
    batch = batch.clone()
    if sizes == "open batch":
        torch._dynamo.mark_dynamic(batch, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        compiled = torch.compile(model, backend="sardonyx", options={"fallback": "error"}, dynamic=sizes == "open" or None)
        compiled(batch).square().mean().backward()
    graphs = {one.lowered.model.graph.name.partition("_")[0]: one for one in runners}
    assert graphs.keys() == {"forward", "backward"}
    found = {
        (kind, node.op_type): step.reason
        for kind, one in graphs.items()
        for step in numpy_steps(one.session.plan)
        for node in step.nodes
        if node.op_type not in VIEWS
    }
    assert {op for _, op in found} == ALLOWED.get(name, set()), found
