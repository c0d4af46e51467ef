"""The fast path through a model of compiled programs, look-ups and branches: plain arrays of known shapes, and maps, go straight into them.

All other runs (another type of feed, a new shape, an input too many) take the ordinary path, which also finds the errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from sardonyx.ir import MapType, TensorType, Value
from sardonyx.providers.steps import ANY, FastPath
from sardonyx.runtime.api.value import of_strings
from sardonyx.runtime.execution.feeds import convert, fits, holds_only, kinds_in
from sardonyx.runtime.preparation.plan import ABSENT, Plan, Step

MAX_SHAPES = 64
"""How many sets of shapes are known to be right."""


class Direct:
    """A plan of steps that need nothing from the executor, and the inputs that it takes."""

    __slots__ = ("_values", "inputs", "_tensors", "_texts", "_maps", "program", "order", "_run", "_vouched", "_known")

    def __init__(self, plan: Plan, block: _Block):
        first = plan.steps[0]
        ends = (first.inputs, plan.inputs), (first.outputs, plan.outputs)
        run_any = first.call.fast_path_for_any_shape()
        alone = run_any is not None and len(block.calls) == 1 and all(sorted(mine) == sorted(whole) for mine, whole in ends)
        self.program = run_any if alone else None
        self.order = [first.outputs.index(slot) for slot in plan.outputs] if alone and first.outputs != plan.outputs else None
        self._run = block.run
        self._values = [plan.values[slot] for slot in (first.inputs if alone else plan.inputs)]
        self.inputs = [(value.name, _dtype_of(value)) for value in self._values]
        places = range(len(self.inputs))
        self._maps = [(place, kinds_in(self._values[place].type)) for place in places if self.inputs[place][1] is None]
        self._tensors = [place for place in places if self.inputs[place][1] is not None]
        self._texts = [place for place in self._tensors if self.inputs[place][1] == np.dtype(object)]
        programs = [step.inputs for step in plan.steps if step.call.knows_shapes]
        self._vouched = set(plan.inputs).issubset(slot for slots in programs for slot in slots)
        """Whether programs see all inputs: they know which shapes the ordinary path has checked."""
        self._known: set[tuple[Any, ...]] = set()

    @classmethod
    def of(cls, plan: Plan) -> Direct | None:
        """The fast path of a plan, None if it has none."""
        block = _Block.of(plan, plan.inputs, set()) if plan.steps and all(map(_is_plain, plan.graph.inputs)) else None
        return None if block is None else cls(plan, block)

    def __call__(self, feeds: Mapping[str, Any]) -> list[Any] | None:
        """The outputs, or None if the run must take the ordinary path."""
        if feeds.__class__ is not dict or len(feeds) != len(self.inputs):
            return None
        arrays = []
        for name, dtype in self.inputs:
            array = feeds.get(name)
            if array.__class__ is np.ndarray and dtype is not None:
                flags = array.flags  # tensors of torch come as arrays that are not to be written: no step writes over a feed
                if not (flags.c_contiguous and flags.aligned) or (array.dtype is not dtype and array.dtype != dtype):
                    return None  # what was unpickled has a dtype of its own, but equal
            elif array.__class__ is not dict or dtype is not None:
                return None
            arrays.append(array)
        try:
            if self.program is not None:
                outputs = self.program(arrays)
                return outputs if outputs is None or self.order is None else list(map(outputs.__getitem__, self.order))
            return self._run(arrays) if self._vouched or self._are_right(arrays) else None
        except Exception:  # the ordinary path fails too, and says where
            return None

    def _are_right(self, arrays: list[Any]) -> bool:
        """Whether values are what the model declares; shapes are looked at once. Strings of NumPy's kind become plain ones, and maps
        are converted as they always are.
        """
        shapes = tuple([arrays[place].shape for place in self._tensors])
        if shapes not in self._known:
            if not all(fits(self._values[place], shape) for place, shape in zip(self._tensors, shapes)):
                return False
            if len(self._known) >= MAX_SHAPES:
                self._known.clear()
            self._known.add(shapes)
        for place in self._texts:
            arrays[place] = of_strings(arrays[place])
        for place, kinds in self._maps:
            if not holds_only(arrays[place], *kinds):
                arrays[place] = convert(self._values[place], arrays[place])
        return all(arrays[place] is not None for place in self._texts)


class _Call(NamedTuple):
    """What computes a step, or two, without the executor's help."""

    call: FastPath
    operands: Sequence[int]
    """Slots of what it is given."""
    outputs: Sequence[int]


