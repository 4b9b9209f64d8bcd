"""The bridge to torch: the same function, gradients, exact round trips, and no torch unasked."""

import os
import subprocess
import sys

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import from_torch, to_multihead, to_torch
from polyattn.sequences import MODES

torch = pytest.importorskip("torch", reason="torch is not installed")

EPS = float(np.finfo(np.float64).eps)


def _layer(mode, bias=False, n_heads=2, n_dims=4, n_outputs=3, seed=0):
    rng = np.random.default_rng(seed)
    width = n_dims + bias
    attn = rng.standard_normal((n_heads, width, width))
    return pa.LinearAttention(attn, rng.standard_normal((n_heads, width, n_outputs)), mode, bias)


def _relative(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_tokens", [1, 2, 63, 64, 65, 200])
def test_the_module_computes_the_same_function(mode, bias, n_tokens):
    layer = _layer(mode, bias)
    X = np.random.default_rng(1).standard_normal((3, n_tokens, 4))
    module = to_torch(layer)
    expected = layer(X)
    found = module(torch.tensor(X)).detach().numpy()
    assert found.shape == expected.shape
    assert _relative(found, expected) < 100 * EPS
    one = module(torch.tensor(X[0])).detach().numpy()
    assert one.shape == layer(X[0]).shape
    assert _relative(one, expected[0]) < 100 * EPS
    single = module.float()(torch.tensor(X, dtype=torch.float32))
    assert single.dtype == torch.float32
    assert _relative(single.detach().numpy(), expected) < 1e-4


def test_another_layer_is_noticed():
    layer, other = _layer("causal"), _layer("causal", seed=1)
    X = np.random.default_rng(1).standard_normal((3, 70, 4))
    assert _relative(to_torch(other)(torch.tensor(X)).detach().numpy(), layer(X)) > 0.1


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_round_trips_are_exact(mode, bias):
    layer = _layer(mode, bias)
    module = to_torch(layer)
    assert module.attn.dtype == torch.float64
    assert from_torch(module) == layer
    assert from_torch(module.float()).mode == mode
    reloaded = to_torch(_layer(mode, bias, seed=1))
    reloaded.load_state_dict(to_torch(layer).state_dict())
    assert from_torch(reloaded) == layer


@pytest.mark.parametrize("n_tokens", [3, 67])
@pytest.mark.parametrize("mode", MODES)
def test_gradients_are_those_of_finite_differences(mode, n_tokens):
    layer = _layer(mode, n_heads=1, n_dims=2, n_outputs=1)
    module = to_torch(layer)
    X = torch.randn(1, n_tokens, 2, dtype=torch.float64, requires_grad=True)

    def function(attn, value, tokens):
        return torch.func.functional_call(module, {"attn": attn, "value": value}, (tokens,)).sum()

    assert torch.autograd.gradcheck(function, (module.attn, module.value, X), fast_mode=True)


def test_training_leaves_the_layer_alone_and_can_be_read_back():
    task = pa.data.planted(64, 6, 3, random_state=2)
    start = pa.data.random_layer(3, random_state=3)
    before = start.attn.copy()
    module = to_torch(start)
    X, Y = torch.tensor(task.X), torch.tensor(task.Y)
    optimiser = torch.optim.LBFGS(module.parameters(), max_iter=50, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = (module(X) - Y).square().sum()
        value.backward()
        return value

    first = loss().item()
    optimiser.step(loss)
    trained = from_torch(module)
    assert np.array_equal(start.attn, before)
    risk = np.sum((trained(task.X) - task.Y) ** 2)
    assert risk == pytest.approx(loss().item(), rel=1e-6, abs=1e-20)
    assert risk < first


def test_long_sequences_need_no_square_of_their_length():
    # 40,000 x 40,000 scores would be 13 GB.
    X = torch.randn(1, 40_000, 4, dtype=torch.float64)
    module = to_torch(_layer("causal"))
    assert module(X).shape == (1, 40_000, 3)


def test_the_module_says_what_it_is():
    assert "n_heads=2, n_dims=4, n_outputs=3, mode='last', bias=True" in repr(
        to_torch(_layer("last", bias=True))
    )


def test_misuse_is_named():
    module = to_torch(_layer("last"))
    with pytest.raises(InvalidInput, match=r"shape \(B, n, 4\).*got \(2, 5, 3\)"):
        module(torch.zeros(2, 5, 3, dtype=torch.float64))
    with pytest.raises(InvalidInput, match="n >= 1"):
        module(torch.zeros(2, 0, 4, dtype=torch.float64))
    with pytest.raises(InvalidType, match=r"X must be a torch\.Tensor; got ndarray\. torch\.as_t"):
        module(np.zeros((2, 5, 4)))
    with pytest.raises(InvalidType, match=r"module\.float\(\)"):
        module(torch.zeros(2, 5, 4))
    with pytest.raises(InvalidType, match=r"\.layer"):
        to_torch(pa.fit(np.ones((3, 2, 1)), np.ones(3)))
    with pytest.raises(InvalidType, match=r"reads TorchLinearAttention.*got Linear"):
        from_torch(torch.nn.Linear(2, 2))
    with pytest.raises(InvalidInput, match=r"mode 'last', but mode='full' was asked for"):
        from_torch(module, mode="full")
    with pytest.raises(InvalidType, match="got int"):
        from_torch(3)
    with pytest.raises(InvalidInput, match="attn must have shape"):
        type(module)(torch.zeros(2, 3, 4), torch.zeros(2, 3, 1))


# Softmax ------------------------------------------------------------------------------------


def _softmax_layer(mode, bias=False, scale=1.0, n_outputs=3, seed=0):
    rng = np.random.default_rng(seed)
    width = 4 + bias
    attn = scale * rng.standard_normal((2, width, width))
    return pa.SoftmaxAttention(attn, rng.standard_normal((2, width, n_outputs)), mode, bias)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("n_tokens", "scale"), [(1, 1.0), (2, 1.0), (65, 1.0), (65, 1e6)])
def test_softmax_modules_compute_the_same_function(mode, bias, n_tokens, scale):
    layer = _softmax_layer(mode, bias, scale)
    X = np.random.default_rng(1).standard_normal((3, n_tokens, 4))
    module = to_torch(layer)
    expected = layer(X)
    found = module(torch.tensor(X)).detach().numpy()
    assert found.shape == expected.shape
    # Logits of size 1e6 are known to 1e-10.
    assert _relative(found, expected) < 100 * EPS * max(1.0, scale)
    one = module(torch.tensor(X[0])).detach().numpy()
    assert _relative(one, layer(X[0])) < 100 * EPS * max(1.0, scale)
    assert module.float()(torch.tensor(X, dtype=torch.float32)).dtype == torch.float32


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_softmax_round_trips_are_exact(mode, bias):
    layer = _softmax_layer(mode, bias)
    assert from_torch(to_torch(layer)) == layer
    assert from_torch(to_torch(layer), mode=mode) == layer
    assert pa.interop.torch_layer(to_torch(layer)) == layer
    assert f"mode={mode!r}, bias={bias}" in repr(to_torch(layer))


@pytest.mark.parametrize("mode", MODES)
def test_softmax_gradients_are_those_of_finite_differences(mode):
    module = to_torch(_softmax_layer(mode, n_outputs=1))
    X = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)

    def function(attn, value, tokens):
        return torch.func.functional_call(module, {"attn": attn, "value": value}, (tokens,)).sum()

    assert torch.autograd.gradcheck(function, (module.attn, module.value, X), fast_mode=True)


