"""The provider object around the NumPy kernels, and `evaluate`, which computes one node for inference and constant folding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.ir import Node
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.provider import ExecutionProvider


class CPUExecutionProvider(ExecutionProvider):
    """NumPy: complete, and always last in the list of providers."""

    name = "CPUExecutionProvider"
    kernels = cpu


def evaluate(node: Node, inputs: Sequence[Any]) -> Sequence[Any]:
    """Compute one node without subgraphs on given inputs."""
    with np.errstate(all="ignore"):
        return CPUExecutionProvider().bind_kernel(node)(inputs)
