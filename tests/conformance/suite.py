"""The cases of the ONNX backend suite that the installed `onnx` package carries, as the other modules here want them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("node", "real", "simple", "pytorch-converted", "pytorch-operator")


def load(*kinds: str) -> Iterator[tuple[str, Any]]:
    """(kind, onnx TestCase) of all cases; the package computes the expected outputs of node cases as they are loaded."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # overflows and the like, meant by the cases
        found = [(kind, case) for kind in kinds or KINDS for case in load_model_tests(kind=kind)]
    yield from sorted(found, key=lambda item: (KINDS.index(item[0]), item[1].name))


def model_of(case: Any) -> Any:
    """The case's ModelProto."""
    import onnx

    return case.model if case.model is not None else onnx.load(model_path(case))


def model_path(case: Any) -> Path:
    """Where the model of a case lies that is not made in memory."""
    import onnx

    if case.model_dir is not None:
        return Path(case.model_dir) / "model.onnx"
    return Path(onnx.__file__).parent.parent / case.url
