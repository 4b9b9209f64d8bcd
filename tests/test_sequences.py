"""Sequences, targets and weights as arguments: what is taken, what is refused, and how."""

from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.errors import InvalidInput, InvalidType, PolyattnError
from polyattn.form import Form
from polyattn.model import LinearAttention
from polyattn.numerics import arrays
from polyattn.numerics.arrays import ranges_of_rows
from polyattn.sequences import MODES, OwnedBatch, SequenceBatch, as_batch
from polyattn.targets import as_targets, as_weights

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 5, 3))
RAGGED = [RNG.standard_normal((length, 3)) for length in (2, 5, 1)]


# What is taken ------------------------------------------------------------------------------


def test_array():
    batch = as_batch(X)
    assert (len(batch), batch.n_dims, batch.common_length) == (4, 3, 5)
    np.testing.assert_array_equal(batch.offsets, [0, 5, 10, 15, 20])
    np.testing.assert_array_equal(np.stack(list(batch)), X)
    assert np.shares_memory(batch.values, X)


def test_list():
    batch = as_batch(RAGGED)
    assert (len(batch), batch.n_dims, batch.common_length) == (3, 3, None)
    np.testing.assert_array_equal(batch.lengths, [2, 5, 1])
    for sequence, expected in zip(batch, RAGGED, strict=True):
        np.testing.assert_array_equal(sequence, expected)
    np.testing.assert_array_equal(as_batch(tuple(RAGGED)).values, batch.values)
    np.testing.assert_array_equal(as_batch(X.tolist()).values, as_batch(X).values)


def test_padded():
    padded = np.full((3, 6, 3), np.nan)
    for row, sequence in zip(padded, RAGGED, strict=True):
        row[: len(sequence)] = sequence
    batch = SequenceBatch.from_padded(padded, [2, 5, 1])
    np.testing.assert_array_equal(batch.values, np.concatenate(RAGGED))
    np.testing.assert_array_equal(batch.lengths, [2, 5, 1])


def test_batch_is_taken_as_it_is():
    batch = as_batch(X)
    assert as_batch(batch) is batch
    assert as_batch(batch, n_dims=3) is batch


def test_access():
    batch = as_batch(RAGGED)
    np.testing.assert_array_equal(batch[-1], RAGGED[-1])
    np.testing.assert_array_equal(batch[1], RAGGED[1])
    with pytest.raises(IndexError):
        batch[3]
    part = batch.part(1, 3)
    np.testing.assert_array_equal(part.values, np.concatenate(RAGGED[1:]))
    np.testing.assert_array_equal(part.lengths, [5, 1])
    assert (batch.n_rows("last"), batch.n_rows("causal"), batch.n_rows("full")) == (3, 8, 8)


def test_repr():
    assert repr(as_batch(X)) == ("SequenceBatch(4 sequences, 5 tokens of 3 coordinates, float64)")
    assert "3 sequences, 1..5 tokens of 3 coordinates" in repr(as_batch(RAGGED))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_ranges_cover_everything_once(lengths, n_rows):
    borders = np.concatenate([[0], np.cumsum(lengths)]).astype(int)
    ranges = list(ranges_of_rows(borders, n_rows))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(lengths)
    assert all(stop == following for (_, stop), (following, _) in pairwise(ranges))
    for first, stop in ranges:
        assert stop == first + 1 or borders[stop] - borders[first] <= n_rows


