"""Who is right where onnxruntime gives something else: each node alone is put to it, and to others where it differs there, too.

A graph of many nodes can differ by rounding that adds up, or by what onnxruntime makes of several nodes; a node alone cannot. Where one
does, whoever is independent of us is asked in turn: onnxruntime with all operands fed, onnxruntime in double, and the reference
implementation of the onnx package in both precisions. If one of them has what we have, onnxruntime contradicts it or itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from sardonyx import formats
from tests import onnxruntime_peer
from tests.attack.reference import Expectation, Reference, captured, narrowed, type_proto, widened
from tests.attack.subject import Problem

Values = Mapping[str, Any]


def disputed(model: onnx.ModelProto, values: Values) -> str:
    """The node about which nobody else agrees with us, or nothing. `values` are what all nodes gave."""
    constants = {one.name for one in model.graph.initializer}
    for node in model.graph.node:
        if reason := _disputed(model, node, constants, values):
            return f"{node.op_type} {reason}"
    return ""


def _disputed(model: onnx.ModelProto, node: onnx.NodeProto, constants: set[str], values: Values) -> str:
    given = {name: values[name] for name in captured(node)}
    fed = node_model(model, node, given)
    expectation = Expectation(Reference(fed), given)
    kept = {name: value for name, value in given.items() if name in constants}
    first = peer_opinion(node_model(model, node, given, kept), given)
    if first is not None and _agrees(expectation, first):
        return ""
    if any(_agrees(expectation, opinion) for opinion in _opinions(fed, given)):
        return ""
    wide = {name: widened(value) for name, value in given.items()}
    if any(_agrees(expectation, opinion, narrowed) for opinion in _opinions(node_model(model, node, wide), wide)):
        return ""
    return "alone is refused by onnxruntime" if first is None else "alone differs"


def _opinions(alone: onnx.ModelProto, given: Values) -> Iterator[Any]:
    """What others give for a node, each one computed when it is asked for."""
    yield peer_opinion(alone, given)
    yield onnx_opinion(alone, given)


def node_model(model: onnx.ModelProto, node: onnx.NodeProto, given: Values, constants: Values | None = None) -> onnx.ModelProto:
    """A model of one node. What is given are its inputs, what is constant is in its initializers."""
    constants = constants or {}
    inputs = [helper.make_value_info(name, _sized(value)) for name, value in given.items() if name not in constants]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    kept = [one for one in model.graph.initializer if one.name in constants]
    alone = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    alone.functions.extend(model.functions)
    alone.graph.CopyFrom(helper.make_graph([node], "node", inputs, outputs, kept))
    return alone


def _sized(value: Any) -> onnx.TypeProto:
    """The type of a value with its sizes, which onnxruntime compares with attributes."""
    declared = type_proto(value)
    for dim, size in zip(declared.tensor_type.shape.dim, getattr(value, "shape", ())):
        dim.dim_value = size
    return declared


def peer_opinion(model: onnx.ModelProto, given: Values) -> list[Any] | None:
    """What onnxruntime gives, None if it does not take the model."""
    try:
        return onnxruntime_peer.run(formats.load(model.SerializeToString()), given)
    except Exception:  # it has exceptions of its own for all that it refuses
        return None


def onnx_opinion(model: onnx.ModelProto, given: Values) -> list[Any] | None:
    """What the onnx package's own implementation gives, None where it has none or fails."""
    try:
        with np.errstate(all="ignore"):
            return list(ReferenceEvaluator(model).run(None, dict(given)))
    except Exception:  # ops fail there with whatever NumPy raises
        return None


def _agrees(
    expectation: Expectation, results: Sequence[Any] | None, converted: Callable[[Any, Any], Any] | None = None
) -> bool:
    if results is None:
        return False
    wanted = [expectation.values[name] for name in expectation.names]
    try:
        expectation.check([(converted or typed)(result, one) for result, one in zip(results, wanted, strict=True)], "another")
    except (Problem, TypeError, ValueError):  # it has another number of results, or none of this kind
        return False
    return True


def typed(result: Any, wanted: Any) -> Any:
    """A result in a type that NumPy lacks, of which onnxruntime gives the bytes; or one that it leaves sparse, as all its elements."""
    if type(result).__name__ == "SparseTensor" and isinstance(wanted, np.ndarray):
        return _dense(result)
    if getattr(result, "dtype", None) == np.uint8 and str(getattr(wanted, "dtype", "")).startswith("float8"):
        return result.view(wanted.dtype)
    return result


def _dense(sparse: Any) -> np.ndarray:
    """All elements of an onnxruntime.SparseTensor."""
    elements, places = sparse.values(), sparse.get_coo_data().indices()
    array = np.zeros(sparse.dense_shape(), elements.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = elements
    else:
        array[tuple(places.T)] = elements
    return array
