"""Layers recovered from black-box access: shapes, scales, biases, rounding, and honest refusals."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.optimize import linear_sum_assignment

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.softmax.queries import learn_from_queries


def planted(d, n_heads, e=None, rank=None, seed=0, size=1.0, bias=False, bias_size=1.0):
    """Random heads whose logits are of order ``size`` for tokens of norm one or two."""
    rng = np.random.default_rng([seed, d, n_heads])
    rows, e, rank = d + bias, e or d, rank or d
    left, right = rng.standard_normal((2, n_heads, rows, rank))
    attn = size * left @ right.transpose(0, 2, 1) / np.sqrt(rank * rows)
    into, out = rng.standard_normal((n_heads, rows, rank)), rng.standard_normal((n_heads, rank, e))
    value = into @ out / np.sqrt(rank * rows)
    if bias:
        attn[:, -1] *= bias_size
        value[:, -1] *= bias_size
    return pa.SoftmaxAttention(attn, value, bias=bias)


def worst_errors(layer, found):
    """Largest relative errors of attn and value over matched heads, of what can be seen of them."""
    if found is None or found.n_heads != layer.n_heads:
        return np.inf, np.inf
    d = layer.n_dims
    pairs = [(layer.attn[:, :, :d], found.attn[:, :, :d]), (layer.value[:, :d], found.value[:, :d])]
    apart = [
        np.linalg.norm(true[:, None] - other[None], axis=(2, 3))
        / np.linalg.norm(true, axis=(1, 2))[:, None]
        for true, other in pairs
    ]
    matched = linear_sum_assignment(apart[0] + apart[1])
    return apart[0][matched].max(), apart[1][matched].max()


def rounded(layer):
    return lambda X: layer(X).astype(np.float32)


def assert_recovered(layer, result, tolerance=1e-7):
    assert result.recovered, str(result.outcome)
    assert result.n_heads == layer.n_heads
    assert max(worst_errors(layer, result.layer)) <= tolerance


@pytest.mark.parametrize(("d", "n_heads"), [(8, 3), (16, 4), (32, 6), (5, 5), (2, 1), (1, 1)])
@pytest.mark.parametrize("bias", [False, True])
def test_heads_are_counted_and_recovered(d, n_heads, bias):
    layer = planted(d, n_heads, bias=bias, seed=1)
    result = learn_from_queries(layer, d, bias=bias)
    assert_recovered(layer, result, 1e-9)
    assert d < 8 or result.n_queries < 4 * n_heads * d**2 - 2 * n_heads + 1
    assert result.deviation < 1e-8
    assert result.validation_error < 1e-8


@pytest.mark.parametrize("seed", range(10))
def test_seeds_are_recovered(seed):
    layer = planted(8, 3, seed=100 + seed)
    assert_recovered(layer, learn_from_queries(layer, 8, random_state=seed), 1e-9)


@pytest.mark.parametrize("size", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_of_any_size(size, bias):
    layer = planted(8, 3, seed=2, size=size, bias=bias)
    assert_recovered(layer, learn_from_queries(layer, 8, bias=bias))


@pytest.mark.parametrize("bias_size", [1e-2, 10.0, 100.0])
def test_biases_of_any_size(bias_size):
    layer = planted(12, 3, seed=3, bias=True, bias_size=bias_size)
    assert_recovered(layer, learn_from_queries(layer, 12, bias=True))


def test_conventions_of_biases():
    layer = planted(6, 2, seed=4, bias=True)
    found = learn_from_queries(layer, 6, bias=True).layer
    np.testing.assert_array_equal(found.attn[:, :, -1], 0)
    np.testing.assert_allclose(found.value[:, -1].sum(axis=0), layer.value[:, -1].sum(axis=0))
    np.testing.assert_array_equal(found.value[0, -1], found.value[1, -1])
    X = np.random.default_rng(0).standard_normal((3, 7, 6))
    np.testing.assert_allclose(found(X), layer(X), atol=1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_float32_answers(bias):
    layer = planted(16, 4, seed=5, bias=bias)
    result = learn_from_queries(rounded(layer), 16, bias=bias)
    assert_recovered(layer, result, 1e-3)
    assert 1e-9 < result.noise < 1e-6
    assert max(worst_errors(layer, result.layer)) < 10 * result.doubt


def test_an_oracle_that_computes_in_float32():
    layer = planted(12, 3, seed=5)
    attn, value = (np.asarray(array, np.float32) for array in (layer.attn, layer.value))

    def single(X):
        X = X.astype(np.float32)[:, None]
        logits = X @ attn @ X.transpose(0, 1, 3, 2)
        scores = np.exp(logits - logits.max(axis=3, keepdims=True))
        return (scores / scores.sum(axis=3, keepdims=True) @ X @ value).sum(axis=1)

    assert_recovered(layer, learn_from_queries(single, 12), 1e-3)


def test_phases_are_plain_data():
    result = learn_from_queries(planted(5, 2, seed=5), 5)
    names = [phase.name for phase in result.phases]
    assert names == [
        "sum of values",
        "sizes",
        "number of heads",
        "first difference",
        "all differences",
        "held-out check",
    ]
    plain = [phase.to_dict() for phase in result.phases]
    assert json.loads(json.dumps(plain)) == plain


@pytest.mark.parametrize("n_heads", [1, 2, 3])
def test_one_output(n_heads):
    layer = planted(6, n_heads, e=1, seed=6)
    assert_recovered(layer, learn_from_queries(layer, 6))


def test_fewer_outputs_than_heads_and_than_dimensions():
    layer = planted(6, 4, e=2, seed=7)
    assert_recovered(layer, learn_from_queries(layer, 6))
    layer = planted(3, 4, e=6, seed=7)
    assert_recovered(layer, learn_from_queries(layer, 3, n_heads=4))


def test_low_rank_takes_fewer_queries():
    full, low = (planted(48, 1, rank=rank, seed=8) for rank in (48, 3))
    of_full, of_low = (learn_from_queries(layer, 48) for layer in (full, low))
    assert_recovered(full, of_full)
    assert_recovered(low, of_low)
    assert of_low.n_queries < of_full.n_queries / 1.5
    layer = planted(40, 3, rank=4, seed=8)
    result = learn_from_queries(layer, 40)
    assert_recovered(layer, result)
    assert result.phases[-2].figures["rank"] == 4


def _families(name):
    """Heads that are hard to tell apart, or of very different size."""
    layer = planted(6, 3, seed=9)
    attn, value = np.array(layer.attn), np.array(layer.value)
    sizes = np.array([1.0, 0.1, 0.01])[:, None, None]
    one_output = value[0, 1]
    return {
        "attn of different size": (attn / sizes, value),
        "value of different size": (attn, value * sizes),
        "attn within one percent": (attn[:1] + 0.01 * attn, value),
        "multiples of the identity": (np.eye(6) * np.array([1, 2, -0.7])[:, None, None], value),
        "opposite attn": (np.stack([attn[0], -attn[0], attn[1]]), value),
        "equal values": (attn, value[[0, 0, 0]]),
        "values that cancel": (attn, np.stack([value[0], value[1], -value[0] - value[1]])),
        "values of rank one": (attn, np.stack([np.outer(v[0], v[1]) for v in value])),
        "values into one direction": (attn, np.stack([np.outer(v[0], one_output) for v in value])),
        "attn of rank one": (np.stack([np.outer(a[0], a[1]) for a in attn]), value),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "attn of different size",
        "value of different size",
        "attn within one percent",
        "multiples of the identity",
        "opposite attn",
        "equal values",
        "values that cancel",
        "values of rank one",
        "values into one direction",
        "attn of rank one",
    ],
)
def test_hard_families(name):
    layer = pa.SoftmaxAttention(*_families(name))
    assert_recovered(layer, learn_from_queries(layer, 6), 1e-6)


def test_two_tokens_alone_cannot_tell_opposite_heads():
    """Why copies are needed there: another layer has the same answers to all pairs."""
    layer = planted(4, 2, seed=9)
    A, (V, W) = layer.attn[0], layer.value
    opposite = pa.SoftmaxAttention(np.stack([A, -A]), np.stack([V, W]))
    other = pa.SoftmaxAttention(np.stack([A, 0 * A]), np.stack([V - W, 2 * W]))
    X = np.random.default_rng(0).standard_normal((20, 3, 4))
    np.testing.assert_allclose(opposite(X[:, :2]), other(X[:, :2]), atol=1e-12)
    assert np.abs(opposite(X) - other(X)).max() > 1e-3


def test_equal_heads_are_merged_and_empty_ones_left_out():
    layer = planted(8, 2, seed=10)
    attn = layer.attn[[0, 0, 1, 1]]
    value = np.concatenate([layer.value[[0, 1, 1]], np.zeros((1, 8, 8))])
    merged = pa.SoftmaxAttention(
        layer.attn, np.stack([layer.value[0] + layer.value[1], layer.value[1]])
    )
    assert_recovered(merged, learn_from_queries(pa.SoftmaxAttention(attn, value), 8))


def test_attention_without_effect():
    value = planted(4, 1, seed=11).value
    layer = pa.SoftmaxAttention(np.zeros((1, 4, 4)), value)
    result = learn_from_queries(layer, 4)
    assert result.recovered
    np.testing.assert_array_equal(result.layer.attn, 0)
    nothing = learn_from_queries(lambda X: np.zeros((*X.shape[:2], 2)), 4)
    assert nothing.recovered
    np.testing.assert_array_equal(nothing.layer.value, 0)


@pytest.mark.parametrize("given", [1, 2, 4, 12])
def test_another_number_of_heads_is_an_outcome(given):
    layer = planted(6, 3, seed=12)
    result = learn_from_queries(layer, 6, n_heads=given)
    assert result.outcome.name == "other_number_of_heads"
    assert not result.recovered
    assert result.n_heads == 3
    assert str(given) in result.outcome.sentence
    assert learn_from_queries(layer, 6, n_heads=3).recovered


def test_heads_are_counted_unless_their_number_is_given():
    layer = planted(5, 2, seed=12)
    counted, unknown = (learn_from_queries(layer, 5, n_heads=many) for many in ("auto", None))
    assert counted.recovered
    assert counted.layer == unknown.layer


def test_causal_and_full_oracles_give_the_same():
    layer = planted(8, 3, seed=13)
    causal = pa.SoftmaxAttention(layer.attn, layer.value, mode="causal")
    of_full = learn_from_queries(layer, 8)
    of_causal = learn_from_queries(causal, 8, mode="causal")
    assert of_causal.layer.mode == "causal"
    np.testing.assert_allclose(of_causal.layer.attn, of_full.layer.attn, atol=1e-10)


def test_same_seed_same_answer():
    layer = planted(6, 2, seed=14)
    first, second = (learn_from_queries(layer, 6, random_state=3) for _ in range(2))
    assert first.layer == second.layer
    assert first.n_queries == second.n_queries


def test_a_generator_decides_the_queries_and_advances():
    layer, rng = planted(4, 2, seed=14), np.random.default_rng(3)
    first, second = (learn_from_queries(layer, 4, random_state=rng) for _ in range(2))
    assert first.layer == learn_from_queries(layer, 4, random_state=3).layer
    assert first.layer != second.layer
    first, second = (learn_from_queries(layer, 4, random_state=None) for _ in range(2))
    assert first.recovered
    assert first.layer != second.layer


# The result --------------------------------------------------------------------------------------


class Recording:
    """A layer that keeps what it was given."""

    def __init__(self, layer):
        self.layer, self.calls = layer, []

    def __call__(self, X):
        self.calls.append(X.copy())
        return self.layer(X)


@pytest.mark.parametrize("single", [False, True])
def test_the_validation_error_is_that_of_the_held_out_sequences(single):
    layer = planted(5, 2, seed=16)
    oracle = Recording(rounded(layer) if single else layer)
    result = learn_from_queries(oracle, 5)
    assert [X.shape[1] for X in oracle.calls[-6:]] == [2, 3, 5, 9, 64, 256]
    held_out = oracle.calls[-6:-2]
    left, size = (
        np.sqrt(sum(np.sum(part[:, -1] ** 2) for part in parts))
        for parts in (
            [oracle.layer(X) - result.layer(X) for X in held_out],
            [oracle.layer(X).astype(float) for X in held_out],
        )
    )
    assert result.validation_error == pytest.approx(left / size, rel=1e-3 if single else 0.5)
    assert result.validation_error < result.deviation


@pytest.mark.parametrize("size", [1e-200, 1e-3, 1.0, 1e6, 1e200])
def test_noise_is_a_standard_deviation_in_the_units_of_the_outputs(size):
    layer = planted(5, 2, seed=16)
    noise = np.random.default_rng(0)

    def noisy(X):
        outputs = layer(X)
        return size * (outputs + 1e-7 * noise.standard_normal(outputs.shape))

    result = learn_from_queries(noisy, 5, max_queries=200)
    assert 0.5e-7 < result.noise / size < 5e-7


def results():
    """One of every way in which a run ends."""
    layer = planted(4, 2, seed=17)
    budget = {"max_queries": 60}

    def failing(X):
        if len(X) > 10:
            raise RuntimeError("the line is dead " + "\x1b" + "!" * 300_000)
        return layer(X)

    close = pa.SoftmaxAttention(layer.attn[:1] + 1e-9 * layer.attn, layer.value)
    return {
        "recovered": learn_from_queries(layer, 4),
        "nothing": learn_from_queries(layer, 4, max_queries=1),
        "budget": learn_from_queries(layer, 4, **budget),
        "failed": learn_from_queries(failing, 4),
        "bias": learn_from_queries(planted(4, 2, seed=17, bias=True), 4, bias=True),
        "alike": learn_from_queries(close, 4),
    }


@pytest.fixture(scope="module")
def ended():
    return results()


NAMES = ("recovered", "nothing", "budget", "failed", "bias", "alike")


@pytest.mark.parametrize("name", NAMES)
def test_results_describe_themselves(ended, name, tmp_path):
    result = ended[name]
    plain = result.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["outcome"]["ok"] == result.outcome.ok == result.recovered
    assert plain["n_queries"] == result.n_queries
    text = " ".join(str(result).split())
    assert text.startswith(" ".join(result.outcome.sentence.split())[:90])
    assert name == "failed" or 5 < len(str(result).splitlines()) < 15
    assert "array(" not in str(result) + repr(result)
    assert str(result.n_queries) in result._repr_html_()
    result.report(tmp_path / "page.html")
    assert "learned" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_results_are_kept_in_files(ended, name, tmp_path):
    result = ended[name]
    pa.save(result, tmp_path / "file")
    loaded = pa.load(tmp_path / "file")
    assert type(loaded) is pa.QueryResult
    assert loaded.layer == result.layer
    assert loaded.outcome == result.outcome
    assert loaded.phases == result.phases
    for figure in ("n_queries", "validation_error", "deviation", "doubt", "noise"):
        assert getattr(loaded, figure) == getattr(result, figure)
    assert loaded.error == result.error_text
    assert str(loaded) == str(result)


def test_the_command_line_reads_results(ended, tmp_path):
    pa.save(ended["recovered"], tmp_path / "asked")
    np.save(tmp_path / "X.npy", np.ones((2, 3, 4)))
    run = partial(CliRunner().invoke, cli, catch_exceptions=False)
    assert "252 queries" in run(["show", str(tmp_path / "asked")]).stdout
    plain = json.loads(run(["show", str(tmp_path / "asked"), "--json"]).stdout)
    assert plain["attn"] == ended["recovered"].layer.attn.tolist()
    assert plain["phases"][0]["name"] == "sum of values"
    to = str(tmp_path / "Y.npy")
    assert (
        run(["predict", str(tmp_path / "asked"), str(tmp_path / "X.npy"), "-o", to]).exit_code == 0
    )
    np.testing.assert_array_equal(np.load(to), ended["recovered"].layer(np.ones((2, 3, 4))))
    pa.save(ended["nothing"], tmp_path / "nothing")
    assert "No layer" in run(["show", str(tmp_path / "nothing")]).stdout
    refused = run(["predict", str(tmp_path / "nothing"), str(tmp_path / "X.npy"), "-o", to])
    assert refused.exit_code != 0


def test_what_ended_a_run_is_kept_as_text(ended):
    assert ended["failed"].error_text.startswith("RuntimeError: the line is dead \\x1b!!!")
    assert len(ended["failed"].error_text) < 5000
    assert ended["failed"].outcome.name == "oracle_failed"
    assert len(ended["failed"].outcome.sentence) < 5000
    assert ended["recovered"].error_text is None
    interrupted = pa.QueryResult(None, 0, ended["budget"].outcome, error=KeyboardInterrupt())
    assert interrupted.error_text == "KeyboardInterrupt"


def test_infinite_doubt_is_kept(tmp_path, ended):
    result = replace(ended["recovered"], doubt=np.inf)
    pa.save(result, tmp_path / "file")
    assert pa.load(tmp_path / "file").doubt == np.inf
    assert result.to_dict()["doubt"] is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("d", "n_heads", "rank", "bias"),
    [(64, 8, 64, False), (128, 12, 32, False), (384, 12, 32, True)],
)
@pytest.mark.parametrize("single", [False, True])
def test_layers_of_real_width(d, n_heads, rank, bias, single):
    layer = planted(d, n_heads, rank=rank, bias=bias, seed=15)
    result = learn_from_queries(rounded(layer) if single else layer, d, bias=bias)
    assert_recovered(layer, result, 1e-3 if single else 1e-7)
    assert result.n_queries < min(250_000, 4 * n_heads * d**2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_recovered_is_never_said_of_a_wrong_layer(seed):
    rng = np.random.default_rng(seed)
    d, n_heads, e = (int(n) for n in rng.integers([2, 1, 1], [9, 6, 9]))
    bias, single = rng.random(2) < (0.5, 0.3)
    layer = planted(
        d,
        n_heads,
        e=e,
        rank=int(rng.integers(1, d + 1)),
        seed=seed,
        size=10 ** rng.uniform(-2, 2),
        bias=bool(bias),
        bias_size=10 ** rng.uniform(-1, 1.5),
    )
    result = learn_from_queries(rounded(layer) if single else layer, d, bias=bool(bias))
    if result.recovered:
        assert max(worst_errors(layer, result.layer)) <= 1e-3
