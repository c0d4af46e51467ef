"""What a machine has: CPU, memory, packages. `python -m sardonyx.transformers.machine_info` prints it as JSON."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import logging
import os
import platform
from collections.abc import Sequence
from typing import Any

from sardonyx import __version__
from sardonyx.runtime.api.environment import get_device
from sardonyx.runtime.preparation.providers import get_available_providers

RELATED = ("sardonyx", "onnxruntime", "onnx", "numpy", "llvmlite", "protobuf", "transformers", "torch", "tensorflow", "sympy")
"""Packages that matter to models."""


class MachineInfo:
    """Collected when it is made, in `machine_info`; shown unless `silent`."""

    def __init__(self, silent: bool = False, logger: logging.Logger | None = None):
        self.silent, self.logger = silent, logger or logging.getLogger(__name__)
        self.machine_info = self.get_machine_info()
        if not silent:
            self.logger.info(json.dumps(self.machine_info, indent=2))

    def get_machine_info(self) -> dict[str, Any]:
        """All of it."""
        return {
            "gpu": self.get_gpu_info_by_nvml(),
            "cpu": self.get_cpu_info(),
            "memory": self.get_memory_info(),
            "os": platform.platform(),
            "python": platform.python_version(),
            "packages": self.get_related_packages(),
            "onnxruntime": self.get_onnxruntime_info(),
            "pytorch": self.get_pytorch_info(),
            "tensorflow": self.get_tensorflow_info(),
        }

    def get_memory_info(self) -> dict[str, int]:
        """Bytes of memory, and how many of them are free; empty where the system does not tell."""
        try:
            page = os.sysconf("SC_PAGE_SIZE")
            return {"total": page * os.sysconf("SC_PHYS_PAGES"), "available": page * os.sysconf("SC_AVPHYS_PAGES")}
        except (AttributeError, ValueError, OSError):
            return {}

    def get_cpu_info(self) -> dict[str, Any]:
        """The CPU's name, its kind and its cores."""
        return {"brand": _processor(), "cores": os.cpu_count(), "arch": platform.machine(), "platform": platform.processor()}

    def get_gpu_info_by_nvml(self) -> dict[str, Any] | None:
        """None: GPUs are not used here."""
        return None

    def get_related_packages(self) -> dict[str, str]:
        """Versions of packages that matter to models."""
        return {name: version for name in RELATED if (version := get_package_version(name)) is not None}

    def get_onnxruntime_info(self) -> dict[str, Any]:
        """What runs models."""
        return {"version": __version__, "support_gpu": get_device() == "GPU", "providers": get_available_providers()}

    def get_pytorch_info(self) -> dict[str, Any] | None:
        """The version of PyTorch, which is not imported for that."""
        return _package("torch")

    def get_tensorflow_info(self) -> dict[str, Any] | None:
        """The version of TensorFlow, which is not imported for that."""
        return _package("tensorflow")


def get_package_version(package_name: str) -> str | None:
    """The version of an installed package, None if it is not there."""
    try:
        return importlib.metadata.version(package_name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str) -> dict[str, Any] | None:
    version = get_package_version(name)
    return None if version is None else {"version": version, "support_gpu": False}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, "") or platform.processor()
    except OSError:
        return platform.processor()


def get_machine_info(silent: bool = True) -> str:
    """All of it as JSON."""
    return json.dumps(MachineInfo(silent).machine_info, indent=2)


def get_device_info(silent: bool = True) -> str:
    """The CPU, the GPU and the memory as one line of JSON."""
    info = MachineInfo(silent).machine_info
    return json.dumps({name: info[name] for name in ("gpu", "cpu", "memory")})


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Print what this machine has.")
    parser.add_argument("--silent", action="store_true", help="print nothing")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse_arguments(arguments)
    info = get_machine_info(silent=True)
    if not options.silent:
        print(info)


if __name__ == "__main__":
    main()
