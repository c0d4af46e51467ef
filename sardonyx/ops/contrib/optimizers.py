"""The first optimizers of training graphs, a node for each tensor or group of tensors: signatures and inference.

`ops/gradients/optimizer_bodies.py` says what they compute; `training.py` has those of later graphs.
"""

from __future__ import annotations

from sardonyx.dtypes import FLOATS, bfloat16, bool_, float16, float32, float64, int64
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

HALVES, WIDE = {float16, bfloat16}, {float32, float64}
GROUP = 5
"""Of each tensor LAMB takes and gives weights, gradients, two moments, and weights of half precision."""

define(
    "com.microsoft",
    "SGDOptimizer",
    1,
    "(ETA: L, W: T, G: T) -> (NW: T?, NG: T?)",
    L={float32},
    T=FLOATS,
)
define(
    "com.microsoft",
    "AdamOptimizer",
    1,
    "(R: T1, T: T2, weights: T3, gradients: T_GRAD, moment_1: T4, moment_2: T4, mixed_precision_weights: T_HALF?,"
    " loss_scale: T3?, global_gradient_norm: T_NORM?, update_signal: T_BOOL?, *,"
    " alpha: float = 0.9, beta: float = 0.999, lambda: float = 0.0, epsilon: float = 1e-8, max_norm_clip: float = 1.0,"
    " do_bias_correction: int = 1, weight_decay_mode: int = 0)"
    " -> (new_T: T2, new_moment_1: T4, new_moment_2: T4, new_weights: T3?, new_gradients: T_GRAD?,"
    " new_mixed_precision_weights: T_HALF?)",
    T1=FLOATS,
    T2={int64},
    T3=WIDE,
    T4=FLOATS,
    T_GRAD=FLOATS,
    T_HALF=HALVES,
    T_NORM=FLOATS,
    T_BOOL={bool_},
)
define(
    "com.microsoft",
    "LambOptimizer",
    1,
    "(update_signal: T_BOOL?, loss_scale: T2?, gradient_norm: T_NORM?, R: T1?, step: T_STEP?, **groups: T3??, *,"
    " alpha: floats?, beta: floats?, lambda: floats?, ratio_min: float?, ratio_max: float?, epsilon: floats?,"
    " max_norm_clip: floats?, do_bias_correction: int = 1) -> (new_step: T_STEP?, **new_groups: T3??)",
    T1=FLOATS,
    T2=WIDE,
    T3=FLOATS,
    T_NORM=FLOATS,
    T_STEP={int64},
    T_BOOL={bool_},
)


@contrib("SGDOptimizer")
def sgd_optimizer(W):
    return [W.type, W.type]


@contrib("AdamOptimizer")
def adam_optimizer(T, weights, gradients, moment_1, moment_2, mixed_precision_weights):
    rounded = None if mixed_precision_weights is None else mixed_precision_weights.type
    return [T.type, moment_1.type, moment_2.type, weights.type, gradients.type, rounded]


@contrib("LambOptimizer")
def lamb_optimizer(step, groups):
    return [operand and operand.type for operand in (step, *groups)]
