"""What a session prepares later, if a run asks for it: the model for inputs of known shapes, for values that optimization has hidden, with
inputs that were taken for constants, or from the source of compiled code. Each is made once, by another recipe.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sardonyx import settings
from sardonyx.errors import Fail, door
from sardonyx.ir import Type
from sardonyx.runtime.api import log
from sardonyx.runtime.api.options import SessionOptions
from sardonyx.runtime.preparation.loading import load_model, names_computed_sizes
from sardonyx.runtime.preparation.names import COMPUTED, SEPARATOR
from sardonyx.runtime.preparation.plan import Plan
from sardonyx.runtime.preparation.prepare import planned
from sardonyx.runtime.preparation.recipe import Recipe, Shapes, Values
from sardonyx.startup.locks import Lock

if TYPE_CHECKING:
    from sardonyx.runtime.execution.engine import Engine

FATAL = 4
"""The severity above that of warnings and errors."""


class Alternatives:
    """The other models of a session. `make_engine` makes an engine of a source for the same providers."""

    def __init__(self, recipe: Recipe, make_engine: Callable[[SessionOptions, Any], Engine]):
        self._recipe = recipe
        self._make_engine = make_engine
        self._as_loaded: Plan | None = None
        self._with_all_inputs: Engine | None = None
        self._without_suppositions: Engine | None = None
        self.of_source: Engine | None = None
        """An engine of the model that compiled code was made from, if data came that the code does not take."""
        self._lock = Lock()
        self._inputs_lock = Lock()

    def for_inputs(self, shapes: Shapes, values: Values) -> Plan:
        """A plan for inputs of these shapes and values alone."""
        recipe = self._recipe.for_inputs(shapes, values)
        with log.scope(recipe.options.logid, FATAL):  # warnings came when the session was made
            plan = planned(recipe)
        recipe.packing.finish()
        return plan

    @property
    def code_is_remembered(self) -> bool:
        """Whether the session runs what an earlier one made of the source."""
        return self._recipe.compiled is not None and self._recipe.compiled.stands_in

    def again(self) -> Plan:
        """The session's own plan once more, unless its code is remembered."""
        with log.scope(self._recipe.options.logid, FATAL):
            return planned(self._recipe)

    def as_loaded(self) -> Plan:
        """A plan without optimization and clusters, for values that these have hidden."""
        with self._lock:
            if self._as_loaded is None:
                with door("while the model is prepared as it was loaded"):
                    self._as_loaded = planned(self._recipe.as_loaded())
            return self._as_loaded

    def type_as_loaded(self, name: str) -> Type | None:
        """The type of a value in that plan, if there is one already."""
        plan = self._as_loaded
        return None if plan is None or name not in plan.slots else plan.values[plan.slots[name]].type

    def with_all_inputs(self) -> Engine:
        """An engine that takes no default for a constant."""
        with self._inputs_lock:
            if self._with_all_inputs is None:
                self._with_all_inputs = self._with(settings.DEFAULTS_ARE_CONSTANTS, "0")
            return self._with_all_inputs

    def without_suppositions(self) -> Engine:
        """An engine for inputs of all sizes."""
        with self._inputs_lock:
            if self._without_suppositions is None:
                self._without_suppositions = self._with(settings.SUPPOSES_SIZES, "0")
            return self._without_suppositions

    @property
    def may_name_wrongly(self) -> bool:
        """Whether sizes that the model computes have names, and these still count."""
        recipe = self._recipe
        if COMPUTED in recipe.options._config.get(settings.UNEQUAL_SIZES).split(SEPARATOR):
            return False
        with log.scope(recipe.options.logid, FATAL), door("while the model is loaded once more"):
            return names_computed_sizes(load_model(recipe.source, recipe.options, recipe.files))

    def with_unequal_sizes(self, names: Sequence[str]) -> Engine:
        """An engine that takes sizes of these names for different ones."""
        before = list(filter(None, self._recipe.options._config.get(settings.UNEQUAL_SIZES).split(SEPARATOR)))
        if not {*names}.isdisjoint(before):
            raise Fail(f"{', '.join(names)}: sizes of one name differ, though it was said before that they do")
        return self._with(settings.UNEQUAL_SIZES, SEPARATOR.join([*before, *names]))

    def _with(self, setting: str, value: str) -> Engine:
        """An engine of the same source with another setting."""
        options = copy.copy(self._recipe.options)
        options.enable_profiling = False
        with log.scope(options.logid, FATAL):
            options.add_session_config_entry(setting, value)
            return self._make_engine(options, self._recipe.source)

    def from_source(self, error: BaseException | None = None) -> Engine:
        """An engine of the model that compiled code was made from. `error` says why it is needed, if that is to be told."""
        compiled, options = self._recipe.compiled, self._recipe.options
        assert compiled is not None
        with self._lock:
            if self.of_source is None:
                if error is not None:
                    with log.scope(options.logid, options.log_severity_level):
                        compiled.say_recompiled(error)
                self.of_source = self._make_engine(compiled.plain_options(options), compiled.source())
            return self.of_source
