"""Statistics of sources: nothing is counted twice, and the order of sums is fixed."""

from itertools import accumulate

import numpy as np
import pytest

import polyattn as pa
from form_cases import CHOICES
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange
from polyattn.progress import listening
from polyattn.sources import stretches as stretches_module
from polyattn.sources.stretches import stretches
from polyattn.stats.gather import add_stretch, fold, gathered
from source_cases import EmptyChunk, ListSource, MemoryChunk, memory_source, sent
from statistics_cases import KINDS, assert_same, contents, make_data

both_kinds = pytest.mark.parametrize("make", KINDS)


def in_memory(source, make):
    """The statistics of all chunks by one update of arrays."""
    X = [x for chunk in source.chunks for x in chunk.X]
    Y = np.concatenate([chunk.Y for chunk in source.chunks]) if source.n_outputs else None
    weights = np.concatenate([chunk.weights for chunk in source.chunks])
    return make(source.n_dims, source.n_outputs).update(X, Y, weights)


def assert_same_sums(found, expected):
    """Up to rounding, whatever is known of the chunks."""
    found = found.copy()
    found.contents = expected.contents.copy()
    assert_same(found, expected)


@both_kinds
@pytest.mark.parametrize("n_chunks", [1, 2, 5, 64, 65, 150])
def test_a_source_adds_up_as_arrays_do(make, n_chunks):
    source = memory_source(n_chunks, seed=n_chunks)
    stats = make(2, 1).update(source)
    assert_same_sums(stats, in_memory(source, make))
    assert [*stats.contents.identities()] == [("memory", "1", 0, source.chunks[-1].identity.stop)]
    assert not stats.contents.unnamed


@both_kinds
@pytest.mark.parametrize("n_chunks", [3, 70])
def test_stretches_added_apart_and_folded_in_order_have_the_same_bits(make, n_chunks):
    source = memory_source(n_chunks)
    # Their units change on the way, within a stretch and between stretches.
    for at, chunk in enumerate(source.chunks):
        chunk.X = [x * 2.0 ** (-60 + 2 * at) for x in chunk.X]
    empty, parts = make(2, 1), {}
    ranges = stretches(n_chunks)
    for at in reversed(range(len(ranges))):
        chunks = [source.chunks[i] for i in ranges[at]]
        (own, received), _ = sent((empty, chunks))
        part = add_stretch(own, received[:1])
        part = add_stretch(part, received[1:])
        parts[at], _ = sent(part)
    total = None
    for at in range(len(ranges)):
        total = fold(total, parts[at])
    assert total == gathered(empty, source)
    assert (empty.n_rows, bool(empty.contents)) == (0, False)
    assert make(2, 1).update(source) == total


def test_another_order_has_other_bits(monkeypatch):
    """So that equal bits mean something."""
    whole = pa.Moments(2, 1).update(memory_source(70))
    monkeypatch.setattr(stretches_module, "MOST_STRETCHES", 3)
    other = pa.Moments(2, 1).update(memory_source(70))
    assert other.contents == whole.contents
    assert other != whole


@both_kinds
def test_the_sum_over_a_source_is_merged_with_what_is_there(make):
    source, rng = memory_source(5), np.random.default_rng(1)
    X, Y = rng.standard_normal((9, 3, 2)), rng.standard_normal(9)
    alone = make(2, 1).update(source)
    first = make(2, 1).update(X, Y)
    assert make(2, 1).update(X, Y).update(source) == first + alone
    assert make(2, 1).update(X, Y).update(source).contents.unnamed


@both_kinds
def test_statistics_of_inputs_leave_out_the_targets_of_a_source(make):
    source = memory_source(4)
    stats = make(2).update(source)
    assert stats.n_outputs == 0
    assert stats.n_rows == make(2, 1).update(source).n_rows


@pytest.mark.parametrize("mode", ["causal", "full"])
def test_targets_of_every_token(mode):
    data = make_data((3, 1, 4, 2, 5, 2), 2, 2, mode, weighted=True)
    chunks = [
        MemoryChunk("a", data.X[i : i + 2], data.Y[i : i + 2], data.weights[i : i + 2], first=i)
        for i in (0, 2, 4)
    ]
    stats = pa.Moments(2, 2, mode).update(ListSource(chunks, 2, 2))
    assert_same_sums(stats, data.into(pa.Moments))


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_sources_of_every_form_and_with_contexts(name):
    build, n_context_dims = CHOICES[name]
    form, rng = build(3), np.random.default_rng(0)
    X = rng.standard_normal((12, 4, 3))
    Z = None if n_context_dims is None else rng.standard_normal((12, 4, n_context_dims))
    chunks = [
        MemoryChunk(
            "a", X[i : i + 4], first=i,
            context=None if Z is None else pa.SequenceBatch.from_array(Z[i : i + 4]),
        )
        for i in (0, 4, 8)
    ]  # fmt: skip
    made = pa.Moments(3, form=form, n_context_dims=n_context_dims)
    source = ListSource(chunks, 3, n_context_dims=n_context_dims)
    expected = made.empty().update(X, context=Z)
    made.update(source)
    np.testing.assert_allclose(made.gram, expected.gram, rtol=1e-12, atol=1e-12)


