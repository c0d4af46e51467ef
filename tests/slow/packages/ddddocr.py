"""Letters of drawn captchas with both recognizers of ddddocr, and its detector; run by test_packages.py."""

import io
import json
import random

import ddddocr
from PIL import Image, ImageDraw, ImageFont


def captcha(text, seed):
    noise = random.Random(seed)
    image = Image.new("RGB", (160, 60), "white")
    draw = ImageDraw.Draw(image)
    for position, letter in enumerate(text):
        place = (12 + 36 * position + noise.randint(-3, 3), 6 + noise.randint(-4, 4))
        draw.text(place, letter, fill=(noise.randint(0, 120), 20, 90), font=ImageFont.load_default(40))
    for _ in range(3):
        draw.line([(noise.randint(0, 160), noise.randint(0, 60)) for _ in range(2)], fill=(120, 140, 160))
    return png(image)


def targets():
    image = Image.new("RGB", (340, 200), (225, 235, 225))
    draw = ImageDraw.Draw(image)
    for letter, place in zip("KRW", [(40, 40), (150, 110), (260, 50)]):
        draw.text(place, letter, fill=(180, 20, 30), font=ImageFont.load_default(48))
    return png(image)


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


texts = {"3kp7": 1, "WX8a": 2, "h5TN": 3}
recognizer = ddddocr.DdddOcr(show_ad=False)
old_recognizer = ddddocr.DdddOcr(show_ad=False, old=True)
detector = ddddocr.DdddOcr(det=True, ocr=False, show_ad=False)
results = {
    "recognized": {text: recognizer.classification(captcha(text, seed)) for text, seed in texts.items()},
    "recognized by the old model": {text: old_recognizer.classification(captcha(text, seed)) for text, seed in texts.items()},
    "boxes": [[int(side) for side in box] for box in detector.detection(targets())],
}
print(json.dumps(results))
