"""What a convolution is, read off its node: sizes, pads, groups, what is added and applied. Lowerings of convolutions ask here."""

from __future__ import annotations

from typing import cast

from sardonyx.compiler.types import Type
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import operand
from sardonyx.ops.window import LARGEST, output_sizes
from sardonyx.providers.native.kernels.conv.tiles import Axis
from sardonyx.providers.native.kernels.conv.windows import Windows, steps_of, windows_of
from sardonyx.providers.native.program.expression import Operation
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.values import dims, element_of, may_equal, may_have_shape, shape_of
from sardonyx.providers.native.program.views import Dims, View, collapse, dense_strides
from sardonyx.startup.records import dataclass

MAX_SPATIAL = 3
PARAMETERS = {
    "Relu": (),
    "Tanh": (),
    "Sigmoid": (),
    "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Clip": ("min", "max"),
}
"""Activations that FusedConv has, and their parameters in the order of `activation_params`."""


@dataclass(frozen=True)
class Geometry(Windows):
    """A convolution's sizes. `channels` and `filters` are those of one group.

    Filters that a run computes may be of open size: then kernel, channels and filters are symbols, see `has_open_filters`.
    """

    batch: Dim
    groups: int
    channels: int
    filters: int

    @property
    def positions(self) -> Dim:
        """Pixels of one output image."""
        return dim.product(self.output)

    @property
    def all_channels(self) -> int:
        return self.groups * self.channels

    @property
    def is_pointwise(self) -> bool:
        """Whether each pixel makes one pixel, alone."""
        ones = (1,) * len(self.kernel)
        return self.kernel == ones and self.strides == ones and all(size == 0 for size in (*self.begin, *self.end))

    @property
    def flops(self) -> Dim:
        return self.batch * self.positions * (2 * self.groups * self.filters * self.channels * self.taps)


def is_channels_last(node: Node) -> bool:
    """Whether the tensors of an op have their channels behind the spatial axes."""
    return node.op_type.startswith("Nhwc")


def _spatial_first(shape: Dims, last: bool) -> Dims:
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def factors_of(node: Node) -> tuple[Value | None, Value | None]:
    """The image and the filters."""
    numbers = (0, 3) if node.op_type == "QLinearConv" else (0, 1)
    first, second = (node.inputs[number] if number < len(node.inputs) else None for number in numbers)
    return first, second


def filters_of(node: Node) -> tuple[Value, Value | None]:
    """Filters and bias."""
    W, B = (*node.inputs, None)[1:3]
    assert W is not None
    return W, B


def has_open_filters(node: Node) -> bool:
    """Whether a run tells how large the filters are, as where gradients slide over images: the batch is their channels."""
    _, W = factors_of(node)
    filters = None if W is None else shape_of(W)
    return filters is not None and not all(isinstance(size, int) for size in filters)


def kernel_of(node: Node, W: Value) -> tuple[int, ...]:
    """The sizes of windows: symbols where only the filters of a run tell them, see `require_filters`."""
    return cast(tuple[int, ...], tuple(operand(node, "kernel_shape") or dims(W)[2:]))


def require_filters(lowerer: Lowerer, W: Value, B: Value | None, kernel: Dims, count: Dim, results: Dim) -> None:
    """Leave runs to NumPy whose filters or bias do not fit the node: `count` is how many its groups have, `results` their channels.

    Windows have taps, not more than fit, and those that the node says. What does not fit the image is found where that is read.
    """
    for size, wanted in zip(dims(W)[2:], kernel):
        lowerer.require(dim.minimum(dim.maximum(size, 1), LARGEST), wanted)
    lowerer.require(dims(W)[0], count)
    if B is not None:
        lowerer.require_shape(dims(B), (results,))


def geometry_of(node: Node) -> Geometry:
    """All sizes of a convolution that `claims_convolution` took."""
    last = is_channels_last(node)
    X, W = factors_of(node)
    assert X is not None and W is not None
    shape, filters = shape_of(X), shape_of(W)
    assert shape is not None and filters is not None
    image = _spatial_first(shape, last)[2:]
    kernel = kernel_of(node, W)
    group, auto_pad = int(operand(node, "group") or 1), operand(node, "auto_pad") or "NOTSET"
    strides, dilations = steps_of(node, len(kernel))
    output = tuple(output_sizes(image, kernel, strides, dilations, operand(node, "pads"), auto_pad))
    windows = windows_of(node, kernel, image, output)
    depth, count = cast(int, filters[1]), cast(int, dim.floordiv(filters[0], group))
    return Geometry(**vars(windows), batch=shape[0], groups=group, channels=depth, filters=count)


def claims_convolution(node: Node) -> bool:
    """Floats, filters of known sizes, all sizes that fit."""
    if len(node.inputs) < 2 or any(value is None for value in node.inputs[:2]):
        return False
    types = {element_of(value) for value in (*node.inputs, *node.outputs) if value is not None}
    if len(types) != 1 or not _is_float(types.pop()):
        return False
    X, W, B, Z = (*node.inputs, None, None)[:4]
    assert X is not None and W is not None
    fit = sizes_fit(node, X, W, B) or open_filters_fit(node, X, W, B)
    return fit and _is_known_activation(node) and (Z is None or may_have_shape(shape_of(Z), dims(node.outputs[0])))


def _is_float(type: Type | None) -> bool:
    return type is not None and type.is_float


