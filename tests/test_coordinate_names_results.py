"""Names of coordinates in fits, pages and on the command line; slips among targets of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polyattn as pa
from command_endings import parsed, refused
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.records import read_record, write_record
from polyattn.report.plots import make_plot
from polyattn.report.write_report import make_page
from test_coordinate_names import ANOTHER_ORDER, NAMES, TURNED, table, taken

PLACES = ("--sequence", "run", "--order", "time")
RIGHT, WRONG = ("--tokens", ",".join(NAMES)), ("--tokens", ",".join(TURNED))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    table().to_parquet("data.parquet")
    return "data.parquet"


# --- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_fits_know_the_names_of_their_data(loss: str, tmp_path: Path) -> None:
    X, y = taken(table(), targets="state" if loss == "logistic" else "value")
    Y, turned = (y == "worn").astype(int) if loss == "logistic" else y, taken(table(), TURNED).X
    ridge = 1.0 if loss == "logistic" else 0.0
    found = pa.fit(X, Y, loss=loss, ridge=ridge)
    path = tmp_path / "fit.safetensors"
    pa.save(found, path)
    for result in (found, pa.load(path)):
        assert result.coordinate_names == NAMES
        assert result.to_dict()["coordinate_names"] == list(NAMES)
        assert "'pressure', 'flow', 'speed'" in str(result)
        with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
            result.predict(turned)
        np.testing.assert_array_equal(result.predict(X), result.predict(list(X)))
    assert pa.fit(list(X), Y, loss=loss, ridge=ridge).coordinate_names is None


def test_audits_and_generalisation_look_at_names() -> None:
    X, Y = taken(table(), targets="value")
    turned, result = taken(table(), TURNED).X, pa.fit(X, Y)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        pa.audit(result, turned, Y)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        result.generalisation(0.9, turned, Y)
    assert pa.audit(result, X, Y).risk == pytest.approx(pa.audit(result, list(X), Y).risk)


def test_files_of_fits_without_names_load_and_damaged_names_are_refused(tmp_path: Path) -> None:
    X, Y = taken(table(), targets="value")
    path = tmp_path / "fit.safetensors"
    pa.save(pa.fit(X, Y), path)
    record = read_record(path)
    record.metadata["coordinate_names"] = ["a"]
    write_record(record, path)
    with pytest.raises(FileFormatError, match="coordinate_names"):
        pa.load(path)
    del record.metadata["coordinate_names"]
    write_record(record, path)
    assert pa.load(path).coordinate_names is None


def tick_labels(thing: Any, **names: Any) -> set[str]:
    """What stands at the axes of its plot."""
    return {
        each.get_text() for ax in make_plot(thing, **names).axes for each in ax.get_xticklabels()
    }


def test_pages_and_plots_call_coordinates_as_their_columns() -> None:
    X, y = taken(table(), targets="value")
    result, model = pa.fit(X, y), pa.LinearAttentionRegressor().fit(X, y)
    for thing in (result, model):
        assert set(NAMES) <= tick_labels(thing)
        with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
            make_page(thing, taken(table(), TURNED).X, y)
    assert "u" in tick_labels(result, coordinate_names=["u", "v", "w"])
    assert any("pressure" in str(section.body) for section in make_page(model).sections)
    assert not set(NAMES) & tick_labels(pa.fit(list(X), y))


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--targets", "value"),
        ("--targets", "value", "--scale"),
        ("--targets", "state", "--classify"),
        ("--targets", "state", "--classify", "--impute", "linear", "--scale"),
    ],
    ids=" ".join,
)
def test_predict_refuses_columns_in_another_order(run: Any, data: str, options: Any) -> None:
    assert run("fit", data, *PLACES, *RIGHT, *options, "-o", "m.safetensors").exit_code == 0
    words = ("'flow', 'pressure', 'speed'", "'pressure', 'flow', 'speed'", "in another order")
    refused(run("predict", "m.safetensors", data, *PLACES, *WRONG, "-o", "p.csv"), *words)
    assert not Path("p.csv").exists()
    assert run("predict", "m.safetensors", data, *PLACES, *RIGHT, "-o", "p.csv").exit_code == 0
    shown = parsed(run("show", "m.safetensors", "--json"))
    assert shown["coordinate_names"] == list(NAMES)
    assert "'pressure', 'flow', 'speed'" in run("show", "m.safetensors").stdout
    refused(run("report", "m.safetensors", data, *PLACES, *WRONG, *options[:2], "-o", "p.html"),
            *words)  # fmt: skip


def test_arrays_without_names_are_predicted(run: Any, data: str) -> None:
    columns = (*PLACES, *RIGHT, "--targets", "value")
    assert run("fit", data, *columns, "-o", "m.safetensors").exit_code == 0
    np.savez("data.npz", X=np.stack(list(taken(table()).X)))
    assert run("predict", "m.safetensors", "data.npz", "-o", "p.npy").exit_code == 0
    expected = pa.load("m.safetensors").predict(taken(table()).X)
    np.testing.assert_allclose(np.load("p.npy"), expected)


# --- tables with slips, and their parts ----------------------------------------------------------


@pytest.mark.parametrize("slip", ["text", "number"])
def test_a_slip_in_one_row_does_not_make_targets_of_tokens(slip: str) -> None:
    frame = table()
    name = "state" if slip == "text" else "value"
    right, other = frame.loc[7, name], "worn " if slip == "text" else 99.0
    frame.loc[7, name] = other
    words = rf"sequence 1: the target '{name}' is \[.*{str(right)[:5]}.*{other}.*1 of 40 sequences"
    with pytest.raises(InvalidInput, match=words + ".*target_per='token'"):
        taken(frame, targets=name)
    places = {"sequence": "run", "order": "time", "tokens": list(NAMES), "targets": name}
    assert pa.from_long(frame, **places, target_per="token").Y[1][2] == other
    assert pa.from_long(frame, **places, target_per="last").Y[1] == right
    with pytest.raises(InvalidInput, match="must be the same in all rows"):
        pa.from_long(frame, **places, target_per="sequence")


def test_targets_that_change_in_most_sequences_are_those_of_tokens() -> None:
    frame = table(n=5)
    frame["value"] = np.where(frame["run"] < 3, frame["time"], 0)
    assert taken(frame, targets="value").target_per == "token"
    frame["value"] = np.where(frame["run"] < 2, frame["time"], 0)
    with pytest.raises(InvalidInput, match="changes within 2 of 5 sequences"):
        taken(frame, targets="value")
    # A sequence of one row says nothing of it.
    short = frame[(frame["run"] < 2) | (frame["time"] == 0)]
    assert taken(short, targets="value").target_per == "token"


def test_long_data_is_a_pair() -> None:
    data: Any = taken(table(), targets="value")
    assert data[0] is data.X
    assert data[1] is data.Y
    assert data[-1] is data.Y
    assert data[np.int64(0)] is data.X
    with pytest.raises(IndexError, match=r"data\[0\] is X and data\[1\] is Y; got data\[2\]"):
        data[2]
    with pytest.raises(InvalidType, match=r"got data\['X'\]"):
        data["X"]
