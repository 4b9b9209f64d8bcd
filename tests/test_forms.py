"""Forms: each is the layer that its words say, and what no form can be is refused."""

import copy
import json
from itertools import combinations_with_replacement
from math import cos, exp, log, pi, prod, sqrt

import joblib
import numpy as np
import pytest

import oracle
import polyattn as pa
from polyattn import Form, maps
from polyattn.errors import FileFormatError, InvalidInput, OutOfRange, PolyattnError

FORMS = [form for form, width in map(oracle.split_context, oracle.FORMS.values()) if width is None]


def empty_sums(fields, n_context_dims, n_outputs=2):
    return pa.Moments(3, n_outputs, form=Form(**fields), n_context_dims=n_context_dims)


LONG = [
    {"mode": "causal"}, {"mode": "causal", "decay": (0.9999, 0.3), "mean": True},
    {"mode": "causal", "window": 3000, "include_query": False},
    {"mode": "causal", "window": 40, "decay": 0.9, "bias": True},
    {"mode": "causal", "lags": 2, "window": 30, "include_query": False, "skip": True},
    {"mode": "full", "include_query": False, "mean": True},
    {"mode": "full", "intercept": True},
]  # fmt: skip


@pytest.mark.parametrize("fields", LONG, ids=str)
def test_sequences_longer_than_a_block_are_computed_and_fitted(fields):
    """Without n x n scores: in blocks of 2^19 numbers, 14,563 positions of the first form."""
    parts = oracle.random_layer(fields, 8, n_outputs=1)
    parts["head_scales"] = np.arange(2) % oracle.n_scales(fields)
    layer = pa.LinearAttention(form=Form(**fields), n_dims=8, **parts)
    x = np.random.default_rng(3).standard_normal((20_000, 8))
    Y = layer([x])[0]
    # As of a last token, of a sequence in any order where all attend.
    for t in (2**19 // layer.coef.shape[1] + 3, 19_999):
        others = x[:t] if layer.mode == "causal" else np.delete(x, t, axis=0)
        alone = oracle.forward(parts, np.concatenate([others, x[[t]]]), fields | {"mode": "last"})
        np.testing.assert_allclose(Y[[t]], alone, rtol=1e-9, atol=1e-9 * np.abs(Y).max())
    result = pa.fit([x], [Y], form=layer.form)
    assert result.risk <= 1e-20 * np.mean(Y**2)


def test_a_sequence_longer_than_what_is_read_at_once_is_summed_whole():
    x, back = np.random.default_rng(0).standard_normal(300_000), np.arange(300_000)[::-1]
    for fields, weights in (({"decay": 0.99999}, 0.99999**back), ({"window": 200_000}, back < 2e5)):
        sums = pa.Moments(1, 0, form=Form(**fields)).update([x[:, None]])
        np.testing.assert_allclose(sums.gram, (np.sum(weights * x**2) * x[-1]) ** 2, rtol=1e-11)


def test_forms_are_equal_by_content_survive_files_and_are_shown_by_what_was_chosen():
    forms = [Form(**fields) for fields in FORMS]
    assert len(set(forms)) == len(forms)
    for form in forms:
        again, before = copy.deepcopy(form), joblib.hash(form)
        assert (again, hash(again)) == (form, hash(form))
        # Caches find results again by joblib's hash, which use may not change.
        assert joblib.hash(form) == before
        if callable(form.key):
            with pytest.raises(InvalidInput, match="key"):
                form.to_dict()
        else:
            assert Form.from_dict(json.loads(json.dumps(form.to_dict(), allow_nan=False))) == form
    for way in ((0, 1), range(2), np.arange(2, dtype=np.uint8)):
        assert Form(key=way) == Form(key=[0, 1]) != Form(key=[1, 0])
    assert Form(decay=np.array([0.5, 1.0])) == Form(decay=(np.float32(0.5), 1))
    assert Form(key=np.ones((1, 4))) != Form(key=np.ones((4, 1)))
    assert [form.is_plain for form in (Form("full", bias=True), Form(mean=True))] == [True, False]
    for form in (Form(), Form(mode="causal", decay=[0.5, 1]), Form(key=range(9), decay="loo")):
        assert eval(repr(form)) == Form.from_dict(form.to_dict()) == form  # noqa: S307


def test_a_form_cannot_be_changed():
    matrix = np.ones((3, 2))
    form, made = Form(query=matrix), maps.hedgehog(matrix)
    with pytest.raises(ValueError, match="read-only"):
        form.query[0, 0] = 2.0
    matrix[0, 0] = 2.0
    assert (form, made) == (Form(query=np.ones((3, 2))), maps.hedgehog(np.ones((3, 2))))


HOSTILE = [
    None, {"modes": "last"}, {"mode": ["last"]}, {"mode": "full", "window": 2}, {"query": "0:2"},
    {"query": {"slice": [0, 1]}}, {"query": {"lambda": "x"}}, {"query": {"matrix": [["1"]]}},
    {"query": {"matrix": [[1], [1, 2]]}}, {"query": {"matrix": [[1]], "map": {}}},
    *({"query": {"map": content}} for content in (
        {"name": "os.system"}, {"name": "elu1", "x": 1}, {"name": "polynomial", "degree": 2},
        {"name": "random_fourier", "n_features": 10**12, "scale": 1.0, "random_state": 0},
        {"name": "hedgehog", "weights": [[float("inf")]]},
    )),
]  # fmt: skip


def test_content_that_no_form_wrote_is_refused():
    for content in HOSTILE:
        with pytest.raises(FileFormatError, match=next(iter(content)) if content else "form"):
            Form.from_dict(content)


REFUSED = [
    {"window": 0}, {"window": True}, {"lags": -1}, {"lags": 10**9},
    *[{"decay": value} for value in (
        0, 1.0000001, np.nan, 0.5 + 0j, ["loo", 0.5], [], [0.5, 0.5], [0.5, 0.0],
    )],
    *[{"query": value} for value in (
        np.zeros((2, 2, 2)), np.zeros((3, 0)), [[1.0, np.nan]], np.ma.masked_array([0, 1]), [],
        [0.0, 1.0], [True, False, True], [1, 1], slice(None, None, 0),
    )],
    {"window": 3, "mode": "full"}, {"decay": 0.9, "mode": "full"}, {"lags": 2, "mode": "full"},
    {"lags": 2, "decay": 0.5}, {"window": 1, "include_query": False},
    {"intercept": True, "skip": True, "bias": True},
]  # fmt: skip


def test_contradictory_forms_are_refused():
    for chosen in REFUSED:
        with pytest.raises(PolyattnError, match=next(iter(chosen))):
            Form(**chosen)


noise = np.random.default_rng(0).standard_normal
UNFIT = [
    *[({"query": value}, None) for value in (
        [0, 3], slice(3, None), np.ones((4, 2)), lambda tokens: tokens[:0],
        lambda tokens: tokens[:, :, None], lambda _: None, lambda tokens: tokens.astype(str),
        lambda tokens: tokens + 1j, lambda tokens: np.cumsum(tokens, axis=0),
        lambda tokens: tokens + noise(tokens.shape),
    )],
    ({"value": np.ones((3, 2))}, 2), ({"key": [2]}, 2), ({"window": 2}, 3), ({"decay": 0.5}, 3),
    ({"lags": 2}, 3), ({"include_query": False}, 3), ({"include_query": False, "mode": "full"}, 3),
]  # fmt: skip


def test_forms_that_do_not_fit_the_tokens_are_refused():
    for fields, width in UNFIT:
        with pytest.raises(PolyattnError, match=next(iter(fields))):
            empty_sums(fields, width)


def test_a_map_is_watched_wherever_it_is_used():
    X = np.abs(np.random.default_rng(0).standard_normal((9, 4, 3))) + 1.0

    def update(own, X=X):
        return empty_sums({"query": own}, None, n_outputs=0).update(X)

    with pytest.raises(InvalidInput, match=r"2 numbers.*3"):
        update(lambda tokens: tokens[:, tokens[0] < 1], [[[0.5, 1.0, 0.5]], [[0.5, 0.5, 0.5]]])
    with np.errstate(divide="ignore"), pytest.raises(InvalidInput, match="query"):
        update(lambda tokens: 1 / np.maximum(tokens, -1e-9), 0 * X)
    # What it makes of numbers that no user gave does not matter.
    assert np.all(np.isfinite(update(lambda x: np.log(x - 0.99)).gram))

    def spoil(tokens):
        tokens[:] = 0.0
        return tokens + 1.0

    before = X.copy()
    update(spoil)
    np.testing.assert_array_equal(X, before)

    def only_signs(_):
        raise KeyError("no sign")

    with pytest.raises(KeyError) as refusal:
        empty_sums({"key": only_signs}, None)
    assert "key" in refusal.value.__notes__[0]


WEIGHTS = np.array([[1.0, -2.0, 0.5], [0.25, 1.0, 3.0]])
MAPS = {
    "polynomial": lambda: maps.polynomial(3),
    "monomials": lambda: maps.polynomial(2, include_lower=False),
    "elu1": maps.elu1,
    "random_fourier": lambda: maps.random_fourier(7, 2.0, 5),
    "hedgehog": maps.hedgehog,
    "trained": lambda: maps.hedgehog(WEIGHTS),
    "normalised": maps.normalised,
}
PAIRS = np.random.default_rng(0).standard_normal((5, 2))


def test_monomials_come_by_degree_and_lose_no_digits():
    rng = np.random.default_rng(1)
    for degree, n_dims, lower in ((1, 3, True), (2, 3, False), (5, 1, True), (4, 3, False)):
        degrees = range(degree + 1) if lower else [degree]
        places = [c for k in degrees for c in combinations_with_replacement(range(n_dims), k)]
        tokens = rng.standard_normal((4, n_dims))
        expected = [[prod(token[j] for j in each) for each in places] for token in tokens]
        found = maps.polynomial(degree, lower)(tokens)
        np.testing.assert_allclose(found, expected, rtol=1e-15 * degree)
    with pytest.raises(OutOfRange, match="1e"):
        maps.polynomial(3)((1e200, 1.0))


def test_the_other_maps_compute_their_definitions():
    found = maps.elu1()([[-2.0, -1e-3, 0.0, 0.5]])
    np.testing.assert_allclose(found, [[exp(-2), exp(-1e-3), 1.0, 1.5]], rtol=1e-15)
    for weights, logits in ((None, PAIRS), (WEIGHTS, PAIRS @ WEIGHTS)):
        for row, z in zip(maps.hedgehog(weights)(PAIRS), logits.tolist(), strict=True):
            powers = [exp(each) for each in z] + [exp(-each) for each in z]
            np.testing.assert_allclose(row, np.array(powers) / sum(powers), rtol=1e-14)
    found = maps.normalised()([[3.0, -4.0], [0.0, 0.0]])
    np.testing.assert_array_equal(found, [[0.6, -0.8], [0.0, 0.0]])


def test_waves_come_from_the_bits_of_the_generator_and_approximate_the_gaussian_kernel():
    """By Box and Muller's formula: files hold the seed alone, so numbers may never change."""
    n, d, scale, seed = 3, 2, 1.5, 11
    bits = np.random.PCG64(np.random.SeedSequence([seed, d]))
    uniform = [((bits.random_raw() >> 11) + 0.5) / 2**53 for _ in range((2 * d + 1) * n)]
    for token, row in zip(PAIRS, maps.random_fourier(n, scale, seed)(PAIRS), strict=True):
        for i in range(n):
            phase = 2 * pi * uniform[2 * d * n + i]
            for j in range(d):
                angle = 2 * pi * uniform[(d + j) * n + i]
                phase += token[j] * sqrt(-2 * log(uniform[j * n + i])) * cos(angle) / scale
            assert row[i] == pytest.approx(sqrt(2 / n) * cos(phase), abs=1e-14)
    tokens = np.random.default_rng(2).standard_normal((30, 4))
    seen = maps.random_fourier(4000, 1.7, 3)(tokens)
    distances = np.sum((tokens[:, None] - tokens) ** 2, axis=2)
    errors = seen @ seen.T - np.exp(-distances / (2 * 1.7**2))
    assert np.sqrt(np.mean(errors**2)) < 1.5 / sqrt(4000)
    drawn = maps.random_fourier(3, 1.0, np.random.default_rng(0))
    assert drawn == maps.random_fourier(3, 1.0, drawn.random_state)


@pytest.mark.parametrize("name", MAPS)
def test_every_ready_map_takes_all_shapes_and_is_its_content(name):
    apply, other = MAPS[name](), MAPS[name]()
    seen = apply(PAIRS)
    np.testing.assert_allclose(apply(PAIRS[0]), seen[0], rtol=1e-14)
    more = apply(np.stack([PAIRS, PAIRS])[:, None])
    assert more.shape == (2, 1, *seen.shape)
    np.testing.assert_allclose(more[1, 0], seen, rtol=1e-14)
    assert apply(PAIRS[:0]).shape == (0, seen.shape[1])
    assert (apply, hash(apply)) == (other, hash(other))
    assert [each for each in MAPS if MAPS[each]() == apply] == [name]
    assert Form.from_dict(Form(query=apply).to_dict()).query == apply


WRONG_MAPS = [
    ("degree", lambda: maps.polynomial(0)),
    ("degree", lambda: maps.polynomial(50)(np.ones((1, 50)))),
    ("n_features", lambda: maps.random_fourier(10**7, 1.0)),
    ("scale", lambda: maps.random_fourier(2, 0.0)),
    ("weights", lambda: maps.hedgehog([[np.nan]])),
    ("2 rows", lambda: maps.hedgehog(WEIGHTS)([[1.0]])),
    ("3 coordinates", lambda: empty_sums({"key": maps.hedgehog(WEIGHTS)}, None)),
    ("frequencies", lambda: empty_sums({"key": maps.random_fourier(10**6, 1.0)}, 10**5)),
    ("tokens", lambda: maps.elu1()([[np.nan]])),
]  # fmt: skip


def test_misused_maps_are_refused():
    for word, call in WRONG_MAPS:
        with pytest.raises(PolyattnError, match=word):
            call()
