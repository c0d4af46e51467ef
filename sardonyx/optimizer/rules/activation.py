"""Gelu in its many spellings: exact, by tanh, by a sigmoid (SiLU too), with a bias before it."""

from __future__ import annotations

from itertools import product
from typing import Any

from sardonyx.ir import Node, Value
from sardonyx.ops.builder import Builder
from sardonyx.ops.reading import operand
from sardonyx.optimizer.rewrite import Answer, rule, skip
from sardonyx.optimizer.values import CONTRIB_TYPES, broadcasts_into, dtype_of, is_float, rank_of, same_shape, scalar, shape_of

CONTRIB = "com.microsoft"
FIRST_GELU = 20
"""The opset that brought Gelu."""

HALVED = ("Mul(Mul(x, {}), 0.5)", "Mul(x, Mul({}, 0.5))", "Mul(Mul(x, 0.5), {})", "Mul(Div(x, 2), {})", "Div(Mul(x, {}), 2)")
"""x / 2 * something, however it is bracketed."""

EXACT = [
    halved.format(f"Add(Erf({scaled}), 1)") for halved, scaled in product(HALVED, ("Div(x, 1.41421356)", "Mul(x, 0.70710678)"))
]
"""x / 2 * (1 + erf(x / √2))"""

CUBES = ("Pow(x, 3)", "Mul(x, Mul(x, x))", "Mul(x, Pow(x, 2))")
SQUARES = ("Mul(x, Mul(x, 0.044715))", "Mul(Mul(x, x), 0.044715)", "Mul(Pow(x, 2), 0.044715)")
ANGLES = [
    *(f"Mul(Add(x, Mul({cube}, 0.044715)), 0.79788456)" for cube in CUBES),
    *(f"Mul(Mul(x, 0.79788456), Add({square}, 1))" for square in SQUARES),
    *(f"Mul(x, Mul(Add({square}, 1), 0.79788456))" for square in SQUARES),
    *(f"Mul(Mul(x, Add({square}, 1)), 0.79788456)" for square in SQUARES),
]
"""√(2/π) * (x + 0.044715 x³)"""

BY_TANH = [halved.format(f"Add(Tanh({angle}), 1)") for halved, angle in product(HALVED, ANGLES)]


@rule(*EXACT, name="GeluFusion")
def gelu(op: Builder, x: Value, root: Node) -> Answer:
    """ONNX's own Gelu, where the model's opset has it."""
    if root.version < FIRST_GELU:
        return skip(f"Gelu came with opset {FIRST_GELU}")
    if not is_float(x) or not same_shape(x, root.outputs[0]):
        return skip("a constant may enlarge the result")
    return op.Gelu(x)


@rule(*EXACT, name="GeluFusion")
def contrib_gelu(op: Builder, x: Value, root: Node) -> Answer:
    """Gelu of com.microsoft for older opsets."""
    return _contrib(op, "Gelu", x, root)


@rule(*BY_TANH, name="FastGeluFusion")
def fast_gelu(op: Builder, x: Value, root: Node) -> Answer:
    """Gelu by tanh."""
    return _contrib(op, "FastGelu", x, root)


@rule("Mul(x, Sigmoid(x))", "Mul(x, Sigmoid(Mul(x, alpha)))", name="QuickGeluFusion")
def quick_gelu(op: Builder, x: Value, root: Node, alpha: Value | None = None) -> Answer:
    """x * sigmoid(alpha * x); with alpha 1 that is SiLU."""
    number = 1.0 if alpha is None else scalar(alpha)
    if number is None or (alpha is not None and not broadcasts_into(alpha, x)):
        return skip("alpha is not one constant number")
    return _contrib(op, "QuickGelu", x, root, alpha=number)


def _contrib(op: Builder, name: str, x: Value, root: Node, **attributes: Any) -> Answer:
    if dtype_of(x) not in CONTRIB_TYPES or rank_of(x) == 0:
        return skip(f"{name} is not for this type")
    if not same_shape(x, root.outputs[0]):
        return skip("a constant may enlarge the result")
    return op.node(name, x, domain=CONTRIB, **attributes)


# --- with a bias ----------------------------------------------------------------------------------------------------


@rule("act:Gelu|com.microsoft.Gelu(Add(x, bias))", name="BiasGeluFusion")
def bias_gelu(op: Builder, act: Node, x: Value, bias: Value) -> Answer:
    """A bias is added while the activation is computed."""
    name = "FastGelu" if operand(act, "approximate") == "tanh" else "BiasGelu"
    return _with_bias(op, name, x, bias)


@rule("com.microsoft.FastGelu(Add(x, bias))", name="BiasGeluFusion")
def bias_fast_gelu(op: Builder, x: Value, bias: Value) -> Answer:
    """FastGelu adds a bias itself."""
    return _with_bias(op, "FastGelu", x, bias)


def _with_bias(op: Builder, name: str, x: Value, bias: Value) -> Answer:
    shape = shape_of(x)
    if shape is None or rank_of(bias) != 1 or len(shape) < 2 or shape_of(bias) != shape[-1:]:
        return skip("what is added is not a bias along the last axis")
    if dtype_of(x) not in CONTRIB_TYPES:
        return skip(f"{name} is not for this type")
    return op.node(name, x, bias, domain=CONTRIB)


@rule("act:Gelu|com.microsoft.Gelu(x)", "com.microsoft.BiasGelu(x, bias)", name="GeluApproximation")
def approximate_gelu(op: Builder, x: Value, act: Node | None = None, bias: Value | None = None) -> Answer:
    """Gelu by tanh in place of the exact one; off unless asked for."""
    if dtype_of(x) not in CONTRIB_TYPES:
        return skip("FastGelu is not for this type")
    inputs = [x] if bias is None else [x, bias]
    return op.node("FastGelu", *inputs, domain=CONTRIB)
