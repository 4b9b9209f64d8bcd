"""Trained baselines: their fast forms are the layer, and training is what it says."""

import numpy as np
import pytest

import oracle
from polyattn.errors import InvalidInput

torch = pytest.importorskip("torch", reason="the baselines need torch")

from polyattn_papers.baselines import forms, model_grids, train_epochs  # noqa: E402
from polyattn_papers.baselines import train as loop  # noqa: E402
from polyattn_papers.baselines.linear import LinearHeads, generator_of  # noqa: E402
from polyattn_papers.baselines.threads import n_threads  # noqa: E402
from polyattn_papers.baselines.transformer import Transformer  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    """Steps this small only wait for each other on several."""
    with n_threads(1):
        yield


def sequences(n_dims, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal((3, 7, n_dims)))


@pytest.mark.parametrize(("d", "e", "n_heads"), [(1, 1, 1), (3, 2, 4), (16, 16, 2)])
def test_every_form_is_the_layer_and_has_its_gradients(d, e, n_heads):
    def outputs_of(layer):
        return [oracle.forward(layer, x, {"mode": "causal"}) for x in X.numpy()]

    layer, X = oracle.random_layer({}, d, n_heads=n_heads, n_outputs=e), sequences(d)
    expected, gradients = np.array(outputs_of(layer)), []
    for form in (
        forms.by_scores, forms.linear_attention,
        lambda X, *heads: forms.by_grams(forms.running_grams(X), X, *heads),
        lambda X, *heads: forms.by_features(forms.cubic_features(X), *heads),
    ):  # fmt: skip
        heads = [torch.tensor(layer[name], requires_grad=True) for name in ("attn", "value")]
        found = form(X, *heads)
        assert oracle.relative_error(found.detach().numpy(), expected) < 1e-13
        found.square().sum().backward()
        gradients.append(np.concatenate([each.grad.numpy().ravel() for each in heads]))
        assert oracle.relative_error(gradients[-1], gradients[0]) < 1e-12
    for form in ("features", "grams", "scores", None):
        model = LinearHeads(d, e, n_heads, generator_of(1), form).double()
        assert form in (None, model.form)
        expected = np.array(outputs_of(oracle.fields_of_layer(model.as_layer())))
        outputs = model(*model.prepare(X)).detach().numpy()
        assert oracle.relative_error(outputs, expected) < 1e-13


D, N, SEEDS, RATES = 3, 20, (4, 7), (0.02, 0.003)


def seeded(seed=0):
    X = np.random.default_rng(seed).standard_normal((2, N, 6, D)) / np.sqrt(6)
    return train_epochs.SeededSequences(X, np.cumsum(X[..., :1] ** 2, axis=2) * X[..., 1:2])


def test_models_side_by_side_are_trained_as_if_each_were_alone():
    """By masked scores, in torch's loop, one by one; a stack beside."""
    settings, sizes = train_epochs.EpochSettings(RATES, 8, (1, 4), weight_decay=0.3), (1, 2, 5)
    grid, stack = model_grids.HeadGrid(D, sizes, SEEDS, 2), model_grids.StackGrid(D, 3, SEEDS, 2)
    starts = [[part[0].detach().clone() for part in layer] for layer in stack.layers[0]]
    found_by_grid, found_by_stack = (
        train_epochs.train_epochs(each, seeded(), seeded(1), settings) for each in (grid, stack)
    )
    assert (found_by_grid.errors.shape, found_by_grid.n_steps) == ((2, 2, 6), 12)

    def alone(layers, s, rate):
        """The error after the plain loop, of layers each added to its input but the last."""
        parts = [part.requires_grad_() for layer in layers for part in layer]
        optimiser = torch.optim.AdamW(parts, lr=rate, weight_decay=0.3)
        batches = loop.epochs(N, 8, generator_of(0))

        def loss(data, batch):
            X, Y = (torch.tensor(part[s], dtype=torch.float32)[batch] for part in (data.X, data.Y))
            for layer in layers[:-1]:
                X = X + forms.by_scores(X, *layer)
            return (forms.by_scores(X, *layers[-1]) - Y).square().mean()

        for _ in range(12):
            optimiser.zero_grad()
            loss(seeded(), next(batches)).backward()
            optimiser.step()
        return float(loss(seeded(1), slice(None)).detach())

    for s, r, m in np.ndindex(2, 2, 3):
        layer = model_grids.start(D, 1, sizes[m], SEEDS[s])
        error = found_by_grid.errors[-1, s, 3 * r + m]
        assert error == pytest.approx(alone([layer], s, RATES[r]), rel=1e-3)
        found = grid.layer(s, r, m)
        np.testing.assert_allclose(found.attn, layer[0].detach(), atol=2e-4)
        away = found(seeded(1).X[s]) - seeded(1).Y[s]
        assert np.mean(away**2) == pytest.approx(error, rel=1e-9)
    layers = [[part[None] for part in layer] for layer in starts]
    assert found_by_stack.errors[-1, 0, 0] == pytest.approx(alone(layers, 0, RATES[0]), rel=1e-3)


def test_misuse_is_named():
    for call, word in (
        (lambda: loop.Limit(seconds=0.0), "limit"), (lambda: loop.Limit(n_steps=-1), "limit"),
        (lambda: Transformer(2, 2, 5, 3, 1, 8, seed=0), "width"),
        (lambda: train_epochs.EpochSettings(RATES, 8, (1, 1)), "looks"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=word):
            call()
