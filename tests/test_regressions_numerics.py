"""Answers of 0.3.0 that were wrong, or calmer than what was known: numbers and what they prove."""

import numpy as np
import pytest

import polyattn as pa

P = pa.programs


def memory_traces(n_keys, n_values, n_traces, seed):
    program = P.associative_memory(n_keys, n_values)
    return program.schema, P.traces(program, n_traces, random_state=seed)


def test_coefficients_are_no_success_where_wrong_labels_would_be_fitted():
    # 0.3.0 was ok with a memorised wrong label: no other trace says anything about it.
    schema, clean = memory_traces(3, 3, 40, 1)
    clean_one = P.learn(schema, clean, "coefficients")
    wrong = pa.data.with_wrong_labels(clean, flips=0.05, random_state=3)
    learned = P.learn(schema, wrong, "coefficients")
    assert not all(right.all() for right in learned.right(clean))
    assert not learned.outcome.ok
    # Right labels look the same there, and the sentence says of how many traces.
    assert clean_one.outcome.name == "unchecked"
    assert f"{clean_one.certificate.n_innovative} traces" in clean_one.outcome.sentence


def test_coefficients_of_a_few_equal_traces_are_no_success():
    # 0.3.0 was ok with two equal traces: each confirms the other, and nothing else is known.
    schema, traces = memory_traces(2, 2, 1, 0)
    assert not P.learn(schema, 2 * traces, "coefficients").outcome.ok


def test_coefficients_that_all_other_traces_confirm_are_a_success():
    schema, traces = memory_traces(2, 2, 60, 0)
    learned = P.learn(schema, traces, "coefficients")
    assert learned.certificate.n_innovative == 0
    assert learned.outcome.name == "fitted"
    _, fresh = memory_traces(2, 2, 50, 1)
    assert all(right.all() for right in learned.right(fresh))


def test_few_clean_traces_are_not_called_noisy():
    # 0.3.0 said "noisy: labels are wrong, or ..." where more rules fit every trace.
    program = P.universal_dfa(2, 2, 2)
    learned = P.learn(program.schema, P.traces(program, 3, random_state=7))
    assert learned.outcome.name == "unexplained"
    assert "No label need be wrong" in learned.outcome.sentence


@pytest.mark.parametrize(
    ("form", "X", "Y"),
    [
        (
            pa.Form("causal", mean=True, intercept=True, decay=(0.9, 0.5)),
            [[[-30629.910952954342]], [[357.39465162502904]]],
            [[[-0.7704814042949503]], [[-0.30412178920464983]]],
        ),
        (
            pa.Form("full", intercept=True),
            [[[-9878.24, -3.09]], [[-230258.8, 0.1175]], [[91981.2, 1.106]], [[11949.2, 0.7139]]],
            [[[1.062]], [[-0.6171]], [[1.3514]], [[-1.0155]]],
        ),
    ],
)
def test_a_least_norm_that_rounding_hides_is_not_called_found(form, X, Y):
    # 0.3.0: "A global optimum was found", with predictions off by up to 1e9 times their size.
    outcome = pa.fit(np.array(X), np.array(Y), form=form).outcome
    assert "was found" not in outcome.sentence
    assert "rounding hides which minimiser" in outcome.sentence


def test_a_least_norm_of_features_of_similar_size_is_still_found():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 3, 3)) * [1.0, 100.0, 0.01]
    assert "A global optimum was found" in pa.fit(X, X[:, -1, :1]).outcome.sentence


@pytest.mark.parametrize("n_dims", [2, 4])
def test_the_rank_of_orthogonal_token_sets(n_dims):
    # 0.3.0 said 0: features that are rounding, in units of their size, hid all others.
    rng = np.random.default_rng(0)
    X = np.linalg.qr(rng.standard_normal((300, n_dims, n_dims)))[0]
    certificate = pa.certify(X)
    assert (certificate.verdict, certificate.rank) == ("not_identifiable", n_dims)
    assert certificate.rounding < 1e-12
    assert pa.verify(certificate, X)
    sums = pa.Moments(n_dims)
    sums.update(X)
    assert pa.certify(statistics=sums).rank == n_dims


@pytest.mark.parametrize("cut", [np.floor, np.trunc, np.rint])
def test_error_bars_hold_where_answers_are_cut_off(cut):
    # 0.3.0: bars of value held 75 % (floor) and 55 % (trunc) of the errors at 1.96.
    unit, held = 2.0**-10, []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        attn, value = rng.standard_normal((2, 1, 4, 4)) / 2
        layer = pa.SoftmaxAttention(attn, value, mode="full")
        found = pa.learn_from_queries(
            lambda X, layer=layer: cut(layer(X) / unit) * unit, 4, max_queries=3000
        )
        assert found.outcome.ok
        held += [np.abs(found.layer.value - value) < 1.96 * found.value_error]
        held += [np.abs(found.layer.attn - attn) < 1.96 * found.attn_error]
    assert np.mean(held) > 0.9
