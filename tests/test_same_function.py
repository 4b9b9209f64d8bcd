"""Layers compared as functions: the same one, written in one way, and matched head by head."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracle
import polyattn as pa
from oracle import EPS, FORMS
from polyattn.errors import InvalidInput, InvalidType
from test_layers import linear, remade, rotary, softmax

seeds = st.integers(0, 2**32 - 1)
FREQUENCIES = (1.3, 0.0, 0.2, np.pi)


def mixed(layer, seed=1):
    """The same coefficients: the heads of each scale mixed with one another."""
    rng = np.random.default_rng(seed)
    attn, value = np.zeros_like(layer.attn), np.zeros_like(layer.value)
    for scale in np.unique(layer.head_scales):
        own = layer.head_scales == scale
        mixture = np.linalg.qr(rng.standard_normal((own.sum(), own.sum())))[0] * 2.0
        attn[own] = np.einsum("gh,hlb->glb", mixture, layer.attn[own])
        value[own] = np.einsum("hg,hca->gca", np.linalg.inv(mixture), layer.value[own])
    return remade(layer, attn=attn, value=value)


def disguised_linear(layer, seed=1):
    """Mixed, and two more heads that cancel once products are folded."""
    rng, layer = np.random.default_rng(seed), mixed(layer, seed)
    query, one, other = rng.standard_normal((3, layer.attn.shape[1]))
    output = rng.standard_normal(layer.n_outputs)
    attn = np.concatenate([layer.attn, [np.outer(query, one), np.outer(query, other)]])
    cancelling = [np.outer(other, output), -np.outer(one, output)]
    value = np.concatenate([layer.value, cancelling])
    return pa.LinearAttention(attn, value, layer.mode, layer.bias)


def disguised_softmax(layer, seed=1):
    """Shuffled, one head split in two, an idle head, hidden parts changed."""
    rng = np.random.default_rng(seed)
    part = rng.standard_normal(layer.value.shape[1:])
    idle = rng.standard_normal((1, *layer.attn[0].shape))
    attn = np.concatenate([layer.attn, layer.attn[:1], idle])
    value = np.concatenate([layer.value, part[None], np.zeros((1, *part.shape))])
    value[0] -= part
    if layer.bias:
        attn[:, :, -1] += rng.standard_normal(attn.shape[:2])
        moved = rng.standard_normal((len(value), layer.n_outputs))
        value[:, -1] += moved - moved.mean(axis=0)
    order = rng.permutation(len(attn))
    return pa.SoftmaxAttention(attn[order], value[order], layer.mode, layer.bias)


def as_planes(layer):
    half = len(layer.frequencies)
    return [W[..., :half] + 1j * W[..., half:] for W in (layer.query, layer.key)]


def from_planes(planes, frequencies, like, value=None):
    pair = tuple(np.concatenate([each.real, each.imag], axis=2) for each in planes)
    value = like.value if value is None else value
    return remade(like, attn=pair, value=value, rotary=frequencies)


def disguised_rotary(layer, seed=1):
    """Planes turned, conjugated, split, idle and shuffled; heads split, idle and shuffled."""
    rng = np.random.default_rng(seed)
    planes, frequencies = as_planes(layer), layer.frequencies.copy()
    shape = planes[0][:, :1].shape
    factor = rng.uniform(0.5, 2.0, shape) * np.exp(1j * rng.uniform(0, 6, shape))
    planes = [planes[0] * factor, planes[1] / factor.conj()]
    # Integers do not tell f from f + 2 pi, nor from -f with everything conjugate.
    flipped = rng.random(len(frequencies)) < 0.5
    planes = [np.where(flipped, each.conj(), each) for each in planes]
    frequencies = np.where(flipped, -frequencies, frequencies)
    frequencies = frequencies + 2 * np.pi * rng.integers(-3, 4, len(frequencies))
    planes = [np.concatenate([each, each[..., :1], each[..., :1]], axis=2) for each in planes]
    planes[1][..., 0] *= 0.25
    planes[1][..., -2] *= 0.75
    planes[0][..., -1] = 0.0
    order = rng.permutation(len(frequencies) + 2)
    frequencies = np.append(frequencies, [frequencies[0], 0.7])[order]
    heads = rng.permutation(layer.n_heads + 2)
    planes = [np.concatenate([each, each[:2]])[heads][..., order] for each in planes]
    value = np.concatenate([layer.value, layer.value[:1], np.zeros_like(layer.value[:1])])
    value[0] *= 0.25
    value[-2] *= 0.75
    if layer.bias:
        value[:, -1] += rng.permutation([1.0, -1.0, 2.0, -2.0, 0.0])[:, None]
    return from_planes(planes, frequencies, layer, value[heads])


def worst(found, planted):
    match = pa.match_heads(found, planted)
    return max(match.worst_attn, match.worst_value)


KINDS = {
    "linear": (lambda seed, bias: linear({"mode": "causal", "bias": bias}, n_heads=3, seed=seed),
               disguised_linear, 1e-5),
    "softmax": (lambda seed, bias: softmax(bias=bias, seed=seed), disguised_softmax, 1e-12),
    "rotary": (lambda seed, bias: rotary("full", bias, seed, frequencies=FREQUENCIES),
               disguised_rotary, 1e-7),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, bias=st.booleans(), power=st.sampled_from([0, 0, -60, 60]))
def test_a_disguise_is_seen_through(kind, seed, bias, power):
    """Whatever the size of the outputs, and of coefficients."""
    make, disguise, tolerance = KINDS[kind]
    layer = make(seed, bias)
    both = layer, disguise(layer, seed)
    layer, other = (remade(each, value=10.0**power * each.value) for each in both)
    X = np.random.default_rng(seed).standard_normal((3, 6, 3))
    size = np.abs(layer(X)).max()
    np.testing.assert_allclose(other(X), layer(X), rtol=0, atol=1e-9 * size)
    assert pa.same_function(layer, other)
    assert pa.same_function(other, layer)
    written, again = (pa.canonical(each, 1e-9 * (kind == "rotary")) for each in (layer, other))
    assert written.n_heads == again.n_heads
    assert kind == "linear" or written.n_heads == 3
    # Rounding turns heads by eps over the distance of their norms.
    assert worst(again, written) < tolerance
    np.testing.assert_allclose(written(X), layer(X), rtol=0, atol=1e-9 * size)
    assert worst(pa.canonical(written), written) < tolerance
    if kind == "rotary":
        np.testing.assert_allclose(written.frequencies, [0.0, 0.2, 1.3, np.pi], atol=1e-9)
        np.testing.assert_allclose(again.frequencies, written.frequencies, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, bias=st.booleans())
def test_a_small_change_of_any_part_is_noticed_and_rounding_is_not(kind, seed, bias):
    layer = KINDS[kind][0](seed, bias)
    place = tuple(np.random.default_rng(seed).integers((3, 3 + bias, 2)))
    for size, same in ((1e-6, False), (1e-12, True)):

        def moved(part, size=size):
            part = part.copy()
            part[place] += size
            return part

        changes = {"attn": moved(layer.attn), "value": moved(layer.value)}
        if kind == "rotary":
            changes |= {"attn": (moved(layer.query), layer.key)}
            changes |= {"rotary": layer.frequencies * (1 + size)}
        for part, changed in changes.items():
            assert pa.same_function(layer, remade(layer, **{part: changed})) is same


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, bias=st.booleans())
def test_heads_are_matched_up_to_order_and_what_is_not_seen(kind, seed, bias):
    planted, rng = KINDS[kind][0](seed, bias), np.random.default_rng(seed)
    order, own = rng.permutation(3), {"head_scales": [0, 0]} if kind == "linear" else {}

    def chosen(heads, factor=1.0):
        if kind == "rotary":
            return factor * planted.query[heads], planted.key[heads]
        return factor * planted.attn[heads]

    attn, value = chosen(order, 1 + 1e-6), planted.value[order].copy()
    expected = (1e-6, 0.0) if kind != "linear" else (5e-7, 5e-7)  # shared by attn and value
    if kind == "linear":
        scale = rng.choice([-3.0, 0.01, 1.0, 200.0], (3, 1, 1))
        attn, value = scale * attn, value / scale
    elif bias:
        value[:, -1] += np.array([[1.0], [-3.0], [2.0]])
        if kind == "softmax":
            attn[:, :, -1] = 7.0
    match = pa.match_heads(remade(planted, attn=attn, value=value), planted)
    np.testing.assert_array_equal(order[match.order], np.arange(3))
    np.testing.assert_allclose(match.attn_errors, expected[0], rtol=1e-3)
    np.testing.assert_allclose(match.value_errors, expected[1], rtol=1e-3, atol=1e-14)
    # Heads that are left out, and those that are too many, are named.
    fewer = remade(planted, attn=chosen([2, 0]), value=planted.value[[2, 0]], **own)
    match, more = pa.match_heads(fewer, planted), pa.match_heads(planted, fewer)
    np.testing.assert_array_equal(match.order, [1, -1, 0])
    assert (match.missing, match.extra, more.missing, more.extra) == ((1,), (), (), (1,))
    assert match.attn_errors[1] == match.value_errors[1] == 1.0
    np.testing.assert_array_equal(more.order, [2, 0])
    assert more.worst_attn == more.worst_value == np.inf


def test_zero_and_idle_layers_keep_one_head():
    zero = pa.LinearAttention(np.zeros((2, 2, 2)), np.ones((2, 2, 1)), "full")
    assert pa.canonical(zero) == pa.LinearAttention(np.zeros((2, 2)), np.zeros((2, 1)), "full")
    turned = rotary()
    for change in ({"value": 0 * turned.value}, {"attn": (0 * turned.query, turned.key)}):
        idle = remade(turned, **change)
        assert pa.canonical(idle).n_heads == 1
        assert pa.same_function(pa.canonical(idle), idle)
    # A head without a value computes nothing, whatever its attn is.
    layer = linear(n_heads=3)
    off = np.array([1.0, 0.0, 1.0])[:, None, None]
    dead = remade(layer, value=layer.value * off)
    assert worst(remade(dead, attn=dead.attn * (1 + 6 * (off == 0))), dead) == 0.0


@pytest.mark.parametrize("name", FORMS)
def test_linear_layers_of_every_form_are_compared(name):
    form, context = oracle.split_context(FORMS[name])
    layer = linear(form, 3, context, n_heads=2 * oracle.n_scales(form))
    order = np.random.default_rng(0).permutation(layer.n_heads)
    moved = remade(
        layer, attn=4 * layer.attn[order], value=layer.value[order] / 4,
        head_scales=layer.head_scales[order],
    )  # fmt: skip
    assert pa.same_function(layer, moved)
    assert pa.coefficient_distance(layer, moved) <= 1e-13 * np.linalg.norm(layer.coef)
    parts = [each for each in ("skip", "intercept") if getattr(layer, each) is not None]
    others = [remade(layer, **{part: getattr(layer, part) + 1}) for part in parts]
    others.append(remade(layer, attn=1.5 * layer.attn))
    for other in others:
        assert not pa.same_function(layer, other)
        expected = np.linalg.norm(layer.coef - other.coef)
        assert pa.coefficient_distance(layer, other) == pytest.approx(expected, rel=1e-13)
    written, again = pa.canonical(layer), pa.canonical(mixed(layer))
    assert (written.form, written.n_context_dims) == (layer.form, context)
    assert np.all(np.diff(written.head_scales) >= 0)
    assert pa.same_function(written, layer, tolerance=1e3 * EPS)
    np.testing.assert_array_equal(written.head_scales, again.head_scales)
    assert worst(again, written) < 1e-6
    for part in ("skip", "intercept"):
        np.testing.assert_array_equal(getattr(written, part), getattr(layer, part))


def test_canonical_heads_are_orthogonal_ordered_and_of_one_norm():
    written = pa.canonical(linear(n_heads=4, n_dims=4))
    attn, value = (each.reshape(written.n_heads, -1) for each in (written.attn, written.value))
    powers = np.diag(attn @ attn.T)
    np.testing.assert_allclose(attn @ attn.T, np.diag(powers), atol=1e-12)
    np.testing.assert_allclose(value @ value.T, np.diag(powers), atol=1e-12)
    assert np.all(np.diff(powers) < 0)
    assert all(A[np.argmax(np.abs(A) >= 0.9 * np.abs(A).max())] > 0 for A in attn)
    # The tensor of the heads is the one of least norm: symmetric in key and value.
    T = np.einsum("hca,hlb->acbl", written.value, written.attn)
    np.testing.assert_allclose(T, T.transpose(0, 2, 1, 3), atol=1e-12)


def test_heads_of_equal_or_nearly_equal_norm_are_written_in_one_way():
    identity = pa.LinearAttention(np.eye(3), np.eye(3))
    written = pa.canonical(identity)
    assert len(set(np.linalg.norm(written.attn, axis=(1, 2)).round(9))) < written.n_heads == 9
    for seed in range(3):
        again = pa.canonical(disguised_linear(identity, seed))
        np.testing.assert_allclose(again.attn, written.attn, atol=1e-13)
        np.testing.assert_allclose(again.value, written.value, atol=1e-13)


def test_scales_of_heads_count_and_canonical_layers_have_no_more_heads_than_they_need():
    form = {"mode": "causal", "query": [0, 1, 2], "key": [1, 2, 3], "value": [0, 4]}
    layer = linear(form, 5)
    both = [np.concatenate([layer.attn] * 2), np.concatenate([layer.value, 3 * layer.value])]
    doubled = remade(layer, attn=both[0], value=both[1], head_scales=None)
    assert pa.canonical(doubled).n_heads == 2  # nothing folds
    layer = remade(linear({"mode": "causal", "decay": (0.5, 0.9)}, 2), head_scales=[0, 1])
    other = remade(layer, head_scales=[1, 1])
    assert not pa.same_function(layer, other)
    assert pa.match_heads(other, layer).order.tolist() == [-1, 1]
    for size, options, scales in ((1e-14, (), {0}), (1e-4, (), {0, 1}), (1e-4, (1e-2,), {0})):
        small = remade(layer, attn=layer.attn * np.array([1.0, size])[:, None, None])
        assert set(pa.canonical(small, *options).head_scales) == scales


def one_entry(form, place, size=1.0):
    query, key, value = place
    attn, values = np.zeros((3, 3)), np.zeros((3, 1))
    weight = 1.0 if form.key is None else form.key[key, key]
    attn[query, key], values[value] = size / weight, 1.0
    return pa.LinearAttention(attn, values, form=form, head_scales=[0])


@pytest.mark.parametrize(
    ("form", "other"),
    [
        (pa.Form(mode="causal", window=1), (2, 1, 0)),
        (pa.Form(mode="causal", lags=2), (1, 0, 2)),
        (pa.Form(key=np.diag([1.0, 2.0, 4.0])), (0, 2, 1)),
    ],
)
def test_the_same_function_may_have_other_coefficients(form, other):
    """Of one token v[c] k[b] q[l] is the same product in another order."""
    one, same = one_entry(form, (0, 1, 2)), one_entry(form, other)
    assert pa.coefficient_distance(one, same) > 0.1
    assert pa.same_function(one, same)
    near = one_entry(form, other, 1.001)
    assert not pa.same_function(one, near)
    assert pa.same_function(one, near, tolerance=0.01)


def test_constants_that_a_mean_leaves_as_they_are():
    attn, value, skip = np.zeros((1, 3, 3)), np.zeros((1, 3, 1)), np.array([[2.0], [3.0], [4.0]])
    attn[0, :, 2], value[0, 2] = skip[:, 0], 1.0
    for same in (True, False):  # without a token to attend to, only the linear map is left
        form = pa.Form(mean=True, bias=True, skip=True, include_query=same)
        map_alone = pa.LinearAttention(0 * attn, 0 * value, form=form, skip=skip)
        assert pa.same_function(pa.LinearAttention(attn, value, form=form), map_alone) is same


@pytest.mark.slow
def test_large_layers_are_compared_without_all_their_coefficients_at_once():
    """67 million coefficients, of which the norm is known."""
    rng = np.random.default_rng(0)
    A, v = rng.standard_normal((512, 512)), rng.standard_normal(512)
    layer = pa.LinearAttention(A, v[:, None])
    powers = (v @ v) * np.sum(A**2, axis=1) + (A @ v) ** 2 - (A**2) @ v**2
    near = pa.LinearAttention(1.5 * A, v[:, None])
    expected = 0.5 * np.sqrt(powers.sum())
    assert pa.coefficient_distance(layer, near) == pytest.approx(expected, rel=1e-12)
    assert pa.same_function(layer, pa.LinearAttention(2.0 * A, v[:, None] / 2.0))
    assert not pa.same_function(layer, near)


def test_heads_that_cancel_or_are_nearly_equal_are_dropped():
    A, B, V, W = np.eye(2), 2 * np.eye(2), np.ones((2, 1)), np.array([[1.0], [2.0]])

    def layer(*heads):
        return pa.SoftmaxAttention(*map(np.stack, zip(*heads, strict=True)))

    assert pa.canonical(layer((B, W), (A, V), (A, W))) == layer((A, V + W), (B, W))
    assert pa.canonical(layer((A, V), (A, -V))) == layer((0 * A, 0 * V))
    chain = layer((A, V), (A + 2e-10, V), (A + 1e-10, V))
    assert pa.canonical(chain, tolerance=1.5e-10).n_heads == 1
    # On two tokens sigmoid(z) + sigmoid(-z) = 1; sequences of any length are meant.
    assert not pa.same_function(layer((A, V), (-A, V), (0 * A, -2 * V)), layer((A, 0 * V)))


def test_what_a_constant_coordinate_hides():
    layer = softmax(bias=True)
    written = pa.canonical(layer)
    assert not np.any(written.attn[:, :, -1])
    total = layer.value[:, -1].sum(axis=0)
    np.testing.assert_allclose(written.value[:, -1], [total / 3] * 3)
    # Of turned planes it hides what is not turned.
    layer = rotary(bias=True, frequencies=FREQUENCIES)
    for plane, hidden in ((1, True), (0, False), (2, False), (3, False)):
        planes = as_planes(layer)
        planes[1][:, -1, plane] += 2.0
        other = from_planes(planes, layer.frequencies, layer)
        assert pa.same_function(layer, other) is hidden
        assert (pa.match_heads(other, layer).worst_attn < 1e-3) is hidden


def test_a_hopeless_head_does_not_disturb_the_others():
    """The second head found is far from both, three times as far from the small one."""
    left, right = np.eye(2)[:, :1], np.eye(2)[:, 1:]
    planted = pa.SoftmaxAttention([np.diag([10.0, 0.0]), np.diag([0.0, 1.0])], [left, right])
    attn = [[[0.0, 0.3], [0.0, 1.0]], [[0.0, 0.0], [3.0, 0.0]]]
    found = pa.SoftmaxAttention(attn, [left, -left - right])
    assert pa.match_heads(found, planted).order.tolist() == [0, 1]


@pytest.mark.parametrize("bias", [False, True])
def test_planes_that_are_not_turned_are_no_positions(bias):
    turned = rotary(bias=bias, frequencies=[0.0, 2 * np.pi])
    plain = pa.SoftmaxAttention(turned.attn, turned.value, turned.mode, bias)
    assert pa.same_function(turned, plain)
    assert pa.canonical(turned).frequencies is None
    np.testing.assert_allclose(pa.canonical(turned).attn, pa.canonical(plain).attn, atol=1e-13)
    assert pa.match_heads(turned, plain).worst_attn < 1e-14
    other = rotary(bias=bias, frequencies=[0.0, 1e-3])
    assert not pa.same_function(other, plain)
    assert pa.match_heads(other, plain).worst_attn > 0.1


@pytest.mark.parametrize("n_dims", [3, 40])
def test_rotary_heads_differ_by_the_root_mean_square_over_offsets(n_dims):
    """Frequencies of which 40 offsets are whole periods; few and many coordinates."""
    query, key = np.random.default_rng(6).standard_normal((2, 2, n_dims, 8))
    frequencies = 2 * np.pi * np.array([0.0, 0.1, 0.25, 0.5])
    one, other = (
        pa.SoftmaxAttention((query[[h]], key[[h]]), np.ones((1, n_dims, 1)), rotary=frequencies)
        for h in range(2)
    )
    attn = np.array([[each.attn_at(o)[0] for o in range(40)] for each in (one, other)])
    match = pa.match_heads(one, other)
    assert match.worst_attn == pytest.approx(oracle.relative_error(attn[0], attn[1]), rel=1e-12)


def test_only_like_layers_are_compared():
    plain, layer = linear(), softmax()
    decays = [linear({"mode": "causal", "decay": decay}) for decay in (0.5, 0.6)]
    for call, word in [
        (lambda: pa.same_function(layer, plain), "SoftmaxAttention and LinearAttention"),
        (lambda: pa.coefficient_distance(layer, layer), "LinearAttention"),
        (lambda: pa.same_function(layer, layer, tolerance=-1), "tolerance"),
        (lambda: pa.same_function(layer, softmax(mode="last")), "mode"),
        (lambda: pa.same_function(layer, remade(layer, value=layer.value[..., :1])), "n_outputs"),
        (lambda: pa.same_function(*decays), "decay=0.6"),
        (lambda: pa.match_heads(plain, linear({}, 3, 2)), "n_context_dims"),
    ]:
        with pytest.raises((InvalidInput, InvalidType), match=word):
            call()
