"""Small random models made of constants: outputs that are constants, inputs, initializers, copies of one another or listed twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

PAIR, FOUR = [2], [4]
SIZES = {"pair": PAIR, "four": FOUR}
Draw = Callable[..., str]


class Maker:
    """A graph under construction: values by their shapes."""

    def __init__(self, draw: Draw):
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.values: dict[str, list[str]] = {"pair": ["x", "z"], "four": []}
        self.made = 0
        for kind, array in (("pair", [1, 2]), ("pair", [1, 2]), ("four", [1, 2, 3, 4]), ("four", [0, 1, 0, 1])):
            name = f"w{len(self.initializers)}"
            self.initializers.append(numpy_helper.from_array(np.float32(array), name))
            self.values[kind].append(name)
        for name, array in (("yes", True), ("no", False), ("twice", np.int64(2)), ("never", np.int64(0))):
            self.initializers.append(numpy_helper.from_array(np.asarray(array), name))

    def pick(self, kind: str) -> str:
        return self.draw(st.sampled_from(self.values[kind]))

    def name(self) -> str:
        self.made += 1
        return f"v{self.made}"

    def add(self, op: str, inputs: list[str], kinds: list[str], **attributes: object) -> None:
        outputs = [self.name() for _ in kinds]
        self.nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        for kind, output in zip(kinds, outputs, strict=True):
            self.values[kind].append(output)

    def step(self) -> None:
        STEPS[self.draw(st.sampled_from(sorted(STEPS)))](self)


def info(name: str, kind: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, SIZES[kind])


def constant(maker: Maker) -> None:
    kind = maker.draw(st.sampled_from(["pair", "four"]))
    maker.add("Constant", [], [kind], value=numpy_helper.from_array(np.arange(SIZES[kind][0], dtype=np.float32)))


def identity(maker: Maker) -> None:
    kind = maker.draw(st.sampled_from(["pair", "four"]))
    maker.add("Identity", [maker.pick(kind)], [kind])


def split(maker: Maker) -> None:
    maker.add("Split", [maker.pick("four")], ["pair", "pair"], num_outputs=2)


def concat(maker: Maker) -> None:
    maker.add("Concat", [maker.pick("pair"), maker.pick("pair")], ["four"], axis=0)


def unary(maker: Maker) -> None:
    maker.add(maker.draw(st.sampled_from(["Neg", "Relu", "Dropout"])), [maker.pick("pair")], ["pair"])


def binary(maker: Maker) -> None:
    maker.add(maker.draw(st.sampled_from(["Add", "Mul", "Sub"])), [maker.pick("pair"), maker.pick("pair")], ["pair"])


def branch(maker: Maker) -> onnx.GraphProto:
    """A graph that gives on, copies or computes something from outside, or a constant of its own."""
    name, source = maker.name(), maker.pick("pair")
    how = maker.draw(st.sampled_from(["copy", "own", "computed", "split"]))
    if how == "own":
        node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.float32([8, 9])))
    elif how == "split":
        node = helper.make_node("Split", [maker.pick("four")], [name, f"{name}b"], num_outputs=2)
    else:
        node = helper.make_node("Identity" if how == "copy" else "Neg", [source], [name])
    return helper.make_graph([node], f"b{name}", [], [info(name, "pair")])


def choice(maker: Maker) -> None:
    condition = maker.draw(st.sampled_from(["yes", "no", "c"]))
    maker.add("If", [condition], ["pair"], then_branch=branch(maker), else_branch=branch(maker))


def loop(maker: Maker) -> None:
    count, condition = maker.draw(st.sampled_from(["twice", "never"])), maker.draw(st.sampled_from(["", "yes", "c"]))
    tag, source = maker.name(), maker.pick("pair")
    kept, summed, go, going = f"{tag}k", f"{tag}s", f"{tag}g", f"{tag}h"
    nodes = [
        helper.make_node("Identity", [go], [going]),
        helper.make_node("Identity", [kept], [f"{kept}2"]),
        helper.make_node("Add", [summed, maker.draw(st.sampled_from([kept, source]))], [f"{summed}2"]),
    ]
    inputs = [
        helper.make_tensor_value_info(f"{tag}i", TensorProto.INT64, []),
        helper.make_tensor_value_info(go, TensorProto.BOOL, []),
        info(kept, "pair"),
        info(summed, "pair"),
    ]
    outputs = [
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        info(f"{kept}2", "pair"),
        info(f"{summed}2", "pair"),
    ]
    body = helper.make_graph(nodes, f"b{tag}", inputs, outputs)
    maker.add("Loop", [count, condition, maker.pick("pair"), maker.pick("pair")], ["pair", "pair"], body=body)


STEPS = {function.__name__: function for function in (constant, identity, split, concat, unary, binary, choice, loop)}


@st.composite
def models(draw: Draw, largest: int = 8) -> onnx.ModelProto:
    """A model with inputs x, z (float[2]) and c (bool); any of its values may be outputs."""
    maker = Maker(draw)
    for _ in range(draw(st.integers(0, largest))):
        maker.step()
    everything = [(name, kind) for kind, names in maker.values.items() for name in names]
    outputs = draw(st.lists(st.sampled_from(everything), min_size=1, max_size=5))
    inputs = [info("x", "pair"), info("z", "pair"), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(maker.nodes, "g", inputs, [info(*output) for output in outputs], maker.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
