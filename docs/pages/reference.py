"""reference.md: the names of `sardonyx.__all__` with their signatures and docstrings."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import sardonyx
from docs.pages.text import NOTE, joined, table
from sardonyx.runtime.api.options import Option

OPENING = """
# Reference

Everything in `sardonyx.__all__`, from its docstrings. Names and meanings are onnxruntime's;
[api](api.md) lists the differences. Besides these there are `sardonyx.dtypes` (element types) and
`sardonyx.errors` (exceptions, see [errors](errors.md)). Settings by name are listed in
[configuration](configuration.md).
"""
GROUPS = {
    "Sessions": ("InferenceSession", "run", "SessionOptions", "RunOptions"),
    "Values": ("OrtValue", "OrtValueVector", "SparseTensor", "IOBinding", "SessionIOBinding", "copy_tensors"),
    "Models": (
        "NodeArg",
        "ModelMetadata",
        "ModelCompiler",
        "OrtEpContextData",
        "OrtEpContextDataBuffer",
        "OrtExternalInitializerInfo",
        "OrtEpAssignedSubgraph",
        "OrtEpAssignedNode",
        "PrepackedWeightsContainer",
    ),
    "Your own ops and providers": (
        "custom_op",
        "CustomOp",
        "register_custom_op",
        "unregister_custom_op",
        "register_provider",
        "unregister_provider",
        "get_available_providers",
        "get_all_providers",
    ),
}
"""What users look for first; the rest follows, the classes, enums and functions each in the order of the alphabet."""


def page() -> str:
    named = {name for names in GROUPS.values() for name in names}
    rest = [name for name in sorted(sardonyx.__all__, key=str.lower) if name not in named and not name.startswith("_")]
    enums = [name for name in rest if _is_enum(getattr(sardonyx, name))]
    classes = [name for name in rest if inspect.isclass(getattr(sardonyx, name)) and name not in enums]
    functions = [name for name in rest if name not in enums and name not in classes]
    groups = GROUPS | {"Devices and memory": classes, "The process": functions, "Enums": enums}
    parts = [part for title, names in groups.items() for part in (f"## {title}", *(_entry(name) for name in names))]
    return joined(NOTE, OPENING, *parts)


def _is_enum(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, enum.Enum)


def _entry(name: str) -> str:
    value = getattr(sardonyx, name)
    if _is_enum(value):
        members = ", ".join(f"`{member.name}` {member.value}" for member in value)
        return joined(f"### {name}", document(value), members)
    if inspect.isclass(value):
        return joined(f"### {name}", _code(f"{name}{_signature(value)}"), document(value), *_members(value))
    return joined(f"### {name}", _code(f"{name}{_signature(value)}"), document(value))


def _members(cls: type) -> Iterator[str]:
    options, methods = [], []
    for name, member in own_members(cls):
        if isinstance(member, Option):
            options.append((f"`{name}`", f"`{_plain(member.default)}`", inspect.cleandoc(member.__doc__ or "")))
        elif isinstance(member, property):
            methods.append((f"`{name}`", _first_line(document(member))))
        else:
            methods.append((f"`{name}{_signature(getattr(cls, name), bound=True)}`", _first_line(document(getattr(cls, name)))))
    if options:
        yield table(("field", "default", "meaning"), options)
    if methods:
        yield table(("member", "meaning"), methods)


def own_members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public methods, properties and options of a class and of those of ours that it is derived from, in the order of the source."""
    seen: set[str] = set()
    for base in reversed(cls.__mro__):
        for name, member in vars(base).items():
            is_ours = base.__module__.startswith("sardonyx") and not name.startswith("_") and name not in seen
            if is_ours and (isinstance(member, (property, Option)) or callable(getattr(cls, name))):
                seen.add(name)
                yield name, inspect.getattr_static(cls, name)


def document(value: Any) -> str:
    return inspect.cleandoc(inspect.getdoc(value) or "")


def _first_line(text: str) -> str:
    """The first paragraph on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _signature(value: Callable[..., Any], bound: bool = False) -> str:
    """The parameters of a function without `self`, with defaults and without annotations."""
    parameters = list(inspect.signature(value).parameters.values())
    if bound and parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    plain = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_Plain.of(parameter.default)) for parameter in parameters
    ]
    return str(inspect.Signature(plain))


class _Plain:
    """A default value that prints as a program writes it."""

    def __init__(self, value: Any):
        self.value = value

    @staticmethod
    def of(value: Any) -> Any:
        return value if value is inspect.Parameter.empty else _Plain(value)

    def __repr__(self) -> str:
        return _plain(self.value)


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, enum.Enum) else repr(value)


def _code(text: str) -> str:
    return f"```text\n{text}\n```"
