"""The frame of reproductions: cells that resume, tables, pages, and what is refused."""

import csv
import importlib.util
import json
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner

from polyattn.cli.main import cli
from polyattn.errors import FileFormatError, InvalidInput, MissingExtra
from polyattn.report.figures import OURS, new_figure
from polyattn_papers.reproduction import NAMES, Experiment, Gate, find, reproduce
from polyattn_papers.reproduction.digests import with_digest
from polyattn_papers.reproduction.page import write_index
from polyattn_papers.reproduction.registry import PACKAGES

# The module; the package has the function under its name.
REPRODUCE = importlib.import_module("polyattn_papers.reproduction.reproduce")

N_CELLS = 4


def squares(settings):
    return [{"square": settings["number"] ** 2, "note": None}]


def draw(rows):
    figure = new_figure()
    axes = figure.subplots()
    axes.plot([row["number"] for row in rows], [row["square"] for row in rows], color=OURS)
    return figure


def experiment(run=squares, **changes):
    """Squares of the numbers 0, 1, 2, 3: an experiment with a known answer."""
    largest = (N_CELLS - 1) ** 2
    parts = {
        "name": "squares",
        "title": "Squares <b>& more",
        "claim": "Squares grow.",
        "reference": "[nobody: figure 0]",
        "cells": lambda profile: [
            {"number": n, "kind": profile} for n in range(N_CELLS if profile == "smoke" else 6)
        ],
        "run": run,
        "findings": lambda rows: [f"The last is {rows[-1]['square']}."],
        "gates": lambda rows: [
            Gate("the largest is right", rows[-1]["square"] == largest, str(rows[-1]["square"]))
        ],
        "draw": draw,
    }
    return Experiment(**(parts | changes))


@pytest.fixture
def register(monkeypatch):
    """Give an experiment a name for one test."""

    def add(made):
        module = types.ModuleType("registered_experiment")
        module.EXPERIMENT = made
        monkeypatch.setitem(sys.modules, "registered_experiment", module)
        monkeypatch.setitem(PACKAGES, made.name, "registered_experiment")
        return made

    return add


