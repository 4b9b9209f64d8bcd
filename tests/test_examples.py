"""Every example and journey runs as it stands, without a warning, and makes one picture."""

import ast
import runpy
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parent.parent / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
# Notebooks from data to something that can be handed on; they say what must come out.
JOURNEYS = sorted((FOLDER / "journeys").glob("*.py"))
MAX_LINES = 40
MAX_JOURNEY_LINES = 140


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run a script in an empty folder; returns its output and the pictures it left there.

    In this process, as a module of its own: sixteen new ones would mostly import.  Warnings are
    errors here.
    """
    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["example"])

    def call(path):
        # What a script sets for its pictures does not outlive it.
        with mpl.rc_context():
            try:
                runpy.run_path(str(path), run_name="__main__")
            finally:
                plt.close("all")
        return capsys.readouterr().out, sorted(each.name for each in tmp_path.glob("*.png"))

    return call


def faults(source, max_lines=MAX_LINES):
    """What keeps a script from being a page of the gallery."""
    lines = (ast.get_docstring(ast.parse(source)) or "").split("\n")
    title, underline, blank, *text = *lines, "", ""
    found = []
    if not title or underline != "=" * len(title) or blank or not any(text):
        found.append("it begins with a title, a line of = below it, and a text")
    if len(source.splitlines()) > max_lines:
        found.append(f"it has at most {max_lines} lines")
    return found


@pytest.mark.parametrize("path", [*EXAMPLES, *JOURNEYS], ids=lambda path: path.stem)
def test_example_runs(path, run):
    printed, pictures = run(path)
    assert printed.strip()
    assert pictures == [f"{path.stem}.png"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_page(path):
    assert faults(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", JOURNEYS, ids=lambda path: path.stem)
def test_journey_is_a_notebook(path):
    source = path.read_text(encoding="utf-8")
    assert faults(source, MAX_JOURNEY_LINES) == []
    assert source.count("\n# %%\n") >= 5
    assert source.count("\nassert ") >= 3


def test_there_are_as_many_as_one_likes_to_read():
    assert 10 <= len(EXAMPLES) <= 20


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("1 / 0", ZeroDivisionError),
        ("import warnings; warnings.warn('careful')", UserWarning),
        ("print(pytest, np)", NameError),
    ],
)
def test_a_failing_example_is_found(body, error, run, tmp_path):
    """Negative control: errors, warnings, and names that only this module has."""
    (tmp_path / "bad.py").write_text(body)
    with pytest.raises(error):
        run(tmp_path / "bad.py")


def test_faults_are_found():
    """Negative control."""
    good = '"""Title\n=====\n\nText.\n"""\n'
    assert faults(good) == []
    assert faults(good.replace("=====", "===")) != []
    assert faults(good.replace("Text.", "")) != []
    assert faults("") != []
    assert faults(good + "x = 1\n" * MAX_LINES) == [f"it has at most {MAX_LINES} lines"]
