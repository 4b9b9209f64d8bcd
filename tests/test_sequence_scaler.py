"""SequenceScaler: held against StandardScaler on all tokens, in parts, units and kinds of input."""

import numpy as np
import pytest
from distributed.protocol import deserialize, serialize
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, OutOfRange

RNG = np.random.default_rng(0)
X = RNG.standard_normal((20, 6, 3)) * [1.0, 100.0, 1e-3] + [0.0, 5.0, -1.0]
RAGGED = [RNG.standard_normal((n, 3)) * [1.0, 100.0, 1e-3] + 2.0 for n in (1, 4, 2, 9)]
SCALER = pa.SequenceScaler


def tokens_of(sequences):
    return np.concatenate(list(sequences))


def close(found, expected, tolerance=1e-12):
    return np.allclose(found, expected, rtol=tolerance, atol=tolerance)


# Against StandardScaler ---------------------------------------------------------------------


@pytest.mark.parametrize("data", [X, RAGGED, pa.SequenceBatch.from_sequences(RAGGED)], ids=type)
@pytest.mark.parametrize(("mean", "std"), [(True, True), (True, False), (False, True)])
def test_it_is_the_standard_scaler_of_all_tokens(data, mean, std):
    tokens = tokens_of(data)
    oracle = StandardScaler(with_mean=mean, with_std=std).fit(tokens)
    scaler = SCALER(with_mean=mean, with_std=std).fit(data)
    found = scaler.transform(data)
    assert close(tokens_of(found), oracle.transform(tokens))
    assert close(scaler.mean_, tokens.mean(axis=0))
    assert close(tokens_of(scaler.inverse_transform(found)), tokens)
    assert (scaler.n_features_in_, scaler.n_tokens_seen_) == (3, len(tokens))
    assert scaler.n_sequences_seen_ == len(data)


def test_positions_have_no_mean_of_their_own():
    """A trend over the positions of all sequences is still there afterwards."""
    trend = np.arange(5.0)[None, :, None] + np.zeros((7, 1, 1))
    scaled = SCALER().fit_transform(trend)
    assert np.all(np.diff(scaled[:, :, 0], axis=1) > 0.5)


def test_weights_are_those_of_sequences():
    weights = np.arange(20.0)
    oracle = StandardScaler().fit(tokens_of(X), sample_weight=np.repeat(weights, 6))
    scaler = SCALER().fit(X, sample_weight=weights)
    assert close(scaler.mean_, oracle.mean_)
    assert close(scaler.scale_, oracle.scale_)
    assert (scaler.n_sequences_seen_, scaler.n_tokens_seen_) == (19, 114)
    repeated = SCALER().fit(np.repeat(X, np.arange(20), axis=0))
    assert close(scaler.scale_, repeated.scale_)
    for factor in (1e-300, 1e300):
        assert close(SCALER().fit(X, sample_weight=factor * weights).scale_, oracle.scale_)


def test_a_sequence_without_weight_is_absent():
    wild = np.concatenate([X, 1e200 * np.ones((1, 6, 3))])
    weights = np.append(np.ones(20), 0.0)
    scaler = SCALER().fit(wild, sample_weight=weights)
    assert np.array_equal(scaler.scale_, SCALER().fit(X, sample_weight=np.ones(20)).scale_)


@given(
    cuts=st.lists(st.integers(1, 19), max_size=5, unique=True),
    exponent=st.integers(-900, 900),
    offset=st.sampled_from([0.0, 1.0, 1e6]),
    weighted=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_parts_add_up_to_the_whole(cuts, exponent, offset, weighted):
    """In any order, cut anywhere, at any size; a large mean costs as many digits as it has."""
    data = np.ldexp(RNG.standard_normal((20, 3, 2)) + offset, exponent)
    weights = RNG.random(20) if weighted else None
    whole = SCALER().fit(data, sample_weight=weights)
    parts = SCALER()
    for first, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 20], strict=True):
        own = None if weights is None else weights[first:stop]
        parts.partial_fit(data[first:stop], sample_weight=own)
    tolerance = 1e-14 * (1.0 + offset)
    assert np.allclose(parts.mean_, whole.mean_, rtol=1e-14, atol=tolerance * whole.scale_.min())
    assert np.allclose(parts.scale_, whole.scale_, rtol=tolerance, atol=0)
    assert (parts.n_tokens_seen_, parts.n_sequences_seen_) == (60, 20)


