"""Pages of fits: what they show and refuse, at any size; and that they ask nobody for anything."""

import re
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, MissingExtra
from polyattn.form.layout import Layout
from polyattn.outcome import Outcome
from polyattn.report import make_page
from polyattn.report.fits import heads_of
from polyattn.report.heads import head_sizes
from polyattn.report.page_data import PageData
from polyattn.report.predictions import predictions_section
from report_pages import (
    BOUNDS,
    CERTIFICATE,
    HEADS,
    MISSING,
    OUTCOME,
    PREDICTIONS,
    WITNESS,
    body,
    in_one_piece,
    noisy_fit,
    noisy_task,
    requests,
    titles,
    tokens_in_a_plane,
    without_search,
    written,
)

task, result, flat = noisy_task, noisy_fit, tokens_in_a_plane


def test_a_fit_with_data_shows_everything(task, result, tmp_path):
    page = make_page(result, task.X, task.Y)
    assert titles(page) == [OUTCOME, CERTIFICATE, HEADS, PREDICTIONS, BOUNDS]
    assert str(result.outcome) in body(page, OUTCOME)
    assert "Identifiable: the data determine the layer" in body(page, CERTIFICATE)
    assert "rounding floor" in body(page, CERTIFICATE)
    assert body(page, HEADS).count("<image") == 2 * min(16, result.layer.n_heads)
    html = written(result, tmp_path / "page.html", task.X, task.Y)
    assert requests(html) == []
    assert "<script" not in html


def test_requests_are_found():
    """Negative control."""
    assert requests('<img src="http://example.org/x.png">')
    assert requests('<img src="x.png">')
    assert requests("<style>@import 'x.css'</style>")
    assert requests('<svg xmlns="http://www.w3.org/2000/svg"><use href="#a"/></svg>') == []


def test_a_fit_without_data_says_what_is_missing(task, result):
    page = make_page(result)
    assert titles(page) == [OUTCOME, CERTIFICATE, HEADS, MISSING]
    assert "by their sums" in body(page, CERTIFICATE)
    assert "result.report(path, X, Y)" in body(page, MISSING)
    alone = make_page(replace(result, statistics=None))
    assert titles(alone) == [OUTCOME, HEADS, MISSING]
    assert "kept no sums" in body(alone, MISSING)
    with_inputs = make_page(replace(result, statistics=None), task.X)
    assert titles(with_inputs) == [OUTCOME, CERTIFICATE, HEADS, BOUNDS, MISSING]
    assert "given to this page" in body(with_inputs, CERTIFICATE)


def test_data_that_determine_nothing_show_the_witness(flat):
    targets = flat[:, -1]
    page = make_page(without_search(pa.fit(flat, targets)), flat, targets)
    assert titles(page) == [OUTCOME, CERTIFICATE, WITNESS, HEADS, PREDICTIONS, BOUNDS]
    witness = pa.certify(flat).witness()
    assert witness.sentence in body(page, WITNESS).unescape()
    assert f"{witness.input[0, 0]:.3g}" in body(page, WITNESS)
    assert "There is no bound" in body(page, BOUNDS)
    assert 'class="verdict doubt"' in body(page, OUTCOME)


@pytest.mark.parametrize("mode", ["causal", "full"])
def test_modes_lengths_and_bias(mode, tmp_path):
    rng = np.random.default_rng(0)
    X = [rng.standard_normal((length, 2)) for length in rng.integers(3, 7, size=40)]
    Y = [rng.standard_normal(len(x)) for x in X]
    found = without_search(pa.fit(X, Y, mode=mode, bias=True))
    found.report(tmp_path / "page.html", X, Y)
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"sequence \d+, token \d+", html)
    assert "is the constant 1 of each token" in html


def test_the_ridge_is_drawn_where_data_chose_it(task):
    page = make_page(without_search(pa.fit(task.X, task.Y, ridge="loo")))
    assert "The ridge" in titles(page)
    assert "chosen by the data" in body(page, "The ridge")


def test_only_without_a_ridge_the_risk_is_called_the_least(task, result):
    assert "The layer found has the least risk" in body(make_page(result, task.X), BOUNDS)
    shrunk = without_search(pa.fit(task.X, task.Y, ridge=1.0))
    section = body(make_page(shrunk, task.X), BOUNDS)
    assert "So far can two layers be apart" in section
    assert "The layer found has" not in section


