"""Type and shape inference of If, Loop and Scan through the graphs that they run. The driver calls these functions."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import Fail, InferenceError
from sardonyx.ir import NoTensorType, OptionalType, SequenceType, TensorType, dim
from sardonyx.ops.operand import Known, Operand
from sardonyx.ops.sequence import common_type
from sardonyx.ops.shape import element_count
from sardonyx.ops.shapes import axis_index, fresh_shape, merge_dims, text
from sardonyx.ops.table import infer

MAX_ROUNDS = 8
"""After so many rounds in which the state's sizes still changed, only its ranks are kept."""


@infer("If")
def if_else(cond, then_branch, else_branch, output_count):
    if element_count(cond) not in (None, 1):
        raise InferenceError(f"a condition must have one element, its shape is {text(cond.shape)}")
    if cond.item is not None:
        taken, other = (then_branch, else_branch) if cond.item else (else_branch, then_branch)
        _infer_if_it_fits(other)
        outputs = taken()
        if len(outputs) < output_count:
            raise InferenceError(f"the branch that is taken has {len(outputs)} outputs, the node {output_count}")
        return outputs
    then, other = then_branch(), else_branch()
    if len(then) != len(other) or len(then) < output_count:
        raise InferenceError(f"then_branch has {len(then)} outputs, else_branch {len(other)}, the node {output_count}")
    return [_either(a, b) for a, b in zip(then, other, strict=True)]


def _infer_if_it_fits(branch):
    """Infer a branch that never runs: shapes that it could not take are no fault of the model."""
    try:
        branch()
    except Fail as error:
        if "[ShapeInferenceError]" not in error.message:
            raise


def _either(a, b):
    """What is known of a value that is one of two."""
    same = a.is_concrete and b.is_concrete and a.value.dtype != object and np.array_equal(a.value, b.value)
    return Known(common_type(a.type, b.type, "the branches' outputs"), a.value if same else None)


# --- what goes round ------------------------------------------------------------------------------------------------


def _settled_outputs(run, state):
    """Types of a state that a body may be given in any round, and what the body then returns.

    A size that the body changes becomes a fresh one, and the body is asked again.
    """
    outer = _symbols(state)
    for _ in range(MAX_ROUNDS):
        outputs = run(*(Operand(type) for type in state))
        wider = [_widened(before, after.type, outer) for before, after in zip(state, outputs, strict=False)]
        if wider == state:
            return state, outputs
        state = wider
    state = [_without_sizes(type) for type in state]
    return state, run(*(Operand(type) for type in state))


def _widened(before, after, outer):
    """`before`, with fresh sizes where `after` has others. What is fresh already may change from round to round, unlike `outer` symbols."""
    if before is None or after is None:
        return before or after
    if isinstance(before, (SequenceType, OptionalType)) and type(before) is type(after):
        return type(before)(_widened(before.element, after.element, outer))
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return before
    if isinstance(before, NoTensorType) or isinstance(after, NoTensorType):
        return after if isinstance(before, NoTensorType) else before
    dtype = before.dtype or after.dtype
    if before.shape is None or after.shape is None or len(before.shape) != len(after.shape):
        return TensorType(dtype)
    pairs = zip(before.shape, after.shape, strict=True)
    return TensorType(dtype, tuple(x if x == y or _is_fresh(x, outer) else dim.fresh() for x, y in pairs))


def _is_fresh(size, outer):
    return dim.is_anonymous(size) and size.symbol not in outer


def _symbols(types):
    """The symbols in the shapes of some values, which may be sequences or missing."""
    elements = [getattr(type, "element", type) for type in types]
    return {symbol for type in elements for size in getattr(type, "shape", None) or () for symbol in dim.symbols(size)}


def _without_sizes(type):
    if isinstance(type, TensorType) and type.shape is not None:
        return TensorType(type.dtype, fresh_shape(len(type.shape)))
    return type


def _changing(declared, state, initial):
    """Names that a body declares for sizes of its state which change from round to round."""
    outer = _symbols(initial)
    pairs = [
        (size, name)
        for type, named in zip(state, declared)
        for size, name in zip(getattr(type, "shape", None) or (), getattr(named, "shape", None) or ())
    ]
    return {symbol for size, name in pairs if _is_fresh(size, outer) for symbol in dim.symbols(name)} - outer


def _outside(type, initial=(), changing=frozenset()):
    """A type as the surrounding graph may see it: sizes that change belong to one round, and so do those without a name that are new."""
    known = _symbols(initial)

    def is_inner(size) -> bool:
        return any(symbol in changing or (symbol.is_anonymous and symbol not in known) for symbol in dim.symbols(size))

    if isinstance(type, (SequenceType, OptionalType)):
        return type.__class__(_outside(type.element, initial, changing))
    if not isinstance(type, TensorType) or type.shape is None:
        return type
    return TensorType(type.dtype, tuple(dim.fresh() if is_inner(size) else size for size in type.shape))


def _final_state(state, outputs, initial):
    """Types of the state after the last round. A body may take an optional and return what is in it."""
    types = [type for type in initial if type is not None]
    final = [after.type if isinstance(before, OptionalType) else before for before, after in zip(state, outputs, strict=False)]
    return [_outside(type, types) for type in final]


# --- Loop -----------------------------------------------------------------------------------------------------------


