"""Memory with the targets that the paper prints: the best layer, derived and measured."""

import numpy as np
import pytest

import polyattn as pa
from polyattn_papers.yau2024.associative_memory import EXPERIMENT
from polyattn_papers.yau2024.associative_memory.without_own_token import best_layer


def printed_fit(n_sequences, n_keys, unitary, seed=0):
    """The fit to targets without the own token's term, and the task."""
    task = pa.data.associative_memory(
        n_sequences, n_keys, unitary=unitary, random_state=seed, own_token=False
    )
    return pa.fit(task.X, task.Y), task


def apart(one, other):
    """The distance of coefficients, without looking for heads."""
    return np.linalg.norm(one.coef - other.coef)


def of_weights(weights, d):
    """The layer a G_vk q + b tr(G_kk) zeta + c G_vv zeta + e tr(G_vv) zeta, head by head."""
    a, b, c, e = weights
    identity, zero = np.eye(d), np.zeros((d, d))
    heads = [(np.block([[a * identity, zero], [zero, zero]]), np.concatenate([zero, identity]))]
    heads.append((np.block([[zero, zero], [zero, c * identity]]), heads[0][1]))
    for j in range(2 * d):
        for output in range(d):
            # zeta[output] of the query times coordinate j of a key, times that coordinate again.
            attn, value = np.zeros((2 * d, 2 * d)), np.zeros((2 * d, d))
            attn[d + output, j] = b if j < d else e
            value[j, output] = 1.0
            heads.append((attn, value))
    attn, value = (np.stack(part) for part in zip(*heads, strict=True))
    return pa.LinearAttention(attn, value, mode="last")


@pytest.mark.parametrize(("d", "unitary"), [(1, 0.5), (2, 0.0), (2, 0.5), (2, 0.9)])
def test_the_best_layer_is_what_many_sequences_tell(d, unitary):
    expected = best_layer(d, unitary)
    fitted, task = printed_fit(2**15, d, unitary, seed=3)
    layer = of_weights(expected.weights, d)
    away = pa.coefficient_distance(layer, task.layer)
    assert away == pytest.approx(expected.distance, rel=1e-12)
    assert apart(fitted, layer) < 0.15 * expected.distance
    assert apart(fitted, task.layer) == pytest.approx(away, rel=0.05)
    losses = np.sum((layer(task.X) - task.Y) ** 2, axis=1)
    error = np.std(losses) / np.sqrt(len(losses))
    assert np.mean(losses) == pytest.approx(expected.risk, abs=5 * error)
    # Negative control: other weights have a larger risk, and so has the true layer.
    for place in range(4):
        other = expected.weights + 0.2 * np.eye(4)[place]
        assert np.mean((of_weights(other, d)(task.X) - task.Y) ** 2) * d > np.mean(losses)
    assert np.mean((task.layer(task.X) - task.Y) ** 2) * d > 2 * np.mean(losses)


def test_the_best_layer_stays_as_far_from_the_truth_when_the_eigenvalue_falls():
    """Its distance depends on the share hardly at all: what grows is the error of sampling."""
    distances = [best_layer(4, share).distance for share in (0.95, 0.97, 0.99, 0.996, 0.997)]
    assert distances == pytest.approx([0.9546743, 0.9490468, 0.9382918, 0.9373351, 0.9388174])
    risks = [best_layer(4, share).risk for share in (0.95, 0.99, 0.999)]
    assert np.all(np.diff(risks) < 0)
    # In the limit the missing term is made up for exactly.
    assert best_layer(4, 1 - 1e-9).weights[0] == pytest.approx(1.0)
    assert risks[-1] < 0.02


def test_orthogonal_keys_alone_hide_the_missing_term():
    """The minimiser of least norm fits the printed targets exactly, and is not the true layer.

    b = -(d+1)/d * t and c = -e = 2/3 * t in the norm of the symmetric tensor, with t such that
    (d + 1) b - (d - 1) c = -1.
    """
    d = 3
    fitted, task = printed_fit(3000, d, 1.0)
    t = 1 / ((d + 1) ** 2 / d + 2 / 3 * (d - 1))
    least = of_weights([1.0, -(d + 1) / d * t, 2 / 3 * t, -2 / 3 * t], d)
    assert np.max(np.abs(least(task.X) - task.Y)) < 1e-12
    assert apart(fitted, least) < 1e-6
    assert pa.coefficient_distance(least, task.layer) > 0.5


def test_fewer_gaussian_sequences_are_farther_away_and_the_own_term_brings_all_home():
    """The fact behind figure 2 (a), with two keys: 4 of 40 directions need Gaussian keys."""
    found = []
    for unitary in (0.5, 0.995, 0.996):
        fitted, task = printed_fit(2048, 2, unitary)
        distance = apart(fitted, task.layer)
        found.append((pa.certify(task.X).lambda_min, distance))
        assert apart(pa.fit(task.X, task.layer(task.X)), task.layer) < 1e-9
    smallest, distances = zip(*found, strict=True)
    assert np.all(np.diff(smallest) < 0)
    assert np.all(np.diff(distances) > 0)
    assert distances[0] == pytest.approx(best_layer(2, 0.5).distance, rel=0.1)


def test_the_page_no_longer_cites_a_lemma_about_something_else():
    assert "E.1" not in EXPERIMENT.reference
    assert "(13) to (15)" in EXPERIMENT.reference
