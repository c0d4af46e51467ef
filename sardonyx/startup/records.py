"""Classes of named fields, written and used like those of `dataclasses`, but made quickly: everybody imports this instead.

`dataclasses` compiles up to six functions for each class when it is defined. A session imports some hundred and fifty classes and makes
objects of a few of them, so that this was a quarter of the time until a small model was ready. Here methods are common to all classes,
and `__init__` is compiled for a class that is called often.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

_NONE: Any = object()
SELDOM = 8
"""Up to so many objects of a class are made by code for all classes: to compile takes as long as to make ten."""


class _Field:
    """A field with a value that each object gets for itself."""

    def __init__(self, *, default_factory: Callable[[], Any]):
        self.default_factory = default_factory


def _dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True) -> Any:
    """What `dataclasses.dataclass` makes of a class."""
    if cls is None:
        return functools.partial(_dataclass, frozen=frozen, eq=eq)
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(vars(base).get("__fields__", ()))
    for name in inspect.get_annotations(cls):
        fields[name] = vars(cls).get(name, _NONE)
        if isinstance(fields[name], _Field):
            delattr(cls, name)
    cls.__fields__ = fields
    cls.__match_args__ = tuple(fields)  # type: ignore[misc]
    methods: dict[str, Any] = {"__repr__": _repr}
    if eq:
        methods |= _comparisons(fields, frozen)
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse}
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(cls, name, method)
    cls.__init__ = _first_init(cls, frozen)
    return cls


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__fields__)})"


def _comparisons(fields: dict[str, Any], frozen: bool) -> dict[str, Any]:
    values: Callable[[Any], Any] = operator.attrgetter(*fields) if fields else lambda one: ()

    def equals(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return {"__eq__": equals, "__hash__": (lambda self: hash(values(self))) if frozen else None}


def _refuse(self: Any, name: str, value: Any = None) -> None:
    raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")


def _first_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """An `__init__` for the first objects. Then it puts a compiled one into its place."""
    count = 0

    def first(self: Any, *values: Any, **named: Any) -> None:
        nonlocal count
        count += 1
        complete = None if count > SELDOM else _completed(cls.__fields__, values, named)
        if complete is None:
            init = cls.__init__ = _compiled_init(cls, frozen)
            init(self, *values, **named)
            return
        for name, value in complete.items():
            object.__setattr__(self, name, value)
        if hasattr(cls, "__post_init__"):
            self.__post_init__()

    return first


def _completed(fields: dict[str, Any], values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any] | None:
    """The values of all fields; None if what is given is wrong, which the compiled `__init__` tells best."""
    complete = dict(zip(fields, values, strict=False))
    if len(values) > len(fields) or not (complete.keys().isdisjoint(named) and fields.keys() >= named.keys()):
        return None
    for name, default in fields.items():
        if name in named:
            complete[name] = named[name]
        elif name not in complete:
            if default is _NONE:
                return None
            complete[name] = default.default_factory() if isinstance(default, _Field) else default
    return complete


def _compiled_init(cls: Any, frozen: bool) -> Any:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_none": _NONE}
    parameters, lines = ["self"], []
    for name, default in cls.__fields__.items():
        value = name
        if isinstance(default, _Field):
            scope[f"_make_{name}"] = default.default_factory
            parameters.append(f"{name}=_none")
            value = f"_make_{name}() if {name} is _none else {name}"
        elif default is _NONE:
            parameters.append(name)
        else:
            scope[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines or ["pass"]), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _replace(record: Any, /, **changes: Any) -> Any:
    """A copy of an object with other values in some fields."""
    return type(record)(**{**{name: getattr(record, name) for name in record.__fields__}, **changes})


if TYPE_CHECKING:  # whoever checks types knows these already
    from dataclasses import dataclass, field, replace
else:
    dataclass, field, replace = _dataclass, _Field, _replace

__all__ = ["dataclass", "field", "replace"]
