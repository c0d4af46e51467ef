"""Subscribers see the results of all parts of a module, and gradients of these, step by step. `utils.hooks` shows them to users.

They are hooks of torch that dynamo leaves to eager torch: a compiled module is cut wherever somebody looks on.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sardonyx.training.torch.wrapping.arguments import extract_data_and_schema, unflatten_data_using_schema
from sardonyx.training.torch.wrapping.module import ORTModule

SAMPLES = 128
"""How many elements of a tensor a file shows."""


class SubscriberBase:
    """Looks on from step `start_step` on and before `end_step`; one of your own has `forward` and `backward`."""

    def __init__(self, start_step: int | None = None, end_step: int | None = None):
        self._start, self._end = start_step, end_step

    def looks_at(self, step: int) -> bool:
        return (self._start is None or step >= self._start) and (self._end is None or step < self._end)

    def forward(self, tensor: torch.Tensor, depth: int, name: str, step: int) -> None:
        """See a result; it is a copy."""

    def backward(self, gradient: torch.Tensor, depth: int, name: str, step: int) -> None:
        """See the gradient of a result."""


class StatisticsSubscriber(SubscriberBase):
    """Writes what there is to say of each tensor into a file of its own, in a folder for each step; there a list has their order."""

    def __init__(
        self,
        output_dir: str,
        start_step: int | None = None,
        end_step: int | None = None,
        override_output_dir: bool = False,
        run_on_cpu: bool = False,
        bucket_size: int = 1 << 29,
    ):
        """The last two are the original's, for GPUs with little memory; they change nothing."""
        super().__init__(start_step, end_step)
        self._folder = Path(output_dir)
        if self._folder.exists():
            if not override_output_dir:
                raise FileExistsError(
                    f"Output directory {output_dir} already exists. Set override_output_dir=True to have it written anew."
                )
            warnings.warn(f"Output directory {output_dir} already exists, overriding it.", stacklevel=2)
            shutil.rmtree(self._folder)

    def forward(self, tensor: torch.Tensor, depth: int, name: str, step: int) -> None:
        self._write(tensor, depth, name, step, "forward")

    def backward(self, gradient: torch.Tensor, depth: int, name: str, step: int) -> None:
        self._write(gradient, depth, name, step, "backward")

    def _write(self, tensor: torch.Tensor, depth: int, name: str, step: int, way: str) -> None:
        folder = self._folder / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "order.txt", "a", encoding="utf-8") as order:
            order.write(f"{name}_{way}\n")
        title = f"{'>' * max(0, depth)}{name} {way} run"
        (folder / f"{name}_{way}").write_text(summary(title, tensor), encoding="utf-8")


def summary(title: str, tensor: torch.Tensor) -> str:
    """Shape, range, deviation and signs of a tensor, and its first elements."""
    flat = tensor.detach().reshape(-1)
    wide = flat.double()
    nothing = torch.full((), float("nan"))
    least, most = (wide.min(), wide.max()) if len(wide) else (nothing, nothing)
    mean, deviation = (wide.mean(), wide.std(correction=1 if len(wide) > 1 else 0)) if len(wide) else (nothing, nothing)
    return (
        f"{title} shape: {tuple(tensor.shape)} dtype: {tensor.dtype} size: {flat.numel()}\n"
        f"min: {least.item()} max: {most.item()}, mean: {mean.item()}, std: {deviation.item()}\n"
        f"nan: {int(wide.isnan().sum())}, inf: {int(wide.isinf().sum())}\n"
        f"samples(top {SAMPLES}): {flat[:SAMPLES].tolist()}\n"
        f"neg: {int((wide < 0).sum())}, pos: {int((wide > 0).sum())}, zero: {int((wide == 0).sum())}\n"
        f"{'=' * 16}\n"
    )


class SubscriberManager:
    """The subscribers of a module, and the step that it is in: the number of finished calls."""

    def __init__(self) -> None:
        self.step = 0
        self._subscribers: list[SubscriberBase] = []
        self._hooks: list[Any] = []

    def subscribe(self, module: torch.nn.Module, subscribers: Sequence[SubscriberBase]) -> None:
        """Let subscribers look on, in the place of those before."""
        if not isinstance(module, torch.nn.Module):
            raise ValueError("module must be a torch.nn.Module instance")
        if not subscribers:
            raise RuntimeError("No subscribers are registered.")
        if not all(isinstance(subscriber, SubscriberBase) for subscriber in subscribers):
            raise ValueError("subscriber must be a SubscriberBase instance")
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self.step, self._subscribers = 0, list(subscribers)
        root = module.module if isinstance(module, ORTModule) else module
        self._watch(root, 1, set())
        self._hooks.append(root.register_forward_hook(self._end_step))

    def get_subscriber(self, subscriber_type: type) -> SubscriberBase:
        found = next((one for one in self._subscribers if isinstance(one, subscriber_type)), None)
        if found is None:
            raise RuntimeError(f"Subscriber {subscriber_type} is not registered.")
        return found

    def _watch(self, module: torch.nn.Module, depth: int, known: set[torch.nn.Module]) -> None:
        """Modules are counted as they are met, parents first."""
        number = len(known)
        known.add(module)
        for child in module.children():
            if child not in known:
                self._watch(child, depth + 1, known)

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def see(module: torch.nn.Module, inputs: Any, outputs: Any) -> Any:
            tensors, schema = extract_data_and_schema(outputs)
            names = (f"{type(module).__name__}_{number}_{place}th_output" for place in range(len(tensors)))
            return unflatten_data_using_schema([self.inspect(*pair, depth) for pair in zip(names, tensors)], schema)

        self._hooks.append(module.register_forward_hook(see))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def inspect(self, name: str, tensor: torch.Tensor, depth: int = -1) -> torch.Tensor:
        """Show a tensor to the subscribers, and its gradient when there is one."""
        step = self.step
        lookers = [subscriber for subscriber in self._subscribers if subscriber.looks_at(step)]
        if not lookers:
            return tensor
        for subscriber in lookers:
            subscriber.forward(tensor.detach().clone(), depth, name, step)
        if tensor.requires_grad:
            tensor = tensor.view_as(tensor)  # a hook of its own, whatever else the tensor is used for

            def back(gradient: torch.Tensor) -> None:
                for subscriber in lookers:
                    subscriber.backward(gradient.detach().clone(), depth, name, step)

            tensor.register_hook(back)
        return tensor

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _end_step(self, module: torch.nn.Module, inputs: Any, outputs: Any) -> None:
        self.step += 1


GlobalSubscriberManager = SubscriberManager()
"""That of the process."""


def inspect_activation(activation_name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Show a tensor inside of a module to the subscribers; use what is returned in its place."""
    return GlobalSubscriberManager.inspect(os.fspath(activation_name), tensor)
