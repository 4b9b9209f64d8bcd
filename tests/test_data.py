"""The generators: seeded, scaled as documented, and with answers that are the right ones."""

import inspect

import joblib
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import oracle
import polyattn as pa
from polyattn.errors import PolyattnError
from test_contract import CALLS

D, P = pa.data, pa.programs
FAMILIES = ("close", "same_value", "rank_one_value", "scales", "identity", "rank_one_attn",
            "cancel", "sharp_mix", "permutation")  # fmt: skip
# Standard errors by which a mean may be off.
ALLOWED = 5.0


def assert_mean(samples, expected):
    error = samples.std(axis=0) / np.sqrt(len(samples))
    np.testing.assert_array_less(np.abs(samples.mean(axis=0) - expected), ALLOWED * error + 1e-12)


@pytest.mark.parametrize("name", [name for name in CALLS if name.startswith("data.")])
def test_a_seed_is_a_seed_and_a_generator_goes_on(name):
    function, given = CALLS[name]
    taken = inspect.signature(function).parameters
    given = given | {each: 0.1 for each in ("noise", "flips") if each in taken}

    def content(seed):
        return joblib.hash(function(**given, random_state=seed))

    rng, first = np.random.default_rng(3), content(3)
    assert first == content(np.int64(3)) == content(rng)
    assert len({first, content(rng), content(4), content(None), content(None)}) == 5


@pytest.mark.parametrize("n_tokens", [4, (1, 5)])
@pytest.mark.parametrize("case", oracle.FORMS)
def test_planted_targets_are_those_of_the_layer_in_every_form(case, n_tokens):
    fields, n_context_dims = oracle.split_context(oracle.FORMS[case])
    form = pa.Form(**fields)
    given = {"form": form, "n_context_dims": n_context_dims, "random_state": 5}
    task = D.planted(4, n_tokens, 3, 2, 2, noise=0.0, **given)
    layer = task.layer
    assert (layer.form, layer.n_dims, layer.n_outputs) == (form, 3, 2)
    assert layer.n_heads == 2 * oracle.n_scales(fields)
    if n_context_dims is not None and form.mode == "causal":
        assert [len(z) for z in task.context] == [len(x) for x in task.X]
    for y, expected in zip(task.Y, layer(task.X, task.context), strict=True):
        np.testing.assert_allclose(y, expected, rtol=0, atol=1e-13)
    # The layer is drawn first: it does not change with the sequences, nor do they with the noise.
    noisy = D.planted(9, (2, 9), 3, 2, 2, noise=0.5, **given)
    assert noisy.layer == layer == D.random_layer(3, 2, 2, **given)


def test_random_layers_have_the_documented_scales():
    """A_h N(0, 1/(r rk)), V_h N(0, 1/(rv H^2)), skip N(0, 1/r), intercept N(0, 1)."""
    plain, d, n_heads = D.random_layer(40, 30, n_heads=4), 40, 4
    form = pa.Form(key=(0, 1), value=(2,), query=range(d), skip=True, intercept=True)
    wide = D.random_layer(d, 400, 2, form=form)
    for found, size in (
        (plain.attn, 1 / d),
        (plain.value, 1 / np.sqrt(d) / n_heads),
        (wide.attn, 1 / np.sqrt(d * 2)),
        (wide.value, 1 / 2),
        (wide.skip, 1 / np.sqrt(d)),
        (wide.intercept, 1.0),
    ):
        assert np.std(found) == pytest.approx(size, rel=0.15)


def test_noise_and_sequences_have_the_sizes_that_were_asked_for():
    clean, noisy = (D.planted(50, (30, 50), 2, noise=s, random_state=2) for s in (0.0, 0.3))
    for x, other in zip(clean.X, noisy.X, strict=True):
        np.testing.assert_array_equal(x, other)
    away = np.concatenate(noisy.Y) - np.concatenate(clean.Y)
    assert (clean.noise, noisy.noise) == (0.0, 0.3)
    assert np.std(away) == pytest.approx(0.3, rel=0.05)
    assert np.std(D.random_sequences(200, 25, 4)) == pytest.approx(1 / 5, rel=0.02)
    assert np.std(D.random_sequences(200, 25, 4, scale=3.0)) == pytest.approx(3.0, rel=0.02)
    ragged = list(D.random_sequences(300, (1, 4), 50))
    context = D.planted(300, (1, 4), 3, mode="full", n_context_dims=50).context
    for sequences in (ragged, list(context)):
        assert {len(x) for x in sequences} == {1, 2, 3, 4}
        for length in (1, 4):  # the expected token Gram is the identity whatever the length
            traces = [np.sum(x**2) / 50 for x in sequences if len(x) == length]
            assert np.mean(traces) == pytest.approx(1.0, rel=0.1)


