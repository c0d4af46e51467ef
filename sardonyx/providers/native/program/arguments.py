"""What a kernel is given: a record that is declared once. Lowerings fill it and the kernel's code reads it, both by the same names.

    class GatherArguments(Arguments):
        source: Pointer
        strides: Sequence[Size] = each(lambda rank: rank)
        lengths: Pointer | None = when(lambda form: form.has_lengths)
        sink: Operands = group(lambda chain: chain.slots)

What shapes the code also decides what the code is given: the functions of `each`, `when` and `group` take those of the kernel's parameters
that they name. Fields may be records themselves. Where `each` is given a sequence, the rules of its elements' record may name `item`, the
element of that sequence which shapes theirs.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union, dataclass_transform

from sardonyx.compiler.types import F64, I64, PTR, Type
from sardonyx.ir.dim import Expression
from sardonyx.providers.native.program.steps import Argument, At, Buffer
from sardonyx.startup.records import dataclass

if TYPE_CHECKING:
    from sardonyx.compiler.builder import Value

Pointer = Any
"""Where a buffer lies: a `Buffer` or a place `At` in one for lowerings, a value in code."""
Size = Any
"""A size, a stride or another whole number: a `Dim` for lowerings, a value in code."""
Number = Any
"""A float: one of Python's for lowerings, a value of float64 in code."""
Operands = Any
"""A group: a sequence of pointers, sizes and numbers."""


@dataclass(frozen=True)
class Kind:
    """What a word of a kernel's arguments is."""

    name: str
    classes: tuple[type, ...]
    """The Python types that a lowering may give."""
    type: Type
    """The type of the value in code."""


POINTER = Kind("a pointer", (Buffer, At), PTR)
SIZE = Kind("a size", (int, Expression), I64)
NUMBER = Kind("a number", (float,), F64)
KINDS = {"Pointer": POINTER, "Size": SIZE, "Number": NUMBER}


@dataclass(frozen=True)
class Slot:
    """One word, with the name by which messages call it."""

    name: str
    kind: Kind


class WrongArguments(TypeError):
    """A lowering gave a kernel other arguments than it declares. That is always a fault of the lowering, never of a model."""


# --- rules: what of a record there is


@dataclass(frozen=True)
class _Rule:
    of: Callable[..., Any]


class _Each(_Rule):
    pass


class _When(_Rule):
    pass


class _Group(_Rule):
    pass


def each(count: Callable[..., int | Sequence[object]]) -> Any:
    """A field that is a sequence: of a number of elements, or of one element for each of another sequence."""
    return _Each(count)


def when(is_there: Callable[..., object]) -> Any:
    """A field that some forms of a kernel have; None in the others."""
    return _When(is_there)


def group(slots: Callable[..., Sequence[Slot]]) -> Any:
    """A field whose words are listed by something that shapes the code, as the operands of a chain are."""
    return _Group(slots)


@dataclass(frozen=True)
class _Field:
    annotation: str
    rule: _Rule | None
    module: str
    """Where the names in the annotation are known."""


