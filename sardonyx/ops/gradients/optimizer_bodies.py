"""What the first optimizers of training graphs compute: SGD, Adam and LAMB, in ONNX's own ops."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail
from sardonyx.ops.contrib.optimizers import GROUP
from sardonyx.ops.gradients.builder import CONTRIB
from sardonyx.ops.gradients.table import body
from sardonyx.ops.reading import attribute_value


def contrib(*ops):
    return body(*ops, domain=CONTRIB)


@contrib("SGDOptimizer")
def sgd_optimizer(op, ETA, W, G):
    moved = op.Neg(op.Mul(op.cast(_scalar(op, ETA), G), G))
    return op.Add(W, moved), moved


@contrib("AdamOptimizer")
def adam_optimizer(
    op,
    node,
    R,
    T,
    weights,
    gradients,
    moment_1,
    moment_2,
    mixed_precision_weights,
    loss_scale,
    global_gradient_norm,
    update_signal,
    alpha,
    beta,
    epsilon,
    max_norm_clip,
    do_bias_correction,
    weight_decay_mode,
):
    """Weights decay before they move, with the gradient's direction, or after it, by a part of what they are then."""
    if weight_decay_mode not in (0, 1):
        raise Fail(f"{node}: weight_decay_mode is {weight_decay_mode}, it can be 0 or 1")
    decay, rate = _given(node, "lambda", 0.0), op.cast(_scalar(op, R), weights)
    gradient = _unscaled(op, gradients, weights, loss_scale, global_gradient_norm, max_norm_clip)
    m, v = _moments(op, gradient, moment_1, moment_2, alpha, beta)
    first, second = _corrections(op, T, weights, alpha, beta, do_bias_correction)
    if weight_decay_mode == 0:
        direction = op.Add(_direction(op, m, v, first, second, epsilon), op.scaled(weights, decay))
        moved = op.Neg(op.Mul(rate, direction))
        new = op.Add(weights, moved)
    else:
        rate_now = op.Div(op.Mul(rate, op.Sqrt(second)), first)
        moved = op.Neg(op.Div(op.Mul(rate_now, m), op.Add(op.Sqrt(v), op.number(epsilon, v))))
        bare = op.Add(weights, moved)
        new = op.Sub(bare, op.Mul(op.scaled(rate, decay), bare))
    signal = None if update_signal is None else _scalar(op, update_signal)
    results = _stored(op, (weights, gradients, moment_1, moment_2, mixed_precision_weights), (new, moved, m, v), signal)
    return _next(op, T, signal), results[2], results[3], results[0], results[1], results[4]


