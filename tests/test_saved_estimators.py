"""Fitted estimators and pipelines in files: the same answers anywhere, nothing that misleads."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import polyattn as pa
from forged_files import opened, sealed
from polyattn.errors import FileFormatError, PolyattnError

RNG = np.random.default_rng(4)
X, TOKENS = RNG.standard_normal((40, 4, 2)), RNG.standard_normal((5, 4, 2))
NUMBERS = X[:, -1, 0] * X[:, 0, 1] + 0.1 * RNG.standard_normal(40)
CODES = np.argmax(RNG.standard_normal((40, 3)) + X[:, -1, :1] * [1.0, 0.0, -1.0], axis=1)
TEXT = np.array(["north", "ß", "w\u2028est"], dtype="<U40")[CODES]
GAPS = np.where(np.abs(X) > 2, np.nan, X)
REG, CLASSIFIER = pa.LinearAttentionRegressor, pa.LinearAttentionClassifier
SCALER, IMPUTER, LOG = pa.SequenceScaler, pa.SequenceImputer, {"loss": "logistic"}
FORM = pa.Form(mode="causal", decay=[0.5, 0.9], value=[1], skip=True, intercept=True)
WEIGHTS = {"north": 3.0, "ß": 0.5}


def softmax():
    task = pa.data.planted_softmax(60, 3, 2, n_heads=1, random_state=0)
    return pa.SoftmaxAttentionRegressor(1).fit(task.X, task.Y)


MODELS = {
    "one column": lambda: REG(ridge="gcv").fit(X, NUMBERS[:, None]),
    "a form": lambda: REG(form=FORM, ridge="gcv", ridge_grid=np.array([1.0, 2.0])).fit(X, X),
    "dual": lambda: REG(solver="dual", bias=np.True_, ridge=0.5).fit(X, NUMBERS),
    "few rows": lambda: REG(bias=True, random_state=np.int64(5)).fit(X[:3], NUMBERS[:3]),
    "stream": lambda: REG(ridge=0.1).partial_fit(X[:20], X[:20, 0]).partial_fit(X[20:], X[20:, 0]),
    "direct": lambda: REG(solver="direct", ridge=0.1).partial_fit(X, X[:, 0]),
    "softmax": softmax,
    "text": lambda: CLASSIFIER(class_weight=WEIGHTS).fit(X, TEXT),
    "bytes": lambda: CLASSIFIER(ridge=1.0).fit(X, CODES.astype(np.uint8) * 100),
    "large numbers": lambda: CLASSIFIER(**LOG).fit(X, np.array([1, 2, 2**63], np.uint64)[CODES]),
    "booleans": lambda: CLASSIFIER(ridge=1.0, mode="full").fit(X, X[..., 0] > 0),
    "sets": lambda: CLASSIFIER(**LOG).fit(X, X[:, 0] > 0.2),
    "classes of a stream": lambda: CLASSIFIER(ridge="gcv").partial_fit(X, TEXT, np.unique(TEXT)),
    "scaler": lambda: SCALER(with_mean=False).fit(1e200 * X, sample_weight=np.arange(40.0)),
    "imputer": lambda: IMPUTER("median", add_indicator=True).fit(GAPS),
    "pipeline": lambda: make_pipeline(IMPUTER("linear", add_indicator=True), SCALER(),
                                      CLASSIFIER(**LOG)).fit(GAPS, TEXT),
    "with nothing": lambda: make_pipeline("passthrough", SCALER(unit_norm=True)).fit(X),
}  # fmt: skip
METHODS = ("predict", "decision_function", "predict_proba", "transform")


def answers(model, data=TOKENS):
    """All that a fitted model says of data, to the bit."""
    found = {name: getattr(model, name)(data) for name in METHODS if hasattr(model, name)}
    return {name: (each.dtype.str, each.shape, each.tobytes()) for name, each in found.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_same_and_goes_on(name, tmp_path):
    model = MODELS[name]()
    pa.save(model, tmp_path / "model")
    again = pa.load(tmp_path / "model")
    assert (answers(again), str(again)) == (answers(model), str(model))
    if hasattr(model, "classes_"):
        assert again.classes_.dtype == model.classes_.dtype
        assert np.array_equal(again.classes_, model.classes_)
    if hasattr(model, "certificate_"):
        assert again.certificate_.verdict == model.certificate_.verdict
        if not hasattr(model, "classes_"):
            bounds = [each.predict(TOKENS, return_bound=True)[1] for each in (again, model)]
            assert np.array_equal(*bounds)
    if "stream" in name or name in ("direct", "scaler"):
        y = TEXT if name.startswith("classes") else X[:, 0]
        assert answers(again.partial_fit(-0.5 * X, y)) == answers(model.partial_fit(-0.5 * X, y))
    if name == "dual":
        with pytest.raises(PolyattnError, match="partial_fit"):
            again.set_params(solver="auto").partial_fit(X, NUMBERS)
    if name == "a form":
        assert (again.form, again.ridge_grid, again.ridge) == (FORM, [1.0, 2.0], "gcv")


PROGRAM = """
import sys, numpy as np, polyattn as pa
assert "sklearn" not in sys.modules
for name in sys.argv[1:]:
    model = pa.load(name)
    for method in ("predict", "decision_function", "predict_proba", "transform"):
        if hasattr(model, method):
            answer = getattr(model, method)(np.load("tokens.npy"))
            print(name, method, answer.dtype.str, answer.shape, answer.tobytes().hex())
