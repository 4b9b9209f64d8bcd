"""Linear layers of every form as torch modules: the same function, gradients, round trips."""

import copy

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES, matrix, square
from polyattn.errors import InvalidInput, InvalidType
from polyattn.form import Form, maps
from polyattn.interop import from_torch, to_torch

torch = pytest.importorskip("torch", reason="torch is not installed")

EPS = float(np.finfo(np.float64).eps)


def outputs(module, X, Z=None, dtype=torch.float64):
    tensors = [torch.tensor(each, dtype=dtype) for each in (X, Z) if each is not None]
    return module(*tensors).detach().numpy()


def close(found, expected, eps=EPS):
    assert found.shape == expected.shape
    size = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e3 * eps * size)


@pytest.mark.parametrize("case", [case for case in CASES if case.kind == "ragged"], ids=str)
def test_modules_compute_the_same_function(case, monkeypatch):
    from polyattn.interop.torch import TorchLinearAttention, linear_attention

    layer = case.layer()
    module = to_torch(layer)
    pairs = list(zip(case.sequences, case.contexts, strict=True))
    for chunk in (2, 64):
        monkeypatch.setattr(linear_attention, "CHUNK", chunk)
        for X, Z in pairs:
            close(outputs(module, X, Z), layer(X, context=Z))
    assert from_torch(module) == layer
    assert from_torch(module).form == case.form
    # float32, and a copy with the same state.
    single = copy.deepcopy(module).float()
    X, Z = pairs[0]
    found = outputs(single, X, Z, torch.float32)
    assert found.dtype == np.float32
    close(found, layer(X, context=Z), 1e-6)
    # Parameters of single precision from the beginning: maps have it, too.
    parameters = {name: torch.tensor(each).float() for name, each in layer.arrays().items()}
    sizes = {"n_dims": layer.n_dims, "n_context_dims": layer.n_context_dims}
    made = TorchLinearAttention(
        **parameters, form=case.form, **sizes, head_scales=layer.head_scales
    )
    np.testing.assert_array_equal(outputs(made, X, Z, torch.float32), found)
    other = to_torch(case.layer())
    with torch.no_grad():
        other.attn.mul_(2.0)
    other.load_state_dict(module.state_dict())
    assert from_torch(other) == layer
    assert set(module.state_dict()) == set(layer.arrays())


@pytest.mark.parametrize("n_tokens", [63, 64, 200])
@pytest.mark.parametrize(
    "fields",
    [{"decay": 0.97}, {"decay": [0.5, 0.99]}, {"window": 70}, {"window": 130, "decay": 0.98},
     {"lags": 3}, {"include_query": False, "mean": True}],
    ids=str,
)  # fmt: skip
def test_long_sequences(fields, n_tokens):
    layer = pa.data.random_layer(3, 2, form=Form(mode="causal", **fields))
    X = np.random.default_rng(0).standard_normal((2, n_tokens, 3))
    close(outputs(to_torch(layer), X), layer(X))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_small_numbers_of_maps_keep_their_digits(dtype):
    """exp(-60) beside 1 would be rounding."""
    layer = pa.data.random_layer(2, 1, form=Form(query=maps.elu1(), key=maps.elu1()))
    X = np.random.default_rng(0).uniform(-60, -20, (3, 4, 2))
    module, eps = to_torch(layer).to(dtype), torch.finfo(dtype).eps
    X = X.astype(str(dtype).removeprefix("torch."))
    np.testing.assert_allclose(outputs(module, X, dtype=dtype), layer(X), rtol=200 * eps)


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_sums_over_chunks_before(decay):
    """By doubling, for every number of chunks."""
    from polyattn.interop.torch.linear_attention import _earlier

    sums = torch.randn(2, 1, 9, 3, 2, dtype=torch.float64)
    for n_whole in range(1, 9):
        expected = torch.zeros_like(sums)
        for chunk in range(9):
            for back in range(1, min(n_whole, chunk) + 1):
                expected[:, :, chunk] += decay ** (back - 1) * sums[:, :, chunk - back]
        close(_earlier(sums, n_whole, decay).numpy(), expected.numpy())


def test_long_sequences_need_no_square_of_their_length():
    X = torch.randn(1, 40_000, 3, dtype=torch.float64)
    for fields in ({"decay": 0.9}, {"window": 5_000}, {"lags": 2}):
        module = to_torch(pa.data.random_layer(3, 1, form=Form(mode="causal", **fields)))
        assert module(X).shape == (1, 40_000, 1)


