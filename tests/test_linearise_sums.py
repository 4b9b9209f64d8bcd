"""Sums and solution of one linearised head against features position by position."""

import numpy as np
import pytest

from polyattn.errors import InvalidInput
from polyattn.linearising.head_blocks import Replacement, fit_head, head_block, predictions
from polyattn.linearising.head_sums import HeadBlock, HeadSums
from polyattn.linearising.softmax_heads import SeenHead
from polyattn.linearising.solve_head import MixingEquations, chosen_ridge, solve_head
from polyattn.model.feature_maps import FeatureMap, SideMap
from polyattn.reference import linearised as reference

RIDGE = 1e-3


def some_map(kind_query, kind_key, r, m, rng):
    sides = (SideMap(kind, rng.standard_normal((1, r, m))) for kind in (kind_query, kind_key))
    return FeatureMap("some", *sides)


def some_sequences(lengths, r, c, mode, rng):
    """Of each length two sequences, as a head sees them."""
    for n in lengths:
        q, k = rng.standard_normal((2, 2, n, r))
        yield SeenHead(q[:, -1:] if mode == "last" else q, k, rng.standard_normal((2, n, c)))


def reference_positions(blocks, feature_map, mode, denominator, window):
    """(phi, Z, o) of every position, by the reference implementation."""
    for queries, keys, values in blocks:
        for q, k, v in zip(queries, keys, values, strict=True):
            n = len(k)
            every = np.concatenate([np.zeros((n - 1, q.shape[1])), q]) if mode == "last" else q
            phi, psi = feature_map.query.features(every, 0), feature_map.key.features(k, 0)
            for t in [n - 1] if mode == "last" else range(n):
                Z = reference.rows(psi, v, t, mode, denominator)
                if window is not None:
                    own = reference.window_row(every, k, v, t, mode, window)
                    Z = np.vstack([Z, own])
                yield phi[t], Z, reference.softmax_output(every, k, v, t, mode)


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize(
    ("kinds", "denominator"),
    [(("softmax", "exponential"), "features"), (("linear", "linear"), "tokens"),
     (("elu", "gaussian"), "tokens"), (("quadratic", "softmax"), "features")],
)  # fmt: skip
def test_fit_is_that_of_explicit_features(mode, window, kinds, denominator):
    rng = np.random.default_rng(3)
    feature_map = some_map(*kinds, 2, 2, rng)
    seen = list(some_sequences([1, 4, 6], 2, 3, mode, rng))
    replacement = Replacement(mode, denominator, window)
    blocks = [head_block(each, feature_map, 0, replacement) for each in seen]
    found = fit_head(blocks, RIDGE)
    positions = list(reference_positions(seen, feature_map, mode, denominator, window))
    wanted = reference.fit(positions, RIDGE)
    np.testing.assert_allclose(found.mixing, wanted, rtol=1e-7, atol=1e-8)
    outputs = np.concatenate([predictions(b, wanted).reshape(-1, 3) for b in blocks])
    expected = np.array([reference.output(phi, wanted, Z) for phi, Z, _ in positions])
    np.testing.assert_allclose(outputs, expected, atol=1e-12)
    targets = np.array([o for *_, o in positions])
    assert found.error == pytest.approx(np.sum((targets - expected) ** 2), rel=1e-6)


def test_logits_of_any_size_give_means_of_values():
    rng = np.random.default_rng(0)
    feature_map = some_map("softmax", "exponential", 3, 4, rng)
    for size in (1e-6, 1.0, 1e5):
        seen = SeenHead(*(size * rng.standard_normal((2, 2, 7, 3))), rng.standard_normal((2, 7, 2)))
        for mode in ("full", "causal"):
            block = head_block(seen, feature_map, 0, Replacement(mode, "features", 2))
            assert all(np.isfinite(each).all() for each in block)
            assert np.abs(block.rows).max() <= np.abs(seen.values).max() + 1e-12


def test_sums_of_parts_add_up_and_choose_a_ridge():
    rng = np.random.default_rng(1)
    blocks = [
        HeadBlock(*(rng.standard_normal(shape) for shape in ((2, 5, 3), (2, 1, 4, 2), (2, 5, 2),
                                                             (2, 5, 2))))
        for _ in range(12)
    ]  # fmt: skip
    whole, first, rest = (HeadSums(3, 4, 2, own=True) for _ in range(3))
    for i, block in enumerate(blocks):
        whole.add(block)
        (first if i < 6 else rest).add(block)
    # Targets are noise: of all ridges the largest is best on other sequences.
    assert chosen_ridge(first, rest) == 10.0
    first.absorb(rest)
    np.testing.assert_allclose(first.matrix(), whole.matrix(), atol=1e-10)
    np.testing.assert_allclose(first.cross, whole.cross, atol=1e-10)
    assert first.variance == pytest.approx(whole.variance)


def test_features_that_are_zero_or_equal_do_no_harm():
    rng = np.random.default_rng(2)
    phi = rng.standard_normal((3, 6, 3))
    phi[..., 1] = 0.0
    phi[..., 2] = phi[..., 0]
    rows, planted = rng.standard_normal((3, 1, 2, 4)), rng.standard_normal((3, 2))
    block = HeadBlock(phi, rows, None, np.empty((3, 6, 4)))
    block = block._replace(targets=predictions(block, planted))
    sums = HeadSums(3, 2, 4)
    sums.add(block)
    found = solve_head(sums, 0.0)
    np.testing.assert_allclose(found.mixing[1], 0.0)
    np.testing.assert_allclose(predictions(block, found.mixing), block.targets, atol=1e-7)
    assert MixingEquations(sums).scaled.diagonal().max() == pytest.approx(1.0)


def test_no_blocks_are_refused():
    with pytest.raises(InvalidInput, match="at least one block"):
        fit_head([])
