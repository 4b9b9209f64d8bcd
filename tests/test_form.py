"""Forms: what is refused, how they are compared, shown and stored, and which products fold."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from form_cases import CASES, square
from polyattn.errors import FileFormatError, InvalidInput, InvalidType, OutOfRange, PolyattnError
from polyattn.form import Form, maps
from polyattn.form.form import Scale, require_form
from polyattn.form.layout import Layout
from polyattn.form.pairs import FoldedPairs, fold_heads, fold_tensor, unfold_coef
from polyattn.reference import forms as reference
from polyattn.sequences import MODES

FORMS = {case.name: case.form for case in CASES if case.kind == "equal"}


def named(given):
    """A name that is the same in every process: functions are shown without their address."""
    return re.sub(r" at 0x\w+", "", str(given))[:60]


class Unhashable:
    """A function of tokens that cannot be hashed."""

    __hash__ = None

    def __eq__(self, other):
        return self is other

    def __call__(self, tokens):
        return tokens


# What is refused ------------------------------------------------------------------------------

# Fields, and words of the message.
REFUSED = [
    ({"mode": "both"}, "mode must be one of 'last', 'causal', 'full'; got 'both'"),
    ({"mode": None}, "mode must be one of"),
    ({"mode": "cross"}, "Cross-attention is asked for by context=Z"),
    ({"include_query": 1}, "include_query must be True or False; got 1"),
    ({"mean": "yes"}, "mean must be True or False"),
    ({"skip": None}, "skip must be True or False"),
    ({"bias": 0}, "bias must be True or False"),
    ({"window": 0}, "window must be an integer of at least 1; got 0"),
    ({"window": 2.0}, "window must be an integer"),
    ({"window": True}, "window must be an integer"),
    ({"lags": -1}, "lags must be an integer of at least 1"),
    ({"lags": 10**9}, "lags must be at most 10,000"),
    ({"decay": 0}, "decay must be a number in (0, 1]"),
    ({"decay": 0.0}, "decay must be a number in (0, 1]"),
    ({"decay": -0.5}, "decay must be a number in (0, 1]"),
    ({"decay": 1.0000001}, "a gate, which is not linear in its parameters"),
    ({"decay": 10**400}, "decay must be a number in (0, 1]"),
    ({"decay": np.nan}, "decay must be a number in (0, 1]"),
    ({"decay": np.inf}, "decay must be a number in (0, 1]"),
    ({"decay": True}, "decay must be a number in (0, 1]"),
    ({"decay": 0.5 + 0j}, "decay must be a number in (0, 1]"),
    ({"decay": np.complex128(0.5)}, "decay must be a number in (0, 1]"),
    ({"decay": "auto"}, "or 'loo'; got 'auto'"),
    ({"decay": []}, "a list of different numbers"),
    ({"decay": [0.5, 0.5]}, "a list of different numbers"),
    ({"decay": [0.5, 0.0]}, "decay must be a number in (0, 1]"),
    ({"decay": [0.5, np.nan]}, "decay must be a number in (0, 1]"),
    ({"decay": np.full((2, 2), 0.5)}, "decay must be a number in (0, 1]"),
    ({"decay": {0.5}}, "decay must be a number in (0, 1]"),
    ({"mode": "full", "window": 3}, "window counts back from the query"),
    ({"mode": "full", "decay": 0.9}, "decay counts back from the query"),
    ({"mode": "full", "decay": "loo"}, "decay counts back from the query"),
    ({"mode": "full", "lags": 2}, "lags counts back from the query"),
    ({"lags": 2, "decay": 0.5}, "lags and decay both weigh tokens by their distance"),
    ({"window": 1, "include_query": False}, "leaves no token to attend to"),
    ({"skip": True, "bias": True, "intercept": True}, "the constant is added already"),
    ({"query": "linear"}, "Ready functions are in pa.maps"),
    ({"query": b"linear"}, "Ready functions are in pa.maps"),
    ({"key": 0.5}, "key must be coordinates"),
    ({"key": True}, "key must be coordinates"),
    ({"key": {0, 1}}, "key must be coordinates"),
    ({"value": []}, "at least one"),
    ({"value": [0.0, 1.0]}, "value must name coordinates by integers"),
    ({"value": [True, False, True]}, "numpy.flatnonzero(mask)"),
    ({"value": [1, 1]}, "value names a coordinate twice"),
    ({"value": ["a"]}, "value must hold real numbers"),
    ({"value": slice(0.0, 2)}, "a slice of integers"),
    ({"value": slice("a")}, "a slice of integers"),
    ({"value": slice(True)}, "a slice of integers"),
    ({"value": slice(None, None, 0)}, "whose step is not 0"),
    ({"query": np.zeros((2, 2, 2))}, "must have shape (d, r)"),
    ({"query": np.zeros((3, 0))}, "must have shape (d, r)"),
    ({"query": [[1.0, np.nan]]}, "query contains NaN or infinity"),
    ({"query": [[1.0], [1.0, 2.0]]}, "query is not a rectangular array"),
    ({"query": np.ma.masked_array([0, 1])}, "masked array"),
    ({"query": Unhashable()}, "a function that can be hashed"),
]


@pytest.mark.parametrize(("chosen", "words"), REFUSED, ids=named)
def test_a_contradictory_form_is_refused(chosen, words):
    with pytest.raises(PolyattnError) as refusal:
        Form(**chosen)
    assert words in str(refusal.value)


# Fields that no tokens of three coordinates fit.
REFUSED_FOR_TOKENS = [
    ({"query": [0, 3]}, None, "query must name coordinates of the tokens, from 0 to 2"),
    ({"key": 3}, None, "key must name coordinates"),
    ({"value": [-4]}, None, "value must name coordinates"),
    ({"value": [-1, 2]}, None, "value names a coordinate twice"),
    ({"key": slice(3, None)}, None, "picks none of 3 coordinates"),
    ({"key": slice(2, 1)}, None, "picks none of 3 coordinates"),
    ({"query": np.ones((4, 2))}, None, "query is a matrix of 4 rows, but tokens have 3"),
    ({"value": np.ones((3, 2))}, 2, "value is a matrix of 3 rows, but tokens have 2"),
    ({"key": maps.hedgehog(np.ones((2, 2)))}, None, "but tokens have 3 coordinates"),
    ({"key": [2]}, 2, "key must name coordinates of the tokens, from 0 to 1"),
    ({"window": 2}, 3, "window speaks of the place of the query"),
    ({"decay": 0.5}, 3, "decay speaks of the place of the query"),
    ({"lags": 2}, 3, "lags speaks of the place of the query"),
    ({"include_query": False}, 3, "include_query=False speaks of the place"),
    ({"mode": "full", "include_query": False}, 3, "include_query=False speaks of the place"),
    ({"query": lambda tokens: tokens[0]}, None, "it returned shape (3,)"),
    ({"query": lambda tokens: tokens[:0]}, None, "it returned shape (0, 3)"),
    ({"query": lambda tokens: tokens[:, :0]}, None, "it returned shape (1, 0)"),
    ({"query": lambda tokens: tokens[:, :, None]}, None, "it returned shape (1, 3, 1)"),
    ({"query": lambda _: 1.0}, None, "it returned shape ()"),
    ({"query": lambda _: None}, None, "must hold real numbers"),
    ({"query": lambda tokens: tokens.astype(str)}, None, "must hold real numbers; got text"),
    ({"query": lambda tokens: tokens + 1j}, None, "must hold real numbers; got complex"),
    ({"query": lambda tokens: tokens * np.nan}, None, "NaN or infinity of the token"),
    ({"value": lambda tokens: tokens + np.inf}, None, "NaN or infinity of the token"),
]


@pytest.mark.parametrize(("chosen", "n_context_dims", "words"), REFUSED_FOR_TOKENS, ids=named)
def test_a_form_that_does_not_fit_the_tokens_is_refused(chosen, n_context_dims, words):
    form = Form(**chosen)
    with pytest.raises(PolyattnError) as refusal:
        Layout.of(form, 3, n_context_dims)
    assert words in str(refusal.value)


def test_a_map_is_watched_wherever_it_is_used():
    columns = Layout.of(Form(query=lambda tokens: tokens[:, : len(tokens)]), 3).columns
    with pytest.raises(InvalidInput, match="made 2 numbers of a token, and 1 of another"):
        columns.read(np.ones((2, 3)))
    columns = Layout.of(Form(query=lambda tokens: 1 / np.maximum(tokens, -1e-9)), 3).columns
    with np.errstate(divide="ignore"), pytest.raises(InvalidInput, match=r"token \[2.0, 0.0, 3"):
        columns.read(np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 3.0]]))
    columns = Layout.of(Form(query=np.full((3, 1), 1e200)), 3).columns
    with pytest.raises(OutOfRange, match="given as query is larger than float64 holds"):
        columns.read(np.full((1, 3), 1e200))


def test_a_map_cannot_change_the_tokens():
    def spoil(tokens):
        tokens[:] = 0.0
        return tokens + 1.0

    tokens = np.ones((2, 3))
    Layout.of(Form(query=spoil), 3).columns.read(tokens)
    np.testing.assert_array_equal(tokens, np.ones((2, 3)))


def test_arguments_beside_a_form_are_refused():
    form = Form(mode="causal", bias=True)
    assert require_form(None, "full", True) == Form(mode="full", bias=True)
    assert require_form(form) is form
    assert require_form(form, mode="causal", bias=True, decay=None) is form
    for name, beside in (
        ("mode", {"mode": "full"}),
        ("decay", {"decay": 0.5}),
        ("bias", {"form": Form(), "bias": True}),
    ):
        with pytest.raises(InvalidInput, match=rf"{name} was given beside a form.*Form\({name}="):
            require_form(**{"form": form, **beside})
    with pytest.raises(InvalidType, match=r"form must be a polyattn\.Form; got 'causal'"):
        require_form("causal")
    with pytest.raises(InvalidInput, match="mode must be one of"):
        require_form(None, "both")


def test_a_form_cannot_be_changed():
    matrix = np.ones((3, 2))
    form = Form(query=matrix)
    with pytest.raises(AttributeError):
        form.mode = "full"
    with pytest.raises(ValueError, match="read-only"):
        form.query[0, 0] = 2.0
    matrix[0, 0] = 2.0
    assert form == Form(query=np.ones((3, 2)))


# What a form means ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "scales"),
    [
        ({}, [(0, None, 1.0)]),
        ({"include_query": False}, [(1, None, 1.0)]),
        ({"window": 4}, [(0, 4, 1.0)]),
        ({"window": 4, "include_query": False, "decay": 0.5}, [(1, 4, 0.5)]),
        ({"decay": [0.5, 0.9]}, [(0, None, 0.5), (0, None, 0.9)]),
        ({"lags": 2}, [(0, 1, 1.0), (1, 2, 1.0), (2, None, 1.0)]),
        ({"lags": 2, "include_query": False}, [(1, 2, 1.0), (2, None, 1.0)]),
        ({"lags": 1, "include_query": False}, [(1, None, 1.0)]),
        ({"lags": 2, "window": 4}, [(0, 1, 1.0), (1, 2, 1.0), (2, 4, 1.0)]),
        ({"lags": 2, "window": 2}, [(0, 1, 1.0), (1, 2, 1.0)]),
        ({"lags": 5, "window": 1}, [(0, 1, 1.0)]),
    ],
    ids=named,
)
def test_scales(chosen, scales):
    assert Form(**chosen).scales == tuple(Scale(*each) for each in scales)


def test_a_decay_that_is_still_to_be_chosen_has_no_scales():
    with pytest.raises(InvalidInput, match="decay='loo' is chosen by fit"):
        _ = Form(decay="loo").scales


@pytest.mark.parametrize("given", [0.5, np.float32(0.5), np.array(0.5), np.float64(0.5)])
def test_a_decay_may_be_any_real_number(given):
    assert Form(decay=given) == Form(decay=0.5)
    assert (
        Form(decay=[float(given), 1]) == Form(decay=np.array([0.5, 1.0])) == Form(decay=(0.5, 1.0))
    )


def test_coordinates_may_be_given_in_any_way():
    for way in ([0, 1], (0, 1), range(2), np.arange(2), np.arange(2, dtype=np.uint8)):
        assert Form(key=way) == Form(key=[0, 1])
    assert Form(value=2) == Form(value=np.int64(2)) == Form(value=[2])
    assert Form(value=slice(np.int64(0), 2)) == Form(value=slice(0, 2))
    same = [Layout.of(Form(value=way), 3) for way in ([-1], [2], slice(2, 3), slice(-1, None))]
    assert {layout.pairs for layout in same} == {same[0].pairs}


def test_which_form_is_plain():
    papers = {Form(mode=mode, bias=bias) for mode in MODES for bias in (False, True)}
    assert len(papers) == 6
    for form in FORMS.values():
        assert form.is_plain == (form in papers)


# Comparing, showing, storing ------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_forms_are_equal_by_content(name):
    one, other = (case for case in CASES if case.name == name and case.kind in ("equal", "ragged"))
    assert one.form is not other.form
    assert one.form == other.form
    assert hash(one.form) == hash(other.form)
    assert one.layout is other.layout
    assert one.form != name


def test_different_forms_are_not_equal():
    apart = [case.form for case in CASES if case.kind == "equal" and not case.n_context_dims]
    assert len(set(apart)) == len(apart)


def test_equality_looks_at_all_of_a_matrix():
    one, other = np.ones((2, 2)), np.ones((2, 2))
    other[1, 1] = 1.0 + 1e-16
    assert Form(key=one) == Form(key=other)  # the same float
    other[1, 1] = 1.0 + 3e-16
    assert Form(key=one) != Form(key=other)
    assert Form(key=np.zeros((1, 2))) == Form(key=-np.zeros((1, 2)))
    assert Form(key=np.ones((1, 4))) != Form(key=np.ones((4, 1)))
    assert Form(key=[0, 1]) != Form(key=[1, 0])
    assert Form(key=slice(0, 2)) != Form(key=[0, 1])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Form(), "Form()"),
        (Form(mode="causal", decay=[0.5, 1]), "Form(mode='causal', decay=(0.5, 1.0))"),
        (Form(value=slice(2, None), mean=True), "Form(mean=True, value=slice(2, None, None))"),
        (Form(query=np.ones((4, 2))), "Form(query=matrix of shape (4, 2))"),
        (Form(key=maps.elu1()), "Form(key=elu1())"),
        (
            Form(key=maps.polynomial(2), bias=True),
            "Form(key=polynomial(degree=2, include_lower=True), bias=True)",
        ),
    ],
)
def test_a_form_is_shown_by_what_was_chosen(form, text):
    assert repr(form) == text


@pytest.mark.parametrize("name", [name for name in FORMS if name != "own-function"])
def test_a_form_survives_a_file(name):
    form = FORMS[name]
    content = json.loads(json.dumps(form.to_dict(), allow_nan=False))
    assert Form.from_dict(content) == form
    assert Form.from_dict(Form.from_dict(content).to_dict()) == form


def test_a_decay_to_be_chosen_survives_a_file():
    assert Form.from_dict({"decay": "loo"}) == Form(decay="loo")


def test_a_function_of_the_users_own_cannot_be_stored():
    with pytest.raises(InvalidInput, match="key is a function of your own"):
        Form(key=square).to_dict()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "form must be an object"),
        ([], "form must be an object"),
        ({"modes": "last"}, "form holds an unknown field 'modes'"),
        ({"mode": "both"}, "form: mode must be one of"),
        ({"mode": ["last"]}, "form: mode must be one of"),
        ({"mean": 1}, "form: mean must be True or False"),
        ({"window": 1.5}, "form: window must be an integer"),
        ({"decay": 2}, "form: decay must be a number"),
        ({"decay": {"a": 1}}, "form: decay must be a number"),
        ({"mode": "full", "window": 2}, "form: window counts back"),
        ({"query": "0:2"}, "form.query must be an object"),
        ({"query": 3}, "form.query must be an object"),
        ({"query": []}, "form.query must be a list of at least 1 entry"),
        ({"query": [0.5]}, "form.query[0] must be an integer"),
        ({"query": [True]}, "form.query[0] must be an integer"),
        ({"query": [0, 0]}, "form: query names a coordinate twice"),
        ({"query": {}}, "form.query must be a matrix, a slice or a map"),
        ({"query": {"lambda": "x"}}, "unknown field 'lambda'"),
        ({"query": {"slice": [0, 1]}}, "form.query.slice must be a list of"),
        ({"query": {"slice": [0, 1, 0]}}, "step is not 0"),
        ({"query": {"slice": [0, "a", None]}}, "form.query.slice[1] must be an integer"),
        ({"query": {"matrix": [[]]}}, "form.query.matrix[0] must be a list"),
        ({"query": {"matrix": [[1], [1, 2]]}}, "not a rectangular array"),
        ({"query": {"matrix": [[float("nan")]]}}, "a finite number"),
        ({"query": {"matrix": [["1"]]}}, "a finite number"),
        ({"query": {"matrix": [[1]], "map": {}}}, "must be a matrix, a slice or a map"),
        ({"query": {"map": {"name": "os.system"}}}, "form.query.map.name must be one of"),
        ({"query": {"map": {}}}, "form.query.map.name must be one of"),
        ({"query": {"map": []}}, "form.query.map must be an object"),
        ({"query": {"map": {"name": "elu1", "x": 1}}}, "unknown field 'x'"),
        ({"query": {"map": {"name": "polynomial"}}}, "lacks the field 'degree'"),
    ],
    ids=named,
)
def test_a_hostile_file_is_refused(content, words):
    with pytest.raises(FileFormatError) as refusal:
        Form.from_dict(content)
    assert words in str(refusal.value)


# Which products fold --------------------------------------------------------------------------

columns = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).map(tuple)


@given(columns, columns)
def test_pairs_are_the_unordered_products(value, key):
    pairs = FoldedPairs.of(value, key)
    assert FoldedPairs.of(value, key) is pairs
    products = [frozenset([c, b]) for c in value for b in key]
    # Each once, in the order in which they come.
    expected = list(dict.fromkeys(products))
    found = [frozenset([value[c], key[b]]) for c, b in zip(*pairs.first, strict=True)]
    assert found == expected
    assert len(pairs) == len(expected)
    assert (pairs.n_values, pairs.n_keys) == (len(value), len(key))
    for c, b in np.ndindex(pairs.position.shape):
        assert expected[pairs.position[c, b]] == frozenset([value[c], key[b]])
    both = [products.count(product) == 2 for product in expected]
    assert pairs.folded.tolist() == both
    np.testing.assert_array_equal(pairs.norm_weights, np.where(both, np.sqrt(0.5), 1.0))
    for i, (c, b) in enumerate(zip(*pairs.second, strict=True)):
        assert frozenset([value[c], key[b]]) == expected[i]
        assert ((c, b) != (pairs.first[0][i], pairs.first[1][i])) == both[i]
    assert pairs.n_shared == len(set(value) & set(key))


@given(st.integers(1, 6))
def test_pairs_of_the_whole_token_are_the_upper_triangle(width):
    rows, columns = np.triu_indices(width)
    pairs = FoldedPairs.whole(width)
    np.testing.assert_array_equal(pairs.first[0], rows)
    np.testing.assert_array_equal(pairs.first[1], columns)


@given(columns, columns, st.integers(0, 2**32))
def test_folding_and_unfolding_are_inverse(value, key, seed):
    rng, pairs = np.random.default_rng(seed), FoldedPairs.of(value, key)
    coef = rng.standard_normal((2, len(pairs), 3))
    tensor = unfold_coef(coef, pairs)
    assert tensor.shape == (2, len(value), len(key), 3)
    np.testing.assert_array_equal(fold_tensor(tensor, pairs), coef)
    # The tensor of least norm: its norm is that of the weighted coefficients.
    weighted = coef * pairs.norm_weights[:, None]
    np.testing.assert_allclose(np.linalg.norm(tensor), np.linalg.norm(weighted), rtol=1e-14)
    other = rng.standard_normal(tensor.shape)
    least = unfold_coef(fold_tensor(other, pairs), pairs)
    assert np.linalg.norm(least) <= np.linalg.norm(other) * (1 + 1e-14)


@given(columns, columns, st.integers(0, 2**32))
def test_heads_fold_as_in_the_reference(value, key, seed):
    rng, pairs = np.random.default_rng(seed), FoldedPairs.of(value, key)
    attn = rng.standard_normal((2, 3, len(key)))
    values = rng.standard_normal((2, len(value), 2))
    form = {"key": list(key), "value": list(value)}
    slow = reference.coefficients(attn, values, 7, form)
    np.testing.assert_allclose(fold_heads(attn, values, pairs), slow, rtol=0, atol=1e-13)


@given(columns, columns)
def test_the_pairs_of_a_layout_are_those_of_its_coordinates(value, key):
    layout = Layout.of(Form(key=list(key), value=list(value)), 7)
    of_names = FoldedPairs.of(value, key)
    np.testing.assert_array_equal(layout.pairs.position, of_names.position)
    np.testing.assert_array_equal(layout.pairs.folded, of_names.folded)
