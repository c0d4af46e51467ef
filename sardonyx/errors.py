"""Every exception that we raise, with the names, codes and text form that onnxruntime's users know.

Each class derives directly from Exception and has no common base, as in the original, so `except RuntimeError` does not catch them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from sardonyx.settings import STRICT


def is_strict() -> bool:
    """Whether a fault of ours is raised, as tests want it, where production works around it with a warning."""
    return STRICT.is_on(os.environ)


def _coded(cls: Any) -> Any:
    """Give `cls` the text form `[ONNXRuntimeError] : code : NAME : message` and a `message` without that prefix."""
    prefix = f"[ONNXRuntimeError] : {cls.code} : {cls.label} : "

    def __init__(self: Any, message: str = "") -> None:
        self.message = message.removeprefix(prefix)  # a pickled or wrapped exception is given its full text
        Exception.__init__(self, prefix + self.message)

    cls.__init__ = __init__
    BY_CODE[cls.code] = cls
    return cls


BY_CODE: dict[int, type[Exception]] = {}


@_coded
class Fail(Exception):
    """The model or a node of it cannot be handled, while loading or while running."""

    code, label = 1, "FAIL"
    message: str


@_coded
class InvalidArgument(Exception):
    """What the caller gave (feeds, names, options, a file's content) does not fit."""

    code, label = 2, "INVALID_ARGUMENT"
    message: str


@_coded
class NoSuchFile(Exception):
    """The model's file does not exist."""

    code, label = 3, "NO_SUCHFILE"
    message: str


@_coded
class NoModel(Exception):
    """There is no model where one is needed."""

    code, label = 4, "NO_MODEL"
    message: str


@_coded
class EngineError(Exception):
    """The engine under a provider failed."""

    code, label = 5, "ENGINE_ERROR"
    message: str


@_coded
class RuntimeException(Exception):
    """A kernel raised something that nobody foresaw."""

    code, label = 6, "RUNTIME_EXCEPTION"
    message: str


@_coded
class InvalidProtobuf(Exception):
    """The bytes are not a protobuf message of the expected kind."""

    code, label = 7, "INVALID_PROTOBUF"
    message: str


@_coded
class ModelLoaded(Exception):
    """A model was loaded already."""

    code, label = 8, "MODEL_LOADED"
    message: str


@_coded
class NotImplemented(Exception):  # noqa: A001 - the original's name
    """The op exists, but no provider has a kernel for these types or this version."""

    code, label = 9, "NOT_IMPLEMENTED"
    message: str


@_coded
class InvalidGraph(Exception):
    """The graph breaks the rules of ONNX."""

    code, label = 10, "INVALID_GRAPH"
    message: str


@_coded
class EPFail(Exception):
    """An execution provider failed."""

    code, label = 11, "EP_FAIL"
    message: str


@_coded
class ModelLoadCanceled(Exception):
    """Loading was cancelled through the session's options."""

    code, label = 12, "MODEL_LOAD_CANCELED"
    message: str


@_coded
class ModelRequiresCompilation(Exception):
    """The model must be compiled first, and compiling is switched off."""

    code, label = 13, "MODEL_REQUIRES_COMPILATION"
    message: str


@_coded
class NotFound(Exception):
    """Something named does not exist."""

    code, label = 14, "NOT_FOUND"
    message: str


@_coded
class DeviceReset(Exception):
    """A device was reset under us."""

    code, label = 15, "DEVICE_RESET"
    message: str


CODED: Any = tuple(BY_CODE.values())
"""All of the above, for `except`; each has a `message`."""


class KernelError(Exception):
    """Raised inside kernels with the bare reason; the executor adds the node and raises Fail, or `kind` if one is given."""

    def __init__(self, reason: str, kind: type[Exception] = Fail):
        super().__init__(reason)
        self.kind = kind


class InferenceError(Exception):
    """Raised inside inference functions with the bare reason; the driver adds the node and raises Fail."""


class NodeFailed(Exception):
    """Raised by what runs several nodes as one step, `from` what one of them raised; the executor names that node."""

    def __init__(self, node: Any, inputs: Sequence[Any]):
        super().__init__(str(node))
        self.node = node
        self.inputs = inputs


# --- what nobody foresaw


def unforeseen(error: Exception, place: object) -> NoReturn:
    """Raise an exception that is none of ours as one of ours, with the place in the model where it came up.

    It is a fault of ours that a check did not come first, so strict runs get to see it; the place is a note on it then.
    """
    if is_strict():
        error.add_note(f"in {place}")
        raise error
    raise RuntimeException(f"{place}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def door(place: object) -> Iterator[None]:
    """Around what is done with a model's content: nothing but errors of ours come out."""
    try:
        yield
    except CODED:
        raise
    except Exception as error:
        unforeseen(error, place)
