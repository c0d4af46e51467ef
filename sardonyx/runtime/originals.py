"""Weights that were packed need not stay in memory as they were. A session lets go of them here, when it is ready to run.

What a file has is read from there again. What the optimizer has computed takes memory; should it be needed after all, because NumPy
computes a cluster on data that compiled code does not take, the model is loaded and optimized once more.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from sardonyx import settings
from sardonyx.dtypes import ElementType
from sardonyx.errors import Fail
from sardonyx.formats.files import Files
from sardonyx.ir import Model, Tensor
from sardonyx.ir.edit import all_graphs
from sardonyx.providers.prepacking import PrepackedWeightsContainer, Prepacking
from sardonyx.runtime import custom_ops
from sardonyx.runtime.loading import load_model
from sardonyx.runtime.options import SessionOptions
from sardonyx.runtime.plan import Plan

WORTH_RELEASING = 1 << 16
"""Smaller tensors stay."""


def open_prepacking(options: SessionOptions, container: PrepackedWeightsContainer | None) -> Prepacking:
    """How a session packs weights, as its options say."""
    config = options._config
    has_file = bool(options.optimized_model_filepath and config.get(settings.OPTIMIZED_MODEL_EXTERNAL_FILE))
    saving = has_file and config.is_on(settings.SAVE_PREPACKED)
    return Prepacking(container, enabled=not config.is_on(settings.DISABLE_PREPACKING), recording=saving)


class Originals:
    """The weights of an improved model. It knows where the model came from, and does not hold on to what the session made of it."""

    def __init__(self, model: Model, source: Any, options: SessionOptions, disabled: Collection[str], files: Files):
        self._source = source
        self._files = files
        self._options = options
        self._disabled = disabled
        self._tensors = set(_tensors(model))
        self._model: Model | None = None
        self._lock = threading.Lock()

    def release(self, plan: Plan, prepacking: Prepacking) -> None:
        """Let go of those that were packed and that no step of `plan` reads as they are."""
        read = {value.constant for one in _plans(plan) for value in one.values if value.constant is not None}
        supplied = {*self._options._initializers, *self._options._external_initializers}  # the user has them anyway
        for tensor in self._tensors & set(prepacking.sources()) - read:
            if tensor.name not in supplied and _is_heap(tensor):
                restore = functools.partial(self._restored, tensor.dtype, tensor.shape, prepacking.identify(tensor.peek()))
                tensor.release(functools.partial(restore, prepacking.identify))
        self._tensors.clear()

    def _restored(
        self, dtype: ElementType, shape: tuple[int, ...], wanted: str, identify: Callable[[np.ndarray], str]
    ) -> np.ndarray:
        with self._lock:
            if self._model is None:
                self._model = self._optimized()
            for tensor in _tensors(self._model):
                if tensor.dtype is dtype and tensor.shape == shape and identify(tensor.peek()) == wanted:
                    return tensor.numpy()
        raise Fail(
            f"Weights of type {dtype} and shape {list(shape)} were packed and are needed again as they were, but the model that was "
            "loaded for that does not have them: its file has changed."
        )

    def _optimized(self) -> Model:
        from sardonyx.optimizer.pipeline import Level
        from sardonyx.runtime.prepare import Optimization, improve

        options = self._options
        model = load_model(self._source, options, self._files)
        strict = options._config.is_on(settings.STRICT_INFERENCE)
        optimization = Optimization(Level(int(options.graph_optimization_level)), self._disabled, options._config.entries)
        with custom_ops.known(options._custom_ops):
            improve(model, (), strict=strict, optimization=optimization)
        return model


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
    """Whether a tensor holds an array of its own, and one that is worth the trouble."""
    if tensor.nbytes < WORTH_RELEASING or not tensor.is_loaded:  # who fetches it each time does not hold it
        return False
    array = tensor.peek()
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.base is None  # else it is memory that the model came in
