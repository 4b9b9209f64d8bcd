"""Trained baselines: their fast forms are the layer, and training is what it says."""

import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput

torch = pytest.importorskip("torch", reason="the baselines need torch")

from polyattn_papers.baselines import forms, model_grids, train_epochs  # noqa: E402
from polyattn_papers.baselines import train as loop  # noqa: E402
from polyattn_papers.baselines import train_validated as validated  # noqa: E402
from polyattn_papers.baselines.linear import LinearHeads, LinearStack, generator_of  # noqa: E402
from polyattn_papers.baselines.threads import n_threads  # noqa: E402
from polyattn_papers.baselines.train_softmax import train_softmax  # noqa: E402
from polyattn_papers.baselines.train_starts import StartsSettings, train_starts  # noqa: E402
from polyattn_papers.baselines.train_transformer import (  # noqa: E402
    TransformerSettings,
    train_transformer,
)
from polyattn_papers.baselines.transformer import Transformer  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread():
    """Steps this small only wait for each other on several."""
    with n_threads(1):
        yield


def sequences(n_dims, seed=0):
    return torch.tensor(np.random.default_rng(seed).standard_normal((3, 7, n_dims)))


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 1), (3, 2, 4), (4, 4, 16), (16, 16, 2)])
def test_every_form_is_the_layer_and_has_its_gradients(sizes):
    d, e, n_heads = sizes
    layer, X = oracle.random_layer({}, d, n_heads=n_heads, n_outputs=e), sequences(d)
    expected = np.array([oracle.forward(layer, x, {"mode": "causal"}) for x in X.numpy()])
    gradients = []
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
        ours = oracle.fields_of_layer(model.as_layer())
        expected = np.array([oracle.forward(ours, x, {"mode": "causal"}) for x in X.numpy()])
        outputs = model(*model.prepare(X)).detach().numpy()
        assert oracle.relative_error(outputs, expected) < 1e-13


def test_stacks_add_each_layer_to_its_input_and_transformers_see_no_later_token():
    X = sequences(3)
    stack = LinearStack(3, 2, 2, 3, generator_of(0)).double()
    first, second, last = (layer.as_layer() for layer in stack.layers)
    hidden = X.numpy() + first(X.numpy())
    expected = last(hidden + second(hidden))
    assert oracle.relative_error(stack(X).detach().numpy(), expected) < 1e-12
    state = torch.get_rng_state()
    models = [Transformer(3, 2, 7, 2, 2, 8, seed, 2.0, 5.0).double() for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), state)
    weights = [model.embedding.weight for model in models]
    assert [torch.equal(weights[0], each) for each in weights] == [True, True, False]
    assert not models[0](X).any()
    with torch.no_grad():
        models[0].reading.weight.normal_()
    changed = X.clone()
    changed[:, 5] += 1.0
    outputs, other = models[0](X), models[0](changed)
    torch.testing.assert_close(outputs[:, :5], other[:, :5])
    assert (outputs[:, 5:] - other[:, 5:]).abs().min() > 0


def quadratic():
    """A parameter of three numbers, and the mean square of its distance to four points."""
    points, place = torch.arange(12.0).reshape(4, 3), torch.zeros(3, requires_grad=True)
    return place, lambda batch: (points[batch] - place).square().mean()


