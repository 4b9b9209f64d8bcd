"""Trained baselines: their fast forms are the layer, and training is what it says."""

import math
import time
from importlib.util import find_spec

import numpy as np
import pytest

from polyattn.data import planted, planted_softmax, random_layer
from polyattn.errors import InvalidInput

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

from polyattn_papers.baselines import forms
from polyattn_papers.baselines.linear import LinearHeads, LinearStack, generator_of
from polyattn_papers.baselines.threads import fastest_n_threads, n_threads
from polyattn_papers.baselines.train import Limit, cosine, draws, epochs, growing, train
from polyattn_papers.baselines.train_softmax import train_softmax
from polyattn_papers.baselines.train_validated import (
    AdamSettings,
    LabelledSequences,
    train_validated,
)
from polyattn_papers.baselines.transformer import Transformer

SIZES = [(1, 1, 1), (2, 3, 1), (3, 2, 4), (4, 4, 16), (16, 16, 2)]
TOLERANCE = 1e-12


@pytest.fixture(autouse=True)
def _one_thread():
    """Steps this small only wait for each other on several."""
    with n_threads(1):
        yield


def sequences(n_dims, n_sequences=3, n_tokens=7, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.standard_normal((n_sequences, n_tokens, n_dims)))


def every_form(X, attn, value):
    return {
        "scores": forms.by_scores(X, attn, value),
        "grams": forms.by_grams(forms.running_grams(X), X, attn, value),
        "features": forms.by_features(forms.cubic_features(X), attn, value),
        "unkept": forms.linear_attention(X, attn, value),
    }


def task(n_dims=2, seed=0):
    made = planted(96, 10, n_dims, random_state=seed)
    return LabelledSequences(made.X[:64], made.Y[:64]), LabelledSequences(made.X[64:], made.Y[64:])


def trained(limit, seed=0, n_heads=4):
    model = LinearHeads(2, 2, n_heads, generator_of(seed))
    settings = AdamSettings(batch_size=16, seed=seed)
    return train_validated(model, *task(), limit, settings)


@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads"), SIZES)
def test_every_form_is_the_layer(n_dims, n_outputs, n_heads):
    layer = random_layer(n_dims, n_outputs, n_heads, mode="causal")
    X = sequences(n_dims)
    attn, value = torch.tensor(layer.attn), torch.tensor(layer.value)
    expected = layer(X.numpy())
    for name, outputs in every_form(X, attn, value).items():
        error = np.abs(outputs.numpy() - expected).max()
        assert error <= TOLERANCE * np.abs(expected).max(), name


def test_a_form_that_sees_the_future_is_told_apart():
    """Negative control."""
    layer = random_layer(3, mode="causal")
    X = sequences(3)
    outputs = forms.by_scores(X, torch.tensor(layer.attn), torch.tensor(layer.value)).numpy()
    whole = type(layer)(layer.attn, layer.value, mode="full")(X.numpy())
    assert np.abs(outputs - whole).max() > 0.01
    np.testing.assert_allclose(outputs[:, -1], whole[:, -1], rtol=1e-10)


@pytest.mark.parametrize(("n_dims", "n_outputs", "n_heads"), SIZES)
def test_all_forms_have_the_same_gradients(n_dims, n_outputs, n_heads):
    layer = random_layer(n_dims, n_outputs, n_heads, mode="causal")
    X = sequences(n_dims)
    gradients = {}
    for name in ("scores", "grams", "features", "unkept"):
        parameters = [torch.tensor(p, requires_grad=True) for p in (layer.attn, layer.value)]
        every_form(X, *parameters)[name].square().sum().backward()
        gradients[name] = torch.cat([p.grad.flatten() for p in parameters])
    scale = gradients["scores"].abs().max()
    for name, gradient in gradients.items():
        assert (gradient - gradients["scores"]).abs().max() <= TOLERANCE * scale, name


@pytest.mark.parametrize(("n_dims", "n_heads"), [(2, 1), (4, 16), (8, 1), (8, 8), (16, 1), (16, 2)])
def test_a_trained_layer_becomes_ours(n_dims, n_heads):
    model = LinearHeads(n_dims, 3, n_heads, generator_of(1)).double()
    X = sequences(n_dims)
    ours = model.as_layer()(X.numpy())
    outputs = model(*model.prepare(X)).detach().numpy()
    assert np.abs(outputs - ours).max() <= TOLERANCE * np.abs(ours).max()


