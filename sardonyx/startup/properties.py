"""Properties that are computed once. Classes all over the package have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class cached_property(Generic[T]):  # noqa: N801 - as it is called in functools
    """As `functools.cached_property`, without its lock: Python 3.11 holds one for all instances while one of them computes.

    A child that is forked meanwhile would wait for it for ever. Two threads may compute the same here; one result stays.
    """

    def __init__(self, function: Callable[[Any], T]):
        self.function = function
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Self | T:
        if instance is None:
            return self
        return instance.__dict__.setdefault(self.name, self.function(instance))
