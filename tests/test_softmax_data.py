"""The generators of softmax tasks: seeded, scaled as documented, and of the family they name."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.data import (
    Planted,
    boolean_sequences,
    hard_softmax_layer,
    planted_softmax,
    random_softmax_layer,
)
from polyattn.data.softmax import FAMILIES
from polyattn.errors import InvalidInput
from polyattn.reference.layer import softmax_forward
from polyattn.sequences import MODES, SequenceBatch, as_batch
from polyattn.softmax.identifiability.identifiable_heads import identifiable_heads

GENERATORS = {
    "tokens": lambda seed: boolean_sequences(5, 4, 3, seed),
    "ragged": lambda seed: boolean_sequences(5, (2, 6), 3, seed).values,
    "attn": lambda seed: random_softmax_layer(3, 2, 2, random_state=seed).attn,
    "low_rank": lambda seed: random_softmax_layer(3, 2, 2, rank=1, random_state=seed).value,
    "planted": lambda seed: planted_softmax(5, 4, 3, noise=0.1, random_state=seed).Y,
    **{
        family: lambda seed, family=family: hard_softmax_layer(family, 5, random_state=seed).value
        for family in FAMILIES
    },
}


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS.keys())
def test_seeds(generator):
    np.testing.assert_array_equal(generator(3), generator(3))
    np.testing.assert_array_equal(generator(3), generator(np.random.default_rng(3)))
    assert generator(3).shape != generator(4).shape or np.any(generator(3) != generator(4))


def test_boolean_sequences():
    X = boolean_sequences(500, 8, 4)
    assert X.shape == (500, 8, 4)
    assert set(np.unique(X)) == {-1.0, 1.0}
    flat = X.reshape(500, -1)
    assert np.max(np.abs(flat.mean(axis=0))) < 5 / np.sqrt(500)
    assert np.max(np.abs(flat.T @ flat / 500 - np.eye(32))) < 5 / np.sqrt(500)
    batch = boolean_sequences(300, (1, 4), 2)
    assert isinstance(batch, SequenceBatch)
    assert set(batch.lengths) == {1, 2, 3, 4}
    assert set(np.unique(batch.values)) == {-1.0, 1.0}


@pytest.mark.parametrize("rank", [None, 5])
def test_random_layers_have_the_documented_scale(rank):
    d = 60
    layer = random_softmax_layer(d, 40, n_heads=3, logits=2.0, rank=rank)
    assert (layer.n_heads, layer.n_dims, layer.n_outputs, layer.mode) == (3, d, 40, "full")
    assert np.std(layer.attn) == pytest.approx(2 / d, rel=0.1)
    assert np.std(layer.value) == pytest.approx(d**-0.5, rel=0.1)
    for matrices, full in ((layer.attn, d), (layer.value, 40)):
        assert set(np.linalg.matrix_rank(matrices)) == {full if rank is None else rank}
    queries, keys = boolean_sequences(2, 500, d)
    logits = np.einsum("td,hde,te->th", queries, layer.attn, keys)
    assert np.std(logits) == pytest.approx(2.0, rel=0.3)


def test_families_are_what_they_say():
    c, d = 4.0, 40
    layers = {family: hard_softmax_layer(family, d, 3, c) for family in FAMILIES}
    attn = {family: layer.attn for family, layer in layers.items()}
    value = {family: layer.value for family, layer in layers.items()}
    sizes = np.linalg.norm(attn["close"], axis=(1, 2))
    assert np.linalg.norm(attn["close"][0] - attn["close"][1]) < 0.2 * sizes.min()
    assert np.all(value["same_value"] == value["same_value"][0])
    assert np.all(np.linalg.matrix_rank(value["rank_one_value"]) == 1)
    assert np.std(value["scales"], axis=(1, 2)) == pytest.approx(
        np.array([1, 0.1, 0.01]) / np.sqrt(d), rel=0.1
    )
    for h in range(3):
        np.testing.assert_allclose(attn["identity"][h], c * (h + 1) / 3 / np.sqrt(d) * np.eye(d))
    assert np.all(np.linalg.matrix_rank(attn["rank_one_attn"]) == 1)
    assert np.max(np.abs(value["cancel"].sum(axis=0))) < 1e-15
    assert np.std(attn["sharp_mix"], axis=(1, 2)) == pytest.approx(
        c / d * np.array([1, 1 / 3, 1 / 9]), rel=0.1
    )
    permutation = attn["permutation"] * np.sqrt(d) / c
    np.testing.assert_allclose(permutation @ permutation.transpose(0, 2, 1), [np.eye(d)] * 3)
    for family in ("same_value", "rank_one_value", "scales", "cancel"):
        assert np.std(attn[family]) == pytest.approx(c / d, rel=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_hard_families_are_identifiable(family):
    layer = hard_softmax_layer(family, 4, 3)
    assert identifiable_heads(layer).verdict == "identifiable"
    assert identifiable_heads(layer, boolean_sequences(200, 4, 4)).verdict == "identifiable"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tokens", ["boolean", "gaussian"])
@pytest.mark.parametrize("n_tokens", [3, (1, 4)])
def test_planted(mode, tokens, n_tokens):
    task = planted_softmax(6, n_tokens, 3, 2, 2, logits=2.0, distribution=tokens, mode=mode)
    assert isinstance(task, Planted)
    assert isinstance(task.layer, pa.SoftmaxAttention)
    assert (task.layer.n_heads, task.layer.n_outputs, task.layer.mode) == (2, 2, mode)
    for x, y in zip(as_batch(task.X), task.Y, strict=True):
        expected = softmax_forward(task.layer.attn, task.layer.value, x, mode)
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-13)
    assert (set(np.unique(as_batch(task.X).values)) == {-1.0, 1.0}) is (tokens == "boolean")


def test_gaussian_tokens_have_unit_variance_whatever_the_length():
    assert np.std(planted_softmax(500, 9, 3, distribution="gaussian").X) == pytest.approx(
        1, rel=0.03
    )


def test_the_planted_layer_depends_on_the_seed_alone():
    task = planted_softmax(8, 5, 3, n_heads=2, random_state=7)
    assert task.layer == random_softmax_layer(3, n_heads=2, random_state=7)
    assert task.layer == planted_softmax(9, (2, 3), 3, n_heads=2, noise=1.0, random_state=7).layer
    hard = planted_softmax(8, 5, 3, n_heads=2, logits=4.0, family="close", random_state=7)
    assert hard.layer == hard_softmax_layer("close", 3, 2, 4.0, random_state=7)
    noisy = planted_softmax(400, 5, 3, n_heads=2, noise=0.3, random_state=7)
    assert np.std(noisy.Y - noisy.layer(noisy.X)) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: boolean_sequences(0, 2, 2), "n_sequences must be"),
        (lambda: boolean_sequences(2, (3, 2), 2), "shortest <= longest"),
        (
            lambda: random_softmax_layer(2, rank=3),
            "rank must be at most 2, the width of the heads; got 3",
        ),
        (lambda: random_softmax_layer(2, rank=0), "rank must be an integer of at least 1"),
        (lambda: random_softmax_layer(2, logits=-1.0), "logits must be a finite number >= 0"),
        (lambda: random_softmax_layer(2, mode="first"), "mode must be one of"),
        (lambda: hard_softmax_layer("easy", 2), "family must be one of 'close', 'same_value'"),
        (lambda: hard_softmax_layer("cancel", 2, 1), "one head cannot cancel"),
        (
            lambda: planted_softmax(2, 2, 2, distribution="words"),
            "distribution must be one of 'boolean'",
        ),
        (lambda: planted_softmax(2, 2, 2, family="easy"), "family must be one of"),
        (lambda: planted_softmax(2, 2, 2, noise=-1.0), "noise must be"),
    ],
)
def test_misuse(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()
