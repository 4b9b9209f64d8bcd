"""Certificates change with the data as theory says: verdict, rank, spectrum, and ``verify``.

Ranks are those of rational arithmetic, at every scale; eigenvalues are of sixth degree.
"""

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import polyattn as pa
from exact_cases import Case, draw
from exact_least_squares import numbers
from invariances import few_and_many, hold, in_parts, numbers_of_cases, seeds
from planted import EPS
from polyattn.reference.features import norm_weights

powers = st.integers(-60, 60)


def certificate(X, case: Case, **options) -> pa.Certificate:
    return pa.certify(X, case.mode, bias=case.bias, **options)


def condition(case: Case) -> float:
    """Of the features at size one, within their rank."""
    phi = numbers(case.exact.psi) / norm_weights(case.exact.width)
    norms = np.linalg.norm(phi, axis=0)
    sigma = np.linalg.svd(phi / np.where(norms > 0, norms, 1.0), compute_uv=False)
    return float(sigma[0] / sigma[case.exact.rank - 1]) if case.exact.rank else 1.0


def unweighted(number: int) -> Case:
    """A case whose sequences all count, and whose rank is clear."""
    return next(
        case for case in map(draw, range(number, number + 1000))
        if case.weights is None and condition(case) < 1e4
    )  # fmt: skip


def check_rank(number: int) -> None:
    case = unweighted(number)
    rank, p = case.exact.rank, case.exact.psi.ncols()
    for method in ("auto", "exact", "float"):
        found = certificate(case.X, case, method=method)
        assert pa.verify(found, case.X), (case.number, method)
        if found.method != "count":
            assert found.rank in (rank, None), (case.number, method)
        if found.verdict == "undecided":
            # Floating point may leave dependence open, exact arithmetic nothing.
            assert rank < p, (case.number, method)
            assert method != "exact"
        else:
            assert found.identifiable == (rank == p), (case.number, method)


@few_and_many
def test_verdicts_are_those_of_rational_arithmetic(examples):
    hold(check_rank, examples, number=numbers_of_cases)


def same_figures(one: pa.Certificate, other: pa.Certificate, power: int = 0) -> bool:
    """Whether verdict, rank and spectrum agree, tokens of the other being 2**power as large."""
    figures = ("verdict", "verdict_on_real_inputs", "method", "rank", "dimension", "n_features")
    if any(getattr(one, name) != getattr(other, name) for name in figures):
        return False
    rounding = 1e3 * EPS * one.n_features * (one.lambda_max or 0.0)
    for name in ("lambda_min", "lambda_max"):
        first, second = getattr(one, name), getattr(other, name)
        if (first is None) != (second is None):
            return False
        if first is not None and abs(np.ldexp(second, -6 * power) - first) > rounding:
            return False
    return True


def check_powers(number: int, power: int) -> None:
    case = next(
        c for c in map(unweighted, range(number, number + 100)) if not c.bias and c.exact.rank
    )
    X = [np.ldexp(x, power) for x in case.X]
    one, other = certificate(case.X, case), certificate(X, case)
    assert same_figures(one, other, power), (one, other)
    assert pa.verify(one, case.X)
    assert pa.verify(other, X)
    assert not pa.verify(one, X) or power == 0


@few_and_many
def test_powers_of_two_scale_the_spectrum(examples):
    hold(check_powers, examples, number=numbers_of_cases, power=powers)


def signed_permutation(X: list[NDArray], rng: np.random.Generator) -> list[NDArray]:
    order = rng.permutation(X[0].shape[1])
    signs = rng.choice([-1.0, 1.0], size=len(order))
    return [x[:, order] * signs for x in X]


def check_changes(number: int, seed: int) -> None:
    """Permuted sequences, signed and permuted coordinates, everything twice."""
    case, rng = unweighted(number), np.random.default_rng(seed)
    one = certificate(case.X, case)
    changed = {
        "permuted": [case.X[i] for i in rng.permutation(len(case.X))],
        "signed": signed_permutation(case.X, rng),
        "shuffled": [np.concatenate([rng.permutation(x[:-1]), x[-1:]]) for x in case.X],
    }
    if case.mode != "last":
        del changed["shuffled"]
    for name, X in changed.items():
        other = certificate(X, case)
        assert same_figures(one, other), (case.number, name, one, other)
        assert pa.verify(other, X)
    twice = certificate(case.X * 2, case)
    assert twice.identifiable == one.identifiable, case.number
    assert twice.rank in (one.rank, case.exact.rank, None)
    assert pa.verify(twice, case.X * 2)


@few_and_many
def test_certificates_do_not_know_the_order(examples):
    hold(check_changes, examples, number=numbers_of_cases, seed=seeds)


def check_parts(number: int, cuts: list[int]) -> None:
    case = unweighted(number)
    for make in (pa.Moments, pa.TriangularFactor):
        whole, parts = (in_parts(case, make, some, merged=True) for some in ([], cuts))
        one, other = pa.certify(statistics=whole), pa.certify(statistics=parts)
        assert one.identifiable == other.identifiable, (case.number, make)
        assert not one.identifiable or case.exact.rank == one.n_features
        if make is pa.TriangularFactor and one.verdict != "undecided":
            assert one.identifiable == (case.exact.rank == one.n_features)


@few_and_many
def test_statistics_in_parts_have_the_verdict_of_all(examples):
    hold(
        check_parts,
        examples,
        number=numbers_of_cases,
        cuts=st.lists(st.integers(1, 50), max_size=4),
    )
