"""Cases of the optimizers of ai.onnx.preview.training, against their equations number by number."""

import math

import numpy as np

from sardonyx.dtypes import float32, float64
from tests.ops.cases import case, f32, f64, refuse

TRAINING = "ai.onnx.preview.training"
EITHER = {float32, float64}


def updated(step, inputs, groups):
    """`step(x, g, *states)` of every number, collected by output; tensors stand group by group."""
    count = len(inputs) // groups
    outputs = [[] for _ in range(groups - 1)]
    for k in range(count):
        parts = [np.vectorize(step, otypes=[np.float64] * (groups - 1))(*inputs[k::count])]
        for output, part in zip(outputs, parts[0], strict=True):
            output.append(part)
    return tuple(tensor for output in outputs for tensor in output)


def adagrad(R, T, inputs, decay_factor=0.0, epsilon=1e-6, norm_coefficient=0.0):
    def step(x, g, h):
        g = norm_coefficient * x + g
        h = h + g * g
        return x - R / (1 + T * decay_factor) * g / (math.sqrt(h) + epsilon), h

    return updated(step, inputs, 3)


def adam(R, T, inputs, alpha=0.9, beta=0.999, epsilon=1e-6, norm_coefficient=0.0, norm_coefficient_post=0.0):
    def step(x, g, v, h):
        g = norm_coefficient * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        rate = R * math.sqrt(1 - beta**T) / (1 - alpha**T) if T > 0 else R
        return (1 - norm_coefficient_post) * (x - rate * v / (math.sqrt(h) + epsilon)), v, h

    return updated(step, inputs, 4)


def momentum(R, T, inputs, alpha, beta, mode, norm_coefficient):
    def step(x, g, v):
        g = norm_coefficient * x + g
        v = alpha * v + (beta if T > 0 else 1) * g
        return x - R * (g + alpha * v if mode == "nesterov" else v), v

    return updated(step, inputs, 3)


def group(states):
    """Two tensors of different shapes, with gradients and so many states that are never negative."""
    return [f32(2, 3), f32(4), f32(2, 3), f32(4)] + [np.abs(f32(*shape)) for _ in range(states) for shape in ((2, 3), (4,))]


for T in (0, 1, 7):
    common = {"R": np.float32(0.1), "T": np.int64(T), "domain": TRAINING}
    case("Adagrad", inputs=group(1), **common, expect=adagrad)
    case("Adagrad", inputs=group(1), **common, decay_factor=0.1, epsilon=1e-2, norm_coefficient=0.5, expect=adagrad)
    case("Adam", inputs=group(2), **common, expect=adam)
    case("Adam", inputs=group(2), **common, alpha=0.5, beta=0.75, epsilon=1e-2, expect=adam)
    case("Adam", inputs=group(2), **common, norm_coefficient=0.5, norm_coefficient_post=0.25, expect=adam)
    for mode in ("standard", "nesterov"):
        settings = {"alpha": 0.5, "beta": 0.25, "mode": mode, "norm_coefficient": 0.125}
        case("Momentum", inputs=group(1), **common, **settings, expect=momentum)

START = {"R": np.float32(0.5), "T": np.int64(0), "domain": TRAINING}
case("Adagrad", inputs=[f64(2, 3), f64(2, 3), np.abs(f64(2, 3))], **START, types={"T1": EITHER}, expect=adagrad)
case("Adagrad", inputs=[f32(), f32(), np.abs(f32())], **START, expect=adagrad)
case("Adam", inputs=[f32(0, 3)] * 4, **START, expect=(np.zeros((0, 3)),) * 3)
refuse("Adagrad", inputs=[f32(2)] * 4, **START, match="4 tensors cannot be divided into 3 groups")
refuse("Adam", inputs=[f32(2)] * 6, **START, match="6 tensors cannot be divided into 4 groups")
refuse("Momentum", inputs=[f32(2)] * 3, **START, alpha=0.5, beta=0.5, mode="other", norm_coefficient=0.0, match="mode must be")
