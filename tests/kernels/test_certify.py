"""Inside certificates: proofs trust no routine, and bounds of rounding are never below its errors.

These tests speak of inner modules because public calls reach a false proof only by bad luck: they
spoil factors and directions, and measure errors against rational arithmetic.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import gcd

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.certify import minimiser, unseen
from polyattn.certify.bounds import _solved
from polyattn.certify.check import symbols
from polyattn.certify.check.measure import INPUT_ROUNDING, MeasuredTable
from polyattn.certify.check.symbols import SymbolClaims, _combinations
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.domains.tokens import _climb
from polyattn.certify.exact import integers
from polyattn.certify.exact import rank as ranks
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.modular import centre, inverse, multiply, primes
from polyattn.certify.unseen import _movements, effect_if_unseen
from polyattn.certify.verified import gram as gram_proofs
from polyattn.certify.verified import spectrum, triangular
from polyattn.certify.verified.gram import Definite, Gram, gram_of
from polyattn.certify.verified.rounding import feature_depth, gamma, longest
from polyattn.certify.verified.sizes import row_pieces
from polyattn.form import Layout
from polyattn.form.pairs import unfold_coef
from polyattn.sequences import as_batch
from polyattn.stats.rows import Rows

pytestmark = pytest.mark.kernel
PRIME = next(primes())


def evidence_of(X):
    return pa.certify(X, method="float").evidence


@pytest.fixture
def generic():
    return evidence_of(np.random.default_rng(0).standard_normal((90, 4, 3)))


@pytest.fixture
def flat(monkeypatch):
    """Tokens in a plane, of which no rank of the numbers as they are is known to be deficient."""
    monkeypatch.setattr(unseen, "leave_open", lambda *_: False)
    rng = np.random.default_rng(0)
    return evidence_of(rng.standard_normal((60, 4, 2)) @ rng.standard_normal((2, 3)))


@pytest.mark.parametrize("spoil", [0.99, 1.01])
def test_a_wrong_cholesky_factor_proves_nothing(generic, flat, monkeypatch, spoil):
    true = gram_proofs.lapack.dpotrf
    assert gram_proofs.prove_definite(generic.gram) is not None
    assert gram_proofs.prove_definite(flat.gram) is None

    def wrong(*arguments, **options):
        factor, failed = true(*arguments, **options)
        return factor * spoil, failed

    monkeypatch.setattr(gram_proofs.lapack, "dpotrf", wrong)
    assert gram_proofs.prove_definite(generic.gram) is None
    # LAPACK says no; a routine that always says yes does not help.
    yes = (np.eye(flat.space.dimension, order="F"), 0)
    monkeypatch.setattr(gram_proofs.lapack, "dpotrf", lambda *_, **__: yes)
    assert gram_proofs.prove_definite(flat.gram) is None


def test_any_preconditioner_is_allowed_and_a_bad_one_proves_nothing(generic, monkeypatch):
    given = generic.rows, generic.space, generic.triangle
    proof = triangular.prove_independent(*given)
    assert 0.0 < proof.rounding < 1000.0 * np.linalg.cond(generic.triangle.factor) * oracle.EPS
    assert 1.0 - proof.rounding - 1e-12 < proof.least < 1.0
    true = triangular.lapack.dtrtri
    monkeypatch.setattr(triangular.lapack, "dtrtri", lambda factor: (true(factor)[0] * 1.5, 0))
    assert triangular.prove_independent(*given) is None


def test_an_unseen_direction_must_be_within_rounding(flat):
    direction = flat.null_basis[:, 0]
    effect = effect_if_unseen(flat, direction)
    least = 0.0
    for piece in row_pieces(flat.rows, flat.space, normalised=True):
        phi = np.abs(piece.features(flat.space))
        sizes = gamma(feature_depth(Layout.plain(3), 4)) * piece.magnitudes(flat.space)
        least += np.sum((np.abs(direction) @ (sizes + gamma(18) * phi)) ** 2)
    assert np.sqrt(least) <= effect < 1e-13
    seen = direction + 1e-9 * flat.triangle.scale
    assert effect_if_unseen(flat, seen / np.linalg.norm(seen / flat.triangle.scale)) is None
    vars(flat)["tolerance"] = effect / 100
    assert effect_if_unseen(flat, direction) is None


def test_movements_are_derivatives():
    """Of one token alone the output is a cubic form f, and moves by sum |x_j df/dx_j|."""
    rng, step = np.random.default_rng(4), 1e-6
    direction, x = rng.standard_normal(18), rng.standard_normal(3)
    psi = oracle.design([x[None]], {})[0]
    direction -= (psi @ direction) / (psi @ psi) * psi
    nearby = np.concatenate([x + step * np.eye(3), x - step * np.eye(3)])
    outputs = (oracle.design(nearby[:, None], {}) @ direction).reshape(2, 3)
    slopes = (outputs[0] - outputs[1]) / (2 * step)
    pairs = np.outer(x, x)[np.triu_indices(3)]
    forms = unfold_coef(direction.reshape(1, -1, 3))[0]
    moved = _movements(forms, pairs[:, None], x[:, None], np.ones(3, dtype=bool))
    assert moved[0] == pytest.approx(np.sum(np.abs(slopes * x)), rel=1e-6)
    # The checker's own: what so many roundings of the inputs make is explained, and no more.
    table = MeasuredTable(as_batch(x[None, None]), "last", False)
    for share in (0.9, -0.9, 1.1, -1.1):
        nearly = direction + share * INPUT_ROUNDING * moved[0] / (psi @ psi) * psi
        assert table.explained(nearly, np.ones(3, dtype=bool)) == (abs(share) < 1)


def test_the_margin_of_a_proof_is_what_is_left_of_the_shift(generic):
    proof = gram_proofs.prove_definite(generic.gram, shift=1e-3)
    left = np.linalg.eigvalsh(generic.gram.scaled(proof.scale) - proof.factor.T @ proof.factor)[0]
    assert 0 < proof.margin <= left <= 1e-3 * (1 + 1e-9)
    assert gram_proofs.prove_definite(generic.gram, shift=2.0) is None


def test_errors_of_many_operations():
    """k u / (1 - k u), and nothing is known from k u = 1/2 on; factors err more than sums."""
    for operations, error in ((2**51, 1 / 3), (2**50, 1 / 7), (2**52, np.inf)):
        assert gamma(operations) == pytest.approx(error, rel=1e-15)
    powers = np.array([1.0, 2.0, 0.5])
    gram = Gram(np.diag(powers), powers, n_roundings=100, feature_depth=14, total_weight=100.0)
    assert gram_proofs.prove_definite(gram) is not None
    tiny = replace(gram, matrix=2.0**-970 * gram.matrix, magnitudes=2.0**-970 * powers)
    assert gram_proofs.prove_definite(tiny) is None
    small = replace(gram, matrix=2.0**-940 * gram.matrix, magnitudes=2.0**-940 * powers)
    assert gram_proofs.prove_definite(small) is not None
    # Beside tokens of 2^40 a product that vanished may have been as large as that.
    assert gram_proofs.prove_definite(replace(small, largest=2.0**40)) is None
    more = replace(gram, factored=True).error(np.ones(3)) - gram.error(np.ones(3))
    assert more == pytest.approx(2.0 * gamma(32 * 3 * 4 * 2 * 101) * 3.5, rel=1e-5)


def test_what_rounding_may_have_added_is_taken_off():
    """At sizes where rounding bounds are no longer small: sigma^2 >= 1 - away - rounding."""
    square = np.array([[1.0, 0.125], [0.0, 1.0]], order="F")
    n_rows, power, doubt = 2**50, 0.25, 0.0625
    proof = triangular._judge(square, doubt, power, n_rows)
    left = np.sqrt(1.0 - np.linalg.norm([0.125, 0.125]) - gamma(n_rows) * power)
    assert proof.least <= left - np.sqrt(doubt)
    assert proof.least == pytest.approx(left - 0.25, rel=1e-5)
    assert triangular._judge(square, 0.9, power, n_rows) is None


def test_doubt_about_a_feature_counts_by_the_margin():
    """z^T M^-1 z for every z within the doubt, M = R^T R + margin I, R nearly singular."""
    rng = np.random.default_rng(0)
    factor = np.triu(rng.standard_normal((3, 3))) * 1e-3
    proof = Definite(np.ones(3), factor, margin=1e-2, rounding=0.0)
    inverted = np.linalg.inv(factor.T @ factor + 1e-2 * np.eye(3))
    scaled, doubt = 1e-6 * rng.standard_normal((3, 50)), np.full((3, 50), 0.5)
    bound = _solved(proof, scaled, doubt)
    for signs in np.array(list(product((-1, 1), repeat=3))):
        z = scaled + doubt * signs[:, None]
        assert np.all(np.einsum("ir,ij,jr->r", z, inverted, z) <= bound**2)
    assert np.all(bound**2 <= 3 * 0.25 / 1e-2 * 1.1)


SLANTED = np.array([[0.1, 0.3], [0.1, 0.7], [-0.1, 0.2]])
ERRING = {
    "coordinates": {"key": [0], "value": [1]},
    "decays": {"mode": "causal", "key": [0], "value": [1], "query": [0, 2], "decay": [0.3, 0.9]},
    "window": {"mode": "causal", "key": [0], "value": [1], "window": 2, "decay": 0.7,
               "include_query": False},
    "full": {"mode": "full", "key": [0], "value": [1], "query": SLANTED, "mean": True},
    "others": {"mode": "full", "key": [0], "value": [1], "include_query": False, "skip": True},
    "matrix": {"key": SLANTED, "value": [0], "query": [1], "bias": True},
}  # fmt: skip


def as_objects(matrix):
    """A table of rationals as an array of fractions."""
    return np.array([[Fraction(int(v.p), int(v.q)) for v in row] for row in matrix.tolist()])


@pytest.mark.parametrize("name", ERRING)
def test_errors_of_features_and_of_their_sums_are_within_their_bounds(name):
    """Against rational arithmetic; sums that cancel err by much of themselves."""
    fields, rng = ERRING[name], np.random.default_rng(7)
    X = rng.integers(-(2**48), 2**48, (9, 4, 3)) * 2.0**-48
    form = pa.Form(**fields)
    for cancelling in (False, True):
        if cancelling:
            X[:, 1] = X[:, 0] * [1.0, -1.0, 1.0]
            X[:, 3] = X[:, 2] * [-1.0, 1.0 + 2.0**-30, 1.0]
        psi = as_objects(oracle.exact_design(X, fields))
        sums = pa.Moments(3, form=form).update(X)
        gram = gram_of(sums, FeatureSpace.whole(sums.layout))
        scale = [Fraction(each) for each in gram.scale]
        apart = (gram.matrix * np.array([Fraction(1)]) - psi.T @ psi) * scale
        apart = (apart * np.array(scale)[:, None]).astype(float)
        assert np.linalg.norm(apart, 2) <= gram.error(gram.scale)
        # The features themselves.
        rows = Rows.build(X, None, form)
        space, power = FeatureSpace.whole(rows.layout), Fraction(8) ** (rows.token_exponent or 0)
        bound = gamma(feature_depth(rows.layout, longest(rows)))
        pieces = list(row_pieces(rows, space))
        phi = np.concatenate([piece.features(space) for piece in pieces], axis=1)
        sizes = np.concatenate([piece.magnitudes(space) for piece in pieces], axis=1)
        errors = np.abs(phi * np.array([power]) - psi.T).astype(float)
        assert np.all(errors <= sizes * bound * float(power) * (1 + 1e-9))


def test_ends_of_large_spectra_are_those_of_small_ones(monkeypatch):
    monkeypatch.setattr(spectrum, "DENSE_SIZE", 20)
    orthonormal, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((60, 60)))
    for sign in (1, -1):
        values = np.geomspace(1e-6, 2.0, 60)
        values[0] *= sign
        matrix = (orthonormal * values) @ orthonormal.T
        assert spectrum.extremes(matrix) == pytest.approx((values[0], 2.0), rel=1e-6)
        assert spectrum.largest(matrix) == pytest.approx(2.0, rel=1e-6)


def rows_of(X):
    layout = Layout.plain(X[0].shape[1], "last", False)
    return FeatureRows(as_batch(X, keep_integers=True), np.arange(layout.n_features), layout)


def test_a_vector_off_by_one_is_refused():
    rng = np.random.default_rng(15)
    for X in (
        rng.choice([-1.0, 1.0], (4, 3, 2)), rng.integers(-8, 9, (4, 3, 2)) / 4.0 * [1.0, 2.0**32],
        rng.integers(0, 2**64, (4, 3, 2), dtype=np.uint64) | np.uint64(1),
        rng.standard_normal((4, 3, 2)), 1e150 * rng.integers(-3, 4, (4, 3, 2)),
        *(rng.integers(-(2**bits), 2**bits, (4, 3, 2)) for bits in (8, 12, 14)),
    ):  # fmt: skip
        rows = rows_of(X)
        vector = ranks.null_vector(rows, ranks.exact_rank(rows))
        wrong = [
            [v + step * (i == place) for i, v in enumerate(vector)]
            for step, place in product((1, -1, 2**8, -(2**64), PRIME), range(6))
        ]
        long = [7**200 * v for v in vector]
        direction = oracle.fmpq_mat([[oracle.fmpq(entry)] for entry in vector])
        assert (oracle.exact_design(list(rows.batch), {}) * direction).rank() == 0
        assert gcd(*vector) == 1
        for check in (integers.annihilated, integers._by_primes):
            assert check(rows, [vector, long, *wrong]).tolist() == [True, True] + [False] * 30
    # Of a token (1, b) the last product alone, b^3, hides a one in float64.
    b = 2**20 - 1
    vectors = [[0, 0, 0, 0, b, -1], [1, 0, 0, 0, b, -1]]
    assert integers.annihilated(rows_of(np.array([[[1, b]]])), vectors).tolist() == [True, False]


def test_unlucky_primes_and_wrong_reconstructions_end_in_none(monkeypatch):
    tokens = np.random.default_rng(19).integers(-9, 10, (40, 3, 2))
    for X in (tokens * PRIME, tokens * [1, PRIME]):
        rows = rows_of(X)
        unlucky = ranks.exact_rank(rows, prime=PRIME)
        assert unlucky.rank < ranks.exact_rank(rows).rank == 6
        assert ranks.null_vector(rows, unlucky) is None
    rows = rows_of(np.random.default_rng(18).choice([-1, 1], (50, 3, 2)))
    known, true = ranks.exact_rank(rows), integers.reconstruct

    def wrong(residues, modulus):
        right = true(residues, modulus)
        return right and [right[0] + 1, *right[1:]]

    assert ranks.null_vector(rows, known) is not None
    monkeypatch.setattr(integers, "reconstruct", wrong)
    monkeypatch.setattr(ranks, "EFFORT", 1e4)
    assert ranks.null_vector(rows, known) is None
    assert ranks.null_space(rows, known) is None


def test_residues_are_centred_and_their_products_exact():
    halves = [q * PRIME + PRIME // 2 + k for q in (0, 1, 2**30) for k in (-1, 0, 1, 2)]
    values = [s * v for v in (*halves, 0, 2**53 - 2**22) for s in (1, -1)]
    centred = np.array([values], dtype=float)
    centre(centred, PRIME)
    assert np.abs(centred).max() <= PRIME // 2 + 2
    assert all((a - int(b)) % PRIME == 0 for a, b in zip(values, centred[0], strict=True))
    rng = np.random.default_rng(9)
    left = rng.choice([-1.0, 1.0], (3, 5000)) * (PRIME // 2 + 2)
    expected = left.astype(object) @ np.abs(left).T.astype(object) % PRIME
    assert np.all(multiply(left, np.abs(left).T, PRIME) % PRIME == expected)
    matrix = rng.integers(-9, 10, (70, 70)).astype(float)
    np.testing.assert_array_equal(multiply(inverse(matrix, PRIME), matrix, PRIME), np.eye(70))


def test_random_combinations_of_large_counts_are_exact():
    """Sums of products of residues leave float64 where counts do not."""
    rng = np.random.default_rng(2)
    weights, counts = rng.integers(1, PRIME // 2, (3, 20000)), rng.integers(1, 2**22, (20000, 2))
    found = _combinations(weights.astype(float), counts.astype(float), PRIME)
    exact = weights.astype(object) @ counts.astype(object)
    assert np.all((exact - found.astype(np.int64)) % PRIME == 0)


def test_an_effect_that_the_first_primes_divide_is_found(monkeypatch):
    """Of entries 1 and of symbols that occur 2^22 times and more, as no short text has them."""
    drawn = primes()
    batch = pa.SequenceBatch.from_ids([[0]], 2)
    claims = SymbolClaims(pa.certify(batch), batch, None)
    counts = np.array([[float(next(primes())), 0.0]])
    monkeypatch.setattr(symbols, "random_prime", lambda _: next(drawn))
    monkeypatch.setattr(SymbolClaims, "tables", lambda *_: iter([counts]))
    assert claims._has_effect(0, {0: 1})
    assert not claims._has_effect(0, {1: 1})


def test_climbing_ends_where_no_sign_helps():
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e3):
        form = size * rng.standard_normal((4, 4))
        form = form + form.T
        y = _climb(form, rng.choice([-1.0, 1.0], 4))
        others = y * (1.0 - 2.0 * np.eye(4))
        assert y @ form @ y >= np.einsum("ij,jk,ik->i", others, form, others).max()


@pytest.mark.parametrize("kind", oracle.KINDS)
def test_the_minimiser_is_the_planted_one_from_every_source(kind, monkeypatch):
    known = oracle.planted(kind, {"mode": "causal"})
    rows = Rows.build(known.X, known.Y, pa.Form("causal"))
    monkeypatch.setattr(minimiser, "FACTORED_NUMBERS", 0)
    for found, squared in [
        (minimiser.minimise(rows), False), (minimiser.minimise(pa.Moments.of(rows)), True),
        (minimiser._from_kernel(rows), True),
    ]:  # fmt: skip
        assert found.rank == known.rank
        assert oracle.relative_error(found.coef, known.coef) < known.tolerance(squared)
        assert abs(found.risk - known.risk) <= found.rounding
        assert found.rounding < 1e-6 * (1 + known.risk)


def test_tokens_in_a_subspace_leave_the_rank_and_no_doubt_about_the_risk():
    for kind, width, d in (pa.TriangularFactor, 6, 9), (pa.Moments, 1, 8):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1500, 4, width)) @ rng.standard_normal((width, d))
        found = minimiser.minimise(kind(d, 1).update(X, rng.standard_normal((1500, 1))))
        assert found.rank == width * width * (width + 1) // 2
        assert found.rounding < 1e-8
