"""Data with outliers in products, convolutions and normalizations: results are as near to float64 as a direct sum in float32.

An algorithm that mixes elements (Winograd, Strassen, a folded BatchNormalization) can lose what lies beside an outlier. Each element must
be near where sums are direct. Winograd's transforms mix the pixels of a tile, so there the largest error of each filter counts; and what
is not finite spoils its tile. A pixel that outweighs all others makes the direct sum as good as one product, and more is borne.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.attack.subject import Problem, Subject, examine, session_of

FACTOR = 10
"""How many times the error of the direct sum is borne."""
LONE_FACTOR = 20
"""The same of Winograd's transforms, if one pixel outweighs all others."""
LONE = 10
"""From so many times the next largest on, a pixel does."""
ULPS = 4
"""The least bound, in units in the last place of the sum of the magnitudes: a direct sum may be right by luck."""
EPSILON = 2.0**-23

Array = np.ndarray
Function = Callable[..., Array]


def run(rng: random.Random) -> None:
    subject, function = rng.choices((product, convolution, depthwise, folded, rows), (1, 5, 1, 1, 1))[0](rng)
    examine(subject, judge_with(function))


def judge_with(function: Function) -> Callable[[Subject], None]:
    def judge(subject: Subject) -> None:
        operands = [*subject.feeds.values(), *map(numpy_helper.to_array, subject.model.graph.initializer)]
        with np.errstate(all="ignore"):
            exact = function(*(one.astype(np.float64) for one in operands))
            direct = function(*operands).astype(np.float64)
            magnitudes = function(*(np.abs(one.astype(np.float64)) for one in operands), magnitudes=True)
        session = session_of(
            subject.model, level=subject.levels[0], threads=subject.threads, **DIRECT if is_direct(subject) else {}
        )
        by_filter = not is_direct(subject) and exact.ndim == 4
        factor = LONE_FACTOR if by_filter and has_lone_pixel(subject.feeds["x"]) else FACTOR
        for who in ("first run", "second run"):
            (got,) = session.run(None, dict(subject.feeds))
            check(got.astype(np.float64), exact, direct, magnitudes, who, by_filter=by_filter, factor=factor)

    return judge


DIRECT = {"session.winograd": "off"}


def is_direct(subject: Subject) -> bool:
    return bool(subject.notes["direct"])


def has_lone_pixel(x: Array) -> bool:
    second, largest = np.partition(np.abs(x), -2, axis=None)[-2:]
    return bool(largest > LONE * second)


def check(
    got: Array, exact: Array, direct: Array, magnitudes: Array, who: str, *, by_filter: bool, factor: int = FACTOR
) -> None:
    if got.shape != exact.shape:
        raise Problem(f"{who}: shape {got.shape} for {exact.shape}")
    largest = float(np.finfo(np.float32).max)
    with np.errstate(all="ignore"):
        safe = magnitudes < largest / 8  # where no partial sum overflows
        bound = factor * np.maximum(np.abs(direct - exact), ULPS * EPSILON * magnitudes) + float(np.finfo(np.float32).tiny)
        if by_filter:
            bound = np.broadcast_to(np.nanmax(np.where(safe, bound, 0), axis=(0, 2, 3), keepdims=True, initial=0), bound.shape)
            safe &= np.isfinite(exact).all()
        wrong = safe & ~(np.abs(got - exact) <= bound)
    wrong |= np.isnan(exact) & ~np.isnan(got)
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        with np.errstate(all="ignore"):
            times = np.nanmax(np.where(wrong, np.abs(got - exact) / bound, 0)) * factor
        raise Problem(
            f"{who}: {int(wrong.sum())} of {wrong.size} elements differ, at {list(at)} {got[at]!r} for {exact[at]!r}, "
            f"sum of magnitudes {magnitudes[at]:.3g}, at worst {times:.3g} times the direct sum's error"
        )


# --- data


def spoiled(
    rng: random.Random, numbers: np.random.Generator, x: Array, w: Array, channel: int, filter_axis: int
) -> tuple[Array, Array]:
    """Inputs and weights with something extreme in them; `channel` is the axis of both that is summed over."""
    x, w = x.copy(), w.copy()
    match rng.choice((0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7)):
        case 0:  # one channel large, and its weights small
            at = rng.randrange(x.shape[channel])
            np.moveaxis(x, channel, 0)[at] *= 1e4
            np.moveaxis(w, channel if filter_axis == 0 else 0, 0)[at] *= 1e-4
        case 1:
            np.moveaxis(w, filter_axis, 0)[rng.randrange(w.shape[filter_axis])] *= 1e5
        case 2:
            x.flat[rng.randrange(x.size)] *= 1e3
        case 3:
            x.flat[rng.randrange(x.size)] = rng.choice((np.nan, np.inf, -np.inf))
        case 4:
            x *= numbers.choice((1e-42, 1e-30, 1.0, 1e10), x.shape).astype(np.float32)
        case 5:
            x *= np.float32(1e-40)
        case 6:
            x += np.float32(1e3)
        case 7:
            w *= numbers.choice((0.0, 1e-6, 1.0, 1e4), w.shape).astype(np.float32)
    return x, w


