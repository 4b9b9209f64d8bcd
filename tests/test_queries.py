"""learn_from_queries: heads recovered from a black box, their error bars, budgets and failures."""

import signal
from time import sleep

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

FORMATS = {"float64": 1e-11, "float32": 1e-5, "float16": 0.05, "bfloat16": 0.05}


def planted(d, n_heads, e=None, rank=None, seed=0, size=1.0, bias=False, bias_size=1.0):
    """Random heads whose logits are of order ``size`` for tokens of norm one or two."""
    rng = np.random.default_rng([seed, d, n_heads])
    rows, e, rank = d + bias, e or d, rank or d
    left, right = rng.standard_normal((2, n_heads, rows, rank))
    attn = size * left @ right.transpose(0, 2, 1) / np.sqrt(rank * rows)
    into, out = rng.standard_normal((n_heads, rows, rank)), rng.standard_normal((n_heads, rank, e))
    value = into @ out / np.sqrt(rank * rows)
    scale = np.append(np.ones(d), [bias_size] * bias)[:, None]
    return pa.SoftmaxAttention(scale * attn, scale * value, bias=bias)


def differences(layer, result):
    """(error, bars or None) of attn and of value in the order of the layer; of what can be seen."""
    d, found = layer.n_dims, result.layer
    assert found.n_heads == layer.n_heads, str(result.outcome)
    order = pa.match_heads(found, layer).order
    parts = []
    for name, cut in (("attn", np.s_[:, :, :d]), ("value", np.s_[:, :d])):
        bars = getattr(result, f"{name}_error")
        error = (getattr(found, name)[order] - getattr(layer, name))[cut]
        parts.append((error, None if bars is None else bars[order][cut]))
    return parts


def sizes(matrices):
    return np.linalg.norm(matrices, axis=(1, 2))


def worst(layer, result):
    """The largest error of a head, relative to its size."""
    of_attn, of_value = (sizes(error) for error, _ in differences(layer, result))
    shown = layer.attn[:, :, : layer.n_dims]
    return max(np.max(of_attn / sizes(shown)), np.max(of_value / sizes(layer.value)))


def assert_recovered(layer, result, tolerance=1e-9):
    assert result.recovered
    assert result.outcome.name == "recovered", str(result.outcome)
    assert worst(layer, result) <= tolerance


FAMILIES = (
    "close", "same_value", "rank_one_value", "scales", "identity", "rank_one_attn", "cancel",
    "sharp_mix", "permutation",
)  # fmt: skip
HARD = {family: pa.data.hard_softmax_layer(family, 6, 3, 6.0) for family in FAMILIES} | {
    "opposite attn": pa.SoftmaxAttention(
        [np.eye(2), -np.eye(2)], [[[1, 0], [0, 2]], [[0, 1], [1, 0]]]
    ),
    "3 heads, one output": planted(6, 3, 1),
    "4 heads, two outputs": planted(6, 4, 2, seed=7),
}


@pytest.mark.parametrize("bias", [False, True])
def test_heads_are_counted_and_recovered_from_few_queries(bias):
    for d, n_heads in ((8, 3), (32, 6) if not bias else (12, 4), (5, 5), (2, 1), (1, 1)):
        layer = planted(d, n_heads, bias=bias, seed=1)
        result = pa.learn_from_queries(layer, d, bias=bias)
        assert_recovered(layer, result)
        # The documented number of queries, with what the checks take.
        width = d + bias
        assert result.n_queries <= d * (width + n_heads + 6) + 12 * (width + 2 * n_heads + 12)
        assert result.n_queries < 4 * n_heads * d**2 or d < 8
        assert 0 < result.validation_error < result.deviation < 1e-8
    for bias_size in (1e-2, 100.0) if bias else ():
        layer = planted(12, 3, seed=3, bias=True, bias_size=bias_size)
        assert_recovered(layer, pa.learn_from_queries(layer, bias=True), 1e-7)


@st.composite
def boxes(draw):
    """A layer, its options, and the format of its answers."""
    bias = draw(st.booleans())
    d, n_heads, e = (draw(st.integers(*span)) for span in ((2, 5), (1, 3), (1, 5)))
    layer = planted(
        d, n_heads, e=e, rank=draw(st.integers(1, d)), seed=draw(st.integers(0, 10**6)),
        size=10 ** draw(st.floats(-2, 2)), bias=bias, bias_size=10 ** draw(st.floats(-1, 1.5)),
    )  # fmt: skip
    return layer, bias, draw(st.sampled_from(["float64", "float64", "float32", "bfloat16"]))


