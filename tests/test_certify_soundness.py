"""Soundness: verdicts against exact rational arithmetic, on data made to mislead.

Integer and dyadic data, all domains and modes, from well conditioned to singular, with condition
numbers of Lambda_D up to 1e24 and beyond.  A verdict other than "undecided" must be the truth.
"""

from dataclasses import dataclass

import numpy as np
import pytest

import polyattn as pa
from domain_cases import BUILT_IN
from polyattn import domains
from polyattn.form.layout import Layout
from rational_arithmetic import rational_features, rational_rank

MODES = ("last", "causal", "full")

#: Below this ratio of eigenvalues doubt is allowed.
WELL_POSED = 1e-12


@dataclass(frozen=True)
class Case:
    X: list
    mode: str
    domain: domains.Domain
    bias: bool
    method: str


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n_dims = int(rng.integers(1, 4))
    mode = MODES[rng.integers(3)]
    bias = bool(rng.random() < 0.25) and n_dims < 3
    # Real data twice as often: they are made to mislead.
    kinds = [domains.Real, *BUILT_IN]
    kind = kinds[rng.integers(len(kinds))]
    longest = int(rng.integers(1, 5))
    domain = kind(lengths=(1, longest)) if rng.random() < 0.3 else kind()
    p = domain.space(Layout.plain(n_dims, bias=bias)).dimension
    count = int(rng.integers(max(1, p - 3), 2 * p + 6))
    sizes = [int(rng.integers(1, longest + 1)) for _ in range(count)]
    X = [_tokens(rng, kind, n, n_dims) for n in sizes]
    if kind is domains.Real:
        X = _mislead(rng, X)
    return Case(X, mode, domain, bias, ["auto", "float", "exact"][rng.integers(3)])