GRADIENTS = {
    "decay": (Form(mode="causal", decay=[0.5, 0.9], mean=True), None),
    "window": (Form(mode="causal", window=2, skip=True, intercept=True), None),
    "others": (Form(mode="full", include_query=False), None),
    "context": (Form(mode="full", bias=True), 2),
    "maps": (Form(query=maps.polynomial(2), key=maps.hedgehog(), value=maps.normalised()), None),
    "matrix": (Form(query=matrix(2), key=maps.elu1(), value=maps.random_fourier(3, 1.0)), None),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_those_of_finite_differences(name):
    form, n_context_dims = GRADIENTS[name]
    layer = pa.data.random_layer(2, 1, form=form, n_context_dims=n_context_dims)
    module = to_torch(layer)
    tokens = [torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True)]
    if n_context_dims is not None:
        tokens.append(torch.randn(1, 3, 2, dtype=torch.float64, requires_grad=True))
    names = [each for each, _ in module.named_parameters()]

    def function(*tensors):
        parameters = dict(zip(names, tensors, strict=False))
        return torch.func.functional_call(module, parameters, tensors[len(names) :]).sum()

    given = (*module.parameters(), *tokens)
    assert torch.autograd.gradcheck(function, given, fast_mode=True)


def test_training_leaves_the_layer_alone_and_can_be_read_back():
    form = Form(mode="causal", decay=0.8, skip=True)
    layer = pa.data.random_layer(2, 1, form=form)
    before = layer.skip.copy()
    module = to_torch(layer)
    X = torch.randn(4, 5, 2, dtype=torch.float64)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    module(X).square().sum().backward()
    optimiser.step()
    trained = from_torch(module)
    np.testing.assert_array_equal(layer.skip, before)
    assert np.all(trained.skip != before)
    close(module(X).detach().numpy(), trained(X.numpy()))


def test_own_functions_pass_no_gradient_to_tokens():
    module = to_torch(pa.data.random_layer(2, 1, form=Form(key=square)))
    X = torch.randn(3, 4, 2, dtype=torch.float64)
    module(X).sum().backward()
    assert torch.any(module.attn.grad != 0)
    with pytest.raises(InvalidInput, match=r"key is a function of numpy arrays.*X.detach\(\)"):
        module(X.requires_grad_())


def test_the_module_says_what_it_is():
    layer = pa.data.random_layer(3, 1, 2, form=Form(mode="causal", decay=0.9), n_context_dims=2)
    words = "n_heads=2, n_dims=3, n_outputs=1, n_context_dims=2, form=Form(mode='causal', decay"
    assert words in repr(to_torch(layer))


def test_misuse_is_named():
    from polyattn.interop.torch import TorchLinearAttention

    X, Z = (torch.zeros(2, 5, width, dtype=torch.float64) for width in (3, 2))
    beside = to_torch(pa.data.random_layer(3, form=Form(mode="causal"), n_context_dims=2))
    plain = to_torch(pa.data.random_layer(3))
    with pytest.raises(InvalidInput, match="give them as context"):
        beside(X)
    with pytest.raises(InvalidInput, match="it takes no context"):
        plain(X, Z)
    with pytest.raises(InvalidInput, match=r"context must have shape \(B, n, 2\)"):
        beside(X, X)
    with pytest.raises(InvalidType, match="context has dtype"):
        beside(X, Z.float())
    for wrong in (Z[:1], Z[:, :4], Z[0]):
        with pytest.raises(InvalidInput, match="one sequence for each of X"):
            beside(X, wrong)
    attn, value = torch.zeros(2, 3, 3), torch.zeros(2, 3, 1)
    with pytest.raises(InvalidInput, match="give head_scales"):
        TorchLinearAttention(attn, value, form=Form(mode="causal", decay=[0.5, 0.9]))
    with pytest.raises(InvalidInput, match=r"attn must have shape \(H, 3, 2\)"):
        TorchLinearAttention(attn, value, form=Form(key=[0, 1]))
    for form in (None, Form(skip=True)):
        with pytest.raises(InvalidInput, match=r"attn must have three axes.*got \(3, 3\)"):
            TorchLinearAttention(attn[0], value[0], form=form)
    zeros = TorchLinearAttention(attn, value, form=Form(skip=True, intercept=True))
    assert zeros.skip.shape == (3, 1)
    assert zeros.intercept.dtype == attn.dtype
    with pytest.raises(InvalidInput, match="the module has mode 'causal'"):
        from_torch(beside, mode="last")