@given(boxes())
def test_what_is_recovered_is_right(box):
    layer, bias, digits = box
    result = pa.learn_from_queries(
        lambda X: oracle.in_format(layer(X), digits), layer.n_dims, bias=bias, max_queries=5_000
    )
    assert result.n_queries <= 5_000
    if result.outcome.name == "recovered":
        assert worst(layer, result) <= 1e-3
    elif result.outcome.ok:
        assert result.outcome.name == "recovered_to_precision"
        assert worst(layer, result) <= 5 * result.doubt
    else:
        assert not result.recovered


@pytest.mark.parametrize("name", HARD)
def test_heads_that_are_hard_to_separate(name):
    assert_recovered(HARD[name], pa.learn_from_queries(HARD[name]), 1e-6)


def test_low_rank_takes_fewer_queries():
    full, low = (planted(48, 1, rank=rank, seed=8) for rank in (48, 3))
    of_full, of_low = (pa.learn_from_queries(layer) for layer in (full, low))
    assert_recovered(full, of_full)
    assert_recovered(low, of_low)
    assert of_low.n_queries < of_full.n_queries / 1.5


def test_equal_heads_are_merged_and_empty_ones_left_out():
    layer = planted(8, 2, seed=10)
    V, W = layer.value
    given_layer = pa.SoftmaxAttention(layer.attn[[0, 0, 1, 1]], np.stack([V, W, W, 0 * V]))
    merged = pa.SoftmaxAttention(layer.attn, np.stack([V + W, W]))
    assert_recovered(merged, pa.learn_from_queries(given_layer))


@pytest.mark.parametrize("mode", ["full", "causal"])
def test_attention_without_effect_is_one_head(mode):
    value = planted(4, 2, seed=11).value
    flat = pa.SoftmaxAttention(np.zeros((2, 4, 4)), value, mode)
    result = pa.learn_from_queries(flat)
    assert (result.recovered, result.n_heads, result.layer.mode) == (True, 1, mode)
    np.testing.assert_array_equal(result.layer.attn, 0)
    np.testing.assert_allclose(result.layer.value[0], value.sum(axis=0), atol=1e-12)
    # Nothing tells the modes of a layer apart that answers nothing.
    silent = pa.learn_from_queries(lambda X: np.zeros((*X.shape[:2], 2)), 4)
    assert (silent.recovered, silent.layer.mode) == (True, "full")
    np.testing.assert_array_equal(silent.layer.value, 0)


def test_biases_that_were_not_asked_for_are_named():
    layer = planted(4, 2, seed=2, bias=True, bias_size=1e-2)
    result = pa.learn_from_queries(lambda X: layer(X).astype("float16"), 4)
    assert result.outcome.name == "bias_needed"
    assert "bias=True" in result.outcome.next_step
    # Biases of queries and keys alone leave one-token answers linear, and show otherwise.
    value = layer.value * np.r_[1, 1, 1, 1, 0][:, None]
    layer = pa.SoftmaxAttention(layer.attn, value, bias=True)
    assert not pa.learn_from_queries(layer, 4, max_queries=2000).recovered
    assert pa.learn_from_queries(layer, 4, bias=True).recovered


def test_another_number_of_heads_is_an_outcome():
    layer = planted(6, 3, seed=12)
    for n_heads in (1, 4):
        result = pa.learn_from_queries(layer, n_heads=n_heads)
        assert result.outcome.name == "other_number_of_heads"
        assert result.n_heads == 3
    right, counted, unknown = (pa.learn_from_queries(layer, n_heads=n) for n in (3, "auto", None))
    assert right.recovered
    assert counted.layer == unknown.layer == right.layer


