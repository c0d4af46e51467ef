"""From a program to its argument tables: of what kind each argument word is. The provider calls it once per cluster."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from sardonyx.dtypes import ElementType, int64
from sardonyx.ir import TensorType, Value
from sardonyx.providers.native.execution.argument_table import Tables
from sardonyx.providers.native.execution.memory import Workspace
from sardonyx.providers.native.program.settling import Uses, script_of
from sardonyx.providers.native.program.sizes import Sizes
from sardonyx.providers.native.program.steps import Argument, At, Buffer, Program
from sardonyx.providers.native.program.values import dims, is_text
from sardonyx.providers.provider import CannotCompile


def tabulate(program: Program, sizes: Sizes) -> Tables:
    """The tables of a program. Kernels count as `Program.kernels` has them, constants as `Program.constants`."""
    steps = program.steps
    numbers = {kernel.symbol: number for number, kernel in enumerate(program.kernels)}
    workspace = Workspace(steps, program.loose.values())
    workspace.batch = program.batch
    buffers = [sizes(size) for size in workspace.sizes]
    items, grains = (
        [sizes(size) for size in column] for column in ([step.items for step in steps], [step.grain for step in steps])
    )
    work = [(sizes(step.flops), sizes(step.traffic)) for step in steps]
    outputs = [[sizes(size) for size in dims(value)] for value in program.outputs]
    for left, right in program.conditions:
        if not sizes.data_sizes_in((left, right)):
            sizes.require(left, right)
    words = _Words(program, sizes)
    for place, argument in enumerate(argument for step in steps for argument in step.arguments):
        words.place(place, argument)
    uses = Uses(words.by_number(), list(zip(items, grains)), buffers, [one for shape in outputs for one in shape])
    _write_scripts(program, sizes, uses, workspace)
    return Tables(
        rules=sizes.rules(),
        kernels=np.array([numbers[step.kernel.symbol] for step in steps], np.int64),
        items=np.array(items, np.int64),
        grains=np.array(grains, np.int64),
        work=_pairs(work),
        counts=np.array([len(step.arguments) for step in steps], np.int64),
        jumps=np.array([step.jump for step in steps], np.int64),
        fixed=words.fixed,
        numbers=_pairs(words.numbers),
        arena=_pairs(words.arena),
        outside=_pairs(words.outside),
        constants=_pairs(words.constants),
        status=np.array(words.status, np.int64),
        run=_pairs(words.run),
        loose=_pairs([(output, buffer.index) for output, buffer in program.loose.items()]),
        buffers=buffers,
        workspace=workspace,
        outputs=outputs,
        types=[int64 if is_text(value) else _element_type(value) for value in program.outputs],
        batch=program.batch,
        shared=program.shared,
    )


def _write_scripts(program: Program, sizes: Sizes, uses: Uses, workspace: Workspace) -> None:
    settled: set[str] = set()
    complete = _completed(program, sizes, workspace)
    for number, step in enumerate(program.steps):
        if step.settles is not None:
            settled |= {name for name, _ in step.settles.sources}
            conditions = [pair for pair in program.conditions if sizes.data_sizes_in(pair) <= settled]
            put_off = {buffer for buffer, last in complete.items() if last > number}
            step.settles.script.array = script_of(step.settles.sources, sizes, uses, conditions, put_off)
    unsettled = {*sizes.data_sizes} - settled
    used = [size for size, _ in sizes.depending(unsettled)] + [size for pair in program.conditions for size in pair]
    for size in used:
        if not unsettled.isdisjoint(sizes.data_sizes_in([size])):
            raise CannotCompile(f"no step settles the size {size}", quiet=True)


def _completed(program: Program, sizes: Sizes, workspace: Workspace) -> dict[int, int]:
    """The last step that settles a size of a buffer, for buffers that no step uses before.

    Until then the length is computed of sizes as large as they may be, and might be more than there is memory. Where steps jump, nobody
    knows whether a later one will run: a branch may leave it out, and a loop comes back with the sizes of the turn before. There each
    change counts.
    """
    if any(step.jump for step in program.steps):
        return {}
    steps = {name: at for at, step in enumerate(program.steps) if step.settles for name, _ in step.settles.sources}
    lasts = [max((steps.get(name, -1) for name in sizes.data_sizes_in([size])), default=-1) for size in workspace.sizes]
    return {buffer: last for buffer, (last, (first, _)) in enumerate(zip(lasts, workspace.spans)) if last < first}


class _Words:
    """Argument words while they are sorted by kind."""

    def __init__(self, program: Program, sizes: Sizes):
        self.inputs, self.outputs = len(program.inputs), len(program.outputs)
        self.sizes = sizes
        self.fixed = np.zeros(sum(len(step.arguments) for step in program.steps), np.int64)
        self.numbers: list[tuple[int, int]] = []
        self.arena: list[tuple[int, int]] = []
        self.outside: list[tuple[int, int]] = []
        self.constants: list[tuple[int, int]] = []
        self.status: list[int] = []
        self.run: list[tuple[int, int]] = []

    def by_number(self) -> dict[int, list[int]]:
        """Words by the sizes that are added to them."""
        found: dict[int, list[int]] = {}
        for word, number in self.numbers:
            found.setdefault(number, []).append(word)
        return found

    def place(self, place: int, argument: Argument) -> None:
        if isinstance(argument, At):
            if not (isinstance(argument.offset, int) and argument.offset == 0):
                self.numbers.append((place, self.sizes(argument.offset)))
            argument = argument.buffer
        if isinstance(argument, Buffer):
            self._place_buffer(place, argument)
        elif isinstance(argument, float):
            self.fixed[place] = struct.unpack("<q", struct.pack("<d", argument))[0]
        else:
            self.numbers.append((place, self.sizes(argument)))

    def _place_buffer(self, place: int, buffer: Buffer) -> None:
        if buffer.kind == "arena":
            self.arena.append((place, buffer.index))
        elif buffer.kind == "constant":
            self.constants.append((place, buffer.index))
        elif buffer.kind == "run":
            self.run.append((place, buffer.index))
        elif buffer.kind == "status":
            self.status.append(place)
        elif buffer.kind == "texts":  # stands behind inputs and outputs
            self.outside.append((place, self.inputs + self.outputs))
        else:
            first = {"input": 0, "output": self.inputs}[buffer.kind]
            self.outside.append((place, first + buffer.index))


def _pairs(pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(pairs, np.int64).reshape(-1, 2)


def _element_type(value: Value) -> ElementType:
    assert isinstance(value.type, TensorType) and value.type.dtype is not None
    return value.type.dtype