# Nothing twice ------------------------------------------------------------------------------------


@both_kinds
def test_a_source_is_added_once(make):
    source = memory_source(3)
    stats = make(2, 1).update(source)
    before = stats.copy()
    with pytest.raises(InvalidInput, match=r"'memory', 0\.\.\d+, is already counted"):
        stats.update(source)
    with pytest.raises(InvalidInput, match="is already counted"):
        stats + stats
    with pytest.raises(InvalidInput, match="is already counted"):
        stats.update(ListSource(source.chunks[1:2], 2, 1))
    assert stats == before
    # Nothing was read before the refusal.
    assert [chunk.n_reads for chunk in source.chunks] == [1, 1, 1]


def test_a_chunk_given_twice_is_refused_before_anything_is_read():
    chunks = memory_source(3).chunks
    with pytest.raises(InvalidInput, match="is already counted"):
        pa.Moments(2, 1).update(ListSource([*chunks, chunks[1]], 2, 1))
    assert [chunk.n_reads for chunk in chunks] == [0, 0, 0]


@both_kinds
def test_names_for_arrays(make):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((9, 3, 2)), rng.standard_normal(9)
    stats = make(2, 1).update(X, Y, chunk="monday")
    with pytest.raises(InvalidInput, match=r"'monday', 0\.\.9, is already counted"):
        stats.update(X, Y, chunk="monday")
    with pytest.raises(InvalidInput, match="'monday' has changed since"):
        stats.update(2 * X, Y, chunk="monday")
    with pytest.raises(InvalidInput, match="'monday' has changed since"):
        stats + make(2, 1).update(X, Y, np.full(9, 2.0), chunk="monday")
    stats.update(X, Y, chunk="tuesday")
    assert stats.contents.n_sources == 2
    assert not stats.contents.unnamed
    stats.update(X, Y)
    assert stats.contents.unnamed
    for name in ("", 3, b"monday"):
        with pytest.raises(InvalidType, match="chunk must be a name"):
            stats.update(X, Y, chunk=name)


@both_kinds
def test_merged_statistics_contain_both(make):
    rng = np.random.default_rng(0)
    a, b, c = (
        make(2).update(rng.standard_normal((5, 3, 2)), chunk=name) for name in ("a", "b", "c")
    )
    merged = sum([a, b, c])
    assert [each.source for each in merged.contents.identities()] == ["a", "b", "c"]
    with pytest.raises(InvalidInput, match=r"'b', 0\.\.5, is already counted"):
        merged + b
    assert a.contents.n_sources == 1


@both_kinds
def test_names_of_sequences_in_two_chunks(make):
    def once(at, first, count):
        return np.arange(first, first + count) + at

    stats = make(2, 1).update(memory_source(70, names=once))
    assert stats.sequence_names is None

    def twice(at, first, count):
        return np.array([f"s{i}" for i in range(first - (at == 1), first - (at == 1) + count)])

    source = memory_source(3, names=twice)
    last = source.chunks[0].identity.stop - 1
    with pytest.raises(InvalidInput, match=f"'memory', .*the sequence 's{last}' is there twice"):
        make(2, 1).update(source)
    # In other processes, too.
    parts = [add_stretch(make(2, 1), [chunk]) for chunk in source.chunks]
    with pytest.raises(InvalidInput, match="there twice"):
        fold(parts[0], parts[1])


# What is wrong with a chunk is said with its name, and nothing is counted -------------------------


def spoiled(chunk, what):
    """One way in which the content of a chunk is no good."""
    if what == "nan":
        chunk.X[0] = chunk.X[0] * np.nan
    elif what == "width":
        chunk.X = [np.ones((2, 3))] * len(chunk.X)
    elif what == "targets":
        chunk.Y = chunk.Y[1:]
    elif what == "no targets":
        chunk.Y = None
    elif what == "weights":
        chunk.weights = -chunk.weights
    elif what == "sizes":
        chunk.X = [x * [1.0, 1e-150] for x in chunk.X]


BAD = {
    "nan": (InvalidInput, "NaN"),
    "width": (InvalidInput, r"'memory', \d+\.\.\d+: .*2 coordinates.*got 3"),
    "targets": (InvalidInput, r"'memory', \d+\.\.\d+: .*sequences but Y has"),
    "no targets": (InvalidInput, r"'memory', \d+\.\.\d+: it holds no targets.*n_outputs=1"),
    "weights": (InvalidInput, r"'memory', \d+\.\.\d+: sample_weight must not be negative"),
    "sizes": (OutOfRange, r"'memory', \d+\.\.\d+: .*sizes from"),
}