def test_everything_is_written(register, tmp_path):
    register(experiment())
    made = reproduce("squares", tmp_path)
    folder = tmp_path / "squares"
    assert made.passed
    assert {path.name for path in folder.iterdir()} == {
        "cells", "figure.png", "figure.svg", "index.html", "table.csv", "table.json",
    }  # fmt: skip
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["square"] for row in rows] == ["0", "1", "4", "9"]
    content = json.loads((folder / "table.json").read_text())
    assert content["rows"][2] == {"number": 2, "kind": "smoke", "square": 4, "note": None}
    assert content["gates"] == [{"claim": "the largest is right", "passed": True, "seen": "9"}]
    assert content["surroundings"]["numpy"]
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_pages_hold_the_claim_the_findings_and_the_gates(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    page = (tmp_path / "squares" / "index.html").read_text()
    for part in ("Squares grow.", "The last is 9.", "the largest is right", "holds", "<svg"):
        assert part in page
    assert "Squares &lt;b&gt;&amp; more" in page
    assert "<b>&" not in page
    index = (tmp_path / "index.html").read_text()
    assert 'href="squares/index.html"' in index
    assert "1 of 1 hold" in index


def test_finished_cells_are_not_run_again(register, tmp_path):
    seen = []

    def once(settings):
        seen.append(settings["number"])
        if settings["number"] == 2 and len(seen) == 3:
            raise KeyboardInterrupt
        return squares(settings)

    register(experiment(once))
    with pytest.raises(KeyboardInterrupt):
        reproduce("squares", tmp_path)
    steps = []
    made = reproduce("squares", tmp_path, on_cell=lambda *step: steps.append(step))
    assert seen == [0, 1, 2, 2, 3]
    assert made.passed
    assert [step[:2] for step in steps] == [(2, 4), (3, 4), (4, 4)]
    assert steps[-1][2] == "number 3, kind smoke"
    reproduce("squares", tmp_path)
    assert len(seen) == 5
    reproduce("squares", tmp_path, fresh=True)
    assert len(seen) == 9


def test_time_of_cells_is_kept_when_they_are_not_run_again(register, tmp_path):
    register(experiment())
    first = reproduce("squares", tmp_path)
    assert reproduce("squares", tmp_path).seconds == first.seconds > 0


def test_date_and_versions_are_those_of_the_cells(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    changed = sorted((tmp_path / "squares" / "cells").iterdir())[0]
    content = json.loads(changed.read_text())
    content["surroundings"] |= {"date": "2020-02-03", "numpy": "1.0"}
    del content["digest"]
    changed.write_text(json.dumps(with_digest(content)))
    made = reproduce("squares", tmp_path)
    assert made.surroundings["date"].startswith("2020-02-03 to 20")
    assert made.surroundings["numpy"].startswith("1.0, ")
    assert made.surroundings["scipy"] == content["surroundings"]["scipy"]


def test_the_index_knows_its_own(register, tmp_path):
    register(experiment())
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "table.json").write_text('{"rows": []}')
    reproduce("squares", tmp_path)
    assert "elsewhere" not in (tmp_path / "index.html").read_text()
    (other / "table.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"elsewhere.*damaged"):
        reproduce("squares", tmp_path)


def test_a_new_revision_runs_all_cells_again(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    register(experiment(lambda _: [{"square": -1, "note": ""}], revision=2))
    assert not reproduce("squares", tmp_path).passed


def test_profiles_do_not_mix(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path, profile="full")
    made = reproduce("squares", tmp_path, profile="smoke")
    assert len(made.rows) == N_CELLS


def test_a_damaged_cell_is_named(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    cell = next((tmp_path / "squares" / "cells").iterdir())
    cell.write_text(cell.read_text()[:-20])
    with pytest.raises(FileFormatError, match=f"{cell.name}.*Remove it"):
        reproduce("squares", tmp_path)


CHANGES = {
    "a digit": lambda text: text.replace('"square": 4', '"square": 5'),
    "a word": lambda text: text.replace('"smoke"', '"small"'),
    "a date": lambda text: text.replace('"date": "2', '"date": "1'),
    "the seconds": lambda text: re.sub(r'"seconds": [-+.e0-9]+', '"seconds": 1.0', text),
    "another name": lambda text: text.replace('"note"', '"memo"'),
    "the digest": lambda text: re.sub('"digest": ".', '"digest": "x', text),
    "no digest": lambda text: re.sub(',\n "digest": "[0-9a-f]*"', "", text),
    "cut": lambda text: text[: len(text) // 2],
    "nothing": lambda _: "",
    "a list": lambda _: "[]",
    "deep": lambda _: "[" * 100_000,
    "rows of nothing": lambda text: re.sub(r'"rows": \[[^]]*\]', '"rows": null', text),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_edited_cell_is_named_and_not_read(register, tmp_path, name):
    register(experiment())
    reproduce("squares", tmp_path)
    cells = (tmp_path / "squares" / "cells").iterdir()
    cell = next(path for path in cells if '"square": 4' in path.read_text())
    good = cell.read_text()
    changed = CHANGES[name](good)
    assert changed != good
    cell.write_text(changed)
    with pytest.raises(FileFormatError, match=f"{cell.name}.*Remove it"):
        reproduce("squares", tmp_path)
    if name == "cut":
        cell.unlink()
        assert reproduce("squares", tmp_path).passed


def test_the_cell_of_other_settings_is_not_read_in_its_place(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    one, other = sorted((tmp_path / "squares" / "cells").iterdir())[:2]
    one.write_bytes(other.read_bytes())
    with pytest.raises(FileFormatError, match=f"{one.name}.*other settings"):
        reproduce("squares", tmp_path)


def test_a_cell_with_its_digest_but_other_rows_is_named_by_its_folder(register, tmp_path):
    register(experiment())
    reproduce("squares", tmp_path)
    for cell in (tmp_path / "squares" / "cells").iterdir():
        content = json.loads(cell.read_text())
        del content["digest"]
        content["rows"] = [{"cube": "x"}]
        cell.write_text(json.dumps(with_digest(content)))
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path)])
    assert isinstance(done.exception, SystemExit), done.exc_info
    assert "--recompute" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"passed": False}, {"gates": None}, {"surroundings": {}}, {"surroundings": []}, {"rows": 3},
        {"seconds": "long"}, {"profile": "huge"}, {"title": 3}, {"findings": ["more"]},
    ],
)  # fmt: skip
def test_a_changed_table_is_named(register, tmp_path, change):
    register(experiment())
    reproduce("squares", tmp_path)
    path = tmp_path / "squares" / "table.json"
    content = json.loads(path.read_text()) | change
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match=r"table\.json.*damaged"):
        write_index(tmp_path)
    other = {name: each for name, each in content.items() if name != "digest"}
    if not isinstance(change.get("passed", change.get("findings")), bool | list):
        path.write_text(json.dumps(with_digest(other)))
        with pytest.raises(FileFormatError, match=rf"table\.json.*{next(iter(change))}"):
            write_index(tmp_path)


