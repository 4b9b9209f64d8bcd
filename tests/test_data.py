"""The generators: seeded, scaled as documented, and with answers that are the right ones."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.data import Planted, associative_memory, planted, random_layer, random_sequences
from polyattn.data.memory import lookup_layer
from polyattn.errors import InvalidInput, InvalidType
from polyattn.features.products import all_products
from polyattn.features.summaries import SeenSequences
from polyattn.form.layout import Layout
from polyattn.model import LinearAttention
from polyattn.reference import layer as reference
from polyattn.sequences import MODES, SequenceBatch, as_batch
from polyattn.targets import as_targets

GENERATORS = {
    "layer": lambda seed: random_layer(3, 2, 2, random_state=seed).attn,
    "value": lambda seed: random_layer(3, 2, 2, random_state=seed).value,
    "sequences": lambda seed: random_sequences(5, 4, 3, random_state=seed),
    "ragged": lambda seed: random_sequences(5, (2, 6), 3, random_state=seed).values,
    "planted": lambda seed: planted(5, 4, 3, noise=0.1, random_state=seed).Y,
    "memory": lambda seed: associative_memory(5, 3, noise=0.1, random_state=seed).Y,
}


@pytest.mark.parametrize("generator", GENERATORS.values(), ids=GENERATORS.keys())
def test_seeds(generator):
    np.testing.assert_array_equal(generator(3), generator(3))
    np.testing.assert_array_equal(generator(3), generator(np.random.default_rng(3)))
    np.testing.assert_array_equal(generator(3), generator(np.int64(3)))
    assert generator(3).shape != generator(4).shape or np.any(generator(3) != generator(4))
    rng = np.random.default_rng(3)
    first, second = generator(rng), generator(rng)
    assert first.shape != second.shape or np.any(first != second)


def test_random_layer_has_a_scaling_of_its_own():
    """The paper's entries have variance 1/d, or 1/sqrt(d), with no further factor: not ours."""
    d, n_heads = 40, 3
    layer = random_layer(d, n_heads=n_heads)
    assert (layer.n_heads, layer.n_dims, layer.n_outputs, layer.mode) == (n_heads, d, d, "causal")
    assert np.std(layer.attn) == pytest.approx(1 / d, rel=0.05)
    assert np.std(layer.value) == pytest.approx(1 / (np.sqrt(d) * n_heads), rel=0.05)
    assert np.std(layer.attn) < 0.5 * min(d**-0.5, d**-0.25)


def test_random_layer_divides_scores_and_averages_heads():
    """Parameters N(0, 1/d), then scores divided by sqrt(d) and the mean over heads."""
    d, e, n_heads = 3, 2, 4
    layer = random_layer(d, e, n_heads, mode="full", random_state=1)
    rng = np.random.default_rng(1)
    attn = rng.standard_normal((n_heads, d, d)) / np.sqrt(d)
    value = rng.standard_normal((n_heads, d, e)) / np.sqrt(d)
    X = rng.standard_normal((5, d))
    heads = [X @ A @ X.T / np.sqrt(d) @ X @ V for A, V in zip(attn, value, strict=True)]
    np.testing.assert_allclose(layer(X), np.mean(heads, axis=0), rtol=1e-12, atol=1e-14)


def test_a_form_takes_the_place_of_mode_and_bias():
    form = pa.Form(mode="full", include_query=False)
    assert random_layer(3, form=form).form == random_layer(3, form=form, mode="full").form == form
    with pytest.raises(InvalidInput, match="mode='last' was given beside a form with mode 'full'"):
        random_layer(3, form=form, mode="last")
    with pytest.raises(InvalidInput, match="bias"):
        planted(2, 3, 3, form=form, bias=True)
    with pytest.raises(InvalidType, match="form must be"):
        planted(2, 3, 3, form="full")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_tokens", [4, (1, 4)])
