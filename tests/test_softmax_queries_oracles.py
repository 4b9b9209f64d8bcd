"""Black boxes that misbehave, budgets, deadlines, interruptions: what was learned is not lost."""

import signal
from importlib import import_module
from time import monotonic, sleep

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.softmax import recorder
from polyattn.softmax.queries import learn_from_queries
from polyattn.softmax.queries.findings import HeadsAt, QueryFindings
from polyattn.softmax.queries.oracle import Oracle


@pytest.fixture
def layer():
    rng = np.random.default_rng(0)
    return pa.SoftmaxAttention(
        rng.standard_normal((2, 6, 6)) / 2, rng.standard_normal((2, 6, 6)) / 2
    )


class After:
    """A layer that, after some sequences, does something else."""

    def __init__(self, layer, n_queries, then):
        self.layer, self.left, self.then = layer, n_queries, then

    def __call__(self, X):
        self.left -= len(X)
        return self.layer(X) if self.left >= 0 else self.then(self.layer(X))


def fail(_answer):
    raise RuntimeError("the line is dead")


def interrupt(_answer):
    raise KeyboardInterrupt


def spoil(answer):
    answer[0, -1, 0] = np.nan
    return answer


def knows_the_sum(result, layer):
    return np.allclose(result.layer.value.sum(axis=0), layer.value.sum(axis=0))


def test_batches_are_bounded(layer):
    sizes = []

    def watched(X):
        sizes.append(len(X))
        return layer(X)

    result = learn_from_queries(watched, 6, batch_size=7)
    assert result.recovered
    assert max(sizes) <= 7
    assert sum(sizes) == result.n_queries
    assert [phase.figures["n_queries"] for phase in result.phases][-1] == result.n_queries


@pytest.mark.parametrize("budget", [1, 20, 40, 100, 150, 200, 240])
def test_budget(layer, budget):
    result = learn_from_queries(layer, 6, max_queries=budget)
    assert result.n_queries <= budget
    if not result.recovered:
        assert result.outcome.name == "budget"
        assert "max_queries" in str(result.outcome)
        assert result.validation_error is None
        assert result.layer is None or knows_the_sum(result, layer)
    assert (result.layer is None) == (budget < 50)


def test_partial_layers_approach_the_layer(layer):
    whole = learn_from_queries(layer, 6)
    # The last six queries are of 64 and 256 tokens; without them the layer is known, and shorter.
    checked = learn_from_queries(layer, 6, max_queries=whole.n_queries - 1)
    assert checked.recovered
    assert "up to 64 tokens" in checked.outcome.sentence
    assert "256 tokens were not checked" in checked.outcome.sentence
    almost = learn_from_queries(layer, 6, max_queries=whole.n_queries - 7)
    assert almost.outcome.name == "budget"
    np.testing.assert_array_equal(almost.layer.attn, whole.layer.attn)


@pytest.mark.parametrize("n_queries", [60, 130, 200])
@pytest.mark.parametrize(
    ("then", "name"),
    [(fail, "oracle_failed"), (spoil, "oracle_failed"), (interrupt, "interrupted")],
)
def test_failures_keep_what_was_learned(layer, n_queries, then, name):
    result = learn_from_queries(After(layer, n_queries, then), 6, batch_size=8)
    assert result.outcome.name == name
    assert not result.recovered
    assert knows_the_sum(result, layer)
    assert result.error is not None


def test_the_exception_of_the_oracle_is_kept(layer):
    result = learn_from_queries(After(layer, 100, fail), 6)
    assert isinstance(result.error, RuntimeError)
    assert "the line is dead" in result.outcome.sentence
    with pytest.raises(
        InvalidInput, match=r"RuntimeError when it was first called.*dead"
    ) as raised:
        learn_from_queries(After(layer, 0, fail), 6)
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_later_answers_of_another_shape(layer):
    result = learn_from_queries(After(layer, 100, lambda answer: answer[:, :, :2]), 6)
    assert result.outcome.name == "oracle_failed"
    assert "(n, e)" in result.outcome.sentence or "shape" in result.outcome.sentence


@pytest.mark.parametrize(
    "wrong",
    [
        lambda X: np.zeros(len(X)),
        lambda X: np.zeros((len(X), 3)),
        lambda X: np.zeros((len(X) + 1, X.shape[1], 3)),
        lambda X: np.zeros((len(X), X.shape[1], 0)),
        lambda X: np.full((len(X), X.shape[1], 3), np.nan),
    ],
)
def test_answers_that_cannot_be_used(wrong):
    with pytest.raises(InvalidInput, match="oracle"):
        learn_from_queries(wrong, 4)


