"""Categories and maps of ai.onnx.ml: LabelEncoder, CategoryMapper, OneHotEncoder, DictVectorizer, CastMap, ZipMap."""

from __future__ import annotations

import functools
import re

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.ml.scores import class_labels
from sardonyx.providers.cpu.prepared import prepared
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")


@ml("LabelEncoder", until=1)
def label_encoder_of_classes(X, *, classes_strings=None, default_int64=-1, default_string="_Unused"):
    """Version 1 maps strings to their place in one list, or places to strings."""
    classes = list(classes_strings or ())
    if X.dtype == object:
        places = {label: place for place, label in enumerate(classes)}
        return _mapped(X, places, default_int64, np.int64)
    known = np.logical_and(X >= 0, np.less(X, len(classes)))
    return np.array([*classes, default_string], dtype=object)[np.where(known, X, len(classes))]


@ml("LabelEncoder", since=2)
def label_encoder(
    X,
    *,
    default_float=-0.0,
    default_int64=-1,
    default_string="_Unused",
    default_tensor=None,
    keys_floats=None,
    keys_int64s=None,
    keys_strings=None,
    keys_tensor=None,
    values_floats=None,
    values_int64s=None,
    values_strings=None,
    values_tensor=None,
    domain_version=4,
):
    keys = _given(keys_floats, keys_int64s, keys_strings, keys_tensor, "keys")
    values = _given(values_floats, values_int64s, values_strings, values_tensor, "values")
    lookup = prepared(_last_places if domain_version >= 4 else _first_places, keys)
    values = prepared(_array, values)
    if len(values) != lookup.count:
        raise KernelError(f"{lookup.count} keys cannot be mapped to {len(values)} values", InvalidArgument)
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    else:
        default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    places = lookup.find(X)
    found = places >= 0
    if not len(values):
        return np.full(X.shape, default, values.dtype)
    return np.where(found, values[np.where(found, places, 0)], np.asarray(default, dtype=values.dtype))


def _given(floats, integers, strings, tensor, what):
    for values in (floats, integers, strings, tensor):
        if values is not None:
            return values
    raise KernelError(f"one of {what}_floats, {what}_int64s, {what}_strings and {what}_tensor must be set", InvalidArgument)


def _array(values):
    """A list attribute as an array of the type it stands for."""
    if isinstance(values, np.ndarray):
        return values.reshape(-1)
    if any(isinstance(value, str) for value in values):
        return np.array(values, dtype=object)
    return np.array(values, dtype=np.float32 if any(isinstance(value, float) for value in values) else np.int64)


class _StringPlaces:
    def __init__(self, keys, first):
        pairs = list(enumerate(keys.tolist()))
        self.count = len(pairs)
        self._places = {key: place for place, key in (reversed(pairs) if first else pairs)}

    def find(self, X):
        return _mapped(X, self._places, -1, np.int64)


class _NumberPlaces:
    def __init__(self, keys, first):
        self.count = len(keys)
        order = np.arange(len(keys)) if first else np.arange(len(keys))[::-1]
        self._sorted, place = np.unique(keys[order], return_index=True)  # of equal keys, the one that comes first
        self._places = order[place]

    def find(self, X):
        if not self.count:
            return np.full(X.shape, -1)
        near = np.minimum(np.searchsorted(self._sorted, X), len(self._sorted) - 1)
        candidate = self._sorted[near]
        equal = candidate == X
        if X.dtype.kind == "f":
            equal |= np.isnan(candidate) & np.isnan(X)
        return np.where(equal, self._places[near], -1)


def _first_places(keys):
    return _places(keys, first=True)


def _last_places(keys):
    """From version 4 on a repeated key means its last occurrence."""
    return _places(keys, first=False)


def _places(keys, first):
    keys = _array(keys)
    return (_StringPlaces if keys.dtype == object else _NumberPlaces)(keys, first)


def _mapped(X, table, default, dtype):
    """Every element of an array of objects looked up in a dict."""
    return np.array([table.get(item, default) for item in X.ravel().tolist()], dtype=dtype).reshape(X.shape)


