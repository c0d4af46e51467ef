"""The stock harness of the `onnx` package over `sardonyx.backend`, case by case; the command and the tests here call it."""

from __future__ import annotations

import os
import tempfile
import time
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendSimpleModelTest": "simple",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendRealModelTest": "real",
}
DEVICE = "_cpu"
# the backend uses every provider that is there, as the original's does; here the CPU's kernels answer for themselves
os.environ.setdefault("ORT_ONNX_BACKEND_EXCLUDE_PROVIDERS", "OpenVINOExecutionProvider")


@dataclass(frozen=True)
class Outcome:
    """How one case went; `reason` is empty if it passed."""

    kind: str
    name: str
    reason: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.reason


def load_tests(backend: Any) -> dict[tuple[str, str], unittest.TestCase]:
    """(kind, name) -> the harness's own test of it, for the CPU."""
    from onnx.backend.test import BackendTest

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows and the like that node cases mean, while their outputs are computed
        classes = BackendTest(backend, __name__).test_cases
    return {
        (KINDS[class_name], method.removesuffix(DEVICE)): test_class(method)
        for class_name, test_class in classes.items()
        for method in unittest.defaultTestLoader.getTestCaseNames(test_class)
        if method.endswith(DEVICE)
    }


def run(key: tuple[str, str], test: unittest.TestCase) -> Outcome:
    """Run one case and say how it went."""
    import sardonyx

    sardonyx.set_seed(0)
    result = unittest.TestResult()
    start = time.perf_counter()
    test.run(result)
    seconds = time.perf_counter() - start
    troubles = [text for _, text in (*result.failures, *result.errors)] + [f"skipped: {why}" for _, why in result.skipped]
    return Outcome(*key, _first_reason(troubles[0]) if troubles else "", seconds)


def _first_reason(text: str) -> str:
    """The line of a traceback that names the exception."""
    lines = text.strip().splitlines()
    starts = [number for number, line in enumerate(lines) if line and not line.startswith((" ", "Traceback"))]
    named = [number for number in starts if ":" in lines[number] or number == starts[-1]]
    number = named[0] if named else len(lines) - 1
    return " ".join(" ".join(lines[number : number + 4]).split())[:300]


def run_all(tests: dict[tuple[str, str], unittest.TestCase]) -> Iterator[Outcome]:
    """Run cases one after the other. The harness keeps data of real models under ONNX_HOME: that is made a passing folder."""
    with tempfile.TemporaryDirectory(prefix="sardonyx_conformance_") as folder:
        before = os.environ.get("ONNX_HOME")
        os.environ["ONNX_HOME"] = folder
        try:
            for key, test in tests.items():
                yield run(key, test)
        finally:
            if before is None:
                del os.environ["ONNX_HOME"]
            else:
                os.environ["ONNX_HOME"] = before
