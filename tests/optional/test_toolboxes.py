"""Other packages for time series: their checks of our adapters, their data in their own types."""

import doctest
import importlib
import linecache
import re
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import polyattn as pa

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
ADAPTERS = {
    f"{toolbox.title()}Attention{kind}": toolbox
    for toolbox in ("aeon", "sktime") for kind in ("Classifier", "Regressor")
}  # fmt: skip


def adapter_of(name):
    pytest.importorskip(ADAPTERS[name])
    return getattr(importlib.import_module(f"polyattn.interop.{ADAPTERS[name]}"), name)


def results_of(name, adapter, **options):
    if ADAPTERS[name] == "aeon":
        from aeon.testing.estimator_checking import check_estimator

        return check_estimator(adapter)
    from sktime.utils.estimator_checks import check_estimator

    return check_estimator(adapter, verbose=False, **options)


def status_of(result):
    """PASSED, SKIPPED or FAILED, from what a toolbox says of a check: a text or an exception."""
    found = re.match(r"(PASSED|SKIPPED)\b", result) if isinstance(result, str) else None
    return found[1] if found else "FAILED"


@contextmanager
def early_returns(path):
    """The names of checks in files of this path that end at a ``return``: they looked at nothing.

    A check that looks ends with its last assertion.
    """
    found, before = Counter(), sys.gettrace()

    def inside(frame, event, _):
        if event == "return":
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
            found[frame.f_code.co_name] += line.strip().startswith("return")
        return inside

    def outside(frame, _event, _):
        is_check = frame.f_code.co_name.startswith(("check_", "test_"))
        return inside if is_check and path in frame.f_code.co_filename else None

    sys.settrace(outside)
    try:
        yield found
    finally:
        sys.settrace(before)


@pytest.mark.parametrize("name", ADAPTERS)
def test_as_many_checks_of_the_toolbox_pass_as_the_page_says(name):
    adapter = adapter_of(name)
    with early_returns("/tests/" if ADAPTERS[name] == "sktime" else "/estimator_checking/_yield") as idle:
        results = results_of(name, adapter)
    assert {check: said for check, said in results.items() if status_of(said) == "FAILED"} == {}
    counts = Counter(map(status_of, results.values()))
    numbers = [counts["PASSED"], idle.total(), counts["SKIPPED"], counts["FAILED"]]
    row = f"| `{name}` | {' | '.join(map(str, numbers))} |"
    assert row in PAGE.read_text(encoding="utf-8"), row
    examples = doctest.testmod(importlib.import_module(adapter.__module__))
    assert (examples.attempted >= 10, examples.failed) == (True, 0)


@pytest.mark.parametrize("name", ["AeonAttentionClassifier", "SktimeAttentionClassifier"])
def test_checks_can_fail(name):
    """Negative control."""

    class Stuck(adapter_of(name)):
        def _predict(self, X):
            return super()._predict(X)[:-1]

    only = {"tests_to_run": ["test_classifier_output"]} if ADAPTERS[name] == "sktime" else {}
    failed = [
        check
        for check, said in results_of(name, Stuck, **only).items()
        if status_of(said) == "FAILED"
    ]
    assert any("classifier_output" in check for check in failed)


def test_series_of_aeon_give_what_our_estimators_give():
    data = pytest.importorskip("aeon.datasets")
    convert = importlib.import_module("aeon.utils.conversion").convert_collection
    adapter = adapter_of("AeonAttentionClassifier")
    (X, y), (X_test, y_test) = (data.load_japanese_vowels(split) for split in ("train", "test"))
    ours = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier())
    ours.fit([x.T for x in X], y)
    fitted = adapter().fit(X, y)
    assert np.array_equal(fitted.predict(X_test), ours.predict([x.T for x in X_test]))
    assert fitted.score(X_test, y_test) > 0.97
    with pytest.raises(ValueError, match="channels"):
        fitted.predict([x[:5] for x in X_test])
    grid = {"form": [None, pa.Form(query=[0], key=[0], value=[0])], "unit_norm": [False, True]}
    search = GridSearchCV(adapter(ridge=1.0), grid, cv=3).fit(X, y)
    assert search.best_params_["form"] is None
    X, y = data.load_basic_motions("train")
    channels = pa.LinearAttentionClassifier(layout="channels_first").fit(X, y)
    plain = adapter(standardise=False).fit(X, y)
    assert np.array_equal(plain.predict(X), channels.predict(X))
    X, y = data.load_italy_power_demand("train")
    X_test, y_test = data.load_italy_power_demand("test")
    assert adapter().fit(X, y).score(X_test, y_test) > 0.95
    assert adapter(steps_per_token=1).fit(X, y).score(X_test, y_test) < 0.7
    for kind in (int, float, object, str):
        assert set(adapter().fit(X, y.astype(kind)).predict(X)) == set(y.astype(kind))
    X, y = data.load_cardano_sentiment("train")
    regressor = adapter_of("AeonAttentionRegressor")
    expected = regressor().fit(X, y).predict(X)
    for kind in ("np-list", "df-list", "pd-multiindex"):
        given = convert(X, kind)
        assert regressor().fit(given, y).predict(given) == pytest.approx(expected, abs=1e-9)
    gaps = X.copy()
    gaps[3, 1, 4:7] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        regressor().fit(gaps, y)
    assert np.isfinite(regressor().set_params(impute="linear").fit(gaps, y).predict(gaps)).all()


