"""Type and shape inference of ai.onnx.ml's feature preparation."""

from __future__ import annotations

from sardonyx.errors import InferenceError
from sardonyx.ir import dim
from sardonyx.ops.shapes import same_as
from sardonyx.ops.table import in_domain

ml = in_domain("ai.onnx.ml")

ml("Binarizer", "Imputer", "Normalizer", "Scaler")(same_as("X"))


@ml("ArrayFeatureExtractor")
def array_feature_extractor(X, Y):
    if X.shape is None:
        return None
    count = dim.fresh() if Y.shape is None else dim.product(Y.shape)
    size = X.shape[-1] if X.shape else None
    for place, index in enumerate(Y.dims or ()):  # a program without rows never looks at them
        if isinstance(index, int) and isinstance(size, int) and not 0 <= index < size:
            raise InferenceError(f"Invalid Y argument: index is out of range: Y[{place}] ({index}) must be in [0, {size})")
    return (1, count) if len(X.shape) == 1 else (*X.shape[:-1], count)


@ml("FeatureVectorizer")
def feature_vectorizer(X, inputdimensions):
    shapes = [operand.shape for operand in X]
    rows = next((1 if len(shape) < 2 else shape[0] for shape in shapes if shape is not None), dim.fresh())
    if inputdimensions:
        return (rows, sum(inputdimensions))
    if any(shape is None for shape in shapes):
        return (rows, dim.fresh())
    return (rows, sum(dim.product(shape if len(shape) < 2 else shape[1:]) for shape in shapes))
