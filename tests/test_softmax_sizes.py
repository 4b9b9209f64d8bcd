"""Tokens and targets of any size: the same softmax layer in their units, or a refusal."""

import json

import numpy as np
import pytest
from hypothesis import strategies as st

import polyattn as pa
from invariances import few_and_many, hold
from polyattn.errors import OutOfRange
from polyattn.numerics.scaling import TINY, restored
from polyattn.quoting import counted
from polyattn.softmax.arguments import rounding_of
from polyattn.softmax.examples import COMPARABLE_EXPONENT, ExampleUnits, prepare
from polyattn.softmax.outcomes import percent

RNG = np.random.default_rng(3)
LAYER = pa.SoftmaxAttention(RNG.standard_normal((2, 3, 3)), RNG.standard_normal((2, 3, 2)))
X = RNG.standard_normal((80, 4, 3))
Y = LAYER(X)
HUGE = np.finfo(np.float64).max
PLAIN = pa.learn_softmax(X, Y, 2)
NOISY = Y + 0.05 * RNG.standard_normal(Y.shape)


def fits(array, exponent) -> bool:
    """Whether every entry times 2**exponent is a normal number."""
    powers = np.frexp(array[array != 0.0])[1]
    moved = powers + np.broadcast_to(exponent, array.shape)[array != 0.0]
    return bool(np.all((moved > -1021) & (moved <= 1024)))


def check_scaled(of_tokens, of_target, plain=PLAIN, targets=Y) -> bool:
    """Learned of scaled data is the scaled layer, bit by bit; False where that is refused."""
    of_tokens = np.broadcast_to(of_tokens, 3)
    of_attn = -of_tokens[:, None] - of_tokens
    of_value = of_target - of_tokens[:, None]
    apart = int(of_tokens.max() - of_tokens.min())
    needless = fits(plain.layer.attn, of_attn) and fits(plain.layer.value, of_value)
    needless &= apart < COMPARABLE_EXPONENT - 2
    try:
        found = pa.learn_softmax(np.ldexp(X, of_tokens), np.ldexp(targets, of_target), 2)
    except OutOfRange:
        assert not needless, "refused without need"
        return False
    assert str(found.outcome) == str(plain.outcome)
    for one, other, exponent in (
        (plain.layer.attn, found.layer.attn, of_attn),
        (plain.layer.value, found.layer.value, of_value),
        (plain.attn_std, found.attn_std, of_attn),
        (plain.value_std, found.value_std, of_value),
    ):
        expected = np.ldexp(one, exponent)
        assert np.allclose(other, expected, rtol=1e-15, atol=5e-324)
        assert np.all(other >= expected) or one is not plain.attn_std
    # The very layer is right on the very tokens.
    scale = np.abs(targets).max()
    outputs = np.ldexp(found.layer(np.ldexp(X, of_tokens)), -of_target)
    assert np.abs(outputs - plain.layer(X)).max() <= 1e-12 * scale
    assert np.array_equal(found.attn_error, plain.attn_error)
    assert found.noise >= np.ldexp(plain.noise, of_target)
    assert found.noise > 0
    return True


powers = st.one_of(st.integers(-600, 600), st.sampled_from([-512, -511, -500, 500, 510, 511]))


@few_and_many
@pytest.mark.parametrize("noise", ["exact", "noisy"])
def test_powers_of_two(examples, noise):
    targets = Y if noise == "exact" else NOISY
    plain = pa.learn_softmax(X, targets, 2)
    assert plain.recovered

    def check(of_tokens, of_target):
        check_scaled(of_tokens, of_target, plain, targets)

    hold(check, 2 * min(examples, 75), of_tokens=powers, of_target=powers)


@few_and_many
def test_powers_of_two_of_single_coordinates(examples):
    def check(of_tokens, of_target):
        check_scaled(np.array(of_tokens), of_target)

    hold(
        check, 2 * min(examples, 75),
        of_tokens=st.lists(powers, min_size=3, max_size=3), of_target=powers,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("of_tokens", "of_target", "answered"),
    [
        (500, 0, True), (-500, 0, True), (0, 1000, True), (0, -900, True), (500, -500, True),
        (-500, 500, True), (-500, 600, False), (560, 0, False), (520, 0, False), (-520, 0, False),
        (-600, -600, False), (600, 600, False), (0, -1015, True), (0, -1040, False),
    ],
)  # fmt: skip
def test_which_sizes_are_answered(of_tokens, of_target, answered):
    assert check_scaled(of_tokens, of_target) == answered