STORED = {
    "float32": X.astype(np.float32),
    "float16": X.astype(np.float16),
    "int64": np.round(10 * X).astype(np.int64),
    "int8": np.round(10 * X).astype(np.int8),
    "uint8": np.abs(np.round(10 * X)).astype(np.uint8),
    "bool": X > 0,
    "big endian": X.astype(">f8"),
    "Fortran order": np.asfortranarray(X),
    "transposed": np.ascontiguousarray(X.transpose(2, 0, 1)).transpose(1, 2, 0),
    "every second": np.repeat(X, 2, axis=1)[:, ::2],
    "backwards": X[::-1, ::-1, ::-1],
    "broadcast": np.broadcast_to(X[:1], X.shape),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", STORED)
def test_any_memory_gives_the_same_answer(name, mode):
    given_array = STORED[name]
    before = given_array.copy()
    layer = LinearAttention(RNG.standard_normal((3, 3)), RNG.standard_normal((3, 2)), mode)
    plain = np.array(given_array, dtype=np.float64, order="C")
    expected = layer(plain)
    for form in (given_array, list(given_array), as_batch(given_array)):
        np.testing.assert_allclose(np.stack(layer(form)), expected, rtol=1e-12)
    np.testing.assert_array_equal(given_array, before)


@pytest.mark.parametrize("mode", MODES)
def test_a_read_only_memory_map_works_and_stays(tmp_path, mode):
    path = tmp_path / "x.npy"
    np.save(path, X.astype(np.float32))
    mapped = np.load(path, mmap_mode="r")
    layer = LinearAttention(np.eye(3), np.eye(3), mode)
    np.testing.assert_allclose(layer(mapped), layer(X.astype(np.float32)), rtol=1e-12)
    assert np.shares_memory(as_batch(mapped).values, mapped)
    np.testing.assert_array_equal(np.load(path), X.astype(np.float32))


def test_what_was_given_stays_writable():
    values, offsets = X.reshape(-1, 3).copy(), np.array([0, 5, 20])
    batch = SequenceBatch(values, offsets)
    values[0], offsets[1] = 1.0, 6
    assert not batch.offsets.flags.writeable
    np.testing.assert_array_equal(batch.offsets, [0, 5, 20])


@pytest.mark.parametrize("name", ["X", "context", "Y"])
@pytest.mark.parametrize("way", ["array", "list", "padded", "offsets"])
def test_what_is_wrong_is_said_of_the_argument_that_it_is_in(name, way):
    values = X.copy()
    values[1, 2, 0] = np.nan
    make = {
        "array": lambda: as_batch(values, name),
        "list": lambda: as_batch(list(values), name),
        "padded": lambda: SequenceBatch.from_padded(values, [5] * 4, name),
        "offsets": lambda: SequenceBatch(values.reshape(-1, 3), np.arange(5) * 5, name),
    }[way]
    with pytest.raises(InvalidInput, match=rf"^{name} contains NaN .*sequence 1, token 2, coord"):
        make()


def test_a_context_is_called_so():
    layer = LinearAttention(np.eye(3), np.eye(3), form=Form(), n_dims=3, n_context_dims=3)
    spoilt = X.copy()
    spoilt[0, 0, 0] = np.nan
    for context, words in (
        (spoilt, "context contains NaN or infinity in 1 of 60 places"),
        ([*X[:3], X[0][:0]], "sequence 3 of context has 0 tokens"),
        (X[:, :, :0], "the tokens of context need at least one coordinate"),
    ):
        with pytest.raises(InvalidInput, match=words):
            layer(X, context=context)


# Targets and weights ------------------------------------------------------------------------


def test_targets_of_last():
    batch = as_batch(RAGGED)
    np.testing.assert_array_equal(as_targets([1, 2, 3], batch, "last"), [[1], [2], [3]])
    Y = RNG.standard_normal((3, 2))
    np.testing.assert_array_equal(as_targets(Y, batch, "last", n_outputs=2), Y)
    assert as_targets(Y.astype(np.float32), batch, "last").shape == (3, 2)


@pytest.mark.parametrize("mode", ["causal", "full"])
def test_targets_of_tokens(mode):
    Y = RNG.standard_normal((4, 5, 2))
    np.testing.assert_array_equal(as_targets(Y, as_batch(X), mode), Y.reshape(20, 2))
    np.testing.assert_array_equal(
        as_targets(Y[..., 0], as_batch(X), mode), Y[..., 0].reshape(20, 1)
    )
    ragged = [RNG.standard_normal((len(x), 2)) for x in RAGGED]
    rows = np.concatenate(ragged)
    batch = as_batch(RAGGED)
    np.testing.assert_array_equal(as_targets(ragged, batch, mode), rows)
    np.testing.assert_array_equal(as_targets(as_batch(ragged), batch, mode), rows)
    np.testing.assert_array_equal(as_targets([y[:, 0] for y in ragged], batch, mode), rows[:, :1])


def test_weights():
    batch = as_batch(RAGGED)
    assert as_weights(None, batch) is None
    weights = as_weights(np.array([1, 0, 2], dtype=np.uint8), batch)
    np.testing.assert_array_equal(weights, [1.0, 0.0, 2.0])
    assert weights.dtype == np.float64


# What is refused: (call, type, words that the message must hold) ----------------------------


def bad(value, *shape):
    """Ones with one bad number among them."""
    array = np.ones(shape)
    array.flat[-1] = value
    return array


ONE = np.ones((2, 3, 2))
TWO = as_batch(ONE)
UNEVEN = as_batch([np.ones((1, 2)), np.ones((3, 2))])

REFUSED = {
    # sequences
    "nan": (lambda: as_batch(bad(np.nan, 2, 3, 2)), InvalidInput, "X", "NaN", "1 of 12", "impute"),
    "inf": (lambda: as_batch(bad(-np.inf, 2, 3, 2)), InvalidInput, "X", "infinity", "1 of 12"),
    "nan in a list": (lambda: as_batch([bad(np.nan, 2, 2)]), InvalidInput, "X", "NaN"),
    "complex": (lambda: as_batch(ONE * 1j), InvalidType, "X", "complex", "real numbers", "Convert"),
    "text": (lambda: as_batch(np.full((2, 3, 2), "a")), InvalidType, "X", "text", "Convert"),
    "bytes": (lambda: as_batch(np.full((2, 3, 2), b"a")), InvalidType, "X", "bytes"),
    "objects": (lambda: as_batch(np.full((2, 3, 2), Decimal(1))), InvalidType, "X", "Python objects"),
    "dates": (lambda: as_batch(ONE.astype("M8[s]")), InvalidType, "X", "datetime64"),
    "text alone": (lambda: as_batch("tokens"), InvalidType, "X", "text"),
    "none": (lambda: as_batch(None), InvalidType, "X", "Python objects"),
    "a dict": (lambda: as_batch({"a": 1}), InvalidType, "X", "Python objects"),
    "long double": (lambda: as_batch(ONE.astype(np.longdouble)), InvalidType, "X", "longdouble|float128", "float64"),
    "no sequence": (lambda: as_batch(np.ones((0, 3, 2))), InvalidInput, "X is empty", "at least one"),
    "empty list": (lambda: as_batch([]), InvalidInput, "X is empty", "at least one"),
    "no tokens": (lambda: as_batch(np.ones((2, 0, 2))), InvalidInput, "X", "zero tokens", "at least one"),
    "no tokens in a list": (lambda: as_batch([np.ones((2, 2)), np.ones((0, 2))]), InvalidInput, "sequence 1", "0 tokens", "at least one"),
    "no coordinates": (lambda: as_batch(np.ones((2, 3, 0))), InvalidInput, "coordinate", "n_dims = 0"),
    "a matrix": (lambda: as_batch(np.ones((3, 2))), InvalidInput, "X", r"\(n_sequences, n_tokens, n_dims\)", r"\(3, 2\)", "list"),
    "one axis too few": (lambda: as_batch(np.ones((4, 2))), InvalidInput, r"got shape \(4, 2\)", r"X\[None\]", r"X\[:, None, :\]"),
    "one sequence as lists": (lambda: as_batch([[1.0, 2.0]]), InvalidInput, r"X\[0\]", r"got shape \(2,\)", r"\[X\]"),
    "nan in a ragged list": (lambda: as_batch([np.ones((2, 2)), [[1, 1], [1, np.inf]]]), InvalidInput, "1 of 8 places", "sequence 1, token 1, coordinate 1"),
    "a number": (lambda: as_batch(3.0), InvalidInput, "X", r"got shape \(\)"),
    "four axes": (lambda: as_batch(np.ones((1, 2, 3, 4))), InvalidInput, "X", r"\(1, 2, 3, 4\)"),
    "flat lists": (lambda: as_batch([[1.0, 2.0], [3.0]]), InvalidInput, r"X\[0\]", r"\(2,\)"),
    "ragged tokens": (lambda: as_batch([[[1.0, 2.0], [3.0]]]), InvalidInput, r"X\[0\]", "rectangular"),
    "widths": (lambda: as_batch([np.ones((2, 2)), np.ones((2, 3))]), InvalidInput, "same number of coordinates", r"X\[0\] has 2", r"X\[1\] has 3"),
    "wrong width": (lambda: as_batch(ONE, n_dims=5), InvalidInput, "X", "5 coordinates", "got 2"),
    "another name": (lambda: as_batch(np.ones(3), name="candidates"), InvalidInput, "candidates"),
    # SequenceBatch itself
    "values": (lambda: SequenceBatch(np.ones(3), [0, 3]), InvalidInput, "values", r"\(3,\)"),
    "offsets type": (lambda: SequenceBatch(np.ones((3, 2)), [0.0, 3.0]), InvalidInput, "offsets", "integer", "float64"),
    "offsets short": (lambda: SequenceBatch(np.ones((3, 2)), [0]), InvalidInput, "offsets", r"\(1,\)"),
    "offsets end": (lambda: SequenceBatch(np.ones((3, 2)), [0, 2]), InvalidInput, "offsets", "from 0 to 3", "0 to 2"),
    "offsets start": (lambda: SequenceBatch(np.ones((3, 2)), [1, 3]), InvalidInput, "offsets", "1 to 3"),
    "offsets repeat": (lambda: SequenceBatch(np.ones((3, 2)), [0, 2, 2, 3]), InvalidInput, "sequence 1", "0 tokens"),
    "offsets fall": (lambda: SequenceBatch(np.ones((3, 2)), [0, 2, 1, 3]), InvalidInput, "sequence 1", "-1 tokens"),
    # padded
    "padded shape": (lambda: SequenceBatch.from_padded(np.ones((3, 2)), [1]), InvalidInput, "padded X", r"\(3, 2\)"),
    "lengths count": (lambda: SequenceBatch.from_padded(ONE, [1]), InvalidInput, "lengths", "2 integers", r"\(1,\)"),
    "lengths type": (lambda: SequenceBatch.from_padded(ONE, [1.0, 2.0]), InvalidInput, "lengths", "integers", "float64"),
    "length zero": (lambda: SequenceBatch.from_padded(ONE, [0, 2]), InvalidInput, "lengths", "between 1 and 3", "from 0 to 2"),
    "length beyond": (lambda: SequenceBatch.from_padded(ONE, [1, 4]), InvalidInput, "lengths", "from 1 to 4"),
    "padded empty": (lambda: SequenceBatch.from_padded(np.ones((0, 3, 2)), np.ones(0, int)), InvalidInput, "X is empty"),
    # targets
    "y nan": (lambda: as_targets(bad(np.nan, 2), TWO, "last"), InvalidInput, "Y", "NaN", "1 of 2"),
    "y nan at a token": (lambda: as_targets([np.ones(1), [1.0, np.nan, 1.0]], UNEVEN, "full"), InvalidInput, "1 of 4 places", "sequence 1, token 1, output 0"),
    "y complex": (lambda: as_targets(np.ones(2) * 1j, TWO, "last"), InvalidType, "Y", "complex"),
    "y text": (lambda: as_targets(["a", "b"], TWO, "last"), InvalidType, "Y", "text"),
    "y count": (lambda: as_targets(np.ones(3), TWO, "last"), InvalidInput, "2 sequences", "3 targets", "one target per sequence"),
    "y per token": (lambda: as_targets(ONE, TWO, "last"), InvalidInput, "'last'", r"\(2, 3, 2\)", "mode='causal'"),
    "y number": (lambda: as_targets(1.0, TWO, "last"), InvalidInput, "'last'", r"shape \(\)"),
    "y no outputs": (lambda: as_targets(np.ones((2, 0)), TWO, "last"), InvalidInput, "Y has zero outputs"),
    "y outputs": (lambda: as_targets(np.ones((2, 2)), TWO, "last", 3), InvalidInput, "Y must have 3 outputs", "got 2"),
    "y per sequence": (lambda: as_targets(np.ones(2), TWO, "causal"), InvalidInput, r"\(n_sequences, n_tokens, n_outputs\)", r"\(2,\)", "mode='last'"),
    "y sequences": (lambda: as_targets(np.ones((3, 3, 1)), TWO, "full"), InvalidInput, "X has 2 sequences", "Y has 3"),
    "y tokens": (lambda: as_targets(np.ones((2, 4, 1)), TWO, "full"), InvalidInput, "sequence 0 has 3 tokens", "4 targets", "one target per token"),
    "y array for ragged": (lambda: as_targets(np.ones((2, 3, 1)), UNEVEN, "causal"), InvalidInput, "sequence 0 has 1 token in X", "3 targets"),
    "y ragged count": (lambda: as_targets([np.ones(1)], UNEVEN, "causal"), InvalidInput, "X has 2 sequences", "Y has 1"),
    "y ragged widths": (lambda: as_targets([np.ones((1, 2)), np.ones((3, 1))], UNEVEN, "causal"), InvalidInput, r"Y\[1\]", "one n_outputs", r"\(3, 1\)"),
    "y ragged axes": (lambda: as_targets([np.ones((1, 1, 1)), np.ones((3, 1, 1))], UNEVEN, "causal"), InvalidInput, r"Y\[0\]", r"\(1, 1, 1\)"),
    "y ragged numbers": (lambda: as_targets([1.0, 2.0], UNEVEN, "causal"), InvalidInput, r"Y\[0\]", r"shape \(\)"),
    "y batch": (lambda: as_targets(TWO, UNEVEN, "causal"), InvalidInput, "sequence 0 has 1 token in X", "3 targets"),
    "y empty list": (lambda: as_targets([], UNEVEN, "causal"), InvalidInput, "X has 2 sequences", "Y has 0"),
    # weights
    "w shape": (lambda: as_weights(np.ones(3), TWO), InvalidInput, "sample_weight", r"\(2,\)", r"\(3,\)"),
    "w negative": (lambda: as_weights([1.0, -2.0], TWO), InvalidInput, "sample_weight", "negative", "-2"),
    "w nan": (lambda: as_weights([1.0, np.nan], TWO), InvalidInput, "sample_weight", "NaN"),
    "w text": (lambda: as_weights(["a", "b"], TWO), InvalidType, "sample_weight", "text"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument_what_came_and_what_to_do(name):
    call, kind, *words = REFUSED[name]
    for word in words:
        with pytest.raises(kind, match=word) as refusal:
            call()
    assert isinstance(refusal.value, PolyattnError)
    assert isinstance(refusal.value, ValueError | TypeError)
    assert str(refusal.value).endswith(".")


def test_bad_numbers_are_counted_across_blocks(monkeypatch):
    monkeypatch.setattr(arrays, "CHECK_BLOCK", 4)
    array = np.ones((10, 3, 1))
    array[0, 0], array[5, 1], array[9, 2] = np.nan, np.inf, -np.inf
    with pytest.raises(InvalidInput, match="3 of 30"):
        as_batch(array)


def test_a_slice_is_a_batch():
    arrays = [np.full((n, 2), float(n)) for n in (1, 3, 2, 5)]
    batch = SequenceBatch.from_sequences(arrays)
    for cut in (slice(1, 3), slice(None, 2), slice(-2, None), slice(0, 99)):
        part = batch[cut]
        assert isinstance(part, SequenceBatch)
        for ours, wanted in zip(part, arrays[cut], strict=True):
            np.testing.assert_array_equal(ours, wanted)
        assert np.shares_memory(part.values, batch.values)
    np.testing.assert_array_equal(batch[np.int64(-1)], arrays[-1])


@pytest.mark.parametrize("index", [slice(0, 4, 2), slice(3, 0, -1), slice(2, 2), "first", 1.5])
def test_other_choices_are_refused(index):
    batch = SequenceBatch.from_sequences([np.ones((1, 2))] * 4)
    with pytest.raises((InvalidInput, InvalidType), match="sequences"):
        batch[index]


# Arrays that nobody else holds -------------------------------------------------------------

NUMBERS = st.sampled_from([0.0, -0.0, 1.0, -3.5, 1e150, -1e-150, 5e-324, np.nan, np.inf, -np.inf])


@given(
    st.integers(1, 5), st.integers(1, 700), st.sampled_from(["f8", "f4", "i8", "u1"]),
    st.sampled_from("CF"), st.lists(st.tuples(st.integers(0, 10**6), NUMBERS), max_size=3),
    st.integers(0, 2**32),
)  # fmt: skip
def test_an_owned_batch_refuses_the_same_and_knows_its_magnitudes(
    d, n, dtype, order, changes, seed
):
    values = np.random.default_rng(seed).integers(0, 200, (n, d)).astype(dtype)
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", under="ignore"):
            for place, number in changes:
                values.flat[place % values.size] = number
    values = np.asarray(values, order=order)
    values.setflags(write=False)
    offsets = [0, *({n // 2} - {0}), n]
    if not np.isfinite(values).all():
        refusals = []
        for kind in (SequenceBatch, OwnedBatch):
            with pytest.raises(InvalidInput, match="NaN or infinity") as refused:
                kind(values, offsets, "tokens")
            refusals.append(str(refused.value))
        assert refusals[0] == refusals[1]
        return
    plain = SequenceBatch(values, offsets, "tokens")
    owned = OwnedBatch(values, offsets, "tokens")
    wanted = np.abs(values.astype(float)).max(axis=0)
    for batch in (plain, owned):
        np.testing.assert_array_equal(batch.coordinate_sizes(), wanted)
        np.testing.assert_array_equal(as_batch(batch).values, values)
    # A part is a batch of its own.
    half = owned.part(0, 1)
    sizes = np.abs(values[: offsets[1]].astype(float)).max(axis=0)
    np.testing.assert_array_equal(half.coordinate_sizes(), sizes)


def test_owned_batches_of_all_forms():
    padded = X.copy()
    padded[0, 3:] = np.nan
    batch = OwnedBatch.from_padded(padded, [3, 5, 5, 5])
    np.testing.assert_array_equal(batch.coordinate_sizes(), np.nanmax(np.abs(padded), axis=(0, 1)))
    cube = OwnedBatch.from_array(X)
    np.testing.assert_array_equal(cube.coordinate_sizes(), np.abs(X).max(axis=(0, 1)))
    assert isinstance(cube, SequenceBatch)
    with pytest.raises(InvalidInput, match="sequence 0, token 3, coordinate 0"):
        OwnedBatch.from_array(padded)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(1, 20), st.integers(1, 40))
def test_ranges_within_two_limits(lengths, n_rows, n_bytes):
    rows = np.concatenate([[0], np.cumsum(lengths)])
    owned = np.concatenate([[0], np.cumsum(lengths[::-1])])
    ranges = list(ranges_of_rows(rows, n_rows, (owned, n_bytes)))
    assert [first for first, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == len(lengths)
    for first, stop in ranges:
        fits = rows[stop] - rows[first] <= n_rows and owned[stop] - owned[first] <= n_bytes
        assert fits or stop == first + 1
        if stop < len(lengths):
            # As long as it may be.
            more = stop + 1
            assert rows[more] - rows[first] > n_rows or owned[more] - owned[first] > n_bytes