def test_planted_context(mode, n_tokens):
    task = planted(5, n_tokens, 3, mode=mode, n_context_dims=2)
    own, other = as_batch(task.X), as_batch(task.context)
    assert (other.n_dims, len(other)) == (2, 5)
    assert mode != "causal" or np.array_equal(own.lengths, other.lengths)
    found = task.layer(task.X, context=task.context)
    for one, wanted in zip(found, task.Y, strict=True):
        np.testing.assert_array_equal(one, wanted)
    # The expected token Gram of the context is the identity, too.
    many = as_batch(planted(300, n_tokens, 3, mode=mode, n_context_dims=20).context)
    assert np.sum(many.values**2) / (300 * 20) == pytest.approx(1.0, rel=0.1)


def test_random_sequences():
    X = random_sequences(200, 25, 4)
    assert X.shape == (200, 25, 4)
    assert np.std(X) == pytest.approx(1 / 5, rel=0.02)
    assert np.std(random_sequences(200, 25, 4, scale=3.0)) == pytest.approx(3.0, rel=0.02)


def test_random_ragged_sequences():
    batch = random_sequences(300, (1, 4), 50)
    assert isinstance(batch, SequenceBatch)
    assert set(batch.lengths) == {1, 2, 3, 4}
    # The expected token Gram is the identity whatever the length.
    traces = [np.sum(sequence**2) / 50 for sequence in batch]
    for length in (1, 4):
        assert np.mean(np.array(traces)[batch.lengths == length]) == pytest.approx(1.0, rel=0.1)
    assert random_sequences(3, (2, 2), 1).common_length == 2
    assert np.all(random_sequences(3, (2, 5), 2, scale=0.0).values == 0.0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_tokens", [6, (1, 6)])
def test_planted(mode, n_tokens):
    task = planted(8, n_tokens, 3, n_outputs=2, n_heads=2, mode=mode)
    assert isinstance(task, Planted)
    assert (task.layer.n_heads, task.layer.n_outputs, task.layer.mode) == (2, 2, mode)
    batch = as_batch(task.X)
    rows = as_targets(task.Y, batch, mode)
    expected = [
        np.atleast_2d(reference.forward(task.layer.attn, task.layer.value, x, mode)) for x in batch
    ]
    np.testing.assert_allclose(rows, np.concatenate(expected), rtol=0, atol=1e-13)


def test_the_planted_layer_depends_on_the_seed_alone():
    task = planted(8, 5, 3, random_state=7)
    assert task.layer == planted(80, (2, 9), 3, noise=0.5, random_state=7).layer
    assert task.layer == random_layer(3, random_state=7)
    assert task.layer != planted(8, 5, 3, random_state=8).layer


@pytest.mark.parametrize("n_tokens", [40, (30, 50)])
def test_noise(n_tokens):
    clean = planted(50, n_tokens, 2, noise=0.0, random_state=2)
    noisy = planted(50, n_tokens, 2, noise=0.3, random_state=2)
    assert (clean.noise, noisy.noise) == (0.0, 0.3)
    np.testing.assert_array_equal(as_batch(clean.X).values, as_batch(noisy.X).values)
    difference = np.concatenate(list(noisy.Y)) - np.concatenate(list(clean.Y))
    assert np.std(difference) == pytest.approx(0.3, rel=0.05)
    assert abs(np.mean(difference)) < 0.03


def test_repr_is_short():
    assert repr(planted(4, 3, 2)) == (
        "Planted(layer=LinearAttention(1 head, 2 -> 2, mode 'causal'), noise=0.0)"
    )


# Associative memory -------------------------------------------------------------------------


def parts(X):
    """Keys, values, query, zeta and the index of the queried key."""
    d = X.shape[2] // 2
    keys, values, query, zeta = X[:, :d, :d], X[:, :d, d:], X[:, d, :d], X[:, d, d:]
    asked = np.argmax(np.all(keys == query[:, None], axis=2), axis=1)
    return keys, values, query, zeta, asked


@pytest.mark.parametrize("d", [1, 2, 5])
def test_unitary_memory_returns_the_stored_value(d):
    task = associative_memory(40, d, unitary=1.0)
    keys, values, query, zeta, asked = parts(task.X)
    assert task.X.shape == (40, d + 1, 2 * d)
    assert task.Y.shape == (40, d)
    stored = values[np.arange(40), asked]
    np.testing.assert_array_equal(keys[np.arange(40), asked], query)
    np.testing.assert_allclose(keys @ keys.transpose(0, 2, 1), [np.eye(d)] * 40, atol=1e-13)
    np.testing.assert_allclose(values @ values.transpose(0, 2, 1), [np.eye(d)] * 40, atol=1e-13)
    np.testing.assert_allclose(task.Y, stored + zeta, atol=1e-13)
    assert len(set(asked)) == d
    # Nothing of the last token is left when its value half is empty.
    empty = associative_memory(40, d, unitary=1.0, fill=0.0)
    _, values, _, _, asked = parts(empty.X)
    np.testing.assert_allclose(empty.Y, values[np.arange(40), asked], atol=1e-13)


def test_gaussian_memory_is_a_superposition():
    task = associative_memory(30, 3, unitary=0.0, fill=2.0)
    keys, values, query, zeta, _ = parts(task.X)
    scores = np.einsum("nd,ntd->nt", query, keys)
    expected = np.einsum("nt,ntd->nd", scores, values) + np.sum(query**2, axis=1)[:, None] * zeta
    np.testing.assert_allclose(task.Y, expected, rtol=1e-12, atol=1e-12)


def test_memory_layer():
    task = associative_memory(10, 3, noise=0.2)
    assert isinstance(task.layer, LinearAttention)
    assert task.layer == lookup_layer(3)
    assert (task.layer.n_heads, task.layer.mode, task.noise) == (1, "last", 0.2)
    large = associative_memory(4000, 3, noise=0.2)
    assert np.std(large.Y - large.layer(large.X)) == pytest.approx(0.2, rel=0.05)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_printed_targets_of_memory_leave_out_the_own_token(noise):
    """Equation 14 is the sum over stored pairs; equation 5 has the last token's term besides."""
    whole, printed = (
        associative_memory(50, 3, unitary=0.5, noise=noise, own_token=own) for own in (True, False)
    )
    np.testing.assert_array_equal(printed.X, whole.X)
    assert printed.layer == whole.layer
    keys, values, query, zeta, _ = parts(printed.X)
    stored = sum(
        np.sum(query * keys[:, t], axis=1)[:, None] * values[:, t] for t in range(keys.shape[1])
    )
    own = np.sum(query**2, axis=1)[:, None] * zeta
    drawn = whole.Y - whole.layer(whole.X)
    np.testing.assert_allclose(printed.Y, stored + drawn, atol=1e-12)
    np.testing.assert_allclose(printed.unmodelled, -own, atol=1e-12)
    np.testing.assert_allclose(printed.Y, printed.layer(printed.X) + drawn - own, atol=1e-12)
    assert whole.unmodelled is None
    assert np.std(own) > 1
    with pytest.raises(InvalidType, match="own_token must be True or False; got 1"):
        associative_memory(2, 2, own_token=1)


@pytest.mark.parametrize(("unitary", "expected"), [(0.0, 0), (0.25, 10), (0.95, 38), (1.0, 40)])
def test_mixture(unitary, expected):
    keys = parts(associative_memory(40, 3, unitary).X)[0]
    gram = keys @ keys.transpose(0, 2, 1)
    is_unitary = np.all(np.abs(gram - np.eye(3)) < 1e-12, axis=(1, 2))
    assert np.count_nonzero(is_unitary) == expected


def test_orthogonal_keys_are_uniform():
    """Each entry of a uniform orthogonal matrix is symmetric about 0 with variance 1/d."""
    keys = parts(associative_memory(4000, 3, 1.0).X)[0]
    assert np.max(np.abs(keys.mean(axis=0))) < 5 / np.sqrt(3 * 4000)
    np.testing.assert_allclose((keys**2).mean(axis=0), np.full((3, 3), 1 / 3), atol=0.03)


def memory_spectrum(unitary):
    """Eigenvalues of the second moment of the features of 2^14 sequences with 4 keys."""
    batch = as_batch(associative_memory(2**14, 4, unitary).X)
    total = 0.0
    for block in SeenSequences(Layout.plain(batch.n_dims), batch).blocks():
        psi = all_products(block.sums, block.queries)
        total = total + psi @ psi.T
    return np.linalg.eigvalsh(total / len(batch))


def test_memory_has_the_spectrum_of_the_paper():
    """The paper reports lambda_min = 0.06 for 95 % unitary; it varies with the sample."""
    assert memory_spectrum(0.95)[0] == pytest.approx(0.06, abs=0.01)
    assert memory_spectrum(0.0)[0] == pytest.approx(2.5, rel=0.05)
    unitary = memory_spectrum(1.0)
    assert unitary[0] < 1e-12
    assert np.count_nonzero(unitary > 1e-9 * unitary[-1]) == 248
    assert len(unitary) == 288


# Misuse -------------------------------------------------------------------------------------

BAD = [
    (lambda: random_layer(0), "n_dims must be an integer of at least 1; got 0"),
    (lambda: random_layer(2.0), "n_dims must be an integer of at least 1; got 2.0"),
    (lambda: random_layer(True), "n_dims must be an integer of at least 1; got True"),
    (lambda: random_layer(2, 0), "n_outputs must be"),
    (lambda: random_layer(2, n_heads=0), "n_heads must be"),
    (lambda: random_layer(2, mode="first"), "mode must be one of 'last', 'causal', 'full'"),
    (lambda: random_layer(2, random_state=True), "random_state must be .* got True"),
    (lambda: random_layer(2, random_state=-1), "random_state must be .* got -1"),
    (lambda: random_layer(2, random_state="a"), "random_state must be .* got 'a'"),
    (lambda: random_sequences(0, 2, 2), "n_sequences must be"),
    (lambda: random_sequences(2, 0, 2), "n_tokens must be"),
    (lambda: random_sequences(2, (0, 3), 2), "n_tokens must be"),
    (lambda: random_sequences(2, (4, 3), 2), "shortest <= longest; got \\(4, 3\\)"),
    (lambda: random_sequences(2, (1, 2, 3), 2), "a pair \\(shortest, longest\\)"),
    (lambda: random_sequences(2, 2, 2, scale=-1.0), "scale must be a finite number >= 0; got -1"),
    (lambda: random_sequences(2, 2, 2, scale=np.inf), "scale must be a finite number"),
    (lambda: random_sequences(2, 2, 2, scale="1"), "scale must be a finite number"),
    (lambda: planted(2, 2, 2, noise=-0.1), "noise must be"),
    (lambda: planted(2, 2, 2, noise=np.nan), "noise must be .* got nan"),
    (lambda: associative_memory(2, 0), "n_keys must be"),
    (lambda: associative_memory(2, 2, unitary=1.5), "unitary must be a number between 0 and 1"),
    (lambda: associative_memory(2, 2, fill=-1), "fill must be"),
    (lambda: associative_memory(2, 2, noise=True), "noise must be .* got True"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_misuse(call, message):
    with pytest.raises(InvalidInput, match=message):
        call()


# ---------------------------------------------------------------- parameters as everywhere


def test_a_layer_that_is_drawn_can_have_a_constant_coordinate():
    task = planted(400, 8, 3, n_heads=2, bias=True, random_state=0)
    assert (task.X.shape[2], task.layer.n_dims, task.layer.attn.shape[1]) == (3, 3, 4)
    found = pa.fit(task.X, task.Y, mode="causal", bias=True)
    assert pa.same_function(found.layer, task.layer)
    drawn = [
        pa.data.random_softmax_layer(3, bias=True),
        pa.data.hard_softmax_layer("close", 3, bias=True),
        pa.data.planted_softmax(5, 4, 3, bias=True, family="scales").layer,
    ]
    assert [(layer.bias, layer.n_dims, layer.n_outputs) for layer in drawn] == 3 * [(True, 3, 3)]
    with pytest.raises(InvalidType, match="bias must be True or False"):
        random_layer(3, bias=1)


def test_none_draws_others_every_time_and_seeds_the_same():
    first, second = (random_layer(3, random_state=None) for _ in range(2))
    assert first != second
    older = [random_layer(3, random_state=np.random.RandomState(5)) for _ in range(2)]
    assert older[0] == older[1]
    going_on = np.random.default_rng(5)
    assert random_layer(3, random_state=going_on) != random_layer(3, random_state=going_on)
