"""How the axes of an image are resized, read off a node: which pixels each result is made of, and their weights. Resize asks here.

If all sizes are known, the tables are NumPy's. Else a kernel computes them at each run, in the same order and precision: where the
nearest pixel changes from one to the next depends on the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.builder import Value as Code
from sardonyx.compiler.types import BOOL, F32, F64, I64, Type
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops import checking
from sardonyx.ops.reading import input_named, operand, word
from sardonyx.providers.cpu.resize import COORDINATES, ResizedAxis, nearest_pixels, plan_axes, stencil
from sardonyx.providers.native.kernels.shape.views import content
from sardonyx.providers.native.program.arguments import Arguments, Number, Pointer, Size, when
from sardonyx.providers.native.program.computed_sizes import has_numbers, known_parts
from sardonyx.providers.native.program.kernel import KernelFunction, kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import dims, element_of, required, shape_of
from sardonyx.startup.records import dataclass

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True)
class Resizing:
    """What a node asks for."""

    mode: str
    coordinates: str
    rounding: str
    """Which pixel is the nearest."""
    scales: tuple[float, ...] | None
    """Of all axes; None if sizes are given."""
    sizes: tuple[Dim, ...]
    antialias: bool = False
    exclude_outside: bool = False
    coefficient: float = -0.75
    policy: str = "stretch"
    axes: tuple[int, ...] = ()
    """Which are named."""
    rounds_up_when_shrinking: bool = False

    @property
    def is_weighted(self) -> bool:
        return self.mode != "nearest"


def resizing_of(node: Node) -> Resizing | None:
    """None if something depends on data."""
    return (
        _upsampling(node) if checking.signature_of(node).since_version < 11 or node.op_type == "Upsample" else _resizing(node)
    )


def _floats(node: Node, name: str) -> list[float] | None:
    """Numbers of an attribute or a constant input."""
    numbers = operand(node, name)
    if numbers is None or not isinstance(numbers, (list, tuple, np.ndarray)):
        return None
    return [float(np.float32(number)) for number in np.reshape(numbers, -1)]


def _upsampling(node: Node) -> Resizing | None:
    """Until opset 10 an output pixel stands at the input pixel `index / scale`."""
    scales = _floats(node, "scales")
    if scales is None and "height_scale" in node.attributes:
        scales = [1.0, 1.0, *(float(np.float32(operand(node, name))) for name in ("height_scale", "width_scale"))]
    mode = word(node, "mode", "nearest")
    mode = "linear" if mode == "bilinear" else mode
    if scales is None or mode not in ("nearest", "linear"):
        return None
    return Resizing(mode, "asymmetric", "floor", tuple(scales), dims(node.outputs[0]), rounds_up_when_shrinking=True)


def _resizing(node: Node) -> Resizing | None:
    rank = len(dims(required(node.inputs[0])))
    axes = content(node, "axes")
    chosen = [axis % rank for axis in axes if isinstance(axis, int)] if axes is not None else list(range(rank))
    scales = _floats(node, "scales")
    if not scales:
        value = input_named(node, "scales")
        if (value is not None and shape_of(value) != (0,)) or not (_has_known_sizes(node) or has_computed_sizes(node)):
            return None
    elif len(scales) == len(chosen):
        whole = [1.0] * rank
        for axis, scale in zip(chosen, scales):
            whole[axis] = scale
        scales = whole
    else:
        return None
    return Resizing(
        word(node, "mode", "nearest"),
        word(node, "coordinate_transformation_mode", "half_pixel"),
        word(node, "nearest_mode", "round_prefer_floor"),
        tuple(scales) if scales else None,
        dims(node.outputs[0]) if scales or _has_known_sizes(node) else _computed_sizes(node, chosen),
        bool(operand(node, "antialias")),
        bool(operand(node, "exclude_outside")),
        float(operand(node, "cubic_coeff_a")),
        word(node, "keep_aspect_ratio_policy", "stretch"),
        tuple(chosen),
    )


def _has_known_sizes(node: Node) -> bool:
    return content(node, "sizes") is not None


def has_computed_sizes(node: Node) -> bool:
    """Whether only a run tells the sizes that are asked for."""
    sizes = input_named(node, "sizes")
    is_stretched = word(node, "keep_aspect_ratio_policy", "stretch") == "stretch"
    return sizes is not None and not _has_known_sizes(node) and has_numbers(sizes) and is_stretched


def _computed_sizes(node: Node, axes: Sequence[int]) -> tuple[Dim, ...]:
    """The sizes of a result that a run computes. Where the model asks for a size that the image has, it is that one."""
    old, new = dims(required(node.inputs[0])), list(dims(node.outputs[0]))
    for axis, size in zip(axes, known_parts(required(input_named(node, "sizes")))):
        new[axis] = old[axis] if size == old[axis] else new[axis]
    return tuple(new)


def resized_axes(node: Node, form: Resizing) -> list[int]:
    """Axes that change."""
    shape = dims(required(node.inputs[0]))
    if form.scales is not None:
        return [axis for axis, scale in enumerate(form.scales) if scale != 1]
    if form.policy != "stretch":
        return list(form.axes)  # all are scaled alike, even if a size stays what it was
    return [axis for axis, (old, new) in enumerate(zip(shape, form.sizes)) if old != new]


LONGEST_TABLE = 1 << 22
"""Pixels of a resized axis for which a table is made before runs."""


def claims_resize(node: Node) -> bool:
    """Sizes that are known, coordinates that stay inside the image, numbers if pixels are weighed."""
    type = element_of(required(node.inputs[0]))
    if type is None or shape_of(node.outputs[0]) is None:
        return False
    form = resizing_of(node)
    if form is None or form.mode not in TAPS or form.coordinates not in COORDINATES or form.coordinates == "tf_crop_and_resize":
        return False
    if form.rounding not in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        return False
    if (form.is_weighted and type.kind == "bits") or (form.scales is not None and not min(form.scales) > 0):
        return False
    if any(isinstance(size, int) and size > LONGEST_TABLE for size in form.sizes):
        return False
    is_fixed = all(is_static(node, form, axis) for axis in resized_axes(node, form))
    is_smooth = form.antialias and form.is_weighted
    return is_fixed or (form.policy == "stretch" and (not is_smooth or type.is_float))


def is_static(node: Node, form: Resizing, axis: int) -> bool:
    return isinstance(dims(required(node.inputs[0]))[axis], int) and isinstance(form.sizes[axis], int)


class Table(Arguments):
    """For each pixel of a resized axis the pixels that it is made of, (taps, size), and their weights."""

    taps: Size
    pixels: Pointer
    weights: Pointer | None = when(lambda sampling: sampling.is_weighted)


def table_of(lowerer: Lowerer, node: Node, form: Resizing, axis: int, type: Type) -> Table:
    """The table of one axis; weights have a type."""
    is_resized = axis in resized_axes(node, form)
    if is_static(node, form, axis):
        pixels, weights = _static_table(node, form, axis) if is_resized else _same(dims(required(node.inputs[0]))[axis])
        packed = None
        if form.is_weighted:
            packed = lowerer.constant(np.ascontiguousarray(weights.T.astype(f"f{type.bytes}")))
        return Table(taps=pixels.shape[1], pixels=lowerer.constant(np.ascontiguousarray(pixels.T)), weights=packed)
    return _computed_table(lowerer, node, form, axis, type, is_resized)


def _same(size: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(size)[:, np.newaxis], np.ones((size, 1))


def _static_table(node: Node, form: Resizing, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Pixels and weights, (size, taps), as the NumPy provider has them."""
    step = _step_of(node, form, axis)
    positions = COORDINATES[form.coordinates](step, np.arange(step.resized, dtype=np.float32))  # type: ignore[no-untyped-call]
    if form.mode == "nearest":
        rounding = _rounding(form, float(step.scale))
        pixels = nearest_pixels(positions, step.length, rounding)[:, np.newaxis]  # type: ignore[no-untyped-call]
        return pixels, np.ones(pixels.shape)
    table: tuple[np.ndarray, np.ndarray] = stencil(  # type: ignore[no-untyped-call]
        step, positions, form.mode, form.antialias, form.exclude_outside, form.coefficient
    )
    return table


