"""Printed lines with rapidocr-onnxruntime, one of them upside down; run by test_packages.py."""

import json

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from rapidocr_onnxruntime import RapidOCR

LINES = ["Sardonyx is a banded stone", "Invoice 2024-117", "Total: 1,284.50 EUR"]


def page():
    image = Image.new("RGB", (520, 200), "white")
    draw = ImageDraw.Draw(image)
    for row, line in enumerate(LINES):
        draw.text((24, 20 + 56 * row), line, fill="black", font=ImageFont.load_default(32))
    return image


engine = RapidOCR()
results = {}
for name, image in (("upright", page()), ("turned", page().rotate(180))):
    lines, _ = engine(np.asarray(image)[..., ::-1])
    results[name] = [[np.asarray(box).tolist(), text, float(score)] for box, text, score in lines]
print(json.dumps(results))
