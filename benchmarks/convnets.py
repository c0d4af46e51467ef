"""Convolutional networks of the benchmarks: the well-known ones layer by layer, and some of other kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.networks import Layers, Network

PICTURE = (1, 3, 224, 224)


class ConvLayers(Layers):
    """Layers with the blocks that convolutional networks are made of."""

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        group: int = 1,
        dilation: int = 1,
        act: str | None = "Relu",
        rank: int = 2,
    ) -> str:
        """A convolution that keeps the size, up to its stride, and an activation."""
        depth = inputs // group
        weight = self.weight(outputs, depth, *[size] * rank, fan_in=depth * size**rank)
        pads = [size // 2 * dilation] * 2 * rank
        strides, dilations = [stride] * rank, [dilation] * rank
        y = self.add("Conv", x, weight, self.zeros(outputs), pads=pads, strides=strides, dilations=dilations, group=group)
        return self.activate(y, act)

    def activate(self, x: str, act: str | None) -> str:
        if act is None:
            return x
        if act == "Swish":
            return self.add("Mul", x, self.add("Sigmoid", x))
        return self.add(act, x)

    def pool(self, x: str, size: int = 2, stride: int = 2, pad: int = 0) -> str:
        return self.add("MaxPool", x, kernel_shape=[size] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def classify(self, x: str, channels: int, classes: int = 1000) -> str:
        return self.dense(self.add("Flatten", self.add("GlobalAveragePool", x)), channels, classes)


def _residual(layers: ConvLayers, x: str, inputs: int, outputs: int, stride: int, inner: str) -> str:
    """`inner` is the branch's result; the shortcut is a convolution where the shape changes."""
    if stride > 1 or inputs != outputs:
        x = layers.conv(x, inputs, outputs, 1, stride, act=None)
    return layers.add("Relu", layers.add("Add", inner, x))


def _bottleneck(layers: ConvLayers, x: str, inputs: int, width: int, stride: int, group: int = 1, outputs: int = 0) -> str:
    outputs = outputs or 4 * width
    y = layers.conv(x, inputs, width, 1)
    y = layers.conv(y, width, width, 3, stride, group)
    return _residual(layers, x, inputs, outputs, stride, layers.conv(y, width, outputs, 1, act=None))


def resnet50(batch: int = 1, name: str = "resnet50", group: int = 1, widening: int = 1) -> Network:
    """ResNet-50 on a picture of 224×224."""
    layers = ConvLayers()
    x = layers.pool(layers.conv("x", 3, 64, 7, 2), 3, 2, 1)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        outputs = 256 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            x = _bottleneck(layers, x, channels, (64 << stage) * widening, stride, group, outputs)
            channels = outputs
    return layers.finish(name, (batch, *PICTURE[1:]), layers.classify(x, channels), any_batch=True)


def resnet50_batch8() -> Network:
    """The same on eight pictures."""
    return resnet50(8, "resnet50_batch8")


def resnext50() -> Network:
    """ResNeXt-50: its 3×3 convolutions in 32 groups."""
    return resnet50(name="resnext50", group=32, widening=2)


def resnet18() -> Network:
    """ResNet-18 on a picture of 224×224."""
    layers = ConvLayers()
    x = layers.pool(layers.conv("x", 3, 64, 7, 2), 3, 2, 1)
    channels = 64
    for stage in range(4):
        outputs = 64 << stage
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = layers.conv(layers.conv(x, channels, outputs, 3, stride), outputs, outputs, act=None)
            x = _residual(layers, x, channels, outputs, stride, y)
            channels = outputs
    return layers.finish("resnet18", PICTURE, layers.classify(x, channels))


def vgg16() -> Network:
    """VGG-16 on a picture of 224×224, without its two wide dense layers."""
    layers = ConvLayers()
    x, channels = "x", 3
    for outputs, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = layers.conv(x, channels, outputs)
            channels = outputs
        x = layers.pool(x)
    return layers.finish("vgg16", PICTURE, layers.classify(x, channels))


