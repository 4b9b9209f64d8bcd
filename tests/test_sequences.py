"""Sequences, targets, weights and names as arguments: all ways to give the same, and refusals."""

from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, PolyattnError

RNG = np.random.default_rng(20)
Batch = pa.SequenceBatch
X = RNG.standard_normal((24, 6, 2))
RAGGED = [RNG.standard_normal((length, 2)) for length in (2, 5, 1, 4)]
Y, Y_TOKENS = RNG.standard_normal(24), RNG.standard_normal((24, 6, 2))


def same(batch, sequences):
    assert batch.lengths.tolist() == [len(x) for x in sequences]
    for one, other in zip(batch, sequences, strict=True):
        np.testing.assert_array_equal(one, other)


def in_objects(sequences):
    return pd.Series(sequences).to_numpy()


@given(
    array=arrays.arrays(
        np.float64, arrays.array_shapes(min_dims=3, max_dims=3), elements=st.floats(-1e6, 1e6)
    ),
    cuts=st.lists(st.integers(1, 5), min_size=5, max_size=5),
    more=st.integers(0, 2),
)
def test_all_ways_to_give_sequences_are_the_same(array, cuts, more):
    same(Batch.from_array(array), array)
    ragged = [x[: min(n, len(x))] for x, n in zip(array, [*cuts, 1, 1, 1, 1, 1], strict=False)]
    lengths = np.array([len(x) for x in ragged])
    padded = np.full((len(ragged), lengths.max() + more, array.shape[2]), np.nan)
    for row, x in zip(padded, ragged, strict=True):
        row[: len(x)] = x
    for batch in (
        Batch(np.concatenate(ragged), np.concatenate([[0], np.cumsum(lengths)])),
        Batch.from_sequences(ragged), Batch.from_sequences([x.tolist() for x in ragged]),
        Batch.from_sequences([x.T for x in ragged], layout="channels_first"),
        Batch.from_padded(padded), Batch.from_padded(np.nan_to_num(padded), lengths),
        Batch.from_padded(padded.swapaxes(1, 2), layout="channels_first"),
    ):  # fmt: skip
        same(batch, ragged)
        assert (len(batch), batch.n_dims) == (len(ragged), array.shape[2])
    same(Batch.from_array(array.swapaxes(1, 2), layout="channels_first"), array)


UNALIGNED = np.frombuffer(b"-" + X.tobytes(), X.dtype, offset=1).reshape(X.shape)
STORED = (
    X.astype(np.float32), X.astype(np.float16), np.abs(np.round(10 * X)).astype(np.uint8), X > 0,
    X.astype(">f8"), np.asfortranarray(X), UNALIGNED, np.repeat(X, 2, axis=1)[:, ::2],
    X[::-1, ::-1, ::-1], np.broadcast_to(X[:1], X.shape),
)  # fmt: skip


def test_any_memory_gives_the_same_answer_and_stays_as_it_is(tmp_path):
    layer = pa.LinearAttention(np.eye(2), np.ones((2, 1)), "full")
    for stored in STORED:
        before, plain = stored.copy(), np.array(stored, dtype=np.float64, order="C")
        np.save(tmp_path / "x.npy", stored)
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        sums = pa.Moments(2, 1).update(plain, Y).gram
        for given_X in (stored, mapped, list(stored), Batch.from_array(stored), stored.tolist()):
            np.testing.assert_allclose(np.stack(layer(given_X)), layer(plain), rtol=1e-12)
            found = pa.Moments(2, 1).update(given_X, Y).gram
            np.testing.assert_allclose(found, sums, rtol=1e-12, atol=1e-12 * np.abs(sums).max())
        np.testing.assert_array_equal(stored, before)
        np.testing.assert_array_equal(mapped, before)


