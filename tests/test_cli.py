"""Every verb of the command line: what it prints, what it writes, how it ends."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a verb inside an empty folder; returns click's result."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return call


@pytest.fixture
def task():
    return pa.data.planted(200, 6, 3, n_heads=1, mode="last", random_state=0)


@pytest.fixture
def model(run, task):
    """A saved fit of ``task`` in model.safetensors, with the data in data.npz."""
    np.savez("data.npz", X=task.X, Y=task.Y)
    assert run("fit", "data.npz", "-o", "model.safetensors").exit_code == 0
    return "model.safetensors"


def parsed(result):
    """The JSON object on stdout, which must be all that is there."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def _read_npz(path):
    with np.load(path) as archive:
        return dict(archive)


def refused(result, *words, code=1):
    """Ended by one line on stderr that contains the words; nothing on stdout, no traceback."""
    assert result.exit_code == code, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    if code == 1:
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
        assert isinstance(result.exception, SystemExit)
    for word in words:
        assert word in result.stderr


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
    np.savez("data.npz", X=task.X, Y=task.Y, weights=np.arange(200) + 1.0)
    found = parsed(
        run("fit", "data.npz", "--ridge", "0.5", "--bias", "--json", "-o", "m.safetensors")
    )
    expected = pa.fit(task.X, task.Y, ridge=0.5, bias=True, sample_weight=np.arange(200) + 1.0)
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
    noisy = pa.data.planted(300, 6, 3, mode="last", noise=0.3, random_state=1)
    np.savez("data.npz", X=noisy.X, Y=noisy.Y)
    for rule in ("loo", "gcv"):
        assert parsed(run("fit", "data.npz", "--ridge", rule, "--json"))["ridge"] > 0
        of_two = ("--ridge", rule, "--ridge-grid", "7,1e3", "--json")
        assert parsed(run("fit", "data.npz", *of_two))["ridge"] in (7.0, 1e3)
    refused(run("fit", "data.npz", "--ridge", "loo", "--ridge-grid", "0,1"), "with ridge=0")
    refused(run("fit", "data.npz", "--ridge-grid", "1,2"), "ridge_grid is used only with")
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
    refused(run("fit", "m.safetensors", "--solver", "dual"), "solver='primal'")
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


# Bad input


def _bad_files(task):
    """Files that cannot be used, and words of the message about each."""
    X, Y = task.X, task.Y
    np.savez("good.npz", X=X, Y=Y)
    content = Path("good.npz").read_bytes()
    Path("truncated.npz").write_bytes(content[: len(content) // 2])
    Path("foreign.npz").write_text("not an archive")
    Path("empty.npy").touch()
    Path("data.csv").write_text("1,2,3")
    np.savez("no_X.npz", Z=X, Y=Y)
    np.savez("no_X_at_all.npz", Y=Y)
    np.savez("no_Y.npz", X=X)
    np.savez("two_axes.npz", X=X[:, 0], Y=Y)
    np.savez("nan.npz", X=np.where(X > 1, np.nan, X), Y=Y)
    np.savez("short.npz", X=X, Y=Y[:-1])
    np.savez("per_token.npz", X=X, Y=np.repeat(Y[:, None], 6, axis=1))
    np.savez("text.npz", X=X.astype(str), Y=Y)
    np.savez("complex.npz", X=X + 0j, Y=Y)
    np.savez("objects.npz", X=np.array([{}, {}]), Y=Y)
    np.savez("lengths.npz", X=X, Y=Y, lengths=np.full(200, 9))
    np.savez("offsets.npz", X=X.reshape(-1, 3), Y=Y, offsets=np.arange(201) * 5)
    np.savez("both.npz", X=X, Y=Y, offsets=np.arange(201), lengths=np.full(200, 6))
    np.savez("weights.npz", X=X, Y=Y, weights=np.full(200, -1.0))
    np.savez("none.npz", X=X[:0], Y=Y[:0])
    return {
        "missing.npz": ["no file", "missing.npz"],
        "truncated.npz": ["truncated.npz", "truncated"],
        "foreign.npz": ["foreign.npz", "another format"],
        "empty.npy": ["empty.npy"],
        "data.csv": [".npz and .npy"],
        "no_X.npz": ["'Z'", "X, Y"],
        "no_X_at_all.npz": ["no array 'X'"],
        "no_Y.npz": ["no array 'Y'", "--targets"],
        "two_axes.npz": ["(200, 3)"],
        "nan.npz": ["NaN"],
        "short.npz": ["200 sequences", "199 targets"],
        "per_token.npz": ["mode='causal'"],
        "text.npz": ["text"],
        "complex.npz": ["complex"],
        "objects.npz": ["Python objects"],
        "lengths.npz": ["between 1 and 6"],
        "offsets.npz": ["offsets must run from 0 to 1200"],
        "both.npz": ["'lengths'", "'offsets'"],
        "weights.npz": ["sample_weight"],
        "none.npz": ["empty"],
        ".": ["is a folder"],
    }


def test_bad_data_are_one_clear_line(run, task):
    for name, words in _bad_files(task).items():
        refused(run("fit", name), *words)
        refused(run("fit", name, "--json"), *words)


def test_bad_targets_and_options(run, task):
    np.savez("data.npz", X=task.X, Y=task.Y)
    np.save("X.npy", task.X)
    np.save("Y.npy", task.Y)
    refused(run("fit", "X.npy"), "no array 'Y'")
    refused(run("fit", "X.npy", "--targets", "gone.npy"), "gone.npy")
    refused(run("fit", "X.npy", "--targets", "data.npz"), "one array")
    refused(run("fit", "data.npz", "--targets", "Y.npy"), "leave --targets out")
    refused(run("fit", "data.npz", "--ridge", "-1"), "ridge")
    refused(run("fit", "data.npz", "--ridge", "inf"), "ridge")
    for option in ("--heads", "--n-heads"):
        refused(run("fit", "data.npz", option, "0"), "--n-heads must be None, 'auto' or an integer")
    refused(run("fit", "data.npz", "-o", "gone/model.safetensors"), "gone")
    refused(run("fit", "data.npz", "-o", "."), ".")


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit"],
        ["fit", "x", "--mode", "first"],
        ["fit", "x", "--ridge", "big"],
        ["fit", "x", "--ridge", "loo", "--ridge-grid", "1;2"],
        ["fit", "x", "--heads", "many"],
        ["fit", "x", "--heads", "1.5"],
        ["fit", "x", "--solver", "newton"],
        ["predict", "m", "x"],
        ["demo", "--seconds", "0"],
        ["bench", "--scale", "-1"],
        ["show"],
        ["frobnicate"],
    ],
)
def test_wrong_usage_is_code_two(run, arguments):
    refused(run(*arguments), "Usage:", code=2)


