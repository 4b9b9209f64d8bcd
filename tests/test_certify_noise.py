"""Lemmas A.7 and E.2 as printed fail on examples; as corrected they hold, in simulation too."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.certify.noise import Noise
from polyattn.errors import InvalidInput

DELTA = 0.1


def least_risk_beside_noise(power, bound, confidence, dimension, n_rows):
    return Noise(power, bound, confidence=confidence).least_risk(dimension, n_rows)


def printed(excess, lambda_min, tokens):
    """The right side of equations (22) and (58): excess ||Z||_F^6 / lambda_min."""
    return excess * np.sum(tokens**2) ** 3 / lambda_min


def risk_of(layer, X, Y):
    return float(np.mean(np.sum((layer(X) - Y) ** 2, axis=-1)))


# Lemma A.7 ---------------------------------------------------------------------------------------


def test_equation_22_as_printed_fails_and_ours_is_attained():
    """One token of one coordinate, F(z) = theta z^3, targets zero: theta = +-sqrt(eps)."""
    X, eps = np.ones((1, 1, 1)), 0.01
    pair = [
        pa.LinearAttention(attn=[[[1.0]]], value=[[[sign * np.sqrt(eps)]]], mode="last")
        for sign in (1, -1)
    ]
    assert all(risk_of(layer, X, 0.0) <= eps * (1 + 1e-12) for layer in pair)
    certificate = pa.certify(X)
    assert certificate.lambda_min == pytest.approx(1.0)
    apart = abs(float(pair[0](X)[0, 0] - pair[1](X)[0, 0]))
    right_side = printed(eps, certificate.lambda_min, X[0])
    assert apart > 10 * right_side  # the left side is not squared,
    assert apart**2 > 3 * right_side  # and squared it lacks the 4 of two layers
    ours = float(certificate.bound(X[0], eps))
    assert apart <= ours * (1 + 1e-9)
    assert apart >= ours * (1 - 1e-6)


def test_the_proof_of_equation_22_gives_the_square():
    """||psi||^2 <= ||Z||_F^6, equation (54), holds, and is what the printed bound rests on."""
    rng = np.random.default_rng(0)
    for d, n in ((1, 1), (1, 4), (3, 1), (3, 5)):
        for X in rng.standard_normal((20, n, d)):
            gram = (X.T @ X)[np.triu_indices(d)]
            size = np.sum(np.outer(gram, X[-1]) ** 2)
            assert size <= np.sum(X**2) ** 3 * (1 + 1e-12)


def test_equation_22_depends_on_units_and_ours_does_not():
    """Targets ten times as large, and both layers with them: distances grow by ten, not hundred."""
    X = np.random.default_rng(0).standard_normal((60, 3, 2))
    certificate = pa.certify(X)
    small, large = (certificate.bound(X[:5], eps) for eps in (0.01, 1.0))
    np.testing.assert_allclose(large, 10 * small, rtol=1e-12)
    smaller, larger = (printed(eps, certificate.lambda_min, X[0]) for eps in (0.01, 1.0))
    assert larger == pytest.approx(100 * smaller)


# Lemma E.2 ---------------------------------------------------------------------------------------


def noisy(seed, kind, n_rows=90, size=1.0):
    """Sequences of small tokens, targets of a layer, noise (n_rows, 2) that is bounded by 1."""
    rng = np.random.default_rng(seed)
    X = size * rng.standard_normal((n_rows, 3, 2))
    if kind == "signs":
        noise = rng.choice([-1.0, 1.0], (n_rows, 2)) / np.sqrt(2)
    elif kind == "uniform":
        noise = rng.uniform(-1, 1, (n_rows, 2)) / np.sqrt(2)
    else:  # rarely, and then large
        noise = rng.choice([-1.0, 1.0], (n_rows, 2)) / np.sqrt(2) * (rng.random((n_rows, 1)) < 0.05)
    layer = pa.data.random_layer(2, n_outputs=2, mode="last", random_state=seed)
    return X, layer(X) + noise, noise


def followed(X, noise):
    """||Pi zeta||^2, by an orthonormal basis of the features."""
    gram, (j, k) = np.einsum("stj,stk->sjk", X, X), np.triu_indices(X.shape[-1])
    psi = (gram[:, j, k][:, :, None] * X[:, -1][:, None]).reshape(len(X), -1)
    basis = np.linalg.qr(psi)[0]
    return float(np.sum((basis.T @ noise) ** 2))


@pytest.mark.parametrize("kind", ["signs", "uniform", "rare"])
def test_the_least_risk_is_what_noise_leaves(kind):
    """R* = mean ||zeta||^2 - ||Pi zeta||^2 / N exactly; the bound below it holds in 1 - delta."""
    failures, n_rows, n_trials = 0, 90, 120
    for seed in range(n_trials):
        X, _, noise = noisy(seed, kind)
        power = float(np.mean(np.sum(noise**2, axis=1)))
        least = power - followed(X, noise) / n_rows
        if seed < 5:
            _, Y, _ = noisy(seed, kind)
            assert pa.fit(X, Y).risk == pytest.approx(least, rel=1e-9)
        failures += least < least_risk_beside_noise(power, 1.0, 1 - DELTA, 6, n_rows)
    assert failures <= DELTA * n_trials


@pytest.mark.parametrize("kind", ["signs", "rare"])
def test_no_pair_exceeds_the_bound_more_often_than_allowed(kind):
    """For every draw the pair of layers that is worst on an input, of risk exactly ``risk``."""
    exceeded = 0
    for seed in range(25):
        X, Y, noise = noisy(seed, kind)
        best = pa.fit(X, Y)
        risk, power = best.risk + 0.1, float(np.mean(np.sum(noise**2, axis=1)))
        certificate = pa.certify(X)
        # Attained without noise in the argument: see test_certify_bounds.
        worst = certificate.bound(X[0], risk, best.risk)
        bound = certificate.bound(
            X[0], risk, noise_power=power, noise_bound=1.0, confidence=1 - DELTA
        )
        exceeded += worst > bound
        useful = bound < certificate.bound(X[0], risk)  # where noise is not rare
        assert useful == (kind == "signs")
    assert exceeded <= DELTA * 25


def test_equation_58_as_printed_fails():
    """B bounds the tokens there: with small tokens the right side is negative, the left is not.

    Only the minimiser has the least risk, so that both layers are one and their distance is 0.
    """
    for seed in range(10):
        X, Y, noise = noisy(seed, "signs", size=1e-2)
        largest = max(np.linalg.norm(tokens) for tokens in X)
        log = np.log(1 / DELTA)
        eps = pa.fit(X, Y).risk
        excess = eps - np.mean(np.sum(noise**2, axis=1)) + largest**2 / len(X) * log
        assert printed(excess, pa.certify(X).lambda_min, X[0]) < 0


def test_equation_58_fails_even_with_a_bound_of_the_noise():
    """B^2 log(1/delta) has to grow with the number of features, which the noise is spread over."""
    missed = 0
    for seed in range(60):
        X, _, noise = noisy(seed, "signs")
        missed += followed(X, noise) > np.log(1 / DELTA)
    assert missed > DELTA * 60


def test_gaussian_noise_leaves_a_chi_square():
    """Twenty rows more than features: the bound is missed in at most a tenth, and not by far."""
    rng, n_rows, sigma = np.random.default_rng(0), 26, 0.5
    X = rng.standard_normal((n_rows, 3, 2))
    least = Noise(deviation=sigma, n_outputs=2, confidence=1 - DELTA).least_risk(6, n_rows)
    assert least > 0.1 * 2 * sigma**2
    noises = sigma * rng.standard_normal((400, n_rows, 2))
    power = np.mean(np.sum(noises**2, axis=2), axis=1)
    true = power - np.array([followed(X, each) for each in noises]) / n_rows
    assert np.mean(true < least) <= DELTA
    assert np.mean(true < 1.5 * least) > DELTA  # negative control
    best = pa.fit(X, noises[0])
    assert best.risk == pytest.approx(true[0])
    bound = pa.certify(X).bound(X, best.risk + 1, noise=sigma, n_outputs=2, confidence=1 - DELTA)
    np.testing.assert_allclose(bound, pa.certify(X).bound(X, best.risk + 1, least), rtol=1e-9)


def test_with_the_least_risk_known_nothing_is_left_to_chance():
    X, Y, _ = noisy(0, "signs")
    best, certificate = pa.fit(X, Y), pa.certify(X)
    assert np.all(certificate.bound(X, best.risk, best.risk) == 0.0)


def test_more_rows_make_the_bound_smaller():
    least = [least_risk_beside_noise(1.0, 1.0, 0.9, 6, n) for n in (10, 100, 1000, 10**6)]
    assert least[0] == 0.0
    assert least == sorted(least)
    assert least[-1] > 0.9999
    assert least_risk_beside_noise(0.0, 0.0, 0.9, 6, 10) == 0.0


def test_they_are_the_formulas():
    t = np.log(1 / DELTA)
    bounded = least_risk_beside_noise(3.5, 2.0, 1 - DELTA, 18, 1000)
    assert bounded == pytest.approx(3.5 - 4 * (np.sqrt(18) + np.sqrt(8 * t)) ** 2 / 1000)
    gaussian = Noise(deviation=2.0, n_outputs=3, confidence=1 - DELTA).least_risk(18, 1000)
    k = (1000 - 18) * 3
    assert gaussian == pytest.approx(4 * (k - 2 * np.sqrt(k * t)) / 1000)
    assert Noise(deviation=2.0, n_outputs=3).least_risk(18, 18) == 0.0


def test_units_of_the_targets():
    usual = least_risk_beside_noise(0.5, 1.0, 0.9, 6, 1000)
    for c in (1e-100, 7.0, 1e100):
        scaled = least_risk_beside_noise(0.5 * c * c, c, 0.9, 6, 1000)
        assert scaled == pytest.approx(usual * c * c)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"noise_power": 0.1}, "needs both"),
        ({"noise_bound": 1.0}, "needs both"),
        ({"noise_power": 2.0, "noise_bound": 1.0}, "at most the square"),
        ({"noise_power": -1.0, "noise_bound": 1.0}, "noise_power must be"),
        ({"noise_power": 0.5, "noise_bound": np.inf}, "noise_bound must be"),
        ({"noise_power": 0.5, "noise_bound": 1.0, "confidence": 1.0}, "confidence must lie"),
        ({"noise_power": 0.5, "noise_bound": 1.0, "optimal_risk": 0.1}, "either optimal_risk"),
        ({"noise_power": 0.5, "noise": 1.0, "n_outputs": 1}, "either noise, the deviation"),
        ({"noise": 1.0}, "needs n_outputs beside it"),
        ({"noise": 1.0, "n_outputs": 0}, "n_outputs must be"),
        ({"n_outputs": 2}, "needs both"),
        ({"noise": -1.0, "n_outputs": 1}, "noise must be"),
    ],
)
def test_misuse_is_refused(options, words):
    X, _, _ = noisy(0, "signs")
    with pytest.raises(InvalidInput, match=words):
        pa.certify(X).bound(X, 1.0, **options)


def test_a_confidence_is_checked_without_noise_too():
    X, _, _ = noisy(0, "signs")
    with pytest.raises(InvalidInput, match="confidence must lie between 0 and 1"):
        pa.certify(X).bound(X, 1.0, confidence=7)


def test_a_risk_that_noise_does_not_allow_is_refused():
    X = np.random.default_rng(0).standard_normal((4000, 3, 2))
    with pytest.raises(InvalidInput, match="as the noise tells"):
        pa.certify(X).bound(X[:2], 0.1, noise_power=0.9, noise_bound=1.0)


def test_weighted_sums_have_no_noise_by_position():
    X = np.random.default_rng(0).standard_normal((60, 3, 2))
    sums = pa.Moments(n_dims=2, n_outputs=0).update(X, sample_weight=np.full(60, 2.0))
    with pytest.raises(InvalidInput, match="weighted"):
        pa.certify(statistics=sums).bound(X, 1.0, noise_power=0.5, noise_bound=1.0)
    plain = pa.Moments(n_dims=2, n_outputs=0).update(X)
    expected = pa.certify(X).bound(X, 1.0, noise_power=0.5, noise_bound=1.0)
    found = pa.certify(statistics=plain).bound(X, 1.0, noise_power=0.5, noise_bound=1.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_data_that_determine_nothing_have_no_bound():
    """Of wide tokens no Gram matrix is made: 33,280 features here."""
    X = np.random.default_rng(0).standard_normal((5, 3, 40))
    certificate = pa.certify(X)
    assert np.all(np.isinf(certificate.bound(X, 1.0, noise_power=0.5, noise_bound=1.0)))
    assert "gram" not in vars(certificate.evidence)
