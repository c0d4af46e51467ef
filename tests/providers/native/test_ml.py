"""Linear models and feature preparation of ai.onnx.ml in generated code against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from sardonyx.errors import Fail, InvalidArgument
from sardonyx.runtime.execution.executor import execute
from tests.providers.native.agreement import assert_agrees, native_plan, programs

SHAPES = ((0, 5), (1, 5), (3, 5), (70, 5))
WIDE = ((2, 40), (33, 40))
FLOAT, DOUBLE, INT64, INT32 = TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.INT32


def rows(shape, type=FLOAT, seed=0):
    """Small numbers, many of them whole, with NaN and infinities among floats."""
    rng = np.random.default_rng(seed + sum(shape))
    X = rng.integers(-6, 7, shape) / 2
    if type in (FLOAT, DOUBLE) and X.size > 20:
        X = np.where(rng.random(shape) < 0.05, rng.choice([np.nan, np.inf, -np.inf, 0.0], shape), X)
    return X.astype(helper.tensor_dtype_to_np_dtype(type))


def finite(shape, type=FLOAT):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(type))


def model(op, columns=5, inputs=FLOAT, outputs=(FLOAT,), version=3, rank=2, **attributes):
    node = helper.make_node(op, ["X"], [f"Y{k}" for k in range(len(outputs))], domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("X", inputs, ["N", columns][-rank:])],
        [helper.make_tensor_value_info(name, type, None) for name, type in zip(node.output, outputs)],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def feeds(type=FLOAT, shapes=SHAPES, make=rows):
    return [{"X": make(shape, type)} for shape in shapes]


@pytest.mark.parametrize("type", [FLOAT, DOUBLE, INT64, INT32])
def test_scaler(type):
    offset, scale = [0.5, -1.0, 0.25, 3.0, 0.0], [2.0, 0.5, -1.0, 4.0, 0.1]
    assert_agrees(model("Scaler", inputs=type, offset=offset, scale=scale), feeds(type))
    assert_agrees(model("Scaler", inputs=type, offset=[0.5], scale=scale), feeds(type))
    assert_agrees(model("Scaler", columns="F", inputs=type, scale=[3.0]), feeds(type, SHAPES + WIDE))


@pytest.mark.parametrize("type", [FLOAT, DOUBLE, INT64, INT32])
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(type, norm):
    source = model("Normalizer", columns="F", inputs=type, norm=norm)
    assert_agrees(source, feeds(type, SHAPES + WIDE))
    assert_agrees(source, {"X": -np.abs(rows((9, 19), type))})
    if type == FLOAT:
        assert_agrees(source, {"X": np.array([[np.nan] * 3, [np.nan, -2, np.nan], [0, 0, 0], [-np.inf] * 3], np.float32)})


@pytest.mark.parametrize("type", [FLOAT, INT64])
def test_imputer(type):
    names = (
        ("imputed_value_floats", "replaced_value_float") if type == FLOAT else ("imputed_value_int64s", "replaced_value_int64")
    )
    number = float if type == FLOAT else int
    for values in ([9], [5, 6, 7, 8, 9], [4, 5]):
        attributes = {names[0]: [number(one) for one in values], names[1]: number(1)}
        assert_agrees(model("Imputer", inputs=type, outputs=(type,), **attributes), feeds(type))
    if type == FLOAT:
        assert_agrees(model("Imputer", imputed_value_floats=[1.5], replaced_value_float=float("nan")), feeds())


@pytest.mark.parametrize("type", [FLOAT, DOUBLE, INT64, INT32])
def test_binarizer(type):
    assert_agrees(model("Binarizer", inputs=type, outputs=(type,), threshold=0.5), feeds(type))


def test_a_chain_is_one_step():
    """Binarizer is elementwise, and is computed where Scaler's result is made."""
    text = """g (float[N,5] X) => (float[N,5] Y) {
        scaled = ai.onnx.ml.Scaler<offset=[0.5], scale=[2.0]>(X)
        Y = ai.onnx.ml.Binarizer<threshold=1.0>(scaled)
    }"""
    assert_agrees(text, feeds(), steps=1)


@pytest.mark.parametrize("type", [FLOAT, DOUBLE, INT64, INT32])
@pytest.mark.parametrize("targets", [1, 3, 20])
def test_linear_regressor(type, targets):
    weights = np.random.default_rng(targets).standard_normal(targets * 5).astype(np.float32).tolist()
    for extra in ({}, {"intercepts": weights[:targets]}):
        source = model("LinearRegressor", inputs=type, coefficients=weights, targets=targets, **extra)
        assert_agrees(source, feeds(type, make=finite))
    assert_agrees(model("LinearRegressor", coefficients=weights, targets=targets), feeds())


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"])
@pytest.mark.parametrize(("classes", "labels"), [(1, [7]), (1, [4, 6]), (2, [4, 6]), (3, [5, 0, 9]), (19, list(range(19)))])
def test_linear_classifier(transform, classes, labels):
    weights = (np.random.default_rng(classes).standard_normal(classes * 5) / 3).astype(np.float32).tolist()
    attributes = {
        "coefficients": weights,
        "intercepts": weights[:classes],
        "classlabels_ints": labels,
        "post_transform": transform,
    }
    tolerance = 1e-3 if transform == "PROBIT" else 1e-5
    source = model("LinearClassifier", outputs=(INT64, FLOAT), **attributes)
    assert_agrees(source, feeds(make=finite), tolerance=tolerance)
    if transform == "NONE":
        assert_agrees(source, feeds(), tolerance=tolerance)


