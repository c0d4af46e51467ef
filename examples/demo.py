"""The demo: classify freshly drawn pictures with the model that ships with the project. `make demo` runs it."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.columns import Columns
from rich.console import Console, Group
from rich.text import Text
from shapes import LABELS, draw, sample

import sardonyx

MODEL = Path(__file__).with_name("shapes.onnx")
BRIGHTNESS = " .:-=+*#%@"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000, help="draw these pictures again")
    seed = parser.parse_args().seed
    console = Console(highlight=False)

    session = sardonyx.InferenceSession(MODEL)
    labels = session.get_modelmeta().custom_metadata_map["labels"].split(",")
    rng = np.random.default_rng(seed)
    pictures = np.stack([draw(label, rng)[None] for label in rng.permutation(LABELS)])
    session.run(None, {"image": pictures[:1]})
    start = time.perf_counter()
    (probabilities,) = session.run(None, {"image": pictures})
    seconds = time.perf_counter() - start

    console.print(
        Columns([Group(sketch(p[0]), top(row, labels)) for p, row in zip(pictures, probabilities, strict=True)], padding=(1, 3))
    )
    fresh, truth = sample(500, seed)
    right = (session.run(None, {"image": fresh})[0].argmax(axis=1) == truth).mean()
    console.print(f"model     {MODEL.name}, {MODEL.stat().st_size / 1000:.0f} kB, {len(labels)} classes")
    console.print(f"provider  {', '.join(session.get_providers())}, sardonyx {sardonyx.__version__}")
    console.print(f"time      {seconds * 1e3:.2f} ms for {len(pictures)} pictures")
    console.print(f"right     {right:.1%} of {len(truth)} more pictures (seed {seed})")


def sketch(picture: np.ndarray) -> Text:
    """A picture in letters, half its width and a quarter of its height."""
    small = picture.reshape(len(picture) // 2, 2, -1).mean(axis=1)
    levels = (small * (len(BRIGHTNESS) - 1)).round().astype(int)
    return Text("\n".join("".join(BRIGHTNESS[level] for level in row) for row in levels), style="cyan")


def top(probabilities: np.ndarray, labels: list[str], count: int = 3) -> Text:
    """The likeliest classes, one per line."""
    best = np.argsort(-probabilities)[:count]
    lines = [
        (f"{labels[index]:10}{probabilities[index]:7.1%}\n", "bold green" if rank == 0 else "dim")
        for rank, index in enumerate(best)
    ]
    return Text.assemble(*lines)


if __name__ == "__main__":
    main()