def test_the_loop_is_the_loop_one_would_write():
    """Schedule, clipping and batches, bit by bit; it looks when it is asked to, and at the end."""
    place, loss = quadratic()
    run = loop.train(
        loss, torch.optim.Adam([place], lr=0.1), loop.draws(4, 2, generator_of(0)),
        loop.Limit(n_steps=5), lambda step, share: (step + 1) * (1 - share), max_norm=0.5,
    )  # fmt: skip
    other, loss = quadratic()
    optimiser, generator, losses = torch.optim.Adam([other], lr=0.1), generator_of(0), []
    for step in range(5):
        optimiser.param_groups[0]["lr"] = 0.1 * ((step + 1) * (1 - step / 5))
        optimiser.zero_grad()
        value = loss(torch.randint(4, (2,), generator=generator))
        value.backward()
        torch.nn.utils.clip_grad_norm_([other], 0.5)
        optimiser.step()
        losses.append(value.item())
    assert torch.equal(place, other)
    assert (run.losses, run.n_steps) == (losses, 5)
    for looks, stop, limit, expected in (
        ([2, 3], 99, {"n_steps": 6}, [2, 3, 6]), ([], 99, {"seconds": 4.0}, [4]),
        (loop.growing(2.0), 99, {"seconds": 9.0}, [1, 2, 4, 8, 9]),
        (loop.growing(1.15), 99, {"n_steps": 9}, [1, 2, 3, 4, 5, 6, 7, 9]),
        ([2, 5, 7], 5, {"n_steps": 9}, [2, 5]),
    ):  # fmt: skip
        seen, shares, ticks = [], [], iter(range(1000))
        loop.train(
            loss, torch.optim.SGD([other], lr=0.1), loop.epochs(4, 4, generator_of(0)),
            loop.Limit(**limit), lambda _, share, to=shares: to.append(share) or 1.0, looks=looks,
            look=lambda n, _, to=seen, stop=stop: to.append(n) or n < stop,
            clock=lambda ticks=ticks: float(next(ticks)),
        )  # fmt: skip
        assert seen == expected
        assert shares[:2] == [0.0, 1 / next(iter(limit.values()))]
    assert [loop.cosine(0, share) for share in (0.0, 0.5, 1.0)] == pytest.approx([1, 0.5, 0])
    batches = loop.epochs(5, 2, generator_of(0))
    orders = [[next(batches).tolist() for _ in range(3)] for _ in range(2)]
    assert [[len(batch) for batch in order] for order in orders] == [[2, 2, 1]] * 2
    assert [sorted(sum(order, [])) for order in orders] == [list(range(5))] * 2
    assert orders[0] != orders[1]


def test_training_keeps_the_best_and_is_determined_by_its_seed():
    made = pa.data.planted(96, 10, 2, random_state=0)
    parts = [validated.LabelledSequences(made.X[s], made.Y[s]) for s in (slice(64), slice(64, 96))]

    def trained(seed=0, rate=0.01, model=None, n_steps=200):
        model = LinearHeads(2, 2, 4, generator_of(seed)) if model is None else model
        settings = validated.AdamSettings(rate, 16, seed=seed)
        return validated.train_validated(model, *parts, loop.Limit(n_steps=n_steps), settings)

    run, again, other = trained(), trained(), trained(1)
    assert run.errors == again.errors != other.errors
    assert run.best_error < 1e-2 * run.errors[0]
    away = run.best_model.as_layer()(parts[1].X) - parts[1].Y
    assert np.mean(np.sum(away**2, axis=-1)) == pytest.approx(run.best_error, rel=1e-9)
    assert run.best_within(1) == run.errors[0]
    assert run.best_within(200) == run.best_error <= run.best_within(100)
    assert run.best_within(201) is None
    wild = trained(rate=1e30, model=LinearStack(2, 2, 1, 4, generator_of(0)))
    assert wild.n_steps < 200
    assert np.all(np.isfinite(wild.errors))
    units = [float(np.sqrt(np.mean(part**2))) for part in (made.X, made.Y)]
    model = Transformer(2, 2, 10, 2, 1, 8, 0, *units)
    power = np.mean(np.sum(parts[1].Y ** 2, axis=-1))
    run = trained(model=model, n_steps=150)
    assert run.errors[0] == pytest.approx(power, rel=0.5)
    assert run.best_error < 0.5 * power


D, N, SEEDS, RATES = 3, 20, (4, 7), (0.02, 0.003)


