"""learn_softmax says what would explain examples that no layer explains, and never guesses."""

import importlib

import numpy as np
import pytest

import polyattn as pa
from polyattn.softmax import other_readings

learning = importlib.import_module("polyattn.softmax.learn_softmax")

SAID = ("in place of Y", "bias=True", "mode='causal'", "mode='full'", "No attention")


@pytest.fixture
def short(monkeypatch):
    """The first method alone: what fails, fails at once."""

    def find_heads(search, given, *_):
        return search.by_moments(given or 1)

    monkeypatch.setattr(learning, "find_heads", find_heads)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return rng, rng.standard_normal((200, 4, 3)), 0.8 * rng.standard_normal((4, 2, 4, 4))


def layer(heads, mode="full", bias=False):
    attn, value = heads[:2] if bias else heads[:2, :, :3, :3]
    return pa.SoftmaxAttention(attn, value[:, :, :3], mode, bias)


def said(found):
    """What of the hints the outcome gives."""
    assert not found.recovered
    assert not found.outcome.ok
    # That a constant explains a part is advice of its own, and no claim about a layer.
    claims = found.outcome.next_step.replace("Try bias=True", "")
    return [hint for hint in SAID if hint in claims]


@pytest.mark.parametrize(("scale", "n_heads"), [(1e-6, None), (1.0, 2), (1e5, None)])
@pytest.mark.usefixtures("short")
def test_outputs_that_contain_their_tokens(data, scale, n_heads):
    _, X, heads = data
    Y = layer(heads)(X) + X
    found = pa.learn_softmax(scale * X, scale * Y, n_heads=n_heads)
    assert said(found) == ["in place of Y"]
    assert pa.learn_softmax(X, Y - X, n_heads=2).recovered


@pytest.mark.parametrize(
    ("given", "true", "wanted"),
    [
        ({}, {"bias": True}, ["bias=True"]),
        ({"mode": "full"}, {"mode": "causal"}, ["mode='causal'"]),
        ({"mode": "causal"}, {"mode": "full"}, ["mode='full'"]),
        ({"mode": "full"}, {"mode": "causal", "bias": True}, ["bias=True", "mode='causal'"]),
    ],
)
@pytest.mark.parametrize("n_heads", [None, 2])
@pytest.mark.usefixtures("short")
def test_what_was_forgotten_is_named(data, given, true, wanted, n_heads):
    _, X, heads = data
    found = pa.learn_softmax(X, layer(heads, **true)(X), n_heads=n_heads, **given)
    assert said(found) == wanted
    assert "a layer of 2 heads explains the held-out examples" in found.outcome.next_step
    assert [phase.name for phase in found.phases].count("other readings") == 1


@pytest.mark.usefixtures("short")
def test_everything_forgotten_at_once(data):
    _, X, heads = data
    Y = layer(heads, "causal", bias=True)(X) + X
    found = pa.learn_softmax(X, Y)
    assert said(found) == ["in place of Y", "bias=True", "mode='causal'"]


@pytest.mark.usefixtures("short")
def test_residual_with_noise_and_in_mode_last(data):
    rng, X, heads = data
    Y = layer(heads)(X) + X
    found = pa.learn_softmax(X, Y + 0.01 * rng.standard_normal(Y.shape))
    assert said(found) == ["in place of Y"]
    many = rng.standard_normal((600, 3, 3))
    last = pa.learn_softmax(many, (layer(heads)(many) + many)[:, -1], mode="last")
    assert said(last) == ["in place of Y"]
    assert "Y - X[:, -1]" in last.outcome.next_step


@pytest.mark.parametrize("matrix", [np.eye(3), np.arange(6.0).reshape(3, 2) - 2])
@pytest.mark.usefixtures("short")
def test_outputs_without_attention(data, matrix):
    _, X, _ = data
    assert said(pa.learn_softmax(X, X @ matrix)) == ["No attention"]
    assert said(pa.learn_softmax(X, X @ matrix, mode="causal")) == ["No attention"]


def test_a_search_that_ends_by_itself_says_it_too():
    """Sharp heads imitate the token itself: held-out examples agree, and no head is sure."""
    task = pa.data.planted_softmax(150, 4, 4, n_heads=1, n_outputs=4, random_state=0)
    found = pa.learn_softmax(task.X, task.Y + task.X, max_heads=3)
    assert found.outcome.name == "ill_determined"
    assert said(found) == ["in place of Y"]


def failures(data):
    rng, X, heads = data
    three = pa.SoftmaxAttention(*rng.standard_normal((2, 3, 3, 3)))
    return {
        "noise": rng.standard_normal(X.shape),
        "heavy noise": layer(heads)(X) + rng.standard_t(1.5, X.shape),
        "other map": np.tanh(3 * layer(heads)(X)),
        "too few heads": three(X),
        "squares of tokens": X**2,
        "linear attention": (X @ X.swapaxes(1, 2)) @ X,
        "tokens of others": np.roll(X, 1, axis=0),
        "neighbours": np.roll(X, 1, axis=1) * X,
    }


NAMES = [
    "noise", "heavy noise", "other map", "too few heads", "squares of tokens",
    "linear attention", "tokens of others", "neighbours",
]  # fmt: skip


@pytest.mark.parametrize("mode", ["full", "causal"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("short")
def test_plain_failures_get_no_hint(data, name, mode):
    _, X, heads = data
    found = pa.learn_softmax(X, failures((np.random.default_rng(1), X, heads))[name], 1, mode=mode)
    assert said(found) == []
    assert "explains the held-out examples" not in found.outcome.next_step


@pytest.mark.usefixtures("short")
def test_hints_end_with_their_time(data, monkeypatch):
    _, X, heads = data
    monkeypatch.setattr(other_readings, "MOST_SECONDS", 0.0)
    found = pa.learn_softmax(X, layer(heads, "causal")(X))
    assert said(found) == []
    assert found.phases[-1].sentence == "Not finished."


def test_success_asks_for_no_other_reading(data):
    _, X, heads = data
    found = pa.learn_softmax(X, layer(heads)(X), n_heads=2)
    assert found.recovered
    assert "other readings" not in [phase.name for phase in found.phases]
    assert found.outcome.next_step == ""


@pytest.mark.parametrize("shape", [(40, 2, 1), (60, 3, 1), (12, 6, 2)])
@pytest.mark.usefixtures("short")
def test_few_and_narrow_tokens(shape):
    rng = np.random.default_rng(3)
    X = rng.standard_normal(shape)
    for Y in (rng.standard_normal(shape), np.abs(X)):
        for mode in ("full", "causal"):
            assert said(pa.learn_softmax(X, Y, 1, mode=mode)) == []


@pytest.mark.usefixtures("short")
def test_sequences_of_different_lengths(data):
    rng, _, heads = data
    X = [rng.standard_normal((n, 3)) for n in rng.integers(1, 6, 200)]
    Y = [layer(heads, "causal")(each) + each for each in X]
    assert said(pa.learn_softmax(X, Y)) == ["in place of Y", "mode='causal'"]
