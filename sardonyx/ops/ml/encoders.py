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
def label_encoder(
    X,
    keys_floats,
    keys_int64s,
    keys_strings,
    keys_tensor,
    values_floats,
    values_int64s,
    values_strings,
    values_tensor,
    default_tensor,
):
    key, key_count = _entries("keys", keys_floats, keys_int64s, keys_strings, keys_tensor)
    value, value_count = _entries("values", values_floats, values_int64s, values_strings, values_tensor)
    if key_count != value_count:
        raise InferenceError(f"{key_count} keys cannot be mapped to {value_count} values")
    if X.dtype not in (None, key):
        raise InferenceError(f"keys of {key} cannot be looked for in X of {X.dtype}")
    default = None if default_tensor is None else np.asarray(default_tensor)
    if default is not None and (dtypes.from_numpy(default.dtype), default.shape) != (value, (1,)):
        description = f"{dtypes.from_numpy(default.dtype)}{list(default.shape)}"
        raise InferenceError(f"default_tensor is a vector of one value, {value}[1], not {description}")
    return TensorType(value, X.shape)


def _entries(name, floats, integers, strings, tensor):
    """The type and number of the keys or values of a LabelEncoder; an empty list is given, too."""
    spellings = ((floats, dtypes.float32), (integers, dtypes.int64), (strings, dtypes.string))
    filled = [(dtype, len(entries)) for entries, dtype in spellings if entries is not None]
    if tensor is not None:
        entries = np.asarray(tensor)
        filled.append((dtypes.from_numpy(entries.dtype), entries.size))
    if len(filled) != 1:
        raise InferenceError(
            f"one of {name}_floats, {name}_int64s, {name}_strings and {name}_tensor must be set, not {len(filled)}"
        )
    return filled[0]


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
