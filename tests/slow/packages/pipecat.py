"""Voice activity (silero) and the end of a turn (smart turn) with pipecat-ai; run by test_packages.py."""

import asyncio
import json

import numpy as np
from pipecat.audio.turn.smart_turn.local_smart_turn_v3 import LocalSmartTurnAnalyzerV3
from pipecat.audio.vad.silero import SileroVADAnalyzer

RATE = 16000


def voice(seconds):
    """Harmonics of a moving pitch, shaped by formants and syllables, with a pause at each end."""
    time = np.arange(int(RATE * seconds)) / RATE
    pitch = 130 * (1 + 0.12 * np.sin(2 * np.pi * 0.9 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    gains = [sum(np.exp(-(((k * pitch - formant) / 260) ** 2)) for formant in (600, 1200, 2500)) + 0.02 for k in range(1, 25)]
    sound = sum(gain * np.sin(k * phase) for k, gain in enumerate(gains, 1)) * np.clip(
        np.sin(2 * np.pi * 3 * time) + 0.4, 0, None
    )
    sound *= (time > 0.4) & (time < seconds - 0.4)
    return 0.4 * sound / np.abs(sound).max() + 0.002 * np.random.default_rng(3).standard_normal(time.size)


def confidences(rate, sound):
    analyzer = SileroVADAnalyzer(sample_rate=rate)
    analyzer.set_sample_rate(rate)
    window = analyzer.num_frames_required()
    frames = (sound * 32767).astype(np.int16)
    starts = range(0, len(frames) - window + 1, window)
    return [float(np.ravel(analyzer.voice_confidence(frames[start : start + window].tobytes()))[0]) for start in starts]


async def turn(sound):
    """All the sound in one piece: the analyzer cuts by the clock what came too early."""
    analyzer = LocalSmartTurnAnalyzerV3(sample_rate=RATE)
    analyzer.set_sample_rate(RATE)
    analyzer.append_audio((sound * 32767).astype(np.int16).tobytes(), is_speech=True)
    state, metrics = await analyzer.analyze_end_of_turn()
    await analyzer.cleanup()
    return {"state": state.name, "probability": metrics.probability}


sound = voice(2.5)
results = {
    "confidence": confidences(RATE, sound),
    "confidence at 8 kHz": confidences(RATE // 2, sound[::2]),
    "turn": asyncio.run(turn(sound)),
    "turn cut short": asyncio.run(turn(sound[: RATE * 3 // 2])),
}
print(json.dumps(results))
