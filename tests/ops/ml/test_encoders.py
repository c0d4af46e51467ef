"""Cases of ai.onnx.ml's categories and maps."""

import numpy as np

from sardonyx.dtypes import float32, float64, int32, int64
from tests.ops.cases import case, f32, i64, refuse, strings, typed

ML = "ai.onnx.ml"
NAN = np.nan
PEER = {"domain": ML, "against_onnxruntime": True}


def text(*items):
    return np.array(items, dtype=object)


# --- LabelEncoder 1: places in a list

FRUIT = {"classes_strings": ["apple", "pear", "plum"], **PEER}
case("LabelEncoder", X=text("plum", "apple", "fig"), **FRUIT, opsets=[1], expect=[2, 0, -1])
case("LabelEncoder", X=text("plum", "fig"), **FRUIT, default_int64=7, opsets=[1], expect=[2, 7])
case(
    "LabelEncoder",
    X=np.array([[2, 0], [3, -1]]),
    **FRUIT,
    opsets=[1],
    expect=text("plum", "apple", "_Unused", "_Unused").reshape(2, 2),
)
case("LabelEncoder", X=np.array([1, 9]), **FRUIT, default_string="none", opsets=[1], expect=text("pear", "none"))
case("LabelEncoder", X=strings(0), **FRUIT, opsets=[1], expect=np.zeros(0, np.int64))

# --- LabelEncoder 2 and 4: keys and values

KEYS = {
    "keys_strings": (["a", "b"], text("b", "q", "a")),
    "keys_int64s": ([1, 2], np.array([2, 9, 1])),
    "keys_floats": ([1.5, 2.0], np.array([2, 9, 1.5], np.float32)),
}
VALUES = {
    "values_strings": (["x", "y"], text("y", "_Unused", "x")),
    "values_int64s": ([10, 20], np.array([20, -1, 10])),
    "values_floats": ([0.5, 0.25], np.array([0.25, -0.0, 0.5], np.float32)),
}
for key_name, (keys, X) in KEYS.items():
    for value_name, (values, expected) in VALUES.items():
        case("LabelEncoder", X=X, **{key_name: keys, value_name: values}, **PEER, since=2, expect=expected)
        case("LabelEncoder", X=X[None], **{key_name: keys, value_name: values}, domain=ML, since=2, expect=expected[None])
STRINGS = {"keys_strings": ["a", "b"], "domain": ML, "since": 2}
case("LabelEncoder", X=text("q"), **STRINGS, values_strings=["x", "y"], default_string="none", expect=text("none"))
case("LabelEncoder", X=text("q"), **STRINGS, values_int64s=[1, 2], default_int64=7, expect=[7])
case("LabelEncoder", X=text("q"), **STRINGS, values_floats=[1.0, 2.0], default_float=0.5, expect=np.array([0.5], np.float32))
case("LabelEncoder", X=np.array("b", dtype=object), **STRINGS, values_int64s=[1, 2], expect=2)
case("LabelEncoder", X=strings(0, 2), **STRINGS, values_int64s=[1, 2], expect=np.zeros((0, 2), np.int64))

# NaN is a key like others; zero has no sign
case("LabelEncoder", X=np.array([NAN, 1], np.float32), keys_floats=[1.0, NAN], values_int64s=[3, 4], domain=ML, expect=[4, 3])
case("LabelEncoder", X=np.array([0.0, -0.0], np.float32), keys_floats=[-0.0, 1.0], values_int64s=[3, 4], **PEER, expect=[3, 3])

# a repeated key: its first value in version 2, as onnxruntime has it, and its last one since version 4, as the spec says
TWICE = {"keys_int64s": [5, 6, 5], "values_int64s": [1, 2, 3], "domain": ML}
case("LabelEncoder", X=np.array([5, 6]), **TWICE, opsets=[2], expect=[1, 2])
case("LabelEncoder", X=np.array([5, 6]), **TWICE, opsets=[4], expect=[3, 2])
case("LabelEncoder", X=text("a"), keys_strings=["a", "a"], values_int64s=[1, 2], domain=ML, opsets=[2], expect=[1])
case("LabelEncoder", X=text("a"), keys_strings=["a", "a"], values_int64s=[1, 2], domain=ML, opsets=[4], expect=[2])

for kind in (np.float32, np.float64, np.int16, np.int32, np.int64):
    tensors = {"keys_tensor": np.array([1, 2], kind), "values_tensor": np.array([10, 20], kind)}
    case(
        "LabelEncoder",
        X=np.array([2, 7, 1], kind),
        **tensors,
        domain=ML,
        expect=np.array([20, 0 if kind(0).dtype.kind == "f" else -1, 10], kind),
    )
    default = np.array([5], kind)
    case(
        "LabelEncoder",
        X=np.array([2, 7, 1], kind),
        **tensors,
        default_tensor=default,
        domain=ML,
        expect=np.array([20, 5, 10], kind),
    )