"""


def test_a_fresh_process_answers_the_same(tmp_path):
    np.save(tmp_path / "tokens.npy", TOKENS)
    wanted = []
    for name, make in MODELS.items():
        model = make()
        pa.save(model, tmp_path / name)
        for method, (kind, shape, content) in answers(model).items():
            wanted.append(f"{name} {method} {kind} {shape} {content.hex()}")
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *MODELS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wanted


class Own(REG):
    """Another class of the same fields."""


def mixed_layouts():
    square = RNG.standard_normal((20, 5, 5))
    model = make_pipeline(SCALER(), REG(ridge=1.0, layout="channels_first"))
    return model.fit(square, square[:, 0, 0])


UNSAVED = [
    (REG, "fit"), (lambda: make_pipeline(SCALER()), "fit"), (pa.SoftmaxAttentionRegressor, "fit"),
    (lambda: make_pipeline(FunctionTransformer(), REG()).fit(X, NUMBERS), "FunctionTransformer"),
    (LinearRegression, "LinearRegression"), (lambda: Own().fit(X, NUMBERS), "Own"),
    (lambda: REG(random_state=RNG).fit(X, NUMBERS), "random_state"), (mixed_layouts, "layout"),
    (lambda: REG().fit(X, NUMBERS).set_params(mode="up"), "mode"),
    (lambda: Pipeline([("s", SCALER())], memory="cache").fit(X), "memory"),
    (lambda: REG(form=pa.Form(query=lambda x: x**2)).fit(X, NUMBERS), "form"),
    (lambda: MODELS["pipeline"]().set_params(sequenceimputer__add_indicator=False), "scaler"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "word"), UNSAVED)
def test_what_no_file_keeps_is_named_and_leaves_no_file(make, word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PolyattnError, match=word):
        pa.save(make(), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


# Files made to mislead ----------------------------------------------------------------------


CLASSES = ("fitted", "classes")
FORGED = [
    ("text", ("parameters", "ridge"), -1.0), ("text", ("parameters", "colour"), 1),
    ("text", ("parameters", "class_weight"), {"weights": [["north", -1]]}),
    ("text", (*CLASSES, "values"), ["b", "a", "c"]), ("text", (*CLASSES, "values"), ["a", "b"]),
    ("text", (*CLASSES, "dtype"), "O"), ("text", (*CLASSES, "dtype"), "<U999999999"),
    ("large numbers", ("fitted", "goes_on"), True),
    ("sets", ("fitted", "multilabel"), False), ("sets", (*CLASSES, "values"), [0, 2]),
    ("one column", CLASSES, {"dtype": "<U1", "values": ["a", "b"]}),
    ("dual", ("fitted", "evidence", "moments", "n_dims"), 3), ("scaler", ("fitted", "weight"), 0.0),
    ("imputer", ("fitted", "indicator_features"), [0, 2]),
    ("pipeline", ("steps", 0, "name"), "sequencescaler"), ("pipeline", ("steps",), []),
    ("pipeline", ("steps", 0, "step", "parameters", "add_indicator"), False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value"), FORGED)
def test_wrong_fields_are_refused(name, place, value, tmp_path):
    path = tmp_path / "forged"
    pa.save(MODELS[name](), path)
    arrays, description = opened(path.read_bytes())
    path.write_bytes(sealed(arrays, description))  # the forger does nothing else
    pa.load(path)
    inner = description["metadata"]
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_bytes(sealed(arrays, description))
    with pytest.raises(FileFormatError, match="forged"):
        pa.load(path)
