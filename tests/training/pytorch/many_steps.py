"""A program that trains for many steps with sizes that change, and prints what tests compare: memory, compilations, bits.

python -m tests.training.pytorch.many_steps --steps 1000 --threads 2
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from sardonyx.training.optim import FusedAdam

LETTERS, WIDTH, LARGEST_BATCH, LONGEST = 50, 64, 16, 40
REPORTED = 100
"""There is a line for each so many steps, and one for the tenth."""


class Reader(nn.Module):  # type: ignore[misc]
    """Attention, layer norm and dropout over texts."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True, dropout=0.1)
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout, self.scores = nn.Dropout(0.1), nn.Linear(WIDTH, LETTERS)

    def forward(self, text: Any) -> Any:
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.scores(x + self.dropout(self.down(nn.functional.gelu(self.up(self.norm(x))))))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def train(steps: int) -> None:
    torch.manual_seed(0)
    model, compilations = Reader(), CompileCounterWithBackend("sardonyx")
    fast = torch.compile(model, backend=compilations)
    optimizer = FusedAdam(model.parameters(), lr=1e-3)
    sizes, losses = torch.Generator().manual_seed(1), hashlib.sha256()
    for step in range(1, steps + 1):
        batch, length = (int(torch.randint(2, most + 1, (), generator=sizes)) for most in (LARGEST_BATCH, LONGEST))
        if step == 1:
            batch, length = LARGEST_BATCH, LONGEST  # so that later steps need no more memory
        text = torch.randint(0, LETTERS, (batch, length + 1), generator=sizes)
        loss = nn.functional.cross_entropy(fast(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.update(loss.detach().numpy().tobytes())
        if step == 10 or step % REPORTED == 0:
            bits = losses.copy()
            for parameter in model.parameters():
                bits.update(parameter.detach().numpy().tobytes())
            told = {"memory": resident_bytes(), "compilations": compilations.frame_count, "bits": bits.hexdigest()}
            print(json.dumps({"step": step, **told}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    train(options.steps)
