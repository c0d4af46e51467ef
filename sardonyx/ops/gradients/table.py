"""The tables on which gradients, and bodies of the ops that these are made of, register themselves.

A gradient is a function of a builder and of whatever it names: inputs, attributes and outputs by their names in the spec, and
`<output>_grad` for the gradient of an output, which is None where none came. It returns the gradient of the first input, or a dict of
gradients by the names of inputs, or a list of values with their gradients; what it leaves out has none. A function may also write what
the op computes in other ops and return `through(*results)`: the gradient through these.
"""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.ops.entries import FunctionEntry, FunctionTable
from sardonyx.startup.families import load_package


class LazyTable(FunctionTable):
    """Functions by op. The modules that have them are imported when the first one is asked for."""

    def candidates(self, domain: str, op: str) -> Sequence[FunctionEntry]:
        self.load_all()
        return super().candidates(domain, op)

    def load_all(self) -> None:
        load_package("sardonyx.ops.gradients")


gradients = LazyTable("gradients")
gradient = gradients.register

bodies = LazyTable("bodies")
"""What ops compute for which no provider has code: functions of a builder and of operands by name, which return the results."""
body = bodies.register


def no_gradient(*ops: str, domain: str = "") -> None:
    """Say of ops that their results do not depend smoothly on any input: gradients end there."""
    gradient(*ops, domain=domain)(lambda op: {})
