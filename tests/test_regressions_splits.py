"""What is held out has no copy in what was fitted, and chose nothing of what it judges.

In 0.3.0 equal sequences stood on both sides of splits, and errors left out were those of training.
"""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.sequences import MODES


def copied(X, copies, seed=0):
    """Each sequence so many times, in random order, and which one it is."""
    which = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(X)), copies))
    return X[which], which


def of_mode(Y, mode):
    return Y[:, -1] if mode == "last" else Y


def left_out_by_hand(X, Y, which, mode, ridge, weights):
    """The error of leaving out each sequence with all its copies, by fitting again."""
    total = count = 0.0
    for number in np.unique(which):
        here = which == number
        rest = pa.fit(X[~here], Y[~here], mode, ridge, sample_weight=weights[~here])
        squares = (rest.predict(X[here]) - Y[here]) ** 2
        total += weights[here] @ squares.reshape(here.sum(), -1).sum(axis=1)
        count += weights[here].sum() * (squares.size / squares.shape[-1] / here.sum())
    return total / count


@pytest.mark.parametrize("n_different", [4, 30])  # fewer rows than the 6 features, and more
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("alike", [True, False])  # whether copies have one target
def test_copies_are_left_out_together_by_the_ridge(alike, mode, n_different):
    # 0.3.0: the error of sequences whose copies stayed in the fit.
    rng = np.random.default_rng(1)
    X, which = copied(rng.standard_normal((n_different, 3, 2)), rng.integers(1, 4, n_different))
    Y = of_mode(rng.standard_normal((n_different, 3, 2))[which], mode)
    Y = Y if alike else Y + rng.standard_normal(Y.shape)
    weights = rng.uniform(0.5, 2.0, len(X))
    grid = [1e-2, 1.0]
    path = pa.fit(X, Y, mode, "loo", ridge_grid=grid, sample_weight=weights).ridge_path
    truth = [left_out_by_hand(X, Y, which, mode, ridge, weights) for ridge in grid]
    np.testing.assert_allclose(path.errors, truth, rtol=1e-7)


def test_copies_in_the_shards_of_a_source_are_left_out_together(tmp_path):
    # 0.3.0: as above.  The copies of a sequence are in different files.
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.standard_normal((20, 3, 2))] * 3)
    Y = np.concatenate([rng.standard_normal((20, 1))] * 3)
    for shard in range(3):
        part = slice(20 * shard, 20 * (shard + 1))
        np.savez(tmp_path / f"{shard}.npz", X=X[part], Y=Y[part])
    path = pa.fit(pa.scan(str(tmp_path / "*.npz")), ridge="loo").ridge_path
    once = pa.fit(X[:20], Y[:20], ridge="loo", ridge_grid=path.ridges / 3).ridge_path
    np.testing.assert_allclose(path.errors, once.errors, rtol=1e-6)


@pytest.mark.parametrize("rule", [{"ridge": "loo"}, {"form": pa.Form(decay="loo")}])
def test_copies_of_one_sequence_leave_nothing_to_hold_out(rule):
    # 0.3.0: an error of zero, and a ridge or a decay chosen by it.
    rng = np.random.default_rng(3)
    X, Y = np.repeat(rng.standard_normal((1, 4, 2)), 9, axis=0), np.ones((9, 1))
    with pytest.raises(InvalidInput, match="at least two different ones"):
        pa.fit(X, Y, **rule)


def test_a_decay_is_chosen_as_without_copies():
    # 0.3.0: decays that follow noise seemed better, and error bars shrank with every copy.
    rng = np.random.default_rng(4)
    X, Y = rng.standard_normal((15, 6, 2)), rng.standard_normal((15, 1))
    once, often = (
        pa.fit(np.tile(X, (n, 1, 1)), np.tile(Y, (n, 1)), form=pa.Form(decay="loo")).decay_path
        for n in (1, 5)
    )
    np.testing.assert_allclose(often.best, once.best, atol=1e-6)
    np.testing.assert_allclose(often.error_bar, once.error_bar, rtol=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2, 8, 9, 11])
def test_the_error_bar_of_a_decay_covers_what_noise_hides(seed):
    # 0.3.0: errors of 3 to 11 bars without a signal: the curvature at the best decay says nothing
    # of others, which fit noise as well.
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((100, 20, 2)), rng.standard_normal((100, 2))
    path = pa.fit(X, Y, form=pa.Form(decay="loo")).decay_path
    assert abs(path.best - 0.5) < 2.8 * path.error_bar


def relative_error(layer, found, fresh):
    truth = np.asarray(layer(fresh))
    spread = truth - truth.reshape(-1, truth.shape[-1]).mean(axis=0)
    return np.sum((truth - np.asarray(found(fresh))) ** 2) / np.sum(spread**2)


def softmax_layer(mode, d=4, seed=0):
    return pa.data.random_softmax_layer(d, n_heads=2, mode=mode, random_state=seed)


@pytest.mark.parametrize("mode", MODES)
def test_a_linearised_layer_is_tested_on_no_copy_of_what_it_was_fitted_to(mode):
    # 0.3.0: an error of 0.003 for 0.19, of 12 sequences ten times each.
    layer, rng = softmax_layer(mode), np.random.default_rng(5)
    X, _ = copied(rng.standard_normal((12, 5, 4)), 10)
    result = pa.linearise(layer, X, ["landmarks", "linear"], n_features=16)
    assert result.error > relative_error(layer, result.layer, rng.standard_normal((400, 5, 4))) / 4
    assert result.n_held_out == 10  # two of the twelve sequences are held out; one of them chose
    alone = pa.linearise(layer, X[:1].repeat(5, axis=0), n_features=4)
    assert alone.outcome.name == "not_held_out"


