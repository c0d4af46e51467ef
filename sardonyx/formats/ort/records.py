"""Trees of runtime optimizations -> SavedOptimization: rewrites that a file names. The graph reader keeps them with their graph."""

from __future__ import annotations

from sardonyx import ir
from sardonyx.formats.ort.decoding import Tree
from sardonyx.formats.ort.tensors import invalid


def read_records(tree: Tree) -> dict[str, list[ir.SavedOptimization]]:
    """The saved rewrites of one graph, by optimizer."""
    records: dict[str, list[ir.SavedOptimization]] = {}
    for entry in tree.get("records", ()):
        if entry["optimizer_name"] in records:
            raise invalid(f"Duplicate runtime optimizations of {entry['optimizer_name']}")
        records[entry["optimizer_name"]] = [_read_record(record) for record in entry.get("runtime_optimization_records", ())]
    return records


def _read_record(tree: Tree) -> ir.SavedOptimization:
    """A record as it is: what is wrong with it matters only to who wants to use it."""
    nodes = tree.get("nodes_to_optimize_indices")
    if nodes is None:
        return ir.SavedOptimization(tree.get("action_id", ""), ())
    return ir.SavedOptimization(
        action=tree.get("action_id", ""),
        nodes=tuple(nodes.get("node_indices", ())),
        inputs=nodes["num_inputs"],
        outputs=nodes["num_outputs"],
        variadic_inputs=nodes["num_variadic_inputs"] if nodes["has_variadic_input"] else None,
        variadic_outputs=nodes["num_variadic_outputs"] if nodes["has_variadic_output"] else None,
        produced=tuple(tree.get("produced_op_ids", ())),
    )
