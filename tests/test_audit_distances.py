"""Distances of an audit count what the data see, and no unit counts in those of outputs."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.certify.minimiser import minimise
from polyattn.reference.features import cubic_features, token_gram
from polyattn.stats.rows import Rows

RNG = np.random.default_rng(0)
PLANE = RNG.standard_normal((200, 5, 2))
# The third coordinate is the sum of the others: a third of the coefficients is seen by no data.
FLAT = np.concatenate([PLANE, PLANE.sum(axis=2, keepdims=True)], axis=2)
NOISE = 0.1 * RNG.standard_normal((200, 1))

CASES = {
    "many rows": (200, {}, {}),
    "fewer rows than features": (12, {}, {}),
    "weights": (200, {}, {"sample_weight": RNG.random(200)}),
    "few rows of positive weight": (200, {}, {"sample_weight": (np.arange(200) < 9) * 1.0}),
    "decay": (200, {"form": pa.Form(decay=0.7)}, {}),
    "linear terms": (200, {"form": pa.Form(skip=True, intercept=True)}, {}),
    "a constant": (200, {"bias": True}, {}),
}


def data(n_rows, beside):
    Y = pa.data.random_layer(3, 1, 1, mode="last", random_state=1)(FLAT) + NOISE
    return FLAT[:n_rows], Y[:n_rows], {name: each[:n_rows] for name, each in beside.items()}


def with_unseen_part(result, X):
    """The same outputs on the data by other coefficients."""
    form, layout = result.form, result.layout
    Z = np.concatenate([X, X, X], axis=1) * RNG.standard_normal((len(X), 15, 1))
    seen = np.concatenate([Z[..., :2], Z[..., :2].sum(axis=2, keepdims=True)], axis=2)
    direction = pa.certify(seen, form=form).direction
    assert direction is not None
    unseen = np.array(direction, dtype=np.float64)[:, None] * layout.feature_weights[:, None]
    return replace(result, coef=result.coef + 5.0 * layout.as_coef(unseen))


@pytest.mark.parametrize("case", CASES)
def test_equal_outputs_are_no_distance_apart(case):
    n_rows, options, beside = CASES[case]
    X, Y, beside = data(n_rows, beside)
    best = pa.fit(X, Y, **options, **beside)
    other = with_unseen_part(best, X)
    assert np.allclose(other.predict(X), best.predict(X), atol=1e-10)
    assert np.linalg.norm(other.coef - best.coef) > 1.0
    found = pa.audit(other, X, Y, **beside)
    # From weighted sums a verdict may stay open.
    assert found.certificate.verdict in ("not_identifiable", "undecided")
    assert found.outcome.name == "optimal"
    assert found.distance < 1e-10
    assert found.relative_output_distance < 1e-12
    assert "as far as the data see them" in found.sentence
    # Negative control: what the data see counts.
    seen = pa.audit(replace(best, coef=1.01 * best.coef), X, Y, **beside)
    assert seen.relative_output_distance == pytest.approx(0.01, rel=1e-6)
    assert seen.relative_distance == pytest.approx(0.01, rel=1e-6)


def test_outputs_of_black_boxes_are_held_against_those_of_the_optimum():
    X, Y, _ = data(200, {})
    best = pa.fit(X, Y)
    found = pa.audit(lambda Z: 1.01 * best.predict(Z), X, Y)
    assert found.distance is None
    assert found.relative_output_distance == pytest.approx(0.01, rel=1e-6)
    assert "Its coefficients are unknown; the data do not determine the layer." in found.sentence
    same = pa.audit(best.predict, X, Y)
    assert same.relative_output_distance < 1e-13
    assert found.output_distance**2 == pytest.approx(found.gap, rel=1e-6)


def test_the_distance_is_that_to_the_nearest_optimum():
    """The slow way: project by the pseudo-inverse of all features, written out."""
    for n_rows in (12, 60):
        X, Y, _ = data(n_rows, {})
        layer = pa.data.random_layer(3, 1, 2, mode="last", random_state=5)
        features = np.array([cubic_features(token_gram(each), each[-1]) for each in X])
        layout = Rows.build(X, Y, pa.Form()).layout
        root = features.reshape(n_rows, -1) / layout.feature_weights
        difference = layout.as_theta(layer.coef - pa.fit(X, Y).coef)
        seen = layout.as_coef(np.linalg.pinv(root, rcond=1e-10) @ (root @ difference))
        found = pa.audit(layer, X, Y)
        assert found.distance == pytest.approx(np.linalg.norm(seen), rel=1e-8)


@pytest.mark.parametrize("targets", [1.0, 1e-3, 1e8])
@pytest.mark.parametrize("units", [[1, 1, 1], [1e3, 1, 1e-3], [2e-5, 2e-5, 2e-5]])
def test_units_do_not_change_the_distance_of_outputs(units, targets):
    X, Y, _ = data(200, {})
    layer = pa.data.random_layer(3, 1, 1, mode="last", random_state=2)
    plain = pa.audit(layer, X, Y)
    factors = np.array(units, dtype=float)
    attn = layer.attn / factors[:, None] / factors
    same = pa.LinearAttention(attn, targets * layer.value / factors[:, None], mode="last")
    other = pa.audit(same, X * factors, targets * Y)
    assert plain.relative_output_distance > 0.1
    assert other.relative_output_distance == pytest.approx(plain.relative_output_distance, rel=1e-7)
    assert other.output_distance == pytest.approx(targets * plain.output_distance, rel=1e-7)


def test_nothing_is_seen_of_zeros():
    X, Y = np.zeros((5, 2, 2)), np.ones((5, 1))
    layer = pa.data.random_layer(2, 1, 1, mode="last", random_state=0)
    found = pa.audit(layer, X, Y)
    assert (found.distance, found.output_distance, found.relative_output_distance) == (0, 0, None)
    assert "differ" not in found.sentence


def test_audits_of_older_releases_are_read():
    X, Y, _ = data(60, {})
    found = pa.audit(pa.fit(X, Y, ridge=1.0), X, Y)
    record = found.to_record()
    again = pa.Audit.from_record(record)
    assert again.relative_output_distance == found.relative_output_distance
    older = {n: each for n, each in record.metadata.items() if "output" not in n}
    loaded = pa.Audit.from_record(replace(record, metadata=older))
    assert loaded.relative_output_distance is None
    assert "differ from those" not in loaded.sentence


def test_the_projection_leaves_what_is_seen_and_takes_away_the_rest():
    for n_rows in (12, 200):
        X, Y, _ = data(n_rows, {})
        rows = Rows.build(X, Y, pa.Form())
        best, layout = minimise(rows), rows.layout
        assert np.allclose(best.seen_of(best.coef, layout), best.coef, rtol=1e-9, atol=1e-12)
        huge = best.seen_of(np.ldexp(best.coef, 900), layout)
        assert np.allclose(np.ldexp(huge, -900), best.coef, rtol=1e-9, atol=1e-12)
    full = Rows.build(RNG.standard_normal((90, 4, 3)), np.ones((90, 1)), pa.Form())
    assert minimise(full).seen is None