def test_units_of_outputs_move_values_alone():
    """By powers of two nothing is rounded: all figures are the same, those with units moved."""
    layer, factor = pa.data.random_softmax_layer(3, 2, n_heads=2, random_state=0), 2.0**-30
    plain = pa.learn_from_queries(layer)
    scaled = pa.learn_from_queries(pa.SoftmaxAttention(layer.attn, factor * layer.value))
    assert_recovered(layer, plain)
    np.testing.assert_array_equal(scaled.layer.attn, plain.layer.attn)
    np.testing.assert_array_equal(scaled.attn_error, plain.attn_error)
    np.testing.assert_allclose(scaled.layer.value / factor, plain.layer.value, rtol=1e-15)
    np.testing.assert_allclose(scaled.value_error / factor, plain.value_error, rtol=1e-12)
    assert scaled.noise / factor == pytest.approx(plain.noise)
    assert scaled.deviation == pytest.approx(plain.deviation)


@pytest.mark.parametrize("factor", [1e-100, 1e-20, 1e-6, 1e6])
def test_attention_of_any_size_has_bars_of_its_size(factor):
    layer = pa.data.random_softmax_layer(3, 2, n_heads=2, random_state=0)
    small = pa.SoftmaxAttention(factor * layer.attn, layer.value)
    result = pa.learn_from_queries(small)
    assert_recovered(small, result)
    assert 1e-18 < np.linalg.norm(result.attn_error / factor) < 1e-9


def test_what_shows_on_tokens_out_of_reach_is_not_claimed():
    """Attention of 1e-40 acts on tokens that this black box refuses."""
    layer = pa.data.random_softmax_layer(4, 2, n_heads=2, random_state=0)
    small = pa.SoftmaxAttention(1e-40 * layer.attn, layer.value)

    def narrow(X):
        if np.abs(X).max() > 1e15:
            raise OverflowError("too large")
        return small(X)

    result = pa.learn_from_queries(narrow, 4)
    assert result.outcome.name == "recovered_on_these_inputs"
    assert not result.recovered


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("digits", FORMATS)
def test_error_bars_hold_and_are_not_idle(digits, bias):
    """Nominal 95 % intervals hold more than 90 % of the entries, over several layers."""
    ratios = []
    for seed, (d, n_heads) in enumerate([(4, 2), (8, 3), (12, 3)]):
        layer = planted(d, n_heads, bias=bias, seed=seed)
        result = pa.learn_from_queries(
            lambda X, of=layer: oracle.in_format(of(X), digits), d, bias=bias
        )
        exact = digits in ("float64", "float32")
        assert result.outcome.name == ("recovered" if exact else "recovered_to_precision")
        if bias:
            # What no input shows is fixed by convention, and has no error.
            np.testing.assert_array_equal(result.layer.attn[:, :, -1], 0)
            np.testing.assert_array_equal(result.attn_error[:, :, -1], 0)
            np.testing.assert_array_equal(np.ptp(result.layer.value[:, -1], axis=0), 0)
            b, shown = (each.value[:, -1].sum(axis=0) for each in (layer, result.layer))
            assert np.all(np.abs(b - shown) < 10 * result.value_error[0, -1])
        parts = differences(layer, result)
        assert max(np.max(sizes(e) / sizes(bar)) for e, bar in parts) < 3
        ratios.append(np.concatenate([(e / bar).ravel() for e, bar in parts]))
        of_attn = sizes(result.attn_error) / sizes(result.layer.attn)
        of_value = sizes(result.value_error) / sizes(result.layer.value)
        assert result.doubt == pytest.approx(max(of_attn.max(), of_value.max()))
        assert result.doubt <= FORMATS[digits]
    ratios = np.concatenate(ratios)
    assert np.mean(np.abs(ratios) < 1.96) > 0.9
    # Bars of exact answers are six times what independent roundings give.
    assert np.sqrt(np.mean(ratios**2)) > (0.03 if digits == "float64" else 0.4)


def test_a_box_that_computes_in_few_bits_is_recovered():
    """Tokens, logits, weights and values are rounded, too."""

    def rounded(Y):
        return oracle.in_format(Y, "bfloat16")

    layer = planted(8, 2, seed=5)
    exact = pa.SoftmaxAttention(rounded(layer.attn), rounded(layer.value))
    result = pa.learn_from_queries(lambda X: oracle.changed_attention(exact, X, rounded=rounded), 8)
    assert result.recovered, result.outcome
    within = [(np.abs(e) < 1.96 * bar).mean() for e, bar in differences(exact, result)]
    assert np.mean(within) > 0.8
    assert worst(exact, result) < 3 * result.doubt


