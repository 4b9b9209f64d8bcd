"""Parts of tables are known by what is read of them: file, columns, and where sequences are cut."""

import numpy as np
import pandas as pd
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput

COLUMNS = {"sequence": "who", "tokens": ["a", "b"], "targets": "y"}


def frame(n_sequences=40):
    rng = np.random.default_rng(0)
    n_rows = 3 * n_sequences
    numbers = {name: rng.standard_normal(n_rows) for name in "abyz"}
    numbers["z"][: n_rows // 2] = numbers["y"][: n_rows // 2]
    names = np.arange(n_sequences)
    return pd.DataFrame({"who": np.repeat(names, 3), "w": np.repeat(1.0 + names, 3)} | numbers)


def write(path, rows):
    if path.suffix == ".csv":
        rows.to_csv(path, index=False)
    else:
        rows.to_parquet(path, index=False, row_group_size=15)
    return path


def moments(paths, **columns):
    source = pa.scan(paths, **COLUMNS | columns, chunk_bytes=500)
    return pa.Moments(2, 1).update(source)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("other", [
    {"targets": "z"}, {"tokens": ["b", "a"]}, {"weight": "w"}, {"order": "y"},
], ids=str)  # fmt: skip
def test_a_file_read_by_other_columns_is_other_data(tmp_path, suffix, other):
    path = write(tmp_path / f"t{suffix}", frame())
    whole = moments(path)
    assert (whole - moments(path)).n_rows == 0
    for combine in (lambda a, b: a - b, lambda a, b: a + b):
        with pytest.raises(InvalidInput, match="read in another way"):
            combine(whole, moments(path, **other))


def test_a_checkpoint_of_other_columns_is_refused_where_they_begin_alike(tmp_path):
    path, kept = write(tmp_path / "t.parquet", frame()), tmp_path / "kept.safetensors"
    for target in "yz":
        source = pa.scan(path, **COLUMNS | {"targets": target}, chunk_bytes=500)
        if target == "y":
            pa.Moments(2, 1).update(source, checkpoint=kept)
    np.testing.assert_array_equal(*(frame()[name][:15] for name in "yz"))  # the first chunk
    with pytest.raises(InvalidInput, match="is of other data"):
        pa.Moments(2, 1).update(source, checkpoint=kept)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_file_that_begins_within_a_sequence_is_not_taken_out_by_itself(tmp_path, suffix):
    rows = frame()
    for at, is_cut in ((60, False), (61, True)):
        one = write(tmp_path / f"{at}-1{suffix}", rows[:at])
        two = write(tmp_path / f"{at}-2{suffix}", rows[at:])
        whole = moments([one, two])
        assert whole.n_sequences == 40
        for part in (moments(one), moments(two)):
            if is_cut:
                with pytest.raises(InvalidInput, match="within a sequence"):
                    whole - part
            else:
                assert (whole - part).n_sequences == 20


def test_sums_of_class_codes_are_not_those_of_labels(tmp_path):
    labelled = frame().assign(y=frame()["who"] % 2)
    path = write(tmp_path / "t.parquet", labelled)
    source = pa.scan(path, **COLUMNS)
    classifier = pa.LinearAttentionClassifier(bias=False, ridge=1.0, loss="squared")
    coded = classifier.partial_fit(source, classes=[0, 1]).result_.statistics
    assert coded.n_sequences == 40
    with pytest.raises(InvalidInput, match=r"read in another way.*other targets"):
        coded - moments(path)
    with pytest.raises(InvalidInput, match="already counted"):
        classifier.partial_fit(source)
