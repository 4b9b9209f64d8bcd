"""learn_from_queries finds what lies around attention, and names what is no attention."""

from __future__ import annotations

import numpy as np
import pytest

import oracle
import polyattn as pa

X = np.random.default_rng(9).standard_normal((3, 60, 6))
KINDS = (None, "layer_norm", "rms_norm")
EPS = {None: None, "layer_norm": 1e-5, "rms_norm": 1e-6}


def planted(n_dims=6, mode="causal", bias=False, seed=5, size=1.0, n_outputs=None):
    """Two heads whose logits are about ``size`` for tokens of entries about one."""
    rng = np.random.default_rng([seed, n_dims, bias])
    rows = n_dims + bias
    query, key, inner = rng.standard_normal((3, 2, rows, 3)) / n_dims**0.5
    value = inner @ rng.standard_normal((2, 3, n_outputs or n_dims)) / 3**0.5
    attn = size * query @ key.transpose(0, 2, 1) / 3**0.5
    return pa.SoftmaxAttention(attn, value, mode, bias)


def turned(frequencies=(1.0, 0.1), mode="causal", n_dims=6, size=1.0, shared=False, bias=0.0,
           seed=3):  # fmt: skip
    """Two heads with rotary positions; ``shared``: the same keys and values for both."""
    rng = np.random.default_rng(seed)
    query, key = rng.standard_normal((2, 2, n_dims, 2 * len(frequencies))) / n_dims**0.5
    value = rng.standard_normal((2, n_dims, n_dims)) / n_dims**0.5
    if shared:
        key, value = key[[0, 0]], value[[0, 0]] + 0.5 * value
    if bias:
        query, key, value = (
            np.concatenate([m, bias * rng.standard_normal((2, 1, m.shape[2]))], axis=1)
            for m in (query, key, value)
        )
    pair = size * query, key
    return pa.SoftmaxAttention(pair, value, mode, bool(bias), rotary=np.array(frequencies))


def sublayer(layer, kind=None, residual=False, digits="float64"):
    def answers(X):
        return oracle.in_format(residual * X + layer(oracle.normalised(X, kind)), digits)

    return answers


def visible(layer, kind):
    """What normalised tokens show of a layer: those of layer_norm have a mean of zero."""
    if kind != "layer_norm":
        return layer
    d, onto = layer.n_dims, np.eye(layer.n_dims + layer.bias)
    onto[:d, :d] -= 1 / d
    if layer.frequencies is None:
        pair = onto @ layer.attn @ onto
    else:
        pair = onto @ layer.query, onto @ layer.key
    value = onto @ layer.value
    return pa.SoftmaxAttention(pair, value, layer.mode, layer.bias, rotary=layer.frequencies)


def worst_turned(found, true):
    """The largest relative error of values and of A(o) at some offsets, heads in any order."""
    apart = np.linalg.norm(found.value[:, None] - true.value[None], axis=(2, 3))
    order = np.argmin(apart, axis=0)
    assert sorted(order) == list(range(true.n_heads)), "heads"
    size = np.linalg.norm
    wrong = [np.max(apart[order, range(true.n_heads)] / size(true.value, axis=(1, 2)))]
    for offset in (0, 1, 7, 50):
        at = true.attn_at(offset)
        wrong.append(np.max(size(found.attn_at(offset)[order] - at, axis=(1, 2)) /
                            size(at, axis=(1, 2))))  # fmt: skip
    return max(wrong)


# ------------------------------------------------------------------ what is found