def _multihead(n_dims, n_heads, seed=0, **options):
    torch.manual_seed(seed)
    module = torch.nn.MultiheadAttention(n_dims, n_heads, dtype=torch.float64, **options)
    for parameter in module.parameters():  # torch starts with biases of zero
        torch.nn.init.normal_(parameter, std=0.5)
    return module.eval()


def _self_attention(module, X, causal=False):
    tokens = torch.tensor(X if module.batch_first else X.transpose(1, 0, 2))
    n = X.shape[1]
    mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1) if causal else None
    with torch.no_grad():
        found = module(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0].numpy()
    return found if module.batch_first else found.transpose(1, 0, 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n_dims", "n_heads"), [(6, 1), (6, 3), (8, 2), (1, 1)])
def test_multihead_attention_is_read(n_dims, n_heads, bias, batch_first, mode):
    module = _multihead(n_dims, n_heads, bias=bias, batch_first=batch_first, dropout=0.3)
    layer = from_torch(module, mode=mode)
    assert isinstance(layer, pa.SoftmaxAttention)
    assert (layer.n_heads, layer.bias, layer.n_dims, layer.mode) == (n_heads, bias, n_dims, mode)
    X = np.random.default_rng(1).standard_normal((4, 5, n_dims))
    expected = _self_attention(module, X, causal=mode == "causal")
    expected = expected[:, -1] if mode == "last" else expected
    assert _relative(layer(X), expected) < 100 * EPS * n_dims


def test_single_precision_weights_are_read_exactly():
    module = _multihead(4, 2).float()
    assert from_torch(module) == from_torch(module.double())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("n_dims", "n_heads"), [(6, 3), (8, 2)])
