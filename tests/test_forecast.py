"""Forecasts: a layer on its own predictions, how errors grow, and when to stop."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES
from polyattn.errors import InvalidInput, InvalidType
from polyattn.fitting.forecasting import roll_out as rolling

EPS = float(np.finfo(np.float64).eps)
ALL = [case for case in CASES if case.form.mode != "full" and case.n_context_dims is None]
# Every form with ragged sequences, and some with other kinds of data.
ROLLED = [case for case in ALL if case.kind == "ragged"]
OTHERS = [case for case in ALL if case.kind != "ragged"][::5]
STEPS = 6


def small_layer(case):
    """A layer of the case's form whose outputs are tokens, and are not larger than these."""
    heads = case.heads(3, case.n_dims)
    for name in ("attn", "value", "skip", "intercept"):
        heads[name] = None if heads[name] is None else 0.1 * heads[name]
    return pa.LinearAttention(form=case.form, n_dims=case.n_dims, **heads)


def called_again(layer, tokens, steps, increments=False):
    """The slow way: the layer is called for every step with all tokens that it then has."""
    tokens, followed = np.array(tokens), []
    for _ in range(steps):
        outputs = layer(tokens)
        newest = outputs if layer.mode == "last" else outputs[-1]
        followed.append(newest + increments * tokens[-1])
        tokens = np.vstack([tokens, followed[-1]])
        if layer.mode == "last":
            tokens = tokens[1:]
    return np.array(followed).reshape(-1, tokens.shape[1])


def circle(n_tokens, speed=0.3, first=0.0):
    angles = first + speed * np.arange(n_tokens)
    return np.stack([np.sin(angles), np.cos(angles)], axis=1)


TURNING = pa.Form(mode="causal", window=1, skip=True)


@pytest.fixture(scope="module")
def turning():
    """A fit that turns a point on a circle: exact, and neither grows nor fades."""
    X = circle(100)[None]
    return pa.fit(X[:, :-1], X[:, 1:], form=TURNING)


# ---------------------------------------------------------------- the tokens


@pytest.mark.parametrize("case", [*ROLLED, *OTHERS], ids=str)
def test_every_form_is_continued_as_by_calling_the_layer_again(case):
    layer, X = small_layer(case), [0.5 * tokens for tokens in case.sequences]
    ahead = pa.forecast(layer, X, STEPS, increments=True, limit=1e3)
    assert ahead.n_done.max() == STEPS
    for tokens, found, n_done in zip(X, ahead.values, ahead.n_done, strict=True):
        expected = called_again(layer, tokens, n_done, increments=True)
        size = np.abs(expected).max(initial=1.0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e4 * EPS * size)


def test_long_histories_are_read_in_pieces_and_blocks_do_not_matter(monkeypatch):
    rng = np.random.default_rng(0)
    form = pa.Form(mode="causal", decay=[0.5, 0.99], mean=True, skip=True)
    layer = pa.data.random_layer(2, 2, form=form, random_state=0)
    X = [rng.standard_normal((n, 2)) for n in (40, 3, 17)]
    whole = pa.forecast(layer, X, 5)
    monkeypatch.setattr(rolling, "PIECE_TOKENS", 4)
    monkeypatch.setattr(rolling, "BLOCK_NUMBERS", 1)
    pieces = pa.forecast(layer, X, 5)
    for name in ("flat_values", "growth", "expected_error"):
        np.testing.assert_allclose(getattr(pieces, name), getattr(whole, name), rtol=1e-12)


@pytest.mark.parametrize("window", [6, 10**30])
def test_windows_that_no_token_leaves_are_sums(window):
    layer = pa.data.random_layer(2, 2, form=pa.Form(mode="causal", window=window), random_state=1)
    X = 0.3 * np.random.default_rng(1).standard_normal((2, 4, 2))
    found = pa.forecast(layer, X, 4).values
    for tokens, values in zip(X, found, strict=True):
        np.testing.assert_allclose(values, called_again(layer, tokens, 4), rtol=1e-12)


