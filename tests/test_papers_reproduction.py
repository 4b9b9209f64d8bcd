"""Running experiments: cells that go on where they were, tables, pages, and what is refused."""

import json
import re
import sys
import types
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from oracle import parsed, printed, refused
from polyattn.errors import FileFormatError, InvalidInput, MissingExtra
from polyattn_papers.reproduction import NAMES, Experiment, Gate, reproduce
from polyattn_papers.reproduction.registry import PACKAGES


def squares(settings):
    return [{"square": settings["number"] ** 2, "note": None}]


def draw(rows):
    figure = Figure()
    figure.subplots().plot([row["square"] for row in rows])
    return figure


@pytest.fixture
def register(monkeypatch):
    """Give an experiment a name for one test: squares of 0 to 3, where the largest is to be 9."""

    def add(run=squares, **changes):
        parts = {
            "name": "squares",
            "title": "Squares <b>& more",
            "claim": "Squares grow.",
            "reference": "[nobody: figure 0]",
            "cells": lambda profile: [
                {"number": n, "kind": profile} for n in range(4 if profile == "smoke" else 6)
            ],
            "run": run,
            "findings": lambda rows: [f"The last is {rows[-1]['square']}."],
            "gates": lambda rows: [
                Gate("the largest is 9", rows[-1]["square"] == 9, str(rows[-1]["square"]))
            ],
            "draw": draw,
        }
        module = types.SimpleNamespace(EXPERIMENT=Experiment(**(parts | changes)))
        monkeypatch.setitem(sys.modules, "registered_experiment", module)
        monkeypatch.setitem(PACKAGES, module.EXPERIMENT.name, "registered_experiment")

    return add


def test_table_picture_page_and_index_are_written(register, tmp_path):
    register()
    made, folder = reproduce("squares", tmp_path), tmp_path / "squares"
    assert made.passed
    content = json.loads((folder / "table.json").read_text())
    assert content["rows"][2] == {"number": 2, "kind": "smoke", "square": 4, "note": None}
    assert content["gates"] == [{"claim": "the largest is 9", "passed": True, "seen": "9"}]
    assert (folder / "table.csv").read_text().splitlines()[3] == "2,smoke,4,"
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    page, index = (folder / "index.html").read_text(), (tmp_path / "index.html").read_text()
    for part in ("Squares grow.", "The last is 9.", "the largest is 9", "<svg", "&lt;b&gt;"):
        assert part in page
    assert "<b>&" not in page
    assert 'href="squares/index.html"' in index
    assert "1 of 1 hold" in index
    # Cells that are not run again keep their time and their date.
    again = reproduce("squares", tmp_path)
    assert again.seconds == made.seconds > 0
    assert again.to_dict() == made.to_dict()


def test_finished_cells_are_not_run_again(register, tmp_path):
    seen, steps = [], []

    def once(settings):
        seen.append(settings["number"])
        if seen == [0, 1, 2]:
            raise KeyboardInterrupt
        return squares(settings)

    register(once)
    with pytest.raises(KeyboardInterrupt):
        reproduce("squares", tmp_path)
    assert reproduce("squares", tmp_path, on_cell=lambda *step: steps.append(step)).passed
    assert seen == [0, 1, 2, 2, 3]
    assert [step[:2] for step in steps] == [(2, 4), (3, 4), (4, 4)]
    assert steps[-1][2] == "number 3, kind smoke"
    assert len(reproduce("squares", tmp_path, "full").rows) == 6  # profiles do not mix
    assert len(reproduce("squares", tmp_path, fresh=True).rows) == 4
    assert len(seen) == 5 + 6 + 4
    register(lambda _: [{"square": -1, "note": ""}], revision=2)
    assert not reproduce("squares", tmp_path).passed


def test_cells_and_tables_that_were_changed_are_named_and_not_read(register, tmp_path):
    register()
    reproduce("squares", tmp_path)
    cells = sorted((tmp_path / "squares" / "cells").iterdir())
    cell = next(path for path in cells if '"square": 4' in path.read_text())
    good = cell.read_text()
    for change in (
        good.replace('"square": 4', '"square": 5'),
        re.sub(r',\s*"digest": "[0-9a-f]*"', "", good),
        good[: len(good) // 2],
        next(path for path in cells if path != cell).read_text(),  # of other settings
    ):
        assert change != good
        cell.write_text(change)
        with pytest.raises(FileFormatError, match=cell.name):
            reproduce("squares", tmp_path)
    cell.unlink()
    assert reproduce("squares", tmp_path).passed
    register(name="cubes")
    reproduce("cubes", tmp_path)
    assert "squares" in (tmp_path / "index.html").read_text()
    table = tmp_path / "squares" / "table.json"
    good = json.loads(table.read_text())
    for change in ({"passed": False}, {"gates": None}, {"rows": 3}):
        table.write_text(json.dumps(good | change))
        with pytest.raises(FileFormatError, match=r"squares.table\.json"):
            reproduce("cubes", tmp_path)


def test_what_cannot_be_run_is_refused_before_the_work(register, tmp_path, monkeypatch):
    register(lambda _: pytest.fail("was run"), needs_torch=True)
    (tmp_path / "file").write_text("taken")
    for arguments, word in (
        (("squares", tmp_path, "quick"), "profile"), (("circles", tmp_path), "circles"),
        (("squares", tmp_path, "smoke", False, 0), "n_jobs"),
        (("squares", tmp_path / "file"), "file"), (("squares", "/proc"), "/proc"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=word):
            reproduce(*arguments)
    for package, extra in (("matplotlib", "plots"), ("torch", "torch")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingExtra, match=rf"\[{extra}\]"):
                reproduce("squares", tmp_path)
    register(lambda settings: [{f"square{settings['number']}": 0}])
    with pytest.raises(InvalidInput, match="columns"):
        reproduce("squares", tmp_path)


def test_the_verb_prints_gates_and_fails_where_one_fails(register, run):
    register()
    arguments = ("reproduce", "squares", "--out", "made")
    printed(run(*arguments), "the largest is 9", "holds")
    (summary,) = parsed(run(*arguments, "--json"))["reproductions"]
    assert summary["passed"] is True
    failed = run(*arguments, "--profile", "full")
    assert failed.exit_code == 1
    assert "FAILS" in failed.stdout
    assert "squares" in failed.stderr
    assert "fails" in Path("made/squares/index.html").read_text()
    refused(run("reproduce", "figure-9"), "figure-9", *NAMES, "all")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_holds_in_its_small_profile(name, run):
    jobs = 2 if name == "chen2024-lower" else 1  # in processes of their own
    options = ("--out", "made", "--jobs", jobs, "--json")
    (made,) = parsed(run("reproduce", name, *options))["reproductions"]
    assert made["passed"]
    for file in ("table.csv", "table.json", "figure.png", "figure.svg", "index.html"):
        assert Path("made", name, file).stat().st_size > 100
