"""Proofs trust no routine: fed with wrong factors and directions, they prove nothing."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.certify import unseen
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.unseen import _movements, effect_if_unseen
from polyattn.certify.verified import gram as gram_proofs
from polyattn.certify.verified import spectrum, triangular
from polyattn.certify.verified.gram import Gram, gram_of
from polyattn.certify.verified.rounding import feature_depth, gamma
from polyattn.certify.verified.sizes import row_pieces
from polyattn.form.layout import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.reference.features import cubic_features


def evidence_of(X):
    return pa.certify(X, method="float").evidence


@pytest.fixture
def only_rounding(monkeypatch):
    """No rank of the numbers as they are is deficient."""
    monkeypatch.setattr(unseen, "leave_open", lambda *_: False)


@pytest.fixture
def generic():
    return evidence_of(np.random.default_rng(0).standard_normal((90, 4, 3)))


@pytest.fixture
def flat():
    rng = np.random.default_rng(0)
    return evidence_of(rng.standard_normal((60, 4, 2)) @ rng.standard_normal((2, 3)))


@pytest.mark.parametrize("spoil", [0.99, 1.01, 1e-3, 1e3])
def test_a_wrong_cholesky_factor_proves_nothing(generic, monkeypatch, spoil):
    assert gram_proofs.prove_definite(generic.gram) is not None
    true = gram_proofs.lapack.dpotrf

    def wrong(*arguments, **options):
        factor, failed = true(*arguments, **options)
        return factor * spoil, failed

    monkeypatch.setattr(gram_proofs.lapack, "dpotrf", wrong)
    assert gram_proofs.prove_definite(generic.gram) is None


def test_a_factor_of_a_singular_matrix_proves_nothing(flat, monkeypatch):
    """LAPACK says no; a routine that always says yes does not help."""
    assert gram_proofs.prove_definite(flat.gram) is None
    size = flat.space.dimension
    monkeypatch.setattr(gram_proofs.lapack, "dpotrf", lambda *_, **__: (np.eye(size, order="F"), 0))
    assert gram_proofs.prove_definite(flat.gram) is None


def test_any_preconditioner_is_allowed_and_a_bad_one_proves_nothing(generic, monkeypatch):
    rows, space, triangle = generic.rows, generic.space, generic.triangle
    assert triangular.prove_independent(rows, space, triangle) is not None
    true = triangular.lapack.dtrtri
    for spoil in (1.5, 0.3):
        monkeypatch.setattr(
            triangular.lapack, "dtrtri", lambda factor, spoil=spoil: (true(factor)[0] * spoil, 0)
        )
        assert triangular.prove_independent(rows, space, triangle) is None


@pytest.mark.usefixtures("only_rounding")
def test_an_unseen_direction_must_be_within_rounding(flat):
    direction = flat.null_basis[:, 0]
    effect = effect_if_unseen(flat, direction)
    assert 0 < effect < 1e-13
    vars(flat)["tolerance"] = effect / 100
    assert effect_if_unseen(flat, direction) is None


@pytest.mark.usefixtures("only_rounding")
def test_a_direction_that_is_seen_is_not_unseen(flat):
    direction = flat.null_basis[:, 0]
    seen = direction + 1e-9 * flat.triangle.scale
    unit = seen / np.linalg.norm(seen / flat.triangle.scale)
    assert effect_if_unseen(flat, unit) is None


def test_the_margin_of_a_proof_is_what_is_left_of_the_shift(generic):
    proof = gram_proofs.prove_definite(generic.gram, shift=1e-3)
    matrix = generic.gram.scaled(proof.scale)
    left = np.linalg.eigvalsh(matrix - proof.factor.T @ proof.factor)[0]
    assert 0 < proof.margin <= left <= 1e-3 * (1 + 1e-9)
    assert gram_proofs.prove_definite(generic.gram, shift=2.0) is None


def test_sums_that_underflow_may_have_thinned_out_prove_nothing():
    """Below 2^-960 the products that a sum is made of come near the smallest numbers there are."""
    powers = np.array([1.0, 2.0**-950])
    gram = Gram(np.diag(powers), powers, n_roundings=4, feature_depth=6, total_weight=4.0)
    assert gram_proofs.prove_definite(gram) is not None
    small = np.array([1.0, 2.0**-970])
    assert (
        gram_proofs.prove_definite(replace(gram, matrix=np.diag(small), magnitudes=small)) is None
    )


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_the_size_of_all_features_is_the_sum_it_is_said_to_be(kind):
    X = np.random.default_rng(1).standard_normal((30, 4, 2)) * [1.0, 40.0]
    sums = kind(2).update(X)
    gram = gram_of(sums, FeatureSpace.whole(Layout.plain(2)))
    size = 0.0
    for sequence in X:
        G = sequence.T @ sequence
        columns = [(j, k, l) for j, k in ((0, 0), (0, 1), (1, 1)) for l in range(2)]  # noqa: E741
        for scale, (j, k, l) in zip(gram.scale, columns, strict=True):  # noqa: E741
            size += scale**2 * G[j, j] * G[k, k] * sequence[-1, l] ** 2
    assert gram.feature_size == pytest.approx(np.sqrt(size), rel=1e-9 if gram.factored else 1e-12)
    assert gram.feature_size >= np.sqrt(size) * (1.0 - 1e-12)


def test_rounding_of_features_is_bounded_closely(generic):
    """As the square root of a sum of squares: a hundred roundings times the condition number."""
    proof = triangular.prove_independent(generic.rows, generic.space, generic.triangle)
    condition = np.linalg.cond(generic.triangle.factor)
    assert 0.0 < proof.rounding < 1000.0 * condition * np.finfo(float).eps
    assert 1.0 - proof.rounding - 1e-12 < proof.least < 1.0


def test_what_rounding_may_have_added_is_taken_off():
    """At sizes where rounding bounds are no longer small: sigma^2 >= 1 - away - rounding."""
    square = np.array([[1.0, 0.125], [0.0, 1.0]], order="F")
    n_rows, power, doubt = 2**50, 0.25, 0.0625
    summed = gamma(n_rows) * power
    proof = triangular._judge(square, doubt, power, n_rows)
    away = np.linalg.norm([0.125, 0.125])
    assert proof.least <= np.sqrt(1.0 - away - summed) - np.sqrt(doubt)
    assert proof.least == pytest.approx(np.sqrt(1.0 - away - summed) - 0.25, rel=1e-5)
    assert triangular._judge(square, 0.9, power, n_rows) is None


@pytest.mark.parametrize("more", [{"n_roundings": 101}, {"feature_depth": 15}])
@pytest.mark.parametrize("part", ["powers", "magnitudes"])
def test_every_further_operation_may_round(more, part):
    powers, magnitudes = (np.full(3, float(part == name)) for name in ("powers", "magnitudes"))
    gram = Gram(np.diag(powers), magnitudes, n_roundings=100, feature_depth=14, total_weight=100.0)
    grows = part == "powers" or "feature_depth" in more
    before, after = gram.error(np.ones(3)), replace(gram, **more).error(np.ones(3))
    assert after > before if grows else after == before


def test_a_gram_made_of_a_factor_errs_by_twice_what_moved_its_columns():
    powers = np.array([1.0, 2.0, 0.5])
    gram = Gram(np.diag(powers), powers, n_roundings=100, feature_depth=14, total_weight=100.0)
    more = replace(gram, factored=True).error(np.ones(3)) - gram.error(np.ones(3))
    moved = gamma(32 * 3 * 4 * 2 * 101)
    assert more == pytest.approx(2.0 * moved * 3.5, rel=1e-5)


def test_features_that_underflow_beside_large_queries_are_not_trusted():
    """Products of two sums are made before those with queries: they may be below 2^-1022."""
    powers = np.full(3, 2.0**-950)
    gram = Gram(np.diag(powers), powers, n_roundings=100, feature_depth=14, total_weight=100.0)
    assert gram.keeps_digits
    assert not replace(gram, largest=2.0**40).keeps_digits
    assert not replace(gram, n_roundings=2**60).keeps_digits


@pytest.mark.parametrize("definite_enough", [True, False])
def test_ends_of_large_spectra_are_those_of_small_ones(monkeypatch, definite_enough):
    rng = np.random.default_rng(0)
    orthonormal, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    values = np.geomspace(1e-6, 2.0, 60)
    values[0] *= 1 if definite_enough else -1
    matrix = (orthonormal * values) @ orthonormal.T
    monkeypatch.setattr(spectrum, "DENSE_SIZE", 20)
    assert spectrum.extremes(matrix) == pytest.approx((values[0], 2.0), rel=1e-6)
    assert spectrum.largest(matrix) == pytest.approx(2.0, rel=1e-6)


def test_unseen_directions_of_moments_are_those_of_their_matrix():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 4, 2)) @ rng.standard_normal((2, 3)) * [1.0, 1.0, 100.0]
    evidence = pa.certify(statistics=pa.Moments(3).update(X)).evidence
    basis, gram = evidence.null_basis, evidence.gram
    assert basis.shape == (18, 12)
    vectors = basis / gram.scale[:, None]
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(12), atol=1e-12)
    assert np.abs(gram.scaled(gram.scale) @ vectors).max() < 1e-12


@pytest.mark.parametrize(("operations", "error"), [(2**51, 1 / 3), (2**50, 1 / 7), (2**52, np.inf)])
def test_the_error_of_many_operations(operations, error):
    """k u / (1 - k u), and nothing is known from k u = 1/2 on."""
    assert gamma(operations) == pytest.approx(error, rel=1e-15)


def test_the_size_of_features_whose_rows_are_of_size_one(generic):
    size = 0.0
    for sequence in np.random.default_rng(0).standard_normal((90, 4, 3)):
        G, x = sequence.T @ sequence, sequence[-1]
        G, x = (part / 2.0 ** np.frexp(np.abs(part).max())[1] for part in (G, x))
        pairs = [(j, k) for j in range(3) for k in range(j, 3)]
        sizes = [G[j, j] * G[k, k] * x[l] ** 2 for j, k in pairs for l in range(3)]  # noqa: E741
        size += float(generic.triangle.scale**2 @ sizes)
    assert generic.triangle.feature_size == pytest.approx(np.sqrt(size), rel=1e-12)


@pytest.mark.usefixtures("only_rounding")
def test_the_bound_of_an_effect_holds_all_that_may_round(flat):
    direction = flat.null_basis[:, 0]
    least = 0.0
    for piece in row_pieces(flat.rows, flat.space, normalised=True):
        phi = np.abs(piece.features(flat.space))
        sizes = gamma(feature_depth(Layout.plain(3), 4)) * piece.magnitudes(flat.space)
        least += np.sum((np.abs(direction) @ (sizes + gamma(18) * phi)) ** 2)
    assert effect_if_unseen(flat, direction) >= np.sqrt(least)


def test_movements_are_derivatives():
    """Of one token alone the output is a cubic form f, and moves by sum |x_j df/dx_j|."""
    rng = np.random.default_rng(0)
    direction, x, step = rng.standard_normal(18), rng.standard_normal(3), 1e-6

    def output(token):
        return direction @ cubic_features(np.outer(token, token), token)

    slopes = [(output(x + h) - output(x - h)) / (2 * step) for h in step * np.eye(3)]
    pairs = np.outer(x, x)[np.triu_indices(3)]
    forms = unfold_coef(direction.reshape(1, -1, 3))[0]
    moved = _movements(forms, pairs[:, None], x[:, None], np.ones(3, dtype=bool))
    assert moved[0] == pytest.approx(np.sum(np.abs(slopes * x)), rel=1e-6)
