"""The full runs under docs/reproduction: present, complete, and read as the code reads them now."""

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from polyattn_papers.reproduction import NAMES, find
from polyattn_papers.reproduction.page import read_table

FOLDER = Path(__file__).parent.parent / "docs" / "reproduction"


@cache
def committed(name):
    table = read_table(FOLDER / name / "table.json")
    assert table is not None
    return table


@pytest.mark.parametrize("name", NAMES)
def test_a_full_run_with_date_and_versions_is_there(name):
    table = committed(name)
    assert table["name"] == name
    assert table["profile"] == "full"
    assert {"date", "python", "polyattn", "numpy", "scipy", "torch"} <= set(table["surroundings"])
    assert {path.name for path in (FOLDER / name).iterdir()} >= {
        "table.csv", "table.json", "figure.png", "figure.svg",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_of_the_full_profile_was_run(name):
    rows = committed(name)["rows"]
    cells = find(name).cells("full")
    seen = {json.dumps({key: row[key] for key in cells[0]}, sort_keys=True) for row in rows}
    assert seen == {json.dumps(cell, sort_keys=True) for cell in cells}
    with (FOLDER / name / "table.csv").open(encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_gates_and_sentences_are_those_of_its_rows(name):
    table, experiment = committed(name), find(name)
    gates = experiment.gates(table["rows"])
    assert [(one.claim, one.seen, one.passed) for one in gates] == [
        (one["claim"], one["seen"], one["passed"]) for one in table["gates"]
    ]
    assert all(gate.passed for gate in gates)
    assert list(experiment.findings(table["rows"])) == table["findings"]
