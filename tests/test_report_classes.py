"""Pages of classifiers: classes beside true ones, by name and by number, and what is refused."""

import re

import numpy as np
import pytest
from markupsafe import Markup
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, confusion_matrix, precision_score, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import polyattn as pa
from browser import check_page
from polyattn.errors import InvalidInput, InvalidType
from polyattn.heads import factor
from polyattn.report import make_page
from polyattn.report.certificates import TITLE as CERTIFICATE
from polyattn.report.class_counts import ClassCounts
from polyattn.report.classes import EACH_TITLE, TABLE_TITLE, _binned
from polyattn.report.predictions import PREDICTIONS_TITLE
from report_pages import body


@pytest.fixture(autouse=True)
def _quick_pages(monkeypatch, request):
    """Heads by a decomposition, and no curves: what these tests are about is neither."""

    def heads_of(result):
        found = factor(result.coef, result.data_scale, result.layout)
        return result.layer_of(found), found.sentence

    monkeypatch.setattr("polyattn.report.fits.heads_of", heads_of)
    monkeypatch.setattr("polyattn.report.plots.heads_of", heads_of)
    if "browser" not in request.fixturenames:
        monkeypatch.setattr("polyattn.report.page.inline_svg", lambda *_: Markup("<svg></svg>"))


def labelled(n_classes):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5, 2))
    Y = pa.data.random_layer(2, n_classes, 1, "last", random_state=0)(X)
    return X, np.argmax(Y + rng.gumbel(size=Y.shape), axis=1)


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
    counts = [int(each) for each in re.findall(r"<td style=[^>]*>(\d+)</td>", table)]
    expected = confusion_matrix(labels, chances.argmax(axis=1))
    assert counts == expected.ravel().tolist()
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


NAMES = np.array(["walking", "running up a hill while breathing heavily", "<b>sitting</b>"])


def named_task(n_sequences=90, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, 5, 2))
    scores = pa.data.random_layer(2, 3, 1, "last", random_state=0)(X)
    return X, NAMES[np.argmax(scores, axis=1)]


def figures(text):
    """All percentages of a text, in order."""
    return [float(each) for each in re.findall(r"([\d.]+) %", text)]


def titles(page):
    return [section.title for section in page.sections]


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_page_of_a_classifier_names_its_classes(tmp_path, loss):
    X, y = named_task()
    model = pa.LinearAttentionClassifier(loss=loss, ridge=1.0, bias=False).fit(X[:60], y[:60])
    model.report(tmp_path / "page.html", X[60:], y[60:], coordinate_names=["speed", "$pulse$"])
    page = make_page(model, X[60:], y[60:])
    assert page.title == "A fitted classifier"
    assert titles(page)[:4] == ["What was found", PREDICTIONS_TITLE, TABLE_TITLE, EACH_TITLE]
    guess = model.predict(X[60:])
    shown = body(page, PREDICTIONS_TITLE)
    share = max(np.mean(y[60:] == name) for name in NAMES)
    right = accuracy_score(y[60:], guess)
    assert figures(shown) == [round(100 * right, 1), round(100 * share, 1)]
    assert 'class="verdict"' in shown
    table = body(page, TABLE_TITLE)
    counts = confusion_matrix(y[60:], guess, labels=model.classes_)
    assert re.findall(r"<td style=[^>]*>(\d+)</td>", table) == list(map(str, counts.ravel()))
    assert "&lt;b&gt;sitting" in table
    assert "<b>sitting" not in "".join(section.body for section in page.sections)
    of_classes = figures(body(page, EACH_TITLE))
    recall = recall_score(y[60:], guess, labels=model.classes_, average=None)
    precision = precision_score(y[60:], guess, labels=model.classes_, average=None)
    expected = [
        round(100 * each, 1) for pair in zip(recall, precision, strict=True) for each in pair
    ]
    assert of_classes == expected
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert ">speed<" in html
    assert ">$pulse$<" in html


def test_the_page_of_a_classifier_is_clean(tmp_path, browser):
    X, y = named_task()
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    model.report(tmp_path / "page.html", X, y)
    for width in (320, 768, 1280):
        assert check_page(browser, tmp_path / "page.html", width) == []
        assert browser.broken_numbers() == []


def test_without_labels_the_page_of_a_classifier_says_what_it_lacks():
    X, y = named_task()
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    for given in ((), (X,)):
        page = make_page(model, *given)
        assert "Predictions beside true outputs" in body(page, "What is not shown")
        assert "3 classes: &lt;b&gt;sitting" in body(page, "What was found")