def _step_of(node: Node, form: Resizing, axis: int) -> ResizedAxis:
    shape = dims(required(node.inputs[0]))
    if form.scales is not None:
        return plan_axes((shape[axis],), None, [form.scales[axis]], None, None, "stretch")[0]
    if form.policy == "stretch":
        return plan_axes((shape[axis],), None, None, [form.sizes[axis]], None, "stretch")[0]
    sizes = content(node, "sizes")
    return next(step for step in plan_axes(shape, None, None, sizes, form.axes, form.policy) if step.axis == axis)


def _rounding(form: Resizing, scale: float) -> str:
    return "ceil" if form.rounds_up_when_shrinking and scale < 1 else form.rounding


# --- tables at run time ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TableForm:
    """What shapes the code that computes a table."""

    mode: str
    coordinates: str
    rounding: str
    by_size: bool
    exclude_outside: bool
    type: Type | None
    """Of weights; None if there are none."""
    is_smooth: bool = False
    """Whether a pixel of a smaller image is made of all that lie under it, as many as a run tells."""

    @property
    def reach(self) -> int:
        """How far pixels lie that one is made of, in pixels of the smaller image."""
        return TAPS[self.mode] // 2


def _computed_table(lowerer: Lowerer, node: Node, form: Resizing, axis: int, type: Type, is_resized: bool) -> Table:
    length, size = dims(required(node.inputs[0]))[axis], form.sizes[axis]
    scale = 1.0 if form.scales is None else form.scales[axis]
    weights_type = type if form.is_weighted else None
    if is_resized:
        code = TableForm(
            form.mode,
            form.coordinates,
            _rounding(form, scale),
            form.scales is None,
            form.exclude_outside,
            weights_type,
            form.antialias and form.is_weighted,
        )
    else:
        code = TableForm("nearest", "asymmetric", "floor", True, False, weights_type)
    taps = _most_taps(code, length, size, scale) if code.is_smooth else TAPS[code.mode]
    pixels = lowerer.scratch(size * (taps * 8))
    weights = lowerer.scratch(size * (taps * type.bytes)) if form.is_weighted else None
    lowerer.call(
        table_kernel(lowerer.target, code),
        TableArguments(
            length=length,
            size=size,
            scale=float(scale),
            coefficient=float(form.coefficient),
            taps=taps if code.is_smooth else None,
            pixels=pixels,
            weights=weights,
        ),
        size,
        dim.maximum(1, size),
    )
    return Table(taps=taps, pixels=pixels, weights=weights)


