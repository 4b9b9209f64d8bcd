"""Pages of layers of every form: what they say and show, with sequences and their context."""

import numpy as np
import pytest

import polyattn as pa
from browser import check_page
from polyattn.errors import InvalidInput
from polyattn.form import Form, Layout, maps
from polyattn.form.in_words import form_in_words, scale_in_words
from polyattn.report import make_page

OUTCOME, CERTIFICATE, HEADS = "What was found", "Do the data determine the layer?", "Heads"
PREDICTIONS, BOUNDS = "Predicted against true", "How far apart can good layers be?"

FORMS = {
    "decays": Form(mode="causal", decay=[0.5, 0.9], query=slice(0, 2), key=[0, 1], value=[2]),
    "lags": Form(mode="causal", lags=2, include_query=False, skip=True),
    "mean": Form(include_query=False, mean=True, intercept=True, bias=True),
    "matrix": Form(mode="full", query=np.eye(3)[:, :2], skip=True, intercept=True),
    "map": Form(mode="causal", window=3, key=maps.elu1()),
}
WORDS = {
    Form(): "",
    Form(mode="full", bias=True): "",
    Form(decay=0.9, query=slice(0, 5)): "decay 0.9, query: coordinates 0–4",
    Form(decay=[0.5, 0.9], mean=True): "mean of tokens, decays 0.5 and 0.9",
    Form(decay="loo"): "decay chosen by leaving out",
    Form(window=1, skip=True): "window of 1 token, linear map of the query added",
    Form(include_query=False, lags=3): "query not attended to, heads for 3 lags",
    Form(key=[0, 2], value=[0, 2]): "key and value: coordinates 0 and 2",
    Form(query=[3], value=slice(1, None)): "query: coordinate 3, value: coordinates from 1",
    Form(query=slice(-2, None)): "query: coordinates -2:",
    Form(query=np.eye(30)[:, :2]): "query: matrix (30, 2)",
    Form(key=maps.elu1(), intercept=True): "key: elu1(), intercept added",
    Form(query=range(0, 20, 2)): "query: 10 coordinates",
    Form(decay=np.linspace(0.1, 0.9, 9)): "9 decays",
}


def planted(form, n_context_dims=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5, 3))
    context = None if n_context_dims is None else rng.standard_normal((60, 4, n_context_dims))
    layout = Layout.of(form, 3, n_context_dims)
    # One head for each scale.
    n_scales, n_queries, n_outputs = layout.n_scales, len(layout.query), 2
    more = {"head_scales": np.arange(n_scales)}
    if form.skip:
        more["skip"] = rng.standard_normal((n_queries, n_outputs))
    if form.intercept:
        more["intercept"] = rng.standard_normal(n_outputs)
    layer = pa.LinearAttention(
        rng.standard_normal((n_scales, n_queries, layout.pairs.n_keys)),
        rng.standard_normal((n_scales, layout.pairs.n_values, n_outputs)),
        form=form, n_dims=3, n_context_dims=n_context_dims, **more,
    )  # fmt: skip
    return X, layer(X, context), context


def titles(page):
    return [section.title for section in page.sections]


def text(page):
    return page.lead + "".join(section.body for section in page.sections)


@pytest.mark.parametrize(("form", "words"), WORDS.items(), ids=repr)
def test_a_form_in_words(form, words):
    assert form_in_words(Layout.of(form, 30)) == words


def test_the_context_is_said():
    words = form_in_words(Layout.of(Form(mode="full"), 3, 2))
    assert words == "context of 2 coordinates"


def test_scales_in_words():
    lags = Form(mode="causal", lags=2, window=5)
    assert [scale_in_words(lags, i) for i in range(3)] == [
        "distance 0", "distance 1", "distances 2–4"
    ]  # fmt: skip
    assert scale_in_words(Form(lags=1), 1) == "distances from 1"
    assert scale_in_words(Form(decay=[0.5, 1]), 0) == "decay 0.5"
    assert scale_in_words(Form(decay=0.5), 0) == ""


@pytest.mark.parametrize("name", FORMS)
def test_the_page_of_a_fit_of_every_form(name):
    form = FORMS[name]
    X, Y, _ = planted(form)
    result = pa.fit(X, Y, form=form)
    page = make_page(result, X, Y)
    assert {OUTCOME, CERTIFICATE, HEADS, PREDICTIONS, BOUNDS} <= set(titles(page))
    words = form_in_words(result.layout)
    assert words in page.lead
    assert words in str(result).replace("\n", " ")
    shown = text(page)
    assert (">skip<" in shown, ">intercept<" in shown) == (form.skip, form.intercept)
    assert ("Added to the heads" in shown) == (form.skip or form.intercept)


