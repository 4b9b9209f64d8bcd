"""Certificates from sums of every form: they decide as data do, and never where doubt is left."""

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest

import polyattn as pa
from certified_forms import rational_rows
from form_cases import CHOICES
from polyattn.certify.domains.spaces import FeatureSpace
from polyattn.certify.verified.gram import gram_of, prove_definite
from polyattn.certify.verified.rounding import feature_depth, longest
from polyattn.errors import FileFormatError
from polyattn.features.unsigned import absolute_layout
from polyattn.form import Form, Layout, maps
from polyattn.reference import forms as reference
from statistics_cases import KINDS, sums_of

both_kinds = pytest.mark.parametrize("kind", KINDS)

# Sums cannot show that features are always multiples of others.
MULTIPLES = {"skip-bias", "intercept-bias"}

WEIGHTS = np.array([[0.1, 0.3], [0.1, 0.7], [-0.1, 0.2]])


def dyadic(rng, *shape):
    """Numbers of 48 bits: sums of two are exact, and products are rounded."""
    return rng.integers(-(2**48), 2**48, shape) * 2.0**-48


# They decide --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(CHOICES.keys() - MULTIPLES - {"normalised"}))
def test_sums_of_every_form_are_decided(name):
    build, n_context_dims = CHOICES[name]
    form, rng = build(3), np.random.default_rng(1)
    size = Layout.of(form, 3, n_context_dims).n_features
    n_sequences = 30 + (2 * size if form.mode == "last" else size // 2)
    X = rng.standard_normal((n_sequences, 6, 3))
    length = 6 if form.mode == "causal" else 9
    Z = None if n_context_dims is None else rng.standard_normal((n_sequences, length, 2))
    Z = Z if Z is None else Z[..., :n_context_dims]
    new, bounds = None if Z is None else Z[:5], []
    for kind in KINDS:
        certificate = pa.certify(statistics=sums_of(kind, form, X, Z))
        assert certificate.identifiable, certificate.sentence
        bounds.append(certificate.bound(X[:5], 0.1, context=new))
        worst = certificate.bound(X[:5], 0.1, context=new, kind="worst_case")
        assert np.all(bounds[-1] <= worst)
        assert np.all(np.isfinite(worst))
    # Of a triangular factor less is certain.
    np.testing.assert_allclose(*bounds, rtol=0.1)


def test_estimators_of_a_form_know_that_the_layer_is_determined():
    rng = np.random.default_rng(2)
    X, y = rng.standard_normal((60, 5, 3)), rng.standard_normal(60)
    form = Form(include_query=False, mean=True, query=[0, 1], key=[0, 1], value=[2])
    for solver in ("primal", "direct", "dual"):
        model = pa.LinearAttentionRegressor(form=form, solver=solver).fit(X, y)
        assert model.certificate_.identifiable
        _, bound = model.predict(X, return_bound=True)
        assert np.all(np.isfinite(bound))


@both_kinds
def test_sums_of_a_function_of_your_own_are_certified_and_compared(kind):
    X = np.random.default_rng(3).standard_normal((200, 5, 3))
    form = Form(key=np.exp, value=[0])
    one, other = sums_of(kind, form, X), sums_of(kind, form, X)
    assert pa.certify(statistics=one).identifiable
    assert one == other
    assert one != sums_of(kind, Form(key=np.sin, value=[0]), X)


class Doubled:
    """A function that is equal to itself alone."""

    def __call__(self, tokens):
        return 2.0 * tokens


@both_kinds
def test_a_copy_has_the_same_function(kind):
    sums = kind(2, form=Form(key=Doubled())).update(np.ones((3, 2, 2)))
    assert (sums.copy() + sums).n_rows == 6
    assert sums != kind(2, form=Form(key=Doubled())).update(np.ones((3, 2, 2)))


# Never where doubt is left ------------------------------------------------------------------------

DEPENDENT = {
    "overlap": Form(key=[0, 1, 2], value=[0, 3]),
    "mean": Form(key=[0, 1, 2], value=[3], mean=True),
    "decays": Form(mode="causal", key=[0, 1, 2], value=[3], decay=[0.5, 0.9]),
    "window": Form(mode="causal", key=[0, 1, 2], value=[3], window=3),
    "lags": Form(mode="causal", key=[0, 1, 2], value=[3], lags=2),
    "full": Form(mode="full", key=[0, 1, 2], value=[3]),
    "others": Form(mode="full", key=[0, 1, 2], value=[3], include_query=False, mean=True),
    "linear terms": Form(key=[0, 1, 2], value=[3], skip=True, intercept=True),
    "function": Form(key=maps.polynomial(2), value=[3]),
    "matrix": Form(key=np.arange(12.0).reshape(4, 3) ** 0.5, value=[3], bias=True),
    "diagonal": Form(mode="causal", decay=0.7),
}


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("large", [1.0, 2.0**20])
def test_exactly_dependent_tokens_are_never_called_identifiable(name, large):
    X = dyadic(np.random.default_rng(4), 120, 5, 4)
    X[..., 2] = X[..., 0] + X[..., 1]
    X[:, 0] *= large  # in windows and decays it leaves
    form = DEPENDENT[name]
    assert pa.certify(X[:40], form=form, method="exact").verdict == "not_identifiable"
    for kind in KINDS:
        assert pa.certify(statistics=sums_of(kind, form, X)).verdict == "undecided"


CANCELLING = {
    "columns": Form(key=[0], value=[1, 2], include_query=False),
    "mean": Form(key=[0], value=[1, 2], include_query=False, mean=True),
    "window": Form(key=[0], value=[1, 2], include_query=False, window=4),
    "pooled": Form(key=[0], value=[1], lags=1, query=[2]),
    "matrix": Form(key=np.array([[0.3], [0.0], [0.0]]), value=[1], include_query=False),
    "function": Form(key=maps.polynomial(1), value=[1], include_query=False, query=[0]),
}


@pytest.mark.parametrize("name", CANCELLING)
def test_sums_that_cancel_exactly_are_nothing_but_rounding(name):
    """(a, b), (c, b), (-a - c, b): products add up to zero, and computed they are noise.

    Noise is well conditioned, so a bound relative to what the sums came to would prove anything.
    """
    form, X = CANCELLING[name], dyadic(np.random.default_rng(5), 150, 4, 3)
    X[:, 1, 1:], X[:, 2, 1:] = X[:, 0, 1:], X[:, 0, 1:]
    X[:, 2, 0] = -(X[:, 0, 0] + X[:, 1, 0])
    sums = sums_of(pa.Moments, form, X)
    gram = gram_of(sums, FeatureSpace.whole(sums.layout))
    if name in ("columns", "mean", "matrix"):  # elsewhere some sums do not cancel
        assert prove_definite(replace(gram, magnitudes=gram.powers)) is not None
    for kind in KINDS:
        assert pa.certify(statistics=sums_of(kind, form, X)).verdict == "undecided"


@pytest.mark.parametrize("form", [Form(key=WEIGHTS), Form(query=WEIGHTS), Form(value=WEIGHTS)])
def test_products_with_a_matrix_that_cancel_are_nothing_but_rounding(form):
    X = dyadic(np.random.default_rng(6), 150, 4, 3)
    X[..., 2] = X[..., 0] + X[..., 1]
    for kind in KINDS:
        assert pa.certify(statistics=sums_of(kind, form, X)).verdict == "undecided"


ERRING = {
    "coordinates": Form(key=[0], value=[1]),
    "decays": Form(mode="causal", key=[0], value=[1], query=[0, 2], decay=[0.3, 0.9]),
    "window": Form(mode="causal", key=[0], value=[1], window=2, decay=0.7, include_query=False),
    "full": Form(mode="full", key=[0], value=[1], query=WEIGHTS),
    "others": Form(mode="full", key=[0], value=[1], include_query=False, skip=True),
    "matrix": Form(key=WEIGHTS, value=[0], query=[1]),
    "diagonal": Form(mode="causal", decay=0.7, query=[0], key=[1, 2], value=[1, 2]),
}


@pytest.mark.parametrize("name", ERRING)
@pytest.mark.parametrize("cancelling", [False, True])
def test_the_error_of_sums_is_within_its_bound(name, cancelling):
    """Against the Gram matrix in rational arithmetic; cancelling sums err by much of themselves."""
    form, X = ERRING[name], dyadic(np.random.default_rng(7), 9, 4, 3)
    if cancelling:
        X[:, 1] = X[:, 0] * [1.0, -1.0, 1.0]
        X[:, 3] = X[:, 2] * [-1.0, 1.0 + 2.0**-30, 1.0]
    sums = sums_of(pa.Moments, form, X)
    gram = gram_of(sums, FeatureSpace.whole(sums.layout))
    psi = np.array(rational_rows(form, X), dtype=object)
    scale = [Fraction(each) for each in gram.scale]
    true = psi.T @ psi
    computed = gram.matrix.astype(object)
    apart = [
        [
            float((Fraction(computed[i, j]) - true[i, j]) * scale[i] * scale[j])
            for j in range(len(true))
        ]
        for i in range(len(true))
    ]
    assert np.linalg.norm(apart, 2) <= gram.error(gram.scale)


@both_kinds
@pytest.mark.parametrize("name", sorted(ERRING.keys() - {"diagonal", "others"}))
def test_magnitudes_are_sums_of_absolute_values(kind, name):
    """Weighted, and merged from shards in units of their own; constants have such units too."""
    form, rng = ERRING[name], np.random.default_rng(15)
    X = rng.standard_normal((9, 4, 3)) * 2.0 ** np.array([60, 61, 62] * 3)[:, None, None]
    weights = rng.uniform(0.5, 2.0, 9)
    sums = sums_of(kind, form, X, weights=weights)
    assert sums.token_exponent > 60
    plain = {each.name: getattr(form, each.name) for each in fields(form)}
    for role in ("query", "key", "value"):
        if isinstance(plain[role], np.ndarray):
            plain[role] = np.abs(plain[role])
    total = np.zeros(sums.n_features)
    for tokens, weight in zip(X, weights, strict=True):
        for S, u in reference.summaries(np.abs(tokens), plain):
            psi = reference.features(np.array(S, dtype=float), np.array(u, dtype=float), plain)
            total += weight * np.ldexp(np.array(psi), -3 * sums.token_exponent) ** 2
    np.testing.assert_allclose(sums.scaled_magnitudes(), total, rtol=1e-12)


@both_kinds
def test_terms_too_large_for_a_bound_prove_nothing(kind, tmp_path):
    """A matrix cancels terms of size 2^260 exactly: their fourth power leaves float64."""
    X = dyadic(np.random.default_rng(14), 60, 4, 3)
    X[..., 1] = X[..., 0]
    large = np.array([[2.0**260], [-(2.0**260)], [1.0]])
    sums = sums_of(kind, Form(query=[2], key=large, value=large), X)
    assert np.all(np.isinf(sums.scaled_magnitudes()))
    assert pa.certify(statistics=sums).verdict == "undecided"
    sums.save(tmp_path / "sums")
    assert kind.load(tmp_path / "sums") == sums


@both_kinds
def test_the_longest_context_counts_and_is_kept(kind, tmp_path):
    rng = np.random.default_rng(8)
    form = Form(key=[0], value=[1], mean=True)
    X, Z = rng.standard_normal((60, 2, 2)), rng.standard_normal((60, 300, 2))
    sums = sums_of(kind, form, X, Z)
    assert (sums.max_length, sums.max_context_length) == (2, 300)
    assert feature_depth(sums.layout, longest(sums)) > 4 * 300
    sums.save(tmp_path / "sums")
    loaded = kind.load(tmp_path / "sums")
    assert loaded == sums
    assert pa.certify(statistics=loaded).identifiable
    record = sums.to_record()
    del record.metadata["max_context_length"]
    with pytest.raises(FileFormatError, match="lacks the field 'max_context_length'"):
        kind.from_record(record)


def test_integers_of_a_small_type_have_no_negative_size():
    """-128 is its own absolute value in 8 bits."""
    layout = absolute_layout(Layout.of(Form(key=np.ones((2, 1)), value=[0]), 2))
    tokens = np.array([[-128, 5]], dtype=np.int8)
    np.testing.assert_array_equal(layout.columns.read(tokens).ravel(), [128.0, 5.0, 133.0])


def test_products_with_a_matrix_that_lose_digits_prove_nothing():
    """1e-161 times 1e-161 has a few bits left, and dependent columns differ in the last of them."""
    X = 2.0**-555 * np.round(2.0**20 * np.random.default_rng(0).standard_normal((60, 4, 2)))
    X[..., 1] = 3.0 * X[..., 0]
    matrix = 2.0**-535 * np.array([[1.1, 2.7], [3.3, 5.1]])
    form = Form(query=matrix, key=matrix, value=matrix)
    assert pa.certify(X, form=form).verdict == "not_identifiable"
    assert pa.certify(X, form=form, method="float").verdict == "undecided"
    for kind in KINDS:
        assert pa.certify(statistics=sums_of(kind, form, X)).verdict == "undecided"
