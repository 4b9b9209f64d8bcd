"""``polyattn fit --classify``: labels in tables and arrays, a saved classifier, labels out."""

import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from command_endings import parsed, refused
from polyattn.cli import estimator_options
from polyattn.estimators import imputer
from polyattn.report.page import Page

STATES = np.array(["calm", "busy", "mixed"])
COLUMNS = ("--sequence", "id", "--order", "time", "--tokens", "speed,load")
LABELS = (*COLUMNS, "--targets", "state", "--classify")


def make_frame(n=60, seed=0):
    """Ragged sequences of three classes in long format; rows backwards in time."""
    rng, rows = np.random.default_rng(seed), []
    for i in range(n):
        tokens = rng.standard_normal((rng.integers(3, 7), 2)) + 2 * (i % 3)
        rows += [
            (f"run-{i:02d}", t + 5, *tokens[t], STATES[i % 3], i % 3)
            for t in reversed(range(len(tokens)))
        ]
    return pd.DataFrame(rows, columns=["id", "time", "speed", "load", "state", "code"])


def sequences_of(frame):
    """The same as a list of arrays, and one label for each."""
    groups = [group.sort_values("time") for _, group in frame.groupby("id", sort=False)]
    return [each[["speed", "load"]].to_numpy() for each in groups], np.array(
        [each["state"].iloc[-1] for each in groups]
    )


