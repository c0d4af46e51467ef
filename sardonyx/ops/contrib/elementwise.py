"""Fused activations of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import FLOATS
from sardonyx.ops.facts import Operands
from sardonyx.ops.schemas import define
from sardonyx.ops.shapes import broadcast, same_as
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define("com.microsoft", "Gelu", 1, "(X: T) -> (Y: T)", T=FLOATS)
define("com.microsoft", "QuickGelu", 1, "(X: T, *, alpha: float = 1.702) -> (Y: T)", T=FLOATS)
define("com.microsoft", "FastGelu", 1, "(X: T, bias: T?) -> (Y: T)", T=FLOATS)
define("com.microsoft", "BiasGelu", 1, "(A: T, B: T) -> (C: T)", T=FLOATS)

contrib("Gelu", "QuickGelu", elementwise=Operands.FIRST)(same_as("X"))
contrib("FastGelu")(same_as("X"))


@contrib("BiasGelu")
def bias_gelu(A, B):
    return broadcast(A.shape, B.shape)
