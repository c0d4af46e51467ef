"""Gradients of LSTM and GRU: the way back through time as one step, and around it products over all steps at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.compiler.types import F32, F64
from sardonyx.ir import Dim, Node, Value, dim
from sardonyx.ops.reading import input_named, operand
from sardonyx.providers.native.kernels.recurrent.backward import BLOCK_ROWS, Way, WayArguments, backward_kernel
from sardonyx.providers.native.kernels.recurrent.operators import ITEM_WORK
from sardonyx.providers.native.kernels.recurrent.state import StateArguments
from sardonyx.providers.native.program.composition import Composer, compose
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import dims, element_of, fixed, required, shape_of
from sardonyx.providers.native.program.views import View

CONTRIB, OURS = "com.microsoft", "sardonyx"
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


# --- the way back


def _claims_way(node: Node) -> bool:
    values = [value for value in (*node.inputs, *node.outputs) if value is not None and value.name]
    if {element_of(value) for value in values} not in ({F32}, {F64}) or operand(node, "direction") not in DIRECTIONS:
        return False
    R, gates = shape_of(required(node.inputs[0])), shape_of(required(input_named(node, "gates")))
    if R is None or gates is None or len(R) != 3 or len(gates) != 4 or not all(isinstance(size, int) for size in R):
        return False
    count = 4 if node.op_type == "LSTMStepsGrad" else 3
    return R[0] == DIRECTIONS[operand(node, "direction")] and R[1] == count * R[2] and int(R[2]) > 0  # type: ignore[arg-type,operator]


@lower("LSTMStepsGrad", "GRUStepsGrad", domain=OURS, claims=_claims_way)
def steps_grad(lowerer: Lowerer, node: Node) -> None:
    is_lstm = node.op_type == "LSTMStepsGrad"
    directions, _, hidden = (fixed(size, "the size of R") for size in dims(required(node.inputs[0])))
    steps, _, batch, _ = dims(required(input_named(node, "gates")))
    every, single = (steps, directions, batch, hidden), (directions, batch, hidden)
    count = 4 if is_lstm else 3

    def given(name: str, *shape: Dim) -> View | None:
        value = input_named(node, name)
        if value is None:
            return None
        lowerer.require_shape(dims(value), shape)
        return lowerer.contiguous(value)

    def place(view: View | None) -> Any:
        return None if view is None else view.place

    weights, gates = given("R", directions, count * hidden, hidden), given("gates", *every[:3], count * hidden)
    states = given("CAll" if is_lstm else "HAll", *every)
    initial = given("Ct0" if is_lstm else "H0", *single)
    candidates = None if is_lstm else given("candidates", *every)
    steps_grad, final_h = given("dHAll", *every), given("dHFinal", *single)
    final_c = given("dCFinal", *single) if is_lstm else None
    outputs = [lowerer.output(value) for value in node.outputs]
    assert weights is not None and gates is not None and states is not None
    way = Way("LSTM" if is_lstm else "GRU", gates.type, steps_grad is not None, (final_h is not None, final_c is not None))
    blocks, work = dim.ceildiv(batch, BLOCK_ROWS), count * hidden * hidden
    lowerer.call(
        backward_kernel(lowerer.target, way),
        WayArguments(
            steps=steps,
            batch=batch,
            hidden=hidden,
            directions=directions,
            reverse={"reverse": 0, "bidirectional": 1}.get(operand(node, "direction"), directions),
            blocks=dim.maximum(1, blocks),
            weights=weights.place,
            gates=gates.place,
            states=states.place,
            initial=_initial(lowerer, initial, hidden),
            candidates=place(candidates),
            steps_grad=place(steps_grad),
            final_h_grad=place(final_h),
            final_c_grad=place(final_c),
            gates_grad=outputs[0].place,
            products_grad=None if is_lstm else outputs[1].place,
            h_grad=outputs[1 if is_lstm else 2].place,
            c_grad=outputs[2].place if is_lstm else None,
        ),
        directions * blocks,
        dim.ceildiv(ITEM_WORK, dim.maximum(1, steps * BLOCK_ROWS * work)),
        flops=2 * steps * batch * directions * work,
        traffic=steps * directions * work * gates.type.bytes,
    )


def _initial(lowerer: Lowerer, view: View | None, hidden: int) -> StateArguments:
    """An initial state, zeros if it is absent."""
    if view is None:
        zeros = np.zeros(hidden, np.float64)  # as many zero bytes as the widest type needs
        return StateArguments(place=lowerer.constant(zeros), direction_stride=0, row_stride=0)
    return StateArguments(place=view.place, direction_stride=view.strides[0], row_stride=view.strides[1])


# --- whole layers


def _claims_layer(node: Node) -> bool:
    """The activations that training knows, and rows that are all of one length."""
    defaults = ("sigmoid", "tanh", "tanh") if node.op_type == "LSTMGrad" else ("sigmoid", "tanh")
    names = [str(name).lower() for name in operand(node, "activations") or ()]
    is_usual = all(name == defaults[place % len(defaults)] for place, name in enumerate(names))
    return is_usual and not operand(node, "clip") and not operand(node, "input_forget") and input_named(node, "SL") is None


@compose("LSTMGrad", domain=CONTRIB, claims=_claims_layer)
def lstm_grad(
    op: Composer,
    X: Value,
    W: Value,
    R: Value,
    Ht0: Value | None,
    Ct0: Value | None,
    HAll: Value,
    CAll: Value,
    iofc: Value,
    dHAll: Value | None,
    dHFinal: Value | None,
    dCFinal: Value | None,
    direction: str,
) -> Sequence[Value]:
    operands: dict[str, Any] = {"Ct0": Ct0, "dHAll": dHAll, "dHFinal": dHFinal, "dCFinal": dCFinal, "direction": direction}
    gates, dH0, dC0 = op.node("LSTMStepsGrad", R, iofc, CAll, domain=OURS, outputs=3, **operands)
    before = _states_before(op, HAll, Ht0, direction)
    by_gates = _by_direction(op, gates)
    bias = op.ReduceSum(by_gates, axes=[1], keepdims=0)
    dX, dW = _by_inputs(op, by_gates, X, W)
    return dX, dW, _outer(op, by_gates, _by_direction(op, before)), op.Concat(bias, bias, axis=1), dH0, dC0


@compose("GRUGrad", domain=CONTRIB, claims=lambda node: _claims_layer(node) and bool(operand(node, "linear_before_reset")))
def gru_grad(
    op: Composer,
    X: Value,
    W: Value,
    R: Value,
    B: Value | None,
    H0: Value | None,
    HAll: Value,
    ZRH: Value,
    dHAll: Value | None,
    dHFinal: Value | None,
    direction: str,
) -> Sequence[Value]:
    before = _states_before(op, HAll, H0, direction)
    rows = _by_direction(op, before)
    hidden = fixed(dims(R)[2], "the size of R")
    weights = op.Slice(R, starts=[2 * hidden], ends=[3 * hidden], axes=[1])
    product = op.MatMul(rows, op.Transpose(weights, perm=[0, 2, 1]))
    if B is not None:
        own = op.Slice(B, starts=[5 * hidden], ends=[6 * hidden], axes=[1])
        product = op.Add(product, op.Unsqueeze(own, axes=[1]))
    operands: dict[str, Any] = {"H0": H0, "dHAll": dHAll, "dHFinal": dHFinal, "direction": direction}
    candidates = _by_steps(op, product, dims(HAll))
    gates, products, dH0 = op.node("GRUStepsGrad", R, ZRH, HAll, candidates, domain=OURS, outputs=3, **operands)
    by_gates, by_products = _by_direction(op, gates), _by_direction(op, products)
    biases = [op.ReduceSum(parts, axes=[1], keepdims=0) for parts in (by_gates, by_products)]
    dX, dW = _by_inputs(op, by_gates, X, W)
    return dX, dW, _outer(op, by_products, rows), op.Concat(*biases, axis=1), dH0


def _by_direction(op: Composer, value: Value) -> Value:
    """(steps, directions, rows, units) as (directions, steps · rows, units)."""
    steps, directions, rows, units = dims(value)
    return op.reshape(op.Transpose(value, perm=[1, 0, 2, 3]), directions, steps * rows, units)


def _by_steps(op: Composer, value: Value, shape: Sequence[Dim]) -> Value:
    """The inverse."""
    steps, directions, rows, units = shape
    made: Value = op.Transpose(op.reshape(value, directions, steps, rows, units), perm=[1, 0, 2, 3])
    return made


def _outer(op: Composer, gates: Value, factors: Value) -> Value:
    made: Value = op.MatMul(op.Transpose(gates, perm=[0, 2, 1]), factors)
    return made


def _by_inputs(op: Composer, gates: Value, X: Value, W: Value) -> tuple[Value, Value]:
    """The gradients by the inputs of all steps, and by their weights."""
    steps, rows, units = dims(X)
    by_x = op.ReduceSum(op.MatMul(gates, W), axes=[0], keepdims=0)
    return op.reshape(by_x, steps, rows, units), _outer(op, gates, op.reshape(X, 1, steps * rows, units))


def _states_before(op: Composer, states: Value, initial: Value | None, direction: str) -> Value:
    """The states before each step."""
    _, directions, rows, units = dims(states)
    if initial is None:
        initial = op.Expand(op.number(0, states), op.sizes(directions, rows, units))
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    parts = []
    for number, is_reverse in enumerate(ways):
        of_way = {"starts": [number], "ends": [number + 1]}
        mine = op.Slice(states, axes=[1], **of_way) if len(ways) > 1 else states
        first = op.Unsqueeze(op.Slice(initial, axes=[0], **of_way) if len(ways) > 1 else initial, axes=[0])
        if is_reverse:
            parts.append(op.Concat(op.Slice(mine, starts=[1], ends=[2**31], axes=[0]), first, axis=0))
        else:
            parts.append(op.Concat(first, op.Slice(mine, starts=[0], ends=[-1], axes=[0]), axis=0))
    made: Value = op.Concat(*parts, axis=1) if len(parts) > 1 else parts[0]
    return made