def test_a_vector_is_one_row():
    weights = [0.5, -1.0, 2.0, 0.25, 1.0] * 3
    source = model("LinearClassifier", rank=1, outputs=(INT64, FLOAT), coefficients=weights, classlabels_ints=[1, 2, 3])
    assert_agrees(source, {"X": finite((5,))})


KERNELS = {"LINEAR": [0.5, 0.0, 0.0], "POLY": [0.3, 1.0, 2.0], "RBF": [0.2, 0.0, 0.0], "SIGMOID": [0.1, 0.25, 0.0]}


def support_vectors(kernel, classes, each=7, **extra):
    """Attributes of a classifier with random support vectors."""
    rng = np.random.default_rng(classes)
    count, pairs = classes * each, classes * (classes - 1) // 2
    return {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "support_vectors": rng.standard_normal(count * 5).tolist(),
        "coefficients": rng.standard_normal((classes - 1) * count).tolist(),
        "vectors_per_class": [each] * classes,
        "classlabels_ints": [3 * k + 1 for k in range(classes)],
        "rho": rng.standard_normal(pairs).tolist(),
        **extra,
    }


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("classes", [2, 3, 6])
def test_svm_classifier(kernel, classes):
    pairs = classes * (classes - 1) // 2
    chances = {"prob_a": [-1.5 + 0.1 * k for k in range(pairs)], "prob_b": [0.1 * k for k in range(pairs)]}
    for extra in ({}, chances, {"post_transform": "LOGISTIC"}):
        source = model("SVMClassifier", outputs=(INT64, FLOAT), **support_vectors(kernel, classes, **extra))
        assert_agrees(source, feeds(make=finite), tolerance=3e-5)


@pytest.mark.parametrize("classes", [7, 12, 24, 40])
def test_svm_classifier_of_many_classes(classes):
    pairs = classes * (classes - 1) // 2
    chances = {"prob_a": [-1.5 + 0.001 * k for k in range(pairs)], "prob_b": [0.001 * k for k in range(pairs)]}
    for extra in ({}, chances, {"vectors_per_class": [0, 6] + [3] * (classes - 2)}):
        source = model("SVMClassifier", outputs=(INT64, FLOAT), **support_vectors("RBF", classes, each=3, **extra))
        assert programs(native_plan(source))
        assert_agrees(source, feeds(make=finite), tolerance=3e-5)


@pytest.mark.parametrize("degree", [0.0, 1.0, 3.0, 8.0, 9.0])
def test_polynomials_of_any_degree(degree):
    polynomial = support_vectors("POLY", 3) | {"kernel_params": [0.1, 1.5, degree]}
    X = {"X": np.abs(finite((9, 5)))}
    assert_agrees(model("SVMClassifier", outputs=(INT64, FLOAT), **polynomial), X, tolerance=1e-4)


@pytest.mark.parametrize("type", [FLOAT, INT64])
def test_svm_classifier_of_faulty_rows(type):
    """NaN gives no class an advantage; whole numbers are rows as well. (Of infinite rows NumPy's way to distances makes NaN.)"""
    source = model("SVMClassifier", inputs=type, outputs=(INT64, FLOAT), **support_vectors("RBF", 3))
    X = rows((70, 5), type)
    assert_agrees(source, {"X": np.where(np.isinf(X), X.dtype.type(2), X)}, tolerance=3e-5)


@pytest.mark.parametrize("kernel", list(KERNELS))
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(kernel, one_class):
    given = support_vectors(kernel, 3)
    names = ("kernel_type", "kernel_params", "support_vectors")
    attributes = {name: given[name] for name in names} | {"n_supports": 21, "coefficients": given["coefficients"][:21]}
    source = model("SVMRegressor", rho=[0.5], one_class=one_class, **attributes)
    assert_agrees(source, feeds(make=finite), tolerance=3e-5)


@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder(version):
    keys, values = [3, 1, -2, 1, 0], [10, 20, 30, 40, 50]
    whole = model("LabelEncoder", 5, INT64, (INT64,), version, keys_int64s=keys, values_int64s=values, default_int64=-7)
    assert_agrees(whole, feeds(INT64))
    numbers = {"keys_floats": [1.5, 0.0, float("nan"), -2.0], "values_floats": [1.0, 2.0, 3.0, 4.0], "default_float": 0.5}
    assert_agrees(model("LabelEncoder", 5, version=version, **numbers), feeds())
    mixed = {"keys_floats": [1.5], "values_int64s": [8]}
    assert_agrees(model("LabelEncoder", 5, FLOAT, (INT64,), version, **mixed), feeds())