def _tokens(rng, kind, n_tokens, n_dims):
    if kind is not domains.Real:
        return BUILT_IN[kind].tokens(rng, n_tokens, n_dims)
    bits = int(rng.integers(1, 12))
    return np.ldexp(rng.integers(-(2**bits), 2**bits + 1, size=(n_tokens, n_dims)), -bits // 2)


def _mislead(rng, X):
    """Deficient, nearly deficient, badly scaled, or as it is; always exact dyadic numbers."""
    n_dims, trick = X[0].shape[1], rng.integers(6)
    if trick == 0:
        return [np.ldexp(x, rng.integers(-30, 31, size=n_dims)) for x in X[:1]] + X[1:]
    if trick == 1:
        scales = rng.integers(-20, 21, size=n_dims)
        return [np.ldexp(x, scales) for x in X]
    if trick in (2, 3) and n_dims > 1:
        # The last coordinate nearly follows from the first: exactly so for trick 2.
        shift = int(rng.integers(1, 22))
        out = []
        for x in X:
            x = x.copy()
            x[:, -1] = x[:, 0] + (0 if trick == 2 else np.ldexp(x[:, -1], -shift))
            out.append(x)
        return out
    if trick == 4:
        return [X[i % max(1, len(X) // 3)] for i in range(len(X))]
    return X


def truth(case: Case) -> bool:
    """Whether the features of the data have the dimension of the domain, exactly."""
    space = case.domain.space(Layout.plain(case.X[0].shape[1], bias=case.bias))
    rows = [row for x in case.X for row in rational_features(x, case.mode, case.bias)]
    chosen = [[row[i] for i in space.columns] for row in rows]
    return rational_rank(chosen) == space.dimension


def eigenvalue_ratio(case: Case) -> float:
    """lambda_min / lambda_max on the representatives; singular values keep small ones."""
    space = case.domain.space(Layout.plain(case.X[0].shape[1], bias=case.bias))
    rows = [row for x in case.X for row in rational_features(x, case.mode, case.bias)]
    psi = np.array(rows, dtype=float)[:, space.columns]
    if len(psi) < space.dimension:
        return 0.0
    values = np.linalg.svd(psi, compute_uv=False)
    return float((values[-1] / values[0]) ** 2) if values[0] > 0 else 0.0


def judge(seeds) -> tuple[int, int, int, dict]:
    """(wrong, well posed, of these undecided, how often each verdict came)."""
    wrong, posed, open_cases, verdicts = 0, 0, 0, {}
    for seed in seeds:
        case = random_case(seed)
        certificate = pa.certify(case.X, case.mode, case.domain, bias=case.bias, method=case.method)
        identifiable = truth(case)
        verdicts[certificate.verdict] = verdicts.get(certificate.verdict, 0) + 1
        if certificate.verdict != "undecided":
            wrong += (certificate.verdict == "identifiable") != identifiable
        if identifiable and eigenvalue_ratio(case) >= WELL_POSED:
            posed += 1
            open_cases += certificate.verdict == "undecided"
    return wrong, posed, open_cases, verdicts


def check(seeds):
    wrong, posed, undecided, verdicts = judge(seeds)
    assert wrong == 0
    assert undecided <= 0.01 * posed
    # A check that only ever saw one verdict would prove nothing.
    assert min(verdicts.get(v, 0) for v in ("identifiable", "not_identifiable")) > len(seeds) / 10


def test_no_wrong_verdict_in_a_few_hundred_cases():
    check(range(400))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_no_wrong_verdict_in_twelve_thousand_cases(part):
    check(range(1000 + 1500 * part, 1000 + 1500 * (part + 1)))


@pytest.mark.parametrize("shift", range(1, 47))
def test_condition_numbers_up_to_1e24_and_beyond(shift):
    """One token coordinate times 2^-shift hides in another: exact full rank, ever smaller."""
    rng = np.random.default_rng(shift)
    X = rng.integers(-9, 10, size=(60, 3, 2)).astype(float)
    X[..., 1] = X[..., 0] + np.ldexp(X[..., 1], -shift)
    certificate = pa.certify(X, method="float")
    assert certificate.verdict in ("identifiable", "undecided")
    if shift <= 12:
        assert certificate.verdict == "identifiable"
    assert pa.certify(X, method="exact").verdict == "identifiable"


def custom_case(seed: int) -> Case:
    """Training data that may or may not reach the sequences of a finite domain."""
    rng = np.random.default_rng(seed)
    kind = list(BUILT_IN)[rng.integers(len(BUILT_IN))]
    n_dims, mode = int(rng.integers(1, 4)), MODES[rng.integers(3)]
    sizes = rng.integers(1, 4, size=int(rng.integers(1, 25)))
    X = [_tokens(rng, kind, n, n_dims) for n in sizes]
    if kind is domains.Real and rng.random() < 0.6 and n_dims > 1:
        for x in X:
            x[:, -1] = x[:, 0] if rng.random() < 0.9 else x[:, -1]
    inside = [X[i] for i in rng.integers(len(X), size=3)]
    fresh = [_tokens(rng, kind, int(n), n_dims) for n in rng.integers(1, 4, size=3)]
    domain = domains.Finite(inside + fresh * int(rng.random() < 0.7))
    method = ["auto", "float", "exact"][rng.integers(3)]
    return Case(X, mode, domain, bool(rng.random() < 0.3), method)


def reaches(case: Case) -> bool:
    """Whether the features of the domain lie in the span of the data's, exactly."""
    seen, asked = (
        [row for x in sequences for row in rational_features(x, case.mode, case.bias)]
        for sequences in (case.X, case.domain.sequences)
    )
    return rational_rank(seen + asked) == rational_rank(seen)


def check_custom(seeds):
    verdicts = {}
    for seed in seeds:
        case = custom_case(seed)
        certificate = pa.certify(case.X, case.mode, case.domain, bias=case.bias, method=case.method)
        verdicts[certificate.verdict] = verdicts.get(certificate.verdict, 0) + 1
        if certificate.verdict != "undecided":
            assert (certificate.verdict == "identifiable") == reaches(case), seed
        else:
            assert case.method == "float"  # exact arithmetic decides all of these
    assert min(verdicts.get(v, 0) for v in ("identifiable", "not_identifiable")) > len(seeds) / 10


def test_no_wrong_verdict_on_finite_domains():
    check_custom(range(200))


@pytest.mark.slow
def test_no_wrong_verdict_on_many_finite_domains():
    check_custom(range(1000, 4000))


def test_the_oracle_can_tell():
    """The judge itself: a verdict turned round is counted as wrong."""
    X = np.random.default_rng(0).integers(-3, 4, size=(20, 3, 2)).astype(float)
    full = Case(list(X), "last", domains.Real(), False, "float")
    assert truth(full)
    X[..., 1] = X[..., 0]
    assert not truth(Case(list(X), "last", domains.Real(), False, "float"))
    assert not truth(Case(list(X[:3]), "last", domains.Real(), False, "float"))


class TestAgainstMpmath:
    """Entries of Lambda_D and its smallest eigenvalue at 50 digits."""

    @pytest.mark.parametrize("mode", MODES)
    def test_entries_and_smallest_eigenvalue(self, mode):
        mpmath = pytest.importorskip("mpmath")
        rng = np.random.default_rng(0)
        X = rng.standard_normal((25, 4, 2))
        moments = pa.Moments(2, mode=mode).update(X)
        rows = [row for x in X for row in rational_features(x, mode)]
        with mpmath.workdps(50):

            def entry(a, b):
                total = sum(row[a] * row[b] for row in rows) / len(rows)
                return mpmath.mpf(total.numerator) / total.denominator

            computed = moments.second_moment
            for a, b in rng.integers(6, size=(12, 2)):
                true, size = entry(a, b), mpmath.sqrt(entry(a, a) * entry(b, b))
                assert abs(computed[a, b] - true) <= 1e-14 * size
            exact = mpmath.matrix([[entry(a, b) for b in range(6)] for a in range(6)])
            smallest = min(mpmath.eigsy(exact, eigvals_only=True))
        certificate = pa.certify(X, mode)
        assert certificate.verdict == "identifiable"
        assert abs(certificate.lambda_min - smallest) <= 1e-13 * certificate.lambda_max

    def test_the_proved_margin_is_below_the_true_eigenvalue(self):
        """The number that the proof rests on, at 50 digits."""
        mpmath = pytest.importorskip("mpmath")
        X = np.random.default_rng(1).standard_normal((25, 3, 2))
        evidence = pa.certify(X).evidence
        proof = evidence.definite
        rows = [row for x in X for row in rational_features(x, "last")]
        with mpmath.workdps(50):
            M = mpmath.matrix(6, 6)
            for a in range(6):
                for b in range(6):
                    total = sum(row[a] * row[b] for row in rows)
                    scale = mpmath.mpf(proof.scale[a]) * mpmath.mpf(proof.scale[b])
                    M[a, b] = mpmath.mpf(total.numerator) / total.denominator * scale
            R = mpmath.matrix(proof.factor.tolist())
            left = M - R.T * R
            assert min(mpmath.eigsy(left, eigvals_only=True)) >= mpmath.mpf(proof.margin)
