"""learn_from_queries finds what lies around attention, and names what is no attention."""

import numpy as np
import pytest

import oracle
import polyattn as pa

X = np.random.default_rng(9).standard_normal((3, 60, 6))
MAP = np.random.default_rng(4).standard_normal((6, 6))
KINDS = (None, "layer_norm", "rms_norm")


def planted(n_dims=6, mode="causal", bias=False, n_outputs=6):
    """Two heads of rank three, or less, whose logits are about one."""
    return pa.data.random_softmax_layer(
        n_dims, n_outputs, 2, rank=min(n_dims, 3), mode=mode, random_state=5, bias=bias
    )


def turned(frequencies=(1.0, 0.1), mode="causal", n_dims=6, size=1.0, bias=False, seed=3):
    return pa.data.random_softmax_layer(
        n_dims, n_dims, 2, size, 2 * len(frequencies), mode, seed, bias=bias, rotary=frequencies
    )


LAYER = planted()


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
    turns = layer.frequencies is not None
    attn = (onto @ layer.query, onto @ layer.key) if turns else onto @ layer.attn @ onto
    value = onto @ layer.value
    return pa.SoftmaxAttention(attn, value, layer.mode, layer.bias, rotary=layer.frequencies)


def worst_turned(found, true):
    """The largest relative error of values and of A(o) at some offsets, heads in any order."""
    apart = np.linalg.norm(found.value[:, None] - true.value[None], axis=(2, 3))
    order = np.argmin(apart, axis=0)
    assert sorted(order) == list(range(true.n_heads))
    pairs = [(found.value, true.value)]
    pairs += [(found.attn_at(offset), true.attn_at(offset)) for offset in (0, 1, 7, 50)]
    return max(oracle.relative_error(f[h], t[i]) for f, t in pairs for i, h in enumerate(order))


def worst_plain(found, true):
    match = pa.match_heads(found, true)
    return max(match.worst_attn, match.worst_value)


