"""architecture.svg: the way of a model through the stages, and of a cluster through the compiler; the layers below."""

from __future__ import annotations

from html import escape

from tests.test_layers import LAYERS

WIDTH, HEIGHT = 960, 890
FONT = "font-family='DejaVu Sans, Verdana, sans-serif'"
INK, PALE = "#1f2933", "#52606d"
COLOURS = {"file": "#f0f4f8", "stage": "#d9e8f6", "provider": "#e3f1dc", "compiler": "#fbe8d0", "layer": "#eeeaf6"}

STAGES = (
    ("load", "formats/", "bytes become a Model; weights are read when they are needed"),
    ("inline", "ir/", "calls of functions are replaced by their bodies"),
    ("infer", "ops/", "types and symbolic sizes of every value"),
    ("optimize", "optimizer/", "rewrite rules and passes, level by level"),
    ("partition", "runtime/", "providers claim nodes, in the user's order"),
)
CLUSTER = (
    ("lower", "native/", "nodes become a Program of steps"),
    ("emit", "compiler/", "the text of each kernel in LLVM IR"),
    ("compile", "compiler/", "object code, kept on disk"),
    ("lay out", "native/", "arguments, constants, buffers"),
)


def page() -> str:
    parts = [f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>", *_model(), *_cluster(), *_layers()]
    arrow = "<marker id='a' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='8' markerHeight='8' orient='auto'>"
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}' {FONT}>",
            f"<defs>{arrow}<path d='M0,0 L8,4 L0,8 z' fill='{PALE}'/></marker></defs>",
            *parts,
            "</svg>\n",
        ]
    )


def _model() -> list[str]:
    """The left column: from a file to results."""
    x, width = 30, 500
    parts = [_title(x, 34, "The way of a model"), _box(x, 50, width, 34, "file", "model.onnx, model.ort, bytes")]
    for index, (stage, package, text) in enumerate(STAGES):
        top = 104 + 66 * index
        parts += [_arrow(x + 250, top - 20, x + 250, top), _box(x, top, width, 46, "stage", stage, text, package)]
    top = 104 + 66 * len(STAGES)
    providers = (("others", "OpenVINO, your own"), ("NumPy", "a kernel for every op"), ("native", "machine code"))
    for index, (name, text) in enumerate(providers):
        left = x + 172 * index
        parts += [_arrow(left + 78, top - 20, left + 78, top), _box(left, top, 156, 46, "provider", name, text)]
        parts.append(_arrow(left + 78, top + 46, left + 78, top + 66))
    parts += [
        _box(x, top + 66, width, 46, "stage", "plan", "order of the steps, a slot for every value, memory", "runtime/"),
        _arrow(x + 250, top + 112, x + 250, top + 132),
        _box(x, top + 132, width, 46, "stage", "run", "feeds in, outputs out; any number of threads at once", "runtime/"),
    ]
    return parts


def _cluster() -> list[str]:
    """The right column: what becomes of nodes that run as machine code."""
    x, width = 590, 340
    parts = [_title(x, 418, "The way of a cluster of nodes, native")]
    for index, (step, package, text) in enumerate(CLUSTER):
        top = 434 + 66 * index
        parts.append(_box(x, top, width, 46, "compiler", step, text, package))
        if index:
            parts.append(_arrow(x + 170, top - 20, x + 170, top))
    parts.append(_arrow(530, 457, x, 457))
    notes = (
        "Every arrow is a function from one value to the next,",
        "and each value can be printed:",
        "sardonyx inspect MODEL --after STAGE",
        "",
        "Providers take single nodes, or clusters of nodes as",
        "one step. What nobody takes is replaced by the body",
        "of its op, and all providers are asked again.",
    )
    parts += [_text(x, 66 + 22 * index, note, 13, PALE) for index, note in enumerate(notes)]
    return parts


def _layers() -> list[str]:
    """The packages, each of which imports only what stands further left."""
    shown = [sorted(layer - {"sardonyx", "__main__"}) for layer in LAYERS if layer - {"sardonyx", "__main__"}]
    shown = [[name for name in layer if name not in ABSENT] for layer in shown]
    shown = [layer for layer in shown if layer]
    width, gap = (WIDTH - 60 - 8 * (len(shown) - 1)) / len(shown), 8
    parts = [_title(30, 730, "Imports point to the left")]
    for index, names in enumerate(shown):
        left = 30 + (width + gap) * index
        parts.append(
            f"<rect x='{left:.0f}' y='744' width='{width:.0f}' height='118' rx='6' fill='{COLOURS['layer']}' stroke='#c3cbd5'/>"
        )
        parts += [_text(left + width / 2, 768 + 20 * line, name, 11, INK, anchor="middle") for line, name in enumerate(names)]
    return parts


ABSENT = frozenset({"training", "serving"})
"""Have a layer, and are still to be written."""


def _title(x: float, y: float, text: str) -> str:
    return _text(x, y, text, 15, INK, weight="bold")


def _box(x: float, y: float, width: float, height: float, kind: str, title: str, text: str = "", package: str = "") -> str:
    lines = [f"<rect x='{x}' y='{y}' width='{width}' height='{height}' rx='6' fill='{COLOURS[kind]}' stroke='#9fb3c8'/>"]
    middle = y + height / 2 + 5
    lines.append(_text(x + 12, y + 20 if text else middle, title, 14, INK, weight="bold"))
    if text:
        lines.append(_text(x + 12, y + 38, text, 12, PALE))
    if package:
        lines.append(_text(x + width - 12, y + 20, package, 12, PALE, anchor="end"))
    return "\n".join(lines)


def _text(x: float, y: float, text: str, size: int, colour: str, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f"<text x='{x:.0f}' y='{y:.0f}' font-size='{size}' fill='{colour}' font-weight='{weight}' text-anchor='{anchor}'>"
        f"{escape(text)}</text>"
    )


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    return f"<path d='M{x},{y} L{to_x},{to_y}' stroke='{PALE}' marker-end='url(#a)'/>"
