"""Tree ensembles of ai.onnx.ml: packed when a session is made, gone through by `trees_walk`'s code, finished by that of `ml_scores`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sardonyx.compiler.types import F32, F64, Type
from sardonyx.errors import KernelError
from sardonyx.ir import Dim, Node, dim
from sardonyx.ops.reading import all_attributes
from sardonyx.providers.cpu.ml.forest import Forest
from sardonyx.providers.cpu.ml.trees import AGGREGATES, forest_of_nodes_and_leaves, forest_of_numbered_nodes
from sardonyx.providers.cpu.ml.trees import TRANSFORMS as NUMBERED_TRANSFORMS
from sardonyx.providers.native.kernels.ml.scores import TRANSFORMS, Scores, ScoreSpec, finish_scores
from sardonyx.providers.native.kernels.ml.trees_table import GROUP, IDENTITIES, pack
from sardonyx.providers.native.kernels.ml.trees_walk import WalkArguments, WalkSpec, key_bytes, score_rows, walk_kernel
from sardonyx.providers.native.program.lowering import Lowerer
from sardonyx.providers.native.program.sizes import THREADS
from sardonyx.providers.native.program.table import lower
from sardonyx.providers.native.program.values import element_of, shape_of
from sardonyx.providers.provider import CannotCompile

STEPS_PER_PIECE = 40_000
"""How many steps from node to node are worth a thread: about 20 µs."""


def takes_rows(node: Node) -> bool:
    """Whether the input has two axes, and all outputs are wanted by name."""
    shape = None if node.inputs[0] is None else shape_of(node.inputs[0])
    return shape is not None and len(shape) == 2 and all(output.name for output in node.outputs)


def _claims_classifier(node: Node) -> bool:
    attributes = all_attributes(node)
    return takes_rows(node) and len(node.outputs) == 2 and attributes["post_transform"] in TRANSFORMS


def _claims_regressor(node: Node) -> bool:
    attributes = all_attributes(node)
    return takes_rows(node) and attributes["post_transform"] in TRANSFORMS and attributes["aggregate_function"] in AGGREGATES


def _claims_numbered(node: Node) -> bool:
    attributes = all_attributes(node)
    return (
        takes_rows(node)
        and 0 <= attributes["post_transform"] < len(TRANSFORMS)
        and 0 <= attributes["aggregate_function"] < len(AGGREGATES)
    )


@lower("TreeEnsembleClassifier", domain="ai.onnx.ml", claims=_claims_classifier)
def tree_ensemble_classifier(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    forest = _numbered_forest(attributes, "class")
    labels, base = list(attributes.get("classlabels_int64s") or ()), _base_values(forest, attributes)
    trees = _Ensemble(lowerer, node, forest, len(labels), "SUM")
    transform, ids = attributes["post_transform"], attributes["class_ids"]
    if len(labels) == 1:
        transform = transform if transform == "PROBIT" else "NONE"
        trees.finish(transform, base[:1], label="above", labels=(0, 1))
    elif len(labels) == 2 and len(set(ids)) == 1:
        _classify_two(trees, transform, base, labels, ids[0], bool((forest.vote_weight >= 0).all()))
    else:
        trees.finish(transform, base, label="best", labels=labels)


def _classify_two(
    trees: _Ensemble, transform: str, base: np.ndarray, labels: list[int], voted: int, all_positive: bool
) -> None:
    """All votes are for one of two classes: a probability, or a margin if some are negative."""
    limit = 0.5 if all_positive else 0.0
    if voted == 0 and len(base) < 2:
        signed = transform == "PROBIT" or (not all_positive and transform != "LOGISTIC")
        trees.finish(transform, base, second="negative" if signed else "complement", label="above", labels=labels, limit=limit)
        return
    kept = np.full(2, -0.0, base.dtype)
    if len(base) == 2:
        kept[voted:] = base[voted:]
    trees.finish(transform, kept, label="above", labels=labels, voted=voted, limit=limit)


@lower("TreeEnsembleRegressor", domain="ai.onnx.ml", claims=_claims_regressor)
def tree_ensemble_regressor(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    forest = _numbered_forest(attributes, "target")
    _regress(
        lowerer, node, forest, attributes["aggregate_function"], _base_values(forest, attributes), attributes["post_transform"]
    )


@lower("TreeEnsemble", domain="ai.onnx.ml", claims=_claims_numbered)
def tree_ensemble(lowerer: Lowerer, node: Node) -> None:
    attributes = all_attributes(node)
    names = (
        "tree_roots nodes_featureids nodes_splits nodes_modes nodes_truenodeids nodes_trueleafs nodes_falsenodeids nodes_falseleafs "
        "nodes_missing_value_tracks_true leaf_targetids leaf_weights membership_values"
    )
    wide = {name: _widened(value) for name, value in attributes.items()}
    forest = _built(forest_of_nodes_and_leaves, *(wide.get(name) for name in names.split()))
    aggregate, transform = AGGREGATES[attributes["aggregate_function"]], NUMBERED_TRANSFORMS[attributes["post_transform"]]
    _regress(lowerer, node, forest, aggregate, np.zeros(0), transform)


def _widened(value: Any) -> Any:
    narrow = isinstance(value, np.ndarray) and value.dtype.kind not in "iub" and value.dtype.itemsize == 2
    return value.astype(np.float32) if narrow else value


def _regress(lowerer: Lowerer, node: Node, forest: Forest, aggregate: str, base: np.ndarray, transform: str) -> None:
    shape = shape_of(node.outputs[0])
    targets = shape[1] if shape is not None and len(shape) == 2 else None
    if not isinstance(targets, int) or len(base) not in (0, targets):
        raise CannotCompile(f"{len(base)} base values for {targets} targets")
    trees = _Ensemble(lowerer, node, forest, targets, "SUM" if aggregate == "AVERAGE" else aggregate)
    if targets == 1 and transform != "PROBIT":
        transform = "NONE"
    trees.finish(transform, base, average=aggregate == "AVERAGE")


def _numbered_forest(attributes: dict[str, Any], votes: str) -> Forest:
    values = {name: attributes.get(f"{name}_as_tensor", attributes.get(name)) for name in ("nodes_values", f"{votes}_weights")}
    names = "nodes_modes nodes_truenodeids nodes_falsenodeids nodes_missing_value_tracks_true"
    return _built(
        forest_of_numbered_nodes,
        *(attributes.get(name) for name in ("nodes_treeids", "nodes_nodeids", "nodes_featureids")),
        values["nodes_values"],
        *(attributes.get(name) for name in names.split()),
        *(attributes.get(f"{votes}_{name}") for name in ("treeids", "nodeids", "ids")),
        values[f"{votes}_weights"],
    )


def _built(build: Callable[..., Forest], *operands: Any) -> Forest:
    """A forest, checked. What is wrong with one NumPy shall say, when it is run."""
    try:
        return build(*operands)
    except (KernelError, ValueError, TypeError, IndexError, OverflowError) as error:
        raise CannotCompile(f"no forest: {error}") from error


def _base_values(forest: Forest, attributes: dict[str, Any]) -> np.ndarray:
    values = attributes.get("base_values_as_tensor", attributes.get("base_values"))
    return np.asarray([] if values is None else values, dtype=forest.vote_weight.dtype).reshape(-1)


class _Ensemble:
    """The steps of one node: through the trees, then from the sums of votes to outputs."""

    def __init__(self, lowerer: Lowerer, node: Node, forest: Forest, targets: int, combine: str):
        assert node.inputs[0] is not None
        type = element_of(node.inputs[0])
        assert type is not None
        self.lowerer = lowerer
        self.node = node
        self.targets = targets
        self.combine = combine
        self.precise = forest.vote_weight.dtype == np.float64
        self.table = pack(forest, np.float64 if type == F64 else np.float32, targets, combine)
        X = lowerer.contiguous(node.inputs[0])
        self.rows, features = X.shape
        lowerer.require(dim.maximum(features, self.table.features), features)
        self.scores = lowerer.scratch(score_rows(self.rows) * self.table.width * 8)
        self._walk(X.place, features, type)

    def _walk(self, X: Any, features: Dim, type: Type) -> None:
        table, lowerer = self.table, self.lowerer
        votes = None if table.votes is None else F32 if table.votes.dtype == np.float32 else F64
        whole = type == F32 and np.array_equal(table.columns[:, 0], np.arange(features)) if isinstance(features, int) else False
        spec = WalkSpec(type, table.narrow, self.combine, votes, whole)
        keys = lowerer.scratch(key_bytes(self.rows, table.flag + 1, spec.keys))
        steps = max(1, int(table.trees[:, 2].sum()) * GROUP)
        lowerer.call(
            walk_kernel(lowerer.target, spec),
            WalkArguments(
                X=X,
                rows=self.rows,
                features=features,
                columns=lowerer.table(table.columns),
                column_count=len(table.columns),
                flag=table.flag,
                nodes=lowerer.table(table.nodes),
                trees=lowerer.table(table.trees),
                tree_count=table.count,
                votes=None if table.votes is None else lowerer.table(table.votes),
                width=table.width,
                keys=keys,
                scores=self.scores,
                threads=THREADS,
            ),
            dim.ceildiv(self.rows, GROUP),
            -(-STEPS_PER_PIECE // steps),
            flops=self.rows * (steps // GROUP),
            traffic=table.nodes.nbytes,
        )

    def finish(
        self,
        transform: str,
        base: np.ndarray,
        *,
        second: str = "",
        average: bool = False,
        label: str = "",
        labels: Any = (),
        voted: int = 0,
        limit: float = 0.0,
    ) -> None:
        """Labels and outputs; `base` may be shorter than the targets are many."""
        if len(base) > self.targets:
            raise CannotCompile(f"{len(base)} base values for {self.targets} targets")
        for value in self.node.outputs:
            self.lowerer.require((shape_of(value) or (0,))[0], self.rows)
        output = self.lowerer.output(self.node.outputs[-1])
        table = self.table
        spec = ScoreSpec(
            input=F64,
            computed=F64 if self.precise else F32,
            output=output.type,
            transform=transform,
            second=second,
            label=label,
            counted=label == "best" and bool((table.voted < 0).any()),
            base=len(base) > 0,
            average=average,
            identity=None if self.combine == "SUM" else IDENTITIES[self.combine],
        )
        scores = Scores(
            place=self.scores,
            stride=table.width,
            rows=self.rows,
            count=self.targets,
            base=np.concatenate([base, np.full(self.targets - len(base), -0.0)]),
            candidates=(table.voted == 1) | (np.arange(self.targets) < len(base)),
            labels=labels,
            voted=voted,
            limit=limit,
            divisor=float(table.count),
        )
        finish_scores(self.lowerer, spec, scores, output, self.lowerer.output(self.node.outputs[0]) if label else None)
