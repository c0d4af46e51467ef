"""Compiled functions and modules beside eager torch: results, and gradients of all that can have one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """Compiled as a whole; an op that is not supported is an error, unless the options say otherwise."""
    torch._dynamo.reset()
    options = {"fallback": "error", **options}
    return torch.compile(function, backend="sardonyx", fullgraph=True, options=options)


def assert_close(ours: Any, theirs: Any, what: str = "result") -> None:
    assert type(ours) is type(theirs), (what, type(ours), type(theirs))
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs, what
        return
    assert ours.dtype is theirs.dtype and ours.shape == theirs.shape, (what, ours.dtype, theirs.dtype, ours.shape, theirs.shape)
    bound = TOLERANCE.get(theirs.dtype, 0.0)
    finite = theirs[theirs.isfinite()] if theirs.is_floating_point() else theirs
    scale = max(1.0, float(finite.abs().max())) if theirs.is_floating_point() and finite.numel() else 1.0
    torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound * scale, equal_nan=True, msg=lambda text: f"{what}: {text}")


def _leaves(results: Any) -> list[Any]:
    return pytree.tree_leaves(results)


def _gradients(function: Callable[..., Any], inputs: Sequence[Any], seed: int) -> tuple[list[Any], list[Any]]:
    """Results, and gradients of inputs, for random gradients of the results."""
    inputs = [copy.deepcopy(one) for one in inputs]
    results = _leaves(function(*inputs))
    generator = torch.Generator().manual_seed(seed)
    smooth = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    if smooth:
        weights = [torch.randn(result.shape, generator=generator, dtype=torch.float64).to(result.dtype) for result in smooth]
        torch.autograd.backward(smooth, weights)
    found = [one.grad for one in inputs if isinstance(one, torch.Tensor)]
    return [result.detach() if isinstance(result, torch.Tensor) else result for result in results], found


def assert_same(function: Callable[..., Any], *inputs: Any, **options: Any) -> None:
    """A function gives the same compiled as in eager torch, and so do its gradients."""
    theirs, their_gradients = _gradients(function, inputs, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours, our_gradients = _gradients(compiled(function, **options), inputs, 0)
    assert len(ours) == len(theirs)
    for number, (mine, other) in enumerate(zip(ours, theirs)):
        assert_close(mine, other, f"result {number}")
    for number, (mine, other) in enumerate(zip(our_gradients, their_gradients)):
        assert (mine is None) == (other is None), f"gradient {number}"
        if other is not None:
            assert_close(mine, other, f"gradient of input {number}")


def numbers(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, grad: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad)


def positive(*shape: int, **keywords: Any) -> torch.Tensor:
    values = numbers(*shape, **keywords)
    return (values.detach().abs() + 0.1).requires_grad_(values.requires_grad)


def whole(*shape: int, high: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