case(
    "LabelEncoder",
    X=text("a", "c"),
    keys_strings=["a", "b"],
    values_tensor=np.array([1, 2], np.int16),
    default_tensor=np.array([-5], np.int16),
    **PEER,
    expect=np.array([1, -5], np.int16),
)
refuse(
    "LabelEncoder",
    X=text("a"),
    keys_strings=["a", "b"],
    values_int64s=[1],
    domain=ML,
    since=2,
    match="2 keys cannot be mapped to 1",
)
refuse("LabelEncoder", X=text("a"), keys_strings=["a", "b"], domain=ML, since=2, match="one of values_floats")
refuse("LabelEncoder", X=text("a"), values_int64s=[1], domain=ML, since=2, match="one of keys_floats")
for twice in ({"keys_floats": [1.0]}, {"keys_floats": []}, {"values_floats": [1.0]}, {"values_floats": []}):
    (name,) = twice
    match = rf"one of {name.split('_')[0]}_floats.* must be set, not 2"
    refuse("LabelEncoder", X=text("a"), keys_strings=["a"], values_int64s=[1], **twice, domain=ML, since=2, match=match)
SHORT = {"keys_tensor": np.array([1, 2], np.int16), "values_tensor": np.array([10, 20], np.int16)}
for twice in ({"keys_int64s": []}, {"values_int64s": []}):
    refuse("LabelEncoder", X=np.array([1], np.int16), **SHORT, **twice, domain=ML, since=4, match="must be set, not 2")
for default in (np.zeros(0, np.int16), np.zeros(2, np.int16), np.zeros(1, np.float32)):
    refuse(
        "LabelEncoder",
        X=np.array([1], np.int16),
        **SHORT,
        default_tensor=default,
        domain=ML,
        since=4,
        match="vector of one value",
    )
refuse("LabelEncoder", X=np.array([1]), keys_strings=["a"], values_int64s=[1], domain=ML, since=2, match="cannot be looked for")
case("LabelEncoder", X=f32(2), keys_floats=[], values_int64s=[], **PEER, opsets=[2], expect=[-1, -1])
case("LabelEncoder", X=text("a"), keys_strings=[], values_floats=[], **PEER, opsets=[2], expect=np.array([-0.0], np.float32))

# --- CategoryMapper

CATEGORIES = {"cats_int64s": [5, 6], "cats_strings": ["a", "b"], **PEER}
case("CategoryMapper", X=text("b", "q").reshape(1, 2), **CATEGORIES, default_int64=-3, expect=[[6, -3]])
case("CategoryMapper", X=np.array([6, 7]), **CATEGORIES, default_string="none", expect=text("b", "none"))
case("CategoryMapper", X=i64(0), **CATEGORIES, expect=np.zeros(0, dtype=object))
refuse(
    "CategoryMapper",
    X=text("a"),
    cats_int64s=[5],
    cats_strings=["a", "b"],
    domain=ML,
    match="cats_int64s has 1 and cats_strings 2",
)

# --- OneHotEncoder

HOT = {"cats_int64s": [1, 2, 4], "domain": ML}
case(
    "OneHotEncoder",
    X=np.array([[4, 1], [9, 2]]),
    **HOT,
    types={"T": {float32, float64, int32, int64}},
    expect=[[[0, 0, 1], [1, 0, 0]], [[0, 0, 0], [0, 1, 0]]],
)
case("OneHotEncoder", X=np.array([1.75, -1.75, 4], np.float32), cats_int64s=[1, -1, 4], **PEER, expect=np.eye(3))
case("OneHotEncoder", X=text("b", "z"), cats_strings=["a", "b"], **PEER, expect=[[0, 1], [0, 0]])
case("OneHotEncoder", X=np.array(2), **HOT, expect=[0, 1, 0])
case("OneHotEncoder", X=i64(0, 2), **HOT, expect=np.zeros((0, 2, 3)))
case("OneHotEncoder", X=np.array([2, 1]), **HOT, zeros=0, expect=[[0, 1, 0], [1, 0, 0]])
refuse("OneHotEncoder", X=np.array([2, 9]), **HOT, zeros=0, match="Unknown Category and zeros = 0")

# --- DictVectorizer