def test_fits_layers_and_estimators_continue_alike(turning):
    X = circle(30, first=1.0)
    truth = circle(50, first=1.0)[30:]
    model = pa.LinearAttentionRegressor(form=TURNING)
    model.fit(circle(100)[None, :-1], circle(100)[None, 1:])
    for thing in (turning, turning.layer, model):
        ahead = pa.forecast(thing, X, steps=20)
        assert ahead.values.shape == (20, 2)
        np.testing.assert_allclose(ahead.values, truth, atol=1e-9)
    assert pa.forecast(turning, X, 20).fit is turning
    batch = pa.SequenceBatch.from_sequences([X, X[:7]])
    assert pa.forecast(turning, batch, 20).values.shape == (2, 20, 2)
    np.testing.assert_array_equal(
        pa.forecast(turning, X.astype(np.float32), 3).values,
        pa.forecast(turning, X.astype(np.float32).astype(float), 3).values,
    )


def test_coordinates_that_are_known_ahead_are_taken_from_the_future():
    """x follows from itself and from a drive that is known."""
    rng = np.random.default_rng(0)
    drive, x = rng.standard_normal(200), np.zeros(200)
    for t in range(199):
        x[t + 1] = 0.8 * x[t] + 0.5 * drive[t]
    Z = np.stack([drive, x], axis=1)
    result = pa.fit(Z[None, :-1], Z[None, 1:, 1:], form=TURNING)
    known = {"predicted": [1], "future": drive[150:180, None]}
    ahead = pa.forecast(result, Z[:150], 30, **known)
    np.testing.assert_allclose(ahead.values[:, 0], x[150:180], atol=1e-9)
    # By default the first coordinates are predicted.
    swapped = pa.fit(Z[None, :-1, ::-1], Z[None, 1:, 1:], form=TURNING)
    again = pa.forecast(swapped, Z[:150, ::-1], 30, future=drive[None, 150:180, None])
    np.testing.assert_allclose(again.values, ahead.values, atol=1e-9)


# ---------------------------------------------------------------- how errors grow


@pytest.mark.parametrize("case", ROLLED[::2], ids=str)
def test_growth_is_that_of_finite_differences(case):
    layer, X = small_layer(case), [0.5 * tokens for tokens in case.sequences]
    options = {"increments": True, "limit": 1e3}
    ahead = pa.forecast(layer, X, STEPS, **options)
    spread, n_dims = np.concatenate(X).std(axis=0), case.n_dims
    which = int(np.argmax(ahead.n_done))
    n_done = ahead.n_done[which]
    slopes = np.empty((n_done, n_dims, n_dims))
    for j in range(n_dims):
        ends = []
        for side in (1e-6, -1e-6):
            moved = X[which].copy()
            moved[-1, j] += side * spread[j]
            ends.append(called_again(layer, moved, n_done, increments=True))
        slopes[:, :, j] = (ends[0] - ends[1]) / 2e-6 / spread
    expected = np.linalg.norm(slopes, ord=2, axis=(1, 2))
    found = ahead.growth[which, :n_done]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * expected.max())


def test_growth_and_error_of_a_linear_map_are_known():
    """x -> 1.1 x: errors grow by 1.1, and errors of every step add up."""
    layer = pa.LinearAttention([[0.0]], [[0.0]], form=TURNING, skip=[[1.1]])
    rng = np.random.default_rng(0)
    x = [1.0]
    for _ in range(399):
        x.append(1.1 * x[-1] if abs(x[-1]) < 5.0 else x[-1] / 5.0)
    X = np.array(x)[:, None] * (1.0 + 1e-3 * rng.standard_normal((400, 1)))
    ahead = pa.forecast(layer, X, 8)
    np.testing.assert_allclose(ahead.growth[0], 1.1 ** np.arange(1, 9), rtol=1e-12)
    np.testing.assert_allclose(ahead.exponents, np.log(1.1), rtol=1e-10)
    assert "grow by a factor of 1.1 a step" in ahead.sentence


