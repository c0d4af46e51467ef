"""Small networks of many kinds as exporters write them, with every axis open that weights do not fix."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.providers.native.networks import Network, Size

Feeds = dict[str, np.ndarray]
LARGEST = 2**31 - 1


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def ids(*shape: int, limit: int = 32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, limit, shape)


# --- images ---------------------------------------------------------------------------------------------------------


def image(net: Network, channels: int = 3) -> str:
    return net.input("image", ["N", channels, "H", "W"])


def space(net: Network, x: str) -> list[str]:
    return [net.size(x, 2), net.size(x, 3)]


def resized_like(net: Network, x: str, other: str, channels: int, **attributes: str) -> str:
    """`interpolate(x, other.shape[2:])`."""
    sizes = net.sizes(net.size(x, 0), channels, *space(net, other))
    return net.Resize(x, "", "", sizes, **attributes)


def doubled(net: Network, x: str) -> str:
    scales = net.constant([1, 1, 2, 2], np.float32)
    return net.Resize(x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def block(net: Network, x: str, inputs: int, outputs: int, stride: int = 1) -> str:
    """Two convolutions and the way around them."""
    around = x if stride == 1 and inputs == outputs else net.conv(x, inputs, outputs, size=1, stride=stride)
    return net.Relu(net.Add(net.conv(net.Relu(net.conv(x, inputs, outputs, stride=stride)), outputs, outputs), around))


def pyramid(net: Network) -> bytes:
    """ResNet with a feature pyramid, and a classifier beside it."""
    x = net.MaxPool(
        net.Relu(net.conv(image(net), 3, 8, size=7, stride=2)), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]
    )
    first = block(net, x, 8, 8)
    second = block(net, first, 8, 16, stride=2)
    third = block(net, second, 16, 32, stride=2)
    laterals = [net.conv(x, channels, 8, size=1) for x, channels in ((first, 8), (second, 16), (third, 32))]
    merged = [laterals[2]]
    for lateral in (laterals[1], laterals[0]):
        upper = resized_like(net, merged[-1], lateral, 8, mode="nearest", coordinate_transformation_mode="asymmetric")
        merged.append(net.Add(lateral, upper))
    classes = net.Gemm(net.Flatten(net.GlobalAveragePool(third)), net.weight(10, 32), net.weight(10), transB=1)
    return net.model(*(net.conv(x, 8, 8) for x in merged), net.Softmax(classes))


def silu(net: Network, x: str) -> str:
    return net.Mul(x, net.Sigmoid(x))


def detector(net: Network) -> bytes:
    """YOLO: a focus of slices, a neck that joins doubled images, and heads that give rows of 85."""
    x = image(net)
    parts = []
    for row, column in ((0, 0), (1, 0), (0, 1), (1, 1)):
        rows = net.Slice(x, net.constant([row]), net.constant([LARGEST]), net.constant([2]), net.constant([2]))
        parts.append(net.Slice(rows, net.constant([column]), net.constant([LARGEST]), net.constant([3]), net.constant([2])))
    low = silu(net, net.conv(net.Concat(*parts, axis=1), 12, 16))
    middle = silu(net, net.conv(low, 16, 16, stride=2))
    high = silu(net, net.conv(middle, 16, 32, stride=2))
    pools = [net.MaxPool(high, kernel_shape=[size, size], pads=[size // 2] * 4) for size in (3, 5)]
    high = silu(net, net.conv(net.Concat(high, *pools, axis=1), 96, 16, size=1))
    middle = silu(net, net.conv(net.Concat(doubled(net, high), middle, axis=1), 32, 16))
    low = silu(net, net.conv(net.Concat(doubled(net, middle), low, axis=1), 32, 16))
    rows = [head(net, x, stride) for x, stride in ((low, 2), (middle, 4), (high, 8))]
    return net.model(net.Concat(*rows, axis=1))


def head(net: Network, x: str, stride: int) -> str:
    """Boxes of three anchors per pixel: sigmoid, a grid of places, and rows of 85."""
    height, width = space(net, x)
    x = net.Reshape(net.conv(x, 16, 255, size=1), net.sizes(net.size(x, 0), 3, 85, height, width))
    x = net.Sigmoid(net.Transpose(x, perm=[0, 1, 3, 4, 2]))
    centre, extent, rest = (
        net.Slice(x, net.constant([first]), net.constant([end]), net.constant([4])) for first, end in ((0, 2), (2, 4), (4, 85))
    )
    ranges = [net.Range(net.constant(0), size, net.constant(1)) for size in (height, width)]
    rows = net.Expand(net.Unsqueeze(ranges[0], net.constant([1])), net.sizes(height, width))
    columns = net.Expand(net.Unsqueeze(ranges[1], net.constant([0])), net.sizes(height, width))
    grid = net.Concat(*(net.Unsqueeze(one, net.constant([2])) for one in (columns, rows)), axis=2)
    centre = net.Mul(net.Add(centre, net.Cast(grid, to=1)), net.constant(stride, np.float32))
    extent = net.Mul(net.Pow(extent, net.constant(2, np.float32)), net.constant([16, 16], np.float32))
    return net.Reshape(net.Concat(centre, extent, rest, axis=4), net.sizes(net.size(x, 0), -1, 85))


def segmentation(net: Network) -> bytes:
    """U-Net: transposed convolutions, padded to the size of what they are joined with."""
    x = image(net)
    kept = []
    channels = 3
    for outputs in (8, 16):
        x = net.Relu(net.conv(x, channels, outputs))
        kept.append((x, outputs))
        x, channels = net.MaxPool(x, kernel_shape=[2, 2], strides=[2, 2]), outputs
    x, channels = net.Relu(net.conv(x, 16, 32)), 32
    for beside, outputs in reversed(kept):
        x = net.ConvTranspose(x, net.weight(channels, outputs, 2, 2), net.weight(outputs), strides=[2, 2])
        missing = [net.Sub(there, here) for there, here in zip(space(net, beside), space(net, x))]
        halves = [net.Div(one, net.constant(2)) for one in missing]
        rests = [net.Sub(one, half) for one, half in zip(missing, halves)]
        x = net.Pad(x, net.sizes(0, 0, *halves, 0, 0, *rests), net.constant(0, np.float32))
        x, channels = net.Relu(net.conv(net.Concat(beside, x, axis=1), 2 * outputs, outputs)), outputs
    return net.model(net.conv(x, 8, 4, size=1))


def mobile(net: Network) -> bytes:
    """MobileNet: depthwise convolutions, squeeze and excite, HardSwish."""
    x = net.HardSwish(net.conv(image(net), 3, 16, stride=2))
    for stride in (1, 2):
        y = net.HardSwish(net.conv(x, 16, 32, size=1))
        y = net.HardSwish(net.conv(y, 32, 32, stride=stride, group=32))
        squeezed = net.Relu(net.conv(net.GlobalAveragePool(y), 32, 8, size=1))
        y = net.Mul(y, net.HardSigmoid(net.conv(squeezed, 8, 32, size=1), alpha=1 / 6))
        y = net.conv(y, 32, 16, size=1)
        x = net.Add(x, y) if stride == 1 else y
    pooled = net.ReduceMean(x, axes=[2, 3], keepdims=0)
    return net.model(net.Gemm(pooled, net.weight(16, 10), net.weight(10)))


def depth(net: Network) -> bytes:
    """An encoder at a fraction of the size, and a map that is brought back to the image's own, scaled to its range."""
    x = image(net)
    deep = net.Relu(net.conv(net.Relu(net.conv(x, 3, 8, stride=2)), 8, 8, stride=2))
    dilated = net.Conv(deep, net.weight(8, 8, 3, 3), net.weight(8), pads=[2] * 4, dilations=[2, 2])
    pooled = resized_like(
        net, net.GlobalAveragePool(deep), deep, 8, mode="linear", coordinate_transformation_mode="align_corners"
    )
    joint = net.Relu(net.conv(net.Concat(deep, dilated, pooled, axis=1), 24, 1, size=1))
    end = net.Slice(net.Shape(x), net.constant([2]), net.constant([4]), net.constant([0]))
    begin = net.Slice(net.Shape(joint), net.constant([0]), net.constant([2]), net.constant([0]))
    y = net.Resize(
        joint,
        "",
        "",
        net.Concat(begin, net.Cast(end, to=7), axis=0),
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    least, largest = net.ReduceMin(y, axes=[1, 2, 3]), net.ReduceMax(y, axes=[1, 2, 3])
    return net.model(net.Div(net.Sub(y, least), net.Add(net.Sub(largest, least), net.constant(1e-3, np.float32))))


def recognizer(net: Network) -> bytes:
    """CRNN: columns of an image become a sequence for two directions of an LSTM."""
    x = net.Relu(net.conv(image(net, 1), 1, 8, stride=2))
    x = net.Relu(net.conv(x, 8, 16))
    x = net.ReduceMean(x, axes=[2], keepdims=0)
    x = net.Transpose(x, perm=[2, 0, 1])
    x = both_directions(net, x, 16, 12)
    length, batch = net.size(x, 0), net.size(x, 1)
    flat = net.Reshape(x, net.sizes(net.Mul(length, batch), 24))
    scores = net.Gemm(flat, net.weight(11, 24), net.weight(11), transB=1)
    return net.model(net.LogSoftmax(net.Reshape(scores, net.sizes(length, batch, -1)), axis=2))


def patches(net: Network) -> bytes:
    """ViT: an image in patches, with a token in front and a place for each, through a block of attention."""
    x = net.Conv(image(net), net.weight(16, 3, 4, 4), net.weight(16), strides=[4, 4])
    batch = net.size(x, 0)
    x = net.Transpose(net.Reshape(x, net.sizes(batch, 16, -1)), perm=[0, 2, 1])
    token = net.Expand(net.weight(1, 1, 16), net.sizes(batch, 1, 16))
    x = net.Concat(token, x, axis=1)
    end = net.Unsqueeze(net.size(x, 1), net.constant([0]))
    x = net.Add(x, net.Slice(net.weight(1, 200, 16), net.constant([0]), end, net.constant([1])))
    x = encoder_block(net, x, 16, 4, None)
    first = net.Gather(normalized(net, x, 16), net.constant(0), axis=1)
    return net.model(net.Gemm(first, net.weight(16, 5), net.weight(5)))


def windows(net: Network) -> bytes:
    """Swin: an image padded to whole windows, attention inside of each, and back."""
    size, channels = 4, 8
    x = net.Transpose(net.conv(image(net), 3, channels), perm=[0, 2, 3, 1])
    batch, height, width = (net.size(x, axis) for axis in (0, 1, 2))
    window = net.constant(size)
    missing = [net.Mod(net.Sub(window, net.Mod(one, window)), window) for one in (height, width)]
    padded = net.Pad(x, net.sizes(0, 0, 0, 0, 0, *missing, 0), net.constant(0, np.float32))
    rows, columns = (net.Div(net.size(padded, axis), window) for axis in (1, 2))
    y = net.Reshape(padded, net.sizes(batch, rows, size, columns, size, channels))
    y = net.Reshape(net.Transpose(y, perm=[0, 1, 3, 2, 4, 5]), net.constant([-1, size * size, channels]))
    y = encoder_block(net, y, channels, 2, None)
    y = net.Transpose(net.Reshape(y, net.sizes(batch, rows, columns, size, size, channels)), perm=[0, 1, 3, 2, 4, 5])
    y = net.Reshape(y, net.sizes(batch, net.Mul(rows, window), net.Mul(columns, window), channels))
    ends = net.sizes(height, width)
    y = net.Slice(y, net.constant([0, 0]), ends, net.constant([1, 2]))
    return net.model(net.Transpose(net.Add(x, y), perm=[0, 3, 1, 2]))


def selection(net: Network) -> bytes:
    """What follows a detector: suppression of boxes that overlap, the best of those kept, their boxes and classes."""
    boxes, scores = net.input("boxes", ["N", "K", 4]), net.input("scores", ["N", "C", "K"])
    kept = net.NonMaxSuppression(
        boxes, scores, net.constant([20]), net.constant([0.5], np.float32), net.constant([0.1], np.float32)
    )
    chosen = net.GatherND(scores, kept)
    limit = net.Min(net.constant([10]), net.Shape(chosen))
    best, places = net.TopK(chosen, limit, outputs=2)
    rows = net.Gather(kept, places, axis=0)
    of_image = net.Slice(rows, net.constant([0]), net.constant([1]), net.constant([1]))
    of_box = net.Slice(rows, net.constant([2]), net.constant([3]), net.constant([1]))
    found = net.GatherND(boxes, net.Concat(of_image, of_box, axis=1))
    everything, order = net.TopK(net.ReduceMax(scores, axes=[1], keepdims=0), net.constant([3]), outputs=2)
    return net.model(best, found, everything, order, rows, dtypes={order: np.int64, rows: np.int64})


# --- sequences ------------------------------------------------------------------------------------------------------


def both_directions(net: Network, x: str, inputs: int, hidden: int) -> str:
    """An LSTM over (time, batch, features) with states of zeros, as exporters write them."""
    state = net.ConstantOfShape(net.sizes(2, net.size(x, 1), hidden))
    y, _, _ = net.LSTM(
        *(x, net.weight(2, 4 * hidden, inputs), net.weight(2, 4 * hidden, hidden), net.weight(2, 8 * hidden), "", state, state),
        outputs=3,
        direction="bidirectional",
        hidden_size=hidden,
    )
    y = net.Transpose(y, perm=[0, 2, 1, 3])
    return net.Reshape(y, net.constant([0, 0, -1]))


def tagger(net: Network) -> bytes:
    """Words through an LSTM of two directions to tags."""
    x = net.Gather(net.weight(32, 8), net.input("ids", ["N", "T"], np.int64))
    x = both_directions(net, net.Transpose(x, perm=[1, 0, 2]), 8, 12)
    return net.model(net.LogSoftmax(net.linear(net.Transpose(x, perm=[1, 0, 2]), 24, 5), axis=2))


def normalized(net: Network, x: str, size: int) -> str:
    """Layer normalization in the ops of before opset 17."""
    centred = net.Sub(x, net.ReduceMean(x, axes=[-1]))
    variance = net.ReduceMean(net.Pow(centred, net.constant(2, np.float32)), axes=[-1])
    scaled = net.Div(centred, net.Sqrt(net.Add(variance, net.constant(1e-5, np.float32))))
    return net.Add(net.Mul(scaled, net.weight(size)), net.weight(size))


def gelu(net: Network, x: str) -> str:
    erf = net.Erf(net.Div(x, net.constant(np.sqrt(2), np.float32)))
    return net.Mul(net.Mul(x, net.Add(erf, net.constant(1, np.float32))), net.constant(0.5, np.float32))


def heads_of(net: Network, x: str, heads: int, size: int) -> str:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    shape = net.sizes(net.size(x, 0), net.size(x, 1), heads, size)
    return net.Transpose(net.Reshape(x, shape), perm=[0, 2, 1, 3])


def attended(net: Network, q: str, k: str, v: str, size: int, mask: str | None) -> str:
    scores = net.MatMul(q, net.Transpose(k, perm=[0, 1, 3, 2]))
    scores = net.Div(scores, net.constant(np.sqrt(size), np.float32))
    if mask is not None:
        scores = net.Add(scores, mask)
    return net.MatMul(net.Softmax(scores, axis=-1), v)


def merged(net: Network, x: str, size: int) -> str:
    x = net.Transpose(x, perm=[0, 2, 1, 3])
    return net.Reshape(x, net.sizes(net.size(x, 0), net.size(x, 1), size))


def encoder_block(net: Network, x: str, size: int, heads: int, mask: str | None) -> str:
    y = normalized(net, x, size)
    q, k, v = (heads_of(net, net.linear(y, size, size), heads, size // heads) for _ in range(3))
    y = merged(net, attended(net, q, k, v, size // heads, mask), size)
    x = net.Add(x, net.linear(y, size, size))
    return net.Add(x, net.linear(gelu(net, net.linear(normalized(net, x, size), size, 4 * size)), 4 * size, size))


def encoder(net: Network) -> bytes:
    """BERT: three embeddings, a mask that is brought to four axes, blocks, a pooled token."""
    tokens = net.input("ids", ["N", "T"], np.int64)
    given = net.input("mask", ["N", "T"], np.int64)
    kinds = net.input("kinds", ["N", "T"], np.int64)
    end = net.Unsqueeze(net.size(tokens, 1), net.constant([0]))
    places = net.Slice(net.constant([list(range(64))]), net.constant([0]), end, net.constant([1]))
    x = net.Add(net.Gather(net.weight(32, 16), tokens), net.Gather(net.weight(2, 16), kinds))
    x = normalized(net, net.Add(x, net.Gather(net.weight(64, 16), places)), 16)
    wide = net.Cast(net.Unsqueeze(net.Unsqueeze(given, net.constant([1])), net.constant([2])), to=1)
    mask = net.Mul(net.Sub(net.constant(1, np.float32), wide), net.constant(-10000, np.float32))
    for _ in range(2):
        x = encoder_block(net, x, 16, 2, mask)
    pooled = net.Tanh(net.Gemm(net.Gather(x, net.constant(0), axis=1), net.weight(16, 16), net.weight(16), transB=1))
    return net.model(x, pooled)


def decoder(net: Network) -> bytes:
    """GPT: keys and values of earlier runs, places that continue them, and no look ahead."""
    tokens = net.input("ids", ["N", "T"], np.int64)
    past_key, past_value = (net.input(name, ["N", 2, "P", 8]) for name in ("past_key", "past_value"))
    past, length = net.size(past_key, 2), net.size(tokens, 1)
    total = net.Add(past, length)
    places = net.Range(past, total, net.constant(1))
    x = net.Add(
        net.Gather(net.weight(32, 16), tokens), net.Gather(net.weight(64, 16), net.Unsqueeze(places, net.constant([0])))
    )
    y = normalized(net, x, 16)
    q, k, v = net.Split(net.linear(y, 16, 48), net.constant([16, 16, 16]), outputs=3, axis=2)
    q, k, v = (heads_of(net, one, 2, 8) for one in (q, k, v))
    key, value = net.Concat(past_key, k, axis=2), net.Concat(past_value, v, axis=2)
    seen = net.Range(net.constant(0), total, net.constant(1))
    later = net.Greater(net.Unsqueeze(seen, net.constant([0])), net.Unsqueeze(places, net.constant([1])))
    mask = net.Where(later, net.constant(-1e9, np.float32), net.constant(0, np.float32))
    y = merged(net, attended(net, q, key, value, 8, mask), 16)
    x = net.Add(x, net.linear(y, 16, 16))
    return net.model(net.MatMul(normalized(net, x, 16), net.weight(16, 32)), key, value)


def scaled_rms(net: Network, x: str, size: int) -> str:
    square = net.ReduceMean(net.Pow(x, net.constant(2, np.float32)), axes=[-1])
    return net.Mul(
        net.weight(size),
        net.Mul(x, net.Div(net.constant(1, np.float32), net.Sqrt(net.Add(square, net.constant(1e-6, np.float32))))),
    )


def turned(net: Network, x: str, cosine: str, sine: str) -> str:
    """x·cos + rotate_half(x)·sin."""
    half = net.Div(net.size(x, 3), net.constant(2))
    at = net.Unsqueeze(half, net.constant([0]))
    low = net.Slice(x, net.constant([0]), at, net.constant([3]))
    high = net.Slice(x, at, net.constant([LARGEST]), net.constant([3]))
    return net.Add(net.Mul(x, cosine), net.Mul(net.Concat(net.Neg(high), low, axis=3), sine))


def rotary(net: Network) -> bytes:
    """Llama: RMS norms, angles from places that are given, few key heads for many, gated units, keys and values of earlier runs."""
    tokens, places = net.input("ids", ["N", "T"], np.int64), net.input("places", ["N", "T"], np.int64)
    past_key, past_value = (net.input(name, ["N", 2, "P", 8]) for name in ("past_key", "past_value"))
    x = net.Gather(net.weight(32, 32), tokens)
    frequencies = net.constant([[[1.0], [0.3], [0.1], [0.03]]], np.float32)
    angles = net.MatMul(frequencies, net.Unsqueeze(net.Cast(places, to=1), net.constant([1])))
    angles = net.Transpose(angles, perm=[0, 2, 1])
    angles = net.Concat(angles, angles, axis=2)
    cosine, sine = (net.Unsqueeze(one, net.constant([1])) for one in (net.Cos(angles), net.Sin(angles)))
    y = scaled_rms(net, x, 32)
    q = turned(net, heads_of(net, net.MatMul(y, net.weight(32, 32)), 4, 8), cosine, sine)
    k = turned(net, heads_of(net, net.MatMul(y, net.weight(32, 16)), 2, 8), cosine, sine)
    v = heads_of(net, net.MatMul(y, net.weight(32, 16)), 2, 8)
    key, value = net.Concat(past_key, k, axis=2), net.Concat(past_value, v, axis=2)
    y = merged(net, attended(net, q, repeated(net, key), repeated(net, value), 8, None), 32)
    x = net.Add(x, net.MatMul(y, net.weight(32, 32)))
    y = scaled_rms(net, x, 32)
    gated = net.Mul(silu(net, net.MatMul(y, net.weight(32, 48))), net.MatMul(y, net.weight(32, 48)))
    return net.model(net.Add(x, net.MatMul(gated, net.weight(48, 32))), key, value)


def repeated(net: Network, x: str) -> str:
    """Each of two key heads for two heads."""
    batch, length = net.size(x, 0), net.size(x, 2)
    wide = net.Expand(net.Unsqueeze(x, net.constant([2])), net.sizes(batch, 2, 2, length, 8))
    return net.Reshape(wide, net.sizes(batch, 4, length, 8))


def speech(net: Network) -> bytes:
    """Waves through convolutions with normalized groups of channels, and a mean over time."""
    x = net.input("wave", ["N", 1, "L"])
    channels = 1
    for _ in range(2):
        x = net.Conv(x, net.weight(8, channels, 5), net.weight(8), strides=[2], pads=[2, 2])
        grouped = net.Reshape(x, net.constant([0, 2, -1]))
        grouped = net.InstanceNormalization(grouped, net.constant([1, 1], np.float32), net.constant([0, 0], np.float32))
        x = net.Reshape(grouped, net.Shape(x))
        x = gelu(net, net.Add(net.Mul(x, net.weight(8, 1)), net.weight(8, 1)))
        channels = 8
    x = net.Transpose(x, perm=[0, 2, 1])
    x = net.LayerNormalization(x, net.weight(8), net.weight(8), axis=-1)
    return net.model(net.ReduceMean(net.linear(x, 8, 6), axes=[1], keepdims=0), x)


# --- the list -------------------------------------------------------------------------------------------------------


def images(*shapes: Sequence[int]) -> list[Feeds]:
    return [{"image": numbers(*shape)} for shape in shapes]


def cached(length: int, past: int, batch: int, heads: int = 2) -> Feeds:
    return {
        "ids": ids(batch, length),
        "past_key": numbers(batch, heads, past, 8),
        "past_value": numbers(batch, heads, past, 8) + 1,
    }


NETWORKS: dict[str, tuple[Callable[[Network], bytes], list[Feeds]]] = {
    "ResNet with FPN": (pyramid, images((1, 3, 64, 48), (2, 3, 57, 71))),
    "YOLO": (detector, images((1, 3, 64, 32), (2, 3, 32, 96))),
    "U-Net": (segmentation, images((1, 3, 16, 24), (2, 3, 21, 31))),
    "MobileNet": (mobile, images((1, 3, 32, 32), (3, 3, 45, 27))),
    "depth": (depth, images((1, 3, 24, 32), (2, 3, 37, 29))),
    "CRNN": (recognizer, images((1, 1, 16, 40), (3, 1, 20, 75))),
    "ViT": (patches, images((1, 3, 16, 16), (2, 3, 24, 33))),
    "Swin": (windows, images((1, 3, 8, 12), (2, 3, 13, 10))),
    "selection": (
        selection,
        [
            {"boxes": np.sort(numbers(n, k, 4), axis=-1), "scores": np.abs(numbers(n, c, k))}
            for n, c, k in ((1, 2, 30), (2, 3, 17))
        ],
    ),
    "LSTM tagger": (tagger, [{"ids": ids(1, 7)}, {"ids": ids(3, 20)}]),
    "BERT": (
        encoder,
        [{"ids": ids(n, t), "mask": ids(n, t, limit=2), "kinds": ids(n, t, limit=2)} for n, t in ((1, 8), (3, 21))],
    ),
    "GPT": (decoder, [cached(5, 0, 1), cached(1, 6, 2), cached(3, 4, 2)]),
    "Llama": (rotary, [cached(n, p, b) | {"places": ids(b, n)} for n, p, b in ((5, 0, 1), (1, 6, 2), (3, 4, 2))]),
    "speech": (speech, [{"wave": numbers(1, 1, 160)}, {"wave": numbers(2, 1, 333)}]),
}


class Distinct(Network):
    """Each open axis of each input is a size of its own."""

    def input(self, name: str, shape: Sequence[Size], dtype: type = np.float32) -> str:
        return super().input(name, [size if isinstance(size, int) else f"{name}_{size}" for size in shape], dtype)


class Nameless(Network):
    """Open axes have no names."""

    def input(self, name: str, shape: Sequence[Size], dtype: type = np.float32) -> str:
        return super().input(name, [size if isinstance(size, int) else None for size in shape], dtype)
