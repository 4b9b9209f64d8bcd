"""decay="loo": the decay that data choose, with its error bar."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.features.products import apply_coef
from polyattn.form import Form
from polyattn.stats.rows import Rows


def planted(decay, mode="causal", noise=0.0, seed=0, n_sequences=40, n_tokens=40):
    """Sequences, and targets of a random layer with this decay."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_sequences, n_tokens, 2))
    rows = Rows.build(X, None, Form(mode=mode, decay=decay))
    coef = rng.standard_normal((1, rows.layout.n_sums, rows.layout.n_queries))
    Y = np.concatenate([apply_coef(coef, b.sums, b.queries).T for b in rows.blocks()])
    Y = Y + noise * Y.std() * rng.standard_normal(Y.shape)
    return X, (Y if mode == "last" else Y.reshape(*X.shape[:2], 1)), coef


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_a_planted_decay_is_found(decay):
    X, Y, coef = planted(decay)
    result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"))
    assert result.form.decay == pytest.approx(decay, abs=1e-6)
    np.testing.assert_allclose(result.coef, coef, atol=1e-5 * np.abs(coef).max())


def test_a_planted_decay_is_found_from_last_tokens():
    X, Y, _ = planted(0.8, "last", n_sequences=300, n_tokens=15)
    result = pa.fit(X, Y, form=Form(decay="loo"))
    assert result.form.decay == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.99])
def test_noise_moves_it_by_its_error_bar(decay):
    """Over seeds the deviations are those of a standard normal variable."""
    deviations = []
    for seed in range(4):
        X, Y, _ = planted(decay, noise=0.1, seed=seed, n_sequences=20)
        result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"))
        path = result.decay_path
        assert path.best == result.form.decay
        deviations.append((result.form.decay - decay) / path.error_bar)
    assert np.max(np.abs(deviations)) < 4.0
    assert np.max(np.abs(deviations)) > 0.1


def test_no_decay_is_found_where_there_is_none():
    X, Y, _ = planted(1.0)
    result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"))
    assert result.form.decay == pytest.approx(1.0, abs=1e-6)


def test_the_errors_are_those_of_leaving_out():
    X, Y, _ = planted(0.7, noise=0.2, n_sequences=12)
    result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"), ridge=0.5)
    path = result.decay_path
    at = len(path.decays) // 2
    form = Form(mode="causal", decay=float(path.decays[at]))
    left_out = 0.0
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        fitted = pa.fit(X[others], Y[others], form=form, ridge=0.5)
        left_out += np.sum((fitted.predict(X[i]) - Y[i]) ** 2)
    assert path.errors[at] == pytest.approx(left_out / Y.size, rel=1e-8)


def test_the_grid_of_ridges_is_that_of_the_user():
    X, Y, _ = planted(0.7, "last", noise=0.5, n_tokens=6)
    chosen = {"form": Form(decay="loo"), "ridge": "loo"}
    one, fixed = (
        pa.fit(X, Y, **chosen | given) for given in ({"ridge_grid": [9.0]}, {"ridge": 9.0})
    )
    assert one.decay_path.best == fixed.decay_path.best
    assert one.decay_path.best != pa.fit(X, Y, **chosen).decay_path.best


NOTHING_TO_SAY = {
    "single tokens": (np.random.default_rng(0).standard_normal((30, 1, 2)), Form(decay="loo")),
    "a window of one": (
        np.random.default_rng(0).standard_normal((30, 4, 2)), Form(decay="loo", window=1)
    ),
    "equal tokens": (
        np.repeat(np.random.default_rng(0).standard_normal((30, 1, 2)), 4, axis=1),
        Form(decay="loo"),
    ),
    "one token attended to": (
        np.random.default_rng(0).standard_normal((30, 2, 2)),
        Form(decay="loo", include_query=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("name", NOTHING_TO_SAY)
def test_data_that_say_nothing_of_the_decay_are_named(name, exact):
    X, form = NOTHING_TO_SAY[name]
    Y = np.random.default_rng(1).standard_normal((30, 1))
    if exact:
        Y = pa.fit(X, Y, ridge=1.0, form=replace(form, decay=0.5)).predict(X)
    result = pa.fit(X, Y, form=form)
    assert (result.form.decay, result.decay_path.error_bar) == (1.0, None)
    assert result.decay_path.is_flat
    assert "do not determine the decay" in str(result.outcome)


def test_the_outcome_says_which_decay_was_chosen():
    X, Y, _ = planted(0.8, noise=0.1, n_sequences=10)
    result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"))
    said = f"The decay, {result.form.decay:.6g} ± {result.decay_path.error_bar:.1g}, was chosen"
    assert said in result.outcome.sentence
    assert "smallest that was tried" not in result.outcome.sentence
    X, Y, _ = planted(1e-3, n_sequences=10)
    end = pa.fit(X, Y, form=Form(mode="causal", decay="loo")).outcome
    assert "smallest that was tried: a smaller one may be better" in end.sentence


def test_one_sequence_cannot_choose_it():
    with pytest.raises(InvalidInput, match=r"decay='loo' leaves out one sequence .* is cut into"):
        pa.fit(np.ones((1, 3, 2)), np.ones((1, 1)), form=Form(decay="loo"))


def test_two_planted_scales_are_told_apart():
    rng = np.random.default_rng(1)
    form = Form(mode="causal", decay=[0.5, 0.9])
    layer = pa.LinearAttention(
        rng.standard_normal((2, 2, 2)), rng.standard_normal((2, 2, 1)),
        form=form, n_dims=2, head_scales=[0, 1],
    )  # fmt: skip
    X = rng.standard_normal((60, 20, 2))
    found = pa.fit(X, layer(X), form=form).layer
    assert pa.same_function(found, layer)
    assert sorted(found.head_scales) == [0, 1]


def test_a_file_keeps_the_path(tmp_path):
    X, Y, _ = planted(0.9, noise=0.1, n_sequences=10)
    result = pa.fit(X, Y, form=Form(mode="causal", decay="loo"))
    pa.save(result, tmp_path / "fit.safetensors")
    loaded = pa.load(tmp_path / "fit.safetensors")
    assert loaded.form == result.form
    assert loaded.decay_path.error_bar == result.decay_path.error_bar
    np.testing.assert_array_equal(loaded.decay_path.errors, result.decay_path.errors)


def test_sums_cannot_choose_it():
    with pytest.raises(InvalidInput, match="chosen by fit"):
        pa.Moments(2, 1, form=Form(mode="causal", decay="loo"))
    with pytest.raises(InvalidInput, match="chosen by fit"):
        pa.certify(np.ones((3, 2, 2)), form=Form(mode="causal", decay="loo"))