@contrib("LambOptimizer")
def lamb_optimizer(op, node, update_signal, loss_scale, gradient_norm, R, step, groups, do_bias_correction):
    """Each tensor moves in Adam's direction, as far as its own norm says."""
    if R is None:
        raise Fail(f"{node} has no R, the rate of learning")
    if do_bias_correction and step is None:
        raise Fail(f"{node} has no step, which a correction of biases needs")
    groups = [*groups, *[None] * (-len(groups) % GROUP)]
    signal = None if update_signal is None else _scalar(op, update_signal)
    results = [None if step is None else _next(op, step, signal)]
    for number in range(len(groups) // GROUP):
        group = groups[GROUP * number : GROUP * (number + 1)]
        if any(part is None for part in group[:4]):
            raise Fail(f"{node}: of tensor {number} weights, gradients and two moments must be given")
        parts = _lamb(op, node, group, number, (loss_scale, gradient_norm), R, step, do_bias_correction)
        results += _stored(op, group, parts, signal)
    return results


def _lamb(op, node, group, number, scales, R, step, is_corrected):
    """New weights, how they moved, and new moments, of one tensor."""
    weights, gradients, moment_1, moment_2, _ = group
    defaults = {"alpha": 0.9, "beta": 0.999, "lambda": 0.0, "epsilon": 1e-6, "max_norm_clip": 1.0}
    alpha, beta, decay, epsilon, most = (_of_tensor(node, name, number, value) for name, value in defaults.items())
    gradient = _unscaled(op, gradients, weights, *scales, most)
    m, v = _moments(op, gradient, moment_1, moment_2, alpha, beta)
    first, second = _corrections(op, step, weights, alpha, beta, is_corrected)
    direction = op.Add(_direction(op, m, v, first, second, epsilon), op.scaled(weights, decay))
    ratio = _ratio(op, weights, direction, _given(node, "ratio_min", -np.inf), _given(node, "ratio_max", np.inf))
    moved = op.Neg(op.Mul(op.Mul(op.cast(_scalar(op, R), weights), ratio), direction))
    return op.Add(weights, moved), moved, m, v


def _ratio(op, weights, direction, least, most):
    """Of the two norms, between bounds; 1 where either is 0."""
    norms = [op.ReduceL2(value, keepdims=0) for value in (weights, direction)]
    zero, one = op.number(0, weights), op.number(1, weights)
    either = op.Or(*(op.Equal(norm, zero) for norm in norms))
    ratio = op.Div(norms[0], op.Where(either, one, norms[1]))
    bounded = op.Min(op.Max(ratio, op.number(least, weights)), op.number(most, weights))
    return op.Where(either, one, bounded)


def _of_tensor(node, name, number, default):
    """The number of an attribute that has one for each tensor."""
    values = _given(node, name, [default] * (number + 1))
    if number >= len(values):
        raise Fail(f"{node}: {name} has {len(values)} numbers, and there are more tensors")
    return values[number]


def _given(node, name, default):
    """An attribute whose name is a word of Python, or whose default no text can say."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute_value(attribute.value)


def _scalar(op, value):
    return op.Reshape(value, op.constant(np.array([], np.int64)))


def _unscaled(op, gradients, weights, loss_scale, norm, most):
    """Gradients of the loss as it is, shortened where their norm, which is that of the scaled ones, is above a bound."""
    gradient, divisor = op.cast(gradients, weights), None
    if loss_scale is not None:
        divisor = op.cast(_scalar(op, loss_scale), weights)
    if norm is not None:
        needed = op.scaled(op.cast(_scalar(op, norm), weights), 1 / most)
        divisor = op.Max(needed, op.number(1, weights) if divisor is None else divisor)
    return gradient if divisor is None else op.Div(gradient, divisor)


def _moments(op, gradient, moment_1, moment_2, alpha, beta):
    m = op.Add(op.scaled(op.cast(moment_1, gradient), alpha), op.scaled(gradient, 1 - alpha))
    return m, op.Add(op.scaled(op.cast(moment_2, gradient), beta), op.scaled(op.Mul(gradient, gradient), 1 - beta))


def _direction(op, m, v, first, second, epsilon):
    return op.Div(op.Div(m, first), op.Add(op.Sqrt(op.Div(v, second)), op.number(epsilon, v)))


def _corrections(op, step, like, alpha, beta, is_corrected):
    """1 - alpha^step and 1 - beta^step, which float32 would have few digits of."""
    if not is_corrected:
        return op.number(1, like), op.number(1, like)
    count = op.Cast(_scalar(op, step), to=dtypes.float64.code)
    one = op.number(1, count)
    return tuple(op.cast(op.Sub(one, op.Pow(op.number(factor, count), count)), like) for factor in (alpha, beta))


def _next(op, step, signal):
    more = op.Add(step, op.number(1, step))
    return more if signal is None else op.Where(signal, more, step)


def _stored(op, old, new, signal):
    """The results of a tensor in their types, or what was there before where the signal says that nothing happens."""
    rounded = None if old[4] is None else op.cast(new[0], old[4])
    results = [*(op.cast(value, before) for value, before in zip(new, old[:4], strict=True)), rounded]
    if signal is None:
        return results
    return [None if value is None else op.Where(signal, value, before) for value, before in zip(results, old, strict=True)]
