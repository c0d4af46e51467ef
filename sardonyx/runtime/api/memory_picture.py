"""The picture of a memory plan: lifetimes over steps and offsets, as SVG or as a page of its own. `MemoryReport` calls it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from sardonyx.runtime.api.memory_report import HEADINGS
from sardonyx.runtime.preparation.memory import Buffer

if TYPE_CHECKING:
    from sardonyx.runtime.api.memory_report import MemoryReport, Row

WIDTH, ARENA_HEIGHT, CURVE_HEIGHT = 1160, 460, 110
LEFT, RIGHT, TOP, GAP = 84, 16, 54, 46
LABEL_LENGTH, LABEL_HEIGHT = 60, 13
"""The smallest length and height of a rectangle that has room for a name."""
CHARACTER = 6.3
"""Width of one at the labels' size."""
PALETTE = ("#9ecae1", "#fdc38d", "#a8ddb5", "#f4a6a6", "#c5b0e0", "#e3c9a8", "#f2b6d8", "#d9e07c", "#8fd3cf", "#cfcfcf")

STYLE = """
text { font: 11px system-ui, sans-serif; fill: #333 } .title { font-size: 15px; font-weight: 600; fill: #111 }
.axis { stroke: #999; stroke-width: 1 } .grid { stroke: #e4e4e4; stroke-width: 1 } .label { pointer-events: none; fill: #111 }
rect.buffer { stroke: #fff; stroke-width: .6 } rect.buffer:hover { stroke: #000; stroke-width: 1.5 }
.curve { fill: #4c78a833; stroke: #4c78a8; stroke-width: 1.4 } .peak { stroke: #d62728; stroke-dasharray: 5 3 } .peak-text { fill: #d62728 }
"""


def svg(report: MemoryReport) -> str:
    """Above, the bytes in use at each step; below, the arena: a rectangle from the first to the last step of each buffer."""
    memory, placement = report.memory, report.memory.placement(report.sizes)
    count = max(len(report.steps), 1)
    across = (WIDTH - LEFT - RIGHT) / count
    floor = TOP + CURVE_HEIGHT + GAP + ARENA_HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {floor + 58}" width="{WIDTH}" height="{floor + 58}">',
        f'<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text class="title" x="{LEFT}" y="22">{escape(_title(report))}</text>',
        f'<text x="{LEFT}" y="40">{escape("; ".join(report.summary()))}</text>',
    ]
    parts += _curve(report.in_use(), memory.peak(report.sizes), across)
    parts += _frame(placement.size, len(report.steps), across, floor)
    rows = _values_by_buffer(report)
    colors = _colors(report, rows)
    parts += _legend(colors, floor + 38)
    scale = ARENA_HEIGHT / max(placement.size, 1)
    for index, (buffer, offset) in enumerate(zip(memory.buffers, placement.offsets, strict=True)):
        if offset is not None and rows[index]:
            size = max((row.bytes or 0) for row in rows[index])
            box = (
                LEFT + buffer.first * across,
                floor - (offset + size) * scale,
                (buffer.last - buffer.first + 1) * across,
                size * scale,
            )
            parts.append(_rectangle(box, report, buffer, rows[index], offset, colors[_op(report, rows[index])]))
    return "\n".join([*parts, "</svg>"])


def _title(report: MemoryReport) -> str:
    peak = human(report.peak())  # first, because it says which size is missing
    sizes = ", ".join(f"{name}={report.sizes[name]}" for name in report.symbols)
    return f"Memory plan, peak {peak}" + (f" with {sizes}" if sizes else "")


def _values_by_buffer(report: MemoryReport) -> dict[int, list[Row]]:
    rows: dict[int, list[Row]] = defaultdict(list)
    for row in report.rows():
        if row.allocation.buffer is not None:
            rows[row.allocation.buffer].append(row)
    return rows


def _rectangle(
    box: tuple[float, float, float, float], report: MemoryReport, buffer: Buffer, rows: Sequence[Row], offset: int, color: str
) -> str:
    x, y, width, height = box
    size = max(row.bytes or 0 for row in rows)
    lines = [
        f"buffer {rows[0].allocation.buffer}: {size:,} bytes at {offset:,}, steps {buffer.first} to {buffer.last}",
        f"made by {report.steps[rows[0].allocation.first]}",
        *(f"{row.allocation.name}: {row.type}, {row.allocation.kind.value}" for row in rows[:12]),
    ]
    return (
        f'<g><rect class="buffer" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{max(height, 0.5):.2f}" '
        f'fill="{color}"><title>{escape(chr(10).join(lines))}</title></rect>{_label(box, rows[0].allocation.name)}</g>'
    )


def _label(box: tuple[float, float, float, float], name: str) -> str:
    """The name inside a rectangle, upright or on its side, if there is room for it."""
    x, y, width, height = box
    upright = width >= min(LABEL_LENGTH, len(name) * CHARACTER) and height >= LABEL_HEIGHT
    length = int(((width if upright else height) - 8) / CHARACTER)
    if not upright and (width < LABEL_HEIGHT or length < 5):
        return ""
    shown = name if len(name) <= length else f"{name[: length - 1]}…"
    if upright:
        return f'<text class="label" x="{x + 4:.1f}" y="{y + height / 2 + 4:.1f}">{escape(shown)}</text>'
    across, bottom = x + width / 2 + 4, y + height - 4
    return f'<text class="label" transform="translate({across:.1f} {bottom:.1f}) rotate(-90)">{escape(shown)}</text>'


