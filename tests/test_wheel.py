"""The wheel holds all that the library needs, and works where there is no repository."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import polyattn as pa

ROOT = Path(__file__).resolve().parent.parent

SCRIPT = """
import numpy as np
import polyattn as pa

task = pa.data.planted(64, 8, 2, mode="last", random_state=0)
result = pa.fit(task.X, task.Y)
assert pa.same_function(result.layer, task.layer)
pa.save(result, "model.safetensors")
assert np.array_equal(pa.load("model.safetensors").coef, result.coef)
pa.save(pa.certify(task.X), "certificate.json")
assert pa.verify(pa.load("certificate.json"), task.X)
print(pa.__file__)
"""

TYPED = """
import numpy as np
import polyattn as pa

result = pa.fit(np.ones((3, 2, 1)), np.ones(3))
reveal_type(result.risk)
wrong: str = result.risk
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
        "--no-index", "--wheel-dir", folder, ROOT)  # fmt: skip
    (found,) = folder.glob("polyattn-*.whl")
    return found


def run(*command, cwd=None, **environment):
    """A command without this repository on its path; its standard output."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=inherited | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_library(wheel):
    sources = ROOT / "src"
    ours = {
        path.relative_to(sources).as_posix()
        for path in sources.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == ours
    assert {"polyattn/py.typed", "polyattn_papers/py.typed"} <= packed


def test_one_version_is_named_everywhere(wheel):
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert wheel.name.split("-")[1] == pa.__version__
    assert re.search(r"^## (\S+) – \d{4}-\d\d-\d\d$", changes, re.MULTILINE)[1] == pa.__version__
    assert f"\nversion: {pa.__version__}\n" in citation


def test_the_wheel_works_without_the_repository(wheel, tmp_path):
    # Packages of this environment, but polyattn as the wheel has it.
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    work = tmp_path / "work"
    work.mkdir()
    (work / "script.py").write_text(SCRIPT, encoding="utf-8")
    printed = run(sys.executable, "script.py", cwd=work, PYTHONPATH=str(site))
    assert Path(printed.strip()).is_relative_to(site)
    shown = run(
        sys.executable, "-m", "polyattn", "show", "model.safetensors",
        cwd=work, PYTHONPATH=str(site),
    )  # fmt: skip
    assert "unique global optimum" in " ".join(shown.split())


@pytest.mark.slow
def test_pip_installs_it_into_an_empty_environment_and_mypy_sees_types(wheel, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    printed = run(python, "script.py", cwd=tmp_path)
    assert Path(printed.strip()).is_relative_to(tmp_path / "empty")
    run(tmp_path / "empty" / "bin" / "polyattn", "demo", cwd=tmp_path)
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--python-executable", python, "typed.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert 'Revealed type is "float"' in checked.stdout, checked.stdout + checked.stderr
    assert 'expression has type "float", variable has type "str"' in checked.stdout
    assert "Found 1 error" in checked.stdout
