"""Fitted estimators and pipelines in files: the same answers anywhere, and nothing that misleads."""

import copy
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import polyattn as pa
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
    "numbers": lambda: REG(ridge="loo").fit(X, NUMBERS),
    "one column": lambda: REG(ridge="gcv").fit(X, NUMBERS[:, None]),
    "a form": lambda: REG(form=FORM, ridge="gcv", ridge_grid=np.array([1.0, 2.0])).fit(X, X),
    "dual": lambda: REG(solver="dual", bias=np.True_, ridge=0.5).fit(X, NUMBERS),
    "few rows": lambda: REG(bias=True, random_state=np.int64(5)).fit(X[:3], NUMBERS[:3]),
    "stream": lambda: REG(ridge=0.1).partial_fit(X[:20], X[:20, 0]).partial_fit(X[20:], X[20:, 0]),
    "direct": lambda: REG(solver="direct", ridge=0.1).partial_fit(X, X[:, 0]),
    "one head": lambda: REG(ridge=0.1, n_heads=1).fit(X, X[:, 0]),
    "softmax": softmax,
    "text": lambda: CLASSIFIER(class_weight=WEIGHTS).fit(X, TEXT),
    "bytes": lambda: CLASSIFIER(ridge=1.0).fit(X, CODES.astype(np.uint8) * 100),
    "large numbers": lambda: CLASSIFIER(**LOG).fit(X, np.array([1, 2, 2**63], np.uint64)[CODES]),
    "booleans": lambda: CLASSIFIER(ridge=1.0, mode="full").fit(X, X[..., 0] > 0),
    "floats": lambda: CLASSIFIER(ridge=1.0).fit(X, CODES.astype(np.float32)),
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


def loaded(model, folder):
    pa.save(model, folder / "model")
    return pa.load(folder / "model")


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_same_and_goes_on(name, tmp_path):
    model = MODELS[name]()
    again = loaded(model, tmp_path)
    assert answers(again) == answers(model)
    assert str(again) == str(model)
    if hasattr(model, "classes_"):
        assert again.classes_.dtype == model.classes_.dtype
        assert np.array_equal(again.classes_, model.classes_)
    if hasattr(model, "certificate_"):
        assert again.certificate_.verdict == model.certificate_.verdict
        if name != "softmax" and not hasattr(model, "classes_"):
            for one, other in zip(*(m.predict(TOKENS, return_bound=True) for m in (again, model)),
                                  strict=True):  # fmt: skip
                assert np.array_equal(one, other)
    if "stream" in name or name in ("direct", "scaler"):
        y = TEXT if name.startswith("classes") else X[:, 0]
        for each in (again, model):
            each.partial_fit(-0.5 * X, y)
        assert answers(again) == answers(model)
    elif name in ("dual", "large numbers"):
        with pytest.raises(PolyattnError, match="partial_fit"):
            again.set_params(**{"solver": "auto"} if name == "dual" else {}).partial_fit(X, NUMBERS)
    if name == "a form":
        assert (again.form, again.ridge_grid, again.ridge) == (FORM, [1.0, 2.0], "gcv")
        assert np.array_equal(again.fit(X, X).coef_, model.coef_)


def test_a_fresh_process_answers_the_same_without_scikit_learn_at_hand(tmp_path):
    np.save(tmp_path / "tokens.npy", TOKENS)
    wanted = {}
    for name in MODELS:
        model = MODELS[name]()
        pa.save(model, tmp_path / name)
        digests = {key: repr(each).encode() for key, each in answers(model).items()}
        wanted[name] = {key: hashlib.sha256(each).hexdigest() for key, each in digests.items()}
    program = f"""
import hashlib, json, sys, numpy as np, polyattn as pa
assert "sklearn" not in sys.modules
data, found = np.load("tokens.npy"), {{}}
for name in {list(MODELS)!r}:
    model = pa.load(name)
    kept = [key for key in {METHODS!r} if hasattr(model, key)]
    each = {{key: getattr(model, key)(data) for key in kept}}
    found[name] = {{key: hashlib.sha256(repr((a.dtype.str, a.shape, a.tobytes())).encode()).hexdigest()
                   for key, a in each.items()}}
print(json.dumps(found))
"""
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == wanted


class Own(REG):
    """Another class of the same fields."""


def mixed_layouts():
    square = RNG.standard_normal((20, 5, 5))
    model = make_pipeline(SCALER(), REG(ridge=1.0, layout="channels_first"))
    return model.fit(square, square[:, 0, 0])


