"""The bridge to torch: the same function, gradients, exact round trips, and no torch unasked."""

import os
import subprocess
import sys

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop import from_torch, to_torch
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
    with pytest.raises(InvalidType, match=r"module\.float\(\)"):
        module(torch.zeros(2, 5, 4))
    with pytest.raises(InvalidType, match=r"\.layer"):
        to_torch(pa.fit(np.ones((3, 2, 1)), np.ones(3)))
    with pytest.raises(InvalidType, match=r"reads TorchLinearAttention.*got Linear"):
        from_torch(torch.nn.Linear(2, 2))
    with pytest.raises(InvalidType, match="softmax"):
        from_torch(torch.nn.MultiheadAttention(4, 2))
    with pytest.raises(InvalidType, match="got int"):
        from_torch(3)
    with pytest.raises(InvalidInput, match="attn must have shape"):
        type(module)(torch.zeros(2, 3, 4), torch.zeros(2, 3, 1))


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
        "for call in (pa.interop.to_torch, pa.interop.from_torch):\n"
        "    try:\n"
        "        call(pa.data.random_layer(2))\n"
        "    except ImportError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    lines = _python(code).stdout.splitlines()
    assert len(lines) == 2
    assert all("MissingExtra" in line and "polyattn[torch]" in line for line in lines)
