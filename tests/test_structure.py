"""Features that are always zero or multiples of others: dropped, said, and never a wrong answer."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import OutOfRange
from polyattn.form import Form
from polyattn.solve import primal
from polyattn.solve.structure import find_structure
from polyattn.stats.rows import Rows

RNG = np.random.default_rng(3)
PROMPTS = RNG.standard_normal((300, 6, 4))
PROMPTS[:, -1, -1] = 0.0  # the label of the query is not given
DOUBLED = RNG.standard_normal((300, 6, 4))
DOUBLED[..., 3] = 3.0 * DOUBLED[..., 2]
CASES = {
    "a query without label": (PROMPTS, Form(), 10, 0),
    "signs": (RNG.choice([-1.0, 1.0], size=(300, 6, 4)), Form(mode="causal"), 0, 12),
    "one-hot": (np.eye(4)[RNG.integers(0, 4, (300, 6))], Form(mode="causal"), 24, 0),
    "single tokens": (RNG.standard_normal((300, 1, 4)), Form(), 0, 20),
    "a coordinate three times another": (DOUBLED, Form(), 0, 22),
    "a zero coordinate": (DOUBLED * [1.0, 0.0, 1.0, 1.0], Form(), 22, 12),
    "lag 0 of whole tokens": (DOUBLED[..., :3], Form(mode="causal", lags=1), 0, 8),
    "two constants": (
        DOUBLED[..., :2], Form(mode="full", bias=True, mean=True, intercept=True), 0, 1
    ),
}  # fmt: skip


def targets(X, form, seed=0):
    shape = (len(X), 2) if form.mode == "last" else (*X.shape[:2], 2)
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_answer_is_that_of_an_orthogonal_factorisation(monkeypatch, name, ridge):
    X, form, _, _ = CASES[name]
    Y = targets(X, form)
    expected = pa.fit(X, Y, form=form, ridge=ridge, solver="direct")

    def never(*_):
        raise AssertionError("the rows were factored")

    monkeypatch.setattr(primal, "solve_tall", never)
    found = pa.fit(X, Y, form=form, ridge=ridge, solver="primal")
    size = np.abs(expected.coef).max()
    # With a ridge the factorisation keeps what is dropped here, and rounds more.
    tolerance = (1e-8 if ridge else 1e-11) * size
    np.testing.assert_allclose(found.coef, expected.coef, rtol=0, atol=tolerance)
    assert found.rank == expected.rank
    assert found.risk == pytest.approx(expected.risk, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_what_was_dropped_is_counted_and_said(name):
    X, form, n_zero, n_repeated = CASES[name]
    rows = Rows.build(X, targets(X, form), form)
    moments = pa.Moments.of(rows)
    structure = find_structure(moments.scaled_gram(1.0 / rows.layout.feature_weights), rows)
    assert (structure.n_zero, structure.n_repeated) == (n_zero, n_repeated)
    outcome = pa.fit(X, targets(X, form), form=form, solver="primal").outcome
    assert outcome.name == "minimum_norm"
    assert "The data determine all else" in str(outcome)
    assert ("never occur" in str(outcome)) == (n_zero > 0)
    assert ("multiple of another" in str(outcome)) == (n_repeated > 0)
    assert "add data" not in str(outcome)


def test_the_coordinate_that_is_always_zero_is_named():
    outcome = pa.fit(PROMPTS, targets(PROMPTS, Form())).outcome
    assert "number 3 of the query is always 0" in str(outcome)


def test_what_the_query_does_not_explain_is_counted_apart():
    X = PROMPTS * [1.0, 1.0, 0.0, 1.0]
    said = pa.fit(X, targets(X, Form())).sentence
    assert "28 of 40 features never occur" in said
    assert "20 since numbers 2, 3 of the query are always 0, and 8 since their sums" in said
    said = pa.fit(PROMPTS, targets(PROMPTS, Form())).sentence
    assert "10 of 40 features never occur in the data (they are always 0), since number 3" in said


NOTHING = {
    "zeros": (0.0 * PROMPTS, Form()),
    "a map to zero": (PROMPTS, Form(query=np.zeros((4, 2)))),
    "nothing to attend to": (PROMPTS[:, :1], Form(include_query=False)),
}


@pytest.mark.parametrize("name", NOTHING)
def test_data_without_any_feature_are_not_said_to_vary_too_little(name):
    X, form = NOTHING[name]
    said = pa.fit(X, targets(X, form), form=form).sentence
    assert "no feature ever occurs in the data" in said
    assert "do not vary" not in said
    assert "ridge" not in said


def test_features_that_underflow_are_not_said_to_be_zero():
    small = PROMPTS.copy()
    small[:, -1] *= 1e-200
    sums, none = (pa.Moments(4, 2).update(X, targets(X, Form())) for X in (small, 0.0 * small))
    with pytest.raises(OutOfRange, match="squares of all features vanish"):
        pa.fit(statistics=sums)
    assert "no feature ever occurs" in pa.fit(statistics=none).outcome.sentence


def test_no_structure_is_found_in_generic_data():
    X = RNG.standard_normal((200, 5, 3))
    rows = Rows.build(X, targets(X, Form()), Form())
    gram = pa.Moments.of(rows).scaled_gram(1.0 / rows.layout.feature_weights)
    assert find_structure(gram, rows) is None


def test_nearly_equal_features_are_told_apart():
    """Features that agree to 1e-9 are not equal: the data decide between them."""
    X = RNG.standard_normal((400, 5, 3))
    X[..., 2] = X[..., 1] * (1.0 + 1e-9 * RNG.standard_normal(X.shape[:2]))
    rows = Rows.build(X, targets(X, Form()), Form())
    gram = pa.Moments.of(rows).scaled_gram(1.0 / rows.layout.feature_weights)
    assert find_structure(gram, rows) is None


def test_other_degeneracy_is_still_found():
    """A coordinate that is the sum of two others makes no feature a multiple of one other."""
    X = RNG.standard_normal((300, 6, 3))
    X = np.concatenate([X, X[..., :1] + X[..., 1:2]], axis=2)
    Y = targets(X, Form())
    found, expected = (pa.fit(X, Y, solver=solver) for solver in ("primal", "direct"))
    assert found.rank == expected.rank < found.n_features
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-9)


def test_a_large_sequence_makes_no_feature_a_multiple():
    """Beside it all moments look parallel; row by row they are not."""
    X = RNG.standard_normal((400, 4, 3))
    X[7] *= 1e6
    rows = Rows.build(X, targets(X, Form()), Form())
    gram = pa.Moments.of(rows).scaled_gram(1.0 / rows.layout.feature_weights)
    assert find_structure(gram, rows) is None
    assert "times larger than most" in str(pa.fit(X, targets(X, Form())).outcome)


@pytest.mark.parametrize("units", [[1e8, 1.0, 1e-8], [1e-5, 1e3, 1.0]])
def test_units_do_not_make_features_equal(units):
    X = RNG.standard_normal((300, 5, 3)) * units
    Y = targets(X, Form())
    assert pa.fit(X, Y, solver="primal").rank == 18
    X[..., 2] = X[..., 1]
    assert pa.fit(X, Y, solver="primal").rank == 6


def test_moments_alone_drop_zeros():
    Y = targets(PROMPTS, Form())
    moments = pa.Moments(4, 2).update(PROMPTS, Y)
    found, expected = pa.fit(statistics=moments), pa.fit(PROMPTS, Y, solver="direct")
    np.testing.assert_allclose(found.coef, expected.coef, atol=1e-10)
    assert found.rank == 30


def test_all_zeros_are_met_by_zeros():
    found = pa.fit(np.zeros((50, 3, 2)), np.ones((50, 1)))
    assert not found.coef.any()
    assert found.rank == 0


def test_a_query_that_attends_to_nothing_is_not_called_zero():
    """Coordinate 2 of the query differs from 0 only where there is no other token."""
    X = [*RNG.standard_normal((60, 4, 3)), *RNG.standard_normal((20, 1, 3))]
    for tokens in X[:60]:
        tokens[-1, 2] = 0.0
    outcome = pa.fit(X, RNG.standard_normal((80, 1)), form=Form(include_query=False)).outcome
    assert "number 2 of the query is always 0 or has nothing to attend to" in outcome.sentence
