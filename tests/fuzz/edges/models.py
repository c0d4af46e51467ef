"""Ops of ai.onnx.ml."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import ML, audit, floats, ints

X = floats(3, 4)

audit("ArrayFeatureExtractor", {"X": X, "Y": ints(0, 3, 1)}, "Y=status", domain=ML)
audit("FeatureVectorizer", {"a": X, "b": floats(3, 2)}, "inputdimensions=claims", domain=ML, inputdimensions=[4, 2])
audit(
    "Imputer",
    {"X": X},
    "imputed_value_int64s=data replaced_value_int64=data",
    domain=ML,
    imputed_value_floats=[1.0, 2.0, 3.0, 4.0],
    replaced_value_float=0.0,
)
audit(
    "LabelEncoder",
    {"X": ints(1, 2, 7)},
    "default_int64=data keys_int64s=data values_int64s=data X=data",
    domain=ML,
    keys_int64s=[1, 2, 3],
    values_int64s=[4, 5, 6],
    default_int64=-1,
)
audit(
    "LinearClassifier",
    {"X": X},
    "classlabels_ints=data multi_class=flag",
    domain=ML,
    outputs=2,
    classlabels_ints=[3, 5],
    coefficients=floats(8).tolist(),
    intercepts=[0.5, -0.5],
)
audit(
    "LinearRegressor",
    {"X": X},
    "targets=claims",
    domain=ML,
    coefficients=floats(8).tolist(),
    intercepts=[0.5, -0.5],
    targets=2,
)
audit("Normalizer", {"X": X}, domain=ML, norm="L2")
audit(
    "OneHotEncoder",
    {"X": ints([1, 2], [3, 9])},
    "cats_int64s=data zeros=flag X=data",
    domain=ML,
    cats_int64s=[1, 2, 3],
    zeros=1,
)
audit("Scaler", {"X": X}, domain=ML, offset=[0.5], scale=[2.0])
audit(
    "SVMClassifier",
    {"X": X},
    "classlabels_ints=data vectors_per_class=inference",
    domain=ML,
    outputs=2,
    classlabels_ints=[0, 1],
    coefficients=[1.0, -0.5, 0.25],
    kernel_params=[0.5, 0.0, 3.0],
    kernel_type="RBF",
    rho=[0.1],
    support_vectors=floats(12).tolist(),
    vectors_per_class=[2, 1],
)
audit(
    "SVMRegressor",
    {"X": X},
    "n_supports=inference one_class=flag",
    domain=ML,
    coefficients=[1.0, -0.5, 0.25],
    kernel_params=[0.5, 0.0, 3.0],
    kernel_type="RBF",
    n_supports=3,
    one_class=0,
    rho=[0.1],
    support_vectors=floats(12).tolist(),
)
NODES = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1],
    "nodes_nodeids": [0, 1, 2, 0, 1, 2],
    "nodes_featureids": [1, 0, 0, 3, 0, 0],
    "nodes_values": [0.25, 0.0, 0.0, -0.25, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * 2,
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
    "nodes_missing_value_tracks_true": [0, 0, 0, 1, 0, 0],
}
TREES = (
    "nodes_treeids=claims nodes_nodeids=claims nodes_featureids=status nodes_truenodeids=claims nodes_falsenodeids=claims "
    "nodes_missing_value_tracks_true=flag"
)
audit(
    "TreeEnsembleRegressor",
    {"X": X},
    f"{TREES} n_targets=claims target_ids=claims target_nodeids=claims target_treeids=claims",
    domain=ML,
    n_targets=2,
    target_treeids=[0, 0, 1, 1],
    target_nodeids=[1, 2, 1, 2],
    target_ids=[0, 1, 1, 0],
    target_weights=[1.0, 2.0, 3.0, 4.0],
    **NODES,
)
audit(
    "TreeEnsembleClassifier",
    {"X": X},
    f"{TREES} classlabels_int64s=data class_ids=claims class_nodeids=claims class_treeids=claims",
    domain=ML,
    outputs=2,
    classlabels_int64s=[7, 8, 9],
    class_treeids=[0, 0, 1, 1],
    class_nodeids=[1, 2, 1, 2],
    class_ids=[0, 1, 2, 0],
    class_weights=[1.0, 2.0, 3.0, 4.0],
    **NODES,
)
audit(
    "TreeEnsemble",
    {"X": X},
    "aggregate_function=inference leaf_targetids=claims n_targets=claims nodes_falseleafs=claims nodes_falsenodeids=claims "
    "nodes_featureids=status nodes_missing_value_tracks_true=flag nodes_trueleafs=claims nodes_truenodeids=claims "
    "post_transform=inference tree_roots=claims",
    domain=ML,
    aggregate_function=1,
    post_transform=0,
    n_targets=2,
    nodes_featureids=[1, 3],
    nodes_splits=np.array([0.25, -0.25], np.float32),
    nodes_modes=np.array([0, 0], np.uint8),
    nodes_truenodeids=[0, 2],
    nodes_trueleafs=[1, 1],
    nodes_falsenodeids=[1, 3],
    nodes_falseleafs=[1, 1],
    leaf_targetids=[0, 1, 1, 0],
    leaf_weights=np.array([1, 2, 3, 4], np.float32),
    tree_roots=[0, 1],
)
