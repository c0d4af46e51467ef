"""The pitch of a voice that rises, with its confidence in each frame."""

import json

import numpy as np
from swift_f0 import SwiftF0

times = np.arange(2 * 16000) / 16000
noise = np.random.default_rng(0).standard_normal(times.size)
voice = (0.4 * np.sin(2 * np.pi * (200 + 50 * times) * times) + 0.02 * noise).astype(np.float32)
found = SwiftF0().detect(voice, 16000)
print(json.dumps([found.pitch_hz.tolist(), found.confidence.tolist()]))
