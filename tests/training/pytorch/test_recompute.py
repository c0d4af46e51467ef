"""What backward computes again where a configuration of onnxruntime's memory optimizer names it."""

from __future__ import annotations

import copy
import json
import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from torch import nn  # noqa: E402

from sardonyx.errors import InvalidArgument  # noqa: E402
from sardonyx.training import ORTModule  # noqa: E402
from tests.training.pytorch.comparing import assert_same, compiled  # noqa: E402
from tests.training.pytorch.test_backend import kept_bytes  # noqa: E402

ROWS, WIDTH = 16, 32
LAYER = 4 * ROWS * WIDTH
"""Bytes of what one layer gives."""


def layers(count: int = 3) -> Any:
    torch.manual_seed(0)
    return nn.Sequential(*(part for _ in range(count) for part in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


def kept_with(config: str, model: Any = None) -> int:
    return kept_bytes(compiled(model or layers(), recompute=config), torch.randn(ROWS, WIDTH))


def test_values_that_are_named_are_not_kept() -> None:
    whole = kept_with("Gelu+:0:-1")
    assert [whole - kept_with(f"Gelu+:1:{count}") for count in (0, 1, 2, -1)] == [0, LAYER, 2 * LAYER, 2 * LAYER]


@pytest.mark.parametrize("config", ["Gelu+:1:-1", "Gelu+:1:1", "Gelu+:2:-1", "Gelu+:0:-1"])
def test_gradients_stay_the_same(config: str) -> None:
    model = layers()
    assert_same(lambda x: model(x).square(), torch.randn(ROWS, WIDTH, requires_grad=True), recompute=config)


def test_normalizations_and_softmax_can_be_named() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Softmax(-1), nn.Linear(WIDTH, 4)
    )
    whole = kept_with("Gemm+Softmax+:0:-1", copy.deepcopy(model))
    assert whole - kept_with("Gemm+Softmax+:1:-1", copy.deepcopy(model)) == LAYER
    assert whole - kept_with("LayerNormalization+:1:-1", copy.deepcopy(model)) >= LAYER
    for config in ("Gemm+Softmax+:1:-1", "LayerNormalization+:1:-1,Gemm+Softmax+:1:-1"):
        assert_same(model, torch.randn(ROWS, WIDTH, requires_grad=True), recompute=config)


def test_random_numbers_are_not_drawn_again() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU())
    results = []
    for function in (model, compiled(model, recompute="Gelu+:1:-1")):
        torch.manual_seed(1)
        x = torch.ones(ROWS, WIDTH, requires_grad=True)
        function(x).sum().backward()
        results.append(x.grad)
    torch.testing.assert_close(*results)


def test_open_sizes_take_the_same_configuration() -> None:
    model = layers()
    call = compiled(model, recompute="Gelu+:1:-1")
    for rows in (4, 6, 9):
        results = []
        for function in (model, call):
            x = torch.linspace(-1, 1, rows * WIDTH).reshape(rows, WIDTH).requires_grad_()
            function(x).square().sum().backward()
            results.append(x.grad)
        torch.testing.assert_close(*results)


def test_a_module_takes_the_configuration_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.json"
    path.write_text(json.dumps(["Gelu+:1:-1"]), encoding="utf-8")
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    kept = []
    with caplog.at_level(logging.INFO, "sardonyx.training"):
        for config in ("", "Gelu+:0:0", "Gelu+:1:-1", str(path)):
            monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", config)
            torch._dynamo.reset()
            kept.append(kept_bytes(ORTModule(layers()), torch.randn(ROWS, WIDTH)))
    assert kept[1] - kept[2] == 2 * LAYER and kept[2] == kept[3]
    assert "backward could compute again: " in caplog.text and "Gelu+:2" in caplog.text


def test_levels_win_over_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", "Gelu+:1:-1")
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", "1")
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="is not read"):
        ORTModule(layers(1))(torch.randn(2, WIDTH))


def test_a_name_that_a_graph_does_not_have_is_told() -> None:
    model = compiled(layers(), recompute="Relu+:1:-1")
    with pytest.warns(UserWarning, match=r"no subgraph 'Relu\+'.*there are .*Gelu\+"):
        model(torch.randn(ROWS, WIDTH)).sum().backward()


@pytest.mark.parametrize(
    ("config", "message"), [("Gelu:1", "takes texts such as"), ("Gelu+:3:1", "the strategy is"), ("x.json", "no file")]
)
def test_what_is_no_configuration_is_an_error_and_no_fallback(
    config: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", config)
    with warnings.catch_warnings(), pytest.raises(InvalidArgument, match=message):
        warnings.simplefilter("error")
        ORTModule(layers(1))(torch.randn(2, WIDTH))