def test_many_blocks_are_those_of_one(monkeypatch):
    whole = SCALER().fit(X, sample_weight=np.arange(20.0))
    monkeypatch.setattr("polyattn.numerics.arrays.CHECK_BLOCK", 12)
    assert close(SCALER().fit(X, sample_weight=np.arange(20.0)).scale_, whole.scale_, 1e-14)
    assert close(SCALER().fit(X).mean_, tokens_of(X).mean(axis=0), 1e-14)


# Sizes and degenerate data ------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [-1000, -500, 0, 500, 1000])
def test_units_do_not_matter(exponent):
    """Powers of two: the very same bits, also where squares leave float64."""
    one, other = SCALER(), SCALER()
    assert np.array_equal(other.fit_transform(np.ldexp(X, exponent)), one.fit_transform(X))
    assert np.array_equal(np.ldexp(one.scale_, exponent), other.scale_)
    with_norm = SCALER(with_mean=False, with_std=False, unit_norm=True)
    assert close(with_norm.fit_transform(np.ldexp(X, exponent)), with_norm.transform(X))


def test_the_largest_numbers_are_scaled():
    data = np.array([[[1.7e308], [-1.7e308], [1.7e308], [-1.7e308]]])
    assert np.allclose(SCALER().fit_transform(data)[0, :, 0], [1, -1, 1, -1])


def test_constants_are_not_divided():
    data = X.copy()
    data[..., 1] = 0.1
    data[..., 2] = 1e200
    scaler = SCALER().fit(data)
    assert scaler.scale_[1:].tolist() == [1.0, 1.0]
    assert not scaler.transform(data)[..., 1:].any()
    # Sums in another order differ in the last digit: that is no deviation.
    data[::2, :, 1] = 0.1 + 0.2 - 0.2
    assert np.ptp(data[..., 1]) > 0
    assert SCALER().fit(data).scale_[1] == 1.0
    # Negative control: digits that count are kept.
    data[::2, :, 1] = 0.1 * (1 + 1e-12)
    assert SCALER().fit(data).scale_[1] < 1e-12


@pytest.mark.parametrize("tokens", [[[3.0]], [[0.0]], [[5e-324]], [[5e-324], [0.0]]])
def test_one_token_and_the_smallest_numbers(tokens):
    scaler = SCALER().fit([np.array(tokens)])
    assert scaler.scale_.tolist() == [1.0]
    assert np.isfinite(scaler.transform([np.array(tokens)])[0]).all()


def test_float32_and_integers_are_computed_in_float64():
    scaler = SCALER().fit(X.astype(np.float32))
    assert np.array_equal(scaler.mean_, SCALER().fit(X.astype(np.float32).astype(float)).mean_)
    assert scaler.transform(X.astype(np.float32)).dtype == np.float64
    counts = np.arange(24).reshape(2, 6, 2)
    assert close(SCALER().fit_transform(counts), SCALER().fit_transform(counts.astype(float)))


def test_unit_norm_comes_last_and_zero_tokens_stay():
    scaled = SCALER().fit_transform(X)
    found = SCALER(unit_norm=True).fit_transform(X)
    assert close(found, scaled / np.linalg.norm(scaled, axis=-1, keepdims=True))
    zero = SCALER(unit_norm=True).fit_transform(np.ones((2, 3, 2)))
    assert not zero.any()
    with pytest.raises(InvalidInput, match="unit_norm=False"):
        SCALER(unit_norm=True).fit(X).inverse_transform(X)


def test_data_are_left_alone():
    data = X.copy()
    data.setflags(write=False)
    SCALER(unit_norm=True).fit(data).transform(data)
    for scaler in (SCALER(with_mean=False, with_std=False), SCALER()):
        assert not np.shares_memory(scaler.fit_transform(data), data)


# Kinds of input -----------------------------------------------------------------------------


