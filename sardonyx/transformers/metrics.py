"""Records of measurements: what was measured, with what, where, and the figures; as JSON and as tables."""

from __future__ import annotations

import csv
import datetime
import json
from collections.abc import Sequence
from typing import Any


class BaseObject:
    """Fields, and others that users add in `customized`."""

    def __init__(self) -> None:
        self.customized: dict[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, those of objects inside, too."""
        fields = {name: value for name, value in vars(self).items() if name != "customized"} | self.customized
        return {name: value.to_dict() if isinstance(value, BaseObject) else value for name, value in fields.items()}


class ModelInfo(BaseObject):
    """Which model."""

    def __init__(
        self,
        full_name: str | None = None,
        is_huggingface: bool | None = False,
        is_text_generation: bool | None = False,
        short_name: str | None = None,
    ):
        super().__init__()
        self.full_name, self.short_name = full_name, short_name
        self.is_huggingface, self.is_text_generation = is_huggingface, is_text_generation
        self.input_shape: list[Any] = []


class BackendOptions(BaseObject):
    """How it ran."""

    def __init__(
        self, enable_profiling: bool | None = False, execution_provider: str | None = None, use_io_binding: bool | None = False
    ):
        super().__init__()
        self.enable_profiling, self.execution_provider = enable_profiling, execution_provider
        self.use_io_binding = use_io_binding


class Config(BaseObject):
    """What was run, and how often."""

    def __init__(
        self,
        backend: str | None = "onnxruntime",
        batch_size: int | None = 1,
        seq_length: int | None = 0,
        precision: str | None = "fp32",
        warmup_runs: int | None = 1,
        measured_runs: int | None = 10,
    ):
        super().__init__()
        self.backend, self.precision = backend, precision
        self.batch_size, self.seq_length = batch_size, seq_length
        self.warmup_runs, self.measured_runs = warmup_runs, measured_runs
        self.model_info, self.backend_options = ModelInfo(), BackendOptions()


class Metadata(BaseObject):
    """Where it ran."""

    def __init__(
        self,
        device: str | None = None,
        package_name: str | None = None,
        package_version: str | None = None,
        platform: str | None = None,
        python_version: str | None = None,
    ):
        super().__init__()
        self.device, self.platform, self.python_version = device, platform, python_version
        self.package_name, self.package_version = package_name, package_version


class Metrics(BaseObject):
    """The figures."""

    def __init__(
        self,
        latency_ms_mean: float | None = 0.0,
        throughput_qps: float | None = 0.0,
        max_memory_usage_GB: float | None = 0.0,  # noqa: N803 - the original's spelling
    ):
        super().__init__()
        self.latency_ms_mean, self.throughput_qps = latency_ms_mean, throughput_qps
        self.max_memory_usage_GB = max_memory_usage_GB


class BenchmarkRecord:
    """One measurement."""

    def __init__(
        self,
        model_name: str,
        precision: str,
        backend: str,
        device: str,
        package_name: str,
        package_version: str,
        batch_size: int | None = 1,
        warmup_runs: int | None = 1,
        measured_runs: int | None = 10,
        trigger_date: str | None = None,
    ):
        self.config = Config(backend, batch_size, 0, precision, warmup_runs, measured_runs)
        self.config.model_info.full_name = model_name
        self.metrics = Metrics()
        self.metadata = Metadata(device, package_name, package_version)
        self.trigger_date = trigger_date or datetime.datetime.now().strftime("%Y-%m-%d %H:%M:%S")

    def to_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_dict() for name in ("config", "metadata", "metrics")}
        return {**parts, "trigger_date": self.trigger_date}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), default=str)

    @classmethod
    def save_as_csv(cls, file_name: str, records: Sequence[BenchmarkRecord]) -> None:
        """Write a table with a line for each record; inner fields have names with dots."""
        if not records:
            return
        rows = [_flat(record.to_dict()) for record in records]
        with open(file_name, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
            writer.writeheader()
            writer.writerows(rows)

    @classmethod
    def save_as_json(cls, file_name: str, records: Sequence[BenchmarkRecord]) -> None:
        """Write a list of records."""
        with open(file_name, "w", encoding="utf-8") as file:
            json.dump([record.to_dict() for record in records], file, indent=4, default=str)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
