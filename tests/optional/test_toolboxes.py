"""Other packages for time series: their checks of our adapters, their data in their own types."""

import doctest
import importlib
import re
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


@pytest.mark.parametrize("name", ADAPTERS)
def test_as_many_checks_of_the_toolbox_pass_as_the_page_says(name):
    adapter = adapter_of(name)
    if ADAPTERS[name] == "aeon":
        results = importlib.import_module("aeon.testing.estimator_checking").check_estimator(
            adapter
        )
    else:
        module = importlib.import_module("sktime.utils.estimator_checks")
        results = module.check_estimator(adapter, verbose=False)
    said = {check: str(each)[:7].rstrip(":") for check, each in results.items()}  # or an exception
    assert set(said.values()) <= {"PASSED", "SKIPPED"}, results
    passed, skipped = (list(said.values()).count(each) for each in ("PASSED", "SKIPPED"))
    row = rf"\| `{name}` \| {passed} \| \d+ \| {skipped} \| 0 \|"
    assert re.search(row, PAGE.read_text(encoding="utf-8")), row
    examples = doctest.testmod(importlib.import_module(adapter.__module__))
    assert (examples.attempted >= 10, examples.failed) == (True, 0)


def test_series_of_aeon_give_what_our_estimators_give():
    data = pytest.importorskip("aeon.datasets")
    convert = importlib.import_module("aeon.utils.conversion").convert_collection
    adapter, regressor = (
        adapter_of(f"AeonAttention{kind}") for kind in ("Classifier", "Regressor")
    )
    (X, y), (X_test, y_test) = (data.load_japanese_vowels(split) for split in ("train", "test"))
    ours = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier())
    ours.fit([x.T for x in X], y)
    fitted = adapter().fit(X, y)
    assert np.array_equal(fitted.predict(X_test), ours.predict([x.T for x in X_test]))
    with pytest.raises(ValueError, match="channels"):
        fitted.predict([x[:5] for x in X_test])
    search = GridSearchCV(adapter(ridge=1.0), {"unit_norm": [False, True]}, cv=3).fit(X, y)
    assert search.score(X_test, y_test) > 0.95
    for kind in (int, object):
        assert set(adapter().fit(X, y.astype(kind)).predict(X)) == set(y.astype(kind))
    X, y = data.load_cardano_sentiment("train")
    expected = regressor().fit(X, y).predict(X)
    for kind in ("np-list", "df-list", "pd-multiindex"):
        given = convert(X, kind)
        assert regressor().fit(given, y).predict(given) == pytest.approx(expected, abs=1e-9)
    X[3, 1, 4:7] = np.nan
    with pytest.raises(ValueError, match="missing values"):
        regressor().fit(X, y)
    assert np.isfinite(regressor().set_params(impute="linear").fit(X, y).predict(X)).all()


def test_panels_of_sktime_give_what_our_estimators_give():
    load = pytest.importorskip("sktime.datasets").load_basic_motions
    convert = importlib.import_module("sktime.datatypes").convert_to
    adapter = adapter_of("SktimeAttentionClassifier")
    X, y = load("train", return_X_y=True, return_type="numpy3D")
    X_test, _ = load("test", return_X_y=True, return_type="numpy3D")
    ours = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier(loss="logistic"))
    expected = ours.fit(X.swapaxes(1, 2), y).predict_proba(X_test.swapaxes(1, 2))
    for kind in ("pd-multiindex", "df-list", "nested_univ", "numpy3D"):
        found = adapter(loss="logistic").fit(convert(X, kind), y)
        assert found.predict_proba(convert(X_test, kind)) == pytest.approx(expected, abs=1e-9)
    tag = "capability:predict_proba"
    assert adapter().set_params(loss="logistic").get_tag(tag) != adapter().get_tag(tag)
    frame = convert(X, "pd-multiindex")
    batch = pa.SequenceBatch.from_array(X, layout="channels_first")
    assert np.array_equal(pa.from_long(frame).X.values, batch.values)
    model = pa.LinearAttentionClassifier(ridge=1.0)
    assert np.array_equal(model.fit(frame, y).predict(frame), model.fit(batch, y).predict(batch))


def test_one_layer_has_the_features_and_the_optimum_of_an_nvar():
    """Tokens (1, x_t, x_(t-1)), of which the 1 alone asks."""
    nodes = pytest.importorskip("reservoirpy.nodes")
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 2)), rng.standard_normal((299, 2))
    tokens = np.concatenate([np.ones((298, 1)), X[1:-1], X[:-2]], axis=1)[:, None]
    ours = pa.fit(tokens, Y[1:], form=pa.Form(window=1, query=[0]))
    rows, readout = nodes.NVAR(delay=2, order=2).run(X[:-1])[1:], nodes.Ridge(ridge=0.0)
    readout.fit(rows, Y[1:])
    assert ours.n_features == rows.shape[1] + 1
    np.testing.assert_allclose(ours.predict(tokens), readout.run(rows), atol=1e-10)
    series = pa.data.lorenz(900, random_state=0)
    series = (series - series[:600].mean(axis=0)) / series[:600].std(axis=0)
    np.testing.assert_allclose(pa.forecast(series[:600], 60).values, series[600:660], atol=0.02)
