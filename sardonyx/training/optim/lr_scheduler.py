"""Learning rates that rise over a warm-up and then change, under the names of `onnxruntime.training.optim.lr_scheduler`.

A scheduler computes the rate of a step from what it is told of it: `optimization_step`, the number of steps before, and
`optimizer_config.lr`, the rate that all are measured by. It changes no optimizer.
"""

from __future__ import annotations

import math
from typing import Any

from sardonyx.training.optim.config import refuse_unless


class _LRScheduler:
    """What schedulers share; one of your own has `get_lr`."""

    def __init__(self) -> None:
        self._last_lr: list[float] = []

    def get_lr(self, train_step_info: Any) -> list[float]:
        """The rate of a step, as a list of one."""
        raise NotImplementedError

    def get_last_lr(self) -> list[float]:
        """The rate that was computed last."""
        return self._last_lr

    def _step(self, train_step_info: Any) -> list[float]:
        self._last_lr = self.get_lr(train_step_info)
        return self._last_lr


class _WarmupLRScheduler(_LRScheduler):
    """Rises from 0 over the share `warmup` of all steps; what comes then is a factor of the share of the other steps that are done."""

    def __init__(self, total_steps: int, warmup: float):
        super().__init__()
        refuse_unless(
            isinstance(total_steps, int) and total_steps > 0, f"total_steps must be a positive int, not {total_steps!r}"
        )
        refuse_unless(
            isinstance(warmup, float) and 0 <= warmup < 1,
            f"warmup must be a float of at least 0 and less than 1, not {warmup!r}",
        )
        self.total_steps, self.warmup = total_steps, warmup
        self._num_warmup_steps = warmup * total_steps

    def get_lr(self, train_step_info: Any) -> list[float]:
        step, rate = train_step_info.optimization_step, float(train_step_info.optimizer_config.lr)
        if step < self._num_warmup_steps:
            return [rate * step / max(1, self._num_warmup_steps)]
        return [self._rate(rate, (step - self._num_warmup_steps) / max(1, self.total_steps - self._num_warmup_steps))]

    def _rate(self, rate: float, progress: float) -> float:
        raise NotImplementedError


class ConstantWarmupLRScheduler(_WarmupLRScheduler):
    """Stays where the warm-up ends."""

    def __init__(self, total_steps: int, warmup: float = 0.002):
        super().__init__(total_steps, warmup)

    def _rate(self, rate: float, progress: float) -> float:
        return rate


class CosineWarmupLRScheduler(_WarmupLRScheduler):
    """Follows `cycles` waves of a cosine; the default is the half wave from the rate to 0."""

    def __init__(self, total_steps: int, cycles: float = 0.5, warmup: float = 0.002):
        super().__init__(total_steps, warmup)
        refuse_unless(isinstance(cycles, float) and cycles > 0, f"cycles must be a positive float, not {cycles!r}")
        self.cycles = cycles

    def _rate(self, rate: float, progress: float) -> float:
        return rate * max(0.0, (1 + math.cos(2 * math.pi * self.cycles * progress)) / 2)


class LinearWarmupLRScheduler(_WarmupLRScheduler):
    """Falls to 0 along a line."""

    def __init__(self, total_steps: int, warmup: float = 0.002):
        super().__init__(total_steps, warmup)

    def _rate(self, rate: float, progress: float) -> float:
        return rate * max(0.0, 1 - progress)


class PolyWarmupLRScheduler(_WarmupLRScheduler):
    """Falls to `lr_end` along a power of what is left."""

    def __init__(self, total_steps: int, lr_end: float = 1e-7, power: float = 1.0, warmup: float = 0.002):
        super().__init__(total_steps, warmup)
        refuse_unless(isinstance(lr_end, float) and lr_end >= 0, f"lr_end must be a float of at least 0, not {lr_end!r}")
        refuse_unless(isinstance(power, float) and power >= 0, f"power must be a float of at least 0, not {power!r}")
        self.lr_end, self.power = lr_end, power

    def get_lr(self, train_step_info: Any) -> list[float]:
        rate = train_step_info.optimizer_config.lr
        refuse_unless(rate > self.lr_end, f"lr_end ({self.lr_end}) must be smaller than the rate ({rate})")
        return super().get_lr(train_step_info)

    def _rate(self, rate: float, progress: float) -> float:
        left = max(0.0, 1 - progress)
        return (rate - self.lr_end) * left**self.power + self.lr_end if progress <= 1 else self.lr_end
