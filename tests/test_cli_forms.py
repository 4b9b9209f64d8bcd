"""The command line for layers of every form: options, contexts in files, and what is refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.form import NAMES, OPTIONS, take_form
from polyattn.cli.main import cli

# Options of a form, and the same form in Python.
FORMS = {
    "--decay 0.9 --mean --query 0:2 --value 2": pa.Form(
        decay=0.9, mean=True, query=slice(0, 2), value=[2]
    ),
    "--mode causal --decay 0.5,0.9 --key 0,1 --skip": pa.Form(
        mode="causal", decay=[0.5, 0.9], key=[0, 1], skip=True
    ),
    "--no-include-query --lags 2 --intercept": pa.Form(include_query=False, lags=2, intercept=True),
    "--mode causal --window 3 --bias": pa.Form(mode="causal", window=3, bias=True),
}


def run(*arguments, code=0):
    result = CliRunner().invoke(cli, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.output


def run_json(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code))


def save(folder, task, **arrays):
    path = folder / "data.npz"
    np.savez(path, X=task.X, Y=task.Y, **arrays)
    return path


@pytest.mark.parametrize("options", FORMS)
def test_fit_show_and_predict_with_a_form(options, tmp_path):
    form = FORMS[options]
    task = pa.data.planted(120, 6, 3, n_outputs=1, form=form, random_state=0)
    data, model = save(tmp_path, task), tmp_path / "model.safetensors"
    fitted = run_json("fit", data, *options.split(), "-o", model)
    assert fitted["form"] == repr(form)
    assert pa.load(model).form == form
    assert pa.load(model).risk < 1e-15
    assert run_json("show", model)["form"] == repr(form)
    run("predict", model, data, "-o", tmp_path / "Y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), task.Y, atol=1e-8)


def test_audit_certify_and_report_with_a_form(tmp_path):
    options = "--decay 0.9 --mean --query 0:2 --value 2"
    task = pa.data.planted(60, 6, 3, n_outputs=1, form=FORMS[options], random_state=0)
    data, model = save(tmp_path, task), tmp_path / "model.safetensors"
    certificate = tmp_path / "certificate.json"
    run("fit", data, *options.split(), "-o", model)
    assert run_json("audit", model, data)["outcome"]["name"] == "optimal"
    found = run_json("certify", data, *options.split(), "-o", certificate)
    assert found["verdict"] == "identifiable"
    assert run_json("certify", data, "--certificate", certificate)["verified"]
    page = tmp_path / "page.html"
    run("report", model, data, "-o", page)
    assert "decay 0.9" in page.read_text(encoding="utf-8")
    said = run("fit", data, *options.split())
    assert "mean of tokens, decay 0.9, query: coordinates 0–1, value: coordinate 2" in said


@pytest.mark.parametrize("stored", ["rectangular", "padded", "offsets"])
def test_contexts_in_files(stored, tmp_path):
    task = pa.data.planted(
        50, 6, 2, n_outputs=1, form=pa.Form(mode="full"), n_context_dims=2, random_state=0
    )
    context, lengths = task.context, np.full(50, 6)
    lengths[::2] = 3
    arrays = {"context": context}
    if stored != "rectangular":
        ragged = [one[:n] for one, n in zip(context, lengths, strict=True)]
        task.Y[:] = np.stack(task.layer(list(task.X), ragged))
        arrays["context_lengths"] = lengths
        if stored == "offsets":
            offsets = np.concatenate([[0], np.cumsum(lengths)])
            arrays = {"context": np.concatenate(ragged), "context_offsets": offsets}
    data, model = save(tmp_path, task, **arrays), tmp_path / "model.safetensors"
    fitted = run_json("fit", data, "--mode", "full", "-o", model)
    assert fitted["n_context_dims"] == 2
    assert fitted["risk"] < 1e-15
    run("predict", model, data, "-o", tmp_path / "Y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), task.Y, atol=1e-8)


@pytest.mark.parametrize("name", ["X", "Y", "context"])
def test_what_is_not_finite_in_arrays_without_padding_is_named(name, tmp_path):
    tokens, offsets = np.random.default_rng(0).standard_normal((40, 2)), np.arange(9) * 5
    arrays = {"X": tokens, "Y": tokens.copy(), "context": tokens.copy()}
    arrays[name] = np.where(arrays[name] > 1.5, np.nan, arrays[name])
    data = tmp_path / "data.npz"
    np.savez(data, **arrays, offsets=offsets, context_offsets=offsets)
    assert f"{name} contains NaN or infinity" in run("fit", data, "--mode", "causal", code=1)


def test_certificates_audits_and_pages_with_a_context(tmp_path):
    task = pa.data.planted(50, 6, 2, n_outputs=1, n_context_dims=1, mode="last", random_state=0)
    data, model = save(tmp_path, task, context=task.context), tmp_path / "model.safetensors"
    certificate = tmp_path / "certificate.json"
    run("fit", data, "-o", model)
    run("certify", data, "-o", certificate)
    assert run_json("certify", data, "--certificate", certificate)["verified"]
    assert run_json("audit", model, data)["outcome"]["name"] == "optimal"
    for thing in (model, certificate):
        made = run_json("report", thing, data, "-o", tmp_path / "page.html")
        assert "How far apart can good layers be?" in made["sections"]


def test_the_decay_is_found(tmp_path):
    form = pa.Form(decay=0.7)
    task = pa.data.planted(80, 6, 2, n_outputs=1, form=form, random_state=0)
    found = run_json(
        "fit", save(tmp_path, task), "--decay", "loo", "-o", tmp_path / "m.safetensors"
    )
    assert found["form"].startswith("Form(decay=0.7")
    explained = run_json("fit", tmp_path / "data.npz", "--decay", "loo", "--explain")
    assert explained["n_features"] == 6


def test_probabilities_of_a_fit_by_log_loss(tmp_path):
    rng = np.random.default_rng(0)
    X, labels = rng.standard_normal((40, 4, 2)), rng.integers(0, 3, 40)
    data, model, written = (tmp_path / name for name in ("d.npz", "m.safetensors", "P.npy"))
    np.savez(data, X=X, Y=labels)
    run("fit", data, "--loss", "logistic", "--ridge", 1, "-o", model)
    run("predict", model, data, "--probabilities", "-o", written)
    np.testing.assert_array_equal(np.load(written), pa.load(model).predict_proba(X))
    run("predict", model, data, "-o", written)
    np.testing.assert_array_equal(np.load(written), pa.load(model).predict(X))
    run("report", model, data, "-o", tmp_path / "page.html")
    run("fit", data, "-o", model)
    said = run("predict", model, data, "--probabilities", "-o", written, code=1)
    assert "needs a MODEL by polyattn fit --loss logistic" in said


def test_the_rank_of_heads_is_limited(tmp_path):
    task = pa.data.planted(80, 6, 3, mode="last", random_state=0)
    model = tmp_path / "model.safetensors"
    run("fit", save(tmp_path, task), "--head-rank", 1, "-o", model)
    ranks = [np.linalg.matrix_rank(attn, 1e-8) for attn in pa.load(model).layer.attn]
    assert max(ranks) == 1


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("--decay 0", 1, "--decay must be a number in (0, 1]"),
        ("--decay x", 2, "neither a number"),
        ("--window 0", 1, "--window must be"),
        ("--lags 0", 1, "--lags must be"),
        ("--query 0:x", 2, "neither a slice"),
        ("--query 0:1:2:3", 2, "neither a slice"),
        ("--query 7", 1, "--query must name coordinates"),
        ("--query 0,0", 1, "query names a coordinate twice"),
        ("--query 3:3", 1, "picks none"),
        ("--mode full --window 2", 1, "window counts back from the query"),
        ("--lags 2 --decay 0.5", 1, "give one of them"),
        ("--window 1 --no-include-query", 1, "no token to attend to"),
        ("--head-rank 0", 1, "--head-rank must be"),
        ("--loss logistic --decay loo", 1, "decay"),
        ("--loss absolute", 2, "absolute"),
    ],
)
def test_contradictory_options_are_refused(options, code, said, tmp_path):
    task = pa.data.planted(10, 4, 3, n_outputs=1, mode="last", random_state=0)
    assert said in run("fit", save(tmp_path, task), *options.split(), code=code)


def test_forms_of_files_are_not_given_twice(tmp_path):
    sums = pa.Moments(2, 1, form=pa.Form(decay=0.5)).update(np.ones((2, 3, 2)), np.ones(2))
    path = tmp_path / "sums.safetensors"
    sums.save(path)
    for verb in ("fit", "certify"):
        said = run(verb, path, "--decay", "0.5", "--no-include-query", code=1)
        assert "leave --no-include-query, --decay out" in said
    data = tmp_path / "X.npy"
    np.save(data, np.ones((2, 3, 2)))
    said = run("certify", data, "--certificate", "c.json", "--no-include-query", code=1)
    assert "leave --no-include-query out" in said


def test_contexts_that_do_not_belong_are_refused(tmp_path):
    task = pa.data.planted(20, 4, 2, n_outputs=1, mode="last", random_state=0)
    data, model = save(tmp_path, task), tmp_path / "model.safetensors"
    run("fit", data, "-o", model)
    other = tmp_path / "other.npz"
    np.savez(other, X=task.X, Y=task.Y, context=task.X[:5])
    assert "but context has 5" in run("fit", other, code=1)
    np.savez(other, X=task.X, Y=task.Y, context=task.X)
    for verb in (("predict", model, other, "-o", tmp_path / "Y.npy"), ("audit", model, other)):
        assert "takes no context" in run(*verb, code=1)
    both = {"context_lengths": np.full(20, 4), "context_offsets": np.arange(21) * 4}
    np.savez(other, X=task.X, Y=task.Y, context=task.X, **both)
    assert "both 'context_lengths'" in run("fit", other, code=1)
    np.savez(other, X=task.X, Y=task.Y, context_lengths=np.full(20, 4))
    assert "no array 'context'" in run("fit", other, code=1)
    np.savez(other, X=task.X, Y=task.Y, context=task.X)
    assert "leave 'context' out" in run("learn-softmax", other, "--mode", "last", code=1)


def test_help_shows_the_layer_apart():
    for verb in ("fit", "certify", "learning-curve"):
        said = run(verb, "--help")
        of_verb, of_layer = said.split("Options of the layer:")
        assert "--json" in of_verb
        assert "--decay" not in of_verb
        assert all(f"--{name.replace('_', '-')}" in of_layer for name in NAMES)


def test_every_choice_of_a_form_is_an_option():
    assert len(OPTIONS) == len(NAMES)
    fields = set(pa.Form.__dataclass_fields__)
    assert {name.removeprefix("no_") for name in NAMES} == fields
    assert take_form(dict.fromkeys(NAMES)) is None
