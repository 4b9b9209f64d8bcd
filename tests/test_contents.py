"""Contents count no chunk twice, whatever the order; stretches and names of sequences."""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyattn.errors import FileFormatError, InvalidInput
from polyattn.files.strict_json import parse_json
from polyattn.sources import names as names_module
from polyattn.sources.contents import Contents
from polyattn.sources.names import SequenceNames
from polyattn.sources.source import ChunkIdentity
from polyattn.sources.stretches import MOST_STRETCHES, stretches


def identity(first, stop, source="a", fingerprint="1"):
    return ChunkIdentity(source, fingerprint, first, stop)


ranges = st.tuples(st.sampled_from("ab"), st.integers(0, 20), st.integers(1, 6)).map(
    lambda each: identity(each[1], each[1] + each[2], each[0])
)


def members(identities):
    return {(each.source, at) for each in identities for at in range(each.first, each.stop)}


@given(st.lists(ranges, max_size=12))
def test_contents_are_the_set_of_what_was_added(chunks):
    """Against a set of single entries: the same members, and a refusal where and only where."""
    contents, known = Contents(), set()
    for chunk in chunks:
        own = members([chunk])
        if own & known:
            with pytest.raises(InvalidInput, match="already counted"):
                contents.add(chunk)
        else:
            contents.add(chunk)
            known |= own
        assert members(contents.identities()) == known
    found = [*contents.identities()]
    for one, other in pairwise(found):
        assert one.source < other.source or one.stop < other.first
    assert Contents.from_metadata(contents.to_metadata()) == contents
    assert contents.copy() == contents


@given(st.lists(ranges, max_size=6), st.lists(ranges, max_size=6), st.booleans())
def test_unions_and_differences_are_those_of_sets(some, others, unnamed):
    one, other = Contents(unnamed=unnamed), Contents()
    for contents, chunks in ((one, some), (other, others)):
        for chunk in chunks:
            if not members([chunk]) & members(contents.identities()):
                contents.add(chunk)
    mine, theirs = members(one.identities()), members(other.identities())
    before = one.copy(), other.copy()
    if mine & theirs:
        with pytest.raises(InvalidInput, match="already counted"):
            one.union(other)
    else:
        both = one.union(other)
        assert members(both.identities()) == mine | theirs
        assert both.unnamed == unnamed
        assert both.difference(other) == one
    if theirs <= mine:
        assert members(one.difference(other).identities()) == mine - theirs
    else:
        with pytest.raises(InvalidInput, match="is not counted"):
            one.difference(other)
    assert (one, other) == before


def test_a_refusal_names_the_source_and_the_range():
    contents = Contents([identity(0, 10, "shard-7.npz"), identity(20, 30, "shard-7.npz")])
    with pytest.raises(InvalidInput, match=r"'shard-7.npz', 20..25, is already counted; leave"):
        contents.add(identity(15, 25, "shard-7.npz"))
    with pytest.raises(InvalidInput, match=r"'shard-7.npz' has changed since.*'1'.*'2'\); begin"):
        contents.add(identity(10, 20, "shard-7.npz", "2"))
    with pytest.raises(InvalidInput, match="has changed since"):
        contents.difference(Contents([identity(0, 10, "shard-7.npz", "2")]))
    with pytest.raises(InvalidInput, match=r"without a name.*chunk='name'"):
        contents.difference(Contents(unnamed=True))
    for first, stop in ((3, 3), (4, 3), (-1, 2)):
        with pytest.raises(InvalidInput, match="first < stop"):
            contents.add(identity(first, stop))
    assert contents == Contents([identity(20, 30, "shard-7.npz"), identity(0, 10, "shard-7.npz")])
    assert bool(contents)
    assert not Contents()
    assert "1 source" in repr(contents)


GOOD = {"source": "a", "fingerprint": "1", "ranges": [[0, 2], [5, 7]]}

