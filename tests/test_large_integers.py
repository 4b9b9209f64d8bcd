"""Integers that float64 cannot hold: exact in certificates, refused everywhere else."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.numerics.arrays import float64_holds

BIG = np.array([[[2**60 + 1, 3], [5, 2**53 + 1]], [[1, 2], [3, 4]]])
SMALL = np.ones((2, 2, 2))
LABELS = [2**63, 2**63 + 1, -1, -1]  # numpy makes floats of these, and two classes of three
LAYER = pa.LinearAttention(np.ones((1, 2, 2)), np.ones((1, 2, 1)))
REFUSED = {
    "fit, tokens": lambda: pa.fit(BIG, np.ones(2)),
    "fit, tokens in a list": lambda: pa.fit(list(BIG), np.ones(2)),
    "fit, tokens in a batch": lambda: pa.fit(pa.SequenceBatch.from_array(BIG), np.ones(2)),
    "fit, unsigned tokens": lambda: pa.fit(BIG.astype(np.uint64), np.ones(2)),
    "fit, Python integers": lambda: pa.fit(BIG.tolist(), np.ones(2)),
    "fit, objects": lambda: pa.fit(BIG.astype(object), np.ones(2)),
    "fit, beside floats": lambda: pa.fit([BIG[0], SMALL[0]], np.ones(2)),
    "fit, targets": lambda: pa.fit(SMALL, np.array([2**53 + 1, 0])),
    "fit, targets in a list": lambda: pa.fit(SMALL, [2**53 + 1, 0.5]),
    "fit, targets in a batch": lambda: pa.fit(
        SMALL, pa.SequenceBatch.from_array(BIG), mode="causal"
    ),
    "fit, weights": lambda: pa.fit(SMALL, np.ones(2), sample_weight=np.array([2**53 + 1, 1])),
    "moments": lambda: pa.Moments(2, 0).update(BIG),
    "triangular factor": lambda: pa.TriangularFactor(2, 0).update(BIG),
    "a layer": lambda: LAYER(BIG),
    "a layer, one sequence": lambda: LAYER(BIG[0]),
    "a layer's heads": lambda: pa.LinearAttention(BIG, np.ones((2, 2, 1))),
    "audit": lambda: pa.audit(LAYER, BIG, np.ones(2)),
    "estimator": lambda: pa.LinearAttentionRegressor().fit(BIG, np.ones(2)),
    "softmax": lambda: pa.learn_softmax(BIG, BIG),
    "certify, floating point": lambda: pa.certify(np.repeat(BIG, 9, axis=0), method="float"),
    "beyond 64 bits": lambda: pa.certify([[[2**64, -1]]]),
    "mixed with floats": lambda: pa.certify([[[2**53 + 1, 0.5]]]),
    "witness": lambda: pa.certify(BIG).witness(),
    "next data": lambda: pa.certify(BIG).next_data(),
    "labels": lambda: pa.LinearAttentionClassifier().fit(np.repeat(SMALL, 2, 0), LABELS),
    "signed and unsigned": lambda: pa.certify([BIG[0], BIG[1].astype(np.uint64)]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_integers_that_would_be_rounded_are_refused(name):
    with pytest.raises(InvalidInput, match=r"round|64-bit"):
        REFUSED[name]()


def test_integers_that_float64_holds_are_taken():
    exact = np.array([2**53, -(2**53), 2**60, -(2**63), 2**63 - 2**10, 0, 7])
    assert float64_holds(exact)
    assert float64_holds(np.array([2**64 - 2**11, 2**53], dtype=np.uint64))
    for beyond in (2**53 + 1, -(2**53) - 1, 2**60 + 1, 2**63 - 1, 1 - 2**63):
        assert not float64_holds(np.array([0, beyond]))
    assert not float64_holds(np.array([2**64 - 1], dtype=np.uint64))
    X = 2**54 * np.random.default_rng(0).integers(-3, 4, (30, 3, 2))
    np.testing.assert_array_equal(LAYER(X), LAYER(X.astype(float)))


def test_every_64_bit_integer_is_judged_as_python_does():
    rng = np.random.default_rng(0)
    values = rng.integers(-(2**63), 2**63, 2000, endpoint=False)
    values >>= rng.integers(0, 40, 2000)
    values <<= rng.integers(0, 15, 2000)
    for dtype in (np.int64, np.uint64):
        for value in values.astype(dtype):
            assert float64_holds(np.array([value])) == (int(float(int(value))) == int(value))


FORMS = {
    "array": lambda X: X,
    "list of arrays": list,
    "nested lists": lambda X: X.tolist(),
    "objects": lambda X: X.astype(object),
    "batch": pa.SequenceBatch.from_array,
    "unsigned": lambda X: X.astype(np.uint64),
    "big-endian": lambda X: X.astype(">i8"),
}


@pytest.mark.parametrize("form", FORMS)
def test_certify_takes_integers_as_they_are_in_every_form(form):
    X = 2**60 + np.random.default_rng(0).integers(0, 4, (60, 4, 2))
    certificate = pa.certify(FORMS[form](X))
    assert (certificate.verdict, certificate.method) == ("identifiable", "exact")
    assert certificate.digest == pa.certify(X).digest
    assert pa.verify(certificate, X)
    assert not pa.verify(certificate, X + 1)
    assert not pa.verify(certificate, X.astype(float))
    assert np.all(np.isinf(certificate.bound(np.ones((1, 2, 2)), risk=1.0)))


def test_a_saved_certificate_of_large_integers_is_checked(tmp_path):
    X = 2**60 + np.random.default_rng(0).integers(0, 4, (60, 4, 2))
    for data in (X, X[:, :, [0, 0]]):
        pa.certify(data).save(tmp_path / "certificate.json")
        assert pa.verify(pa.load(tmp_path / "certificate.json"), data)
