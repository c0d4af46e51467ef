"""Runs of lowered graphs: tensors in, tensors out."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from sardonyx import settings
from sardonyx.compiler.arrays import OBJECTS_ARE_OPEN
from sardonyx.dtypes import bfloat16
from sardonyx.providers.native.execution.addresses import AddressedProgram
from sardonyx.providers.native.execution.arenas import Arenas
from sardonyx.providers.native.execution.compiled import CompiledProgram
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.api.raw_session import RawSession
from sardonyx.runtime.execution.direct import Direct
from sardonyx.runtime.preparation.plan import all_steps
from sardonyx.startup.locks import Lock
from sardonyx.training.torch.graphs import Lowered, Source, View
from sardonyx.training.torch.options import Options
from sardonyx.training.torch.sizes import evaluated
from sardonyx.training.torch.tensors import array_of, tensor_of
from sardonyx.training.torch.types import ELEMENT_TYPES


def session_of(lowered: Lowered, options: Options) -> RawSession:
    session_options = SessionOptions()
    session_options.intra_op_num_threads = options.threads or torch.get_num_threads()
    session_options.add_session_config_entry(settings.ALLOW_SPINNING, "0")  # torch's threads work between runs
    session_options.log_severity_level = options.log_severity_level
    session = RawSession(session_options, lowered.model)
    session.initialize_session()
    return session


_in_use: weakref.WeakSet[Arenas] = weakref.WeakSet()
_sharing = Lock()


def share_arenas(session: RawSession) -> Arenas:
    """Let all graphs of the process borrow from the same arenas: they run one after the other. Whoever runs a graph keeps these alive."""
    with _sharing:
        arenas = next(iter(_in_use), None) or Arenas()
        _in_use.add(arenas)
    for step in all_steps(session.plan):
        if isinstance(step.call, CompiledProgram):
            step.call.share(arenas)
    return arenas


class Runner:
    """A compiled graph as aot_autograd calls it: with one list, which is emptied so that tensors can go early."""

    def __init__(self, lowered: Lowered, options: Options):
        self._boxed_call = True  # of the object: wrappers copy what it has, not what its class has
        self.lowered = lowered
        names = [value.name for value in lowered.model.graph.inputs]
        self.session = session_of(lowered, options) if lowered.model.graph.outputs else None
        self.arenas = None if self.session is None else share_arenas(self.session)
        count, sizes = len(lowered.feeds), len(lowered.sizes)
        self._feeds = [(name, fed.position, fed.order) for name, fed in zip(names, lowered.feeds)]
        self._sizes = list(zip(names[count : count + sizes], lowered.sizes))
        self._draws = list(zip(names[count + sizes :], lowered.draws))
        self._program, self._crossing = self._addressed()
        has_rounded = any(getattr(value.type, "dtype", None) is bfloat16 for value in lowered.model.graph.outputs)
        self._to_tensor = tensor_of if has_rounded else torch.from_numpy

    def _addressed(self) -> tuple[AddressedProgram | None, list[tuple[int, torch.dtype, tuple[int, ...] | None]]]:
        """The program that is all of the graph, if it can be told addresses, with place, type and order of what it takes."""
        direct = None if self.session is None or self._sizes or self._draws else self.session.direct
        if not OBJECTS_ARE_OPEN or not isinstance(direct, Direct):
            return None, []
        program = getattr(direct.program, "__self__", None)
        if type(program) is not CompiledProgram:  # there may be more to the plan; and programs with texts look into arrays
            return None, []
        feeds = {name: (position, order) for name, position, order in self._feeds}
        kinds: dict[Any, torch.dtype] = {np.dtype(ours.numpy): theirs for theirs, ours in ELEMENT_TYPES.items()}
        crossing = [(feeds[name][0], kinds[kind], feeds[name][1]) for name, kind in direct.inputs]
        return AddressedProgram(program, len(crossing), direct.order), crossing

    def _run_at_addresses(self, program: AddressedProgram, inputs: Sequence[Any]) -> list[Any] | None:
        """The outputs, or None if the run must take the way by arrays, which also finds the errors."""
        shapes, addresses, held = [], [], []
        for position, dtype, order in self._crossing:
            tensor = inputs[position]
            if order is not None:
                tensor = tensor.permute(order)
            if tensor.dtype is not dtype:
                return None
            if not tensor.is_contiguous():
                tensor = tensor.contiguous()
                held.append(tensor)
            address = tensor.data_ptr()
            if not address and tensor.numel():
                return None
            addresses.append(address)
            shapes.append(tensor.shape)
        return program(tuple(shapes), addresses)

    def __call__(self, *arguments: Any) -> list[Any]:
        inputs = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list) else list(arguments)
        lowered = self.lowered
        symbols = {name: _read(inputs, *place) for name, place in lowered.symbols.items()} if lowered.symbols else {}
        outputs = self._run(inputs, symbols)
        views: list[Any] = []

        def found(source: Source) -> Any:
            kind, which = source
            if kind == "output":
                return outputs[which]
            if kind == "view":
                return views[which]
            if kind == "input":
                return inputs[which]
            return evaluated(which, symbols) if kind == "size" else which

        for view in lowered.views:
            views.append(_viewed(view, found(view.base), symbols))
        results = [found(source) for source in lowered.results]
        inputs.clear()
        return results

    def _run(self, inputs: Sequence[Any], symbols: Mapping[str, int]) -> list[torch.Tensor]:
        if self.session is None:
            return []
        if self._program is not None:
            outputs = self._run_at_addresses(self._program, inputs)
            if outputs is not None:
                return list(map(self._to_tensor, outputs))
        feeds = {name: array_of(inputs[position], order) for name, position, order in self._feeds}
        for name, symbol in self._sizes:
            feeds[name] = np.array([symbols[symbol]], np.int64)
        for name, drawing in self._draws:
            shape = [evaluated(size, symbols) for size in drawing.shape]
            feeds[name] = array_of(drawing.draw(shape, drawing.dtype))
        direct = self.session.direct
        arrays = None if direct is None else direct(feeds)
        return [tensor_of(array) for array in (self.session.compute(None, feeds) if arrays is None else arrays)]


def _read(inputs: Sequence[Any], position: int, axis: int | None) -> int:
    return int(inputs[position] if axis is None else inputs[position].shape[axis])


def _viewed(view: View, base: torch.Tensor, symbols: Mapping[str, int]) -> torch.Tensor:
    if not view.is_open:
        return view.function(base, *view.arguments, **view.keywords)
    arguments = [_in_run(argument, symbols) for argument in view.arguments]
    keywords = {name: _in_run(argument, symbols) for name, argument in view.keywords.items()}
    return view.function(base, *arguments, **keywords)


def _in_run(argument: Any, symbols: Mapping[str, int]) -> Any:
    if isinstance(argument, (list, tuple)):
        return [_in_run(part, symbols) for part in argument]
    return evaluated(argument, symbols) if isinstance(argument, torch.SymInt) else argument
