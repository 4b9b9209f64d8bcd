"""to_weights: what a module is given computes what the layer does; what does not fit is refused."""

import numpy as np
import pytest
import torch

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.interop import from_weights, to_weights
from weight_cases import STATES, llama_state, powers, random_heads, repeated

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 5, 12))


def layer_of(bias=True, n_heads=3, head_dim=4, mode="causal", n_kv_heads=None, seed=0, rotary=None):
    """A layer whose heads have these widths, and share keys and values."""
    heads = random_heads(12, n_heads, head_dim, n_kv_heads, bias, seed)
    state = llama_state(heads)
    return from_weights(state, n_heads=n_heads, rotary=rotary, mode=mode)


def same(found, wanted, X=X):
    outputs = wanted(X)
    np.testing.assert_allclose(found(X), outputs, rtol=0, atol=1e-12 * np.abs(outputs).max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layout", STATES)
def test_what_is_written_is_read_again(layout, bias):
    rotary = 500.0 if layout == "llama" else None
    layer = layer_of(bias, rotary=rotary)
    beside = {"rotary": 500.0} if rotary else {}
    beside |= {"mode": "causal"} if layout in ("transformer_lens", "bert", "albert") else {}
    beside |= {"mode": "causal"} if layout == "multihead" else {}
    found = to_weights(layer, layout)
    assert all(each.dtype == np.float64 and each.flags.c_contiguous for each in found.values())
    same(from_weights(found, n_heads=3, layout=layout, **beside), layer)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 2, 4])
@pytest.mark.parametrize("layout", ["llama", "qwen2", "transformer_lens"])
@pytest.mark.parametrize("rotary", [None, 500.0])
def test_shared_keys_and_values_are_found(layout, n_kv_heads, bias, rotary):
    heads = random_heads(n_heads=4, n_kv_heads=n_kv_heads, bias=bias)
    heads.pop("b_O", None)
    layer = from_weights(llama_state(heads), n_heads=4, rotary=rotary)
    beside = {"rotary": None} if rotary is None and layout != "transformer_lens" else {}
    found = to_weights(layer, layout, n_kv_heads=n_kv_heads, head_dim=4, **beside)
    keys = next(each for name, each in found.items() if name in ("k_proj.weight", "W_K", "_W_K"))
    assert keys.size == 12 * 4 * n_kv_heads
    assert ("o_proj.bias" in found) == (bias and layout == "llama")
    again = from_weights(
        found, n_heads=4, n_kv_heads=n_kv_heads, layout=layout, mode="causal", rotary=rotary
    )
    same(again, layer)


def test_a_gauge_does_not_hide_shared_keys():
    """Keys of a head may be turned and scaled in each plane, queries the other way round."""
    heads = repeated(random_heads(n_heads=4, n_kv_heads=2, head_dim=6))
    heads.pop("b_O")
    for h in range(4):
        for i in range(3):
            factor = complex(*RNG.standard_normal(2))
            for name, by in (("K", factor), ("Q", 1 / factor.conjugate())):
                for each in (heads[f"W_{name}"][h], heads[f"b_{name}"][h]):
                    turned = (each[..., i] + 1j * each[..., i + 3]) * by
                    each[..., i], each[..., i + 3] = turned.real, turned.imag
    layer = from_weights(llama_state(heads), n_heads=4, rotary=500.0)
    found = to_weights(layer, "llama", n_kv_heads=2)
    same(from_weights(found, n_heads=4, n_kv_heads=2, rotary=500.0), layer)
    heads["W_K"][1] += 1e-6
    other = from_weights(llama_state(heads), n_heads=4, rotary=500.0)
    with pytest.raises(InvalidInput, match=r"heads [01] and [01] would share keys"):
        to_weights(other, "llama", n_kv_heads=2)


