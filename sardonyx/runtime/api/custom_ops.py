"""Custom operators: an op with its signature and a NumPy function, for one session or for all.

`@custom_op` makes one. `SessionOptions.register_custom_op` gives it to the sessions made with these options and to nobody else,
`register_custom_op` to the whole process. With `infer` it may say what its outputs' shapes are, with `gradient` how it is trained through.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sardonyx.dtypes import ElementType
from sardonyx.ir import Kind
from sardonyx.ops import checking, schemas, signatures, table
from sardonyx.ops.entries import FunctionTable
from sardonyx.ops.signatures import AttributeDef, Signature
from sardonyx.providers.cpu.table import cpu
from sardonyx.providers.kernel_table import RUNTIME_PARAMETERS, KernelTable
from sardonyx.startup import families
from sardonyx.startup.locks import Lock

Function = TypeVar("Function", bound=Callable[..., Any])


def custom_op(
    name: str, signature: str, *, since: int = 1, widen: bool = False, **constraints: Iterable[ElementType | str]
) -> Callable[[Callable[..., Any]], CustomOp]:
    """Make a function of arrays the custom op `name`, "domain::Op".

    `signature` reads like `(X: T, bias: T?, *, alpha: float = 1.0) -> (Y: T)`; the keywords say which types `T` stands for. The function's
    parameters are the inputs and attributes by their names. `since` is the version of the domain from which it holds: another
    op with the same name and a higher `since` replaces it from there on. `widen` computes float16 and the like in float32.
    """
    domain, _, op_type = name.rpartition("::")
    if not op_type or not op_type.isidentifier():
        raise ValueError(f"a custom op is named 'domain::Op', not {name!r}")
    if since < 1:
        raise ValueError(f"{name}: versions begin at 1, since is {since}")
    try:
        parsed = signatures.parse(schemas.normal_domain(domain), op_type, since, signature, **constraints)
    except KeyError as error:
        known = ", ".join(constraints) or "none"
        raise ValueError(f"{name}: {error} is neither an element type nor a type constraint (given: {known})") from None
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{name}: {error}") from None
    _check_signature(name, parsed)

    def decorate(function: Callable[..., Any]) -> CustomOp:
        _check_function(name, parsed, function)
        return CustomOp(function, parsed, widen)

    return decorate


class CustomOp:
    """An op of a user's own; calling it calls its function."""

    def __init__(self, function: Callable[..., Any], signature: Signature, widen: bool = False):
        self.function = function
        self.signature = signature
        self.widen = widen
        self.inference: Callable[..., Any] | None = None
        self.differentiation: Callable[..., Any] | None = None
        self.__name__ = getattr(function, "__name__", signature.name)
        self.__qualname__ = getattr(function, "__qualname__", self.__name__)
        self.__module__ = function.__module__
        self.__doc__ = function.__doc__

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)

    def infer(self, function: Function) -> Function:
        """Decorates what tells the outputs' shapes from the operands, e.g. `lambda X: X.shape`; else only the run tells them."""
        self.inference = function
        return function

    def gradient(self, function: Function) -> Function:
        """Decorates what writes the gradients of the inputs, for training: `lambda op, X, Y_grad: op.Mul(Y_grad, X)`."""
        self.differentiation = function
        return function

    @property
    def key(self) -> tuple[str, str, int]:
        """Domain, name and the version with which it begins."""
        return self.signature.domain, self.signature.name, self.signature.since_version

    def enter(self, kernels: KernelTable) -> None:
        """Register the function as the op's kernel on a table."""
        domain, name, since = self.key
        kernels.kernel(name, domain=domain, since=since, until=since, widen=self.widen)(self.function)

    def __repr__(self) -> str:
        return f"CustomOp({self.signature})"

    def __reduce__(self) -> str:
        return self.__qualname__  # like a function, it is pickled by its name in its module


# --- one session


def known(custom: Sequence[CustomOp]) -> contextlib.AbstractContextManager[None]:
    """Lets a session's own ops be found while it prepares a model."""
    return table.also_known((op.signature, op.inference) for op in custom)


def kernel_table(custom: Sequence[CustomOp]) -> KernelTable:
    """The kernels of a session's own ops."""
    kernels = KernelTable("custom ops")
    for op in custom:
        op.enter(kernels)
    return kernels