def test_a_wrong_layer_and_a_needless_refusal_are_seen():
    """Negative control."""
    assert fits(np.array([1.0, 0.0]), -1021)
    assert not fits(np.array([1.0, 1e-3]), -1021)
    assert not fits(np.array([1.0]), 1024)
    other = pa.learn_softmax(X, 1.001 * Y, 2)
    with pytest.raises(AssertionError):
        check_scaled(10, 10, other)


@pytest.mark.parametrize(("tokens", "targets"), [
    (1e200, 1.0), (1e170, 1.0), (1e160, 1.0), (1e155, 1.0), (1e-160, 1.0), (1e-200, 1e-200),
])  # fmt: skip
def test_heads_that_float64_cannot_hold_are_refused(tokens, targets):
    with pytest.raises(OutOfRange, match=r"attn would be of size about 1e[+-][34]\d\d,"):
        pa.learn_softmax(X * tokens, Y * targets, 2)
    with pytest.raises(OutOfRange, match="attn would be"):
        pa.SoftmaxAttentionRegressor(2).fit(X * tokens, Y * targets)


def test_the_refusal_names_what_does_not_fit():
    """One coordinate alone is too large: the other entries of attn fit."""
    with pytest.raises(OutOfRange, match=r"attn would be of size about 1e-3[34]\d"):
        pa.learn_softmax(X * [1e80, 1e80, 1e170], Y, 2)
    with pytest.raises(OutOfRange, match=r"value would be of size about 1e\+3[45]\d"):
        pa.learn_softmax(X * [1e-150, 1e-150, 1e-150], Y * 1e200, 2)


def test_coordinates_too_different_in_size_are_refused():
    """The heads fit float64, but the logits of the layer would underflow."""
    check = pytest.raises(OutOfRange, match=r"sizes from 2\*\*-\d+ to 2\*\*\d+; logits")
    with check:
        pa.learn_softmax(np.ldexp(X, [250, 0, -250]), Y, 2)
    assert check_scaled(np.array([220, 0, -220]), 0)
    # A coordinate of zeros has no size.
    nothing = X * [1.0, 1.0, 0.0]
    found = pa.learn_softmax(np.ldexp(nothing, [500, 500, 0]), LAYER(nothing), 2)
    assert found.validation_error < 1e-12


def test_a_tiny_output_keeps_its_digits_or_is_refused():
    """Beside an output of size one it has no share in the residuals, but values of its own."""
    found = pa.learn_softmax(X * 1e100, Y * [1.0, 1e-150], 2)
    outputs = found.layer(X * 1e100) / [1.0, 1e-150]
    assert np.abs(outputs - Y).max() < 1e-9
    with pytest.raises(OutOfRange, match=r"value would be of size about 1e-3\d\d"):
        pa.learn_softmax(X * 1e150, Y * [1.0, 1e-170], 2)


# Bars, noise and units ----------------------------------------------------------------------


def test_error_bars_are_never_rounded_to_zero():
    units = ExampleUnits(np.array([500, -500]), -300)
    bars = np.full((1, 2, 2), 1e-15)
    attn, value = units.deviations(bars, bars)
    assert attn[0, 0, 0] >= 1e-15 * 2.0**-1000
    assert value[0, 0, 0] > 0
    largest = ExampleUnits(np.array([-600, 600]), 0).deviations(bars * 1e15, bars)[0]
    assert np.isposinf(largest[0, 0, 0])
    assert 0 < largest[0, 1, 1] <= TINY


def test_noise_in_the_units_of_the_targets():
    assert ExampleUnits(np.array([0]), -1070).noise(1e-10) > 0
    with pytest.raises(OutOfRange, match="noise would be"):
        ExampleUnits(np.array([0]), 1024).noise(1.5)
    assert ExampleUnits(np.array([0]), -1070).scaled_noise(1.0) == np.inf


def test_declared_noise_far_above_the_targets():
    for size in (2.0**-500, 1.0, 2.0**500):
        found = pa.learn_softmax(X, NOISY * size, 2, noise=1e300)
        assert "smaller than the noise that was declared" in str(found.outcome)
        assert found.recovered