def _ranks_fit(shape: Dims | None, filters: Dims) -> bool:
    """Whether an image and filters have as many axes, and not more than there is code for."""
    return shape is not None and len(shape) == len(filters) and 3 <= len(shape) <= 2 + MAX_SPATIAL


def sizes_fit(node: Node, X: Value, W: Value, B: Value | None) -> bool:
    shape, filters = shape_of(X), shape_of(W)
    if shape is None or filters is None or not _ranks_fit(shape, filters):
        return False
    group = int(operand(node, "group") or 1)
    kernel_shape = operand(node, "kernel_shape")
    sizes = [size for size in filters if isinstance(size, int)]
    if len(sizes) < len(filters) or min(sizes[1:]) < 1 or group < 1 or sizes[0] % group:
        return False
    if kernel_shape and tuple(kernel_shape) != tuple(sizes[2:]):
        return False
    channels = _spatial_first(shape, is_channels_last(node))[1]
    return may_equal(channels, sizes[1] * group) and (B is None or may_have_shape(shape_of(B), filters[:1]))


def open_filters_fit(node: Node, X: Value, W: Value, B: Value | None) -> bool:
    """Whether filters that a run computes are of open size; a run refuses what does not fit the image."""
    filters = shape_of(W)
    if filters is None or not has_open_filters(node) or not _ranks_fit(shape_of(X), filters):
        return False
    group = int(operand(node, "group") or 1)
    fits = is_kernel_possible(node, W) and may_equal(dim.mod(filters[0], group), 0) if group > 0 else False
    return fits and filters[1] != 0 and (B is None or may_have_shape(shape_of(B), filters[:1]))


def is_kernel_possible(node: Node, W: Value) -> bool:
    """Whether windows may have taps, and those that the node says, where a run tells how large filters are."""
    kernel = kernel_of(node, W)
    return may_have_shape(dims(W)[2:], kernel) and all(
        not isinstance(size, int) or size > 0 for size in (*dims(W)[2:], *kernel)
    )


def _is_known_activation(node: Node) -> bool:
    activation = operand(node, "activation")
    return not activation or activation in PARAMETERS


def operations_of(node: Node) -> list[Operation]:
    """What a fused convolution does with its sums: another tensor added, an activation."""
    operations = []
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        operations.append(Operation("Add", (None, node.inputs[3])))
    activation = operand(node, "activation")
    if activation:
        numbers = [float(number) for number in operand(node, "activation_params") or ()]
        operations.append(Operation(activation, (None,), tuple(zip(PARAMETERS[activation], numbers))))
    return operations


def last_order(rank: int) -> tuple[int, ...]:
    """The axes of (N, C, …) with the channels last."""
    return (0, *range(2, rank), 1)


def arranged_view(lowerer: Lowerer, node: Node, channels: Dim | None = None) -> View:
    """X as (N, C, …), however it lies; with as many channels as filters take, where their number is open."""
    X = node.inputs[0]
    assert X is not None
    view = lowerer.view(X)
    view = view.transposed((0, len(view.shape) - 1, *range(1, len(view.shape) - 1))) if is_channels_last(node) else view
    return view if channels is None else lowerer.narrowed(view, 1, channels)


def input_view(lowerer: Lowerer, node: Node, channels: Dim | None = None) -> View:
    """The same, the channels of a pixel in a row, in the type that is computed with; copied if it lies otherwise."""
    view = arranged_view(lowerer, node, channels)
    if _is_ready(view):
        return view
    X = node.inputs[0]
    assert X is not None
    copied = _copied(lowerer, view, view.type.computed)
    if copied.type == view.type and copied.shape == dims(X) and not is_channels_last(node):
        lowerer.set_view(X, copied)  # whoever reads it next finds it so too
    return copied


def _is_ready(view: View) -> bool:
    return view.type == view.type.computed and (view.strides[1] == 1 or view.shape[1] == 1)


def _copied(lowerer: Lowerer, view: View, type: Type) -> View:
    """A view's elements as another type, the channels last in memory."""
    order = last_order(len(view.shape))
    buffer = lowerer.scratch(dim.product(view.shape) * type.bytes)
    copied = View(buffer, type, view.shape, dense_strides(view.shape, order))
    lowerer.copy(view.transposed(order), copied.transposed(order))
    return copied


def arrange_sum(lowerer: Lowerer, node: Node) -> None:
    """Have the tensor that a fused convolution adds be as large as its result, and lie as that will."""
    Z = node.inputs[3] if len(node.inputs) > 3 else None
    if Z is None:
        return
    lowerer.require_shape(dims(Z), dims(node.outputs[0]))
    if is_channels_last(node):
        return
    view = lowerer.view(Z)
    if view.strides[1] != 1 and view.shape[1] != 1:
        lowerer.set_view(Z, _copied(lowerer, view, view.type))


def axes_of(geometry: Geometry, view: View) -> list[Axis]:
    """The spatial axes of an image, as kernels are given them."""
    return [Axis(**geometry.axis(number), step=view.strides[2 + number]) for number in range(len(geometry.kernel))]


def even_step(view: View) -> Dim | None:
    """How far pixels lie apart, if that is the same for all."""
    sizes, (steps,) = collapse(view.shape[2:], [view.strides[2:]])
    return steps[0] if len(sizes) == 1 else None
