"""An image as kernels of this folder are given it."""

from __future__ import annotations

from sardonyx.providers.native.program.arguments import Arguments, Pointer, Size
from sardonyx.providers.native.program.views import View


class Image(Arguments):
    x: Pointer
    channels: Size
    image_step: Size
    """From image to image of a batch."""
    channel_step: Size


def image_of(view: View) -> Image:
    """Of a view (N, C, …), but for its spatial axes."""
    return Image(x=view.place, channels=view.shape[1], image_step=view.strides[0], channel_step=view.strides[1])
