"""The same code on onnxruntime and on sardonyx: what one does the other must do."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import onnxruntime
import onnxruntime.capi.onnxruntime_inference_collection
import onnxruntime.datasets

import sardonyx
from tests.tolerance import assert_close

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    importlib.import_module("onnxruntime.backend")  # uses a deprecated part of onnx

onnxruntime.set_default_logger_severity(4)

BOTH = [onnxruntime, sardonyx]
_FRAME = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : |.*Status Message: ", re.DOTALL)


class Raised:
    """An exception as users see it: the class's name and the text, without the signatures that pybind lists in argument errors."""

    def __init__(self, error: BaseException):
        self.kind = type(error).__name__
        self.text = str(error).partition(" The following argument types")[0].strip()

    def fits(self, theirs: Raised, begins: bool) -> bool:
        if theirs.kind != self.kind:
            return False
        if "onnxruntime_src" in theirs.text or ".cc:" in theirs.text:  # a place in C++ sources stands before the reason
            return _FRAME.sub("", _FRAME.sub("", self.text)).partition(" (inputs ")[0] in theirs.text
        return self.text.startswith(theirs.text) if begins else self.text == theirs.text

    def __repr__(self) -> str:
        return f"{self.kind}: {self.text}"


def outcome(use: Callable[[ModuleType], Any], api: ModuleType) -> Any:
    """What `use` returns or raises with one of the two."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return use(api)
    except Exception as error:
        return Raised(error)


def assert_same(use: Callable[[ModuleType], Any], *, begins: bool = False) -> None:
    """Both return equal values, or raise errors of the same name and text.

    `begins` compares texts only as far as the original's goes: ours may add what helps.
    """
    theirs, ours = (outcome(use, api) for api in BOTH)
    if isinstance(theirs, Raised) or isinstance(ours, Raised):
        assert isinstance(ours, Raised) and isinstance(theirs, Raised) and ours.fits(theirs, begins), (
            f"onnxruntime: {theirs!r}\nsardonyx:    {ours!r}"
        )
    else:
        assert_equal(ours, theirs)


def assert_equal(ours: Any, theirs: Any) -> None:
    """Values are equal in type, dtype and content."""
    if isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray)
        assert ours.dtype == theirs.dtype
        assert_close(ours, theirs)
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        assert ours == theirs