def add_once(custom: list[CustomOp], op: object) -> None:
    """Add an op to a session's, which must not have another one of its name and version."""
    if not isinstance(op, CustomOp):
        raise TypeError(f"a custom op is made with @sardonyx.custom_op, {op!r} is not")
    _check_not_ours(op)
    other = next((known for known in custom if known.key == op.key), None)
    if other is not None and other is not op:
        raise ValueError(f"{op.signature} is registered already, with {other.function!r}")
    if other is None:
        custom.append(op)


# --- the whole process

_registered: dict[tuple[str, str, int], CustomOp] = {}
_lock = Lock()


def register_custom_op(op: CustomOp) -> CustomOp:
    """Give a custom op to all sessions made from now on; may be put above `@custom_op` as a decorator."""
    with _lock:
        registered = list(_registered.values())
        add_once(registered, op)
        if op.key not in _registered:
            domain, name, since = op.key
            schemas.add(op.signature)
            if op.inference is not None:
                table.infer(name, domain=domain, since=since, until=since)(op.inference)
            if op.differentiation is not None:
                _gradients().register(name, domain=domain, since=since, until=since)(op.differentiation)
            op.enter(cpu)
            _registered[op.key] = op
    return op


def unregister_custom_op(op: CustomOp) -> None:
    """Take back `register_custom_op`; sessions that have the op keep it."""
    with _lock:
        if _registered.pop(op.key, None) is not None:
            domain, name, since = op.key
            schemas.undefine(domain, name, since)
            table.inferences.remove(domain, name, since)
            cpu.remove(domain, name, since)
            if op.differentiation is not None:
                _gradients().remove(domain, name, since)


def _gradients() -> FunctionTable:
    from sardonyx.ops.gradients.table import gradients

    return gradients


# --- what a signature and a function must be like

_DEFAULTS = {
    Kind.FLOAT: float,
    Kind.INT: int,
    Kind.STRING: str,
    Kind.FLOATS: list,
    Kind.INTS: list,
    Kind.STRINGS: list,
}


def _check_not_ours(op: CustomOp) -> None:
    """Refuse ops that sardonyx itself defines."""
    domain, name, _ = op.key
    theirs = {since for d, n, since in list(_registered) if (d, n) == (domain, name)}
    if set(schemas.versions(domain, name)) - theirs:
        raise ValueError(f"{domain or 'ai.onnx'}::{name} is not a custom op, sardonyx has it")
    families.is_foreign(domain, name)


def _check_signature(name: str, signature: Signature) -> None:
    if not signature.outputs:
        raise ValueError(f"{name}: an op has at least one output")
    operands = [*(parameter.name for parameter in signature.inputs), *signature.attributes]
    twice = next((name for name in operands if operands.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{name}: two operands are named {twice!r}")
    for parameter in signature.inputs[:-1]:
        if parameter.variadic:
            raise ValueError(f"{name}: {parameter.name!r} is variadic and must be the last input")
    for constraint, types in signature.constraints.items():
        for text in types:
            _check_type(name, constraint, text)
    for attribute in signature.attributes.values():
        _check_default(name, attribute)


def _check_type(name: str, constraint: str, text: str) -> None:
    try:
        checking.type_from_string(text)
    except (KeyError, ValueError):
        raise ValueError(
            f"{name}: {constraint} allows {text!r}, which is no type; give element types or type strings"
        ) from None


def _check_default(name: str, attribute: AttributeDef) -> None:
    expected = _DEFAULTS.get(attribute.kind)
    if attribute.default is not None and (expected is None or not isinstance(attribute.default, expected)):
        raise ValueError(f"{name}: {attribute.default!r} is no default for {attribute.name!r}, a {attribute.kind.name.lower()}")


def _check_function(name: str, signature: Signature, function: Callable[..., Any]) -> None:
    """The function takes all operands, and asks for nothing else."""
    parameters = inspect.signature(function).parameters.values()
    operands = {*(parameter.name for parameter in signature.inputs), *signature.attributes}
    taken = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        missing = sorted(operands - taken)
        if missing:
            raise ValueError(f"{name}: the function takes no {missing[0]!r}, which the signature has")
    for p in parameters:
        if p.name in taken and p.name not in operands | RUNTIME_PARAMETERS and p.default is p.empty:
            raise ValueError(f"{name}: the function wants {p.name!r}, which the signature does not have")
    optional = {p.name for p in signature.attributes.values() if not p.required and p.default is None}
    without = sorted(p.name for p in parameters if p.name in optional and p.default is p.empty)
    if without:
        raise ValueError(f"{name}: {without[0]!r} may be absent, give the function's parameter a default")
