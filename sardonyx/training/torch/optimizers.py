"""FusedAdam, FusedLamb and clipping for tensors of torch: generated code over all parameters at once, in place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any

import torch

from sardonyx.providers.native.execution import updates
from sardonyx.providers.native.execution.lamb import lamb

Tensors = tuple[torch.Tensor, ...]
"""A parameter, its gradient and its moments."""


class AdamWMode(IntEnum):
    """How weights decay."""

    ADAM_L2_REGULARIZATION = 0
    """As a part of the gradient."""
    ADAMW_TRANSFORMERS = 1
    """After the step, as Hugging Face's AdamW does."""
    ADAMW_TORCH = 2
    """Before the step, as torch's AdamW does."""


class _Tables:
    """Tables of blocks, kept while the sizes of the tensors stay the same."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[list[int], updates.Table]] = {}

    def of(self, kinds: Sequence[Sequence[torch.Tensor]]) -> updates.Table:
        sizes, count = [tensor.numel() for tensor in kinds[0]], len(kinds)
        known = self._known.get(count)
        if known is None or known[0] != sizes:
            known = self._known[count] = (sizes, updates.Table(sizes, count))
        for number, tensors in enumerate(kinds):
            known[1].place(number, [tensor.data_ptr() for tensor in tensors])
        return known[1]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether generated code for float32 can go through a tensor."""
    return tensor.dtype is torch.float32 and lies_plain(tensor)


def lies_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements lie one behind another. Tensors that are made of others have no memory of their own."""
    return (
        type(tensor).__torch_dispatch__ == torch.Tensor.__torch_dispatch__
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and tensor.is_contiguous()
    )


class _Fused(torch.optim.Optimizer):  # type: ignore[misc]
    """What optimizers with two moments share."""

    def __init__(self, params: Any, defaults: dict[str, Any], set_grad_none: bool = True):
        (first, second), others = defaults["betas"], [defaults[name] for name in ("lr", "eps", "weight_decay")]
        if not all(map(math.isfinite, (first, second, *others))):
            raise ValueError(f"lr, betas, eps and weight_decay must be finite: {defaults}")
        if not all(0 <= beta < 1 for beta in (first, second)):
            raise ValueError(f"betas must be at least 0 and less than 1, they are {defaults['betas']}")
        super().__init__(params, defaults)
        self._set_grad_none = set_grad_none
        self._tables = [_Tables() for _ in self.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none=self._set_grad_none and set_to_none)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._tables = [_Tables() for _ in self.param_groups]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        self.__dict__.setdefault("_tables", []).append(_Tables())

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: Any = None) -> Any:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, tables in zip(self.param_groups, self._tables):
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                group["step"] = group.get("step", 0) + 1
                self._update(group, tables, parameters)
        return loss

    def _update(self, group: dict[str, Any], tables: _Tables, parameters: list[torch.Tensor]) -> None:
        numbers = self._numbers(group)
        plain: list[Tensors] = []
        others: list[Tensors] = []
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(parameter) for _ in range(2))
            tensors = self._parts((parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"]))
            if any(tensor.is_sparse for tensor in tensors):
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients.")
            (plain if all(map(_is_plain, tensors)) else others).append(tensors)
        if plain:
            self._update_natively(tables.of(list(zip(*plain))), numbers)
            torch.autograd.graph.increment_version([tensors[0] for tensors in plain])
        for tensors in others:
            self._update_in_torch(tensors, numbers)

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _parts(self, tensors: Tensors) -> Tensors:
        raise NotImplementedError

    def _update_natively(self, table: updates.Table, numbers: dict[str, Any]) -> None:
        raise NotImplementedError

    def _update_in_torch(self, tensors: Tensors, numbers: dict[str, Any]) -> None:
        raise NotImplementedError


class FusedAdam(_Fused):
    """Adam and AdamW in three modes."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        adam_w_mode: AdamWMode = AdamWMode.ADAMW_TRANSFORMERS,
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
    ):
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, set_grad_none)
        self._adam_w_mode = AdamWMode(adam_w_mode)

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        return _numbers(group, self._adam_w_mode)

    def _parts(self, tensors: Tensors) -> Tensors:
        return _own_parts(tensors)

    def _update_natively(self, table: updates.Table, numbers: dict[str, Any]) -> None:
        updates.adam(table, threads=torch.get_num_threads(), **numbers)

    def _update_in_torch(self, tensors: Tensors, numbers: dict[str, Any]) -> None:
        _adam_in_torch(*tensors, **numbers)


