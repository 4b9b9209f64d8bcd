"""The decoder of figure 4: a slow transcription agrees, and training is what it says."""

from importlib.util import find_spec

import numpy as np
import pytest

from polyattn.errors import InvalidInput
from polyattn_papers.tasks.automaton_strings import StringEncoding

if find_spec("torch") is None:
    pytest.skip("torch is not installed", allow_module_level=True)

import torch

from polyattn_papers.baselines.decoder import Decoder, DecoderSizes, rotated, rotations
from polyattn_papers.baselines.threads import n_threads
from polyattn_papers.baselines.train_decoder import (
    DecoderSettings,
    ReadTokens,
    shares_right,
    train_decoder,
)

TINY = StringEncoding(2, 2, 2)


def read_of(encoding):
    return ReadTokens(encoding.n_symbols, encoding.n_history, encoding.new_states)


READ = read_of(TINY)


@pytest.fixture(autouse=True)
def _one_thread():
    with n_threads(1):
        yield


def strings(count, seed, encoding=TINY):
    return encoding.draw(count, np.random.default_rng(seed))


def settings(**changes):
    chosen = {"n_epochs": 100, "n_steps": 500, "batch_size": 32, "learning_rate": 5e-3}
    chosen |= {"warm_up": 20, "look": 25, "patience": 100, "enough": 0.99, "seed": 0}
    return DecoderSettings(DecoderSizes(2, 2, 32), **(chosen | changes))


# --- The network ---


def slow_forward(model, ids):
    """Logits (n, symbols) of one string, position by position, in plain numpy."""
    weights = {name: each.detach().double().numpy() for name, each in model.named_parameters()}
    hidden = [weights["embedding.weight"][symbol] for symbol in ids]
    for number, block in enumerate(model.blocks):
        own = {
            name.removeprefix(f"blocks.{number}."): each
            for name, each in weights.items()
            if name.startswith(f"blocks.{number}.")
        }
        hidden = slow_block(hidden, own, block.n_heads)
    read = [slow_norm(h, weights["norm.weight"]) for h in hidden]
    return np.array([weights["reading.weight"] @ h for h in read])


def slow_norm(vector, weight):
    return vector / np.sqrt(np.mean(vector**2) + 1e-5) * weight


def slow_block(hidden, own, n_heads):
    width = len(hidden[0])
    each = width // n_heads
    normed = [slow_norm(h, own["attention_norm.weight"]) for h in hidden]
    queries = [own["queries.weight"] @ h for h in normed]
    keys = [own["keys_values.weight"][:width] @ h for h in normed]
    values = [own["keys_values.weight"][width:] @ h for h in normed]
    out = []
    for n, vector in enumerate(hidden):
        mixed = []
        for head in range(n_heads):
            part = slice(head * each, (head + 1) * each)
            query = slow_turn(queries[n][part], n)
            logits = np.array([query @ slow_turn(keys[m][part], m) for m in range(n + 1)])
            shares = np.exp(logits / np.sqrt(each) - np.max(logits / np.sqrt(each)))
            shares /= shares.sum()
            mixed.append(sum(s * values[m][part] for m, s in enumerate(shares)))
        after = vector + own["outward.weight"] @ np.concatenate(mixed)
        inner = own["gate_units.weight"] @ slow_norm(after, own["perceptron_norm.weight"])
        gate, units = np.split(inner, 2)
        out.append(after + own["down.weight"] @ (gate / (1 + np.exp(-gate)) * units))
    return out


def slow_turn(vector, position):
    """Pairs (i, i + half) as complex numbers, each turned by position times its frequency."""
    half = len(vector) // 2
    pairs = vector[:half] + 1j * vector[half:]
    pairs = pairs * np.exp(1j * position * 10_000.0 ** (-np.arange(half) / half))
    return np.concatenate([pairs.real, pairs.imag])


