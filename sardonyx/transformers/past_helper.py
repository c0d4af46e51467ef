"""Keys and values that a decoder keeps from step to step: their names and their groups. Values may be of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class PastKeyValuesHelper:
    """Groups are by layer (key and value of self attention, then of cross attention) or all of self before all of cross."""

    @staticmethod
    def get_past_names(num_layers: int, present: bool = False) -> list[str]:
        """Names of inputs, or of outputs where `present`: all of self attention, then all of cross attention."""
        time = "present" if present else "past"
        return [
            f"{time}_{part}_{kind}_{layer}"
            for kind in ("self", "cross")
            for layer in range(num_layers)
            for part in ("key", "value")
        ]

    @staticmethod
    def group_by_self_or_cross(present_key_values: Sequence[Sequence[Any]]) -> tuple[list[Any], list[Any]]:
        """Of layers with two or four tensors each, those of self attention and those of cross attention."""
        own = [tensor for layer in present_key_values for tensor in layer[:2]]
        cross = [tensor for layer in present_key_values for tensor in layer[2:4]]
        return own, cross

    @staticmethod
    def group_by_layer(past: Sequence[Any], num_layers: int) -> list[list[Any]]:
        """Four tensors for each layer, out of all of self attention and then all of cross attention."""
        if len(past) != 4 * num_layers:
            raise AssertionError(f"{4 * num_layers} tensors are wanted for {num_layers} layers, there are {len(past)}")
        cross = 2 * num_layers
        return [
            [*past[2 * layer : 2 * layer + 2], *past[cross + 2 * layer : cross + 2 * layer + 2]] for layer in range(num_layers)
        ]

    @staticmethod
    def back_group_by_layer(past_key_values: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """The reverse of `group_by_layer`."""
        own, cross = PastKeyValuesHelper.group_by_self_or_cross(past_key_values)
        return (*own, *cross)

    @staticmethod
    def group_by_self_and_cross(present_key_values: Sequence[Sequence[Any]], concat: bool = False) -> Any:
        """The tensors of self attention and those of cross attention, apart or in one list."""
        own, cross = PastKeyValuesHelper.group_by_self_or_cross(present_key_values)
        return own + cross if concat else (own, cross)

    @staticmethod
    def get_input_names(past_key_values: Sequence[Sequence[Any]], encoder: bool = True) -> list[str]:
        """Names of outputs of an encoder, or of inputs of a decoder, in the order of the layers."""
        names = []
        for layer in range(len(past_key_values)):
            kinds = ("self", "cross") if len(past_key_values[layer]) > 2 else ("self",)
            names += [f"{part}_{kind}_{layer}" for kind in kinds for part in ("key", "value")]
        return [f"{'present' if encoder else 'past'}_{name}" for name in names]