def test_arrays_of_objects_and_series_are_what_they_hold():
    layer = pa.LinearAttention(np.eye(2), np.ones((2, 1)), "causal")
    for held in (in_objects(RAGGED), tuple(RAGGED), pd.Series(RAGGED, index=list("abcd"))):
        same(Batch.from_sequences(held), RAGGED)
    # Of one shape, numpy makes an array of numbers that are objects; integers stay integers.
    np.testing.assert_array_equal(layer(np.array(list(X), dtype=object)), layer(X))
    whole = np.array([[[2**60 + 1], [2]]], dtype=object)
    assert pa.certify(whole).digest == pa.certify(whole.astype(np.int64)).digest
    with pytest.raises(InvalidInput, match=str(2**53 + 1)):
        layer(np.array([[[0.5, 2**53 + 1]]], dtype=object))


def test_a_batch_is_taken_as_it_is_and_its_parts_are_batches():
    values, offsets = np.concatenate(RAGGED), np.array([0, 2, 7, 8, 12])
    batch = Batch(values, offsets)
    offsets[1] = 3
    same(batch, RAGGED)
    assert np.shares_memory(batch[1], values)
    for cut in (slice(1, 3), slice(None, 2), slice(-2, None), slice(0, 99)):
        same(batch[cut], RAGGED[cut])
        assert np.shares_memory(batch[cut][0], values)
    for at in (-1, np.int64(2)):
        np.testing.assert_array_equal(batch[at], RAGGED[at])
    with pytest.raises(IndexError):
        batch[4]
    for other in (slice(0, 4, 2), slice(3, 0, -1), slice(2, 2), "first"):
        with pytest.raises((InvalidInput, InvalidType), match="sequences"):
            batch[other]


def test_tensors_of_any_float_with_gradients_are_arrays():
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        tensor = torch.tensor(X, dtype=dtype, requires_grad=True)
        y = torch.tensor(Y, requires_grad=True)
        expected = pa.fit(tensor.detach().to(torch.float64).numpy(), Y).coef
        for data in ((tensor, y), (pa.scan(tensor, y),), (list(tensor), list(y))):
            np.testing.assert_allclose(pa.fit(*data).coef, expected, rtol=1e-6)
    ragged = [torch.tensor(each, requires_grad=True) for each in RAGGED]
    expected = pa.fit(RAGGED, [each[:, 0] for each in RAGGED], mode="causal")
    found = pa.fit(ragged, [each[:, 0] for each in ragged], mode="causal")
    np.testing.assert_array_equal(found.coef, expected.coef)
    tensor = torch.tensor(X)
    assert np.shares_memory(Batch.from_array(tensor)[0], tensor.numpy())
    same(Batch.from_array(torch.complex(tensor, tensor).conj().imag), -X)  # negated where read


def test_tensors_without_numbers_at_hand_are_refused():
    tensor = torch.tensor(X)
    device = type("Device", (), {"type": "cuda", "__str__": lambda _: "cuda:0"})()
    fields = {"is_nested": False, "is_quantized": False, "layout": "torch.strided"}
    elsewhere = type("Tensor", (), {**fields, "device": device, "__module__": "torch"})()
    for given_X, word in (
        (tensor.to_sparse(), "to_dense"), (torch.complex(tensor, tensor), "complex"),
        (tensor.to("meta"), "meta"), (elsewhere, r"cuda:0.*\.cpu\(\)"),
    ):  # fmt: skip
        for held in (given_X, [given_X, given_X]):
            with pytest.raises(InvalidType, match=word):
                pa.certify(held)


