"""Learning rates that change from step to step."""

from __future__ import annotations

from sardonyx.training.api.optimizer import Optimizer


class LinearLRScheduler:
    """Rises from 0 to the initial rate over the warm-up, then falls to 0 at the last step.

    The steps that count are the optimizer's. onnxruntime 1.19.2 exchanges the two counts; here each is what its name says.
    """

    def __init__(self, optimizer: Optimizer, warmup_step_count: int, total_step_count: int, initial_lr: float):
        if warmup_step_count < 0 or total_step_count < 0:
            raise ValueError(f"counts of steps must not be negative: {warmup_step_count} and {total_step_count}")
        self._optimizer = optimizer
        self._warmup, self._total, self._initial = warmup_step_count, total_step_count, initial_lr
        self.step()

    def step(self) -> None:
        """Give the optimizer the rate of its next step."""
        self._optimizer.set_learning_rate(self._initial * self._factor(self._optimizer._step_count))

    def _factor(self, step: int) -> float:
        if step < self._warmup:
            return step / max(1, self._warmup)
        return max(0.0, (self._total - step) / max(1, self._total - self._warmup))
