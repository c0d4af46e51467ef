"""Which kernel computes a node, and what it is given: the way of all providers that have kernels.

Providers ask when a node is theirs to compute alone. Compiled models never ask, so `provider` imports this when somebody does.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sardonyx.dtypes import ElementType
from sardonyx.errors import CODED, Fail, KernelError, unforeseen
from sardonyx.errors import NotImplemented as NotImplementedByUs
from sardonyx.ir import Kind, Node, SparseTensorType, TensorType, Value
from sardonyx.ops import checking
from sardonyx.ops.reading import attribute_value
from sardonyx.providers import memory_limit
from sardonyx.providers.kernel_table import BoundKernel, Kernel, UnsupportedAttribute, bind
from sardonyx.providers.matching import SCHEMAS, Arguments, OpId, StoredResolver, first_type
from sardonyx.providers.provider import element_type
from sardonyx.startup.records import replace

if TYPE_CHECKING:
    from sardonyx.providers.provider import ExecutionProvider


def find(provider: ExecutionProvider, node: Node) -> Kernel | None:
    """The kernel of a provider that fits a node's op, version and types."""
    signature, types = checking.signature_of(node), constraint_types(node, provider.resolver)
    tables = [*reversed(provider.custom_kernels), *([] if provider.kernels is None else [provider.kernels])]
    return next((kernel for table in tables if (kernel := table.find(signature, types)) is not None), None)


def bound(provider: ExecutionProvider, node: Node) -> BoundKernel:
    """The node's kernel with its attributes fixed."""
    kernel = provider.find_kernel(node)
    if kernel is None:
        raise missing_kernel(node)
    kernel = _within_memory(kernel, node)
    graphs = [name for name, attribute in node.attributes.items() if attribute.kind in (Kind.GRAPH, Kind.GRAPHS)]
    on_host = provider.device == "cpu"  # values of another device are not NumPy's to cast
    try:
        return bind(
            kernel,
            checking.signature_of(node),
            {name: attribute_value(attribute.value) for name, attribute in node.attributes.items()},
            [None if value is None else element_type(value) for value in node.inputs],
            [element_type(value) if on_host else None for value in node.outputs],
            graphs,
        )
    except UnsupportedAttribute as error:
        raise NotImplementedByUs(f"{node}: {error}") from error
    except KernelError as error:
        raise error.kind(f"{node}: {error}") from error
    except CODED:
        raise
    except Exception as error:
        unforeseen(error, f"the attributes of {node}")


def _within_memory(kernel: Kernel, node: Node) -> Kernel:
    """The kernel, or one that refuses to run if a result is larger than all memory: other nodes may still be computed."""
    sizes = {value.name: _known_bytes(value) for value in node.outputs}
    if max(sizes.values(), default=0) <= memory_limit.largest_bytes():
        return kernel
    is_open = any(not isinstance(size, int) for value in node.outputs for size in getattr(value.type, "shape", None) or ())

    @functools.wraps(kernel.function)  # whoever asks for its parameters learns those of the kernel
    def refuse(**operands: Any) -> Any:
        if is_open and any(_may_empty(operand) for operand in operands.values()):
            return kernel.function(**operands)
        for name, size in sizes.items():
            memory_limit.require(size, f"output {name!r}")
        return None

    return replace(kernel, function=refuse, plain=False)


def _may_empty(operand: Any) -> bool:
    """Whether a result may have no elements because of this operand: it has none, or is asked for as many as a 0 in it says."""
    if isinstance(operand, (list, tuple)):
        return any(map(_may_empty, operand))
    return isinstance(operand, np.ndarray) and (operand.size == 0 or (operand.dtype.kind in "iu" and not operand.all()))


def _known_bytes(value: Value) -> int:
    """How many bytes a value takes at least, where sizes that inference does not know are one; 0 if that is all."""
    shape, dtype = getattr(value.type, "shape", None), element_type(value)
    if not shape or dtype is None:
        return 0
    return math.prod(size for size in shape if isinstance(size, int)) * dtype.numpy.itemsize


def missing_kernel(node: Node) -> Exception:
    """What to raise when no provider can compute a node."""
    signature = checking.signature_of(node)
    types = ", ".join(f"{value.name}: {value.type}" for value in node.inputs if value is not None)
    return NotImplementedByUs(
        f"Could not find an implementation for {node.op_id}({signature.since_version}) node with name '{node.name}' (inputs {types})"
    )


def constraint_types(node: Node, resolver: StoredResolver | None = None) -> dict[str, ElementType | None]:
    """The element type behind each type string of the node's op, by the first argument that exists; None for other than tensors.

    An op that `resolver` has nothing about was not in the model's file: the signature is asked.
    """
    signature = checking.signature_of(node)
    arguments = SCHEMAS.of(signature)
    if resolver is not None:
        stored = resolver.find(OpId(signature.domain, signature.name, signature.since_version))
        arguments = arguments if stored is None else _complete(stored, arguments, node)
    types = ((key, first_type(node, places)) for key, places in arguments.items())
    return {key: type.dtype if isinstance(type, (TensorType, SparseTensorType)) else None for key, type in types}


def _complete(stored: Arguments, needed: Arguments, node: Node) -> Arguments:
    missing = next((key for key in needed if key not in stored), None)
    if missing is not None:
        raise Fail(f"{node}: Failed to find the type string {missing!r} in the table that came with the model")
    return stored