def seeded(seed=0):
    X = np.random.default_rng(seed).standard_normal((2, N, 6, D)) / np.sqrt(6)
    return train_epochs.SeededSequences(X, np.cumsum(X[..., :1] ** 2, axis=2) * X[..., 1:2])


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_models_side_by_side_are_trained_as_if_each_were_alone(decay):
    """By masked scores, in torch's loop, one by one; a stack, and one that runs away, beside."""
    settings = train_epochs.EpochSettings(RATES, 8, (1, 4), decay)
    grid, sizes = model_grids.HeadGrid(D, (1, 2, 5), SEEDS, 2), (1, 2, 5)
    stack = model_grids.StackGrid(D, 3, SEEDS, 2)
    starts = [[part[0].detach().clone() for part in layer] for layer in stack.layers[0]]
    runs = [
        train_epochs.train_epochs(each, seeded(), seeded(1), settings) for each in (grid, stack)
    ]
    assert (runs[0].errors.shape, runs[0].n_steps) == ((2, 2, 6), 12)

    def alone(layers, s, rate):
        """The error after the plain loop, of layers each added to its input but the last."""
        parts = [part.requires_grad_() for layer in layers for part in layer]
        optimiser = torch.optim.AdamW(parts, lr=rate, weight_decay=decay)
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
        error = runs[0].errors[-1, s, 3 * r + m]
        assert error == pytest.approx(alone([layer], s, RATES[r]), rel=1e-3)
        found = grid.layer(s, r, m)
        np.testing.assert_allclose(found.attn, layer[0].detach(), atol=2e-4)
        away = found(seeded(1).X[s]) - seeded(1).Y[s]
        assert np.mean(away**2) == pytest.approx(error, rel=1e-9)
    layers = [[part[None] for part in layer] for layer in starts]
    assert runs[1].errors[-1, 0, 0] == pytest.approx(alone(layers, 0, RATES[0]), rel=1e-3)
    wild = train_epochs.EpochSettings((RATES[0], 1e30), 8, (1, 4), decay)
    run = train_epochs.train_epochs(
        model_grids.StackGrid(D, 3, SEEDS, 2), seeded(), seeded(1), wild
    )
    assert np.all(np.isinf(run.errors[-1, :, 1]))
    np.testing.assert_allclose(run.errors[..., 0], runs[1].errors[..., 0], rtol=1e-5)


def test_starts_softmax_heads_and_transformers_learn_and_repeat_themselves():
    task = pa.data.associative_memory(512, 2, unitary=0.5)

    def risks(layers):
        return [np.mean((layer(task.X) - task.Y) ** 2) for layer in layers]

    for small in (False, True):
        few, many, again = (
            train_starts(task.X, task.Y, StartsSettings(2, 3, n, small)) for n in (1, 400, 400)
        )
        assert np.all(np.array(risks(many)) < 0.5 * np.array(risks(few)))
        np.testing.assert_array_equal(again[1].attn, many[1].attn)
        assert pa.coefficient_distance(many[0], many[1]) > 1e-6
    task = pa.data.planted_softmax(200, 4, 4, random_state=1)
    few, many, again = (
        train_softmax(task.X, task.Y, 1, loop.Limit(n_steps=n), seed=2) for n in (1, 300, 300)
    )
    assert risks([many])[0] < 0.1 * risks([few])[0]
    np.testing.assert_array_equal(many.attn, again.attn)
    program = pa.programs.universal_dfa(2, 2, 2, style="one_hot")
    traces, fresh = (
        pa.programs.traces(program, count, seed, lengths=(2, 2))
        for seed, count in ((0, 60), (1, 40))
    )

    def learned(n_steps, seed=0):
        settings = TransformerSettings(2, 32, 2, n_steps, 32, 5e-3, 10, 50, 6, 0.99, seed)
        return train_transformer(traces, fresh, settings)

    assert learned(200).accuracy > 0.95
    assert learned(50) == learned(50) != learned(50, 1)
    mixed = pa.programs.traces(pa.programs.universal_dfa(2, 2, 3, style="one_hot"), 10)
    registers = pa.programs.traces(pa.programs.universal_dfa(2, 2, 3), 3, lengths=(3, 3))
    some = TransformerSettings(1, 8, 1, 1, 1, 1e-3, 1, 1, 1, 1.0)
    for call, word in (
        (lambda: train_transformer(mixed, mixed, some), "lengths"),
        (lambda: train_transformer(registers, registers, some), "one-hot"),
        (loop.Limit, "limit"), (lambda: loop.Limit(seconds=0.0), "limit"),
        (lambda: loop.Limit(n_steps=-1), "limit"), (lambda: loop.Limit(seconds=np.nan), "limit"),
        (lambda: Transformer(2, 2, 5, 3, 1, 8, seed=0), "width"),
        (lambda: LinearHeads(4, 4, 2, generator_of(0), "kernels"), "form"),
        (lambda: train_epochs.EpochSettings(RATES, 8, (1, 1)), "looks"),
        (lambda: train_epochs.EpochSettings(RATES, 8, (0, 1)), "looks"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=word):
            call()
