"""Ops on strings."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, ML, audit

X = np.array(["Ab cd", "", "é b", "ab"], object)

audit("Equal", {"A": X, "B": X[::-1].copy()}, "axis=claims broadcast=claims")  # opset 1 has no strings
audit("StringConcat", {"X": X, "Y": X})
audit("StringNormalizer", {"X": X}, "is_case_sensitive=flag", case_change_action="LOWER", is_case_sensitive=1)
audit("StringSplit", {"X": X}, "maxsplit=claims", outputs=2, delimiter="b")
audit("RegexFullMatch", {"X": X}, pattern="[a-c]b?.*")
audit(
    "TfIdfVectorizer",
    {"X": X},
    "max_gram_length=claims max_skip_count=claims min_gram_length=claims ngram_counts=data ngram_indexes=claims pool_int64s=claims",
    max_gram_length=2,
    max_skip_count=0,
    min_gram_length=1,
    mode="TFIDF",
    ngram_counts=[0, 2],
    ngram_indexes=[2, 0, 1],
    pool_strings=["ab", "é b", "é b", "ab"],
    weights=[0.5, 2.0, 3.0],
)
audit(
    "Tokenizer",
    {"X": X},
    "mark=claims mincharnum=claims",
    domain=CONTRIB,
    mark=0,
    mincharnum=1,
    pad_value="#",
    separators=[" "],
)
audit("MurmurHash3", {"X": X}, "positive=flag seed=data", domain=CONTRIB, positive=0, seed=3)
audit(
    "CategoryMapper",
    {"X": X},
    "cats_int64s=data default_int64=data",
    domain=ML,
    cats_int64s=[7, 8],
    cats_strings=["ab", "é b"],
    default_int64=-1,
)
audit(
    "LabelEncoder",
    {"X": X},
    "default_int64=data values_int64s=data",
    domain=ML,
    keys_strings=["ab", "é b"],
    values_int64s=[7, 8],
    default_int64=-1,
)
audit("OneHotEncoder", {"X": X}, "zeros=flag", domain=ML, cats_strings=["ab", "é b"], zeros=1)
