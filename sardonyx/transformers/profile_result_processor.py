"""Profiles of sessions as tables: which kernels, nodes and ops took the time.

`python -m sardonyx.transformers.profile_result_processor --input profile.json` prints them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Event = Mapping[str, Any]
KERNEL_TIME = "_kernel_time"


def load_profile_json(profile_file: str) -> list[Event]:
    """The events of a profile."""
    with open(profile_file, encoding="utf-8") as file:
        events: list[Event] = json.load(file)
    return events


def parse_kernel_results(sess_time: Sequence[Event], threshold: float = 0) -> list[str]:
    """Lines about kernels of machine code whose share of the time is at least `threshold`; none if there are no such kernels."""
    kernels = [event for event in sess_time if event.get("cat") == "Kernel"]
    return _table("kernel", kernels, lambda event: str(event["name"]), threshold) if kernels else []


def parse_node_results(sess_time: Sequence[Event], kernel_time_only: bool = False, threshold: float = 0) -> list[str]:
    """Lines about nodes whose share of the time is at least `threshold`, the longest first."""
    return _table("node", _nodes(sess_time), lambda event: str(event["name"]).removesuffix(KERNEL_TIME), threshold)


def group_node_results(sess_time: Sequence[Event]) -> list[str]:
    """Lines about ops and who computes them, the longest first."""

    def key(event: Event) -> str:
        return f"{event['args'].get('op_name', '')} ({event['args'].get('provider', '')})"

    return _table("op", _nodes(sess_time), key)


def _nodes(events: Sequence[Event]) -> list[Event]:
    return [event for event in events if event.get("cat") == "Node" and str(event["name"]).endswith(KERNEL_TIME)]


def _table(title: str, events: Sequence[Event], key: Callable[[Event], str], threshold: float = 0) -> list[str]:
    """Total, share, calls and mean of the events of each key."""
    times: dict[str, list[int]] = {}
    for event in events:
        times.setdefault(key(event), []).append(int(event["dur"]))
    total = sum(map(sum, times.values())) or 1
    lines = [f"{'total µs':>12} {'share':>7} {'calls':>7} {'mean µs':>10}  {title}"]
    for name, durations in sorted(times.items(), key=lambda item: -sum(item[1])):
        whole = sum(durations)
        if whole / total >= threshold:
            lines.append(f"{whole:>12} {whole / total:>7.1%} {len(durations):>7} {whole / len(durations):>10.1f}  {name}")
    return lines


def process_results(profile_file: str, args: argparse.Namespace) -> list[str]:
    """All lines about a profile."""
    events = load_profile_json(profile_file)
    lines = parse_kernel_results(events, args.threshold)
    return [*lines, *parse_node_results(events, args.kernel_time_only, args.threshold), "", *group_node_results(events)]


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Print which nodes and ops of a profile took the time.")
    parser.add_argument("-i", "--input", required=True, help="path of a profile")
    parser.add_argument("--threshold", type=float, default=0.01, help="leave out nodes with a smaller share of the time")
    parser.add_argument("--provider", default="cpu", help="accepted for compatibility")
    parser.add_argument("--kernel_time_only", action="store_true", help="accepted: times are those of kernels")
    parser.add_argument("-v", "--verbose", action="store_true", help="accepted for compatibility")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    options = parse_arguments(argv)
    print("\n".join(process_results(options.input, options)))


if __name__ == "__main__":
    main()
