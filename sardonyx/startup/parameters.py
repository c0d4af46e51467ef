"""What a function asks for, by name. Every kernel is looked at when it enters its table, so this takes less than `inspect.signature`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from sardonyx.startup.records import dataclass


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function, those that collect the rest apart."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    defaulted: frozenset[str]
    """Those that have a default value."""
    takes_more: bool
    """Whether it takes any number of values."""
    takes_everything: bool
    """Whether it takes values under any name."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.positional + self.keyword_only)

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Parameters:
        if not isinstance(function, FunctionType) or vars(function):  # what wraps another function says so there
            return cls._of_signature(function)
        code = function.__code__
        count, total = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        positional, keyword_only = code.co_varnames[:count], code.co_varnames[count:total]
        defaulted = positional[count - len(function.__defaults__ or ()) :]
        return cls(
            positional,
            keyword_only,
            frozenset((*defaulted, *(function.__kwdefaults__ or ()))),
            bool(code.co_flags & inspect.CO_VARARGS),
            bool(code.co_flags & inspect.CO_VARKEYWORDS),
        )

    @classmethod
    def _of_signature(cls, function: Callable[..., Any]) -> Parameters:
        parameters = inspect.signature(function).parameters.values()
        return cls(
            tuple(
                parameter.name
                for parameter in parameters
                if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
            ),
            tuple(parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY),
            frozenset(parameter.name for parameter in parameters if parameter.default is not parameter.empty),
            any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters),
            any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
        )