@dataclass_transform(kw_only_default=True, field_specifiers=(each, when, group))
class Arguments:
    """The base of all records. Their annotations are the fields, in the order of the words in memory."""

    __declared__: Mapping[str, _Field] = {}

    def __init_subclass__(cls) -> None:
        own = {
            name: _Field(text, cls.__dict__.get(name), cls.__module__) for name, text in inspect.get_annotations(cls).items()
        }
        cls.__declared__ = {**cls.__declared__, **own}
        for name in own:
            if name in cls.__dict__:
                delattr(cls, name)

    def __init__(self, **values: Any):
        if values.keys() != self.__declared__.keys():
            title = type(self).__name__
            missing = [name for name in self.__declared__ if name not in values]
            unknown = [name for name in values if name not in self.__declared__]
            raise WrongArguments(
                f"{title} has no argument {unknown[0]!r}" if unknown else f"{title} lacks the argument {missing[0]!r}"
            )
        self.__dict__.update(values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"


class ScratchSlotArguments(Arguments):
    """What `KernelFunction.scratch_slot` needs to find the scratch slot of a call: see `sizes.ScratchSlots`."""

    pieces: Size
    grain: Size
    threads: Size


# --- a record as one form of a kernel has it


@dataclass(frozen=True)
class Absent:
    """A field that this form of a kernel does not have."""


@dataclass(frozen=True)
class Several:
    """The elements of a field that is a sequence; a group if each of them has a name."""

    parts: tuple[Part, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Declaration:
    """All fields of a record that are there, with what they are made of."""

    record: type[Arguments]
    parts: Mapping[str, Part]

    def slots(self) -> list[Slot]:
        """The words in memory, in order."""
        return list(_slots(self, ""))

    def words(self, title: str, arguments: Arguments) -> list[Argument]:
        """The values of a record in the order of the words, each checked; `title` is the kernel's."""
        return list(_words(self, arguments, title, ""))

    def read(self, next: Callable[[Type], Value]) -> Any:
        """The record with the values that code reads; `next` gives that of the next word."""
        return _read(self, next)


Part = Union[Kind, Absent, Several, Declaration]


def declare(record: type[Arguments], shaping: Mapping[str, Any]) -> Declaration:
    """The declaration of a kernel's arguments for these parameters."""
    return Declaration(record, {name: _part(field, shaping) for name, field in record.__declared__.items()})


def _part(field: _Field, shaping: Mapping[str, Any]) -> Part:
    rule, scope = field.rule, vars(sys.modules[field.module])
    outcome: Any = _ask(rule, shaping) if rule is not None else None
    if isinstance(rule, _Group):
        return Several(tuple(slot.kind for slot in outcome), tuple(slot.name for slot in outcome))
    if isinstance(rule, _When) and not outcome:
        return Absent()
    name = field.annotation.removesuffix(" | None").removeprefix("Sequence[").removesuffix("]")
    if isinstance(rule, _Each):
        items = range(outcome) if isinstance(outcome, int) else outcome
        parts = tuple(_element(name, {**shaping, "item": item}, scope) for item in items)
        return Several(parts, tuple(map(str, range(len(parts)))))
    return _element(name, shaping, scope)


def _element(name: str, shaping: Mapping[str, Any], scope: Mapping[str, Any]) -> Part:
    return KINDS.get(name) or declare(scope[name], shaping)


def _ask(rule: _Rule, shaping: Mapping[str, Any]) -> Any:
    code = rule.of.__code__
    return rule.of(*(shaping[name] for name in code.co_varnames[: code.co_argcount]))


def _slots(part: Part, path: str) -> Iterator[Slot]:
    if isinstance(part, Kind):
        yield Slot(path, part)
    for name, inner in _inner(part):
        yield from _slots(inner, f"{path}.{name}" if path else name)


def _inner(part: Part) -> Iterator[tuple[str, Part]]:
    if isinstance(part, Declaration):
        yield from part.parts.items()
    elif isinstance(part, Several):
        yield from zip(part.names, part.parts)


def _words(part: Part, value: Any, title: str, path: str) -> Iterator[Argument]:
    if isinstance(part, Kind):
        if not isinstance(value, part.classes) or isinstance(value, bool):
            raise WrongArguments(f"kernel {title!r}: argument {path!r} is {part.name}, not {value!r}")
        yield value  # type: ignore[misc]
    elif isinstance(part, Absent):
        if value is not None:
            raise WrongArguments(f"kernel {title!r}: this form takes no argument {path!r}, but is given {value!r}")
    else:
        values = _values(part, value, title, path)
        for (name, inner), value in zip(_inner(part), values):
            yield from _words(inner, value, title, f"{path}.{name}" if path else name)


def _values(part: Several | Declaration, value: Any, title: str, path: str) -> Sequence[Any]:
    """The values of the inner parts, which must be as many as are declared."""
    where = f"argument {path!r}" if path else "its record"
    if isinstance(part, Declaration):
        if not isinstance(value, part.record):
            raise WrongArguments(f"kernel {title!r}: {where} is a {part.record.__name__}, not {value!r}")
        return [getattr(value, name) for name in part.parts]
    if not isinstance(value, (list, tuple)) or len(value) != len(part.parts):
        names = ", ".join(part.names) or "nothing"
        raise WrongArguments(f"kernel {title!r}: {where} has {len(part.parts)} elements ({names}), not {value!r}")
    return value


def _read(part: Part, next: Callable[[Type], Value]) -> Any:
    if isinstance(part, Kind):
        return next(part.type)
    if isinstance(part, Absent):
        return None
    values = [_read(inner, next) for _, inner in _inner(part)]
    return part.record(**dict(zip(part.parts, values))) if isinstance(part, Declaration) else values
