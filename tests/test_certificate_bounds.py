"""What a certificate offers: bounds that nothing exceeds, witnesses, and data worth collecting."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput
from test_certify import MODES, NAMES, flat

DELTA = 0.1


def gaussian(n_sequences, n_tokens=3, n_dims=2, seed=0):
    return np.random.default_rng(seed).standard_normal((n_sequences, n_tokens, n_dims))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_no_pair_of_near_minimisers_exceeds_the_bound_and_one_attains_it(mode, bias):
    """Random pairs, and for every new input the pair that is worst there."""
    rng, form = np.random.default_rng(0), {"mode": mode, "bias": bias}
    X, fresh = rng.standard_normal((80, 3, 2)), 2.0 * rng.standard_normal((20, 4, 2))
    found = pa.certify(X, mode, bias=bias)
    second, new = oracle.second_moment(oracle.design(X, form)), oracle.design(fresh, form)
    root, excess = np.linalg.cholesky(second), np.sqrt(0.25)
    bound, worst = (
        np.reshape(found.bound(fresh, 0.75, 0.5, kind=kind), -1)
        for kind in ("leverage", "worst_case")
    )
    assert np.all(bound <= worst * (1 + 1e-9))
    zeros = np.zeros((20,) if mode == "last" else (20, 4))
    np.testing.assert_array_equal(found.bound(fresh, 0.5, 0.5), zeros)
    smallest = np.sqrt(np.linalg.eigvalsh(second)[0])
    ratio = worst / (2.0 * excess * np.linalg.norm(new, axis=1) / smallest)
    assert np.all((ratio >= 1 - 1e-9) & (ratio <= 1.01))

    def differences(directions):
        """Coefficients P - P* of risk exactly 0.75 where the least risk is 0.5."""
        unit = directions / np.linalg.norm(directions, axis=0)
        return np.linalg.solve(root.T, excess * unit)

    one, other = (differences(rng.standard_normal((len(root), 200))) for _ in range(2))
    assert np.all(np.abs(new @ (one - other)) <= bound[:, None])
    steepest = differences(np.linalg.solve(root, new.T))
    apart = np.einsum("rp,pr->r", new, 2 * steepest)
    np.testing.assert_allclose(apart, bound, rtol=1e-6)
    assert np.all(apart <= bound * (1 + 1e-12))


def test_a_bound_is_infinite_where_nothing_is_proved():
    X = np.random.default_rng(0).choice([-1, 1], size=(300, 3, 3))
    found = pa.certify(X, domain="boolean")
    bound, worst = (found.bound(X[:9], 0.1, kind=kind) for kind in ("leverage", "worst_case"))
    assert np.all(np.isfinite(bound) & (bound <= worst))
    with pytest.raises(InvalidInput, match="domain"):
        found.bound(0.5 * X[:9], 0.1)
    assert np.all(np.isinf(pa.certify(X).bound(X[:9], 0.1)))
    near = gaussian(90, 4, 3)
    near[..., 2] = near[..., 1] + 1e-3 * near[..., 2]
    # Full rank is proved, but no inverse in float64 is.
    assert pa.certify(near).identifiable
    assert np.all(np.isinf(pa.certify(near).bound(near[:3], 0.1)))


@pytest.mark.parametrize("kind", ["leverage", "worst_case"])
def test_bounds_hold_where_features_nearly_cancel(kind):
    """One feature, the sum of 1 and -1 + k u: of it rounding may leave anything of that size."""
    fields = {"key": [0], "value": [1], "query": [0], "include_query": False}
    found = pa.certify(gaussian(60), form=pa.Form(**fields))
    for k in range(1, 80):
        X = np.array([[1.0, 1.0], [1.0, -1.0 + k * 2.0**-53], [1.0, 0.0]])
        apart = 2.0 * np.sqrt(0.01 / found.lambda_max) * k * 2.0**-53
        assert found.bound(X, 0.01, kind=kind) >= apart * (1 - 1e-9)


# Noise: Lemmas A.7 and E.2, which fail as printed and hold as corrected -------------------------


def least_risk_said(found, X, risk, **noise):
    """The least risk that a bound took for granted: bound = 2 sqrt((risk - least) leverage)."""
    ratio = found.bound(X[0], risk, confidence=1 - DELTA, **noise) / found.bound(X[0], risk)
    return risk * (1 - ratio**2)


def test_the_printed_bound_fails_and_ours_is_attained():
    """One token of one coordinate, F(z) = theta z^3, targets zero: theta = +-sqrt(eps)."""
    X, eps = np.ones((1, 1, 1)), 0.01
    apart, found = 2 * np.sqrt(eps), pa.certify(X)
    printed = eps * np.sum(X[0] ** 2) ** 3 / found.lambda_min  # equations (22) and (58)
    assert apart**2 > 3 * printed
    assert apart * (1 - 1e-12) <= found.bound(X[0], eps) <= apart * (1 + 1e-6)


@pytest.mark.parametrize("share", [1.0, 0.05])
def test_bounded_noise_leaves_the_risk_that_is_said_with_the_confidence_that_is_said(share):
    """Signs of norm 1, in so many of the rows; the printed log(1 / delta) is often too small."""
    failures, missed, n_trials = 0, 0, 40
    for seed in range(n_trials):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((90, 3, 2))
        noise = rng.choice([-1, 1], (90, 2)) / np.sqrt(2) * (rng.random((90, 1)) < share)
        power = float(np.mean(np.sum(noise**2, axis=1)))
        # ||Pi zeta||^2: how much of the noise a fit follows.
        followed = np.sum((np.linalg.qr(oracle.design(X, {}))[0].T @ noise) ** 2)
        missed += followed > np.log(1 / DELTA)
        said = least_risk_said(pa.certify(X), X, 2.0, noise_power=power, noise_bound=1.0)
        failures += power - followed / len(X) < said - 1e-9
        assert (said > 1e-12) == (share == 1.0)
    assert failures <= DELTA * n_trials
    assert missed > DELTA * n_trials or share < 1.0


@pytest.mark.parametrize("c", [1.0, 7.0])
def test_the_least_risk_beside_noise_is_the_formula(c):
    """In whatever units of the targets; of few rows noise may be all."""
    t, X = np.log(1 / DELTA), gaussian(1000, 3, 2)
    found = pa.certify(X)
    said = least_risk_said(found, X, 4 * c * c, noise_power=3.5 * c * c, noise_bound=2 * c)
    expected = 3.5 - 4 * (np.sqrt(6) + np.sqrt(8 * t)) ** 2 / 1000
    assert said == pytest.approx(expected * c * c, rel=1e-6)
    said = least_risk_said(found, X, 20 * c * c, noise=2 * c, n_outputs=3)
    freedom = (1000 - 6) * 3
    expected = 4 * (freedom - 2 * np.sqrt(freedom * t)) / 1000
    assert said == pytest.approx(expected * c * c, rel=1e-6)
    few = pa.certify(X[:6])
    usual = {"noise_power": 0.5, "noise_bound": 1.0}
    assert few.bound(X[0], 1.0, **usual) == pytest.approx(few.bound(X[0], 1.0))


def test_misuse_of_bounds_and_of_next_data_is_refused_by_name():
    found, bounded = pa.certify(gaussian(4000)), {"noise_power": 0.5, "noise_bound": 1.0}
    for options, words in (
        ({"risk": -1.0}, "risk"), ({"optimal_risk": 2.0}, "optimal_risk"),
        ({"noise_power": 0.1}, "noise_bound"), ({"noise_bound": 1.0}, "noise_power"),
        (bounded | {"noise_power": 2.0}, "noise_power"),
        (bounded | {"optimal_risk": 0.1}, "optimal_risk"),
        (bounded | {"risk": 0.1, "noise_power": 0.99}, "noise"),
        (bounded | {"noise": 1.0, "n_outputs": 1}, "noise"), ({"noise": 1.0}, "n_outputs"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words):
            found.bound(**{"X": gaussian(3), "risk": 1.0} | options)
    # Of weighted sums nothing is known about the noise of a position.
    weighted = pa.Moments(2).update(gaussian(60), sample_weight=np.full(60, 2.0))
    with pytest.raises(InvalidInput, match="weight"):
        pa.certify(statistics=weighted).bound(gaussian(3), 1.0, **bounded)
    ones = np.ones((9, 2, 3))
    found, finite = (pa.certify(ones, domain=each) for each in ("boolean", pa.domains.Finite(ones)))
    for certificate, arguments, words in (
        (found, {"n_sequences": 0}, "n_sequences"), (finite, {}, "domain"),
        (found, {"candidates": 0 * ones}, "domain"),
        (found, {"candidates": ones[..., :2]}, "3 coordinates"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words):
            certificate.next_data(**arguments)


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(MODES), bias=st.booleans())
def test_two_layers_agree_on_deficient_data_and_differ_inside_the_domain(seed, mode, bias):
    rng = np.random.default_rng(seed)
    name, n_dims, n_tokens = str(rng.choice([*NAMES])), *rng.integers([2, 1], [6, 4]).tolist()
    domain = NAMES[name](n_tokens if rng.random() < 0.5 else None)
    X = [oracle.some_tokens(name, (n_tokens, n_dims - 1), rng) for _ in range(rng.integers(1, 25))]
    copied = name != "one_hot"  # the last coordinate is the first one, or the symbol is missing
    X = [np.concatenate([x, copied * x[:, :1]], axis=1) for x in X]
    found = pa.certify(X, mode, domain, bias=bias)
    assert found.verdict == "not_identifiable"
    witness = found.witness()
    assert oracle.witness_fails(witness, X, {"mode": mode, "bias": bias}) == []
    assert not pa.same_function(witness.layer_a, witness.layer_b)
    pa.certify([witness.input], domain=domain)  # else it would be refused


def test_one_of_the_layers_can_be_given():
    X, layer = flat(), pa.data.random_layer(3, n_heads=2, mode="last", random_state=1)
    witness = pa.certify(X).witness(layer)
    assert witness.layer_a is layer
    assert np.mean((witness.layer_b(X) - layer(X)) ** 2) < 1e-20
    assert oracle.witness_fails(witness, X, {}) == []
    with pytest.raises(InvalidInput, match="certificate"):
        pa.certify(X).witness(pa.data.random_layer(3, mode="causal"))
    with pytest.raises(InvalidInput, match="witness"):
        pa.certify(gaussian(60)).witness()


def test_symbols_that_are_seldom_together_are_found():
    """One of 576 sequences of two tokens shows what is missing."""
    every = [[a, b] for a in range(15) for b in range(15) if (a, b) != (14, 14)]
    X = np.eye(15)[np.array(every)]
    found = pa.certify(X, form=pa.Form(include_query=False), domain=pa.domains.OneHot(2))
    assert (found.verdict, found.rank, found.dimension) == ("not_identifiable", 224, 225)
    np.testing.assert_array_equal(found.witness().input.argmax(axis=1), [14, 14])


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(MODES), bias=st.booleans())
def test_built_sequences_complete_the_data_inside_the_domain(seed, mode, bias):
    rng = np.random.default_rng(seed)
    name = str(rng.choice([*NAMES]))
    n_dims, n_tokens = int(rng.integers(2, 4 - bias)), int(rng.integers(2, 5))
    lengths = n_tokens if rng.random() < 0.5 else None
    domain = NAMES[name](lengths)
    X = [oracle.some_tokens(name, (n_tokens, n_dims), rng) for _ in range(int(rng.integers(1, 40)))]
    if name != "one_hot":
        X = [np.concatenate([x[:, :-1], x[:, :1]], axis=1) for x in X]
    before = pa.certify(X, mode, domain, bias=bias)
    if before.identifiable or before.rank is None:
        return
    advice = before.next_data()
    assert advice.complete
    assert advice.indices is None
    assert 0 < len(advice) <= before.dimension - before.rank
    assert np.all(np.diff([before.rank, *advice.ranks]) > 0)
    assert lengths is None or {len(x) for x in advice.sequences} == {n_tokens}
    after = pa.certify([*X, *advice.sequences], mode, domain, bias=bias)
    assert after.identifiable
    assert after.rank == advice.ranks[-1]
    if after.lambda_min is not None and after.lambda_min > 1e-9 * after.lambda_max:
        assert after.lambda_min == pytest.approx(advice.lambda_min[-1], rel=1e-6)


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "causal", "decay": 0.9}, {"window": 2}, {"include_query": False, "mean": True},
        {"skip": True, "intercept": True}, {"key": [0], "value": [1, 2]}, {"lags": 2},
    ],
)  # fmt: skip
def test_what_is_said_to_collect_is_enough_in_every_form(fields):
    X = np.random.default_rng(0).standard_normal((3, 4, 3))
    form = pa.Form(**{"mode": "causal", **fields})
    sums = [make(3, form=form).update(X) for make in (pa.Moments, pa.TriangularFactor)]
    for before in (pa.certify(X, form=form), *(pa.certify(statistics=each) for each in sums)):
        advice = before.next_data()
        assert advice.complete
        assert f"{len(advice)} proposed" in advice.sentence
        assert pa.certify([*X, *advice.sequences], form=form).identifiable
    part = pa.certify(X, form=form).next_data(n_sequences=1)
    assert part.complete or "more are needed" in part.sentence


@pytest.mark.parametrize("mode", MODES)
def test_candidates_are_chosen_from_the_pool(mode):
    X, pool = flat(), [*flat()[:40], *gaussian(60, 3, 3, seed=1)]
    before = pa.certify(X, mode)
    advice = before.next_data(pool)
    assert advice.complete
    assert len(set(advice.indices)) == len(advice)
    assert min(advice.indices) >= 40  # the others show nothing new
    np.testing.assert_array_equal([pool[i] for i in advice.indices], advice.sequences)
    assert pa.certify([*X, *advice.sequences], mode).identifiable
    for limited, length in ((before.next_data(X[50:]), 0), (before.next_data(n_sequences=1), 1)):
        assert (len(limited), limited.complete) == (length, False)


@pytest.mark.parametrize("seed", range(4))
def test_identifiable_data_are_improved_by_the_best_candidate(seed):
    X, pool = gaussian(40, seed=seed), gaussian(8, seed=seed + 100)
    more = [oracle.design([*X, each], {}) for each in pool]
    after = [np.linalg.eigvalsh(oracle.second_moment(psi))[0] for psi in more]
    chosen = pa.certify(X).next_data(pool, n_sequences=1)
    assert chosen.indices == [int(np.argmax(after))]
    assert chosen.lambda_min[0] == pytest.approx(max(after), rel=1e-9)
    steep = pa.certify(X * [1.0, 0.1])
    assert steep.next_data(n_sequences=4).lambda_min[-1] > 10 * steep.lambda_min