UNSAVED = {
    "not fitted": (REG, "fit"), "no step fitted": (lambda: make_pipeline(SCALER()), "fit"),
    "no softmax fitted": (pa.SoftmaxAttentionRegressor, "fit"),
    "another step": (
        lambda: make_pipeline(FunctionTransformer(), REG(ridge=0.1)).fit(X, NUMBERS), "FunctionTransformer",
    ),
    "another library": (LinearRegression, "LinearRegression"),
    "another class": (lambda: Own().fit(X, NUMBERS), "Own"),
    "a generator": (lambda: REG(random_state=RNG).fit(X, NUMBERS), "random_state"),
    "a wrong mode": (lambda: REG().fit(X, NUMBERS).set_params(mode="up"), "mode"),
    "a cache": (lambda: Pipeline([("s", SCALER())], memory="cache").fit(X), "memory"),
    "a function": (lambda: REG(form=pa.Form(query=lambda x: x**2)).fit(X, NUMBERS), "form"),
    "other widths": (
        lambda: MODELS["pipeline"]().set_params(sequenceimputer__add_indicator=False), "sequencescaler",
    ),
    "other axes": (mixed_layouts, "layout"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSAVED)
def test_what_no_file_keeps_is_named_and_leaves_no_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, word = UNSAVED[name]
    with pytest.raises(PolyattnError, match=word):
        pa.save(make(), tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


# Files made to mislead ----------------------------------------------------------------------


def forged(path, change):
    """The file once more with another description, and a digest that is right."""
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    description, arrays = json.loads(header["description"]), safetensors.numpy.load(content)
    change(description)
    text = json.dumps(description)
    digest = hashlib.sha256(f"{header['version']}:{text}".encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name}:{array.dtype.str}:{array.shape}".encode() + array.tobytes())
    header |= {"description": text, "digest": digest.hexdigest()}
    safetensors.numpy.save_file(arrays, path, metadata=header)


CLASSES = ("fitted", "classes")
FORGED = [
    ("text", ("class",), "Pipeline"), ("text", ("class",), "LinearAttentionRegressor"),
    ("text", ("class",), "SequenceScaler"), ("text", ("parameters", "ridge"), -1.0),
    ("text", ("parameters", "n_heads"), 0), ("text", ("parameters", "colour"), 1),
    ("text", ("parameters", "form"), {"form": {"decay": 7}}),
    ("text", ("parameters", "class_weight"), {"weights": [["north", -1]]}),
    ("text", (*CLASSES, "values"), ["ß", "north", "west"]), ("text", (*CLASSES, "values"), ["a", "b"]),
    ("text", (*CLASSES, "values"), ["a", "a", "b"]), ("text", (*CLASSES, "values"), [1, 2, 3]),
    ("text", (*CLASSES, "values"), ["a", "b", 50 * "c"]), ("text", (*CLASSES, "dtype"), "O"),
    ("text", (*CLASSES, "dtype"), "<U999999999"), ("text", (*CLASSES, "dtype"), "<i8"),
    ("text", ("fitted", "plain"), True), ("text", ("fitted", "goes_on"), "yes"),
    ("text", ("fitted", "result", "metadata", "n_dims"), 10**12),
    ("bytes", (*CLASSES, "values"), [0, 100, 300]), ("bytes", (*CLASSES, "values"), [False, 100, 200]),
    ("large numbers", ("fitted", "goes_on"), True), ("large numbers", ("fitted", "multilabel"), True),
    ("sets", ("fitted", "multilabel"), False), ("sets", (*CLASSES, "values"), [0, 2]),
    ("numbers", CLASSES, {"dtype": "<U1", "values": ["a", "b"]}),
    ("few rows", ("fitted", "evidence", "certificate", "verdict"), "identifiable"),
    ("dual", ("fitted", "evidence", "moments", "n_dims"), 3),
    ("softmax", ("fitted", "plain"), True), ("scaler", ("fitted", "weight"), 0.0),
    ("scaler", ("fitted", "n_sequences"), 10**6), ("scaler", ("fitted", "n_tokens"), 0),
    ("imputer", ("fitted", "indicator_features"), [1, 0]),
    ("imputer", ("fitted", "indicator_features"), [0, 2]), ("pipeline", ("steps",), []),
    ("pipeline", ("steps", 0, "name"), "sequencescaler"),
    ("pipeline", ("steps", 0, "step"), {"passthrough": True}), ("pipeline", ("verbose",), 1),
    ("pipeline", ("steps", 1, "step", "class"), "LinearAttentionClassifier"),
    ("pipeline", ("steps", 0, "step", "parameters", "add_indicator"), False),
]  # fmt: skip


def test_wrong_fields_are_refused(tmp_path):
    for name in dict.fromkeys(name for name, *_ in FORGED):
        pa.save(MODELS[name](), tmp_path / name)
    for name, place, value in FORGED:
        path = tmp_path / "forged"
        path.write_bytes((tmp_path / name).read_bytes())

        def change(description, place=place, value=value):
            for key in ("metadata", *place[:-1]):
                description = description[key]
            description[place[-1]] = copy.deepcopy(value)

        forged(path, change)
        with pytest.raises(FileFormatError, match="forged"):
            pa.load(path)
    forged(tmp_path / "numbers", lambda _: None)  # the forger does nothing else
    assert answers(pa.load(tmp_path / "numbers")) == answers(MODELS["numbers"]())
