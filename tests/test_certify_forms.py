"""Certificates and their checks for layers of every form."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import polyattn as pa
from certified_forms import (
    CASES,
    FORMS,
    as_fractions,
    cases,
    layout_of,
    rational_rows,
    some_data,
)
from polyattn import domains
from polyattn.certify.check import forms as checked_forms
from polyattn.certify.check import objections
from polyattn.certify.check.domains import CheckedReal
from polyattn.certify.check.features import reduce
from polyattn.certify.check.forms import FormFeatures
from polyattn.certify.check.verify import _dimension
from polyattn.certify.domains.independence import independent_on_real
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.exact import integers
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.rank import exact_rank, null_vector
from polyattn.certify.verified.rounding import feature_depth, gamma, longest
from polyattn.certify.verified.sizes import row_pieces
from polyattn.errors import InvalidInput
from polyattn.form import Form, Layout
from polyattn.sequences import as_batch
from polyattn.stats.rows import Rows
from rational_arithmetic import rational_rank

PRIME = 4194287


def residue(value):
    return value.numerator * pow(value.denominator, -1, PRIME) % PRIME


# Exact arithmetic ---------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("kind", ["integers", "floats"])
def test_features_are_those_of_the_reference(name, has_context, kind):
    form, rng = FORMS[name], np.random.default_rng(1)
    draw = (lambda size: rng.integers(-5, 6, size)) if kind == "integers" else rng.standard_normal
    X = [draw((length, 3)) for length in (3, 1)]
    context = [draw((len(tokens), 3)) for tokens in X] if has_context else None
    layout = layout_of(form, has_context)
    batches = [
        None if each is None else as_batch(each, keep_integers=True) for each in (X, context)
    ]
    rows = FeatureRows(batches[0], np.arange(layout.n_features), layout, batches[1])
    expected = rational_rows(form, X, context)
    # A row of means is taken times the number of tokens that it attends to.
    found = integers.integer_rows(rows, np.arange(rows.n_rows), np.arange(rows.n_columns))
    units = [Fraction(2) ** e for e in rows.lowest.tolist()]
    values = [[int(z) * unit for z, unit in zip(row, units, strict=True)] for row in found]
    for row, true in zip(values, expected, strict=True):
        factors = {a / b for a, b in zip(row, true, strict=True) if b}
        assert len(factors) <= 1
        assert form.mean or factors <= {1}
        assert [bool(a) for a in row] == [bool(b) for b in true]
    assert max(abs(int(z)) for row in found for z in row).bit_length() <= rows.bits
    for block_rows in (1, 1000):
        blocks = [block.features() for block in rows.summaries(PRIME, block_rows)]
        residues = [[residue(value) for value in row] for row in values]
        np.testing.assert_array_equal(np.concatenate(blocks) % PRIME, residues)
    exact = exact_rank(rows)
    assert exact.rank == rational_rank(expected)
    vector = null_vector(rows, exact)
    assert vector is None or not any(
        sum(a * b for a, b in zip(vector, row, strict=True)) for row in expected
    )


@pytest.mark.parametrize("positions", [1, 2, 512])
def test_the_checker_makes_the_same_features(positions, monkeypatch):
    """However many positions it looks at together."""
    monkeypatch.setattr(checked_forms, "POSITIONS", positions)
    rng = np.random.default_rng(2)
    for name, has_context in CASES:
        form, layout = FORMS[name], layout_of(FORMS[name], has_context)
        X, context = some_data(has_context, rng, 4)
        seen = FormFeatures(form, 3, layout.n_context_dims)
        assert seen.n_features == layout.n_features
        batches = [None if each is None else as_batch(each) for each in (X, context)]
        products = [
            (sums[:, :, None] * queries[:, None]).reshape(len(sums), -1)[:, seen.kept]
            for sums, queries in seen.summaries(*batches, None, 1)
        ]
        exact = rational_rows(form, X, context)
        expected = np.array(exact, dtype=float) / 8
        np.testing.assert_allclose(np.concatenate(products), expected, rtol=1e-11, atol=1e-13)
        modulo = [
            reduce((sums[:, :, None] * queries[:, None]).reshape(len(sums), -1), PRIME)[
                :, seen.kept
            ]
            for sums, queries in seen.summaries(*batches, PRIME, 0)
        ]
        residues = [[residue(value) for value in row] for row in exact]
        np.testing.assert_array_equal(np.concatenate(modulo) % PRIME, residues)


@cases
def test_rounding_of_features_stays_within_its_bound(name, has_context):
    form, rng = FORMS[name], np.random.default_rng(3)
    X, context = some_data(has_context, rng, 2, length=7)
    rows = Rows.build(X, None, form, context=context)
    space = FeatureSpace.whole(rows.layout)
    bound = gamma(feature_depth(rows.layout, longest(rows)))
    expected = np.array(rational_rows(form, X, context), dtype=object).T
    power = Fraction(8) ** (rows.token_exponent or 0)
    pieces = list(row_pieces(rows, space))
    phi = np.concatenate([piece.features(space) for piece in pieces], axis=1)
    sizes = np.concatenate([piece.magnitudes(space) for piece in pieces], axis=1)
    errors = np.abs(as_fractions(phi) * power - expected)
    assert np.all(errors <= as_fractions(sizes * bound) * power)


# Domains ------------------------------------------------------------------------------------------


@cases
def test_features_that_are_called_independent_are(name, has_context):
    """By trying, with code that shares nothing; lengths that do not suffice are noticed."""
    form, layout = FORMS[name], layout_of(FORMS[name], has_context)
    seen = FormFeatures(form, 3, layout.n_context_dims)
    for lengths in (None, 1, 2, (3, 4)):
        domain = domains.Real(lengths)
        dimension = _dimension(CheckedReal(*domain.length_range), seen)
        if dimension == 0:
            with pytest.raises(InvalidInput, match="nothing to determine"):
                domain.space(layout)
            continue
        assert domain.space(layout).dimension == dimension
        if independent_on_real(layout, domain.length_range):
            assert dimension == layout.n_features


@pytest.mark.parametrize("kind", [domains.Boolean, domains.OneHot])
def test_relations_on_a_domain_hold_for_other_sequences(kind):
    rng, domain = np.random.default_rng(4), kind()
    for name in ("others", "window", "coordinates", "bias and skip", "lags"):
        form = FORMS[name]
        if (name, kind) == ("coordinates", domains.OneHot):
            continue  # two coordinates of one token are never both one
        space = domain.space(Layout.of(form, 3))
        X = domain.draw(rng, 120, 3).reshape(30, 4, 3)
        psi = np.array(rational_rows(form, X), dtype=float)
        np.testing.assert_allclose(psi[:, space.columns] @ space.expansion.toarray().T, psi)


# Verdicts -----------------------------------------------------------------------------------------


def damaged(X, kind):
    """Data of which some features are zero, equal, or otherwise dependent."""
    X = X.copy()
    if kind == "zero query":
        X[:, -1, 1] = 0
    elif kind == "zero":
        X[:, :, 0] = 0
    elif kind == "twice":
        X[:, :, 2] = 2 * X[:, :, 0]
    elif kind == "sum":
        X[:, :, 2] = X[:, :, 0] + X[:, :, 1]
    elif kind == "few":
        X = X[:5]
    return X


KINDS = ["sound", "zero query", "zero", "twice", "sum", "few"]
NUMBERS = ["integers", "floats", "few bits"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_no_verdict_is_wrong(kind, numbers):
    """Every form with every kind of data, but not with all numbers: those are slow."""
    start = KINDS.index(kind) + 3 * NUMBERS.index(numbers)
    judge(CASES[start % 9 :: 9], kind, numbers)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_no_verdict_is_wrong_whatever_the_form(kind, numbers):
    judge(CASES, kind, numbers)


def judge(chosen, kind, numbers):
    """Verdicts against the exact rank; certificates against the checker."""
    rng = np.random.default_rng(5)
    draw = {
        "integers": lambda size: rng.integers(-3, 4, size),
        "floats": rng.standard_normal,
        "few bits": lambda size: np.round(8 * rng.standard_normal(size)) / 8,
    }[numbers]
    for name, has_context in chosen:
        form = FORMS[name]
        X, context = some_data(has_context, rng, 70, draw, length=4)
        X = damaged(X, kind)
        context = None if context is None else damaged(context, kind)
        certificate = pa.certify(X, form=form, context=context)
        layout = layout_of(form, has_context)
        rows = FeatureRows(
            as_batch(X, keep_integers=True), np.arange(layout.n_features), layout,
            None if context is None else as_batch(context, keep_integers=True),
        )  # fmt: skip
        full = exact_rank(rows).rank == certificate.dimension
        where = (name, has_context)
        # Sums of floats are rounded: dependent up to rounding, and no exact rank says so.
        if numbers != "floats" or kind != "sum":
            assert certificate.verdict == ("identifiable" if full else "not_identifiable"), where
        assert objections(certificate, X, context=context) == [], where


@pytest.mark.parametrize(
    "form",
    [
        Form(key=[0], value=[1]),
        Form(mode="causal", decay=0.75, key=[0], value=[1], skip=True),
        Form(mode="causal", include_query=False, window=3, lags=2, key=[0], value=[0]),
        Form(include_query=False, key=[1], intercept=True),
    ],
)
def test_coordinates_that_are_multiples_up_to_rounding_are_recognised(form):
    """A rounding of one coordinate moves the outputs, if not that of both by the same factor."""
    rng = np.random.default_rng(24)
    X = [rng.standard_normal((1 + i % 5, 2)) for i in range(100)]
    for tokens in X:
        tokens[:, 1] = 0.3 * tokens[:, 0]
    certificate = pa.certify(X, form=form)
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "triangular")
    assert objections(certificate, X) == []


def test_powers_of_decays_that_are_too_long_for_integers_are_left_to_floats(monkeypatch):
    X = np.random.default_rng(25).integers(-3, 4, (60, 40, 3))
    X[..., 2] = X[..., 0] + X[..., 1]
    certificate = pa.certify(X, form=FORMS["two decays"])
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "exact")
    monkeypatch.setattr(integers, "MULTIPLICATIONS", 1e5)
    other = pa.certify(X, form=FORMS["two decays"])
    assert (other.verdict, other.method) == ("not_identifiable", "triangular")
    assert other.rank == certificate.rank
    assert pa.verify(other, X)


def test_forged_certificates_of_forms_are_refused():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((120, 5, 3))
    X[:, -1, 2] = 0.0
    for form in (FORMS["others"], FORMS["decay"], FORMS["bias and skip"]):
        certificate = pa.certify(X, form=form)
        direction = certificate.direction
        forgeries = [
            {"rank": certificate.rank - 1},
            {"given_form": replace(form, mean=not form.mean, window=3)},
            {"lambda_max": 1.01 * certificate.lambda_max},
            {"dimension": certificate.dimension - 1},
            {"digest": "0" * 64},
        ]
        if certificate.structure is not None:
            structure = certificate.structure
            forgeries += [
                {"structure": None},
                {"structure": replace(structure, n_zero=structure.n_zero + 1)},
                {"structure": replace(structure, rest="undecided", n_multiples=1)},
                {"structure": replace(structure, queries=(0,))},
                {"given_direction": tuple(reversed(direction))},
                {"verdict": "identifiable", "given_direction": None, "structure": None},
            ]
        assert objections(certificate, X) == []
        for changed in forgeries:
            forged = replace(certificate, evidence=None, **{"given_direction": direction} | changed)
            assert objections(forged, X), (form, changed)


def test_a_context_is_part_of_the_data():
    rng = np.random.default_rng(7)
    X, Z = rng.standard_normal((2, 60, 4, 3))
    certificate = pa.certify(X, context=Z)
    assert pa.verify(certificate, X, context=Z)
    assert not pa.verify(certificate, X, context=Z[::-1])
    assert not pa.verify(certificate, X)
    assert not pa.verify(pa.certify(X), X, context=Z)
    assert certificate.digest != pa.certify(X).digest
    with pytest.raises(InvalidInput, match="attend to a context"):
        certificate.next_data()
    # What is refused is not advised.
    for few in (pa.certify(X[:5], context=Z[:5]), pa.certify(X[:5], domain=domains.Finite(X))):
        assert "witness() shows two such layers." in few.sentence


# What certificates offer --------------------------------------------------------------------------


@cases
def test_witnesses_and_bounds_of_every_form(name, has_context):
    form, rng = FORMS[name], np.random.default_rng(14)
    X, context = some_data(has_context, rng, 120)
    certificate = pa.certify(X, form=form, context=context)
    assert certificate.identifiable
    bounds = certificate.bound(X, 0.01, context=context)
    assert np.all(np.isfinite(bounds))
    assert np.all(bounds >= 0)
    few = pa.certify(X[:1, :2], form=form, context=None if context is None else context[:1, :2])
    witness = few.witness()
    assert witness.difference == pytest.approx(1.0, rel=1e-6)
    assert witness.training_disagreement < 1e-6
    assert (witness.context is None) == (context is None)


def test_a_bound_holds_for_a_pair_of_layers_of_a_form():
    rng = np.random.default_rng(15)
    form = FORMS["coordinates"]
    X, new = rng.standard_normal((80, 5, 3)), rng.standard_normal((30, 5, 3))
    certificate = pa.certify(X, form=form)
    features, others = (np.array(rational_rows(form, each), dtype=float) for each in (X, new))
    for direction in rng.standard_normal((20, 4)):
        risk = np.mean((features @ direction / 2) ** 2)
        apart = np.abs(others @ direction)
        assert np.all(apart <= certificate.bound(new, risk))


@pytest.mark.parametrize("name", ["others", "window", "coordinates"])
def test_next_data_complete_a_form(name):
    rng = np.random.default_rng(16)
    X = rng.standard_normal((3, 4, 3))
    advice = pa.certify(X, form=FORMS[name]).next_data()
    assert advice.complete
    together = [*X, *advice.sequences]
    assert pa.certify(together, form=FORMS[name]).identifiable


def test_a_function_of_tokens_is_taken_at_its_word(tmp_path):
    X = np.random.default_rng(17).standard_normal((200, 5, 3))
    certificate = pa.certify(X, form=Form(key=np.exp))
    assert certificate.identifiable
    assert "determine the coefficients" in certificate.sentence
    assert pa.verify(certificate, X)
    few = pa.certify(X[:5], form=Form(key=np.exp))
    assert few.verdict == "not_identifiable"
    assert "have other coefficients" in few.sentence
    with pytest.raises(InvalidInput, match="cannot be stored"):
        certificate.save(tmp_path / "own.json")


@cases
def test_certificates_of_forms_are_stored(name, has_context, tmp_path):
    form, rng = FORMS[name], np.random.default_rng(18)
    X, context = some_data(has_context, rng, 60)
    X[:, -1, 0] = 0.0
    certificate = pa.certify(X, form=form, context=context)
    certificate.save(tmp_path / "kept.json")
    loaded = pa.Certificate.load(tmp_path / "kept.json")
    assert (loaded.form, loaded.sentence) == (form, certificate.sentence)
    assert loaded.structure == certificate.structure
    assert pa.verify(loaded, X, context=context)