def test_limited_heads_are_bounded_by_their_gap():
    task = pa.data.planted(200, 6, 3, n_heads=3, mode="last", noise=0.1, random_state=0)
    found = pa.fit(task.X, task.Y, n_heads=1)
    page = make_page(found, task.X, task.Y)
    assert f"exceeds the least by {found.gap:.3g}" in body(page, BOUNDS)
    assert "optimal risk, with any number of heads" in body(page, OUTCOME)


def test_with_a_ridge_the_gap_is_not_called_the_excess():
    """Of a fit with a ridge nobody knows the least risk: the gap is to the shrunk optimum."""
    task = pa.data.planted(200, 6, 3, n_heads=3, mode="last", noise=0.1, random_state=0)
    found = pa.fit(task.X, task.Y, n_heads=1, ridge=1e4)
    assert found.risk - pa.fit(task.X, task.Y).risk > 2 * found.gap
    section = body(make_page(found, task.X, task.Y), BOUNDS)
    assert "as well as the one found" not in section
    assert "what the limit on the number of heads costs in training" in section


def test_other_data_than_those_of_the_training_certify_nothing_about_it(task):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    few = pa.Moments(3, 3).update(X[:10], Y[:10])
    page = make_page(without_search(pa.fit(statistics=few)), X, Y)
    assert "Not identifiable" in body(page, CERTIFICATE)
    assert "There is no bound" in body(page, BOUNDS)
    without_sums = without_search(pa.fit(X[:10], Y[:10]))
    assert without_sums.statistics is None
    page = make_page(without_sums, X, Y)
    assert "In training the rank was 10 of 18" in body(page, CERTIFICATE)
    assert "risk on the data given to this page exceeds the least" in body(page, BOUNDS)
    assert "The layer found has" not in body(page, BOUNDS)


def test_a_bound_for_some_inputs_is_not_said_of_all(task, result, monkeypatch):
    assert "for half of the inputs, and" in body(make_page(result, task.X), BOUNDS)
    monkeypatch.setattr("polyattn.report.predictions.BOUNDED_ROWS", 50)
    assert "for half of the inputs shown, and" in body(make_page(result, task.X), BOUNDS)


def test_text_is_escaped(result, tmp_path):
    loud = Outcome("unique", "<script>alert(1)</script> & more", "")
    html = written(replace(result, outcome=loud), tmp_path / "page.html")
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in html
    assert "&lt;script&gt;" in replace(result, outcome=loud)._repr_html_()


def test_unknown_and_infinite_figures_do_not_break_a_page(task, result):
    odd = replace(result, condition=None, rank=None, risk=float("inf"), optimal_risk=0.0)
    assert "inf" in body(make_page(odd), OUTCOME)
    certificate = replace(pa.certify(task.X), lambda_min=None, lambda_max=float("inf"), rank=None)
    shown = body(make_page(certificate), CERTIFICATE)
    assert "rank at most 18 of 18" in shown
    assert "unknown of" not in shown
    zeros = pa.fit(np.zeros((4, 2, 2)), np.zeros((4, 1)))
    page = make_page(zeros, np.zeros((4, 2, 2)), np.zeros((4, 1)))
    assert "all features of the data are zero" in body(page, CERTIFICATE)


def test_tokens_of_any_size(task, tmp_path):
    huge = np.asarray(task.X) * 2.0**60
    found = without_search(pa.fit(huge, np.asarray(task.Y)))
    html = written(found, tmp_path / "page.html", huge, np.asarray(task.Y))
    assert "Tokens were divided by 2^" in html


@pytest.mark.parametrize("size", [1e155, 1e-200])
def test_outputs_whose_squares_are_beyond_float64(task, size):
    X, Y = np.asarray(task.X), np.asarray(task.layer(task.X))
    layer = pa.LinearAttention(task.layer.attn * size, task.layer.value)
    np.testing.assert_allclose(head_sizes(layer), size * head_sizes(task.layer))
    page = make_page(layer, X, size * Y * (1 + 1e-7))
    assert "100 %" in body(page, PREDICTIONS)
    if size > 1:
        assert "size of the output" in body(page, BOUNDS)
    else:
        assert "float64 cannot hold" in body(page, "How good is the layer?")
    balanced = pa.LinearAttention(task.layer.attn * size, task.layer.value / size)
    assert "100 %" in body(make_page(balanced, X, Y), PREDICTIONS)
    section = predictions_section(layer, PageData.of(X, Y, Layout.plain(3)))
    shares = re.findall(r"explained</td><td>([^<]*) %", in_one_piece(section.body))
    assert [float(share) for share in shares] == [-np.inf if size > 1 else 0.0]