def test_rows_with_other_columns_are_refused(register, tmp_path):
    register(experiment(lambda settings: [{f"square{settings['number']}": 0}]))
    with pytest.raises(InvalidInput, match="same columns"):
        reproduce("squares", tmp_path)


def test_a_value_that_is_no_number_is_refused(register, tmp_path):
    register(experiment(lambda _: [{"square": float("nan"), "note": None}]))
    with pytest.raises(ValueError, match="JSON"):
        reproduce("squares", tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_an_experiment(name):
    found = find(name)
    assert found.name == name
    for profile in ("smoke", "full"):
        cells = [tuple(settings.items()) for settings in found.cells(profile)]
        assert len(set(cells)) == len(cells) > 0
        assert len({tuple(key for key, _ in cell) for cell in cells}) == 1
    assert found.claim
    assert found.reference


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_a_folder_with_the_same_five_files(name):
    package = importlib.import_module(PACKAGES[name])
    files = {path.name for path in Path(package.__file__).parent.glob("*.py")}
    assert files >= {"__init__.py", "cells.py", "findings.py", "gates.py", "figure.py"}
    parts = (find(name).title, find(name).claim, find(name).reference)
    assert all(text == " ".join(text.split()) for text in parts)


def test_an_unknown_name_lists_the_names(tmp_path):
    done = CliRunner().invoke(cli, ["reproduce", "figure-9", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert all(name in done.stderr for name in ("figure-9", *NAMES, "all"))


def test_the_verb_prints_gates(register, tmp_path):
    register(experiment())
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.stderr
    assert "the largest is right" in done.stdout
    assert "holds" in done.stdout
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path), "--json"])
    (summary,) = json.loads(done.stdout)["reproductions"]
    assert summary["passed"] is True
    assert "rows" not in summary


def test_a_failing_gate_is_an_error(register, tmp_path):
    register(experiment())
    arguments = ["reproduce", "squares", "--profile", "full", "--out", str(tmp_path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 1
    assert "FAILS" in done.stdout
    assert "gates fail in: squares" in done.stderr
    assert "fails" in (tmp_path / "squares" / "index.html").read_text()


def test_an_interrupted_run_says_how_to_go_on(register, tmp_path):
    def stop(settings):
        if settings["number"] == 1:
            raise KeyboardInterrupt
        return squares(settings)

    register(experiment(stop))
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path)])
    assert done.exit_code == 1
    assert "1 of 4 cells are finished; the same command goes on from there" in done.stderr
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path), "--fresh"])
    assert "the same command without --recompute goes on from there" in done.stderr


def test_the_output_must_be_a_folder(register, tmp_path):
    register(experiment())
    (tmp_path / "file").write_text("taken")
    done = CliRunner().invoke(cli, ["reproduce", "squares", "--out", str(tmp_path / "file")])
    assert done.exit_code == 1
    assert "must be a folder" in done.stderr


