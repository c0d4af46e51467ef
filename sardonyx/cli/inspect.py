"""`sardonyx inspect`: what a model is made of, and what it looks like after any stage of its way to a run."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sardonyx import formats
from sardonyx.cli import memory, native
from sardonyx.cli.preparing import LEVELS, prepared, session_options
from sardonyx.cli.terminal import Terminal, UsageError, count_text, size_text
from sardonyx.cli.train import differentiated
from sardonyx.ir import Graph, Model, Value, described
from sardonyx.ir.text import to_text
from sardonyx.runtime.api.explanation import journal_lines
from sardonyx.runtime.preparation.partition import Assigned
from sardonyx.runtime.preparation.plan import Plan
from sardonyx.runtime.preparation.prepare import Prepared

STAGES = ("load", "inline", "infer", "gradient", "optimize", "layout", "expand", "partition", "plan", "native")
"""What can be printed: the stages of preparation, more views of what two of them make, and the model as training has it."""
PREPARED = {"expand": "partition", "native": "plan"}
"""The stage that makes what a view shows."""
SHOWN_ELEMENTS = 16
"""Larger tensors are abbreviated in the text."""


def add_parser(commands: Any, shared: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("inspect", parents=[shared], help="show what a model is made of", description=__doc__)
    parser.add_argument("--after", choices=STAGES, metavar="STAGE", help=f"print what a stage makes of it: {', '.join(STAGES)}")
    parser.add_argument(
        "--provider",
        action="append",
        metavar="NAME",
        help="a provider of the session, asked before the CPU (repeatable, in this order)",
    )
    parser.add_argument(
        "--level", choices=LEVELS, default="all", help="how far to optimize, for the stages from optimize on (default: all)"
    )
    parser.add_argument(
        "--explain", action="store_true", help="also sum up and list each rewrite, and each that was refused with the reason"
    )
    parser.add_argument(
        "--asm", metavar="KERNEL", help="with --after native: the machine code of a kernel, by the beginning of its name"
    )
    parser.add_argument("--numpy", action="store_true", help="leave native code out: all that the CPU computes is NumPy's")
    memory.add_options(parser)
    parser.set_defaults(execute=execute)


def execute(options: argparse.Namespace, terminal: Terminal) -> int:
    memory.check_options(options)
    if options.explain and (options.after is None or STAGES.index(options.after) < STAGES.index("optimize")):
        raise UsageError("--explain goes with --after optimize or a later stage")
    if options.asm is not None and options.after != "native":
        raise UsageError("--asm goes with --after native")
    with terminal.working("loading"):
        about = summary(formats.load(options.model), Path(options.model))
        shown = after(options) if options.after else ""
    if options.after:
        terminal.line(shown)
        terminal.result(about | {"after": options.after, "text": shown})
    else:
        _show(terminal, about)
        terminal.result(about)
    return 0


def summary(model: Model, path: Path) -> dict[str, Any]:
    """All that can be said of a loaded model without looking at its weights."""
    graph = model.graph
    tensors = [value.constant for value in graph.initializers.values() if value.constant is not None]
    return {
        "file": str(path),
        "bytes": path.stat().st_size,
        "ort_version": model.ort_version,
        "ir_version": model.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in model.opsets.items()},
        "producer": " ".join(filter(None, (model.producer_name, model.producer_version))),
        "graph": graph.name,
        "inputs": [_described(value) for value in graph.inputs if value.constant is None],
        "overridable": [_described(value) for value in graph.inputs if value.constant is not None],
        "outputs": [_described(value) for value in graph.outputs],
        "ops": dict(Counter(node.op_id for node in _all_nodes(model)).most_common()),
        "functions": [f"{domain}:{name}" for domain, name, _ in model.functions],
        "parameters": sum(tensor.size for tensor in tensors),
        "parameter_bytes": sum(tensor.dtype.stored_bytes(tensor.size) for tensor in tensors),
        "metadata": model.metadata,
    }


def _described(value: Value) -> dict[str, str]:
    return {"name": value.name, "type": described(value.type)}


def _all_nodes(model: Model) -> Sequence[Any]:
    graphs: list[Graph] = [model.graph, *(function.graph for function in model.functions.values())]
    return [node for graph in graphs for node in graph.all_nodes()]


def _show(terminal: Terminal, about: dict[str, Any]) -> None:
    opsets = ", ".join(f"{domain} {version}" for domain, version in about["opsets"].items())
    rows = [
        ("file", f"{about['file']} ({size_text(about['bytes'])})"),
        ("ORT format", "" if about["ort_version"] is None else f"version {about['ort_version']}"),
        ("graph", about["graph"]),
        ("opsets", opsets),
        ("IR version", about["ir_version"]),
        ("producer", about["producer"]),
        ("nodes", sum(about["ops"].values())),
        ("parameters", f"{about['parameters']:,} ({size_text(about['parameter_bytes'])})"),
        ("functions", ", ".join(about["functions"])),
        *(("metadata", f"{key}: {value}") for key, value in about["metadata"].items()),
    ]
    terminal.table("model", ("", ""), [(name, value) for name, value in rows if value != ""])
    for title in ("inputs", "overridable", "outputs"):
        terminal.table(title, ("name", "type"), [(value["name"], value["type"]) for value in about[title]])
    terminal.table("ops", ("op", "count"), about["ops"].items(), right=(1,))


def after(options: argparse.Namespace) -> str:
    """What a session with these options has made of the model after the stage asked for, as text."""
    stage = options.after
    if stage == "gradient":
        return to_text(differentiated(options.model), max_elements=SHOWN_ELEMENTS)
    upto = PREPARED.get(stage, stage)
    result = prepared(options.model, upto, session_options(options.level), options.provider or (), native=not options.numpy)
    shown = _text(stage, result, options)
    if options.explain and result.journal is not None:
        shown += "\n\n" + "\n".join(journal_lines(result.journal))
    return shown


def _text(stage: str, prepared: Prepared, options: argparse.Namespace) -> str:
    if stage == "partition" and prepared.assigned is not None:
        return partition_text(prepared.model.graph, prepared.assigned)
    if prepared.plan is None:
        return to_text(prepared.model, max_elements=SHOWN_ELEMENTS)
    if stage == "plan":
        return f"{plan_text(prepared.plan)}\n\n{memory.text(prepared.plan, options)}"
    return native.program_text(prepared.plan) if options.asm is None else native.assembly(prepared.plan, options.asm)


def partition_text(graph: Graph, assigned: Assigned, indent: str = "") -> str:
    """Who runs what, a line for each step; the graphs inside a node stand below it."""
    lines = []
    for assignment in assigned[graph]:
        who = assignment.provider.name if assignment.cluster is None else assignment.cluster.name
        why = f" ({assignment.reason})" if assignment.reason else ""
        lines.append(f"{indent}{who}: {', '.join(map(str, assignment.nodes))}{why}")
        for name, attribute in assignment.nodes[0].attributes.items() if assignment.cluster is None else ():
            if isinstance(attribute.value, Graph):
                lines += [f"{indent}  {name}:", partition_text(attribute.value, assigned, indent + "    ")]
    return "\n".join(filter(None, lines))


def plan_text(plan: Plan, indent: str = "") -> str:
    """A plan as a listing: each step with the slots that it reads, writes and gives up."""
    names = {slot: name for name, slot in plan.slots.items()}
    lines = [f"{indent}{count_text(len(plan.template), 'slot')}, {count_text(len(plan.steps), 'step')}"]
    for step in plan.steps:
        reads = ", ".join("-" if slot < 0 else f"{slot}:{names.get(slot, '?')}" for slot in step.inputs)
        writes = ", ".join("-" if slot < 0 else f"{slot}:{names.get(slot, '?')}" for slot in step.outputs)
        released = f"  releases {', '.join(map(str, step.released))}" if step.released else ""
        lines.append(f"{indent}{step.index:4} {step.node}({reads}) -> {writes}{released}  [{step.provider.name}]")
        for name, body in step.bodies.items():
            lines.append(f"{indent}     {name}:")
            lines.append(plan_text(body, indent + "       "))
    return "\n".join(lines)
