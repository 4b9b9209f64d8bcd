"""The demo end to end, short: figures, the word that matters, and a page that stands alone."""

import json
import re
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from click.testing import CliRunner

from polyattn.cli.main import cli
from polyattn.report.figures import new_figure
from polyattn_papers.commands.demo import draw_error_over_time
from polyattn_papers.tasks.recovery import RecoverySettings, make_task, recover

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """One demo with a short run of Adam: its JSON and its page."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    result = CliRunner().invoke(cli, ["demo", "--seconds", "0.5", "--out", str(path), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), path.read_text(encoding="utf-8")


def test_the_planted_layer_is_recovered(outcome):
    figures, _ = outcome
    closed = figures["closed_form"]
    assert figures["task"]["n_sequences"] == 2048
    assert figures["task"]["n_tokens"] == 100
    assert figures["task"]["mode"] == "causal"
    assert closed["n_heads"] == 1
    assert closed["validation_error"] < 1e-25
    assert closed["distance"] < 1e-9
    assert closed["seconds"] > 0


def test_the_data_are_said_to_determine_it(outcome):
    certificate = outcome[0]["certificate"]
    assert certificate["verdict"] == certificate["verdict_on_real_inputs"] == "identifiable"
    assert certificate["sentence"].startswith("Identifiable")
    assert certificate["lambda_min"] > 0
    assert 0 < certificate["rounding"] < 1e-6


@needs_torch
def test_adam_stands_beside_it(outcome):
    figures, _ = outcome
    adam = figures["adam"]
    assert adam["n_heads"] == 1
    assert adam["n_steps"] > 0
    # The first step beyond the limit is the last, however long a busy machine takes for it.
    *before, end = adam["curve"]["seconds"]
    assert max(before) < 0.5 <= end == adam["seconds"]
    assert adam["validation_error"] > figures["closed_form"]["validation_error"]
    assert len(adam["curve"]["seconds"]) == len(adam["curve"]["errors"]) > 1


def test_the_page_needs_nobody(outcome):
    figures, page = outcome
    text = page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    text = text.replace('xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    assert not re.search(r"https?:|@import|<script", text)
    assert "{{" not in page
    assert f"{figures['closed_form']['validation_error']:.3g}" in page
    assert 'name="viewport"' in page
    assert len(page) < 500_000


def test_the_page_holds_the_report_of_the_fit(outcome):
    headings = re.findall(r"<h2>(.*?)</h2>", outcome[1])
    assert headings[0] == "The result"
    assert headings[-1] == "Beside gradient descent"
    for title in ("What was found", "Do the data determine the layer?", "Heads"):
        assert title in headings
    assert "Predicted against true" in headings
    assert "What is not shown" not in headings
    assert "Identifiable" in outcome[1]


def test_the_picture_shows_both_runs():
    axes = new_figure().add_subplot()
    draw_error_over_time([1.0, 2.0], [3.0, 0.5], (0.1, 0.0), axes)
    slow, closed = axes.lines
    assert list(slow.get_ydata()) == [3.0, 0.5]
    # A perfect fit is drawn, too, below everything.
    assert 0 < closed.get_ydata()[0] < 0.5


def test_without_adam(tmp_path):
    path = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["demo", "--no-adam", "--out", str(path)])
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "Identifiable" in result.stdout
    assert "--no-adam" in result.stdout
    assert "closed form" in result.stdout
    section = path.read_text(encoding="utf-8").split("<h2>Beside gradient descent</h2>")[1]
    assert "Adam was left out" in section
    assert "<svg" not in section


def test_without_torch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("polyattn_papers.baselines")]:
        monkeypatch.delitem(sys.modules, name)
    result = CliRunner().invoke(cli, ["demo", "--out", str(tmp_path / "report.html")])
    assert result.exit_code == 0, result.output
    assert "pip install 'polyattn[torch]'" in result.stdout


def test_without_matplotlib(tmp_path, monkeypatch):
    """The figures are printed; only the page needs the extra."""
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "report.html"
    result = CliRunner().invoke(cli, ["demo", "--no-adam", "--out", str(path)])
    assert result.exit_code == 0, result.output
    assert "Identifiable" in result.stdout
    assert "pip install 'polyattn[plots]'" in result.stdout
    assert not path.exists()


def test_a_folder_that_does_not_exist():
    result = CliRunner().invoke(cli, ["demo", "--no-adam", "--out", "gone/report.html"])
    assert result.exit_code == 1
    assert "gone" in result.stderr


def test_recovery_of_two_heads():
    task = make_task(RecoverySettings(n_sequences=200, n_tokens=10, n_heads=2, n_validation=20))
    found = recover(task)
    assert found.n_heads == 2
    assert found.validation_error < 1e-25


@needs_torch
def test_adam_learns_and_its_settings_count():
    import torch

    from polyattn_papers.baselines.train_linear import LinearSettings, train_linear

    task = make_task(RecoverySettings(n_dims=2, n_sequences=64, n_tokens=8, n_validation=16))
    sets = (task.X, task.Y, task.X_validation, task.Y_validation)
    looks, threads = [], torch.get_num_threads()
    settings = LinearSettings(n_heads=2, batch_size=16)
    run = train_linear(*sets, 0.5, settings, on_look=lambda *look: looks.append(look))
    assert torch.get_num_threads() == threads
    assert run.layer.n_heads == 2
    assert run.errors[-1] < run.errors[0]
    assert looks == list(zip(run.seconds, run.errors, strict=True))
    final = np.mean(np.sum((run.layer(task.X_validation) - task.Y_validation) ** 2, axis=-1))
    assert run.errors[-1] == pytest.approx(final)
