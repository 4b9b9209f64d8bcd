"""SoftmaxAttention against the slow reference, in every form of input."""

import json
import tracemalloc

import mpmath
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import polyattn as pa
from polyattn.cli.main import cli
from polyattn.errors import InvalidInput, OutOfRange
from polyattn.model import softmax
from polyattn.outcome import Outcome
from polyattn.reference.layer import softmax_forward, with_constant
from polyattn.sequences import MODES
from polyattn.softmax.result import LearnedSoftmax


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 10**6), small_blocks=st.booleans())
def test_forward_is_that_of_the_reference(mode, bias, seed, small_blocks):
    rng = np.random.default_rng(seed)
    n_heads, n_dims, n_outputs = rng.integers(1, 4, size=3)
    attn = rng.standard_normal((n_heads, n_dims + bias, n_dims + bias)) * 10.0 ** rng.integers(
        -3, 3
    )
    value = rng.standard_normal((n_heads, n_dims + bias, n_outputs))
    X = [rng.standard_normal((length, n_dims)) for length in rng.integers(1, 6, size=4)]
    expected = [softmax_forward(attn, value, with_constant(x) if bias else x, mode) for x in X]
    with pytest.MonkeyPatch.context() as patch:
        if small_blocks:
            patch.setattr(softmax, "BLOCK_LOGITS", 2)
        found = pa.SoftmaxAttention(attn, value, mode, bias)(X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(value).sum())


def _layer(mode="full", bias=False, seed=0, n_heads=2, n_dims=3, n_outputs=2):
    rng = np.random.default_rng(seed)
    width = n_dims + bias
    attn = rng.standard_normal((n_heads, width, width))
    value = rng.standard_normal((n_heads, width, n_outputs))
    return pa.SoftmaxAttention(attn, value, mode, bias)


def _exact(attn, value, X, t):
    """Output t of mode ``full`` in 60 digits: exponents of any size, no overflow."""
    with mpmath.workdps(60):
        outputs = [mpmath.mpf(0)] * value.shape[2]
        tokens = [[mpmath.mpf(float(x)) for x in token] for token in X]
        for A, V in zip(attn.tolist(), value.tolist(), strict=True):
            query = [mpmath.fdot(tokens[t], column) for column in zip(*A, strict=True)]
            logits = [mpmath.fdot(query, token) for token in tokens]
            weights = [mpmath.exp(logit - max(logits)) for logit in logits]
            mean = [
                mpmath.fdot(weights, column) / sum(weights) for column in zip(*tokens, strict=True)
            ]
            columns = zip(*V, strict=True)
            outputs = [y + mpmath.fdot(mean, v) for y, v in zip(outputs, columns, strict=True)]
        return np.array([float(y) for y in outputs])


@pytest.mark.parametrize("of_value", [1.0, 1e-150, 1e150])
@pytest.mark.parametrize(
    ("of_tokens", "of_attn"),
    [
        (1.0, 1e-150), (1.0, 1e150), (1e150, 1e-300), (1e-150, 1e300), (1e150, 1e150),
        (1e-150, 1e-150), (1e-150, 1.0), (1e-3, 1e8),
    ],
)  # fmt: skip
def test_extreme_scales(of_tokens, of_attn, of_value):
    rng = np.random.default_rng(5)
    attn = of_attn * rng.standard_normal((2, 3, 3))
    value = of_value * rng.standard_normal((2, 3, 2))
    X = of_tokens * rng.standard_normal((4, 3))
    layer = pa.SoftmaxAttention(attn, value)
    if abs(np.log10(of_tokens) + np.log10(of_value)) > 290:
        # At 1e±300 the answer is held, with what precision is left.
        assert np.all(np.isfinite(layer(X)))
        return
    expected = np.array([_exact(attn, value, X, t) for t in range(len(X))])
    size = np.abs(X).max() * np.abs(value).sum()
    np.testing.assert_allclose(layer(X), expected, rtol=0, atol=1e-13 * size)


def test_what_float64_cannot_hold_is_refused():
    layer = pa.SoftmaxAttention(np.eye(2), 1e200 * np.eye(2))
    with pytest.raises(OutOfRange, match="float64 cannot hold"):
        layer(np.full((1, 2, 2), 1e200))