def parts(X):
    """Keys, values, query, zeta and the number of the queried key."""
    d = X.shape[2] // 2
    keys, query = X[:, :d, :d], X[:, d, :d]
    asked = np.argmax(np.all(keys == query[:, None], axis=2), axis=1)
    return keys, X[:, :d, d:], query, X[:, d, d:], asked


def test_memory_is_a_superposition_and_the_printed_targets_leave_out_the_own_token():
    """Equation 14 is the sum over stored pairs; equation 5 has the last token's term besides."""
    for noise in (0.0, 0.2):
        options = {"unitary": 0.5, "noise": noise, "fill": 2.0}
        whole, printed = (
            D.associative_memory(4000, 3, **options, own_token=o) for o in (True, False)
        )
        keys, values, query, zeta, asked = parts(whole.X)
        np.testing.assert_array_equal(keys[np.arange(4000), asked], query)
        assert set(asked) == {0, 1, 2}
        assert np.std(zeta) == pytest.approx(2.0, rel=0.05)
        stored = np.einsum("nd,ntd,nte->ne", query, keys, values)
        own = np.sum(query**2, axis=1)[:, None] * zeta
        np.testing.assert_array_equal(printed.X, whole.X)
        np.testing.assert_allclose(whole.layer(whole.X), stored + own, atol=1e-12)
        drawn = whole.Y - stored - own
        assert np.std(drawn) == pytest.approx(noise, rel=0.05, abs=1e-12)
        np.testing.assert_allclose(printed.Y, stored + drawn, atol=1e-12)
        np.testing.assert_allclose(printed.unmodelled, -own, atol=1e-12)
        assert (whole.unmodelled, whole.layer) == (None, printed.layer)
    layer = whole.layer
    assert (layer.n_heads, layer.mode, layer.attn.sum(), layer.value.sum()) == (1, "last", 3, 3)


