"""Features and resampled sound with the preprocessors of onnx-asr; run by test_packages.py."""

import json

import numpy as np
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor
from onnx_asr.preprocessors.resampler import Resampler


def chirp(rate, seconds):
    time = np.arange(int(rate * seconds)) / rate
    tone = np.sin(2 * np.pi * (180 * time + 240 * time**2)) * np.clip(np.sin(7 * time), 0.05, 1)
    return (0.4 * tone + 0.01 * np.random.default_rng(5).standard_normal(time.size)).astype(np.float32)[np.newaxis]


def summary(values):
    """Enough of an array to tell it from another: its shape, its means along the longest axis, and some elements."""
    return {
        "shape": values.shape,
        "means": values.mean(axis=-1).tolist(),
        "some": values.reshape(-1)[:: max(1, values.size // 50)].tolist(),
    }


results = {}
for name in ("nemo80", "nemo128", "kaldi", "gigaam_v2", "gigaam_v3", "whisper80", "whisper128", "wespeaker"):
    sound = chirp(16000, 1.3)
    features, lengths = OnnxPreprocessor(name, {})(sound, np.array([sound.shape[1]]))
    results[name] = {"features": summary(features), "lengths": lengths.tolist()}
resample = Resampler(16000, {})
for rate in (8000, 22050, 44100, 48000):
    sound = chirp(rate, 0.4)
    resampled, lengths = resample(sound, np.array([sound.shape[1]]), rate)
    results[f"{rate} Hz"] = {"resampled": summary(resampled), "lengths": lengths.tolist()}
print(json.dumps(results))
