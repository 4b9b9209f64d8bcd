"""Pages: what they show of results, layers, classes and programs, and what they refuse."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, precision_score, recall_score
from sklearn.pipeline import make_pipeline

import polyattn as pa
from oracle import parsed, printed, refused
from polyattn import errors
from read_page import Page, page_of

P = pa.programs
RNG = np.random.default_rng(0)
X = RNG.standard_normal((60, 5, 2))
Y = RNG.standard_normal((60, 2))
TOKENS = RNG.standard_normal((60, 5, 2))
RAGGED = [x[: 2 + i % 4] for i, x in enumerate(X)]
FLAT = X * [1.0, 0.0]
Z = RNG.standard_normal((60, 4, 3))
WEIGHTS = np.arange(60.0) % 7
EVIL = "<script>alert(1)</script><img src=x> & ½"
CODES = (X[:, -1, 0] > 0).astype(int)
TWO = np.array(["no", EVIL])[CODES]
CLASSIFIER = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, TWO)
FIT, LAYER = pa.fit(X, Y), pa.data.random_layer(2, mode="last")
LOGISTIC = pa.fit(X, CODES, loss="logistic", ridge=1.0)
SETS = pa.LinearAttentionClassifier(ridge=1.0, bias=False).fit(X, Y > 0)

FORM = pa.Form(mode="causal", decay=[0.5, 0.9], intercept=True)
FITS = {
    "last": (X, Y, {"mode": "last"}, {}),
    "weighted": (X, TOKENS, {"form": FORM}, {"sample_weight": WEIGHTS}),
    "context": (X, TOKENS, {"form": pa.Form(mode="full", skip=True)}, {"context": Z}),
    "one head": (X, Y, {"n_heads": 1}, {}),
    "ridge": (X, Y, {"ridge": 1e3}, {}),
}


@pytest.mark.parametrize("name", FITS)
def test_the_page_of_a_fit_shows_its_errors_its_heads_and_the_least_certain_inputs(name, tmp_path):
    X, Y, options, beside = FITS[name]
    result = pa.fit(X, Y, **options, **beside)
    page = page_of(result, tmp_path / "page.html", X, Y, **beside)
    context = {key: beside[key] for key in beside if key == "context"}
    found, true = (np.reshape(rows, (-1, 2)) for rows in (result.predict(X, **context), Y))
    weights = np.repeat(beside.get("sample_weight", np.ones(60)), len(true) // 60)
    error, power = (
        np.average(np.sum(rows**2, axis=1), weights=weights) for rows in (true - found, true)
    )
    np.testing.assert_allclose(error, result.risk, rtol=1e-9)
    for number in (error, power, result.risk):
        assert page.holds(number), number
    assert f"{100 * (1 - error / power):.1f} %" in page.text
    assert " ".join(str(result.outcome).split()) in page.text
    assert ("has the least risk" in page.text) == (not options.keys() & {"ridge", "n_heads"})
    layer = result.layer
    assert len(page.pictures()) == 2 * min(16, layer.n_heads) + sum(
        getattr(layer, part) is not None for part in ("skip", "intercept")
    )
    certificate = pa.certify(X, form=result.form, **context)
    if beside.keys() <= {"context"}:
        assert certificate.sentence in page.text
    if "sample_weight" in beside:
        return
    bounds = np.ravel(certificate.bound(X, 1.0, **context))
    listed = [row for row in page.tables[-1] if row[0].startswith("sequence")]
    order = np.argsort(-bounds, kind="stable")[: len(listed)]
    for row, k in zip(listed, order, strict=True):
        place = list(map(int, re.findall(r"\d+", row[0])))
        assert place == list(divmod(k, len(true) // 60))[: len(place)]
    scales, sizes = np.array([row[1:3] for row in listed], float).T
    scale = scales[0] / bounds[order[0]]
    np.testing.assert_allclose(scales, scale * bounds[order], rtol=2e-2)
    excess = result.gap if name == "one head" else 0.01 * result.risk
    np.testing.assert_allclose(scale**2, excess, rtol=3e-2)
    np.testing.assert_allclose(sizes, np.linalg.norm(found, axis=1)[order], rtol=6e-3)


def test_what_is_not_given_is_not_shown(tmp_path):
    whole, inputs, alone = (
        page_of(FIT, tmp_path / "page.html", *data) for data in ((X, Y), (X,), ())
    )
    power = np.mean(np.sum(Y**2, axis=1))
    assert [page.holds(power) for page in (whole, inputs, alone)] == [True, False, False]
    (missing,) = set(alone.titles) - set(whole.titles)
    assert missing in inputs.titles
    # Sums that are kept say by themselves what the data determine.
    assert pa.certify(X).outcome.sentence.split(":")[0] in alone.text
    weighted = pa.fit(X, Y, sample_weight=WEIGHTS)
    plain = np.mean(np.sum((Y - weighted.predict(X)) ** 2, axis=1))
    assert page_of(weighted, tmp_path / "page.html", X, Y).holds(plain)
    audited = page_of(weighted.layer, tmp_path / "page.html", X, Y, sample_weight=WEIGHTS)
    assert (audited.holds(weighted.risk), audited.holds(plain)) == (True, False)


def test_other_data_than_those_of_the_training_say_nothing_about_it(tmp_path):
    """The training rows determine little; those given to the page would determine everything."""
    wide, targets = RNG.standard_normal((90, 4, 3)), RNG.standard_normal((90, 1))
    sums = pa.fit(statistics=pa.Moments(3, 1).update(wide[:10], targets[:10]))
    page = page_of(sums, tmp_path / "page.html", wide, targets)
    assert pa.certify(wide[:10]).outcome.sentence in page.text
    kept_no_sums = pa.fit(wide[:10], targets[:10])
    page = page_of(kept_no_sums, tmp_path / "page.html", wide, targets)
    assert "10 of 18" in page.text
    assert "has the least risk" not in page.text


def test_a_witness_is_shown_with_what_both_layers_make_of_it(tmp_path):
    certificate = pa.certify(FLAT)
    witness = certificate.witness()
    page = page_of(certificate, tmp_path / "page.html", coordinate_names=["speed", EVIL])
    assert witness.sentence in page.text
    outputs = [layer(witness.input[None])[0] for layer in (witness.layer_a, witness.layer_b)]
    for number in (*witness.input.ravel(), *np.ravel(outputs)):
        assert page.holds(number) or f"{number:.3g}" in page.html
    assert any(row[1:] == ["speed", EVIL] for table in page.tables for row in table)
    assert witness.sentence in page_of(pa.fit(FLAT, Y), tmp_path / "page.html", FLAT, Y).text


def test_a_loaded_audit_asks_for_its_data_and_takes_no_other(tmp_path):
    audit = pa.audit(LAYER, X, Y)
    pa.save(audit, tmp_path / "audit.safetensors")
    loaded = pa.load(tmp_path / "audit.safetensors")
    fresh, without, again = (
        page_of(thing, tmp_path / "page.html", *data)
        for thing, data in ((audit, ()), (loaded, ()), (loaded, (X,)))
    )
    assert fresh.holds(audit.risk)
    assert fresh.holds(audit.optimal_risk)
    assert len(without.titles) < len(fresh.titles)
    assert again.titles == fresh.titles
    with pytest.raises(errors.InvalidInput, match="X"):
        loaded.report(tmp_path / "page.html", FLAT)


NAMED = {"coordinate_names": [EVIL, "b"], "output_names": [EVIL, "$c$"]}
SAID = (EVIL, "\ud800</script><!--"), ("0", "\u2028&amp;\r\n"), EVIL
MACHINE = P.machines.NamedMachine(P.machines.parity(), *SAID, decides=True)
PAGES = {
    "fit": (FIT, (X, Y), NAMED),
    "layer": (pa.SoftmaxAttention(np.eye(2), np.eye(2)), (), NAMED),
    "classes": (CLASSIFIER, (X, TWO), {}),
    "program": (P.compile(P.universal_dfa(2, 2, 3)), (MACHINE, [1, 0, 1]), {}),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_for_nothing_and_names_are_no_code(name, tmp_path):
    thing, data, options = PAGES[name]
    page = page_of(thing, tmp_path / "page.html", *data, **options)
    assert page.requests() == []
    assert EVIL in page.text or any(EVIL[:9] in text for text in page.drawn)
    assert page.tags.count("script") == (name == "program")
    assert "img" not in page.tags
    assert not any(attribute.startswith("on") for _, attribute, _ in page.attributes)
    (policy,) = [v for _, key, v in page.attributes if key == "content" and "default-src" in v]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts["default-src"] == parts["base-uri"] == parts["form-action"] == "'none'"
    assert parts.pop("script-src", "").startswith("'sha256-" if name == "program" else "")
    assert parts.keys() <= {"default-src", "style-src", "img-src", "base-uri", "form-action"}
    if name == "program":
        assert page.script.isascii()
        assert "<" not in page.script[page.script.rindex("play(") :]
        assert not re.search(r"\beval\b|fetch|http|innerHTML|\bon[a-z]+=", page.script)


TURING = P.compile(P.universal_turing_machine(2, 2, 8))
REFUSED = {
    "Y alone": (FIT, (), {"Y": Y}, "Y"),
    "weights alone": (FIT, (), {"sample_weight": WEIGHTS}, "sample_weight"),
    "no weight": (FIT, (X,), {"sample_weight": 0 * WEIGHTS}, "sample_weight"),
    "few names": (FIT, (), {"coordinate_names": ["a"]}, "coordinate_names"),
    "other labels": (CLASSIFIER, (X, ["c"] * 60), {}, "y"),
    "half a class": (LOGISTIC, (X, CODES / 2), {}, "Y"),
    "no indicators": (SETS, (X, CODES), {}, "y"),
    "not fitted": (pa.LinearAttentionRegressor(), (), {}, "fit"),
    "steps of another machine": (TURING, (P.machines.parity(),), {}, "TuringMachine"),
    "a long tape": (TURING, (P.machines.busy_beaver(2), [1] * 40), {}, "40"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_belong_on_a_page_is_refused(name, tmp_path):
    thing, data, options, word = REFUSED[name]
    with pytest.raises((errors.PolyattnError, ValueError), match=rf"\b{word}\b"):
        thing.report(tmp_path / "page.html", *data, **options)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for call in (lambda: FIT.report(tmp_path / "page.html"), LAYER.plot):
        with pytest.raises(errors.MissingExtra, match=r"\[plots\]"):
            call()
    assert list(tmp_path.iterdir()) == []
    assert "FitResult" in FIT._repr_html_()


NAMES = np.array(["running up a hill", EVIL, "walking"])
SCORES = pa.data.random_layer(2, 3, 1, "last", random_state=0)(X) + 0.3 * RNG.gumbel(size=(60, 3))
LABELS = NAMES[np.argmax(SCORES, axis=1)]
OF_TOKENS = [np.where(x[:, 0] > 0, "up", "down") for x in RAGGED]
CLASSES = {
    "channels": ({"layout": "channels_first"}, np.swapaxes(X, 1, 2), LABELS, {}),
    "weighted": ({"loss": "logistic"}, X, LABELS == EVIL, {"sample_weight": WEIGHTS}),
    "tokens": ({"mode": "causal"}, RAGGED, OF_TOKENS, {}),
    "majority": ({"bias": True}, 0 * X + 1.0, np.where(np.arange(60) < 45, "no", "yes"), {}),
}


def percentages(text):
    return [float(each) for each in re.findall(r"([\d.]+) %", text)]


@pytest.mark.parametrize("name", CLASSES)
def test_the_page_of_a_classifier_agrees_with_scikit_learn(name, tmp_path):
    options, given, y, beside = CLASSES[name]
    model = pa.LinearAttentionClassifier(**{"ridge": 1.0, "bias": False} | options)
    model.fit(given, y, **beside)
    page = page_of(model, tmp_path / "page.html", given, y, **beside)
    rows = [row for table in page.tables for row in table]
    true, guess = (np.concatenate(list(map(np.atleast_1d, a))) for a in (y, model.predict(given)))
    weights = beside.get("sample_weight", np.ones(len(true)))
    right = accuracy_score(true, guess, sample_weight=weights)
    most = max(np.sum(weights[true == label]) for label in model.classes_) / np.sum(weights)
    assert percentages(page.text)[:2] == [round(100 * right, 1), round(100 * most, 1)]
    assert ("no better" in page.text) == (right <= most)
    seen = weights > 0
    counts = confusion_matrix(true[seen], guess[seen], labels=model.classes_)
    recall, precision = (
        score(true, guess, labels=model.classes_, average=None, sample_weight=weights,
              zero_division=np.nan)
        for score in (recall_score, precision_score)
    )  # fmt: skip
    for k, label in enumerate(map(str, model.classes_)):
        shares = ["–" if np.isnan(s) else f"{100 * s:.1f} %" for s in (recall[k], precision[k])]
        assert any(row[0] == label and row[2:] == shares for row in rows)
        assert counts[k].astype(str).tolist() in [row[1:] for row in rows]
    if options.get("loss") == "logistic":
        chances = model.predict_proba(given)[np.arange(60), np.searchsorted(model.classes_, true)]
        assert page.holds(np.average(-np.log(chances), weights=weights))


def test_several_labels_at_once_are_shown_one_by_one(tmp_path):
    sets, names = (SCORES > [0.0, 0.3, -0.2]).astype(int), ["rain", "wind", "fog"]
    model = pa.LinearAttentionClassifier(loss="logistic", ridge=1.0, bias=False).fit(X, sets)
    page = page_of(model, tmp_path / "page.html", X, sets, output_names=names)
    alike = np.all(sets == (sets.mean(axis=0) > 0.5), axis=1).mean()
    wanted = [round(100 * each, 1) for each in (model.score(X, sets), alike)]
    assert percentages(page.text)[:2] == wanted
    for name, true, guess in zip(names, sets.T, model.predict(X).T, strict=True):
        scores = [score(true, guess) for score in (accuracy_score, recall_score, precision_score)]
        scores.insert(1, max(true.mean(), 1 - true.mean()))
        (row,) = [row for table in page.tables for row in table if row[0] == name and len(row) > 3]
        assert percentages(" ".join(row)) == [round(100 * each, 1) for each in scores]


EVEN = P.machines.NamedMachine(
    P.machines.parity(), ("even", "odd"), ("0", "1"), "parity", decides=True
)
BEAVER, LARGE = P.machines.busy_beaver(4), P.compile(P.universal_turing_machine(4, 2, 32))


def test_a_page_plays_the_run_of_a_turing_machine(tmp_path):
    page = page_of(LARGE, tmp_path / "page.html", BEAVER)
    played, run = page.played(), BEAVER.run([0] * 32)
    names = P.machines.NamedMachine.plain(BEAVER).states
    assert len(played["steps"]) == run.steps + 1
    tape, head = [0] * 32, 0
    origin, cells = played["steps"][0]["head"], list(played["cells"])
    for shown, step in zip(played["steps"], run.history, strict=False):
        if shown["changed"]:
            place, cells[place] = shown["changed"]
        assert (shown["state"], shown["rule"]) == (names[step.state], [step.state, step.read])
        assert shown["head"] == origin + head
        assert cells == [str(tape[(at - origin) % 32]) for at in range(len(cells))]
        tape[head % 32] = step.write
        head += step.move
    written = [token for shown in played["steps"] for token in shown["written"]]
    assert [token[0] for token in written] == list(range(len(written)))
    assert {float(token[1]) for token in written} == {0.5}
    assert str(run.steps) in page.text
    assert "not the same" not in page.text


@pytest.mark.parametrize("style", ["registers", "one_hot", "fixed"])
def test_a_page_plays_the_run_of_an_automaton(style, tmp_path):
    word, letters, names = "1101001", [1, 1, 0, 1, 0, 0, 1], EVEN.states
    if style == "fixed":
        page = page_of(P.fixed_dfa(EVEN.machine, 7), tmp_path / "page.html", inputs=word)
        names = ("0", "1")
    else:
        program = P.universal_dfa(2, 2, 9, style=style)
        page = page_of(program, tmp_path / "page.html", EVEN, word)
        assert page_of(program, tmp_path / "page.html", EVEN, letters).played() == page.played()
        assert all(str(each) in page.text for each in program.instructions)
    played = page.played()
    assert "".join(played["cells"]) == word
    states = [names[state] for state in (0, *EVEN.machine.run(letters))]
    assert [shown["state"] for shown in played["steps"]] == states
    assert [shown["head"] for shown in played["steps"]] == [*range(7), None]
    for shown in played["steps"] if style != "fixed" else []:
        held = dict(pair for token in shown["written"] for pair in token[2])
        assert held["state"] == shown["state"]


def test_a_run_that_is_wrong_is_called_so(tmp_path):
    broken = replace(LARGE, terms=LARGE.terms[:-6])
    assert "not the same" in page_of(broken, tmp_path / "page.html", BEAVER).text


def test_a_plot_of_a_layer_shows_its_matrices_under_their_names():
    form = pa.Form(decay=[0.5, 0.9], key=[2, 0], skip=True, intercept=True)
    layer = pa.data.random_layer(3, 2, n_heads=1, form=form)
    soft = pa.data.random_softmax_layer(3, n_outputs=2, n_heads=2, bias=True, random_state=0)
    for each, parts, keys in (
        (layer, [layer.skip, layer.intercept[None]], ["$c$", "a"]),
        (soft, [*soft.attn, *soft.value], ["a", "b", "$c$", "const"]),
    ):
        figure = each.plot(coordinate_names=["a", "b", "$c$"], output_names=["y", "z"])
        # Legends show a ramp of one row, without a name.
        maps = [axes for axes in figure.axes if axes.images and axes.get_xlabel()]
        shown = [np.asarray(axes.images[0].get_array()) for axes in maps]
        assert len(shown) == 2 * each.n_heads + 2 * (each is layer)
        assert all(any(np.array_equal(part, one) for one in shown) for part in parts)
        names = [[text.get_text() for text in axes.get_xticklabels()] for axes in maps[:2]]
        assert names == [keys, ["y", "z"]]


def test_plots_of_results_show_their_figures():
    def lines(result):
        return [axes.get_lines() for axes in result.plot().axes if not axes.images]

    ridge, certificate = pa.fit(X, Y, ridge="loo"), pa.certify(X)
    curve, ahead = pa.learning_curve(X, Y, [8, 16], n_repeats=2), pa.forecast(LAYER, X[:2] / 9, 3)
    (of_errors,) = (each for each in lines(ridge) if each)
    np.testing.assert_array_equal(of_errors[0].get_ydata(), ridge.ridge_path.errors)
    spectrum = pa.Moments(2).update(X).spectrum()[::-1]
    np.testing.assert_allclose(lines(certificate)[0][0].get_ydata(), spectrum, rtol=1e-9)
    np.testing.assert_array_equal(lines(curve)[0][0].get_xdata(), curve.sizes)
    np.testing.assert_array_equal(lines(ahead)[0][1].get_ydata(), ahead.values[0][:, 1])
    audit = pa.audit(LAYER, X, Y)
    widths = [bar.get_width() for bar in audit.plot().axes[0].patches]
    assert widths == [audit.risk, audit.optimal_risk]


def test_plots_are_drawn_on_given_axes_and_without_pyplot(monkeypatch):
    from matplotlib.figure import Figure

    given = Figure().subplots(1, 2)
    assert LAYER.plot(ax=given) is given[0].figure
    assert all(axes.images for axes in given)
    with pytest.raises(errors.PolyattnError, match="ax"):
        LAYER.plot(ax="here")
    # Whoever imports it now fails.
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    assert LAYER.plot()._repr_png_().startswith(b"\x89PNG")


def test_the_verb_writes_the_page_of_what_a_file_holds(run, tmp_path):
    model = make_pipeline(pa.SequenceScaler(), pa.LinearAttentionClassifier(ridge=1.0, bias=False))
    model.fit(X, LABELS == EVIL)
    program = P.compile(P.universal_dfa(2, 2, 4))
    for name, thing in {"fit": FIT, "pipe": model, "dfa": program}.items():
        pa.save(thing, tmp_path / f"{name}.safetensors")
    np.savez(tmp_path / "data.npz", X=X, Y=Y, weights=WEIGHTS + 1.0)
    np.savez(tmp_path / "labels.npz", X=X, Y=LABELS == EVIL)
    content = parsed(run("report", "fit.safetensors", "data.npz", "-o", "page.html", "--json"))
    page = Page(Path("page.html").read_text("utf-8"))
    assert (content["kind"], content["bytes"]) == ("FitResult", Path("page.html").stat().st_size)
    assert content["sections"] == page.titles
    error = np.sum((Y - FIT.predict(X)) ** 2, axis=1)
    assert page.holds(np.average(error, weights=WEIGHTS + 1.0))
    printed(run("report", "pipe.safetensors", "labels.npz"), "report.html")
    page = Page(Path("report.html").read_text("utf-8"))
    assert percentages(page.text)[0] == round(100 * model.score(X, LABELS == EVIL), 1)
    printed(run("report", "dfa.safetensors", "--machine", "parity", "--input", "1101"))
    assert "".join(Page(Path("report.html").read_text("utf-8")).played()["cells"]) == "1101"
    refused(run("report", "dfa.safetensors", "data.npz"), "DATA")
    refused(run("report", "fit.safetensors", "--targets", "data.npz"), "--targets")
