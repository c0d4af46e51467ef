"""Cases of ai.onnx.ml's feature preparation."""

import numpy as np
import onnx.parser
import pytest

import sardonyx
from sardonyx import errors
from sardonyx.dtypes import float32, float64, int32, int64, string
from tests.ops.cases import case, f32, f64, i32, i64, refuse, strings

ML = "ai.onnx.ml"
NAN = np.nan
NUMBERS = {float32, float64, int32, int64}

# --- Scaler

PER_FEATURE = {"offset": [1.0, 2.0, 3.0], "scale": [2.0, 0.5, -1.0]}
scaled = lambda X: ((X - np.array([1, 2, 3])) * np.array([2, 0.5, -1])).astype(np.float32)  # noqa: E731
case("Scaler", X=f32(2, 3), **PER_FEATURE, domain=ML, types={"T": NUMBERS}, against_onnxruntime=True, expect=scaled)
case("Scaler", X=f32(3), **PER_FEATURE, domain=ML, expect=scaled)
case("Scaler", X=f32(2, 3), offset=[1.0], scale=[2.0], domain=ML, expect=lambda X: (X - 1) * 2)
case("Scaler", X=f32(2, 3, 4), offset=[1.0], scale=[2.0], domain=ML, expect=lambda X: (X - 1) * 2)
case("Scaler", X=f32(0, 3), **PER_FEATURE, domain=ML, expect=np.zeros((0, 3)))
case("Scaler", X=f32(2, 3), scale=[3.0], domain=ML, expect=lambda X: 3 * X)
case("Scaler", X=f32(), offset=[1.0], scale=[2.0], domain=ML, expect=lambda X: (X - 1) * 2)
refuse("Scaler", X=f32(2, 4), **PER_FEATURE, domain=ML, match=r"Either both scale and offset can be of feature size \(4\) or 1")

# --- Normalizer

ROWS = np.array([[1, -2, 3], [0, 0, 0], [-1, -2, -4]], np.float32)
NORMS = {
    "MAX": [[1 / 3, -2 / 3, 1], [0, 0, 0], [1, 2, 4]],
    "L1": [[1 / 6, -2 / 6, 3 / 6], [0, 0, 0], [-1 / 7, -2 / 7, -4 / 7]],
    "L2": [[1 / 14**0.5, -2 / 14**0.5, 3 / 14**0.5], [0, 0, 0], [-1 / 21**0.5, -2 / 21**0.5, -4 / 21**0.5]],
}
for norm, expected in NORMS.items():
    case("Normalizer", X=ROWS, norm=norm, domain=ML, types={"T": NUMBERS}, against_onnxruntime=True, expect=np.array(expected))
    case("Normalizer", X=ROWS[0], norm=norm, domain=ML, expect=np.array(expected[0]))
    case("Normalizer", X=f32(0, 3), norm=norm, domain=ML, expect=np.zeros((0, 3)))
case("Normalizer", X=ROWS, domain=ML, expect=np.array(NORMS["MAX"]))
refuse("Normalizer", X=f32(2, 3, 4), domain=ML, match="Rank of input to Normalized must be less than 2. Got 3")
refuse("Normalizer", X=f32(2, 3), norm="L3", domain=ML, match="norm is .L3., expected one of")

# --- Imputer

HOLES = np.array([[1, NAN, 3], [NAN, 2, 0]], np.float32)
FILL = {"replaced_value_float": NAN, "domain": ML}
case("Imputer", X=HOLES, imputed_value_floats=[9.0], **FILL, types={"T": {float32, float64}}, expect=[[1, 9, 3], [9, 2, 0]])
case("Imputer", X=HOLES, imputed_value_floats=[7.0, 8.0, 9.0], **FILL, against_onnxruntime=True, expect=[[1, 8, 3], [7, 2, 0]])
case("Imputer", X=HOLES, imputed_value_floats=[5.0], replaced_value_float=2.0, domain=ML, expect=[[1, NAN, 3], [NAN, 5, 0]])
case("Imputer", X=HOLES, imputed_value_floats=[5.0, 6.0, 7.0], domain=ML, expect=[[1, NAN, 3], [NAN, 2, 7]])
WHOLE = {"replaced_value_int64": 2, "domain": ML, "types": {"T": {int32, int64}}}
case("Imputer", X=np.array([[1, 2], [2, 0]]), imputed_value_int64s=[7], **WHOLE, expect=[[1, 7], [7, 0]])
case("Imputer", X=np.array([[1, 2], [2, 0]]), imputed_value_int64s=[7, 8], **WHOLE, expect=[[1, 8], [7, 0]])
case("Imputer", X=f32(0, 3), imputed_value_floats=[9.0], **FILL, expect=np.zeros((0, 3)))
case("Imputer", X=np.array(NAN, np.float32), imputed_value_floats=[9.0], **FILL, expect=9.0)
refuse("Imputer", X=i64(2, 3), imputed_value_floats=[9.0], domain=ML, match="Empty value of imputed values")

# --- Binarizer