def _colors(report: MemoryReport, rows: Mapping[int, Sequence[Row]]) -> dict[str, str]:
    """A color for each op that makes buffers, the most frequent first; the last color is for all the rest."""
    counted = Counter(_op(report, values) for values in rows.values())
    return {op: PALETTE[min(place, len(PALETTE) - 1)] for place, (op, _) in enumerate(counted.most_common())}


def _op(report: MemoryReport, rows: Sequence[Row]) -> str:
    return report.steps[rows[0].allocation.first].partition(" '")[0]


def _legend(colors: Mapping[str, str], y: float) -> list[str]:
    parts, x = [], float(LEFT)
    shown = dict(list(colors.items())[: len(PALETTE) - 1]) | ({"others": PALETTE[-1]} if len(colors) >= len(PALETTE) else {})
    for op, color in shown.items():
        parts.append(f'<rect x="{x:.1f}" y="{y - 9}" width="11" height="11" fill="{color}"/>')
        parts.append(f'<text x="{x + 15:.1f}" y="{y}">{escape(op)}</text>')
        x += 32 + len(op) * CHARACTER
    return parts


def _curve(in_use: Sequence[int], peak: int, across: float) -> list[str]:
    """Bytes in use over the steps, with the planned peak as a line above them."""
    bottom, scale = TOP + CURVE_HEIGHT, (CURVE_HEIGHT - 14) / max(peak, *in_use, 1)
    points = [f"{LEFT},{bottom}"]
    for step, used in enumerate(in_use):
        height = bottom - used * scale
        points += [f"{LEFT + step * across:.1f},{height:.1f}", f"{LEFT + (step + 1) * across:.1f},{height:.1f}"]
    points.append(f"{LEFT + len(in_use) * across:.1f},{bottom}")
    line = bottom - peak * scale
    return [
        f'<polygon class="curve" points="{" ".join(points)}"/>',
        f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>',
        f'<line class="peak" x1="{LEFT}" y1="{line:.1f}" x2="{WIDTH - RIGHT}" y2="{line:.1f}"/>',
        f'<text class="peak-text" x="{WIDTH - RIGHT}" y="{line - 3:.1f}" text-anchor="end">peak {human(peak)} = arena + outputs</text>',
        f'<text x="{LEFT - 6}" y="{line + 4:.1f}" text-anchor="end">{human(peak)}</text>',
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text x="{LEFT}" y="{bottom + 15}">in use at each step, outputs included</text>',
    ]


def _frame(arena: int, steps: int, across: float, floor: float) -> list[str]:
    parts = []
    for quarter in range(5):
        y = floor - ARENA_HEIGHT * quarter / 4
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{human(arena * quarter // 4)}</text>')
    stride = next((stride for stride in _ROUND if steps / stride <= 16), max(steps // 16, 1))
    for step in range(0, steps, stride):
        x = LEFT + (step + 0.5) * across
        parts.append(f'<text x="{x:.1f}" y="{floor + 16}" text-anchor="middle">{step}</text>')
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}"/>')
    parts.append(
        f'<text x="{LEFT}" y="{floor - ARENA_HEIGHT - 8}">offset in the arena, over the steps; point at one to see its values</text>'
    )
    return parts


_ROUND = tuple(base * 10**power for power in range(6) for base in (1, 2, 5))


def human(count: int) -> str:
    """A number of bytes, short."""
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.2f} GB"


PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px system-ui, sans-serif; margin: 24px; color: #222; background: #fff; max-width: 1200px }}
svg {{ max-width: 100%; height: auto }}
table {{ border-collapse: collapse; font-size: 12.5px; margin-top: 18px; width: 100% }}
th {{ text-align: left; position: sticky; top: 0; background: #f5f5f5 }}
td, th {{ padding: 3px 9px; border-bottom: 1px solid #e6e6e6; vertical-align: top; overflow-wrap: anywhere }}
td:nth-child(3), td:nth-child(5), td:nth-child(6), th:nth-child(3), th:nth-child(5), th:nth-child(6) {{ text-align: right }}
th, td:nth-child(n+5) {{ white-space: nowrap; font-variant-numeric: tabular-nums }} tr:hover td {{ background: #f0f6ff }}
input {{ font: inherit; padding: 4px 8px; width: 320px; margin-top: 14px }} h2 {{ font-size: 16px; margin: 26px 0 0 }}
</style><body>{picture}<h2>Values</h2><input placeholder="show values, kinds or types with …" oninput="for (const row of
document.querySelectorAll('tbody tr')) row.hidden = !row.textContent.toLowerCase().includes(this.value.toLowerCase())">
<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table></body></html>
"""


def html(report: MemoryReport) -> str:
    """The picture, and below it the table of values with a field to search it."""
    rows = "\n".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>" for cells in report.cells())
    headings = "".join(f"<th>{escape(heading)}</th>" for heading in HEADINGS)
    return PAGE.format(title=escape(_title(report)), picture=svg(report), headings=headings, rows=rows)
