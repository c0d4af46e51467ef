"""Weights that were packed need not stay in memory as they were. A session lets go of them here, when it is ready to run.

What a file has is read from there again. What the optimizer has computed takes memory; should it be needed after all, because NumPy
computes a cluster on data that compiled code does not take, the model is loaded and optimized once more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.ir import Model, Tensor
from sardonyx.ir.graph import all_graphs
from sardonyx.providers.prepacking import Prepacking
from sardonyx.runtime.preparation.plan import Plan
from sardonyx.runtime.preparation.prepare import Prepared, prepare
from sardonyx.startup.locks import Lock

WORTH_RELEASING = 1 << 16
"""Smaller tensors stay."""


class Originals:
    """The weights of an optimized model. It knows the recipe, and does not hold on to what the session made of it."""

    def __init__(self, prepared: Prepared):
        self._recipe = prepared.recipe.for_weights()
        self._tensors = set(_tensors(prepared.model))
        self._model: Model | None = None
        self._lock = Lock()

    def release(self, prepared: Prepared) -> None:
        """Release the weights that were packed, unless a step of the plan reads the originals. Nothing is packed after that."""
        plan, packing = prepared.plan, prepared.recipe.packing
        assert plan is not None
        if not any(provider.standard_ops_only for provider in prepared.recipe.providers):
            self._release(plan, packing)
        packing.finish()

    def _release(self, plan: Plan, packing: Prepacking) -> None:
        read = {value.constant for inner in _plans(plan) for value in inner.values if value.constant is not None}
        options = self._recipe.options
        supplied = {*options._initializers, *options._external_initializers}  # the user has them anyway
        for tensor in self._tensors & set(packing.sources()) - read:
            if tensor.name not in supplied and _is_heap(tensor):
                restore = functools.partial(self._restored, tensor.dtype, tensor.shape, packing.identify(tensor.peek()))
                tensor.release(functools.partial(restore, packing.identify))
        self._tensors.clear()

    def _restored(
        self, dtype: ElementType, shape: tuple[int, ...], wanted: str, identify: Callable[[np.ndarray], str]
    ) -> np.ndarray:
        with self._lock:
            if self._model is None:
                self._model = prepare(self._recipe, upto="optimize").model
            for tensor in _tensors(self._model):
                if tensor.dtype is dtype and tensor.shape == shape and identify(tensor.peek()) == wanted:
                    return tensor.numpy()
        raise Fail(
            f"Weights of type {dtype} and shape {list(shape)} were packed and are needed again as they were, but the model that was "
            "loaded for that does not have them: its file has changed."
        )


def _plans(plan: Plan) -> Iterator[Plan]:
    yield plan
    for step in plan.steps:
        for body in step.bodies.values():
            yield from _plans(body)


def _tensors(model: Model) -> Iterator[Tensor]:
    for graph in all_graphs(model.graph):
        for value in graph.initializers.values():
            if value.constant is not None:
                yield value.constant


def _is_heap(tensor: Tensor) -> bool:
    """Whether a tensor holds an array of its own that is large enough to be worth releasing."""
    if tensor.nbytes < WORTH_RELEASING or not tensor.is_loaded:  # who fetches it each time does not hold it
        return False
    array = tensor.peek()
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None  # else it is memory that the model came in