def test_independent_errors_add_up_as_their_squares():
    """Of x -> x with errors e at each step: sqrt(k) e after k steps."""
    rng = np.random.default_rng(0)
    X = np.cumsum(rng.standard_normal((1, 4000, 1)), axis=1)
    layer = pa.LinearAttention([[0.0]], [[0.0]], form=TURNING, skip=[[1.0]])
    ahead = pa.forecast(layer, X, 64)
    expected = ahead.one_step_error * np.sqrt(np.arange(1, 65))
    np.testing.assert_allclose(ahead.one_step_error, 1.0 / X.std(), rtol=0.05)
    assert np.all(np.abs(np.log(ahead.expected_error[0] / expected)) < 0.5)
    # One tolerance lower, one step sooner: the figure follows from the errors.
    tolerance = float(ahead.expected_error[0, 9])
    short = pa.forecast(layer, X, 64, tolerance=0.999 * tolerance)
    assert short.valid_steps[0] <= 9
    assert short.outcome.name == "beyond_tolerance"
    assert "forecast.valid_steps" in short.outcome.next_step


def test_stretches_of_errors_keep_their_order():
    from polyattn.fitting.forecasting.one_step import stretches

    errors = [np.arange(5.0)[:, None], 100.0 + np.arange(3.0)[:, None]]
    drawn = stretches(errors, 12, np.random.default_rng(0))[..., 0]
    steps = np.diff(drawn, axis=1)
    ends = np.isin(drawn[:, :-1], (4.0, 102.0))
    assert np.all(steps[~ends] == 1.0)
    assert ends.any()


def test_units_and_the_order_of_sequences_do_not_matter():
    case = next(case for case in ROLLED if str(case) == "decays-ragged")
    layer = small_layer(case)
    X = [0.5 * tokens for tokens in case.sequences]
    ahead = pa.forecast(layer, X, STEPS, increments=True)
    back = pa.forecast(layer, X[::-1], STEPS, increments=True)
    np.testing.assert_allclose(back.growth[::-1], ahead.growth, rtol=1e-12)
    # Tokens in other units, and the layer in them.
    c = 2.0**9
    scaled = pa.LinearAttention(
        layer.attn / c**2, layer.value, form=layer.form, head_scales=layer.head_scales
    )
    large = pa.forecast(scaled, [c * tokens for tokens in X], STEPS, increments=True)
    np.testing.assert_allclose(large.flat_values, c * ahead.flat_values, rtol=1e-12)
    np.testing.assert_allclose(large.growth, ahead.growth, rtol=1e-10)
    np.testing.assert_allclose(large.expected_error, ahead.expected_error, rtol=1e-10)


@pytest.mark.parametrize("size", [1e-150, 1e150])
def test_tokens_of_extreme_size(size):
    turn = [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]
    layer = pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 2)), form=TURNING, skip=turn)
    X = size * circle(40)
    ahead = pa.forecast(layer, X, 10)
    np.testing.assert_allclose(ahead.values, size * circle(50)[40:], rtol=1e-9, atol=1e-9 * size)
    np.testing.assert_allclose(ahead.growth, 1.0, rtol=0.05)
    assert ahead.outcome.ok


# ---------------------------------------------------------------- where it ends


def test_a_run_that_leaves_the_data_stops_there_and_others_go_on():
    layer = pa.LinearAttention([[1.0]], [[1.0]], form=pa.Form(mode="causal", window=1))  # x^3
    X = [np.array([[0.5]]), np.array([[1.5]]), np.array([[1.0], [1.0]])]
    ahead = pa.forecast(layer, X, 5)
    # 1.5^3 = 3.4, 3.4^3 = 38 > 10 * 1.5
    assert ahead.n_done.tolist() == [5, 1, 5]
    assert [len(each) for each in ahead.values] == [5, 1, 5]
    assert all(np.isfinite(each).all() for each in ahead.values)
    assert ahead.outcome.name == "diverged"
    assert not ahead.outcome.ok
    assert "1 of 3 sequences" in ahead.sentence
    assert "at step 2 of 5" in ahead.sentence
    assert ahead.valid_steps is None or ahead.valid_steps[1] <= 1


