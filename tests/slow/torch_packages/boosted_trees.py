"""Trees of LightGBM and XGBoost converted with onnxmltools, and run; run by test_packages.py."""

import json
import warnings

import numpy as np
import onnxruntime
from lightgbm import LGBMClassifier, LGBMRanker, LGBMRegressor
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from sklearn.datasets import load_diabetes, load_iris
from xgboost import XGBClassifier, XGBRegressor

warnings.simplefilter("ignore")
flowers, kinds = load_iris(return_X_y=True)
patients, progress = load_diabetes(return_X_y=True)
with_gaps = patients.copy()
with_gaps[::7, 2] = np.nan
SMALL = {"n_estimators": 7, "random_state": 1, "n_jobs": 1}
QUIET = SMALL | {"verbose": -1}
cases = {
    "classes": (convert_lightgbm, LGBMClassifier(**QUIET), flowers, kinds),
    "two classes": (convert_lightgbm, LGBMClassifier(**QUIET), flowers, (kinds == 1).astype(int)),
    "numbers": (convert_lightgbm, LGBMRegressor(**QUIET), patients, progress),
    "counts": (convert_lightgbm, LGBMRegressor(objective="poisson", **QUIET), patients, progress),
    "gaps": (convert_lightgbm, LGBMRegressor(**QUIET), with_gaps, progress),
    "ranks": (convert_lightgbm, LGBMRanker(**QUIET), patients, (progress // 100).astype(int)),
    "classes, xgboost": (convert_xgboost, XGBClassifier(**SMALL), flowers, kinds),
    "two classes, xgboost": (convert_xgboost, XGBClassifier(**SMALL), flowers, (kinds == 1).astype(int)),
    "numbers, xgboost": (convert_xgboost, XGBRegressor(**SMALL), patients, progress),
    "gaps, xgboost": (convert_xgboost, XGBRegressor(**SMALL), with_gaps, progress),
    "logistic, xgboost": (
        convert_xgboost,
        XGBRegressor(objective="reg:logistic", **SMALL),
        patients,
        progress / progress.max(),
    ),
}
results = {}
for name, (convert, learner, features, target) in cases.items():
    rows = features.astype(np.float32)
    groups = {"group": [len(rows)]} if isinstance(learner, LGBMRanker) else {}
    model = convert(
        learner.fit(rows, target, **groups), initial_types=[("x", FloatTensorType([None, rows.shape[1]]))], target_opset=15
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results[name] = [
        value.tolist()
        if isinstance(value, np.ndarray)
        else [{str(key): float(part) for key, part in row.items()} for row in value]
        for value in session.run(None, {"x": rows[::9]})
    ]
print(json.dumps(results))
