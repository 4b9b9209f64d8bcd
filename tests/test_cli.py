"""Verbs on arrays in one file: the answers of the library, files, texts, exit codes, errors."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import forged_files as forged
import polyattn as pa
from oracle import parsed, printed, refused, wrong_uses
from test_sources import full_disk

RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 5, 2))
LAYER = pa.data.random_layer(2, 1, mode="last", random_state=1)
Y = LAYER(X) + 0.1 * RNG.standard_normal((90, 1))
Y_TOKENS = RNG.standard_normal((90, 5, 1))
WEIGHTS = np.arange(90) % 4 + 0.5
LABELS = np.arange(90) % 2

FORMS = {
    "": pa.Form(),
    "--bias --window 2": pa.Form(bias=True, window=2),
    "--decay 0.9 --mean --query 0:1 --value 1": pa.Form(
        decay=0.9, mean=True, query=slice(0, 1), value=[1]
    ),
    "--mode causal --decay 0.5,0.9 --key 0,1 --query=-1 --skip": pa.Form(
        mode="causal", decay=[0.5, 0.9], key=[0, 1], query=[-1], skip=True
    ),
    "--no-include-query --lags 2 --query 0 --intercept": pa.Form(
        include_query=False, lags=2, query=[0], intercept=True
    ),
}

# Options of fit, and what the library is given in their place; of one coordinate of the query,
# where few heads are found soon.
FITS = {options: {"form": form} for options, form in FORMS.items()} | {
    "--solver dual": {"solver": "dual"},
    "--solver iterative": {"solver": "iterative"},
    "--ridge gcv --ridge-grid 7,1e3": {"ridge": "gcv", "ridge_grid": [7.0, 1e3]},
    "--head-rank 1": {"head_rank": 1},
    "--decay loo": {"form": pa.Form(decay="loo", query=[1])},
    "--loss logistic --ridge 1": {"loss": "logistic", "ridge": 1.0},
}


def targets(form):
    return Y if form.mode == "last" else Y_TOKENS


@pytest.fixture
def files(run):
    """Run verbs in a folder with data, a fit, a layer and statistics."""
    np.savez("data.npz", X=X, Y=Y)
    np.save("X.npy", X)
    np.save("Y.npy", Y)
    pa.save(pa.fit(X, Y), "model.safetensors")
    pa.save(LAYER, "layer.safetensors")
    pa.Moments(2, 1).update(X, Y, chunk="all").save("sums.safetensors")
    return run


@pytest.mark.parametrize("options", FITS)
def test_fit_saves_and_predict_writes_what_the_library_finds(options, run):
    given = dict(FITS[options])
    form = given.pop("form", pa.Form(query=[1]))
    words = options.split() if options in FORMS else [*options.split(), "--query", "1"]
    wanted = LABELS if "loss" in given else targets(form)
    np.savez("data.npz", X=X, Y=wanted, weights=WEIGHTS)
    found = parsed(run("fit", "data.npz", *words, "--json", "-o", "m.safetensors"))
    expected = pa.fit(X, wanted, sample_weight=WEIGHTS, form=form, **given)
    loaded = pa.load("m.safetensors")
    assert found["model"] == "m.safetensors"
    assert loaded.form == expected.form
    for name in ("mode", "solver", "ridge", "rank"):
        assert found[name] == pytest.approx(getattr(expected, name)), name
    if "head" in options:
        assert found["n_heads"] == loaded.layer.n_heads == expected.layer.n_heads
    assert found["risk"] == pytest.approx(expected.risk, rel=1e-9)
    np.testing.assert_allclose(loaded.coef, expected.coef, rtol=1e-6, atol=1e-9)
    parsed(run("predict", "m.safetensors", "data.npz", "-o", "p.npy", "--json"))
    np.testing.assert_allclose(np.load("p.npy"), expected.predict(X), rtol=1e-5, atol=1e-7)
    if "loss" in given:
        printed(run("predict", "m.safetensors", "data.npz", "--probabilities", "-o", "p.npy"), 90)
        np.testing.assert_allclose(np.load("p.npy"), expected.predict_proba(X), rtol=1e-6)


@pytest.mark.parametrize("options", FORMS)
def test_certificates_take_the_same_forms_and_are_checked(options, run):
    np.savez("data.npz", X=X, Y=targets(FORMS[options]))
    given = ("certify", "data.npz", "--json")
    made = parsed(run(*given, *options.split(), "-o", "c.json"))
    expected = pa.certify(X, form=FORMS[options])
    for name in ("verdict", "rank", "digest"):
        assert made[name] == getattr(expected, name)
    assert parsed(run(*given, "--certificate", "c.json"))["verified"]
    np.savez("data.npz", X=X[1:])
    other = parsed(run(*given, "--certificate", "c.json"), code=1)
    assert not other["verified"]
    assert any("89" in each and "90" in each for each in other["objections"])


def test_a_witness_and_the_next_data_are_those_of_the_library(run):
    np.savez("few.npz", X=X[:4], Y=Y[:4])
    found = parsed(run("certify", "few.npz", "--witness", "--next", "--json"), code=3)
    certificate = pa.certify(X[:4])
    witness, more = certificate.witness(), certificate.next_data()
    for name in ("input", "output_a", "output_b", "difference"):
        np.testing.assert_allclose(found["witness"][name], getattr(witness, name))
    for layer, part in itertools.product(("layer_a", "layer_b"), ("attn", "value")):
        wanted = getattr(getattr(witness, layer), part)
        np.testing.assert_allclose(found["witness"][layer][part], wanted)
    np.testing.assert_allclose(found["next_data"]["sequences"], more.sequences)
    printed(run("certify", "few.npz", "--witness", "--next"), witness.sentence, code=3)


def test_an_audit_that_rounding_hides_ends_as_undecided(run):
    layer = pa.data.random_layer(3, mode="last", random_state=1)
    tokens = np.random.default_rng(7).standard_normal((200, 5, 3))
    tokens[0] *= 1e6
    noise = np.where(np.arange(200)[:, None] > 0, RNG.standard_normal((200, 3)), 0.0)
    pa.save(layer, "layer.safetensors")
    np.savez("data.npz", X=tokens, Y=layer(tokens) + noise)
    found = parsed(run("audit", "layer.safetensors", "data.npz", "--json"), code=4)
    assert found["outcome"]["name"] == "undecided"


def test_explain_says_what_would_be_done_and_does_nothing(files):
    explain = ("fit", "data.npz", "--explain", "-o", "new.safetensors")
    for options in ({}, {"solver": "dual"}):
        given = [f"--{name}={value}" for name, value in options.items()]
        found = parsed(files(*explain, *given, "--json"))
        expected = pa.solve.plan(90, 2, **options)
        assert (found["solver"], found["n_features"]) == (expected.solver, 6)
    assert parsed(files(*explain, "--loss", "logistic", "--json"))["solver"] == "newton"
    assert not Path("new.safetensors").exists()


SOFTMAX = pa.data.random_softmax_layer(2, n_heads=2, random_state=1)
SHOWN = (
    "layer of a form", "moments", "factor", "fit", "certificate", "audit", "curve", "circuits",
    "regressor", "pipeline", "program", "rules", "coefficients",
)  # fmt: skip


def test_predict_takes_every_kind_of_layer(files):
    queries, linear = pa.learn_from_queries(SOFTMAX, 2), pa.linearise(SOFTMAX, X, n_features=2)
    for thing, layer in ((SOFTMAX, SOFTMAX), (queries, queries.layer), (linear, linear.layer)):
        pa.save(thing, "thing")
        assert files("predict", "thing", "data.npz", "-o", "p.npy").exit_code == 0
        np.testing.assert_allclose(np.load("p.npy"), layer(X), rtol=1e-9)


@pytest.mark.parametrize("kind", SHOWN)
def test_show_opens_every_kind_of_file(kind, run):
    thing = forged.THINGS[kind]()
    pa.save(thing, "thing")
    content = parsed(run("show", "thing", "--json"))
    whole = json.loads(json.dumps(thing.to_full_dict())) if hasattr(thing, "to_full_dict") else {}
    assert whole.items() <= content.items()
    text = printed(run("show", "thing", "--weights"))
    assert "object at 0x" not in text
    if kind == "layer of a form":
        assert all(f"{each:.4g}" in text for each in (*thing.attn.ravel(), *thing.value.ravel()))


def test_show_tells_data_and_checkpoints_apart(files):
    found = parsed(files("show", "data.npz", "--json"))
    assert found["arrays"]["X"] == {"shape": [90, 5, 2], "dtype": "float64"}
    printed(files("show", "data.npz"), "90 x 5 x 2")
    assert files("fit", "data.npz", "--checkpoint", "kept").exit_code == 0
    printed(files("show", "kept"), "1 of 1")


def test_older_names_of_options_still_work(files):
    assert files("certify", "X.npy", "-o", "c.json").exit_code == 0
    assert files("certify", "X.npy", "--check", "c.json").exit_code == 0
    run = ("program", "run", "palindrome", "12")
    assert printed(files(*run, "--tokens")) == printed(files(*run, "--show-tokens"))
    assert parsed(files(*run, "--json"))["verdict"] == "rejected"


def test_columns_in_another_order_are_refused(run):
    values = {"a": X[..., 0].ravel(), "b": X[..., 1].ravel(), "y": np.repeat(Y, 5)}
    frame = pd.DataFrame({"id": np.repeat(range(90), 5), **values})
    frame.to_csv("t.csv", index=False)
    given = ("t.csv", "--sequence", "id", "--tokens")
    parsed(run("fit", *given, "a,b", "--targets", "y", "-o", "m", "--json"))
    refused(run("predict", "m", *given, "b,a", "-o", "p.csv"), "order")
    refused(run("audit", "m", *given, "b,a", "--targets", "y"), "order")


ARRAYS = {
    "'Z'": {"Z": X, "Y": Y},
    "no array 'X'": {"Y": Y},
    "--targets": {"X": X},
    "89": {"X": X, "Y": Y[:-1]},
    "X contains NaN": {"X": np.where(X > 1, np.nan, X), "Y": Y},
    "--classify": {"X": X, "Y": LABELS.astype(str)},
    "'lengths'": {"X": X, "Y": Y, "offsets": np.arange(91), "lengths": np.full(90, 5)},
    "weight": {"X": X, "Y": Y, "weights": np.full(90, -1.0)},
    "context has 5": {"X": X, "Y": Y, "context": X[:5]},
}


def test_data_that_cannot_be_used_are_one_clear_line(files):
    for word, arrays in ARRAYS.items():
        np.savez("bad.npz", **arrays)
        refused(files("fit", "bad.npz", "--json"), word)
    for name, content, *words in (
        ("foreign.npz", b"1,2,3"), ("a.txt", b"1 2", ".npz"), ("a.xlsx", b"1 2", ".csv"),
        ("a.parquet", b"1 2"), ("a.csv", b"1,2,3", "--tokens"), ("page.html", b"<!doctype html>"),
        ("b.json", b'{"a": '), ("c.json", b"{}"),
    ):  # fmt: skip
        Path(name).write_bytes(content)
        refused(files("fit", name), name, *words)
        if not name.startswith(("a.", "foreign")):
            refused(files("show", name), name)
    for name in ("gone.npz", "gone.safetensors", "model.safetensors", "layer.safetensors", "."):
        refused(files("fit", name), name)


#: Behind each command one wrong use after the other; the line says the first option, or "- word".
MISUSES = {
    "fit data.npz": "--ridge -1; --ridge inf; --ridge-grid 1,2; --ridge loo --ridge-grid 0,1; "
    "--n-heads 0; --head-rank 0; --decay 0; --window 0; --lags 0; --query 7; --query 0,0; "
    "--query 3:3; --window 2 --mode full; --decay 0.5 --lags 2; --no-include-query --window 1; "
    "--decay loo --loss logistic; --targets Y.npy; --workers 2 --dask tcp://127.0.0.1:9; "
    "--dask nowhere; --checkpoint c --solver dual; "
    "--checkpoint m.safetensors -o sub/../m.safetensors; "
    "--classify --scale --explain; --loss logistic --scale",
    "fit X.npy": "- 'Y'; --targets gone.npy - gone.npy; --targets data.npz",
    "fit X.npy --targets Y.npy": "--targets Y.npy; --weight w",
    "fit sums.safetensors": "--mode full; --decay 0.5; --solver dual; --ridge loo; --classify; "
    "--targets y; --tokens y; --checkpoint c; --workers 2",
    "fit gone-*.npz --workers 2": "- gone-*.npz",
    "certify sums.safetensors": "--no-include-query; --workers 2; --lags 2",
    "certify data.npz --certificate c.json": "--skip; --checkpoint d; --witness; -o d.json",
    "predict sums.safetensors data.npz -o o.npy": "- polyattn fit",
    "predict layer.safetensors data.npz": "-o o.xlsx - .npy; -o o.npy --probabilities - --probab",
    "predict layer.safetensors context.npz -o o.npy": "- context",
    "audit sums.safetensors data.npz": "- sums.safetensors",
    "audit softmax.safetensors": "weights_only.npz - weights; X.npy --domain boolean - --domain",
    "report layer.safetensors": "--tokens a; --machine bb2; --input 1",
    "learning-curve data.npz": "--train-sizes 4,400; --n-repeats 1; --decay loo; "
    "--test-data gone.npz - gone.npz; --mode full - token",
    "learn-softmax weighted.npz --mode last": "- weights",
}
WRONG_USAGE = {
    "fit x": "--mode first; --ridge big; --ridge-grid 1;2; --heads 1.5; --solver newton; "
    "--loss absolute; --decay x; --query 0:x; --query 0:1:2:3; --workers 0; --impute zero",
    "certify x": "--lengths a:b; --domain nowhere",
    "predict m x": "- --output",
    "learning-curve x": "--train-sizes 4,x",
    "fit": "- DATA",
    "": "- COMMAND",
}


def test_misuses_are_one_line_that_names_the_option(files):
    np.savez("weighted.npz", X=X, Y=Y, weights=WEIGHTS)
    np.savez("context.npz", X=X, Y=Y, context=X)
    np.savez("weights_only.npz", X=X, weights=WEIGHTS)
    pa.save(SOFTMAX, "softmax.safetensors")
    Path("sub").mkdir()
    for code, table in ((1, MISUSES), (2, WRONG_USAGE)):
        for command, word in wrong_uses(table):
            refused(files(*command), word, code=code)
    assert not Path("o.npy").exists()


WRITING = [
    "fit gone.npz -o", "fit gone.npz --checkpoint", "predict m gone.npz -o", "merge gone -o",
    "certify gone.npz --save", "learn-softmax gone.npz -o", "learning-curve gone.npz -o",
    "audit m gone.npz -o", "report m -o", "demo --out", "reproduce yau2024-fig2 --out",
    "program compile dfa -o", "program compile dfa --program", "program learn dfa -o",
    "program learn dfa --program",
]  # fmt: skip
SUFFIXES = {"predict": "npy", "certify": "json", "report": "html"}


@pytest.mark.parametrize("command", WRITING)
def test_places_that_cannot_be_written_are_found_before_the_work(command, run):
    """The files that are read are missing, too; but that is not what is said."""
    verb, *_, option = command.split()
    suffix = SUFFIXES.get(verb, "safetensors")
    # Nobody, not even root, makes files there.
    refused(run(*command.split(), f"/proc/out.{suffix}"), "/proc")
    if verb != "reproduce":
        refused(run(*command.split(), f"nowhere/out.{suffix}"), "nowhere")
    if verb in {"fit", "certify", "merge", "audit", "learn-softmax"} and option != "--checkpoint":
        refused(run(*command.split(), "out.pkl"), "out.pkl", f".{suffix}")
    assert os.listdir() == []


def test_a_write_that_fails_leaves_what_was_there(files):
    before = {path: path.read_bytes() for path in Path().iterdir()}
    for name in ("new", "model"):
        with full_disk(300):
            ended = files("fit", "data.npz", "-o", f"{name}.safetensors")
        refused(ended)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_no_verb_writes_over_its_data(files, link):
    Path("t.csv").write_text("id,a,b\n1,1,2\n1,4,5\n", encoding="utf-8")
    columns = ("--sequence", "id", "--tokens", "a,b")
    for name, *command in (
        ("data.npz", "predict", "layer.safetensors", "data.npz"),
        ("X.npy", "predict", "layer.safetensors", "X*.npy"),
        ("t.csv", "predict", "layer.safetensors", "t.csv", *columns),
        ("sums.safetensors", "fit", "sums.safetensors"),
        ("sums.safetensors", "merge", "sums.safetensors"),
    ):
        before, output = Path(name).read_bytes(), Path(name)
        if link is not None:
            output = Path(f"other{output.suffix}")
            output.unlink(missing_ok=True)
            link(name, output)
        refused(files(*command, "-o", output), str(output))
        assert Path(name).read_bytes() == before


def test_a_process_ends_with_a_code_and_one_line(tmp_path):
    command = [sys.executable, "-m", "polyattn", "show", "missing.safetensors"]
    failed = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert re.fullmatch(r"Error: .*\n", failed.stderr)


def wait_until_there_are(fewest, most, leader):
    command = [shutil.which("ps"), "-eo", "pgid=,stat="]
    for _ in range(2400):
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split() for line in listed.splitlines()]
        count = sum(row[0] == str(leader) and "Z" not in row[1] for row in rows)
        if fewest <= count <= most:
            return
        time.sleep(0.05)
    pytest.fail(f"{count} processes")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ps") is None, reason="processes are counted by ps")
@pytest.mark.parametrize("n_processes", [2, 4])
def test_ctrl_c_leaves_no_process_behind(tmp_path, n_processes):
    """While workers start, and when all of them are there."""
    for i in range(2 if n_processes == 2 else 12):
        np.savez(tmp_path / f"part-{i:02d}.npz", X=np.ones((3000, 10, 14)), Y=np.ones((3000, 2)))
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "polyattn", "fit", "part-*.npz", "--workers", "2"]
    options = {"stdout": pipe, "stderr": pipe, "text": True, "start_new_session": True}
    started = subprocess.Popen(command, cwd=tmp_path, **options)
    wait_until_there_are(n_processes, 99, started.pid)
    os.killpg(started.pid, signal.SIGINT)
    out, err = started.communicate(timeout=180)
    assert (started.returncode, out, err.strip()) == (1, "", "Aborted!")
    wait_until_there_are(0, 0, started.pid)
