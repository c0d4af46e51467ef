"""Calibration results as the tables that TensorRT reads: JSON, flatbuffers, and lines of text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

from sardonyx.quantization.CalTableFlatBuffers import KeyValue, TrtTable
from sardonyx.quantization.ranges import CalibrationCacheEncoder, TensorData


def write_calibration_table(calibration_cache: Any, dir: str | Path = ".") -> None:
    """Write the highest value of each tensor into a folder: calibration.json, calibration.flatbuffers, calibration.cache."""
    folder = Path(dir)
    (folder / "calibration.json").write_text(json.dumps(calibration_cache, cls=CalibrationCacheEncoder), encoding="utf-8")
    highest = {name: _highest(calibration_cache[name]) for name in sorted(calibration_cache)}
    (folder / "calibration.flatbuffers").write_bytes(_flatbuffer(highest))
    lines = "".join(f"{name} {value}\n" for name, value in highest.items())
    (folder / "calibration.cache").write_text(lines, encoding="utf-8")


def _highest(data: Any) -> float:
    low, high = data.range_value if isinstance(data, TensorData) else data[:2]
    return float(max(np.max(low), np.max(high)))


def _flatbuffer(highest: dict[str, float]) -> bytes:
    builder = flatbuffers.Builder(1024)
    entries = []
    for name, value in highest.items():
        key, text = builder.CreateString(name), builder.CreateString(str(value))
        KeyValue.Start(builder)
        KeyValue.AddKey(builder, key)
        KeyValue.AddValue(builder, text)
        entries.append(KeyValue.End(builder))
    TrtTable.StartDictVector(builder, len(entries))
    for entry in reversed(entries):
        builder.PrependUOffsetTRelative(entry)
    vector = builder.EndVector()
    TrtTable.Start(builder)
    TrtTable.AddDict(builder, vector)
    builder.Finish(TrtTable.End(builder))
    return bytes(builder.Output())
