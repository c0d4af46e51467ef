"""Where the axes of a tensor come from: data movement traced back to its source, whatever ops an exporter wrote for it.

`Trace` follows a value back through Transpose, Reshape, Squeeze, Slice, Expand and their like. Every tensor on the way is a stage that
tells which factors of the traced tensor's axes its own axes hold. Attention fusion finds in it the tensor that holds all heads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from sardonyx.ir import Node, Value
from sardonyx.ir.dim import Dim, floordiv
from sardonyx.ir.types import Shape
from sardonyx.ops.reading import operand
from sardonyx.optimizer.values import scalar, shape_of
from sardonyx.startup.records import dataclass

MAX_STAGES = 24
"""How far back a value is traced."""


@dataclass(eq=False)
class Atom:
    """A factor of an axis. Two atoms are the same only if they are one object."""

    size: Dim
    index: int | None = None
    """The one position that is taken; None if all are."""
    repeated: bool = False
    """Whether all positions hold the same."""


Axis = list[Atom]
"""Factors of an axis, the outermost first; an axis of size 1 has none."""


@dataclass(eq=False)
class Stage:
    """A tensor on the way back: its axes, and the number by which it was multiplied later on."""

    value: Value
    axes: list[Axis]
    factor: float = 1.0


class Trace:
    """A tensor and the tensors that it is a rearrangement of. `factors`: products with a number are followed, too."""

    def __init__(self, value: Value, *, factors: bool = False, repeats: bool = True):
        self.follows_factors = factors
        self.follows_repeats = repeats
        self.axes: list[Axis] = [_axis(size) for size in shape_of(value) or ()]
        """The traced tensor's own axes; they are divided as tracing finds out what they are made of."""
        self.stages = [Stage(value, [list(axis) for axis in self.axes])]
        while shape_of(value) is not None and len(self.stages) < MAX_STAGES and self._step_back():
            pass

    def find_last(self, axes: Sequence[Axis]) -> Stage | None:
        """The stage furthest back that has just these axes, in this order."""
        return next((stage for stage in reversed(self.stages) if stage.axes == list(axes)), None)

    def _step_back(self) -> bool:
        stage = self.stages[-1]
        node = stage.value.producer
        if node is None or node.domain or node.op_type not in _STEPS:
            return False
        next_stage = _STEPS[node.op_type](self, node, stage)
        if next_stage is not None:
            self.stages.append(next_stage)
        return next_stage is not None

    # --- one step through a node; the stage is its output, the result the stage of its input

    def _transpose(self, node: Node, stage: Stage) -> Stage | None:
        perm = operand(node, "perm") or range(len(stage.axes))[::-1]
        axes: list[Axis] = [[] for _ in stage.axes]
        for axis, source in zip(stage.axes, perm, strict=True):
            axes[source] = axis
        return _before(node, stage, axes)

    def _reshape(self, node: Node, stage: Stage) -> Stage | None:
        shape = _input_shape(node)
        return None if shape is None else _before(node, stage, self._regrouped(stage.axes, shape))

    def _squeeze(self, node: Node, stage: Stage) -> Stage | None:
        """Its axes of size 1 hold nothing, so it is a Reshape of what is left."""
        return self._reshape(node, stage)

    def _expand(self, node: Node, stage: Stage) -> Stage | None:
        shape = _input_shape(node)
        if shape is None or not self.follows_repeats or len(shape) > len(stage.axes):
            return None
        shape = (1,) * (len(stage.axes) - len(shape)) + shape
        sizes = shape_of(stage.value) or ()
        for axis, size, large in zip(stage.axes, shape, sizes, strict=True):
            if size != large and size != 1:
                return None
            if size != large:
                for atom in axis:
                    atom.repeated = True
        axes = [axis if size != 1 else [] for axis, size in zip(stage.axes, shape, strict=True)]
        return _before(node, stage, axes[len(axes) - len(_input_shape(node) or ()) :])

    def _part(self, node: Node, stage: Stage) -> Stage | None:
        """A node that takes one of several parts of the same length."""
        part = part_of(stage.value)
        if part is None or part.length == 0 or part.size % part.length or part.start % part.length:
            return None
        axes = [list(axis) for axis in stage.axes]
        if part.size != part.length:
            axes[part.axis].insert(0, Atom(part.size // part.length, part.start // part.length))
        return _before(node, stage, axes)

    def _gather(self, node: Node, stage: Stage) -> Stage | None:
        shape, index = _input_shape(node), operand(node, "indices")
        if isinstance(index, list) and (len(index) != 1 or not isinstance(index[0], int)):
            index = None
        if shape is None or index is None:
            return None
        axis = operand(node, "axis") % len(shape)
        size = shape[axis]
        if not isinstance(size, int):
            return None
        taken = (index[0] if isinstance(index, list) else index) % size
        after = stage.axes[axis + isinstance(index, list) :]
        return _before(node, stage, [*stage.axes[:axis], [] if size == 1 else [Atom(size, taken)], *after])

    def _identity(self, node: Node, stage: Stage) -> Stage | None:
        return _before(node, stage, stage.axes)

    def _product(self, node: Node, stage: Stage) -> Stage | None:
        if not self.follows_factors:
            return None
        for position in (1, 0) if node.op_type == "Mul" else (1,):
            number, other = scalar(node.inputs[position]), node.inputs[1 - position]
            if number and other is not None and shape_of(other) == shape_of(stage.value):
                factor = number if node.op_type == "Mul" else 1 / number
                return Stage(other, stage.axes, stage.factor * factor)
        return None

    # --- dividing axes

    def _regrouped(self, axes: Sequence[Axis], shape: Shape) -> list[Axis] | None:
        """The same atoms in the same order as axes of sizes `shape`; None where it does not come out."""
        pending = deque(atom for axis in axes for atom in axis)
        groups: list[Axis] = []
        for size in shape:
            group = self._taken(pending, size)
            if group is None:
                return None
            groups.append(group)
        return None if pending else groups

    def _taken(self, pending: deque[Atom], size: Dim) -> Axis | None:
        group: Axis = []
        while size != 1:
            if not pending or size == 0:
                return None
            atom = pending.popleft()
            rest, surplus = floordiv(size, atom.size), floordiv(atom.size, size)
            if rest * atom.size == size:
                group.append(atom)
                size = rest
            elif surplus * size == atom.size and atom.index is None:
                outer, inner = self._divide(atom, size, surplus)
                group.append(outer)
                pending.appendleft(inner)
                size = 1
            else:
                return None
        return group

    def _divide(self, atom: Atom, outer: Dim, inner: Dim) -> tuple[Atom, Atom]:
        parts = Atom(outer), Atom(inner)
        for axis in (*self.axes, *(axis for stage in self.stages for axis in stage.axes)):
            if atom in axis:
                position = axis.index(atom)
                axis[position : position + 1] = parts
        return parts


def _axis(size: Dim) -> Axis:
    return [] if size == 1 else [Atom(size)]


def _before(node: Node, stage: Stage, axes: list[Axis] | None) -> Stage | None:
    value = node.inputs[0]
    if value is None or axes is None:
        return None
    return Stage(value, [list(axis) for axis in axes], stage.factor)


def _input_shape(node: Node) -> Shape | None:
    return None if node.inputs[0] is None else shape_of(node.inputs[0])


_STEPS: dict[str, Callable[[Trace, Node, Stage], Stage | None]] = {
    "Transpose": Trace._transpose,
    "Reshape": Trace._reshape,
    "Flatten": Trace._reshape,
    "Squeeze": Trace._squeeze,
    "Unsqueeze": Trace._squeeze,
    "Expand": Trace._expand,
    "Slice": Trace._part,
    "Split": Trace._part,
    "Gather": Trace._gather,
    "Identity": Trace._identity,
    "Mul": Trace._product,
    "Div": Trace._product,
}


@dataclass(frozen=True)
class Part:
    """Neighbours along one axis: positions `start` to `start + length` of `size`."""

    source: Value
    axis: int
    start: int
    length: int
    size: int


def part_of(value: Value) -> Part | None:
    """`value` as a part of another tensor, which a Slice or Split takes."""
    node = value.producer
    if node is None or node.domain or node.op_type not in ("Slice", "Split") or node.inputs[0] is None:
        return None
    shape = shape_of(node.inputs[0])
    bounds = None if shape is None else _sliced(node, shape) if node.op_type == "Slice" else _split(node, shape, value)
    if shape is None or bounds is None or not isinstance(shape[bounds[0]], int):
        return None
    return Part(node.inputs[0], *bounds, shape[bounds[0]])  # type: ignore[arg-type]


def _sliced(node: Node, shape: Shape) -> tuple[int, int, int] | None:
    starts, ends, axes, steps = (operand(node, name) for name in ("starts", "ends", "axes", "steps"))
    if starts is None or ends is None or len(starts) != 1 or (steps or [1]) != [1]:
        return None
    if any(operand is not None and known is None for operand, known in zip(node.inputs[3:], (axes, steps), strict=False)):
        return None
    axis = (axes or [0])[0] % len(shape)
    size = shape[axis]
    if not isinstance(size, int):
        return None
    start, end = (max(0, min(bound + size if bound < 0 else bound, size)) for bound in (starts[0], ends[0]))
    return axis, start, max(0, end - start)


def _split(node: Node, shape: Shape, value: Value) -> tuple[int, int, int] | None:
    axis = operand(node, "axis") % len(shape)
    shapes = [shape_of(output) for output in node.outputs]
    sizes = [shape[axis] if shape is not None else None for shape in shapes]
    position = next(number for number, output in enumerate(node.outputs) if output is value)
    start = 0
    for size in sizes[:position]:
        if not isinstance(size, int):
            return None
        start += size
    length = sizes[position]
    return (axis, start, length) if isinstance(length, int) else None


def users_along(value: Value, limit: int) -> Iterator[Value]:
    """The tensors made from `value` by data movement alone, the nearest first."""
    for _ in range(limit):
        moved = [
            node for node in value.users if not node.domain and node.op_type in ("Transpose", "Reshape", "Squeeze", "Flatten")
        ]
        if len(moved) != 1 or moved[0].inputs[0] is not value or moved[0].graph is not value.graph:
            return
        value = moved[0].outputs[0]
        yield value
