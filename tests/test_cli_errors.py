"""Bad input on the command line: one clear line, found before the work, and nothing left behind."""

import os
import time
from pathlib import Path

import numpy as np
import pytest

import polyattn as pa
from command_endings import planted_task, refused, saved_fit

task, model = planted_task, saved_fit


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
    np.savez("small.npz", x=X, y=Y)
    for name in ("table.txt", "data.parquet", "data.xlsx"):
        Path(name).write_text("1 2 3")
    return {
        "missing.npz": ["no file", "missing.npz"],
        "truncated.npz": ["truncated.npz", "truncated"],
        "foreign.npz": ["foreign.npz", "another format"],
        "empty.npy": ["empty.npy"],
        "data.csv": ["'data.csv' is a table", "--tokens"],
        "table.txt": [".npz and .npy", "np.loadtxt('table.txt')", "np.savez("],
        "data.parquet": ["data.parquet", "cannot be read as a Parquet file"],
        "data.xlsx": [".npz and .npy", ".csv, .tsv; got 'data.xlsx'."],
        "no_X.npz": ["'Z'", "nothing here reads; the known names are X, Y"],
        "small.npz": ["'x', 'y'", "did you mean 'X', 'Y'? The known"],
        "no_X_at_all.npz": ["no array 'X'"],
        "no_Y.npz": ["no array 'Y'", "--targets"],
        "two_axes.npz": ["(200, 3)"],
        "nan.npz": ["NaN"],
        "short.npz": ["200 sequences", "199 targets"],
        "per_token.npz": ["--mode causal"],
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
    for verb, output in (("fit", "model.pkl"), ("fit", "m.json"), ("certify", "c.safetensors")):
        refused(run(verb, "gone.npz", "-o", output), f"the output '{output}'", "call it '")


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
    refused(run("predict", model, "data.npz", "-o", "out.xlsx"), ".npy, .npz")
    refused(run("predict", model, "data.npz", "-o", "gone/out.npy"), "gone")
    refused(run("fit", model), "fitted already")
    for verb in (["show"], ["fit"]):
        refused(run(*verb, "gone.safetensors"), "no file")
        refused(run(*verb, "truncated.safetensors"), "truncated")
        refused(run(*verb, "tampered.safetensors"), "damaged")
    assert "200 x 6 x 3" in run("show", "data.npz").stdout
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

    monkeypatch.setattr("shutil.copyfileobj", fail)
    before = set(os.listdir())
    refused(run("predict", model, "data.npz", "-o", "out.npy"), "No space left on device")
    assert set(os.listdir()) == before
