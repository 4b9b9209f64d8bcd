"""Proofs trust no routine: fed with wrong factors and directions, they prove nothing."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.certify.roads.unseen import effect_if_unseen
from polyattn.certify.verified import definite, orthogonal


def evidence_of(X):
    return pa.certify(X, method="float").evidence


def never():
    """No rank is deficient."""
    return False


@pytest.fixture
def generic():
    return evidence_of(np.random.default_rng(0).standard_normal((90, 4, 3)))


@pytest.fixture
def flat():
    rng = np.random.default_rng(0)
    return evidence_of(rng.standard_normal((60, 4, 2)) @ rng.standard_normal((2, 3)))


@pytest.mark.parametrize("spoil", [0.99, 1.01, 1e-3, 1e3])
def test_a_wrong_cholesky_factor_proves_nothing(generic, monkeypatch, spoil):
    assert definite.prove_definite(generic.gram) is not None
    true = definite.lapack.dpotrf

    def wrong(*arguments, **options):
        factor, failed = true(*arguments, **options)
        return factor * spoil, failed

    monkeypatch.setattr(definite.lapack, "dpotrf", wrong)
    assert definite.prove_definite(generic.gram) is None


def test_a_factor_of_a_singular_matrix_proves_nothing(flat, monkeypatch):
    """LAPACK says no; a routine that always says yes does not help."""
    assert definite.prove_definite(flat.gram) is None
    size = flat.space.dimension
    monkeypatch.setattr(definite.lapack, "dpotrf", lambda *_, **__: (np.eye(size, order="F"), 0))
    assert definite.prove_definite(flat.gram) is None


def test_any_preconditioner_is_allowed_and_a_bad_one_proves_nothing(generic, monkeypatch):
    rows, space, triangle = generic.rows, generic.space, generic.triangle
    assert orthogonal.prove_independent(rows, space, triangle) is not None
    true = orthogonal.lapack.dtrtri
    for spoil in (1.5, 0.3):
        monkeypatch.setattr(
            orthogonal.lapack, "dtrtri", lambda factor, spoil=spoil: (true(factor)[0] * spoil, 0)
        )
        assert orthogonal.prove_independent(rows, space, triangle) is None


def test_an_unseen_direction_must_be_within_rounding(flat):
    direction = flat.null_basis[:, 0]
    effect = effect_if_unseen(flat, direction, never)
    assert 0 < effect < 1e-13
    vars(flat)["tolerance"] = effect / 100
    assert effect_if_unseen(flat, direction, never) is None


def test_a_direction_that_is_seen_is_not_unseen(flat):
    direction = flat.null_basis[:, 0]
    seen = direction + 1e-9 * flat.triangle.scale
    unit = seen / np.linalg.norm(seen / flat.triangle.scale)
    assert effect_if_unseen(flat, unit, never) is None


def test_the_margin_of_a_proof_is_what_is_left_of_the_shift(generic):
    proof = definite.prove_definite(generic.gram, shift=1e-3)
    matrix = generic.gram.scaled(proof.scale)
    left = np.linalg.eigvalsh(matrix - proof.factor.T @ proof.factor)[0]
    assert 0 < proof.margin <= left <= 1e-3 * (1 + 1e-9)
    assert definite.prove_definite(generic.gram, shift=2.0) is None