@pytest.mark.parametrize("digits", ["float64", "float32"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_residual_connections_and_normalisation_are_found(kind, bias, digits):
    for residual, mode in ((False, "full"), (True, "causal"))[digits == "float32" :]:
        layer = planted(bias=bias, mode=mode)
        found = pa.learn_from_queries(sublayer(layer, kind, residual, digits), 6, bias=bias)
        assert found.outcome.name == "recovered", found.outcome
        assert (found.residual, found.normalisation, found.mode) == (residual, kind, mode)
        true = visible(layer, kind)
        match = pa.match_heads(found.layer, true)
        if digits == "float64":
            assert max(match.worst_attn, match.worst_value) < 1e-9
            assert kind is None or abs(found.eps - EPS[kind]) < 1e-16
        within = []
        for name, cut in (("attn", np.s_[:, :, :6]), ("value", np.s_[:, :6])):
            error = (getattr(found.layer, name)[match.order] - getattr(true, name))[cut]
            bar = getattr(found, f"{name}_error")[match.order][cut]
            within += list((np.abs(error) < 1.96 * bar).ravel())
            assert np.all(np.linalg.norm(error, axis=(1, 2)) < 3 * np.linalg.norm(bar, axis=(1, 2)))
        assert np.mean(within) > 0.8
        # Tokens of very different sizes, some of them so small that eps matters.
        tokens = X[:, :9] * np.array([0.01, 1, 50])[:, None, None]
        wanted, atol = sublayer(layer, kind, residual)(tokens), 1e-7 if digits == "float64" else 0.1
        np.testing.assert_allclose(found.predict(tokens), wanted, atol=atol)
    given = {"residual": residual, "normalisation": kind, "rotary": None, "mode": mode}
    assert pa.learn_from_queries(sublayer(layer, kind, residual), 6, bias=bias, **given).recovered


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_and_turned_heads_are_found(kind, residual):
    for layer, bias in (
        (turned(), False), (turned(mode="full", shared=True), False), (turned(bias=0.3), True),
    ):  # fmt: skip
        box = sublayer(layer, kind, residual)
        found = pa.learn_from_queries(box, 6, bias=bias)
        assert found.outcome.name == "recovered", found.outcome
        assert (found.residual, found.normalisation) == (residual, kind)
        assert found.mode == layer.mode
        assert found.attn_error is None
        np.testing.assert_allclose(found.layer.frequencies, layer.frequencies, atol=1e-9)
        assert bias or worst_turned(found.layer, visible(layer, kind)) < 1e-6
        np.testing.assert_allclose(found.predict(X), box(X), atol=1e-6)


@pytest.mark.parametrize(
    "frequencies",
    [[1.0, 0.0], [0.7, 0.7], [1.0, 1e-3, 1e-5], [np.pi, 0.2], [3.0, 0.5, 0.0, 0.0], [2.0]],
    ids=str,
)
def test_any_frequencies(frequencies):
    """Planes that do not turn, that turn alike, slowly, or by half a turn."""
    layer = turned(frequencies, n_dims=8)
    for kind, most in ((None, 1e-7), ("rms_norm", 1e-5)):
        found = pa.learn_from_queries(sublayer(layer, kind), 8)
        assert found.recovered, found.outcome
        assert worst_turned(found.layer, layer) < most


def test_heads_of_other_planes_and_halves_of_planes():
    """One array of frequencies holds those of all heads; planes that a head lacks are zero."""
    first, second = turned((1.0, 0.3), n_dims=8, seed=1), turned((0.8,), n_dims=8, seed=2)
    found = pa.learn_from_queries(lambda X: first(X) + second(X), 8)
    assert (found.recovered, found.n_heads) == (True, 4)
    np.testing.assert_allclose(found.layer.frequencies, [1.0, 0.8, 0.3], atol=1e-9)
    whole = turned((1.0, 0.0))
    query = np.array(whole.query)
    query[:, :, 3] = 0
    half = pa.SoftmaxAttention((query, whole.key), whole.value, "causal", rotary=whole.frequencies)
    found = pa.learn_from_queries(half)
    assert found.recovered, found.outcome
    assert worst_turned(found.layer, half) < 1e-8
    # Coordinates 2 i and 2 i + 1 as the planes: written out token by token.
    order = np.array([0, 2, 1, 3])
    pairs = [(Q[:, order], K[:, order]) for Q, K in zip(whole.query, whole.key, strict=True)]

    def in_pairs(X):
        back = np.argsort(order)
        heads = [(Q[:, back], K[:, back]) for Q, K in pairs]
        return np.stack([oracle.softmax_forward(heads, whole.value, x, "causal", whole.frequencies)
                         for x in X])  # fmt: skip

    np.testing.assert_allclose(in_pairs(X[:, :9]), whole(X[:, :9]), atol=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 30.0, 1e5])
def test_sizes_of_logits_and_of_attention_beside_its_input_do_not_matter(size):
    layer = turned(size=size)
    assert worst_turned(pa.learn_from_queries(layer).layer, layer) < 1e-6
    plain = planted()
    scaled = pa.SoftmaxAttention(plain.attn, size * plain.value, plain.mode)
    for kind in (None, "rms_norm"):
        found = pa.learn_from_queries(sublayer(scaled, kind, residual=True), 6)
        assert (found.residual, found.normalisation) == (True, kind)
        match = pa.match_heads(found.layer, scaled)
        assert max(match.worst_attn, match.worst_value) < 1e-6


def test_a_residual_connection_around_a_mean_is_found():
    flat = pa.SoftmaxAttention(np.zeros((1, 6, 6)), planted().value[:1], "full")
    found = pa.learn_from_queries(sublayer(flat, residual=True), 6)
    assert (found.recovered, found.residual) == (True, True)
    np.testing.assert_allclose(found.layer.value, flat.value, atol=1e-10)
    assert not pa.learn_from_queries(flat).residual


@pytest.mark.parametrize("digits", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_few_bits_are_never_called_exact(digits):
    """Beside the token that is added few bits of attention are left, behind a norm fewer."""
    for kind, residual, layer in (
        (None, True, planted()), ("layer_norm", False, planted()), ("rms_norm", True, planted()),
        (None, False, turned()), ("rms_norm", False, turned()),
    ):  # fmt: skip
        box = sublayer(layer, kind, residual, digits)
        found = pa.learn_from_queries(box, 6, max_queries=2500)
        assert found.outcome.name != "recovered"
        assert not (found.recovered and layer.frequencies is not None)
        assert found.recovered or kind or layer.frequencies is not None, found.outcome
        if found.recovered:
            match = pa.match_heads(found.layer, visible(layer, kind))
            assert max(match.worst_attn, match.worst_value) < 3 * found.doubt
    found = pa.learn_from_queries(sublayer(turned(), digits="float32"), 6)
    assert worst_turned(found.layer, turned()) < 4 * found.doubt


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_few_coordinates(kind):
    """A direction alone is left of one coordinate, of two behind layer_norm: nothing is claimed."""
    for d in (1, 2, 3):
        found = pa.learn_from_queries(sublayer(planted(d), kind, residual=True), d)
        assert found.recovered == (d - (kind == "layer_norm") >= 2), found.outcome
    for box in (sublayer(planted(), kind, residual=True), turned()):
        for queries in (1, 60, 150, 230, 300, 380):
            found = pa.learn_from_queries(box, 6, max_queries=queries)
            assert (found.outcome.name, found.n_queries <= queries) == ("budget", True)
            assert found.layer is None or found.layer.n_dims == 6


def test_predictions_are_of_the_whole_function_in_every_shape(run, tmp_path):
    box = sublayer(turned(), "rms_norm", residual=True)
    found = pa.learn_from_queries(box, 6)
    last = pa.learn_from_queries(box, 6, mode="last")
    np.testing.assert_allclose(last.predict(X), found.predict(X)[:, -1], atol=1e-7)
    one, several = found.predict(X[0]), found.predict([X[0], X[1, :3]])
    np.testing.assert_allclose(one, box(X[:1])[0], atol=1e-7)
    np.testing.assert_allclose(several[1], found.predict(X[1, :3]), atol=1e-12)
    pa.save(found, tmp_path / "found.safetensors")
    np.save(tmp_path / "X.npy", X)
    assert run("predict", "found.safetensors", "X.npy", "-o", "Y.npy").exit_code == 0
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), found.predict(X), atol=1e-12)