@pytest.mark.parametrize("type", [INT64, INT32])
def test_one_hot_encoder(type):
    for categories in ([1], [2, 0, -3, 1], list(range(-9, 14))):
        assert_agrees(model("OneHotEncoder", inputs=type, cats_int64s=categories), feeds(type))


@pytest.mark.parametrize("type", [FLOAT, DOUBLE])
def test_one_hot_encoder_of_floats(type):
    for categories in ([0], [2, 0, -3, 1], [2**62, 0, -(2**62)]):
        source = model("OneHotEncoder", inputs=type, cats_int64s=categories)
        X = np.array([[0.9, -0.9, 2.5, -3.0, np.nan], [np.inf, -np.inf, 1e30, -1e30, 2.0**62]], rows((1, 1), type).dtype)
        assert_agrees(source, {"X": X})


def test_one_hot_encoder_without_zeros_refuses_what_it_does_not_know():
    text = "g (int64[N,2] X) => (float[N,2,3] Y) { Y = ai.onnx.ml.OneHotEncoder<cats_int64s=[1, 2, 7], zeros=0>(X) }"
    plan = native_plan(text)
    assert programs(plan)
    assert_agrees(text, [{"X": np.array([[1, 7], [2, 2]])}, {"X": np.zeros((0, 2), np.int64)}])
    with pytest.raises(Fail, match="Unknown Category and zeros = 0"):
        execute(plan, {"X": np.array([[1, 7], [2, 0]])})


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("keys", [[0, 1, 2], [-5, 2, 400], [5], [0, 2**62], [-(2**63), 2**63 - 1]])
def test_label_encoder_of_integers_far_and_near(keys, version):
    source = model("LabelEncoder", 5, INT64, (INT64,), version, keys_int64s=keys, values_int64s=keys[::-1], default_int64=-7)
    near = [key + offset for key in keys for offset in (-1, 0, 1) if -(2**63) <= key + offset < 2**63]
    X = np.resize(np.array([*near, 0, -(2**63), 2**63 - 1]), (7, 5))
    assert_agrees(source, [{"X": X}, {"X": X[:0]}, {"X": X[:1]}])


@pytest.mark.parametrize("type", ["float", "double", "int64", "int32"])
def test_array_feature_extractor(type):
    text = f"g ({type}[N,5] X, int64[K] Y) => ({type}[N,K] Z) {{ Z = ai.onnx.ml.ArrayFeatureExtractor(X, Y) }}"
    constant = text.replace(", int64[K] Y", "").replace("{", "<int64[3] Y = {4,0,4}> {", 1).replace("[N,K]", "[N,3]")
    X = rows((6, 5), {"float": FLOAT, "double": DOUBLE, "int64": INT64, "int32": INT32}[type])
    assert_agrees(constant, [{"X": X}, {"X": X[:0]}])
    for count in (1, 3, 40):
        assert_agrees(text, [{"X": X[:size], "Y": np.arange(count) % 5} for size in (6, 1, 0)])


def test_elements_of_one_row_by_any_number_of_places():
    text = "g (int64[N] Y) => (float[1,N] Z) <float[1,3] X = {5, 6, 7}> { Z = ai.onnx.ml.ArrayFeatureExtractor(X, Y) }"
    plan = native_plan(text)
    assert programs(plan)
    assert_agrees(text, [{"Y": np.arange(count) % 3} for count in (1, 7, 8, 1000)])
    for wrong, message in (([1, 3], r"Y\[1\] \(3\) must be in"), ([-1], r"Y\[0\] \(-1\)"), ([], "num_indices = 0")):
        with pytest.raises(InvalidArgument, match=message):
            execute(plan, {"Y": np.array(wrong, np.int64)})


def test_columns_that_are_not_there_are_refused():
    text = "g (float[N,5] X, int64[2] Y) => (float[N,2] Z) { Z = ai.onnx.ml.ArrayFeatureExtractor(X, Y) }"
    plan = native_plan(text)
    assert programs(plan)
    assert_agrees(text, {"X": rows((3, 5)), "Y": np.array([1, 4])})
    with pytest.raises(InvalidArgument, match=r"Y\[1\] \(5\) must be in \[0, 5\)"):
        execute(plan, {"X": rows((3, 5)), "Y": np.array([1, 5])})


def test_feature_vectorizer():
    for type, code in (("float", FLOAT), ("int64", INT64), ("double", DOUBLE)):
        text = f"""g ({type}[N,2] A, {type}[N,3] B) => (float[N,K] Y) {{
            Y = ai.onnx.ml.FeatureVectorizer<inputdimensions=[2,3]>(A, B)
        }}"""
        assert_agrees(text, [{"A": rows((count, 2), code), "B": rows((count, 3), code)} for count in (0, 1, 9)])


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 40), st.integers(1, 40), st.sampled_from(["MAX", "L1", "L2"]))
def test_normalizer_of_any_shape(count, columns, norm):
    assert_agrees(model("Normalizer", columns="F", norm=norm), {"X": rows((count, columns))})
