"""Next data: few sequences that make the data identifiable, each one worth it."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import domains

MODES = ("last", "causal", "full")


def flat(seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((60, 3, 2)) @ rng.standard_normal((2, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_built_sequences_make_the_data_identifiable(mode, bias):
    X = flat()
    before = pa.certify(X, mode, bias=bias)
    advice = before.next_data()
    assert advice.complete
    assert advice.indices is None
    assert len(advice) <= before.dimension - before.rank
    assert np.all(np.diff([before.rank, *advice.ranks]) > 0)
    after = pa.certify([*X, *advice.sequences], mode, bias=bias)
    assert after.verdict == "identifiable"
    assert after.lambda_min == pytest.approx(advice.lambda_min[-1], rel=1e-6)
    assert "then the data determine the layer" in advice.sentence


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("domain", ["boolean", "one_hot"])
def test_built_sequences_stay_inside_a_discrete_domain(domain, mode):
    rng = np.random.default_rng(0)
    if domain == "boolean":
        X = rng.choice([-1, 1], size=(20, 2, 4))
        X[..., 3] = X[..., 2]
    else:
        X = np.eye(5)[rng.integers(3, size=(30, 3))]
    before = pa.certify(X, mode, domain)
    advice = before.next_data()
    assert advice.complete
    assert len(advice) <= before.dimension - before.rank
    assert pa.certify([*X, *advice.sequences], mode, domain).verdict == "identifiable"


@pytest.mark.parametrize("n_sequences", [300, 3000, 30000])
@pytest.mark.parametrize("lengths", [None, 1])
def test_rounding_that_grows_with_the_rows_does_not_count_as_seen(n_sequences, lengths):
    """Singular values of what is unseen are no longer below a few roundings then."""
    domain = domains.Boolean(lengths)
    X = np.random.default_rng(0).choice([-1, 1], size=(n_sequences, lengths or 3, 3))
    X[..., 0] = X[..., 1]
    before = pa.certify(X, domain=domain, bias=True)
    advice = before.next_data()
    assert before.verdict == "not_identifiable"
    assert "Collect" in advice.sentence
    assert len(advice) <= before.dimension - before.rank
    after = pa.certify([*X, *advice.sequences], domain=domain, bias=True)
    assert after.verdict == "identifiable"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e60])
def test_advice_does_not_depend_on_the_size_of_the_tokens(scale):
    """Whose sixth power leaves float64; that is no reason to warn."""
    X = scale * flat()
    advice = pa.certify(X).next_data()
    assert "then the data determine the layer" in advice.sentence
    assert pa.certify([*X, *advice.sequences]).verdict == "identifiable"


def test_where_rounding_hides_it_nothing_is_called_determined():
    """The certificate is undecided, and the advice claims no more."""
    X = np.random.default_rng(0).standard_normal((60, 3, 2))
    X[..., 1] = X[..., 0] * (1 + 1e-9 * X[..., 1])
    certificate = pa.certify(statistics=pa.Moments(2).update(X))
    assert certificate.verdict == "undecided"
    assert "already" not in certificate.next_data().sentence


def test_lengths_of_the_domain_are_kept():
    domain = domains.Boolean(lengths=4)
    X = np.ones((30, 4, 3))
    advice = pa.certify(X, domain=domain).next_data()
    assert {len(sequence) for sequence in advice.sequences} == {4}
    assert pa.certify([*X, *advice.sequences], domain=domain).verdict == "identifiable"


@pytest.mark.parametrize("mode", MODES)
def test_candidates_are_chosen_from_the_pool(mode):
    rng = np.random.default_rng(0)
    X, pool = flat(), [*flat(seed=0)[:40], *rng.standard_normal((60, 3, 3))]
    before = pa.certify(X, mode)
    advice = before.next_data(pool)
    assert advice.complete
    assert len(set(advice.indices)) == len(advice)
    assert min(advice.indices) >= 40  # the others show nothing new
    chosen = [pool[i] for i in advice.indices]
    assert all(np.array_equal(a, b) for a, b in zip(chosen, advice.sequences, strict=True))
    assert pa.certify([*X, *chosen], mode).verdict == "identifiable"


def test_a_pool_that_cannot_help_says_so():
    X = flat()
    advice = pa.certify(X[:50]).next_data(X[50:])
    assert len(advice) == 0
    assert not advice.complete
    assert advice.sentence == "No candidate adds anything."


def test_a_limit_is_kept_and_named():
    advice = pa.certify(flat()).next_data(n_sequences=3)
    assert len(advice) == 3
    assert not advice.complete
    assert "more are needed" in advice.sentence


def test_identifiable_data_are_improved():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3, 2)) * [1.0, 0.1]
    before = pa.certify(X)
    built = before.next_data(n_sequences=4)
    # In the sum over rows: the mean also counts the rows that were added.
    summed = np.array([before.lambda_min, *built.lambda_min]) * np.arange(40, 45)
    assert np.all(np.diff(summed) > 0)
    assert built.lambda_min[-1] > 10 * before.lambda_min
    pool = rng.standard_normal((100, 3, 2))
    chosen = before.next_data(pool, n_sequences=4)
    random = pa.certify([*X, *pool[:4]]).lambda_min
    assert chosen.lambda_min[-1] > random
    assert len(chosen) == 4
    assert built.sentence.startswith("The data determine the layer already. ")
    assert f"{built.lambda_min[-1]:.3g}" in built.sentence


@pytest.mark.parametrize("seed", range(20))
def test_of_a_few_candidates_the_best_is_taken(seed):
    """Where nothing is unseen: the one after which the smallest eigenvalue is largest."""
    rng = np.random.default_rng(seed)
    X, pool = rng.standard_normal((40, 3, 2)), rng.standard_normal((8, 3, 2))
    after = [pa.Moments(2).update([*X, candidate]).spectrum()[0] for candidate in pool]
    chosen = pa.certify(X).next_data(pool, n_sequences=1)
    assert chosen.indices == [int(np.argmax(after))]
    assert chosen.lambda_min[0] == pytest.approx(max(after), rel=1e-9)


def test_the_unitary_memory_needs_its_deficit_and_random_sequences_more():
    """Rank 248 of 288: forty sequences suffice, and no fewer could."""
    X = pa.data.associative_memory(2**12, 4, unitary=1.0, random_state=0).X
    before = pa.certify(X)
    assert (before.rank, before.dimension) == (248, 288)
    built = before.next_data()
    assert built.complete
    assert len(built) <= 40
    assert pa.certify([*X, *built.sequences]).verdict == "identifiable"
    pool = pa.data.associative_memory(2000, 4, unitary=0.95, random_state=1).X
    chosen = before.next_data(pool)
    assert chosen.complete
    assert len(chosen) <= 40
    assert pa.certify([*X, *chosen.sequences]).verdict == "identifiable"
    # As many at random, and five times as many, are not enough.
    for count in (40, 200):
        random = pa.certify([*X, *pool[:count]])
        assert random.verdict == "not_identifiable"
        assert random.rank < 288


@pytest.mark.parametrize("n_sequences", [0, -1, True])
def test_bad_limits_are_refused(n_sequences):
    with pytest.raises(ValueError, match="n_sequences"):
        pa.certify(flat()).next_data(n_sequences=n_sequences)


def test_bad_candidates_are_refused():
    certificate = pa.certify(np.ones((9, 2, 3)), domain="boolean")
    with pytest.raises(ValueError, match="does not belong"):
        certificate.next_data(np.zeros((3, 2, 3)))
    with pytest.raises(ValueError, match="3 coordinates"):
        certificate.next_data(np.ones((3, 2, 2)))


def test_custom_domains_are_refused():
    certificate = pa.certify(np.ones((9, 2, 3)), domain=domains.Finite(np.eye(3)[None]))
    with pytest.raises(ValueError, match="built-in domain"):
        certificate.next_data()