def test_panels_of_sktime_give_what_our_estimators_give(tmp_path):
    load = pytest.importorskip("sktime.datasets").load_basic_motions
    convert = importlib.import_module("sktime.datatypes").convert_to
    adapter = adapter_of("SktimeAttentionClassifier")
    X, y = load("train", return_X_y=True, return_type="numpy3D")
    X_test, y_test = load("test", return_X_y=True, return_type="numpy3D")
    ours = make_pipeline(pa.SequenceScaler(unit_norm=True), pa.LinearAttentionClassifier())
    ours.fit(X.swapaxes(1, 2), y)
    fitted = adapter(unit_norm=True).fit(X, y)
    assert np.array_equal(fitted.predict(X_test), ours.predict(X_test.swapaxes(1, 2)))
    assert fitted.score(X_test, y_test) >= 0.9
    expected = adapter(loss="logistic").fit(X, y).predict_proba(X_test)
    for kind in ("pd-multiindex", "df-list", "nested_univ", "numpy3D"):
        found = adapter(loss="logistic").fit(convert(X, kind), y)
        assert found.predict_proba(convert(X_test, kind)) == pytest.approx(expected, abs=1e-9)
    pa.save(fitted.model_, tmp_path / "model")
    loaded = pa.load(tmp_path / "model")
    assert np.array_equal(loaded.predict(X_test.swapaxes(1, 2)), fitted.predict(X_test))
    tag = "capability:predict_proba"
    assert adapter().set_params(loss="logistic").get_tag(tag) != adapter().get_tag(tag)
    frame = convert(X, "pd-multiindex")
    batch = pa.SequenceBatch.from_array(X, layout="channels_first")
    assert np.array_equal(pa.from_long(frame).X.values, batch.values)
    model = pa.LinearAttentionClassifier(ridge=1.0)
    assert np.array_equal(model.fit(frame, y).predict(frame), model.fit(batch, y).predict(batch))


def test_toolboxes_wait_until_they_are_asked_for():
    code = "import polyattn as pa; pa.interop, pa.SequenceScaler; import sys; print(*sys.modules)"
    command = [sys.executable, "-W", "ignore", "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert {"aeon", "sktime"}.isdisjoint(run.stdout.split())


def test_padding_of_tslearn():
    utils = pytest.importorskip("tslearn.utils")
    series = [np.arange(1.0, 4.0), np.arange(5.0, 7.0), np.arange(8.0, 12.0)]
    batch = pa.SequenceBatch.from_padded(utils.to_time_series_dataset(series))
    np.testing.assert_array_equal(batch.lengths, [3, 2, 4])
    np.testing.assert_array_equal(batch.values[:, 0], np.concatenate(series))


def test_frames_of_polars_and_duckdb():
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.DataFrame({"who": [2, 1, 2], "t": [1, 0, 0], "x": [3.0, 1.0, 2.0]})
    for given in (frame, duckdb.from_arrow(frame.to_arrow())):
        data = pa.from_long(given, sequence="who", order="t", tokens="x")
        np.testing.assert_array_equal(data.X.values[:, 0], [1, 2, 3])


def test_one_layer_has_the_features_and_the_optimum_of_an_nvar():
    """Tokens (1, x_t, x_(t-1)), of which the 1 alone asks; and both forecast the Lorenz system."""
    nodes = pytest.importorskip("reservoirpy.nodes")
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 2)), rng.standard_normal((299, 2))
    tokens = np.concatenate([np.ones((298, 1)), X[1:-1], X[:-2]], axis=1)[:, None]
    ours = pa.fit(tokens, Y[1:], form=pa.Form(window=1, query=[0]))
    rows = nodes.NVAR(delay=2, order=2).run(X[:-1])[1:]
    readout = nodes.Ridge(ridge=0.0)
    readout.fit(rows, Y[1:])
    assert ours.n_features == rows.shape[1] + 1
    np.testing.assert_allclose(ours.predict(tokens), readout.run(rows), atol=1e-10)
    series = pa.data.lorenz(900, random_state=0)
    series = (series - series[:600].mean(axis=0)) / series[:600].std(axis=0)
    ahead = pa.forecast(series[:600], 60)
    np.testing.assert_allclose(ahead.values, series[600:660], atol=0.02)
    readout, node = nodes.Ridge(ridge=1e-6), nodes.NVAR(delay=2, order=2)
    known, theirs = series[:600], [series[599]]
    readout.fit(nodes.NVAR(delay=2, order=2).run(known[:-1])[1:], np.diff(known, axis=0)[1:])
    node.run(known[-2:-1])
    for _ in range(60):
        theirs.append(theirs[-1] + readout.run(node.run(theirs[-1][None]))[0])
    np.testing.assert_allclose(np.array(theirs[1:]), series[600:660], atol=0.05)
