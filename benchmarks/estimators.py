"""What skl2onnx converts: estimators and transformers of scikit-learn, fitted on small seeded data, as models with their feeds.

`benchmarks.classic` measures them. scikit-learn and skl2onnx are imported when a model is made; ops on text that no estimator of
scikit-learn needs stand in a table of their own, as ONNX's text.
"""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

FITTED_ROWS = 200
FEATURES = 8
CLASSES = 3
MANY_CLASSES = 10
OPSETS = {"": 21, "ai.onnx.ml": 3}
TEXT_OPSETS = '<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4, "com.microsoft": 1]>'


@dataclass(frozen=True)
class Fitted:
    """A converted model, and the rows it was fitted on, from which feeds of any length are made."""

    model: bytes
    columns: dict[str, Any]
    single: bool = False
    """Whether it takes one row only, as a map is."""

    def feeds(self, rows: int) -> dict[str, Any] | None:
        """None where there can be no such number of rows."""
        if self.single:
            return self.columns if rows == 1 else None
        return {
            name: np.ascontiguousarray(np.resize(column, (rows, *column.shape[1:]))) for name, column in self.columns.items()
        }


Make = Callable[[], Fitted]
TABLE: dict[str, Make] = {}
"""What makes a model, by its name."""


# --- data


def _random() -> np.random.RandomState:
    return np.random.RandomState(0)


def numbers() -> np.ndarray:
    return _random().standard_normal((FITTED_ROWS, FEATURES)).astype(np.float32)


def counts() -> np.ndarray:
    return _random().randint(0, 5, (FITTED_ROWS, FEATURES)).astype(np.float32)


def gaps() -> np.ndarray:
    data = numbers()
    data[_random().uniform(size=data.shape) < 0.1] = np.nan
    return data


def codes() -> np.ndarray:
    """Categories as integers."""
    return _random().randint(0, 6, (FITTED_ROWS, 4)).astype(np.int64)


def words() -> np.ndarray:
    """Categories as strings."""
    names = np.array(["amber", "beryl", "citrine", "diamond", "emerald", "façade"], dtype=object)
    return names[_random().randint(0, len(names), (FITTED_ROWS, 4))]


def sentences() -> np.ndarray:
    vocabulary = np.array(
        [
            f"{syllable}{ending}"
            for syllable in ["ka", "lo", "mi", "nu", "pe", "ro", "sa", "ti"]
            for ending in ["lt", "ns", "rk", "st"]
        ]
    )
    random = _random()
    return np.array([[" ".join(random.choice(vocabulary, random.randint(4, 12)))] for _ in range(FITTED_ROWS)], dtype=object)


def kernel_matrix() -> np.ndarray:
    data = numbers()
    return np.asarray(data @ data.T, np.float32)


def classes(count: int = CLASSES) -> np.ndarray:
    """Labels that depend on the features, so that something can be learnt."""
    scores = numbers() @ _random().standard_normal((FEATURES, count))
    return scores.argmax(axis=1)


def named_classes(count: int = CLASSES) -> np.ndarray:
    return np.array([f"class {label}" for label in classes(count)])


def two_classes() -> np.ndarray:
    return classes(2)


def several_classes() -> np.ndarray:
    return np.stack([classes(), two_classes()], axis=1)


def targets() -> np.ndarray:
    return np.asarray(numbers() @ np.arange(1, FEATURES + 1), np.float32)


def positive_targets() -> np.ndarray:
    return np.exp(targets() / 40)


def several_targets() -> np.ndarray:
    return np.stack([targets(), -targets()], axis=1)


# --- fitting and converting


def _instance(path: str, *arguments: Any, **settings: Any) -> Any:
    """An object of scikit-learn by the path of its class; strings that begin with a colon are such paths, too."""
    module, _, name = path.rpartition(".")
    made = [_instance(one[1:]) if isinstance(one, str) and one.startswith(":") else one for one in arguments]
    settings = {
        key: _instance(one[1:]) if isinstance(one, str) and one.startswith(":") else one for key, one in settings.items()
    }
    return getattr(importlib.import_module(f"sklearn.{module}"), name)(*made, **settings)