@ml("CategoryMapper")
def category_mapper(X, *, cats_int64s=None, cats_strings=None, default_int64=-1, default_string="_Unused"):
    integers, strings = cats_int64s or (), cats_strings or ()
    if len(integers) != len(strings):
        raise KernelError(f"cats_int64s has {len(integers)} and cats_strings {len(strings)} entries", InvalidArgument)
    if X.dtype == object:
        return _mapped(X, dict(zip(strings, integers, strict=True)), default_int64, np.int64)
    return _mapped(X, dict(zip(integers, strings, strict=True)), default_string, object)


@ml("OneHotEncoder")
def one_hot_encoder(X, *, cats_int64s=None, cats_strings=None, zeros=1):
    categories = cats_strings if X.dtype == object else cats_int64s
    categories = [] if categories is None else categories
    if X.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            X = X.astype(np.int64)
    lookup = prepared(_last_places, categories) if categories else None
    places = np.full(X.shape, -1) if lookup is None else lookup.find(X)
    if not zeros and (places < 0).any():
        raise KernelError("Unknown Category and zeros = 0.")
    count = len(cats_strings or cats_int64s or ())
    return (places[..., None] == np.arange(count)).astype(np.float32)


@ml("DictVectorizer")
def dict_vectorizer(X, *, int64_vocabulary=None, string_vocabulary=None, output_types=(None,)):
    vocabulary = string_vocabulary or int64_vocabulary or ()
    sample = next(iter(X.values()), 0.0)
    kind = output_types[0].numpy if output_types[0] is not None else np.asarray(sample).dtype
    absent = "" if isinstance(sample, str) else 0
    return np.array([[X.get(word, absent) for word in vocabulary]], dtype=object if absent == "" else kind)


@ml("CastMap")
def cast_map(X, *, cast_to="TO_FLOAT", map_form="DENSE", max_map=1):
    """Values in the order of their keys, or at their keys; onnxruntime's absent text is "0.f"."""
    if cast_to not in _CASTS:
        raise KernelError(f"Invalid CAST_TO value of {cast_to} Expected TO_FLOAT, TO_STRING or TO_INT64", InvalidArgument)
    cast, absent, dtype = _CASTS[cast_to]
    if any(key < 0 for key in X):
        raise KernelError(f"Negative index values are not permitted. First entry in map has index value of {min(X)}")
    if map_form == "DENSE":
        values = [cast(X[key]) for key in sorted(X)]
    else:
        values = [cast(X[key]) if key in X else absent for key in range(max_map)]
    return np.array([values], dtype=dtype)


def _text(value):
    return value if isinstance(value, str) else f"{np.float32(value):.6f}"


def _number(value):
    try:
        return float(value)
    except ValueError:
        raise KernelError(f"{value!r} cannot be cast to a number", InvalidArgument) from None


def _integer(value):
    """Text up to its first character that is no digit, as C reads it; a number truncated."""
    if isinstance(value, str):
        leading = re.match(r"\s*[+-]?\d+", value)
        return int(leading[0] if leading else _number(value))
    with np.errstate(invalid="ignore"):
        return np.float32(value).astype(np.int64)


_CASTS = {
    "TO_FLOAT": (_number, 0.0, np.float32),
    "TO_INT64": (_integer, 0, np.int64),
    "TO_STRING": (_text, "0.f", object),
}


@ml("ZipMap")
def zip_map(X, *, classlabels_int64s=None, classlabels_strings=None):
    order, names = _sorted_labels(tuple(classlabels_strings or ()), tuple(classlabels_int64s or ()))
    rows = X.reshape(1, -1) if X.ndim == 1 else X
    if rows.shape[1] != len(names):
        raise KernelError(f"Input features_per_batch[{rows.shape[1]}] != number of classlabels[{len(names)}]", InvalidArgument)
    return [dict(zip(names, row, strict=True)) for row in rows[:, order].tolist()]


@functools.lru_cache(maxsize=64)
def _sorted_labels(strings, numbers):
    """Where the labels stand when they are sorted, and the labels so: a map is in order of its keys."""
    labels = class_labels(list(strings) or None, list(numbers) or None).tolist()
    order = sorted(range(len(labels)), key=labels.__getitem__)
    return order, [labels[place] for place in order]
