"""Scaling sequences, filling their gaps, and series of toolboxes that take both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyattn as pa
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.interop.series import SeriesClassifier, SeriesRegressor

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 6, 3)) * [1.0, 100.0, 1e-3] + [0.0, 5.0, -1.0]
Y = RNG.standard_normal(20)
RAGGED = [RNG.standard_normal((n, 3)) * [1.0, 100.0, 1e-3] + 2.0 for n in (1, 4, 2, 9)]
KINDS = {"array": X, "list": RAGGED, "batch": pa.SequenceBatch.from_sequences(RAGGED)}
SCALER, IMPUTER, NAN = pa.SequenceScaler, pa.SequenceImputer, np.nan
GAPS = np.where(RNG.random((12, 6, 3)) < 0.3, NAN, RNG.standard_normal((12, 6, 3)))


def tokens_of(sequences):
    return np.concatenate(list(sequences))


def close(found, expected, tolerance=1e-12):
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("mean", "std"), [(True, True), (True, False), (False, True)])
def test_the_scaler_is_the_standard_scaler_of_all_tokens(kind, weighted, mean, std):
    data, tokens = KINDS[kind], tokens_of(KINDS[kind])
    weights = np.arange(len(data)) + 0.0 if weighted else np.ones(len(data))
    of_tokens = np.repeat(weights, [len(x) for x in data])
    known = StandardScaler(with_mean=mean, with_std=std).fit(tokens, sample_weight=of_tokens)
    options = {"sample_weight": weights} if weighted else {}
    scaler = SCALER(with_mean=mean, with_std=std).fit(data, **options)
    found = scaler.transform(data)
    assert type(found) is type(data)
    assert [len(x) for x in found] == [len(x) for x in data]
    close(tokens_of(found), known.transform(tokens))
    close(tokens_of(scaler.inverse_transform(found)), tokens)
    close(scaler.mean_, np.average(tokens, axis=0, weights=of_tokens))
    normed = SCALER(mean, std, unit_norm=True).fit(data, **options)
    sizes = np.linalg.norm(tokens_of(found), axis=1, keepdims=True)
    close(tokens_of(normed.transform(data)), tokens_of(found) / sizes)
    assert (scaler.n_features_in_, scaler.n_tokens_seen_) == (3, np.count_nonzero(of_tokens))
    assert scaler.n_sequences_seen_ == len(data) - weighted


@given(
    cuts=st.lists(st.integers(1, 19), max_size=5, unique=True), exponent=st.integers(-900, 900),
    offset=st.sampled_from([0.0, 1.0, 1e6]), weighted=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_parts_add_up_to_the_whole_at_any_size(cuts, exponent, offset, weighted, seed):
    """A large mean costs as many digits as it has."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((20, 3, 2)) + offset
    weights = rng.random(20) if weighted else None
    whole = SCALER().fit(data, sample_weight=weights)
    moved = SCALER().fit(np.ldexp(data, exponent), sample_weight=weights)
    assert np.array_equal(moved.scale_, np.ldexp(whole.scale_, exponent))  # the very same bits
    parts = SCALER()
    for first, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 20], strict=True):
        own = None if weights is None else weights[first:stop]
        parts.partial_fit(data[first:stop], sample_weight=own)
    tolerance = 2e-14 * (1.0 + offset)
    close(parts.mean_, whole.mean_, tolerance)
    close(parts.scale_, whole.scale_, tolerance)
    assert (parts.n_tokens_seen_, parts.n_sequences_seen_) == (60, 20)
    whole.set_params(unit_norm=True)
    moved.set_params(unit_norm=True)
    assert np.array_equal(moved.transform(np.ldexp(data, exponent)), whole.transform(data))


