"""Every fit is held against predicting the mean, and says what it was fitted to."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.fitting.proportion import DataSizes, Proportion, r2_of
from polyattn.stats.rows import Rows
from polyattn.stats.target_spread import TargetSpread

RNG = np.random.default_rng(0)
X = RNG.standard_normal((120, 5, 3))
LAYER = pa.data.random_layer(3, 2, 2, mode="last", random_state=1)
Y = LAYER(X) + 0.3 * RNG.standard_normal((120, 2)) + [3.0, -1.0]
WEIGHTS = RNG.random(120) * (np.arange(120) != 7)
LABELS = RNG.integers(0, 3, 120)
IDS = pa.SequenceBatch.from_ids(RNG.integers(0, 6, (120, 5)), 6)
SIZES = "120 sequences, 5 tokens of 3 coordinates"


def exact_baseline(targets, weights=None):
    """The weighted variance, output by output, in rational numbers."""
    targets = np.asarray(targets, dtype=float).reshape(len(targets), -1)
    shares = [Fraction(w) for w in (np.ones(len(targets)) if weights is None else weights)]
    risk = Fraction(0)
    for column in targets.T:
        numbers = [Fraction(y) for y in column]
        mean = sum(w * y for w, y in zip(shares, numbers, strict=True)) / sum(shares)
        squares = (w * (y - mean) ** 2 for w, y in zip(shares, numbers, strict=True))
        risk += sum(squares) / sum(shares)
    return float(risk)


WAYS = {
    "arrays": lambda: pa.fit(X, Y),
    "lists": lambda: pa.fit(list(X), Y),
    "a ridge": lambda: pa.fit(X, Y, ridge=0.1),
    "a chosen ridge": lambda: pa.fit(X, Y, ridge="loo"),
    "gcv": lambda: pa.fit(X, Y, ridge="gcv"),
    "dual": lambda: pa.fit(X, Y, solver="dual"),
    "direct": lambda: pa.fit(X, Y, solver="direct"),
    "iterative": lambda: pa.fit(X, Y, solver="iterative"),
    "one head": lambda: pa.fit(X, Y, n_heads=1),
    "a form": lambda: pa.fit(X, Y, form=pa.Form(decay=0.5, skip=True, intercept=True)),
    "a chosen decay": lambda: pa.fit(X, Y, form=pa.Form(decay="loo")),
    "a context": lambda: pa.fit(X, Y, form=pa.Form(mode="last"), context=X[:, :3]),
    "moments": lambda: pa.fit(statistics=pa.Moments(3, 2).update(X, Y)),
    "merged moments": lambda: pa.fit(
        statistics=pa.Moments(3, 2).update(X[:9], Y[:9]) + pa.Moments(3, 2).update(X[9:], Y[9:])
    ),
    "a triangular factor": lambda: pa.fit(statistics=pa.TriangularFactor(3, 2).update(X, Y)),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_fit_knows_the_baseline(way):
    result = WAYS[way]()
    assert result.baseline_risk == pytest.approx(exact_baseline(Y), rel=1e-13)
    assert result.r2 == 1.0 - result.risk / result.baseline_risk
    assert result.zero_risk == pytest.approx(np.mean(np.sum(Y**2, axis=1)), rel=1e-13)
    assert result.data_sizes == SIZES
    text = str(result)
    for words in (f"{result.baseline_risk:.4g}", f"{result.r2:.4g}", SIZES):
        assert words in text


def test_weights_count_in_the_baseline():
    for fitted in (
        pa.fit(X, Y, sample_weight=WEIGHTS),
        pa.fit(statistics=pa.Moments(3, 2).update(X, Y, WEIGHTS)),
        pa.fit(X, Y, sample_weight=WEIGHTS, solver="dual"),
    ):
        assert fitted.baseline_risk == pytest.approx(exact_baseline(Y, WEIGHTS), rel=1e-13)
    causal = np.repeat(WEIGHTS, 5)
    tokens = RNG.standard_normal((120, 5, 2))
    found = pa.fit(X, tokens, mode="causal", sample_weight=WEIGHTS)
    flat = tokens.reshape(-1, 2)
    assert found.baseline_risk == pytest.approx(exact_baseline(flat, causal), rel=1e-12)


def test_token_ids_are_held_against_the_mean():
    y = RNG.standard_normal(120) + 2.0
    for weights in (None, WEIGHTS):
        found = pa.fit(IDS, y, solver="one_hot", sample_weight=weights)
        assert type(found).__name__ == "OneHotFit"
        assert found.baseline_risk == pytest.approx(exact_baseline(y, weights), rel=1e-13)
    n_positive = np.count_nonzero(WEIGHTS)
    assert found.data_sizes == f"{n_positive} sequences, 5 tokens of 6 coordinates"
    again = type(found).from_record(found.to_record())
    assert (again.baseline_risk, again.r2, again.data_sizes) == (
        found.baseline_risk, found.r2, found.data_sizes,
    )  # fmt: skip
    older = found.to_record()
    for name in ("baseline_risk", "zero_risk", "data_sizes"):
        del older.metadata[name]
    assert type(found).from_record(older).r2 is None


def test_log_loss_is_held_against_the_shares_of_the_classes():
    for weights in (np.ones(120), WEIGHTS):
        found = pa.fit(X, LABELS, loss="logistic", ridge=1e-2, sample_weight=weights)
        shares = np.array([weights[k == LABELS].sum() for k in range(3)]) / weights.sum()
        assert found.baseline_risk == pytest.approx(-np.sum(shares * np.log(shares)), rel=1e-13)
        assert found.r2 == 1.0 - found.risk / found.baseline_risk
        assert "risk of predicting class shares" in str(found)
        assert found.zero_risk == np.log(3)


def test_a_source_and_its_checkpoint_know_the_baseline(tmp_path):
    np.savez(tmp_path / "a.npz", X=X[:50], Y=Y[:50])
    np.savez(tmp_path / "b.npz", X=X[50:], Y=Y[50:])
    files = pa.scan(str(tmp_path / "*.npz"))
    summed = pa.fit(files, checkpoint=tmp_path / "sums.safetensors")
    for result in (summed, pa.fit(files, checkpoint=tmp_path / "sums.safetensors"),
                   pa.fit(files, solver="iterative"), pa.fit(files, ridge="loo")):  # fmt: skip
        assert result.baseline_risk == pytest.approx(exact_baseline(Y), rel=1e-13)
        assert result.data_sizes == SIZES


@pytest.mark.parametrize("offset", [0.0, 1e8, -1e12])
@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e140])
def test_large_offsets_and_scales_lose_nothing(offset, scale):
    """Sums of squares less squares of sums would be rounding alone."""
    y = (offset + RNG.standard_normal(120)) * scale
    wanted = exact_baseline(y)
    # Targets themselves are rounded by so much beside their spread.
    rel = 1e-13 + 2.2e-16 * abs(offset)
    sums = pa.Moments(3, 1)
    for first in range(0, 120, 17):
        sums.update(X[first : first + 17], y[first : first + 17])
    for found in (pa.fit(X, y, bias=True), pa.fit(statistics=sums)):
        assert found.baseline_risk == pytest.approx(wanted, rel=rel)


@pytest.mark.parametrize("offset", [1e3, 1e7, 1e9])
def test_rounding_of_sums_does_not_explain_targets(offset):
    """Beside a large mean the risk of moments is rounding, and was 0: r2 = 1, "unique"."""
    y = offset + RNG.standard_normal(120)
    sums = pa.fit(statistics=pa.Moments(3, 1, bias=True).update(X, y))
    best = pa.fit(X, y, bias=True)
    assert 0.0 < best.r2 < 0.9
    assert best.outcome.ok
    assert best.risk_rounding is None
    if offset > 1e6:
        assert sums.r2 is None
        assert not sums.outcome.ok
        assert "rounding hides how much" in sums.outcome.sentence
        assert "Subtract the mean" in sums.outcome.next_step
    else:
        assert sums.r2 == pytest.approx(best.r2, abs=0.02)
        assert sums.outcome.ok
    assert abs(sums.risk - best.risk) <= sums.risk_rounding
    factor = pa.fit(statistics=pa.TriangularFactor(3, 1, bias=True).update(X, y))
    assert factor.r2 == pytest.approx(best.r2, rel=1e-6)
    again = pa.FitResult.from_record(sums.to_record())
    assert (again.r2, again.risk_rounding) == (sums.r2, sums.risk_rounding)
    centred = pa.fit(statistics=pa.Moments(3, 1, bias=True).update(X, y - offset))
    assert centred.r2 == pytest.approx(best.r2, rel=1e-6)


def test_targets_beyond_the_squares_of_float64_have_no_baseline():
    """An exact fit of them has a risk; their variance float64 cannot hold."""
    for scale in (1e156, 1e-170):
        found = pa.fit(X, LAYER(X) * scale)
        assert (found.baseline_risk, found.r2) == (None, None)
        assert "do not know the mean" not in str(found.outcome)


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40), st.integers(0, 1000), st.integers(0, 4)
        ),
        min_size=1, max_size=40,
    )
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_spreads_merge_as_rational_numbers_do(rows):
    """In any grouping, in either order."""
    y, weights, group = (np.array(each, dtype=float) for each in zip(*rows, strict=True))
    if not weights.sum():
        return
    parts = [TargetSpread.of_targets(y[None, group == g], weights[group == g]) for g in range(5)]
    forwards, backwards = parts[0], parts[-1]
    for part in parts[1:]:
        forwards = forwards.with_more(part)
    for part in parts[-2::-1]:
        backwards = part.with_more(backwards)
    wanted = exact_baseline(y, weights)
    size = np.max(np.abs(y)) ** 2 + 1.0
    for found in (forwards, backwards):
        assert found.risk == pytest.approx(wanted, rel=1e-10, abs=1e-25 * size)
        assert found.power == pytest.approx(np.average(y**2, weights=weights), rel=1e-9)
    swapped = parts[1].with_more(parts[0])
    both = parts[0].with_more(parts[1])
    assert (swapped.risk, swapped.means[0]) == (both.risk, both.means[0])


def test_chunks_that_are_taken_out_are_taken_out_of_the_baseline():
    whole = pa.Moments(3, 2).update(X[:50], Y[:50], chunk="a").update(X[50:], Y[50:], chunk="b")
    part = pa.Moments(3, 2).update(X[:50], Y[:50], chunk="a")
    left = pa.fit(statistics=whole - part)
    assert left.baseline_risk == pytest.approx(exact_baseline(Y[50:]), rel=1e-11)
    # What is left is constant, up to rounding of what was there: nobody knows any more.
    flat = np.concatenate([1e9 * Y[:50], np.ones((70, 2))])
    whole = pa.Moments(3, 2).update(X[:50], flat[:50], chunk="a")
    whole.update(X[50:], flat[50:], chunk="b")
    part = pa.Moments(3, 2).update(X[:50], flat[:50], chunk="a")
    spread = whole.target_spread.without(part.target_spread, 70.0)
    assert spread is None


def test_older_data_count_less_in_the_baseline():
    sums = pa.Moments(3, 2).update(X[:50], Y[:50]).update(X[50:], Y[50:], forget=0.25)
    weights = np.where(np.arange(120) < 50, 0.25, 1.0)
    assert pa.fit(statistics=sums).baseline_risk == pytest.approx(
        exact_baseline(Y, weights), rel=1e-12
    )


def test_sums_of_older_releases_do_not_know_the_mean(tmp_path):
    sums = pa.Moments(3, 2).update(X, Y)
    record = sums.to_record()
    arrays = {n: each for n, each in record.arrays.items() if not n.startswith("target_")}
    metadata = {n: each for n, each in record.metadata.items() if n != "min_length"}
    older = pa.Moments.from_record(replace(record, arrays=arrays, metadata=metadata))
    for known in (older, older + pa.Moments(3, 2).update(X, Y), sums + older):
        found = pa.fit(statistics=known)
        assert (found.baseline_risk, found.r2) == (None, None)
        assert "do not know the mean of their targets" in str(found.outcome)
        assert "at most 5 tokens of 3 coordinates" in found.data_sizes
        assert found.outcome.ok
    path = tmp_path / "fit.safetensors"
    pa.save(found, path)
    assert pa.load(path).data_sizes == found.data_sizes
    assert "mean" not in str(pa.fit(statistics=sums).outcome)


@pytest.mark.parametrize("kind", [pa.Moments, pa.TriangularFactor])
def test_saved_sums_and_fits_know_the_baseline(kind, tmp_path):
    sums = kind(3, 2).update(X, Y)
    sums.save(tmp_path / "sums.safetensors")
    again = kind.load(tmp_path / "sums.safetensors")
    assert again == sums
    assert again.data_sizes == SIZES
    found = pa.fit(statistics=again)
    assert found.baseline_risk == pa.fit(statistics=sums).baseline_risk
    pa.save(found, tmp_path / "fit.safetensors")
    loaded = pa.load(tmp_path / "fit.safetensors")
    assert (loaded.baseline_risk, loaded.r2, loaded.data_sizes, loaded.zero_risk) == (
        found.baseline_risk, found.r2, SIZES, found.zero_risk,
    )  # fmt: skip
    record = found.to_record()
    for name in ("baseline_risk", "zero_risk", "data_sizes"):
        del record.metadata[name]
    older = pa.FitResult.from_record(record)
    assert (older.baseline_risk, older.r2, older.data_sizes) == (None, None, None)


# The outcome ------------------------------------------------------------------------------------


def test_a_fit_that_the_mean_beats_says_so():
    """Targets 0, 1 and 2 were "unique global optimum", at twice the risk of their mean."""
    found = pa.fit(X, LABELS.astype(float))
    assert found.outcome.name == "unique"
    assert not found.outcome.ok
    assert found.risk > found.baseline_risk
    assert found.r2 < 0
    assert "predicting the mean of the targets would be better: risk" in found.outcome.sentence
    assert "bias=True or form=Form(intercept=True) adds one" in found.outcome.next_step
    described = found.describe()
    assert described.doubts
    # Both ways that it names help.
    for helped in (
        pa.fit(X, LABELS.astype(float), bias=True),
        pa.fit(X, LABELS.astype(float), form=pa.Form(intercept=True)),
        pa.fit(X, LABELS - LABELS.mean()),
    ):
        assert helped.outcome.ok
        assert helped.r2 > 0
        assert "the mean" not in str(helped.outcome)


def test_good_fits_say_nothing_of_the_mean():
    for found in (pa.fit(X, LAYER(X)), pa.fit(X, Y, bias=True), pa.fit(X, Y[:, 0] - 3.0)):
        assert "mean" not in str(found.outcome)
        assert found.outcome.ok


def test_advice_depends_on_what_the_form_has():
    lengths = RNG.integers(1, 9, 60)
    ragged = [RNG.standard_normal((n, 2)) for n in lengths]
    y = 10.0 + 0.01 * RNG.standard_normal(60)
    bias = pa.fit(ragged, y, bias=True, ridge=10.0)
    assert "grows with the number of tokens" in bias.outcome.next_step
    both = pa.fit(ragged, y, form=pa.Form(intercept=True), ridge=1e4)
    assert "smaller ridge" in both.outcome.next_step
    blind = pa.fit(np.zeros((9, 2, 2)), np.arange(9.0), form=pa.Form(intercept=True))
    assert "has the same risk" in blind.outcome.sentence
    assert "says nothing of the targets" in blind.outcome.next_step
    assert not any(each.outcome.ok for each in (bias, both, blind))


def test_log_loss_that_the_shares_beat_says_so():
    labels = (np.arange(120) < 12).astype(int)
    found = pa.fit(X, labels, loss="logistic", ridge=1.0)
    assert found.risk > found.baseline_risk
    assert "predicting the shares of the classes" in found.outcome.sentence
    assert not found.outcome.ok
    assert pa.fit(X, labels, loss="logistic", ridge=1.0, form=pa.Form(intercept=True)).outcome.ok


def test_limited_heads_are_held_against_the_mean_too():
    found = pa.fit(X, LABELS.astype(float), n_heads=1)
    assert found.outcome.name == "limited_heads"
    assert found.r2 < 0
    assert not found.outcome.ok
    assert found.outcome.sentence.count("would be better") == 1


@pytest.mark.parametrize("value", [0.0, 5.0, 1e8, 0.1])
def test_constant_targets_have_an_r2(value):
    y = np.full(120, value)
    computed = pa.fit(X, y, bias=True)
    assert (computed.baseline_risk, computed.r2) == (0.0, 1.0)
    assert computed.outcome.ok
    missed = pa.fit(X, y)
    assert missed.r2 == (1.0 if value == 0.0 else -np.inf)
    assert missed.outcome.ok == (value == 0.0)
    assert missed.to_dict()["r2"] == (1.0 if value == 0.0 else None)
    by_sums = pa.fit(statistics=sum(
        pa.Moments(3, 1).update(X[i : i + 7], y[i : i + 7]) for i in range(0, 120, 7)
    ))  # fmt: skip
    assert by_sums.baseline_risk == 0.0


def test_one_position_is_not_held_against_its_own_mean():
    found = pa.fit(X[:1], Y[:1], ridge=1.0)
    assert (found.baseline_risk, found.r2) == (0.0, -np.inf)
    assert "would be better" not in str(found.outcome)


def test_r2_is_never_nan():
    for risk in (0.0, 1e-320, 1.0, 1e300):
        for baseline in (0.0, 1e-310, 1.0, 1e300):
            found = r2_of(risk, baseline, max(baseline, 1e-300))
            assert not np.isnan(found)
    assert r2_of(1.0, None, None) is None
    assert r2_of(1e-33, 1e-33, 1.0) == 1.0
    assert r2_of(0.5, 1.0, 1.0) == 0.5


# What data look like ----------------------------------------------------------------------------


def test_channels_in_the_place_of_tokens_are_named():
    """An array (sequences, channels, time) was fitted with training score 1 and no word."""
    series = RNG.standard_normal((30, 4, 50))
    found = pa.fit(series, RNG.standard_normal(30))
    assert found.data_sizes == "30 sequences, 4 tokens of 50 coordinates"
    assert "4 tokens of 50 coordinates: if the axes are" in found.outcome.next_step
    assert "X.transpose(0, 2, 1)" in found.outcome.next_step
    right = pa.fit(series.transpose(0, 2, 1), RNG.standard_normal(30))
    assert "axes" not in str(right.outcome)
    assert right.data_sizes == "30 sequences, 50 tokens of 4 coordinates"


@pytest.mark.parametrize(
    ("n_tokens", "n_dims", "is_said"),
    [(2, 15, False), (2, 16, True), (4, 16, False), (4, 17, True), (6, 100, True), (1, 64, False),
     (12, 29, False), (20, 20, False), (50, 3, False), (16, 64, False)],
)  # fmt: skip
def test_sensible_sizes_are_not_doubted(n_tokens, n_dims, is_said):
    sizes = DataSizes(10, n_dims, n_tokens, n_tokens)
    assert bool(sizes.doubts()) == is_said
    assert not DataSizes(10, n_dims, n_tokens, n_tokens + 1).doubts()
    assert not DataSizes(10, n_dims, None, n_tokens).doubts()
    assert not replace(sizes, are_ids=True).doubts()


def test_targets_of_tokens_in_mode_last_are_named():
    y = RNG.standard_normal((120, 5))
    found = pa.fit(X, y)
    assert "Y was read as 5 outputs for each sequence" in found.outcome.next_step
    assert "Y was read" not in str(pa.fit(X, y, mode="causal").outcome)
    assert "Y was read" not in str(pa.fit(X, y[:, :4]).outcome)


def test_ragged_sequences_are_counted():
    ragged = [RNG.standard_normal((n, 2)) for n in (3, 9, 4)]
    found = pa.fit(ragged, np.arange(3.0))
    assert found.data_sizes == "3 sequences, 3..9 tokens of 2 coordinates"
    assert pa.certify(ragged).data_sizes == found.data_sizes
    assert found.data_sizes in str(pa.audit(found, ragged, np.arange(3.0)))
    assert Proportion.of(Rows.build(ragged, np.arange(3.0), pa.Form())).figures == {
        "baseline_risk": found.baseline_risk, "zero_risk": found.zero_risk,
        "data_sizes": found.data_sizes, "risk_rounding": None,
    }  # fmt: skip


def test_few_targets_for_many_coefficients_are_named():
    """Pure noise is explained by more than half; planted targets are, too, and nothing is said."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5, 4)), rng.standard_normal(60)
    noise = pa.fit(X, y)
    assert noise.r2 > 0.5
    assert "60 predicted positions for 40 coefficients" in noise.outcome.next_step
    many = rng.standard_normal((160, 5, 4))
    assert "positions" not in pa.fit(many, rng.standard_normal(160)).outcome.next_step
    layer = pa.data.random_layer(4, n_heads=2, mode="last", random_state=0)
    assert "positions" not in pa.fit(X, layer(X)).outcome.next_step
    assert "positions" not in pa.fit(X, y, ridge="loo").outcome.next_step