def test_heads_stand_under_their_scales():
    form = FORMS["decays"]
    X, Y, _ = planted(form)
    shown = text(make_page(pa.fit(X, Y, form=form).layer))
    assert 0 < shown.index("<h3>Decay 0.5</h3>") < shown.index("<h3>Decay 0.9</h3>")
    plain = text(make_page(pa.data.planted(5, 4, 3, random_state=0).layer))
    assert "<h3>" not in plain


def test_the_decay_is_drawn_where_data_chose_it():
    task = pa.data.planted(40, 6, 2, n_outputs=1, form=Form(decay=0.8), noise=0.01, random_state=0)
    found = pa.fit(task.X, task.Y, form=Form(decay="loo"))
    page = make_page(found)
    assert titles(page)[:2] == [OUTCOME, "The decay"]
    assert f"{found.form.decay:.4g} ± {found.decay_path.error_bar:.2g}" in text(page)
    assert "The decay" not in titles(make_page(pa.fit(task.X, task.Y, form=Form(decay=0.8))))


def test_a_layer_that_is_nothing_but_its_constant_has_a_page():
    X, Y = np.zeros((20, 3, 2)), np.random.default_rng(0).standard_normal((20, 1))
    page = make_page(pa.fit(X, Y, form=Form(skip=True, intercept=True)), X, Y)
    assert "singular values" not in text(page)
    assert ">intercept<" in text(page)


def test_pages_of_layer_certificate_and_audit_of_a_form():
    form = FORMS["mean"]
    X, Y, _ = planted(form)
    layer = pa.fit(X, Y, form=form).layer
    assert PREDICTIONS in titles(make_page(layer, X, Y))
    for thing in (pa.certify(X, form=form), pa.audit(layer, X, Y)):
        page = make_page(thing, X)
        assert CERTIFICATE in titles(page)
        assert form_in_words(layer.layout) in text(page)


@pytest.mark.parametrize("mode", ["full", "last"])
def test_pages_with_a_context(mode, tmp_path):
    form = Form(mode=mode, skip=True)
    X, Y, context = planted(form, n_context_dims=2)
    result = pa.fit(X, Y, form=form, context=context)
    page = make_page(result, X, Y, context=context)
    assert {PREDICTIONS, BOUNDS} <= set(titles(page))
    assert "context of 2 coordinates" in page.lead
    assert "100 %" in text(page)
    result.layer.report(tmp_path / "layer.html", X, Y, context=context)
    certificate = pa.certify(X, form=form, context=context)
    certificate.save(tmp_path / "certificate.json")
    again = make_page(pa.load(tmp_path / "certificate.json"), X, context=context)
    assert BOUNDS in titles(again)


def test_a_witness_shows_its_context():
    rng = np.random.default_rng(0)
    X, context = rng.integers(0, 3, (3, 3, 2)), rng.integers(0, 3, (3, 2, 2))
    certificate = pa.certify(X, form=Form(), context=context)
    assert "Its context" in text(make_page(certificate))


def test_maps_of_narrow_matrices_fit_the_page(browser, tmp_path):
    """A column of thirty numbers is not thirty times as high as it is wide."""
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(
        rng.standard_normal((2, 30, 1)), rng.standard_normal((2, 1, 2)),
        form=Form(decay=[0.5, 0.9], key=[0], value=[1], skip=True, intercept=True),
        head_scales=[0, 1], skip=rng.standard_normal((30, 2)), intercept=[1.0, -1.0],
    )  # fmt: skip
    layer.report(tmp_path / "layer.html")
    assert check_page(browser, tmp_path / "layer.html") == []
    pictures = browser.find_all(".map image")
    assert len(pictures) == 6
    assert max(each.size["height"] for each in pictures) <= 260


def test_contexts_that_do_not_belong_are_refused():
    form = Form()
    X, Y, context = planted(form, n_context_dims=2)
    result = pa.fit(X, Y, form=form, context=context)
    with pytest.raises(InvalidInput, match="give them as context"):
        make_page(result, X, Y)
    with pytest.raises(InvalidInput, match="context was given without X"):
        make_page(result, context=context)
    plain = pa.data.planted(20, 4, 3, random_state=0)
    with pytest.raises(InvalidInput, match="takes no context"):
        make_page(plain.layer, plain.X, context=context[:20])


def test_statistics_say_their_form():
    sums = pa.Moments(3, 1, form=Form(decay=0.9)).update(np.ones((2, 4, 3)), np.ones(2))
    assert "mode last, decay 0.9" in sums.describe().about
    assert sums.to_dict()["form"] == "Form(decay=0.9)"
    assert "form" not in pa.Moments(3, 1).to_dict()
