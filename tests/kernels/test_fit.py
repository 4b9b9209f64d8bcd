"""What public calls on small data do not reach: borders of blocks, ends of float64, fallbacks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import oracle
import polyattn as pa
from oracle import relative_error
from polyattn.errors import OutOfRange
from polyattn.features import symbol_counts
from polyattn.numerics.scaling import NEGLIGIBLE_RISK, as_risk, restored, rounded_up
from polyattn.solve import symbol_groups

pytestmark = pytest.mark.kernel


def test_risks_and_bounds_at_the_ends_of_float64():
    assert (as_risk(0.5, -510), as_risk(0.5, 512)) == (2.0**-1021, 2.0**1023)
    # What rounding leaves may vanish, where nothing is decided by it.
    assert as_risk(NEGLIGIBLE_RISK, -600) == 0.0
    for risk, exponent in ((0.5, -511), (1.0, 512), (2 * NEGLIGIBLE_RISK, -600)):
        with pytest.raises(OutOfRange):
            as_risk(risk, exponent)
    bounds = rounded_up(np.array([0.0, 1, 1, 3, 1]), np.array([-2000, -2000, 2, -1075, 2000]))
    assert bounds.tolist() == [0.0, 5e-324, 4.0, 1.5e-323, np.inf]
    # Of pi 2^-1070 a few bits are left: enough beside pi 2^-1010, unless that counts little.
    array = np.pi * np.array([[1.0, 2.0**-60]])
    assert restored(array, -1010, "it", np.ones(2))[0, 0] == np.pi * 2.0**-1010
    with pytest.raises(OutOfRange, match="it would be"):
        restored(array, -1010, "it", np.array([2.0**-60, 1.0]))


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
