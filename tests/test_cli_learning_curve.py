"""``polyattn learning-curve``: the curve of the library, saved and drawn; and what is refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli

FORM = pa.Form(include_query=False, mean=True, query=[0], key=[0], value=[1])
OPTIONS = ("--no-include-query", "--mean", "--query", "0", "--key", "0", "--value", "1")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    prompts = pa.data.in_context_regression(60, 5, np.eye(1), noise=0.3, random_state=0)
    np.savez("data.npz", X=prompts.X, Y=prompts.Y)
    np.savez("weighted.npz", X=prompts.X, Y=prompts.Y, weights=np.arange(60.0))

    def call(*arguments, code=0):
        result = CliRunner().invoke(cli, [str(each) for each in arguments])
        assert result.exit_code == code, result.output
        return result.output

    return call


def test_the_curve_is_that_of_the_library(run):
    said = json.loads(run("learning-curve", "data.npz", *OPTIONS, "--json"))
    with np.load("data.npz") as data:
        expected = pa.learning_curve(data["X"], data["Y"], form=FORM)
    assert said["curve"] == expected.table()
    assert said["outcome"]["name"] == expected.outcome.name


def test_a_curve_is_saved_shown_and_drawn(run):
    options = ("--train-sizes", "4,40", "--n-repeats", 3, "--ridge", 0.1, "--seed", 1)
    said = run("learning-curve", "data.npz", *OPTIONS, *options, "-o", "curve.safetensors")
    assert "sequences to test on" in said
    assert "saved to" in said
    curve = pa.load("curve.safetensors")
    assert (curve.n_repeats, curve.ridge, curve.sizes.tolist()) == (3, 0.1, [4, 40])
    assert curve.form == FORM
    assert "query not attended to" in run("show", "curve.safetensors")
    run("report", "curve.safetensors", "-o", "page.html")
    refused = run("report", "curve.safetensors", "data.npz", code=1)
    assert "X says nothing about a LearningCurve" in refused


def test_other_data_to_test_on(run):
    options = ("--train-sizes", "10,60", "--test-data", "data.npz")
    said = json.loads(run("learning-curve", "data.npz", *OPTIONS, *options, "--json"))
    assert said["n_test"] == 60


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ("data.npz --train-sizes 4,x", 2, "not a list of whole numbers"),
        ("data.npz --train-sizes 4,400", 1, "--train-sizes must be at least two"),
        ("data.npz --n-repeats 1", 1, "--n-repeats must be"),
        ("data.npz --decay loo", 1, "chosen by fit"),
        ("data.npz --mode full", 1, "one target per token"),
        ("data.npz --test-data gone.npz", 1, "gone.npz"),
        ("weighted.npz", 1, "learning-curve does not use"),
        ("data.npz --test-data weighted.npz", 1, "learning-curve does not use"),
    ],
)
def test_what_is_wrong_is_one_line(run, options, code, said):
    assert said in run("learning-curve", *options.split(), code=code)
