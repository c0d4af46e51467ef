"""Sizes of what mixtures of experts are given. Inference and kernels of MoE and QMoE ask here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sardonyx.ir import Dim
from sardonyx.ops.shapes import text

LAYERS = ("fc1", "fc2", "fc3")
FLOAT4_TYPES = ("fp4", "nvfp4")
"""Values of `quant_type` for which codes stand for floats of four bits."""
Shapes = Mapping[str, Sequence[Dim] | None]
"""By the names of inputs; None for those that are absent, or of which nobody knows the rank."""
Wanted = tuple[int | None, ...]
"""Sizes, None where any will do."""


def bits_of(quant_type: str, own: int | None, common: int) -> int:
    """How many bits the codes of a layer have: its own number, if it has one, or that of all layers."""
    return 4 if quant_type in FLOAT4_TYPES else own or common


def fault_of(operands: Mapping[str, Any], is_gated: bool, bits: Mapping[str, int] | None = None) -> str | None:
    """What is wrong with the sizes of operands, which have shapes and stand by their names; None if nothing is known to be.

    `is_gated` says that gates and values are made by one matrix if there is no third. `bits` are those of weights that are codes, by layer.
    """
    shapes: Shapes = {name: None if operand is None else operand.shape for name, operand in operands.items()}
    for layer, number in (bits or {}).items():
        if number not in (2, 4, 8):
            return f"{layer}_expert_weight_bits must be 2, 4 or 8, not {number}"
    rows = _size(shapes, "fc1_experts_weights", 1)
    if is_gated and rows is not None and rows % 2 and shapes.get("fc3_experts_weights") is None:
        return f"fc1_experts_weights has {rows} rows, gates and values of swiglu must be as many"
    for name, wanted in _wanted(shapes, is_gated, bits):
        shape = shapes.get(name)
        if shape is not None and not any(_fits(shape, sizes) for sizes in wanted):
            return f"{name} is {text(shape)}, other operands ask for {' or '.join(map(_shown, wanted))}"
    return _fault_of_blocks(shapes, bits or {})


def _fault_of_blocks(shapes: Shapes, bits: Mapping[str, int]) -> str | None:
    """Rows are cut into equal blocks, and begin at whole bytes."""
    for layer, number in bits.items():
        blocks, bytes = _blocks(shapes, layer), _size(shapes, f"{layer}_experts_weights", 2)
        if blocks is not None and bytes is not None and (blocks < 1 or bytes * 8 // number % blocks):
            return f"{layer}_scales has {blocks} blocks for rows of {bytes * 8 // number} numbers"
    return None


def _wanted(shapes: Shapes, is_gated: bool, bits: Mapping[str, int] | None) -> Iterator[tuple[str, list[Wanted]]]:
    """Inputs, each with the shapes that it may have."""
    tokens, experts = (_size(shapes, "router_probs", axis) for axis in range(2))
    hidden, rows = _size(shapes, "input", -1), _size(shapes, "fc1_experts_weights", 1)
    inner = rows // 2 if rows is not None and is_gated and shapes.get("fc3_experts_weights") is None else rows
    yield "router_weights", [(tokens, experts)]
    for layer, columns, depth in zip(LAYERS, (rows, hidden, rows), (hidden, inner, hidden)):
        yield f"{layer}_experts_bias", [(experts, columns)]
        if bits is None:
            yield f"{layer}_experts_weights", [(experts, columns, depth)]
            continue
        blocks = _blocks(shapes, layer)
        yield f"{layer}_experts_weights", [(experts, columns, _bytes(depth, bits[layer]))]
        yield f"{layer}_scales", [(experts, columns), (experts, columns, blocks)]
        yield f"{layer}_zero_points", [(experts, _bytes(columns, bits[layer])), (experts, columns, _bytes(blocks, bits[layer]))]
        yield f"{layer}_global_scale", [(experts,)]


def _blocks(shapes: Shapes, layer: str) -> int | None:
    """Into how many blocks a row of codes is cut, as its scales tell."""
    scales = shapes.get(f"{layer}_scales")
    return 1 if scales is None or len(scales) < 3 else _size(shapes, f"{layer}_scales", 2)


def _size(shapes: Shapes, name: str, axis: int) -> int | None:
    """A size that is known."""
    shape = shapes.get(name)
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) else None


def _bytes(count: int | None, bits: int) -> int | None:
    """How many bytes so many codes take."""
    return None if count is None else -(-count * bits // 8)


def _shown(wanted: Wanted) -> str:
    return f"[{', '.join('any' if size is None else str(size) for size in wanted)}]"


def _fits(shape: Sequence[Dim], wanted: Wanted) -> bool:
    pairs = zip(shape, wanted)
    return len(shape) == len(wanted) and all(
        size == number for size, number in pairs if isinstance(size, int) and number is not None
    )


def scale_block(inner: int, blocks: int) -> int:
    """The largest power of two of neighbours in a row that surely have one scale.

    A row with one scale alone may be filled up to such a number.
    """
    if blocks == 1:
        return 1 << max(inner - 1, 15).bit_length()
    length = inner // blocks
    return length & -length