def test_every_kept_form_is_chosen_somewhere():
    chosen = {forms.fastest_kept(d, n_heads) for d in (2, 4, 8, 16) for n_heads in (1, 2, 16)}
    assert chosen == {"features", "grams", "scores"}


@pytest.mark.parametrize(("n_dims", "n_heads"), [(2, 1), (4, 3), (16, 1)])
def test_a_stack_of_one_layer_is_that_layer(n_dims, n_heads):
    X = sequences(n_dims)
    single = LinearHeads(n_dims, 2, n_heads, generator_of(5)).double()
    stack = LinearStack(n_dims, 2, n_heads, 1, generator_of(5)).double()
    torch.testing.assert_close(stack(*stack.prepare(X)), single(*single.prepare(X)))


def test_a_stack_adds_each_layer_to_its_input():
    X = sequences(3)
    stack = LinearStack(3, 2, 2, 3, generator_of(0)).double()
    first, second, last = (layer.as_layer() for layer in stack.layers)
    hidden = X.numpy()
    for layer in (first, second):
        hidden = hidden + layer(hidden)
    expected = last(hidden)
    assert expected.shape == (3, 7, 2)
    error = np.abs(stack(X).detach().numpy() - expected).max()
    assert error <= TOLERANCE * np.abs(expected).max()


def test_a_transformer_does_not_see_the_future():
    model = Transformer(3, 2, 7, 2, 2, 8, seed=0).double()
    with torch.no_grad():
        model.reading.weight.normal_()
    X = sequences(3)
    changed = X.clone()
    changed[:, 5] += 1.0
    outputs, other = model(X), model(changed)
    torch.testing.assert_close(outputs[:, :5], other[:, :5])
    assert (outputs[:, 5:] - other[:, 5:]).abs().min() > 0


