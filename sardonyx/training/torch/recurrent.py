"""Layers of LSTM and GRU as ops of one layer and direction, which stay whole in traced graphs. The backend puts them in torch's place.

torch takes its own layers apart while it traces them, into some twenty ops for each step. Here `torch.lstm` and `torch.gru` in a graph that
dynamo has found are replaced by functions that call `sardonyx::lstm` and `sardonyx::gru`, whose gradients are ops too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.library import custom_op

LIBRARY = "sardonyx"


def keep_layers_whole(module: fx.GraphModule) -> None:
    """Replace the layers of a graph that have such ops. Others are taken apart by torch."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target in LAYERS and _is_plain(node):
            node.target = LAYERS[node.target]
    module.recompile()


def _is_plain(node: fx.Node) -> bool:
    """Whether inputs are no packed sequence, and states have the width of the layer."""
    has_all = len(node.args) == 9 and not node.kwargs
    if not has_all or not isinstance(node.args[2], (list, tuple)):
        return False
    _, _, weights, has_biases, layers, *_, is_bidirectional, _ = node.args
    each = 4 if has_biases else 2  # one more where states are projected
    return len(weights) == each * layers * (2 if is_bidirectional else 1)  # type: ignore[arg-type,operator]


def lstm(input: Tensor, hx: Sequence[Tensor], *form: Any) -> tuple[Tensor, ...]:
    """What torch.lstm computes."""
    return _layers(_lstm_way, input, hx, *form)


def gru(input: Tensor, hx: Tensor, *form: Any) -> tuple[Tensor, ...]:
    """What torch.gru computes."""
    return _layers(_gru_way, input, (hx,), *form)


LAYERS: dict[Any, Callable[..., Any]] = {torch.lstm: lstm, torch.gru: gru}


