"""Optimizer steps of the domain ai.onnx.preview.training, composed of elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sardonyx.dtypes import float64
from sardonyx.ir import Value
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.values import dims
from sardonyx.providers.provider import CannotCompile

TRAINING = "ai.onnx.preview.training"
Step = Callable[..., tuple[Value, ...]]


def _each(op: Composer, step: Step, inputs: Sequence[Value], groups: int) -> list[Value]:
    """Apply `step` to each optimized tensor; `inputs` holds all tensors, then all gradients, then all of each further state."""
    if len(inputs) % groups:
        raise CannotCompile(f"{len(inputs)} tensors cannot be divided into {groups} groups", quiet=True)
    count = len(inputs) // groups
    for number, value in enumerate(inputs):
        op.require_shape(value, dims(inputs[number % count]))
    results = [step(*inputs[number::count]) for number in range(count)]
    return [result[part] for part in range(groups - 1) for result in results]


def _scaled(op: Composer, value: Value, factor: float) -> Value:
    made: Value = op.Mul(value, op.number(factor, value))
    return made


def _gradient(op: Composer, X: Value, G: Value, norm_coefficient: float) -> Value:
    """With the slope of a penalty on the squares of the weights."""
    made: Value = op.Add(_scaled(op, X, norm_coefficient), G) if norm_coefficient else G
    return made


def _is_later(op: Composer, T: Value) -> Value:
    made: Value = op.Greater(T, op.number(0, T))
    return made


@compose("Adagrad", domain=TRAINING)
def adagrad(
    op: Composer, R: Value, T: Value, inputs: list[Value], decay_factor: float, epsilon: float, norm_coefficient: float
) -> Sequence[Value]:
    rate = op.Div(R, op.Add(_scaled(op, op.cast(T, R), decay_factor), op.number(1, R)))

    def step(X: Value, G: Value, H: Value) -> tuple[Value, ...]:
        gradient = _gradient(op, X, G, norm_coefficient)
        squares = op.Add(H, op.Mul(gradient, gradient))
        moved = op.Div(op.Mul(op.cast(rate, X), gradient), op.Add(op.Sqrt(squares), op.number(epsilon, X)))
        return op.Sub(X, moved), squares

    return _each(op, step, inputs, groups=3)


@compose("Adam", domain=TRAINING)
def adam(
    op: Composer,
    R: Value,
    T: Value,
    inputs: list[Value],
    alpha: float,
    beta: float,
    epsilon: float,
    norm_coefficient: float,
    norm_coefficient_post: float,
) -> Sequence[Value]:
    rate = _adam_rate(op, R, T, alpha, beta)

    def step(X: Value, G: Value, V: Value, H: Value) -> tuple[Value, ...]:
        gradient = _gradient(op, X, G, norm_coefficient)
        momentum = op.Add(_scaled(op, V, alpha), _scaled(op, gradient, 1 - alpha))
        squares = op.Add(_scaled(op, H, beta), _scaled(op, op.Mul(gradient, gradient), 1 - beta))
        moved = op.Div(op.Mul(op.cast(rate, X), momentum), op.Add(op.Sqrt(squares), op.number(epsilon, X)))
        return _scaled(op, op.Sub(X, moved), 1 - norm_coefficient_post), momentum, squares

    return _each(op, step, inputs, groups=4)


def _adam_rate(op: Composer, R: Value, T: Value, alpha: float, beta: float) -> Value:
    """From the second step on the rate makes up for means that began at zero."""
    wide, steps = op.cast_to(R, float64), op.cast_to(T, float64)
    one = op.number(1, wide)

    def missing(factor: float) -> Value:
        made: Value = op.Sub(one, op.Pow(op.number(factor, wide), steps))
        return made

    later = op.Div(op.Mul(wide, op.Sqrt(missing(beta))), missing(alpha))
    made: Value = op.Where(_is_later(op, T), later, wide)
    return made


@compose("Momentum", domain=TRAINING)
def momentum(
    op: Composer, R: Value, T: Value, inputs: list[Value], alpha: float, beta: float, mode: str, norm_coefficient: float
) -> Sequence[Value]:
    if mode not in ("standard", "nesterov"):
        raise CannotCompile(f"mode is {mode!r}", quiet=True)

    def step(X: Value, G: Value, V: Value) -> tuple[Value, ...]:
        gradient = _gradient(op, X, G, norm_coefficient)
        # the first step takes the gradient whole
        share = op.Where(_is_later(op, T), op.number(beta, X), op.number(1, X))
        following = op.Add(_scaled(op, V, alpha), op.Mul(share, gradient))
        direction = op.Add(gradient, _scaled(op, following, alpha)) if mode == "nesterov" else following
        return op.Sub(X, op.Mul(op.cast(R, X), direction)), following

    return _each(op, step, inputs, groups=3)