def test_coordinates_that_hardly_vary():
    data = X.copy()
    data[..., 1] = 0.1
    scaler = SCALER().fit(data)
    assert scaler.scale_[1] == 1.0
    assert not scaler.transform(data)[..., 1].any()
    # What differs in the last digit is no deviation; more digits are one.
    data[::2, :, 1] = 0.1 + 0.2 - 0.2
    assert SCALER().fit(data).scale_[1] == 1.0
    data[::2, :, 1] = 0.1 * (1 + 1e-12)
    assert SCALER().fit(data).scale_[1] < 1e-12
    assert not SCALER(unit_norm=True).fit_transform(np.ones((2, 3, 2))).any()


@pytest.mark.parametrize("make", [SCALER, lambda **o: IMPUTER(add_indicator=True, **o)])
def test_kinds_of_numbers_and_axes_do_not_matter(make):
    data = np.where(X > 150, NAN, X) if make is not SCALER else X.copy()
    expected, turned = make().fit_transform(data), make(layout="channels_first")
    found = turned.fit_transform(data.swapaxes(1, 2))
    assert np.array_equal(found.swapaxes(1, 2), expected)
    listed = turned.transform(list(data.swapaxes(1, 2)))
    assert all(np.array_equal(a.T, b) for a, b in zip(listed, expected, strict=True))
    single = data.astype(np.float32)
    found = make().fit_transform(single)
    assert found.dtype == np.float64
    assert np.array_equal(found, make().fit_transform(single.astype(float)))
    data.setflags(write=False)
    assert not np.shares_memory(make().fit_transform(np.nan_to_num(data)), data)
    ids = np.array([[0, 1, 1], [2, 0, 1]])
    found = make().fit_transform(pa.SequenceBatch.from_ids(ids, 3))
    close(tokens_of(found), tokens_of(make().fit_transform(np.eye(3)[ids])))


def test_a_source_is_scaled_chunk_by_chunk(tmp_path):
    weights = RNG.random(20)
    source = pa.scan(X, Y, weights, chunk_bytes=1000)
    scaler, expected = SCALER().fit(source), SCALER().fit(X, sample_weight=weights)
    assert scaler.n_sequences_seen_ == 20
    for fitted in (scaler, SCALER().partial_fit(source)):
        close(fitted.mean_, expected.mean_)
        close(fitted.scale_, expected.scale_)
    view, scaled = scaler.transform(source), scaler.transform(X)
    for options in ({"ridge": "loo"}, {"ridge": 0.1, "solver": "iterative"}, {"ridge": 0.1}):
        known, found = pa.fit(scaled, Y, sample_weight=weights, **options), pa.fit(view, **options)
        close(found.coef, known.coef, 1e-7)
        close(np.ravel(found.predict(view)), np.ravel(known.predict(scaled)), 1e-7)
    before = pa.fit(view, ridge=0.1, checkpoint=tmp_path / "sums")
    with pytest.raises(InvalidInput, match="other data"):  # sums over other tokens are other sums
        pa.fit(source, ridge=0.1, checkpoint=tmp_path / "sums")
    scaler.fit(10 * X)  # a view keeps the scale that it was made with
    assert pa.fit(view, ridge=0.1).risk == before.risk
    model = make_pipeline(SCALER(), pa.LinearAttentionRegressor(ridge=0.1)).fit(source)
    close(model[-1].coef_, before.coef, 1e-7)
    assert np.shape(model.predict(source)) == (20,)


def filled(sequence, strategy, default):
    """One number after the other."""
    found = sequence.copy()
    for t, j in np.argwhere(np.isnan(sequence)):
        seen = np.flatnonzero(~np.isnan(sequence[:, j]))
        before = seen[seen < t]
        if strategy == "linear" and len(seen):
            found[t, j] = np.interp(t, seen, sequence[seen, j])
        else:
            found[t, j] = sequence[before[-1], j] if len(before) else default[j]
    return found


