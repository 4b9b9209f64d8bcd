"""The general certificate [yau2024: Lemma E.1], for every form and for feature maps of users.

The lemma: if F_Theta(Z)[a] = <p_a(Theta), H(Z)> and the second moment of H over the data is
definite, then all minimisers of the empirical risk of realisable data are one function.  Here H are
the features S x u of a form, p_a(Theta) are the folded coefficients of its heads.
"""

import numpy as np
import pytest

import polyattn as pa
from certified_forms import FORMS, cases, layout_of, rational_rows, some_data
from form_layers import replace_heads
from polyattn.certify.witness import layer_of_coef


def random_layer(form, has_context, rng):
    layout = layout_of(form, has_context)
    coef = rng.standard_normal(layout.n_features)
    whole = np.zeros((layout.n_sums, layout.n_queries))
    whole[tuple(np.array(places(layout)).T)] = coef
    return layer_of_coef(whole, layout), coef


def places(layout):
    """Row and column of each feature: with an intercept, constants multiply only each other."""
    pairs = [(i, j) for i in range(layout.n_sums) for j in range(layout.n_queries)]
    if not layout.form.intercept:
        return pairs
    last = (layout.n_sums - 1, layout.n_queries - 1)
    constants = [pair for pair in pairs if pair[1] == last[1] and pair != last]
    constants += [(last[0], j) for j in range(last[1]) if not layout.form.skip]
    return [pair for pair in pairs if pair not in constants]


def other_heads(layer, rng):
    """Other parameters with the same products: a v = ((a + u) v + (a - u) v) / 2."""
    u = rng.standard_normal(layer.attn.shape)
    attn = np.concatenate([layer.attn + u, layer.attn - u])
    value = np.concatenate([layer.value, layer.value]) / 2
    scales = None if layer.head_scales is None else np.tile(layer.head_scales, 2)
    return pa.LinearAttention(
        attn, value, form=layer.form, n_dims=layer.n_dims, n_context_dims=layer.n_context_dims,
        head_scales=scales, skip=layer.skip, intercept=layer.intercept,
    )  # fmt: skip


def outputs(layer, X, context):
    return np.asarray(layer(X) if context is None else layer(X, context=context)).reshape(-1)


@cases
def test_a_layer_is_the_product_of_its_coefficients_and_features(name, has_context):
    """Equation (34): the premise of the lemma, with features by the reference in fractions."""
    rng = np.random.default_rng(0)
    layer, coef = random_layer(FORMS[name], has_context, rng)
    X, context = some_data(has_context, rng, 6)
    features = np.array(rational_rows(FORMS[name], X, context), dtype=float)
    np.testing.assert_allclose(outputs(layer, X, context), features @ coef, rtol=1e-9, atol=1e-9)


@cases
def test_parameters_with_equal_coefficients_are_one_function(name, has_context):
    rng = np.random.default_rng(1)
    layer, _ = random_layer(FORMS[name], has_context, rng)
    other = other_heads(layer, rng)
    assert other.attn.shape != layer.attn.shape
    np.testing.assert_allclose(other.coef, layer.coef, atol=1e-12)
    changed = replace_heads(layer, 1.01 * layer.attn, layer.value)  # negative control
    for length in (1, 2, 7):
        X, context = some_data(has_context, rng, 20, length=length)
        expected = outputs(layer, X, context)
        np.testing.assert_allclose(outputs(other, X, context), expected, atol=1e-10)
    assert not np.allclose(outputs(changed, X, context), expected)


@cases
def test_a_definite_second_moment_leaves_one_minimiser(name, has_context):
    """Whatever solver: zero risk means the true function, on inputs of other lengths too.

    Features of some forms depend on each other on all inputs.  The second moment of all of them is
    then never definite and coefficients are not unique; that of a basis of them is, and the
    function is unique all the same.
    """
    form, rng = FORMS[name], np.random.default_rng(2)
    truth, _ = random_layer(form, has_context, rng)
    X, context = some_data(has_context, rng, 120)
    certificate = pa.certify(X, form=form, context=context)
    assert certificate.identifiable
    Y = np.asarray(truth(X) if context is None else truth(X, context=context))
    new = [some_data(has_context, rng, 10, length=length) for length in (1, 3, 8)]
    for solver in ("direct", "dual"):
        found = pa.fit(X, Y, form=form, context=context, solver=solver)
        if certificate.dimension == certificate.n_features:
            np.testing.assert_allclose(found.coef, truth.coef, atol=1e-6)
        for inputs in new:
            expected = outputs(truth, *inputs)
            np.testing.assert_allclose(outputs(found.predict, *inputs), expected, atol=1e-6)


