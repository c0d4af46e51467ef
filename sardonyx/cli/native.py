"""What `sardonyx inspect` and `sardonyx bench` show of native code: clusters, kernels, loops, assembly, times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sardonyx.cli.terminal import Terminal, UsageError, count_text, size_text, time_text
from sardonyx.compiler.jit import Jit, Kernel
from sardonyx.providers.native.execution.compiled import CompiledProgram, StepTime
from sardonyx.providers.native.program.kernel import DeclaredKernel
from sardonyx.providers.native.program.steps import Argument, At, Buffer, Program, Step
from sardonyx.runtime.preparation.plan import Plan, all_steps, numpy_steps

SHOWN_DIGITS = 8
"""How much of a kernel's digest names it."""
SHOWN_ESTIMATES = 4
SHOWN_NODES = 10
"""How many of the slowest nodes are listed."""


def programs(plan: Plan) -> Iterator[tuple[Program, Jit]]:
    """What was compiled here, with the compiler."""
    for step in all_steps(plan):
        if isinstance(step.call, CompiledProgram) and step.call.program is not None and step.call.jit is not None:
            yield step.call.program, step.call.jit


def program_text(plan: Plan) -> str:
    """Every cluster with its steps in order, then the loops of each kernel once; what runs in NumPy is listed at the end."""
    lines: list[str] = []
    kernels: dict[str, Kernel] = {}
    for program, _ in programs(plan):
        steps = program.steps
        lines.append(f"{program.name}: {count_text(len(steps), 'step')}")
        for number, step in enumerate(steps):
            kernels.setdefault(step.kernel.symbol, step.kernel)
            size = f"{step.items} items by {step.grain}"
            lines.append(f"{number:5} {_name(step.kernel)} [{step.label}] {size}: {', '.join(_argument_texts(step))}")
            lines += _estimate_lines(step)
            lines += [f"        may go on with {number + step.jump}"] if step.jump else []
    for kernel in kernels.values():
        lines += ["", f"{_name(kernel)}: {len(kernel.text.splitlines())} lines of LLVM IR", *_indented(kernel.about)]
    left = [f"    {step.node}{_because(step.reason)}" for step in numpy_steps(plan)]
    return "\n".join([*lines, "", "in NumPy:" if left else "in NumPy: nothing", *left])


def _estimate_lines(step: Step) -> list[str]:
    """From what its algorithm was chosen, the quickest first."""
    shown = [f"{name} {cycles:.2g}" for name, cycles in step.estimates[:SHOWN_ESTIMATES]]
    more = len(step.estimates) - len(shown)
    return [f"        cycles: {', '.join(shown)}{f' and {more} more' if more else ''}"] if len(step.estimates) > 1 else []


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]


def _name(kernel: Kernel) -> str:
    return f"{kernel.title.replace(' ', '_')}_{kernel.digest[:SHOWN_DIGITS]}"


def _argument_texts(step: Step) -> list[str]:
    """What a kernel is given, by the names that it declares."""
    texts = list(map(_argument_text, step.arguments))
    if not isinstance(step.kernel, DeclaredKernel):
        return texts
    return [f"{slot.name}={text}" for slot, text in zip(step.kernel.declaration.slots(), texts, strict=True)]


def _argument_text(argument: Argument) -> str:
    if isinstance(argument, At):
        offset = "" if argument.offset == 0 else f"+{argument.offset}"
        return _argument_text(argument.buffer) + offset
    if isinstance(argument, Buffer):
        return argument.name or argument.kind
    return str(argument)


def assembly(plan: Plan, wanted: str) -> str:
    """The machine code of the kernels whose names begin as `wanted` says."""
    kernels: dict[str, tuple[Jit, Kernel]] = {}
    for program, jit in programs(plan):
        for step in program.steps:
            kernels.setdefault(_name(step.kernel), (jit, step.kernel))
    chosen = [name for name in kernels if name.startswith(wanted)]
    if not chosen:
        raise UsageError(f"no kernel is called {wanted!r}; there are {', '.join(kernels) or 'none'}")
    return "\n".join(f"; {name}\n{jit.assembly(kernel)}" for name in chosen for jit, kernel in [kernels[name]])


def show_times(terminal: Terminal, times: Sequence[StepTime]) -> list[dict[str, Any]]:
    """A table of kernels by the time that they took, those of one kind together."""
    together: dict[tuple[str, str], list[StepTime]] = {}
    for step_time in times:
        together.setdefault((step_time.kernel, step_time.label), []).append(step_time)
    total = sum(step_time.seconds for step_time in times) or 1.0
    rows, reports = [], []
    for (kernel, label), group in sorted(together.items(), key=lambda item: -sum(step_time.seconds for step_time in item[1])):
        seconds = sum(step_time.seconds for step_time in group)
        flops, traffic = sum(step_time.flops for step_time in group), sum(step_time.traffic for step_time in group)
        share = sum(step_time.share * step_time.seconds for step_time in group) / seconds if seconds else 0.0
        report = {
            "kernel": kernel,
            "ops": label,
            "count": len(group),
            "seconds": seconds,
            "flops": flops,
            "bytes": traffic,
            "share": share,
        }
        reports.append(report)
        speed = f"{flops / seconds / 1e9:.1f}" if seconds else ""
        rows.append(
            (
                kernel,
                label if len(label) <= 48 else label[:45] + "…",
                len(group),
                time_text(seconds),
                f"{100 * seconds / total:.1f} %",
                speed,
                size_text(traffic),
                f"{100 * share:.0f} %",
            )
        )
    headings = ("kernel", "ops", "calls", "time", "of the run", "GF/s", "bytes", "of the limit")
    terminal.table("native kernels", headings, rows, right=(2, 3, 4, 5, 6, 7))
    return reports


def show_slowest(terminal: Terminal, times: Sequence[StepTime]) -> None:
    """A table of the nodes that took most time; those that one kernel computes stand together."""
    together: dict[str, float] = {}
    for step_time in times:
        nodes = ", ".join(step_time.nodes)
        together[nodes] = together.get(nodes, 0.0) + step_time.seconds
    together.pop("", None)  # of programs out of a file nobody knows the nodes
    total = sum(step_time.seconds for step_time in times) or 1.0
    slowest = sorted(together.items(), key=lambda item: -item[1])[:SHOWN_NODES]
    rows = [(nodes, time_text(seconds), f"{100 * seconds / total:.1f} %") for nodes, seconds in slowest]
    terminal.table("slowest nodes", ("nodes", "time", "of the run"), rows, right=(1, 2))