def test_a_transformer_is_drawn_from_its_seed_alone():
    state = torch.get_rng_state()
    first, second, other = (Transformer(2, 2, 5, 2, 1, 8, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.embedding.weight, second.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)


def test_a_transformer_learns_in_the_units_of_the_data():
    training, validation = task()
    units = [float(np.sqrt(np.mean(part**2))) for part in (training.X, training.Y)]
    model = Transformer(2, 2, 10, 2, 1, 8, 0, *units)
    run = train_validated(model, training, validation, Limit(n_steps=150), AdamSettings())
    power = np.mean(np.sum(validation.Y**2, axis=-1))
    # It starts from the output 0, so one step away its error is still about the power.
    assert run.errors[0] == pytest.approx(power, rel=0.5)
    assert run.best_error < 0.5 * power


def test_training_reduces_the_error_and_keeps_the_best():
    run = trained(Limit(n_steps=400))
    assert run.n_steps == 400
    assert run.best_error < 1e-3 * run.errors[0]
    validation = task()[1]
    layer = run.best_model.as_layer()
    again = np.mean(np.sum((layer(validation.X) - validation.Y) ** 2, axis=-1))
    assert again == pytest.approx(run.best_error, rel=1e-9)
    assert run.seconds[0] <= run.best_seconds <= run.seconds[-1]
    assert run.best_within(1) == run.errors[0]
    assert run.best_within(400) == run.best_error <= run.best_within(100) <= run.best_within(10)
    assert run.best_within(401) is None


def test_a_run_is_determined_by_its_seed():
    first, second, other = (trained(Limit(n_steps=60), seed) for seed in (0, 0, 1))
    assert first.errors == second.errors
    assert first.errors != other.errors


def test_a_run_that_time_stopped_is_repeated_by_its_steps():
    timed = trained(Limit(seconds=0.1))
    again = trained(Limit(n_steps=timed.n_steps))
    assert timed.seconds[-1] >= 0.1
    assert timed.errors == again.errors


def test_looking_is_not_timed():
    slow = []

    def linger(*_):
        time.sleep(0.02)
        slow.append(1)

    model = LinearHeads(2, 2, 1, generator_of(0))
    ticks = iter(range(1000))
    run = train_validated(
        model, *task(), Limit(seconds=6), AdamSettings(), linger, lambda: float(next(ticks))
    )
    assert run.n_steps == 6
    assert len(slow) == len(run.errors)


def test_a_run_that_diverges_ends_with_what_was_finite():
    training, validation = task()
    model = LinearStack(2, 2, 1, 4, generator_of(0))
    wild = AdamSettings(learning_rate=1e30)
    run = train_validated(model, training, validation, Limit(n_steps=1000), wild)
    assert run.n_steps < 1000
    assert all(math.isfinite(error) for error in run.errors)


# --- The loop that trains all of them ---


def quadratic():
    """A parameter of three numbers, and the mean square of its distance to four points."""
    points = torch.arange(12.0).reshape(4, 3)
    place = torch.zeros(3, requires_grad=True)
    return place, lambda batch: (points[batch] - place).square().mean()


def test_the_loop_is_the_loop_one_would_write():
    """Schedule, clipping and batches, bit by bit."""
    place, loss = quadratic()
    run = train(
        loss, torch.optim.Adam([place], lr=0.1), draws(4, 2, generator_of(0)), Limit(n_steps=5),
        schedule=lambda step, share: (step + 1) * (1 - share), max_norm=0.5,
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


def test_the_loop_looks_when_it_is_asked_to_and_at_the_end():
    def looked_at(looks, go_on=lambda _: True, **limit):
        place, loss = quadratic()
        seen, ticks = [], iter(range(1000))

        def look(n_steps, seconds):
            seen.append((n_steps, seconds))
            return go_on(n_steps)

        run = train(
            loss, torch.optim.SGD([place], lr=0.1), epochs(4, 4, generator_of(0)), Limit(**limit),
            looks=looks, look=look, clock=lambda: float(next(ticks)),
        )  # fmt: skip
        assert run.n_steps == seen[-1][0] == run.seconds
        return [step for step, _ in seen]

    assert looked_at([2, 3], n_steps=6) == [2, 3, 6]
    assert looked_at([6], n_steps=6) == [6]
    assert looked_at([], seconds=4.0) == [4]
    assert looked_at(growing(2.0), seconds=9.0) == [1, 2, 4, 8, 9]
    assert looked_at(growing(1.15), n_steps=9) == [1, 2, 3, 4, 5, 6, 7, 9]
    assert looked_at([2, 5, 7], go_on=lambda step: step < 5, n_steps=9) == [2, 5]


def test_the_rate_falls_with_time_where_time_is_the_limit():
    shares, ticks = [], iter(range(100))
    place, loss = quadratic()
    train(
        loss, torch.optim.SGD([place], lr=0.1), epochs(4, 4, generator_of(0)), Limit(seconds=4.0),
        schedule=lambda _, share: shares.append(share) or 1.0, clock=lambda: float(next(ticks)),
    )  # fmt: skip
    assert shares == [0.0, 0.25, 0.5, 0.75]
    assert [cosine(0, share) for share in (0.0, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0])


def test_an_epoch_has_every_example_once():
    batches = epochs(5, 2, generator_of(0))
    first, second = ([next(batches) for _ in range(3)] for _ in range(2))
    assert [len(batch) for batch in first] == [2, 2, 1]
    orders = [torch.cat(batches).tolist() for batches in (first, second)]
    assert [sorted(order) for order in orders] == [list(range(5))] * 2
    assert orders[0] != orders[1]


def test_softmax_heads_are_trained_and_a_number_of_steps_repeats_itself():
    task = planted_softmax(200, 4, 4, random_state=1)
    none, some, again = (
        train_softmax(task.X, task.Y, 1, Limit(n_steps=n), seed=2) for n in (1, 300, 300)
    )
    errors = [np.mean((layer(task.X) - task.Y) ** 2) for layer in (none, some)]
    assert errors[1] < 0.1 * errors[0]
    np.testing.assert_array_equal(some.attn, again.attn)


@pytest.mark.parametrize("limits", [{}, {"seconds": 0.0}, {"n_steps": -1}, {"seconds": math.nan}])
def test_a_limit_must_limit(limits):
    with pytest.raises(InvalidInput, match="limit"):
        Limit(**limits)


def test_width_and_heads_of_a_transformer_must_fit():
    with pytest.raises(InvalidInput, match="width"):
        Transformer(2, 2, 5, 3, 1, 8, seed=0)


def test_threads_are_given_back():
    with n_threads(2):
        assert fastest_n_threads(lambda: None) in {1, 2}
        with n_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1


def test_the_form_can_be_asked_for():
    X, made = sequences(4).float(), {}
    for form in ("scores", "grams", "features"):
        model = LinearHeads(4, 4, 2, generator_of(0), form)
        assert model.form == form
        made[form] = model(*model.prepare(X)).detach()
    torch.testing.assert_close(made["scores"], made["grams"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(made["scores"], made["features"], rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidInput, match="form must be one of"):
        LinearHeads(4, 4, 2, generator_of(0), "kernels")