@infer("Loop")
def loop(M, cond, v_initial, body, output_count):
    if body.input_count != 2 + len(v_initial):
        raise InferenceError(f"body takes {body.input_count} inputs, not 2 and the {len(v_initial)} initial values")
    number, condition = (_scalar(type, dtype) for type, dtype in zip(body.declared, (dtypes.int64, dtypes.bool_), strict=False))
    # a round runs only if the condition holds
    holds = np.full([1] * len(condition.shape), True)

    def run(*state):
        return body(Operand(number), Operand(condition, holds), *state)

    initial = [operand.type for operand in v_initial]
    state, outputs = _settled_loop(run, initial)
    trips = _trip_count(M, cond, outputs[0])
    changing = _changing(body.declared[2:], state, initial)
    scans = [_stacked(output.type, trips, initial, changing) for output in outputs[1 + len(state) :]]
    return [*_final_state(state, outputs[1:], initial), *scans][:output_count]


def _scalar(declared, dtype):
    """Iteration number and condition are scalars, unless the body declares vectors of one element."""
    shape = getattr(declared, "shape", None) or ()
    return TensorType(dtype, (1,) * len(shape))


def _settled_loop(run, initial):
    """The body's first output is the condition; what it returns after that is the next state."""
    outputs: list[Operand] = []

    def next_state(*state):
        outputs[:] = run(*state)
        return outputs[1:]

    state, _ = _settled_outputs(next_state, initial)
    return state, outputs


def _trip_count(M, cond, condition):
    """How many rounds there are if nothing but the number M ends them."""
    always = condition.is_concrete and bool(condition.item) and (cond is None or (cond.is_concrete and bool(cond.item)))
    if M is None or M.value is None or not always:
        return dim.fresh()
    return dim.maximum(0, M.as_size("M"))


def _stacked(type, count, initial, changing=frozenset(), axis=0):
    """What a body gives in every round, along a new axis."""
    type = _outside(type, [first_type for first_type in initial if first_type is not None], changing)
    if not isinstance(type, TensorType) or type.shape is None:
        return TensorType(getattr(type, "dtype", None))
    shape = list(type.shape)
    shape.insert(axis_index(axis, len(shape) + 1), count)
    return TensorType(type.dtype, tuple(shape))


# --- Scan -----------------------------------------------------------------------------------------------------------


@infer("Scan", since=9)
def scan(
    initial_state_and_scan_inputs,
    body,
    num_scan_inputs,
    scan_input_axes,
    scan_input_directions,
    scan_output_axes,
    scan_output_directions,
):
    count = _state_count(initial_state_and_scan_inputs, num_scan_inputs)
    inputs = initial_state_and_scan_inputs[count:]
    axes = _one_for_each(scan_input_axes, num_scan_inputs, "scan_input_axes")
    _check_directions(scan_input_directions, num_scan_inputs, "scan_input_directions")
    length, elements = _scanned([operand.type for operand in inputs], axes)
    initial = [operand.type for operand in initial_state_and_scan_inputs[:count]]
    state, outputs = _settled_outputs(lambda *state: body(*state, *map(Operand, elements)), initial)
    types = [*initial, *elements]
    axes = _one_for_each(scan_output_axes, len(outputs) - count, "scan_output_axes")
    _check_directions(scan_output_directions, len(outputs) - count, "scan_output_directions")
    changing = _changing(body.declared, state, initial)
    scans = [_stacked(output.type, length, types, changing, axis) for output, axis in zip(outputs[count:], axes, strict=True)]
    return [*_final_state(state, outputs, initial), *scans]


def _one_for_each(axes, count, name):
    if axes and len(axes) != count:
        raise InferenceError(f"{name} has {len(axes)} entries, there must be {count}")
    return axes or [0] * count


def _check_directions(directions, count, name):
    if any(direction not in (0, 1) for direction in _one_for_each(directions, count, name)):
        raise InferenceError(f"Invalid values in '{name}'. 0 == forward. 1 == reverse.")


def _state_count(operands, num_scan_inputs):
    if not 0 < num_scan_inputs <= len(operands):
        raise InferenceError(f"num_scan_inputs is {num_scan_inputs}, the node has {len(operands)} inputs")
    return len(operands) - num_scan_inputs


def _scanned(types, axes):
    """The common length of the axes to walk along, and the types of one step of each input."""
    length, elements = None, []
    for type, axis in zip(types, axes, strict=True):
        shape = getattr(type, "shape", None)
        if shape is None:
            elements.append(TensorType(getattr(type, "dtype", None)))
            continue
        axis = axis_index(axis, len(shape))
        length = shape[axis] if length is None else merge_dims(length, shape[axis], "lengths of the scan inputs")
        elements.append(TensorType(type.dtype, (*shape[:axis], *shape[axis + 1 :])))
    return dim.fresh() if length is None else length, elements


@infer("Scan", until=8)
def scan_batches(initial_state_and_scan_inputs, body, num_scan_inputs, directions):
    """At first all operands had a batch axis in front, before the axis to walk along."""
    count = _state_count(initial_state_and_scan_inputs, num_scan_inputs)
    _check_directions(directions, num_scan_inputs, "directions")
    batch, rows = _scanned(
        [operand.type for operand in initial_state_and_scan_inputs], [0] * len(initial_state_and_scan_inputs)
    )
    initial, inputs = rows[:count], rows[count:]
    length, elements = _scanned(inputs, [0] * num_scan_inputs)
    state, outputs = _settled_outputs(lambda *state: body(*state, *map(Operand, elements)), initial)
    changing = _changing(body.declared, state, initial)
    scans = [_stacked(output.type, length, [*initial, *elements], changing) for output in outputs[count:]]
    return [_stacked(type, batch, initial) for type in [*_final_state(state, outputs, initial), *scans]]
