"""Words of Khmer text with the int8 model of khmercut; run by test_packages.py."""

import json

from khmercut.nn import tokenize

TEXTS = ["ឃាត់ខ្លួនជនសង្ស័យ០៤នាក់ Hello ករណីលួចខ្សែភ្លើង", "ភ្នំពេញ គឺជារាជធានីនៃព្រះរាជាណាចក្រកម្ពុជា។", "ខ្ញុំចូលចិត្តអានសៀវភៅនៅពេលយប់"]

results = [{"words": tokenize(text), "parts": tokenize(text, deep=True)} for text in TEXTS]
print(json.dumps(results))