@given(
    data=hnp.arrays(
        float, st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.sampled_from([NAN, NAN, 0.0, 1.0, -2.5, 1e300]),
    ),
    cut=st.integers(1, 11), strategy=st.sampled_from(["previous", "linear"]),
)  # fmt: skip
def test_gaps_are_filled_from_their_own_sequence(data, cut, strategy):
    """And a sequence is filled alike whatever stands beside it."""
    sequences = [part for part in (data[:cut], data[cut:]) if len(part)]
    training = [[[4.0] * data.shape[1], [NAN] * data.shape[1]], [[9.0] * data.shape[1]] * 2]
    imputer = IMPUTER(strategy, add_indicator=True).fit([np.array(each) for each in training])
    close(imputer.statistics_, np.full(data.shape[1], 22.0 / 3))
    together = imputer.transform(sequences)
    assert isinstance(together, list)
    for found, sequence in zip(together, sequences, strict=True):
        expected = filled(sequence, strategy, imputer.statistics_)
        np.testing.assert_allclose(found[:, : data.shape[1]], expected, rtol=1e-14)
        assert np.array_equal(found[:, data.shape[1] :], np.isnan(sequence))
        assert np.array_equal(found, imputer.transform([sequence])[0])


@pytest.mark.parametrize("strategy", ["mean", "median", "constant"])
@pytest.mark.parametrize("add_indicator", [False, True])
def test_statistics_are_those_of_simple_imputer_on_all_tokens(strategy, add_indicator):
    data = GAPS.copy()
    data[..., 1] = np.nan_to_num(data[..., 1])  # a coordinate without gaps in training
    fresh = np.where(RNG.random((5, 4, 3)) < 0.3, NAN, RNG.standard_normal((5, 4, 3)))
    fill_value = 7.5 if strategy == "constant" else None
    known = SimpleImputer(strategy=strategy, fill_value=fill_value, add_indicator=add_indicator)
    known.fit(tokens_of(data))
    imputer = IMPUTER(strategy, fill_value=7.5, add_indicator=add_indicator).fit(data)
    close(tokens_of(imputer.transform(fresh)), known.transform(tokens_of(fresh)))
    assert imputer.get_feature_names_out().tolist() == known.get_feature_names_out().tolist()


def at(value, place=(4, 2, 1)):
    data = X.copy()
    data[place] = value
    return data