HOSTILE = {
    "a list": [],
    "no flag": {"unnamed": 1, "sources": []},
    "more": {"unnamed": False, "sources": [], "size": 3},
    "no sources": {"unnamed": False},
    "empty ranges": {"unnamed": False, "sources": [GOOD | {"ranges": []}]},
    "an empty range": {"unnamed": False, "sources": [GOOD | {"ranges": [[2, 2]]}]},
    "backwards": {"unnamed": False, "sources": [GOOD | {"ranges": [[3, 2]]}]},
    "unsorted": {"unnamed": False, "sources": [GOOD | {"ranges": [[5, 7], [0, 2]]}]},
    "overlapping": {"unnamed": False, "sources": [GOOD | {"ranges": [[0, 5], [4, 7]]}]},
    "not joined": {"unnamed": False, "sources": [GOOD | {"ranges": [[0, 5], [5, 7]]}]},
    "negative": {"unnamed": False, "sources": [GOOD | {"ranges": [[-1, 5]]}]},
    "three ends": {"unnamed": False, "sources": [GOOD | {"ranges": [[0, 1, 2]]}]},
    "fractions": {"unnamed": False, "sources": [GOOD | {"ranges": [[0, 1.5]]}]},
    "huge": {"unnamed": False, "sources": [GOOD | {"ranges": [[0, 2**70]]}]},
    "twice": {"unnamed": False, "sources": [GOOD, GOOD]},
    "a number": {"unnamed": False, "sources": [GOOD | {"source": 3}]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata_are_refused(name):
    assert Contents.from_metadata({"unnamed": False, "sources": [GOOD]})
    with pytest.raises(FileFormatError, match="contents"):
        Contents.from_metadata(HOSTILE[name])


def test_metadata_are_plain():
    contents = Contents([identity(0, 3, "é\n"), identity(4, 5, "é\n")], unnamed=True)
    assert Contents.from_metadata(parse_json(json.dumps(contents.to_metadata()))) == contents


@given(st.integers(0, 1000))
def test_stretches_are_even_and_in_order(count):
    found = stretches(count)
    assert [at for each in found for at in each] == list(range(count))
    assert len(found) == min(count, MOST_STRETCHES)
    sizes = [len(each) for each in found]
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


# Names of sequences -------------------------------------------------------------------------------

NAMES = st.one_of(
    st.lists(st.lists(st.integers(-20, 60), min_size=1, max_size=6), max_size=6),
    st.lists(st.lists(st.text("ab", max_size=3), min_size=1, max_size=6), max_size=6),
    st.lists(st.lists(st.integers(0, 9).map(lambda x: x / 4), min_size=1, max_size=4), max_size=6),
)


@given(NAMES, st.integers(0, 6))
def test_names_are_refused_where_and_only_where_they_repeat(chunks, cut):
    """Against a set; and the same where two parts are collected apart and put together."""
    seen, repeated = set(), None
    names, parts = SequenceNames(), (SequenceNames(), SequenceNames())
    for at, chunk in enumerate(chunks):
        again = set(chunk) & seen or len(set(chunk)) < len(chunk)
        if again:
            repeated = at
            with pytest.raises(InvalidInput, match="there twice"):
                names.add(np.array(chunk))
            break
        seen |= set(chunk)
        names.add(np.array(chunk))
        restored = SequenceNames.restored(names.metadata(), names.arrays()["names"])
        assert restored.metadata() == names.metadata()
        names = restored
    try:
        for at, chunk in enumerate(chunks):
            parts[at >= cut].add(np.array(chunk))
        parts[0].absorb(parts[1])
    except InvalidInput:
        assert repeated is not None
    else:
        assert repeated is None


def test_a_number_is_the_same_name_whatever_its_type():
    """A column of a file may be read as integers here, and as floats beside fractions there."""
    known = np.array([3, 1])
    for other in (np.array([1.0, 0.5]), np.array([0.5, 1.0]), np.array([1, "x"], dtype=object)):
        names = SequenceNames()
        names.add(known)
        with pytest.raises(InvalidInput, match=r"the sequence 1(\.0)? is there twice"):
            names.add(other)


def test_a_repeated_name_is_quoted():
    names = SequenceNames()
    names.add(np.array(["x", "y"]))
    with pytest.raises(InvalidInput, match="the sequence 'y' is there twice"):
        names.add(np.array(["z", "y"]))


def test_growing_numbers_need_no_memory(monkeypatch):
    monkeypatch.setattr(names_module, "MOST_KEPT", 10)
    names = SequenceNames()
    for first in range(0, 100, 4):
        names.add(np.arange(first, first + 4))
    assert names.arrays()["names"].size <= 10
    with pytest.raises(InvalidInput, match=r"grew up to \d+.*the sequence 7 came"):
        names.add(np.array([300, 7]))
    names.add(np.array([300, 200]))
    with pytest.raises(InvalidInput, match="the sequence 200 is there twice"):
        names.add(np.array([400, 200]))
    later = SequenceNames()
    later.add(np.arange(1000, 1030))
    names.grows = True  # as if nothing had come out of order
    names.last = 500
    names.absorb(later)
    assert names.last == 1029


def test_names_of_chunks_without_names_and_huge_numbers():
    names = SequenceNames()
    names.add(None)
    names.add(np.empty(0))
    names.add(np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64))
    with pytest.raises(InvalidInput, match="twice"):
        names.add(np.array([5, 2**64 - 1], dtype=np.uint64))


@pytest.mark.parametrize("largest", [1e300, np.inf])
def test_names_that_a_file_cannot_hold_as_numbers_are_kept_as_texts_are(largest):
    names = SequenceNames()
    names.add(np.array([-largest, 0.5, largest]))
    restored = SequenceNames.restored(
        json.loads(json.dumps(names.metadata(), allow_nan=False)), names.arrays()["names"]
    )
    for known in (names, restored):
        known.add(np.array([1.5, 2.5]))
        with pytest.raises(InvalidInput, match="twice"):
            known.add(np.array([largest]))


@pytest.mark.parametrize(
    "held",
    [{}, {"first": "a", "last": None, "floor": None, "grows": True}, [], {"first": None}],
)
def test_hostile_names_are_refused(held):
    with pytest.raises(FileFormatError, match="names"):
        SequenceNames.restored(held, np.empty(0, np.int64))
