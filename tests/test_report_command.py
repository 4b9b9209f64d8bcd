"""``polyattn report``: files in, a page out, and what is refused."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import polyattn as pa
from polyattn.cli.main import cli
from report_pages import (
    BOUNDS,
    CERTIFICATE,
    HEADS,
    OUTCOME,
    PREDICTIONS,
    noisy_fit,
    noisy_task,
    requests,
)

task, result = noisy_task, noisy_fit


def run(*arguments):
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


@pytest.fixture
def files(task, result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pa.save(result, "fit.safetensors")
    pa.save(task.layer, "layer.safetensors")
    pa.certify(task.X).save("certificate.json")
    np.savez("data.npz", X=np.asarray(task.X), Y=np.asarray(task.Y))
    np.savez("inputs.npz", X=np.asarray(task.X))
    np.save("targets.npy", np.asarray(task.Y))
    return tmp_path


def test_a_fit_beside_its_data(files):
    done = run("fit.safetensors", "data.npz", "-o", "page.html", "--json")
    assert done.exit_code == 0, done.output
    content = json.loads(done.stdout)
    assert content["sections"] == [OUTCOME, CERTIFICATE, HEADS, PREDICTIONS, BOUNDS]
    assert content["bytes"] == (files / "page.html").stat().st_size
    assert content["kind"] == "FitResult"


def test_weights_are_those_of_the_means(task, files):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    np.savez("weighted.npz", X=X, Y=Y, weights=np.ones(len(X)))
    done = run("fit.safetensors", "weighted.npz", "--json")
    assert done.exit_code == 0, done.output
    assert "weighted mean ||y" in (files / "report.html").read_text("utf-8")


def test_weights_are_said_to_be_left_out(task, files):
    X, Y = np.asarray(task.X), np.asarray(task.Y)
    np.savez("weighted.npz", X=X, Y=Y, weights=np.ones(len(X)))
    done = run("certificate.json", "weighted.npz", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sections"][-1] == "Notes"
    assert "weights in the data were not used" in (files / "report.html").read_text("utf-8")


def test_targets_of_their_own(files):
    arguments = ("layer.safetensors", "inputs.npz", "--targets", "targets.npy")
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert "How good is the layer?" in done.stdout
    assert (files / "report.html").is_file()


@pytest.mark.usefixtures("files")
def test_certificates_take_no_targets():
    done = run("certificate.json", "data.npz", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["sections"] == [CERTIFICATE, BOUNDS]


def test_a_program_runs_a_machine(files):
    pa.save(pa.programs.compile(pa.programs.universal_dfa(2, 2, 4)), "dfa.safetensors")
    done = run("dfa.safetensors", "--machine", "parity", "--input", "1101", "--json")
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
def test_refusals(arguments, message):
    np.savez("narrow.npz", X=np.zeros((2, 3, 2)))
    pa.save(pa.programs.compile(pa.programs.universal_dfa(2, 2, 2)), "program.safetensors")
    done = run(*arguments)
    assert done.exit_code == 1
    assert message in done.stderr
    assert done.stdout == ""
