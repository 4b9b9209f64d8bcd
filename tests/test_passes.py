"""Passes over rows of a source: the parts that chunks decide, sums over them, and their order."""

import copy
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import polyattn as pa
from polyattn.cluster import Workers, units_of
from polyattn.errors import InvalidInput
from polyattn.heads.data_scale import SampleScale
from polyattn.progress import listening
from polyattn.solve import leave_one_out
from polyattn.solve.leave_one_out import errors_of_many
from polyattn.solve.primal import residual_pass
from polyattn.solve.second_moments import second_moments
from polyattn.sources.stretches import MOST_STRETCHES
from polyattn.stats import parts, row_groups
from polyattn.stats import rows as rows_module
from polyattn.stats.held_rows import held_rows
from polyattn.stats.opening import rows_of_source
from polyattn.stats.parts import Origin, ReadBy
from polyattn.stats.passes import factor_of, folded, of_parts, summed
from polyattn.stats.rows import Rows
from polyattn.stats.scratch import ScratchFile
from source_cases import EmptyChunk, ListSource, MemoryChunk, memory_source, sent

FORMS = {
    "last": pa.Form(),
    "causal": pa.Form(mode="causal", bias=True, intercept=True, decay=(0.5, 1.0)),
    "full": pa.Form(mode="full", skip=True),
    "context": pa.Form(mode="full"),
    # Integers would overflow, if they were not floats wherever they are read.
    "function": pa.Form(mode="full", key=lambda tokens: tokens**9 / 1e9),
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Parts of a few rows."""
    monkeypatch.setattr(parts, "PART_NUMBERS", 100)


def mixed_source(form, n_chunks=12, seed=0):
    """Ragged chunks, integers beside floats, weights in some of them, and empty ones between."""
    rng = np.random.default_rng(seed)
    chunks, first = [], 0
    for at in range(n_chunks):
        if at % 5 == 4:
            chunks.append(EmptyChunk("mixed", 1000 + at))
            continue
        count = int(rng.integers(1, 9))
        lengths = rng.integers(1, 6, count)
        X = [rng.standard_normal((n, 2)) for n in lengths]
        if at % 3 == 0:
            X = [np.round(9 * each).astype(np.int32) for each in X]
        Y = [rng.standard_normal((1 if form.mode == "last" else n, 2)) for n in lengths]
        weights = rng.uniform(0.5, 2.0, count) if at % 2 else None
        more = {}
        if form is FORMS["context"]:
            others = [rng.standard_normal((int(rng.integers(1, 4)), 2)) for _ in X]
            more["context"] = pa.SequenceBatch.from_sequences(others)
        Y = np.concatenate(Y) if form.mode == "last" else Y
        chunks.append(MemoryChunk("mixed", X, Y, weights, first=first, **more))
        first += count
    return ListSource(chunks, 2, 2, 2 if form is FORMS["context"] else None)


def in_memory(source, form):
    """The same rows of arrays."""
    data = [each for each in (chunk.read(form.mode) for chunk in source.chunks) if each]
    X = [np.asarray(x, float) for each in data for x in each.batch]
    Y = [y for each in data for y in each.targets]
    weights = np.concatenate(
        [np.ones(len(each.batch)) if each.weights is None else each.weights for each in data]
    )
    context = None if data[0].context is None else [z for each in data for z in each.context]
    Y = np.array(Y) if form.mode == "last" else Y
    return Rows.build(X, Y, form, weights, context)


def theta_for(rows):
    rng = np.random.default_rng(5)
    return rng.standard_normal((rows.n_features, rows.n_outputs))


def bits(rows):
    """Sums of several passes."""
    moments = second_moments(rows)
    return [
        *residual_pass(theta_for(rows), rows),
        *(each.square for each in moments),
        *(each.root for each in moments if each.root is not None),
        factor_of(rows)._factor,
    ]


def on_workers(rows, n_threads=2, memory=1 << 30):
    """The rows, as if workers read them; nobody does."""
    workers = Workers(None, {}, n_threads, None, True, memory)
    return replace(rows, read_by=ReadBy(workers, rows.sequence_weights))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_parts_end_where_chunks_do(form):
    rows = rows_of_source(mixed_source(form), form)
    assert len(rows.parts) >= 3
    ends = np.cumsum([part.n_sequences for part in rows.parts])
    borders = np.searchsorted(rows.batch.offsets, rows.batch.values.borders)
    assert set(ends) <= set(borders)
    assert ends[-1] == rows.n_sequences
    assert [part.base for part in rows.parts] == [0, *rows.borders[ends[:-1]]]
    least = min(part.n_rows * rows.numbers_per_row for part in rows.parts[:-1])
    assert least >= parts.PART_NUMBERS
    assert all(part.parts == [part] for part in rows.parts)


@pytest.mark.parametrize("n_chunks", [1, 64, 65, 300])
def test_there_are_no_more_parts_than_stretches(n_chunks, monkeypatch):
    monkeypatch.setattr(parts, "PART_NUMBERS", 1)
    rows = rows_of_source(memory_source(n_chunks), pa.Form())
    assert min(n_chunks, MOST_STRETCHES // 2) <= len(rows.parts) <= MOST_STRETCHES
    assert sum(part.n_rows for part in rows.parts) == rows.n_rows


def test_arrays_in_memory_are_one_part():
    rows = in_memory(mixed_source(pa.Form()), pa.Form())
    assert rows.parts == [rows]
    assert not rows.is_on_workers


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_sums_over_parts_are_those_of_all_rows(form, monkeypatch):
    monkeypatch.setattr(row_groups, "GROUP_NUMBERS", 60)
    source = mixed_source(form)
    by_parts, at_once = rows_of_source(source, form), in_memory(source, form)
    for one, other in zip(bits(by_parts)[:-1], bits(at_once)[:-1], strict=True):
        assert_allclose(one, other, rtol=1e-11, atol=1e-11 * np.abs(other).max(initial=0.0))
    one, other = (each.T @ each for each in (bits(by_parts)[-1], bits(at_once)[-1]))
    assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(other).max())
    one, other = SampleScale.of(by_parts), SampleScale.of(at_once)
    assert_allclose(one.sums, other.sums, rtol=1e-12)
    assert_allclose(one.queries, other.queries, rtol=1e-12)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_where_summaries_are_kept_changes_no_bit(form, monkeypatch):
    monkeypatch.setattr(row_groups, "GROUP_NUMBERS", 60)
    source = mixed_source(form)
    kept = rows_of_source(source, form)
    wanted = bits(kept)
    assert all(part._kept for part in kept.parts)
    monkeypatch.setattr(rows_module, "KEPT_NUMBERS", 0)
    made = rows_of_source(source, form)
    files = [ScratchFile() for _ in made.parts]
    stored = made.with_scratch(*files)
    found = [bits(made), bits(stored), bits(stored)]
    assert not any(part._kept for part in [*made.parts, *stored.parts])
    assert all(each.is_whole for each in files)
    for each in found:
        for one, other in zip(each, wanted, strict=True):
            assert_array_equal(one, other)
    for each in files:
        each.__exit__(None, None, None)


def test_parts_are_seen_in_the_bits(monkeypatch):
    """Negative control: other parts give other bits, as sums in another order do."""
    source = mixed_source(pa.Form())
    some = bits(rows_of_source(source, pa.Form()))
    monkeypatch.setattr(parts, "PART_NUMBERS", 1 << 20)
    one = rows_of_source(source, pa.Form())
    assert one.parts == [one]
    assert any(not np.array_equal(a, b) for a, b in zip(some, bits(one), strict=True))


def test_results_are_folded_in_order():
    results = [[np.array([x]), x] for x in (1.0, 1e17, -1e17, 3.0)]
    [array], number = folded(results)
    assert array == number == ((1.0 + 1e17) - 1e17) + 3.0
    # Negative control: in another order the sum is another one.
    assert folded(results[::-1])[1] != number


@pytest.mark.parametrize("n_threads", [1, 2, 100])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_worker_makes_the_same_rows(form, n_threads):
    rows = rows_of_source(mixed_source(form), form)
    held = held_rows(on_workers(rows, n_threads))
    made = [part for unit in held._units for part in unit.make(unit.chunks)]
    assert [part.n_rows for part in made] == [n for unit in held._units for n in unit.sizes]
    for one, other in zip(made, rows.parts, strict=True):
        assert (one.base, one.share) == (other.base, other.share)
        assert_array_equal(one.sequence_weights, other.sequence_weights)
        for a, b in zip(one.blocks(), other.blocks(), strict=True):
            assert (a.first, a.stop) == (b.first, b.stop)
            assert_array_equal(a.sums, b.sums)
            assert_array_equal(a.queries, b.queries)
            assert_array_equal(a.targets, b.targets)
    assert all(part.held_bytes == part.summary_bytes for part in made)


def test_workers_keep_what_they_have_memory_for():
    rows = on_workers(rows_of_source(mixed_source(pa.Form()), pa.Form()), memory=0)
    assert not rows.keeps_summaries
    made = [part for unit in held_rows(rows)._units for part in unit.make(unit.chunks)]
    assert not any(part._kept for part in made)
    list(made[0].groups())
    assert made[0].held_bytes == 0
    # What workers keep, this process does not.
    rows = on_workers(replace(rows, kept_numbers=0))
    assert rows.keeps_summaries
    assert rows.share is None


def test_a_source_that_changed_is_refused():
    source = mixed_source(pa.Form())
    held = held_rows(on_workers(rows_of_source(source, pa.Form())))
    unit = held._units[0]
    with pytest.raises(InvalidInput, match="has changed since it was read before"):
        unit.make(unit.chunks[:-1])


def test_only_rows_as_they_were_read_are_on_workers():
    rows = on_workers(rows_of_source(mixed_source(pa.Form()), pa.Form()))
    assert rows.is_on_workers
    assert replace(rows, kept_numbers=3, token_exponent=2).is_on_workers
    assert replace(rows, sequence_weights=None).is_on_workers
    assert not rows.part(0, 3).is_on_workers
    assert not rows.part(0, rows.n_sequences).is_on_workers
    assert not replace(rows, sequence_weights=rows.sequence_weights.copy()).is_on_workers
    values = rows.batch.values.moved(np.full(2, 0.5), 1)
    moved = copy.copy(rows.batch)
    vars(moved)["values"] = values
    assert not replace(rows, batch=moved).is_on_workers


def test_copies_know_no_workers():
    rows = on_workers(rows_of_source(memory_source(5), pa.Form()))
    rows = rows.come_from(Origin(memory_source(5), client=print))
    held_rows(rows)
    wanted = residual_pass(theta_for(rows), rows_of_source(memory_source(5), pa.Form()))
    for same in (sent(rows)[0], copy.deepcopy(rows)):
        assert not same.is_on_workers
        assert same.origin.client is None
        assert_array_equal(residual_pass(theta_for(rows), same)[0], wanted[0])


def test_progress_counts_all_rows(monkeypatch):
    monkeypatch.setattr(rows_module, "KEPT_NUMBERS", 0)
    rows = rows_of_source(mixed_source(pa.Form()), pa.Form())
    seen = []
    with listening(lambda *each: seen.append(each)):
        residual_pass(theta_for(rows), rows)
    assert seen == sorted(seen)
    assert seen[-1] == (rows.n_rows, rows.n_rows)


@pytest.mark.parametrize("mode", ["last", "causal"])
def test_leaving_out_finds_the_same_sequences_in_parts(mode, monkeypatch):
    """Some sequences decide their own fit, and are judged beside all others."""
    decisive, before = [], leave_one_out._factor_of_others

    def others(rows, numbers):
        decisive.append(numbers)
        return before(rows, numbers)

    monkeypatch.setattr(leave_one_out, "_factor_of_others", others)
    rng = np.random.default_rng(0)
    n_tokens, X = 3, rng.standard_normal((240, 3, 2))
    X[[7, 100, 239]] *= 30.0
    Y = rng.standard_normal((240, 1) if mode == "last" else (240, n_tokens, 1))
    form = pa.Form(mode=mode)
    source = pa.scan(X, Y, chunk_bytes=500)
    by_parts = rows_of_source(source, form)
    assert len(by_parts.parts) >= 10
    grid, errors = errors_of_many(by_parts, None)
    wanted_grid, wanted = errors_of_many(Rows.build(X, Y, form), None)
    assert decisive[: len(decisive) // 2] == decisive[len(decisive) // 2 :]
    assert {7, 100, 239} <= {number for group in decisive for number in group}
    assert_allclose(grid, wanted_grid, rtol=1e-12)
    assert_allclose(errors, wanted, rtol=1e-8)


def test_units_are_all_parts_in_order():
    for n_parts in (1, 2, 7, 64):
        for n_threads in (1, 3, 500):
            units = units_of(n_parts, Workers(None, {}, n_threads, None, True))
            assert [number for unit in units for number in unit] == list(range(n_parts))
            assert all(units)
            assert all(one.stop == other.start for one, other in pairwise(units))


def test_a_sum_of_nothing_is_zero():
    rows = rows_of_source(memory_source(3), pa.Form())
    counted = summed(rows, lambda _, blocks: [sum(each.stop - each.first for each in blocks)])
    assert counted == [rows.n_rows]
    assert list(of_parts(rows, lambda part: part.n_rows)) == [part.n_rows for part in rows.parts]