case("Binarizer", X=f32(3, 4), threshold=0.25, domain=ML, types={"T": NUMBERS}, expect=lambda X: X > 0.25)
case("Binarizer", X=np.array([-1, 0, 2], np.float32), domain=ML, against_onnxruntime=True, expect=[0, 0, 1])
case("Binarizer", X=np.array([NAN, np.inf, -np.inf], np.float32), domain=ML, expect=[0, 1, 0])
case("Binarizer", X=f32(0), domain=ML, expect=np.zeros(0))

# --- ArrayFeatureExtractor

PICK = {"Y": [2, 0, 2], "domain": ML}
case("ArrayFeatureExtractor", X=f32(2, 3), **PICK, types={"T": NUMBERS | {string}}, expect=lambda X: X[:, [2, 0, 2]])
case("ArrayFeatureExtractor", X=strings(2, 3), **PICK, against_onnxruntime=True, expect=lambda X: X[:, [2, 0, 2]])
case("ArrayFeatureExtractor", X=i32(3), **PICK, against_onnxruntime=True, expect=lambda X: X[None, [2, 0, 2]])
case("ArrayFeatureExtractor", X=f64(2, 2, 3), **PICK, expect=lambda X: X[:, :, [2, 0, 2]])
case("ArrayFeatureExtractor", X=f32(2, 3), Y=[[1]], domain=ML, expect=lambda X: X[:, 1:2])
case("ArrayFeatureExtractor", X=f32(0, 3), **PICK, expect=np.zeros((0, 3)))
refuse("ArrayFeatureExtractor", X=f32(2, 3), Y=[0, 3], domain=ML, match=r"Y\[1\] \(3\) must be in \[0, 3\)")
refuse("ArrayFeatureExtractor", X=f32(2, 3), Y=[-1], domain=ML, match=r"Y\[0\] \(-1\) must be in \[0, 3\)")
refuse("ArrayFeatureExtractor", X=f32(2, 3), Y=np.zeros(0, np.int64), domain=ML, match="num_indices = 0")

# --- FeatureVectorizer

PARTS = [f32(2, 3), f32(2, 2)]
joined = lambda X: np.concatenate(X, axis=1).astype(np.float32)  # noqa: E731
case("FeatureVectorizer", X=PARTS, inputdimensions=[3, 2], domain=ML, types={"T1": NUMBERS}, expect=joined)
case("FeatureVectorizer", X=PARTS, domain=ML, expect=joined)
case("FeatureVectorizer", X=[f32(2), f32(3)], inputdimensions=[2, 3], domain=ML, expect=lambda X: np.concatenate(X)[None])
case(
    "FeatureVectorizer",
    X=PARTS,
    inputdimensions=[2, 4],
    domain=ML,
    against_onnxruntime=True,
    expect=lambda X: np.concatenate([X[0][:, :2], X[1], np.zeros((2, 2))], axis=1),
)
case("FeatureVectorizer", X=[f32(2, 2, 2)], inputdimensions=[4], domain=ML, expect=lambda X: X[0].reshape(2, 4))
case("FeatureVectorizer", X=[f32(0, 3)], inputdimensions=[3], domain=ML, expect=np.zeros((0, 3)))
refuse("FeatureVectorizer", X=PARTS, inputdimensions=[3], domain=ML, match="does not match number of inputdimensions")
refuse("FeatureVectorizer", X=[f32(2, 3), f32(1, 3)], inputdimensions=[3, 3], domain=ML, match="same batch size")


@pytest.mark.parametrize("native", ["0", "1"])
@pytest.mark.parametrize("rows", [0, 2])
def test_fed_indices_are_checked_without_rows(native, rows):
    text = f"""<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 1]> g (float[{rows},3] x, int64[2] i) => (float[{rows},2] y)
        {{ y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }}"""
    session = sardonyx.InferenceSession(
        onnx.parser.parse_model(text).SerializeToString(), providers=[("CPUExecutionProvider", {"native": native})]
    )
    with pytest.raises(errors.InvalidArgument, match=r"Y\[0\] \(2147483647\) must be in \[0, 3\)"):
        session.run(None, {"x": np.zeros((rows, 3), np.float32), "i": np.array([2147483647, 0])})


@pytest.mark.parametrize("native", ["0", "1"])
def test_constant_indices_are_checked_without_rows(native):
    text = """<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 1]> g (float[0,3] x) => (float[0,2] y)
        <int64[2] i = {2147483647, 0}> { y = ai.onnx.ml.ArrayFeatureExtractor(x, i) }"""
    model = onnx.parser.parse_model(text).SerializeToString()
    with pytest.raises(errors.Fail, match=r"Y\[0\] \(2147483647\) must be in \[0, 3\)"):
        sardonyx.InferenceSession(model, providers=[("CPUExecutionProvider", {"native": native})])


def test_no_rows_of_more_features_than_memory_holds_are_no_elements():
    """With sizes that only a run tells, too."""
    text = """<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 1]> g (float[N,M] x) => (y)
        { y = ai.onnx.ml.FeatureVectorizer<inputdimensions = [1099511627776]>(x) }"""
    session = sardonyx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    (result,) = session.run(None, {"x": np.zeros((0, 3), np.float32)})
    assert result.shape == (0, 1 << 40)
    with pytest.raises(sardonyx.errors.Fail, match="more than"):
        session.run(None, {"x": np.zeros((1, 3), np.float32)})