# ------------------------------------------------------------------ modes and masks


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", ["full", "causal"])
def test_the_mode_is_found_at_no_further_query(mode, bias):
    layer = planted(mode=mode, bias=bias, n_outputs=4)
    found, last = (pa.learn_from_queries(layer, bias=bias, mode=m) for m in ("auto", "last"))
    assert (found.recovered, found.layer.mode, last.layer.mode) == (True, mode, "last")
    assert found.n_queries == last.n_queries
    np.testing.assert_array_equal(found.layer.attn, last.layer.attn)
    other = {"full": "causal", "causal": "full"}[mode]
    wrong = pa.learn_from_queries(layer, bias=bias, mode=other)
    assert (wrong.outcome.name, wrong.layer.mode) == ("other_rows_differ", other)
    assert "mode" in wrong.outcome.next_step
    for box in (lambda X: layer(X).astype(np.float32), lambda X: 1e120 * layer(X)):
        assert pa.learn_from_queries(box, 6, bias=bias).layer.mode == mode


def rows_of(seen, layer=planted(mode="full")):
    return lambda X: oracle.changed_attention(layer, X, seen(X.shape[1]))


def last_alone(seen):
    """The last row attends to all, the others as ``seen`` says."""
    return lambda n: seen(oracle.behind(n)) | (np.arange(n) == n - 1)[:, None]


