"""Optimizers of parameters in half precision: steps are taken by masters in float32, from gradients of a loss that was scaled.

`FP16_Optimizer`, which `optim` shows to users, makes a `MasterWeights`; its methods are those of Apex's optimizer of that name.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from sardonyx.compiler.types import BF16, F16, F32
from sardonyx.providers.native.execution import mixed_precision
from sardonyx.providers.native.execution.updates import Table
from sardonyx.training.amp import DynamicLossScaler, LossScaler
from sardonyx.training.torch.optimizers import clip_grad_norm_, lies_plain

STORED = {torch.float16: F16, torch.bfloat16: BF16, torch.float32: F32}
logger = logging.getLogger("sardonyx.training")

HALVES = (torch.float16, torch.bfloat16)

Pair = tuple[torch.Tensor, torch.Tensor]
"""A parameter and its master, or what is done with both."""


def FP16_Optimizer(optimizer: Any, **keywords: Any) -> Any:  # noqa: N802 - the original's name
    """Give an optimizer of parameters in float16 or bfloat16 masters in float32 and a scale of the loss.

    The keywords are those of `MasterWeights`. Other optimizers come back as they are, with a warning.
    """
    if isinstance(optimizer, torch.optim.Optimizer) and _has_halves(optimizer):
        return MasterWeights(optimizer, **keywords)
    warnings.warn(f"{type(optimizer).__name__} is not supported by FP16_Optimizer, it stays as it is", stacklevel=2)
    return optimizer


def _has_halves(optimizer: torch.optim.Optimizer) -> bool:
    return any(parameter.dtype in HALVES for group in optimizer.param_groups for parameter in group["params"])


class MasterWeights(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer around another one, whose parameters it exchanges for masters where they are of half precision."""

    def __init__(
        self,
        init_optimizer: torch.optim.Optimizer,
        static_loss_scale: float = 1.0,
        dynamic_loss_scale: bool = False,
        dynamic_loss_args: Mapping[str, Any] | None = None,
        verbose: bool = False,
        loss_scaler: LossScaler | None = None,
    ):
        # Optimizer's own __init__ would make groups and states of its own: here both are those of the optimizer inside
        self.optimizer, self.verbose = init_optimizer, verbose
        self.loss_scaler = loss_scaler or _scaler(static_loss_scale, dynamic_loss_scale, dynamic_loss_args or {})
        self.overflow = False
        self._is_unscaled = False
        self._masters: dict[torch.Tensor, torch.Tensor] = {}
        self._versions: dict[torch.Tensor, int] = {}
        for group in init_optimizer.param_groups:
            self._exchange(group)

    def _exchange(self, group: dict[str, Any]) -> None:
        state = self.optimizer.state
        for place, parameter in enumerate(group["params"]):
            if parameter.dtype in HALVES and parameter.requires_grad:
                master = torch.nn.Parameter(parameter.detach().float())
                group["params"][place] = self._masters[parameter] = master
                self._versions[parameter] = parameter._version
                if parameter in state:
                    state[master] = {name: _widened(value) for name, value in state.pop(parameter).items()}

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # while it is being copied
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"MasterWeights({self.optimizer!r}, loss_scale={self.loss_scale})"

    @property
    def param_groups(self) -> Any:
        return self.optimizer.param_groups

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @property
    def defaults(self) -> Any:
        return self.optimizer.defaults

    @property
    def loss_scale(self) -> float:
        return self.loss_scaler.loss_scale

    @loss_scale.setter
    def loss_scale(self, value: float) -> None:
        self.loss_scaler.loss_scale = float(value)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)
        self._exchange(self.optimizer.param_groups[-1])

    # --- a step

    def scale_loss(self, loss: torch.Tensor) -> torch.Tensor:
        """What `backward` is to be called of, in float32."""
        return loss.float() * self.loss_scale

    def backward(self, loss: torch.Tensor, update_master_grads: bool = True, retain_graph: bool = False) -> None:
        """Gradients of the scaled loss; those of masters follow, unless more are to be added up."""
        self.scale_loss(loss).backward(retain_graph=retain_graph)
        self._is_unscaled = False
        if update_master_grads:
            self.update_master_grads()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def update_master_grads(self) -> None:
        """Give masters the gradients of the loss as it is, and see whether all are finite."""
        if self._is_unscaled:
            return
        pairs = [(parameter.grad, _master_gradient(parameter, master)) for parameter, master in self._pairs()]
        factor = 1.0 / self.loss_scale
        finite = {dtype: _unscale(dtype, part, factor) for dtype, part in _by_type(pairs)}
        self.overflow = not all(finite.values())
        self._is_unscaled = True

    def _pairs(self) -> Iterator[Pair]:
        """Parameters that have gradients, and what is stepped for them."""
        owners = {master: parameter for parameter, master in self._masters.items()}
        for group in self.param_groups:
            for master in group["params"]:
                parameter = owners.get(master, master)
                if parameter.grad is None:
                    master.grad = None
                else:
                    yield parameter, master

    def clip_master_grads(self, max_norm: float, norm_type: float = 2) -> float:
        """Scale the gradients of masters down to a norm; returns what it was, or -1 where they overflowed."""
        self.update_master_grads()
        if self.overflow:
            return -1
        masters = [master for group in self.param_groups for master in group["params"]]
        if norm_type == 2:
            return float(clip_grad_norm_(masters, max_norm))
        return float(torch.nn.utils.clip_grad_norm_(masters, max_norm, norm_type))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step of the masters, which parameters then follow; none where gradients are not finite. The scale changes with it."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.update_master_grads()
        if not self.overflow:
            self._follow_changed_parameters()
            self.optimizer.step()
            self._round()
        elif self.verbose:
            logger.warning("gradients overflowed, the step is skipped; the loss was scaled by %s", self.loss_scale)
        self.loss_scaler.update(SimpleNamespace(all_finite=not self.overflow))
        self._is_unscaled = False
        return loss

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _follow_changed_parameters(self) -> None:
        """Somebody may have loaded other weights."""
        for parameter, master in self._masters.items():
            if self._versions[parameter] != parameter._version:
                master.copy_(parameter)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _round(self) -> None:
        pairs = list(self._masters.items())
        for dtype, part in _by_type(pairs):
            plain, others = _parted(part)
            if plain:
                parameters = [parameter for parameter, _ in plain]
                table = Table([parameter.numel() for parameter in parameters], 2)
                table.place(0, [master.data_ptr() for _, master in plain])
                table.place(1, [parameter.data_ptr() for parameter in parameters], dtype.itemsize)
                mixed_precision.round_masters(table, STORED[dtype], torch.get_num_threads())
                torch.autograd.graph.increment_version(parameters)
            for parameter, master in others:
                parameter.copy_(master)
        self._note_versions()

    def _note_versions(self) -> None:
        self._versions = {parameter: parameter._version for parameter in self._masters}

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of parameters and of masters."""
        for parameter in self._masters:
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad.detach_().zero_()
        self.optimizer.zero_grad(set_to_none=set_to_none)
        self._is_unscaled = False

    def inspect_master_grad_data(self) -> list[list[torch.Tensor | None]] | None:
        """The gradients of masters by groups; nothing where they overflowed."""
        if self.overflow:
            return None
        return [[master.grad for master in group["params"]] for group in self.param_groups]

    # --- saved states

    def state_dict(self) -> dict[str, Any]:
        """With the masters, which have more digits than the parameters, and the scale."""
        return {
            "optimizer_state_dict": self.optimizer.state_dict(),
            "fp32_from_fp16": [master.detach() for master in self._masters.values()],
            "loss_scaler": dict(vars(self.loss_scaler)),
            "overflow": self.overflow,
        }

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        saved = state_dict["fp32_from_fp16"]
        if [master.shape for master in saved] != [master.shape for master in self._masters.values()]:
            raise ValueError("the saved state has masters of other parameters")
        self.optimizer.load_state_dict(state_dict["optimizer_state_dict"])
        vars(self.loss_scaler).update(state_dict["loss_scaler"])
        self.overflow, self._is_unscaled = state_dict["overflow"], False
        for master, value in zip(self._masters.values(), saved):
            master.copy_(value)
        self._round()


def _scaler(static: float, is_dynamic: bool, given: Mapping[str, Any]) -> LossScaler:
    if not is_dynamic:
        return DynamicLossScaler(automatic_update=False, loss_scale=static)
    names = {"init_scale": "loss_scale", "scale_window": "up_scale_window", "min_scale": "min_loss_scale"}
    unknown = given.keys() - names.keys() - {"scale_factor"}
    if unknown or given.get("scale_factor", 2) != 2:
        raise ValueError(f"dynamic_loss_args takes {', '.join(names)}, and a scale_factor of 2; it is {dict(given)}")
    return DynamicLossScaler(**{names[name]: value for name, value in given.items() if name in names})


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALVES else value


def _master_gradient(parameter: torch.Tensor, master: torch.Tensor) -> torch.Tensor:
    if master is not parameter and (master.grad is None or master.grad.shape != master.shape):
        master.grad = torch.empty_like(master)
    return master.grad


def _by_type(pairs: Sequence[Pair]) -> Iterable[tuple[torch.dtype, list[Pair]]]:
    found: dict[torch.dtype, list[Pair]] = {}
    for pair in pairs:
        found.setdefault(pair[0].dtype, []).append(pair)
    return found.items()


def _parted(pairs: Iterable[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Those that generated code can go through, and the others."""
    plain: list[Pair] = []
    others: list[Pair] = []
    for given, wide in pairs:
        is_plain = given.dtype in STORED and wide.dtype is torch.float32 and lies_plain(given) and lies_plain(wide)
        (plain if is_plain else others).append((given, wide))
    return plain, others


