"""What public calls on small data do not reach: borders of blocks, ends of float64, fallbacks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

import oracle
import polyattn as pa
from oracle import relative_error
from polyattn.errors import OutOfRange
from polyattn.features import sequence_sums, symbol_counts
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.numerics.scaling import NEGLIGIBLE_RISK, TINY, as_doubt, as_risk, restored, rounded_up
from polyattn.solve import exact, symbol_groups
from polyattn.stats import rows

pytestmark = pytest.mark.kernel


def test_summaries_do_not_depend_on_blocks(monkeypatch):
    rng = np.random.default_rng(7)
    for given_fields in oracle.FORMS.values():
        fields, width = oracle.split_context(given_fields)
        layout = Layout.of(pa.Form(**fields), 3, width)
        for lengths in ((6, 6, 6), (5, 1, 8, 3)):
            X = [rng.standard_normal((n, 3)) for n in lengths]
            Z = oracle.contexts_for(X, {**oracle.DEFAULTS, **fields}, width)
            contexts = Z or [None] * len(X)
            known = [
                row
                for x, z in zip(X, contexts, strict=True)
                for row in oracle.summaries(x, fields, z)
            ]
            expected = [np.array(each).T for each in zip(*known, strict=True)]
            batch, context = (s and pa.SequenceBatch.from_sequences(s) for s in (X, Z))
            for block_rows, tokens, exponent in ((1, None, 0), (3, None, 40), (1000, 2, 0)):
                with monkeypatch.context() as patched:
                    if tokens is not None:
                        patched.setattr(sequence_sums, "TOKEN_BLOCK", tokens)
                        patched.setattr(sequence_sums, "GRAM_NUMBERS", 1)
                    blocks = list(
                        SeenSequences(layout, batch, context, exponent).blocks(block_rows)
                    )
                assert [b.first for b in blocks] == [0, *(b.stop for b in blocks[:-1])]
                for name, power, wanted in zip(("sums", "queries"), (2, 1), expected, strict=True):
                    found = np.concatenate([getattr(block, name) for block in blocks], axis=1)
                    found = np.ldexp(found, power * exponent)
                    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13)


@given(oracle.forms(exact=True), oracle.sequences(exact=True), st.integers(0, 99))
def test_absent_features_are_those_without_a_term(fields, X, seed):
    """Sums know it after merging, weights of zero left out; a matrix may round, so says nothing."""
    fields, width = oracle.split_context({**oracle.DEFAULTS, **fields})
    for name in ("query", "key", "value"):
        fields[name] = None if np.ndim(fields[name]) == 2 else fields[name]
    rng = np.random.default_rng(seed)
    X = [x * (rng.random(x.shape) < 0.4) for x in X]
    weights = rng.integers(0, 2, len(X)).astype(float)
    Z = oracle.contexts_for(X, fields, width)
    psi = oracle.design([abs(x) for x in X], fields, Z and [abs(z) for z in Z])
    n_rows = [len(oracle.predicted(len(x), fields["mode"])) for x in X]
    expected = ~np.any(psi[np.repeat(weights > 0, n_rows)] > 0, axis=0)
    for kind in (pa.Moments, pa.TriangularFactor):
        parts = [kind(3, 0, form=pa.Form(**fields), n_context_dims=width) for _ in range(2)]
        for part, total in enumerate(parts):
            if X[part::2]:
                context = Z and Z[part::2]
                total.update(X[part::2], sample_weight=weights[part::2], context=context)
        np.testing.assert_array_equal((parts[0] + parts[1]).absent, expected)


def test_risks_and_bounds_at_the_ends_of_float64():
    assert [as_risk(0.0, -2000), as_risk(0.5, -510), as_risk(0.5, 512)] == [
        0.0, 2.0**-1021, 2.0**1023,
    ]  # fmt: skip
    # What rounding leaves may vanish, where nothing is decided by it.
    assert as_risk(NEGLIGIBLE_RISK, -600) == 0.0
    for risk, exponent, more in (
        (0.5, -511, {}), (1.0, 512, {}), (2 * NEGLIGIBLE_RISK, -600, {}),
        (NEGLIGIBLE_RISK, -600, {"negligible": 0.0}),
    ):  # fmt: skip
        with pytest.raises(OutOfRange):
            as_risk(risk, exponent, **more)
    assert [as_doubt(0.0, -600), as_doubt(1.0, -600), as_doubt(1.0, -500)] == [
        0.0, 5e-324, 2.0**-1000,
    ]  # fmt: skip
    bounds = rounded_up(np.array([0.0, 1, 1, 3, 1]), np.array([-2000, -2000, 2, -1075, 2000]))
    assert bounds.tolist() == [0.0, 5e-324, 4.0, 1.5e-323, np.inf]
    assert rounded_up(np.array([1.0]), np.array([-1022])) == TINY
    # Of pi 2^-1070 a few bits are left: enough beside pi 2^-1010, unless that counts little.
    array = np.pi * np.array([[1.0, 2.0**-60]])
    assert restored(array, -1010, "it", np.ones(2))[0, 0] == np.pi * 2.0**-1010
    with pytest.raises(OutOfRange, match="it would be"):
        restored(array, -1010, "it", np.array([2.0**-60, 1.0]))


@pytest.mark.parametrize("mode", oracle.MODES)
def test_exact_data_are_judged_in_portions(mode, monkeypatch):
    for module, name, value in (
        (exact, "PORTION_NUMBERS", 500), (exact, "BLOCK_NUMBERS", 1), (exact, "MIN_ROWS", 3),
        (rows, "SHARE_NUMBERS", 0), (rows, "SHARE_ROWS", 1),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    task = pa.data.planted(1300, 3, 2, n_heads=2, mode=mode, random_state=0)
    Y = np.array(task.Y)
    assert pa.fit(task.X, Y, mode=mode).solver == "exact"
    Y[-1:] += 1e-3
    assert pa.fit(task.X, Y, mode=mode).solver == "primal"


def test_groups_of_symbols_are_solved_alike_by_every_method(monkeypatch):
    rng = np.random.default_rng(0)
    for n_rows, k in ((40, 12), (12, 40), (20, 20)):
        counts = csr_array(rng.integers(0, 3, size=(n_rows, k)).astype(float))
        Y, weights = rng.standard_normal((n_rows, 2)), rng.uniform(0.5, 2.0, n_rows)
        for ridge in (0.0, 0.1):
            wanted = oracle.least_squares(counts.toarray(), Y, np.ones(k), ridge, weights)
            for constants in (
                {}, {"LEAST_RCOND": 2.0}, {"LEAST_RCOND": 2.0, "FACTORED_ROWS": 7},
                {"LARGEST_SIDE": 0},
            ):  # fmt: skip
                with monkeypatch.context() as patched:
                    for name, value in constants.items():
                        patched.setattr(symbol_groups, name, value)
                    found = symbol_groups.solve_group(counts, Y, weights, ridge)
                assert relative_error(found.theta, wanted) < 1e-7
                is_open = ridge or "LARGEST_SIDE" in constants
                assert (found.rank, found.is_reached) == (None if is_open else min(n_rows, k), True)


def test_an_iteration_over_symbols_that_stops_is_not_called_found(monkeypatch):
    ids = np.random.default_rng(0).integers(4, size=(60, 5))
    batch, Y = pa.SequenceBatch.from_ids(ids, 4), np.arange(60.0) % 7
    whole = pa.fit(batch, Y, solver="one_hot")
    monkeypatch.setattr(symbol_counts, "ENTRIES", 10)
    assert relative_error(pa.fit(batch, Y, solver="one_hot").coef, whole.coef) < 1e-13
    monkeypatch.setattr(symbol_groups, "LARGEST_SIDE", 0)
    found = pa.fit(batch, Y, solver="one_hot")
    assert (found.outcome.name, found.outcome.ok) == ("iterative", False)
    monkeypatch.setattr(symbol_groups, "MOST_PASSES", 1)
    assert not pa.fit(batch, Y, solver="one_hot", ridge=0.1).outcome.ok
