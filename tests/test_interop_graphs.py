"""Modules as graphs: traced, exported, compiled; the same function for every length and size."""

import numpy as np
import pytest

import polyattn as pa
from form_cases import CASES, square
from polyattn.errors import InvalidInput
from polyattn.form import Form, maps
from polyattn.interop import from_torch, to_torch

torch = pytest.importorskip("torch", reason="torch is not installed")

# torch's own: it would rather be asked to export.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

FORMS = {
    "last": Form(lags=3, mean=True, skip=True),
    "causal": Form(mode="causal", decay=[0.5, 0.9], mean=True, include_query=False),
    "window": Form(mode="causal", window=70, bias=True, intercept=True),
    "full": Form(mode="full", include_query=False),
    "maps": Form(mode="causal", query=maps.polynomial(2), key=maps.elu1(), value=[0], lags=2),
    "softmax": None,
}


def make(name):
    if name == "softmax":
        layer = pa.data.random_softmax_layer(3, n_heads=2, random_state=0)
        return to_torch(pa.SoftmaxAttention(layer.attn, layer.value, "causal", bias=True)), 2
    return to_torch(pa.data.random_layer(2, 2, 3, form=FORMS[name])), 2


def tokens(n_sequences, n_tokens, n_dims, seed=0):
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.standard_normal((n_sequences, n_tokens, n_dims)))


def exported(module, X, strict):
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", min=1)}
    return torch.export.export(module, (X,), dynamic_shapes=(sizes,), strict=strict).module()


def compiled(module, backend):
    torch.compiler.reset()
    return torch.compile(module, backend=backend, dynamic=True, fullgraph=True)


def same(graph, module, inputs):
    for X in inputs:
        X = X.clone().requires_grad_()
        found, expected = graph(X), module(X)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
        one, other = (torch.autograd.grad(each.square().sum(), X)[0] for each in (found, expected))
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


TRACED = [case for case in CASES if case.kind == "equal" and case.name != "own-function"]


def test_a_traced_module_serves_other_lengths():
    """Some forms of every kind; all of them in the slow tests."""
    for case in TRACED[::7]:
        assert_traced(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", TRACED, ids=str)
def test_every_traced_module_serves_other_lengths(case):
    assert_traced(case)


def assert_traced(case):
    module = to_torch(case.layer())
    own, others = case.n_dims, case.n_context_dims

    def given(n_tokens):
        X = tokens(2, n_tokens, own, n_tokens)
        return (X,) if others is None else (X, tokens(2, n_tokens, others, n_tokens + 1))

    traced = torch.jit.trace(module, given(6), check_trace=False)
    for n_tokens in (1, 6, 150):
        X = given(n_tokens)
        torch.testing.assert_close(traced(*X), module(*X), rtol=1e-10, atol=1e-10)


def test_what_is_baked_into_a_trace_is_seen():
    """Negative control: a module that decides by the length agrees at that length alone."""

    class ByLength(torch.nn.Module):
        def forward(self, X):
            return X * len(range(int(X.shape[1])))

    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(ByLength(), tokens(2, 6, 2))
    same(traced, ByLength(), [tokens(2, 6, 2)])
    with pytest.raises(AssertionError):
        same(traced, ByLength(), [tokens(2, 7, 2)])


@pytest.mark.parametrize("name", ["last", "softmax"])
def test_an_exported_module_serves_every_batch_and_length(name):
    module, n_dims = make(name)
    graph = exported(module, tokens(2, 5, n_dims), strict=False)
    same(graph, module, [tokens(3, n, n_dims) for n in (1, 5, 150)])
    assert set(graph.state_dict()) == set(module.state_dict())


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_module_serves_every_length(backend):
    module = to_torch(pa.data.random_layer(2, 2, 1, form=Form(decay=0.9, bias=True)))
    same(compiled(module, backend), module, [tokens(3, n, 2) for n in (5, 80)])


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("way", ["export", "strict", "eager", "aot_eager"])
def test_every_form_in_every_way(name, way):
    module, n_dims = make(name)
    if way in ("export", "strict"):
        graph = exported(module, tokens(2, 5, n_dims), strict=way == "strict")
    else:
        graph = compiled(module, way)
    same(graph, module, [tokens(3, n, n_dims) for n in (2, 5, 64, 65, 150)])


def test_graphs_can_be_trained_and_read_back():
    """Parameters are those of the module: a step of training is seen by both."""
    module, n_dims = make("window")
    X = tokens(2, 9, n_dims)
    graph = torch.jit.trace(module, X, check_trace=False)
    optimiser = torch.optim.SGD(module.parameters(), lr=1e-3)
    before = module(X).detach().clone()
    graph(X).square().sum().backward()
    optimiser.step()
    assert not torch.allclose(module(X), before)
    same(graph, module, [X, tokens(1, 4, n_dims)])
    fresh, _ = make("window")
    fresh.load_state_dict(module.state_dict())
    assert from_torch(fresh) == from_torch(module)


def test_one_sequence_without_a_batch():
    module, n_dims = make("causal")
    graph = torch.jit.trace(module, tokens(1, 6, n_dims)[0])
    for n in (6, 90):
        X = tokens(1, n, n_dims)[0]
        torch.testing.assert_close(graph(X), module(X), rtol=1e-10, atol=1e-10)


def test_functions_of_ones_own_cannot_be_part_of_a_graph():
    """Their numbers would be constants: right for the tokens that were traced, wrong for all."""
    module = to_torch(pa.data.random_layer(2, 1, form=Form(key=square)))
    X = tokens(2, 4, 2)
    assert module(X).shape == (2, 1)
    with pytest.raises(InvalidInput, match=r"key is a function of numpy arrays.*part of a graph"):
        torch.jit.trace(module, X)
    with pytest.raises(Exception, match="part of a graph"):
        exported(module, X, strict=False)


def test_tokens_of_the_wrong_width_are_refused_by_an_export():
    module, n_dims = make("last")
    with pytest.raises(Exception, match="must have 2 coordinates"):
        exported(module, tokens(2, 5, n_dims + 1), strict=False)
