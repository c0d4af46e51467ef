"""Type and shape inference of ai.onnx.ml's categories and maps."""

from __future__ import annotations

import numpy as np

from sardonyx import dtypes
from sardonyx.errors import InferenceError
from sardonyx.ir import MapType, SequenceType, TensorType, dim
from sardonyx.ops.table import in_domain

ml = in_domain("ai.onnx.ml")


@ml("LabelEncoder", until=1)
@ml("CategoryMapper")
def between_strings_and_integers(X):
    return TensorType(_OTHER.get(X.dtype), X.shape)


_OTHER = {dtypes.string: dtypes.int64, dtypes.int64: dtypes.string}


@ml("LabelEncoder", since=2)
def label_encoder(X, values_floats, values_int64s, values_strings, values_tensor):
    given = ((values_floats, dtypes.float32), (values_int64s, dtypes.int64), (values_strings, dtypes.string))
    for values, dtype in given:
        if values:
            return TensorType(dtype, X.shape)
    if values_tensor is None:
        raise InferenceError("one of values_floats, values_int64s, values_strings and values_tensor must be set")
    return TensorType(dtypes.from_numpy(np.asarray(values_tensor).dtype), X.shape)


@ml("OneHotEncoder")
def one_hot_encoder(X, cats_int64s, cats_strings):
    return None if X.shape is None else (*X.shape, len(cats_strings or cats_int64s or ()))


@ml("DictVectorizer")
def dict_vectorizer(X, int64_vocabulary, string_vocabulary):
    value = X.type.value if isinstance(X.type, MapType) else None
    dtype = value.dtype if isinstance(value, TensorType) else None
    return TensorType(dtype, (1, len(string_vocabulary or int64_vocabulary or ())))


@ml("CastMap")
def cast_map(cast_to, map_form, max_map):
    casts = {"TO_FLOAT": dtypes.float32, "TO_STRING": dtypes.string, "TO_INT64": dtypes.int64}
    if cast_to not in casts or map_form not in ("DENSE", "SPARSE"):
        raise InferenceError(f"cast_to {cast_to!r} or map_form {map_form!r} is unknown")
    return TensorType(casts[cast_to], (1, max_map if map_form == "SPARSE" else dim.fresh()))


@ml("ZipMap")
def zip_map(classlabels_strings, classlabels_int64s):
    if bool(classlabels_strings) == bool(classlabels_int64s):
        raise InferenceError("one of classlabels_strings and classlabels_int64s must be set")
    key = dtypes.string if classlabels_strings else dtypes.int64
    return SequenceType(MapType(key, TensorType(dtypes.float32, ())))
