"""MurmurHash3 and NGramRepeatBlock of com.microsoft."""

from __future__ import annotations

from sardonyx.dtypes import float32, float64, int32, int64, string, uint32, uint64
from sardonyx.ir import TensorType
from sardonyx.ops.schemas import define
from sardonyx.ops.table import in_domain

contrib = in_domain("com.microsoft")

define(
    "com.microsoft",
    "MurmurHash3",
    1,
    "(X: T1, *, seed: int = 0, positive: int = 1) -> (Y: T2)",
    T1={uint32, int32, uint64, int64, float32, float64, string},
    T2={uint32, int32},
)
define(
    "com.microsoft",
    "NGramRepeatBlock",
    1,
    "(input_ids: Tid, scores: T, *, ngram_size: int) -> (scores_out: T)",
    Tid={int64},
    T={float32},
)


@contrib("MurmurHash3")
def murmur_hash3(X, positive):
    return TensorType(uint32 if positive else int32, X.shape)


@contrib("NGramRepeatBlock")
def n_gram_repeat_block(input_ids, scores):
    input_ids.require_rank(2, name="input_ids")
    return scores.require_rank(2, name="scores")
