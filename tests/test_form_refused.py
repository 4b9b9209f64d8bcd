"""What no form can be, and forms that do not fit their tokens: each is refused clearly."""

import numpy as np
import pytest

from form_cases import named
from polyattn.errors import InvalidInput, InvalidType, OutOfRange, PolyattnError
from polyattn.form import Form, maps
from polyattn.form.form import require_form
from polyattn.form.layout import Layout

noise = np.random.default_rng(0).standard_normal


class Unhashable:
    """A function of tokens that cannot be hashed."""

    __hash__ = None

    def __eq__(self, other):
        return self is other

    def __call__(self, tokens):
        return tokens


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
    ({"decay": 1.0000001}, "1 forgets nothing; window=1 attends to the query alone"),
    ({"decay": np.ones((3, 2, 1))}, "a gate, which is not linear in its parameters"),
    ({"decay": abs}, "a gate, which is not linear in its parameters"),
    ({"decay": 10**400}, "decay must be a number in (0, 1]"),
    ({"decay": np.nan}, "decay must be a number in (0, 1]"),
    ({"decay": np.inf}, "decay must be a number in (0, 1]"),
    ({"decay": True}, "decay must be a number in (0, 1]"),
    ({"decay": 0.5 + 0j}, "decay must be a number in (0, 1]"),
    ({"decay": np.complex128(0.5)}, "decay must be a number in (0, 1]"),
    ({"decay": "auto"}, "or 'loo'; got 'auto'"),
    ({"decay": ["loo", 0.5]}, "decay='loo' chooses one number, and stands alone"),
    ({"decay": np.array(["loo"])}, "decay='loo' chooses one number, and stands alone"),
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
    ({"query": maps.elu1}, "pa.maps.elu1, which makes one: call it, as in query=pa.maps.elu1(...)"),
    ({"key": maps.hedgehog}, "got the function pa.maps.hedgehog, which makes one"),
    ({"key": maps}, "key must be coordinates"),
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
    ({"query": lambda tokens: tokens[:, : len(tokens)]}, None, "1 number of a token, and 3 of"),
    ({"query": lambda tokens: tokens - tokens.mean(0)}, None, "see each token by itself"),
    ({"key": lambda tokens: np.cumsum(tokens, axis=0)}, None, "see each token by itself"),
    ({"key": lambda tokens: np.sort(tokens, axis=0)}, None, "see each token by itself"),
    ({"value": lambda tokens: tokens / tokens.std(0)}, None, "see each token by itself"),
    ({"value": lambda tokens: tokens + noise(tokens.shape)}, None, "or at every call"),
    ({"key": maps.random_fourier(10**6, 1.0)}, 10**5, "100,000,000,000 frequencies"),
]


@pytest.mark.parametrize(("chosen", "n_context_dims", "words"), REFUSED_FOR_TOKENS, ids=named)
def test_a_form_that_does_not_fit_the_tokens_is_refused(chosen, n_context_dims, words):
    form = Form(**chosen)
    with pytest.raises(PolyattnError) as refusal:
        Layout.of(form, 3, n_context_dims)
    assert words in str(refusal.value)


def test_a_map_is_watched_wherever_it_is_used():
    columns = Layout.of(Form(query=lambda tokens: tokens[:, tokens[0] < 1]), 3).columns
    with pytest.raises(InvalidInput, match="made 2 numbers of a token, and 3 of another"):
        columns.read(np.array([[0.5, 1.0, 0.5]]))
    columns = Layout.of(Form(query=lambda tokens: 1 / np.maximum(tokens, -1e-9)), 3).columns
    with np.errstate(divide="ignore"), pytest.raises(InvalidInput, match=r"token \[2.0, 0.0, 3"):
        columns.read(np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 3.0]]))
    columns = Layout.of(Form(query=np.full((3, 1), 1e200)), 3).columns
    with pytest.raises(OutOfRange, match="given as query is larger than float64 holds"):
        columns.read(np.full((1, 3), 1e200))


@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_a_map_need_not_be_finite_beyond_the_data(name):
    """The tokens on which it is tried are not the user's."""
    tokens = np.array([[1.0, 2.0, -3.0]])
    columns = Layout.of(Form(**{name: lambda x: np.log(x - 0.5) * 0 + x}), 3).columns
    with np.errstate(invalid="ignore"), pytest.raises(InvalidInput, match="NaN or infinity of the"):
        columns.read(tokens)
    np.testing.assert_array_equal(columns.read(np.abs(tokens))[-3:], np.abs(tokens).T)
    huge = Layout.of(Form(**{name: np.full((3, 1), 1.7e308)}), 3).columns
    np.testing.assert_allclose(huge.read(1e-300 * np.abs(tokens))[-1], 6 * 1.7e8)


def test_maps_in_low_precision_and_with_jumps_are_taken():
    weights = np.array([[0.1, 0.7], [0.2, -0.4], [-0.3, -0.3]])
    for name, own in {
        "half": lambda tokens: tokens.astype(np.float16) @ weights.astype(np.float16),
        "signs": lambda tokens: np.sign(tokens @ weights),
        "words": lambda tokens: np.eye(4)[tokens[:, 0].astype(int)],
        "layer norm": lambda tokens: tokens - tokens.mean(axis=1, keepdims=True),
    }.items():
        assert Layout.of(Form(query=own), 3).n_queries == {"words": 4, "layer norm": 3}.get(name, 2)


def test_what_a_map_raises_says_which_map_it_is():
    def only_signs(tokens):
        if not np.isin(tokens, [-1, 1]).all():
            raise KeyError("no sign")
        return tokens

    with pytest.raises(KeyError) as refusal:
        Layout.of(Form(key=only_signs), 2)
    assert refusal.value.__notes__ == [
        "Raised by the map given as key, for tokens of shape (1, 2)."
    ]


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
