"""Fitted estimators, transformers and pipelines of every kind that a file can keep."""

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline

import polyattn as pa

RNG = np.random.default_rng(4)
X = RNG.standard_normal((40, 4, 2))
NUMBERS = X[:, -1, 0] * X[:, 0, 1] + 0.1 * RNG.standard_normal(40)
CODES = np.argmax(RNG.standard_normal((40, 3)) + X[:, -1, :1] * [1.0, 0.0, -1.0], axis=1)
TEXT = np.array(["north", "south", "west"])[CODES]
GAPS = X.copy()
GAPS[3, 1, 0] = GAPS[7, :, 1] = np.nan
REGRESSOR, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
FORM = pa.Form(mode="causal", decay=[0.5, 0.9], value=[1], skip=True, intercept=True)


def softmax_regressor():
    task = pa.data.planted_softmax(60, 3, 2, random_state=0)
    return pa.SoftmaxAttentionRegressor().fit(task.X, task.Y)


def stream():
    model = REGRESSOR(ridge=0.1, mode="causal")
    return model.partial_fit(X[:20], X[:20, :, 0]).partial_fit(X[20:], X[20:, :, 0])


MODELS = {
    "regressor": lambda: REGRESSOR(ridge=0.1).fit(X, NUMBERS),
    "regressor of vectors": lambda: REGRESSOR(ridge="loo", bias=True).fit(X, X[:, 0]),
    "regressor of one column": lambda: REGRESSOR(ridge="gcv").fit(X, NUMBERS[:, None]),
    "regressor of a form": lambda: REGRESSOR(form=FORM, ridge_grid=[1.0, 2.0], ridge="gcv").fit(
        X, X[..., ::-1]
    ),
    "regressor by dual": lambda: REGRESSOR(solver="dual", bias=True, ridge=0.5).fit(X, NUMBERS),
    "regressor of few rows": lambda: REGRESSOR(bias=True).fit(X[:3], NUMBERS[:3]),
    "regressor by direct": lambda: REGRESSOR(solver="direct", ridge=0.1).partial_fit(X, NUMBERS),
    "regressor of a stream": stream,
    "regressor, one head": lambda: REGRESSOR(ridge=0.1, n_heads=1).fit(X, X[:, 0]),
    "softmax regressor": softmax_regressor,
    "classifier": lambda: CLASSIFIER().fit(X, TEXT),
    "classifier of numbers": lambda: CLASSIFIER(ridge=1.0).fit(X, CODES.astype(np.uint8) * 100),
    "classifier of booleans": lambda: CLASSIFIER(ridge=1.0, random_state=3).fit(X, CODES > 0),
    "classifier by log-loss": lambda: CLASSIFIER(loss="logistic").fit(X, TEXT),
    "classifier of several labels": lambda: CLASSIFIER(loss="logistic").fit(X, X[:, 0] > 0.2),
    "classifier with weights": lambda: CLASSIFIER(
        ridge=1.0, class_weight={"north": 3.0, "west": 0.5}
    ).fit(X, TEXT),
    "classifier of tokens": lambda: CLASSIFIER(mode="full", ridge=1.0).fit(X, X[..., 0] > 0),
    "classifier of a stream": lambda: CLASSIFIER(ridge="gcv").partial_fit(X, TEXT, np.unique(TEXT)),
    "scaler": lambda: pa.SequenceScaler(unit_norm=True).fit(X),
    "scaler of weights": lambda: pa.SequenceScaler(with_mean=False).fit(
        1e200 * X, sample_weight=np.arange(40.0)
    ),
    "imputer": lambda: pa.SequenceImputer("median", add_indicator=True).fit(GAPS),
    "imputer of a constant": lambda: pa.SequenceImputer("constant", -1.5).fit(X),
    "pipeline": lambda: make_pipeline(
        pa.SequenceImputer("linear"), pa.SequenceScaler(), CLASSIFIER(loss="logistic")
    ).fit(GAPS, TEXT),
    "pipeline of transformers": lambda: make_pipeline(
        pa.SequenceImputer(add_indicator=True), pa.SequenceScaler()
    ).fit(GAPS),
    "pipeline with nothing": lambda: Pipeline(
        [("none", "passthrough"), ("scale", pa.SequenceScaler()), ("fit", REGRESSOR(ridge=0.1))]
    ).fit(X, NUMBERS),
}


def answers(model, data):
    """All that a fitted model says of data."""
    names = ("predict", "decision_function", "predict_proba", "transform")
    return [getattr(model, name)(data) for name in names if hasattr(model, name)]
