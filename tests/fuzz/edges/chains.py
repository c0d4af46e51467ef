"""Elementwise ops: what a chain reads and writes follows from the shapes of its operands, which broadcast."""

from __future__ import annotations

import numpy as np

from tests.fuzz.edges.table import CONTRIB, audit, floats, ints

x, row, column = floats(2, 3, 4), floats(4), floats(3, 1)
numbers = ints([5, -7, 2**40], [-(2**63), 9, 0])

audit("Add Sub Mul Div Max Min", {"A": x, "B": column})
audit("Where", {"condition": np.array([True, False, True, False]), "X": x, "Y": column})
audit("PRelu", {"X": x, "slope": column})
audit("Clip", {"input": x, "min": np.float32(-0.5).reshape(()), "max": np.float32(0.5).reshape(())})
audit("BiasGelu", {"A": x, "B": row}, domain=CONTRIB)
audit(
    "BitShift",
    {"X": np.array([1, 2, 2**31], np.uint64), "Y": np.array([1, 3, 40], np.uint64)},
    "X=data Y=clamped",
    direction="LEFT",
)
audit("BitwiseAnd BitwiseOr BitwiseXor", {"A": numbers, "B": ints(3, -1, 6)}, "A=data B=data")
audit("BitwiseNot", {"X": numbers}, "X=data")
audit("Div", {"A": numbers, "B": ints(3, -1, 6)}, "B=claims", constants="B")
audit("Mod", {"A": numbers, "B": ints(3, -1, 6)}, "B=claims fmod=flag", constants="B", fmod=0)
audit("Div Mod", {"A": numbers, "B": ints(3, -1, 6)}, "A=data B=status")
audit("Pow", {"X": numbers, "Y": ints(3, -1, 6)}, "X=data Y=data")
audit("Cast", {"input": x}, "to=inference saturate=flag", to=7, saturate=1)
audit("CastLike", {"input": x, "target_type": ints(1)}, "saturate=flag", opset=19, saturate=1)
audit("BitCast", {"input": x}, "to=inference", opset=26, to=6)
audit("Dropout", {"data": x}, "seed=data", opset=21, seed=1)
audit("Dropout", {"data": x}, "is_test=flag", opset=6, is_test=1)
audit("IsInf", {"X": x}, "detect_negative=flag detect_positive=flag", opset=20, detect_negative=1)