def _unscale(dtype: torch.dtype, pairs: Sequence[Pair], factor: float) -> bool:
    """Whether gradients of one type are finite; the second ones get the first, times the factor."""
    plain, others = _parted(pairs)
    finite = True
    if plain:
        table = Table([given.numel() for given, _ in plain], 2)
        table.place(0, [given.data_ptr() for given, _ in plain], dtype.itemsize)
        table.place(1, [wide.data_ptr() for _, wide in plain])
        finite = mixed_precision.unscale(table, STORED[dtype], factor, torch.get_num_threads())
        torch.autograd.graph.increment_version([wide for _, wide in plain])
    for given, wide in others:
        wide.copy_(given.to(wide.dtype) * factor)
        finite = bool(torch.isfinite(wide).all()) and finite
    return finite


def all_finite(gradients: Iterable[torch.Tensor]) -> bool:
    """Whether no gradient has an element that is infinite or not a number."""
    for dtype, pairs in _by_type([(gradient, gradient) for gradient in gradients]):
        plain = [given for given, _ in pairs if dtype in STORED and lies_plain(given)]
        if plain:
            table = Table([given.numel() for given in plain], 1)
            table.place(0, [given.data_ptr() for given in plain], dtype.itemsize)
            if not mixed_precision.is_finite(table, STORED[dtype], torch.get_num_threads()):
                return False
        known = {id(given) for given in plain}
        if not all(bool(torch.isfinite(given).all()) for given, _ in pairs if id(given) not in known):
            return False
    return True
