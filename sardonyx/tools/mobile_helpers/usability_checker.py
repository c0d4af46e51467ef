"""Whether a model suits the processors of phones: how many of its nodes NNAPI and CoreML would take, in how many parts.

A part is handed to the processor and back, which takes time; so one large part is good, and many small ones are worse than none.
"""

from __future__ import annotations

import argparse
import logging
import pathlib
import tempfile
from collections.abc import Callable, Iterable
from enum import IntEnum

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from sardonyx.tools.mobile_helpers.partitions import Partitioner, op_of
from sardonyx.tools.mobile_helpers.supported_ops import BY_FILE, NNAPI, SupportedOps
from sardonyx.tools.onnx_model_utils import ModelProtoWithShapeInfo, is_fixed_size_tensor, optimize_model

Check = Callable[[ModelProto, bool], "PartitioningInfo"]


class PartitioningInfo:
    """What a provider would make of a model."""

    class TryWithEP(IntEnum):
        """Whether the provider is worth trying."""

        NO = 0
        MAYBE = 1
        YES = 2

    def __init__(
        self,
        num_nodes: int,
        num_supported_nodes: int,
        num_partitions: int,
        supported_ops_checker: SupportedOps,
        supported_groups: list[list[NodeProto]],
        unsupported_ops: set[str],
        nodes_unsupported_due_to_op: int,
        nodes_unsupported_due_to_dynamic_input: int,
        num_unsupported_nodes_due_to_rank: int,
        ops_with_unsupported_rank: set[str],
    ):
        self.num_nodes = num_nodes
        self.num_supported_nodes = num_supported_nodes
        self.num_partitions = num_partitions
        self.supported_ops_checker = supported_ops_checker
        self.supported_groups = supported_groups
        self.unsupported_ops = unsupported_ops
        self.nodes_unsupported_due_to_op = nodes_unsupported_due_to_op
        self.nodes_unsupported_due_to_dynamic_input = nodes_unsupported_due_to_dynamic_input
        self.num_unsupported_nodes_due_to_rank = num_unsupported_nodes_due_to_rank
        self.ops_with_unsupported_rank = ops_with_unsupported_rank
        self.num_subgraphs = 0
        self.num_nodes_in_subgraphs = 0

    def merge(self, other: PartitioningInfo) -> None:
        """Add what becomes of a graph inside."""
        self.num_nodes += other.num_nodes
        self.num_supported_nodes += other.num_supported_nodes
        self.num_partitions += other.num_partitions
        self.supported_groups.extend(other.supported_groups)
        self.unsupported_ops |= other.unsupported_ops
        self.nodes_unsupported_due_to_op += other.nodes_unsupported_due_to_op
        self.nodes_unsupported_due_to_dynamic_input += other.nodes_unsupported_due_to_dynamic_input
        self.num_unsupported_nodes_due_to_rank += other.num_unsupported_nodes_due_to_rank
        self.ops_with_unsupported_rank |= other.ops_with_unsupported_rank
        self.num_subgraphs += 1
        self.num_nodes_in_subgraphs += other.num_nodes

    @property
    def share(self) -> float:
        """How many of a hundred nodes the provider would run."""
        return 100 * self.num_supported_nodes / self.num_nodes if self.num_nodes else 0.0

    def suitability(self) -> PartitioningInfo.TryWithEP:
        """Whether the provider is worth trying: with one part that has most nodes, perhaps with two, not with more."""
        if self.num_partitions == 1 and self.share > 75:
            return self.TryWithEP.YES
        is_possible = (self.num_partitions == 1 and self.share > 50) or (self.num_partitions == 2 and self.share > 75)
        return self.TryWithEP.MAYBE if is_possible else self.TryWithEP.NO

    def print_analysis(self, logger: logging.Logger, ep_name: str) -> None:
        """Tell it all."""
        sizes = ", ".join(str(len(group)) for group in self.supported_groups)
        parts = "1 part" if self.num_partitions == 1 else f"{self.num_partitions} parts"
        of_sizes = f" of {sizes} nodes" if sizes else ""
        logger.info("%s takes %d of %d nodes, in %s%s.", ep_name, self.num_supported_nodes, self.num_nodes, parts, of_sizes)
        for group in self.supported_groups:
            logger.debug("  a part: %s", ", ".join(f"{node.op_type} '{node.name}'" for node in group))
        if self.unsupported_ops:
            listed = ", ".join(sorted(self.unsupported_ops))
            logger.info("  %d nodes have ops that it does not take: %s", self.nodes_unsupported_due_to_op, listed)
        if self.nodes_unsupported_due_to_dynamic_input:
            logger.info("  %d nodes have inputs of open sizes.", self.nodes_unsupported_due_to_dynamic_input)
        if self.num_unsupported_nodes_due_to_rank:
            listed = ", ".join(sorted(self.ops_with_unsupported_rank))
            logger.info("  %d nodes have inputs of too many axes: %s", self.num_unsupported_nodes_due_to_rank, listed)
        if self.num_subgraphs:
            logger.info("  %d nodes are in %d inner graphs.", self.num_nodes_in_subgraphs, self.num_subgraphs)
        for name, condition in sorted(self._conditions().items()):
            logger.info("  asked of %s, and not checked: %s.", name, condition)

    def _conditions(self) -> dict[str, str]:
        """What is asked of the ops that are taken, beyond their names."""
        taken = {op_of(node) for group in self.supported_groups for node in group}
        return {name: self.supported_ops_checker.ops[name] for name in taken if self.supported_ops_checker.ops[name]}