def test_overflow_is_the_end_and_no_error():
    layer = pa.LinearAttention([[1.0]], [[1.0]], form=pa.Form(mode="causal", window=1))
    ahead = pa.forecast(layer, np.array([[3.0]]), 60, limit=1e300)
    assert 0 < ahead.n_done[0] < 60
    assert np.isfinite(ahead.values).all()
    assert ahead.growth.max() <= 1e300
    assert ahead.outcome.name == "diverged"


def test_growth_beyond_float64_is_followed_and_reported():
    """1e60 a step for 9 steps, with tokens that stay where they are."""
    form = pa.Form(mode="causal", window=1, skip=True, intercept=True)
    layer = pa.LinearAttention([[0.0]], [[0.0]], form=form, skip=[[1e60]], intercept=[0.0])
    ahead = pa.forecast(layer, np.zeros((5, 1)), 9)
    np.testing.assert_allclose(np.log10(ahead.growth[0, :4]), 60.0 * np.arange(1, 5))
    assert ahead.growth[0, -1] == 1e300
    assert ahead.one_step_error == 0.0


def test_a_map_that_refuses_a_token_ends_its_run():
    def root(tokens):
        return np.sqrt(tokens) if np.all(tokens >= 0) else np.full_like(tokens, np.nan)

    form = pa.Form(mode="causal", window=1, key=root, skip=True)
    layer = pa.LinearAttention([[0.0]], [[0.0]], form=form, skip=[[-1.0]], n_dims=1)
    up = pa.forecast(layer, np.array([[[1.0]], [[2.0]]]), 3)
    assert up.n_done.tolist() == [1, 1]
    assert up.outcome.name == "diverged"


def test_one_token_in_mode_last_cannot_be_judged_by_a_layer_and_is_by_a_fit():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((80, 4, 2)), rng.standard_normal((80, 2))
    result = pa.fit(X, Y, ridge=1.0)
    of_layer = pa.forecast(result.layer, X[:3], 4)
    assert of_layer.outcome.name == "not_judged"
    assert of_layer.valid_steps is None
    assert of_layer.one_step_error is None
    of_fit = pa.forecast(result, X[:3], 4)
    spread = X[:3].reshape(-1, 2).std(axis=0)
    expected = np.sqrt(result.risk / np.sum(spread**2))
    np.testing.assert_allclose(of_fit.one_step_error, expected, rtol=0.2)
    assert of_fit.valid_steps is not None


def test_windows_inside_sequences_judge_a_layer_of_mode_last():
    """By hand: what the layer says of each pair of tokens, and the token that follows."""
    layer = pa.data.random_layer(2, 2, form=pa.Form(window=2), random_state=0)
    X = 0.5 * np.random.default_rng(0).standard_normal((3, 9, 2))
    errors = [layer(tokens[t - 1 : t + 1]) - tokens[t + 1] for tokens in X for t in range(1, 8)]
    squares = (np.array(errors) / X.reshape(-1, 2).std(axis=0)) ** 2
    expected = np.sqrt(np.mean(squares, axis=0)).max()  # of the worst coordinate
    np.testing.assert_allclose(pa.forecast(layer, X, 2).one_step_error, expected)


def test_a_fit_in_doubt_makes_the_forecast_doubtful():
    X = np.random.default_rng(0).standard_normal((1, 4, 3))
    result = pa.fit(X[:, :-1], X[:, 1:], mode="causal")
    assert not result.outcome.ok
    ahead = pa.forecast(result, X, 2)
    assert not ahead.outcome.ok
    assert result.outcome.sentence in ahead.sentence