def test_other_rows_that_are_of_no_mode_are_a_layer_of_the_last_row():
    layer = planted(mode="full")
    for seen, mode in ((lambda n: oracle.behind(n) < n, "full"),
                       (lambda n: oracle.behind(n) >= 0, "causal")):  # fmt: skip
        assert pa.learn_from_queries(rows_of(seen), 6).layer.mode == mode

    def spoiled(X, with_value):
        outputs = layer(X)
        outputs[:, :-1] = with_value(outputs[:, :-1])
        return outputs

    for box in (
        rows_of(last_alone(lambda far: (far >= 0) & (far < 2))),
        rows_of(last_alone(lambda far: far == 0)),
        rows_of(last_alone(lambda far: far < np.arange(len(far))[:, None])),
        *(lambda X, v=v: spoiled(X, lambda _: v) for v in (np.nan, np.inf, 0.0, 1e300)),
        lambda X: spoiled(X, lambda rows: rows * (1 + 1e-4)),
    ):
        found = pa.learn_from_queries(box, 6)
        assert (found.outcome.name, found.layer.mode) == ("other_rows_differ", "last")
        assert not found.recovered
        np.testing.assert_allclose(found.layer(X), box(X)[:, -1], atol=1e-8)
        assert pa.learn_from_queries(box, 6, mode="last").recovered
    assert pa.learn_from_queries(lambda X: spoiled(X, lambda Y: Y * (1 + 1e-12)), 6).recovered


# ------------------------------------------------------------------ what is said instead