@pytest.mark.parametrize("mode", MODES)
def test_shares_of_heads_are_measured_on_no_copy(mode):
    # 0.3.0: shares of 1.0 for -1.2 and -3.4.
    layer, rng = softmax_layer(mode), np.random.default_rng(6)
    X, _ = copied(rng.standard_normal((16, 6, 4)), 6)
    found, true = pa.audit(layer, X), pa.audit(layer, X, X_test=rng.standard_normal((300, 6, 4)))
    assert np.all(found.shares[:, 2] < true.shares[:, 2] + 4 * found.errors[:, 2] + 0.2)
    assert found.n_held_out[0] == 4 * 6
    # Copies are one draw: they make no error bar smaller.
    once = pa.audit(layer, X, X_test=fresh_of(7))
    often = pa.audit(layer, X, X_test=np.tile(fresh_of(7), (4, 1, 1)))
    np.testing.assert_allclose(often.errors, once.errors, rtol=1e-9)
    with pytest.raises(InvalidInput, match="copies of one"):
        pa.audit(layer, X[:1].repeat(5, axis=0))


def fresh_of(seed):
    return np.random.default_rng(seed).standard_normal((20, 6, 4))


def test_a_learning_curve_holds_out_no_copy():
    # 0.3.0: the test risk of memorised sequences, near zero.
    rng = np.random.default_rng(8)
    X, which = copied(rng.standard_normal((40, 4, 3)), 5)
    Y = rng.standard_normal((40, 1))[which]
    curve = pa.learning_curve(X, Y, [40, 100, 140])
    assert curve.test_risk[-1] > 1.0
    assert curve.n_test == 10


@pytest.mark.parametrize("seed", range(3))
def test_a_steep_fall_behind_the_peak_is_not_level(seed):
    # 0.3.0: "levelled", since risks at the peak vary more than they fall.
    rng = np.random.default_rng(seed)
    layer = pa.data.random_layer(4, n_heads=2, form=pa.Form(), random_state=seed)
    X = rng.standard_normal((900, 6, 4))
    truth = np.asarray(layer(X))
    Y = truth / truth.std() + 0.5 * rng.standard_normal(truth.shape)
    curve = pa.learning_curve(X, Y, [10, 40, 600])
    assert curve.test_risk[1] > 100 * curve.test_risk[2]
    assert curve.outcome.name != "levelled"


def test_forecasts_choose_by_no_copy_of_a_series():
    # 0.3.0: of two copies of a series one was fitted and one held out.
    X = np.random.default_rng(9).standard_normal((10, 14, 2))
    once, twice = (pa.forecast(np.tile(X, (n, 1, 1)), 3).of_fit for n in (1, 2))
    assert once.split(", ridge")[0] == twice.split(", ridge")[0]


def test_what_chose_the_heads_does_not_judge_them():
    # 0.3.0: the number of heads and the method were chosen by the examples whose error was given.
    layer, rng = softmax_layer("full", 3), np.random.default_rng(10)
    X = rng.standard_normal((60, 5, 3))
    Y = np.asarray(layer(X)) + 0.05 * rng.standard_normal((60, 5, 3))
    result = pa.learn_softmax(X, Y)
    assert result.outcome.ok
    assert result.n_training + result.n_held_out == 60
    chose = [phase.figures.get("validation_error") for phase in result.phases]
    assert any(chose)
    assert result.validation_error not in chose


def is_wrong(what, mode, copies):
    """Whether a result is ok, and on fresh sequences far from what it says."""
    rng = np.random.default_rng(copies)
    layer, fresh = softmax_layer(mode), rng.standard_normal((300, 6, 4))
    X, which = copied(rng.standard_normal((12, 6, 4)), copies)
    noise = of_mode(rng.standard_normal((12, 6, 1))[which], mode)
    if what == "linearise":
        found = pa.linearise(layer, X, n_features=16)
        return found.outcome.ok and found.error < relative_error(layer, found.layer, fresh) / 4
    if what == "audit":
        found, true = pa.audit(layer, X), pa.audit(layer, X, X_test=fresh)
        return found.outcome.ok and bool(np.any((found.shares > 0.5) & (true.shares < 0.0)))
    if what == "ridge":
        return pa.fit(X, noise, mode, "loo").ridge_path.errors.min() < 0.3
    if what == "decay":
        found = pa.fit(X, noise, form=pa.Form(mode=mode, decay="loo"))
        return found.decay_path.errors.min() < 0.3
    try:
        learned = pa.learn_softmax(X, np.asarray(layer(X)), mode=mode, max_seconds=10)
    except InvalidInput as refused:
        return "too few" not in str(refused)
    return learned.outcome.ok and relative_error(layer, learned.layer, fresh) > 1e-3


SURVEY = [
    (what, mode, copies)
    for what in ("linearise", "audit", "ridge", "decay", "softmax")
    for mode, copies in (("last", 2), ("causal", 5), ("last", 20), ("causal", 10))
]


@pytest.mark.slow
def test_no_split_of_copies_is_ok_and_wrong():
    # 0.3.0: 12 of 20.
    assert [case for case in SURVEY if is_wrong(*case)] == []
