"""The structure of a drawn table with rapid-table, its text by the OCR it looks for; run by test_packages.py."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapid_table import RapidTable

ROWS = [["Stone", "Weight", "Price"], ["Agate", "12.5", "3.20"], ["Onyx", "8.0", "4.75"], ["Jasper", "20.1", "2.10"]]


def table():
    image = Image.new("RGB", (480, 240), "white")
    draw = ImageDraw.Draw(image)
    for row, cells in enumerate(ROWS):
        for column, cell in enumerate(cells):
            left, top = 20 + 145 * column, 20 + 50 * row
            draw.rectangle([left, top, left + 145, top + 50], outline="black", width=2)
            draw.text((left + 14, top + 10), cell, fill="black", font=ImageFont.load_default(24))
    return np.asarray(image)[..., ::-1]


html, boxes, places, _ = RapidTable()(table(), return_logic_points=True)
results = {"html": html, "boxes": np.asarray(boxes).tolist(), "places": np.asarray(places).tolist()}
print(json.dumps(results))
