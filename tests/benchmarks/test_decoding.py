"""The decoders of the benchmark give what onnxruntime gives, whichever way the cache goes from token to token."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from benchmarks import decoding
from benchmarks.decoding import Contestant, Decoder
from tests.tolerance import assert_close

DECODERS = {"gpt2": decoding.gpt2, "llama": decoding.llama}
PAST = 20


def logits(module: str, decoder: Decoder, way: str, tokens: int = 3) -> list[np.ndarray]:
    contestant = Contestant(module, decoder, 1, PAST)
    steps = getattr(contestant, way)(PAST)
    run, found = next(steps), []
    for _ in range(tokens):
        made = run()
        found.append(np.array(made[0]) if made is not None else run.args[0].copy_outputs_to_cpu()[-1])
        run = steps.send(made)
    return found


@pytest.mark.parametrize(("name", "way"), [*itertools.product(DECODERS, ["again", "growing"]), ("llama", "shared")])
def test_decoders_give_what_onnxruntime_gives(name: str, way: str) -> None:
    decoder = DECODERS[name]()
    ours, theirs = (logits(module, decoder, way) for module in ("sardonyx", "onnxruntime"))
    assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "TOKENS", 3)
    monkeypatch.setattr(decoding, "UNCOUNTED", 1)
    row = decoding.measure(decoding.gpt2(), "growing", 2, PAST, 2)
    assert 0 < row["ours"][1] <= row["ours"][0] and row["theirs"][0] > 0
