"""Certificates, their checks and audits for layers of every form."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

import polyattn as pa
from polyattn import domains
from polyattn.certify.check import objections
from polyattn.certify.check.domains import CheckedReal
from polyattn.certify.check.forms import FormFeatures
from polyattn.certify.check.verify import _dimension
from polyattn.certify.domains.independence import independent_on_real
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.exact import integers
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.rank import exact_rank, null_vector
from polyattn.certify.exact.structure import multiples, occurring
from polyattn.certify.verified.rounding import feature_depth, gamma, longest
from polyattn.certify.verified.sizes import row_pieces
from polyattn.errors import InvalidInput
from polyattn.form import Form, Layout
from polyattn.reference import forms as reference
from polyattn.sequences import as_batch
from polyattn.stats.rows import Rows

PRIME = 4194287
MATRIX = np.array([[0.5, -1.25], [1.0, 0.1], [-0.75, 3.0]])

FORMS = {
    "plain": Form(),
    "others": Form(include_query=False),
    "others, full": Form(mode="full", include_query=False, mean=True, skip=True),
    "window": Form(mode="causal", window=2),
    "decay": Form(mode="causal", decay=0.9),
    "two decays": Form(decay=[0.5, 0.3]),
    "lags": Form(lags=2),
    "lags of others": Form(mode="causal", lags=2, include_query=False, intercept=True),
    "coordinates": Form(query=[0, 1], key=[0, 1], value=[2]),
    "matrix": Form(mode="causal", key=MATRIX, value=[0, 1], decay=0.7, window=3, bias=True),
    "matrix query": Form(query=MATRIX, mean=True, intercept=True, skip=True),
    "bias and skip": Form(mean=True, skip=True, bias=True),
}
WITH_CONTEXT = ["plain", "window", "coordinates", "matrix", "matrix query"]

CASES = [(name, False) for name in FORMS] + [(name, True) for name in WITH_CONTEXT]
cases = pytest.mark.parametrize(("name", "has_context"), CASES)


def some_data(has_context, rng, n_sequences=120, draw=None, length=5):
    """Sequences of three coordinates, and a context of three, or None."""
    draw = draw or rng.standard_normal
    X = draw((n_sequences, length, 3))
    return X, draw((n_sequences, length, 3)) if has_context else None


def layout_of(form, has_context):
    return Layout.of(form, 3, 3 if has_context else None)


def rational_rows(form, X, context=None):
    """Every row of psi in fractions, by the reference."""
    given = {each.name: getattr(form, each.name) for each in fields(form)}
    for name in ("query", "key", "value"):
        if isinstance(given[name], np.ndarray):
            given[name] = as_fractions(given[name])
    if form.decay is not None:
        several = isinstance(form.decay, tuple)
        given["decay"] = [*map(Fraction, form.decay)] if several else Fraction(form.decay)
    rows = []
    for i, tokens in enumerate(X):
        other = None if context is None else as_fractions(context[i])
        for S, u in reference.summaries(as_fractions(tokens), given, other):
            # Means of constants come as floats.
            sums = [Fraction(x).limit_denominator(99) if isinstance(x, float) else x for x in S]
            rows.append(list(reference.features(np.array(sums), u, given)))
    return rows


def as_fractions(numbers):
    array = np.empty(np.shape(numbers), dtype=object)
    for place, number in np.ndenumerate(np.asarray(numbers)):
        array[place] = Fraction(number.item())
    return array


def rational_rank(rows):
    left, rank = [list(row) for row in rows], 0
    for column in range(len(rows[0])):
        pivot = next((row for row in left if row[column]), None)
        if pivot is None:
            continue
        left = [row for row in left if row is not pivot]
        rank += 1
        for row in left:
            if row[column]:
                factor = row[column] / pivot[column]
                row[:] = [a - factor * b for a, b in zip(row, pivot, strict=True)]
    return rank


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


def test_the_checker_makes_the_same_features():
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
        expected = np.array(rational_rows(form, X, context), dtype=float) / 8
        np.testing.assert_allclose(np.concatenate(products), expected, rtol=1e-11, atol=1e-13)


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


# Structure ----------------------------------------------------------------------------------------


def prompts(rng, n_prompts=400, n_tokens=6, n_dims=3):
    """In-context regression: the last token asks, and its label is 0."""
    X = rng.standard_normal((n_prompts, n_tokens, n_dims + 1))
    tasks = rng.standard_normal((n_prompts, n_dims))
    X[..., -1] = np.einsum("pnd,pd->pn", X[..., :-1], tasks)
    Y = X[:, -1, -1:].copy()
    X[:, -1, -1] = 0.0
    return X, Y


def test_prompts_are_decided_and_say_what_never_occurs():
    X, _ = prompts(np.random.default_rng(8))
    certificate = pa.certify(X)
    structure = certificate.structure
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "structure")
    assert (structure.n_zero, structure.rest, structure.queries) == (10, "identifiable", (3,))
    assert certificate.rank == 30
    assert "coordinate 3 of the query is always zero" in certificate.sentence
    assert "all others are determined" in certificate.sentence
    # One entry shows it.
    assert sorted(set(certificate.direction)) == [0, 1]
    assert sum(certificate.direction) == 1
    assert pa.verify(certificate, X)
    assert certificate.witness().training_disagreement == 0.0
    form = Form(include_query=False, mean=True, query=slice(0, 3), value=[3])
    assert pa.certify(X, form=form).identifiable


def test_prompts_are_determined_on_a_domain_of_prompts():
    rng = np.random.default_rng(9)
    X, _ = prompts(rng)
    others, _ = prompts(rng, 20)
    certificate = pa.certify(X, domain=domains.Finite(others))
    assert certificate.identifiable
    assert certificate.verdict_on_real_inputs == "not_identifiable"
    assert pa.verify(certificate, X)
    others[3, -1, -1] = 1.0
    certificate = pa.certify(X, domain=domains.Finite(others))
    assert certificate.verdict == "not_identifiable"
    assert pa.verify(certificate, X)
    drawn = domains.Sampled(lambda rng: prompts(rng, 1)[0][0], 50)
    certificate = pa.certify(X, domain=drawn)
    assert certificate.verdict == "undecided"
    assert "50 samples are determined" in certificate.note


def test_multiples_of_features_are_found_exactly():
    rng = np.random.default_rng(10)
    X = rng.standard_normal((300, 4, 3))
    X[..., 2] = -4.0 * X[..., 1]
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "structure")
    assert (certificate.structure.n_multiples, certificate.structure.rest) == (12, "identifiable")
    assert "12 features are always a multiple of another" in certificate.sentence
    assert len([entry for entry in certificate.direction if entry]) == 2
    assert pa.verify(certificate, X)
    # Nearly a multiple is none.
    X[0, 0, 2] = np.nextafter(X[0, 0, 2], 9.0)
    layout = Layout.plain(3)
    rows = FeatureRows(as_batch(X), np.arange(18), layout)
    assert len(multiples(rows)) < 12
    assert occurring(rows)[0].all()


def test_ordinary_data_are_read_no_further_than_needed(monkeypatch):
    X = np.random.default_rng(11).standard_normal((5000, 3, 3))
    rows = FeatureRows(as_batch(X), np.arange(18), Layout.plain(3))
    read = []
    true = FeatureRows._summary
    monkeypatch.setattr(
        FeatureRows, "_summary", lambda self, *a: read.append(len(a[2])) or true(self, *a)
    )
    assert occurring(rows)[0].all()
    assert sum(read) <= 256


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_sums_of_prompts_show_what_never_occurs(kind):
    X, _ = prompts(np.random.default_rng(12))
    certificate = pa.certify(statistics=kind(4).update(X))
    assert certificate.verdict == "not_identifiable"
    assert (certificate.structure.n_zero, certificate.structure.rest) == (10, "identifiable")


def test_sums_of_a_form_are_certified_where_they_know_their_rounding():
    X = np.random.default_rng(13).standard_normal((200, 5, 3))
    for form in (Form(mode="causal", decay=0.9), Form(include_query=False, skip=True)):
        assert pa.certify(statistics=pa.Moments(3, form=form).update(X)).identifiable
    other = pa.certify(statistics=pa.Moments(3, form=Form(key=[0], value=[1])).update(X))
    assert other.verdict == "undecided"
    assert "certify(X)" in other.sentence


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


# Audits -------------------------------------------------------------------------------------------


@cases
def test_the_optimum_of_every_form_is_called_optimal(name, has_context):
    form, rng = FORMS[name], np.random.default_rng(19)
    X, context = some_data(has_context, rng, 120)
    layout = layout_of(form, has_context)
    n_rows = len(X) if form.mode == "last" else X.shape[0] * X.shape[1]
    Y = rng.standard_normal((n_rows, 2)).reshape(*X.shape[: 1 + (form.mode != "last")], 2)
    fitted = pa.fit(X, Y, form=form, context=context)
    found = pa.audit(fitted, X, Y, context=context)
    assert found.outcome.name == "optimal", found.sentence
    assert found.distance < 1e-8
    worse = replace(fitted, coef=layout.as_coef(layout.as_theta(fitted.coef) + 0.1))
    assert pa.audit(worse, X, Y, context=context).outcome.name == "improvable"


def test_what_data_cannot_show_is_not_compared():
    X, Y = prompts(np.random.default_rng(20))
    fitted = pa.fit(X, Y)
    coef = fitted.coef.copy()
    coef[:, :, -1] += 7.0
    found = pa.audit(replace(fitted, coef=coef), X, Y)
    assert found.outcome.name == "optimal"
    assert found.distance < 1e-10
    assert "all that they show" in found.sentence
    X = np.repeat(X[..., :1], 2, axis=2)  # two equal coordinates
    fitted = pa.fit(X, Y)
    coef = fitted.coef.copy()
    coef[:, 0, 0], coef[:, 0, 1] = coef[:, 0, 0] + 3.0, coef[:, 0, 1] - 3.0
    assert pa.audit(replace(fitted, coef=coef), X, Y).distance < 1e-10


def test_a_function_is_compared_with_the_form_that_is_asked_for():
    rng = np.random.default_rng(21)
    X, Z = rng.standard_normal((2, 100, 4, 3))
    Y = np.einsum("nsa,nsb,nb->na", Z, Z, X[:, -1])
    found = pa.audit(lambda x, z: np.einsum("nsa,nsb,nb->na", z, z, x[:, -1]), X, Y, context=Z)
    assert found.outcome.name == "optimal"
    zero = pa.audit(lambda _, z: 0.0 * z[:, 0], X, Y, context=Z)
    assert zero.outcome.name == "improvable"
