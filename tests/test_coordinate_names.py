"""Names of coordinates go with sequences: other columns, and another order, are refused."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import polyattn as pa
from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.files.records import read_record, write_record
from polyattn.sources.collected import collected

NAMES = ("pressure", "flow", "speed")
TURNED = ("flow", "pressure", "speed")
ANOTHER_ORDER = r"'flow', 'pressure', 'speed', and those that were fitted 'pressure', 'flow'.*order"


def table(n: int = 40, t: int = 5, seed: int = 0) -> pd.DataFrame:
    """Sequences of three coordinates in very different units, with a number and a label."""
    rng = np.random.default_rng(seed)
    tokens = rng.standard_normal((n, t, 3)) * [1.0, 20.0, 0.1] + [5.0, -3.0, 0.0]
    value = tokens[:, -1, 0] + tokens[:, :, 1].mean(axis=1)
    frame = pd.DataFrame(tokens.reshape(-1, 3), columns=list(NAMES))
    frame["run"], frame["time"] = np.repeat(np.arange(n), t), np.tile(np.arange(t), n)
    frame["value"] = np.repeat(value, t)
    frame["state"] = np.repeat(np.where(value > np.median(value), "worn", "new"), t)
    return frame


def taken(frame: pd.DataFrame, names: tuple[str, ...] = NAMES, targets: Any = None) -> pa.LongData:
    return pa.from_long(
        frame, sequence="run", order="time", tokens=list(names), targets=targets, missing="keep"
    )


def indexed(frame: pd.DataFrame, names: tuple[str, ...] = NAMES) -> pd.DataFrame:
    return frame.set_index(["run", "time"])[list(names)]


def models() -> list[Any]:
    """One of each estimator and transformer that sees names, and pipelines of them."""
    return [
        pa.LinearAttentionRegressor(),
        pa.LinearAttentionRegressor(solver="direct"),
        pa.SequenceScaler(),
        pa.SequenceImputer(add_indicator=True),
        make_pipeline(pa.SequenceImputer(), pa.SequenceScaler(), pa.LinearAttentionRegressor()),
        make_pipeline("passthrough", pa.SequenceScaler(), pa.LinearAttentionClassifier()),
    ]


def targets_of(model: Any, frame: pd.DataFrame) -> Any:
    last = model.steps[-1][1] if hasattr(model, "steps") else model
    of_classes = isinstance(last, pa.LinearAttentionClassifier)
    return taken(frame, targets="state" if of_classes else "value").Y


def applied(model: Any, X: Any) -> Any:
    return model.predict(X) if hasattr(model, "predict") else model.transform(X)


# --- batches -------------------------------------------------------------------------------------


def test_names_travel_with_batches_and_their_parts() -> None:
    X = taken(table()).X
    assert X.coordinate_names == NAMES
    assert X[3:9].coordinate_names == NAMES
    assert X.part(0, 2).coordinate_names == NAMES
    assert X.chosen(np.array([4, 0])).coordinate_names == NAMES
    assert pa.SequenceBatch.from_sequences(list(X)).coordinate_names is None
    assert X.named(["a", "b", "c"]).coordinate_names == ("a", "b", "c")
    assert X.named(None).coordinate_names is None
    assert X.coordinate_names == NAMES


def test_columns_that_are_called_by_numbers_have_names_too() -> None:
    frame = table().rename(columns=dict(zip(NAMES, count())))
    X = pa.from_long(frame, sequence="run", order="time", tokens=[1, 0, 2]).X
    assert X.coordinate_names == ("1", "0", "2")


@pytest.mark.parametrize(
    ("names", "error", "words"),
    [
        (["a"], InvalidInput, "coordinate_names must be 2 texts.*got 1"),
        ("ab", InvalidType, "coordinate_names must be a list of texts.*'ab'"),
        ([1, 2], InvalidType, "coordinate_names must be a list of texts.*1, 2"),
        (3, InvalidType, "coordinate_names must be a list of texts.*3"),
    ],
)
def test_names_that_are_none_are_refused(names: Any, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        pa.SequenceBatch(np.ones((3, 2)), [0, 3], coordinate_names=names)
    with pytest.raises(error, match=words):
        pa.SequenceBatch(np.ones((3, 2)), [0, 3]).named(names)


def test_sources_know_the_names_of_their_columns(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "table.parquet")
    columns = {"sequence": "run", "order": "time", "tokens": list(NAMES), "targets": "value"}
    source = pa.scan(str(tmp_path / "table.parquet"), **columns)
    assert source.coordinate_names == NAMES
    assert source.chunks[0].read("last").batch.coordinate_names == NAMES
    assert collected(source, "last").batch.coordinate_names == NAMES
    scaled = pa.SequenceScaler().fit(source).transform(source)
    assert scaled.coordinate_names == NAMES
    assert scaled.chunks[0].read("last").batch.coordinate_names == NAMES
    assert pa.scan(taken(table()).X).coordinate_names == NAMES


def test_parts_of_a_stream_with_other_names_are_refused() -> None:
    X, turned = taken(table()).X, taken(table(), TURNED).X
    assert pa.scan([(X, np.zeros(40)), (list(X), np.ones(40))]).coordinate_names == NAMES
    with pytest.raises(InvalidInput, match=r"in one part of the data.*in another"):
        pa.scan([(X, np.zeros(40)), (turned, np.ones(40))])


# --- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("model", models(), ids=str)
def test_another_order_of_columns_is_refused(model: Any) -> None:
    frame = table()
    X, y = taken(frame).X, targets_of(model, frame)
    model = clone(model).fit(X, y)
    first = model.steps[0][1] if hasattr(model, "steps") else model
    if not isinstance(first, str):
        assert first.feature_names_in_.tolist() == list(NAMES)
        assert first.feature_names_in_.dtype == object
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        applied(model, taken(frame, TURNED).X)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        applied(model, indexed(frame, TURNED))
    # The same names, and none at all, are taken.
    one, two = applied(model, X), applied(model, list(X))
    np.testing.assert_array_equal(np.asarray(list(one)), np.asarray(list(two)))
    applied(model, indexed(frame))


def test_other_columns_are_named() -> None:
    frame = table().assign(heat=1.0)
    data = taken(frame, targets="value")
    model = pa.LinearAttentionRegressor().fit(data.X, data.Y)
    with pytest.raises(InvalidInput, match=r"not among the latter: \['heat'\]; lacking: \['speed'"):
        model.predict(taken(frame, ("pressure", "flow", "heat")).X)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        model.score(taken(frame, TURNED).X, data.Y)


def test_a_fit_to_nameless_sequences_forgets_names_and_takes_any() -> None:
    data = taken(table(), targets="value")
    model = pa.LinearAttentionRegressor().fit(data.X, data.Y)
    model.fit(list(data.X), data.Y)
    assert not hasattr(model, "feature_names_in_")
    model.predict(taken(table(), TURNED).X)


@pytest.mark.parametrize("make", [pa.LinearAttentionRegressor, pa.SequenceScaler])
def test_streams_remember_the_names_of_their_first_part(make: Any) -> None:
    frame = table()
    X, y = taken(frame, targets="value")
    model = make().partial_fit(X[:20], y[:20])
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        model.partial_fit(taken(frame, TURNED).X[20:], y[20:])
    model.partial_fit(X[20:], y[20:])
    whole = make().fit(X, y)
    assert model.feature_names_in_.tolist() == whole.feature_names_in_.tolist() == list(NAMES)
    for one, two in zip(applied(model, X), applied(whole, X), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_sources_in_another_order_are_refused(tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "table.parquet")
    columns = {"sequence": "run", "order": "time", "targets": "value"}
    path = str(tmp_path / "table.parquet")
    right = pa.scan(path, tokens=list(NAMES), **columns)
    turned = pa.scan(path, tokens=list(TURNED), **columns)
    for model in (pa.LinearAttentionRegressor(), pa.SequenceScaler()):
        for fitted in (clone(model).fit(right), clone(model).partial_fit(right)):
            assert fitted.feature_names_in_.tolist() == list(NAMES)
            with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
                applied(fitted, turned)
            with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
                fitted.partial_fit(turned)


def test_the_softmax_regressor_sees_names() -> None:
    X, y = taken(table(), targets="value")
    model = pa.SoftmaxAttentionRegressor(n_heads=1, mode="last", max_seconds=0.5).fit(X, y)
    assert model.feature_names_in_.tolist() == list(NAMES)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        model.predict(taken(table(), TURNED).X)


def test_indicators_are_named_after_what_was_missing() -> None:
    frame = table()
    frame.loc[3, "flow"] = np.nan
    X = taken(frame).X
    imputer = pa.SequenceImputer(add_indicator=True).fit(X)
    wanted = [*NAMES, "missingindicator_flow"]
    assert imputer.get_feature_names_out().tolist() == wanted
    assert imputer.transform(X).coordinate_names == tuple(wanted)
    assert imputer.get_feature_names_out(NAMES).tolist() == wanted
    with pytest.raises(InvalidInput, match="in input_features"):
        imputer.get_feature_names_out(TURNED)
    nameless = pa.SequenceImputer().fit(list(X))
    assert nameless.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert nameless.transform(X).coordinate_names == NAMES


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", models(), ids=str)
def test_saved_models_still_refuse_another_order(model: Any, tmp_path: Path) -> None:
    frame = table()
    X, y = taken(frame).X, targets_of(model, frame)
    path = tmp_path / "model.safetensors"
    pa.save(clone(model).fit(X, y), path)
    loaded = pa.load(path)
    applied(loaded, X)
    with pytest.raises(InvalidInput, match=ANOTHER_ORDER):
        applied(loaded, taken(frame, TURNED).X)


def test_files_without_names_load_and_take_any(tmp_path: Path) -> None:
    X, y = taken(table(), targets="value")
    path = tmp_path / "model.safetensors"
    pa.save(pa.LinearAttentionRegressor().fit(X, y), path)
    record = read_record(path)
    del record.metadata["feature_names"]
    del record.metadata["fitted"]["result"]["metadata"]["coordinate_names"]
    assert "coordinate_names" not in str(record.metadata)
    write_record(record, path)
    loaded = pa.load(path)
    assert not hasattr(loaded, "feature_names_in_")
    loaded.predict(taken(table(), TURNED).X)


@pytest.mark.parametrize("names", [["a"], "abc", [1, 2, 3], None])
def test_damaged_names_in_a_file_are_refused(names: Any, tmp_path: Path) -> None:
    X = taken(table()).X
    path = tmp_path / "model.safetensors"
    pa.save(pa.SequenceScaler().fit(X), path)
    record = read_record(path)
    record.metadata["feature_names"] = names
    write_record(record, path)
    with pytest.raises(FileFormatError, match="feature_names"):
        pa.load(path)