def test_sharp_attention_picks_and_ties_are_shared():
    X = np.array([[1.0, 2.0], [3.0, -1.0], [3.0, -1.0]])
    sharp = pa.SoftmaxAttention(1e300 * np.array([[1.0, 0.0], [0.0, 0.0]]), np.eye(2))
    np.testing.assert_array_equal(sharp(X), [[3.0, -1.0]] * 3)
    away = pa.SoftmaxAttention(-sharp.attn, np.eye(2))
    np.testing.assert_array_equal(away(X), [[1.0, 2.0]] * 3)
    tied = pa.SoftmaxAttention(np.zeros((2, 2)), np.eye(2))
    np.testing.assert_allclose(tied(X), [X.mean(axis=0)] * 3, rtol=1e-15)
    # Two tokens with the largest logit share the weight, whatever the sharpness.
    Y = np.array([[1.0, 2.0], [1.0, -4.0], [0.0, 9.0]])
    np.testing.assert_array_equal(sharp(Y)[0], [1.0, -1.0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_forms_of_input_do_not_matter(mode, bias, tmp_path):
    layer = _layer(mode, bias)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5, 4, 3)).astype(np.float32)
    expected = layer(X.astype(np.float64))
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for form in (X, np.asfortranarray(X), mapped, X[::-1][::-1], pa.SequenceBatch.from_array(X)):
        np.testing.assert_array_equal(np.stack(list(layer(form))), expected)
    one = layer(X[2])
    assert one.shape == expected[2].shape
    np.testing.assert_allclose(one, expected[2], rtol=1e-14, atol=1e-15)
    ragged = [X[0], X[1, :1], X[2, :3]]
    for sequence, outputs in zip(ragged, layer(ragged), strict=True):
        np.testing.assert_allclose(outputs, layer(sequence), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("mode", MODES)
def test_one_token_and_one_coordinate(mode):
    layer = _layer(mode)
    X = np.random.default_rng(2).standard_normal((6, 1, 3))
    total = X[:, 0] @ layer.value.sum(axis=0)
    np.testing.assert_allclose(layer(X).reshape(6, 2), total, rtol=1e-14, atol=1e-14)
    scalar = pa.SoftmaxAttention([[[0.3]], [[0.7]]], [[[2.0]], [[-0.4]]], mode)
    pair = scalar(np.array([[-1.0], [1.0]])).ravel()
    # On tokens +1 and -1 a head of one coordinate is tanh(A) V.
    assert pair[-1] == pytest.approx(2 * np.tanh(0.3) - 0.4 * np.tanh(0.7), rel=1e-14)


@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 10**6))
def test_tokens_that_are_attended_to_have_no_order(mode, seed):
    rng = np.random.default_rng(seed)
    layer = _layer(mode, seed=seed)
    X = rng.standard_normal((5, 3))
    order = np.append(rng.permutation(4), 4)
    before, after = layer(X), layer(X[order])
    if mode == "full":
        before = before[order]
    if mode == "causal":
        before, after = before[-1], after[-1]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-13)


def test_causal_outputs_are_last_outputs_of_beginnings():
    causal, last = _layer("causal"), _layer("last")
    X = np.random.default_rng(3).standard_normal((7, 3))
    expected = [last(X[: t + 1]) for t in range(7)]
    np.testing.assert_allclose(causal(X), expected, rtol=0, atol=1e-13)