FITTED = SCALER().fit(X)
REFUSED = [
    (lambda: SCALER().fit(at(NAN)), "sequence 4, token 2, coordinate 1"),
    (lambda: pa.LinearAttentionRegressor().fit(at(NAN), Y), "SequenceImputer"),
    (lambda: IMPUTER().fit(at(np.inf)), "sequence 4, token 2, coordinate 1"),
    (lambda: IMPUTER().fit(np.where(np.arange(3) == 2, NAN, GAPS)), "coordinate 2"),
    (lambda: IMPUTER().fit(pa.scan(X)), "source"), (lambda: IMPUTER().fit(X[0]), "table"),
    (lambda: SCALER().fit(X[0]), "table"), (lambda: SCALER().fit([]), "empty"),
    (lambda: SCALER().fit(X, sample_weight=np.zeros(20)), "sample_weight"),
    (lambda: SCALER().fit(pa.scan(X), sample_weight=Y**2), "sample_weight"),
    (lambda: FITTED.transform(pa.scan(X[..., :2])), "2"),
    (lambda: FITTED.transform(X[..., :2]), "3 coordinates; got 2"),
    (lambda: IMPUTER().fit(X).transform(X[..., :2]), "3 coordinates; got 2"),
    (lambda: FITTED.transform(at(1e308, (3, 1, 2))), "sequence 3, token 1, coordinate 2"),
    (lambda: SCALER(unit_norm=True).fit(X).inverse_transform(X), "unit_norm"),
    (lambda: FITTED.inverse_transform(pa.scan(X)), "source"),
    (lambda: FITTED.get_feature_names_out(["a"]), "3 names"),
    (lambda: IMPUTER("constant", NAN).fit(X), "fill_value"),
    (lambda: IMPUTER("next").fit(X), "strategy"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_misuse_is_named(call, word):
    with pytest.raises(PolyattnError, match=word):
        call()


class Toolbox:
    """What aeon and sktime have in common, as far as an adapter uses it; see tests/optional."""

    def set_tags(self, **tags):
        self.tags = tags

    def fit(self, X, y):
        return self._fit(X, y)

    def predict(self, X):
        return self._predict(X)

    def predict_proba(self, X):
        return self._predict_proba(X)


Classifier = type("Classifier", (SeriesClassifier, Toolbox), {})
Regressor = type("Regressor", (SeriesRegressor, Toolbox), {})
SEQUENCES = RNG.standard_normal((90, 5, 3)) * [1e-3, 1.0, 1e4] + 5.0
SERIES = np.ascontiguousarray(SEQUENCES.swapaxes(1, 2))
NUMBERS = pa.data.random_layer(3, 1, 2, "last", random_state=1)(
    (SEQUENCES - 5.0) / [1e-3, 1.0, 1e4]
)[:, 0]
LABELS = np.array(["a", "b", "c"])[np.digitize(NUMBERS, [-0.5, 0.5])]


def windows(X, n):
    """Token t has the numbers of times t .. t + n - 1, coordinate by coordinate."""
    views = np.lib.stride_tricks.sliding_window_view(X, n, axis=1)
    return views.reshape(*views.shape[:2], -1)


WITH_GAPS = SERIES.copy()
WITH_GAPS[4, 1, 2:4] = NAN
FORM = pa.Form(decay=0.8, bias=True)
ADAPTED = [
    ({"standardise": False}, SERIES, [], SEQUENCES),
    ({"unit_norm": True}, list(SERIES), [SCALER(unit_norm=True)], SEQUENCES),
    ({"steps_per_token": 3}, SERIES, [SCALER()], windows(SEQUENCES, 3)),
    ({"impute": "linear"}, WITH_GAPS, [IMPUTER("linear"), SCALER()], WITH_GAPS.swapaxes(1, 2)),
    ({"form": FORM, "ridge": 0.1}, SERIES, [SCALER()], SEQUENCES),
]


@pytest.mark.parametrize(("options", "series", "steps", "sequences"), ADAPTED)
def test_series_are_sequences_of_exchanged_axes_prepared_and_fitted(
    options, series, steps, sequences
):
    own = {name: options[name] for name in ("form", "ridge") if name in options}
    known = pa.LinearAttentionRegressor(**own or {"ridge": "loo", "bias": True})
    known = make_pipeline(*steps, known).fit(sequences, NUMBERS)
    adapter = Regressor(**options).fit(series, NUMBERS)
    close(adapter.predict(series), known.predict(sequences), 1e-9)
    assert adapter.tags == {"capability:missing_values": "impute" in options}
    known = make_pipeline(*steps, pa.LinearAttentionClassifier(loss="logistic", **own))
    known.fit(sequences, LABELS)
    adapter = Classifier(loss="logistic", **options).fit(series, LABELS)
    close(adapter.predict_proba(series), known.predict_proba(sequences), 1e-6)


def test_short_and_single_series_and_wrong_options():
    # A shorter series begins with copies of its first step.
    adapter, short = Regressor(steps_per_token=3).fit(SERIES, NUMBERS), SERIES[:1, :, :1]
    close(adapter.predict(short), adapter.predict(np.repeat(short, 3, axis=2)))
    single = np.tile(SERIES[:, :1], 3)  # of one channel a token is six steps
    assert Regressor().fit(single, NUMBERS).model_[-1].n_features_in_ == 6
    for wrong in ({"impute": "next"}, {"steps_per_token": 0}, {"form": pa.Form(mode="causal")}):
        with pytest.raises(PolyattnError, match=next(iter(wrong))):
            Regressor(**wrong).fit(SERIES, NUMBERS)
