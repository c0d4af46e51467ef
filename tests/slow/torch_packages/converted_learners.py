"""Learners of scikit-learn converted with skl2onnx, and run; run by test_packages.py."""

import json
import warnings

import numpy as np
import onnxruntime
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import GradientBoostingClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC

warnings.simplefilter("ignore")
features, target = load_iris(return_X_y=True)
features = features.astype(np.float32)
learners = {
    "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    "boosted": GradientBoostingClassifier(n_estimators=8, random_state=1),
    "forest": RandomForestRegressor(n_estimators=6, random_state=1),
    "neighbours": KNeighborsClassifier(3),
    "network": MLPClassifier((6,), max_iter=40, random_state=1),
    "support vectors": SVC(probability=True, random_state=1),
    "polynomials": make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=300)),
    "columns": make_pipeline(
        make_column_transformer((StandardScaler(), [0, 1]), (KBinsDiscretizer(3, encode="onehot-dense"), [2, 3])),
        LogisticRegression(),
    ),
    "process": GaussianProcessRegressor(random_state=1),
}
results = {}
for name, learner in learners.items():
    model = to_onnx(
        learner.fit(features, target), features[:1], options={"zipmap": False} if hasattr(learner, "predict_proba") else None
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results[name] = [np.asarray(value)[::10].tolist() for value in session.run(None, {session.get_inputs()[0].name: features})]
print(json.dumps(results))
