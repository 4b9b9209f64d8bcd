"""Recovery over whole tables of layers, on seeds that nothing was tuned on: minutes, so slow."""

import numpy as np
import pytest

import polyattn as pa

pytestmark = pytest.mark.slow

FAMILIES = ("close", "same_value", "rank_one_value", "scales", "identity")


def worst(found: pa.LearnedSoftmax, planted: pa.SoftmaxAttention) -> float:
    if found.n_heads != planted.n_heads:
        return np.inf
    match = pa.match_heads(found.layer, planted)
    return max(match.worst_attn, match.worst_value)


@pytest.mark.parametrize("logits", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_ten_generic_layers_from_fifty_examples(n_heads, logits):
    for seed in range(8000, 8010):
        task = pa.data.planted_softmax(50, 4, 8, n_heads=n_heads, logits=logits, random_state=seed)
        found = pa.learn_softmax(task.X, task.Y, n_heads)
        assert found.recovered
        assert worst(found, task.layer) <= 1e-10


@pytest.mark.parametrize(
    ("n_heads", "n_dims", "n_tokens", "n_sequences"),
    [(2, 16, 6, 1000), (4, 16, 6, 1000), (1, 32, 8, 300), (2, 32, 8, 600), (8, 8, 4, 600)],
)
def test_larger_layers(n_heads, n_dims, n_tokens, n_sequences):
    task = pa.data.planted_softmax(
        n_sequences, n_tokens, n_dims, n_heads=n_heads, random_state=8100
    )
    found = pa.learn_softmax(task.X, task.Y, n_heads)
    assert found.recovered
    assert worst(found, task.layer) <= 1e-10


@pytest.mark.parametrize("family", FAMILIES)
def test_hard_families(family):
    for seed in range(8200, 8205):
        task = pa.data.planted_softmax(
            2000, 4, 8, n_heads=3, logits=4.0, family=family, random_state=seed
        )
        found = pa.learn_softmax(task.X, task.Y, 3)
        assert found.recovered, found.outcome
        assert worst(found, task.layer) <= 1e-6


@pytest.mark.parametrize("shape", [(1, 8, 4), (2, 8, 4), (2, 16, 6)])
def test_the_road_of_the_paper_is_exact_after_polish(shape):
    n_heads, n_dims, n_tokens = shape
    for seed in (8300, 8301):
        task = pa.data.planted_softmax(20_000, n_tokens, n_dims, n_heads=n_heads, random_state=seed)
        found = pa.learn_softmax(task.X, task.Y, n_heads, method="sculpt")
        assert found.recovered
        assert found.method == "sculpt"
        assert worst(found, task.layer) <= 1e-10


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_the_number_of_heads_is_found(noise):
    right = total = 0
    for n_heads in (1, 2, 3):
        for logits in (0.5, 1.0, 2.0):
            for seed in range(8400, 8405):
                n_sequences = 200 if noise else 60
                task = pa.data.planted_softmax(
                    n_sequences, 4, 8, n_heads=n_heads, logits=logits, noise=noise,
                    random_state=seed,
                )  # fmt: skip
                right += pa.learn_softmax(task.X, task.Y).n_heads == n_heads
                total += 1
    assert right >= 0.95 * total


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1e-1])
def test_errors_are_near_the_cramer_rao_bound(noise):
    for n_heads in (1, 2, 3):
        ratios = []
        for seed in range(8500, 8503):
            task = pa.data.planted_softmax(
                2000, 4, 8, n_heads=n_heads, noise=noise, random_state=seed
            )
            found = pa.learn_softmax(task.X, task.Y, n_heads)
            assert found.recovered
            order = pa.match_heads(found.layer, task.layer).order
            apart = np.linalg.norm(found.layer.attn[order] - task.layer.attn)
            ratios.append(apart / np.linalg.norm(found.attn_std))
        assert np.mean(ratios) <= 1.5


@pytest.mark.parametrize("more", [-1, 0, None])
@pytest.mark.parametrize("seed", [8600, 8601])
def test_recovered_is_never_said_of_a_wrong_layer(more, seed):
    """Few sequences, few outputs, too few heads, hard families, noise: 35 runs for each seed."""
    families = (None, *FAMILIES, "cancel", "permutation", "sharp_mix")
    shapes = [(2, 6, 4, 300, 1, 0.0), (2, 4, 3, 60, 2, 0.0), (3, 4, 4, 200, 1, 0.0),
              (2, 6, 3, 120, 6, 0.01)]  # fmt: skip
    for family in families:
        for n_heads, n_dims, n_tokens, n_sequences, n_outputs, noise in shapes:
            task = pa.data.planted_softmax(
                n_sequences, n_tokens, n_dims, n_outputs, n_heads, 3.0, family=family,
                noise=noise, random_state=seed,
            )  # fmt: skip
            given = None if more is None else n_heads + more
            found = pa.learn_softmax(task.X, task.Y, given, max_seconds=20)
            if found.recovered:
                planted = pa.canonical(task.layer)
                assert found.n_heads == planted.n_heads
                match = pa.match_heads(found.layer, planted)
                bars = 5.0 if noise else 0.0
                assert match.worst_attn <= max(1e-3, bars * found.attn_error.max())
                assert match.worst_value <= max(1e-3, bars * found.value_error.max())


@pytest.mark.parametrize("beta", [1.0, 2.0, 4.0])
def test_parities_are_never_claimed_wrongly(beta):
    layer = pa.softmax.parity_layer((5, 1, 2), marker=3, output=0, n_dims=8, beta=beta, n_outputs=1)
    X = pa.data.boolean_sequences(3000, 4, 8, random_state=8700)
    found = pa.learn_softmax(X, layer(X), 3, max_seconds=40)
    assert not found.recovered or worst(found, layer) <= 1e-3
    fresh = pa.data.boolean_sequences(200, 4, 8, random_state=8701)
    error = np.linalg.norm(found.layer(fresh) - layer(fresh)) / np.linalg.norm(layer(fresh))
    assert found.outcome.name not in ("recovered", "ambiguous") or error <= 1e-6
