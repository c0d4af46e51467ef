"""Images of any size through branches that halve and double it: sizes that are written in two ways and equal in every run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sardonyx.errors import Fail, InvalidArgument
from sardonyx.providers.native import provider
from tests.providers.native.networks import Network, assert_runs_alike, open_session, steps_of

EVEN = [(1, 3, 8, 8), (2, 3, 16, 12), (1, 3, 40, 24)]
ODD = [*EVEN, (1, 3, 7, 9), (2, 3, 13, 8), (1, 3, 1, 5)]


def image(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def branches(net: Network) -> tuple[str, str]:
    """An image with 8 channels, and one half its size with 16."""
    x = net.input("x", ["N", 3, "H", "W"])
    first = net.conv(x, 3, 8)
    return first, net.conv(first, 8, 16, stride=2)


def space_of(net: Network, x: str, outputs: int) -> str:
    """The sizes for a Resize: of other channels, but as high and wide as `x`."""
    batch = net.Slice(net.Shape(x), net.constant([0]), net.constant([1]), net.constant([0]))
    space = net.Slice(net.Shape(x), net.constant([2]), net.constant([4]), net.constant([0]))
    return net.Concat(batch, net.constant([outputs]), space, axis=0)


def doubled(net: Network, x: str) -> str:
    scales = net.constant([1, 1, 2, 2], np.float32)
    return net.Resize(x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def resized_by_scales() -> bytes:
    net = Network()
    first, second = branches(net)
    return net.model(net.Concat(doubled(net, second), first, axis=1))


def joined_in_the_other_order() -> bytes:
    net = Network()
    first, second = branches(net)
    return net.model(net.conv(net.Concat(first, doubled(net, second), first, axis=1), 32, 4))


def with_declared_outputs() -> bytes:
    net = Network()
    first, second = branches(net)
    joint = net.Concat(doubled(net, second), first, axis=1)
    return net.model((joint, ["N", 24, "H", "W"]), (second, ["N", 16, "half_height", "half_width"]))


def resized_to_the_other_size() -> bytes:
    net = Network()
    first, second = branches(net)
    upper = net.Resize(second, "", "", space_of(net, first, 16), mode="linear", coordinate_transformation_mode="half_pixel")
    return net.model(net.Relu(net.Concat(upper, first, axis=1)))


def upsampled() -> bytes:
    net = Network(opset=9)
    first, second = branches(net)
    upper = net.Upsample(second, net.constant([1, 1, 2, 2], np.float32), mode="nearest")
    return net.model(net.Concat(upper, first, axis=1))


def joined_in_two_levels() -> bytes:
    """The joint of one level is a part of the next."""
    net = Network()
    first, second = branches(net)
    third = net.conv(second, 16, 8, stride=2)
    inner = net.Concat(doubled(net, third), second, axis=1)
    return net.model(net.conv(net.Concat(first, doubled(net, inner), axis=1), 32, 8, size=1))


def blocks_between(activate: Callable[[Network, str], str]) -> bytes:
    """Splits, sums and depthwise convolutions among the joints, and parts that several nodes read."""
    net = Network()
    first, second = (activate(net, x) for x in branches(net))
    left, right = net.Split(second, net.constant([8, 8]), outputs=2, axis=1)
    inner = net.Add(right, activate(net, net.conv(activate(net, net.conv(right, 8, 8)), 8, 8)))
    joint = activate(net, net.conv(net.Concat(left, right, inner, axis=1), 24, 8, size=1))
    upper = doubled(net, activate(net, net.conv(joint, 8, 8, group=8)))
    merged = net.Add(activate(net, net.conv(net.Concat(upper, first, axis=1), 16, 8, size=1)), upper)
    pooled = net.MaxPool(merged, kernel_shape=[3, 3], pads=[1] * 4)
    return net.model(net.conv(net.Concat(merged, pooled, first, axis=1), 24, 4), merged)


def added_to_lateral(resize: Callable[[Network, str, str], str]) -> bytes:
    """Feature pyramid: what comes from above is added to a convolution of one pixel of what is below."""
    net = Network()
    first, second = branches(net)
    lateral, top = net.conv(first, 8, 16, size=1), net.conv(second, 16, 16, size=1)
    return net.model(net.conv(net.Add(lateral, resize(net, top, lateral)), 16, 4), net.Relu(top))


def padded_or_cropped(crops: bool) -> bytes:
    """U-Net: the image from below is padded to the size of the one beside it, or that one is cropped."""
    net = Network()
    first, second = branches(net)
    upper = net.ConvTranspose(second, net.weight(16, 8, 2, 2), net.weight(8), strides=[2, 2])
    if crops:
        space = net.Slice(net.Shape(first), net.constant([2]), net.constant([4]), net.constant([0]))
        upper = net.Slice(upper, net.constant([0, 0]), space, net.constant([2, 3]))
    else:
        upper = net.Slice(upper, net.constant([0, 0]), net.constant([-2, -2]), net.constant([2, 3]))
        missing = [net.Sub(net.size(first, axis), net.size(upper, axis)) for axis in (2, 3)]
        upper = net.Pad(upper, net.sizes(0, 0, 0, 0, 0, 0, *missing), net.constant(0, np.float32))
    return net.model(net.conv(net.Concat(first, upper, axis=1), 16, 4))


NETWORKS: dict[str, tuple[bytes, list[tuple[int, ...]]]] = {
    "scales": (resized_by_scales(), EVEN),
    "other order": (joined_in_the_other_order(), EVEN),
    "declared outputs": (with_declared_outputs(), EVEN),
    "sizes": (resized_to_the_other_size(), ODD),
    "Upsample": (upsampled(), EVEN),
    "two levels": (joined_in_two_levels(), [(1, 3, 8, 8), (2, 3, 16, 12)]),
    "blocks": (blocks_between(lambda net, x: x), EVEN),
    "blocks with ReLU": (blocks_between(lambda net, x: net.Relu(x)), EVEN),
    "blocks with SiLU": (blocks_between(lambda net, x: net.Mul(x, net.Sigmoid(x))), EVEN),
    "FPN by scales": (added_to_lateral(lambda net, top, lateral: doubled(net, top)), EVEN),
    "FPN by sizes": (
        added_to_lateral(
            lambda net, top, lateral: net.Resize(
                top, "", "", space_of(net, lateral, 16), coordinate_transformation_mode="asymmetric"
            )
        ),
        ODD,
    ),
    "U-Net padded": (padded_or_cropped(False), [size for size in ODD if min(size[2:]) > 2]),
    "U-Net cropped": (padded_or_cropped(True), ODD),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_one_program_serves_every_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider.Interpreted, "__call__", None)  # NumPy must not be asked
    model, sizes = NETWORKS[name]
    session = open_session(model)
    native, others = steps_of(session)
    assert len(native) == 1 and not others, [str(step.node) for step in others]
    assert_runs_alike(session, model, [{"x": image(*size)} for size in sizes])


@pytest.mark.parametrize("name", ["scales", "other order", "Upsample"])
def test_sizes_that_contradict_are_refused_by_the_node_that_joins_them(name: str) -> None:
    model, sizes = NETWORKS[name]
    session = open_session(model)
    with pytest.raises(Fail, match="Concat node.*Axis 2 has mismatched dimensions"):
        session.run(None, {"x": image(1, 3, 7, 8)})
    assert_runs_alike(session, model, [{"x": image(*sizes[0])}])


BROADCASTS = [
    ((2, 3), (2, 3)),
    ((2, 1), (2, 3)),
    ((2, 3), (1, 3)),
    ((1, 1), (4, 5)),
    ((0, 3), (1, 3)),
    ((1, 2), (0, 1)),
    ((1, 1), (1, 1)),
]


@pytest.mark.parametrize("names", [("a", "b", "c", "d"), (None, None, None, None), ("a", "b", "a", "d")])
def test_sizes_of_other_names_broadcast_as_numpy_has_it(names: tuple[str | None, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider.Interpreted, "__call__", None)
    net = Network()
    x, y = net.input("x", names[:2]), net.input("y", names[2:])
    both = net.Add(net.Sigmoid(x), y)
    model = net.model(net.Softmax(both), net.Mul(both, x), net.Where(net.Greater(x, y), x, both), net.ReduceSum(both))
    session = open_session(model)
    assert not steps_of(session)[1]
    runs = [shapes for shapes in BROADCASTS if names[0] != names[2] or names[0] is None or shapes[0][0] == shapes[1][0]]
    assert_runs_alike(session, model, [{"x": image(*one), "y": image(*other)} for one, other in runs])


@pytest.mark.parametrize("is_constant", [False, True])
def test_batches_of_other_names_broadcast_as_numpy_has_it(is_constant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider.Interpreted, "__call__", None)
    net = Network()
    x = net.input("x", ["a", "b", "T", 8])
    y = net.weight(1, 3, 8, 5) if is_constant else net.input("y", ["c", "d", "K", 5])
    model = net.model(net.Relu(net.MatMul(x, y)))
    session = open_session(model)
    assert not steps_of(session)[1]
    pairs = [((2, 3), (2, 3)), ((1, 3), (2, 3)), ((2, 1), (1, 3)), ((1, 1), (4, 2)), ((3, 2), (1, 1))]
    runs = [{"x": image(*one, 4, 8), "y": image(*other, 8, 5)} for one, other in pairs]
    if is_constant:
        runs = [{"x": image(*one, 4, 8)} for one in ((2, 3), (1, 1), (4, 1))]
    assert_runs_alike(session, model, runs)


def test_batches_that_do_not_broadcast_are_refused_by_the_product() -> None:
    net = Network()
    x, y = net.input("x", ["a", "T", 8]), net.input("y", ["c", "K", 5])
    session = open_session(net.model(net.Relu(net.MatMul(x, y))))
    with pytest.raises((InvalidArgument, Fail), match="MatMul"):
        session.run(None, {"x": image(2, 4, 8), "y": image(3, 8, 5)})