@pytest.mark.parametrize("digits", ["float64", "float32"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_residual_connections_and_normalisation_are_found(kind, bias, digits):
    exact = digits == "float64"
    for residual, mode in ((False, "full"), (True, "causal"))[not exact :]:
        layer = planted(bias=bias, mode=mode)
        found = pa.learn_from_queries(sublayer(layer, kind, residual, digits), 6, bias=bias)
        assert found.outcome.name == "recovered", found.outcome
        assert (found.residual, found.normalisation, found.mode) == (residual, kind, mode)
        true = visible(layer, kind)
        assert worst_plain(found.layer, true) < (1e-9 if exact else 1e-3)
        eps = {None: None, "layer_norm": 1e-5, "rms_norm": 1e-6}[kind]
        assert found.eps == (eps and pytest.approx(eps, rel=1e-9 if exact else 0.1))
        order, within = pa.match_heads(found.layer, true).order, []
        for name, cut in (("attn", np.s_[:, :, :6]), ("value", np.s_[:, :6])):
            error = (getattr(found.layer, name)[order] - getattr(true, name))[cut]
            within.append(np.abs(error) < 1.96 * getattr(found, f"{name}_error")[order][cut])
        assert np.mean(np.concatenate(within, axis=None)) > 0.8
        # Tokens of very different sizes, some of them so small that eps matters.
        tokens = X[:, :9] * np.array([0.01, 1, 50])[:, None, None]
        wanted = sublayer(layer, kind, residual)(tokens)
        np.testing.assert_allclose(found.predict(tokens), wanted, atol=1e-7 if exact else 0.1)
    given = {"residual": residual, "normalisation": kind, "rotary": None, "mode": mode}
    assert pa.learn_from_queries(sublayer(layer, kind, residual), 6, bias=bias, **given).recovered


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_frequencies_and_turned_heads_are_found(kind, residual):
    for layer in (turned(mode="full"), turned(bias=True)):
        box = sublayer(layer, kind, residual)
        found = pa.learn_from_queries(box, 6, bias=layer.bias, rotary=True if residual else "auto")
        assert found.outcome.name == "recovered", found.outcome
        assert (found.residual, found.normalisation, found.mode) == (residual, kind, layer.mode)
        assert found.attn_error is None
        np.testing.assert_allclose(found.layer.frequencies, layer.frequencies, atol=1e-9)
        assert layer.bias or worst_turned(found.layer, visible(layer, kind)) < 1e-6
        np.testing.assert_allclose(found.predict(X), box(X), atol=1e-6)


FREQUENCIES = [[1.0, 0.0], [0.7, 0.7], [1.0, 1e-3, 1e-5], [np.pi, 0.2], [3.0, 0.5, 0.0, 0.0], [2.0]]


@pytest.mark.parametrize("frequencies", FREQUENCIES, ids=str)
def test_any_frequencies_are_found(frequencies):
    """Planes that do not turn, that turn alike, slowly, or by half a turn."""
    layer = turned(frequencies, n_dims=8)
    for kind, most in ((None, 1e-7), ("rms_norm", 1e-5)):
        found = pa.learn_from_queries(sublayer(layer, kind), 8)
        assert found.recovered, found.outcome
        assert worst_turned(found.layer, layer) < most


def test_heads_of_other_planes_share_one_array_of_frequencies():
    first, second = turned((1.0, 0.3), n_dims=8, seed=1), turned((0.8,), n_dims=8, seed=2)
    found = pa.learn_from_queries(lambda X: first(X) + second(X), 8)
    assert (found.recovered, found.n_heads) == (True, 4)
    np.testing.assert_allclose(found.layer.frequencies, [1.0, 0.8, 0.3], atol=1e-9)
    tokens = np.random.default_rng(0).standard_normal((3, 50, 8))
    np.testing.assert_allclose(found.predict(tokens), first(tokens) + second(tokens), atol=1e-6)


@pytest.mark.parametrize("size", [1e-6, 1e5])
def test_sizes_of_logits_and_of_attention_beside_its_input_do_not_matter(size):
    layer = turned(size=size)
    assert worst_turned(pa.learn_from_queries(layer).layer, layer) < 1e-6
    scaled = pa.SoftmaxAttention(LAYER.attn, size * LAYER.value, LAYER.mode)
    for kind in (None, "rms_norm"):
        found = pa.learn_from_queries(sublayer(scaled, kind, residual=True), 6)
        assert (found.residual, found.normalisation) == (True, kind)
        assert worst_plain(found.layer, scaled) < 1e-6


@pytest.mark.parametrize("digits", ["bfloat16", pytest.param("float16", marks=pytest.mark.slow)])
def test_few_bits_are_never_called_exact(digits):
    """Beside the token that is added few bits of attention are left, behind a norm fewer."""
    for layer, kind, residual in (
        (LAYER, None, True), (LAYER, "layer_norm", False), (LAYER, "rms_norm", True),
        (turned(), "rms_norm", False),
    ):  # fmt: skip
        box = sublayer(layer, kind, residual, digits)
        found = pa.learn_from_queries(box, 6, max_queries=2500)
        assert found.outcome.name != "recovered"
        assert found.recovered or kind, found.outcome
        if found.recovered:
            assert layer is LAYER
            assert worst_plain(found.layer, visible(layer, kind)) < 3 * found.doubt
    found = pa.learn_from_queries(sublayer(turned(), digits="float32"), 6)
    assert worst_turned(found.layer, turned()) < 4 * found.doubt


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm"])
def test_few_coordinates_claim_nothing(kind):
    """A direction alone is left of one coordinate, of two behind layer_norm."""
    for d in (1, 2, 3):
        layer = planted(d, n_outputs=d)
        found = pa.learn_from_queries(sublayer(layer, kind, residual=True), d)
        assert found.recovered == (d - (kind == "layer_norm") >= 2), found.outcome


def test_predictions_are_of_the_whole_function_in_every_shape(run, tmp_path):
    box = sublayer(turned(), "rms_norm", residual=True)
    found = pa.learn_from_queries(box, 6)
    last = pa.learn_from_queries(box, 6, mode="last")
    np.testing.assert_allclose(last.predict(X), found.predict(X)[:, -1], atol=1e-7)
    np.testing.assert_allclose(found.predict(X[0]), box(X[:1])[0], atol=1e-7)
    np.testing.assert_allclose(found.predict([X[0], X[1, :3]])[1], box(X[1:2, :3])[0], atol=1e-7)
    pa.save(found, tmp_path / "found.safetensors")
    np.save(tmp_path / "X.npy", X)
    assert run("predict", "found.safetensors", "X.npy", "-o", "Y.npy").exit_code == 0
    np.testing.assert_allclose(np.load(tmp_path / "Y.npy"), found.predict(X), atol=1e-12)


@pytest.mark.parametrize(("mode", "other"), [("full", "causal"), ("causal", "full")])
def test_the_mode_is_found_at_no_further_query(mode, other):
    layer = planted(mode=mode, bias=True, n_outputs=4)
    found, last, wrong = (
        pa.learn_from_queries(layer, bias=True, mode=given) for given in ("auto", "last", other)
    )
    assert (found.recovered, found.mode, last.recovered, last.mode) == (True, mode, True, "last")
    assert found.n_queries == last.n_queries
    np.testing.assert_array_equal(found.layer.attn, last.layer.attn)
    assert (wrong.outcome.name, wrong.mode) == ("other_rows_differ", other)
    assert "mode" in wrong.outcome.next_step


def test_other_rows_that_are_of_no_mode_are_a_layer_of_the_last_row():
    full = planted(mode="full")

    def masked(seen):
        """The last row attends to all tokens, the others to those at distances ``seen``."""

        def answers(X):
            far = oracle.behind(X.shape[1])
            rows = oracle.changed_attention(full, X, seen(far) | (far == 0))
            return np.append(rows[:, :-1], full(X)[:, -1:], axis=1)

        return answers

    def changed(change):
        return lambda X: np.append(change(full(X)[:, :-1]), full(X)[:, -1:], axis=1)

    assert pa.learn_from_queries(masked(lambda far: far >= 0), 6).mode == "causal"
    assert pa.learn_from_queries(changed(lambda rows: rows * (1 + 1e-12)), 6).mode == "full"
    for other in (
        masked(lambda far: (far >= 0) & (far < 2)),
        masked(lambda far: far < np.arange(len(far))[:, None]),
        *(changed(lambda rows, v=v: rows * v) for v in (np.nan, 0.0, 1e300, 1 + 1e-4)),
    ):
        found = pa.learn_from_queries(other, 6)
        assert (found.outcome.name, found.mode) == ("other_rows_differ", "last")
        np.testing.assert_allclose(found.layer(X), other(X)[:, -1], atol=1e-8)
        assert pa.learn_from_queries(other, 6, mode="last").recovered


RMS, PLAIN = "rms_norm", "layer_norm"
WRONG = [
    (None, False, {"normalisation": RMS}), (RMS, False, {"normalisation": PLAIN}),
    (RMS, True, {"normalisation": None}), (None, True, {"residual": False}),
    (None, False, {"residual": True}), (RMS, True, {"residual": False}),
    (PLAIN, False, {"residual": True}), (None, False, {"rotary": True}),
    (None, False, {"rotary": None}), (RMS, True, {"rotary": None}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "residual", "given"), WRONG)
def test_wrong_assumptions_are_named(kind, residual, given):
    layer = turned() if given == {"rotary": None} else LAYER
    found = pa.learn_from_queries(sublayer(layer, kind, residual), 6, **given)
    assert (found.outcome.name, found.recovered) == ("other_structure", False)
    assert next(iter(given)) in found.outcome.next_step


NORMED = sublayer(LAYER, "rms_norm")
NOTHING = {
    "linear": lambda X: X @ MAP,
    "linear, biased": lambda X: (X @ MAP + 0.5).astype(np.float32),
    "token and constant, biased": lambda X: X + 1.5,
    "another map beside": lambda X: X @ MAP + LAYER(X),
    "normalised alone": lambda X: oracle.normalised(X, "rms_norm"),
    "slopes": lambda X: oracle.changed_attention(
        LAYER, X, logits=lambda Z, _X: Z - 0.5 * np.abs(oracle.behind(Z.shape[1]))
    ),
    "norm afterwards": lambda X: oracle.normalised(X + LAYER(X), "layer_norm"),
    "squashed, float32": lambda X: (np.tanh(1e-3 * LAYER(X)) / 1e-3).astype(np.float32),
    "another eps": lambda X: LAYER(X / (np.sqrt(np.mean(X**2, axis=2, keepdims=True)) + 1e-4)),
}
SAID = {name: ("not_attention", lambda box=box: box) for name, box in NOTHING.items()} | {
    "more planes": ("not_attention", lambda: turned((1.0, 0.5, 0.2), n_dims=4)),
    "biases behind": ("bias_needed", lambda: sublayer(planted(bias=True), "rms_norm")),
    "batch behind": ("stateful", lambda: lambda X: X + NORMED(X) * (1 + 1e-6 * np.std(X))),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_no_attention_is_told_what_it_is(name):
    outcome, make = SAID[name]
    with np.errstate(all="ignore"):
        found = pa.learn_from_queries(
            make(), 4 if name == "more planes" else 6, bias="biased" in name, max_queries=20_000
        )
    assert (found.outcome.name, found.recovered) == (outcome, False), found.outcome
    assert found.outcome.next_step
    # Few queries are enough to see it.
    assert found.n_queries < 3000


@pytest.mark.parametrize("kind", KINDS)
def test_clipped_answers_are_named_with_their_bound(kind):
    for bound in (0.3, 8.0 if kind else 2.0):
        box = sublayer(LAYER, kind, residual=kind is not None)
        found = pa.learn_from_queries(lambda X, of=box, b=bound: np.clip(of(X), -b, b), 6)
        assert not found.outcome.ok
        assert f"{bound:g}," in found.outcome.sentence.split(":")[1]
    # Large equal answers are no bound, and one that only large tokens reach is none of the claim.
    for digits in ("float64", "bfloat16"):
        found = pa.learn_from_queries(sublayer(LAYER, kind, False, digits), 6, max_queries=900)
        assert "clipped" not in str(found.outcome)
    far = pa.learn_from_queries(lambda X: np.clip(LAYER(X), -1e3, 1e3), 6)
    assert far.recovered
    assert worst_plain(far.layer, LAYER) < 1e-8


@pytest.mark.parametrize("after", [2, 15])
def test_a_small_change_in_the_middle_of_the_run_is_noticed(after):
    """So small that held-out sequences do not show it: queries of the beginning do."""
    calls = []

    def drifting(X):
        calls.append(1)
        return LAYER(X) * (1 + 1e-10 * (len(calls) > after))

    assert pa.learn_from_queries(drifting, 6).outcome.name == "stateful"
