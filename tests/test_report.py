"""Pages and cards: what they show, what they refuse, and that they ask nobody for anything."""

import json
import re
import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, InvalidType, MissingExtra
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.outcome import Outcome
from polyattn.report import make_page, write_report
from polyattn.report.certificates import draw_spectrum, spectrum_of
from polyattn.report.figures import new_figure
from polyattn.report.fits import heads_of
from polyattn.report.heads import head_sizes, heat_map
from polyattn.report.page_data import PageData, spread
from polyattn.report.predictions import predictions_section

OUTCOME, CERTIFICATE, HEADS = "What was found", "Do the data determine the layer?", "Heads"
PREDICTIONS, BOUNDS = "Predicted against true", "How far apart can good layers be?"
WITNESS, MISSING = "Two layers that the data cannot tell apart", "What is not shown"


@pytest.fixture(scope="module")
def task():
    return pa.data.planted(150, 8, 3, n_heads=1, mode="last", noise=0.05, random_state=0)


def without_search(result):
    """Heads by a decomposition: a search for few is not what these tests are about."""
    return replace(result, known_heads=pa.heads.factor(result.coef))


@pytest.fixture(scope="module")
def result(task):
    return without_search(pa.fit(task.X, task.Y, mode="last"))


@pytest.fixture(scope="module")
def flat():
    """Tokens in a plane: they determine no layer."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((60, 5, 2)) @ rng.standard_normal((2, 3))


def titles(page):
    return [section.title for section in page.sections]


def body(page, title):
    (found,) = (section.body for section in page.sections if section.title == title)
    return found


def written(thing, path, *data):
    write_report(thing, path, *data)
    return path.read_text(encoding="utf-8")


def requests(page):
    """Whatever would make a browser ask somebody: addresses, but for the names of SVG."""
    text = re.sub(r'xmlns(:xlink)?="http://www\.w3\.org/[\w/]+"', "", page)
    return re.findall(r"https?://|@import|\b(?:src|href)=\"(?!data:|#)", text)


def test_a_fit_with_data_shows_everything(task, result, tmp_path):
    page = make_page(result, task.X, task.Y)
    assert titles(page) == [OUTCOME, CERTIFICATE, HEADS, PREDICTIONS, BOUNDS]
    assert str(result.outcome) in body(page, OUTCOME)
    assert "Identifiable: the data determine the layer" in body(page, CERTIFICATE)
    assert "rounding floor" in body(page, CERTIFICATE)
    assert body(page, HEADS).count("<img") == 2 * min(16, result.layer.n_heads)
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
    assert "belong to the constant 1" in html


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


def test_layers(task, flat):
    assert titles(make_page(task.layer)) == [HEADS, MISSING]
    assert titles(make_page(task.layer, flat)) == [CERTIFICATE, WITNESS, HEADS, MISSING]
    audited = make_page(task.layer, task.X, task.Y)
    assert titles(audited) == ["How good is the layer?", CERTIFICATE, BOUNDS, HEADS, PREDICTIONS]
    soft = pa.SoftmaxAttention(np.eye(3), np.eye(3), mode="last")
    assert titles(make_page(soft, task.X)) == [HEADS, MISSING]
    assert PREDICTIONS in titles(make_page(soft, task.X, np.asarray(task.Y)))


def test_certificates_audits_and_statistics(task, flat, tmp_path):
    certificate = pa.certify(task.X)
    assert titles(make_page(certificate)) == [CERTIFICATE, BOUNDS]
    assert titles(make_page(pa.certify(flat))) == [CERTIFICATE, WITNESS]
    audit = pa.audit(task.layer, task.X, task.Y)
    assert titles(make_page(audit)) == ["How good is the layer?", CERTIFICATE, BOUNDS]
    sums = pa.Moments(3).update(task.X)
    assert titles(make_page(sums)) == [CERTIFICATE]
    certificate.save(tmp_path / "certificate.json")
    stored = pa.load(tmp_path / "certificate.json")
    assert titles(make_page(stored)) == [CERTIFICATE]
    assert "comes without its data" in body(make_page(stored), CERTIFICATE)
    assert titles(make_page(stored, task.X)) == [CERTIFICATE, BOUNDS]
    with pytest.raises(InvalidInput, match="X are not the data of this certificate"):
        make_page(stored, flat)
    pa.save(audit, tmp_path / "audit.safetensors")
    stored = pa.load(tmp_path / "audit.safetensors")
    assert titles(make_page(stored)) == ["How good is the layer?", CERTIFICATE]
    assert titles(make_page(stored, task.X)) == titles(make_page(audit))


def test_domains_smaller_than_all_real_inputs():
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(120, 5))]
    page = make_page(pa.certify(words, domain="one_hot"))
    assert "one_hot" in body(page, CERTIFICATE)
    assert "not_identifiable" in body(page, CERTIFICATE)
    finite = pa.domains.Finite(list(words[:10]))
    assert CERTIFICATE in titles(make_page(pa.certify(words, domain=finite)))


def test_learned_softmax_layers(tmp_path):
    task = pa.data.planted_softmax(n_sequences=120, n_tokens=4, n_dims=4, n_heads=1, random_state=0)
    found = pa.learn_softmax(task.X, task.Y, n_heads=1)
    page = make_page(found, task.X, task.Y)
    assert titles(page) == [OUTCOME, HEADS, PREDICTIONS, "How it was found"]
    assert "expected error" in body(page, HEADS)
    nothing = replace(found, attn_error=np.array([np.inf]), noise=float("nan"), phases=())
    assert "expected error unknown" in body(make_page(nothing), HEADS)
    asked = pa.learn_from_queries(task.layer, n_dims=4)
    assert titles(make_page(asked))[:2] == [OUTCOME, HEADS]
    failed = replace(asked, layer=None, error=ValueError("<b>no</b>"), validation_error=None)
    html = written(failed, tmp_path / "page.html")
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "<b>no" not in html


def test_the_line_under_the_title(task, result):
    assert make_page(result).lead == "Linear attention, 3 coordinates to 3 outputs, mode last."
    ragged = [np.ones((1, 3)), np.ones((4, 3))]
    assert make_page(task.layer, ragged).lead == (
        "Linear attention, 1 head, 3 coordinates to 3 outputs, mode last, beside 2 sequences of "
        "1 to 4 tokens."
    )
    sums = pa.Moments(3).update(task.X)
    assert make_page(sums).lead == "Sums of 150 sequences with 3 coordinates, mode last."


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
    assert "unknown of 18" in shown
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
    shares = re.findall(r"explained</td><td>([^<]*) %", section.body)
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


def test_the_spectrum_is_that_of_the_moments(task):
    certificate = pa.certify(task.X)
    spectrum = spectrum_of(certificate.evidence)
    expected = pa.Moments(3).update(task.X).spectrum()[::-1]
    np.testing.assert_allclose(spectrum.values, expected, rtol=1e-9)
    assert spectrum.n_above == 18
    assert 0 < spectrum.floor < spectrum.values[-1]
    axes = new_figure().add_subplot()
    draw_spectrum(spectrum, axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()][1] == "rounding floor"


def test_the_floor_separates_what_is_zero(flat):
    spectrum = spectrum_of(pa.certify(flat).evidence)
    assert spectrum.n_above == 6
    boolean = np.random.default_rng(0).choice([-1, 1], size=(200, 4, 3))
    on_domain = spectrum_of(pa.certify(boolean, domain="boolean").evidence)
    assert on_domain.n_above == len(on_domain.values) == 12


def test_heads_are_ordered_by_size():
    attn = np.eye(2) * np.array([1.0, 3.0, 2.0])[:, None, None]
    layer = pa.LinearAttention(attn, np.stack([np.eye(2)] * 3))
    np.testing.assert_allclose(head_sizes(layer), [2.0, 6.0, 4.0])
    sizes = re.findall(r"size ([\d.]+)", body(make_page(layer), HEADS))
    assert sizes == ["6", "4", "2"]


def test_of_many_heads_the_largest_are_shown():
    rng = np.random.default_rng(0)
    layer = pa.LinearAttention(rng.standard_normal((20, 4, 4)), rng.standard_normal((20, 4, 4)))
    section = body(make_page(layer), HEADS)
    assert section.count("<img") == 32
    assert "the 16 largest of 20 heads" in section


def test_a_heat_map_has_one_pixel_per_entry():
    import base64
    import io

    from matplotlib.image import imread

    address = heat_map(np.array([[1.0, -0.5], [0.0, 2.0]]), 2.0)
    kind, data = address.split(",")
    assert kind == "data:image/png;base64"
    pixels = imread(io.BytesIO(base64.b64decode(data)), format="png")
    assert pixels.shape == (2, 2, 4)
    np.testing.assert_allclose(pixels[..., 3], [[0.5, 0.25], [0.0, 1.0]], atol=1 / 255)
    assert pixels[0, 0, 0] > pixels[0, 0, 2]
    assert pixels[0, 1, 0] < pixels[0, 1, 2]


def test_samples_are_whole_sequences_evenly_spaced():
    X = [np.full((length, 1), i) for i, length in enumerate([2, 3, 2, 3, 2, 3])]
    Y = [np.full((len(x), 1), i) for i, x in enumerate(X)]
    data = PageData.of(X, Y, Layout.plain(1, "causal"))
    some, chosen = data.sample(8)
    assert chosen.tolist() == [0, 2, 4] or chosen.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(some.targets, some.batch.values)
    assert len(data.places(chosen)) == some.n_rows
    assert data.sample(10**6)[0] is data
    assert len(data.sample(1)[0].batch) == 1
    assert spread(10, 3).tolist() == [0, 4, 9]
    assert spread(2, 3).tolist() == [0, 1]


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


class TestCards:
    """What notebooks show."""

    def test_a_fit_is_shown_without_looking_for_heads(self, task, monkeypatch):
        found = pa.fit(task.X, task.Y)
        monkeypatch.setattr("polyattn.fitting.result.compress", pytest.fail)
        card = found._repr_html_()
        assert "Looked for when layer is asked for" in card
        assert "heads" not in vars(found)
        assert str(found.outcome) in card

    def test_known_heads_are_counted(self, result):
        n_heads = result.layer.n_heads
        assert re.search(rf"heads</td><td[^>]*>{n_heads}</td>", result._repr_html_())

    def test_certificates(self, flat, task):
        assert "Not identifiable" in pa.certify(flat)._repr_html_()
        assert "Identifiable" in pa.certify(task.X)._repr_html_()
        assert "The layer has risk" in pa.audit(task.layer, task.X, task.Y)._repr_html_()

    def test_layers(self, task):
        small = task.layer._repr_html_()
        assert "1 head, 3 coordinates to 3 outputs, mode last" in small
        assert small.count("<td") == 18
        wide = pa.SoftmaxAttention(np.eye(20), np.eye(20))._repr_html_()
        assert "<td" not in wide
        assert pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 1)))._repr_html_()

    def test_programs(self):
        programs = pa.programs
        compiled = programs.compile(programs.universal_turing_machine(3, 2, 8))
        card = compiled._repr_html_()
        assert "heads" not in vars(compiled)
        assert str(compiled.terms[0]) in card.replace("&lt;", "<").replace("&amp;", "&").replace(
            "&gt;", ">"
        )
        assert compiled.n_heads > 0
        assert ">heads<" in compiled._repr_html_()
        program = programs.universal_dfa(3, 3, 4, style="one_hot")
        learned = programs.learn(program.schema, programs.traces(program, n_traces=10))
        assert str(learned.outcome) in learned._repr_html_()
        assert "instructions" in program._repr_html_()
        assert "undecided" in learned.certificate._repr_html_()

    def test_a_program_as_it_was_written_has_a_page(self, tmp_path):
        program = pa.programs.universal_dfa(3, 3, 4, style="one_hot")
        program.report(tmp_path / "page.html", pa.programs.machines.divisibility(3), [1, 1, 0])
        assert "Universal DFA" in (tmp_path / "page.html").read_text()

    def test_softmax(self):
        task = pa.data.planted_softmax(60, 4, 3, n_heads=1, random_state=0)
        assert "LearnedSoftmax" in pa.learn_softmax(task.X, task.Y, n_heads=1)._repr_html_()
        asked = pa.learn_from_queries(task.layer, n_dims=3)
        assert "queries" in asked._repr_html_()


class TestCommand:
    """``polyattn report``."""

    def run(self, *arguments):
        return CliRunner().invoke(cli, ["report", *map(str, arguments)])

    @pytest.fixture
    def files(self, task, result, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        pa.save(result, "fit.safetensors")
        pa.save(task.layer, "layer.safetensors")
        pa.certify(task.X).save("certificate.json")
        np.savez("data.npz", X=np.asarray(task.X), Y=np.asarray(task.Y))
        np.savez("inputs.npz", X=np.asarray(task.X))
        np.save("targets.npy", np.asarray(task.Y))
        return tmp_path

    def test_a_fit_beside_its_data(self, files):
        done = self.run("fit.safetensors", "data.npz", "-o", "page.html", "--json")
        assert done.exit_code == 0, done.output
        content = json.loads(done.stdout)
        assert content["sections"] == [OUTCOME, CERTIFICATE, HEADS, PREDICTIONS, BOUNDS]
        assert content["bytes"] == (files / "page.html").stat().st_size
        assert content["kind"] == "FitResult"

    def test_weights_are_those_of_the_means(self, task, files):
        X, Y = np.asarray(task.X), np.asarray(task.Y)
        np.savez("weighted.npz", X=X, Y=Y, weights=np.ones(len(X)))
        done = self.run("fit.safetensors", "weighted.npz", "--json")
        assert done.exit_code == 0, done.output
        assert "weighted mean ||y" in (files / "report.html").read_text("utf-8")

    def test_weights_are_said_to_be_left_out(self, task, files):
        X, Y = np.asarray(task.X), np.asarray(task.Y)
        np.savez("weighted.npz", X=X, Y=Y, weights=np.ones(len(X)))
        done = self.run("certificate.json", "weighted.npz", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["sections"][-1] == "Notes"
        assert "weights in the data were not used" in (files / "report.html").read_text("utf-8")

    def test_targets_of_their_own(self, files):
        arguments = ("layer.safetensors", "inputs.npz", "--targets", "targets.npy")
        done = self.run(*arguments)
        assert done.exit_code == 0, done.output
        assert "How good is the layer?" in done.stdout
        assert (files / "report.html").is_file()

    @pytest.mark.usefixtures("files")
    def test_certificates_take_no_targets(self):
        done = self.run("certificate.json", "data.npz", "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["sections"] == [CERTIFICATE, BOUNDS]

    def test_a_program_runs_a_machine(self, files):
        pa.save(pa.programs.compile(pa.programs.universal_dfa(2, 2, 4)), "dfa.safetensors")
        done = self.run("dfa.safetensors", "--machine", "parity", "--input", "1101", "--json")
        assert done.exit_code == 0, done.output
        html = (files / "report.html").read_text(encoding="utf-8")
        assert "even" in html
        assert requests(html) == []

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("gone.safetensors",), "no file"),
            (("data.npz",), "data.npz"),
            (("fit.safetensors", "gone.npz"), "gone.npz"),
            (("fit.safetensors", "data.npz", "-o", "gone/page.html"), "gone"),
            (("fit.safetensors", "data.npz", "-o", "."), "is a folder"),
            (("fit.safetensors", "--machine", "parity"), "leave --machine out"),
            (("fit.safetensors", "--targets", "targets.npy"), "leave --targets out"),
            (("program.safetensors", "data.npz"), "leave DATA out"),
            (("fit.safetensors", "narrow.npz"), "tokens of 3 coordinates"),
        ],
    )
    @pytest.mark.usefixtures("files")
    def test_refusals(self, arguments, message):
        np.savez("narrow.npz", X=np.zeros((2, 3, 2)))
        pa.save(pa.programs.compile(pa.programs.universal_dfa(2, 2, 2)), "program.safetensors")
        done = self.run(*arguments)
        assert done.exit_code == 1
        assert message in done.stderr
        assert done.stdout == ""


def test_the_rank_of_the_heads_does_not_depend_on_units(tmp_path):
    rng = np.random.default_rng(7)
    units = np.array([1e3, 1e-3, 5e6, 1.0])
    truth = pa.data.random_layer(4, n_heads=4, mode="last", random_state=3)
    plain = [rng.standard_normal((rng.integers(3, 9), 4)) for _ in range(200)]
    X, Y = [tokens * units for tokens in plain], truth(plain)
    ranks = []
    for tokens in (plain, X):
        fitted = without_search(pa.fit(tokens, Y, mode="last"))
        pa.save(fitted, tmp_path / "fit.safetensors")
        again = replace(pa.load(tmp_path / "fit.safetensors"), statistics=None)
        for thing, given in ((fitted, ()), (again, (tokens,)), (fitted.layer, (tokens, Y))):
            shown = body(make_page(thing, *given), HEADS)
            ranks.append(re.findall(r"rank (\d+)", shown))
    assert ranks == [ranks[0]] * len(ranks)
    assert ranks[0] == [str(np.linalg.matrix_rank(unfolded(pa.fit(plain, Y).coef)))]
    # Of this one nothing is known of the units: then nothing is said.
    assert not re.search(r"rank \d", body(make_page(again), HEADS))


def unfolded(coef):
    """The symmetric part of the tensor as a matrix (e d, d d)."""
    tensor = unfold_coef(coef)
    return tensor.reshape(len(tensor) * tensor.shape[1], -1)


@pytest.mark.parametrize("mode", ["last", "causal"])
def test_a_weighted_fit_shows_one_mean_error(task, tmp_path, mode):
    rng = np.random.default_rng(1)
    X, weights = np.asarray(task.X), rng.uniform(0.0, 2.0, len(task.X))
    weights[:5] = 0.0
    Y = rng.standard_normal((len(X), 2) if mode == "last" else (*X.shape[:2], 2))
    found = without_search(pa.fit(X, Y, mode=mode, sample_weight=weights))
    found.report(tmp_path / "page.html", X, Y, sample_weight=weights)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    shown = re.findall(r"mean \|\|y − F\(X\)\|\|²[^<]*</td><td>([^<]*)<", text)
    assert len(shown) == 2
    assert shown[0] == shown[1]
    # Without the weights the mean is another, and said to be.
    plain = body(make_page(found, X, Y), PREDICTIONS)
    assert "counts once" in plain
    assert shown[0] not in plain
    # A layer is audited with the weights, and the page is about the positions that have one.
    audited = make_page(found.layer, X, Y, weights)
    assert f"{found.risk:.4g}" in audited.sections[0].body
    zero = replace(found, statistics=None)
    few = np.where(np.arange(len(X)) == 3, 1.0, 0.0)
    assert "Not identifiable" in body(make_page(zero, X, Y, few), CERTIFICATE)


def test_weights_that_say_nothing_are_refused(task, result):
    X = np.asarray(task.X)
    with pytest.raises(InvalidInput, match="sample_weight was given without X"):
        make_page(result, sample_weight=np.ones(len(X)))
    with pytest.raises(InvalidInput, match="zero everywhere"):
        make_page(result, X, sample_weight=np.zeros(len(X)))
    with pytest.raises(InvalidInput, match="sample_weight says nothing about a Certificate"):
        make_page(pa.certify(X), X, sample_weight=np.ones(len(X)))


def test_a_sample_of_weighted_data_has_weight(task):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    weights = np.where(np.isin(np.arange(len(X)), (7, 90)), 2.0, 0.0)
    some, chosen = PageData.of(X, Y, Layout.plain(3), sample_weight=weights).sample(1)
    assert list(chosen) == [7]
    np.testing.assert_array_equal(some.row_weights, [2.0])
