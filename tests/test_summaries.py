"""Summaries of every form, against the slow transcription and against exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

import planted
from form_cases import CASES, Case
from polyattn.features import running_sums, sequence_sums
from polyattn.features.products import apply_coef, features
from polyattn.features.summaries import SeenSequences
from polyattn.form import Form
from polyattn.form.layout import Layout
from polyattn.form.pairs import pair_index
from polyattn.reference import features as plain_features
from polyattn.reference import forms as reference
from polyattn.reference import layer as plain_layer
from polyattn.sequences import SequenceBatch

NAMES = list(dict.fromkeys(case.name for case in CASES))
every_form = pytest.mark.parametrize("name", NAMES)


def cases(name):
    """The cases of a form, one for each kind of data."""
    return [case for case in CASES if case.name == name]


def summaries(layout, batch, context=None, block_rows=None, exponent=0):
    """(S, u) of all rows; blocks follow each other without a gap."""
    blocks = list(SeenSequences(layout, batch, context, exponent).blocks(block_rows))
    borders = [0, *(block.stop for block in blocks)]
    assert [block.first for block in blocks] == borders[:-1]
    assert all(block.sums.shape[1] == block.stop - block.first for block in blocks)
    return tuple(
        np.concatenate([getattr(block, name) for block in blocks], axis=1)
        for name in ("sums", "queries")
    )


def assert_close(found, expected):
    """Arrays, or pairs of them, that are equal up to rounding; by the largest entry of a row."""
    if isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
        return
    assert found.shape == expected.shape
    size = np.max(np.abs(expected), axis=-1, keepdims=True, initial=1.0)
    assert np.all(np.abs(found - expected) <= 1e3 * planted.EPS * size)


# Fast and slow --------------------------------------------------------------------------------


@every_form
def test_summaries_are_those_of_the_reference(name):
    for case in cases(name):
        expected = case.expected
        for block_rows in (1, 3, 1000):
            found = summaries(case.layout, case.batch, case.context, block_rows)
            assert_close(found, expected)


@every_form
def test_features_and_their_number(name):
    for case in cases(name):
        layout, (sums, queries) = case.layout, case.expected
        slow = [
            reference.features(S, u, case.plain) for S, u in zip(sums.T, queries.T, strict=True)
        ]
        assert layout.n_features == len(slow[0])
        np.testing.assert_array_equal(features(layout, sums, queries), np.transpose(slow))
        n_dims = layout.pair_columns.n_dims
        np.testing.assert_array_equal(
            layout.norm_weights, reference.norm_weights(case.plain, n_dims)
        )


@every_form
def test_folded_coefficients_predict_what_the_heads_do(name):
    for case in cases(name):
        heads, n_dims = case.heads(), case.layout.pair_columns.n_dims
        coef = reference.coefficients(n_dims=n_dims, form=case.plain, **heads)
        assert coef.shape[1:] == (case.layout.n_sums, case.layout.n_queries)
        slow = [
            np.atleast_2d(reference.forward(X=X, form=case.plain, context=Z, **heads))
            for X, Z in zip(case.sequences, case.contexts, strict=True)
        ]
        assert_close(apply_coef(coef, *case.expected), np.concatenate(slow).T)
        # Coefficients that are no features are zero, and the others survive both directions.
        both_ways = case.layout.as_coef(case.layout.as_theta(coef))
        np.testing.assert_allclose(both_ways, coef, rtol=1e-15)


@every_form
def test_powers_of_two_are_taken_out_exactly(name):
    for case in cases(name):
        sums, queries = summaries(case.layout, case.batch, case.context)
        for exponent in (-3, 40):
            scaled = summaries(case.layout, case.batch, case.context, None, exponent)
            np.testing.assert_array_equal(scaled[0], np.ldexp(sums, -2 * exponent))
            np.testing.assert_array_equal(scaled[1], np.ldexp(queries, -exponent))


@every_form
def test_dtype_and_memory_order_do_not_matter(name):
    def like(batch, change):
        return None if batch is None else SequenceBatch(change(batch.values), batch.offsets)

    def rounded(values):
        return values.astype(np.float32)

    changes = (
        (rounded, lambda values: rounded(values).astype(np.float64)),
        (np.asfortranarray, np.ascontiguousarray),
        (lambda values: np.round(values * 9).astype(np.int8), lambda values: np.round(values * 9)),
        (lambda values: np.repeat(values, 2, axis=0)[::2], np.ascontiguousarray),
    )
    case = cases(name)[0]
    for block_rows in (2, 1000):
        for pair in changes:
            found, expected = (
                summaries(case.layout, like(case.batch, each), like(case.context, each), block_rows)
                for each in pair
            )
            assert_close(found, expected)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.form.mode == "full" and c.form.include_query], ids=str
)
def test_moments_of_whole_sequences_are_sums_over_their_rows(case):
    seen = SeenSequences(case.layout, case.batch, case.context)
    sums, queries = summaries(case.layout, case.batch, case.context)
    shared, grams = seen.sequence_moments(0, len(case.batch))
    starts = case.batch.offsets[:-1]
    assert_close(shared, sums[:, starts])
    rows, columns = pair_index(len(queries))
    assert_close(grams, np.add.reduceat(queries[rows] * queries[columns], starts, axis=1))


# Long sequences -------------------------------------------------------------------------------

LONG_FORMS = [
    Form(mode="causal"),
    Form(mode="causal", decay=[0.99, 0.3], mean=True),
    Form(mode="causal", window=300, include_query=False),
    Form(mode="causal", window=40, decay=0.9, bias=True),
    Form(mode="causal", lags=3, mean=True, skip=True),
    Form(mode="causal", lags=50),
    Form(mode="causal", lags=50, window=90, mean=True),
    Form(mode="full", include_query=False, mean=True),
    Form(mode="full", key=[0], intercept=True),
]


@pytest.mark.parametrize("form", LONG_FORMS, ids=str)
def test_long_sequences_are_cut_into_pieces(form):
    rng = np.random.default_rng(3)
    batch = SequenceBatch.from_sequences([rng.standard_normal((n, 2)) for n in (701, 1, 1300, 40)])
    layout = Layout.of(form, 2)
    whole = summaries(layout, batch, None, 10**6)
    for block_rows in (37, 256, 701):
        assert_close(summaries(layout, batch, None, block_rows), whole)


@every_form
def test_sequences_beyond_one_block_of_tokens(name, monkeypatch):
    expected = [summaries(case.layout, case.batch, case.context) for case in cases(name)]
    monkeypatch.setattr(sequence_sums, "TOKEN_BLOCK", 2)
    monkeypatch.setattr(sequence_sums, "GRAM_NUMBERS", 1)
    for case, whole in zip(cases(name), expected, strict=True):
        assert_close(summaries(case.layout, case.batch, case.context), whole)


def test_a_long_window_does_not_make_blocks_longer_than_sequences():
    batch = SequenceBatch.from_sequences([np.ones((n, 1)) for n in (5, 2) * 20])
    layout = Layout.of(Form(mode="causal", window=10**30), 1)
    blocks = list(SeenSequences(layout, batch).blocks(10))
    assert max(block.stop - block.first for block in blocks) == 10


@pytest.mark.parametrize(("lengths", "rows"), [((5, 5, 5, 5), [10, 10]), ((4, 1, 7, 3), [12, 3])])
def test_short_sequences_whose_tokens_attend_to_others_share_a_block(lengths, rows):
    batch = SequenceBatch.from_sequences([np.ones((n, 2)) for n in lengths])
    layout = Layout.of(Form(mode="full", include_query=False), 2)
    blocks = SeenSequences(layout, batch).blocks(12)
    assert [block.stop - block.first for block in blocks] == rows


def test_a_map_is_called_with_many_short_sequences_together():
    calls = []

    def watched(tokens):
        calls.append(len(tokens))
        return tokens

    batch = SequenceBatch.from_sequences([np.ones((1 + n % 3, 2)) for n in range(90)])
    for form, n_queries in (
        (Form(key=watched, decay=[0.5, 0.9]), 90),
        (Form("full", key=watched), 180),
    ):
        layout = Layout.of(form, 2)
        calls.clear()
        list(SeenSequences(layout, batch).blocks())
        assert calls == [180, n_queries]


# Digits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        Form(mode="causal", window=3),
        Form(mode="causal", window=4, include_query=False, mean=True),
        Form(mode="causal", window=3, decay=0.75),
        Form(mode="causal", lags=2, window=4),
        Form(mode="full", include_query=False),
        Form(mode="full", include_query=False, mean=True, bias=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("block_rows", [2, 5, 1000])
@pytest.mark.parametrize("short_window", [1, running_sums.SHORT_WINDOW])
def test_a_large_token_leaves_no_rounding_behind(form, short_window, block_rows, monkeypatch):
    """Where the large token is not attended to, sums are as exact as if it were not there."""
    monkeypatch.setattr(running_sums, "SHORT_WINDOW", short_window)
    layout, batch = Layout.of(form, 2), SequenceBatch.from_array(with_large_tokens())
    sums, _ = summaries(layout, batch, None, block_rows)
    assert relative_error(sums, form) <= 16 * planted.EPS


def test_sums_that_take_tokens_off_again_would_be_noticed():
    form = Form(mode="full", include_query=False)
    products = [tokens[:, [0, 0, 1]] * tokens[:, [0, 1, 1]] for tokens in with_large_tokens()]
    others = [each.sum(axis=0) - each for each in products]
    assert relative_error(np.concatenate(others).T, form) > 1e-4


def with_large_tokens():
    """Sequences (3, 12, 2) in each of which one token is 1e8 times as large as the others."""
    sequences = np.random.default_rng(5).standard_normal((3, 12, 2))
    for i in range(3):
        sequences[i, 3 + 2 * i] *= 1e8
    return sequences


def relative_error(sums, form):
    """The largest error of sums, in units of the products that were added up, exactly."""
    plain = Case("", "equal", form, 2, None).plain
    plain["decay"] = None if form.decay is None else Fraction(form.decay)
    exact, sizes = [], []
    for tokens in with_large_tokens():
        for signed, into in ((tokens, exact), (np.abs(tokens), sizes)):
            rational = np.array([[Fraction(x) for x in token] for token in signed.tolist()])
            into += [S for S, _ in reference.summaries(rational, plain)]
    largest = Fraction(0)
    for found, true, size in zip(sums.T, exact, sizes, strict=True):
        for one, other, total in zip(found.tolist(), true, size, strict=True):
            error = abs(Fraction(one) - other)
            largest = max(largest, error / total if error else error)
    return float(largest)


# The reference with itself --------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", ["last", "causal", "full"])
def test_the_papers_layer_is_one_of_the_forms(mode, bias):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 3))
    tokens = plain_layer.with_constant(X) if bias else X
    width = tokens.shape[1]
    attn, value = rng.standard_normal((2, width, width)), rng.standard_normal((2, width, 2))
    form = {"mode": mode, "bias": bias}
    assert_close(
        reference.forward(attn, value, X, form), plain_layer.forward(attn, value, tokens, mode)
    )
    slow = plain_features.summaries(tokens, mode)
    for (S, u), (G, x) in zip(reference.summaries(X, form), slow, strict=True):
        assert_close(S, plain_features.vech(G))
        np.testing.assert_array_equal(u, x)
        assert_close(reference.features(S, u, form), plain_features.cubic_features(G, x))


def test_the_reference_by_hand():
    """Two tokens of one coordinate: x = 2, then 3; the last position."""
    X = np.array([[2.0], [3.0]])

    def sums(**form):
        return reference.summary(X, 1, form)[0].tolist()

    assert sums() == [4 + 9]
    assert sums(include_query=False) == [4]
    assert sums(mean=True) == [(4 + 9) / 2]
    assert sums(window=1) == [9]
    assert sums(decay=0.5) == [0.5 * 4 + 9]
    assert sums(decay=[0.5, 1.0]) == [0.5 * 4 + 9, 4 + 9]
    assert sums(lags=1) == [9, 4]
    assert sums(bias=True) == [4 + 9, 2 + 3, 2]
    assert sums(skip=True) == [4 + 9, 1]
    assert sums(key=lambda tokens: tokens**2) == [8 + 27]
    assert reference.summary(X, 1, {}, np.array([[5.0], [6.0], [7.0]]))[0].tolist() == [110]
    psi = reference.features(np.array([13, 1]), np.array([3, 1]), {"intercept": True})
    assert psi.tolist() == [39, 1]
    psi = reference.features(np.array([13, 1]), np.array([3, 1]), {"intercept": True, "skip": True})
    assert psi.tolist() == [39, 3, 1]


@pytest.mark.parametrize("shape", [(2, 3, 0), (0, 3, 4), (2, 3, 1), (2, 3, 5), (2, 3, 7)])
def test_decayed_sums_are_the_recurrence(shape):
    numbers = np.random.default_rng(0).standard_normal(shape)
    given, expected, last = numbers.copy(), np.zeros(shape), 0.0
    for t in range(shape[-1]):
        expected[..., t] = last = numbers[..., t] + 0.9 * last
    for order in ("C", "F"):
        found = running_sums.decayed_sums(np.array(numbers, order=order), 0.9)
        assert np.array_equal(found, expected)
    assert np.array_equal(numbers, given)
    assert found.flags.writeable
