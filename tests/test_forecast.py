"""Forecasts: a layer on its own predictions, how errors grow, and when to stop."""

import numpy as np
import pandas as pd
import pytest

import oracle
import polyattn as pa
from oracle import EPS
from polyattn.errors import InvalidInput, InvalidType
from test_layers import linear, remade

FORMS = {
    name: form
    for name, form in oracle.FORMS.items()
    if form.get("mode", "last") != "full" and "context" not in form
}
TURNING = pa.Form(mode="causal", window=1, skip=True)
STEPS = 6


def small_layer(name):
    """A layer whose outputs are tokens of three coordinates, and are not larger than these."""
    layer = linear(FORMS[name], n_outputs=3)
    parts = {part: getattr(layer, part) for part in ("attn", "value", "skip", "intercept")}
    return remade(layer, **{part: 0.1 * each for part, each in parts.items() if each is not None})


def some_sequences(seed=0):
    rng = np.random.default_rng(seed)
    return [0.5 * rng.standard_normal((n, 3)) for n in (5, 2, 7, 3)]


def multiple(factor, **options):
    """x -> factor x, of one coordinate or more."""
    factor = np.atleast_2d(factor)
    zero = np.zeros(factor.shape)
    return pa.LinearAttention(zero, zero, form=TURNING, skip=factor, **options)


def called_again(layer, tokens, steps, increments=False):
    """The slow way: the literal layer of the oracle with all tokens that there are by then."""
    arrays, form = oracle.fields_of_layer(layer), oracle.fields_of(layer.form)
    tokens, followed = np.array(tokens), []
    for _ in range(steps):
        newest = oracle.forward(arrays, tokens, form)[-1]
        followed.append(newest + increments * tokens[-1])
        tokens = np.vstack([tokens, followed[-1]])
        if layer.mode == "last":
            tokens = tokens[1:]
    return np.array(followed).reshape(-1, tokens.shape[1])


def circle(n_tokens, speed=0.3, first=0.0):
    angles = first + speed * np.arange(n_tokens)
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


@pytest.fixture(scope="module")
def turning():
    """A fit that turns a point on a circle: exact, and neither grows nor fades."""
    X = circle(100)[None]
    return pa.fit(X[:, :-1], X[:, 1:], form=TURNING)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_continued_as_by_calling_the_layer_again(name):
    """Tokens, and growth by finite differences for the sequence that goes on longest."""
    layer, X = small_layer(name), some_sequences()
    ahead = pa.forecast(layer, X, STEPS, increments=True, limit=1e3)
    assert ahead.n_done.max() == STEPS
    for tokens, found, n_done in zip(X, ahead.values, ahead.n_done, strict=True):
        expected = called_again(layer, tokens, n_done, increments=True)
        size = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e4 * EPS * size)
    spread, which = np.concatenate(X).std(axis=0), int(np.argmax(ahead.n_done))
    slopes = np.empty((STEPS, 3, 3))
    for j in range(3):
        ends = []
        for side in (1e-6, -1e-6):
            moved = X[which].copy()
            moved[-1, j] += side * spread[j]
            ends.append(called_again(layer, moved, STEPS, increments=True))
        slopes[:, :, j] = (ends[0] - ends[1]) / 2e-6 / spread
    expected = np.linalg.norm(slopes, ord=2, axis=(1, 2))
    np.testing.assert_allclose(ahead.growth[which], expected, rtol=1e-6, atol=1e-7 * expected.max())


@pytest.mark.parametrize("window", [6, 10**30, None])
def test_long_histories_and_windows_that_no_token_leaves_are_sums(window):
    layer = pa.data.random_layer(2, 2, form=pa.Form(mode="causal", window=window), random_state=1)
    X = 0.02 * np.random.default_rng(1).standard_normal((80 if window != 6 else 4, 2))
    found = pa.forecast(layer, X, 3, limit=1e3).values
    np.testing.assert_allclose(found, called_again(layer, X, 3), rtol=1e-9)


def test_fits_layers_and_estimators_continue_alike(turning):
    X, truth = circle(30, first=1.0), circle(50, first=1.0)[30:]
    model = pa.LinearAttentionRegressor(form=TURNING)
    model.fit(circle(100)[None, :-1], circle(100)[None, 1:])
    for thing in (turning, turning.layer, model):
        ahead = pa.forecast(thing, X, steps=20)
        np.testing.assert_allclose(ahead.values, truth, atol=1e-9)
        assert ahead.outcome.name == "within_tolerance"
    assert pa.forecast(turning, X, 20).fit is turning