def _most_taps(form: TableForm, length: Dim, size: Dim, scale: float) -> Dim:
    """How many pixels one is made of at most: one more than there are, for the number is rounded in a run."""
    if not form.by_size:
        return math.ceil(2 * form.reach / min(scale, 1.0)) + 1
    return dim.maximum(2 * form.reach, dim.ceildiv(2 * form.reach * length, dim.maximum(1, size))) + 1


class TableArguments(Arguments):
    length: Size
    """Of the axis before it is resized."""
    size: Size
    """And afterwards."""
    scale: Number
    coefficient: Number
    """Of the cubic kernel."""
    taps: Size | None = when(lambda form: form.is_smooth)
    pixels: Pointer
    weights: Pointer | None = when(lambda form: form.type is not None)


@kernel("resized axis", TableArguments)
def table_kernel(f: KernelFunction, a: TableArguments, form: TableForm) -> None:
    """Items are pixels of the result."""
    scale = f.convert(a.scale, F32)
    with f.exact(), f.loop(f.begin, f.end) as item:
        is_same = (a.length == a.size) if form.by_size else (a.size < 0)
        position = _position(f, form, item, a.length, a.size, scale)
        if form.is_smooth:
            _smooth(f, a, form, item, is_same, position, scale)
        else:
            _put(f, a, form, item, is_same, position)


def _put(f: KernelFunction, a: TableArguments, form: TableForm, item: Code, is_same: Code, position: Code) -> None:
    """The pixels around a position, and their weights."""
    chosen, factors = _chosen(f, form, position, a.length, a.coefficient)
    for tap, (pixel, factor) in enumerate(zip(chosen, factors)):
        f.store(f.select(is_same, item, pixel), a.pixels, a.size * tap + item, I64)
        if form.type is not None and a.weights is not None:
            alone = f.const(form.type, 1.0 if tap == 0 else 0.0)
            f.store(f.select(is_same, alone, f.convert(factor, form.type)), a.weights, a.size * tap + item, form.type)


def _position(f: KernelFunction, form: TableForm, item: Code, length: Code, size: Code, scale: Code) -> Code:
    """Where a pixel of the result stands in the image."""
    x = f.convert(item, F32)
    width = f.convert(size, F64) if form.by_size else f.convert(f.convert(length, F32) * scale, F64)

    def unscaled(place: Code) -> Code:
        if form.by_size:
            return f.convert(place, F64) * f.convert(length, F64) / f.convert(size, F64)
        return place / scale

    if form.coordinates == "asymmetric":
        return unscaled(x)
    if form.coordinates == "tf_half_pixel_for_nn":
        return unscaled(x + 0.5)
    if form.coordinates == "align_corners":
        last, stretched = f.convert(length - 1, F32), f.convert(size - 1, F32)
        return f.select(size == 1, 0.0, x * last / f.select(size == 1, 1.0, stretched))
    if form.coordinates == "half_pixel_symmetric":
        exact = f.convert(length, F64) / 2.0 * (1.0 - f.convert(size, F64) / width)
        offset = f.convert(exact, F32)
        place = unscaled(x + 0.5)
        return f.convert(offset, place.type) + place - 0.5
    place = unscaled(x + 0.5) - 0.5
    return f.select(size > 1, place, 0.0) if form.coordinates == "pytorch_half_pixel" else place