def test_multihead_attention_there_and_back(n_dims, n_heads, bias):
    layer = from_torch(_multihead(n_dims, n_heads, bias=bias))
    module = to_multihead(layer)
    assert (module.num_heads, module.in_proj_bias is not None) == (n_heads, bias)
    assert pa.same_function(from_torch(module), layer, tolerance=1e-12)
    X = np.random.default_rng(1).standard_normal((4, 5, n_dims))
    assert _relative(_self_attention(module, X), layer(X)) < 1000 * EPS
    module.float().train()  # a module like any other
    tokens = torch.zeros(1, 2, n_dims)
    module(tokens, tokens, tokens)[0].sum().backward()


def test_heads_that_are_not_needed_are_zero():
    rng = np.random.default_rng(0)
    low = rng.standard_normal((2, 6, 1)) @ rng.standard_normal((2, 1, 6))
    layer = pa.SoftmaxAttention(low, low[::-1])
    X = rng.standard_normal((3, 4, 6))
    for asked, n_heads in ((None, 2), (3, 3), (6, 6)):
        module = to_multihead(layer, asked)
        assert module.num_heads == n_heads
        assert _relative(_self_attention(module, X), layer(X)) < 1000 * EPS
    three = pa.SoftmaxAttention(np.zeros((3, 4, 4)), np.zeros((3, 4, 4)))
    assert to_multihead(three).num_heads == 4


def test_what_multihead_attention_cannot_express_is_named():
    full = pa.data.random_softmax_layer(4, n_heads=2)
    with pytest.raises(InvalidInput, match=r"head 0 has attn of rank 4, more than head_dim = 2"):
        to_multihead(full)
    low = pa.data.random_softmax_layer(4, n_heads=2, rank=1)
    with pytest.raises(InvalidInput, match="value of rank 4"):
        to_multihead(pa.SoftmaxAttention(low.attn, full.value))
    with pytest.raises(InvalidInput, match=r"must divide the 4 coordinates.*got 3"):
        to_multihead(low, 3)
    with pytest.raises(InvalidInput, match=r"be at least 2.*got 1"):
        to_multihead(low, 1)
    with pytest.raises(InvalidInput, match="at most as many heads as coordinates"):
        to_multihead(pa.data.random_softmax_layer(2, n_heads=3))
    with pytest.raises(InvalidInput, match="as many outputs as inputs; the layer has 2 and 4"):
        to_multihead(pa.data.random_softmax_layer(4, 2))
    with pytest.raises(InvalidType, match="takes a SoftmaxAttention; got LinearAttention"):
        to_multihead(_layer("full"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kdim": 3}, "kdim=3"),
        ({"vdim": 3}, "vdim=3"),
        ({"add_bias_kv": True}, "add_bias_kv"),
        ({"add_zero_attn": True}, "add_zero_attn"),
    ],
)
def test_modules_that_are_no_plain_self_attention_are_refused(options, named):
    with pytest.raises(InvalidInput, match=named):
        from_torch(torch.nn.MultiheadAttention(4, 2, **options))


def test_only_known_forward_passes_are_read_for_audits():
    class Halved(torch.nn.MultiheadAttention):
        def forward(self, X):
            return super().forward(X, X, X)[0] / 2

    assert pa.interop.torch_layer(Halved(4, 2)) is None
    assert pa.interop.torch_layer(torch.nn.Linear(2, 2)) is None
    read = pa.interop.torch_layer(torch.nn.MultiheadAttention(4, 2), mode="causal")
    assert read is not None
    assert read.mode == "causal"


def _python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False
    )


def test_torch_is_not_imported_unasked():
    code = (
        "import sys, polyattn as pa; pa.interop.to_torch; pa.LinearAttentionRegressor; "
        "print('torch' in sys.modules)"
    )
    assert _python(code).stdout.strip() == "False"


def test_absent_torch_is_named():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import polyattn as pa\n"
        "for call in (pa.interop.to_torch, pa.interop.from_torch, pa.interop.to_multihead):\n"
        "    try:\n"
        "        call(pa.data.random_layer(2))\n"
        "    except ImportError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    lines = _python(code).stdout.splitlines()
    assert len(lines) == 3
    assert all("MissingExtra" in line and "polyattn[torch]" in line for line in lines)