@pytest.mark.parametrize("n_kv_heads", [4, 2])
def test_coordinates_that_are_not_turned(n_kv_heads):
    heads = random_heads(n_heads=4, head_dim=8, n_kv_heads=n_kv_heads)
    layer = from_weights(llama_state(heads), n_heads=4, rotary=[1.0, 0.3])
    np.testing.assert_array_equal(layer.frequencies, [1.0, 0.3, 0.0, 0.0])
    found = to_weights(layer, "llama", n_kv_heads=n_kv_heads)
    if n_kv_heads == 4:  # the module's own order of coordinates, and its own keys
        wanted = llama_state(heads, "")["k_proj.weight"]
        np.testing.assert_allclose(found["k_proj.weight"], wanted, rtol=1e-14)
    same(from_weights(found, n_heads=4, rotary=[1.0, 0.3]), layer)


def test_modules_of_torch_load_it():
    for bias in (True, False):
        layer = layer_of(bias, mode="full")
        module = torch.nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
        state = to_weights(layer, "multihead")
        module.load_state_dict({name: torch.tensor(each) for name, each in state.items()})
        tokens = torch.tensor(X)
        found = module(tokens, tokens, tokens)[0].detach().numpy()
        np.testing.assert_allclose(found, layer(X), rtol=0, atol=1e-12)


def test_heads_that_are_not_needed_are_zero():
    layer = pa.data.random_softmax_layer(12, n_heads=2, rank=3, mode="causal", random_state=0)
    found = to_weights(layer, "gpt2", 4)
    assert found["c_attn.weight"].shape == (12, 36)
    assert np.all(found["c_proj.weight"][6:] == 0.0)
    same(from_weights(found, n_heads=4), layer)
    same(from_weights(to_weights(layer, "gpt2", head_dim=3), n_heads=4), layer)
    five = to_weights(layer, "llama", 6, n_kv_heads=3, head_dim=6, rotary=None)
    same(from_weights(five, n_heads=6, rotary=None), layer)


def test_the_smallest_width_is_found():
    layer = layer_of(head_dim=2, bias=False)
    assert to_weights(layer, "transformer_lens")["W_Q"].shape == (3, 12, 2)
    zero = pa.SoftmaxAttention(np.zeros((2, 4, 4)), np.zeros((2, 4, 4)))
    assert to_weights(zero, "transformer_lens")["W_Q"].shape == (2, 4, 1)


@pytest.mark.parametrize("size", [1e-6, 1e5])
def test_units_do_not_decide(size):
    layer = layer_of()
    units = np.ones(13)
    units[:12] = size ** np.linspace(-1, 1, 12)
    attn = layer.attn * units[:, None] * units
    value = layer.value * units[:, None]
    other = pa.SoftmaxAttention(attn, value, "causal", True)
    found = from_weights(to_weights(other, "gpt2", 3), n_heads=3)
    same(found, other, X=X / units[:12])


def test_prefix_and_dtype():
    layer = layer_of(mode="full")
    found = to_weights(layer, "bert", prefix="encoder.layer.0.attention", dtype="float32")
    assert set(found) == {
        f"encoder.layer.0.attention.{name}.{kind}"
        for name in ("self.query", "self.key", "self.value", "output.dense")
        for kind in ("weight", "bias")
    }
    assert {each.dtype for each in found.values()} == {np.dtype(np.float32)}
    again = from_weights(found, 0, n_heads=3)
    np.testing.assert_allclose(again(X), layer(X), rtol=0, atol=1e-5)
    assert (
        to_weights(layer, "bert", prefix="a.").keys()
        == to_weights(layer, "bert", prefix="a").keys()
    )


def test_a_tolerance_drops_what_does_not_fit():
    layer = layer_of()
    spoiled = pa.SoftmaxAttention(
        layer.attn + 1e-9 * RNG.standard_normal(layer.attn.shape), layer.value, "causal", True
    )
    with pytest.raises(InvalidInput, match="tolerance") as caught:
        to_weights(spoiled, "gpt2")
    named = float(str(caught.value).split("tolerance=")[1].split(",")[0])
    found = from_weights(to_weights(spoiled, "gpt2", tolerance=named), n_heads=3)
    np.testing.assert_allclose(found(X), layer(X), rtol=0, atol=1e-6)


