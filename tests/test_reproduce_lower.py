"""The experiment on lower bounds: its rows, its words, and that each gate can fail."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from polyattn.softmax import statistical_query_bound
from polyattn_papers.chen2024.lower_bounds.findings import exponent, growths
from polyattn_papers.reproduction import find

NAME = "chen2024-lower"


@pytest.fixture(scope="module")
def rows():
    """The small profile without what takes time."""
    experiment = find(NAME)
    cells = [
        cell
        for cell in experiment.cells("smoke")
        if cell["part"] != "attack" or cell["n_dims"] == 16
    ]
    return [cell | row for cell in cells for row in experiment.run(cell)]


def holding(rows):
    return [gate.passed for gate in find(NAME).gates(rows)]


def doctored(rows, which, change):
    """A copy in which the rows of a kind are not what they were."""
    found = [row | change if which(row) else row for row in rows]
    assert found != rows
    return found


def test_rows_are_plain_and_alike(rows):
    assert len({tuple(row) for row in rows}) == 1
    plain = (bool, int, float, str, type(None))
    assert all(isinstance(value, plain) for row in rows for value in row.values())
    assert {row["method"] for row in rows} == {
        "correlational", "row_sign", "all_signs", "learner", "halves", "all_sets", "transform",
        "elimination",
    }  # fmt: skip


def test_gates_hold_and_findings_say_the_figures_of_the_rows(rows):
    assert all(holding(rows))
    text = " ".join(find(NAME).findings(rows))
    needed = statistical_query_bound(64, 5, 0.1, queries="row_sign").n_queries
    assert f"{needed:,} for s = 5" in text
    assert "Small sizes are not bound" in text
    assert "theorem" in text
    assert "nan" not in text


@pytest.mark.parametrize(
    ("gate", "which", "change"),
    [
        (0, lambda row: (row["method"], row["n_dims"]) == ("row_sign", 256), {"n_queries": 5000}),
        (1, lambda row: row["n_excluded"] is not None, {"n_excluded": 99}),
        (1, lambda row: row["n_excluded"] is not None, {"n_excluded": 0}),
        (2, lambda row: row["method"] == "learner", {"n_learned": 99}),
        (2, lambda row: row["n_asked"] == row["n_members"], {"n_learned": 0}),
        (2, lambda row: row["method"] == "learner", {"n_learned": 5, "n_members": 5}),
        (3, lambda row: row["part"] == "reduction", {"found": False}),
        (4, lambda row: row["method"] == "all_sets", {"found": False}),
        (5, lambda row: row["method"] == "halves", {"work": 1000}),
        (6, lambda row: (row["method"], row["n_heads"]) == ("halves", 7), {"work": 10**7}),
        (7, lambda row: (row["method"], row["n_heads"]) == ("elimination", 7), {"work": 10**6}),
    ],
)
def test_gates_fail_on_doctored_rows(gate, which, change, rows):
    assert not holding(doctored(rows, which, change))[gate]


def test_gates_do_not_hold_on_nothing(rows):
    """Nor on rows without noise alone, which say nothing about noisy ones."""
    assert not any(holding([]))
    clean = [row for row in rows if row["method"] == "elimination"]
    assert holding(clean) == [False, False, False, False, True, False, False, True]


def test_growth_is_fitted_as_planted():
    base = {"part": "attack", "n_dims": 32, "noise": 0.1, "method": "halves"}
    rows = [base | {"n_heads": s, "work": 5 * 2**s} for s in (3, 5, 7)]
    (found,) = growths(rows)
    assert found.bits == pytest.approx(1.0)
    assert found.expected == pytest.approx(1.152, abs=1e-3)
    bounds = [
        {"part": "bound", "beta": None, "n_heads": 3, "method": "row_sign", "n_dims": d}
        | {"n_queries": d**4}
        for d in (8, 64, 128)
    ]
    assert exponent(bounds, 3, "row_sign") == pytest.approx(4.0)
    assert np.isnan(exponent(bounds[:2], 3, "row_sign"))
