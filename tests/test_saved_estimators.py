"""Saved estimators and pipelines: the same answers in a fresh process, the same parameters."""

import json
import subprocess
import sys

import numpy as np
import pytest
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.estimators.description import described
from polyattn.files.records import read_record
from polyattn.files.strict_json import parse_json
from saved_models import CLASSIFIER, FORM, GAPS, MODELS, NUMBERS, REGRESSOR, TEXT, X, answers
from test_hostile_files import write_forged

TOKENS = np.random.default_rng(7).standard_normal((5, 4, 2))


def round_trip(model, tmp_path):
    pa.save(model, tmp_path / "model.safetensors")
    return pa.load(tmp_path / "model.safetensors")


def same(found, expected):
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


# The same model -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_answers_bit_for_bit(name, tmp_path):
    model = MODELS[name]()
    loaded = round_trip(model, tmp_path)
    for found, expected in zip(answers(loaded, TOKENS), answers(model, TOKENS), strict=True):
        same(found, expected)
    assert repr(loaded) == repr(model)
    assert str(loaded) == str(model)
    assert described(loaded).to_full_dict() == described(model).to_full_dict()


PROGRAM = """
import json, sys
import numpy as np
import polyattn as pa
assert "sklearn" not in sys.modules
for name in json.loads(sys.argv[2]):
    model = pa.load(f"{sys.argv[1]}/{name}.safetensors")
    given = np.load(f"{sys.argv[1]}/{name}.npy")
    for kind in ("predict", "decision_function", "predict_proba", "transform"):
        if hasattr(model, kind):
            answer = getattr(model, kind)(given)
            print(name, kind, answer.dtype.str, answer.tobytes().hex())
"""


def test_a_fresh_process_predicts_the_same(tmp_path):
    names = list(MODELS)
    wanted = []
    for name in names:
        model, given = MODELS[name](), TOKENS
        pa.save(model, tmp_path / f"{name}.safetensors")
        np.save(tmp_path / f"{name}.npy", given)
        for kind in ("predict", "decision_function", "predict_proba", "transform"):
            if hasattr(model, kind):
                answer = getattr(model, kind)(given)
                wanted.append(f"{name} {kind} {answer.dtype.str} {answer.tobytes().hex()}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path), json.dumps(names)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wanted


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["a", "bb", "a long name"], dtype="<U40"), np.array(["", "ß", "\u2028"]),
        np.array([-5, 0, 7], dtype=np.int8), np.array([1, 2, 2**63], dtype=np.uint64),
        np.array([False, True]), np.array([1.0, 2.0, 3.0], dtype=np.float32),
        np.array([1, 300, 70000], dtype=">i4"),
    ],
    ids=str,
)  # fmt: skip
def test_labels_come_back_with_their_type(labels, tmp_path):
    y = labels[np.arange(40) % len(labels)]
    model = CLASSIFIER(ridge=1.0).fit(X, y)
    loaded = round_trip(model, tmp_path)
    same(loaded.classes_, model.classes_)
    same(loaded.predict(X), model.predict(X))
    assert loaded.score(X, y) == model.score(X, y)


def test_parameters_come_back(tmp_path):
    model = REGRESSOR(
        form=FORM,
        ridge="gcv",
        ridge_grid=np.array([0.5, 1.0]),
        n_heads=None,
        random_state=np.int64(5),
        bias=np.False_,
    ).fit(X, X)
    loaded = round_trip(model, tmp_path)
    assert loaded.form == FORM
    assert loaded.ridge_grid == [0.5, 1.0]
    assert (loaded.ridge, loaded.random_state, loaded.solver) == ("gcv", 5, "auto")
    again = loaded.fit(X, X)
    assert np.array_equal(again.coef_, model.coef_)


@pytest.mark.parametrize(
    "name", ["regressor of a stream", "regressor by direct", "classifier of a stream"]
)
def test_a_stream_goes_on(name, tmp_path):
    model = MODELS[name]()
    loaded = round_trip(model, tmp_path)
    more = -0.5 * X
    y = X[..., 1] if "a stream" in name else NUMBERS
    y = TEXT if "classifier" in name else y
    assert np.array_equal(
        loaded.partial_fit(more, y).predict(TOKENS), model.partial_fit(more, y).predict(TOKENS)
    )
    assert np.array_equal(loaded.coef_, model.coef_)


