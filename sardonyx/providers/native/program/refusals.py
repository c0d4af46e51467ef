"""What could not be lowered, and why, in words. The lowerer collects it, the provider tells the partition which nodes it cannot have."""

from __future__ import annotations

import os.path
import traceback
from collections.abc import Sequence

from sardonyx.ir import Node
from sardonyx.providers.native.program.arguments import WrongArguments
from sardonyx.providers.native.program.sizes import UnboundSymbol
from sardonyx.providers.provider import CannotCompile
from sardonyx.startup.properties import cached_property
from sardonyx.startup.records import dataclass

EXPECTED = (CannotCompile, UnboundSymbol)
"""What lowerings raise on purpose. All else is a fault of ours."""


@dataclass(frozen=True)
class Failure:
    """What was raised while some nodes were lowered together: one with a kernel, and those of chains before and behind it."""

    nodes: Sequence[Node]
    error: Exception

    @property
    def is_expected(self) -> bool:
        return isinstance(self.error, EXPECTED)

    @property
    def is_fatal(self) -> bool:
        """Whether the error must reach the user instead of another provider taking the node."""
        return isinstance(self.error, WrongArguments)

    @property
    def is_quiet(self) -> bool:
        return isinstance(self.error, UnboundSymbol) or getattr(self.error, "quiet", False)

    @cached_property
    def reason(self) -> str:
        return reason_of(self.error)


class LoweringFailed(Exception):
    """Some nodes of a cluster cannot be lowered; all others were tried."""

    def __init__(self, failures: Sequence[Failure]):
        super().__init__("; ".join(failure.reason for failure in failures))
        self.failures = failures

    def forget_frames(self) -> None:
        """Let go of what was under way: errors hold frames, which hold the lowerer and its program, and the errors once more."""
        for failure in self.failures:
            error: BaseException | None = failure.error
            while error is not None:
                error.__traceback__ = None
                error = error.__context__


def reason_of(error: BaseException) -> str:
    """An exception in words, never empty: one that nobody foresaw tells its kind, and where in the code it was raised."""
    if isinstance(error, EXPECTED) and str(error):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return f"{type(error).__name__}: {error}"
    last = frames[-1]
    text = " ".join(str(error).split()) or last.line
    return f"{type(error).__name__}: {text} (in {last.name}, line {last.lineno} of {os.path.basename(last.filename)})"
