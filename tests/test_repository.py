"""The repository speaks of the project alone; tests of public names; wheel, imports, examples."""

import ast
import inspect
import os
import re
import runpy
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import polyattn as pa

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "examples", "docs", ".ci")
TEXT = {".py", ".md", ".toml", ".txt", ".cff", ".yaml", ".yml", ".html", ".j2", ".svg", ""}

# Written so that they do not find themselves.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.~])/(?:home|root|opt|mnt|tmp|work|var|Users|data)/[\w.]",
    "where packages come from": r"index[-]url|find[-]links|pythonhost[e]d",
    "unfinished work": r"\b(?:TO[D]O|FIX[M]E|X[X]X|HA[C]K)\b",
}
# Modules that execute what they load, and calls that allow it.
UNSAFE = re.compile(
    r"\b(?:import|from|import_module\(.) *(?:c?[Pp]ickle|cloudpickle|dill|marshal|shelve)\b"
    r"|allow_pickle *= *(?!False)"
)


def files(*folders):
    """All files of the project that hold text, or those of some folders."""
    found = [] if folders else [path for path in ROOT.iterdir() if path.name != ".git"]
    for name in folders or FOLDERS:
        found += (ROOT / name).rglob("*")
    made = {"__pycache__", "_build", "gallery"}
    found = [path for path in found if path.suffix in TEXT and not made & set(path.parts)]
    return [path for path in found if path.is_file()]


def sources(*folders):
    """(path from the root, text) of the files of Python."""
    found = [path for path in files(*folders) if path.suffix == ".py"]
    return [(path.relative_to(ROOT), path.read_text(encoding="utf-8")) for path in found]


def findings(text):
    """What must not be in a file, as (kind, line number)."""
    lines = list(enumerate(text.splitlines(), start=1))
    kinds = FORBIDDEN.items()
    return [
        (kind, number) for kind, word in kinds for number, line in lines if re.search(word, line)
    ]


def test_the_repository_speaks_of_the_project_alone_and_of_finished_work():
    names = {str(path.relative_to(ROOT)) for path in files()}
    assert {"pyproject.toml", "Makefile", "LICENSE", ".ci/run", "src/polyattn/errors.py"} <= names
    found = {path.name: findings(path.read_text(encoding="utf-8")) for path in files()}
    assert {name: places for name, places in found.items() if places} == {}
    # Negative control.
    bad = ("see /" + "home/someone/file", "pip --index" + "-url x", "# TO" + "DO: later")
    assert [findings("fine\n" + text) for text in bad] == [[(kind, 2)] for kind in FORBIDDEN]
    assert findings("#!/usr/bin/env bash\nhttps://example.org/data/x\n./work/x") == []


def test_nothing_is_unpickled():
    assert [path for path, text in sources() if UNSAFE.search(text)] == []
    bad = ("import pick" + "le", "from dil" + "l import loads", "load(p, allow_pick" + "le=True)")
    assert all(map(UNSAFE.search, bad))
    assert not UNSAFE.search("numpy.load(p, allow_pickle=False)")


# What tests may import: all that these modules say is public.
MODULES = {name: getattr(pa, name) for name in ("data", "domains", "interop", "maps", "softmax")}
MODULES |= {"programs": pa.programs, "programs.machines": pa.programs.machines, "errors": pa.errors}
PUBLIC = {f"polyattn.{name}" for name in [*pa.__all__, *MODULES, "cli.main.cli", "cli.main.main"]}
PUBLIC |= {"polyattn.certify.independent_entries", "polyattn.solve.plan"}
PUBLIC |= {f"polyattn.interop.series.Series{kind}" for kind in ("Classifier", "Regressor")}
PUBLIC |= {f"polyattn.{name}.{one}" for name, module in MODULES.items() for one in dir(module)
           if not inspect.ismodule(getattr(module, one)) and one[0] != "_"}  # fmt: skip


# Private by their names alone: named tuples, processes, and layers of other libraries.
OTHERS = "_replace|_asdict|_exit|_attn_implementation|_qkv_same_embed_dim|_fixturemanager"
OTHERS += "|_forward_hooks|_forward_pre_hooks"


PATCHING = {"setattr", "import_module", "importorskip"}


