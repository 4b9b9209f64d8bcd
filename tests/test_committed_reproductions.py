"""The full runs under docs/reproduction: present, complete, and read as the code reads them now."""

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from polyattn_papers.reproduction import NAMES, find
from polyattn_papers.reproduction.result import read_table

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
def test_the_rows_are_there_as_a_spreadsheet_reads_them(name):
    rows = committed(name)["rows"]
    with (FOLDER / name / "table.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(rows)
    assert list(table[0]) == list(rows[0])


@pytest.mark.parametrize("name", NAMES)
def test_its_rows_pass_the_gates_of_today(name):
    """Rows and gates are compared; the sentences about them may be written anew."""
    table, experiment = committed(name), find(name)
    assert stale(table, experiment) == []
    said = experiment.findings(table["rows"])
    assert said
    assert all("nan" not in sentence.split() for sentence in said)


def test_other_rows_make_a_table_stale_and_other_words_do_not():
    table, experiment = committed("yau2024-utm"), find("yau2024-utm")
    gates = [gate | {"claim": "in other words", "seen": "and so on"} for gate in table["gates"]]
    assert stale(table | {"findings": [], "claim": "", "gates": gates}, experiment) == []
    wrong = [row | {"exact": False} for row in table["rows"]]
    assert "gates" in " ".join(stale(table | {"rows": wrong}, experiment))
    assert "gates" in " ".join(stale(table | {"gates": gates[1:]}, experiment))
    assert "cells" in " ".join(stale(table | {"rows": table["rows"][1:]}, experiment))


def stale(table, experiment):
    """Why a stored table is no longer what its experiment would write of the same rows."""
    found = []
    rows, cells = table["rows"], experiment.cells("full")
    names = list(cells[0])
    seen = {json.dumps({key: row[key] for key in names}, sort_keys=True) for row in rows}
    if seen != {json.dumps(cell, sort_keys=True) for cell in cells}:
        found.append("its cells are not those of the full profile")
    gates = [gate.passed for gate in experiment.gates(rows)]
    if gates != [gate["passed"] for gate in table["gates"]] or not all(gates):
        found.append(f"its gates: {gates}")
    return found
