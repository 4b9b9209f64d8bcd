"""Every verb of the command line: what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from command_endings import parsed, planted_task, refused, saved_fit

task, model = planted_task, saved_fit


def _read_npz(path):
    with np.load(path) as archive:
        return dict(archive)


# fit


def test_fit_prints_what_was_found_and_saves_it(run, task):
    np.savez("data.npz", X=task.X, Y=task.Y)
    result = run("fit", "data.npz", "-o", "model.safetensors")
    assert result.exit_code == 0
    assert result.stderr == ""
    for words in ("unique global optimum", "risk", "rank", "18", "solver", "primal"):
        assert words in result.stdout
    assert "Linear attention, 3 coordinates to 3 outputs, mode last." in result.stdout
    for words in ("time to solve", "time to find heads", "s for 1 head"):
        assert words in result.stdout
    loaded = pa.load("model.safetensors")
    assert pa.same_function(loaded.layer, task.layer)
    limited = run("fit", "data.npz", "--n-heads", "1").stdout
    assert "heads included" in limited
    assert "time to find heads" not in limited


def test_fit_json_agrees_with_the_library(run, task):
    X, Y, weights = task.X[..., :2], task.Y[:, :2], np.arange(200) + 1.0
    np.savez("data.npz", X=X, Y=Y, weights=weights)
    found = parsed(
        run("fit", "data.npz", "--ridge", "0.5", "--bias", "--json", "-o", "m.safetensors")
    )
    expected = pa.fit(X, Y, ridge=0.5, bias=True, sample_weight=weights)
    assert found["risk"] == pytest.approx(expected.risk)
    assert found["outcome"]["name"] == "regularised"
    assert found["n_heads"] == expected.layer.n_heads
    assert found["model"] == "m.safetensors"
    assert found["seconds"] > 0
    assert found["heads_seconds"] > 0
    assert (found["mode"], found["bias"], found["solver"]) == ("last", True, "primal")


@pytest.mark.parametrize("solver", ["primal", "dual", "direct", "iterative"])
def test_fit_by_every_solver(run, task, solver):
    np.savez("data.npz", X=task.X, Y=task.Y)
    found = parsed(run("fit", "data.npz", "--solver", solver, "--json"))
    assert found["solver"] == solver
    assert found["risk"] < 1e-15


def test_fit_chooses_ridge_and_limits_heads(run):
    noisy = pa.data.planted(300, 6, 2, mode="last", noise=0.3, random_state=1)
    np.savez("data.npz", X=noisy.X, Y=noisy.Y)
    for rule in ("loo", "gcv"):
        assert parsed(run("fit", "data.npz", "--ridge", rule, "--json"))["ridge"] > 0
        of_two = ("--ridge", rule, "--ridge-grid", "7,1e3", "--json")
        assert parsed(run("fit", "data.npz", *of_two))["ridge"] in (7.0, 1e3)
    refused(run("fit", "data.npz", "--ridge", "loo", "--ridge-grid", "0,1"), "with --ridge 0")
    refused(run("fit", "data.npz", "--ridge-grid", "1,2"), "--ridge-grid is used only with")
    limited = parsed(run("fit", "data.npz", "--heads", "1", "--json"))
    assert limited["n_heads"] == 1
    assert limited["gap"] > 0
    assert limited["outcome"]["name"] == "limited_heads"
    assert parsed(run("fit", "data.npz", "--heads", "auto", "--json"))["n_heads"] >= 1


def test_fit_from_npy_files(run, task):
    np.save("X.npy", task.X.astype(np.float32))
    np.save("Y.npy", task.Y[:, 0])
    found = parsed(run("fit", "X.npy", "--targets", "Y.npy", "--json"))
    assert found["n_outputs"] == 1
    assert found["risk"] < 1e-10


@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_padded_and_packed_data_are_the_same(run, mode):
    ragged = pa.data.planted(150, (2, 7), 3, mode=mode, random_state=2)
    lengths, n_max = ragged.X.lengths, 9
    padded = np.full((150, n_max, 3), np.nan)
    Y_padded = np.full((150, n_max, 3), np.nan)
    for i, sequence in enumerate(ragged.X):
        padded[i, : len(sequence)] = sequence
        if mode != "last":
            Y_padded[i, : len(sequence)] = ragged.Y[i]
    packed_targets = ragged.Y if mode == "last" else np.concatenate(ragged.Y)
    np.savez("padded.npz", X=padded, Y=ragged.Y if mode == "last" else Y_padded, lengths=lengths)
    np.savez("packed.npz", X=ragged.X.values, Y=packed_targets, offsets=ragged.X.offsets)
    expected = pa.fit(ragged.X, ragged.Y, mode=mode).coef
    for name in ("padded", "packed"):
        parsed(run("fit", f"{name}.npz", "--mode", mode, "-o", f"{name}.safetensors", "--json"))
        assert np.allclose(pa.load(f"{name}.safetensors").coef, expected)


def test_fit_from_saved_statistics(run, task):
    for name, kind in (("m", pa.Moments), ("t", pa.TriangularFactor)):
        kind(3, 3).update(task.X, task.Y).save(f"{name}.safetensors")
        found = parsed(run("fit", f"{name}.safetensors", "--json"))
        assert found["rank"] == 18
        explained = parsed(run("fit", f"{name}.safetensors", "--explain", "--json"))
        assert explained["solver"] == found["solver"]
    refused(run("fit", "m.safetensors", "--mode", "full"), "leave --mode out")
    refused(run("fit", "m.safetensors", "--solver", "dual"), "--solver primal")
    refused(run("fit", "m.safetensors", "--ridge", "loo"), "gcv")


def test_explain_only_says_what_would_be_done(run, task):
    np.savez("data.npz", X=task.X, Y=task.Y)
    result = run("fit", "data.npz", "--explain", "-o", "model.safetensors")
    assert result.stdout.startswith("primal: 200 rows for 18 features")
    assert not Path("model.safetensors").exists()
    explained = parsed(run("fit", "data.npz", "--explain", "--json", "--solver", "dual"))
    assert explained["solver"] == "dual"
    assert explained["n_rows"] == 200
    assert explained["bytes"] > 0
    assert explained["seconds"] == explained["others"]["dual"]["seconds"] > 0


# predict


def test_predict_writes_what_the_layer_computes(run, model, task):
    X = np.random.default_rng(3).standard_normal((5, 4, 3))
    np.savez("new.npz", X=X)
    found = parsed(run("predict", model, "new.npz", "-o", "out.npy", "--json"))
    assert found == {
        "predictions": "out.npy", "n_sequences": 5, "n_rows": 5, "n_outputs": 3, "ragged": False,
    }  # fmt: skip
    assert np.allclose(np.load("out.npy"), task.layer(X))
    pa.save(task.layer, "layer.safetensors")
    assert run("predict", "layer.safetensors", "new.npz", "-o", "out.npz").exit_code == 0
    assert np.allclose(_read_npz("out.npz")["Y"], task.layer(X))


@pytest.mark.parametrize("mode", ["causal", "full"])
def test_predict_tokens_of_equal_and_ragged_sequences(run, mode):
    layer = pa.data.random_layer(3, mode=mode)
    pa.save(layer, "layer.safetensors")
    X = np.random.default_rng(4).standard_normal((4, 6, 3))
    np.save("X.npy", X)
    parsed(run("predict", "layer.safetensors", "X.npy", "-o", "out.npy", "--json"))
    assert np.allclose(np.load("out.npy"), layer(X))
    np.savez("ragged.npz", X=X, lengths=[6, 2, 3, 1])
    found = parsed(run("predict", "layer.safetensors", "ragged.npz", "-o", "r.npz", "--json"))
    assert found["ragged"]
    assert found["n_rows"] == 12
    written = _read_npz("r.npz")
    assert written["offsets"].tolist() == [0, 6, 8, 11, 12]
    assert np.allclose(written["values"][6:8], layer(X[1, :2]))
    refused(
        run("predict", "layer.safetensors", "ragged.npz", "-o", "r.npy"), ".npz", "differ in length"
    )


# show


def test_show_layers_results_and_statistics(run, model, task):
    pa.save(task.layer, "layer.safetensors")
    pa.save(pa.data.random_layer(20), "wide.safetensors")
    pa.Moments(3, 2, mode="full").save("moments.safetensors")
    assert "unique global optimum" in run("show", model).stdout
    assert "head 1" in run("show", "layer.safetensors").stdout
    assert "--json prints them" in run("show", "wide.safetensors").stdout
    assert "features" in run("show", "moments.safetensors").stdout
    result = parsed(run("show", model, "--json"))
    assert result["kind"] == "fit_result"
    assert np.array_equal(result["attn"], pa.load(model).layer.attn)
    layer = parsed(run("show", "layer.safetensors", "--json"))
    assert np.array_equal(layer["attn"], task.layer.attn)
    moments = parsed(run("show", "moments.safetensors", "--json"))
    assert (moments["kind"], moments["mode"], moments["n_outputs"]) == ("moments", "full", 2)


# bench


def test_bench_prints_both_sides_and_compares_answers(run):
    found = parsed(run("bench", "--scale", "0.01", "--json"))["comparisons"]
    assert len(found) == 3
    for one in found:
        assert one["agrees"]
        assert one["ratio"] == pytest.approx(one["other_seconds"] / one["seconds"])
    assert "answers differ by" in run("bench", "--size-factor", "0.01").stdout


def test_bench_ends_with_an_error_when_answers_differ(run, monkeypatch):
    monkeypatch.setattr("polyattn_papers.comparisons._difference", lambda *_: 1.0)
    result = run("bench", "--scale", "0.01")
    assert result.exit_code == 1
    assert "the answers differ" in result.stderr
    assert "WRONG" in result.stdout


# The program itself


def test_progress_goes_to_the_terminal_and_json_stays_alone(run, task, monkeypatch):
    np.savez("data.npz", X=task.X, Y=task.Y)
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("fit", "data.npz", "-o", "model.safetensors", "--json")
    assert json.loads(result.stdout)["rank"] == 18
    assert "solving" in result.stderr
    result = run("predict", "model.safetensors", "data.npz", "-o", "out.npy", "--json")
    assert json.loads(result.stdout)["n_rows"] == 200
    assert "predicting" in result.stderr


def test_version_and_help(run):
    assert pa.__version__ in run("--version").stdout
    text = run("--help").stdout
    for verb in ("demo", "fit", "predict", "show", "bench"):
        assert verb in text
        assert "--json" in run(verb, "--help").stdout


def test_as_a_process(tmp_path):
    def process(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "polyattn", *arguments],
            capture_output=True, text=True, cwd=tmp_path, env=os.environ, check=False,
        )  # fmt: skip

    failed = process("show", "missing.safetensors")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "Error: there is no file 'missing.safetensors'.\n"
    assert process("show").returncode == 2
    pa.save(pa.data.random_layer(2), tmp_path / "layer.safetensors")
    assert json.loads(process("show", "layer.safetensors", "--json").stdout)["n_dims"] == 2