class FusedLamb(_Fused):
    """LAMB: the step of each parameter is measured by the norm of the parameter."""

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        ratio_min: float = -math.inf,
        ratio_max: float = math.inf,
        set_grad_none: bool = True,
    ):
        if not eps > 0:
            raise ValueError(f"eps must be above 0, it is {eps}")
        if not ratio_min <= ratio_max:
            raise ValueError(f"ratio_min must not be above ratio_max, they are {ratio_min} and {ratio_max}")
        defaults = {"lr": lr, "bias_correction": bias_correction, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**defaults, "ratios": (ratio_min, ratio_max)}, set_grad_none)

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        (beta1, beta2), step = group["betas"], group["step"]
        first, second = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
        form = {"rate": float(group["lr"]), "epsilon": group["eps"], "decay": group["weight_decay"], "ratios": group["ratios"]}
        return {"beta1": beta1, "beta2": beta2, "first": 1 / first, "second": 1 / second, **form}

    def _parts(self, tensors: Tensors) -> Tensors:
        if any(hasattr(tensor, "placements") for tensor in tensors):
            raise RuntimeError(
                "FusedLamb needs the norms of whole parameters, and these are shared among processes. Use FusedAdam."
            )
        return tensors

    def _update_natively(self, table: updates.Table, numbers: dict[str, Any]) -> None:
        lamb(table, threads=torch.get_num_threads(), **numbers)

    def _update_in_torch(self, tensors: Tensors, numbers: dict[str, Any]) -> None:
        weight, gradient, mean, square = tensors
        gradient = gradient.to(weight.dtype)
        mean.mul_(numbers["beta1"]).add_(gradient, alpha=1 - numbers["beta1"])
        square.mul_(numbers["beta2"]).addcmul_(gradient, gradient, value=1 - numbers["beta2"])
        moved = mean * numbers["first"] / ((square * numbers["second"]).sqrt() + numbers["epsilon"]) + numbers["decay"] * weight
        norms = float(weight.double().norm()), float(moved.double().norm())
        ratio = 1.0 if 0 in norms else min(max(norms[0] / norms[1], numbers["ratios"][0]), numbers["ratios"][1])
        weight.sub_(moved, alpha=numbers["rate"] * ratio)


def _own_parts(tensors: Tensors) -> Tensors:
    """Of tensors that several processes share, what this one has; it is enough for what is done to each element alone."""
    placements = {getattr(tensor, "placements", None) for tensor in tensors}  # DTensor is not imported where nobody needs it
    return tensors if len(placements) > 1 or None in placements else tuple(tensor.to_local() for tensor in tensors)


def _numbers(group: dict[str, Any], mode: AdamWMode) -> dict[str, float]:
    """What generated code computes a step with."""
    (beta1, beta2), rate, decay, step = group["betas"], float(group["lr"]), group["weight_decay"], group["step"]
    first, second = (1 - beta1**step, 1 - beta2**step) if group["bias_correction"] else (1.0, 1.0)
    numbers = {"beta1": beta1, "beta2": beta2, "epsilon": group["eps"], "rate": rate / first, "correction": 1 / second}
    if mode is AdamWMode.ADAM_L2_REGULARIZATION:
        numbers["penalty"] = decay
    elif mode is AdamWMode.ADAMW_TORCH:
        numbers["decay_before"] = 1 - rate * decay
    else:  # the correction is part of the rate, so that it does not reach epsilon
        numbers |= {"rate": rate * math.sqrt(second) / first, "correction": 1.0, "decay_after": 1 - rate * decay}
    return numbers


def _adam_in_torch(
    weight: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    *,
    beta1: float,
    beta2: float,
    rate: float,
    correction: float,
    epsilon: float,
    penalty: float = 0.0,
    decay_before: float = 1.0,
    decay_after: float = 1.0,
) -> None:
    """The same for tensors of other types, or with gaps."""
    gradient = gradient.to(weight.dtype)
    gradient = gradient.add(weight, alpha=penalty) if penalty else gradient
    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    moved = mean / ((square * correction).sqrt() + epsilon)
    weight.mul_(decay_before).sub_(moved, alpha=rate).mul_(decay_after)


@torch.no_grad()  # type: ignore[untyped-decorator]
def clip_grad_norm_(parameters: Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale gradients so that the root of the sum of all their squares is at most `max_norm`; returns what it was."""
    listed = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
    gradients = [parameter.grad for parameter in listed if parameter.grad is not None]
    if not all(map(_is_plain, gradients)):
        return torch.nn.utils.clip_grad_norm_(listed, max_norm)
    table, threads = _Tables().of([gradients]) if gradients else None, torch.get_num_threads()
    norm = updates.norm(table, threads) if table else 0.0
    factor = max_norm / (norm + 1e-6)
    if table and not factor >= 1:  # what is not a number spreads, as in torch
        updates.scale(table, factor, threads)
        torch.autograd.graph.increment_version(gradients)
    return torch.tensor(norm)