def test_what_kept_no_sums_says_so_after_loading_too(tmp_path):
    loaded = round_trip(MODELS["regressor by dual"](), tmp_path).set_params(solver="auto")
    with pytest.raises(InvalidInput, match="keeps no sums"):
        loaded.partial_fit(X, NUMBERS)
    scaler = round_trip(MODELS["scaler of weights"](), tmp_path)
    expected = MODELS["scaler of weights"]().partial_fit(X)
    assert np.array_equal(scaler.partial_fit(X).scale_, expected.scale_)


@pytest.mark.parametrize(
    "name", ["regressor", "regressor by dual", "regressor of few rows", "classifier by log-loss"]
)
def test_certificates_and_bounds_come_back(name, tmp_path):
    model = MODELS[name]()
    loaded = round_trip(model, tmp_path)
    assert loaded.certificate_.verdict == model.certificate_.verdict
    if "classifier" not in name:
        for found, expected in zip(
            loaded.predict(TOKENS, return_bound=True),
            model.predict(TOKENS, return_bound=True),
            strict=True,
        ):
            same(found, expected)


def test_a_search_over_a_pipeline_ends_in_a_file(tmp_path):
    """The best estimator of a grid search is a pipeline of ours."""
    from sklearn.model_selection import GridSearchCV

    model = make_pipeline(pa.SequenceImputer(), pa.SequenceScaler(), CLASSIFIER())
    search = GridSearchCV(
        model, {"linearattentionclassifier__ridge": [0.1, 10.0]}, cv=2
    ).fit(GAPS, TEXT)  # fmt: skip
    loaded = round_trip(search.best_estimator_, tmp_path)
    assert isinstance(loaded, Pipeline)
    same(loaded.predict(GAPS), search.predict(GAPS))
    with pytest.raises(InvalidType, match="got GridSearchCV"):
        pa.save(search, tmp_path / "search")


# What cannot be saved -----------------------------------------------------------------------


