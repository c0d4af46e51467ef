"""Categories and maps of ai.onnx.ml: LabelEncoder, CategoryMapper, OneHotEncoder, DictVectorizer, CastMap, ZipMap."""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np

from sardonyx.errors import InvalidArgument, KernelError
from sardonyx.providers.cpu.ml.scores import class_labels
from sardonyx.providers.cpu.table import cpu

ml = cpu.in_domain("ai.onnx.ml")


def _places_of(classes_strings=()):
    return {label: place for place, label in enumerate(classes_strings)}


def _strings_by_place(classes_strings=(), default_string="_Unused"):
    return _Dense(dict(enumerate(classes_strings or [default_string])), default_string)


@ml("LabelEncoder", until=1, plain=True, derive={"places": _places_of, "by_place": _strings_by_place})
def label_encoder_of_classes(X, *, places, by_place, default_int64=-1):
    """Version 1 maps strings to their place in one list, or places to strings."""
    return _mapped(X, places, default_int64, np.int64) if X.dtype == object else by_place.find(X)


def _label_mapping(
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
    """Keys, values, and the value of other keys. Of equal keys the first counts, from version 4 on the last."""
    keys = _entries(keys_floats, keys_int64s, keys_strings, keys_tensor)
    values = _entries(values_floats, values_int64s, values_strings, values_tensor)
    if default_tensor is not None:
        default = default_tensor.reshape(-1)[0]
    else:
        default = {"O": default_string, "i": default_int64, "f": default_float}[values.dtype.kind]
    if domain_version < 4:
        keys, values = keys[::-1], values[::-1]
    if keys.dtype.kind == "f" or object not in (keys.dtype, values.dtype):
        return _Places(keys), values, default
    table = dict(zip(keys.tolist(), values.tolist()))
    return _Dense.of(table, default) if keys.dtype.kind == "i" else table, values, default


@ml("LabelEncoder", since=2, plain=True, derive={"mapping": _label_mapping})
def label_encoder(X, *, mapping):
    keys, values, default = mapping
    if isinstance(keys, _Dense):
        return keys.find(X)
    if isinstance(keys, dict):
        return _mapped(X, keys, default, values.dtype)
    if not len(values):
        return np.full(X.shape, default, values.dtype)
    places = keys.find(X)
    return np.where(places >= 0, values[np.maximum(places, 0)], np.asarray(default, dtype=values.dtype))


def _entries(floats, integers, strings, tensor):
    """The one that is given of a tensor and lists of several types."""
    if tensor is not None:
        return tensor.reshape(-1)
    spellings = ((floats, np.float32), (integers, np.int64), (strings, object))
    return next(np.array(entries, dtype) for entries, dtype in spellings if entries is not None)


class _Places:
    """Where numbers stand in a list; of equal ones the last counts."""

    def __init__(self, numbers):
        order = np.arange(len(numbers))[::-1]
        self._sorted, first = np.unique(numbers[order], return_index=True)
        self._places = order[first]

    def find(self, X):
        """The place of each element, -1 for those that are not there."""
        if not self._sorted.size:
            return np.full(X.shape, -1)
        near = np.minimum(np.searchsorted(self._sorted, X), len(self._sorted) - 1)
        candidate = self._sorted[near]
        equal = candidate == X
        if X.dtype.kind == "f":
            equal |= np.isnan(candidate) & np.isnan(X)
        return np.where(equal, self._places[near], -1)


DENSE_SPAN = 1024
"""Integers that lie no further apart are places in a table."""


class _Dense:
    """Objects by integers that lie near each other, with the default before and behind them."""

    def __init__(self, table, default):
        self._table, self._default = table, default
        low, high = min(table), max(table)
        self._low = low - 1
        self._objects = np.array([default, *(table.get(key, default) for key in range(low, high + 1)), default], dtype=object)

    @classmethod
    def of(cls, table, default):
        """The table itself if its keys are too far apart."""
        is_near = table and max(table) - min(table) < DENSE_SPAN and min(table) > -(2**62)
        return cls(table, default) if is_near else table

    def find(self, X):
        if X.size == 1:  # one row is asked for most often, and by itself
            label = np.empty(X.shape, object)
            label[...] = self._table.get(X.item(), self._default)
            return label
        return self._objects.take(X.astype(np.int64, copy=False) - self._low, mode="clip")


def _mapped(X, table, default, dtype):
    """Every element of an array of objects looked up in a dict."""
    encoded = map(table.get, X.ravel().tolist(), itertools.repeat(default))
    return np.fromiter(encoded, dtype, count=X.size).reshape(X.shape)


def _category_pairs(cats_int64s=None, cats_strings=None):
    """Integers by their strings, and strings by their integers."""
    integers, strings = cats_int64s or (), cats_strings or ()
    if len(integers) != len(strings):
        raise KernelError(f"cats_int64s has {len(integers)} and cats_strings {len(strings)} entries", InvalidArgument)
    return dict(zip(strings, integers)), dict(zip(integers, strings))


@ml("CategoryMapper", plain=True, derive={"pairs": _category_pairs})
def category_mapper(X, *, pairs, default_int64=-1, default_string="_Unused"):
    by_string, by_integer = pairs
    return (
        _mapped(X, by_string, default_int64, np.int64) if X.dtype == object else _mapped(X, by_integer, default_string, object)
    )


def _categories(cats_int64s=None, cats_strings=None):
    """Where integers stand, where strings do, and how many columns there are."""
    strings, integers = cats_strings or (), np.array(cats_int64s or (), np.int64)
    return _Places(integers), _places_of(strings), len(strings) or len(integers)


@ml("OneHotEncoder", plain=True, derive={"categories": _categories})
def one_hot_encoder(X, *, categories, zeros=1):
    integers, strings, count = categories
    if X.dtype == object:
        places = _mapped(X, strings, -1, np.int64)
    else:
        with np.errstate(invalid="ignore"):
            places = integers.find(X.astype(np.int64))
    if not zeros and (places < 0).any():
        raise KernelError("Unknown Category and zeros = 0.")
    return (places[..., None] == np.arange(count)).astype(np.float32)


def _words(int64_vocabulary=None, string_vocabulary=None):
    return tuple(string_vocabulary or int64_vocabulary or ())


def _kind_of_values(output_types=(None,)):
    """The dtype of a map's values and what stands for absent ones; None where only the map tells."""
    return None if output_types[0] is None else _with_absent(output_types[0].numpy)


def _with_absent(dtype):
    is_text = np.dtype(dtype).kind in "OU"
    return (object, itertools.repeat("")) if is_text else (dtype, itertools.repeat(0))


@ml("DictVectorizer", plain=True, derive={"words": _words, "kind": _kind_of_values})
def dict_vectorizer(X, *, words, kind):
    dtype, absent = kind or _with_absent(np.asarray(next(iter(X.values()), 0.0)).dtype)
    return np.fromiter(map(X.get, words, absent), dtype, len(words)).reshape(1, -1)


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


def _zipper(classlabels_strings=None, classlabels_int64s=None):
    """How many labels there are, and what makes a list of maps out of lists of numbers. A map is in the order of its keys."""
    labels = class_labels(classlabels_strings or None, classlabels_int64s or None).tolist()
    order = sorted(range(len(labels)), key=labels.__getitem__)
    names, places = [labels[place] for place in order], None if order == list(range(len(order))) else order
    zipped = _function_for(len(names))(*names) if 0 < len(names) <= MAX_SPELLED else functools.partial(_zipped, names)
    return len(names), places, zipped


MAX_SPELLED = 32
"""Maps of so many keys are made by a function that spells them out, which takes half the time."""
FEW_ROWS = 16
"""So many rows are taken one by one; more are taken by columns, which makes fewer lists."""


@functools.cache
def _function_for(count):
    """A function of so many keys, which makes maps of rows."""
    keys, values = ([f"{letter}{place}" for place in range(count)] for letter in "kv")
    pairs = ", ".join(map("{}: {}".format, keys, values))
    return eval(f"lambda {', '.join(keys)}: lambda rows: [{{{pairs}}} for {', '.join(values)}, in rows]", {})


def _zipped(names, rows):
    return [dict(zip(names, row)) for row in rows]


@ml("ZipMap", plain=True, derive={"zipper": _zipper})
def zip_map(X, *, zipper):
    count, places, zipped = zipper
    rows = X.reshape(1, -1) if X.ndim == 1 else X
    if rows.shape[1] != count:
        raise KernelError(f"Input features_per_batch[{rows.shape[1]}] != number of classlabels[{count}]", InvalidArgument)
    rows = rows if places is None else rows[:, places]
    return zipped(rows.tolist() if len(rows) <= FEW_ROWS or not count else zip(*rows.T.tolist()))
