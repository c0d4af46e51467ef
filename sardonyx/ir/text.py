"""ONNX's text form: `to_text` prints what it is given, `parse_model`, `parse_graph` and `parse_function` read.

`sardonyx inspect`, rewrite rules and tests use it:

    g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { t = Add (x, w) y = Softmax <axis = -1> (t) }
"""

from __future__ import annotations

from collections.abc import Mapping

from sardonyx.ir.graph import Graph, Node
from sardonyx.ir.model import Function, Model
from sardonyx.ir.opsets import NEWEST
from sardonyx.ir.text_link import Fetch, Linking, link_function, link_graph, link_model
from sardonyx.ir.text_print import Printer
from sardonyx.ir.text_syntax import Parser


def parse_model(text: str, fetch: Fetch | None = None) -> Model:
    """The model that `text` describes; `fetch` makes tensors of external data, if there are any."""
    parser = Parser(text)
    tree = parser.model()
    parser.expect_end()
    return link_model(tree, fetch)


def parse_graph(text: str, opsets: Mapping[str, int] | None = None, fetch: Fetch | None = None) -> Graph:
    """The graph that `text` describes, with the newest version of the standard domain unless `opsets` says otherwise."""
    parser = Parser(text)
    tree = parser.graph()
    parser.expect_end()
    return link_graph(tree, Linking({"": NEWEST[""]} if opsets is None else opsets, fetch, lenient=True))


def parse_function(text: str, fetch: Fetch | None = None) -> Function:
    """The function that `text` describes."""
    parser = Parser(text)
    tree = parser.function()
    parser.expect_end()
    return link_function(tree, fetch)


def to_text(what: Model | Function | Graph | Node, max_elements: int | None = None, types: bool = True) -> str:
    """The text form. Tensors and lists of more than `max_elements` are abbreviated; `types` lists those of inner values too."""
    printer = Printer(max_elements, types)
    match what:
        case Model():
            return printer.model(what)
        case Function():
            return printer.function(what)
        case Graph():
            return printer.graph(what)
    return printer.node(what)