@pytest.fixture
def frame(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = make_frame()
    made.to_csv("all.csv", index=False)
    made.to_parquet("all.parquet")
    made.astype({"state": "category"}).to_parquet("category.parquet")
    early = made["id"] < "run-30"
    made[early].to_csv("part-0.csv", index=False)
    made[~early].to_csv("part-1.csv", index=False)
    return made


@pytest.mark.parametrize("data", ["all.csv", "all.parquet", "category.parquet", "part-*.csv"])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_labels_of_a_table_are_those_of_the_library(run, frame, data, loss):
    X, y = sequences_of(frame)
    expected = pa.LinearAttentionClassifier(loss=loss).fit(X, y)
    found = parsed(run("fit", data, *LABELS, "--loss", loss, "-o", "m.safetensors", "--json"))
    assert found["classes"] == ["busy", "calm", "mixed"]
    assert found["accuracy"] == pytest.approx(expected.score(X, y))
    assert found["majority_share"] == pytest.approx(1 / 3)
    loaded = pa.load("m.safetensors")
    assert loaded.classes_.tolist() == ["busy", "calm", "mixed"]
    assert np.allclose(loaded.coef_, expected.coef_, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("frame")
def test_what_is_printed_puts_the_fit_in_proportion(run):
    text = run("fit", "all.csv", *LABELS, "-o", "m.safetensors").stdout
    for words in (
        "are labelled rightly; the most frequent of 3 classes ('busy', 'calm', 'mixed') is 33.3%",
        "time to fit", "reading included", "m.safetensors",
    ):  # fmt: skip
        assert words in text
    assert "no better" not in text


def test_a_classifier_that_learned_nothing_says_so(run):
    """Labels that have nothing to do with the tokens, by a penalty that leaves nothing."""
    X = np.tile(np.array([1.0, 2.0, 3.0])[:, None, None], (3, 2, 1))
    np.savez("d.npz", X=X, Y=np.array(["a"] * 6 + ["b"] * 3))
    text = run("fit", "d.npz", "--classify").stdout
    assert "saying 'a' of all would be right for 0.667" in text
    assert "is 66.7% of them" in text
    assert "no better" in text


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_join_the_table_that_they_are_of(run, frame, suffix):
    """Round trip by pandas: ids and order are those of the data."""
    X, _ = sequences_of(frame)
    assert (
        run("fit", "all.csv", *LABELS, "--loss", "logistic", "-o", "m.safetensors").exit_code == 0
    )
    out = f"p.{suffix}"
    result = run("predict", "m.safetensors", "all.parquet", *COLUMNS, "--probabilities", "-o", out)
    assert result.stdout == f"labels and probabilities for 60 sequences written to {out}\n"
    table = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    classes = ["busy", "calm", "mixed"]
    assert list(table) == ["id", "label", *(f"probability_of_{each}" for each in classes)]
    assert table["id"].tolist() == [f"run-{i:02d}" for i in range(60)]
    model = pa.load("m.safetensors")
    assert table["label"].tolist() == model.predict(X).tolist()
    assert np.allclose(table.iloc[:, 2:], model.predict_proba(X), rtol=1e-9)
    joined = frame.merge(table, on="id", validate="many_to_one")
    assert len(joined) == len(frame)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_of_tokens_keep_the_order_of_the_table(run, frame, suffix):
    """Rows stand backwards, times begin at 5: labels of tokens go to the rows they are of."""
    out = f"p.{suffix}"
    fit = run("fit", "all.csv", *LABELS, "--mode", "causal", "-o", "m.safetensors")
    assert fit.exit_code == 0, fit.output
    assert run("predict", "m.safetensors", "all.csv", *COLUMNS, "-o", out).exit_code == 0
    table = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    assert list(table) == ["id", "time", "label"]
    joined = frame.merge(table, on=["id", "time"], validate="one_to_one")
    assert len(joined) == len(frame) == len(table)
    X, _ = sequences_of(frame)
    expected = pa.load("m.safetensors").predict(X)
    for name, own, labels in zip(sorted(set(frame["id"])), X, expected, strict=True):
        rows = joined[joined["id"] == name].sort_values("time")
        assert np.allclose(rows["speed"], own[:, 0])
        assert rows["label"].tolist() == labels.tolist()


def test_whole_numbers_and_booleans_are_labels(run, frame):
    codes = (*COLUMNS, "--targets", "code", "--classify")
    found = parsed(run("fit", "all.parquet", *codes, "--json", "-o", "m.safetensors"))
    assert found["classes"] == [0, 1, 2]
    run("predict", "m.safetensors", "all.csv", *COLUMNS, "-o", "p.npy")
    assert np.load("p.npy").dtype.kind == "i"
    assert np.load("p.npy").shape == (60,)
    frame.assign(code=frame["code"] > 0).to_parquet("bool.parquet")
    assert parsed(run("fit", "bool.parquet", *codes, "--json"))["classes"] == [False, True]


# arrays


def arrays():
    rng = np.random.default_rng(1)
    y = STATES[np.arange(40) % 3]
    return rng.standard_normal((40, 4, 2)) + (np.arange(40) % 3)[:, None, None], y


def test_labels_in_arrays(run):
    X, y = arrays()
    np.savez("one.npz", X=X, Y=y)
    np.savez("part-0.npz", X=X[:20], Y=y[:20])
    np.savez("part-1.npz", X=X[20:], Y=y[20:])
    np.save("X.npy", X)
    np.save("y.npy", y)
    expected = pa.LinearAttentionClassifier().fit(X, y)
    for given in (["one.npz"], ["part-*.npz"], ["X.npy", "--targets", "y.npy"]):
        found = parsed(run("fit", *given, "--classify", "--json", "-o", "m.safetensors"))
        assert found["accuracy"] == pytest.approx(expected.score(X, y)), given
        assert np.allclose(pa.load("m.safetensors").coef_, expected.coef_, rtol=1e-6, atol=1e-9)
    assert run("predict", "m.safetensors", "one.npz", "-o", "p.npz").exit_code == 0
    with np.load("p.npz") as written:
        assert written["Y"].tolist() == expected.predict(X).tolist()


def test_labels_of_tokens_in_ragged_arrays(run):
    X, _ = arrays()
    lengths = np.arange(40) % 3 + 2
    y = np.where(X[..., 0] > 1, "high", "low")
    listed = [each[:n] for each, n in zip(X, lengths, strict=True)]
    labels = [each[:n] for each, n in zip(y, lengths, strict=True)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    np.savez("padded.npz", X=X, Y=y, lengths=lengths)
    np.savez("flat.npz", X=np.concatenate(listed), Y=np.concatenate(labels), offsets=offsets)
    expected = pa.LinearAttentionClassifier(mode="causal").fit(listed, labels)
    for name in ("padded.npz", "flat.npz"):
        given = ("fit", name, "--classify", "--mode", "causal", "--json", "-o", "m.safetensors")
        assert parsed(run(*given))["accuracy"] == pytest.approx(expected.score(listed, labels))
    assert run("predict", "m.safetensors", "flat.npz", "-o", "p.npz").exit_code == 0
    with np.load("p.npz") as written:
        assert written["values"].tolist() == np.concatenate(expected.predict(listed)).tolist()
        assert written["offsets"].tolist() == offsets.tolist()


def test_several_labels_at_once_are_columns(run):
    X, _ = arrays()
    np.save("X.npy", X)
    np.save("Y.npy", np.stack([X[:, -1, 0] > 1, X[:, -1, 1] > 1], axis=1).astype(int))
    assert (
        run("fit", "X.npy", "--targets", "Y.npy", "--classify", "-o", "m.safetensors").exit_code
        == 0
    )
    assert run("predict", "m.safetensors", "X.npy", "-o", "p.npy").exit_code == 0
    assert np.array_equal(np.load("p.npy"), pa.load("m.safetensors").predict(X))


def test_weights_count(run):
    """Sequences of weight zero change neither the fit nor the accuracy."""
    X, y = arrays()
    weights = np.where(np.arange(40) < 30, 1.0, 0.0)
    np.savez("w.npz", X=X, Y=y, weights=weights)
    np.savez("some.npz", X=X[:30], Y=y[:30])
    options = ("--classify", "--ridge", "1", "--json")
    with_weights, without = (parsed(run("fit", name, *options)) for name in ("w.npz", "some.npz"))
    for key in ("accuracy", "majority_share", "risk"):
        assert with_weights[key] == pytest.approx(without[key])


# steps before


def test_gaps_are_filled_and_tokens_scaled(run, frame):
    gaps = frame.copy()
    gaps.loc[[3, 50, 90], "speed"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    refused(run("fit", "gaps.csv", *LABELS), "speed", "--impute")
    options = ("--impute", "linear", "--scale", "-o", "m.safetensors", "--json")
    found = parsed(run("fit", "gaps.csv", *LABELS, *options))
    assert found["accuracy"] > 0.8
    model = pa.load("m.safetensors")
    assert [type(step).__name__ for _, step in model.steps] == [
        "SequenceImputer", "SequenceScaler", "LinearAttentionClassifier",
    ]  # fmt: skip
    X, y = sequences_of(gaps)
    assert np.isnan(np.concatenate(X)).sum() == 3
    assert np.mean(model.predict(X) == y) == pytest.approx(found["accuracy"])
    assert run("predict", "m.safetensors", "gaps.csv", *COLUMNS, "-o", "p.csv").exit_code == 0
    assert pd.read_csv("p.csv")["label"].tolist() == model.predict(X).tolist()


def test_tokens_of_regression_are_scaled_too(run, frame):
    X, _ = sequences_of(frame)
    targets = (*COLUMNS, "--targets", "code")
    found = parsed(run("fit", "all.csv", *targets, "--scale", "--json", "-o", "m.safetensors"))
    model = pa.load("m.safetensors")
    y = np.arange(60) % 3
    assert found["r2"] == pytest.approx(model.score(X, y))
    run("predict", "m.safetensors", "all.csv", *COLUMNS, "-o", "p.npy")
    assert np.allclose(np.load("p.npy")[:, 0], model.predict(X).ravel())


# other verbs


def test_audit_takes_a_classifier(run, frame):
    assert run("fit", "all.csv", *LABELS, "--ridge", "0", "-o", "m.safetensors").exit_code == 0
    targets = (*COLUMNS, "--targets", "state")
    audit = parsed(run("audit", "m.safetensors", "all.csv", *targets, "--json"))
    assert audit["outcome"]["name"] == "optimal"
    other = frame.assign(state=frame["state"].replace("calm", "new"))
    other.to_csv("other.csv", index=False)
    unknown = run("audit", "m.safetensors", "other.csv", *targets)
    refused(unknown, "labels that MODEL does not know: ['new']", "['busy', 'calm', 'mixed']")


def test_report_gives_a_classifier_its_labels_and_names(run, frame, monkeypatch):
    """The page itself is that of test_report_classes.py, which takes longer."""
    given = {}

    def write(thing, path, **data):
        given.update(data, thing=thing)
        path.write_text("<html>", encoding="utf-8")
        return Page("A fitted classifier", "", [])

    monkeypatch.setattr("polyattn.cli.report.write_report", write)
    gaps = frame.copy()
    gaps.loc[3, "speed"] = np.nan
    gaps.to_csv("gaps.csv", index=False)
    options = ("--impute", "mean", "-o", "m.safetensors")
    assert run("fit", "gaps.csv", *LABELS, *options).exit_code == 0
    targets = (*COLUMNS, "--targets", "state")
    page = run("report", "m.safetensors", "gaps.csv", *targets, "-o", "r.html")
    assert page.exit_code == 0, page.output
    X, y = sequences_of(gaps)
    assert given["Y"].tolist() == y.tolist()
    assert np.array_equal(given["X"].values, np.concatenate(X), equal_nan=True)
    assert given["coordinate_names"] == ("speed", "load")
    assert run("report", "m.safetensors", "gaps.csv", *COLUMNS, "-o", "r.html").exit_code == 0
    assert len(given["X"]) == 60


def test_ways_to_fill_gaps_are_those_of_the_library():
    assert {*estimator_options.STRATEGIES, "constant"} == set(imputer.STRATEGIES)


# refusals


@pytest.mark.usefixtures("frame")
def test_text_without_classify_says_which_option(run):
    for data in ("all.csv", "all.parquet"):
        given = run("fit", data, *COLUMNS, "--targets", "state")
        refused(given, data, "'state'", "'calm'", "--classify")
    X, y = arrays()
    np.savez("one.npz", X=X, Y=y)
    refused(run("fit", "one.npz"), "Y", "text", "--classify")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": 0.5}, ("fraction", "0.5")),
        ({"state": "one"}, ("at least two classes", "['one']")),
        ({"state": None}, ("'state'",)),
    ],
)
def test_labels_that_are_none(run, frame, change, words):
    frame.assign(**change).to_parquet("bad.parquet")
    refused(run("fit", "bad.parquet", *LABELS), *words)


def test_a_missing_label_is_named(run, frame):
    rows = frame["id"] == "run-07"
    frame.assign(state=frame["state"].where(~rows, "")).to_csv("empty.csv", index=False)
    refused(run("fit", "empty.csv", *LABELS), "run-07", "has no label there")


def test_what_does_not_go_with_classify(run, frame):
    pa.Moments(2, 1).save("s.safetensors")
    refused(run("fit", "s.safetensors", "--classify"), "statistics", "leave --classify out")
    refused(run("fit", "all.csv", *LABELS, "--workers", "2"), "--classify", "leave --workers out")
    refused(run("fit", "all.csv", *LABELS, "--explain"), "--explain", "--classify")
    both = (*COLUMNS, "--targets", "state,code", "--classify")
    refused(run("fit", "all.csv", *both), "one for each predicted position", "2 targets")
    scaled = (*COLUMNS, "--targets", "code", "--scale", "--loss", "logistic")
    refused(run("fit", "all.csv", *scaled), "--loss logistic", "needs --classify")
    assert run("fit", "all.csv", *LABELS, "-o", "m.safetensors").exit_code == 0
    asked = ("predict", "m.safetensors", "all.csv", *COLUMNS, "--probabilities", "-o", "p.csv")
    refused(run(*asked), "--probabilities needs a MODEL by polyattn fit --loss logistic")
    frame.rename(columns={"id": "label"}).to_csv("l.csv", index=False)
    named = ("--sequence", "label", "--tokens", "speed,load")
    refused(run("predict", "m.safetensors", "l.csv", *named, "-o", "p.csv"), "two columns", "label")
