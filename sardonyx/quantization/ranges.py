"""What calibration finds out about tensors: `TensorData` of one, `TensorsData` of all, and both as JSON files."""

from __future__ import annotations

import json
from collections.abc import ItemsView, KeysView, ValuesView
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.quantization.types import CalibrationMethod

FLOATS = ("avg", "std", "lowest", "highest", "hist_edges")


class TensorData:
    """Numbers about the values of one tensor; which of them are there depends on the method of calibration."""

    _attrs = frozenset(["avg", "std", "lowest", "highest", "hist", "hist_edges", "bins"])
    _floats = frozenset(FLOATS)

    avg: Any
    std: Any
    lowest: Any
    highest: Any
    hist: Any
    hist_edges: Any
    bins: Any

    def __init__(self, **kwargs: Any):
        self._attrs_present = list(kwargs)
        for name, value in kwargs.items():
            if name not in self._attrs:
                raise ValueError(f"{name!r} is nothing that is kept about a tensor; this is: {', '.join(sorted(self._attrs))}")
            if name in FLOATS:
                if not hasattr(value, "dtype"):
                    raise ValueError(f"{name!r} is an array or a number of NumPy, got {type(value)}")
                if value.dtype not in (np.float16, np.float32):
                    raise ValueError(f"{name!r} is float16 or float32, got {value.dtype}")
            setattr(self, name, value)

    @property
    def range_value(self) -> tuple[Any, Any]:
        if not (hasattr(self, "lowest") and hasattr(self, "highest")):
            raise AttributeError(f"the lowest and the highest value are not known, only {', '.join(self._attrs_present)}")
        return self.lowest, self.highest

    @property
    def avg_std(self) -> tuple[Any, Any]:
        if not (hasattr(self, "avg") and hasattr(self, "std")):
            raise AttributeError(f"mean and deviation are not known, only {', '.join(self._attrs_present)}")
        return self.avg, self.std

    def to_dict(self) -> dict[str, Any]:
        return {"CLS": type(self).__name__, **{name: getattr(self, name) for name in self._attrs_present}}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TensorData:
        """The record of a cache file, in which a number of NumPy may stand as a plain one."""
        return cls(**{name: _as_array(value) for name, value in d.items() if name != "CLS"})


def _as_array(value: Any) -> Any:
    return np.array(value, dtype=np.float32) if isinstance(value, float) else value


class TensorsData:
    """`TensorData` by the names of tensors, and the method that found them."""

    def __init__(self, calibration_method: CalibrationMethod, data: dict[str, Any]):
        self.calibration_method = calibration_method
        self.data: dict[str, TensorData] = {}
        for name, value in data.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a tensor is a text, got {type(name)}")
            self.data[name] = _tensor_data(calibration_method, name, value)

    def __iter__(self) -> Any:
        yield from self.data

    def __contains__(self, key: object) -> bool:
        return key in self.data

    def __getitem__(self, key: str) -> TensorData:
        return self.data[key]

    def __setitem__(self, key: str, value: TensorData) -> None:
        if key not in self.data:
            raise RuntimeError(f"{key!r} is no tensor that was calibrated")
        self.data[key] = value

    def __len__(self) -> int:
        return len(self.data)

    def keys(self) -> KeysView[str]:
        return self.data.keys()

    def values(self) -> ValuesView[TensorData]:
        return self.data.values()

    def items(self) -> ItemsView[str, TensorData]:
        return self.data.items()

    def to_dict(self) -> dict[str, Any]:
        return {"CLS": type(self).__name__, "data": self.data, "calibration_method": self.calibration_method}

    @classmethod
    def from_dict(cls, d: dict[str, Any]) -> TensorsData:
        return cls(d["calibration_method"], d["data"])


def _tensor_data(method: CalibrationMethod, name: str, value: Any) -> TensorData:
    """Tuples stand for a range, for a range with a histogram, or for mean and deviation with one."""
    if isinstance(value, TensorData):
        return value
    if not isinstance(value, tuple):
        raise TypeError(f"what is known of {name!r} is a TensorData or a tuple, got {type(value)}")
    if method == CalibrationMethod.MinMax and len(value) == 2:
        return TensorData(lowest=value[0], highest=value[1])
    if len(value) == 4:
        return TensorData(lowest=value[0], highest=value[1], hist=value[2], bins=value[3])
    if len(value) == 5:
        return TensorData(**dict(zip(("avg", "std", "hist", "hist_edges"), value[:4])), bins=value[4])
    raise TypeError(f"{len(value)} numbers about {name!r} mean nothing for {method}")


def float_range(name: str, data: TensorData) -> tuple[np.ndarray, np.ndarray]:
    """The range of a tensor as two arrays of floats in order; NaN, infinity and the wrong order are errors."""
    low, high = (np.asarray(limit) for limit in data.range_value)
    if low.size != 1 or high.size != 1:
        low, high = np.min(low), np.max(high)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(
            f"the range of {name!r} is {low} … {high}: the calibration data or the model give NaN or infinity there"
        )
    if low > high:
        raise ValueError(f"the range of {name!r} is {low} … {high}: the lowest value comes first")
    return low.reshape(()), high.reshape(())


class CalibrationCacheEncoder(json.JSONEncoder):
    """Arrays, numbers of NumPy, calibration results and methods as JSON."""

    def default(self, obj: Any) -> Any:
        match obj:
            case TensorData() | TensorsData():
                return obj.to_dict()
            case np.ndarray() | np.generic():
                return {"CLS": "numpy.array", "data": obj.tolist(), "dtype": str(obj.dtype)}
            case CalibrationMethod():
                return {"CLS": type(obj).__name__, "value": str(obj)}
        return super().default(obj)


def _decoded(entry: dict[str, Any]) -> Any:
    match entry.get("CLS"):
        case "TensorData":
            return TensorData.from_dict(entry)
        case "TensorsData":
            return TensorsData.from_dict(entry)
        case "CalibrationMethod":
            return CalibrationMethod[str(entry["value"]).rpartition(".")[2]]
        case "numpy.array":
            return np.array(entry["data"], dtype=np.dtype(entry["dtype"]))
    return entry


def save_tensors_data(tensors_data: TensorsData, path: str | Path, *, smooth_quant: bool = False) -> None:
    """Write what calibration has found to a JSON file, so that the next quantization need not calibrate."""
    content = {**tensors_data.to_dict(), "smooth_quant": smooth_quant}
    Path(path).write_text(json.dumps(content, cls=CalibrationCacheEncoder), encoding="utf-8")


def load_tensors_data(path: str | Path) -> TensorsData:
    """Read what `save_tensors_data` has written."""
    file = Path(path)
    if not file.exists():
        raise FileNotFoundError(f"there is no calibration cache {str(file)!r}")
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"), object_hook=_decoded)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{str(file)!r} is no calibration cache: {error}") from error
    if not isinstance(loaded, TensorsData):
        raise ValueError(f"{str(file)!r} is no calibration cache: its content is {type(loaded)}")
    return loaded