def test_a_fit_with_as_many_coefficients_as_data_is_not_believed():
    """Noise is learned by heart: no error over one step, and no forecast."""
    X = np.random.default_rng(0).standard_normal((1, 60, 2))
    form = pa.Form(mode="causal", lags=4, window=4, bias=True)
    by_heart = pa.fit(X[:, :-1], X[:, 1:], form=form, ridge=1e-9)
    assert by_heart.outcome.ok
    ahead = pa.forecast(by_heart, X, 2, limit=1e6)
    assert not ahead.outcome.ok
    assert "say little of others" in ahead.sentence
    # Negative control: the same form and enough tokens.
    Z = np.random.default_rng(0).standard_normal((1, 600, 2))
    enough = pa.fit(Z[:, :-1], Z[:, 1:], form=form, ridge=1e-9)
    assert "say little of others" not in pa.forecast(enough, Z, 2).sentence


# ---------------------------------------------------------------- sequences alone


def test_series_alone_are_fitted_and_continued():
    X = 5.0 + 3.0 * circle(120)
    ahead = pa.forecast(X, 30)
    assert ahead.values.shape == (30, 2)
    np.testing.assert_allclose(ahead.values, 5.0 + 3.0 * circle(150)[120:], atol=1e-3)
    assert "Fitted to increments with" in ahead.sentence
    assert "chosen by forecasts" in ahead.sentence
    assert pa.forecast(X[:9], steps=2).values.shape == (2, 2)
    many = pa.forecast([circle(n, first=n) for n in range(30, 42)], 10)
    assert many.values.shape == (12, 10, 2)
    np.testing.assert_allclose(many.values[-1], circle(51, first=41)[41:], atol=1e-3)


def test_units_and_offsets_of_series_do_not_matter():
    rng = np.random.default_rng(1)
    X = circle(80) + 0.01 * rng.standard_normal((80, 2))
    ahead = pa.forecast(X, 10)
    other = pa.forecast(X * [1e6, 1e-6] + [4e6, 0.0], 10)
    moved = (other.values - [4e6, 0.0]) / [1e6, 1e-6]
    np.testing.assert_allclose(moved, ahead.values, atol=1e-5)
    np.testing.assert_allclose(other.growth, ahead.growth, rtol=1e-4)


@pytest.mark.parametrize("X", [np.ones((20, 1)), np.arange(6.0)[:, None], np.zeros((3, 2))])
def test_dull_and_short_series(X):
    ahead = pa.forecast(X, 4)
    assert ahead.values.shape == (4, X.shape[1])
    expected = X[-1] + np.arange(1, 5)[:, None] * (X[-1] - X[-2])
    np.testing.assert_allclose(ahead.values, expected, atol=0.3)


def test_seasons_longer_than_products_reach_are_seen_by_linear_layers():
    """Twelve tokens to a season, and a trend."""
    t = np.arange(132)
    season = np.random.default_rng(0).standard_normal(12)
    X = (0.02 * t + season[t % 12])[:, None]
    ahead = pa.forecast(X[:108], 24)
    assert "linear" in ahead.sentence
    np.testing.assert_allclose(ahead.values, X[108:], atol=0.02)


def test_a_form_of_ones_own_is_fitted_with_a_ridge_chosen():
    form = pa.Form(mode="causal", window=1, skip=True, intercept=True)
    ahead = pa.forecast(circle(60), 20, form=form)
    np.testing.assert_allclose(ahead.values, circle(80)[60:], atol=1e-3)
    assert ahead.fit.form == form


def test_forms_are_chosen_by_forecasts_and_not_by_one_step():
    """Negative control: hardly a ridge has the smaller error over one step, and is worse."""
    X = circle(150) + 0.05 * np.random.default_rng(3).standard_normal((150, 2))
    chosen = pa.forecast(X, 20)
    form = pa.Form(mode="causal", lags=4, window=4, bias=True)
    bare = pa.fit(X[None, :-1], np.diff(X, axis=0)[None], form=form)
    other = pa.forecast(bare, X, 20, increments=True)
    assert other.one_step_error < chosen.one_step_error
    truth = circle(170)[150:]
    error = np.abs(chosen.values - truth).max()
    assert other.n_done[0] < 20 or np.abs(other.values - truth).max() > 1.5 * error