def convert(estimator: Any, data: np.ndarray, options: dict[str, Any] | None = None) -> Fitted:
    """A fitted estimator as a model of one input."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, Int64TensorType, StringTensorType

    kinds = {"f": FloatTensorType, "i": Int64TensorType, "O": StringTensorType}
    type = kinds[data.dtype.kind]([None, *data.shape[1:]])
    chosen = None if options is None else {id(estimator): options}
    model = to_onnx(estimator, initial_types=[("X", type)], target_opset=OPSETS, options=chosen)
    return Fitted(with_plain_locale(model).SerializeToString(), {"X": data})


def with_plain_locale(model: Any) -> Any:
    """The model without the locale en_US, which onnxruntime asks the system for and many machines do not have."""
    from onnx import helper

    for node in model.graph.node:
        if node.op_type == "StringNormalizer":
            node.attribute.append(helper.make_attribute("locale", "C"))
    return model


def _fit(make: Callable[[], Any], data: Callable[[], np.ndarray], target: Callable[[], Any] | None, options: Any) -> Fitted:
    given = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = make()
        estimator.fit(given, None if target is None else target())
        return convert(estimator, given, options)


def add(
    path: str,
    target: Callable[[], Any] | None = None,
    *arguments: Any,
    data: Callable[[], np.ndarray] = numbers,
    label: str = "",
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> None:
    """An estimator by the path of its class in scikit-learn, with what it is fitted to."""
    name = path.rpartition(".")[2] + (f" {label}" if label else "")
    assert name not in TABLE, name
    TABLE[name] = functools.partial(_fit, functools.partial(_instance, path, *arguments, **settings), data, target, options)


# --- linear models

for _name in (
    *("LinearRegression", "ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV"),
    *(
        "Lasso",
        "LassoCV",
        "LassoLars",
        "LassoLarsCV",
        "LassoLarsIC",
        "OrthogonalMatchingPursuit",
        "OrthogonalMatchingPursuitCV",
    ),
    *(
        "PassiveAggressiveRegressor",
        "QuantileRegressor",
        "RANSACRegressor",
        "Ridge",
        "RidgeCV",
        "SGDRegressor",
        "TheilSenRegressor",
    ),
):
    add(f"linear_model.{_name}", targets)
for _name in ("GammaRegressor", "PoissonRegressor", "TweedieRegressor"):
    add(f"linear_model.{_name}", positive_targets)
for _name in ("MultiTaskElasticNet", "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV"):
    add(f"linear_model.{_name}", several_targets)
add("linear_model.LogisticRegression", classes)
add("linear_model.LogisticRegression", two_classes, label="of two classes")
add("linear_model.LogisticRegression", named_classes, label="with names")
add("linear_model.LogisticRegression", classes, label="as arrays", options={"zipmap": False})
add("linear_model.LogisticRegressionCV", classes, cv=2, Cs=2)
for _name in ("PassiveAggressiveClassifier", "Perceptron", "RidgeClassifier", "RidgeClassifierCV"):
    add(f"linear_model.{_name}", classes)
add("linear_model.SGDClassifier", classes, loss="log_loss")
add("linear_model.SGDOneClassSVM")
add("svm.LinearSVC", classes)
add("svm.LinearSVR", targets)
add("discriminant_analysis.LinearDiscriminantAnalysis", classes)
add("discriminant_analysis.QuadraticDiscriminantAnalysis", classes)
add("cross_decomposition.PLSRegression", several_targets)

# --- support vectors, neighbours, Gaussian processes

add("svm.SVC", classes)
add("svm.SVC", classes, probability=True, label="with probabilities")
add("svm.SVC", functools.partial(named_classes, MANY_CLASSES), probability=True, label="of ten names")
add("svm.SVC", two_classes, kernel="poly", label="of two classes")
add("svm.NuSVC", classes, nu=0.2)
add("svm.SVR", targets)
add("svm.NuSVR", targets)
add("svm.OneClassSVM")
add("neighbors.KNeighborsClassifier", classes)
add("neighbors.KNeighborsClassifier", named_classes, label="with names", weights="distance")
add("neighbors.KNeighborsRegressor", targets)
add("neighbors.KNeighborsTransformer", n_neighbors=3)
add("neighbors.NearestNeighbors", n_neighbors=3, radius=None)
add("neighbors.RadiusNeighborsClassifier", classes, radius=20.0)
add("neighbors.RadiusNeighborsRegressor", targets, radius=20.0)
add("neighbors.LocalOutlierFactor", novelty=True)
add("neighbors.NeighborhoodComponentsAnalysis", classes)
add("gaussian_process.GaussianProcessClassifier", two_classes)
add("gaussian_process.GaussianProcessRegressor", targets)

# --- naive Bayes, mixtures, clusters, networks

add("naive_bayes.BernoulliNB", classes)
add("naive_bayes.CategoricalNB", classes, data=codes)
add("naive_bayes.ComplementNB", classes, data=counts)
add("naive_bayes.GaussianNB", classes)
add("naive_bayes.MultinomialNB", classes, data=counts)
add("mixture.GaussianMixture", n_components=3)
add("mixture.BayesianGaussianMixture", n_components=3)
add("cluster.KMeans", n_clusters=4, n_init=1)
add("cluster.MiniBatchKMeans", n_clusters=4, n_init=1)
add("neural_network.MLPClassifier", classes, (16,), max_iter=20)
add("neural_network.MLPClassifier", named_classes, (16,), max_iter=20, label="with names")
add("neural_network.MLPRegressor", targets, hidden_layer_sizes=(16,), max_iter=20)

# --- trees

for _name in ("tree.DecisionTree", "tree.ExtraTree"):
    add(f"{_name}Classifier", classes, max_depth=6)
    add(f"{_name}Regressor", targets, max_depth=6)
for _name in ("RandomForest", "ExtraTrees", "GradientBoosting"):
    add(f"ensemble.{_name}Classifier", classes, n_estimators=20, max_depth=5)
    add(f"ensemble.{_name}Regressor", targets, n_estimators=20, max_depth=5)
add("ensemble.RandomForestClassifier", named_classes, n_estimators=20, max_depth=5, label="with names")
add("ensemble.HistGradientBoostingClassifier", two_classes, max_iter=10)
add("ensemble.HistGradientBoostingRegressor", targets, max_iter=10)
add("ensemble.AdaBoostClassifier", classes, n_estimators=5)
add("ensemble.AdaBoostRegressor", targets, n_estimators=5)
add("ensemble.IsolationForest", n_estimators=10)
add("ensemble.RandomTreesEmbedding", n_estimators=5, sparse_output=False)

# --- around other estimators

LOGISTIC, LINEAR = ":linear_model.LogisticRegression", ":linear_model.LinearRegression"
add("ensemble.BaggingClassifier", classes, ":tree.DecisionTreeClassifier", n_estimators=4)
add("ensemble.BaggingRegressor", targets, ":tree.DecisionTreeRegressor", n_estimators=4)
add("calibration.CalibratedClassifierCV", classes, LOGISTIC, cv=2)
add("model_selection.GridSearchCV", classes, LOGISTIC, {"C": [0.1, 1.0]}, cv=2)
add("model_selection.TunedThresholdClassifierCV", two_classes, LOGISTIC, cv=2)
add("multiclass.OneVsOneClassifier", classes, LOGISTIC)
add("multiclass.OneVsRestClassifier", classes, LOGISTIC)
add("multioutput.MultiOutputClassifier", several_classes, LOGISTIC, options={"zipmap": False})
add("multioutput.MultiOutputRegressor", several_targets, LINEAR)


def _pairs(*paths: str) -> list[tuple[str, Any]]:
    return [(f"part{place}", _instance(path)) for place, path in enumerate(paths)]


def add_made(
    name: str, make: Callable[[], Any], target: Any = None, data: Callable[[], np.ndarray] = numbers, options: Any = None
) -> None:
    TABLE[name] = functools.partial(_fit, make, data, target, options)


def _combined(path: str, *paths: str, **settings: Any) -> Callable[[], Any]:
    return lambda: _instance(path, _pairs(*paths), **settings)


add_made(
    "StackingClassifier", _combined("ensemble.StackingClassifier", LOGISTIC[1:], "tree.DecisionTreeClassifier", cv=2), classes
)
add_made("StackingRegressor", _combined("ensemble.StackingRegressor", LINEAR[1:], "tree.DecisionTreeRegressor", cv=2), targets)
add_made(
    "VotingClassifier",
    _combined("ensemble.VotingClassifier", LOGISTIC[1:], "tree.DecisionTreeClassifier", voting="soft", flatten_transform=False),
    classes,
)
add_made("VotingRegressor", _combined("ensemble.VotingRegressor", LINEAR[1:], "tree.DecisionTreeRegressor"), targets)
add_made("FeatureUnion", _combined("pipeline.FeatureUnion", "preprocessing.StandardScaler", "decomposition.PCA"))
add_made("Pipeline", _combined("pipeline.Pipeline", "preprocessing.StandardScaler", LOGISTIC[1:]), classes)
add_made(
    "Pipeline with names",
    _combined("pipeline.Pipeline", "impute.SimpleImputer", "preprocessing.StandardScaler", LOGISTIC[1:]),
    named_classes,
    gaps,
)
add_made(
    "ColumnTransformer",
    lambda: _instance(
        "compose.ColumnTransformer", [("a", _instance("preprocessing.StandardScaler"), [0, 1, 2]), ("b", "passthrough", [3, 4])]
    ),
)
add_made("Pipeline of text", _combined("pipeline.Pipeline", "preprocessing.OneHotEncoder", LOGISTIC[1:]), named_classes, words)

# --- transformers of numbers

for _name in ("PCA", "IncrementalPCA", "TruncatedSVD"):
    add(f"decomposition.{_name}", n_components=3)
add("decomposition.KernelPCA", n_components=3, kernel="rbf")
for _name in ("Binarizer", "MaxAbsScaler", "MinMaxScaler", "Normalizer", "PowerTransformer", "RobustScaler", "StandardScaler"):
    add(f"preprocessing.{_name}")
add("preprocessing.QuantileTransformer", n_quantiles=50)
add("preprocessing.KBinsDiscretizer", n_bins=4, encode="onehot-dense")
add("preprocessing.PolynomialFeatures")
add("preprocessing.KernelCenterer", data=kernel_matrix)
add("preprocessing.FunctionTransformer")
add("preprocessing.OneHotEncoder", data=codes, label="of integers")
add("preprocessing.OneHotEncoder", data=words, label="of strings")
add("preprocessing.OrdinalEncoder", data=codes, label="of integers")
add("preprocessing.OrdinalEncoder", data=words, label="of strings")
add("preprocessing.TargetEncoder", targets, data=codes, cv=2)
add("random_projection.GaussianRandomProjection", n_components=3)
add("impute.SimpleImputer", data=gaps)
add("impute.KNNImputer", data=gaps)
add("feature_selection.VarianceThreshold")
for _name in ("GenericUnivariateSelect", "SelectFdr", "SelectFpr", "SelectFwe", "SelectPercentile"):
    add(f"feature_selection.{_name}", classes)
add("feature_selection.SelectKBest", classes, k=3)
add("feature_selection.SelectFromModel", classes, LOGISTIC)
add("feature_selection.RFE", classes, LOGISTIC)
add("feature_selection.RFECV", classes, LOGISTIC, cv=2)
add("feature_extraction.text.TfidfTransformer", data=counts)


# --- labels, text, maps


def _label_transformer(path: str, labels: Callable[[], np.ndarray]) -> Fitted:
    given = labels()
    fitted = _instance(path).fit(given)
    column = given.astype(object) if given.dtype.kind == "U" else given.astype(np.int64)
    return convert(fitted, column.reshape(-1, 1))


for _name in ("LabelEncoder", "LabelBinarizer"):
    TABLE[f"{_name} of integers"] = functools.partial(_label_transformer, f"preprocessing.{_name}", classes)
TABLE["LabelEncoder of strings"] = functools.partial(_label_transformer, "preprocessing.LabelEncoder", named_classes)


def _vectorizer(path: str, **settings: Any) -> Fitted:
    texts = sentences()
    return convert(_instance(path, **settings).fit(texts[:, 0]), texts)


for _name in ("CountVectorizer", "TfidfVectorizer"):
    TABLE[_name] = functools.partial(_vectorizer, f"feature_extraction.text.{_name}")
    TABLE[f"{_name} of pairs"] = functools.partial(_vectorizer, f"feature_extraction.text.{_name}", ngram_range=(1, 2))
TABLE["TfidfVectorizer of letters"] = functools.partial(
    _vectorizer, "feature_extraction.text.TfidfVectorizer", analyzer="char", ngram_range=(1, 2)
)


def _dict_vectorizer() -> Fitted:
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import DictionaryType, FloatTensorType, StringTensorType

    rows = [{name: float(value) for name, value in zip("abcdefgh", row)} for row in numbers()]
    fitted = _instance("feature_extraction.DictVectorizer", sparse=False).fit(rows)
    type = DictionaryType(StringTensorType([1]), FloatTensorType([1]))
    model = to_onnx(fitted, initial_types=[("X", type)], target_opset=OPSETS)
    return Fitted(model.SerializeToString(), {"X": rows[0]}, single=True)


TABLE["DictVectorizer"] = _dict_vectorizer


def _of_skl2onnx(name: str, **settings: Any) -> Fitted:
    """A transformer that skl2onnx itself brings."""
    return _fit(lambda: getattr(importlib.import_module("skl2onnx.sklapi"), name)(**settings), numbers, None, None)


TABLE["CastTransformer"] = functools.partial(_of_skl2onnx, "CastTransformer", dtype=np.float64)
TABLE["ReplaceTransformer"] = functools.partial(_of_skl2onnx, "ReplaceTransformer", from_value=0.0)
add("feature_extraction.FeatureHasher", data=words, n_features=16, input_type="string", alternate_sign=False)


def _parsed(text: str, data: Callable[[], np.ndarray]) -> Fitted:
    import onnx.parser

    return Fitted(onnx.parser.parse_model(TEXT_OPSETS + text).SerializeToString(), {"X": data()})


def _flat_words() -> np.ndarray:
    return words().reshape(-1)


def _codes_as_labels() -> np.ndarray:
    return codes()


OPS: dict[str, tuple[str, Callable[[], np.ndarray]]] = {
    "StringNormalizer": (
        'g (string[N] X) => (string[M] Y) { Y = StringNormalizer<case_change_action = "UPPER", locale = "C">(X) }',
        _flat_words,
    ),
    "StringNormalizer with stopwords": (
        'g (string[N] X) => (string[M] Y) { Y = StringNormalizer<case_change_action = "LOWER", locale = "C", stopwords = ["beryl"]>(X) }',
        _flat_words,
    ),
    "StringSplit": ("g (string[N, 1] X) => (string[N, 1, M] Y, int64[N, 1] Z) { Y, Z = StringSplit(X) }", sentences),
    "StringSplit at a text": (
        'g (string[N, 1] X) => (string[N, 1, M] Y, int64[N, 1] Z) { Y, Z = StringSplit<delimiter = "lt ">(X) }',
        sentences,
    ),
    "StringConcat": ("g (string[N, 4] X) => (string[N, 4] Y) { Y = StringConcat(X, X) }", words),
    "Equal": ('g (string[N, 4] X) => (bool[N, 4] Y) <string[1] k = {"beryl"}> { Y = Equal(X, k) }', words),
    "RegexFullMatch": ('g (string[N, 4] X) => (bool[N, 4] Y) { Y = RegexFullMatch<pattern = "[a-e]+r?[a-z]*d?">(X) }', words),
    "Tokenizer": (
        'g (string[N] X) => (string[N, M] Y) { Y = com.microsoft.Tokenizer<mark = 0, mincharnum = 1, pad_value = "#", '
        'separators = [" "]>(X) }',
        lambda: sentences()[:, 0],
    ),
    "LabelEncoder to strings": (
        "g (int64[N, 4] X) => (string[N, 4] Y) { Y = ai.onnx.ml.LabelEncoder<keys_int64s = [0, 1, 2, 3], "
        'values_strings = ["a", "b", "c", "d"]>(X) }',
        _codes_as_labels,
    ),
    "CategoryMapper": (
        'g (string[N, 4] X) => (int64[N, 4] Y) { Y = ai.onnx.ml.CategoryMapper<cats_strings = ["amber", "beryl", "citrine"], '
        "cats_int64s = [1, 2, 3]>(X) }",
        words,
    ),
    "CategoryMapper to strings": (
        'g (int64[N, 4] X) => (string[N, 4] Y) { Y = ai.onnx.ml.CategoryMapper<cats_strings = ["amber", "beryl", "citrine"], '
        "cats_int64s = [1, 2, 3]>(X) }",
        codes,
    ),
    "Gather of strings": ("g (string[N, 4] X) => (string[N, 2] Y) <int64[2] k = {3, 1}> { Y = Gather<axis = 1>(X, k) }", words),
    "Concat of strings": ("g (string[N, 4] X) => (string[N, 8] Y) { Y = Concat<axis = 1>(X, X) }", words),
}
"""Ops on strings by their names: a graph, and what it is fed."""
for _name, (_text, _data) in OPS.items():
    TABLE[_name] = functools.partial(_parsed, _text, _data)


def missing_packages() -> Sequence[str]:
    """What is not installed of that which models are made with."""
    found = []
    for module, package in (("sklearn", "scikit-learn"), ("skl2onnx", "skl2onnx")):
        try:
            importlib.import_module(module)
        except ImportError:
            found.append(package)
    return found
