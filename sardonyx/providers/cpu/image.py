"""Sampling grids and decoding of images, in NumPy; Pillow decodes."""

from __future__ import annotations

import io

import numpy as np

from sardonyx.errors import KernelError
from sardonyx.providers.cpu.sampling import as_elements, sample
from sardonyx.providers.cpu.shape import bounded
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched

GRID_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic", "bicubic": "cubic"}


@cpu.kernel("GridSample", widen=True)
def grid_sample(X, grid, align_corners=0, mode="linear", padding_mode="zeros"):
    if mode not in GRID_MODES:
        raise KernelError(f"mode is {mode!r}, expected one of {sorted(GRID_MODES)}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise KernelError(f"padding_mode is {padding_mode!r}, expected 'zeros', 'border' or 'reflection'")
    mode = GRID_MODES[mode]
    # integers are interpolated as floating point, see the text of the output, and cut off
    images = X if mode == "nearest" or X.dtype.kind in "fc" else X.astype(np.float64)
    Y = np.empty((*X.shape[:2], *grid.shape[1:-1]), images.dtype)
    for result, image, points in watched(zip(Y, images, grid, strict=True)):
        # the last entry of a point belongs to the first spatial axis
        coordinates = [
            _pixel_position(points[..., -1 - axis], size, align_corners) for axis, size in enumerate(image.shape[1:])
        ]
        result[...] = sample(image, coordinates, mode, padding_mode, bool(align_corners))
    return as_elements(Y, X.dtype)


def _pixel_position(normalized, size, align_corners):
    """-1 and 1 are the centres of the border pixels, or their outer edges."""
    with np.errstate(over="ignore"):
        return (normalized + 1) / 2 * (size - 1) if align_corners else ((normalized + 1) * size - 1) / 2


@cpu.kernel("AffineGrid", widen=True)
def affine_grid(theta, size, align_corners=0):
    if len(size) not in (4, 5):
        raise KernelError(f"size must be 4 or 5 numbers, it has {len(size)}")
    batch, _, *spatial = (int(extent) for extent in size)
    bounded((batch, *spatial, len(spatial)), theta.dtype)
    ticks = [_ticks(extent, align_corners, theta.dtype) for extent in spatial]
    axes = np.meshgrid(*ticks, indexing="ij")
    points = np.stack([*reversed(axes), np.ones(spatial, theta.dtype)], axis=-1).reshape(-1, len(spatial) + 1)
    return np.matmul(points, np.swapaxes(theta, 1, 2)).reshape(batch, *spatial, len(spatial))


def _ticks(extent, align_corners, dtype):
    """Positions of the pixels' centres, where the image reaches from -1 to 1."""
    if align_corners:
        return np.linspace(-1, 1, extent, dtype=dtype) if extent > 1 else np.zeros(extent, dtype)
    return ((2 * np.arange(extent) + 1) / max(1, extent) - 1).astype(dtype)


PIXEL_FORMATS = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@cpu.kernel("ImageDecoder")
def image_decoder(encoded_stream, pixel_format="RGB"):
    if pixel_format not in PIXEL_FORMATS:
        raise KernelError(f"pixel_format is {pixel_format!r}, expected one of {sorted(PIXEL_FORMATS)}")
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as missing:
        raise KernelError("ImageDecoder needs Pillow: pip install sardonyx[image]") from missing
    mode = PIXEL_FORMATS[pixel_format]
    try:
        pixels = np.asarray(Image.open(io.BytesIO(encoded_stream.tobytes())).convert(mode))
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError):
        return np.zeros((0, 0, len(mode)), np.uint8)  # what the spec asks for if an image cannot be decoded
    pixels = pixels.reshape(*pixels.shape[:2], len(mode))
    return pixels[..., ::-1] if pixel_format == "BGR" else pixels
