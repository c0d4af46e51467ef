"""Diacritics of Arabic sentences with the model that piper-tts carries; run by test_packages.py."""

import json

from piper.tashkeel import TashkeelDiacritizer

SENTENCES = ["السلام عليكم ورحمة الله", "ذهب الولد إلى المدرسة في الصباح", "العلم نور والجهل ظلام", "قرأت 3 كتب هذا الشهر"]

diacritizer = TashkeelDiacritizer()
results = [diacritizer.diacritize(sentence) for sentence in SENTENCES]
results += [diacritizer.diacritize(sentence, taskeen_threshold=0.8) for sentence in SENTENCES]
print(json.dumps(results))
