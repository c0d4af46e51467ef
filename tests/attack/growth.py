"""A graph that grows op by op. Each node is evaluated as it is added, so that the next one knows sizes and numbers, not types alone."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sardonyx import dtypes, errors, ops
from sardonyx.formats.onnx.writer import write_model
from sardonyx.ir import Model
from sardonyx.ops import schemas
from tests.attack.reference import is_float
from tests.attack.subject import session_of
from tests.ops import cases, execution

OPSETS = (11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 21, 21, 22, 23, 24)
ML_OPSETS = (1, 2, 3, 5)
SIZES = (1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33, 64)
MOST_ELEMENTS = 1 << 14
WORDS = ("", "a", "bc", "ä", "zero\0inside", "long " * 20)
DTYPES = {
    np.float32: 12,
    np.float16: 2,
    np.float64: 2,
    np.int64: 3,
    np.int32: 3,
    np.uint8: 1,
    np.int8: 1,
    np.bool_: 2,
}


class Refused(Exception):
    """A recipe does not fit what is there; the grower takes another."""


@dataclass(frozen=True)
class Place:
    """A value of the graph: its name, and what it is for the feeds at hand."""

    name: str
    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype


class Grower:
    """The graph so far. Recipes call `pick`, `fresh` and `apply`."""

    def __init__(self, rng: random.Random, opset: int | None = None):
        ops.load_families()  # ops that the onnx package does not know are defined there
        self.rng = rng
        self.numbers = np.random.default_rng(rng.getrandbits(63))
        self.opsets = {"": opset or rng.choice(OPSETS), "ai.onnx.ml": rng.choice(ML_OPSETS), "com.microsoft": 1}
        self.inputs: dict[str, np.ndarray] = {}
        self.initializers: dict[str, np.ndarray] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.places: list[Place] = []
        self._names = 0

    # --- values

    def name(self, prefix: str = "v") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def shape(self, rank: int | None = None, most: int = MOST_ELEMENTS) -> tuple[int, ...]:
        rank = self.rng.choice((0, 1, 1, 2, 2, 2, 3, 3, 4, 4)) if rank is None else rank
        sizes = [self.rng.choice(SIZES) for _ in range(rank)]
        if self.rng.random() < 0.04 and rank:
            sizes[self.rng.randrange(rank)] = 0
        while np.prod(sizes, dtype=np.int64) > most:
            sizes[sizes.index(max(sizes))] = self.rng.choice((1, 2, 3))
        return tuple(sizes)

    def dtype(self) -> Any:
        return self.rng.choices(list(DTYPES), list(DTYPES.values()))[0]

    def random_array(self, dtype: Any, shape: Sequence[int]) -> np.ndarray:
        """Numbers of the ordinary kind: normal, with some zeros, repeats and whole numbers among them; words for texts."""
        dtype = np.dtype(dtype)
        if dtype == np.bool_:
            return self.numbers.integers(0, 2, shape).astype(np.bool_)
        if dtype.kind == "O":
            return np.asarray(self.numbers.choice(np.array(WORDS, dtype=object), shape), dtype=object)
        if dtype.kind in "iu":
            low = 0 if dtype.kind == "u" else -9
            return self.numbers.integers(low, 10, shape).astype(dtype)
        drawn = self.numbers.standard_normal(shape) * self.rng.choice((0.3, 1.0, 1.0, 3.0))
        if self.rng.random() < 0.3:
            drawn = np.round(drawn)
        return np.asarray(drawn).astype(dtype)

    def add_input(self, array: np.ndarray) -> Place:
        place = Place(self.name("x"), array)
        self.inputs[place.name] = array
        self.places.append(place)
        return place

    def constant(self, array: Any) -> Place:
        """An array as an initializer, a Constant node, or an input, as chance will have it."""
        array = np.asarray(array)
        chance = self.rng.random()
        if chance < 0.12 and array.dtype.kind != "O":
            return self.add_input(array)
        place = Place(self.name("c"), array)
        if chance < 0.25 and array.dtype.kind != "O" and is_plain(array):
            tensor = numpy_helper.from_array(array)
            self.nodes.append(helper.make_node("Constant", [], [place.name], value=tensor))
        else:
            self.initializers[place.name] = array
        if self.rng.random() < 0.1:
            self.places.append(place)
        return place

    def fresh(self, dtype: Any = np.float32, shape: Sequence[int] | None = None) -> Place:
        return self.add_input(self.random_array(dtype, self.shape() if shape is None else shape))

    def find(self, condition: Callable[[Place], Any]) -> Place | None:
        """A value that fits, rather a late one."""
        fitting = [place for place in self.places if isinstance(place.array, np.ndarray) and condition(place)]
        if not fitting:
            return None
        return self.rng.choice(fitting[-4:] if self.rng.random() < 0.7 else fitting)

    def pick(self, condition: Callable[[Place], Any]) -> Place:
        place = self.find(condition)
        if place is None:
            raise Refused
        return place

    def floats(self, rank: int | None = None, least: int = 0, nonempty: bool = False) -> Place:
        """A float value of a rank, or a new one."""
        place = self.find(
            lambda one: (
                is_float(one.array)
                and (rank is None or one.ndim == rank)
                and one.ndim >= least
                and (one.array.size or not nonempty)
            )
        )
        if place is not None and self.rng.random() < 0.9:
            return place
        shape = self.shape(rank if rank is not None else max(least, self.rng.randrange(5)))
        if nonempty:
            shape = tuple(max(size, 1) for size in shape)
        return self.fresh(self.rng.choice((np.float32, np.float32, np.float32, np.float16, np.float64)), shape)

    # --- nodes

    def apply(
        self, op: str, /, *, domain: str = "", outputs: int | Sequence[int] | None = None, **operands: Any
    ) -> list[Place]:
        """Add a node, with operands by their names in the spec: places, or arrays and numbers, which become constants or attributes."""
        opset = self.opsets[domain]
        signature = schemas.find(domain, op, opset)
        if signature is None or signature.deprecated:
            raise Refused
        arrays = {name: _array_of(value) for name, value in operands.items() if value is not None}
        case = cases.Case(op=op, operands=arrays, where="attack", domain=domain, outputs=outputs)
        if not cases.takes(signature, case, {}):
            raise Refused
        given = cases.inputs_of(signature, case, {})
        wanted = cases.wanted_outputs(case, signature, None)
        try:
            model = cases.build(signature, opset, case, given, wanted)
        except (ValueError, TypeError) as error:  # an attribute that is of another kind in this version
            raise Refused from error
        if is_refused(cases.build(signature, opset, case, given, wanted, "weights")):
            raise Refused  # constants are refused that runs do not look at, as a scale below 0 is
        model.opsets = dict(self.opsets)
        model.ir_version = execution.ir_version(self.opsets)
        proto = write_model(model)
        feeds = {name: value for name, value, type in given if type is not None}
        if not all(isinstance(value, np.ndarray) for value in feeds.values()):
            raise Refused  # sequences, maps and sparse tensors cannot be constants everywhere
        results = evaluated(proto, feeds)
        if any(not isinstance(one, np.ndarray) or not self._bearable(one) for one in results):
            raise Refused
        names = self._linked(operands, given)
        return self._added(proto.graph.node[0], names, results)

    def _bearable(self, result: np.ndarray) -> bool:
        """Whether to go on with a result: small, and mostly finite and of ordinary size."""
        if result.size > 8 * MOST_ELEMENTS:
            return False
        if not is_float(result) or self.rng.random() < 0.15:
            return True
        with np.errstate(all="ignore"):
            return bool(np.isfinite(result).all() and (np.abs(result.astype(np.float64)) < 1e4).all())

    def _linked(self, operands: Mapping[str, Any], given: Sequence[Any]) -> dict[str, str]:
        """The name in the graph for each input of the one-node model."""
        places = {name: value.name for name, value in operands.items() if isinstance(value, Place)}
        for name, value in operands.items():
            if isinstance(value, (list, tuple)) and any(isinstance(item, Place) for item in value):
                places |= {f"{name}_{at}": item.name for at, item in enumerate(value) if isinstance(item, Place)}
        return {
            name: places[name] if name in places else self.constant(value).name
            for name, value, type in given
            if type is not None
        }

    def _added(self, node: onnx.NodeProto, names: Mapping[str, str], results: Sequence[np.ndarray]) -> list[Place]:
        node.name = ""
        node.input[:] = [names[name] if name else "" for name in node.input]
        produced = [Place(self.name(), one) for one in results]
        fresh = iter(produced)
        node.output[:] = [next(fresh).name if name else "" for name in node.output]
        self.nodes.append(node)
        self.places += produced
        return produced

    # --- a whole model

    def model(self, outputs: Sequence[Place]) -> onnx.ModelProto:
        inputs = [helper.make_value_info(name, self._declared(name, array)) for name, array in self.inputs.items()]
        declared = [onnx.ValueInfoProto(name=place.name, type=self._output_type(place.array)) for place in outputs]
        initializers = [numpy_helper.from_array(array, name) for name, array in self.initializers.items()]
        graph = helper.make_graph(self.nodes, "attack", inputs, declared, initializers)
        imports = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=execution.ir_version(self.opsets))

    def _declared(self, name: str, array: np.ndarray) -> onnx.TypeProto:
        """Sizes as they are, open, under names of their own, or under names shared by equal sizes."""
        chance = self.rng.random()
        sizes: list[Any] = list(array.shape)
        if chance < 0.25:
            sizes = [f"{name}_{axis}" if self.rng.random() < 0.6 else size for axis, size in enumerate(sizes)]
        elif chance < 0.4:
            sizes = [f"size{size}" if self.rng.random() < 0.6 else size for size in sizes]
        elif chance < 0.5:
            sizes = [None] * len(sizes)
        return helper.make_tensor_type_proto(dtypes.from_numpy(array.dtype).code, sizes)

    def _output_type(self, array: Any) -> onnx.TypeProto:
        sizes = list(array.shape) if self.rng.random() < 0.5 else None
        return helper.make_tensor_type_proto(dtypes.from_numpy(array.dtype).code, sizes)


def is_plain(array: np.ndarray) -> bool:
    """Whether NumPy itself knows the type."""
    return array.dtype.kind in "biufcO"


def _array_of(value: Any) -> Any:
    if isinstance(value, Place):
        return value.array
    if isinstance(value, (list, tuple)) and any(isinstance(item, Place) for item in value):
        return [item.array if isinstance(item, Place) else item for item in value]
    return value


def is_refused(model: Model) -> bool:
    try:
        ops.infer(model)
    except errors.CODED:
        return True
    return False


def evaluated(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """The outputs of a model in NumPy, unless it is refused."""
    try:
        return session_of(proto, native="0", level=0).run(None, dict(feeds))
    except errors.CODED as error:
        raise Refused from error


@contextlib.contextmanager
def undone(grower: Grower):
    """Take back what a recipe added if it gives up half way."""
    kept = len(grower.nodes), len(grower.places), dict(grower.inputs), dict(grower.initializers)
    try:
        yield
    except Refused:
        del grower.nodes[kept[0] :]
        del grower.places[kept[1] :]
        grower.inputs, grower.initializers = kept[2], kept[3]
        raise
