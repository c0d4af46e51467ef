"""What losses are multiplied by so that gradients of half precision do not vanish, and when that changes."""

from __future__ import annotations

from typing import Any


class LossScaler:
    """What a loss is multiplied by, and how that changes; `update` is told after each step whether all gradients were finite."""

    def __init__(self, loss_scale: float):
        self._initial_loss_scale = self.loss_scale = float(loss_scale)

    def reset(self) -> None:
        """Begin anew."""
        self.loss_scale = self._initial_loss_scale

    def update(self, train_step_info: Any) -> float:
        """The scale of the next step."""
        raise NotImplementedError


class DynamicLossScaler(LossScaler):
    """Doubles the scale after many finite steps, and halves it after one that was not."""

    def __init__(
        self,
        automatic_update: bool = True,
        loss_scale: float = float(1 << 16),
        up_scale_window: int = 2000,
        min_loss_scale: float = 1.0,
        max_loss_scale: float = float(1 << 24),
    ):
        super().__init__(loss_scale)
        self.automatic_update = automatic_update
        self.up_scale_window = up_scale_window
        self.min_loss_scale = min_loss_scale
        self.max_loss_scale = max_loss_scale
        self._stable_steps_count = 0

    def reset(self) -> None:
        super().reset()
        self._stable_steps_count = 0

    def update(self, train_step_info: Any) -> float:
        """`train_step_info.all_finite` says whether the gradients of the last step were."""
        if not self.automatic_update:
            return self.loss_scale
        if train_step_info.all_finite:
            self._stable_steps_count += 1
            if self._stable_steps_count >= self.up_scale_window:
                self.loss_scale = min(self.max_loss_scale, self.loss_scale * 2)
                self._stable_steps_count = 0
        else:
            self.loss_scale = max(self.min_loss_scale, self.loss_scale / 2)
            self._stable_steps_count = 0
        return self.loss_scale