def test_coordinates_that_are_known_ahead_are_taken_from_the_future():
    """x follows from itself and from a drive that is known."""
    rng = np.random.default_rng(0)
    drive, x = rng.standard_normal(200), np.zeros(200)
    for t in range(199):
        x[t + 1] = 0.8 * x[t] + 0.5 * drive[t]
    Z = np.stack([drive, x], axis=1)
    result = pa.fit(Z[None, :-1], Z[None, 1:, 1:], form=TURNING)
    ahead = pa.forecast(result, Z[:150], 30, predicted=[1], future=drive[150:180, None])
    np.testing.assert_allclose(ahead.values[:, 0], x[150:180], atol=1e-9)
    # By default the first coordinates are predicted.
    swapped = pa.fit(Z[None, :-1, ::-1], Z[None, 1:, 1:], form=TURNING)
    again = pa.forecast(swapped, Z[:150, ::-1], 30, future=drive[None, 150:180, None])
    np.testing.assert_allclose(again.values, ahead.values, atol=1e-9)


def test_errors_of_a_linear_map_grow_by_its_factor():
    ahead = pa.forecast(multiple(1.1), np.zeros((5, 1)), 8)
    np.testing.assert_allclose(ahead.growth[0], 1.1 ** np.arange(1, 9), rtol=1e-10)
    np.testing.assert_allclose(ahead.exponents, np.log(1.1), rtol=1e-10)


def test_independent_errors_add_up_as_their_squares_in_each_coordinate():
    """Two walks that do not know of each other: sqrt(k) e after k steps, each its own."""
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((4000, 2)) * [1.0, 3.0], axis=0)
    spread, steps = X.std(axis=0), np.arange(1, 65)
    ahead = pa.forecast(multiple(np.eye(2)), X, 64)
    wanted = np.array([1.0, 3.0]) / spread * np.sqrt(steps)[:, None]
    assert np.all(np.abs(np.log(ahead.coordinate_errors[0] / wanted)) < 0.5)
    np.testing.assert_array_equal(ahead.expected_error, ahead.coordinate_errors.max(axis=2))
    np.testing.assert_allclose(ahead.one_step_error, max([1.0, 3.0] / spread), rtol=0.05)
    tolerance = 0.999 * ahead.expected_error[0, 9]
    short = pa.forecast(multiple(np.eye(2)), X, 64, tolerance=tolerance)
    assert short.valid_steps[0] == np.argmax(ahead.expected_error[0] > tolerance) <= 9
    assert (short.outcome.name, short.outcome.ok) == ("beyond_tolerance", False)
    assert f"coordinate {ahead.coordinate_errors[0, 9].argmax()}" in short.sentence


def test_errors_add_up_in_the_order_in_which_they_came():
    """Of one sign for forty steps they add up, in turns they cancel; at random as their squares."""
    rng, growth = np.random.default_rng(0), []
    sizes = rng.uniform(0.8, 1.2, (4000, 1))
    long = np.repeat(rng.choice([-1.0, 1.0], (100, 1)), 40, axis=0)
    turns = np.where(np.arange(4000) % 2, 1.0, -1.0)[:, None]
    for signs in (long, rng.choice([-1.0, 1.0], (4000, 1)), turns):
        ahead = pa.forecast(multiple(1.0), walk(sizes * signs), 16)
        growth.append(ahead.expected_error[0, -1] / ahead.expected_error[0, 0])
    assert growth[0] > 10
    assert 6 > growth[1] > 2.5
    assert growth[2] < 2


def test_one_step_errors_are_those_of_the_layer_on_what_is_given():
    """By hand: windows inside sequences judge a layer of mode last; one token alone does not."""
    layer = pa.data.random_layer(2, 2, form=pa.Form(window=2), random_state=0)
    X = 0.5 * np.random.default_rng(0).standard_normal((3, 9, 2))
    errors = [layer(tokens[t - 1 : t + 1]) - tokens[t + 1] for tokens in X for t in range(1, 8)]
    squares = (np.array(errors) / X.reshape(-1, 2).std(axis=0)) ** 2
    expected = np.sqrt(np.mean(squares, axis=0)).max()  # of the worst coordinate
    np.testing.assert_allclose(pa.forecast(layer, X, 2).one_step_error, expected)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 4, 2)), rng.standard_normal((80, 2))
    result = pa.fit(X, Y, ridge=1.0)
    of_layer, of_fit = pa.forecast(result.layer, X[:3], 4), pa.forecast(result, X[:3], 4)
    assert (of_layer.outcome.name, of_layer.outcome.ok) == ("not_judged", False)
    assert (of_layer.valid_steps, of_layer.one_step_error) == (None, None)
    spread = X[:3].reshape(-1, 2).std(axis=0)
    expected = np.sqrt(result.risk / np.sum(spread**2))
    np.testing.assert_allclose(of_fit.one_step_error, expected, rtol=0.2)


