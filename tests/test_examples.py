"""Every example runs as it stands, without a warning, and makes one picture."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
MAX_LINES = 40


def run(path, folder):
    """Run a script in an empty folder; its output and the pictures it left there."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True, text=True, cwd=folder, timeout=600, check=False,
        env=os.environ | {"MPLBACKEND": "Agg"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, sorted(picture.name for picture in folder.glob("*.png"))


def faults(source):
    """What keeps a script from being a page of the gallery."""
    lines = (ast.get_docstring(ast.parse(source)) or "").split("\n")
    title, underline, blank, *text = *lines, "", ""
    found = []
    if not title or underline != "=" * len(title) or blank or not any(text):
        found.append("it begins with a title, a line of = below it, and a text")
    if len(source.splitlines()) > MAX_LINES:
        found.append(f"it has at most {MAX_LINES} lines")
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    printed, pictures = run(path, tmp_path)
    assert printed.strip()
    assert pictures == [f"{path.stem}.png"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_a_page(path):
    assert faults(path.read_text(encoding="utf-8")) == []


def test_there_are_as_many_as_one_likes_to_read():
    assert 10 <= len(EXAMPLES) <= 16


@pytest.mark.parametrize("body", ["1 / 0", "import warnings; warnings.warn('careful')"])
def test_a_failing_example_is_found(body, tmp_path):
    """Negative control: errors and warnings."""
    (tmp_path / "bad.py").write_text(body)
    with pytest.raises(AssertionError, match=r"Error|Warning"):
        run(tmp_path / "bad.py", tmp_path)


def test_faults_are_found():
    """Negative control."""
    good = '"""Title\n=====\n\nText.\n"""\n'
    assert faults(good) == []
    assert faults(good.replace("=====", "===")) != []
    assert faults(good.replace("Text.", "")) != []
    assert faults("") != []
    assert faults(good + "x = 1\n" * MAX_LINES) == [f"it has at most {MAX_LINES} lines"]
