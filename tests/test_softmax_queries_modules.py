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


def drawn(module):
    """Weights that matter; every module is made with small ones."""
    torch.manual_seed(0)
    with torch.no_grad():
        for each in module.parameters():
            each.normal_(std=0.5 if each.ndim > 1 else 0.2)
    return module


def of_transformers(name):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import models

    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    if name.startswith(("Llama", "Qwen2")):
        family = models.llama if name.startswith("Llama") else models.qwen2
        config = (models.LlamaConfig if name.startswith("Llama") else models.Qwen2Config)(
            **sizes, num_key_value_heads=1
        )
        inside = getattr(family, f"modeling_{family.__name__.split('.')[-1]}")
        return drawn(getattr(inside, name)(config, 0))
    if name.startswith("GPT2"):
        config = models.GPT2Config(n_embd=8, n_head=2, n_positions=64)
        return drawn(getattr(models.gpt2.modeling_gpt2, name)(config))
    if name.startswith("Albert"):
        config = models.AlbertConfig(**sizes, embedding_size=8)
        return drawn(getattr(models.albert.modeling_albert, name)(config))
    return drawn(getattr(models.bert.modeling_bert, name)(models.BertConfig(**sizes)))


@pytest.mark.parametrize(
    ("name", "bias", "residual", "mode"),
    [
        ("BertSelfAttention", True, False, "full"),
        ("BertAttention", True, True, "full"),
        ("AlbertAttention", True, True, "full"),
        ("GPT2Attention", True, False, "causal"),
        ("LlamaAttention", False, False, "causal"),
        ("Qwen2Attention", True, False, "causal"),
    ],
)
def test_attention_of_transformers(name, bias, residual, mode):
    """Called with hidden states alone; what normalises afterwards is left out."""
    module = of_transformers(name)
    asked = pa.learn_from_queries(module, bias=bias)
    assert asked.recovered, asked.outcome
    assert (asked.residual, asked.layer.mode, asked.n_heads) == (residual, mode, 2)
    assert (asked.layer.frequencies is not None) == name.startswith(("Llama", "Qwen2"))
    X = np.random.default_rng(0).standard_normal((2, 9, 8))
    np.testing.assert_allclose(asked.predict(X), answered(module, X), atol=1e-4)


def answered(module, X):
    """The module in float32, by its weights: sums over heads, positions by its own embedding."""
    from copy import deepcopy

    module = deepcopy(module).eval()
    tokens = torch.tensor(X, dtype=torch.float32)
    n = tokens.shape[1]
    given = {}
    name = type(module).__name__
    if name.startswith(("Llama", "Qwen2")):
        import sys

        inside = vars(sys.modules[type(module).__module__])
        maker = next(each for key, each in inside.items() if key.endswith("RotaryEmbedding"))
        given["position_embeddings"] = maker(module.config)(tokens, torch.arange(n)[None])
    if name.startswith(("Llama", "Qwen2", "GPT2")):
        given["attention_mask"] = torch.full((n, n), -1e9).triu(1)[None, None]
    if name == "BertAttention":
        module.output.LayerNorm = torch.nn.Identity()
    if name == "AlbertAttention":
        module.LayerNorm = torch.nn.Identity()
    with torch.no_grad():
        return module(tokens, **given)[0].numpy()


def test_blocks_of_transformers_are_refused_with_what_to_give():
    with pytest.raises(InvalidInput, match=r"give its .self_attn, or a function .*input_layernorm"):
        pa.learn_from_queries(of_transformers("LlamaDecoderLayer"))
    with pytest.raises(InvalidInput, match=r"give its \.attention\."):
        pa.learn_from_queries(of_transformers("BertLayer"))


def test_a_sublayer_of_llama_as_a_function():
    """Residual connection, normalisation, rotary positions, shared keys: all of it at once."""
    attention = of_transformers("LlamaAttention").double()
    attention.config._attn_implementation = "sdpa"
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    inverse = LlamaRotaryEmbedding(attention.config).inv_freq.double()
    scale = torch.rand(8, dtype=torch.float64) + 0.5

    def sublayer(X):
        tokens = torch.tensor(X)
        square = tokens.pow(2).mean(-1, keepdim=True)
        normalised = scale * tokens * torch.rsqrt(square + 1e-6)
        angles = torch.arange(tokens.shape[1])[:, None] * torch.cat([inverse, inverse])
        given = {"position_embeddings": (angles.cos()[None], angles.sin()[None])}
        with torch.no_grad():
            return (tokens + attention.eval()(normalised, **given)[0]).numpy()

    asked = pa.learn_from_queries(sublayer, 8)
    assert asked.recovered, asked.outcome
    assert (asked.residual, asked.normalisation, asked.layer.mode) == (True, "rms_norm", "causal")
    np.testing.assert_allclose(asked.layer.frequencies, np.sort(inverse)[::-1], atol=1e-9)
    X = np.random.default_rng(0).standard_normal((2, 30, 8))
    np.testing.assert_allclose(asked.predict(X), sublayer(X), atol=1e-7)