def test_noise_is_measured_averaged_and_no_recovery():
    layer, rng = planted(6, 2, seed=6), np.random.default_rng(0)

    def asked(noise, max_queries=None):
        box = lambda X: layer(X) + noise * rng.standard_normal(X.shape)  # noqa: E731
        return pa.learn_from_queries(box, 6, max_queries=max_queries)

    result = asked(1e-3)
    assert (result.outcome.name, result.recovered) == ("not_deterministic", False)
    ratios = np.concatenate([(e / bar).ravel() for e, bar in differences(layer, result)])
    assert np.mean(np.abs(ratios) < 1.96) > 0.9
    assert 0.4 < np.sqrt(np.mean(ratios**2)) < 1.5
    # More queries leave smaller errors.
    assert asked(1e-3, 900).doubt > 1.3 * result.doubt
    assert 0.5e-7 < asked(1e-7, 300).noise < 5e-7
    for size in (0.05, 1.0):
        assert asked(size, 8000).outcome.name in ("not_deterministic", "budget")


LAYER = planted(6, 2)


def test_random_state_decides_everything():
    first, same, other, any_one = (
        pa.learn_from_queries(LAYER, random_state=state)
        for state in (3, np.random.default_rng(3), 4, None)
    )
    assert (first.layer, first.n_queries) == (same.layer, same.n_queries)
    assert first.layer not in (other.layer, any_one.layer)
    assert any_one.recovered


def test_batches_change_nothing_and_calls_are_reported_and_counted():
    calls, steps = [], []

    def watched(X):
        calls.append(X.copy())
        return LAYER(X)

    whole = pa.learn_from_queries(LAYER, max_seconds=1e9)
    result = pa.learn_from_queries(watched, 6, batch_size=9, callback=lambda *s: steps.append(s))
    np.testing.assert_allclose(result.layer.attn, whole.layer.attn, atol=1e-10)
    counts = np.cumsum([len(X) for X in calls])
    assert np.diff(counts).max() <= 9
    assert counts[-1] == result.n_queries == result.phases[-1].figures["n_queries"]
    phases, n_heads, reported = zip(*steps, strict=True)
    assert list(dict.fromkeys(phases)) == [phase.name for phase in result.phases]
    assert list(dict.fromkeys(n_heads)) == [0, 1, 2]
    assert list(reported) == list(counts)
    # Figures are those of the held-out sequences, nine of each of the first four lengths.
    assert [X.shape[1] for X in calls[-6:]] == [2, 3, 5, 9, 64, 256]
    seen = [(LAYER(X)[:, -1], result.layer(X)[:, -1]) for X in calls[-6:-2]]
    missed = np.linalg.norm([one - other for one, other in seen])
    wanted = missed / np.linalg.norm([one for one, _ in seen])
    assert result.validation_error == pytest.approx(wanted, rel=0.1)
    assert result.validation_error < result.deviation < 1e-8


def knows_the_sum(result):
    return np.allclose(result.layer.value.sum(axis=0), LAYER.value.sum(axis=0))


def test_a_budget_ends_the_run_with_what_was_learned():
    whole = pa.learn_from_queries(LAYER, 6)
    for budget in (1, 100, 150, 240):
        result = pa.learn_from_queries(LAYER, 6, max_queries=budget)
        assert (result.outcome.name, result.recovered) == ("budget", False)
        assert result.n_queries <= budget
        assert (result.validation_error, result.attn_error) == (None, None)
        assert (result.layer is None) == (budget == 1)
        assert result.layer is None or knows_the_sum(result)
        assert result.layer is None or result.layer.mode == "last"
    with pytest.raises(InvalidInput):
        pa.learn_from_queries(LAYER, 6, max_queries=1).predict(np.ones((2, 3, 6)))
    # The last six queries are of 64 and 256 tokens; without them the layer is known, and shorter.
    checked = pa.learn_from_queries(LAYER, 6, max_queries=whole.n_queries - 1)
    assert checked.recovered
    almost = pa.learn_from_queries(LAYER, 6, max_queries=whole.n_queries - 7)
    assert almost.outcome.name == "budget"
    np.testing.assert_array_equal(almost.layer.attn, whole.layer.attn)
    exact = pa.learn_from_queries(LAYER, 6, max_queries=whole.n_queries)
    assert exact.layer == whole.layer
    assert checked.n_queries < exact.n_queries == whole.n_queries