@cases
def test_the_inequality_of_the_proof(name, has_context):
    """Risk is at least lambda_min ||p(Theta) - p(Theta*)||^2, and at most lambda_max as much."""
    form, rng = FORMS[name], np.random.default_rng(6)
    X, context = some_data(has_context, rng, 60)
    certificate = pa.certify(X, form=form, context=context)
    if certificate.dimension < certificate.n_features:
        return  # its lambda_min is that of fewer features
    truth, coef = random_layer(form, has_context, rng)
    for _ in range(3):
        other, changed = random_layer(form, has_context, rng)
        risk = np.mean((outputs(other, X, context) - outputs(truth, X, context)) ** 2)
        distance = np.sum((changed - coef) ** 2)
        assert risk >= (1 - 1e-9) * certificate.lambda_min * distance
        assert risk <= (1 + 1e-9) * certificate.lambda_max * distance


@cases
def test_a_deficient_second_moment_leaves_two(name, has_context):
    """Both of a witness have zero risk on realisable data, and differ elsewhere."""
    form, rng = FORMS[name], np.random.default_rng(3)
    X, context = some_data(has_context, rng, 1, length=2)
    certificate = pa.certify(X, form=form, context=context)
    assert certificate.verdict == "not_identifiable"
    truth, _ = random_layer(form, has_context, rng)
    witness = certificate.witness(truth)
    for layer in (witness.layer_a, witness.layer_b):
        error = outputs(layer, X, context) - outputs(truth, X, context)
        assert np.max(np.abs(error)) < 1e-8 * (1 + np.max(np.abs(outputs(truth, X, context))))
    assert witness.difference > 0.1


# Feature maps of users ---------------------------------------------------------------------------


def ones(tokens):
    return np.ones((len(tokens), 1))


def form_of(features):
    """Any feature map H of whole sequences: each is one token, and H is what its query sees."""
    return pa.Form(query=features, key=ones, value=ones)


def test_any_feature_map_has_a_certificate():
    """H of the papers' layer, written by hand for sequences as one token, has its lambda_min."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((80, 3, 2))

    def cubic(flat):
        tokens = flat.reshape(len(flat), 3, 2)
        gram = np.einsum("stj,stk->sjk", tokens, tokens)[:, [0, 0, 1], [0, 1, 1]]
        return (gram[:, :, None] * tokens[:, -1][:, None]).reshape(len(flat), -1)

    flat = X.reshape(80, 1, 6)
    general, usual = pa.certify(flat, form=form_of(cubic)), pa.certify(X)
    assert general.identifiable
    assert general.n_features == usual.n_features == 6
    assert general.lambda_min == pytest.approx(usual.lambda_min, rel=1e-9)
    few = pa.certify(flat[:5], form=form_of(cubic))
    assert (few.verdict, few.rank) == ("not_identifiable", 5)


def test_features_that_are_no_polynomials_need_no_other_proof():
    """The lemma asks for polynomials; its proof does not."""
    rng = np.random.default_rng(5)

    def wave(flat):
        return np.stack([np.sin(flat[:, 0]), np.abs(flat[:, 1]), flat[:, 0] ** 2], axis=1)

    def dependent(flat):
        seen = wave(flat)
        return np.column_stack([seen, seen[:, 0] + seen[:, 1]])

    X = rng.standard_normal((60, 1, 2))
    weights = np.array([1.0, -2.0, 0.5])
    found = pa.fit(X, wave(X[:, 0]) @ weights, form=form_of(wave))
    assert pa.certify(X, form=form_of(wave)).identifiable
    np.testing.assert_allclose(np.ravel(found.coef), weights, atol=1e-9)
    assert not pa.certify(X, form=form_of(dependent)).identifiable
