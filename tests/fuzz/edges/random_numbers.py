"""Ops that draw random numbers."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import audit, floats

audit("RandomNormal RandomUniform", {}, "shape=sizes dtype=inference", shape=[3, 500], dtype=1, seed=5.0)
audit("RandomNormalLike RandomUniformLike", {"input": floats(3, 5)}, "dtype=inference", dtype=11, seed=5.0)
audit("Bernoulli", {"input": floats(3, 5)}, "dtype=inference", dtype=6, seed=5.0)
audit("Multinomial", {"input": floats(3, 5)}, "sample_size=sizes dtype=inference", sample_size=4, dtype=7, seed=5.0)
audit(
    "Dropout",
    {"data": floats(3, 5), "ratio": np.array(0.3, np.float32), "training_mode": np.array(True)},
    "seed=data is_test=flag",
    outputs=2,
    seed=5,
)
