"""Baselines: fast forms are the layer, strings are automata, training is what it says."""

import numpy as np
import pytest
import torch

import oracle
from machine_oracles import dfa_states
from polyattn.errors import InvalidInput
from polyattn_papers.baselines import forms, model_grids, train_epochs
from polyattn_papers.baselines import train as loop
from polyattn_papers.baselines.decoder import Decoder, DecoderSizes
from polyattn_papers.baselines.linear import LinearHeads, generator_of
from polyattn_papers.baselines.threads import n_threads
from polyattn_papers.baselines.train_decoder import (
    DecoderSettings,
    ReadTokens,
    shares_right,
    train_decoder,
)
from polyattn_papers.tasks.automata import Machines, letters_of
from polyattn_papers.tasks.automaton_strings import StringEncoding


@pytest.fixture(autouse=True)
def _one_thread():
    """Steps this small only wait for each other on several."""
    with n_threads(1):
        yield


@pytest.mark.parametrize(("d", "e", "n_heads"), [(1, 1, 1), (3, 2, 4), (16, 16, 2)])
def test_every_form_is_the_layer_and_has_its_gradients(d, e, n_heads):
    def outputs_of(layer):
        return [oracle.forward(layer, x, {"mode": "causal"}) for x in X.numpy()]

    layer = oracle.random_layer({}, d, n_heads=n_heads, n_outputs=e)
    X = torch.tensor(np.random.default_rng(0).standard_normal((3, 7, d)))
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
        away = grid.layer(s, r, m)(seeded(1).X[s]) - seeded(1).Y[s]
        assert np.mean(away**2) == pytest.approx(error, rel=1e-9)
    layers = [[part[None] for part in layer] for layer in starts]
    assert found_by_stack.errors[-1, 0, 0] == pytest.approx(alone(layers, 0, RATES[0]), rel=1e-3)


# ------------------------------------------- automata as strings of symbols [yau2024: figure 4]

TINY = StringEncoding(2, 2, 2)
READ = ReadTokens(TINY.n_symbols, TINY.n_history, TINY.new_states)


def strings(count, seed, encoding=TINY):
    return encoding.draw(count, np.random.default_rng(seed))


@pytest.mark.parametrize(("Q", "V", "L"), [(1, 1, 1), (3, 5, 1), (2, 1, 6), (8, 4, 4)])
def test_strings_are_the_histories_of_automata(Q, V, L):
    encoding = StringEncoding(Q, V, L)
    for string in strings(20, 1, encoding):
        assert len(string) == encoding.n_tokens == 5 * Q * V + 1 + L + 1 + 5 * L
        assert 0 <= string.min() <= string.max() == encoding.n_symbols - 1
        dfa, word, states = encoding.decode(string)
        assert states == [0, *dfa_states(dfa, word)]
        table = np.asarray(dfa.transitions)[None]
        np.testing.assert_array_equal(encoding.encode(table, np.array([word]))[0], string)


def test_a_string_written_by_hand_and_what_is_no_string():
    encoding = StringEncoding(2, 2, 3)
    (string,) = encoding.encode(np.array([[[0, 1], [1, 0]]]), np.array([[1, 0, 1]]))
    assert "".join("01ab()|"[s] for s in string) == "(0a0)(0b1)(1a1)(1b0)|bab|(0b1)(1a1)(1b0)"
    for place in range(encoding.n_tokens):
        step = place - (encoding.n_tokens - encoding.n_history)
        changed = string.copy()
        if step >= 0 and step % 5 in (1, 3):  # a wrong state is read as it stands
            changed[place] = 1 - string[place]
            states = encoding.decode(changed)[2]
            assert (states != encoding.decode(string)[2]) == (step % 5 == 3)
            continue
        changed[place] = 99
        with pytest.raises(InvalidInput):
            encoding.decode(changed)
    traces = Machines((3, 2, 5), 0, mixed=True).first(20)
    assert all(2 * letters_of(trace) + 1 == trace.n_rows for trace in traces)
    assert len({letters_of(trace) for trace in traces}) > 1


def test_the_decoder_repeats_itself_and_never_sees_what_comes_later():
    model, same = (Decoder(7, DecoderSizes(4, 4, 24), seed=1).double() for _ in range(2))
    assert all(map(torch.equal, model.parameters(), same.parameters()))
    ids = torch.tensor([[3, 1, 4, 1, 5, 0, 2, 6, 5], [1, 3, 4, 1, 5, 0, 2, 6, 5]])
    with torch.no_grad():
        found = model(ids, 9).numpy()
        for n in range(1, 10):  # symbols up to n alone, and all of these, in their order
            np.testing.assert_allclose(model(ids[:, :n], n).numpy(), found[:, :n], rtol=1e-9)
            assert n == 1 or np.abs(found[0, n - 1] - found[1, n - 1]).max() > 1e-9
        np.testing.assert_allclose(model(ids, 5).numpy(), found[:, -5:], rtol=1e-9)


def settings(**changes):
    chosen = {"n_epochs": 100, "n_steps": 500, "batch_size": 32, "learning_rate": 5e-3}
    chosen |= {"warm_up": 20, "look": 25, "patience": 100, "enough": 0.99, "seed": 0}
    return DecoderSettings(DecoderSizes(2, 2, 32), **(chosen | changes))


def test_training_learns_by_heart_repeats_itself_and_ends_when_told():
    few, fresh, state = strings(8, 0), strings(50, 1), torch.get_rng_state()
    by_heart = train_decoder(few, few, READ, settings())
    assert min(by_heart.accuracy, by_heart.hard_accuracy) >= 0.99
    assert by_heart.n_steps < 100
    runs = [train_decoder(few, fresh, READ, settings(n_steps=10, seed=s)) for s in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]
    assert runs[0].n_steps == 10
    assert torch.equal(torch.get_rng_state(), state)
    # States of other machines teach the form, and not the states.
    wrong = few.copy()
    wrong[:, -TINY.n_history :][:, 3::5] = 1 - wrong[:, -TINY.n_history :][:, 3::5]
    assert train_decoder(wrong, few, READ, settings(n_steps=30)).hard_accuracy < 0.9
    by_epochs = train_decoder(strings(40, 0), fresh, READ, settings(n_epochs=3))
    assert (by_epochs.n_steps, by_epochs.gave_up) == (3 * 2, False)
    stuck = train_decoder(few, fresh, READ, settings(learning_rate=0.0, look=2, patience=3))
    assert (stuck.n_steps, stuck.gave_up) == (2 * (1 + 3), True)


def test_shares_are_of_all_tokens_and_of_new_states():
    def copying(ids, n_read):
        """Knows everything but new states, of which it says the old ones."""
        said = torch.cat((ids, torch.zeros_like(ids[:, :1])), dim=1)[:, -n_read:].clone()
        said[:, 4::5], said[:, 3::5] = TINY.n_symbols - 2, said[:, 1::5].clone()
        return torch.nn.functional.one_hot(said, TINY.n_symbols)

    fresh = torch.tensor(strings(300, 5))
    steps = fresh[:, -TINY.n_history :].unflatten(1, (TINY.length, 5))
    same = (steps[..., 1] == steps[..., 3]).double().mean().item()
    all_tokens, states = shares_right(copying, fresh, READ)
    assert states == pytest.approx(same)
    assert all_tokens == pytest.approx(0.8 + 0.2 * same)
