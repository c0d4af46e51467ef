"""Ops of com.microsoft for PyTorch's exporter by tracing: after `register()` it writes them for functions of PyTorch that have one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

DOMAIN = "com.microsoft"
FIRST_OPSET = 1
GELU_OPSETS = range(9, 21)
"""PyTorch has functions of its own for Gelu from each of these on; ours take their place."""
MODES, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")

_registered: list[tuple[str, int]] = []


def _exporter() -> ModuleType:
    torch = sys.modules.get("torch")
    if torch is None:
        raise ImportError("functions of PyTorch are registered, and it is not loaded: import torch first")
    return torch.onnx  # type: ignore[no-any-return]


def _grid_sampler(g: Any, data: Any, grid: Any, mode: int, padding_mode: int, align_corners: bool) -> Any:
    return g.op(
        f"{DOMAIN}::GridSample",
        data,
        grid,
        mode_s=MODES[mode],
        padding_mode_s=PADDINGS[padding_mode],
        align_corners_i=int(align_corners),
    )


def _like(op_type: str, g: Any, x: Any, *others: Any, **attributes: Any) -> Any:
    """An op whose result has the type and shape of its first operand."""
    return g.op(f"{DOMAIN}::{op_type}", x, *others, **attributes).setType(x.type())


def _gelu(g: Any, x: Any, approximate: str = "none") -> Any:
    return _like("Gelu" if approximate == "none" else "FastGelu", g, x)


def _unfold(g: Any, x: Any, dim: int, size: int, step: int) -> Any:
    return g.op(f"{DOMAIN}::UnfoldTensor", x, dim_i=dim, size_i=size, step_i=step)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "aten::grid_sampler": _grid_sampler,
    "aten::inverse": functools.partial(_like, "Inverse"),
    "aten::linalg_inv": functools.partial(_like, "Inverse"),
    "aten::gelu": _gelu,
    "aten::triu": functools.partial(_like, "Trilu", upper_i=1),
    "aten::tril": functools.partial(_like, "Trilu", upper_i=0),
    "onnxruntime::DynamicTimeWarping": lambda g, x: g.op(f"{DOMAIN}::DynamicTimeWarping", x),
    "onnxruntime::UnfoldTensor": _unfold,
}
CONSTANTS = {
    "aten::grid_sampler": ("v", "v", "i", "i", "b"),
    "aten::gelu": ("v", "s"),
    "onnxruntime::UnfoldTensor": ("v", "i", "i", "i"),
}
"""Kinds of operands where some are constants: "v" is a value of the graph, the others are handed over as numbers and texts."""


def register() -> None:
    """Let exports that follow write these ops."""
    for name, function in FUNCTIONS.items():
        if name in CONSTANTS:
            function = _exporter().symbolic_helper.parse_args(*CONSTANTS[name])(function)
        for opset in (FIRST_OPSET, *(GELU_OPSETS if name == "aten::gelu" else ())):
            _exporter().register_custom_op_symbolic(name, function, opset)
            _registered.append((name, opset))


def unregister() -> None:
    """Let exports that follow write what PyTorch writes."""
    while _registered:
        _exporter().unregister_custom_op_symbolic(*_registered.pop())
