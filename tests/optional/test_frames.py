"""What other packages for time series hold, as sequences: their own data, in their own layouts."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.sequences import as_batch


def test_arrays_of_aeon_are_channels_first():
    load = pytest.importorskip("aeon.datasets").load_basic_motions
    X, y = load(split="train")
    batch = pa.SequenceBatch.from_array(X, layout="channels_first")
    assert "40 sequences, 100 tokens of 6 coordinates" in str(batch)
    options = {"ridge": 1.0, "form": pa.Form(skip=True, intercept=True)}
    model = pa.LinearAttentionClassifier(layout="channels_first", **options).fit(X, y)
    plain = pa.LinearAttentionClassifier(**options).fit(X.transpose(0, 2, 1), y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(batch))
    assert model.n_features_in_ == 6


def test_ragged_lists_of_aeon():
    load = pytest.importorskip("aeon.datasets").load_japanese_vowels
    X, _ = load(split="train")
    batch = pa.SequenceBatch.from_sequences(X, layout="channels_first")
    assert (len(batch), batch.n_dims, batch.lengths.max()) == (270, 12, 26)
    np.testing.assert_array_equal(batch[3], X[3].T)


def test_frames_of_sktime_with_their_index():
    load = pytest.importorskip("sktime.datasets").load_basic_motions
    frame, y = load(split="train", return_type="pd-multiindex")
    cube, _ = load(split="train", return_type="numpy3D")
    expected = pa.SequenceBatch.from_array(cube, layout="channels_first")
    for batch in (as_batch(frame), pa.from_long(frame).X):
        np.testing.assert_array_equal(batch.values, expected.values)
        np.testing.assert_array_equal(batch.offsets, expected.offsets)
    model = pa.LinearAttentionClassifier(ridge=1.0, bias=False)
    np.testing.assert_array_equal(
        model.fit(frame, y).predict(frame), model.fit(expected, y).predict(expected)
    )


def test_padding_of_tslearn():
    utils = pytest.importorskip("tslearn.utils")
    series = [np.arange(1.0, 4.0), np.arange(5.0, 7.0), np.arange(8.0, 12.0)]
    padded = utils.to_time_series_dataset(series)
    assert np.isnan(padded).any()
    batch = pa.SequenceBatch.from_padded(padded)
    np.testing.assert_array_equal(batch.lengths, [3, 2, 4])
    np.testing.assert_array_equal(batch.values[:, 0], np.concatenate(series))


def test_frames_of_polars_and_duckdb():
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.DataFrame({"who": [2, 1, 2], "t": [1, 0, 0], "x": [3.0, 1.0, 2.0]})
    relation = duckdb.from_arrow(frame.to_arrow())
    for given in (frame, relation):
        data = pa.from_long(given, sequence="who", order="t", tokens="x")
        np.testing.assert_array_equal(data.X.values[:, 0], [1, 2, 3])