@pytest.mark.parametrize("wrong", [lambda _X: None, lambda X: np.zeros((*X.shape[:2], 2)) * 1j])
def test_answers_of_another_kind(wrong):
    with pytest.raises(InvalidType):
        learn_from_queries(wrong, 4)


@pytest.mark.parametrize(
    "options",
    [
        {"n_dims": 0},
        {"n_dims": 2.5},
        {"n_heads": 0},
        {"n_heads": "two"},
        {"max_seconds": 0},
        {"max_seconds": "long"},
        {"max_queries": 0},
        {"batch_size": 0},
        {"random_state": -1},
        {"mode": "sideways"},
    ],
)
def test_options_that_cannot_be_used(layer, options):
    with pytest.raises(InvalidInput):
        learn_from_queries(layer, **{"n_dims": 6, **options})


def test_types_that_cannot_be_used(layer):
    with pytest.raises(InvalidType, match="callable"):
        learn_from_queries("layer", 6)
    with pytest.raises(InvalidType, match="bias"):
        learn_from_queries(layer, 6, bias="yes")


@pytest.mark.parametrize("noise", [1e-9, 1e-4, 0.3])
def test_answers_that_differ_from_call_to_call(layer, noise):
    rng = np.random.default_rng(1)
    result = learn_from_queries(
        lambda X: layer(X) + noise * rng.standard_normal((*X.shape[:2], 6)), 6, max_queries=3000
    )
    assert result.outcome.name in ("not_deterministic", "budget")
    assert not result.recovered
    if noise == 1e-9:
        assert result.outcome.name == "not_deterministic"
        assert result.deviation < 1e-5
        assert 0.5e-9 < result.noise < 5e-9


def test_biases_that_were_not_asked_for():
    rng = np.random.default_rng(2)
    layer = pa.SoftmaxAttention(
        rng.standard_normal((2, 5, 5)), rng.standard_normal((2, 5, 3)), bias=True
    )
    result = learn_from_queries(layer, 4)
    assert result.outcome.name == "bias_needed"
    assert "bias=True" in str(result.outcome)


def test_biases_of_attention_alone_are_not_missed():
    rng = np.random.default_rng(2)
    value = rng.standard_normal((2, 5, 4))
    value[:, -1] = 0
    layer = pa.SoftmaxAttention(rng.standard_normal((2, 5, 5)), value, bias=True)
    assert not learn_from_queries(layer, 4, max_queries=3000).recovered
    assert learn_from_queries(layer, 4, bias=True).recovered


@pytest.mark.parametrize(
    "function",
    [
        np.tanh,
        lambda X: X * np.arange(1, X.shape[1] + 1)[:, None],
        lambda X: np.cumsum(X, axis=1),
    ],
)
def test_functions_that_are_no_attention(function):
    result = learn_from_queries(function, 4)
    assert result.outcome.name == "not_attention"
    assert result.layer is None


def test_attention_of_another_kind_is_not_recovered():
    """Sharper than softmax: one-token sequences cannot tell, held-out ones do."""

    def squared(X):
        scores = (X @ X.transpose(0, 2, 1)) ** 2 + 1
        return scores / scores.sum(axis=2, keepdims=True) @ X

    result = learn_from_queries(squared, 4, max_queries=5000)
    assert not result.recovered


def test_progress_can_be_followed():
    steps = []
    result = learn_from_queries(
        pa.data.random_softmax_layer(4, n_heads=2, random_state=1), 4, batch_size=50,
        callback=lambda *step: steps.append(step),
    )  # fmt: skip
    assert result.recovered
    phases, n_heads, counts = zip(*steps, strict=True)
    assert list(dict.fromkeys(phases)) == [phase.name for phase in result.phases]
    assert list(dict.fromkeys(n_heads)) == [0, 1, 2]
    assert list(counts) == sorted(counts)
    assert counts[-1] == result.n_queries


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4, 1e-6])
def test_squashed_answers_are_no_attention(layer, size):
    result = learn_from_queries(lambda X: np.tanh(size * layer(X)) / size, 6)
    assert result.outcome.name == "not_attention", result.outcome
    assert "not linear" in result.outcome.sentence