@pytest.mark.parametrize("sizes", [(1, 1, 2), (2, 2, 8), (4, 4, 24)])
def test_the_decoder_is_its_slow_transcription(sizes):
    model = Decoder(7, DecoderSizes(*sizes), seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():  # norms begin at one, where they could not be seen
            parameter += 0.3 * torch.randn(
                parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double
            )
        ids = torch.tensor([[3, 1, 4, 1, 5, 0, 2, 6, 5], [0] * 9])
        found = model(ids, 9).numpy()
    for one, string in zip(found, ids.tolist(), strict=True):
        expected = slow_forward(model, string)
        np.testing.assert_allclose(one, expected, atol=3e-6 * np.abs(expected).max())


@torch.no_grad()
def test_reading_fewer_tokens_gives_the_last_of_all():
    model = Decoder(5, DecoderSizes(2, 2, 16), seed=0)
    ids = torch.randint(5, (3, 12), generator=torch.Generator().manual_seed(0))
    whole = model(ids, 12)
    for n_read in (1, 5, 11, 12):
        torch.testing.assert_close(model(ids, n_read), whole[:, -n_read:])


@torch.no_grad()
def test_no_later_token_is_seen():
    model = Decoder(5, DecoderSizes(2, 2, 16), seed=0)
    ids = torch.randint(5, (2, 12), generator=torch.Generator().manual_seed(0))
    changed = ids.clone()
    changed[:, 7:] = (changed[:, 7:] + 1) % 5
    before, after = model(ids, 12), model(changed, 12)
    torch.testing.assert_close(before[:, :7], after[:, :7])
    assert not torch.isclose(before[:, 7:], after[:, 7:]).all(-1).any()


def test_rotations_depend_on_differences_of_positions_alone():
    query, key = torch.randn(2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    turned = [rotated(each.expand(20, 6), rotations(20, 6)) for each in (query, key)]
    products = turned[0] @ turned[1].T
    for difference in range(-19, 20):
        diagonal = products.diagonal(difference)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-5, rtol=0)
    assert products[5, 0] != products[4, 0]
    torch.testing.assert_close(turned[0].norm(dim=-1), query.norm().expand(20), rtol=1e-6, atol=0)


def test_parameters_are_counted_and_the_seed_decides():
    state = torch.get_rng_state()
    one, same, other = (Decoder(11, DecoderSizes(4, 4, 64), seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    block = 4 * 64**2 + 3 * 64 * 176 + 2 * 64
    assert sum(each.numel() for each in one.parameters()) == 4 * block + 2 * 11 * 64 + 64
    pairs = zip(one.parameters(), same.parameters(), other.parameters(), strict=True)
    for mine, equal, different in pairs:
        assert torch.equal(mine, equal)
        assert mine.ndim == 1 or not torch.equal(mine, different)


@pytest.mark.parametrize("sizes", [(2, 3, 16), (2, 4, 12), (0, 1, 8), (1, 0, 8), (1, 1, 0)])
def test_sizes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(InvalidInput, match=r"multiple of 2 n_heads|integer of at least 1"):
        DecoderSizes(*sizes)


# --- Training ---


def test_it_learns_strings_by_heart_and_repeats_itself():
    state = torch.get_rng_state()
    few, fresh = strings(8, 0), strings(50, 1)
    by_heart = train_decoder(few, few, READ, settings())
    assert torch.equal(torch.get_rng_state(), state)
    assert min(by_heart.accuracy, by_heart.hard_accuracy) >= 0.99
    assert by_heart.n_steps < 100
    untaught, again = (train_decoder(few, fresh, READ, settings(n_steps=20)) for _ in range(2))
    assert untaught == again
    assert untaught.n_steps == 20
    assert untaught.hard_accuracy < 0.9
    other = train_decoder(few, fresh, READ, settings(n_steps=20, seed=1))
    assert other != untaught


@pytest.mark.slow
def test_it_learns_automata_it_has_never_seen():
    encoding = StringEncoding(2, 3, 3)
    found = train_decoder(
        strings(1000, 0, encoding),
        strings(100, 1, encoding),
        read_of(encoding),
        settings(n_steps=1500),
    )
    assert min(found.accuracy, found.hard_accuracy) >= 0.99


def test_it_does_not_learn_from_wrong_histories():
    """Negative control: states of other machines teach the form, and not the states."""
    few = strings(8, 0)
    wrong = few.copy()
    wrong[:, -TINY.n_history :][:, 3::5] = 1 - wrong[:, -TINY.n_history :][:, 3::5]
    found = train_decoder(wrong, few, READ, settings(n_steps=60))
    assert found.hard_accuracy < 0.9


def test_epochs_and_patience_bound_the_steps():
    train, fresh = strings(40, 0), strings(20, 1)
    by_epochs = train_decoder(train, fresh, READ, settings(n_epochs=3))
    assert by_epochs.n_steps == 3 * 2
    assert not by_epochs.gave_up
    stuck = settings(learning_rate=0.0, look=2, patience=3)
    without_progress = train_decoder(train, fresh, READ, stuck)
    assert without_progress.gave_up
    assert without_progress.n_steps == 2 * (1 + 3)


class Copying:
    """A predictor that knows everything but new states, of which it says the old ones."""

    def __call__(self, ids, n_read):
        whole = torch.cat((ids, torch.zeros_like(ids[:, :1])), dim=1)
        said = whole[:, -n_read:].clone()
        said[:, 4::5] = TINY.n_symbols - 2
        said[:, 3::5] = said[:, 1::5]
        return torch.nn.functional.one_hot(said, TINY.n_symbols)


def test_shares_are_of_all_tokens_and_of_new_states():
    fresh = torch.tensor(strings(300, 5))
    steps = fresh[:, -TINY.n_history :].unflatten(1, (TINY.length, 5))
    same = (steps[..., 1] == steps[..., 3]).double().mean().item()
    all_tokens, states = shares_right(Copying(), fresh, READ)
    assert states == pytest.approx(same)
    assert all_tokens == pytest.approx(0.8 + 0.2 * same)
