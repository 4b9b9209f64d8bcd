"""learn_softmax: planted heads come back in every shape, unit and noise, with true error bars."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from oracle import EPS, MODES, head_errors, relative_error, softmax_outputs, softmax_slopes
from polyattn.errors import PolyattnError

EXACT = 1e-10


def worst(found, planted) -> float:
    """The largest relative error of a matrix of a head."""
    return max(each.max() for each in head_errors(found.layer, planted)[1:])


def random_heads(rng, n_heads=2, n_dims=3, n_outputs=2, mode="full", bias=False):
    """A layer as it is returned: with a bias, what no input shows is set by convention."""
    options = {"logits": 2.0, "mode": mode, "random_state": rng, "bias": bias}
    layer = pa.data.random_softmax_layer(n_dims, n_outputs, n_heads, **options)
    return pa.canonical(layer) if bias else layer


def learn(X, Y, *arguments, **options):
    """``learn_softmax``, and that what it found is called recovered."""
    found = pa.learn_softmax(X, Y, *arguments, **options)
    assert found.recovered, found.outcome
    assert found.outcome.ok
    return found


RNG = np.random.default_rng(3)
LAYER = random_heads(RNG)
X = RNG.standard_normal((80, 4, 3))
Y = LAYER(X)
NOISE = 0.05 * RNG.standard_normal(Y.shape)


# Fields of planted_softmax; sequences are 100 where nothing else is said.
SHAPES = {
    "blurred": {"n_tokens": 4, "n_dims": 8, "n_heads": 3, "logits": 0.5, "n_sequences": 50},
    "sharp": {"n_tokens": 4, "n_dims": 8, "n_heads": 3, "logits": 2.0, "n_sequences": 50},
    "two tokens": {"n_tokens": 2, "n_dims": 4, "n_heads": 2},
    "many tokens": {"n_tokens": 7, "n_dims": 3, "n_heads": 2},
    "many heads": {"n_tokens": 4, "n_dims": 3, "n_heads": 4, "distribution": "gaussian"},
    "one output": {"n_tokens": 4, "n_dims": 4, "n_heads": 2, "n_outputs": 1},
    "many outputs": {"n_tokens": 3, "n_dims": 3, "n_heads": 2, "n_outputs": 9},
    "one coordinate": {"n_tokens": 4, "n_dims": 1, "n_heads": 1, "distribution": "gaussian"},
    "causal": {"n_tokens": 5, "n_dims": 4, "n_heads": 2, "mode": "causal"},
    "last": {"n_tokens": 4, "n_dims": 4, "n_heads": 2, "mode": "last", "n_sequences": 300},
    "ragged": {"n_tokens": (1, 6), "n_dims": 4, "n_heads": 2},
    "ragged causal": {"n_tokens": (2, 5), "n_dims": 3, "n_heads": 2, "mode": "causal"},
    "every length": {"n_tokens": (2, 30), "n_dims": 3, "n_heads": 2, "n_sequences": 30},
    "one value": {"n_tokens": 4, "n_dims": 4, "n_heads": 3, "family": "same_value", "logits": 4.0},
    "large": {"n_tokens": 6, "n_dims": 16, "n_heads": 2, "n_sequences": 300},
} | {
    family: {"n_tokens": 4, "n_dims": 6, "n_heads": 3, "family": family, "logits": 4.0}
    for family in ("close", "rank_one_value", "scales", "identity")
}


@pytest.mark.parametrize("name", SHAPES)
def test_planted_heads_come_back_exactly(name):
    count = 600 if "family" in SHAPES[name] else 100
    options = {"n_sequences": count, "random_state": 77} | SHAPES[name]
    task = pa.data.planted_softmax(**options)
    outputs = softmax_outputs(task.layer, list(task.X))
    targets = [y[0] for y in outputs] if task.layer.mode == "last" else outputs
    # Some are given the number of their heads, the others find it.
    counted = len(name) % 2 == 0
    X = task.X if isinstance(task.X, np.ndarray) else list(task.X)
    targets = np.array(targets) if isinstance(X, np.ndarray) else targets
    found = learn(X, targets, None if counted else task.layer.n_heads, mode=task.layer.mode)
    assert worst(found, task.layer) < EXACT
    assert found.layer.mode == task.layer.mode
    assert max(found.validation_error, found.training_error) < 1e-12
    assert found.n_training + found.n_held_out == len(X)
    assert found.n_held_out >= 5
    # Error bars of exact heads are rounding, and no head is farther off than they say.
    bars = max(found.attn_error.max(), found.value_error.max())
    assert worst(found, task.layer) <= 3 * bars < 1e-6


@given(seed=st.integers(0, 2**32 - 1), mode=st.sampled_from(MODES), bias=st.booleans())
def test_changes_of_coordinates_change_the_heads_as_they_should(seed, mode, bias):
    """X B and Y M have the heads B^-1 A B^-T and B^-1 V M; no order matters, and F(-X) = -F(X)."""
    rng = np.random.default_rng(seed)
    layer = random_heads(rng, int(rng.integers(1, 3)), 3, 2, mode, bias)
    X = rng.standard_normal((120 if mode != "last" else 400, 4, 3))
    Y = layer(X)
    # Of condition 2 at most: tokens stay as easy as they were.
    turns = [np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (3, 3, 2)]
    B, M = turns[0] @ np.diag([1.0, 1.5, 2.0]) @ turns[1], 3.0 * turns[2]
    back = np.linalg.inv(B)
    back = np.block([[back, np.zeros((3, 1))], [np.zeros((1, 3)), np.eye(1)]]) if bias else back
    expected = pa.SoftmaxAttention(back @ layer.attn @ back.T, back @ layer.value @ M, mode, bias)
    order = rng.permutation(len(X))
    X, Y = (X @ B)[order], (Y @ M)[order]
    if mode == "full":
        places = rng.permutation(4)
        X, Y = X[:, places], Y[:, places]
    if not bias:
        X, Y = -X, -Y
    n_heads = "auto" if seed % 2 else layer.n_heads
    found = learn(X, Y, n_heads, mode=mode, bias=bias, random_state=seed)
    if bias:
        # What no input shows is set by convention, and has no error.
        assert np.all(found.layer.attn[:, :, -1] == 0.0)
        assert np.all(found.layer.value[:, -1] == found.layer.value[0, -1])
        assert np.all(found.attn_std[:, :, -1] == 0.0)
    # Heads that are hard to tell apart have large bars even without noise.
    bars = max(found.attn_error.max(), found.value_error.max())
    assert worst(found, expected) < max(EXACT, 3 * bars)
    assert bars < 1e-6


POWERS = st.integers(-150, 150)


@cache
def learned(noisy):
    return pa.learn_softmax(X, Y + noisy * NOISE, 2)


@given(
    of_tokens=st.one_of(POWERS.map(lambda p: [p] * 3), st.lists(POWERS, min_size=3, max_size=3)),
    of_target=POWERS,
    noisy=st.booleans(),
)
def test_units_change_nothing_but_the_units(of_tokens, of_target, noisy):
    """The scaled layer, bit by bit."""
    of_tokens, plain, targets = np.array(of_tokens), learned(noisy), Y + noisy * NOISE
    of_attn = -of_tokens[:, None] - of_tokens
    of_value = of_target - of_tokens[:, None]
    scaled = np.ldexp(X, of_tokens)
    found = pa.learn_softmax(scaled, np.ldexp(targets, of_target), 2)
    assert str(found.outcome) == str(plain.outcome)
    for one, other, exponent in (
        (plain.layer.attn, found.layer.attn, of_attn),
        (plain.layer.value, found.layer.value, of_value),
        (plain.attn_std, found.attn_std, of_attn),
        (plain.value_std, found.value_std, of_value),
    ):
        np.testing.assert_allclose(other, np.ldexp(one, exponent), rtol=4 * EPS)
    np.testing.assert_array_equal(found.attn_error, plain.attn_error)
    assert found.noise >= np.ldexp(plain.noise, of_target)
    outputs = np.ldexp(found.layer(scaled), -of_target)
    assert relative_error(outputs, plain.layer(X)) < 1e-12


def test_layouts_and_dtypes_do_not_matter():
    task = pa.data.planted_softmax(80, 4, 3, n_heads=2, random_state=5)
    expected = pa.learn_softmax(task.X, task.Y, 2)
    for tokens in (np.asfortranarray(task.X), task.X.astype(np.int8), [*task.X]):
        targets = [*task.Y] if isinstance(tokens, list) else task.Y
        assert pa.learn_softmax(tokens, targets, 2).layer == expected.layer


def test_targets_rounded_to_single_precision_are_known_as_such():
    single = Y.astype(np.float32)
    for targets in (single, single.astype(np.float64)):
        found = learn(X, targets)
        assert 1e-12 < worst(found, LAYER) < 1e-5
        assert min(found.attn_error.min(), found.value_error.min()) >= 2.0**-24


def test_more_heads_than_there_are_come_back_as_those_there_are():
    for given_heads in (3, 4):
        found = learn(X, Y, given_heads)
        assert worst(found, LAYER) < EXACT
    # Of equal heads only the sum of the values counts, and of idle ones nothing.
    (A, B), (V, W) = LAYER.attn, LAYER.value
    for attn, value, merged in (
        ([A, B, B], [V, W, V], [V, W + V]),
        ([A, B, A], [V, W, 2 * V], [3 * V, W]),
    ):
        layer = pa.SoftmaxAttention(np.stack(attn), np.stack(value))
        assert worst(learn(X, layer(X), 3), pa.SoftmaxAttention(LAYER.attn, merged)) < 1e-8
    idle = pa.SoftmaxAttention(LAYER.attn, np.stack([V, 0 * V]))
    shifts = np.arange(32.0).reshape(2, 4, 4)[..., :2]
    flat = pa.SoftmaxAttention(np.ones((2, 4, 4)), shifts, bias=True)
    for layer in (idle, flat):
        assert learn(X, layer(X), 2, bias=layer.bias).n_heads == 1


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_the_number_of_heads_is_found_in_noise(n_heads):
    task = pa.data.planted_softmax(120, 4, 3, n_heads=n_heads, noise=0.01, random_state=30)
    assert learn(task.X, task.Y).n_heads == n_heads
    assert pa.learn_softmax(task.X, task.Y, max_heads=1).n_heads == 1


@pytest.mark.parametrize(("mode", "bias"), [(mode, False) for mode in MODES] + [("full", True)])
def test_error_bars_are_the_inverse_of_the_information(mode, bias):
    """sigma^2 (J^T J)^-1 of all examples, of which training has its share."""
    rng = np.random.default_rng(1)
    layer = random_heads(rng, 2, 2, 2, mode, bias)
    X = rng.standard_normal((1200 if mode == "last" else 400, 3, 2))
    Y = layer(X)
    declared = 0.02 if bias or mode == "last" else None
    noise = 0.02 * rng.standard_normal(Y.shape)
    found = learn(X, Y + noise, 2, mode=mode, bias=bias, noise=declared)
    assert found.noise == pytest.approx(0.02, rel=0.1)
    slopes = softmax_slopes(found.layer, X) * np.sqrt(found.n_training / len(X))
    covariance = found.noise**2 * np.linalg.inv(slopes.T @ slopes)
    bars = np.sqrt(np.diag(covariance))
    shown = np.concatenate([found.attn_std[:, :, :2].ravel(), found.value_std[:, :2].ravel()])
    np.testing.assert_allclose(shown, bars[: len(shown)], rtol=0.15)
    if bias:
        # Every head has an equal share of the constant.
        np.testing.assert_allclose(found.value_std[:, 2], [bars[-2:] / 2] * 2, rtol=0.15)
    # Relative errors of whole matrices, in units in which coordinates are of size one.
    sizes = [np.linalg.norm(each, axis=(1, 2)) for each in (found.attn_std, found.layer.attn)]
    np.testing.assert_allclose(found.attn_error, sizes[0] / sizes[1], rtol=0.5)


def test_declared_noise_is_tested_on_both_sides():
    noisy = Y + NOISE
    assert learn(X, noisy, 2, noise=0.05).noise == pytest.approx(0.05, rel=0.1)
    # Far above the residuals it is judged as if it had not been declared.
    plain = pa.learn_softmax(X, noisy, 2)
    for declared in (0.2, 1e300):
        assert learn(X, noisy, 2, noise=declared).layer.attn == pytest.approx(plain.layer.attn)
    assert not pa.learn_softmax(X, noisy, 2, noise=0.03, method="moments").recovered


def test_an_interrupt_keeps_the_best_layer():
    task = pa.data.planted_softmax(300, 4, 4, n_heads=2, logits=2.0, noise=0.05, random_state=2)
    for n_steps in (1, 10):
        steps = []

        def interrupt(*step, steps=steps, n_steps=n_steps):
            steps.append(step)
            if len(steps) == n_steps:
                raise KeyboardInterrupt

        found = pa.learn_softmax(task.X, task.Y, callback=interrupt)
        assert found.outcome.name == "interrupted"
        assert len(steps) == n_steps
        best = min(steps, key=lambda step: step[2])
        assert (found.n_heads, found.training_error) == (best[1], pytest.approx(best[2], rel=0.5))
        assert found.method in [name for name, _, _ in steps]

    def fail(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        pa.learn_softmax(X, Y, 2, callback=fail)
    for method in ("auto", "moments", "sculpt"):
        found = pa.learn_softmax(X, Y, 2, method, max_seconds=1e-9)
        assert (found.outcome.name, found.layer.n_dims) == ("out_of_time", 3)
        assert np.isfinite(found.validation_error)


WIDE = np.random.default_rng(0).integers(2, size=(400, 200, 200), dtype=np.int8)
MISUSE = [
    ({"n_heads": 0}, "n_heads"), ({"n_heads": "all"}, "n_heads"), ({"method": "magic"}, "method"),
    ({"mode": "sideways"}, "mode"), ({"noise": -1.0}, "noise"), ({"noise": np.nan}, "noise"),
    ({"max_heads": 0}, "max_heads"), ({"max_seconds": 0}, "max_seconds"),
    ({"polish": False}, "method"), ({"polish": False, "method": "sculpt"}, "n_heads"),
    ({"X": X * np.nan}, "X"), ({"Y": Y * np.inf}, "Y"), ({"Y": Y[:50]}, "80 .* 50"),
    ({"X": X[:3], "Y": Y[:3]}, r"\d+ sequences"), ({"Y": 0 * Y}, "Y is zero"),
    ({"Y": Y[:, 0]}, "Y"), ({"X": np.ones_like(X)}, "X are equal"),
    ({"X": X[:, :1], "Y": Y[:, :1]}, "one token"), ({"X": X[:0], "Y": Y[:0]}, "X is empty"),
    # What no memory holds; what float64 cannot hold; and copies are no further examples.
    ({"X": WIDE, "Y": WIDE[:, :, :2], "n_heads": 1}, "40000 unknown"),
    ({"X": X * 1e200}, "attn"), ({"X": X * 1e-150, "Y": Y * 1e200}, "value"),
    ({"X": np.repeat(X[:3], 30, axis=0), "Y": np.repeat(Y[:3], 30, axis=0)}, "3 different"),
]  # fmt: skip


def test_misuse_is_refused_by_name():
    for change, words in MISUSE:
        with pytest.raises(PolyattnError, match=words):
            pa.learn_softmax(**({"X": X, "Y": Y} | change))
