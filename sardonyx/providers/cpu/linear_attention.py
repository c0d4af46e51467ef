"""LinearAttention: attention as a recurrence over a state matrix per head, in NumPy."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.termination import watched


@cpu.kernel("LinearAttention", widen=True)
def linear_attention(
    query,
    key,
    value,
    past_state=None,
    decay=None,
    beta=None,
    *,
    kv_num_heads,
    q_num_heads,
    chunk_size=64,
    scale=0.0,
    update_rule="gated_delta",
):
    """`chunk_size` is a hint for other ways to compute the same recurrence."""
    if not kv_num_heads or q_num_heads % kv_num_heads:
        raise KernelError(f"q_num_heads {q_num_heads} is not a multiple of kv_num_heads {kv_num_heads}", InvalidArgument)
    batch, steps = query.shape[:2]
    queries = query.reshape(batch, steps, kv_num_heads, q_num_heads // kv_num_heads, query.shape[2] // q_num_heads)
    keys = key.reshape(batch, steps, kv_num_heads, key.shape[2] // kv_num_heads)
    values = value.reshape(batch, steps, kv_num_heads, value.shape[2] // kv_num_heads)
    gates, rates = _gates_and_rates(update_rule, decay, beta, keys)

    state = _initial_state(past_state, keys, values)
    output = np.empty((*queries.shape[:4], values.shape[3]), np.float32)
    for step in watched(range(steps)):
        step_key = keys[:, step, :, None, :]
        if gates is not None:
            state = gates[:, step] * state
        update = values[:, step, :, None, :]
        if rates is not None:
            update = rates[:, step] * (update - step_key @ state)
        state = state + step_key.swapaxes(-1, -2) * update
        output[:, step] = queries[:, step] @ state
    output *= np.float32(scale or 1.0 / math.sqrt(queries.shape[4]))
    return output.reshape(batch, steps, -1 if output.size else q_num_heads * values.shape[3]), state


def _initial_state(past_state, keys, values):
    if past_state is not None:
        return past_state
    batch, _, heads, key_size = keys.shape
    return np.zeros((batch, heads, key_size, values.shape[3]), np.float32)


def _gates_and_rates(update_rule, decay, beta, keys):
    """exp(decay) as (batch, step, head, key size or 1, 1) and beta as (batch, step, head or 1, 1, 1), None where the rule has none."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise KernelError(f"update_rule must be linear, gated, delta or gated_delta, not {update_rule!r}", InvalidArgument)
    if any(operand is not None and operand.ndim != 3 for operand in (decay, beta)):
        raise KernelError("decay and beta must have 3 axes", InvalidArgument)
    gates = rates = None
    batch, steps, heads, key_size = keys.shape
    if update_rule.startswith("gated"):
        if decay is None:
            raise KernelError(f"update_rule {update_rule!r} needs the input decay", InvalidArgument)
        per_key = decay.shape[2] == heads * key_size and key_size > 1
        gates = np.exp(decay).reshape(batch, steps, heads, key_size if per_key else 1, 1)
    if update_rule.endswith("delta"):
        if beta is None:
            raise KernelError(f"update_rule {update_rule!r} needs the input beta", InvalidArgument)
        rates = beta.reshape(batch, steps, beta.shape[2], 1, 1)
    return gates, rates