def test_bad_models_are_one_clear_line(run, model, task):
    np.savez("wide.npz", X=np.ones((2, 3, 4)))
    content = Path(model).read_bytes()
    Path("truncated.safetensors").write_bytes(content[:-50])
    Path("tampered.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    pa.Moments(3, 3).update(task.X, task.Y).save("moments.safetensors")
    predict = ("-o", "out.npy")
    refused(run("predict", model, "wide.npz", *predict), "3 coordinates; got 4")
    refused(run("predict", "moments.safetensors", "data.npz", *predict), "polyattn fit")
    refused(run("predict", model, "data.npz", "-o", "out.csv"), ".npy or .npz")
    refused(run("predict", model, "data.npz", "-o", "gone/out.npy"), "gone")
    refused(run("fit", model), "fitted already")
    for verb in (["show"], ["fit"]):
        refused(run(*verb, "gone.safetensors"), "no file")
        refused(run(*verb, "truncated.safetensors"), "truncated")
        refused(run(*verb, "tampered.safetensors"), "damaged")
    refused(run("show", "data.npz"), "data.npz")
    assert not Path("out.npy").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "data.npz", "-o"], ["predict", "model.safetensors", "data.npz", "-o"],
        ["certify", "data.npz", "--save"], ["learn-softmax", "data.npz", "-o"],
        ["report", "model.safetensors", "-o"], ["demo", "--out"],
        ["program", "compile", "dfa", "-o"], ["program", "compile", "dfa", "--program"],
        ["program", "learn", "dfa", "-o"], ["program", "learn", "dfa", "--program"],
        ["reproduce", "yau2024-fig2", "--out"],
    ],
)  # fmt: skip
@pytest.mark.usefixtures("model")
def test_places_that_cannot_be_written_are_found_before_the_work(run, arguments):
    """Nobody, not even root, makes files there; reading and working would take their time."""
    start = time.perf_counter()
    refused(run(*arguments, "/proc/out.json" if arguments[0] != "predict" else "/proc/out.npy"))
    if arguments[0] != "reproduce":
        refused(
            run(*arguments, "gone/out.json" if arguments[0] != "predict" else "gone/o.npy"), "gone"
        )
    assert time.perf_counter() - start < 6
    assert run("fit", "missing.npz", "-o", "/proc/x").stderr.startswith("Error: the folder '/proc'")


def test_nothing_is_left_behind_by_a_failed_write(run, model, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "out.npy")

    monkeypatch.setattr("numpy.save", fail)
    before = set(os.listdir())
    refused(run("predict", model, "data.npz", "-o", "out.npy"), "No space left on device")
    assert set(os.listdir()) == before


# The program itself


def test_progress_goes_to_the_terminal_and_json_stays_alone(run, task, monkeypatch):
    np.savez("data.npz", X=task.X, Y=task.Y)
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = run("fit", "data.npz", "-o", "model.safetensors", "--json")
    assert parsed(result)["rank"] == 18
    assert "solving" in result.stderr
    result = run("predict", "model.safetensors", "data.npz", "-o", "out.npy", "--json")
    assert parsed(result)["n_rows"] == 200
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
