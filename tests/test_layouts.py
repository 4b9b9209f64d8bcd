"""Axis orders, padding, arrays of objects and torch tensors: all the same sequences."""

import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import clone

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.sequences import as_batch, in_layout

RNG = np.random.default_rng(20)
X = RNG.standard_normal((24, 6, 2))
CHANNELS = np.ascontiguousarray(X.swapaxes(1, 2))
RAGGED = [RNG.standard_normal((length, 2)) for length in (2, 5, 1, 4)]
Y = RNG.standard_normal(24)
LABELS = np.array(["walk", "run"])[RNG.integers(2, size=24)]
FINITE = st.floats(-1e6, 1e6)
batches = arrays.arrays(np.float64, arrays.array_shapes(min_dims=3, max_dims=3), elements=FINITE)


def same(one, other):
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.offsets, other.offsets)


def in_objects(sequences):
    made = np.empty(len(sequences), dtype=object)
    made[:] = sequences
    return made


# The axis order -----------------------------------------------------------------------------


@given(batches)
def test_channels_first_is_the_transpose(array):
    plain = pa.SequenceBatch.from_array(array)
    channels = array.swapaxes(1, 2)
    same(pa.SequenceBatch.from_array(channels, layout="channels_first"), plain)
    same(pa.SequenceBatch.from_sequences(list(channels), layout="channels_first"), plain)
    same(pa.SequenceBatch.from_padded(channels, layout="channels_first"), plain)
    same(as_batch(in_layout(channels, "channels_first")), plain)


def test_ragged_channels():
    channels = [each.T for each in RAGGED]
    plain = pa.SequenceBatch.from_sequences(RAGGED)
    same(pa.SequenceBatch.from_sequences(channels, layout="channels_first"), plain)
    same(as_batch(in_layout(in_objects(channels), "channels_first")), plain)


def test_a_batch_has_its_layout_already():
    batch = as_batch(X)
    assert in_layout(batch, "channels_first") is batch
    assert in_layout(None, "channels_first") is None


def test_the_printed_batch_says_which_axis_is_which():
    """An array (300, 4, 50) of channels was read as 50 coordinates, and nothing said so."""
    array = np.zeros((300, 4, 50))
    assert "300 sequences, 4 tokens of 50 coordinates" in str(pa.SequenceBatch.from_array(array))
    read = pa.SequenceBatch.from_array(array, layout="channels_first")
    assert "300 sequences, 50 tokens of 4 coordinates" in str(read)
    assert "4 sequences, 1..5 tokens of 2 coordinates" in str(as_batch(RAGGED))
    assert "1 sequence, 1 token of 1 coordinate," in str(as_batch([[[1.0]]]))
    assert "some missing" in str(as_batch([[[1.0], [np.nan]]], missing=True))


def regressors(**options):
    return [
        (pa.LinearAttentionRegressor(ridge=0.1, **options), Y),
        (pa.LinearAttentionClassifier(ridge=0.1, **options), LABELS),
        (pa.LinearAttentionClassifier(loss="logistic", **options), LABELS),
        (pa.SoftmaxAttentionRegressor(1, "last", "moments", polish=False, **options), Y),
    ]


def test_estimators_take_channels_first_in_all_methods():
    for (plain, y), (other, _) in zip(
        regressors(), regressors(layout="channels_first"), strict=True
    ):
        plain.fit(X, y)
        for given_X in (CHANNELS, list(CHANNELS), in_objects(list(CHANNELS))):
            learned = clone(other).fit(given_X, y)
            assert learned.n_features_in_ == 2
            np.testing.assert_array_equal(learned.predict(given_X), plain.predict(X))
            assert learned.score(given_X, y) == plain.score(X, y)
            for method in ("decision_function", "predict_proba"):
                if hasattr(plain, method):
                    np.testing.assert_array_equal(
                        getattr(learned, method)(given_X), getattr(plain, method)(X)
                    )


def test_streams_bounds_and_contexts_in_channels_first():
    other = pa.LinearAttentionRegressor(layout="channels_first").partial_fit(CHANNELS, Y)
    plain = pa.LinearAttentionRegressor().partial_fit(X, Y)
    for one, expected in zip(
        other.predict(CHANNELS, return_bound=True), plain.predict(X, return_bound=True), strict=True
    ):
        np.testing.assert_array_equal(one, expected)
    context = RNG.standard_normal((24, 3, 5))  # channels, times
    form = pa.Form()
    other = pa.LinearAttentionRegressor(form=form, ridge=1.0, layout="channels_first")
    plain = pa.LinearAttentionRegressor(form=form, ridge=1.0)
    other.fit(CHANNELS, Y, context=context)
    plain.fit(X, Y, context=context.swapaxes(1, 2))
    np.testing.assert_array_equal(
        other.predict(CHANNELS, context=context),
        plain.predict(X, context=context.swapaxes(1, 2)),
    )