def _chosen(
    f: KernelFunction, form: TableForm, position: Code, length: Code, coefficient: Code
) -> tuple[list[Code], list[Code]]:
    """The pixels that a result is made of, and their weights."""
    last = f.maximum(length - 1, 0)
    unit = f.const(position.type, 1.0)
    if form.mode == "nearest":
        below = f.floor(position)
        pixel = f.convert(below + f.convert(_is_above(form, position - below), position.type), I64)
        return [f.minimum(f.maximum(pixel, 0), last)], [unit]
    reach = TAPS[form.mode] // 2
    first = f.convert(f.floor(position - float(reach)) + 1.0, I64)
    pixels = [first + tap for tap in range(2 * reach)]
    distances = [f.convert(f.convert(pixel, F64) - f.convert(position, F64), position.type) for pixel in pixels]
    if form.mode == "linear":
        factors = [f.maximum(1.0 - f.abs(distance), 0.0) for distance in distances]
    else:
        a = f.convert(coefficient, position.type)
        factors = [_cubic(f, distance, a) for distance in distances]
    if form.exclude_outside:
        factors = [f.select((pixel < 0) | (pixel > last), 0.0, factor) for pixel, factor in zip(pixels, factors)]
        total = _sum(factors)
        factors = [factor / total for factor in factors]
    return [f.minimum(f.maximum(pixel, 0), last) for pixel in pixels], factors


def _smooth(
    f: KernelFunction, a: TableArguments, form: TableForm, item: Code, is_same: Code, position: Code, scale: Code
) -> None:
    """The pixels that lie under one of a smaller image, and their weights, which are stretched to the distance of its pixels."""
    assert form.type is not None and a.weights is not None and a.taps is not None
    ratio = f.convert(a.size, F32) / f.convert(f.maximum(a.length, 1), F32) if form.by_size else scale
    squeeze = f.minimum(ratio, 1.0)
    reach = f.const(F32, float(form.reach)) / squeeze
    count, type = f.convert(f.ceil(reach * 2.0), I64), position.type
    first = f.convert(f.floor(position - f.convert(reach, type)) + 1.0, I64)
    is_divided = f.const(BOOL, True) if form.exclude_outside else squeeze != 1.0

    def weight(tap: Code) -> Code:
        pixel = first + tap
        distance = f.convert(f.convert(pixel, F64) - f.convert(position, F64), type) * f.convert(squeeze, type)
        factor = f.maximum(1.0 - f.abs(distance), 0.0) if form.mode == "linear" else _cubic(f, distance, coefficient)
        missing = (pixel < 0) | (pixel >= a.length) if form.exclude_outside else f.const(BOOL, False)
        return f.select(missing | (tap >= count), 0.0, factor)

    coefficient = f.convert(a.coefficient, type)
    total = f.variable(f.const(type, 0.0))
    with f.loop(0, a.taps) as tap:
        total.set(total.get() + weight(tap))
    divisor = f.select(is_divided, total.get(), 1.0)
    with f.loop(0, a.taps) as tap:
        pixel = f.minimum(f.maximum(first + tap, 0), f.maximum(a.length - 1, 0))
        alone = f.select(tap == 0, 1.0, f.const(form.type, 0.0))
        factor = f.convert(f.select(tap >= count, 0.0, weight(tap) / divisor), form.type)
        f.store(f.select(is_same, item, pixel), a.pixels, a.size * tap + item, I64)
        f.store(f.select(is_same, alone, factor), a.weights, a.size * tap + item, form.type)


def _sum(values: Sequence[Code]) -> Code:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total


def _is_above(form: TableForm, rest: Code) -> Code:
    if form.rounding == "floor":
        return rest < 0.0
    if form.rounding == "ceil":
        return rest > 0.0
    return rest > 0.5 if form.rounding == "round_prefer_floor" else rest >= 0.5


def _cubic(f: KernelFunction, distance: Code, a: Code) -> Code:
    """Keys' convolution kernel."""
    t = f.abs(distance)
    near = ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    far = ((t - 5.0) * t + 8.0) * t * a - 4.0 * a
    return f.select(t < 1.0, near, f.select(t < 2.0, far, 0.0))
