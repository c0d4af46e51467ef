"""Lowerings of pools over windows. The table of lowerings holds them; pools over whole images are reductions."""

from __future__ import annotations

from sardonyx.ir import Dim, Node, dim
from sardonyx.providers.native.kernels.conv.form import last_order
from sardonyx.providers.native.kernels.conv.windows import Windows
from sardonyx.providers.native.kernels.image.image import image_of
from sardonyx.providers.native.kernels.pool.form import claims_pool, pool_of, pool_windows
from sardonyx.providers.native.kernels.pool.kernels import Axis, PoolArguments, pool_kernel, pool_rows_kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import required
from sardonyx.providers.native.program.views import View
from sardonyx.startup.records import replace

PIECE_TAPS = 32768
"""How many pixels under windows are worth handing to another thread."""


@lower("MaxPool", "AveragePool", "LpPool", claims=claims_pool, strided=True)
def pool(lowerer: Lowerer, node: Node) -> None:
    """Channels last if X lies so."""
    windows = pool_windows(node)
    for size in windows.output:
        lowerer.require(dim.maximum(size, 0), size)
    X = required(node.inputs[0])
    view = lowerer.view(X)
    if lies_in_rows(view):
        _along_rows(lowerer, node, windows, view)
    elif view.strides[1] == 1:
        _along_channels(lowerer, node, windows, view)
    else:
        _along_rows(lowerer, node, windows, lowerer.contiguous(X))


def lies_in_rows(view: View) -> bool:
    """Whether pixels of a row lie side by side."""
    return view.strides[-1] == 1


def _along_channels(lowerer: Lowerer, node: Node, windows: Windows, view: View) -> None:
    rank = len(view.shape)
    sink = lowerer.sink(node, (1, rank - 2, 1), order=last_order(rank))
    channels = view.shape[1]
    lowerer.call(
        pool_kernel(lowerer.target, pool_of(node), sink.chain),
        PoolArguments(image=image_of(view), axes=axes_of(windows, view), sink=sink.arguments),
        view.shape[0] * dim.product(windows.output),
        _grain(windows, channels),
        flops=_work(windows, view),
        traffic=_traffic(windows, view),
    )


def _along_rows(lowerer: Lowerer, node: Node, windows: Windows, view: View) -> None:
    sink = lowerer.sink(node, (1, 1, len(view.shape) - 2))
    stride = windows.strides[-1]
    lowerer.call(
        pool_rows_kernel(lowerer.target, replace(pool_of(node), stride=stride if stride <= 2 else 0), sink.chain),
        PoolArguments(image=image_of(view), axes=axes_of(windows, view), sink=sink.arguments),
        view.shape[0] * view.shape[1] * dim.product(windows.output[:-1]),
        _grain(windows, windows.output[-1]),
        flops=_work(windows, view),
        traffic=_traffic(windows, view),
    )


def axes_of(windows: Windows, view: View) -> list[Axis]:
    """The spatial axes of a view (N, C, …), as kernels are given them."""
    return [
        Axis(**windows.axis(number), end=windows.end[number], step=view.strides[2 + number])
        for number in range(len(windows.kernel))
    ]


def _grain(windows: Windows, each: Dim) -> Dim:
    return dim.maximum(1, dim.floordiv(PIECE_TAPS, dim.maximum(1, each * windows.taps)))


def _work(windows: Windows, view: View) -> Dim:
    return view.shape[0] * view.shape[1] * dim.product(windows.output) * windows.taps


def _traffic(windows: Windows, view: View) -> Dim:
    return view.shape[0] * view.shape[1] * (dim.product(windows.input) + dim.product(windows.output)) * view.type.bytes