FULL = pa.data.random_softmax_layer(12, n_heads=3, mode="causal", random_state=1)
LOW = layer_of(False)
TURNED = layer_of(rotary=500.0)
REFUSED = {
    "rank": (
        lambda: to_weights(FULL, "gpt2"), "head 0 has attn of rank 12, more than head_dim = 4"
    ),
    "rank of a group": (
        lambda: to_weights(LOW, "llama", n_kv_heads=1, head_dim=4, rotary=None),
        "heads 0 to 2 together have attn of rank 12, more than head_dim = 4, and they would share",
    ),
    "values of a group": (
        lambda: to_weights(
            pa.SoftmaxAttention(np.zeros((3, 12, 12)), LOW.value, "causal"),
            "transformer_lens", n_kv_heads=1, head_dim=4,
        ),
        "they would share values",
    ),
    "keys": (lambda: to_weights(TURNED, "llama", n_kv_heads=1), "would share keys"),
    "outputs": (
        lambda: to_weights(pa.SoftmaxAttention(np.eye(3), np.ones((3, 2))), "bert"),
        "as many outputs as coordinates; the layer has 2 and 3",
    ),
    "mode": (
        lambda: to_weights(layer_of(mode="full"), "gpt2"), "causal, and the layer has mode 'full'"
    ),
    "rotary in a layout without": (lambda: to_weights(TURNED, "bert"), "turns nothing"),
    "rotary that is denied": (lambda: to_weights(TURNED, "llama", rotary=None), "turns nothing"),
    "no rotary": (lambda: to_weights(LOW, "llama"), "has no rotary positions; give rotary=None"),
    "rotary": (lambda: to_weights(LOW, "llama", rotary=3.0), "rotary must be 'auto' or None"),
    "layout": (lambda: to_weights(LOW, "auto"), "layout must be one of"),
    "dtype": (lambda: to_weights(LOW, "gpt2", dtype="int8"), "dtype must be one of"),
    "too few heads": (
        lambda: to_weights(LOW, "llama", 2, rotary=None), "n_heads must be at least 3"
    ),
    "too few square heads": (lambda: to_weights(LOW, "gpt2", 2), "be at least 3"),
    "groups": (
        lambda: to_weights(LOW, "llama", n_kv_heads=2, rotary=None), "must divide n_heads = 3"
    ),
    "groups of a layout without": (
        lambda: to_weights(LOW, "gpt2", n_kv_heads=1), "keys and values of its own"
    ),
    "width of square heads": (
        lambda: to_weights(LOW, "gpt2", 3, head_dim=5), "head_dim must be 4, d / n_heads"
    ),
    "width of turned heads": (
        lambda: to_weights(TURNED, "llama", head_dim=6), "head_dim must be 4, as the rotary"
    ),
    "no bias of outputs": (
        lambda: to_weights(layer_of(n_heads=1, rotary=500.0), "qwen2"), "layout 'llama' has one"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, words = REFUSED[name]
    with pytest.raises(InvalidInput) as caught:
        call()
    assert words in str(caught.value)


def test_other_things_are_refused():
    with pytest.raises(InvalidType, match="to_weights takes a SoftmaxAttention"):
        to_weights(pa.data.random_layer(3), "bert")
    with pytest.raises(InvalidType, match="prefix"):
        to_weights(LOW, "gpt2", prefix=3)
    large = pa.SoftmaxAttention(LOW.attn, 1e12 * LOW.value, "causal")
    with pytest.raises(OutOfRange, match="float16 cannot hold"):
        to_weights(large, "gpt2", dtype="float16")


def test_the_frequencies_of_the_case():
    np.testing.assert_allclose(TURNED.frequencies, powers(500.0, 4))
