"""Settings of optimizers as records, under the names of `onnxruntime.training.optim.config`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

INFINITY = float("inf")


def refuse_unless(holds: bool, message: str) -> None:
    """The original's checks are assertions, which its users may catch; these do not go away with `python -O`."""
    if not holds:
        raise AssertionError(message)


class _OptimizerConfig:
    """The name of an optimizer, its settings, and groups of parameters with settings of their own."""

    def __init__(self, name: str, params: Sequence[dict[str, Any]], defaults: Mapping[str, Any]):
        names = ("AdamOptimizer", "LambOptimizer", "SGDOptimizer")
        refuse_unless(name in names, f"'name' must be one of {', '.join(names)}, not {name!r}")
        rate = defaults.get("lr")
        refuse_unless(isinstance(rate, (int, float)) and rate >= 0, f"'lr' must be a number of at least 0, not {rate!r}")
        refuse_unless(isinstance(params, list), f"'params' must be a list, not {type(params)}")
        self.name = name
        self.lr = float(defaults["lr"])
        self.defaults = dict(defaults)
        self.params = [self._group(group) for group in params]

    def _group(self, group: dict[str, Any]) -> dict[str, Any]:
        refuse_unless(
            isinstance(group, dict) and "params" in group and len(group) > 1,
            "each of 'params' must be a dict with 'params', a list of names of parameters, and settings for these",
        )
        settings = {"lambda" if name == "lambda_coef" else name: value for name, value in group.items()}
        refuse_unless("lr" not in settings, "'lr' cannot be set for a group of 'params'")
        unknown = settings.keys() - self.defaults.keys() - {"params"}
        refuse_unless(not unknown, f"'params' has settings that {self.name} does not have: {', '.join(sorted(unknown))}")
        return {**self.defaults, **settings}


def _check_numbers(**numbers: float) -> None:
    for name, number in numbers.items():
        refuse_unless(number >= 0, f"'{name}' must be a number of at least 0, not {number!r}")


def _check_form(max_norm_clip: float, do_bias_correction: bool) -> None:
    refuse_unless(max_norm_clip != 0, "'max_norm_clip' must not be 0")
    refuse_unless(isinstance(do_bias_correction, bool), f"'do_bias_correction' must be a bool, not {do_bias_correction!r}")


class SGDConfig(_OptimizerConfig):
    """Stochastic gradient descent: all parameters are one group."""

    def __init__(self, params: Sequence[dict[str, Any]] = (), lr: float = 0.001):
        refuse_unless(not params, "'params' must be empty for SGD")
        super().__init__("SGDOptimizer", [], {"lr": lr})


class AdamConfig(_OptimizerConfig):
    """Adam; `lambda_coef` is the decay of weights."""

    class DecayMode(IntEnum):
        """When weights decay."""

        BEFORE_WEIGHT_UPDATE = 0
        AFTER_WEIGHT_UPDATE = 1

    def __init__(
        self,
        params: Sequence[dict[str, Any]] = (),
        lr: float = 0.001,
        alpha: float = 0.9,
        beta: float = 0.999,
        lambda_coef: float = 0.0,
        epsilon: float = 1e-8,
        max_norm_clip: float = 1.0,
        do_bias_correction: bool = True,
        weight_decay_mode: DecayMode = DecayMode.BEFORE_WEIGHT_UPDATE,
    ):
        _check_numbers(lr=lr, alpha=alpha, beta=beta, lambda_coef=lambda_coef, epsilon=epsilon)
        _check_form(max_norm_clip, do_bias_correction)
        refuse_unless(
            isinstance(weight_decay_mode, AdamConfig.DecayMode), "'weight_decay_mode' must be one of AdamConfig.DecayMode"
        )
        self.alpha, self.beta, self.lambda_coef, self.epsilon = alpha, beta, lambda_coef, epsilon
        self.max_norm_clip, self.do_bias_correction = max_norm_clip, do_bias_correction
        self.weight_decay_mode = weight_decay_mode
        super().__init__("AdamOptimizer", list(params), _defaults(self, lr))


class LambConfig(_OptimizerConfig):
    """LAMB: Adam whose steps are measured by the norm of each weight, within a least and a largest ratio."""

    def __init__(
        self,
        params: Sequence[dict[str, Any]] = (),
        lr: float = 0.001,
        alpha: float = 0.9,
        beta: float = 0.999,
        lambda_coef: float = 0.0,
        ratio_min: float = -INFINITY,
        ratio_max: float = INFINITY,
        epsilon: float = 1e-6,
        max_norm_clip: float = 1.0,
        do_bias_correction: bool = False,
    ):
        _check_numbers(lr=lr, alpha=alpha, beta=beta, lambda_coef=lambda_coef, epsilon=epsilon)
        _check_form(max_norm_clip, do_bias_correction)
        for name, ratio in (("ratio_min", ratio_min), ("ratio_max", ratio_max)):
            refuse_unless(isinstance(ratio, float), f"'{name}' must be a float, not {ratio!r}")
        self.alpha, self.beta, self.lambda_coef, self.epsilon = alpha, beta, lambda_coef, epsilon
        self.ratio_min, self.ratio_max = ratio_min, ratio_max
        self.max_norm_clip, self.do_bias_correction = max_norm_clip, do_bias_correction
        super().__init__("LambOptimizer", list(params), _defaults(self, lr))


def _defaults(config: _OptimizerConfig, lr: float) -> dict[str, Any]:
    return {"lr": lr, **{"lambda" if name == "lambda_coef" else name: value for name, value in vars(config).items()}}
