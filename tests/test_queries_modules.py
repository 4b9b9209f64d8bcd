"""Torch modules as black boxes: exact copies, called as their models call them."""

from copy import deepcopy

import numpy as np
import pytest
import torch

import polyattn as pa
from polyattn.errors import InvalidInput, PolyattnError
from test_interop import multihead as of_torch
from test_weights import attended, attention_of, built

X = np.random.default_rng(0).standard_normal((3, 9, 4))


def multihead(**options):
    return of_torch(4, 2, **options).float().train()


class Wrapped(torch.nn.Module):
    """Attention behind a function: ``called`` decides what a call does."""

    def __init__(self, called, **options):
        super().__init__()
        self.inner, self.called = multihead(batch_first=True, **options), called

    def forward(self, tokens):
        return self.called(self.inner, tokens)


def masked(inner, tokens):
    mask = torch.ones((tokens.shape[1],) * 2, dtype=torch.bool).triu(1)
    return inner(tokens, tokens, tokens, attn_mask=mask, need_weights=False)[0]


def encoder():
    layer = torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.2, batch_first=True)
    torch.nn.init.normal_(layer.self_attn.in_proj_bias)
    return layer


def of_the_library(mode):
    layer = pa.data.random_softmax_layer(3, n_heads=2, mode=mode, random_state=1)
    return pa.interop.to_torch(layer).train()


MODULES = {
    "batch first": lambda: multihead(bias=False, batch_first=True),
    "dropout": lambda: multihead(bias=False, dropout=0.3),
    "encoder": encoder,
} | {mode: lambda mode=mode: of_the_library(mode) for mode in ("full", "causal", "last")}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_taken_as_it_is_and_stays_so(name):
    """In float32, in training mode, with dropout: its heads to the digits of float64."""
    module = MODULES[name]()
    before = deepcopy(module.state_dict())
    asked = pa.learn_from_queries(module, bias=name == "encoder")
    assert asked.recovered, asked.outcome
    inside = pa.interop.from_torch(getattr(module, "self_attn", module))
    assert asked.layer.mode == inside.mode
    assert pa.same_function(asked.layer, inside, tolerance=1e-6)
    assert module.training
    for each, old in zip(module.state_dict().values(), before.values(), strict=True):
        assert (each.dtype, torch.equal(each, old)) == (old.dtype, True)


def test_masks_and_sums_inside_a_module_are_found():
    causal = Wrapped(masked)
    asked = pa.learn_from_queries(causal, 4, bias=True)
    assert (asked.recovered, asked.layer.mode) == (True, "causal")
    with torch.no_grad():
        theirs = deepcopy(causal).double().eval()(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(asked.layer(X), theirs, atol=1e-9)
    added = Wrapped(lambda inner, tokens: tokens + masked(inner, tokens))
    assert pa.learn_from_queries(added, 4, bias=True).residual
    # A tuple counts by its first tensor.
    of_tuples = Wrapped(lambda inner, tokens: inner(tokens, tokens, tokens), bias=False)
    assert pa.learn_from_queries(of_tuples, 4).recovered


def test_misuse_names_what_is_wrong():
    uncopied = multihead()
    uncopied.stream = (each for each in ())
    for box, n_dims, words in (
        (Wrapped(masked), None, "n_dims"),
        (multihead(), 5, "n_dims must be 4"),
        (torch.nn.MultiheadAttention(4, 2, kdim=3), None, "kdim=3"),
        (Wrapped(lambda _, tokens: {"out": tokens}), 3, "oracle.*dict"),
        (uncopied, None, "oracle.*copied"),
    ):
        with pytest.raises(InvalidInput, match=words):
            pa.learn_from_queries(box, n_dims)


IDS = {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {
    "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 2,
    "pad_token_id": 0, **IDS,
}  # fmt: skip
GPT = {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 300, **IDS}
SHARED, WINDOW = {**SIZES, "num_key_value_heads": 1}, {"sliding_window": 12}
NARROW = {**SHARED, "head_dim": 4}
BOTH = {**NARROW, "layer_types": ["sliding_attention", "full_attention"], **WINDOW}
PART = {"rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}}

# Of each kind: model, settings, and whether its first layers are recovered, with which mode and
# residual connection; None where they are no layer, or refused.
FULL, PRE, NO = ("full", True), ("causal", False), None
QUICK = {
    "bert decoder": ("Bert", {**SIZES, "is_decoder": True}, ("causal", True)),
    "gpt2": ("GPT2", GPT, PRE),
    "qwen2": ("Qwen2", SHARED, PRE),
    "gemma2, capped": ("Gemma2", NARROW, NO),
    "bloom": ("Bloom", {"hidden_size": 8, "n_head": 2, "n_layer": 2, "vocab_size": 20}, NO),
}
OTHERS = {
    "electra": ("Electra", {**SIZES, "embedding_size": 8}, FULL),
    "gpt neox": ("GPTNeoX", SIZES, PRE),
    "opt": ("OPT", {**SIZES, "ffn_dim": 16, "word_embed_proj_dim": 8}, PRE),
    "llama, partial": ("Llama", {**SIZES, **PART}, PRE),
    "mistral": ("Mistral", {**SHARED, "sliding_window": None}, PRE),
    "qwen3": ("Qwen3", NARROW, NO),
    "gemma2": ("Gemma2", {**BOTH, "attn_logit_softcapping": None}, NO, PRE),
    "modernbert": ("ModernBert", {**SIZES, "local_attention": 12}, NO),
    "gptj": ("GPTJ", {**GPT, "rotary_dim": 4}, NO),
    "falcon, alibi": ("Falcon", {**SIZES, "alibi": True}, NO),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_a_module_is_what_it_is_inside_its_model(name):
    kind, settings, *said = (QUICK | OTHERS)[name]
    model = built(kind, settings, 0.5)
    for module, wanted in zip(attention_of(model), said, strict=False):
        try:
            found, refusal = pa.learn_from_queries(module, bias=True), ""
        except PolyattnError as error:
            found, refusal = None, str(error)
        if wanted is None:
            named = type(module).__name__ in refusal or "first called" in refusal
            assert named if found is None else not found.outcome.ok
            continue
        assert found is not None, refusal
        assert (found.recovered, found.mode, found.residual) == (True, *wanted), found.outcome
        # Some end in a normalisation, which is left out.
        tokens, added = (each.astype(float) for each in attended(model, module))
        expected = added + found.residual * tokens
        assert np.abs(found.predict(tokens) - expected).max() < 1e-4 * np.abs(expected).max()


def test_what_is_not_attention_to_its_own_tokens_is_refused_with_what_to_give():
    sizes = {"d_model": 8, "vocab_size": 20, "pad_token_id": 0}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_attention_heads": 2, f"{part}_layers": 1, f"{part}_ffn_dim": 16}
    decoder = built("Bart", sizes).decoder.layers[0]
    with pytest.raises(PolyattnError, match="other sequences"):
        pa.learn_from_queries(decoder.encoder_attn, bias=True)
    assert pa.learn_from_queries(decoder.self_attn, bias=True).layer.mode == "causal"
    with pytest.raises(InvalidInput, match=r"\.self_attn.*input_layernorm"):
        pa.learn_from_queries(built("Llama", SHARED).layers[0])
