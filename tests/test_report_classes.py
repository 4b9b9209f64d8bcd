"""Pages of fits by log-loss: classes beside true ones, and what is refused."""

import numpy as np
import pytest

import polyattn as pa
from browser import check_page
from polyattn.errors import InvalidInput
from polyattn.report import make_page
from polyattn.report.certificates import TITLE as CERTIFICATE
from polyattn.report.classes import TABLE_TITLE, _binned
from polyattn.report.predictions import PREDICTIONS_TITLE


def labelled(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5, 2))
    Y = pa.data.random_layer(2, n_classes, 1, "last", random_state=0)(X)
    return X, np.argmax(Y + rng.gumbel(size=Y.shape), axis=1)


def body(page, title):
    return next(str(each.body) for each in page.sections if each.title == title)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_page_shows_classes_beside_true_ones(n_classes):
    X, labels = labelled(n_classes)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    page = make_page(result, X, labels)
    chances = result.predict_proba(X)
    right = np.mean(chances.argmax(axis=1) == labels)
    shown = body(page, PREDICTIONS_TITLE)
    assert f"{100 * right:.1f} %" in shown
    assert f"{-np.mean(np.log(chances[np.arange(60), labels])):.3g}" in shown
    table = body(page, TABLE_TITLE)
    assert table.count("predicted ") == n_classes
    assert f"<td>{np.sum((chances.argmax(axis=1) == 1) & (labels == 0))}</td>" in table
    assert "mean log-loss with their weights" in body(page, "What was found")
    assert "no bounds for each input" in body(page, "What is not shown")
    assert "shows all of it" not in body(page, "What is not shown")


def test_a_page_says_what_a_certificate_says_of_log_loss():
    X, labels = labelled(2)
    clear = (X[:, -1, 0] * (X[..., 1] ** 2).sum(axis=1) > 0).astype(int)
    for codes, ridge in ((labels, 1.0), (clear, 0.0)):
        result = pa.fit(X, codes, loss="logistic", ridge=ridge)
        assert result.outcome.name == ("regularised" if ridge else "separable")
        shown = body(make_page(result), CERTIFICATE)
        assert "of squared error, and this layer was fitted by log-loss" in shown
        assert "fit them best" not in shown
        model = pa.LinearAttentionClassifier(loss="logistic", bias=False, ridge=ridge)
        said = model.fit(X, codes).certificate_.sentence
        assert "All layers of least squared error on them are the same function" in said
    assert "log-loss" not in body(make_page(pa.fit(X, labels)), CERTIFICATE)


def test_weights_count_on_the_page():
    X, labels = labelled(2)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    weights = np.arange(60.0)
    chances = result.predict_proba(X)[np.arange(60), labels]
    page = make_page(result, X, labels, sample_weight=weights)
    assert f"{np.average(-np.log(chances), weights=weights):.3g}" in body(page, PREDICTIONS_TITLE)


def test_tokens_have_classes_of_their_own(tmp_path, browser):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 2)) for n in rng.integers(2, 6, 30)]
    labels = [rng.integers(0, 3, len(x)) for x in X]
    result = pa.fit(X, labels, mode="causal", loss="logistic", ridge=1.0)
    result.report(tmp_path / "page.html", X, labels)
    assert check_page(browser, tmp_path / "page.html") == []


def test_without_targets_the_page_says_what_it_lacks():
    X, labels = labelled(3)
    page = make_page(pa.fit(X, labels, loss="logistic", ridge=1.0), X)
    assert "Predictions beside true outputs" in body(page, "What is not shown")


@pytest.mark.parametrize(("wrong", "said"), [(3, "from 0 to 2.*got 3"), (0.5, "got 0.5")])
def test_what_is_no_class_is_refused(wrong, said):
    X, labels = labelled(3)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    with pytest.raises(InvalidInput, match=said):
        make_page(result, X, np.where(np.arange(60) == 7, wrong, labels))
    with pytest.raises(InvalidInput, match="1 output"):
        make_page(result, X, np.eye(3)[labels])


def test_bins_hold_means_and_shares():
    chances = np.array([[0.9, 0.1], [0.88, 0.12], [0.0, 1.0]])
    mean, share = _binned(chances, np.array([0, 1, 1]), np.full(3, 1 / 3))
    np.testing.assert_allclose(mean, [0.11, 1.0])
    np.testing.assert_allclose(share, [0.5, 1.0])