WORDS = {"string_vocabulary": ["a", "c", "b", "z"], "domain": ML}
case("DictVectorizer", X={"a": 4.0, "c": 8.0}, **WORDS, against_onnxruntime=True, expect=np.array([[4, 8, 0, 0]], np.float32))
case("DictVectorizer", X={"a": 4, "c": 8}, **WORDS, expect=[[4, 8, 0, 0]])
case("DictVectorizer", X={"z": 1.0, "unknown": 2.0}, **WORDS, expect=np.array([[0, 0, 0, 1]], np.float32))
case("DictVectorizer", X={1: "x", 9: "y"}, int64_vocabulary=[9, 5, 1], domain=ML, expect=text("y", "", "x")[None])
case("DictVectorizer", X={1: 0.5}, int64_vocabulary=[9, 1], domain=ML, expect=np.array([[0, 0.5]], np.float32))
case("DictVectorizer", X=typed({"a": 0.5}, "map(string, double)"), **WORDS, expect=np.array([[0.5, 0, 0, 0]]))

# --- CastMap

NUMBERS = {3: 1.5, 1: -2.75, 2: 1e10}
DENSE = {"sizes_known": False, "domain": ML}
case("CastMap", X=NUMBERS, **DENSE, expect=np.array([[-2.75, 1e10, 1.5]], np.float32))
case("CastMap", X=NUMBERS, cast_to="TO_INT64", **DENSE, expect=[[-2, 10000000000, 1]])
case("CastMap", X=NUMBERS, cast_to="TO_STRING", **DENSE, expect=text("-2.750000", "10000000000.000000", "1.500000")[None])
case("CastMap", X={3: "7.5", 1: "-2 of them"}, cast_to="TO_INT64", **DENSE, expect=[[-2, 7]])
case("CastMap", X={3: "7.5", 1: "-2"}, cast_to="TO_FLOAT", **DENSE, expect=np.array([[-2, 7.5]], np.float32))
case("CastMap", X={3: "7.5", 1: "-2"}, cast_to="TO_STRING", **DENSE, expect=text("-2", "7.5")[None])
SPARSE = {"map_form": "SPARSE", "max_map": 4, **PEER}
case("CastMap", X=NUMBERS, **SPARSE, expect=np.array([[0, -2.75, 1e10, 1.5]], np.float32))
case("CastMap", X={1: 2.0, 9: 3.0}, cast_to="TO_INT64", **SPARSE, expect=[[0, 2, 0, 0]])
case("CastMap", X={2: 1.0}, cast_to="TO_STRING", **SPARSE, expect=text("0.f", "0.f", "1.000000", "0.f")[None])
refuse("CastMap", X={-1: 1.0}, domain=ML, match="Negative index values are not permitted")
refuse("CastMap", X={1: "many"}, domain=ML, match="'many' cannot be cast to a number")
refuse("CastMap", X={1: 1.0}, cast_to="TO_DOUBLE", domain=ML, match="TO_DOUBLE")

# --- ZipMap

CHANCES = np.array([[0.5, 0.25], [0.125, 0.75]], np.float32)
case("ZipMap", X=CHANCES, classlabels_strings=["b", "a"], **PEER, expect=[{"a": 0.25, "b": 0.5}, {"a": 0.75, "b": 0.125}])
case("ZipMap", X=CHANCES, classlabels_int64s=[3, 1], **PEER, expect=[{1: 0.25, 3: 0.5}, {1: 0.75, 3: 0.125}])
case("ZipMap", X=CHANCES[0], classlabels_int64s=[3, 1], domain=ML, expect=[{1: 0.25, 3: 0.5}])
case("ZipMap", X=f32(0, 2), classlabels_int64s=[3, 1], domain=ML, expect=[[]][0])
refuse(
    "ZipMap", X=f32(1, 3), classlabels_int64s=[3, 1], domain=ML, match=r"features_per_batch\[3\] != number of classlabels\[2\]"
)
refuse("ZipMap", X=f32(1, 3), domain=ML, match="one of classlabels_strings and classlabels_int64s must be set")


def test_a_map_comes_out_in_the_order_of_its_keys():
    from sardonyx.providers.cpu.ml.encoders import _zipper, zip_map

    assert [list(row) for row in zip_map(CHANCES, zipper=_zipper(["b", "a"]))] == [["a", "b"], ["a", "b"]]


def test_maps_of_few_and_of_many_keys_hold_plain_numbers():
    from sardonyx.providers.cpu.ml.encoders import MAX_SPELLED, _zipper, zip_map

    for count in (1, 2, MAX_SPELLED, MAX_SPELLED + 1):
        for rows in (0, 1, 3):
            X = np.arange(rows * count, dtype=np.float32).reshape(rows, count)
            labels = [f"{place:03}" for place in range(count)]
            made = zip_map(X, zipper=_zipper(labels))
            assert made == [dict(zip(labels, row, strict=True)) for row in X.tolist()]
            assert all(type(value) is float for row in made for value in row.values())
