"""What looks on while modules train, and the tables and ranges of `training.utils`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

from sardonyx.training import ORTModule  # noqa: E402
from sardonyx.training.utils import PTable, torch_nvtx_range_pop, torch_nvtx_range_push  # noqa: E402
from sardonyx.training.utils.hooks import (  # noqa: E402
    GlobalSubscriberManager,
    StatisticsSubscriber,
    SubscriberBase,
    inspect_activation,
)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        return self.last(inspect_activation("inside", torch.relu(self.first(x))))


class Seen(SubscriberBase):
    def __init__(self, *steps: int | None) -> None:
        super().__init__(*steps)
        self.tensors: dict[str, Any] = {}

    def forward(self, tensor: Any, depth: int, name: str, step: int) -> None:
        self.tensors[f"{step} {name}"] = depth, tensor

    def backward(self, gradient: Any, depth: int, name: str, step: int) -> None:
        self.tensors[f"{step} {name} back"] = depth, gradient


# dynamo itself looks at `grad` of tensors that come from a cut
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("wrap", [lambda network: network, ORTModule], ids=["eager", "ORTModule"])
def test_results_and_gradients_are_seen_step_by_step(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    torch._dynamo.reset()
    network, seen = Network(), Seen(1, 2)
    model = wrap(network)
    GlobalSubscriberManager.subscribe(model, [seen])
    x = torch.randn(5, 3)
    for _ in range(3):
        output = model(x)
        output.sum().backward()
    inside = torch.relu(x @ network.first.weight.T + network.first.bias)
    torch.testing.assert_close(seen.tensors["1 inside"][1], inside)
    torch.testing.assert_close(seen.tensors["1 Linear_2_0th_output"][1], output.detach())
    torch.testing.assert_close(seen.tensors["1 inside back"][1], network.last.weight.sum(0).expand(5, 4))
    torch.testing.assert_close(seen.tensors["1 Network_0_0th_output back"], (1, torch.ones(5, 2)))
    assert {name.split()[0] for name in seen.tensors} == {"1"} and seen.tensors["1 Linear_1_0th_output"][0] == 2
    torch.testing.assert_close(network.first.bias.grad, 3 * (network.last.weight.sum(0) * (inside > 0)).sum(0))


def test_statistics_are_written(tmp_path: Path) -> None:
    folder, network = tmp_path / "statistics", Network()
    with pytest.raises(FileExistsError, match="already exists"):
        StatisticsSubscriber(str(tmp_path))
    GlobalSubscriberManager.subscribe(network, [StatisticsSubscriber(str(folder), end_step=1)])
    x = torch.tensor([[1.0, float("inf"), 0.0]])
    for _ in range(2):
        network(x).sum().backward()
    order = (folder / "step_0" / "order.txt").read_text().split()
    assert order[:4] == [
        "Linear_1_0th_output_forward",
        "inside_forward",
        "Linear_2_0th_output_forward",
        "Network_0_0th_output_forward",
    ]
    assert order[4] == "Network_0_0th_output_backward" and not (folder / "step_1").exists()
    text = (folder / "step_0" / "Linear_1_0th_output_forward").read_text()
    first = network.first(x).detach()
    assert text.startswith(">>Linear_1_0th_output forward run shape: (1, 4) dtype: torch.float32 size: 4")
    counts = {word: int(number) for word, number in re.findall(r"(inf|neg|pos|zero): (\d+)", text)}
    assert counts == {"inf": 4, "neg": int((first < 0).sum()), "pos": int((first > 0).sum()), "zero": 0}
    with pytest.warns(UserWarning, match="overriding"):
        StatisticsSubscriber(str(folder), override_output_dir=True)
    assert not folder.exists()


def test_subscribers_are_checked_and_exchanged() -> None:
    network = Network()
    for module, subscribers, error in ((3, [Seen()], ValueError), (network, [3], ValueError), (network, [], RuntimeError)):
        with pytest.raises(error):
            GlobalSubscriberManager.subscribe(module, subscribers)
    first, second = Seen(), Seen()
    for seen in (first, second):
        GlobalSubscriberManager.subscribe(network, [seen])
    network(torch.randn(1, 3))
    assert not first.tensors and second.tensors and GlobalSubscriberManager.get_subscriber(Seen) is second
    with pytest.raises(RuntimeError, match="not registered"):
        GlobalSubscriberManager.get_subscriber(StatisticsSubscriber)


def test_tables_and_ranges() -> None:
    table, inner = PTable(sortable=True), PTable()
    inner.add_row(["a", "b", "c"])
    table.add_row(["second", 2, "x"])
    table.add_row(["first", 1, "long"]).append_annotation_table(inner)
    assert table.get_string() == "first   1  long  \na       b  c     \nsecond  2  x     \n"
    assert PTable().get_string() == ""
    with pytest.raises(AssertionError, match="2 columns"):
        table.add_row(["a", "b"])
    torch_nvtx_range_push("range")
    torch_nvtx_range_pop()
