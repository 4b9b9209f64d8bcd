"""Witnesses: equal on the training data, different on an input of the domain."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn import domains
from polyattn.certify import witness
from polyattn.certify.domains import as_domain
from polyattn.certify.witness import as_floats, layer_of_coef
from polyattn.errors import PolyattnError
from polyattn.form import Form, Layout
from polyattn.reference.layer import forward, with_constant

MODES = ("last", "causal", "full")


def run(layer, sequence):
    tokens = with_constant(sequence) if layer.bias else np.asarray(sequence, dtype=float)
    return forward(layer.attn, layer.value, tokens, layer.mode)


def check(witness, X, tolerance=1e-8):
    """By the slow reference alone: equal on X, different on the witness."""
    apart = np.abs(run(witness.layer_a, witness.input) - run(witness.layer_b, witness.input)).max()
    assert apart == pytest.approx(witness.difference)
    assert apart >= 1e-2
    for sequence in X:
        difference = run(witness.layer_a, sequence) - run(witness.layer_b, sequence)
        assert np.abs(difference).max() <= tolerance


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_real_data(mode, bias):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3, 2)) @ rng.standard_normal((2, 3))
    certificate = pa.certify(X, mode, bias=bias)
    witness = certificate.witness()
    check(witness, X)
    assert len(witness.input) == 2
    assert not pa.same_function(witness.layer_a, witness.layer_b)
    assert "equally well" in witness.sentence


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("domain", ["boolean", "one_hot"])
def test_discrete_witnesses_stay_inside_the_domain(domain, mode, bias):
    rng = np.random.default_rng(1)
    if domain == "boolean":
        X = rng.choice([-1, 1], size=(12, 2, 5))
        X[..., 4] = X[..., 3]
    else:
        X = np.eye(6, dtype=int)[rng.integers(5, size=(40, 3))]  # symbol 5 never occurs
    certificate = pa.certify(X, mode, domain, bias=bias)
    assert certificate.verdict == "not_identifiable"
    witness = certificate.witness()
    check(witness, X, 1e-12)
    as_domain(domain).require_inside(pa.SequenceBatch.from_sequences([witness.input]))


@pytest.mark.parametrize("lengths", [1, 3, (4, 6)])
def test_witnesses_have_a_length_of_the_domain(lengths):
    least = lengths if isinstance(lengths, int) else lengths[0]
    X = np.tile(np.random.default_rng(0).standard_normal((1, least, 3)), (30, 1, 1))
    witness = pa.certify(X, domain=domains.Real(lengths=lengths)).witness()
    assert len(witness.input) == least
    check(witness, X)


def test_one_of_the_layers_can_be_given():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3, 2)) @ rng.standard_normal((2, 3))
    layer = pa.data.random_layer(3, n_heads=2, mode="last", random_state=1)
    Y = layer(X)
    witness = pa.certify(X).witness(layer)
    assert witness.layer_a is layer
    assert np.mean((witness.layer_b(X) - Y) ** 2) < 1e-20
    check(witness, X)


def test_a_layer_of_another_kind_is_refused():
    certificate = pa.certify(np.ones((5, 2, 3)))
    with pytest.raises(ValueError, match="like the certificate"):
        certificate.witness(pa.data.random_layer(3, mode="causal"))


def test_a_direction_that_the_data_see_is_no_witness():
    """Negative control: the comparison on the training data is made, and counts."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 3, 2)) @ rng.standard_normal((2, 3))
    certificate = pa.certify(X)
    check(certificate.witness(), X)
    seen = replace(certificate, given_direction=rng.standard_normal(18))
    with pytest.raises(PolyattnError, match="on the training data: that shows nothing"):
        seen.witness()
    slightly = certificate.direction + 1e-4 * np.abs(certificate.direction).max()
    with pytest.raises(PolyattnError, match="shows nothing"):
        replace(certificate, given_direction=slightly).witness()


def test_identifiable_data_have_no_witness():
    certificate = pa.certify(np.random.default_rng(0).standard_normal((60, 3, 3)))
    with pytest.raises(ValueError, match="All minimisers agree"):
        certificate.witness()


@pytest.mark.parametrize("exponent", [0, -1500, 1500])
def test_a_layer_of_coefficients_has_these_coefficients(exponent):
    rng = np.random.default_rng(0)
    coef = rng.standard_normal((10, 4))
    layer = layer_of_coef(coef, Layout.plain(4), exponent)
    if exponent == 0:
        np.testing.assert_array_equal(layer.coef[0], coef)
    X = np.ldexp(rng.standard_normal((3, 4)), -exponent // 3)
    plain = layer_of_coef(coef, Layout.plain(4))
    np.testing.assert_allclose(layer(X), plain(np.ldexp(X, exponent // 3)), rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_random_deficient_sets(seed):
    """Integer data of every kind; the direction is exact, the witness is found."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 5))
    X = rng.integers(-2, 3, size=(int(rng.integers(1, 30)), int(rng.integers(1, 4)), d))
    X[..., 0] = X[..., -1] * rng.integers(0, 2)
    certificate = pa.certify(X)
    assert certificate.verdict == "not_identifiable"
    check(certificate.witness(), X, 1e-9)


def test_integers_of_any_size_become_floats():
    np.testing.assert_array_equal(as_floats((10**400, 0, -5 * 10**399)), [1.0, 0.0, -0.5])
    np.testing.assert_array_equal(as_floats(np.array([4.0, 0.0, -2.0])), [1.0, 0.0, -0.5])


def test_training_data_are_run_by_the_reference_too(monkeypatch):
    X = np.random.default_rng(0).standard_normal((5, 4, 3))
    certificate = pa.certify(X)
    assert certificate.witness().training_disagreement < 1e-8
    true = witness.output_of
    monkeypatch.setattr(
        witness,
        "output_of",
        lambda layer, sequence, context: true(layer, sequence + 1.0, context),
    )
    with pytest.raises(PolyattnError, match="on the training data"):
        certificate.witness()


def test_a_direction_that_shows_nowhere_still_gets_a_sequence():
    rng = np.random.default_rng(0)
    found = domains.Real().separating_sequence(np.zeros(18), Layout.plain(3), 1.0, rng)
    assert found.shape == (2, 3)


def test_two_symbols_that_are_seldom_together_are_found():
    """One of 576 sequences of two tokens shows the direction."""
    domain, layout = domains.OneHot(2), Layout.of(Form(include_query=False), 24)
    direction = np.zeros(layout.n_features)
    direction[-1] = 1.0
    sequence, _ = domain.separating_input(direction, layout, 1.0, 0, np.random.default_rng(0))
    np.testing.assert_array_equal(sequence.argmax(axis=1), [23, 23])
