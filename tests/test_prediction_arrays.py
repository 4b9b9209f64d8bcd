"""Predictions that come in parts are the arrays that numpy would have written of the whole."""

import errno
import os
import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.errors import InvalidInput
from polyattn.sources.prediction_arrays import write_prediction_arrays
from polyattn.sources.prediction_tables import PredictedPart


def parts_of(rows, lengths, cuts, per_token):
    """The same predictions in parts that end after these sequences."""
    borders = (
        np.concatenate([[0], np.cumsum(lengths)]) if per_token else np.arange(len(lengths) + 1)
    )
    for first, stop in zip([0, *cuts], [*cuts, len(lengths)], strict=True):
        of_tokens = lengths[first:stop] if per_token else None
        yield PredictedPart(rows[borders[first] : borders[stop]], of_tokens)


def read(path):
    content = np.load(path)
    if isinstance(content, np.ndarray):
        return {"Y": content}
    with content:
        return dict(content)


@given(
    lengths=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 6), max_size=3),
    per_token=st.booleans(),
    n_outputs=st.integers(1, 3),
)
def test_parts_are_the_whole(tmp_path_factory, lengths, cuts, per_token, n_outputs):
    lengths = np.array(lengths)
    cuts = sorted(min(cut, len(lengths)) for cut in cuts)
    n_rows = int(lengths.sum()) if per_token else len(lengths)
    rows = np.random.default_rng(0).standard_normal((n_rows, n_outputs))
    path = tmp_path_factory.mktemp("parts") / "out.npz"
    made = write_prediction_arrays(path, parts_of(rows, lengths, cuts, per_token))
    ragged = per_token and len(set(lengths.tolist())) > 1
    assert (made.n_sequences, made.n_rows, made.n_outputs) == (len(lengths), n_rows, n_outputs)
    assert made.ragged == ragged
    found = read(path)
    if ragged:
        assert found.keys() == {"values", "offsets"}
        assert np.array_equal(found["values"], rows)
        assert np.array_equal(np.diff(found["offsets"]), lengths)
        assert found["offsets"][0] == 0
    else:
        shape = (len(lengths), lengths[0], n_outputs) if per_token else (len(lengths), n_outputs)
        assert np.array_equal(found["Y"], rows.reshape(shape))


def test_a_file_is_that_of_numpy_byte_by_byte(tmp_path):
    rows = np.random.default_rng(1).standard_normal((7, 2))
    parts = parts_of(np.asfortranarray(rows), np.full(7, 5), [3], False)
    write_prediction_arrays(tmp_path / "ours.npy", parts)
    np.save(tmp_path / "numpys.npy", rows)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


@pytest.mark.parametrize("name", ["out.npy", "out.csv", "out"])
def test_what_cannot_hold_them_is_refused_and_nothing_is_left(tmp_path, name):
    rows, lengths = np.ones((3, 1)), np.array([1, 2])
    with pytest.raises(InvalidInput, match=r"\.npz"):
        write_prediction_arrays(tmp_path / name, parts_of(rows, lengths, [1], True))
    assert list(tmp_path.iterdir()) == []


def test_no_sequences_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="no sequences"):
        write_prediction_arrays(tmp_path / "out.npy", [])


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    class Full:
        """A scratch file on a disk without space."""

        def __init__(self, **_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def write(self, _):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "out.npy").write_text("before")
    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(OSError, match=r"No space left.*out\.npy"):
        write_prediction_arrays(
            tmp_path / "out.npy", parts_of(np.ones((2, 1)), np.ones(2), [1], False)
        )
    assert [each.name for each in tmp_path.iterdir()] == ["out.npy"]
    assert (tmp_path / "out.npy").read_text() == "before"
