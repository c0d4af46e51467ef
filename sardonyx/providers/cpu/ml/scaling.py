"""Feature preparation of ai.onnx.ml that keeps numbers numbers: Scaler, Normalizer, Imputer, Binarizer, extraction, concatenation."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")


@ml("Scaler")
def scaler(X, *, offset=None, scale=None):
    features = X.shape[min(X.ndim, 2) - 1] if X.ndim else 1
    offset, scale = (_per_feature(values, features, default) for values, default in ((offset, 0), (scale, 1)))
    wide = X if X.dtype == np.float64 else X.astype(np.float32, copy=False)
    return ((wide.reshape(-1, features) - offset) * scale).reshape(X.shape)


def _per_feature(values, features, default):
    values = np.asarray(values or [default], dtype=np.float32)
    if len(values) not in (1, features):
        raise KernelError(f"Either both scale and offset can be of feature size ({features}) or 1", InvalidArgument)
    return values


@ml("Normalizer")
def normalizer(X, *, norm="MAX"):
    if X.ndim not in (1, 2):
        raise KernelError(f"Rank of input to Normalized must be less than 2. Got {X.ndim}")
    if norm not in ("MAX", "L1", "L2"):
        raise KernelError(f"norm must be MAX, L1 or L2, not {norm!r}", InvalidArgument)
    wide = X if X.dtype == np.float64 else X.astype(np.float32)
    if not wide.size:
        return wide
    if norm == "MAX":
        divisor = np.fmax.reduce(wide, axis=-1, keepdims=True)
    elif norm == "L1":
        divisor = np.abs(wide).sum(axis=-1, keepdims=True)
    else:
        divisor = np.sqrt(np.square(wide).sum(axis=-1, keepdims=True))
    return wide / np.where(divisor == 0, wide.dtype.type(1), divisor)


@ml("Imputer")
def imputer(X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0):
    integral = X.dtype.kind == "i"
    imputed, replaced = (
        (imputed_value_int64s, replaced_value_int64) if integral else (imputed_value_floats, replaced_value_float)
    )
    if not imputed:
        raise KernelError("Empty value of imputed values.")
    values = np.asarray(imputed, dtype=X.dtype)
    if not X.ndim or len(values) != X.shape[-1]:
        values = values[0]
    if not integral and math.isnan(replaced):
        missing = np.isnan(X)
    else:
        missing = np.equal(X, np.asarray(replaced).astype(X.dtype))
    return np.where(missing, values, X)


@ml("Binarizer")
def binarizer(X, *, threshold=0.0):
    return np.greater(X, np.float32(threshold)).astype(X.dtype)


@ml("ArrayFeatureExtractor", plain=True)
def array_feature_extractor(X, Y):
    if not X.ndim:
        raise KernelError("Invalid argument: X input has empty dimensions.", InvalidArgument)
    indices, size = Y.ravel(), X.shape[-1]
    if not indices.size:
        raise KernelError("Invalid Y argument: num_indices = 0", InvalidArgument)
    rows = X[None] if X.ndim == 1 else X
    if indices.size == 1 and 0 <= (place := indices.item()) < size:
        return rows[..., place : place + 1].copy()
    if indices.view(np.uint64).max() >= size:  # negative ones are large ones then
        place = np.flatnonzero((indices < 0) | (indices >= size))[0]
        raise KernelError(
            f"Invalid Y argument: index is out of range: Y[{place}] ({indices[place]}) must be in [0, {size})", InvalidArgument
        )
    return rows.take(indices, axis=-1)


@ml("FeatureVectorizer")
def feature_vectorizer(X, *, inputdimensions=None):
    """Each input is cut or padded with zeros to its declared width."""
    rows = [part.reshape(1 if part.ndim < 2 else part.shape[0], math.prod(part.shape[1:] or part.shape)) for part in X]
    widths = inputdimensions or [part.shape[1] for part in rows]
    if len(widths) != len(rows):
        raise KernelError(f"Number of inputs ({len(rows)}) does not match number of inputdimensions values ({len(widths)}).")
    batches = [part.shape[0] for part in rows]
    if len(set(batches)) > 1:
        raise KernelError(f"All inputs to FeatureVectorizer must have the same batch size, not {batches}")
    output = np.zeros((batches[0], sum(widths)), np.float32)
    start = 0
    for part, width in zip(rows, widths, strict=True):
        kept = min(width, part.shape[1])
        output[:, start : start + kept] = part[:, :kept]
        start += width
    return output