def test_errors_that_grow_along_the_series_are_extrapolated_and_doubted():
    """Growth by a hundredth a step, with errors of a twentieth of it."""
    noise = np.random.default_rng(0).standard_normal((500, 1))
    x = np.exp(0.01 * np.arange(500))[:, None] * (1.0 + 0.05 * noise)
    ahead = pa.forecast(x[:400], 60)
    actual = float(np.sqrt(np.mean(((ahead.values - x[400:460]) / x[:400].std()) ** 2)))
    assert 0.9 * actual < ahead.expected_error.max() < 2.0 * actual
    assert not ahead.outcome.ok
    assert ahead.doubt
    # Negative control.
    ahead = pa.forecast(np.log(x)[:400], 60)
    assert (ahead.outcome.ok, ahead.doubt) == (True, "")


def walk(errors):
    """A sequence on which x -> x errs by these, of coordinates that would else stay put."""
    return np.cumsum(np.vstack([np.zeros((1, errors.shape[1])), errors]), axis=0)


def test_the_trend_is_seen_in_the_coordinate_that_has_it_and_hardly_ever_else():
    rng = np.random.default_rng(1)
    errors = rng.choice([-1.0, 1.0], (800, 2)) * rng.uniform(0.8, 1.2, (800, 2))
    rising = errors * np.column_stack([np.ones(800), 1.0 + 6.0 * np.arange(800) / 800])
    grown, faded, same = (
        pa.forecast(multiple(np.eye(2)), walk(each), 10) for each in (rising, rising[::-1], errors)
    )
    assert "coordinate 1" in grown.doubt
    assert not grown.outcome.ok
    assert (faded.doubt, same.doubt) == ("", "")
    # Nor does one burst, wherever it is, of errors with heavy tails.
    said = 0
    for _ in range(20):
        noise = rng.standard_t(4, (int(rng.choice([2, 14, 80, 300])), 1))
        start = int(rng.integers(len(noise)))
        noise[start : start + 1 + len(noise) // 15] *= 20.0
        said += bool(pa.forecast(multiple(1.0), walk(noise), 2, limit=1e9).doubt)
    assert said <= 1


def test_a_run_that_leaves_the_data_stops_there_and_others_go_on():
    layer = pa.LinearAttention([[1.0]], [[1.0]], form=pa.Form(mode="causal", window=1))  # x^3
    X = [np.array([[0.5]]), np.array([[1.5]]), np.array([[1.0], [1.0]])]
    ahead = pa.forecast(layer, X, 5)
    # 1.5^3 = 3.4, 3.4^3 = 38 > 10 * 1.5
    assert ahead.n_done.tolist() == [len(each) for each in ahead.values] == [5, 1, 5]
    assert all(np.isfinite(each).all() for each in ahead.values)
    assert ahead.diverged.tolist() == [False, True, False]
    assert (ahead.outcome.name, ahead.outcome.ok) == ("diverged", False)
    assert "step 2" in ahead.sentence
    # Overflow is the end, and no error.
    ahead = pa.forecast(layer, np.array([[3.0]]), 60, limit=1e300)
    assert 0 < ahead.n_done[0] < 60
    assert np.isfinite(ahead.values).all()


def test_a_fit_in_doubt_or_learned_by_heart_makes_the_forecast_doubtful():
    X = np.random.default_rng(0).standard_normal((1, 4, 3))
    result = pa.fit(X[:, :-1], X[:, 1:], mode="causal")
    ahead = pa.forecast(result, X, 2)
    assert (result.outcome.ok, ahead.outcome.ok) == (False, False)
    assert result.outcome.sentence in ahead.sentence
    form = pa.Form(mode="causal", lags=4, window=4, bias=True)
    # Noise is learned by heart: no error over one step, and no forecast; of enough tokens not.
    for n_tokens, doubtful in ((60, True), (600, False)):
        X = np.random.default_rng(0).standard_normal((1, n_tokens, 2))
        fitted = pa.fit(X[:, :-1], X[:, 1:], form=form, ridge=1e-9)
        assert ("coefficients" in pa.forecast(fitted, X, 2, limit=1e6).doubt) == doubtful


def test_series_alone_are_fitted_and_continued():
    X = 5.0 + 3.0 * circle(120)
    np.testing.assert_allclose(pa.forecast(X, 30).values, 5.0 + 3.0 * circle(150)[120:], atol=1e-3)
    # Twelve tokens to a season, and a trend: farther back than products reach.
    t, season = np.arange(132), np.random.default_rng(0).standard_normal(12)
    seasons = (0.02 * t + season[t % 12])[:, None]
    np.testing.assert_allclose(pa.forecast(seasons[:108], 24).values, seasons[108:], atol=0.02)
    for dull in (np.ones((20, 1)), np.arange(6.0)[:, None], np.zeros((3, 2))):
        expected = dull[-1] + np.arange(1, 5)[:, None] * (dull[-1] - dull[-2])
        np.testing.assert_allclose(pa.forecast(dull, 4).values, expected, atol=0.3)
    many = pa.forecast([circle(n, first=n) for n in range(30, 36)], 10)
    for n, values in zip(range(30, 36), many.values, strict=True):
        np.testing.assert_allclose(values, circle(n + 10, first=n)[n:], atol=1e-3)
    noisy = circle(80) + 0.01 * np.random.default_rng(1).standard_normal((80, 2))
    one, other = pa.forecast(noisy, 10), pa.forecast(noisy * [1e6, 1e-6] + [4e6, 0.0], 10)
    np.testing.assert_allclose((other.values - [4e6, 0]) / [1e6, 1e-6], one.values, atol=1e-5)
    np.testing.assert_allclose(other.growth, one.growth, rtol=1e-4)


def test_forms_are_chosen_by_forecasts_and_not_by_one_step():
    """Negative control: hardly a ridge has the smaller error over one step, and is worse."""
    X = circle(150) + 0.05 * np.random.default_rng(3).standard_normal((150, 2))
    chosen, truth = pa.forecast(X, 20), circle(170)[150:]
    form = pa.Form(mode="causal", lags=4, window=4, bias=True)
    bare = pa.fit(X[None, :-1], np.diff(X, axis=0)[None], form=form)
    other = pa.forecast(bare, X, 20, increments=True)
    assert other.one_step_error < chosen.one_step_error
    error = np.abs(chosen.values - truth).max()
    assert other.n_done[0] < 20 or np.abs(other.values - truth).max() > 1.5 * error


def test_a_column_of_numbers_is_a_series_of_one_coordinate():
    x, form = np.sin(np.arange(60) / 5), pa.Form(mode="causal", window=1, skip=True)
    wanted = pa.forecast(x[:, None], 5, form=form)
    column = pd.Series(x, index=pd.date_range("2024-01-01", periods=60), name="wave")
    for given in (x, column, column.to_frame(), x.tolist()):
        np.testing.assert_array_equal(pa.forecast(given, 5, form=form).values, wanted.values)
    with pytest.raises(InvalidInput, match="token 1"):
        pa.forecast(pd.Series([1.0, np.nan, 2.0, 3.0]), 2)


def test_misuse_is_named(turning):
    X = circle(10)[None]
    full = pa.data.random_layer(2, 2, mode="full")
    context = pa.data.random_layer(2, 2, form=pa.Form(mode="causal"), n_context_dims=2)
    narrow, wide = (pa.data.random_layer(2, n, mode="causal") for n in (1, 3))
    labels = np.arange(60) % 2
    logistic = pa.fit(np.random.default_rng(0).standard_normal((60, 3, 2)), labels, loss="logistic")
    classifier = pa.LinearAttentionClassifier().fit(circle(60).reshape(30, 2, 2), labels[:30])
    for arguments, options, words in (
        ((turning, X), {}, "steps"),
        ((X, X, 3), {}, "both"),
        ((full, X, 3), {}, "'full'"),
        ((context, X, 3), {}, "context"),
        ((wide, X, 3), {}, "has 3"),
        ((turning, X, 3), {"future": X}, "leave it out"),
        ((narrow, X, 3), {"future": np.full((3, 1), np.nan)}, "future"),
        ((narrow, X, 3), {"future": np.ones((3, 1)), "predicted": [4]}, "predicted"),
        ((turning, X, 3), {"tolerance": -1.0}, "tolerance"),
        ((turning, X, 3), {"form": TURNING}, "form"),
        ((X, 3), {"form": pa.Form()}, "form"),
        ((X[:, :2], 3), {}, "3 tokens"),
        ((logistic, X, 3), {}, "log-odds"),
        ((classifier, X, 3), {}, "classes"),
    ):
        with pytest.raises(InvalidInput, match=words):
            pa.forecast(*arguments, **options)
    with pytest.raises(InvalidType, match="FitResult"):
        pa.forecast(pa.data.random_softmax_layer(2), X, 3)