def test_a_folder_that_cannot_be_written_to_is_refused(register, monkeypatch):
    """Root may write anywhere, but not make files among those of the system."""

    def never(_):
        raise AssertionError

    register(experiment(never))
    with pytest.raises(InvalidInput, match="cannot be made"):
        reproduce("squares", "/proc")
    monkeypatch.setattr(
        "polyattn_papers.reproduction.finished_cells.Path.mkdir", lambda *_, **__: None
    )
    with pytest.raises(InvalidInput, match="cannot be written to"):
        reproduce("squares", "/proc")


@pytest.mark.parametrize(("package", "extra"), [("matplotlib", "plots"), ("torch", "torch")])
def test_a_missing_package_is_named_before_the_work(
    register, tmp_path, monkeypatch, package, extra
):
    def never(_):
        raise AssertionError

    register(experiment(never, needs_torch=True))
    real = importlib.util.find_spec
    monkeypatch.setattr(
        REPRODUCE, "find_spec", lambda name: None if name == package else real(name)
    )
    with pytest.raises(MissingExtra, match=rf"polyattn\[{extra}\]"):
        reproduce("squares", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"profile": "quick"}, "profile must be one of"), ({"n_jobs": 0}, "n_jobs must be")],
)
def test_wrong_arguments_are_refused(register, tmp_path, arguments, message):
    register(experiment())
    with pytest.raises(InvalidInput, match=message):
        reproduce("squares", tmp_path, **arguments)


def test_a_cell_that_fails_costs_no_other(register, tmp_path, monkeypatch):
    """Two at a time: none is queued behind them, and the one beside the failure is kept."""
    begun, beside, waiting = [], threading.Event(), []

    def run(settings):
        begun.append(settings["number"])
        if settings["number"] == 0:
            assert beside.wait(60)
            raise ArithmeticError("no square")
        beside.set()
        time.sleep(0.2)
        return squares(settings)

    class Threads(ThreadPoolExecutor):
        def __init__(self, n_jobs, mp_context):  # noqa: ARG002 – as processes take it
            super().__init__(n_jobs)
            self.submitted = []

        def submit(self, *work):
            waiting.append(sum(not one.done() for one in self.submitted))
            self.submitted.append(super().submit(*work))
            return self.submitted[-1]

    register(experiment(run))
    monkeypatch.setattr(REPRODUCE, "ProcessPoolExecutor", Threads)
    with pytest.raises(ArithmeticError, match="no square"):
        reproduce("squares", tmp_path, n_jobs=2)
    assert sorted(begun) == [0, 1]
    assert waiting == [0, 1]
    (cell,) = (tmp_path / "squares" / "cells").iterdir()
    assert json.loads(cell.read_text())["settings"]["number"] == 1


def test_cells_run_in_processes_of_their_own(tmp_path):
    """In a fresh interpreter whose children can import the experiment."""
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent("""
            import sys, types, os
            class Module(types.ModuleType):
                @property
                def EXPERIMENT(self):
                    from polyattn_papers.reproduction import Experiment, Gate
                    from polyattn.report.figures import new_figure
                    return Experiment(
                        "pids", "t", "c", "r",
                        lambda profile: [{"number": n} for n in range(4)],
                        lambda settings: [{"pid": os.getpid()}],
                        lambda rows: [], lambda rows: [], lambda rows: new_figure(),
                    )
            sys.modules["pids_module"] = Module("pids_module")
            from polyattn_papers.reproduction.registry import PACKAGES
            PACKAGES["pids"] = "pids_module"
        """)
    )
    code = textwrap.dedent("""
        import os
        from polyattn_papers.reproduction import reproduce
        if __name__ == "__main__":
            made = reproduce("pids", "out", n_jobs=2)
            pids = {row["pid"] for row in made.rows}
            assert os.getpid() not in pids and 1 <= len(pids) <= 2, pids
            print([row["number"] for row in made.rows])
    """)
    (tmp_path / "main.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "main.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[0, 1, 2, 3]"
