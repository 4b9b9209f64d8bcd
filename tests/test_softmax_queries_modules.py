"""Torch modules as oracles: copied, exact, without dropout, and left as they are."""

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import InvalidInput

torch = pytest.importorskip("torch", reason="torch is not installed")


def multihead(d=4, n_heads=2, **options):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(d, n_heads, **options)
    with torch.no_grad():
        module.in_proj_weight.normal_()
        if module.in_proj_bias is not None:
            module.in_proj_bias.normal_()
            module.out_proj.bias.normal_()
    return module


@pytest.mark.parametrize("options", [{"batch_first": True}, {}, {"dropout": 0.3}], ids=str)
def test_a_module_is_taken_as_it_is(options):
    """In float32, in training mode, with dropout: its heads to the digits of float64."""
    module = multihead(bias=False, **options)
    before = {name: each.clone() for name, each in module.state_dict().items()}
    asked = pa.learn_from_queries(module)
    assert asked.recovered, asked.outcome
    true = pa.interop.from_torch(module)
    assert pa.match_heads(asked.layer, true).worst_attn < 1e-8
    assert module.training
    assert all(torch.equal(before[name], each) for name, each in module.state_dict().items())
    assert module.in_proj_weight.dtype == torch.float32


def test_biases_and_the_attention_of_an_encoder_layer():
    encoder = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
    with torch.no_grad():
        encoder.self_attn.in_proj_bias.normal_()
    assert pa.learn_from_queries(encoder).outcome.name == "bias_needed"
    asked = pa.learn_from_queries(encoder, bias=True)
    assert asked.recovered
    assert pa.same_function(asked.layer, pa.interop.from_torch(encoder.self_attn), tolerance=1e-6)
    assert encoder.training


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
def test_modules_of_the_library_keep_their_mode(mode):
    layer = pa.data.random_softmax_layer(3, n_heads=2, random_state=1)
    layer = pa.SoftmaxAttention(layer.attn, layer.value, mode)
    asked = pa.learn_from_queries(pa.interop.to_torch(layer))
    assert asked.recovered
    assert asked.layer.mode == mode
    assert pa.match_heads(asked.layer, layer).worst_attn < 1e-8
    # A layer says its coordinates, too.
    if mode != "last":
        assert pa.learn_from_queries(layer).recovered


class Mixed(torch.nn.Module):
    """Attention behind a projection, which returns a tuple."""

    def __init__(self):
        super().__init__()
        self.inner = multihead(bias=False, batch_first=True)

    def forward(self, tokens):
        return self.inner(tokens, tokens, tokens)


def test_any_module_of_one_tensor():
    module = Mixed()
    with pytest.raises(InvalidInput, match=r"n_dims is missing.*oracle does not say"):
        pa.learn_from_queries(module)
    assert pa.learn_from_queries(module, 4).recovered


def test_misuse_is_named():
    with pytest.raises(InvalidInput, match="n_dims must be 4, the coordinates of the tokens"):
        pa.learn_from_queries(multihead(), 5)
    with pytest.raises(InvalidInput, match="kdim=3"):
        pa.learn_from_queries(torch.nn.MultiheadAttention(4, 2, kdim=3))

    class Strange(torch.nn.Module):
        def forward(self, tokens):
            return {"out": tokens}

    with pytest.raises(InvalidInput, match=r"oracle must return a tensor.*returned dict"):
        pa.learn_from_queries(Strange(), 3)
    with pytest.raises(InvalidInput, match="n_dims is missing"):
        pa.learn_from_queries(lambda X: X)
    module = multihead()
    module.stream = (each for each in ())
    with pytest.raises(InvalidInput, match="cannot be copied"):
        pa.learn_from_queries(module)


def test_without_the_copy_float32_and_dropout_are_seen():
    """Negative control: the module itself answers by chance, or with few digits."""
    module = multihead(bias=False, batch_first=True, dropout=0.3)

    def oracle(X):
        tokens = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            return module(tokens, tokens, tokens)[0].numpy()

    assert pa.learn_from_queries(oracle, 4).outcome.name == "not_deterministic"
    module.eval()
    found = pa.learn_from_queries(oracle, 4)
    true = pa.interop.from_torch(module)
    assert pa.match_heads(found.layer, true).worst_attn > 1e-8
    assert np.isfinite(found.layer.attn).all()


class Causal(torch.nn.Module):
    """Attention with a mask that nobody outside sees."""

    def __init__(self):
        super().__init__()
        self.inner = multihead(batch_first=True)
        self.embed_dim = 4

    def forward(self, tokens):
        sizes = (tokens.shape[1], tokens.shape[1])
        mask = torch.ones(sizes, dtype=torch.bool).triu(1)
        return self.inner(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0]


def test_a_mask_inside_a_module_is_found():
    module = Causal()
    asked = pa.learn_from_queries(module, bias=True)
    assert asked.recovered
    assert asked.layer.mode == "causal"
    X = np.random.default_rng(0).standard_normal((3, 6, 4))
    with torch.no_grad():
        theirs = module.double().eval()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(asked.layer(X), theirs, atol=1e-9)


class Residual(Causal):
    def forward(self, tokens):
        return tokens + super().forward(tokens)


def test_modules_that_are_not_attention_alone_are_told_apart():
    linear = pa.learn_from_queries(torch.nn.Linear(4, 4), bias=True)
    assert linear.outcome.name == "not_attention"
    assert "There is no attention" in linear.outcome.sentence
    residual = pa.learn_from_queries(Residual(), bias=True, residual=False)
    assert residual.outcome.name == "other_structure"
    assert "a residual connection" in residual.outcome.sentence
    assert pa.learn_from_queries(Residual(), bias=True).residual
