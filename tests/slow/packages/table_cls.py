"""Tables with and without rules with table-cls; run by test_packages.py."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from table_cls import TableCls


def table(ruled):
    image = Image.new("RGB", (420, 260), "white")
    draw = ImageDraw.Draw(image)
    for row in range(5):
        for column in range(3):
            left, top = 15 + 130 * column, 5 + 50 * row
            draw.text(
                (left + 12, top + 12), f"{(row + 2) * (column + 3) * 7}.50", fill="black", font=ImageFont.load_default(22)
            )
            if ruled:
                draw.rectangle([left, top, left + 130, top + 50], outline="black", width=2)
    return np.asarray(image)


classify = TableCls()
results = {name: classify(table(ruled))[0] for name, ruled in (("ruled", True), ("bare", False))}
print(json.dumps(results))