class _Block:
    """The steps of a plan, as a function that is written for them: a loop over steps would take as long as small ones do."""

    __slots__ = ("calls", "run")

    def __init__(self, plan: Plan, inputs: Sequence[int], calls: Sequence[_Call]):
        self.calls = [call.call for call in calls]
        """What computes its steps."""
        constants = [slot for slot, value in enumerate(plan.template) if value is not None]
        slots = [*inputs, *constants, *(slot for call in calls for slot in call.outputs)]
        names = {slot: f"v{place}" for place, slot in enumerate(slots)}
        scope: dict[str, Any] = {names[slot]: plan.template[slot] for slot in constants}
        scope |= {f"c{number}": call for number, call in enumerate(self.calls)}
        steps = tuple((_listed(names, call.operands), _listed(names, call.outputs)) for call in calls)
        exec(_code(_listed(names, inputs), steps, _listed(names, plan.outputs)), scope)
        self.run: Callable[[list[Any]], list[Any] | None] = scope.pop("run")  # where it stood, it would hold itself
        """Takes what the plan is given, and returns what comes out; None if a step must take the ordinary path."""

    @classmethod
    def of(cls, plan: Plan, inputs: Sequence[int], own: set[int]) -> _Block | None:
        """None if there is another kind of step, or an output that somebody else may hold. `own` are slots given that nobody does."""
        calls: list[_Call] = []
        read = {slot for step in plan.steps if step.compiled for slot in step.inputs}
        steps = iter([*zip(plan.steps, [*plan.steps[1:], None])])
        for step, following in steps:
            if ABSENT in step.inputs:
                return None
            joint = None if following is None else _joint_call(plan, step, following, own)
            call = joint or _call_of(step, own, {*plan.outputs})
            if call is None:
                return None
            if not step.compiled and not read.isdisjoint(call.outputs):
                call = call._replace(call=_WithoutGaps(call.call))
            calls.append(call)
            if joint is not None:
                next(steps)
        distinct = len(set(plan.outputs)) == len(plan.outputs)
        return cls(plan, inputs, calls) if distinct and own.issuperset(plan.outputs) else None


def _listed(names: Mapping[int, str], slots: Sequence[int]) -> str:
    return "".join(f"{names[slot]}, " for slot in slots)


@functools.lru_cache(maxsize=64)
def _code(inputs: str, steps: tuple[tuple[str, str], ...], outputs: str) -> CodeType:
    """The code of a function `run` that calls `c0`, `c1`, … one after the other, with the names of what each takes and makes."""
    lines = [f"[{inputs}] = inputs"]
    for number, (operands, results) in enumerate(steps):
        lines += [f"found = c{number}([{operands}])", "if found is None: return None", f"[{results}] = found"]
    body = "".join(f"    {line}\n" for line in [*lines, f"return [{outputs}]"])
    return compile(f"def run(inputs):\n{body}", "<the fast path>", "exec")


class _Choice:
    """An If: the condition comes first, then what the one branch reads, then what the other does."""

    __slots__ = ("_then", "_other", "_end")

    def __init__(self, then: _Block, other: _Block, end: int):
        self._then = then.run
        self._other = other.run
        self._end = end

    def __call__(self, operands: list[Any]) -> list[Any] | None:
        if operands[0].size != 1:
            return None
        return self._then(operands[1 : self._end]) if operands[0].item() else self._other(operands[self._end :])


