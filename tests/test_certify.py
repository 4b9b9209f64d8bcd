"""Certificates: verdicts, from data and from sums, and what degenerate data get."""

import numpy as np
import pytest

import polyattn as pa
from polyattn import domains

MODES = ("last", "causal", "full")


def gaussian(n_sequences: int = 60, n_tokens: int = 4, n_dims: int = 3, seed: int = 0):
    return np.random.default_rng(seed).standard_normal((n_sequences, n_tokens, n_dims))


def flat(n_sequences: int = 60, seed: int = 0):
    """Tokens in a plane, at an angle to the axes and not representable exactly."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_sequences, 4, 2)) @ rng.standard_normal((2, 3))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_enough_generic_data_are_identifiable(mode, bias):
    certificate = pa.certify(gaussian(120), mode, bias=bias)
    assert certificate.verdict == certificate.verdict_on_real_inputs == "identifiable"
    assert certificate.method == "gram"
    assert certificate.rank == certificate.dimension == certificate.n_features
    moments = pa.Moments(3, mode=mode, bias=bias).update(gaussian(120))
    spectrum = moments.spectrum()
    assert certificate.lambda_min == pytest.approx(spectrum[0], rel=1e-8)
    assert certificate.lambda_max == pytest.approx(spectrum[-1], rel=1e-8)
    assert "function on all real inputs" in certificate.sentence
    assert 0 < certificate.rounding < 1e-9


@pytest.mark.parametrize("mode", MODES)
def test_tokens_in_a_plane_leave_the_layer_open(mode):
    certificate = pa.certify(flat(), mode)
    assert certificate.verdict == "not_identifiable"
    assert (certificate.rank, certificate.n_features) == (6, 18)
    assert certificate.lambda_min == 0.0
    assert certificate.method == "triangular"
    assert "do not determine" in certificate.sentence


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_sums_give_the_same_verdict_as_data(mode, kind):
    X = gaussian(90)
    sums = kind(3, mode=mode).update(X[:40]) + kind(3, mode=mode).update(X[40:])
    from_sums, from_data = pa.certify(statistics=sums), pa.certify(X, mode)
    assert from_sums.verdict == from_data.verdict == "identifiable"
    assert from_sums.lambda_min == pytest.approx(from_data.lambda_min, rel=1e-8)
    assert from_sums.mode == mode


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_sums_of_deficient_data_claim_nothing(kind):
    certificate = pa.certify(statistics=kind(3).update(flat()))
    assert certificate.verdict == "undecided"
    assert "certify(X)" in certificate.sentence
    with pytest.raises(ValueError, match="no witness"):
        certificate.witness()


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_sums_of_too_few_rows_are_enough_to_say_no(kind):
    certificate = pa.certify(statistics=kind(3).update(gaussian(17)))
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "count")
    assert certificate.witness().difference == pytest.approx(1.0)


def test_weights_of_zero_do_not_count():
    weights = np.concatenate([np.ones(17), np.zeros(40)])
    sums = pa.Moments(3, 1).update(gaussian(57), np.zeros(57), weights)
    assert pa.certify(statistics=sums).method == "count"


def test_a_certificate_reads_data_in_blocks_and_in_any_form(tmp_path):
    X = gaussian(200)
    path = tmp_path / "X.npy"
    np.save(path, X)
    forms = [
        X, np.asfortranarray(X), list(X), np.load(path, mmap_mode="r"), X[:, ::-1][:, ::-1],
    ]  # fmt: skip
    certificates = [pa.certify(form) for form in forms]
    assert len({c.digest for c in certificates}) == 1
    assert len({round(c.lambda_min, 12) for c in certificates}) == 1


def test_float32_counts_as_the_numbers_it_holds():
    X = gaussian(200).astype(np.float32)
    assert pa.certify(X).digest == pa.certify(X.astype(np.float64)).digest
    assert pa.certify(X).verdict == "identifiable"


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e20, 1e150])
def test_the_scale_of_tokens_does_not_matter(scale):
    assert pa.certify(scale * gaussian(90)).verdict == "identifiable"
    certificate = pa.certify(scale * flat())
    assert certificate.verdict == "not_identifiable"
    witness = certificate.witness()
    assert witness.difference == pytest.approx(1.0, rel=1e-6)
    assert witness.training_disagreement < 1e-8


def test_zeros_of_either_sign_are_the_same_data():
    X = gaussian()
    X[:, 0] = 0.0
    assert pa.certify(X).digest == pa.certify(np.where(X == 0.0, -0.0, X)).digest
    assert pa.certify(X).digest != pa.certify(np.where(X == 0.0, 1e-300, X)).digest


@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_eigenvalues_that_float64_cannot_hold_are_unknown(scale):
    certificate = pa.certify(scale * gaussian())
    assert certificate.verdict == "identifiable"
    assert (certificate.lambda_min, certificate.lambda_max) == (None, None)
    lowest = pa.certify(np.zeros((30, 2, 2)), method="float")
    assert (lowest.lambda_min, lowest.lambda_max) == (0.0, 0.0)


def test_wide_sums_in_doubt_still_have_a_spectrum():
    X = np.random.default_rng(0).standard_normal((740, 3, 10))
    moments = pa.Moments(11).update(np.concatenate([X, X[..., :1]], axis=2))
    certificate = pa.certify(statistics=moments)
    assert (certificate.verdict, certificate.method) == ("undecided", "gram")
    assert certificate.lambda_max == pytest.approx(moments.spectrum()[-1], rel=1e-9)
    assert 0.0 <= certificate.lambda_min < 1e-12 * certificate.lambda_max


def test_coordinates_of_different_scale_are_equilibrated():
    X = gaussian(200) * [1.0, 1e-9, 1e9]
    certificate = pa.certify(X)
    assert certificate.verdict == "identifiable"
    assert certificate.method == "gram"


@pytest.mark.parametrize(
    "X",
    [
        np.ones((1, 1, 1)),
        np.ones((1, 3, 2)),
        np.ones((50, 3, 2)),
        np.zeros((5, 2, 2)),
        np.zeros((50, 2, 2)),
        np.zeros((1, 1, 1)),
        np.full((50, 3, 2), 0.1),
        [np.ones((1, 2)), np.ones((5, 2))],
        np.tile(gaussian(1), (50, 1, 1)),
        gaussian(30)[:, :1],
        np.array([[[0.5, 0.0]], [[0.0, 0.25]]] * 10),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_degenerate_data_get_a_verdict_and_a_witness(X, mode):
    certificate = pa.certify(X, mode)
    if certificate.n_features == 1 and np.any(X):
        assert certificate.verdict == "identifiable"  # d = 1: one feature, not zero
        return
    assert certificate.verdict == "not_identifiable"
    witness = certificate.witness()
    assert witness.difference > 0.5
    assert witness.training_disagreement < 1e-8
    assert np.isinf(certificate.bound(X, 1.0)[0]).all()


def test_constant_columns_and_duplicates():
    X = gaussian(90)
    X[..., 2] = 1.0
    constant = pa.certify(X)
    assert constant.verdict == "identifiable"  # the constant of bias is such a column
    assert constant.lambda_min == pytest.approx(pa.certify(X[..., :2], bias=True).lambda_min)
    X[..., 2] = X[..., 1]
    assert pa.certify(X).verdict == "not_identifiable"
    X[..., 2] = 0.0
    assert pa.certify(X).rank == 6


@pytest.mark.parametrize("size", [1e-20, 1e-100, 1e-145])
def test_features_that_are_tiny_in_every_row_claim_nothing(size):
    """Two coordinates that hardly ever occur together: their products are of size^2."""
    X = gaussian(400, 4, 2)
    X[:200, :, 0], X[200:, :, 1] = 0.0, 0.0
    X[:, 0] = size * gaussian(400, 1, 2, seed=1)[:, 0]
    assert pa.certify(X, method="float").verdict == "undecided"
    assert pa.certify(X, method="exact").verdict == "identifiable"


def test_boolean_data_have_two_verdicts():
    X = np.random.default_rng(0).choice([-1, 1], size=(300, 3, 4))
    certificate = pa.certify(X, domain="boolean")
    assert certificate.verdict == "identifiable"
    assert certificate.verdict_on_real_inputs == "not_identifiable"
    assert (certificate.rank, certificate.dimension, certificate.n_features) == (28, 28, 40)
    assert certificate.lambda_min > 0
    assert "every sequence of the domain boolean" in certificate.sentence
    assert "they can differ" in certificate.sentence
    real = pa.certify(X)
    assert (real.verdict, real.rank, real.method) == ("not_identifiable", 28, "exact")
    # The spectrum on the domain is the non-zero part of the spectrum of Lambda_D.
    spectrum = pa.Moments(4).update(X).spectrum()
    assert certificate.lambda_min == pytest.approx(spectrum[40 - 28], rel=1e-9)
    assert certificate.lambda_max == pytest.approx(spectrum[-1], rel=1e-9)


@pytest.mark.parametrize("bias", [False, True])
def test_one_hot_spectrum_is_the_non_zero_part(bias):
    X = np.eye(4)[np.random.default_rng(0).integers(4, size=(300, 5))]
    certificate = pa.certify(X, domain="one_hot", bias=bias)
    assert certificate.verdict == "identifiable"
    spectrum = pa.Moments(4, bias=bias).update(X).spectrum()
    assert certificate.lambda_min == pytest.approx(spectrum[-16], rel=1e-9)


def test_a_certificate_from_sums_can_be_about_a_domain():
    X = np.random.default_rng(0).choice([-1, 1], size=(300, 3, 4))
    certificate = pa.certify(statistics=pa.Moments(4).update(X), domain="boolean")
    assert (certificate.verdict, certificate.method) == ("identifiable", "gram")
    assert certificate.verdict_on_real_inputs == "not_identifiable"
    assert "taken from you" in certificate.sentence
    weights = np.random.default_rng(1).uniform(size=300)
    weighted = pa.TriangularFactor(4, 1).update(X, np.zeros(300), weights)
    assert "taken from you" in pa.certify(statistics=weighted, domain="boolean").sentence
    words = np.eye(4)[np.random.default_rng(0).integers(4, size=(300, 5))]
    sums = pa.Moments(4, bias=True).update(words)
    assert pa.certify(statistics=sums, domain="one_hot").verdict == "identifiable"


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ("boolean", "not those of sequences of the domain 'boolean'"),
        ("one_hot", "not those of sequences of the domain 'one_hot'"),
        (domains.Real(lengths=1), "a sequence of 4 tokens"),
        (domains.Boolean(lengths=(1, 3)), "a sequence of 4 tokens"),
    ],
)
def test_sums_that_contradict_the_domain_are_refused(domain, words, kind):
    """Otherwise a theorem about the domain would be applied to data outside it."""
    with pytest.raises(ValueError, match=words):
        pa.certify(statistics=kind(3).update(gaussian(90)), domain=domain)
    nearly = np.random.default_rng(0).choice([-1.0, 1.0], size=(90, 4, 3))
    nearly[7, 2, 1] = 1.001
    if domain == "boolean":
        with pytest.raises(ValueError, match=words):
            pa.certify(statistics=kind(3).update(nearly), domain=domain)


@pytest.mark.parametrize("domain", ["boolean", "one_hot"])
def test_sums_do_not_show_the_domain_even_if_all_its_features_are_independent(domain):
    """One coordinate: the features are independent on these domains, too, and prove nothing."""
    moments = pa.Moments(1).update(np.random.default_rng(0).standard_normal((20, 3, 1)))
    certificate = pa.certify(statistics=moments, domain=domain)
    assert certificate.verdict == "identifiable"
    assert "taken from you" in certificate.sentence


def test_sums_of_single_tokens_can_be_about_single_tokens():
    sums = pa.Moments(3).update(gaussian(90)[:, :1])
    certificate = pa.certify(statistics=sums, domain=domains.Real(lengths=1))
    assert (certificate.verdict, certificate.dimension) == ("identifiable", 10)
    assert "taken from you" not in certificate.sentence


def test_wide_tokens_with_few_sequences_are_answered_at_once():
    certificate = pa.certify(gaussian(30, 4, 40))
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "count")
    assert certificate.n_features == 32800
    assert (certificate.lambda_min, certificate.lambda_max) == (0.0, None)
    witness = certificate.witness()
    assert witness.difference == pytest.approx(1.0, rel=1e-6)
    assert witness.training_disagreement < 1e-8


@pytest.mark.parametrize(("exponent", "verdict"), [(-3, "identifiable"), (-6, "undecided"),
    (-9, "undecided"), (-12, "undecided")])  # fmt: skip
def test_a_layer_that_shows_only_in_small_deviations(exponent, verdict):
    """The third coordinate is a copy of the second but for a part of size 10^exponent.

    Some coefficients show only in its cube; exact arithmetic sees them, and floating point
    must not say the opposite.
    """
    X = gaussian(90)
    X[..., 2] = X[..., 1] + 10.0**exponent * X[..., 2]
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.method) == (verdict, "triangular")
    assert pa.certify(X, method="exact").verdict == "identifiable"


def test_inputs_within_rounding_of_deficient_ones_are_deficient():
    X = flat()
    rounded = X * (1 + 1e-16 * np.random.default_rng(0).standard_normal(X.shape))
    assert pa.certify(X, method="float").verdict == "not_identifiable"
    assert pa.certify(rounded, method="float").verdict == "not_identifiable"


def test_exact_arithmetic_takes_floats_as_they_are():
    X = gaussian(90)
    X[..., 2] = X[..., 1] + 1e-14 * X[..., 2]
    assert pa.certify(X, method="float").verdict != "identifiable"
    certificate = pa.certify(X, method="exact")
    assert (certificate.verdict, certificate.method) == ("identifiable", "exact")
    assert certificate.rounding == 0.0


class TestCustomDomains:
    def test_a_finite_set_inside_the_span(self):
        rng = np.random.default_rng(0)
        X = rng.choice([-1, 1], size=(200, 3, 3))
        inside = domains.Finite(rng.choice([-1, 1], size=(50, 4, 3)))
        certificate = pa.certify(X, domain=inside)
        assert certificate.verdict == "identifiable"
        assert certificate.verdict_on_real_inputs == "not_identifiable"
        assert certificate.method == "exact"

    def test_a_finite_set_outside_the_span(self):
        rng = np.random.default_rng(0)
        X = rng.choice([-1, 1], size=(200, 3, 3))
        outside = [*rng.choice([-1, 1], size=(5, 4, 3)), np.array([[2, 0, 0], [1, 1, 1]])]
        certificate = pa.certify(X, domain=domains.Finite(outside))
        assert certificate.verdict == "not_identifiable"
        witness = certificate.witness()
        np.testing.assert_array_equal(witness.input, outside[-1])
        assert witness.training_disagreement < 1e-12

    def test_a_python_generator_is_a_finite_set(self):
        X = np.eye(3)[np.random.default_rng(0).integers(3, size=(100, 4))]
        everything = (np.eye(3)[[a, b]] for a in range(3) for b in range(3))
        domain = domains.Finite(everything)
        assert pa.certify(X, domain=domain).verdict == "identifiable"
        assert len(domain.batch) == 9

    def test_floats_inside_the_span_to_rounding_are_undecided(self):
        X = flat(seed=1)
        certificate = pa.certify(X[:50], domain=domains.Finite(X[50:]))
        assert certificate.verdict == "undecided"
        assert "within" in certificate.sentence

    def test_floats_outside_the_span(self):
        certificate = pa.certify(flat(), domain=domains.Finite(gaussian(5)))
        assert certificate.verdict == "not_identifiable"
        witness = certificate.witness()
        assert any(np.array_equal(witness.input, x) for x in gaussian(5))
        assert witness.training_disagreement < 1e-8

    def test_a_sampler_shows_disagreement_but_never_proves_agreement(self):
        X = np.random.default_rng(0).choice([-1, 1], size=(200, 3, 3))
        same = domains.Sampled(lambda rng: rng.choice([-1, 1], size=(rng.integers(2, 5), 3)))
        certificate = pa.certify(X, domain=same)
        assert certificate.verdict == "undecided"
        assert "99 % confidence" in certificate.sentence
        other = domains.Sampled(lambda rng: rng.standard_normal((2, 3)), n_samples=20)
        assert pa.certify(X, domain=other).verdict == "not_identifiable"
        plane = np.array([[1.0, 0.3, 0.7], [0.1, 1.0, -0.6]])
        near = domains.Sampled(lambda rng: rng.standard_normal((2, 2)) @ plane, n_samples=20)
        rounded = np.random.default_rng(0).standard_normal((60, 4, 2)) @ plane
        certificate = pa.certify(rounded, domain=near)
        assert certificate.verdict == "undecided"
        assert "cannot prove" in certificate.sentence
        assert "confidence" not in certificate.sentence  # nothing was determined, only near

    def test_identifiable_on_all_real_inputs_holds_on_every_domain(self):
        certificate = pa.certify(gaussian(90), domain=domains.Finite(gaussian(5)))
        assert certificate.verdict == "identifiable"

    def test_clear_refusals(self):
        for X in (flat(), gaussian(90)):
            with pytest.raises(ValueError, match="coordinates"):
                pa.certify(X, domain=domains.Finite(np.ones((2, 2, 2))))
        with pytest.raises(TypeError, match="draw must be a function"):
            domains.Sampled(3)
        with pytest.raises(ValueError, match="n_samples"):
            domains.Sampled(lambda rng: rng.random((1, 1)), n_samples=0)
        with pytest.raises(ValueError, match="custom domain needs the sequences"):
            pa.certify(statistics=pa.Moments(3).update(flat()), domain=domains.Finite(gaussian(2)))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "needs sequences X"),
        ({"X": np.full((2, 2, 2), np.nan)}, ValueError, "NaN"),
        ({"X": np.ones((2, 2))}, ValueError, "shape"),
        ({"X": np.ones((0, 2, 2))}, ValueError, "empty"),
        ({"X": []}, ValueError, "empty"),
        ({"X": [[["a"]]]}, TypeError, "real numbers"),
        ({"X": np.ones((2, 2, 2)), "mode": "first"}, ValueError, "mode must be"),
        ({"X": np.ones((2, 2, 2)), "method": "guess"}, ValueError, "method must be"),
        ({"X": np.ones((2, 2, 2)), "bias": 1}, TypeError, "bias"),
        ({"X": np.ones((2, 2, 2)), "statistics": pa.Moments(2)}, ValueError, "not both"),
        ({"statistics": pa.Moments(2)}, ValueError, "empty"),
        ({"statistics": "sums"}, TypeError, "statistics must be"),
    ],
)
def test_misuse_is_refused_with_words(arguments, error, words):
    with pytest.raises(error, match=words):
        pa.certify(**arguments)


def test_sums_have_no_exact_method():
    with pytest.raises(ValueError, match="needs the sequences"):
        pa.certify(statistics=pa.Moments(2).update(np.ones((2, 2, 2))), method="exact")


@pytest.mark.parametrize("method", ["auto", "exact", "float"])
def test_too_many_features_are_refused_before_memory_is_asked_for(method):
    X = np.ones((1, 30_000, 35))
    with pytest.raises(ValueError, match="GB"):
        pa.certify(X, "causal", method=method)


def test_the_rounding_of_a_factor_is_the_bound_that_was_overcome():
    certificate = pa.certify(statistics=pa.TriangularFactor(3).update(gaussian(90)))
    assert (certificate.verdict, certificate.method) == ("identifiable", "triangular")
    # Worst case over all ways of stacking rows: far above what one rounding does.
    assert 1e-12 < certificate.rounding < 1e-6


def test_repr_and_str():
    certificate = pa.certify(gaussian(90))
    assert repr(certificate).startswith("Certificate(identifiable, domain 'real', rank 18 of 18")
    assert " ".join(str(certificate).split()).startswith(certificate.sentence)


UNITS = np.array([1e3, 1e-3, 5e6, 1.0, 1e-5])


def test_units_that_hide_lambda_min_are_not_said_to_hide_the_layer():
    rng = np.random.default_rng(7)
    plain = [rng.standard_normal((rng.integers(3, 9), 5)) for _ in range(300)]
    Y = rng.standard_normal((300, 1))
    X = [tokens * UNITS for tokens in plain]
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.method) == ("identifiable", "gram")
    assert certificate.lambda_min is None
    # A fit does find the layer, so the sentence must not deny it.
    np.testing.assert_allclose(pa.fit(X, Y).predict(X), pa.fit(plain, Y).predict(plain), rtol=1e-9)
    assert "no fit" not in certificate.sentence
    assert "may miss" not in certificate.sentence
    assert "in the units of the data" in certificate.sentence
    assert "coordinates brought to similar size" in certificate.sentence
    assert pa.certify(plain).lambda_min > 0.1


def test_a_layer_that_only_the_last_bits_determine_may_be_missed():
    """Negative control: here no change of units helps."""
    X = 2**50 + np.random.default_rng(0).integers(0, 4, size=(60, 4, 2))
    assert "a fit in float64 may miss that layer" in pa.certify(X).sentence