@pytest.mark.parametrize("share", [1e-3, 1e-5])
def test_answers_with_something_added_are_no_attention(layer, share):
    """It saturates, so that large tokens show less of it than small ones."""
    result = learn_from_queries(lambda X: layer(X) + share * np.tanh(layer(X)), 6)
    assert result.outcome.name == "not_attention", result.outcome


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("n_outputs", [1, 6])
def test_rounding_is_not_taken_for_a_bend(precision, n_outputs):
    for seed in range(5):
        plain = pa.data.random_softmax_layer(4, n_heads=1, n_outputs=n_outputs, random_state=seed)
        asked = learn_from_queries(
            lambda X, plain=plain: plain(X).astype(precision), 4, random_state=seed
        )
        assert asked.outcome.name != "not_attention", asked.outcome


# Interrupts ------------------------------------------------------------------------------------


class Interrupting:
    """A layer whose call sends SIGINT to the process after some sequences."""

    def __init__(self, layer, n_queries):
        self.layer, self.left = layer, n_queries

    def __call__(self, X):
        self.left -= len(X)
        if self.left < 0:
            self.left = np.inf
            signal.raise_signal(signal.SIGINT)
        return self.layer(X)


@pytest.fixture
def signals():
    """SIGINT raises KeyboardInterrupt, even where the suite runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("signals")
def test_a_signal_before_any_layer_says_that_there_is_none(layer):
    for n_queries in (0, 3, 30):
        result = learn_from_queries(Interrupting(layer, n_queries), 6, batch_size=4)
        assert result.outcome.name == "interrupted"
        assert result.layer is None
        assert "there is none" in str(result.outcome)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("n_queries", [60, 130, 200, 240])
def test_a_signal_keeps_the_best_layer_and_says_what_it_is(layer, n_queries):
    result = learn_from_queries(Interrupting(layer, n_queries), 6, batch_size=4)
    assert result.outcome.name == "interrupted"
    assert knows_the_sum(result, layer)
    known = "Only the sum of the values" if result.n_heads == 1 else "known for"
    assert known in result.outcome.sentence


@pytest.mark.usefixtures("signals")
def test_a_signal_at_the_very_end_loses_nothing(layer, monkeypatch):
    """The check has passed; the signal comes while the result is put together."""
    calls = iter(range(100))
    whole = learn_from_queries(layer, 6)
    module = import_module("polyattn.softmax.queries.learn_from_queries")
    assemble = module.assemble

    def interrupted_once(findings, heads, mode):
        if mode == "full" and next(calls) == 0:
            signal.raise_signal(signal.SIGINT)
        return assemble(findings, heads, mode)

    monkeypatch.setattr(module, "assemble", interrupted_once)
    result = learn_from_queries(layer, 6)
    assert next(calls) > 0
    assert result.recovered
    np.testing.assert_array_equal(result.layer.attn, whole.layer.attn)


# Deadlines --------------------------------------------------------------------------------------


class Clock:
    """Shows the end of time after so many looks."""

    def __init__(self, n_looks):
        self.n_looks = n_looks

    def __call__(self):
        self.n_looks -= 1
        return 0.0 if self.n_looks >= 0 else np.inf


@pytest.mark.parametrize("n_looks", [1, 3, 20, 40, 60])
def test_when_the_time_is_over_what_was_learned_is_returned(layer, monkeypatch, n_looks):
    monkeypatch.setattr(recorder, "monotonic", Clock(n_looks))
    result = learn_from_queries(layer, 6, max_seconds=1e9)
    assert result.outcome.name == "out_of_time"
    assert "max_seconds" in result.outcome.sentence
    assert result.error is None
    if n_looks < 10:
        assert result.layer is None
    else:
        assert knows_the_sum(result, layer)


def test_enough_time_changes_nothing(layer):
    timed, untimed = (learn_from_queries(layer, 6, max_seconds=end) for end in (1e9, None))
    assert timed.recovered
    assert timed.layer == untimed.layer
    assert recorder.seconds_left() == np.inf


def test_a_slow_oracle_is_stopped_between_its_calls(layer):
    def slow(X):
        sleep(0.02)
        return layer(X)

    began = monotonic()
    result = learn_from_queries(slow, 6, batch_size=8, max_seconds=0.1)
    assert result.outcome.name == "out_of_time"
    assert monotonic() - began < 2
    assert 0 < result.n_queries < 100


def test_a_later_attempt_does_not_lose_the_differences_of_an_earlier_one():
    findings = QueryFindings(Oracle(np.asarray, 2, np.inf, 1), bias=False)
    at = HeadsAt(np.ones(2), np.ones((1, 2)), np.ones((1, 2)))
    findings.heads = [at, at]
    findings.begin()
    assert findings.heads == []
    findings.heads = [at]
    assert len(findings.settled) == 2
