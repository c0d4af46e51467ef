"""Shape inference of the ops on strings. The driver calls these functions."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.shapes import broadcast, same_as, text
from sardonyx.ops.table import infer

infer("RegexFullMatch")(same_as("X"))


@infer("StringConcat")
def string_concat(X, Y):
    return broadcast(X.shape, Y.shape)


@infer("StringNormalizer")
def string_normalizer(X, stopwords):
    shape = X.require_rank(1, 2, name="X")
    if shape is None:
        return None
    if len(shape) == 2 and isinstance(shape[0], int) and shape[0] != 1:
        raise InferenceError(f"Input shape must have either [C] or [1,C] dimensions where C > 0, it is {text(shape)}")
    # where all words are dropped one empty word is left
    count = dim.fresh() if stopwords else dim.maximum(shape[-1], 1)
    return (count,) if len(shape) == 1 else (1, count)


@infer("StringSplit")
def string_split(X):
    return [None if X.shape is None else (*X.shape, dim.fresh()), X.shape]


@infer("TfIdfVectorizer")
def tf_idf_vectorizer(X, ngram_indexes):
    shape = X.require_rank(1, 2, name="X")
    return None if shape is None else (*shape[:-1], max(ngram_indexes, default=-1) + 1)
