"""Sums know which features never had a term, and certificates say so: exactly, or not at all."""

from dataclasses import replace

import numpy as np
import pytest

import polyattn as pa
from form_cases import random_form
from polyattn.certify.exact.feature_rows import FeatureRows
from polyattn.certify.exact.structure import occurring
from polyattn.errors import FileFormatError
from polyattn.form import Form, Layout
from polyattn.sequences import as_batch
from statistics_cases import KINDS, sums_of

both_kinds = pytest.mark.parametrize("kind", KINDS)

CANCELLING = np.array([[1.0], [-1.0], [0.0]])


@both_kinds
@pytest.mark.parametrize("form", [Form(), Form(key=[0, 1, 2], value=[3], mean=True)])
def test_sums_of_prompts_show_what_never_occurs(kind, form):
    X = np.random.default_rng(9).standard_normal((150, 6, 4))
    X[:, -1, 3] = 0.0
    certificate = pa.certify(statistics=sums_of(kind, form, X))
    assert (certificate.verdict, certificate.method) == ("not_identifiable", "structure")
    n_zero = Layout.of(form, 4).n_features // 4
    assert (certificate.structure.n_zero, certificate.structure.rest) == (n_zero, "identifiable")
    assert f"{n_zero} features never occur" in certificate.sentence


@both_kinds
def test_few_rows_with_absent_features_are_enough_for_the_others(kind):
    X = np.random.default_rng(10).standard_normal((14, 4, 3))
    X[:, -1, 0] = 0.0  # 12 features remain of 18
    certificate = pa.certify(statistics=kind(3).update(X))
    assert (certificate.method, certificate.structure.rest) == ("structure", "identifiable")


@both_kinds
@pytest.mark.parametrize("data", ["sparse", "one-hot", "zero query", "tiny query"])
def test_absent_features_are_those_without_a_term(kind, data):
    """Of twenty random forms, weighted and merged, against the exact search of certificates."""
    rng = np.random.default_rng(11)
    for number in range(20):
        n_context_dims = 2 if number % 4 == 0 else None
        form = random_form(np.random.default_rng([number, 3]), 3, n_context_dims)
        layout = Layout.of(form, 3, n_context_dims)
        X, Z, weights = some_sparse(rng, data, n_context_dims)
        kept = np.flatnonzero(weights)
        batch, context = as_batch([X[i] for i in kept]), None
        if Z is not None:
            context = as_batch([Z[i] for i in kept])
        features = FeatureRows(batch, np.arange(layout.n_features), layout, context)
        found = sums_of(kind, form, X, Z, weights).absent
        np.testing.assert_array_equal(found, ~occurring(features)[0], err_msg=str(form))


def some_sparse(rng, data, n_context_dims):
    lengths, weights = (
        rng.integers(1, 6, 9),
        np.array([1.0, 2.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.5, 1.0]),
    )
    X = [rng.standard_normal((length, 3)) for length in lengths]
    for tokens in X:
        if data == "one-hot":
            tokens[:] = np.eye(3)[rng.integers(0, 3, len(tokens))]
        elif data == "sparse":
            tokens *= rng.random(tokens.shape) < 0.4
        else:
            tokens[-1] *= (0.0, 1.0, 1.0) if data == "zero query" else (1e-250, 0.0, 1.0)
    if n_context_dims is None:
        return X, None, weights
    Z = [rng.standard_normal((length, n_context_dims)) for length in lengths]
    return X, [tokens * (rng.random(tokens.shape) < 0.3) for tokens in Z], weights


@both_kinds
@pytest.mark.parametrize("size", [1.0, 2.0**600])
def test_squares_that_underflow_are_not_called_absent(kind, size):
    X = size * np.random.default_rng(12).standard_normal((100, 4, 3))
    X[:, -1, 0] *= 1e-170
    sums = sums_of(kind, Form(), X)
    assert sums.scaled_feature_powers().min() == 0.0
    assert not sums.absent.any()
    assert pa.certify(statistics=sums).verdict == "undecided"


def test_a_factor_whose_squares_underflow_proves_nothing():
    X = np.random.default_rng(12).standard_normal((100, 4, 3))
    sums = sums_of(pa.TriangularFactor, Form(mode="causal", decay=1e-200, include_query=False), X)
    assert sums.scaled_factor().any()
    assert not sums.scaled_feature_powers().any()
    assert pa.certify(statistics=sums).verdict == "undecided"


@both_kinds
def test_what_a_matrix_rounds_to_zero_is_not_called_absent(kind):
    X = np.repeat(np.random.default_rng(12).standard_normal((40, 3, 1)), 2, axis=2)
    sums = sums_of(kind, Form(key=np.array([[1.0], [-1.0]])), X)
    assert not sums.scaled_feature_powers().any()
    assert not sums.absent.any()


@both_kinds
@pytest.mark.parametrize("decay", [1e-200, [1e-200, 1e-100]])
def test_tokens_that_have_faded_are_not_called_absent(kind, decay):
    X = np.random.default_rng(12).standard_normal((100, 6, 3))
    X[:, 1:-1] = 0.0
    sums = sums_of(kind, Form(decay=decay, include_query=False), X)
    assert not sums.scaled_feature_powers().any()
    assert not sums.absent.any()
    assert pa.certify(statistics=sums).verdict == "undecided"


@both_kinds
def test_files_keep_magnitudes_and_absent_features(kind, tmp_path):
    X = np.random.default_rng(13).standard_normal((40, 4, 3))
    X[:, -1, 0] = 0.0
    sums = kind(3, form=Form(key=[0], value=[1])).update(X)
    sums.save(tmp_path / "sums")
    loaded = kind.load(tmp_path / "sums")
    assert loaded == sums
    np.testing.assert_array_equal(loaded.absent, [True, False, False])
    np.testing.assert_array_equal(loaded.scaled_magnitudes(), sums.scaled_magnitudes())
    record = sums.to_record()
    forged = {
        "absent": {"absent": np.array([1])},
        "magnitudes": {"magnitudes": -sums.scaled_magnitudes()},
    }
    for name, arrays in forged.items():
        with pytest.raises(FileFormatError, match=f"arrays.{name}"):
            kind.from_record(replace(record, arrays=record.arrays | arrays))
    del record.arrays["magnitudes"]
    with pytest.raises(FileFormatError, match="lacks the field 'magnitudes'"):
        kind.from_record(record)


@pytest.mark.parametrize("value", [[2], CANCELLING], ids=["one", "both"])
@pytest.mark.parametrize("size", [1e160, 1e300])
def test_zeros_whose_terms_leave_float64_are_left_open(value, size):
    """A matrix cancels the tokens; what it adds up is beyond float64, and so nothing is known."""
    form = pa.Form(query=[2], key=CANCELLING, value=value)
    X = np.random.default_rng(0).standard_normal((30, 3, 3))
    X[..., :2] = size
    for kind in (pa.Moments, pa.TriangularFactor):
        sums = kind(3, 1, form=form).update(X, np.ones((30, 1)))
        certificate = pa.certify(statistics=sums)
        assert (certificate.verdict, certificate.rank) == ("undecided", 0)
        assert certificate.rounding == np.inf
    assert pa.certify(X, form=form).verdict == "undecided"
    assert pa.certify(X, form=form, method="exact").verdict == "not_identifiable"
