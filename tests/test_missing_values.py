"""Batches that hold missing numbers: let in where asked, refused by everything that computes."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.sequences import OwnedBatch, as_batch

RNG = np.random.default_rng(20)
WHOLE = RNG.standard_normal((5, 8, 3))
GAPS = WHOLE.copy()
GAPS[3, 7, 2] = np.nan
Y, Y_TOKENS = RNG.standard_normal((5, 2)), RNG.standard_normal((5, 8, 2))
WHERE = "sequence 3, token 7, coordinate 2, which is NaN; .*pa.SequenceImputer fills missing"


def held(**options):
    return pa.SequenceBatch.from_array(GAPS, missing=True, **options)


# What is let in -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.SequenceBatch, OwnedBatch])
def test_every_constructor_lets_missing_numbers_in_where_asked(kind):
    made = [
        kind(GAPS.reshape(-1, 3), np.arange(6) * 8, missing=True),
        kind.from_array(GAPS, missing=True),
        kind.from_sequences(list(GAPS), missing=True),
        kind.from_padded(GAPS, [8] * 5, missing=True),
    ]
    for batch in made:
        assert batch.has_missing
        np.testing.assert_array_equal(np.stack(list(batch)), GAPS)
        np.testing.assert_array_equal(
            batch.coordinate_sizes(), np.nanmax(np.abs(GAPS), axis=(0, 1))
        )
    assert all(as_batch(X, missing=True).has_missing for X in (GAPS, list(GAPS), made[0]))


def test_a_batch_without_gaps_knows_it():
    for batch in (as_batch(WHOLE, missing=True), as_batch(np.ones((2, 3, 1), int), missing=True)):
        assert not batch.has_missing
        assert as_batch(batch) is batch
    assert not pa.SequenceBatch.from_ids([[0, 1]], 2).has_missing


def test_a_column_that_is_missing_altogether_has_size_zero():
    batch = as_batch(np.full((1, 2, 1), np.nan), missing=True)
    np.testing.assert_array_equal(batch.coordinate_sizes(), [0.0])


@given(st.integers(0, 4), st.integers(1, 5), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_parts_know_whether_they_have_gaps(first, count, which):
    stop = min(5, first + count)
    batch = held()
    assert batch.part(first, stop).has_missing == (first <= 3 < stop)
    assert batch[first:stop].has_missing == (first <= 3 < stop)
    chosen = batch.chosen(np.array(which))
    assert chosen.has_missing == (3 in which)
    np.testing.assert_array_equal(np.stack(list(chosen)), GAPS[which])
    if 3 not in which:
        assert as_batch(chosen) is chosen


@pytest.mark.parametrize("bad", [np.inf, -np.inf])
def test_infinity_is_never_let_in(bad):
    spoilt = GAPS.copy()
    spoilt[1, 2, 0] = bad
    for X in (spoilt, list(spoilt)):
        with pytest.raises(InvalidInput, match="infinity in 1 of 120 places, first at sequence 1"):
            as_batch(X, missing=True)
    with pytest.raises(InvalidInput, match=rf"sequence 1, token 2, coordinate 0, which is {bad};"):
        as_batch(spoilt)


def test_missing_is_a_flag():
    with pytest.raises(InvalidType, match="missing must be True or False; got 'keep'"):
        pa.SequenceBatch.from_array(GAPS, missing="keep")


# What is refused ----------------------------------------------------------------------------


@cache
def fitted():
    return pa.fit(WHOLE, Y)


LAYER = pa.LinearAttention(np.eye(3), np.ones((3, 2)))


def items(X):
    return [(X, Y)]


ENTRIES = {
    "fit": lambda X: pa.fit(X, Y),
    "fit of sums": lambda X: pa.fit(X, Y, solver="primal"),
    "fit with context": lambda X: pa.fit(WHOLE, Y, context=X),
    "FitResult.predict": lambda X: fitted().predict(X),
    "certify": pa.certify,
    "certify in float": lambda X: pa.certify(X, method="float"),
    "verify": lambda X: pa.verify(pa.certify(WHOLE), X),
    "bound": lambda X: pa.certify(WHOLE).bound(X, 0.1),
    "audit": lambda X: pa.audit(LAYER, X, Y),
    "Moments.update": lambda X: pa.Moments(3, 2).update(X, Y),
    "TriangularFactor.update": lambda X: pa.TriangularFactor(3, 2).update(X, Y),
    "learning_curve": lambda X: pa.learning_curve(X, Y, [3]),
    "layer": LAYER,
    "softmax layer": pa.SoftmaxAttention([np.eye(3)], [np.eye(3)]),
    "learn_softmax": lambda X: pa.learn_softmax(X, Y, n_heads=1),
    "scan": lambda X: pa.fit(pa.scan(X, Y)),
    "scan of pairs": lambda X: pa.fit(pa.scan(items(X))),
    "scan of a generator": lambda X: pa.fit(pa.scan(iter(items(X)))),
    "regressor.fit": lambda X: pa.LinearAttentionRegressor().fit(X, Y),
    "regressor.partial_fit": lambda X: pa.LinearAttentionRegressor().partial_fit(X, Y),
    "regressor.predict": lambda X: pa.LinearAttentionRegressor().fit(WHOLE, Y).predict(X),
    "regressor.score": lambda X: pa.LinearAttentionRegressor().fit(WHOLE, Y).score(X, Y),
    "classifier.fit": lambda X: pa.LinearAttentionClassifier().fit(X, [0, 1, 0, 1, 0]),
    "domain": lambda X: pa.certify(WHOLE, domain=pa.domains.Finite(X)),
}


@pytest.mark.parametrize("given_as", ["batch", "array", "list"])
@pytest.mark.parametrize("entry", ENTRIES)
def test_whatever_computes_refuses_them_and_says_where(entry, given_as):
    X = {"batch": held(), "array": GAPS, "list": list(GAPS)}[given_as]
    with pytest.raises(InvalidInput, match=WHERE):
        ENTRIES[entry](X)


@pytest.mark.parametrize("entry", ["fit", "Moments.update", "layer", "scan", "regressor.fit"])
def test_the_same_without_gaps_is_taken(entry):
    ENTRIES[entry](as_batch(WHOLE, missing=True))


def test_targets_with_gaps_are_refused_too():
    targets = Y_TOKENS.copy()
    targets[2, 1, 0] = np.nan
    for given_targets in (targets, list(targets), as_batch(targets, missing=True)):
        with pytest.raises(InvalidInput, match=r"Y contains NaN .*sequence 2, token 1, output 0"):
            pa.fit(WHOLE, given_targets, mode="causal")
        with pytest.raises(InvalidInput, match=r"Y contains NaN .*sequence 2, token 1, output 0"):
            pa.fit(pa.scan(WHOLE, given_targets), mode="causal")