class After:
    """A layer that, after some sequences, does something else."""

    def __init__(self, n_queries, then):
        self.left, self.then = n_queries, then

    def __call__(self, X):
        self.left -= len(X)
        return LAYER(X) if self.left >= 0 else self.then(LAYER(X))


def fail(_answer):
    raise RuntimeError("the line is dead " + "\x1b" + "!" * 300_000)


ENDINGS = {
    "fails": (fail, "oracle_failed"),
    "spoils": (lambda answer: answer * [np.nan, 1, 1, 1, 1, 1], "oracle_failed"),
    "another shape": (lambda answer: answer[:, :, :2], "oracle_failed"),
    "interrupted": (lambda answer: signal.raise_signal(signal.SIGINT) or answer, "interrupted"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_what_was_learned_survives_whatever_ends_the_run(name):
    then, outcome = ENDINGS[name]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for n_queries in (60, 200):
            result = pa.learn_from_queries(After(n_queries, then), 6, batch_size=8)
            assert (result.outcome.name, result.recovered) == (outcome, False)
            assert knows_the_sum(result)
            assert n_queries - 8 <= result.n_queries <= n_queries + 8
            assert result.error is not None
        if outcome == "interrupted":
            result = pa.learn_from_queries(After(3, then), 6, batch_size=4)
            assert (result.outcome.name, result.layer) == (outcome, None)
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_of_the_oracle_are_kept_and_told():
    result = pa.learn_from_queries(After(100, fail), 6)
    assert isinstance(result.error, RuntimeError)
    assert result.error_text.startswith("RuntimeError: the line is dead \\x1b!!!")
    assert max(len(result.error_text), len(result.outcome.sentence)) < 5000


@pytest.mark.parametrize("n_calls", [3, 40])
def test_when_the_time_is_over_what_was_learned_is_returned(n_calls):
    answered = []

    def slow(X):
        if len(answered) == n_calls:
            sleep(0.6)
        answered.append(len(X))
        return LAYER(X)

    result = pa.learn_from_queries(slow, 6, batch_size=8, max_seconds=0.5)
    assert (result.outcome.name, result.error) == ("out_of_time", None)
    assert result.n_queries == sum(answered)
    assert len(answered) <= n_calls + 1
    # One-token sequences come first, and give the sum of the values.
    assert len(answered) < 12 if result.layer is None else knows_the_sum(result)


MISUSE = [
    ("n_dims", 0), ("n_dims", 5), ("n_heads", 0), ("n_heads", "two"), ("max_seconds", 0),
    ("max_queries", 0), ("batch_size", 0), ("random_state", -1), ("mode", "sideways"),
    ("normalisation", "batch_norm"), ("rotary", 10000.0),
]  # fmt: skip
NO_ANSWERS = {
    "no rows": lambda X: np.zeros(len(X)),
    "one sequence more": lambda X: np.zeros((len(X) + 1, X.shape[1], 3)),
    "no outputs": lambda X: np.zeros((*X.shape[:2], 0)),
    "not finite": lambda X: np.full((*X.shape[:2], 3), np.nan),
    "complex": lambda X: np.zeros((*X.shape[:2], 2)) * 1j,
}


def test_misuse_names_its_argument_and_answers_the_oracle():
    for name, wrong in MISUSE:
        with pytest.raises(InvalidInput, match=name):
            pa.learn_from_queries(LAYER, **{name: wrong})
    with pytest.raises(InvalidInput, match="n_dims"):
        pa.learn_from_queries(lambda X: X)
    with pytest.raises(InvalidInput, match="residual"):
        pa.learn_from_queries(planted(6, 2, e=3), residual=True)
    for box in NO_ANSWERS.values():
        with pytest.raises((InvalidInput, InvalidType), match="oracle"):
            pa.learn_from_queries(box, 4)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "bias", "digits"), [(64, True, "float64"), (48, False, "float32")])
def test_layers_of_real_width_are_recovered(d, bias, digits):
    layer = planted(d, 6, rank=16, bias=bias, seed=15)
    result = pa.learn_from_queries(lambda X: oracle.in_format(layer(X), digits), d, bias=bias)
    assert_recovered(layer, result, 1e-7 if digits == "float64" else 1e-3)
    assert result.n_queries < 24 * d**2