def test_the_mixture_of_keys():
    for unitary, expected in ((0.0, 0), (0.25, 10), (0.95, 38), (1.0, 40)):
        for each in parts(D.associative_memory(40, 3, unitary).X)[:2]:
            away = np.abs(each @ each.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
            assert np.count_nonzero(away < 1e-12) == expected
    keys = parts(D.associative_memory(4000, 3, 1.0).X)[0]  # uniform orthogonal matrices
    assert_mean(keys, 0.0)
    assert_mean(keys**2, 1 / 3)


def test_lorenz_follows_its_equations_on_the_attractor():
    X = D.lorenz(400, dt=0.01, random_state=1)
    assert np.abs(X[:, :2]).max() < 30
    assert 0 < X[:, 2].min() < X[:, 2].max() < 50
    np.testing.assert_allclose(D.lorenz(21, 0.02)[::2], D.lorenz(11, 0.04), rtol=1e-6)

    def slope(_, point):
        x, y, z = point
        return [10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z]

    exact = solve_ivp(slope, (0, 0.2), X[0], t_eval=np.arange(21) / 100, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(X[:21], exact.y.T, rtol=1e-6)


SQUARE = np.array([[2.0, 0.4, 0.0], [0.4, 1.0, -0.2], [0.0, -0.2, 0.3]])
TASKS = {
    "own": {},
    "of a covariance": {"task_covariance": np.diag([3.0, 1.0, 0.0])},
    "two": {"tasks": np.array([[1.0, -2.0, 0.5], [0.5, 1.0, 2.0]])},
    "five drawn": {"tasks": 5},
}


def prompt_sums(task):
    """Per prompt the mean of y (x, y) over examples (N, d + 1), and the question (N, d)."""
    examples, d = task.X[:, :-1], task.X.shape[2] - 1
    return np.mean(examples[..., d:] * examples, axis=1), task.X[:, -1, :d]


@pytest.mark.parametrize("tasks", TASKS)
@pytest.mark.parametrize("summarised", [False, True])
def test_the_known_optimum_and_other_steps_have_the_risks_that_are_said(tasks, summarised):
    task = D.in_context_regression(20_000, 6, SQUARE, 0.5, 1, **TASKS[tasks], summarised=summarised)
    optimum, (sums, questions) = task.optimum, prompt_sums(task)
    best = optimum.mean_layer.coef
    np.testing.assert_allclose(best[0].T, optimum.mean_step, atol=1e-14)
    # Where the gradient of the risk is zero on average, the risk is least.
    features = np.einsum("ni,nl->nil", sums[:, :3], questions).reshape(len(sums), -1)
    residuals = task.Y[:, 0] - features @ best.ravel()
    assert_mean(features * residuals[:, None], 0.0)
    assert_mean(residuals**2, optimum.risk)
    for step in (np.arange(9.0).reshape(3, 3) / 10, optimum.plain_rate * 6 * np.eye(3)):
        predicted = np.einsum("nl,lj,nj->n", questions, step, sums[:, :3])
        assert_mean((predicted - task.Y[:, 0]) ** 2, optimum.risk_of(step))
        assert optimum.risk_of(step) >= optimum.risk
    assert optimum.plain_risk == pytest.approx(optimum.risk_of(step))
    slope = optimum.risk_of((1 + 1e-4) * step) - optimum.risk_of((1 - 1e-4) * step)
    assert abs(slope) < 1e-6 * optimum.plain_risk
    if not summarised:
        one, other = optimum.layer(task.X[:5]), optimum.mean_layer(task.X[:5])
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


def test_sizes_in_proportion():
    task = D.proportional_regression(6, 1.5, 2, 0.5, rho=0.04, summarised=False)
    assert (task.X.shape, task.Y.shape, task.tasks.shape) == ((54, 13, 7), (54, 1), (3, 6))
    assert (task.optimum.n_examples, task.optimum.noise) == (12, 0.2)
    np.testing.assert_array_equal(task.optimum.covariance, np.eye(6) / 6)
    fresh = D.proportional_regression(6, 1.5, 2)
    assert (fresh.tasks, fresh.X.shape) == (None, (54, 2, 7))
    # Products like 0.29 * 100 are a little less than these integers.
    assert len(D.proportional_regression(10, 0.29, 1).X) == 29
    assert len(D.proportional_regression(7, 1 / 49, 1).X) == 1


@pytest.mark.parametrize("mode", oracle.MODES)
@pytest.mark.parametrize("tokens", ["boolean", "gaussian"])
def test_planted_softmax_targets_are_those_of_the_layer(mode, tokens):
    options = {"logits": 2.0, "distribution": tokens, "mode": mode, "random_state": 7}
    for n_tokens in (3, (1, 4)):
        task = D.planted_softmax(6, n_tokens, 3, 2, 2, **options)
        layer = task.layer
        for y, expected in zip(task.Y, layer(task.X), strict=True):
            np.testing.assert_allclose(y, expected, rtol=0, atol=1e-13)
    noisy = D.planted_softmax(400, (2, 3), 3, 2, 2, noise=0.3, **options)
    assert layer == noisy.layer == D.random_softmax_layer(3, 2, 2, 2.0, mode=mode, random_state=7)
    away = np.concatenate(list(noisy.Y)) - np.concatenate(list(layer(noisy.X)))
    assert np.std(away) == pytest.approx(0.3, rel=0.1)
    values = np.concatenate(list(noisy.X))
    assert np.std(values) == pytest.approx(1, rel=0.1)
    assert (set(np.unique(values)) == {-1.0, 1.0}) is (tokens == "boolean")


def test_boolean_coordinates_are_independent_and_fair():
    X = D.boolean_sequences(500, 8, 4)
    assert set(np.unique(X)) == {-1.0, 1.0}
    flat = X.reshape(500, -1)
    assert np.abs(flat.mean(axis=0)).max() < 5 / np.sqrt(500)
    assert np.abs(flat.T @ flat / 500 - np.eye(32)).max() < 5 / np.sqrt(500)
    assert {len(x) for x in D.boolean_sequences(300, (1, 4), 2)} == {1, 2, 3, 4}


def test_softmax_layers_have_the_documented_scales():
    for rank, rotary in ((None, None), (5, None), (6, 100.0)):
        layer = D.random_softmax_layer(60, 40, n_heads=3, logits=2.0, rank=rank, rotary=rotary)
        assert (layer.n_heads, layer.n_dims, layer.n_outputs, layer.mode) == (3, 60, 40, "full")
        assert np.std(layer.value) == pytest.approx(60**-0.5, rel=0.1)
        assert set(np.linalg.matrix_rank(layer.value)) == {rank or 40}
        if rotary is None:
            assert np.std(layer.attn) == pytest.approx(2 / 60, rel=0.1)
            assert set(np.linalg.matrix_rank(layer.attn)) == {rank or 60}


def test_families_are_what_they_say_and_can_be_told_apart():
    c, d, eye = 4.0, 40, np.eye(40)
    layers = {family: D.hard_softmax_layer(family, d, 3, c) for family in FAMILIES}
    attn = {family: layer.attn for family, layer in layers.items()}
    value = {family: layer.value for family, layer in layers.items()}
    sizes = np.linalg.norm(attn["close"], axis=(1, 2))
    assert 0 < np.linalg.norm(attn["close"][0] - attn["close"][1]) < 0.2 * sizes.min()
    assert np.all(value["same_value"] == value["same_value"][0])
    for one in (value["rank_one_value"], attn["rank_one_attn"]):
        assert np.all(np.linalg.matrix_rank(one) == 1)
    powers = np.array([1, 0.1, 0.01]) / np.sqrt(d)
    assert np.std(value["scales"], axis=(1, 2)) == pytest.approx(powers, rel=0.1)
    for h in range(3):
        np.testing.assert_allclose(attn["identity"][h], c * (h + 1) / 3 / np.sqrt(d) * eye)
    assert np.abs(value["cancel"].sum(axis=0)).max() < 1e-15
    sharp = c / d * np.array([1, 1 / 3, 1 / 9])
    assert np.std(attn["sharp_mix"], axis=(1, 2)) == pytest.approx(sharp, rel=0.1)
    permutation = attn["permutation"] * np.sqrt(d) / c
    np.testing.assert_allclose(permutation @ permutation.transpose(0, 2, 1), [eye] * 3)
    for family in FAMILIES:
        few = D.hard_softmax_layer(family, 4, 3)
        assert pa.softmax.identifiable_heads(few).verdict == "identifiable"
        planted = D.planted_softmax(8, 5, 3, n_heads=2, logits=4.0, family=family, random_state=7)
        assert planted.layer == D.hard_softmax_layer(family, 3, 2, 4.0, random_state=7)
        assert planted.layer != D.hard_softmax_layer(family, 3, 2, 4.0, random_state=8)


PROGRAMS = {
    "memory": P.associative_memory(3, 3),
    "one_hot": P.universal_dfa(2, 2, 3, style="one_hot"),
    "registers": P.universal_dfa(2, 2, 3),
    "turing": P.universal_turing_machine(2, 2, 4),
}


def test_data_are_traces_of_the_library():
    found = D.automaton_traces(9, 2, 2, 3, style="one_hot", random_state=5, lengths=(2, 2))
    found += D.turing_traces(9, 2, 2, 4, random_state=5, steps=(3, 9))
    wanted = P.traces(PROGRAMS["one_hot"], 9, 5, lengths=(2, 2))
    wanted += P.traces(PROGRAMS["turing"], 9, 5, steps=(3, 9))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_flip_is_one(program):
    clean, blocks, seen = P.traces(program, 60, random_state=0), program.schema.blocks, set()
    for before, after in zip(clean, D.with_wrong_labels(clean, flips=1.0), strict=True):
        np.testing.assert_array_equal(after.tokens, before.tokens)
        changed = after.targets != before.completion
        for row in changed:  # one attribute
            (name,) = (name for name, block in blocks.items() if row[block].any())
            seen.add(name)
    assert len(seen) > 1 or len(blocks) == 3  # any attribute that was held; the memory writes one
    for least in (P.associative_memory(1, 1), P.universal_dfa(1, 1, 1)):  # nothing stands elsewhere
        for trace in D.with_wrong_labels(P.traces(least, 20), flips=1.0):
            assert (trace.labels != trace.completion).any(axis=1).all()


def test_the_share_of_flips_and_the_size_of_noise_are_right():
    clean = P.traces(PROGRAMS["one_hot"], 1000, random_state=0)
    n_rows = sum(trace.n_rows for trace in clean)
    flipped = D.with_wrong_labels(clean, flips=0.1, random_state=1)
    n_wrong = sum((t.labels != t.completion).any(axis=1).sum() for t in flipped)
    assert abs(n_wrong / n_rows - 0.1) < ALLOWED * np.sqrt(0.09 / n_rows)
    noisy = D.with_wrong_labels(clean, noise=0.3, random_state=1)
    rest = np.concatenate([(t.labels - t.completion).ravel() for t in noisy])
    assert abs(rest.std() - 0.3) < ALLOWED * 0.3 / np.sqrt(2 * rest.size)
    assert_mean(rest, 0.0)
    twice = D.with_wrong_labels(noisy, flips=1.0, random_state=3)  # wrong labels add up
    assert all((a.labels != b.labels).any(axis=1).all() for a, b in zip(noisy, twice, strict=True))
    assert D.with_wrong_labels([]) == []


FULL, EYE = pa.Form(mode="full"), np.eye(2)

REFUSED = [
    ("n_heads", lambda: D.random_layer(2, n_heads=0)),
    ("random_state", lambda: D.random_layer(2, random_state=-1)),
    ("mode", lambda: D.random_layer(2, form=FULL, mode="last")),
    ("bias", lambda: D.random_layer(2, form=FULL, bias=True)),
    ("scale", lambda: D.random_sequences(2, 2, 2, scale=-1.0)),
    ("n_tokens", lambda: D.random_sequences(2, (0, 3), 2)),
    ("n_tokens", lambda: D.random_sequences(2, (4, 3), 2)),
    ("n_tokens", lambda: D.random_sequences(2, (1, 2, 3), 2)),
    ("noise", lambda: D.planted(2, 2, 2, noise=-0.1)),
    ("unitary", lambda: D.associative_memory(2, 2, unitary=1.5)),
    ("dt", lambda: D.lorenz(2, dt=0.0)),
    ("tasks", lambda: D.in_context_regression(3, 2, EYE, tasks=0)),
    ("tasks", lambda: D.in_context_regression(3, 2, EYE, tasks=np.ones((3, 4)))),
    ("task_covariance", lambda: D.in_context_regression(3, 2, EYE, tasks=EYE, task_covariance=EYE)),
    ("task_covariance", lambda: D.in_context_regression(3, 2, EYE, task_covariance=np.eye(3))),
    ("task_covariance", lambda: D.in_context_regression(3, 2, EYE, task_covariance=-EYE)),
    ("covariance", lambda: D.OneStep.of(np.diag([1e10, -1e-3]), 4)),
    ("tau", lambda: D.proportional_regression(5, 0.001, 1.0)),
    ("kappa", lambda: D.proportional_regression(5, 1.0, 1.0, 0.05)),
    ("rho", lambda: D.proportional_regression(5, 1.0, 1.0, rho=-1)),
    ("rank", lambda: D.random_softmax_layer(2, rank=3)),
    ("rank", lambda: D.random_softmax_layer(2, rotary=10.0)),
    ("family", lambda: D.hard_softmax_layer("easy", 2)),
    ("n_heads", lambda: D.hard_softmax_layer("cancel", 2, n_heads=1)),
    ("distribution", lambda: D.planted_softmax(2, 2, 2, distribution="words")),
    ("flips", lambda: D.with_wrong_labels([], flips=1.1)),
    ("lengths", lambda: D.automaton_traces(3, lengths=(1, 99))),
]


def test_wrong_arguments_are_named():
    for word, call in REFUSED:
        with pytest.raises(PolyattnError, match=word):
            call()