def refused(model, error, pattern, tmp_path):
    with pytest.raises(error, match=pattern):
        pa.save(model, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_what_is_not_fitted_is_not_saved(tmp_path):
    for model in (REGRESSOR(), CLASSIFIER(), pa.SoftmaxAttentionRegressor(), pa.SequenceScaler()):
        refused(model, InvalidInput, f"{type(model).__name__} is not fitted yet", tmp_path)
    refused(make_pipeline(pa.SequenceScaler()), InvalidInput, "not fitted yet", tmp_path)


@pytest.mark.parametrize("shape", [(20, 4, 6), (20, 5, 5)])
def test_steps_that_read_different_axes_are_refused(shape, tmp_path):
    """Each step takes the same array; a square one even fits both ways."""
    tokens = np.random.default_rng(0).standard_normal(shape)
    mixed = make_pipeline(
        pa.SequenceScaler(), pa.LinearAttentionRegressor(ridge=1.0, layout="channels_first")
    )
    mixed.fit(tokens, tokens[:, 0, 0])
    with pytest.raises(InvalidInput, match=r"'sequencescaler' has layout='tokens_first' and 'lin"):
        pa.save(mixed, tmp_path / "model.safetensors")
    mixed.set_params(sequencescaler__layout="channels_first").fit(tokens, tokens[:, 0, 0])
    pa.save(mixed, tmp_path / "model.safetensors")


def test_other_steps_are_named(tmp_path):
    def unchanged(data):
        return data

    pipeline = make_pipeline(FunctionTransformer(unchanged), REGRESSOR(ridge=0.1)).fit(X, NUMBERS)
    message = "step 'functiontransformer' of the pipeline is FunctionTransformer"
    refused(pipeline, InvalidType, f"{message}.*SequenceScaler, SequenceImputer", tmp_path)
    refused(LinearRegression(), InvalidType, "got LinearRegression", tmp_path)
    refused(SelectKBest(), InvalidType, "LinearAttentionRegressor, .*got SelectKBest", tmp_path)

    class Own(type(REGRESSOR())):
        """Another class of the same fields."""

    refused(Own().fit(X, NUMBERS), InvalidType, "got Own", tmp_path)


def test_parameters_that_no_file_keeps_are_named(tmp_path):
    fitted = REGRESSOR(random_state=np.random.default_rng(0)).fit(X, NUMBERS)
    refused(fitted, InvalidInput, r"random_state of LinearAttentionRegressor.*set_params", tmp_path)
    refused(
        REGRESSOR().fit(X, NUMBERS).set_params(mode="up"), InvalidInput, "parameter mode", tmp_path
    )
    cached = Pipeline([("s", pa.SequenceScaler())], memory=str(tmp_path)).fit(X)
    refused(cached, InvalidInput, r"memory=None", tmp_path)
    own = REGRESSOR(form=pa.Form(query=lambda tokens: tokens**2)).fit(X, NUMBERS)
    refused(own, InvalidInput, "form cannot be kept in a file", tmp_path)
    wider = MODELS["pipeline"]()
    wider[0].set_params(add_indicator=True)
    refused(wider, InvalidInput, "step 'sequencescaler' of the pipeline takes tokens", tmp_path)


# Files made to mislead ----------------------------------------------------------------------

FORGED = [
    ("classifier", ["class"], "Pipeline"), ("classifier", ["class"], "os.system"),
    ("classifier", ["class"], "SequenceScaler"),
    ("classifier", ["class"], "LinearAttentionRegressor"),
    ("classifier", ["parameters", "ridge"], -1.0), ("classifier", ["parameters", "ridge"], "best"),
    ("classifier", ["parameters", "n_heads"], 0), ("classifier", ["parameters", "mode"], ["last"]),
    ("classifier", ["parameters", "colour"], 1), ("classifier", ["parameters"], []),
    ("classifier", ["parameters", "form"], {"form": {"decay": 7}}),
    ("classifier", ["parameters", "form"], {"weights": []}),
    ("classifier", ["fitted", "classes", "values"], ["south", "north", "west"]),
    ("classifier", ["fitted", "classes", "values"], ["north", "south"]),
    ("classifier", ["fitted", "classes", "values"], ["north", "north", "west"]),
    ("classifier", ["fitted", "classes", "values"], [1, 2, 3]),
    ("classifier", ["fitted", "classes", "values"], ["north", "south", "west" * 9]),
    ("classifier", ["fitted", "classes", "dtype"], "O"),
    ("classifier", ["fitted", "classes", "dtype"], "<U999999999"),
    ("classifier", ["fitted", "classes", "dtype"], "<i8"),
    ("classifier", ["fitted", "plain"], 1), ("classifier", ["fitted", "plain"], True),
    ("classifier", ["fitted", "goes_on"], "yes"),
    ("classifier", ["fitted", "result", "kind"], "moments"),
    ("classifier", ["fitted", "result", "metadata", "risk"], "low"),
    ("classifier", ["fitted", "result", "metadata", "n_dims"], 10**12),
    ("classifier of numbers", ["fitted", "classes", "values"], [0, 100, 300]),
    ("classifier of numbers", ["fitted", "classes", "values"], [False, 100, 200]),
    ("classifier by log-loss", ["fitted", "goes_on"], True),
    ("classifier of several labels", ["fitted", "multilabel"], False),
    ("classifier of several labels", ["fitted", "classes", "values"], [0, 2]),
    ("classifier by log-loss", ["fitted", "multilabel"], True),
    ("classifier with weights", ["parameters", "class_weight"], {"weights": [["north"]]}),
    ("classifier with weights", ["parameters", "class_weight"], {"weights": [["north", -1]]}),
    ("classifier with weights", ["parameters", "class_weight"], "even"),
    ("regressor", ["fitted", "classes"], {"dtype": "<U1", "values": ["a", "b"]}),
    ("regressor of few rows", ["fitted", "evidence", "certificate", "verdict"], "identifiable"),
    ("regressor by dual", ["fitted", "evidence", "moments", "n_dims"], 3),
    ("regressor by dual", ["fitted", "evidence"], {"certificate": {}}),
    ("softmax regressor", ["fitted", "result", "mode"], "up"),
    ("softmax regressor", ["parameters", "method"], "magic"),
    ("scaler", ["fitted", "weight"], 0.0), ("scaler", ["fitted", "n_sequences"], 10**6),
    ("scaler", ["fitted", "weight"], -1.0), ("scaler", ["fitted", "n_tokens"], 0),
    ("scaler", ["parameters", "unit_norm"], "yes"), ("scaler", ["fitted"], None),
    ("imputer", ["fitted", "indicator_features"], [1, 0]),
    ("imputer", ["fitted", "indicator_features"], [0, 2]),
    ("imputer", ["parameters", "strategy"], "guess"),
    ("imputer", ["parameters", "fill_value"], "0"),
    ("pipeline", ["steps"], []), ("pipeline", ["steps", 0, "name"], "sequencescaler"),
    ("pipeline", ["steps", 1, "step", "class"], "LinearAttentionClassifier"),
    ("pipeline", ["steps", 0, "step"], {"passthrough": True}),
    ("pipeline", ["steps", 0, "step", "parameters", "strategy"], 3),
    ("pipeline", ["verbose"], 1), ("pipeline", ["transform_input"], "X"),
]  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model"
    found = {}
    for name in {name for name, *_ in FORGED}:
        pa.save(MODELS[name](), path)
        found[name] = read_record(path)
    return found


@pytest.mark.parametrize(("name", "place", "value"), FORGED)
def test_a_wrong_field_is_named_with_its_file(name, place, value, records, tmp_path):
    record = records[name]
    metadata = parse_json(json.dumps(record.metadata))
    inner = metadata
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "forged.safetensors"
    write_forged(path, record.kind, record.arrays, metadata)
    with pytest.raises(FileFormatError, match=r"forged\.safetensors") as refusal:
        pa.load(path)
    words = [str(each) for each in place] + ["arrays", "unknown field"]
    assert any(word in str(refusal.value) for word in words), str(refusal.value)
    assert len(str(refusal.value)) < 700


@pytest.mark.parametrize("name", ["classifier", "scaler", "imputer", "pipeline"])
def test_missing_unknown_and_wrong_parts_are_refused(name, records, tmp_path):
    record, path = records[name], tmp_path / "forged"
    for field in record.metadata:
        rest = {key: each for key, each in record.metadata.items() if key != field}
        write_forged(path, record.kind, record.arrays, rest)
        with pytest.raises(FileFormatError, match=field):
            pa.load(path)
    write_forged(path, record.kind, record.arrays, record.metadata | {"remark": 1})
    with pytest.raises(FileFormatError, match="remark"):
        pa.load(path)
    write_forged(path, record.kind, record.arrays | {"more": np.ones(2)}, record.metadata)
    with pytest.raises(FileFormatError, match="more"):
        pa.load(path)
    for field, array in record.arrays.items():
        if not array.size:  # sums of no targets
            continue
        nan = np.full(array.shape, np.nan)
        for other in (nan, array.reshape(-1)[:-1].copy(), array.astype(np.float32), array[None]):
            write_forged(path, record.kind, record.arrays | {field: other.copy()}, record.metadata)
            with pytest.raises(FileFormatError, match="forged"):
                pa.load(path)


# Description --------------------------------------------------------------------------------


def test_models_say_what_they_are():
    model = MODELS["classifier"]()
    assert repr(model) == "LinearAttentionClassifier()"
    assert "3 classes ('north', 'south', 'west') from tokens of 2 coordinates" in str(model)
    assert str(CLASSIFIER()) == "LinearAttentionClassifier()"
    assert "Not fitted yet" in CLASSIFIER().describe().sentence
    shown = described(MODELS["pipeline"]()).describe()
    assert shown.about.startswith("SequenceImputer, SequenceScaler, then LinearAttentionClassifier")
    assert shown.facts["classes"] == ["north", "south", "west"]
    many = CLASSIFIER(ridge=1.0).fit(X, np.arange(40) % 20)
    assert "20 classes from tokens" in str(many)
    assert "40" in str(MODELS["scaler"]())


def test_describing_solves_nothing():
    model = REGRESSOR(ridge=0.1).partial_fit(X, NUMBERS)
    assert "Not solved yet" in str(model)
    assert "result" not in vars(model._state)
    model.predict(X)
    assert "Not solved yet" not in str(model)