def test_targets_that_are_all_zero_leave_no_error_to_draw(task):
    zeros = np.zeros_like(np.asarray(task.Y))
    page = make_page(without_search(pa.fit(task.X, zeros, ridge="loo")), task.X, zeros)
    assert "Error for each ridge" in body(page, "The ridge")


def test_sixteen_coordinates_make_a_small_page(tmp_path):
    task = pa.data.planted(2300, 6, 16, n_heads=2, mode="last", random_state=0)
    found = pa.fit(task.X, task.Y, solver="primal")
    html = written(found, tmp_path / "page.html", task.X, task.Y)
    assert len(html.encode()) < 1_000_000
    assert "The 2,176 eigenvalues" in html
    assert "2 heads compute it" in html


def test_a_long_search_for_heads_is_left_to_the_layer():
    rng = np.random.default_rng(0)
    found = pa.fit(rng.standard_normal((9, 4, 3)), rng.standard_normal((9, 3)))
    wide = replace(found, coef=rng.standard_normal((16, 136, 16)), layout=Layout.plain(16))
    wide = replace(wide, sample=None, statistics=None)
    layer, sentence = heads_of(wide)
    assert "heads" not in vars(wide)
    assert "call result.layer" in sentence
    assert layer.n_heads > 16
    np.testing.assert_allclose(layer.coef, wide.coef, atol=1e-12)


def test_wide_tokens_make_a_page_without_what_takes_long():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((12, 3, 36)), rng.standard_normal((12, 36))
    page = make_page(pa.fit(X, Y), X, Y)
    assert titles(page) == [OUTCOME, CERTIFICATE, WITNESS, HEADS, PREDICTIONS, BOUNDS]
    assert "eigenvalues would take long" in body(page, CERTIFICATE)
    assert "The heads were not looked for" in body(page, HEADS)


def test_no_certificate_is_no_reason_for_no_page(task, result, monkeypatch):
    # The name polyattn.certify is that of the function.
    monkeypatch.setattr(sys.modules["polyattn.certify.verified.gram"], "MOST_COLUMNS", 10)
    page = make_page(result, task.X, task.Y)
    assert titles(page) == [OUTCOME, HEADS, PREDICTIONS, MISSING]
    assert "this release goes up to 10 features" in body(page, MISSING)
    page = make_page(task.layer, task.X)
    assert "this release goes up to 10 features" in body(page, MISSING)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda r, _: make_page(r, np.zeros((2, 3, 5))), InvalidInput, "tokens of 3 coordinates"),
        (lambda r, t: make_page(r, t.X, np.zeros((150, 9))), InvalidInput, "Y must have 3 outputs"),
        (lambda r, t: make_page(r, None, t.Y), InvalidInput, "Y was given without X"),
        (lambda _, t: make_page(pa.certify(t.X), t.X, t.Y), InvalidInput, "Y says nothing about"),
        (lambda *_: make_page("text"), InvalidType, "a page is made of .*; got str"),
    ],
)
def test_refusals(result, task, make, error, message):
    with pytest.raises(error, match=message):
        make(result, task)


def test_places_that_cannot_be_written_are_refused_before_the_work(result, tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("polyattn.report.write_report"), "make_page", pytest.fail)
    with pytest.raises(InvalidInput, match="is a folder; name a file in it"):
        result.report(tmp_path)
    with pytest.raises(InvalidInput, match=r"'.*gone' of path does not exist"):
        result.report(tmp_path / "gone" / "page.html")
    # Where even root can make no file.
    with pytest.raises(InvalidInput, match="cannot be written to"):
        result.report("/proc/page.html")


def test_without_matplotlib_the_extra_is_named(result, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=r"pip install 'polyattn\[plots\]'"):
        result.report(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []
    assert "FitResult" in result._repr_html_()
