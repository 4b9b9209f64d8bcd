"""Integers and rationals of any size: verdicts against ranks by python-flint, and forgeries.

Offsets up to 2^62, scales from 2^-40 to 2^40 by coordinate or by sequence, int64, uint64 and
float64, every mode and domain; deficient, nearly deficient, or neither.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm

import flint
import numpy as np
import pytest

import polyattn as pa
from polyattn import domains
from polyattn.certify.check import objections
from polyattn.certify.check.measure import rounded_coordinates as rounded_for_the_checker
from polyattn.certify.exact.numbers import rounded_coordinates
from polyattn.form.layout import Layout
from polyattn.sequences import as_batch
from rational_arithmetic import rational_features

MODES = ("last", "causal", "full")


@dataclass(frozen=True)
class Case:
    """``meant``: the sequences in fractions, before floats were rounded."""

    X: list
    meant: list
    mode: str
    domain: domains.Domain
    bias: bool


def random_case(seed: int, rational: bool = False) -> Case:
    rng = np.random.default_rng([seed, rational])
    n_dims, mode = int(rng.integers(1, 4)), MODES[rng.integers(3)]
    bias = bool(rng.random() < 0.25) and n_dims < 3
    lengths = (1, int(rng.integers(1, 5)))
    domain = domains.Real(lengths) if rng.random() < 0.2 else domains.Real()
    p = domain.space(Layout.plain(n_dims, bias=bias)).dimension
    n_sequences = int(rng.integers(max(1, p - 2), 2 * p + 6))
    sizes = [int(rng.integers(1, lengths[1] + 1)) for _ in range(n_sequences)]
    meant = _deficient(rng, [_integers(rng, n, n_dims) for n in sizes])
    if rational:
        denominators = rng.choice([1, 3, 5, 7, 10], n_dims).tolist()
        meant = [x / np.array(denominators, dtype=object) for x in map(_fractions, meant)]
    X = [x.astype(float) for x in meant] if rational else _stored(rng, meant)
    if rng.random() < 0.25:
        domain = domains.Finite([X[i] for i in rng.integers(len(X), size=2)] + X[:1])
        if rng.random() < 0.7:
            fresh = rng.integers(0, 7, (2, 2, n_dims)).astype(X[0].dtype)
            domain = domains.Finite([*domain.sequences, *fresh])
    return Case(X, [*map(_fractions, meant if rational else X)], mode, domain, bias)


def _integers(rng, n_tokens, n_dims):
    """Python integers: small ones, behind offsets or in front of others."""
    width = int(rng.choice([1, 2, 6, 20]))
    return rng.integers(-(2**width), 2**width + 1, (n_tokens, n_dims)).astype(object)


def _deficient(rng, X):
    """The last coordinate follows from the first, nearly follows, or is left; then offsets."""
    n_dims, trick = X[0].shape[1], rng.integers(4)
    offsets = [int(o) for o in rng.choice([0, 0, 2**20, 2**30, 2**50, 2**52, 2**60], n_dims)]
    X = [x + np.array(offsets, dtype=object) for x in X]
    if n_dims > 1 and trick in (0, 1):
        for x in X:
            x[:, -1] = x[:, 0] + (x[:, -1] - offsets[-1] if trick else 0)
    if trick == 2:
        return [X[i % max(1, len(X) // 3)] for i in range(len(X))]
    return X


def _stored(rng, X):
    """As int64, as uint64, or as floats on one grid for each coordinate or each sequence."""
    n_dims = X[0].shape[1]
    kind = rng.choice(["int64", "uint64", "coordinate", "sequence"])
    if kind == "int64":
        return [x.astype(np.int64) for x in X]
    if kind == "uint64":
        return [np.abs(x).astype(np.uint64) for x in X]
    floats = [x.astype(float) for x in X]
    # Floats that use all of 53 bits, at many scales, cannot be told from rounded ones.
    if kind == "coordinate" or max(np.abs(x).max() for x in X) >= 2**52:
        scales = rng.integers(-40, 41, n_dims)
        return [np.ldexp(x, scales) for x in floats]
    scales = rng.integers(-9, 10, len(X))
    return [np.ldexp(x, int(scale)) for x, scale in zip(floats, scales, strict=True)]


def _fractions(x):
    return np.array([[Fraction(int(e) if isinstance(e, np.integer) else e) for e in row]
                     for row in np.asarray(x).tolist()], dtype=object)  # fmt: skip


def flint_rank(sequences, case: Case, columns=None) -> int:
    rows = [row for x in sequences for row in _features(x, case)]
    chosen = rows if columns is None else [[row[c] for c in columns] for row in rows]
    common = [lcm(*(entry.denominator for entry in row)) for row in chosen]
    integers = [[int(e * m) for e in row] for row, m in zip(chosen, common, strict=True)]
    return flint.fmpz_mat(integers).rank()


def _features(x, case):
    class Entry:
        """What ``rational_features`` asks of the entries of an array."""

        def __init__(self, value):
            self.value = value

        def item(self):
            return self.value

    wrapped = np.empty(x.shape, dtype=object)
    for place, value in np.ndenumerate(x):
        wrapped[place] = Entry(value)
    return rational_features(wrapped, case.mode, case.bias)


def determined(case: Case, sequences) -> bool:
    """Whether the sequences determine every layer on the domain, by exact ranks."""
    if isinstance(case.domain, domains.Finite):
        everywhere = [_fractions(x) for x in case.domain.sequences]
        return flint_rank([*sequences, *everywhere], case) == flint_rank(sequences, case)
    space = case.domain.space(Layout.plain(sequences[0].shape[1], bias=case.bias))
    return flint_rank(sequences, case, space.columns.tolist()) == space.dimension


def certified(case: Case, method="auto"):
    return pa.certify(case.X, case.mode, case.domain, bias=case.bias, method=method)


def forged(certificate):
    """The opposite verdict, with everything else as plausible as one can make it."""
    if certificate.verdict == "identifiable":
        evidence = certificate.evidence
        values, vectors = evidence.triangle.singular
        direction = evidence.space.embed(evidence.triangle.scale * vectors[-1])
        method = "triangular" if certificate.dimension is not None else "span"
        rank = int(np.count_nonzero(values > max(evidence.tolerance, 2.0**-48 * values[0])))
        return [
            replace(
                certificate, verdict="not_identifiable", verdict_on_real_inputs="not_identifiable",
                method=method, prime=None, rank=rank, lambda_min=0.0, given_direction=direction,
                rounding=factor * evidence.tolerance,
            )
            for factor in (0.5, 4.0)
        ]  # fmt: skip
    real = certificate.dimension in (None, certificate.n_features)
    return [
        replace(
            certificate, verdict="identifiable", method=method, prime=prime, given_direction=None,
            verdict_on_real_inputs="identifiable" if real else "not_identifiable",
            rank=certificate.dimension or certificate.n_features, lambda_min=None, note="",
            rounding=0.0 if prime else 1e-12,
        )
        for method, prime in (("exact", 4194301), ("gram", None), ("triangular", None))
    ]  # fmt: skip


def judge(seeds, rational=False, forge_each=1):
    """No verdict is wrong, every verdict is confirmed, and no forgery is."""
    verdicts = {}
    for seed in seeds:
        case = random_case(seed, rational)
        certificate = certified(case)
        verdicts[certificate.verdict] = verdicts.get(certificate.verdict, 0) + 1
        truth = determined(case, [*map(_fractions, case.X)])
        assert not objections(certificate, case.X), seed
        if certificate.verdict == "undecided":
            continue
        if rational and truth and certificate.verdict == "not_identifiable":
            # Rounded floats: that holds for the numbers before they were rounded.
            assert certificate.method in ("triangular", "span"), seed
            assert not determined(case, case.meant), seed
            continue
        assert (certificate.verdict == "identifiable") == truth, seed
        if seed % forge_each == 0:
            for claim in forged(certificate):
                assert objections(claim, case.X), seed
    return verdicts


def test_verdicts_on_integers_of_any_size():
    verdicts = judge(range(150), forge_each=3)
    assert verdicts.get("undecided", 0) == 0
    assert min(verdicts.values()) > 15


def test_verdicts_on_rationals_in_floating_point():
    verdicts = judge(range(60), rational=True, forge_each=3)
    assert min(verdicts.get(v, 0) for v in ("identifiable", "not_identifiable")) > 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_verdicts_on_thousands_of_integers(part):
    verdicts = judge(range(1000 * part + 1000, 1000 * part + 2000), forge_each=4)
    # A finite domain that mixes scales may look rounded where the data do not.
    assert verdicts.get("undecided", 0) <= 5


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_verdicts_on_thousands_of_rationals(part):
    judge(range(1000 * part + 1000, 1000 * part + 2000), rational=True, forge_each=4)


# ---------------------------------------------------------------- the defect itself


@pytest.mark.parametrize("offset", [2**15, 2**20, 2**40, 2**50, 2**53, 2**60, -(2**63)])
@pytest.mark.parametrize("dtype", [np.int64, float])
def test_small_differences_behind_a_large_offset(offset, dtype):
    X = np.random.default_rng(0).integers(0, 4, size=(60, 4, 2))
    if dtype is float and abs(offset) > 2**52:
        X *= 2**11
    X = (offset + X).astype(dtype)
    certificate = pa.certify(X)
    assert certificate.verdict == "identifiable"
    assert pa.verify(certificate, X)
    assert pa.certify(X[:, :, [0, 0]]).verdict == "not_identifiable"
    for claim in forged(certificate):
        assert not pa.verify(claim, X)


def test_what_floating_point_cannot_see_is_undecided_by_it():
    X = 2**50 + np.random.default_rng(0).integers(0, 4, size=(60, 4, 2))
    assert pa.certify(X, method="float").verdict == "undecided"
    assert pa.certify(X[:, :, [0, 0]], method="float").verdict == "not_identifiable"


def test_an_eigenvalue_below_rounding_is_not_stated_as_zero():
    X = 2**50 + np.random.default_rng(0).integers(0, 4, size=(60, 4, 2))
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.lambda_min) == ("identifiable", None)
    assert "lambda_min is positive, but below what float64 resolves" in certificate.sentence


def test_up_to_rounding_is_said():
    flat = np.random.default_rng(0).standard_normal((100, 6, 2)) @ [[1, 0, 0.3], [0, 1, 0.7]]
    assert "up to the rounding of the data" in pa.certify(flat).sentence
    copied = flat[:, :, [0, 1, 1]]
    assert pa.certify(copied, method="exact").sentence.startswith("Not identifiable: ")


# ---------------------------------------------------------------- which numbers look rounded


RNG = np.random.default_rng(0)
COLUMNS = {
    "gaussian": (RNG.standard_normal(400), True),
    "gaussian, scaled": (np.ldexp(RNG.standard_normal(400), 70), True),
    "gaussian in float32": (RNG.standard_normal(400).astype(np.float32), True),
    "thirds": (RNG.integers(-9, 10, 400) / 3, True),
    "integers": (RNG.integers(-9, 10, 400).astype(float), False),
    "large integers": (2.0**52 + RNG.integers(0, 9, 400), False),
    "on both sides of a power of two": (2.0**60 + 2.0**7 * RNG.integers(-9, 10, 400), False),
    "rounded, on both sides of one": (2.0**60 + RNG.integers(-(2**30), 2**30, 400), False),
    "fractions of 53 bits": (RNG.random(400), False),
    "few bits of any size": (
        np.ldexp(RNG.integers(1, 9, 400), RNG.integers(-300, 300, 400)), False,
    ),
    "gaussian in float32, as float64": (
        RNG.standard_normal(400).astype(np.float32).astype(float), False,
    ),
    "zeros": (np.zeros(400), False),
    "subnormal": (np.ldexp(RNG.integers(1, 9, 400), -1074), False),
    "int64": (RNG.integers(-(2**62), 2**62, 400), False),
}  # fmt: skip


@pytest.mark.parametrize("name", COLUMNS)
def test_which_numbers_look_rounded(name):
    values, rounded = COLUMNS[name]
    for column in (values, -values, values[::-1]):
        batch = as_batch(column.reshape(100, 4, 1), keep_integers=True)
        assert rounded_coordinates(batch).tolist() == [rounded]
        assert rounded_for_the_checker(batch).tolist() == [rounded]


def test_coordinates_are_judged_one_by_one():
    """The exact coordinates may not move: what only they explain is no rounding."""
    rng = np.random.default_rng(1)
    X = np.stack([rng.standard_normal((80, 4)), 2.0**50 + rng.integers(0, 4, (80, 4))], axis=2)
    batch = as_batch(X)
    assert rounded_coordinates(batch).tolist() == [True, False]
    for method in ("auto", "float"):
        certificate = pa.certify(X, method=method)
        assert certificate.verdict != "not_identifiable"
    assert pa.certify(X, method="exact").verdict == "identifiable"
