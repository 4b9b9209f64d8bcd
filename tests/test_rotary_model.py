"""SoftmaxAttention with rotary positions: against the slow reference and against Llama's module."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.model import softmax
from polyattn.reference.layer import with_constant
from polyattn.reference.rotary import rotary_forward
from polyattn.sequences import MODES
from rotary_cases import random_rotary


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), small_blocks=st.booleans())
def test_forward_is_that_of_the_reference(mode, bias, seed, small_blocks):
    rng = np.random.default_rng(seed)
    n_heads, n_dims, n_outputs, half = rng.integers(1, 4, size=4)
    query, key = rng.standard_normal((2, n_heads, n_dims + bias, 2 * half))
    query *= 10.0 ** rng.integers(-3, 3)
    value = rng.standard_normal((n_heads, n_dims + bias, n_outputs))
    frequencies = rng.standard_normal(half) * rng.integers(0, 2, half)
    X = [rng.standard_normal((length, n_dims)) for length in rng.integers(1, 6, size=4)]
    expected = [
        rotary_forward(query, key, value, frequencies, with_constant(x) if bias else x, mode)
        for x in X
    ]
    with pytest.MonkeyPatch.context() as patch:
        if small_blocks:
            patch.setattr(softmax, "BLOCK_LOGITS", 2)
        found = pa.SoftmaxAttention((query, key), value, mode, bias, rotary=frequencies)(X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12 * np.abs(value).sum())


@pytest.mark.parametrize("bias", [False, True])
def test_it_is_the_attention_of_llama(bias):
    torch = pytest.importorskip("torch")
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        attention_bias=bias, attn_implementation="sdpa",  # eager computes softmax in float32
    )  # fmt: skip
    torch.manual_seed(0)
    module = llama.LlamaAttention(config, layer_idx=0).double().eval()
    n, r, theta = 7, 6, 10000.0
    X = np.random.default_rng(0).standard_normal((2, n, 24))

    def weights(name, heads, axis):
        part = getattr(module, name)
        W = part.weight.detach().numpy().T
        if part.bias is not None:
            W = np.vstack([W, torch.nn.init.normal_(part.bias).detach().numpy()])
        return W.reshape(len(W), heads, r).transpose(1, 0, 2) if axis else W

    query, key, V = weights("q_proj", 4, 1), weights("k_proj", 2, 1), weights("v_proj", 2, 1)
    key, V = np.repeat(key, 2, axis=0), np.repeat(V, 2, axis=0)
    out = weights("o_proj", 4, 0)
    value = V @ out[:24].reshape(4, r, 24)
    if bias:
        value[:, -1] += out[-1] / 4
    layer = pa.SoftmaxAttention((query / np.sqrt(r), key), value, "causal", bias, rotary=theta)
    angles = np.arange(n)[:, None] * np.tile(layer.frequencies, 2)
    turns = tuple(torch.tensor(each(angles))[None] for each in (np.cos, np.sin))
    mask = torch.triu(torch.full((n, n), -torch.inf, dtype=torch.float64), 1)[None, None]
    with torch.no_grad():
        expected = module(torch.tensor(X), position_embeddings=turns, attention_mask=mask)[0]
        # Llama's own cosines are those of float32.
        own = llama.LlamaRotaryEmbedding(config)(torch.tensor(X), torch.arange(n)[None])
        near = module(torch.tensor(X), position_embeddings=own, attention_mask=mask)[0]
    np.testing.assert_allclose(layer(X), expected.numpy(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(layer(X), near.numpy(), rtol=0, atol=1e-5)
    # Negative control: the layer without its rotation is another one.
    still = pa.SoftmaxAttention(layer.attn, value, "causal", bias)
    assert np.abs(still(X) - expected.numpy()).max() > 1e-2


@pytest.mark.parametrize("mode", MODES)
def test_attention_at_an_offset_makes_the_logits(mode):
    """A(o) of two tokens: the layer is the plain one with the logits of that offset."""
    layer = random_rotary(mode=mode, bias=True)
    np.testing.assert_allclose(
        layer.attn, layer.query @ layer.key.transpose(0, 2, 1), rtol=1e-14, atol=1e-15
    )
    x, z = np.random.default_rng(1).standard_normal((2, layer.n_dims))
    X = np.vstack([z, np.zeros((4, layer.n_dims)), x])
    tokens = with_constant(X)
    weights = []
    for h in range(layer.n_heads):
        logits = [tokens[-1] @ layer.attn_at(5 - s)[h] @ tokens[s] for s in range(6)]
        weights.append(np.exp(logits - np.max(logits)))
    expected = sum(w @ tokens @ V / w.sum() for w, V in zip(weights, layer.value, strict=True))
    found = layer(X)
    np.testing.assert_allclose(found if mode == "last" else found[-1], expected, atol=1e-13)
    assert layer.attn_at(np.int64(3)).shape == layer.attn.shape
    assert not layer.attn_at(3).flags.writeable
    for wrong in (1.0, True, "1"):
        with pytest.raises(InvalidType, match="offset must be an integer"):
            layer.attn_at(wrong)
    with pytest.raises(InvalidInput, match=r"at most 2\*\*53"):
        layer.attn_at(10**400)
    plain = pa.data.random_softmax_layer(3)
    assert plain.attn_at(7) is plain.attn
    assert plain.query is plain.key is plain.frequencies is None


def test_only_offsets_count():
    layer = random_rotary(mode="causal")
    X = np.random.default_rng(2).standard_normal((9, layer.n_dims))
    order = np.random.default_rng(3).permutation(8)
    assert np.abs(layer(X[[*order, 8]])[-1] - layer(X)[-1]).max() > 1e-3
    window = pa.SoftmaxAttention(
        (layer.query, layer.key), layer.value, "full", rotary=layer.frequencies
    )
    np.testing.assert_allclose(window(X[2:5]), window(np.array(X[2:5])), rtol=0)
    backwards = pa.SoftmaxAttention(
        (layer.query, layer.key), layer.value, "full", rotary=-layer.frequencies
    )
    np.testing.assert_allclose(window(X), backwards(X[::-1])[::-1], atol=1e-13)


def test_frequencies():
    query, key, value = np.random.default_rng(4).standard_normal((3, 2, 4, 6))
    layer = pa.SoftmaxAttention((query, key), value, rotary=100.0)
    np.testing.assert_allclose(layer.frequencies, [1.0, 100 ** (-1 / 3), 100 ** (-2 / 3)])
    for same in (layer.frequencies, layer.frequencies.tolist(), np.float32(100), np.array(100.0)):
        assert pa.SoftmaxAttention((query, key), value, rotary=same) == layer
    assert not layer.frequencies.flags.writeable
    still = pa.SoftmaxAttention((query, key), value, rotary=np.zeros(3))
    X = np.random.default_rng(5).standard_normal((2, 5, 4))
    plain = pa.SoftmaxAttention(query @ key.transpose(0, 2, 1), value)
    np.testing.assert_allclose(still(X), plain(X), atol=1e-13)


@pytest.mark.parametrize("of_value", [1.0, 1e-150, 1e150])
@pytest.mark.parametrize(
    ("of_tokens", "of_query", "of_key"),
    [(1.0, 1e150, 1e-150), (1e150, 1e-300, 1.0), (1e-150, 1e150, 1e150), (1e-5, 1e4, 1e6)],
)
def test_units_do_not_matter(of_tokens, of_query, of_key, of_value):
    layer = random_rotary()
    X = np.random.default_rng(6).standard_normal((2, 5, layer.n_dims))
    pair = of_query * layer.query, of_key * layer.key
    other = pa.SoftmaxAttention(pair, of_value * layer.value, rotary=layer.frequencies)
    np.testing.assert_allclose(other(of_tokens * X) / of_value / of_tokens, layer(X), atol=1e-12)


def test_sharp_attention_and_what_float64_cannot_hold():
    sharp = pa.SoftmaxAttention((1e150 * np.eye(2), 1e150 * np.eye(2)), np.eye(2), rotary=[np.pi])
    X = np.array([[1.0, 2.0], [3.0, -1.0], [3.0, -1.0]])
    # At odd offsets tokens repel: of those at even offsets the most similar one is taken.
    np.testing.assert_array_equal(sharp(X), [X[0], X[1], X[2]])
    for size in (1e200, 1e-200):
        with pytest.raises(OutOfRange, match=r"attn.* float64 cannot hold"):
            pa.SoftmaxAttention((size * np.eye(2), size * np.eye(2)), np.eye(2), rotary=[1.0])


def test_long_sequences_take_bounded_memory():
    import tracemalloc

    layer = random_rotary(mode="causal")
    X = np.random.default_rng(7).standard_normal((1, 6000, layer.n_dims))
    tracemalloc.start()
    layer(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6 < 6000**2 * 8


QUERY, KEY = np.ones((2, 2, 3, 4))
VALUE = np.ones((2, 3, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attn": np.ones((2, 3, 3))}, r"pair \(W_Q, W_K\).*got \(2, 3, 3\)"),
        ({"attn": (QUERY,)}, "pair"),
        ({"attn": (QUERY, KEY[:1])}, r"agree with value"),
        ({"attn": (QUERY[..., :3], KEY[..., :3])}, "even number r"),
        ({"attn": (QUERY[:, :2], KEY[:, :2])}, "agree with value"),
        ({"attn": (QUERY * np.nan, KEY)}, "W_Q"),
        ({"attn": (QUERY[0, 0], KEY[0, 0])}, "W_Q must have shape"),
        ({"rotary": 0.0}, "theta, must be positive"),
        ({"rotary": -1.0}, "theta, must be positive"),
        ({"rotary": np.nan}, "theta, must be positive"),
        ({"rotary": 1e-300}, "frequency of"),
        ({"rotary": [1.0]}, "2 frequencies"),
        ({"rotary": [1.0, np.inf]}, "rotary"),
        ({"rotary": [1.0, 1e7]}, "modulo 2 pi"),
        ({"rotary": None}, "only layers with rotary positions have"),
        ({"mode": "half"}, "mode must be one of"),
        ({"attn": (QUERY[:, :1], KEY[:, :1]), "value": VALUE[:, :1], "bias": True}, "2 rows"),
    ],
    ids=str,
)
def test_misuse_is_refused(given, message):
    arguments = {"attn": (QUERY, KEY), "value": VALUE, "rotary": 10.0} | given
    with pytest.raises(InvalidInput, match=message):
        pa.SoftmaxAttention(**arguments)


def test_rotary_is_no_flag():
    with pytest.raises(InvalidType, match="theta is 10000"):
        pa.SoftmaxAttention((QUERY, KEY), VALUE, rotary=True)


def test_layers_are_values():
    layer = random_rotary()
    parts = {"value": layer.value, "rotary": layer.frequencies}
    same = pa.SoftmaxAttention((layer.query, layer.key), **parts)
    assert layer == same
    assert hash(layer) == hash(same)
    others = [
        pa.SoftmaxAttention((layer.query, layer.key), layer.value, rotary=2 * layer.frequencies),
        pa.SoftmaxAttention((2 * layer.query, layer.key / 2), **parts),
        pa.SoftmaxAttention((layer.query, layer.key), **parts, mode="last"),
        pa.SoftmaxAttention(layer.attn, layer.value),
    ]
    for other in others:
        assert layer != other
        assert hash(layer) != hash(other)
    np.testing.assert_array_equal(layer.attn, others[1].attn)
    assert repr(layer) == (
        "SoftmaxAttention(2 heads, 3 -> 2, mode 'full', rotary positions in 2 planes)"
    )
    described = layer.describe()
    assert described.about.endswith("rotary positions in 2 planes")
    assert "attn at offset 0 of head 1" in described.matrices
    assert described.sizes["frequencies"] == layer.frequencies.tolist()
    still = pa.SoftmaxAttention((layer.query, layer.key), layer.value, rotary=[1.0, 0.0])
    assert "rotary positions in 1 plane of 2)" in repr(still)


@pytest.mark.parametrize("bias", [False, True])
def test_files(bias, tmp_path):
    layer = random_rotary(mode="causal", bias=bias)
    pa.save(layer, tmp_path / "layer.safetensors")
    assert pa.load(tmp_path / "layer.safetensors") == layer
    assert set(layer.to_record().arrays) == {"query", "key", "value", "frequencies"}