def test_a_classifier_that_is_no_better_than_the_most_frequent_class_says_so():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((80, 3, 2)), np.repeat(["no", "no", "no", "yes"], 20)
    model = pa.LinearAttentionClassifier(ridge=1e6).fit(X, y)
    assert set(model.predict(X)) == {"no"}
    shown = body(make_page(model, X, y), PREDICTIONS_TITLE)
    assert figures(shown) == [75.0, 75.0]
    assert "does no better than that" in shown
    assert 'class="verdict doubt"' in shown
    # A class that is never said has no precision.
    assert figures(body(make_page(model, X, y), EACH_TITLE)) == [100.0, 75.0, 0.0]
    assert "<td>–</td>" in body(make_page(model, X, y), EACH_TITLE)


def test_of_many_classes_the_worst_are_listed(browser, tmp_path):
    y = np.arange(600) % 100
    rng = np.random.default_rng(0)
    true = np.arange(100)
    predicted = np.where(true == 7, 8, true)
    found = ClassCounts.of(tuple(map(str, true)), y, predicted[y], np.ones(600))
    assert found.mistakes(5) == [("7", "8", 6)]
    assert (found.recall[7], found.precision[8]) == (0.0, 0.5)
    assert found.precision[7] is None
    np.testing.assert_allclose(found.accuracy, 0.99)
    y = y[:200] % 20
    X = np.repeat(10 * rng.standard_normal((20, 1, 2)), 3, axis=1)[y]
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    page = make_page(model, X, y)
    assert body(page, TABLE_TITLE).count("<image") == 1
    assert len(figures(body(page, EACH_TITLE))) <= 24
    assert "8 more are not shown" in body(page, EACH_TITLE)
    page.write(tmp_path / "page.html")
    assert check_page(browser, tmp_path / "page.html", 320) == []


def test_counts_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    true, guess = rng.integers(0, 4, (2, 200))
    weights = rng.random(200)
    found = ClassCounts.of(tuple("abcd"), true, guess, weights)
    np.testing.assert_allclose(found.accuracy, accuracy_score(true, guess, sample_weight=weights))
    for mine, theirs in ((found.recall, recall_score), (found.precision, precision_score)):
        np.testing.assert_allclose(mine, theirs(true, guess, average=None, sample_weight=weights))
    np.testing.assert_array_equal(found.counts, confusion_matrix(true, guess))
    np.testing.assert_allclose(found.row_shares.sum(axis=1), 1.0)
    assert found.mistakes(100) == sorted(found.mistakes(100), key=lambda each: -each[2])


def test_tokens_and_ragged_sequences_have_labels():
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((n, 2)) for n in rng.integers(2, 6, 30)]
    y = [np.where(x[:, 0] > 0, "up", "down") for x in X]
    model = pa.LinearAttentionClassifier(mode="causal", ridge=1.0).fit(X, y)
    shown = body(make_page(model, X, y), PREDICTIONS_TITLE)
    assert f"of {sum(map(len, y))} tokens" in shown
    assert figures(shown)[0] == round(100 * model.score(X, y), 1)


def test_a_pipeline_shows_its_last_step():
    X, y = named_task()
    halved = FunctionTransformer(lambda X: X / 2)
    pipeline = make_pipeline(halved, pa.LinearAttentionClassifier(ridge=1.0, bias=False)).fit(X, y)
    page = make_page(pipeline, X, y)
    assert figures(body(page, PREDICTIONS_TITLE))[0] == round(100 * pipeline.score(X, y), 1)
    assert make_page(pipeline).title == "A fitted pipeline"
    with pytest.raises(InvalidType, match=r"last step of a pipeline.*FunctionTransformer"):
        make_page(make_pipeline(halved), X)


def test_regressors_have_the_page_of_their_result(tmp_path):
    task = pa.data.planted(60, 5, 2, n_heads=1, mode="last", random_state=0)
    model = pa.LinearAttentionRegressor().fit(task.X, task.Y)
    model.report(tmp_path / "page.html", task.X, task.Y, output_names=["east", "north"])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "share of ||y||² explained" in page
    assert ">north<" in page
    with pytest.raises(NotFittedError):
        pa.LinearAttentionRegressor().report(tmp_path / "page.html")