def test_estimators_take_channels_first_in_all_methods():
    channels = np.ascontiguousarray(X.swapaxes(1, 2))
    for model, y in (
        (pa.LinearAttentionRegressor("causal"), Y_TOKENS),
        (pa.LinearAttentionClassifier(ridge=0.1), Y > 0),
        (pa.SoftmaxAttentionRegressor(1, "last", "moments", polish=False), Y),
    ):
        plain = clone(model).fit(X, y)
        for given_X in (channels, in_objects(list(channels)), Batch.from_array(X)):
            learned = clone(model).set_params(layout="channels_first").fit(given_X, y)
            for method in ("predict", "decision_function", "predict_proba"):
                if hasattr(plain, method):
                    found, expected = getattr(learned, method)(given_X), getattr(plain, method)(X)
                    np.testing.assert_array_equal(np.stack(found), np.stack(expected))
            assert learned.score(given_X, y) == plain.score(X, y)
    plain, context = pa.LinearAttentionRegressor(form=pa.Form(), ridge=1.0), X[:, :3]
    turned, own = clone(plain).set_params(layout="channels_first"), context.swapaxes(1, 2)
    for method in ("fit", "partial_fit"):
        found = getattr(clone(turned), method)(channels, Y, context=own)
        expected = getattr(clone(plain), method)(X, Y, context=context)
        one = found.predict(channels, return_bound=True, context=own)
        np.testing.assert_array_equal(one, expected.predict(X, return_bound=True, context=context))
    # The negative control: a wrong layout is another fit.
    wrong = clone(turned).fit(X[:, :2], Y).predict(X[:, :2])
    assert not np.allclose(wrong, clone(plain).fit(X[:, :2], Y).predict(X[:, :2]))


GAPS = X[:5].copy()
GAPS[3, 5, 1] = np.nan
LAYER = pa.LinearAttention(np.eye(2), np.ones((2, 1)))


def test_missing_numbers_are_let_in_where_asked_and_parts_know():
    for batch in (
        Batch(GAPS.reshape(-1, 2), np.arange(6) * 6, missing=True),
        Batch.from_array(GAPS, missing=True), Batch.from_sequences(list(GAPS), missing=True),
        Batch.from_padded(GAPS, [6] * 5, missing=True),
    ):  # fmt: skip
        same(batch, GAPS)
        for part, sound in ((batch[:3], X[:3]), (batch[4:], X[4:5])):
            np.testing.assert_array_equal(LAYER(part), LAYER(sound))
        for first in (0, 2, 3):
            with pytest.raises(InvalidInput, match=f"sequence {3 - first}, token 5, coordinate 1"):
                LAYER(batch[first:4])


def test_nan_within_padding_is_missing_and_nan_throughout_is_refused():
    padded = np.ones((2, 4, 2))
    padded[0, 3], padded[1, 2:], padded[0, 1, 0] = np.nan, np.nan, np.nan
    with pytest.raises(InvalidInput, match="sequence 0, token 1, coordinate 0"):
        Batch.from_padded(padded)
    for hole in (padded[0, 1, 0], padded[0, 1]):  # a coordinate, then a whole token
        padded[0, 1] = hole
        assert Batch.from_padded(padded, missing=True).lengths.tolist() == [3, 2]
    padded[1] = np.nan
    for missing in (False, True):
        with pytest.raises(InvalidInput, match="sequence 1"):
            Batch.from_padded(padded, missing=missing)
    same(Batch.from_padded(np.ones((2, 3, 1), int)), np.ones((2, 3, 1)))


@cache
def fitted():
    return pa.fit(X, Y), pa.LinearAttentionRegressor().fit(X, Y), pa.certify(X)