def _call_of(step: Step, own: set[int], results: set[int]) -> _Call | None:
    """What computes a step; None if it needs the executor.

    What it makes becomes part of `own`, the slots that nobody else holds. A result that is an operand takes that one away; if that was
    not of them, the result is not either, unless it is one of the plan's `results`, which are copied.
    """
    fast = step.call.fast_path()
    found = None
    if fast is not None:
        if not step.compiled and not _takes_over(step, own):
            if results.isdisjoint(step.outputs):
                return _Call(fast, step.inputs, step.outputs)
            fast = _Copying(fast)
        found = _Call(fast, step.inputs, step.outputs)
    elif step.node.op_type == "If" and step.bodies:
        found = _choice_of(step, own)
    own |= {*step.outputs}
    return found


def _joint_call(plan: Plan, step: Step, following: Step, own: set[int]) -> _Call | None:
    """What computes two steps at once, of which the second alone reads what the first makes."""
    is_only = len(step.outputs) == 1 and following.inputs == step.outputs and step.outputs[0] not in plan.outputs
    readers = [other for other in plan.steps if {*other.inputs, *other.captured} & {*step.outputs}]
    call = step.call.fast_path_into(following.call) if is_only and readers == [following] else None
    if call is None:
        return None
    own |= {*following.outputs}
    return _Call(call, step.inputs, following.outputs)


def _takes_over(step: Step, own: set[int]) -> bool:
    """Whether nobody holds what a kernel's results are in the memory of; from now on, the results do."""
    sharing = step.call.sharing
    places = {given for given, _ in sharing.alias}
    held = {*step.inputs} if ANY in places else {step.inputs[given] for given in places}
    is_told = ANY not in places or len(held) == len(step.inputs)
    if sharing.view or not is_told or not held <= own:
        return False
    own -= held
    return True


class _WithoutGaps:
    """A kernel whose results compiled code reads, which may be views with gaps."""

    __slots__ = ("_call",)

    def __init__(self, call: FastPath):
        self._call = call

    def __call__(self, operands: list[Any]) -> list[Any] | None:
        outputs = self._call(operands)
        if outputs is None or not all(isinstance(value, np.ndarray) for value in outputs):
            return None
        return [value if value.flags.c_contiguous and value.flags.aligned else value.copy() for value in outputs]


class _Copying:
    """A kernel whose results may be in memory that somebody else holds."""

    __slots__ = ("_call",)

    def __init__(self, call: FastPath):
        self._call = call

    def __call__(self, operands: list[Any]) -> list[Any] | None:
        outputs = self._call(operands)
        if outputs is None or not all(isinstance(value, np.ndarray) for value in outputs):
            return None
        return [value.copy() for value in outputs]


def _choice_of(step: Step, own: set[int]) -> _Call | None:
    blocks, captured = [], []
    for name in ("then_branch", "else_branch"):
        body = step.bodies[name]
        there, here = zip(*body.capture_slots) if body.capture_slots else ((), ())
        blocks.append(_Block.of(body, here, {inner for outer, inner in body.capture_slots if outer in own}))
        captured.append(there)
    own -= {slot for slots in captured for slot in slots}
    then, other = blocks
    if then is None or other is None:
        return None
    operands = [step.inputs[0], *captured[0], *captured[1]]
    return _Call(_Choice(then, other, 1 + len(captured[0])), operands, step.outputs)


def _is_plain(value: Value) -> bool:
    """Whether an input is a tensor or a map that must be fed: one with a default may be left out."""
    is_tensor = isinstance(value.type, TensorType) and value.type.dtype is not None
    return value.constant is None and (is_tensor or isinstance(value.type, MapType))


def _dtype_of(value: Value) -> np.dtype[Any] | None:
    """What an array for an input must have; None for maps."""
    dtype = value.type.dtype if isinstance(value.type, TensorType) else None
    return None if dtype is None else np.dtype(dtype.numpy)
