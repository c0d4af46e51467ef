"""What stands behind a session: one model, loaded and then prepared for its providers, and the runs of it.

Sessions hold an engine in `_sess`, under the names that the original's raw session has; `set_providers` replaces it by a new one. An engine
only adds plans after `initialize_session`, so any number of threads may run it.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx import settings
from sardonyx.errors import CODED, Fail, InvalidArgument, ModelLoadCanceled, door, unforeseen
from sardonyx.formats import mapping
from sardonyx.ir import OptionalType, Type, Value
from sardonyx.providers.accuracy import Accuracy
from sardonyx.providers.prepacking import PrepackedWeightsContainer, Prepacking
from sardonyx.providers.provider import ExecutionProvider
from sardonyx.providers.termination import TERMINATED
from sardonyx.runtime import arguments, background, custom_ops, demands, log
from sardonyx.runtime.copies import is_copy
from sardonyx.runtime.defaults import Defaults
from sardonyx.runtime.devices import OrtEpDevice, OrtMemoryInfo, cpu_memory_info, get_ep_devices
from sardonyx.runtime.direct import Direct
from sardonyx.runtime.enums import ExecutionMode, GraphOptimizationLevel
from sardonyx.runtime.executor import Targets, execute
from sardonyx.runtime.feeds import convert
from sardonyx.runtime.iobinding import SessionIOBinding
from sardonyx.runtime.loading import fix_defaults, load_model, open_files, options_from_model
from sardonyx.runtime.memory import MemoryOptions
from sardonyx.runtime.metadata import ModelMetadata, NodeArg, OrtEpAssignedSubgraph
from sardonyx.runtime.options import RunOptions, SessionOptions
from sardonyx.runtime.originals import Originals, open_prepacking
from sardonyx.runtime.plan import Plan, PlanOptions, all_steps, shrink
from sardonyx.runtime.profile import Profiler
from sardonyx.runtime.providers import CPU_PROVIDER, open_providers
from sardonyx.runtime.results import release
from sardonyx.runtime.specialized import Shapes, Specialized, Values, fix_inputs
from sardonyx.runtime.targets import Bound
from sardonyx.runtime.value import OrtValue, OrtValueVector

if TYPE_CHECKING:
    from sardonyx.optimizer.rewrite import Journal
    from sardonyx.providers.native.aot.opening import Context
    from sardonyx.providers.native.aot.writing import Written
    from sardonyx.runtime.contexts import Compiled, Target

MAX_FETCHES = 64
"""How many different choices of outputs keep their own plan."""
FATAL = 4
"""The severity above that of warnings and errors."""

logger = logging.getLogger("sardonyx.runtime")


class Engine:
    """A model ready to run."""

    def __init__(self, options: SessionOptions, model: Any, from_file: bool = False, read_config: bool = False):
        if not isinstance(options, SessionOptions):
            raise arguments.mismatch("__init__", "InferenceSession(options: SessionOptions, model, from_file: bool)", options)
        self._cancelled: Callable[[], bool] = lambda: options._cancelled  # another thread sets it on the caller's object
        self.session_options = copy.copy(options)
        demands.check_options(options)
        self._profiler = self._open_profiler()
        with self._scope(), self._event("model_loading_uri" if from_file else "model_loading_array"):
            self._check_cancelled()
            self._source = model
            self._files = open_files(self.session_options)
            with door("while the model is loaded"):
                self._model = load_model(model, self.session_options, self._files)
            if read_config:
                options_from_model(self._model, self.session_options)
                self._profiler = self._profiler or self._open_profiler()
        self.providers: list[ExecutionProvider] = []
        self._specialized: Specialized | None = None
        self._defaults: Defaults | None = None
        self.prepacking = Prepacking()
        """What happened to constant weights."""
        self.journal: Journal | None = None
        """What the optimizer did, if it was asked."""
        self.compile_to: Target | None = None
        """Where the compiled form of the model is to be written, if the configuration does not say so."""
        self.written: Written | None = None
        self._compiled: Compiled | None = None
        self._context: Context | None = None
        """The code in the model, if it was compiled ahead of time and may be used."""
        self._of_source: Engine | None = None

    def _open_profiler(self) -> Profiler | None:
        if not self.session_options.enable_profiling:
            return None
        profiler = Profiler(self.session_options.profile_file_prefix)
        weakref.finalize(self, profiler.finish)
        return profiler

    def _scope(self) -> contextlib.AbstractContextManager[None]:
        return log.scope(self.session_options.logid, self.session_options.log_severity_level)

    def _event(self, name: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._profiler is None else self._profiler.event(name)

    def _check_cancelled(self) -> None:
        if self._cancelled():
            raise ModelLoadCanceled("Graph loading canceled due to user request.")

    # --- from a model to a plan

    def initialize_session(
        self,
        providers: Sequence[str] = (),
        provider_options: Sequence[Mapping[str, str]] = (),
        disabled_optimizers: Collection[str] = (),
        prepacked_weights_container: PrepackedWeightsContainer | None = None,
    ) -> None:
        """Prepare the model for providers, asked in this order, CPU last.

        `disabled_optimizers` names rewrites to leave out; packed weights are shared through `prepacked_weights_container`.
        """
        self.disabled_optimizers = frozenset(disabled_optimizers)
        self.prepacking = open_prepacking(self.session_options, prepacked_weights_container)
        with self._scope(), self._event("session_initialization"):
            logger.info("Initializing session.")
            self._check_cancelled()
            options = provider_options or [{}] * len(providers)
            self._asked = providers, options
            with door("while compiled code is opened"):
                self._open_context(dict(zip(providers, options)).get(CPU_PROVIDER, {}))
            self.providers = self._open_providers(providers, options)
            self._give_custom_kernels()
            demands.check_fallback(self.session_options._config, providers)
            with door("while the model is prepared"):
                self._prepare()
            self._check_cancelled()
            logger.info("Session successfully initialized.")

    def _open_providers(self, names: Sequence[str], options: Sequence[Mapping[str, str]]) -> list[ExecutionProvider]:
        given = self.session_options
        spinning = given._config.get(settings.ALLOW_SPINNING) != "0"
        return open_providers(names, options, given.intra_op_num_threads, spinning, self._cpu_defaults(), self._context)

    def _cpu_defaults(self) -> dict[str, str]:
        """Options of the CPU where the user gives none."""
        entries = self.session_options._config.entries
        winograd = settings.WINOGRAD.of(entries)
        if winograd not in ("off", "auto"):
            raise InvalidArgument(
                f"{settings.WINOGRAD} is off or auto, not {winograd!r}; it is an old name, use {settings.ACCURACY}"
            )
        given = entries.get(settings.ACCURACY, "exact" if winograd == "off" else None)
        return {} if given is None else {settings.CPU_ACCURACY: str(Accuracy.read(given, settings.ACCURACY))}

    def _open_context(self, options: Mapping[str, str]) -> None:
        """If the model was compiled ahead of time, use the code in it, or take the model that it was made from."""
        if not any(node.op_type == "EPContext" for node in self._model.graph.all_nodes()):
            return
        from sardonyx.runtime import contexts

        self._compiled = contexts.Compiled.of(self._model, self.session_options)
        if self._compiled is None:
            return
        if settings.NATIVE.of(options) != "0" and not self._is_to_compile:
            self._context = self._compiled.open({**self._cpu_defaults(), **options}, self._files)
        if self._context is None:
            self._source = self._compiled.source()
            self._model = load_model(self._source, self.session_options, self._files)
            self._compiled = None

    def _give_custom_kernels(self) -> None:
        """Custom ops are computed by NumPy functions, so they are the CPU's."""
        cpu = next((provider for provider in self.providers if provider.name == CPU_PROVIDER), None)
        if self.session_options._custom_ops and cpu is not None:
            cpu.custom_kernels.append(custom_ops.kernel_table(self.session_options._custom_ops))

    def _prepare(self) -> None:
        if self._context is not None:
            self._prepare_context()
            return
        # a model that was compiled ahead of time needs no optimizer, and loads in the time that importing it takes
        from sardonyx.optimizer.pipeline import Level, StageFailed
        from sardonyx.optimizer.rewrite import Journal
        from sardonyx.runtime.prepare import Optimization, assign, improve

        options, model = self.session_options, self._model
        self._take_defaults()
        strict = options._config.is_on(settings.STRICT_INFERENCE)
        self.journal = Journal()
        level = Level(int(options.graph_optimization_level))
        optimization = Optimization(level, self.disabled_optimizers, options._config.entries, self.journal)
        for provider in self.providers:
            provider.begin(model, self.prepacking)
        with custom_ops.known(options._custom_ops):
            try:
                improve(model, self.providers, strict=strict, optimization=optimization)
            except StageFailed as error:
                logger.warning("%s; the model is loaded again and prepared without it.", error)
                self.disabled_optimizers |= {error.stage}
                self._model = load_model(self._source, options, self._files)
                self._prepare()
                return
            originals = Originals(model, self._source, options, self.disabled_optimizers, self._files)
            mapping.give_back_pages()  # what was folded into other weights is not read again
            self.plan = assign(model, self.providers, _plan_options(options))
        mapping.give_back_pages()
        demands.refuse_cpu(options._config, self.plan)
        demands.refuse_compiling(options._config, self.plan)
        self._specialized = Specialized.of(self.plan, self._plan_for_inputs)
        self._describe()
        if options.optimized_model_filepath:
            from sardonyx.runtime import saving

            with custom_ops.known(options._custom_ops):
                saving.save_as_run(self._model, options, self.plan, self.prepacking)
            mapping.give_back_pages()
        self._write_context()
        if not any(provider.standard_ops_only for provider in self.providers):
            originals.release(self.plan, self.prepacking)
        self.prepacking.finish()

    def _take_defaults(self) -> None:
        """Let defaults be constants, unless the model is to be written with all its inputs or nothing is optimized anyway."""
        options, graph = self.session_options, self._model.graph
        is_written = bool(options.optimized_model_filepath) or self._is_to_compile
        is_left_alone = options.graph_optimization_level == GraphOptimizationLevel.ORT_DISABLE_ALL
        if is_written or is_left_alone or options._config.get(settings.DEFAULTS_ARE_CONSTANTS) == "0":
            return
        if any(value.constant is not None for value in graph.inputs):
            self._defaults = Defaults(graph, self._engine_with_all_inputs)

    def _engine_with_all_inputs(self) -> Engine:
        """An engine of the same model that takes no default for a constant."""
        options = copy.copy(self.session_options)
        options.enable_profiling = False
        options.add_session_config_entry(settings.DEFAULTS_ARE_CONSTANTS, "0")
        with log.scope(options.logid, FATAL):  # warnings came when the session was made
            return self._another(options, self._source)

    def _another(self, options: SessionOptions, source: Any) -> Engine:
        """An engine prepared as this one is."""
        made = Engine(options, source)
        made.initialize_session(*self._asked, self.disabled_optimizers)
        return made

    @property
    def _is_to_compile(self) -> bool:
        return self.compile_to is not None or self.session_options._config.is_on(settings.EP_CONTEXT_ENABLE)

    def _write_context(self) -> None:
        """Write the model with what was compiled of it, if that is asked for."""
        if not self._is_to_compile:
            return
        from sardonyx.runtime import contexts

        target = self.compile_to or contexts.target_of(self._source, self.session_options._config)
        try:
            with custom_ops.known(self.session_options._custom_ops):
                self.written = contexts.write(self._model, self.plan, self._source, target)
        except OSError as error:
            raise InvalidArgument(f'open file "{target.path}" failed: {error.strerror}') from error

    def _prepare_context(self) -> None:
        from sardonyx.runtime import contexts

        assert self._context is not None
        options = self.session_options
        with custom_ops.known(options._custom_ops):
            self.plan = contexts.prepare(self._model, self._context, self.providers, _plan_options(options))
        demands.refuse_cpu(options._config, self.plan)
        self._describe()

    def _describe(self) -> None:
        graph = self._model.graph
        defaults = self._defaults
        self.inputs: dict[str, Value] = {value.name: value for value in graph.inputs} | (defaults.inputs if defaults else {})
        """What may be fed, by name."""
        required = [value for value in graph.inputs if value.constant is None]
        overridable = [value for value in graph.inputs if value.constant is not None]
        self.required_names = [value.name for value in required if not isinstance(value.type, OptionalType)]
        self.output_names = tuple(value.name for value in graph.outputs)
        self.output_list = list(self.output_names)
        self.inputs_meta = [NodeArg._of(value) for value in required]
        self.outputs_meta = [NodeArg._of(value) for value in graph.outputs]
        self.overridable_initializers = defaults.described if defaults else [NodeArg._of(value) for value in overridable]
        self.model_meta = ModelMetadata(self._model)
        self._required = [value for value in required if not isinstance(value.type, OptionalType)]
        self._types = {value.name: value.type for value in graph.values()}
        self._types_as_loaded: dict[str, Type | None] = {}
        self._fetches: dict[tuple[str, ...], Plan] = {}
        self.direct = None if self._profiler is not None else Direct.of(self.plan)
        self._unoptimized: Plan | None = None
        self._unoptimized_lock = threading.Lock()

    # --- runs

    def knows(self, name: str) -> bool:
        """Whether a value of this name can be fetched."""
        return name in self.plan.slots or name in self._plan_as_loaded().slots

    def type_of(self, name: str) -> Type | None:
        """The type of a value of the main graph."""
        return self._types.get(name) or self._types_as_loaded.get(name)

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
        if self._defaults is not None and self._defaults.are_replaced(feeds):
            return self._defaults.engine.compute(output_names, feeds, run_options, bound)
        plan, values = self._plan_for(output_names), self._converted(feeds) if bound is None else self._complete({**feeds})
        try:
            if self._specialized is not None and plan is self.plan:
                plan = self._specialized.plan_for(values) or plan
            return self._run(plan, values, run_options, None if bound is None else bound.targets(plan))
        except CODED:
            raise
        except Exception as error:
            unforeseen(error, "while the model runs")

    def _plan_for(self, names: Sequence[str] | None) -> Plan:
        key = self.output_names if names is None else tuple(names)
        if key == self.output_names:
            return self.plan
        found = self._fetches.get(key)
        if found is None:
            plan = self.plan if all(name in self.plan.slots for name in key) else self._plan_as_loaded()
            for name in key:
                if name not in plan.slots:
                    raise InvalidArgument(f"Invalid output name:{name}")
            if len(self._fetches) >= MAX_FETCHES:
                self._fetches.clear()
            found = self._fetches[key] = plan.fetching(key)
        return found

    def _plan_for_inputs(self, shapes: Shapes, values: Values) -> Plan:
        """A plan for inputs of these shapes and values alone; if for all values, it brings the direct way."""
        from sardonyx.optimizer.pipeline import Level
        from sardonyx.runtime.prepare import Optimization, prepare

        options = self.session_options
        model = load_model(self._source, options, self._files)
        if self._defaults is not None:
            fix_defaults(model.graph)
        fix_inputs(model, shapes, values)
        packing = self.prepacking.another()
        for provider in self.providers:
            provider.begin(model, packing)
        level = Level(int(options.graph_optimization_level))
        optimization = Optimization(level, self.disabled_optimizers, options._config.entries)
        with custom_ops.known(options._custom_ops), log.scope(options.logid, FATAL):  # warnings came when the session was made
            plan = prepare(model, self.providers, optimization=optimization, planning=_plan_options(options))
            packing.finish()
        if self._profiler is None and not values:
            self.direct = Direct.of(plan) or self.direct
        return plan

    def _plan_as_loaded(self) -> Plan:
        """A plan without optimization and clusters, made when a value is asked for that these have hidden."""
        with self._unoptimized_lock:
            if self._unoptimized is None:
                from sardonyx.runtime.prepare import prepare

                source = self._source if self._compiled is None else self._compiled.source()
                model = load_model(source, self.session_options, self._files)
                cpu = [provider for provider in self.providers if provider.name == CPU_PROVIDER]  # no cluster hides anything
                cpu = cpu or open_providers([CPU_PROVIDER], [{settings.NATIVE: "0"}])
                with custom_ops.known(self.session_options._custom_ops), door("while the model is prepared as it was loaded"):
                    self._unoptimized = prepare(model, cpu, planning=_plan_options(self.session_options))
                self._types_as_loaded = {value.name: value.type for value in model.graph.values()}
            return self._unoptimized

    def _source_engine(self, error: BaseException) -> Engine:
        """An engine of the model that a context model was compiled from, for data that compiled code does not take."""
        assert self._compiled is not None
        with self._unoptimized_lock:
            if self._of_source is None:
                source = self._compiled.source()
                with self._scope():
                    logger.warning("%s. %s is compiled for that.", error.__cause__, source)
                self._of_source = self._another(self._compiled.plain_options(self.session_options), source)
            return self._of_source

    def _converted(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        return self._complete({name: self.converted(name, given) for name, given in feeds.items()})

    def converted(self, name: str, given: Any) -> Any:
        """A fed value as the graph takes it."""
        declared = self.inputs.get(name)
        if declared is None:
            raise InvalidArgument(f"Invalid input name: {name}")
        return convert(declared, given)

    def _complete(self, converted: dict[str, Any]) -> dict[str, Any]:
        for declared in self._required:
            if declared.name not in converted:
                converted[declared.name] = convert(declared, None)
        return converted

    def _run(
        self, plan: Plan, feeds: dict[str, Any], run_options: RunOptions | None, targets: Targets | None = None
    ) -> list[Any]:
        terminated = None if run_options is None else _watch(run_options)
        stop = 0 if run_options is None else ctypes.addressof(run_options._stop)
        try:
            if self._profiler is None:
                values = execute(plan, feeds, terminated=terminated, stop=stop, targets=targets)
                return release(values, targets.values() if targets else ())
            with self._event("model_run"):
                with self._event(_EXECUTORS[self.session_options.execution_mode == ExecutionMode.ORT_PARALLEL]):
                    values = execute(plan, feeds, terminated=terminated, profiler=self._profiler)
                return release(values)
        except CODED as error:
            if self._compiled is not None and self._compiled.is_needed(error):
                names = [plan.values[slot].name for slot in plan.outputs]
                return self._source_engine(error).compute(names, feeds, run_options)
            if error.message.startswith("Non-zero status code"):  # type: ignore[attr-defined]
                with self._run_scope(run_options):
                    logger.error("%s", error.message)  # type: ignore[attr-defined]
            raise
        finally:
            if run_options is not None and run_options._config.get(settings.ARENA_SHRINKAGE):
                shrink(plan)

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
    ) -> list[OrtValue]:
        """One run on OrtValues."""
        names = list(output_names or self.output_names)
        values = self.compute(names, feeds, run_options)
        return [OrtValue._of(value, self.type_of(name)) for name, value in zip(names, values, strict=True)]

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
        made = self.run_with_ort_values(dict(zip(feed_names, feeds, strict=False)), fetch_names, run_options)
        if len(fetches) == 0:
            for value in made:
                fetches.push_back(value)
            return
        for target, value in zip(fetches, made, strict=True):
            target.update_inplace(value)

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
            plan, converted = self._plan_for(output_names or None), self._converted(feeds)
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

    def get_providers(self) -> list[str]:
        return list(dict.fromkeys(provider.public_name for provider in self.providers))

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Options by provider; those of the CPU are not shown, as in the original."""
        return {
            provider.public_name: {} if provider.public_name == CPU_PROVIDER else dict(provider.options)
            for provider in self.providers
        }

    def get_provider_graph_assignment_info(self) -> list[OrtEpAssignedSubgraph]:
        """Which provider runs which nodes, those of the main graph first, then those of graphs inside it."""
        key = settings.RECORD_ASSIGNMENT
        if not self.session_options._config.is_on(key):
            raise Fail(f"Session configuration entry '{key}' must be set to \"1\" to retrieve EP graph assignment information.")
        steps = (step for step in all_steps(self.plan) if not is_copy(step.node))
        return [OrtEpAssignedSubgraph(step.provider.public_name, step.nodes, step.reason) for step in steps]

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


def _plan_options(options: SessionOptions) -> PlanOptions:
    memory = MemoryOptions(options.enable_mem_reuse, options.enable_mem_pattern and options.enable_cpu_mem_arena)
    return PlanOptions(options.execution_order, options._config.is_on(settings.SHAPES_AFTER_PARENTS), memory)


_EXECUTORS = ("SequentialExecutor::Execute", "ParallelExecutor::Execute")


def _watch(run_options: RunOptions) -> Callable[[], bool]:
    """Checks the options of a run before it begins; the result tells, during the run, whether it shall stop."""
    for entry in run_options._config.get(settings.ARENA_SHRINKAGE).split(";"):
        if entry and entry.partition(":")[0] != "cpu":
            raise InvalidArgument(f"Unsupported device specified in the memory arena shrink list: {entry.partition(':')[0]}")
    if run_options.terminate:
        raise Fail(TERMINATED)
    return lambda: run_options.terminate
