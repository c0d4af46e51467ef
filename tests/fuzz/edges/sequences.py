"""Sequences of tensors and optional values, made of tensors and made into them again inside of a program."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.control import graph
from tests.fuzz.edges.table import audit, floats, ints, scalar

TENSORS = {"a": floats(2, 3), "b": floats(4, 3)}
SEQUENCE = {"input_sequence": ("a", "b")}
JOINED = "ConcatFromSequence"

audit("SequenceConstruct", {"x": floats(2, 3), "y": floats(4, 3)}, behind=JOINED)
audit("SequenceEmpty", {}, "dtype=inference", behind="SequenceLength", dtype=1)
audit("SequenceAt", {**SEQUENCE, "position": scalar(1), **TENSORS}, "position=status", captured="a b")
audit("SequenceErase", {**SEQUENCE, "position": scalar(-1), **TENSORS}, "position=status", captured="a b", behind=JOINED)
audit(
    "SequenceInsert",
    {**SEQUENCE, "tensor": floats(1, 3), "position": scalar(1), **TENSORS},
    "position=status",
    captured="a b",
    behind=JOINED,
)
audit("SequenceLength", {**SEQUENCE, **TENSORS}, captured="a b")
audit(
    "SplitToSequence",
    {"input": floats(5, 3), "split": ints(2, 0, 3)},
    "split=status axis=inference keepdims=flag",
    behind=JOINED,
    axis=0,
    keepdims=1,
)
audit("SplitToSequence", {"input": floats(5, 3), "split": scalar(2)}, "split=status", behind=JOINED, axis=0)
audit("ConcatFromSequence", {**SEQUENCE, **TENSORS}, "axis=inference new_axis=inference", captured="a b", axis=0, new_axis=0)
audit(
    "SequenceMap",
    {**SEQUENCE, **TENSORS},
    captured="a b",
    behind=JOINED,
    body=graph("m (float[A, B] x) => (float[C, B] y) { e = Exp(x) y = Concat<axis = 0>(e, x) }"),
)
audit("Optional", {"input": floats(2, 3)}, behind="OptionalGetElement")
audit("OptionalGetElement", {"input": floats(2, 3)})
audit("OptionalHasElement", {"input": floats(2, 3)})
audit(
    "Unique",
    {"X": np.array([[3, 1, 3], [1, 1, 1], [3, 1, 3]])},
    "X=data axis=inference sorted=flag",
    outputs=4,
    axis=1,
    sorted=0,
)
audit("Unique", {"x": floats(9).round()}, domain="com.microsoft", outputs=3)