@pytest.mark.parametrize("power", [-1040, -1073, 1020])
def test_units_of_the_smallest_and_largest_numbers(power):
    tokens = np.ldexp(np.rint(8 * X), power - 3)
    batch = pa.SequenceBatch.from_array(tokens)
    examples, units = prepare(batch, np.ones((320, 1)), "full", np.random.default_rng(0))
    (group,) = examples.groups
    sizes = np.sqrt(np.mean(group.keys**2, axis=(0, 1)))
    assert np.all((sizes >= 0.5) & (sizes <= 1.0))
    assert np.all(np.abs(units.of_tokens - power) <= 1)


def test_rounding_of_targets_does_not_depend_on_their_unit():
    single = Y.astype(np.float32).astype(np.float64)
    for power in (-900, -140, 0, 140, 900):
        assert rounding_of(np.ldexp(single, power)) == 2.0**-24
        assert rounding_of(np.ldexp(Y, power)) == 2.0**-53
    assert rounding_of(np.rint(single)) == 2.0**-53


# Queries ------------------------------------------------------------------------------------


def test_black_boxes_whose_heads_lose_digits_are_refused():
    small = pa.SoftmaxAttention(LAYER.attn * 1e-300, LAYER.value * 1e-300)
    with pytest.raises(OutOfRange, match=r"would be of size about 1e-3.*let the oracle multiply"):
        pa.softmax.learn_from_queries(lambda T: small(T) * 1e-9, 3)


# What is written ----------------------------------------------------------------------------


def test_restored_names_the_entries_that_do_not_fit():
    array = np.array([[1.0, 1e-3]])
    with pytest.raises(OutOfRange, match=r"the heads would be of size about 1e-323.* do so"):
        restored(array, np.array([0, -1063]), "the heads", np.array([1e-3, 1.0]), "do so")


def test_the_command_says_so_in_one_line(run):
    np.savez("data.npz", X=X * 1e200, Y=Y)
    result = run("learn-softmax", "data.npz", "--heads", 2)
    assert result.exit_code == 1
    assert "attn would be of size about 1e-399" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(("tokens", "targets"), [(1e-140, 1e140), (1e140, 1e-140)])
def test_the_command_shows_norms_of_any_size(run, tokens, targets):
    np.savez("data.npz", X=X * tokens, Y=Y * targets)
    result = run("learn-softmax", "data.npz", "--heads", 2, "-o", "heads.safetensors")
    assert result.exit_code == 0, result.output
    (row,) = (line for line in result.stdout.splitlines() if line.startswith("│    1 │"))
    norms = [float(row.split("│")[at]) for at in (2, 5)]
    found = pa.load("heads.safetensors").layer
    attn = np.linalg.norm(found.attn[0] * tokens * tokens) / tokens / tokens
    value = np.linalg.norm(found.value[0] * tokens / targets) / tokens * targets
    assert norms == pytest.approx([attn, value], rel=0.01)
    content = json.loads(run("learn-softmax", "data.npz", "--heads", 2, "--json").stdout)
    assert np.array_equal(content["attn"], found.attn)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_the_score_of_any_size(size):
    model = pa.SoftmaxAttentionRegressor(2).fit(X, Y * size)
    assert model.score(X, Y * size) == pytest.approx(1.0)
    assert model.score(X, NOISY * size) == pytest.approx(
        pa.SoftmaxAttentionRegressor(2).fit(X, Y).score(X, NOISY)
    )


def test_shares_and_counts_in_sentences():
    assert [percent(share) for share in (0.999, 1.0, 1.234, 25.0, 0.0123, 1e-9, 1e9)] == [
        "100 %", "100 %", "123 %", "2500 %", "1.2 %", "1e-07 %", "1e+11 %",
    ]  # fmt: skip
    assert [percent(share, 1) for share in (0.96, 0.5, 0.123)] == ["96 %", "50 %", "12 %"]
    assert counted(1, "head") == "1 head"
    assert counted(2, "head") == "2 heads"


def test_sentences_have_no_exponents_and_no_one_heads():
    noise = RNG.standard_normal(Y.shape)
    found = pa.learn_softmax(X, noise, 1)
    assert not found.recovered
    assert "e+" not in str(found.outcome)
    assert "1 heads" not in " ".join(str(phase) for phase in found.phases)
    assert any("1 head" in phase.sentence for phase in found.phases)