TAKERS = {
    "fit": lambda Z: pa.fit(Z, Y[:5]),
    "fit with a context": lambda Z: pa.fit(X[:5], Y[:5], context=Z),
    "result.generalisation": lambda Z: fitted()[0].generalisation(0.9, Z, Y[:5]),
    "certify": pa.certify,
    "verify": lambda Z: pa.verify(fitted()[2], Z), "bound": lambda Z: fitted()[2].bound(Z, 0.1),
    "audit": lambda Z: pa.audit(LAYER, Z, Y[:5]), "Moments": lambda Z: pa.Moments(2, 1).update(Z, Y[:5]),
    "learning_curve": lambda Z: pa.learning_curve(Z, Y[:5], [3]),
    "layer": LAYER,
    "context of a layer": lambda Z: pa.LinearAttention(
        np.eye(2), np.eye(2), form=pa.Form(), n_dims=2, n_context_dims=2)(X[:5], context=Z),
    "softmax layer": pa.SoftmaxAttention([np.eye(2)], [np.eye(2)]),
    "learn_softmax": lambda Z: pa.learn_softmax(Z, Y[:5], n_heads=1),
    "scan": lambda Z: pa.fit(pa.scan(Z, Z), mode="causal"),
    "regressor.predict": lambda Z: pa.LinearAttentionRegressor().fit(X, Y).predict(Z),
    "regressor.score": lambda Z: fitted()[1].score(Z, Y[:5]),
    "domain": lambda Z: pa.certify(X, domain=pa.domains.Finite(Z)),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
def test_whatever_computes_refuses_missing_numbers_and_says_where(name):
    spoilt = np.where(np.isnan(GAPS), -np.inf, GAPS)
    for Z in (Batch.from_array(GAPS, missing=True), list(GAPS), spoilt):
        with pytest.raises(InvalidInput, match=r"sequence 3, token 5, (coordinate|output) 1"):
            TAKERS[name](Z)
    with pytest.raises(InvalidInput, match=r"1 of 60|infinity"):
        Batch.from_array(spoilt, missing=True)


NAMES, TURNED = ("pressure", "flow", "speed"), ("flow", "pressure", "speed")
OTHER_ORDER = "'flow', 'pressure', 'speed'.*'pressure', 'flow', 'speed'.*order"


def table():
    """Sequences of three coordinates in very different units, with a number."""
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((40, 5, 3)) * [1.0, 20.0, 0.1] + [5.0, -3.0, 0.0]
    frame = pd.DataFrame(tokens.reshape(-1, 3), columns=list(NAMES))
    frame["run"], frame["time"] = np.divmod(np.arange(200), 5)
    return frame.assign(value=np.repeat(tokens[:, -1, 0] + tokens[:, :, 1].mean(axis=1), 5))


def taken(names=NAMES):
    return pa.from_long(table(), sequence="run", order="time", tokens=list(names), targets="value")


def applied(model, X):
    return np.stack(model.predict(X) if hasattr(model, "predict") else model.transform(X))


NAMED = {
    "fit": partial(pa.fit, ridge=1.0),
    "fit by log-loss": lambda X, y: pa.fit(X, y > 0, loss="logistic", ridge=1.0),
    "scaler": pa.SequenceScaler().fit,
    "streaming regressor": pa.LinearAttentionRegressor(solver="direct").fit,
    "softmax": pa.SoftmaxAttentionRegressor(1, "last", "moments", polish=False).fit,
    "pipeline": make_pipeline(
        "passthrough", pa.SequenceImputer(), pa.SequenceScaler(), pa.LinearAttentionRegressor()
    ).fit,
    "classifier": lambda X, y: pa.LinearAttentionClassifier().fit(X, y > np.median(y)),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_was_fitted_to_named_coordinates_refuses_another_order(name, tmp_path):
    (X, y), turned, indexed = taken(), taken(TURNED).X, table().set_index(["run", "time"])
    model = NAMED[name](X, y)
    expected = applied(model, list(X))
    pa.save(model, tmp_path / "model.safetensors")
    for each in (model, pa.load(tmp_path / "model.safetensors")):
        for other in (turned, indexed[list(TURNED)]):
            with pytest.raises(InvalidInput, match=OTHER_ORDER):
                applied(each, other)
        with pytest.raises(InvalidInput, match=r"'heat'.*'speed'"):
            applied(each, X.named(["pressure", "flow", "heat"]))
        for given_X in (X, indexed[list(NAMES)]):  # and none at all, as above
            np.testing.assert_array_equal(applied(each, given_X), expected)
    # A fit to sequences without names takes any.
    applied(NAMED[name](list(X), y), turned)


def test_names_travel_with_batches_sources_and_streams(tmp_path):
    (X, y), turned = taken(), taken(TURNED).X
    assert X.named(["a", "b", "c"]).coordinate_names == ("a", "b", "c")
    table().to_parquet(tmp_path / "t.parquet")
    columns = {"sequence": "run", "order": "time", "targets": "value"}
    right, wrong = (
        pa.scan(tmp_path / "t.parquet", tokens=list(names), **columns) for names in (NAMES, TURNED)
    )
    scaled, found = pa.SequenceScaler().fit(right).transform(right), pa.fit(X, y, ridge=1.0)
    for named in (X, X[3:9], right, scaled, pa.scan(X), pa.scan([(X, y), (list(X), y)]), found):
        assert named.coordinate_names == NAMES
    with pytest.raises(InvalidInput, match=r"names|called|flow"):
        pa.scan([(X, y), (turned, y)])
    for make in (pa.LinearAttentionRegressor, pa.SequenceScaler):
        stream = make().partial_fit(X[:20], y[:20])
        for model, bad in ((stream, (turned[20:], y[20:])), (make().partial_fit(right), (wrong,))):
            with pytest.raises(InvalidInput, match=OTHER_ORDER):
                model.partial_fit(*bad)
        assert stream.partial_fit(X[20:], y[20:]).feature_names_in_.tolist() == list(NAMES)
    for call in (pa.audit, lambda found, Z, y: found.generalisation(0.9, Z, y)):
        with pytest.raises(InvalidInput, match=OTHER_ORDER):
            call(found, turned, y)


ONE, UNEVEN = np.ones((2, 3, 2)), [np.ones((1, 2)), np.ones((3, 2))]
GAP = [np.ones(1), [1.0, np.nan, 1.0]]
REGRESSOR = pa.LinearAttentionRegressor

# (a call, what the message says); shapes, numbers and weights that fit refuses are in test_fit.
REFUSED = {
    "complex": (lambda: pa.certify(ONE * 1j), "X.*complex"),
    "long double": (lambda: pa.certify(ONE.astype(np.longdouble)), "X.*float64"),
    "no tokens": (lambda: pa.certify(ONE[:, :0]), "X.*token"),
    "flat lists": (lambda: pa.certify([[1.0, 2.0], [3.0]]), r"X\[0\]"),
    "offsets that end": (lambda: Batch(ONE[0], [0, 2]), "offsets.*3"),
    "offsets that begin": (lambda: Batch(ONE[0], [1, 3]), "offsets.*1"),
    "offsets that fall": (lambda: Batch(ONE[0], [0, 2, 1, 3]), "sequence 1"),
    "offsets that repeat": (lambda: Batch(ONE[0], [0, 2, 2, 3]), "sequence 1"),
    "names": (lambda: Batch(ONE[0], [0, 3], coordinate_names=["a"]), "coordinate_names.*2"),
    "length four": (lambda: Batch.from_padded(ONE, [1, 4]), "lengths.*1 and 3"),
    "one length": (lambda: Batch.from_padded(ONE, [1]), "lengths.*2"),
    "layout": (lambda: Batch.from_array(ONE, layout="channel_first"), "layout"),
    "its layout": (lambda: REGRESSOR(layout="time_first").fit(ONE, [0, 1]), "layout"),
    "channels": (lambda: REGRESSOR(layout="channels_first").fit(ONE[0], [0]), "n_channels, n_time"),
    "NaN in Y": (lambda: pa.fit(UNEVEN, GAP, "full"), "1 of 4.*sequence 1, token 1, output 0"),
    "ragged Y": (lambda: pa.fit(UNEVEN, [1.0, 2.0], "causal"), r"Y\[0\]"),
    "no context": (lambda: pa.fit(ONE, [1, 2], context=[ONE[0], ONE[0, :0]]), "1 of context"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused_by_name(name):
    call, word = REFUSED[name]
    with pytest.raises(PolyattnError, match=word) as refused:
        call()
    assert isinstance(refused.value, ValueError | TypeError)