def inner(path, text):
    """Names of inner modules that a test imports or patches, and private attributes it reads."""
    packages = ("polyattn.", "polyattn_papers.")[: 2 - path.name.startswith("test_papers")]
    named, found = [], []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            named += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            named += [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in PATCHING:
            named += [str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant)]
        elif isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*[^_]", node.attr):
            own = ast.unparse(node.value) in ("self", "cls") or re.fullmatch(OTHERS, node.attr)
            found += [] if own else [node.attr]
    return found + [name for name in named if name.startswith(packages) and name not in PUBLIC]


def test_tests_speak_through_public_names():
    inside = {"kernels", "mutants", "optional"}
    outside = [(path, text) for path, text in sources("tests") if not inside & set(path.parts)]
    found = {path.name: inner(path, text) for path, text in outside}
    assert {name: names for name, names in found.items() if names} == {}
    for text, wrong in {  # negative control
        "from polyattn import fit, programs\nfrom polyattn.data import planted": 0,
        "from polyattn.certify import independent_entries": 0,
        "from polyattn_papers.reproduction import find": 1,
        "from polyattn.solve import ridge\nimport polyattn.numerics.blas": 2,
        "monkeypatch.setattr('polyattn.solve.x.y', 1)\nlayer._coef": 2,
    }.items():
        assert len(inner(Path("tests/test_x.py"), text)) == wrong, text
    assert inner(Path("tests/test_papers_x.py"), "from polyattn_papers.tasks import automata") == []


def test_pins_cover_the_declared_dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)
    declared = sum(project["optional-dependencies"].values(), project["dependencies"])
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in declared} - {"polyattn"}
    assert names <= set(pins)


def run_python(*command, cwd=None, **environment):
    """A command without this repository on its path; its standard output."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env=inherited | environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("module", ["polyattn", "polyattn.cli.main"])
def test_importing_is_light(module):
    code = f"import {module}, sys; print(*sys.modules)"
    loaded = set(run_python("-W", "error", "-c", code, PYTHONPATH=str(ROOT / "src")).split())
    heavy = {"torch", "matplotlib", "dask", "sklearn", "distributed", "pyarrow", "flint", "yaml"}
    assert loaded.isdisjoint(heavy | {"aeon", "sktime", "scipy.stats"})


SCRIPT = """
import polyattn as pa

task = pa.data.planted(64, 8, 2, mode="last", random_state=0)
pa.save(pa.fit(task.X, task.Y), "model.safetensors")
assert pa.same_function(pa.load("model.safetensors").layer, task.layer)
assert pa.verify(pa.certify(task.X), task.X)
print(pa.__file__)
"""


@pytest.mark.slow
def test_the_wheel_holds_all_files_and_types_and_works_without_the_repository(tmp_path):
    run_python("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
               "--wheel-dir", tmp_path, ROOT)  # fmt: skip
    (wheel,) = tmp_path.glob("polyattn-*.whl")
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    ours = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        archive.extractall(tmp_path / "site")
    assert packed == {name for name in ours if "__pycache__" not in name}
    assert {"polyattn/py.typed", "polyattn_papers/py.typed"} <= packed
    changes, citation = ((ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff"))
    newest = re.search(r"^## (\S+) – \d{4}-\d\d-\d\d$", changes, re.MULTILINE)[1]
    assert wheel.name.split("-")[1] == pa.__version__
    if "dev" not in pa.__version__:
        assert newest == pa.__version__
    assert f"\nversion: {newest}\n" in citation
    # Packages of this environment, but polyattn as the wheel has it.
    work, site = tmp_path / "work", {"PYTHONPATH": str(tmp_path / "site")}
    work.mkdir()
    (work / "script.py").write_text(SCRIPT, encoding="utf-8")
    found = run_python("script.py", cwd=work, **site)
    assert Path(found.strip()).is_relative_to(tmp_path / "site")
    shown = run_python("-m", "polyattn", "show", "model.safetensors", cwd=work, **site)
    assert "unique global optimum" in " ".join(shown.split())


EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
JOURNEYS = sorted((ROOT / "examples" / "journeys").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", [*EXAMPLES, *JOURNEYS], ids=lambda path: path.stem)
def test_an_example_runs_without_a_warning_and_makes_one_picture(path, run, monkeypatch, capsys):
    mpl = pytest.importorskip("matplotlib")
    mpl.use("Agg")
    monkeypatch.setattr(sys, "argv", ["example"])
    with mpl.rc_context():
        runpy.run_path(str(path), run_name="__main__")  # in the empty folder of ``run``
        mpl.pyplot.close("all")
    assert run is not None
    assert capsys.readouterr().out.strip()
    assert [each.name for each in Path().glob("*.png")] == [f"{path.stem}.png"]
