"""learn_softmax: planted heads come back, and whatever does not is not called recovered."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.model import match_heads
from polyattn.softmax import find_heads
from polyattn.softmax.arguments import rounding_of

EXACT = 1e-10


def worst(found: pa.LearnedSoftmax, planted: pa.SoftmaxAttention) -> float:
    match = match_heads(found.layer, planted)
    return max(match.worst_attn, match.worst_value)


# Planted heads come back -----------------------------------------------------------------------


@pytest.mark.parametrize("logits", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("n_heads", [1, 2, 3])
@pytest.mark.parametrize("given", [True, False])
def test_generic_layers_are_recovered_exactly(n_heads, logits, given):
    for seed in (501, 502):
        task = pa.data.planted_softmax(50, 4, 8, n_heads=n_heads, logits=logits, random_state=seed)
        found = pa.learn_softmax(task.X, task.Y, n_heads if given else None, random_state=seed)
        assert found.recovered
        assert found.n_heads == n_heads
        assert worst(found, task.layer) < EXACT
        assert found.validation_error < 1e-12


SHAPES = {
    "two tokens": {"n_tokens": 2, "n_dims": 4, "n_heads": 2},
    "three tokens": {"n_tokens": 3, "n_dims": 4, "n_heads": 2},
    "more tokens than coordinates": {"n_tokens": 7, "n_dims": 3, "n_heads": 2},
    "more heads than coordinates": {
        "n_tokens": 4,
        "n_dims": 3,
        "n_heads": 4,
        "distribution": "gaussian",
    },
    "gaussian tokens": {"n_tokens": 4, "n_dims": 6, "n_heads": 2, "distribution": "gaussian"},
    "one output": {"n_tokens": 4, "n_dims": 4, "n_heads": 2, "n_outputs": 1},
    "many outputs": {"n_tokens": 3, "n_dims": 3, "n_heads": 2, "n_outputs": 9},
    "one coordinate": {"n_tokens": 4, "n_dims": 1, "n_heads": 1, "distribution": "gaussian"},
    "causal": {"n_tokens": 5, "n_dims": 4, "n_heads": 2, "mode": "causal"},
    "last": {"n_tokens": 4, "n_dims": 4, "n_heads": 2, "mode": "last"},
    "ragged": {"n_tokens": (1, 6), "n_dims": 4, "n_heads": 2},
    "ragged, causal": {"n_tokens": (2, 5), "n_dims": 3, "n_heads": 2, "mode": "causal"},
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape(name):
    options = SHAPES[name]
    mode = options.get("mode", "full")
    task = pa.data.planted_softmax(400, **options, random_state=77)
    found = pa.learn_softmax(task.X, task.Y, options["n_heads"], mode=mode)
    assert found.recovered, found.outcome
    assert found.layer.mode == mode
    assert worst(found, task.layer) < EXACT


def test_every_sequence_of_another_length():
    layer = pa.data.random_softmax_layer(3, n_heads=2, random_state=12)
    rng = np.random.default_rng(12)
    X = [rng.standard_normal((length, 3)) for length in range(2, 62)]
    found = pa.learn_softmax(X, layer(X))
    assert found.recovered
    assert found.n_held_out == 6 + 2  # to choose by, and to judge by
    assert worst(found, layer) < EXACT


def test_what_was_learned_at_one_length_is_right_at_all():
    task = pa.data.planted_softmax(60, 4, 6, n_heads=2, random_state=8)
    found = pa.learn_softmax(task.X, task.Y, 2)
    for length in (2, 3, 8, 32):
        X = pa.data.boolean_sequences(20, length, 6, random_state=length)
        np.testing.assert_allclose(found.layer(X), task.layer(X), atol=1e-12)


@pytest.mark.parametrize("token_size", [1e-150, 1e-6, 1e3, 1e120])
@pytest.mark.parametrize("target_size", [1e-150, 1.0, 1e150])
def test_units_do_not_matter(token_size, target_size):
    task = pa.data.planted_softmax(60, 4, 4, n_heads=2, random_state=3)
    units = token_size * np.array([1.0, 8.0, 0.25, 1.0])
    attn = task.layer.attn / units[:, None] / units
    value = task.layer.value / units[:, None] * target_size
    if not (np.all(np.isfinite(attn)) and np.all(np.isfinite(value)) and np.all(attn != 0)):
        pytest.skip("the layer itself does not fit float64")
    found = pa.learn_softmax(task.X * units, target_size * task.Y, 2)
    assert found.recovered
    order = match_heads(
        pa.SoftmaxAttention(
            found.layer.attn * units[:, None] * units,
            found.layer.value * units[:, None] / target_size,
        ),
        task.layer,
    )
    assert order.worst_attn < 1e-9
    assert order.worst_value < 1e-9


def test_inputs_in_every_memory_layout(tmp_path):
    task = pa.data.planted_softmax(80, 4, 4, n_heads=2, random_state=5)
    np.save(tmp_path / "X.npy", task.X)
    forms = [
        np.asfortranarray(task.X),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        task.X.astype(np.int8),
        task.X.astype(np.float32),
        [*task.X],
    ]
    expected = pa.learn_softmax(task.X, task.Y, 2)
    for X in forms:
        Y = [*task.Y] if isinstance(X, list) else task.Y
        found = pa.learn_softmax(X, Y, 2)
        np.testing.assert_array_equal(found.layer.attn, expected.layer.attn)


def test_targets_that_were_rounded_to_float32():
    task = pa.data.planted_softmax(200, 4, 6, n_heads=2, random_state=4)
    for Y in (task.Y.astype(np.float32), task.Y.astype(np.float32).astype(np.float64)):
        found = pa.learn_softmax(task.X, Y, None)
        assert found.recovered
        assert found.n_heads == 2
        assert worst(found, task.layer) < 1e-5


def test_the_same_seed_gives_the_same_bits():
    task = pa.data.planted_softmax(100, 4, 5, n_heads=3, random_state=6)
    one, other = (pa.learn_softmax(task.X, task.Y, 3, random_state=1) for _ in range(2))
    assert one.layer == other.layer


# What cannot be seen ---------------------------------------------------------------------------


def test_equal_heads_are_merged_and_said_so():
    rng = np.random.default_rng(0)
    attn = rng.standard_normal((2, 5, 5)) / 5
    value = rng.standard_normal((3, 5, 5))
    layer = pa.SoftmaxAttention(attn[[0, 1, 1]], value)
    X = pa.data.boolean_sequences(150, 4, 5, random_state=1)
    found = pa.learn_softmax(X, layer(X), 3)
    assert found.recovered
    assert found.n_heads == 2
    assert "merged" in str(found.outcome) or "dropped" in str(found.outcome)
    merged = pa.SoftmaxAttention(attn, np.stack([value[0], value[1] + value[2]]))
    assert worst(found, merged) < 1e-8


@pytest.mark.parametrize("extra", [1, 2])
def test_more_heads_than_there_are_come_back_as_those_there_are(extra):
    task = pa.data.planted_softmax(150, 4, 6, n_heads=2, random_state=21)
    found = pa.learn_softmax(task.X, task.Y, 2 + extra)
    assert found.recovered
    assert found.n_heads == 2
    assert "merged" in str(found.outcome) or "dropped" in str(found.outcome)
    assert worst(found, task.layer) < EXACT


def test_tokens_of_two_values_that_leave_a_choice():
    """A parity layer found whole: another marker coordinate would do on Boolean tokens."""
    layer = pa.softmax.parity_layer((0, 1, 2), marker=3, output=4, n_dims=6, beta=0.6)
    X = pa.data.boolean_sequences(400, 4, 6, random_state=3)
    found = pa.learn_softmax(X, layer(X), 3)
    assert not found.recovered
    assert found.outcome.name == "ambiguous", found.outcome
    np.testing.assert_allclose(found.layer(X), layer(X), atol=1e-8)
    report = pa.softmax.identifiable_heads(layer, X)
    assert report.verdict == "not_identifiable"
    assert [finding.name for finding in report.findings] == ["two_valued"]
    assert (
        pa.softmax.identifiable_heads(
            layer, np.random.default_rng(0).standard_normal((400, 4, 6))
        ).verdict
        == "identifiable"
    )


def test_a_constant_coordinate_is_fixed_by_convention():
    task = pa.data.planted_softmax(200, 4, 4, n_heads=2, random_state=9)
    X = np.concatenate([task.X, np.ones((200, 4, 1))], axis=2)
    found = pa.learn_softmax(X, task.Y, 2)
    assert found.outcome.name == "recovered_on_these_inputs"
    assert "Coordinates [4] are the same in all tokens" in str(found.outcome)
    assert "14 of 90 directions" in str(found.outcome)
    np.testing.assert_array_equal(found.layer.attn[:, :, 4] == 0.0, True)
    assert "cannot be seen" in str(found.outcome)
    inner = pa.SoftmaxAttention(found.layer.attn[:, :4, :4], found.layer.value[:, :4])
    match = match_heads(inner, task.layer)
    assert max(match.worst_attn, match.worst_value) < EXACT


# Noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 1e-1])
def test_noise_is_estimated_and_error_bars_are_right(noise):
    ratios = []
    for seed in range(601, 604):
        task = pa.data.planted_softmax(400, 4, 4, n_heads=2, noise=noise, random_state=seed)
        found = pa.learn_softmax(task.X, task.Y, 2)
        assert found.recovered, found.outcome
        assert found.noise == pytest.approx(noise, rel=0.1)
        match = match_heads(found.layer, task.layer)
        ratios.append(match.worst_attn / found.attn_error.max())
    assert 0.5 < np.mean(ratios) < 1.5


def test_the_number_of_heads_with_noise():
    for n_heads in (1, 2, 3):
        task = pa.data.planted_softmax(300, 4, 5, n_heads=n_heads, noise=0.01, random_state=30)
        assert pa.learn_softmax(task.X, task.Y).n_heads == n_heads


def test_declared_noise():
    task = pa.data.planted_softmax(300, 4, 5, n_heads=2, noise=0.05, random_state=31)
    found = pa.learn_softmax(task.X, task.Y, 2, noise=0.05)
    assert found.recovered
    assert "declared" in str(found.outcome)
    too_small = pa.learn_softmax(task.X, task.Y, 2, noise=0.02, method="moments")
    assert not too_small.recovered
    assert "larger than the noise" in str(too_small.outcome)


# Not recovered, and said so --------------------------------------------------------------------


# Every family of one shape and every shape of one family; the others take long.
TOO_FEW = [
    pytest.param(shape, family, marks=pytest.mark.slow if shape[3] > 60 and family else ())
    for shape in [(2, 4, 3, 60, 2), (2, 6, 4, 200, 1), (3, 4, 4, 200, 4)]
    for family in (None, "scales", "identity", "rank_one_value")
]


@pytest.mark.parametrize(("shape", "family"), TOO_FEW)
def test_too_few_heads_are_never_called_recovered(shape, family):
    n_heads, n_dims, n_tokens, n_sequences, n_outputs = shape
    task = pa.data.planted_softmax(
        n_sequences, n_tokens, n_dims, n_outputs, n_heads, 2.0, family=family, random_state=11
    )
    found = pa.learn_softmax(task.X, task.Y, n_heads - 1, method="moments")
    assert not found.recovered, found.outcome
    assert "Not recovered" in str(found.outcome)


def test_pure_noise_is_not_a_layer():
    rng = np.random.default_rng(0)
    X = pa.data.boolean_sequences(200, 4, 4, random_state=0)
    found = pa.learn_softmax(X, rng.standard_normal((200, 4, 3)), 1, method="moments")
    assert not found.recovered


def test_a_parity_that_was_not_found_is_not_claimed(monkeypatch):
    monkeypatch.setattr(find_heads, "FULL_EFFORT", 1)
    layer = pa.softmax.parity_layer((0, 1, 2), marker=3, output=0, n_dims=8, beta=3.0, n_outputs=1)
    X = pa.data.boolean_sequences(600, 4, 8, random_state=2)
    found = pa.learn_softmax(X, layer(X), 3, method="moments", max_seconds=2)
    assert not found.recovered or worst(found, layer) < 1e-3
    if found.validation_error > 1e-3:
        assert found.outcome.name in ("not_recovered", "out_of_time")


# Stopping --------------------------------------------------------------------------------------


def test_time_over_keeps_the_best_layer():
    task = pa.data.planted_softmax(400, 4, 8, n_heads=3, family="identity", logits=10.0)
    found = pa.learn_softmax(task.X, task.Y, 3, max_seconds=1e-3)
    assert found.outcome.name == "out_of_time"
    assert found.layer.n_dims == 8
    assert np.isfinite(found.validation_error)


def test_noise_is_not_concluded_from_a_search_that_was_stopped():
    """With few outputs one head of two may look right up to noise; only the end decides."""
    for seed in range(5):
        task = pa.data.planted_softmax(60, 3, 4, 2, 2, 2.0, family="identity", random_state=seed)
        for steps in (5, 20, 60):
            count = iter(range(10**6))

            def stop(*_, count=count, steps=steps):
                if next(count) == steps:
                    raise KeyboardInterrupt

            found = pa.learn_softmax(task.X, task.Y, callback=stop)
            assert not found.recovered or worst(found, task.layer) < 1e-3


def test_an_interrupt_keeps_the_best_layer():
    task = pa.data.planted_softmax(100, 4, 4, n_heads=2)
    steps = []

    def interrupt(phase: str, n_heads: int, error: float) -> None:
        steps.append((phase, n_heads, error))
        if len(steps) == 3:
            raise KeyboardInterrupt

    found = pa.learn_softmax(task.X, task.Y, 2, callback=interrupt)
    assert found.outcome.name in ("interrupted", "recovered")
    assert found.training_error <= min(error for *_, error in steps) * 1.5
    assert steps[0][0] == "start"


# Bad input -------------------------------------------------------------------------------------

TASK = pa.data.planted_softmax(60, 4, 4, n_heads=1, random_state=0)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"n_heads": 0}, InvalidInput, "n_heads must be an integer of at least 1; got 0"),
        ({"n_heads": 1.5}, InvalidInput, "n_heads must be an integer"),
        ({"method": "magic"}, InvalidInput, "method must be one of 'auto', 'moments', 'sculpt'"),
        ({"mode": "sideways"}, InvalidInput, "mode must be one of"),
        ({"noise": -1.0}, InvalidInput, "noise must be a finite number >= 0"),
        ({"noise": "loud"}, InvalidInput, "noise must be a finite number >= 0"),
        ({"max_heads": 0}, InvalidInput, "max_heads must be an integer of at least 1"),
        ({"max_seconds": 0}, InvalidInput, "max_seconds must be a positive number"),
        ({"random_state": "x"}, InvalidInput, "random_state must be"),
        ({"X": TASK.X * np.nan}, InvalidInput, "X contains NaN or infinity"),
        ({"Y": TASK.Y * np.inf}, InvalidInput, "Y contains NaN or infinity"),
        ({"Y": TASK.Y[:50]}, InvalidInput, "X has 60 sequences but Y has 50"),
        ({"Y": 0 * TASK.Y}, InvalidInput, "Y is zero everywhere"),
        ({"X": TASK.X[:, :1], "Y": TASK.Y[:, :1]}, InvalidInput, "all sequences have one token"),
        ({"X": np.ones_like(TASK.X)}, InvalidInput, "all tokens of X are equal"),
        ({"X": TASK.X[:0], "Y": TASK.Y[:0]}, InvalidInput, "X is empty"),
        ({"X": TASK.X.astype(str)}, InvalidType, "X must hold real numbers"),
    ],
)
def test_misuse_is_refused(change, error, message):
    arguments = {"X": TASK.X, "Y": TASK.Y, "n_heads": 1} | change
    with pytest.raises(error, match=re.escape(message)):
        pa.learn_softmax(**arguments)


def test_too_few_sequences_say_how_many_are_needed():
    with pytest.raises(InvalidInput, match=r"at least (\d+) sequences are needed") as refused:
        pa.learn_softmax(TASK.X[:10], TASK.Y[:10], 3)
    needed = int(re.search(r"at least (\d+) sequences", str(refused.value))[1])
    many = pa.data.planted_softmax(needed, 4, 4, n_heads=3, random_state=0)
    pa.learn_softmax(many.X, many.Y, 3, method="moments", max_seconds=5)
    with pytest.raises(InvalidInput, match="sequences are too few"):
        pa.learn_softmax(many.X[: needed - 2], many.Y[: needed - 2], 3)


def test_layers_that_do_not_fit_memory_are_refused_at_once():
    X = np.zeros((400, 200, 200), dtype=np.int8)
    X[:, :, 0] = np.arange(200) % 2
    X[np.arange(400), np.arange(400) % 200, 1 + np.arange(400) // 200] = 1
    with pytest.raises(InvalidInput, match=r"40000 unknown entries, and descent .* 38 GB"):
        pa.learn_softmax(X, X[:, :, :2], 1)


def test_inputs_are_not_changed():
    X, Y = TASK.X.copy(), TASK.Y.copy()
    X.setflags(write=False)
    Y.setflags(write=False)
    pa.learn_softmax(X, Y, 1)
    np.testing.assert_array_equal(X, TASK.X)


def test_rounding_is_read_off_the_numbers():
    values = np.random.default_rng(0).standard_normal((5, 2))
    assert rounding_of(values) == 2.0**-53
    assert rounding_of(values.astype(np.float32)) == 2.0**-24
    assert rounding_of(values.astype(np.float32).astype(np.float64)) == 2.0**-24
    assert rounding_of(values.astype(np.float16)) == 2.0**-11
    assert rounding_of(np.ones((3, 1))) == 2.0**-53
    assert rounding_of(np.ones((3, 1), dtype=np.int64)) == 2.0**-53


def test_the_result_describes_itself():
    task = pa.data.planted_softmax(60, 4, 3, n_heads=1, random_state=0)
    found = pa.learn_softmax(task.X, task.Y)
    text = str(found)
    assert text.count("\n") <= 12
    assert found.outcome.sentence in text
    assert "validation error" in text
    plain = found.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["outcome"]["ok"] is True
    assert plain["validation_error"] == found.validation_error
    full = found.to_full_dict()
    assert full["kind"] == "learned_softmax"
    assert np.shape(full["attn_std"]) == (1, 3, 3)
    stopped = pa.learn_softmax(task.X, task.Y, max_seconds=1e-9)
    assert stopped.outcome.next_step in str(stopped)
    assert stopped.method == "start"
