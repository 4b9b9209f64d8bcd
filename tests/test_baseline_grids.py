"""Models trained side by side: as if each were alone, and as the plain modules are trained."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the baselines need torch")

from polyattn.errors import InvalidInput  # noqa: E402 – after torch is known to be there
from polyattn_papers.baselines.forms import by_scores  # noqa: E402
from polyattn_papers.baselines.model_grids import (  # noqa: E402
    HeadGrid,
    StackGrid,
    TransformerGrid,
    start,
)
from polyattn_papers.baselines.step_times import FEATURES, SCORES, step_time  # noqa: E402
from polyattn_papers.baselines.train import epochs  # noqa: E402
from polyattn_papers.baselines.train_epochs import (  # noqa: E402
    EpochSettings,
    SeededSequences,
    train_epochs,
)

D, N, T, SEEDS, RATES = 3, 20, 6, (4, 7), (0.02, 0.003)


def sequences(n_sequences=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((len(SEEDS), n_sequences, T, D)) / np.sqrt(T)
    Y = np.cumsum(X[..., :1] ** 2, axis=2) * X[..., 1:2]
    return SeededSequences(X, Y)


def settings(**changes):
    values = {"rates": RATES, "batch_size": 8, "looks": (1, 4)} | changes
    return EpochSettings(**values)


def trained_alone(parameters, forward, data, place, rate, chosen, n_epochs=4):
    """The plain loop: one model, one data set, torch's AdamW; the error on the validation data."""
    X, Y = (torch.tensor(part[place], dtype=torch.float32) for part in (data.X, data.Y))
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=chosen.weight_decay)
    batches = epochs(N, chosen.batch_size, torch.Generator().manual_seed(chosen.seed))
    for _ in range(n_epochs * 3):
        batch = next(batches)
        optimiser.zero_grad()
        (forward(X[batch]) - Y[batch]).square().mean().backward()
        optimiser.step()
    fresh = sequences(seed=1)
    X, Y = (torch.tensor(part[place], dtype=torch.float32) for part in (fresh.X, fresh.Y))
    with torch.no_grad():
        return float((forward(X) - Y).square().mean())


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_heads_by_moments_are_trained_as_the_plain_layer_is(decay):
    """By masked scores in float32, one by one: the same errors after 12 steps."""
    sizes, chosen = (1, 2, 5), settings(weight_decay=decay)
    grid = HeadGrid(D, sizes, SEEDS, len(RATES))
    run = train_epochs(grid, sequences(), sequences(seed=1), chosen)
    assert (run.errors.shape, run.n_steps) == ((2, 2, 6), 12)
    errors = run.errors[-1].reshape(len(SEEDS), len(RATES), len(sizes))
    for s, seed in enumerate(SEEDS):
        for r, rate in enumerate(RATES):
            for m, n_heads in enumerate(sizes):
                layer = [part.requires_grad_() for part in start(D, 1, n_heads, seed)]

                def forward(X, layer=layer):
                    return by_scores(X, *layer)

                alone = trained_alone(layer, forward, sequences(), s, rate, chosen)
                assert errors[s, r, m] == pytest.approx(alone, rel=1e-3)
                found = grid.layer(s, r, m)
                assert found.n_heads == n_heads
                np.testing.assert_allclose(found.attn, layer[0].detach(), atol=2e-4)
                np.testing.assert_allclose(found.value, layer[1].detach(), atol=2e-4)
    # Negative control: seeds, rates and sizes do differ.
    assert len(np.unique(np.round(errors, 7))) == errors.size


def test_errors_are_those_of_the_layers():
    grid, fresh = HeadGrid(D, (1, 3), SEEDS, 2), sequences(seed=1)
    run = train_epochs(grid, sequences(), fresh, settings())
    for s in range(2):
        for r in range(2):
            for m in range(2):
                outputs = grid.layer(s, r, m)(fresh.X[s])
                error = np.mean((outputs - fresh.Y[s]) ** 2)
                assert run.errors[-1, s, 2 * r + m] == pytest.approx(error, rel=1e-9)


def test_stacks_are_trained_as_the_plain_stack_is():
    chosen = settings()
    grid = StackGrid(D, 3, SEEDS, len(RATES))
    starts = [[part[0].detach().clone() for part in layer] for layer in grid.layers[0]]
    run = train_epochs(grid, sequences(), sequences(seed=1), chosen)
    layers = [[part[None].requires_grad_() for part in layer] for layer in starts]

    def forward(X):
        for attn, value in layers[:-1]:
            X = X + by_scores(X, attn, value)
        return by_scores(X, *layers[-1])

    alone = trained_alone(
        [p for one in layers for p in one], forward, sequences(), 0, RATES[0], chosen
    )
    assert run.errors[-1, 0, 0] == pytest.approx(alone, rel=1e-3)
    assert run.errors.shape == (2, 2, 2)


def test_transformers_are_trained_as_if_alone():
    units = [(1.0, 1.0)] * 2
    both = TransformerGrid(D, T, 2, 1, 4, SEEDS, 2, units)
    one = TransformerGrid(D, T, 2, 1, 4, SEEDS[:1], 1, units[:1])
    data, fresh = sequences(), sequences(seed=1)
    run = train_epochs(both, data, fresh, settings())
    first = [SeededSequences(part.X[:1], part.Y[:1]) for part in (data, fresh)]
    alone = train_epochs(one, *first, settings(rates=RATES[:1]))
    np.testing.assert_allclose(run.errors[:, :1, :1], alone.errors, rtol=1e-4)
    assert abs(run.errors[-1, 0, 0] / run.errors[-1, 0, 1] - 1) > 1e-3


def test_a_run_is_repeated_and_a_model_that_runs_away_disturbs_no_other():
    data, fresh = sequences(), sequences(seed=1)
    calm = train_epochs(StackGrid(D, 2, SEEDS, 1), data, fresh, settings(rates=(0.01,)))
    again = train_epochs(StackGrid(D, 2, SEEDS, 1), data, fresh, settings(rates=(0.01,)))
    np.testing.assert_array_equal(calm.errors, again.errors)
    wild = train_epochs(StackGrid(D, 2, SEEDS, 2), data, fresh, settings(rates=(0.01, 1e30)))
    assert np.all(np.isinf(wild.errors[-1, :, 1]))
    np.testing.assert_allclose(wild.errors[..., 0], calm.errors[..., 0], rtol=1e-5)


def test_epochs_whose_last_batch_is_smaller():
    assert settings().n_steps(20) == [3, 12]
    assert settings(batch_size=32).n_steps(20) == [1, 4]


@pytest.mark.parametrize("looks", [(), (2, 1), (0, 1), (1, 1)])
def test_looks_must_be_epochs_in_order(looks):
    with pytest.raises(InvalidInput, match="looks must be epochs from 1 on"):
        settings(looks=looks)


def test_the_time_of_a_step():
    """Sixteen heads by scores are 16 times the work of one; by features they are one matrix."""
    one, many = (step_time(SCORES, 2, 100, n_heads) for n_heads in (1, 16))
    assert 0 < one < many
    assert step_time(FEATURES, 2, 100, 16) < many
    with pytest.raises(InvalidInput, match="form must be"):
        step_time("grams", 2, 4, 1)