def test_predictions_of_tokens_are_rows_in_both_layouts():
    targets = RNG.standard_normal((24, 6, 3))
    plain = pa.LinearAttentionRegressor("causal").fit(X, targets)
    other = pa.LinearAttentionRegressor("causal", layout="channels_first").fit(CHANNELS, targets)
    assert other.predict(CHANNELS).shape == (24, 6, 3)
    np.testing.assert_array_equal(other.predict(CHANNELS), plain.predict(X))
    np.testing.assert_array_equal(other.predict(as_batch(X)), plain.predict(as_batch(X)))


def test_the_wrong_layout_is_another_fit():
    """The negative control of the tests above."""
    square = RNG.standard_normal((40, 3, 3))
    y = RNG.standard_normal(40)
    plain = pa.LinearAttentionRegressor(ridge=0.1).fit(square, y)
    other = pa.LinearAttentionRegressor(ridge=0.1, layout="channels_first").fit(square, y)
    assert not np.allclose(plain.predict(square), other.predict(square))


@pytest.mark.parametrize(
    "call",
    [
        lambda layout: pa.SequenceBatch.from_array(X, layout=layout),
        lambda layout: pa.SequenceBatch.from_sequences(RAGGED, layout=layout),
        lambda layout: pa.SequenceBatch.from_padded(X, layout=layout),
        lambda layout: pa.LinearAttentionRegressor(layout=layout).fit(X, Y),
        lambda layout: pa.LinearAttentionRegressor(layout=layout).partial_fit(X, Y),
        lambda layout: pa.LinearAttentionClassifier(layout=layout).fit(X, LABELS),
        lambda layout: pa.SoftmaxAttentionRegressor(layout=layout).fit(X, X),
    ],
)
@pytest.mark.parametrize("layout", ["channel_first", None, 1])
def test_other_layouts_are_refused_by_name(call, layout):
    with pytest.raises(InvalidInput, match="layout must be one of 'tokens_first', 'chan"):
        call(layout)


def test_wrong_shapes_are_said_in_the_words_of_the_layout():
    for call, words in (
        (lambda: in_layout(X[0], "channels_first"), r"\(n_sequences, n_channels, n_time\) or be a"),
        (lambda: in_layout(X[0], "channels_first"), r"one channel each are X\[:, None, :\]"),
        (lambda: in_layout([X], "channels_first"), r"X\[0\] must have shape \(n_channels, n_time"),
        (lambda: pa.SequenceBatch.from_array(X[0]), r"one token each are X\[:, None, :\]"),
    ):
        with pytest.raises(InvalidInput, match=words):
            call()


# Padding ------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 3), st.integers(0, 2))
def test_padding_by_nan_is_found(lengths, n_dims, more):
    sequences = [RNG.standard_normal((length, n_dims)) for length in lengths]
    padded = np.full((len(lengths), max(lengths) + more, n_dims), np.nan)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    expected = as_batch(sequences)
    same(pa.SequenceBatch.from_padded(padded), expected)
    same(pa.SequenceBatch.from_padded(padded.swapaxes(1, 2), layout="channels_first"), expected)


def test_nan_inside_is_missing_not_padding():
    padded = np.ones((2, 4, 2))
    padded[0, 3], padded[1, 2:] = np.nan, np.nan
    padded[0, 1, 0] = np.nan
    with pytest.raises(InvalidInput, match="sequence 0, token 1, coordinate 0, which is NaN"):
        pa.SequenceBatch.from_padded(padded)
    kept = pa.SequenceBatch.from_padded(padded, missing=True)
    assert kept.has_missing
    np.testing.assert_array_equal(kept.lengths, [3, 2])
    padded[0, 1] = np.nan  # a whole token, with another behind it
    np.testing.assert_array_equal(
        pa.SequenceBatch.from_padded(padded, missing=True).lengths, [3, 2]
    )


def test_a_sequence_of_padding_alone_is_refused():
    padded = np.ones((3, 2, 2))
    padded[1] = np.nan
    for missing in (False, True):
        with pytest.raises(InvalidInput, match="sequence 1 of padded X is NaN throughout"):
            pa.SequenceBatch.from_padded(padded, missing=missing)


def test_integers_are_not_padded():
    same(pa.SequenceBatch.from_padded(np.ones((2, 3, 1), int)), as_batch(np.ones((2, 3, 1), int)))
    with pytest.raises(InvalidInput, match="X is empty"):
        pa.SequenceBatch.from_padded(np.ones((0, 3, 1)))


# Arrays of objects --------------------------------------------------------------------------


def test_arrays_of_objects():
    same(as_batch(in_objects(RAGGED)), as_batch(RAGGED))
    same(as_batch(np.array(RAGGED, dtype=object)), as_batch(RAGGED))
    same(as_batch(pd.Series(RAGGED, index=list("abcd"))), as_batch(RAGGED))
    # Of one shape, numpy makes an array of numbers that are objects.
    same(as_batch(np.array(list(X), dtype=object)), as_batch(X))
    whole = np.array([[[1], [2]]], dtype=object)
    assert as_batch(whole).values.dtype == np.int64
    np.testing.assert_array_equal(
        pa.LinearAttentionRegressor().fit(in_objects(list(X)), Y).predict(X),
        pa.LinearAttentionRegressor().fit(X, Y).predict(X),
    )


