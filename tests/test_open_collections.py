"""scan takes what Dask computes: the answers are those of the same sequences in memory."""

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput

TASK = pa.data.planted(60, 4, 3, mode="last", noise=0.1, random_state=0)
WEIGHTS = np.arange(60) % 3 + 0.5


def frame_of(X, Y):
    frame = pd.DataFrame(X.reshape(-1, 3), columns=["a", "b", "c"])
    frame["id"], frame["t"] = np.repeat(np.arange(len(X)), 4), np.tile(np.arange(4), len(X))
    frame[["y0", "y1", "y2"]] = np.repeat(Y, 4, axis=0)
    return frame


COLUMNS = {"sequence": "id", "order": "t", "tokens": ["a", "b", "c"]}


def test_arrays_of_dask():
    X, Y = dask.array.from_array(TASK.X, chunks=(17, 2, 3)), dask.array.from_array(TASK.Y)
    weights = dask.array.from_array(WEIGHTS)
    source = pa.scan(X, Y, weights)
    assert len(source.chunks) == 4
    expected = pa.fit(TASK.X, TASK.Y, sample_weight=WEIGHTS)
    assert np.allclose(pa.fit(source).coef, expected.coef, atol=1e-10)
    assert pa.certify(pa.scan(X)).digest == pa.certify(TASK.X).digest


def test_frames_of_dask():
    frame = dask.dataframe.from_pandas(frame_of(TASK.X, TASK.Y), npartitions=7)
    source = pa.scan(frame, **COLUMNS, targets=["y0", "y1", "y2"])
    assert np.allclose(pa.fit(source).coef, pa.fit(TASK.X, TASK.Y).coef, atol=1e-10)


def test_delayed_pairs():
    halves = [dask.delayed((TASK.X[part], TASK.Y[part])) for part in (slice(0, 20), slice(20, 60))]
    expected = pa.fit(TASK.X, TASK.Y).coef
    assert np.allclose(pa.fit(pa.scan(halves)).coef, expected, atol=1e-10)
    whole = dask.delayed((TASK.X, TASK.Y))
    assert np.allclose(pa.fit(pa.scan(whole)).coef, expected, atol=1e-10)
    pairs = [(dask.delayed(TASK.X), dask.delayed(TASK.Y))]
    assert np.allclose(pa.fit(pa.scan(pairs)).coef, expected, atol=1e-10)


def test_what_does_not_belong_to_a_collection_is_refused():
    X = dask.array.from_array(TASK.X)
    frame = dask.dataframe.from_pandas(frame_of(TASK.X, TASK.Y), npartitions=2)
    for data, given, words in (
        (X, {"tokens": ["a"]}, "leave out tokens"),
        (X, {"context": TASK.X}, "leave out context"),
        (frame, {**COLUMNS, "Y": TASK.Y}, "leave out Y"),
        (frame, {"tokens": ["a"]}, "sequence"),
        (frame, {"sequence": "id"}, "tokens"),
        ([dask.delayed((TASK.X, TASK.Y))], {"Y": TASK.Y}, "leave out Y"),
    ):
        with pytest.raises(InvalidInput, match=words):
            pa.scan(data, **given)