def model_of(nodes: list[onnx.NodeProto], x: Array, constants: dict[str, Array], open_axes: bool) -> onnx.ModelProto:
    sizes = [None] * x.ndim if open_axes else list(x.shape)
    graph = helper.make_graph(
        nodes,
        "outliers",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def subject_of(rng: random.Random, nodes: list[onnx.NodeProto], x: Array, constants: dict[str, Array]) -> Subject:
    model = model_of(nodes, x, constants, rng.random() < 0.3)
    levels = (rng.choice((0, 1, 2, 99, 99)),)
    return Subject(model, {"x": x}, threads=rng.choice((1, 2)), levels=levels, notes={"direct": rng.random() < 0.25})


def normal(numbers: np.random.Generator, *shape: int) -> Array:
    return numbers.standard_normal(shape).astype(np.float32)


# --- what is computed


def product(rng: random.Random) -> tuple[Subject, Function]:
    numbers = np.random.default_rng(rng.getrandbits(32))
    m, k, n = (rng.choice((1, 3, 8, 17, 64, 130, 256)) for _ in range(3))
    x, w = spoiled(rng, numbers, normal(numbers, m, k), normal(numbers, k, n), 1, 1)
    function: Function = lambda x, w, magnitudes=False: np.einsum("mk,kn->mn", x, w)  # noqa: E731
    return subject_of(rng, [helper.make_node("MatMul", ["x", "w"], ["y"])], x, {"w": w}), function


def convolution(rng: random.Random) -> tuple[Subject, Function]:
    numbers = np.random.default_rng(rng.getrandbits(32))
    channels, filters = rng.choice((3, 16, 32, 64, 128)), rng.choice((4, 16, 33, 64, 128))
    size, kernel, stride = rng.choice((5, 8, 13, 20, 28)), rng.choice((1, 1, 3, 3, 3, 5)), rng.choice((1, 1, 1, 1, 2))
    if kernel == 1 and rng.random() < 0.6:  # large enough for Strassen's product
        channels, filters, size = rng.choice((256, 512)), rng.choice((256, 512)), 14
    x, w = normal(numbers, rng.choice((1, 1, 2)), channels, size, size), normal(numbers, filters, channels, kernel, kernel)
    x, w = spoiled(rng, numbers, x, w, 1, 0)
    pad = kernel // 2
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[pad] * 4, strides=[stride] * 2)
    return subject_of(rng, [node], x, {"w": w}), lambda x, w, magnitudes=False: direct_convolution(x, w, pad, stride)


def direct_convolution(x: Array, w: Array, pad: int, stride: int) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,fcij->nfhw", windows, w)


def depthwise(rng: random.Random) -> tuple[Subject, Function]:
    numbers = np.random.default_rng(rng.getrandbits(32))
    channels, size, kernel = rng.choice((1, 3, 8, 17, 32)), rng.choice((5, 9, 16, 28)), rng.choice((3, 5))
    x, w = normal(numbers, 1, channels, size, size), normal(numbers, channels, 1, kernel, kernel)
    x.flat[rng.randrange(x.size)] *= rng.choice((1e3, 1e6))
    w[rng.randrange(channels)] *= np.float32(1e5)
    pad = kernel // 2
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[pad] * 4, group=channels)

    def function(x: Array, w: Array, magnitudes: bool = False) -> Array:
        parts = [direct_convolution(x[:, c : c + 1], w[c : c + 1], pad, 1) for c in range(channels)]
        return np.concatenate(parts, axis=1)

    return subject_of(rng, [node], x, {"w": w}), function


def folded(rng: random.Random) -> tuple[Subject, Function]:
    """A convolution and a BatchNormalization of tiny variances, which a level above 0 makes one."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    channels, filters, size = rng.choice((3, 8, 16)), rng.choice((4, 8, 16)), rng.choice((5, 8, 14))
    x, w = normal(numbers, 1, channels, size, size), normal(numbers, filters, channels, 3, 3)
    constants = {
        "w": w,
        "scale": normal(numbers, filters),
        "shift": normal(numbers, filters),
        "mean": normal(numbers, filters) * np.float32(rng.choice((1.0, 100.0))),
        "variance": np.exp(numbers.uniform(-14, 1, filters)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "variance"], ["y"]),
    ]

    def function(
        x: Array, w: Array, scale: Array, shift: Array, mean: Array, variance: Array, magnitudes: bool = False
    ) -> Array:
        across = [one.reshape(-1, 1, 1) for one in (scale, shift, mean, variance)]
        summed = direct_convolution(x, w, 1, 1)
        less = summed + across[2] if magnitudes else summed - across[2]
        return less / np.sqrt(across[3] + x.dtype.type(1e-5)) * across[0] + across[1]

    return subject_of(rng, nodes, x, constants), function


def rows(rng: random.Random) -> tuple[Subject, Function]:
    """Sums along rows."""
    numbers = np.random.default_rng(rng.getrandbits(32))
    x = normal(numbers, rng.choice((1, 5, 32)), rng.choice((7, 64, 1000)))
    x, _ = spoiled(rng, numbers, x, normal(numbers, x.shape[1], 1), 1, 1)
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    subject = subject_of(rng, [node], x, {"axes": np.asarray([1], np.int64)})
    return subject, lambda x, axes, magnitudes=False: np.einsum("mk->m", x)
