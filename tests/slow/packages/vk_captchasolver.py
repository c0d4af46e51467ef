"""Letters of a drawn captcha with vk-captchasolver; run by test_packages.py."""

import io
import json
import random

import vk_captchasolver
from PIL import Image, ImageDraw, ImageFont


def captcha(text, seed):
    noise = random.Random(seed)
    image = Image.new("RGB", (130, 50), "white")
    draw = ImageDraw.Draw(image)
    for position, letter in enumerate(text):
        place = (8 + 23 * position, 2 + noise.randint(-3, 3))
        draw.text(place, letter, fill=(60, 70, 90), font=ImageFont.load_default(34))
    buffer = io.BytesIO()
    image.save(buffer, "png")
    buffer.seek(0)
    return buffer


results = {
    text: vk_captchasolver.solve(image=captcha(text, seed)) for text, seed in {"a4kz8": 1, "mnp5": 2, "c7hx2": 3}.items()
}
print(json.dumps(results))