def check_partitioning(
    main_graph: GraphProto, supported_ops_checker: SupportedOps, require_fixed_input_sizes: bool, max_rank: int | None = None
) -> PartitioningInfo:
    """What a provider with these ops would make of a graph, and of those inside."""
    supported = supported_ops_checker if max_rank is None else SupportedOps(supported_ops_checker.ops, max_rank)
    infos = [
        PartitioningInfo(
            part.node_count,
            sum(map(len, part.groups)),
            len(part.groups),
            supported,
            part.groups,
            set(map(op_of, part.other_ops)),
            len(part.other_ops),
            len(part.open_sizes),
            len(part.high_ranks),
            set(map(op_of, part.high_ranks)),
        )
        for part in Partitioner(supported, main_graph, require_fixed_input_sizes).parts()
    ]
    whole, *inner = infos
    for info in inner:
        whole.merge(info)
    return whole


def check_nnapi_partitions(model: ModelProto, require_fixed_input_sizes: bool) -> PartitioningInfo:
    """What NNAPI would make of a model."""
    return check_partitioning(model.graph, NNAPI, require_fixed_input_sizes)


def check_coreml_partitions(model: ModelProto, require_fixed_input_sizes: bool, config_filename: str) -> PartitioningInfo:
    """What CoreML would make of a model; the name is that of the list of one of its two kinds of models."""
    name = pathlib.Path(config_filename).name
    if name not in BY_FILE:
        raise ValueError(f"{config_filename} is none of the lists {', '.join(BY_FILE)}")
    return check_partitioning(model.graph, BY_FILE[name], require_fixed_input_sizes)


def check_shapes(graph: GraphProto, logger: logging.Logger | None = None) -> tuple[list[ValueInfoProto], int]:
    """(inputs of open sizes, number of values of open sizes)."""
    open_inputs = _open(graph.input)
    others = _open((*graph.output, *graph.value_info))
    if logger is not None:
        for value in open_inputs:
            logger.info("input '%s' has an open size", value.name)
        count = len(graph.input) + len(graph.output) + len(graph.value_info)
        logger.info("%d of %d values have open sizes", len(open_inputs) + len(others), count)
    return open_inputs, len(open_inputs) + len(others)


def _open(values: Iterable[ValueInfoProto]) -> list[ValueInfoProto]:
    return [value for value in values if not is_fixed_size_tensor(value)]


PROVIDERS: dict[str, Check] = {
    "NNAPI": check_nnapi_partitions,
    "CoreML NeuralNetwork": lambda model, fixed: check_coreml_partitions(model, fixed, "coreml_supported_neuralnetwork_ops.md"),
    "CoreML MLProgram": lambda model, fixed: check_coreml_partitions(model, fixed, "coreml_supported_mlprogram_ops.md"),
}


def checker(model_path: pathlib.Path, logger: logging.Logger) -> bool:
    """Tell what each provider would make of a model; whether one of them is worth trying."""
    model = ModelProtoWithShapeInfo(model_path).model_with_shape_info
    has_open_inputs = bool(check_shapes(model.graph)[0])
    answers = [_checked(name, check, model, has_open_inputs, logger) for name, check in PROVIDERS.items()]
    return any(answer is not PartitioningInfo.TryWithEP.NO for answer in answers)


def _checked(
    name: str, check: Check, model: ModelProto, has_open_inputs: bool, logger: logging.Logger
) -> PartitioningInfo.TryWithEP:
    """Whether a provider is worth trying, as the model is or with its sizes fixed."""
    info = check(model, True)
    info.print_analysis(logger, name)
    answer = info.suitability()
    logger.info("Worth trying with %s: %s", name, answer.name)
    if answer is PartitioningInfo.TryWithEP.YES or not has_open_inputs:
        return answer
    fixed = check(model, False)
    logger.info("If the sizes of the inputs were fixed:")
    fixed.print_analysis(logger, name)
    better = fixed.suitability()
    logger.info("Worth trying with %s then: %s", name, better.name)
    if better > answer:
        logger.info("python -m sardonyx.tools.make_dynamic_shape_fixed fixes sizes.")
    return max(answer, better)


def analyze_model(model_path: pathlib.Path, skip_optimize: bool = False, logger: logging.Logger | None = None) -> bool:
    """Tell whether NNAPI or CoreML are worth trying with a model, which is optimized before unless that is to be skipped."""
    logger = logger or _told(logging.getLogger("usability_checker"))
    logger.info("Checking %s for phones.", model_path)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(model_path)
        if not skip_optimize:
            path = pathlib.Path(folder) / path.name
            optimize_model(pathlib.Path(model_path), path, use_external_initializers=True)
        return checker(path.resolve(strict=True), logger)


def _told(logger: logging.Logger, level: int = logging.INFO) -> logging.Logger:
    logger.setLevel(level)
    return logger


def parse_args() -> argparse.Namespace:
    """The arguments of the program."""
    parser = argparse.ArgumentParser(description="Tell whether a model suits the processors of phones.")
    parser.add_argument("--log_level", choices=["debug", "info"], default="info", help="debug names the nodes of each part")
    parser.add_argument("--skip_optimize", action="store_true", help="check the model as it is, not as a session has it")
    parser.add_argument("model_path", type=pathlib.Path, help="the model")
    return parser.parse_args()


def run_analyze_model() -> None:
    """The program."""
    arguments = parse_args()
    logging.basicConfig(format="%(message)s")
    logger = _told(logging.getLogger("usability_checker"), getattr(logging, arguments.log_level.upper()))
    analyze_model(arguments.model_path.resolve(), arguments.skip_optimize, logger)


if __name__ == "__main__":
    run_analyze_model()
