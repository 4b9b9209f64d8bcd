"""SequenceImputer: held against a loop over single numbers, and SimpleImputer on all tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType

IMPUTER = pa.SequenceImputer
NAN = np.nan


def with_gaps(shape, share=0.3, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    values[rng.random(shape) < share] = NAN
    return values


X = with_gaps((12, 6, 3))
RAGGED = [with_gaps((n, 3), seed=n) for n in (1, 5, 2, 9, 3)]


def tokens_of(sequences):
    return np.concatenate(list(sequences))


def reference(sequence, strategy, default):
    """One number after the other."""
    filled = sequence.copy()
    for j in range(sequence.shape[1]):
        column = sequence[:, j]
        seen = [t for t in range(len(column)) if not np.isnan(column[t])]
        for t in range(len(column)):
            if not np.isnan(column[t]):
                continue
            before = [s for s in seen if s < t]
            after = [s for s in seen if s > t]
            if strategy == "previous":
                filled[t, j] = column[before[-1]] if before else default[j]
            elif before and after:
                a, b = before[-1], after[0]
                filled[t, j] = column[a] + (column[b] - column[a]) * (t - a) / (b - a)
            elif before or after:
                filled[t, j] = column[before[-1]] if before else column[after[0]]
            else:
                filled[t, j] = default[j]
    return filled


# Against oracles ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["previous", "linear"])
@pytest.mark.parametrize("data", [X, RAGGED], ids=["array", "list"])
def test_gaps_are_filled_from_their_own_sequence(strategy, data):
    imputer = IMPUTER(strategy).fit(data)
    mean = np.nanmean(tokens_of(data), axis=0)
    assert np.allclose(imputer.statistics_, mean, rtol=1e-14)
    for found, sequence in zip(imputer.transform(data), data, strict=True):
        assert np.allclose(found, reference(sequence, strategy, imputer.statistics_), rtol=1e-14)


@given(
    data=hnp.arrays(
        float,
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.sampled_from([NAN, NAN, 0.0, 1.0, -2.5, 1e300]),
    ),
    cut=st.integers(1, 11),
    strategy=st.sampled_from(["previous", "linear"]),
)
@settings(max_examples=80, deadline=None)
def test_every_pattern_of_gaps(data, cut, strategy):
    """And a sequence is filled alike whatever stands beside it."""
    sequences = [part for part in (data[:cut], data[cut:]) if len(part)]
    training = np.ones((1, 1, data.shape[1]))
    imputer = IMPUTER(strategy).fit(training)
    together = imputer.transform(sequences)
    for found, sequence in zip(together, sequences, strict=True):
        assert np.allclose(found, reference(sequence, strategy, np.ones(data.shape[1])), rtol=1e-14)
        assert np.array_equal(found, imputer.transform([sequence])[0])
        seen = ~np.isnan(sequence)
        assert np.array_equal(found[seen], sequence[seen])


@pytest.mark.parametrize("strategy", ["mean", "median", "constant"])
@pytest.mark.parametrize("add_indicator", [False, True])
def test_statistics_are_those_of_simple_imputer_on_all_tokens(strategy, add_indicator):
    data = X.copy()
    data[..., 1] = np.nan_to_num(data[..., 1])  # a coordinate without gaps in training
    fill_value = 7.5 if strategy == "constant" else None
    oracle = SimpleImputer(strategy=strategy, fill_value=fill_value, add_indicator=add_indicator)
    oracle.fit(tokens_of(data))
    imputer = IMPUTER(strategy, fill_value=7.5, add_indicator=add_indicator).fit(data)
    fresh = with_gaps((5, 4, 3), seed=9)
    expected = oracle.transform(tokens_of(fresh))
    assert np.allclose(tokens_of(imputer.transform(fresh)), expected, rtol=1e-14, atol=1e-15)
    assert imputer.get_feature_names_out().tolist() == oracle.get_feature_names_out().tolist()


def test_indicators_say_what_was_missing():
    for strategy in ("previous", "linear", "mean"):
        found = IMPUTER(strategy, add_indicator=True).fit_transform(X)
        assert found.shape == (12, 6, 6)
        assert np.array_equal(found[..., 3:], np.isnan(X))


def test_training_decides_what_fills_fresh_data():
    imputer = IMPUTER().fit(np.full((1, 2, 1), 4.0))
    assert imputer.transform([np.array([[NAN], [9.0]])])[0].tolist() == [[4.0], [9.0]]
    # Nothing comes from the sequence before, whose last number is 9.
    both = imputer.transform([np.array([[9.0]]), np.array([[NAN]])])
    assert both[1].tolist() == [[4.0]]


@pytest.mark.parametrize("strategy", ["mean", "median", "linear", "previous"])
@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e150, 1e308])
def test_units_do_not_matter(strategy, size):
    data = np.array([[[0.5], [NAN], [1.5], [1.0]], [[NAN], [NAN], [NAN], [NAN]]])
    found = IMPUTER(strategy).fit_transform(size * data)
    assert np.allclose(found / size, IMPUTER(strategy).fit_transform(data), rtol=1e-14)


# Kinds of input -----------------------------------------------------------------------------


def test_the_same_kind_comes_back():
    imputer = IMPUTER().fit(RAGGED)
    listed = imputer.transform(RAGGED)
    assert isinstance(listed, list)
    batch = pa.SequenceBatch.from_sequences(RAGGED, missing=True)
    filled = imputer.transform(batch)
    assert isinstance(filled, pa.SequenceBatch)
    assert not filled.has_missing
    assert np.array_equal(tokens_of(filled), tokens_of(listed))
    assert imputer.transform(X).shape == X.shape
    turned = IMPUTER(layout="channels_first", add_indicator=True)
    found = turned.fit_transform(X.swapaxes(1, 2))
    assert found.shape == (12, 6, 6)
    expected = IMPUTER(add_indicator=True).fit_transform(X)
    assert np.array_equal(found, expected.swapaxes(1, 2))


def test_data_without_gaps_are_copied():
    data = np.nan_to_num(X)
    for strategy in ("previous", "mean"):
        found = IMPUTER(strategy).fit_transform(data)
        assert np.array_equal(found, data)
        assert not np.shares_memory(found, data)
    counts = np.arange(12).reshape(2, 3, 2)
    assert np.array_equal(IMPUTER().fit_transform(counts), counts)
    assert IMPUTER().fit_transform(X.astype(np.float32)).dtype == np.float64


def test_it_is_a_transformer_of_scikit_learn():
    imputer = IMPUTER("linear", add_indicator=True)
    assert clone(imputer).get_params() == imputer.get_params()
    assert get_tags(imputer).input_tags.allow_nan
    with pytest.raises(NotFittedError):
        imputer.transform(X)
    with pytest.raises(InvalidInput, match="no table"):
        imputer.set_output(transform="polars")
    model = make_pipeline(IMPUTER(), pa.SequenceScaler(), pa.LinearAttentionRegressor(ridge=0.1))
    y = np.arange(12.0)
    filled = pa.SequenceScaler().fit_transform(IMPUTER().fit_transform(X))
    expected = pa.LinearAttentionRegressor(ridge=0.1).fit(filled, y).predict(filled)
    assert np.array_equal(model.fit(X, y).predict(X), expected)


# Bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "pattern"),
    [
        ({"strategy": "next"}, InvalidInput, "strategy must be one of 'previous'"),
        ({"add_indicator": 1}, InvalidType, "add_indicator must be True or False"),
        ({"layout": 3}, InvalidInput, "layout must be one of"),
        ({"strategy": "constant", "fill_value": NAN}, InvalidInput, "fill_value must be a finite"),
        ({"strategy": "constant", "fill_value": "0"}, InvalidInput, "fill_value must be a finite"),
    ],
)
def test_bad_parameters_are_named(change, error, pattern):
    with pytest.raises(error, match=pattern):
        IMPUTER(**change).fit(X)


def test_bad_data_are_named():
    unseen = X.copy()
    unseen[..., 2] = NAN
    for strategy in ("previous", "linear", "mean", "median"):
        with pytest.raises(InvalidInput, match=r"coordinate 2 .*strategy='constant'"):
            IMPUTER(strategy).fit(unseen)
    assert np.all(IMPUTER("constant", 3.0).fit_transform(unseen)[..., 2] == 3.0)
    infinite = X.copy()
    infinite[3, 1, 2] = np.inf
    with pytest.raises(InvalidInput, match=r"infinity.*sequence 3, token 1, coordinate 2"):
        IMPUTER().fit(infinite)
    with pytest.raises(InvalidInput, match="tokens of 3 coordinates; got 2"):
        IMPUTER().fit(X).transform(X[..., :2])
    with pytest.raises(InvalidInput, match="got a table of shape"):
        IMPUTER().fit(X[0])
    with pytest.raises(InvalidInput, match="source refuses missing"):
        IMPUTER().fit(pa.scan(np.ones((3, 2, 1))))
    with pytest.raises(InvalidInput, match="SequenceImputer"):
        pa.LinearAttentionRegressor().fit(X, np.arange(12.0))