def test_objects_that_are_no_numbers_are_refused():
    for bad in (Decimal(1), None, "1", 1j):
        with pytest.raises(InvalidType, match="X must hold real numbers"):
            as_batch(np.array([[[1.0, bad]]], dtype=object))
    with pytest.raises(InvalidInput, match=f"{2**53 + 1} would be rounded"):
        as_batch(np.array([[[0.5, 2**53 + 1]]], dtype=object))


def test_layers_answer_arrays_of_objects_with_a_list():
    layer = pa.LinearAttention(np.eye(2), np.ones((2, 1)), "causal")
    outputs = layer(in_objects(list(X)))
    assert isinstance(outputs, list)
    np.testing.assert_array_equal(np.stack(outputs), layer(X))


# torch --------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def test_tensors_of_any_float_with_gradients(torch):
    for name in ("float64", "float32", "float16", "bfloat16"):
        tensor = torch.tensor(X, dtype=getattr(torch, name), requires_grad=True)
        expected = tensor.detach().to(torch.float64).numpy()
        for given_X in (tensor, list(tensor), torch.nn.Parameter(tensor)):
            np.testing.assert_array_equal(as_batch(given_X).values, expected.reshape(-1, 2))
        y = torch.tensor(Y, dtype=torch.float64, requires_grad=True)
        fitted = pa.LinearAttentionRegressor(ridge=0.1).fit(tensor, y)
        plain = pa.LinearAttentionRegressor(ridge=0.1).fit(expected, Y)
        np.testing.assert_allclose(fitted.predict(tensor), plain.predict(expected), rtol=1e-6)
        np.testing.assert_allclose(pa.fit(pa.scan(tensor, y)).coef, pa.fit(expected, Y).coef)
        assert pa.LinearAttention(np.eye(2), np.eye(2))(tensor[0]).shape == (2,)


def test_lists_of_tensors_are_targets(torch):
    scalars = [torch.tensor(each, requires_grad=True) for each in Y]
    np.testing.assert_array_equal(pa.fit(X, scalars).coef, pa.fit(X, Y).coef)
    assert pa.LinearAttentionRegressor().fit(X, scalars).predict(X).shape == (24,)
    np.testing.assert_array_equal(pa.fit(pa.scan(X, scalars)).coef, pa.fit(pa.scan(X, Y)).coef)
    rows = [torch.tensor(each[:, 0], requires_grad=True) for each in RAGGED]
    expected = [each[:, 0] for each in RAGGED]
    for given_X in (RAGGED, [torch.tensor(each, requires_grad=True) for each in RAGGED]):
        np.testing.assert_array_equal(
            pa.fit(given_X, rows, mode="causal").coef, pa.fit(RAGGED, expected, mode="causal").coef
        )
        np.testing.assert_array_equal(
            pa.fit(pa.scan(given_X, rows), mode="causal").coef,
            pa.fit(pa.scan(RAGGED, expected), mode="causal").coef,
        )


def test_a_tensor_is_not_copied(torch):
    tensor = torch.tensor(X)
    assert np.shares_memory(as_batch(tensor).values, tensor.numpy())
    negative = torch.complex(tensor, tensor).conj().imag  # negated where it is read
    np.testing.assert_array_equal(as_batch(negative).values, -X.reshape(-1, 2))


def _quantised(torch, plain):
    with warnings.catch_warnings():  # torch says that it will remove them
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8)


def test_tensors_without_numbers_at_hand_are_refused(torch):
    plain = torch.tensor(X)
    for tensor, words in (
        (plain.to_sparse(), r"X must be a dense tensor; .*Call .to_dense\(\)"),
        (_quantised(torch, plain.float()), "quantised .*dequantize"),
        (torch.complex(plain, plain), "X must hold real numbers; got complex numbers"),
        (plain.to("meta"), "on the device 'meta', which holds no numbers"),
    ):
        with pytest.raises(InvalidType, match=words):
            as_batch(tensor)
        with pytest.raises(InvalidType, match=words.replace("X", r"X\[0\]")):
            as_batch([tensor, tensor])


@pytest.mark.parametrize(
    ("nested", "device", "words"),
    [
        (False, "cuda", r"X must be in the memory of the processor.*device 'cuda:0'.*\.cpu\(\)"),
        (True, "cpu", r"X is a nested tensor; .*list\(X.unbind\(\)\)"),
    ],
)
def test_tensors_elsewhere_are_refused_by_what_they_say_of_themselves(nested, device, words):
    class Device:
        type = device

        def __str__(self):
            return f"{device}:0"

    class Tensor:
        is_nested, is_quantized, layout, device = nested, False, "torch.strided", Device()

    Tensor.__module__ = "torch"
    with pytest.raises(InvalidType, match=words):
        as_batch(Tensor())
