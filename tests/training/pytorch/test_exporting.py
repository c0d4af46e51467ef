"""Models that give gradients: beside autograd, and run by onnxruntime, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

import sardonyx  # noqa: E402
from sardonyx.errors import Fail  # noqa: E402
from sardonyx.training.experimental import export_gradient_graph  # noqa: E402

MLP = (nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
NETWORKS = {
    "layers": (nn.Sequential(*MLP), (6,), "classes"),
    "normalized": (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)), (6,), "numbers"),
    "convolutions": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)),
        (2, 6, 6),
        "classes",
    ),
}


def labels_of(kind: str, count: int) -> Any:
    return torch.arange(count) % 3 if kind == "classes" else torch.linspace(-1, 1, 3 * count).reshape(count, 3)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_are_those_of_autograd(name: str, tmp_path: Path) -> None:
    network, shape, kind = NETWORKS[name]
    loss_fn = nn.CrossEntropyLoss() if kind == "classes" else nn.MSELoss()
    path = tmp_path / "gradient_graph.onnx"
    export_gradient_graph(network, loss_fn, torch.randn(4, *shape), labels_of(kind, 4), path)
    session = sardonyx.InferenceSession(path)
    parameters = dict(network.named_parameters())
    assert [one.name for one in session.get_inputs()] == ["input", "labels", *parameters]
    assert [one.name for one in session.get_outputs()] == ["output", "loss", *(f"{each}_grad" for each in parameters)]
    for count in (4, 7):
        x, labels = torch.randn(count, *shape), labels_of(kind, count)
        network.zero_grad()
        output = network(x)
        loss = loss_fn(output, labels)
        loss.backward()
        feeds = {"input": x, "labels": labels, **parameters}
        results = session.run(None, {each: tensor.detach().numpy() for each, tensor in feeds.items()})
        expected = [output, loss, *(parameter.grad for parameter in parameters.values())]
        for mine, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(mine, other.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_frozen_parameters_have_no_gradient(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
    network[0].requires_grad_(False)
    export_gradient_graph(network, nn.MSELoss(), torch.randn(4, 6), torch.randn(4, 3), tmp_path / "g.onnx")
    outputs = [one.name for one in sardonyx.InferenceSession(tmp_path / "g.onnx").get_outputs()]
    assert outputs == ["output", "loss", "1.weight_grad", "1.bias_grad"]


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    def export(*layers: Any) -> None:
        export_gradient_graph(nn.Sequential(*layers), nn.MSELoss(), torch.randn(4, 6), torch.randn(4, 6), tmp_path / "g.onnx")

    with pytest.raises(Fail, match="none requires one"):
        export(nn.ReLU())
    with pytest.raises(Fail, match="random numbers"):
        export(nn.Linear(6, 6), nn.Dropout(0.5))

    class Idle(nn.Linear):
        def forward(self, x: Any) -> Any:
            return x + self.bias

    with pytest.raises(Fail, match="does not depend on the parameter '0.weight'"):
        export(Idle(6, 6))
    assert not list(tmp_path.iterdir())