# ---------------------------------------------------------------- misuse


def test_misuse_is_named(turning):
    X = circle(10)[None]
    full = pa.data.random_layer(2, 2, mode="full")
    context = pa.data.random_layer(2, 2, form=pa.Form(mode="causal"), n_context_dims=2)
    narrow = pa.data.random_layer(2, 1, mode="causal")
    wide = pa.data.random_layer(2, 3, mode="causal")
    ids = pa.SequenceBatch.from_ids(np.arange(20)[None].repeat(9, 0) % 5, 5)
    labels = np.arange(60) % 2
    logistic = pa.fit(np.random.default_rng(0).standard_normal((60, 3, 2)), labels, loss="logistic")
    cases = [
        (lambda: pa.forecast(turning, X), "steps is missing"),
        (lambda: pa.forecast(turning, steps=3), "X is missing"),
        (lambda: pa.forecast(turning, 3), "X is missing"),
        (lambda: pa.forecast(turning, X, 0), "steps must be an integer of at least 1; got 0"),
        (lambda: pa.forecast(turning, X, 2.5), "steps must be an integer"),
        (lambda: pa.forecast(X, X, 3), "sequences for both"),
        (lambda: pa.forecast(full, X, 3), "mode 'full'.*fit with mode='causal'"),
        (lambda: pa.forecast(context, X, 3), "attends to a context"),
        (lambda: pa.forecast(narrow, X, 3), "1 coordinate of the next token would be unknown"),
        (lambda: pa.forecast(wide, X, 3), r"the layer has 3. Fit it to next tokens"),
        (lambda: pa.forecast(turning, circle(5)[:, :1], 3), "X must have tokens of 2 coordinates"),
        (lambda: pa.forecast(turning, X, 3, future=X), "predicts all of them; leave it out"),
        (lambda: pa.forecast(narrow, X, 3, future=X), r"future must have shape \(1, 3, 1\)"),
        (lambda: pa.forecast(narrow, X, 3, future=np.full((3, 1), np.nan)), "future"),
        (lambda: pa.forecast(narrow, X, 3, future=np.ones((3, 1)), predicted=[0, 1]), "predicted"),
        (lambda: pa.forecast(narrow, X, 3, future=np.ones((3, 1)), predicted=[4]), "predicted"),
        (lambda: pa.forecast(turning, X, 3, tolerance=-1.0), "tolerance"),
        (lambda: pa.forecast(turning, X, 3, limit=np.nan), "limit"),
        (lambda: pa.forecast(turning, X, 3, form=TURNING), "form is of a fit"),
        (lambda: pa.forecast(X, 3, form=pa.Form()), "form must have mode 'causal'"),
        (lambda: pa.forecast(X, 3, future=X), "future needs a layer"),
        (lambda: pa.forecast(X[:, :2], 3), "at least 3 tokens"),
        (lambda: pa.forecast(np.full((1, 9, 2), np.nan), 3), "NaN"),
        (lambda: pa.forecast(logistic, X, 3), "log-odds"),
        (lambda: pa.forecast(pa.fit(ids, np.ones(9), solver="one_hot"), X, 3), "scores of symbols"),
    ]
    classifier = pa.LinearAttentionClassifier().fit(circle(60).reshape(30, 2, 2), labels[:30])
    cases.append((lambda: pa.forecast(classifier, X, 3), "scores of classes"))
    for call, words in cases:
        with pytest.raises(InvalidInput, match=words):
            call()
    for thing in ("layer", None, pa.data.random_softmax_layer(2)):
        with pytest.raises(InvalidType, match="forecast takes a FitResult"):
            pa.forecast(thing, X, 3)
    with pytest.raises(InvalidType, match="increments"):
        pa.forecast(turning, X, 3, increments=1)
