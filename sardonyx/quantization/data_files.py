"""Calibration data from files: .npz files, folders of them, and the data sets beside ONNX's own models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper

from sardonyx.quantization.calibrate import CalibrationDataReader


class FileDataReader(CalibrationDataReader):
    """Batches from a path; each is read when its turn comes.

    A .npz file has arrays under the names of inputs, or under `0/name`, `1/name`, … for several batches. A folder holds such files, or
    folders with a TensorProto for each input: `input_0.pb` and so on.
    """

    def __init__(self, path: str | Path, input_names: Sequence[str]):
        self.names = list(input_names)
        self.batches = _batches(Path(path))
        if not self.batches:
            raise ValueError(f"{str(path)!r} holds no batches: .npz files or folders with input_*.pb were expected")
        self.rewind()

    def __len__(self) -> int:
        return len(self.batches)

    def set_range(self, start_index: int, end_index: int) -> None:
        self.position, self.end = start_index, min(end_index, len(self.batches))

    def rewind(self) -> None:
        self.position, self.end = 0, len(self.batches)

    def get_next(self) -> dict[str, Any] | None:
        if self.position >= self.end:
            return None
        file, prefix = self.batches[self.position]
        self.position += 1
        return self._from_folder(file) if file.is_dir() else self._from_archive(file, prefix)

    def _from_archive(self, file: Path, prefix: str) -> dict[str, Any]:
        with np.load(file, allow_pickle=False) as archive:
            keys = [key for key in archive.files if key.startswith(prefix) and ("/" in key) == bool(prefix)]
            return {key.removeprefix(prefix): archive[key] for key in keys}

    def _from_folder(self, folder: Path) -> dict[str, Any]:
        return {name: read_tensor(folder / f"input_{index}.pb") for index, name in enumerate(self.names)}


def _batches(path: Path) -> list[tuple[Path, str]]:
    """(file or folder, prefix of its keys) of each batch, in order."""
    if not path.exists():
        raise FileNotFoundError(f"there is no calibration data {str(path)!r}")
    if path.is_file():
        return _batches_of(path)
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir() and (entry / "input_0.pb").exists())
    files = [batch for file in sorted(path.glob("*.npz")) for batch in _batches_of(file)]
    return [(folder, "") for folder in folders] + files


def _batches_of(file: Path) -> list[tuple[Path, str]]:
    with np.load(file, allow_pickle=False) as archive:
        numbers = {key.split("/", 1)[0] for key in archive.files if "/" in key}
        if numbers and all(number.isdecimal() for number in numbers):
            return [(file, f"{number}/") for number in sorted(numbers, key=int)]
        return [(file, "")] if archive.files else []


def read_tensor(file: str | Path) -> np.ndarray:
    """The array of a file that holds a TensorProto."""
    return np.asarray(numpy_helper.to_array(TensorProto.FromString(Path(file).read_bytes())))