def _layers(
    way: Callable[..., tuple[Tensor, ...]],
    input: Tensor,
    hx: Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Layer upon layer; the results of both directions lie side by side."""
    steps = input.transpose(0, 1) if batch_first else input
    ways, each = (2 if bidirectional else 1), (4 if has_biases else 2)
    finals: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        outputs = []
        for number in range(layer * ways, (layer + 1) * ways):
            weights = [*params[number * each : (number + 1) * each], None, None][:4]
            output, *final = way(steps, [state[number] for state in hx], weights, number % ways == 1)
            outputs.append(output)
            finals.append(tuple(final))
        steps = torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
        if dropout and train and layer + 1 < num_layers:
            steps = torch.dropout(steps, dropout, True)
    output = steps.transpose(0, 1) if batch_first else steps
    return output, *(torch.stack(states) for states in zip(*finals))


def _lstm_way(
    steps: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor | None], is_reverse: bool
) -> tuple[Tensor, ...]:
    return torch.ops.sardonyx.lstm(steps, *states, *weights, is_reverse)[:3]  # type: ignore[no-any-return]


def _gru_way(steps: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor | None], is_reverse: bool) -> tuple[Tensor, ...]:
    return torch.ops.sardonyx.gru(steps, *states, *weights, is_reverse)[:2]  # type: ignore[no-any-return]


# --- the ops; torch itself computes them step by step, where a graph is not compiled


def _gates(x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, count: int) -> Any:
    """The gates' parts of the input and of the state."""
    linear = torch.nn.functional.linear
    return linear(x, w_ih, b_ih).chunk(count, -1), linear(h, w_hh, b_hh).chunk(count, -1)


def _times(input: Tensor, reverse: bool) -> Sequence[int]:
    return range(len(input) - 1, -1, -1) if reverse else range(len(input))


def _in_time(parts: list[Tensor], reverse: bool, like: Tensor, width: int) -> Tensor:
    """What steps gave, in the order of time."""
    if not parts:
        return like.new_empty(0, like.shape[1], width)
    return torch.stack(parts[::-1] if reverse else parts)


@custom_op(f"{LIBRARY}::lstm", mutates_args=())  # type: ignore[untyped-decorator]
def lstm_op(
    input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """All h, the last h and c, and for the way back all c and the gates i, f, g, o."""
    states: list[Tensor] = []
    cells: list[Tensor] = []
    every: list[Tensor] = []
    for t in _times(input, reverse):
        by_input, by_state = _gates(input[t], h, w_ih, w_hh, b_ih, b_hh, 4)
        i, f, g, o = (a + b for a, b in zip(by_input, by_state))
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        for parts, part in ((states, h), (cells, c), (every, torch.cat([i, f, g, o], -1))):
            parts.append(part)
    width = w_hh.shape[1]
    all_h, all_c = (_in_time(parts, reverse, input, width) for parts in (states, cells))
    return all_h, h.clone(), c.clone(), all_c, _in_time(every, reverse, input, 4 * width)


@lstm_op.register_fake
def _(input, h, c, w_ih, w_hh, b_ih, b_hh, reverse):  # type: ignore[no-untyped-def]
    steps, batch, _ = input.shape
    every = input.new_empty(steps, batch, w_hh.shape[1])
    return every, torch.empty_like(h), torch.empty_like(c), torch.empty_like(every), input.new_empty(steps, batch, len(w_hh))


@custom_op(f"{LIBRARY}::lstm_backward", mutates_args=())  # type: ignore[untyped-decorator]
def lstm_backward_op(
    d_states: Tensor | None,
    d_h: Tensor | None,
    d_c: Tensor | None,
    input: Tensor,
    h: Tensor,
    c: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    states: Tensor,
    cells: Tensor,
    gates: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by input, h, c, w_ih, w_hh and each bias."""
    dh = torch.zeros_like(h) if d_h is None else d_h.clone()
    dc = torch.zeros_like(c) if d_c is None else d_c.clone()
    by_gates = torch.zeros_like(gates)
    order = list(_times(input, reverse))
    before_h, before_c = torch.zeros_like(states), torch.zeros_like(cells)
    for place, t in reversed(list(enumerate(order))):
        before_h[t], before_c[t] = (states[order[place - 1]], cells[order[place - 1]]) if place else (h, c)
        i, f, g, o = gates[t].chunk(4, -1)
        dh = dh if d_states is None else dh + d_states[t]
        bent = cells[t].tanh()
        dc = dc + dh * o * (1 - bent * bent)
        parts = (dc * g * i * (1 - i), dc * before_c[t] * f * (1 - f), dc * i * (1 - g * g), dh * bent * o * (1 - o))
        by_gates[t] = torch.cat(parts, -1)
        dh, dc = by_gates[t] @ w_hh, dc * f
    rows = by_gates.flatten(0, 1)
    return by_gates @ w_ih, dh, dc, rows.T @ input.flatten(0, 1), rows.T @ before_h.flatten(0, 1), rows.sum(0)


@lstm_backward_op.register_fake
def _(d_states, d_h, d_c, input, h, c, w_ih, w_hh, states, cells, gates, reverse):  # type: ignore[no-untyped-def]
    like = [torch.empty_like(tensor) for tensor in (input, h, c, w_ih, w_hh)]
    return *(one.contiguous() for one in like), input.new_empty(len(w_hh))


def _keep_lstm(ctx: Any, inputs: Any, output: Any) -> None:
    input, h, c, w_ih, w_hh, b_ih, _, ctx.reverse = inputs
    ctx.has_bias = b_ih is not None
    states, _, _, cells, gates = output
    ctx.save_for_backward(input, h, c, w_ih, w_hh, states, cells, gates)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(cells, gates)


def _lstm_grad(ctx: Any, d_states: Any, d_h: Any, d_c: Any, *_: Any) -> tuple[Any, ...]:
    found = torch.ops.sardonyx.lstm_backward(d_states, d_h, d_c, *ctx.saved_tensors, ctx.reverse)
    bias = found[5] if ctx.has_bias else None
    return *found[:5], bias, bias, None


lstm_op.register_autograd(_lstm_grad, setup_context=_keep_lstm)


@custom_op(f"{LIBRARY}::gru", mutates_args=())  # type: ignore[untyped-decorator]
def gru_op(
    input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """All h, the last h, and for the way back the gates r, z, n."""
    states: list[Tensor] = []
    every: list[Tensor] = []
    for t in _times(input, reverse):
        by_input, by_state = _gates(input[t], h, w_ih, w_hh, b_ih, b_hh, 3)
        r, z = ((by_input[number] + by_state[number]).sigmoid() for number in range(2))
        n = (by_input[2] + r * by_state[2]).tanh()
        h = (1 - z) * n + z * h
        states.append(h)
        every.append(torch.cat([r, z, n], -1))
    width = w_hh.shape[1]
    return _in_time(states, reverse, input, width), h.clone(), _in_time(every, reverse, input, 3 * width)


@gru_op.register_fake
def _(input, h, w_ih, w_hh, b_ih, b_hh, reverse):  # type: ignore[no-untyped-def]
    steps, batch, _ = input.shape
    return input.new_empty(steps, batch, w_hh.shape[1]), torch.empty_like(h), input.new_empty(steps, batch, len(w_hh))


@custom_op(f"{LIBRARY}::gru_backward", mutates_args=())  # type: ignore[untyped-decorator]
def gru_backward_op(
    d_states: Tensor | None,
    d_h: Tensor | None,
    input: Tensor,
    h: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_hh: Tensor | None,
    states: Tensor,
    gates: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients by input, h, w_ih, w_hh and both biases."""
    dh = torch.zeros_like(h) if d_h is None else d_h.clone()
    by_gates, by_products = torch.zeros_like(gates), torch.zeros_like(gates)
    order, before, width = list(_times(input, reverse)), torch.zeros_like(states), w_hh.shape[1]
    own = None if b_hh is None else b_hh[2 * width :]
    for place, t in reversed(list(enumerate(order))):
        before[t] = states[order[place - 1]] if place else h
        r, z, n = gates[t].chunk(3, -1)
        dh = dh if d_states is None else dh + d_states[t]
        dn = dh * (1 - z) * (1 - n * n)
        product = torch.nn.functional.linear(before[t], w_hh[2 * width :], own)
        both = torch.cat([dn * product * r * (1 - r), dh * (before[t] - n) * z * (1 - z)], -1)
        by_gates[t], by_products[t] = torch.cat([both, dn], -1), torch.cat([both, dn * r], -1)
        dh = dh * z + by_products[t] @ w_hh
    rows, products = by_gates.flatten(0, 1), by_products.flatten(0, 1)
    by_weights = rows.T @ input.flatten(0, 1), products.T @ before.flatten(0, 1)
    return by_gates @ w_ih, dh, *by_weights, rows.sum(0), products.sum(0)


@gru_backward_op.register_fake
def _(d_states, d_h, input, h, w_ih, w_hh, b_hh, states, gates, reverse):  # type: ignore[no-untyped-def]
    like = [torch.empty_like(tensor).contiguous() for tensor in (input, h, w_ih, w_hh)]
    return *like, input.new_empty(len(w_hh)), input.new_empty(len(w_hh))


def _keep_gru(ctx: Any, inputs: Any, output: Any) -> None:
    input, h, w_ih, w_hh, _, b_hh, ctx.reverse = inputs
    states, _, gates = output
    ctx.has_bias = b_hh is not None
    ctx.save_for_backward(input, h, w_ih, w_hh, b_hh, states, gates)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates)


def _gru_grad(ctx: Any, d_states: Any, d_h: Any, *_: Any) -> tuple[Any, ...]:
    found = torch.ops.sardonyx.gru_backward(d_states, d_h, *ctx.saved_tensors, ctx.reverse)
    return *found[:4], *(found[4:] if ctx.has_bias else (None, None)), None


gru_op.register_autograd(_gru_grad, setup_context=_keep_gru)

RECURRENT_OPS = frozenset({torch.ops.sardonyx.lstm.default, torch.ops.sardonyx.gru.default})
"""What a traced graph has in place of layers."""
