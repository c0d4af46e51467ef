"""Settings of optimizers, learning rates and scales of losses: `training.optim` and `training.amp`, as far as they need no PyTorch."""

from __future__ import annotations

import math
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sardonyx.training import amp, optim
from sardonyx.training.optim import AdamConfig, LambConfig, SGDConfig


def step(number: int, rate: float = 0.5) -> Any:
    return SimpleNamespace(optimization_step=number, optimizer_config=SGDConfig(lr=rate))


CURVES: dict[str, tuple[Any, Any]] = {
    "constant": (optim.ConstantWarmupLRScheduler(10, 0.4), lambda done: 1.0),
    "linear": (optim.LinearWarmupLRScheduler(10, 0.4), lambda done: 1 - done),
    "cosine": (optim.CosineWarmupLRScheduler(10, 0.5, 0.4), lambda done: math.cos(math.pi * done / 2) ** 2),
    "poly": (optim.PolyWarmupLRScheduler(10, 0.1, 2.0, 0.4), lambda done: (0.4 * (1 - done) ** 2 + 0.1) / 0.5),
}


@pytest.mark.parametrize("name", CURVES)
def test_rates_follow_their_curves(name: str) -> None:
    """4 steps of warm-up, then 6 along the curve; behind the last step the rate of the end stays."""
    scheduler, curve = CURVES[name]
    for number in range(10):
        expected = number / 4 if number < 4 else curve((number - 4) / 6)
        assert scheduler._step(step(number)) == pytest.approx([0.5 * expected])
        assert scheduler.get_last_lr() == scheduler.get_lr(step(number))
    if name != "cosine":  # which begins its next wave
        assert scheduler.get_lr(step(50)) == pytest.approx([0.5 * curve(1.0)])


REFUSED: dict[str, tuple[Any, str]] = {
    "no steps": (lambda: optim.LinearWarmupLRScheduler(0), "total_steps must be a positive int, not 0"),
    "whole warm-up": (lambda: optim.ConstantWarmupLRScheduler(5, 1.0), "warmup must be a float of at least 0 and less than 1"),
    "cycles": (lambda: optim.CosineWarmupLRScheduler(5, cycles=-1.0), "cycles must be a positive float"),
    "end": (lambda: optim.PolyWarmupLRScheduler(5, lr_end=-1.0), "lr_end must be a float of at least 0"),
    "end above": (lambda: optim.PolyWarmupLRScheduler(5, 0.7).get_lr(step(1)), r"lr_end \(0.7\) must be smaller than the rate"),
    "rate": (lambda: AdamConfig(lr=-1), "'lr' must be a number of at least 0"),
    "not a number": (lambda: LambConfig(beta=float("nan")), "'beta' must be a number of at least 0, not nan"),
    "ratio": (lambda: LambConfig(ratio_min=0), "'ratio_min' must be a float"),
    "mode": (lambda: AdamConfig(weight_decay_mode=0), "'weight_decay_mode' must be one of"),  # type: ignore[arg-type]
    "clip": (lambda: AdamConfig(max_norm_clip=0), "'max_norm_clip' must not be 0"),
    "groups of SGD": (lambda: SGDConfig([{"params": ["w"], "lr": 1}]), "'params' must be empty for SGD"),
    "rate of a group": (lambda: AdamConfig([{"params": ["w"], "lr": 1}]), "'lr' cannot be set for a group"),
    "unknown setting": (lambda: AdamConfig([{"params": ["w"], "gamma": 1}]), "does not have: gamma"),
    "no setting": (lambda: AdamConfig([{"params": ["w"]}]), "must be a dict with 'params'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_settings_are_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(AssertionError, match=message):
        make()


def test_groups_have_all_settings() -> None:
    config = AdamConfig([{"params": ["w", "b"], "lambda_coef": 0.1, "beta": 0.5}], lr=0.01, alpha=0.8)
    assert config.name == "AdamOptimizer" and config.lr == 0.01 and config.alpha == 0.8 and config.lambda_coef == 0.0
    (group,) = config.params
    assert group["params"] == ["w", "b"] and group["lambda"] == 0.1 and group["beta"] == 0.5 and group["alpha"] == 0.8
    assert (
        config.defaults["lambda"] == 0.0 and config.defaults["weight_decay_mode"] is AdamConfig.DecayMode.BEFORE_WEIGHT_UPDATE
    )
    lamb = LambConfig()
    assert (lamb.ratio_min, lamb.ratio_max, lamb.epsilon, lamb.do_bias_correction) == (-math.inf, math.inf, 1e-6, False)


def test_scales_rise_after_finite_steps_and_fall_after_others() -> None:
    scaler = amp.DynamicLossScaler(loss_scale=8, up_scale_window=2, min_loss_scale=4, max_loss_scale=16)
    finite, infinite = SimpleNamespace(all_finite=True), SimpleNamespace(all_finite=False)
    assert [scaler.update(info) for info in (finite, finite, finite, finite, finite, finite)] == [8, 16, 16, 16, 16, 16]
    assert [scaler.update(info) for info in (infinite, finite, infinite, infinite)] == [8, 8, 4, 4]
    scaler.reset()
    assert scaler.loss_scale == 8
    fixed = amp.DynamicLossScaler(automatic_update=False)
    assert fixed.update(infinite) == fixed.loss_scale == 2**16
    with pytest.raises(NotImplementedError):
        amp.LossScaler(1.0).update(finite)


def test_names_of_the_original_are_there_without_torch() -> None:
    code = """
import sardonyx, sys
sardonyx.install_as_onnxruntime()
from onnxruntime.training.optim.lr_scheduler import PolyWarmupLRScheduler, _LRScheduler
from onnxruntime.training.optim.config import _OptimizerConfig
from onnxruntime.training.amp.loss_scaler import DynamicLossScaler
from onnxruntime.training.api.lr_scheduler import LinearLRScheduler
from onnxruntime.training import amp, optim
assert optim.PolyWarmupLRScheduler is PolyWarmupLRScheduler and amp.DynamicLossScaler is DynamicLossScaler
assert 'torch' not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