@both_kinds
@pytest.mark.parametrize("what", BAD)
def test_a_bad_chunk_leaves_nothing_behind(make, what):
    source = memory_source(4)
    spoiled(source.chunks[2], what)
    stats = make(2, 1).update(np.ones((2, 3, 2)), np.ones(2))
    before = stats.copy()
    error, words = BAD[what]
    with pytest.raises(error, match=words):
        stats.update(source)
    assert stats == before


@both_kinds
def test_chunks_in_which_no_sequence_begins(make):
    full = memory_source(3)
    chunks = [EmptyChunk("e", 0), full.chunks[0], EmptyChunk("e", 1), *full.chunks[1:]]
    stats = make(2, 1).update(ListSource(chunks, 2, 1))
    assert_same_sums(stats, in_memory(full, make))
    # They are done, and not done twice.
    assert stats.contents.n_sources == 2
    with pytest.raises(InvalidInput, match="already counted"):
        stats.update(ListSource([EmptyChunk("e", 1)], 2, 1))
    with pytest.raises(InvalidInput, match="holds no sequence"):
        make(2, 1).update(ListSource([EmptyChunk("e", 0)], 2, 1))


class Unreadable(MemoryChunk):
    def read(self, mode):
        raise FileFormatError(f"'shard.npz' is truncated; it is read in mode {mode!r}.")


def test_what_cannot_be_read_is_said_by_its_reader():
    source = memory_source(3)
    source.parts[1] = Unreadable("shard.npz", [np.ones((2, 2))])
    stats = pa.Moments(2, 1)
    with pytest.raises(FileFormatError, match=r"'shard\.npz' is truncated"):
        stats.update(source)
    assert stats == pa.Moments(2, 1)


def test_sources_of_other_sizes_are_refused():
    source = memory_source(2, d=2, e=1)
    for stats, words in (
        (pa.Moments(3, 1), "n_dims=3, and the source has n_dims=2"),
        (pa.Moments(2, 2), "n_outputs=2, and the source has n_outputs=1"),
        (pa.Moments(2, 1, n_context_dims=2), "n_context_dims=2, and .* n_context_dims=None"),
    ):
        with pytest.raises(InvalidInput, match=words):
            stats.update(source)
    with pytest.raises(InvalidInput, match="no chunks"):
        pa.Moments(2, 1).update(ListSource([], 2, 1))


@pytest.mark.parametrize("name", ["Y", "sample_weight", "context", "chunk"])
def test_what_a_source_holds_is_not_given_beside_it(name):
    with pytest.raises(InvalidInput, match="come from the source: leave out Y"):
        pa.Moments(2, 1).update(memory_source(2), **{name: "x"})


def test_progress_is_counted_in_bytes():
    source, seen = memory_source(5), []
    with listening(lambda *each: seen.append(each)):
        pa.Moments(2, 1).update(source)
    sizes = [chunk.n_bytes for chunk in source.chunks]
    assert seen == [(done, sum(sizes)) for done in accumulate(sizes)]


# Files and words ----------------------------------------------------------------------------------


@both_kinds
def test_what_is_in_it_survives_files(make, tmp_path):
    stats = make(2, 1).update(memory_source(70)).update(np.ones((2, 3, 2)), np.ones(2))
    stats.save(tmp_path / "sums")
    loaded = pa.load(tmp_path / "sums")
    assert loaded == stats
    assert loaded.contents == stats.contents
    assert loaded.contents.unnamed
    with pytest.raises(InvalidInput, match="already counted"):
        loaded + make(2, 1).update(memory_source(70))


@both_kinds
def test_sums_without_names_are_written_as_ever(make):
    """A file of arrays without names says nothing of names."""
    record = make(2, 1).update(np.ones((2, 3, 2)), np.ones(2)).to_record()
    assert record.metadata.keys() <= {
        "n_dims", "n_outputs", "mode", "bias", "n_rows", "n_positive", "n_sequences",
        "total_weight", "max_length", "token_exponent", "target_exponent", "coordinate_sizes",
        "output_sizes", "min_length",
    }  # fmt: skip
    assert make.from_record(record).contents.unnamed
    assert not make.from_record(make(2, 1).to_record()).contents


def test_equal_sums_of_other_chunks_differ():
    X = np.random.default_rng(0).standard_normal((9, 3, 2))
    one, other = (pa.Moments(2).update(X, chunk=name) for name in ("one", "other"))
    assert one != other
    assert one == pa.Moments(2).update(X, chunk="one")
    assert "1 named source, mode 'last'" in repr(one)
    assert one.describe().facts["n_sources"] == 1
    assert contents(one)[1]["contents"]["sources"][0]["source"] == "one"
    # A certificate is about the sums, whatever the chunks are called.
    assert pa.certify(statistics=one).digest == pa.certify(statistics=other).digest
