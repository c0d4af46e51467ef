"""Tensors cross to a program by their addresses: the same results as by arrays, and what cannot cross so goes the other way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is the extra 'train'; `make test-training` runs these tests")

from sardonyx.training.torch.backend import _compile  # noqa: E402
from sardonyx.training.torch.options import Options  # noqa: E402
from sardonyx.training.torch.running import Runner  # noqa: E402


def runner_of(function: Any, *examples: Any) -> Runner:
    from torch.fx.experimental.proxy_tensor import make_fx

    runner = _compile(make_fx(function, tracing_mode="fake")(*examples), examples, Options(), "graph")
    assert isinstance(runner, Runner)
    return runner


def product(x: Any, y: Any) -> list[Any]:
    z = x @ y
    return [torch.tanh(z) + 1, z * 2]


def pairs(kind: Any = torch.float32) -> tuple[Any, Any]:
    return torch.randn(5, 3).to(kind), torch.randn(3, 4).to(kind)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_results_are_those_of_arrays(kind: Any) -> None:
    x, y = pairs(kind)
    runner = runner_of(product, x, y)
    assert runner._program is not None
    for _ in range(3):
        x, y = pairs(kind)
        found = runner([x, y])
        by_addresses, runner._program = runner._program, None
        expected = runner([x, y])
        runner._program = by_addresses
        assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))


def test_tensors_with_gaps_and_turned_ones_cross() -> None:
    x, y = pairs()
    runner = runner_of(product, x, y)
    wide, turned = torch.randn(5, 6), torch.randn(4, 3)
    for mine, other in zip(runner([wide[:, ::2], turned.t()]), product(wide[:, ::2], turned.t()), strict=True):
        torch.testing.assert_close(mine, other)
    traced = runner_of(product, x, turned.t())
    for mine, other in zip(traced([x, turned.t()]), product(x, turned.t()), strict=True):
        torch.testing.assert_close(mine, other)


def test_a_tensor_of_another_type_or_without_memory_is_refused() -> None:
    x, y = pairs()
    runner = runner_of(product, x, y)
    with pytest.raises(Exception, match="type"):
        runner([x.double(), y])
    given_up = torch.randn(3, 4)
    given_up.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="a tensor has no memory"):
        runner([x, given_up])


def test_runs_of_several_threads_at_once() -> None:
    x, y = torch.randn(64, 64), torch.randn(64, 64)
    runner = runner_of(product, x, y)
    wrong = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            mine = [torch.randn(64, 64, generator=generator) for _ in range(2)]
            for result, expected in zip(runner(list(mine)), product(*mine), strict=True):
                if not torch.allclose(result, expected, atol=1e-4):
                    wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