def test_long_sequences_need_bounded_memory():
    layer = _layer("causal", n_heads=1, n_dims=2, n_outputs=1)
    X = np.random.default_rng(4).standard_normal((1, 3000, 2))
    tracemalloc.start()
    outputs = layer(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # All 3000 x 3000 logits would be 72 MB, in several copies.
    assert peak < 40e6
    np.testing.assert_allclose(outputs[0, 2999], layer(X[0, ::-1][::-1])[2999], atol=1e-13)
    np.testing.assert_allclose(outputs[0, :20], layer(X[0, :20]), atol=1e-13)


def test_equality_hash_and_repr():
    layer, same, other = _layer(), _layer(), _layer(seed=1)
    assert layer == same
    assert hash(layer) == hash(same)
    assert layer != other
    assert layer != _layer("causal")
    linear = pa.LinearAttention(layer.attn, layer.value, "full")
    assert layer != linear
    assert linear != layer
    assert hash(layer) != hash(linear)
    signed = pa.SoftmaxAttention([[[0.0]]], [[[1.0]]]), pa.SoftmaxAttention([[[-0.0]]], [[[1.0]]])
    assert signed[0] == signed[1]
    assert hash(signed[0]) == hash(signed[1])
    assert repr(layer) == "SoftmaxAttention(2 heads, 3 -> 2, mode 'full')"
    assert repr(_layer("last", True, n_heads=1)) == (
        "SoftmaxAttention(1 head, 3 -> 2, mode 'last', bias)"
    )


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_files_keep_every_bit(mode, bias, tmp_path):
    layer = _layer(mode, bias)
    pa.save(layer, tmp_path / "layer.safetensors")
    loaded = pa.load(tmp_path / "layer.safetensors")
    assert type(loaded) is pa.SoftmaxAttention
    assert loaded == layer
    assert loaded.attn.tobytes() == layer.attn.tobytes()
    assert loaded.value.tobytes() == layer.value.tobytes()


@pytest.mark.parametrize("exponent", [-2, 0, 3])
def test_softmax_weighs_by_exponentials(exponent):
    shares = np.array([[0.125, 0.25, 0.625], [0.5, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = 5.0 + np.ldexp(np.log(shares), -exponent)
    np.testing.assert_allclose(softmax.softmax(logits.copy(), exponent), shares, rtol=1e-14)
    if exponent == 0:
        np.testing.assert_allclose(softmax.softmax(logits.copy()), shares, rtol=1e-14)


def test_misuse_is_named():
    layer = _layer()
    with pytest.raises(InvalidInput, match="NaN or infinity in 1 of"):
        layer(np.array([[[np.nan, 0.0, 0.0]]]))
    with pytest.raises(InvalidInput, match="3 coordinates; got 2"):
        layer(np.zeros((1, 2, 2)))
    with pytest.raises(InvalidInput, match="attn contains NaN"):
        pa.SoftmaxAttention([[np.nan]], [[1.0]])
    with pytest.raises(InvalidInput, match="must agree in H and d"):
        pa.SoftmaxAttention(np.zeros((2, 3, 3)), np.zeros((1, 3, 3)))
    with pytest.raises(InvalidInput, match="mode must be one of"):
        pa.SoftmaxAttention([[1.0]], [[1.0]], mode="first")
    with pytest.raises(InvalidInput, match="at least 2 rows"):
        pa.SoftmaxAttention([[1.0]], [[1.0]], bias=True)


# The verbs and the audit --------------------------------------------------------------------


def test_verbs_take_softmax_layers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    layer, X = _layer("causal"), np.random.default_rng(1).standard_normal((40, 3, 3))
    pa.save(layer, "layer.safetensors")
    np.savez("data.npz", X=X, Y=layer(X))
    run = CliRunner().invoke
    shown = json.loads(run(cli, ["show", "layer.safetensors", "--json"]).stdout)
    assert (shown["kind"], shown["n_heads"]) == ("softmax_attention", 2)
    np.testing.assert_array_equal(shown["attn"], layer.attn)
    assert "head 2" in run(cli, ["show", "layer.safetensors"]).stdout
    done = run(cli, ["predict", "layer.safetensors", "data.npz", "-o", "out.npy"])
    assert done.exit_code == 0
    np.testing.assert_array_equal(np.load("out.npy"), layer(X))
    result = LearnedSoftmax(
        layer, Outcome("recovered", "Found.", ""), 0.0, 0.0, 0.0, "moments", 36, 4,
        np.abs(layer.attn), np.abs(layer.value), np.zeros(2), np.zeros(2),
    )  # fmt: skip
    pa.save(result, "learned.safetensors")
    shown = json.loads(run(cli, ["show", "learned.safetensors", "--json"]).stdout)
    assert (shown["kind"], shown["n_heads"]) == ("learned_softmax", 2)
    assert "Found." in run(cli, ["show", "learned.safetensors"]).stdout
    assert not run(cli, ["predict", "learned.safetensors", "data.npz", "-o", "l.npy"]).exit_code
    np.testing.assert_array_equal(np.load("l.npy"), layer(X))
    audited = run(cli, ["audit", "layer.safetensors", "data.npz"])
    assert "fits better than any linear attention layer can" in " ".join(audited.stdout.split())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bias", [False, True])
def test_an_audit_compares_with_linear_attention(mode, bias):
    layer = _layer(mode, bias)
    X = np.random.default_rng(1).standard_normal((60, 3, 3))
    found = pa.audit(layer, X, layer(X))
    assert found.risk < 1e-25
    assert found.optimal_risk > 1e-4
    assert found.distance is None
    assert (found.certificate.mode, found.certificate.bias) == (mode, bias)
    # A layer that is worse than the best linear one is told so.
    worse = pa.audit(_layer(mode, bias, seed=1), X, layer(X))
    assert worse.gap > 0
    assert worse.implied is not None
    with pytest.raises(InvalidInput, match="leave it out"):
        pa.audit(layer, X, layer(X), mode="full" if mode == "last" else "last")