WRONG = {
    "no normalisation": (None, False, {"normalisation": "rms_norm"}),
    "no normalisation, residual": (None, True, {"normalisation": "layer_norm"}),
    "rms, not layer": ("rms_norm", False, {"normalisation": "layer_norm"}),
    "layer, not rms": ("layer_norm", True, {"normalisation": "rms_norm"}),
    "normalisation": ("rms_norm", True, {"normalisation": None}),
    "residual": (None, True, {"residual": False}),
    "no residual": (None, False, {"residual": True}),
    "residual behind": ("rms_norm", True, {"residual": False}),
    "no residual behind": ("layer_norm", False, {"residual": True}),
    "no positions": (None, False, {"rotary": True}),
    "no positions behind": ("rms_norm", True, {"rotary": True}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_assumptions_are_named(name):
    kind, residual, given = WRONG[name]
    found = pa.learn_from_queries(sublayer(planted(), kind, residual), 6, **given)
    assert (found.outcome.name, found.recovered) == ("other_structure", False)
    assert next(iter(given)) in found.outcome.next_step
    for turns, box in ((True, turned()), (False, sublayer(planted(), residual=True))):
        given = {"rotary": None} if turns else {"residual": False}
        said = pa.learn_from_queries(box, 6, **given).outcome
        assert (said.name, said.ok) == ("other_structure", False)


class Counting:
    """Adds a number that grows from call to call."""

    def __init__(self, box, size):
        self.box, self.size, self.n = box, size, 0

    def __call__(self, X):
        self.n += 1
        return self.box(X) + self.size * self.n


class Caching:
    """Attends to a token of the call before, too."""

    def __init__(self, box):
        self.box, self.kept = box, np.zeros((1, 0, 6))

    def __call__(self, X):
        before = np.broadcast_to(self.kept, (len(X), *self.kept.shape[1:]))
        self.kept = X[:1, -1:]
        return self.box(np.concatenate([before, X], axis=1))[:, before.shape[1] :]


def sloped(X, slope=0.5):
    """Logits less by a slope times the distance: positions that turn nothing."""
    return oracle.changed_attention(
        planted(), X, logits=lambda Z, _X: Z - slope * np.abs(oracle.behind(Z.shape[1]))
    )


def narrow_map(X):
    if np.abs(X).max() > 1e15:
        raise OverflowError("too large")
    return X @ planted().value[0]


LAYER, MAP = planted(), np.random.default_rng(4).standard_normal((6, 6))
NORMED = sublayer(LAYER, "rms_norm")
NO, STATE = "not_attention", "stateful"

# Each makes a box; then the outcome, the options, and a word of what is said, where it is a number
# or an argument.
OTHERS = {
    "linear": (lambda: lambda X: X @ MAP, NO),
    "linear, biased": (lambda: lambda X: (X @ MAP + 0.5).astype(np.float32), NO, {"bias": True}),
    "linear, of few tokens": (lambda: narrow_map, NO),
    "token": (lambda: lambda X: X, NO),
    "token, float16": (lambda: lambda X: X.astype(np.float16), NO, {"bias": True}),
    "token and constant": (lambda: lambda X: X + 1.5, NO, {"bias": True}),
    "twice the token": (lambda: lambda X: 2 * X, NO),
    "constant": (lambda: lambda X: np.ones((*X.shape[:2], 3)), NO, {"bias": True}),
    "constant, no bias": (lambda: lambda X: np.ones((*X.shape[:2], 3)), NO),
    "another map beside": (lambda: lambda X: X @ MAP + LAYER(X), NO),
    "another map behind": (lambda: lambda X: X @ MAP + NORMED(X), NO),
    "normalised alone": (lambda: lambda X: oracle.normalised(X, "rms_norm"), NO),
    "tanh": (lambda: np.tanh, NO),
    "running sums": (lambda: lambda X: np.cumsum(X, axis=1), NO),
    "slopes": (lambda: sloped, NO),
    "positions added": (lambda: lambda X: LAYER(X + np.arange(X.shape[1])[:, None]), NO),
    "positions in answers": (
        lambda: lambda X: LAYER(X) + 1e-6 * np.arange(X.shape[1])[:, None], NO,
    ),
    "more planes than coordinates": (lambda: turned((1.0, 0.5, 0.2), n_dims=4), NO),
    "norm afterwards": (lambda: lambda X: oracle.normalised(X + LAYER(X), "layer_norm"), NO),
    "squashed behind": (lambda: lambda X: np.tanh(NORMED(X)), NO),
    "another eps": (
        lambda: lambda X: LAYER(X / (np.sqrt(np.mean(X**2, axis=2, keepdims=True)) + 1e-4)), NO,
    ),
    "no eps": (
        lambda: lambda X: LAYER(oracle.normalised(np.where(X == 0, 1e-100, X), "rms_norm", 0.0)),
        "not_recovered",
    ),
    **{f"squashed {s:g}": (lambda s=s: lambda X: np.tanh(s * LAYER(X)) / s, NO)
       for s in (1e-2, 1e-4, 1e-6)},
    **{f"bent {s:g}": (lambda s=s: lambda X: LAYER(X) + s * np.tanh(LAYER(X)), NO)
       for s in (1e-3, 1e-5)},
    "biases behind": (lambda: sublayer(planted(bias=True), "rms_norm"), "bias_needed"),
    "biases of turned": (lambda: turned(bias=0.3), "bias_needed"),
    **{f"counter {s:g}, {kind}": (
        lambda s=s, kind=kind: Counting(sublayer(LAYER, kind, kind is not None), s), STATE,
        {"bias": True}) for s in (1e-6, 1e-2, 10.0) for kind in (None, "rms_norm")},
    "cache": (lambda: Caching(LAYER), STATE),
    **{f"batch {s:g}": (lambda s=s: lambda X: LAYER(X) * (1 + s * np.std(X)), STATE)
       for s in (1e-6, 0.3)},
    "batch, residual": (lambda: lambda X: X + NORMED(X) * (1 + 1e-6 * np.std(X)), STATE),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_no_attention_is_told_what_it_is(name):
    make, outcome, *given = OTHERS[name]
    box = make()
    with np.errstate(all="ignore"):
        n_dims = 4 if name == "more planes than coordinates" else 6
        found = pa.learn_from_queries(box, n_dims, max_queries=20_000, **dict(*given))
    assert (found.outcome.name, found.recovered) == (outcome, False), found.outcome
    assert found.outcome.next_step
    # Few queries are enough to see it.
    assert found.n_queries < 3000 or outcome == "not_recovered"


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_answers_are_named_with_their_bound(kind):
    for bound in (0.3, 8.0 if kind else 2.0):
        box = sublayer(planted(), kind, residual=kind is not None)
        found = pa.learn_from_queries(lambda X, of=box, b=bound: np.clip(of(X), -b, b), 6)
        assert not found.outcome.ok
        assert f"{bound:g}," in found.outcome.sentence.split(":")[1]
    # A bound that only large tokens reach is none of the claim; large equal answers are none.
    far = pa.learn_from_queries(lambda X: np.clip(LAYER(X), -1e3, 1e3), 6)
    assert far.recovered
    np.testing.assert_allclose(far.layer(X), LAYER(X), atol=1e-8)
    for digits in ("float64", "float16", "bfloat16"):
        found = pa.learn_from_queries(sublayer(LAYER, kind, False, digits), 6, max_queries=900)
        assert "clipped" not in str(found.outcome)


def test_a_change_in_the_middle_of_the_run_is_noticed():
    calls = []

    def drifting(X):
        calls.append(1)
        return LAYER(X) * (1 + 1e-6 * (len(calls) > 25))

    found = pa.learn_from_queries(drifting, 6, max_queries=4000)
    assert found.outcome.name in ("stateful", "not_recovered", "imprecise")
    large = turned(bias=5.0)
    found = pa.learn_from_queries(large, 6, bias=True)
    assert found.outcome.name in ("recovered", "not_recovered", "imprecise")
    if found.recovered:
        np.testing.assert_allclose(found.predict(X), large(X), atol=1e-6)