def test_the_same_kind_comes_back():
    scaler = SCALER().fit(RAGGED)
    listed = scaler.transform(RAGGED)
    assert isinstance(listed, list)
    assert [each.shape for each in listed] == [each.shape for each in RAGGED]
    batch = scaler.transform(pa.SequenceBatch.from_sequences(RAGGED))
    assert isinstance(batch, pa.SequenceBatch)
    assert np.array_equal(tokens_of(batch), tokens_of(listed))
    assert scaler.transform(X).shape == X.shape
    assert isinstance(scaler.transform(tuple(RAGGED)), list)


def test_channels_first_is_the_same_turned():
    turned = SCALER(layout="channels_first").fit(X.swapaxes(1, 2))
    assert np.array_equal(turned.mean_, SCALER().fit(X).mean_)
    found = turned.transform(X.swapaxes(1, 2))
    assert found.shape == (20, 3, 6)
    assert np.array_equal(found.swapaxes(1, 2), SCALER().fit_transform(X))
    assert np.array_equal(turned.inverse_transform(found), turned.inverse_transform(list(found)))
    ragged = SCALER(layout="channels_first").fit_transform([each.T for each in RAGGED])
    assert all(
        np.array_equal(a.T, b) for a, b in zip(ragged, SCALER().fit_transform(RAGGED), strict=True)
    )


def test_a_source_is_scaled_chunk_by_chunk():
    y, weights = RNG.standard_normal(20), RNG.random(20)
    source = pa.scan(X, y, sample_weight=weights, chunk_bytes=700)
    assert len(source.chunks) > 3
    scaler = SCALER().fit(source)
    whole = SCALER().fit(X, sample_weight=weights)
    assert close(scaler.mean_, whole.mean_, 1e-14)
    assert scaler.n_sequences_seen_ == 20
    view = scaler.transform(source)
    fitted = pa.fit(view, ridge=0.1)
    expected = pa.fit(scaler.transform(X), y, ridge=0.1, sample_weight=weights)
    assert close(fitted.coef, expected.coef, 1e-9)
    # Sums over other tokens are other sums: a checkpoint of one is not gone on with by the other.
    identities = {chunk.identity for each in (source, view) for chunk in each.chunks}
    assert len(identities) == 2 * len(source.chunks)
    scaler.fit(10 * X)
    assert pa.fit(view, ridge=0.1).risk == fitted.risk
    model = make_pipeline(SCALER(), pa.LinearAttentionRegressor(ridge=0.1)).fit(source)
    assert close(model[-1].coef_[0], fitted.coef[0], 1e-9)
    assert model.predict(source).shape == (20,)
    with pytest.raises(InvalidInput, match="2 coordinates; the source has 3"):
        SCALER().fit(X[..., :2]).transform(source)
    with pytest.raises(InvalidInput, match="leave out sample_weight"):
        SCALER().fit(source, sample_weight=weights)
    with pytest.raises(InvalidInput, match="not a source"):
        scaler.inverse_transform(source)


@pytest.mark.parametrize(
    "options", [{"ridge": "loo"}, {"ridge": 0.1, "solver": "iterative"}, {"ridge": 0.1}], ids=str
)
def test_every_solver_reads_the_view_of_files(options, tmp_path):
    y = RNG.standard_normal(20)
    for name, some in (("a", slice(0, 9)), ("b", slice(9, 20))):
        np.savez(tmp_path / f"{name}.npz", X=X[some], Y=y[some])
    source = pa.scan([tmp_path / "a.npz", tmp_path / "b.npz"])
    scaler = SCALER().fit(source)
    view, scaled = scaler.transform(source), scaler.transform(X)
    found, expected = pa.fit(view, **options), pa.fit(scaled, y, **options)
    assert close(found.coef, expected.coef, 1e-8)
    assert close(found.predict(view), expected.predict(scaled), 1e-8)
    chunk = deserialize(*serialize(view.chunks[1]))  # as workers get it
    assert np.array_equal(chunk.read("last").batch.values, tokens_of(scaled[9:]))
    if options == {"ridge": 0.1}:
        pa.fit(view, **options, checkpoint=tmp_path / "sums")
        with pytest.raises(InvalidInput, match="of other data"):
            pa.fit(source, **options, checkpoint=tmp_path / "sums")


