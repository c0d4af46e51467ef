"""The runs of a prepared model. An engine only adds plans once it has one, so any number of threads may run it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx import settings
from sardonyx.errors import CODED, Fail, InvalidArgument, unforeseen
from sardonyx.ir import OptionalType, Type, Value
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.providers.termination import TERMINATED
from sardonyx.runtime.api import arguments, log
from sardonyx.runtime.api.devices import OrtEpDevice, OrtMemoryInfo, cpu_memory_info, get_ep_devices
from sardonyx.runtime.api.enums import ExecutionMode
from sardonyx.runtime.api.iobinding import SessionIOBinding
from sardonyx.runtime.api.metadata import ModelMetadata, NodeArg, OrtEpAssignedSubgraph
from sardonyx.runtime.api.options import RunOptions, SessionOptions
from sardonyx.runtime.api.profile import Profiler
from sardonyx.runtime.api.value import OrtValue, OrtValueVector
from sardonyx.runtime.execution import background
from sardonyx.runtime.execution.destinations import Bound
from sardonyx.runtime.execution.direct import Direct
from sardonyx.runtime.execution.executor import Destinations, execute
from sardonyx.runtime.execution.feeds import convert
from sardonyx.runtime.execution.results import release
from sardonyx.runtime.execution.shares import TimeShares
from sardonyx.runtime.execution.succession import Succession
from sardonyx.runtime.preparation.copies import is_copy
from sardonyx.runtime.preparation.names import SharedNames
from sardonyx.runtime.preparation.plan import Plan, Step, all_steps, compiled_steps, shrink
from sardonyx.runtime.preparation.prepare import Prepared
from sardonyx.runtime.preparation.providers import CPU_PROVIDER
from sardonyx.runtime.preparation.recipe import Shapes, Values
from sardonyx.runtime.preparation.specialized import Specialized
from sardonyx.runtime.preparation.suppositions import Run

if TYPE_CHECKING:
    from sardonyx.runtime.preparation.alternatives import Alternatives
    from sardonyx.runtime.saving.contexts import Compiled

MAX_FETCHES = 64
"""How many different choices of outputs keep their own plan."""

logger = logging.getLogger("sardonyx.runtime")


class Engine:
    """A model ready to run."""

    session_options: SessionOptions
    _profiler: Profiler | None

    def _scope(self) -> contextlib.AbstractContextManager[None]:
        return log.scope(self.session_options.logid, self.session_options.log_severity_level)

    def _event(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._profiler is None else self._profiler.event(name)

    def take(self, prepared: Prepared, others: Alternatives) -> None:
        """Be ready to run what was prepared; `others` makes what a run may need besides."""
        assert prepared.plan is not None
        recipe, graph = prepared.recipe, prepared.model.graph
        defaults = prepared.defaults if recipe.compiled is None else recipe.compiled.defaults
        self._plan: Plan | None = prepared.plan
        self.providers = recipe.providers
        self.prepacking = recipe.packing
        """What happened to constant weights."""
        self.journal = prepared.journal
        """What the optimizer did, if it was asked."""
        self._model, self._defaults, self._compiled, self._others = prepared.model, defaults, recipe.compiled, others
        self._specialized = None if recipe.compiled is not None else Specialized.of(prepared.plan)
        can_give_way = recipe.source is not None and (recipe.compiled is None or recipe.compiled.stands_in)
        can_give_way = can_give_way and self._profiler is None
        names = SharedNames.of(graph.inputs) if can_give_way else None
        calls = [step.call for step in compiled_steps(prepared.plan)] if can_give_way else []
        self._succession = Succession(names, calls, others)
        self._suppositions = prepared.suppositions if recipe.compiled is None else recipe.compiled.suppositions
        self.inputs: dict[str, Value] = {value.name: value for value in graph.inputs} | (defaults.inputs if defaults else {})
        """What may be fed, by name."""
        required = [value for value in graph.inputs if value.constant is None]
        overridable = [value for value in graph.inputs if value.constant is not None]
        self._required = [value for value in required if not isinstance(value.type, OptionalType)]
        self.required_names = [value.name for value in self._required]
        self.output_names = tuple(value.name for value in graph.outputs)
        self.output_list = list(self.output_names)
        self.inputs_meta = [self._described(value) for value in required]
        general = (self.journal.outputs if self.journal else ()) or [value.type for value in graph.outputs]
        self.outputs_meta = [self._described(value, type) for value, type in zip(graph.outputs, general, strict=True)]
        self.overridable_initializers = defaults.described if defaults else [NodeArg._of(value) for value in overridable]
        self.model_meta = ModelMetadata(self._model)
        self._types = {value.name: value.type for value in graph.values()}
        self._fetches: dict[tuple[str, ...], Plan] = {}
        self.direct: Run | None = self._direct_of(prepared.plan)
        self.shares: TimeShares | None = None
        """How the time of the first run divided, if any of it was NumPy's."""
        self._measures = _compiles(recipe.providers) and any(step.in_numpy for step in all_steps(prepared.plan))

    def _described(self, value: Value, type: Type | None = None) -> NodeArg:
        """What users see of an input or output."""
        seen, known = NodeArg._of(value, type), {} if self._compiled is None else self._compiled.shown
        return NodeArg(seen.name, seen.type, known[value.name]) if value.name in known else seen

    @property
    def plan(self) -> Plan:
        """What is run."""
        return self._plan or self._succession.current(self).plan

    def let_go(self) -> None:
        """Hold no plan any more."""
        self._plan = self.direct = self._specialized = None
        self._fetches.clear()

    def go_on(self, plan: Plan) -> None:
        """Run a plan after all."""
        self._plan, self.direct = plan, self._direct_of(plan)

    def _direct_of(self, plan: Plan) -> Run | None:
        direct: Run | None = None if self._profiler is not None else Direct.of(plan)
        return direct if self._suppositions is None else self._suppositions.guarded(direct)

    # --- runs

    def knows(self, name: str) -> bool:
        """Whether a value of this name can be fetched."""
        return name in self.plan.slots or name in self._others.as_loaded().slots

    def type_of(self, name: str) -> Type | None:
        """The type of a value of the main graph."""
        return self._types.get(name) or self._others.type_as_loaded(name)

    def compute(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        run_options: RunOptions | None = None,
        bound: Bound | None = None,
    ) -> list[Any]:
        """One run: values in, values out that belong to the caller. Names may be those of any values of the main graph.

        Outputs for which there is memory in `bound` come in it if that can be done without a copy; the feeds are `converted` then.
        """
        if run_options is not None and run_options._adapters:
            feeds = {**feeds, **run_options._adapted()}
        if self._defaults is not None and self._defaults.are_replaced(feeds):
            return self._others.with_all_inputs().compute(output_names, feeds, run_options, bound)
        values = self._values(feeds, run_options, bound is not None)
        if names := self._succession.unequal(values):
            return self._succession.run(self, names, lambda engine: engine.compute(output_names, feeds, run_options, bound))
        elsewhere, whole = self._elsewhere(values), self._plan
        if elsewhere is not None or whole is None:
            return (elsewhere or self._succession.current(self)).compute(output_names, feeds, run_options, bound)
        plan = self._plan_for(whole, output_names)
        try:
            if self._specialized is not None and plan is whole:
                plan = self._specialized.plan_for(values, self._plan_for_inputs) or plan
            return self._run(plan, values, run_options, None if bound is None else bound.destinations(plan))
        except CODED:
            raise
        except Exception as error:
            unforeseen(error, "while the model runs")

    def _values(self, feeds: Mapping[str, Any], run_options: RunOptions | None, are_bound: bool) -> dict[str, Any]:
        """Feeds as the graph takes them; bound ones are so already, except for what adapters give."""
        if not are_bound:
            return self._converted(feeds)
        adapted = {} if run_options is None else run_options._adapted()
        return self._complete({**feeds, **{name: self.converted(name, value) for name, value in adapted.items()}})

    def _elsewhere(self, values: Mapping[str, Any]) -> Engine | None:
        """The engine that is for such values, if this one is not."""
        is_supposed = self._suppositions is None or self._suppositions.hold(values)
        return None if is_supposed else self._others.without_suppositions()

    def _plan_for(self, whole: Plan, names: Sequence[str] | None) -> Plan:
        key = self.output_names if names is None else tuple(names)
        if key == self.output_names:
            return whole
        fetching = self._fetches.get(key)
        if fetching is None:
            plan = whole if all(name in whole.slots for name in key) else self._others.as_loaded()
            for name in key:
                if name not in plan.slots:
                    raise InvalidArgument(f"Invalid output name:{name}")
            if len(self._fetches) >= MAX_FETCHES:
                self._fetches.clear()
            fetching = self._fetches[key] = plan.fetching(key)
        return fetching

    def _plan_for_inputs(self, shapes: Shapes, values: Values) -> Plan:
        """A plan for inputs of these shapes and values alone; if for all values, it brings the fast path."""
        plan = self._others.for_inputs(shapes, values)
        if self._profiler is None and not values:
            self.direct = Direct.of(plan) or self.direct
        return plan

    def _converted(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return self._complete({name: self.converted(name, fed) for name, fed in feeds.items()})

    def converted(self, name: str, fed: Any) -> Any:
        """A fed value as the graph takes it."""
        declared = self.inputs.get(name)
        if declared is None:
            raise InvalidArgument(f"Invalid input name: {name}")
        return convert(declared, fed)

    def _complete(self, converted: dict[str, Any]) -> dict[str, Any]:
        for declared in self._required:
            if declared.name not in converted:
                converted[declared.name] = convert(declared, None)
        return converted

    def _run(
        self, plan: Plan, feeds: dict[str, Any], run_options: RunOptions | None, destinations: Destinations | None = None
    ) -> list[Any]:
        terminated = None if run_options is None else _watch(run_options)
        stop = 0 if run_options is None else ctypes.addressof(run_options._stop)
        try:
            if self._profiler is None:
                shares = TimeShares() if self._measures else None
                values = execute(plan, feeds, terminated=terminated, stop=stop, destinations=destinations, shares=shares)
                if shares is not None and self._measures:
                    self._keep_first(shares)
                self._succession.look_back()
                return release(values, destinations.values() if destinations else ())
            with self._event("model_run"):
                with self._event(_EXECUTORS[self.session_options.execution_mode == ExecutionMode.ORT_PARALLEL]):
                    shares = TimeShares()
                    values = execute(plan, feeds, terminated=terminated, profiler=self._profiler, shares=shares)
                    self._profiler.shares(shares)
                return release(values)
        except CODED as error:
            if self._compiled is not None and self._compiled.is_needed(error):
                return self._run_source(self._compiled, plan, feeds, run_options, error)
            if error.message.startswith("Non-zero status code"):  # type: ignore[attr-defined]
                with self._run_scope(run_options):
                    logger.error("%s", error.message)  # type: ignore[attr-defined]
            raise
        finally:
            if run_options is not None and run_options._config.get(settings.ARENA_SHRINKAGE):
                shrink(plan)

    def _run_source(
        self, compiled: Compiled, plan: Plan, feeds: dict[str, Any], run_options: RunOptions | None, error: BaseException
    ) -> list[Any]:
        """One run for which the code was not compiled."""
        source = self._others.from_source(error)
        values = source.compute([plan.values[slot].name for slot in plan.outputs], feeds, run_options)
        if compiled.stands_in and self._profiler is None and source._succession.look_back():
            self._succession.give_way(self, source)
        return values

    def _keep_first(self, shares: TimeShares) -> None:
        """Keep how the time of the first run that succeeds divided, and tell users if much of it was NumPy's."""
        self._measures, self.shares = False, shares
        with self._scope():
            shares.warn()

    def _run_scope(self, run_options: RunOptions | None) -> contextlib.AbstractContextManager[None]:
        options = self.session_options
        if run_options is None:
            return self._scope()
        severity = run_options.log_severity_level
        return log.scope(run_options.logid or options.logid, options.log_severity_level if severity < 0 else severity)

    def run(self, output_names: Sequence[str], feeds: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Any]:
        """One run as the raw session has it: an empty list of names stands for all outputs."""
        return self.compute(output_names or None, feeds, run_options)

    def run_with_ort_values(
        self, feeds: Mapping[str, OrtValue], output_names: Sequence[str], run_options: RunOptions | None = None
    ) -> OrtValueVector:
        """One run on OrtValues."""
        names = list(output_names or self.output_names)
        values = self.compute(names, feeds, run_options)
        return OrtValueVector._of([OrtValue._of(value, self.type_of(name)) for name, value in zip(names, values, strict=True)])

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions,
        feed_names: Sequence[str],
        feeds: OrtValueVector,
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """One run whose results are appended to `fetches`, or written into the tensors that are there already."""
        outputs = self.run_with_ort_values(dict(zip(feed_names, feeds, strict=False)), fetch_names, run_options)
        if len(fetches) == 0:
            for value in outputs:
                fetches.push_back(value)
            return
        for fetch, value in zip(fetches, outputs, strict=True):
            fetch.update_inplace(value)

    def run_with_iobinding(self, iobinding: SessionIOBinding, run_options: RunOptions | None = None) -> None:
        """One run on bound memory."""
        iobinding.run(run_options)

    def run_async(
        self,
        output_names: Sequence[str],
        feeds: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Start a run in another thread, which calls `callback(results, user_data, error)` at the end."""
        if self.session_options.intra_op_num_threads == 1:
            raise InvalidArgument("intra op thread pool must have at least one thread for RunAsync")
        if not callable(callback):
            raise arguments.mismatch("run_async", "(names, feeds, callback: Callable, user_data, run_options)", callback)
        try:
            fed = feeds if run_options is None else {**feeds, **run_options._adapted()}
            converted = self._converted(fed)
            if names := self._succession.unequal(converted):
                given = output_names, feeds, callback, user_data, run_options
                self._succession.run(self, names, lambda engine: engine.run_async(*given))
                return
            elsewhere, whole = self._elsewhere(converted), self._plan
            if elsewhere is not None or whole is None:
                (elsewhere or self._succession.current(self)).run_async(output_names, feeds, callback, user_data, run_options)
                return
            plan = self._plan_for(whole, output_names or None)
        except CODED as error:
            background.submit(callback, [], user_data, error.message)  # type: ignore[attr-defined]
        else:
            background.submit(self._run_and_call, plan, converted, run_options, callback, user_data)

    def _run_and_call(
        self,
        plan: Plan,
        feeds: dict[str, Any],
        run_options: RunOptions | None,
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
    ) -> None:
        results: list[Any] = []
        message = ""
        try:
            results = self._run(plan, feeds, run_options)
        except Exception as error:
            message = getattr(error, "message", None) or str(error)
        callback(results, user_data, message)

    # --- what can be asked

    def of_whole_model(self) -> Engine:
        """The engine that knows every node: this one, unless it runs what an earlier session made of the model."""
        if self._succession.successor is not None:
            return self._succession.successor.of_whole_model()
        is_remembered = self._compiled is not None and self._compiled.stands_in
        return self._others.from_source() if is_remembered else self

    def get_providers(self) -> list[str]:
        return list(dict.fromkeys(provider.public_name for provider in self.providers))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options by provider; those of the CPU are not shown, as in the original."""
        return {
            provider.public_name: {} if provider.public_name == CPU_PROVIDER else dict(provider.options)
            for provider in self.providers
        }

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider runs which nodes, those of the main graph first, then those of graphs inside it.

        As in the original each node of the CPU is a part of its own, whatever became one program, and constants are no part.
        """
        key = settings.RECORD_ASSIGNMENT
        if not self.session_options._config.is_on(key):
            raise Fail(f"Session configuration entry '{key}' must be set to \"1\" to retrieve EP graph assignment information.")
        steps = (step for step in all_steps(self.plan) if not is_copy(step.node))
        return [part for step in steps for part in _assigned(step)]

    @property
    def input_meminfos(self) -> list[OrtMemoryInfo]:
        return [cpu_memory_info() for _ in self.inputs_meta]

    @property
    def output_meminfos(self) -> list[OrtMemoryInfo]:
        return [cpu_memory_info() for _ in self.outputs_meta]

    @property
    def input_epdevices(self) -> list[OrtEpDevice]:
        return get_ep_devices() * len(self.inputs_meta)

    @property
    def get_profiling_start_time_ns(self) -> int:
        return 0 if self._profiler is None else self._profiler.start_ns

    def end_profiling(self) -> str:
        """Write the trace and return its file's name; "" if there is nothing to write."""
        profiler, self._profiler = self._profiler, None
        return "" if profiler is None else profiler.finish()

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Options that a provider may take between runs; the CPU has none."""
        if not isinstance(options, dict):
            raise arguments.mismatch("set_ep_dynamic_options", "(options: dict)", options)
        if not options:
            raise RuntimeError("No options were provided")

    def get_tuning_results(self) -> list[dict[str, Any]]:
        """Nothing is tuned on the CPU."""
        return []

    def set_tuning_results(self, results: list[Any], error_on_invalid: bool = False) -> None:
        """Nothing is tuned on the CPU."""

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Nothing is captured on the CPU."""


_EXECUTORS = ("SequentialExecutor::Execute", "ParallelExecutor::Execute")


def _assigned(step: Step) -> list[OrtEpAssignedSubgraph]:
    """The parts of a graph that a step is, as they are told."""
    name = step.provider.public_name
    if name != CPU_PROVIDER:
        return [OrtEpAssignedSubgraph(name, step.nodes, step.reason)]
    return [
        OrtEpAssignedSubgraph(name, [node], step.reason)
        for node in step.nodes
        if (node.domain, node.op_type) != ("", "Constant")
    ]


def _compiles(providers: Sequence[ExecutionProvider]) -> bool:
    """Whether the CPU has native code, which an option may leave out."""
    return any(provider.public_name == CPU_PROVIDER != provider.name for provider in providers)


def _watch(run_options: RunOptions) -> Callable[[], bool]:
    """Checks the options of a run before it begins; the result tells, during the run, whether it shall stop."""
    for entry in run_options._config.get(settings.ARENA_SHRINKAGE).split(";"):
        if entry and entry.partition(":")[0] != "cpu":
            raise InvalidArgument(f"Unsupported device specified in the memory arena shrink list: {entry.partition(':')[0]}")
    if run_options.terminate:
        raise Fail(TERMINATED)
    return lambda: run_options.terminate