def test_fits_by_log_loss_take_names_of_classes():
    X, labels = labelled(2)
    result = pa.fit(X, labels, loss="logistic", ridge=1.0)
    page = make_page(result, X, labels, output_names=["calm", "storm"])
    assert "2 classes: calm, storm." in body(page, "What was found")
    assert ">storm<" in body(page, "Heads")
    assert ">calm<" not in body(page, "Heads")


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"coordinate_names": ["a"]}, InvalidInput, "coordinate_names must hold 2 names.*got 1"),
        ({"output_names": ["a", "b"]}, InvalidInput, "output_names must hold 3 names.*got 2"),
        ({"coordinate_names": "ab"}, InvalidType, "coordinate_names must be a list of 2 names"),
        ({"coordinate_names": 2}, InvalidType, "coordinate_names must be a list of 2 names"),
        ({"coordinate_names": ["a", 1]}, InvalidType, "must hold texts; got 1 among them"),
        ({"Y": ["flying"] * 90}, InvalidInput, "y must hold labels among.*flying.*Leave"),
        ({"Y": np.ones(90)}, InvalidType, "labels must be of one kind"),
    ],
)
def test_what_does_not_belong_to_a_classifier_is_refused(given, error, said):
    X, y = named_task()
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    with pytest.raises(error, match=said):
        make_page(model, X, **({"Y": y} | given))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_several_labels_at_once_are_shown_one_by_one(loss):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 4, 2))
    sets = (pa.data.random_layer(2, 3, 1, "last", random_state=0)(X) > [0.0, 0.05, -0.1]).astype(
        int
    )
    model = pa.LinearAttentionClassifier(loss=loss, ridge=1.0, bias=False).fit(X, sets)
    page = make_page(model, X, sets, output_names=["rain", "wind", "fog"])
    shown, guess = body(page, PREDICTIONS_TITLE), model.predict(X)
    alike = np.all(sets == (sets.mean(axis=0) > 0.5), axis=1).mean()
    assert figures(shown) == [round(100 * model.score(X, sets), 1), round(100 * alike, 1)]
    expected = [
        each
        for k in range(3)
        for each in (
            accuracy_score(sets[:, k], guess[:, k]),
            max(sets[:, k].mean(), 1 - sets[:, k].mean()),
            recall_score(sets[:, k], guess[:, k]),
            precision_score(sets[:, k], guess[:, k]),
        )
    ]
    assert figures(body(page, EACH_TITLE)) == [round(100 * each, 1) for each in expected]
    assert "3 labels: rain, wind, fog." in body(page, "What was found")
    if loss == "logistic":
        assert figures(body(make_page(model.result_, X, sets), PREDICTIONS_TITLE)) == figures(shown)
        with pytest.raises(InvalidInput, match=r"by 0 and 1 which labels.*got 2"):
            make_page(model.result_, X, 2 * sets)
    with pytest.raises(InvalidInput, match="y must be indicator columns"):
        make_page(model, X, sets[:, 0])
    assert [panel.get_xlabel() for panel in model.plot().axes[:2]] == ["key coordinate", "class"]


def test_either_layout_has_a_page():
    X, y = named_task()
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False, layout="channels_first")
    channels = np.swapaxes(X, 1, 2)
    model.fit(channels, y)
    plain = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, y)
    shown = (make_page(each, given, y) for each, given in ((model, channels), (plain, X)))
    first, second = (body(page, PREDICTIONS_TITLE) for page in shown)
    assert first == second


def test_a_saved_pipeline_has_the_same_page(tmp_path):
    X, y = named_task()
    pipeline = make_pipeline(
        pa.SequenceScaler(), pa.LinearAttentionClassifier(ridge=1.0, bias=False)
    ).fit(X, y)
    pa.save(pipeline, tmp_path / "model.safetensors")
    again = pa.load(tmp_path / "model.safetensors")
    pages = [make_page(each, X, y) for each in (pipeline, again)]
    assert pages[0].title == pages[1].title == "A fitted pipeline"
    assert "SequenceScaler, then LinearAttentionClassifier" in pages[1].lead
    assert body(pages[0], TABLE_TITLE) == body(pages[1], TABLE_TITLE)


def test_names_of_what_is_not_shown_are_refused():
    with pytest.raises(InvalidInput, match="output_names names nothing"):
        make_page(pa.certify(np.ones((3, 2, 2))), output_names=["a"])