def test_symbols_are_scaled_as_the_numbers_they_stand_for():
    batch = pa.SequenceBatch.from_ids([[0, 1, 1], [2, 0, 1]], 3)
    dense = np.eye(3)[np.array([[0, 1, 1], [2, 0, 1]])]
    assert close(tokens_of(SCALER().fit_transform(batch)), tokens_of(SCALER().fit_transform(dense)))


# scikit-learn -------------------------------------------------------------------------------


def test_it_is_a_transformer_of_scikit_learn():
    scaler = SCALER(with_std=False)
    assert clone(scaler).get_params() == scaler.get_params()
    with pytest.raises(NotFittedError):
        scaler.transform(X)
    scaler.fit(X)
    assert scaler.get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert scaler.get_feature_names_out(["a", "b", "c"]).tolist() == ["a", "b", "c"]
    with pytest.raises(InvalidInput, match="input_features must be 3 names"):
        scaler.get_feature_names_out(["a"])
    model = make_pipeline(SCALER(), pa.LinearAttentionRegressor(ridge=0.1))
    y = X[:, 0, 0]
    assert np.array_equal(
        model.fit(X, y).predict(X),
        pa.LinearAttentionRegressor(ridge=0.1)
        .fit(SCALER().fit_transform(X), y)
        .predict(SCALER().fit_transform(X)),
    )


def test_sequences_are_no_table_for_set_output():
    assert SCALER().set_output() is not None
    with pytest.raises(InvalidInput, match="no table"):
        SCALER().set_output(transform="pandas")
    from sklearn import config_context

    with config_context(transform_output="pandas"):
        assert isinstance(SCALER().fit_transform(X), np.ndarray)


# Bad input ----------------------------------------------------------------------------------


def test_missing_numbers_are_placed():
    data = X.copy()
    data[4, 2, 1] = np.nan
    with pytest.raises(InvalidInput, match=r"sequence 4, token 2, coordinate 1.*SequenceImputer"):
        SCALER().fit(data)
    batch = pa.SequenceBatch.from_array(data, missing=True)
    for other in (data, list(data), batch):
        with pytest.raises(InvalidInput, match="sequence 4, token 2, coordinate 1"):
            SCALER().fit(X).transform(other)


@pytest.mark.parametrize(
    ("change", "error", "pattern"),
    [
        ({"with_mean": "yes"}, InvalidType, "with_mean must be True or False"),
        ({"with_std": 1}, InvalidType, "with_std must be True or False"),
        ({"unit_norm": None}, InvalidType, "unit_norm must be True or False"),
        ({"layout": "rows"}, InvalidInput, "layout must be one of 'tokens_first'"),
    ],
)
def test_bad_parameters_are_named(change, error, pattern):
    with pytest.raises(error, match=pattern):
        SCALER(**change).fit(X)


def test_bad_data_are_named():
    with pytest.raises(InvalidInput, match="got a table of shape"):
        SCALER().fit(X[0])
    with pytest.raises(InvalidInput, match="X is empty"):
        SCALER().fit([])
    with pytest.raises(InvalidInput, match="zero everywhere"):
        SCALER().fit(X, sample_weight=np.zeros(20))
    huge = np.full(20, 1e306)
    with pytest.raises(OutOfRange, match="divide the weights"):
        SCALER().fit(X, sample_weight=huge).partial_fit(X, sample_weight=huge)
    with pytest.raises(InvalidInput, match="one weight per sequence"):
        SCALER().fit(X, sample_weight=np.ones(3))
    with pytest.raises(InvalidInput, match="tokens of 3 coordinates; got 2"):
        SCALER().fit(X).transform(X[..., :2])
    with pytest.raises(InvalidInput, match="tokens of 3 coordinates; got 2"):
        SCALER().fit(X).partial_fit(X[..., :2])
    far = X.copy()
    far[3, 1, 2] = 1e308
    with pytest.raises(OutOfRange, match=r"sequence 3, token 1, coordinate 2: it is 1e\+308"):
        SCALER().fit(X).transform(far)
    with pytest.raises(OutOfRange, match="scaled back"):
        SCALER().fit(1e100 * X).inverse_transform(1e300 * X)
