"""The exceptions of this interface: what the runtime refuses is a RuntimeError here, as in onnxruntime.training."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sardonyx.errors import CODED


@contextlib.contextmanager
def as_runtime_errors() -> Iterator[None]:
    try:
        yield
    except CODED as error:
        raise RuntimeError(str(error)) from error