def mobilenet_v2() -> Network:
    """MobileNetV2 on a picture of 224×224."""
    layers = ConvLayers()
    zero, six = (layers.constant(layers.type(bound)) for bound in (0, 6))  # type: ignore[arg-type]

    def clipped(x: str) -> str:
        return layers.add("Clip", x, zero, six)

    x, channels = clipped(layers.conv("x", 3, 32, 3, 2, act=None)), 32
    for expansion, outputs, count, first in MOBILENET_V2:
        for number in range(count):
            inner, stride = channels * expansion, first if number == 0 else 1
            y = clipped(layers.conv(x, channels, inner, 1, act=None)) if expansion > 1 else x
            y = clipped(layers.conv(y, inner, inner, 3, stride, inner, act=None))
            y = layers.conv(y, inner, outputs, 1, act=None)
            x = layers.add("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    x = clipped(layers.conv(x, channels, 1280, 1, act=None))
    return layers.finish("mobilenet_v2", PICTURE, layers.classify(x, 1280))


MOBILENET_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, blocks, and the first block's stride."""


def squeezenet() -> Network:
    """SqueezeNet 1.1 on a picture of 224×224."""
    layers = ConvLayers()
    x, channels = layers.pool(layers.conv("x", 3, 64, 3, 2), 3), 64
    for number, (squeezed, outputs) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if number in (2, 4):
            x = layers.pool(x, 3)
        y = layers.conv(x, channels, squeezed, 1)
        x = layers.add("Concat", layers.conv(y, squeezed, outputs, 1), layers.conv(y, squeezed, outputs, 3), axis=1)
        channels = 2 * outputs
    x = layers.conv(x, channels, 1000, 1)
    return layers.finish("squeezenet", PICTURE, layers.add("Flatten", layers.add("GlobalAveragePool", x)))


def unet() -> Network:
    """A U-Net of four levels on a picture of 128×128."""
    layers = ConvLayers()
    x, channels, skipped = "x", 3, []
    for level in range(4):
        width = 32 << level
        x = layers.conv(layers.conv(x, channels, width), width, width)
        skipped.append((x, width))
        x, channels = layers.pool(x), width
    x = layers.conv(layers.conv(x, channels, 512), 512, 512)
    channels = 512
    for skip, width in reversed(skipped):
        up = layers.add("ConvTranspose", x, layers.weight(channels, width, 2, 2), layers.zeros(width), strides=[2, 2])
        x = layers.add("Concat", up, skip, axis=1)
        x, channels = layers.conv(layers.conv(x, 2 * width, width), width, width), width
    return layers.finish("unet", (1, 3, 128, 128), layers.conv(x, channels, 2, 1, act=None))


def densenet() -> Network:
    """Two dense blocks: each layer reads all before it."""
    layers = ConvLayers()
    x, channels = layers.pool(layers.conv("x", 3, 64, 7, 2), 3, 2, 1), 64
    for count in (6, 12):
        for _ in range(count):
            y = layers.conv(layers.conv(layers.add("Relu", x), channels, 128, 1), 128, 32, act=None)
            x, channels = layers.add("Concat", x, y, axis=1), channels + 32
        x = layers.add("AveragePool", layers.conv(x, channels, channels // 2, 1), kernel_shape=[2, 2], strides=[2, 2])
        channels //= 2
    return layers.finish("densenet", PICTURE, layers.classify(x, channels))


def efficientnet() -> Network:
    """Inverted residuals with squeeze-and-excite and swish, 3×3 and 5×5, on a picture of 224×224."""
    layers = ConvLayers()
    x, channels = layers.conv("x", 3, 32, 3, 2, act="Swish"), 32
    for expansion, size, outputs, count, first in (
        (1, 3, 16, 1, 1),
        (6, 3, 24, 2, 2),
        (6, 5, 40, 2, 2),
        (6, 3, 80, 3, 2),
        (6, 5, 112, 3, 1),
    ):
        for number in range(count):
            inner, stride = channels * expansion, first if number == 0 else 1
            y = layers.conv(x, channels, inner, 1, act="Swish") if expansion > 1 else x
            y = layers.conv(y, inner, inner, size, stride, inner, act="Swish")
            gate = layers.conv(layers.add("GlobalAveragePool", y), inner, channels // 4, 1, act="Swish")
            y = layers.add("Mul", y, layers.conv(gate, channels // 4, inner, 1, act="Sigmoid"))
            y = layers.conv(y, inner, outputs, 1, act=None)
            x = layers.add("Add", x, y) if stride == 1 and channels == outputs else y
            channels = outputs
    return layers.finish("efficientnet", PICTURE, layers.classify(x, channels))


def large_kernels() -> Network:
    """Blocks of a 7×7 depthwise convolution, layer normalization and two wide 1×1 convolutions, as ConvNeXt has them."""
    layers = ConvLayers()
    x, width = layers.conv("x", 3, 96, 4, 4, act=None), 96
    scale, bias = layers.constant(layers.rng.random(width).astype(layers.type)), layers.zeros(width)
    for _ in range(3):
        y = layers.add("Transpose", layers.conv(x, width, width, 7, group=width, act=None), perm=[0, 2, 3, 1])
        y = layers.add("LayerNormalization", y, scale, bias, axis=-1)
        y = layers.dense(layers.add("Gelu", layers.dense(y, width, 4 * width)), 4 * width, width)
        x = layers.add("Add", x, layers.add("Transpose", y, perm=[0, 3, 1, 2]))
    return layers.finish("large_kernels", PICTURE, layers.classify(x, width))


def speech() -> Network:
    """Dilated 1-D convolutions with gates over 16,000 samples."""
    layers = ConvLayers()
    x = layers.conv("x", 1, 64, 3, act=None, rank=1)
    total = ""
    for number in range(8):
        y, gate = (layers.conv(x, 64, 64, 3, dilation=2**number, act=act, rank=1) for act in ("Tanh", "Sigmoid"))
        y = layers.add("Mul", y, gate)
        skip = layers.conv(y, 64, 64, 1, act=None, rank=1)
        total = layers.add("Add", total, skip) if total else skip
        x = layers.add("Add", x, layers.conv(y, 64, 64, 1, act=None, rank=1))
    return layers.finish("speech", (1, 1, 16000), layers.conv(layers.add("Relu", total), 64, 1, 1, act=None, rank=1))


def video() -> Network:
    """3-D convolutions over 8 pictures of 56×56."""
    layers = ConvLayers()
    x, channels = "x", 3
    for outputs, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        x, channels = layers.conv(x, channels, outputs, 3, stride, rank=3), outputs
    return layers.finish("video", (1, 3, 8, 56, 56), layers.classify(x, channels, 400))


def generator() -> Network:
    """Transposed convolutions from a vector to a picture of 64×64."""
    layers = ConvLayers()
    x, channels = "x", 128
    for outputs, size, stride, pad in ((256, 4, 1, 0), (128, 4, 2, 1), (64, 4, 2, 1), (32, 4, 2, 1), (3, 4, 2, 1)):
        weight = layers.weight(channels, outputs, size, size, fan_in=channels * 4)
        x = layers.add("ConvTranspose", x, weight, layers.zeros(outputs), strides=[stride] * 2, pads=[pad] * 4)
        x, channels = layers.add("Relu" if outputs > 3 else "Tanh", x), outputs
    return layers.finish("generator", (1, 128, 1, 1), x)


_ALL: Sequence[Callable[[], Network]] = (
    *(resnet50, resnet50_batch8, resnet18, vgg16, mobilenet_v2, squeezenet, unet),
    *(resnext50, densenet, efficientnet, large_kernels, speech, video, generator),
)
CONVNETS: dict[str, Callable[[], Network]] = {make.__name__: make for make in _ALL}
