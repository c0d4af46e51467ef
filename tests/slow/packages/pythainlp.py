"""Words of Thai text and their romanization with pythainlp; run by test_packages.py."""

import json

from pythainlp.tokenize import word_tokenize
from pythainlp.transliterate import romanize

TEXTS = ["ตัวอย่างการตัดคำภาษาไทย", "วันนี้อากาศดีมากเราไปเที่ยวกันเถอะ", "รถไฟออกเวลา 8 โมงเช้า"]
WORDS = ["แมว", "กรุงเทพ", "ประเทศไทย", "สวัสดี", "นาฬิกา"]

results = {
    "words": [word_tokenize(text, engine="deepcut") for text in TEXTS],
    "romanized": {word: romanize(word, engine="thai2rom_onnx") for word in WORDS},
}
print(json.dumps(results))
