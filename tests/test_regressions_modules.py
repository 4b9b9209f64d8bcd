"""Modules of transformers as oracles: what is learned of each is what it does inside its model.

In 0.3.0 modules were called without the mask of their model: windows were "recovered" as causal
layers, causal ones as full, positions that change with the length as those of short sequences.
"""

from __future__ import annotations

import numpy as np
import pytest

import polyattn as pa
from polyattn.errors import PolyattnError

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

SIZES = {
    "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16, "num_hidden_layers": 2,
    "vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {
    "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 300, "vocab_size": 20,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SHARED = {"num_key_value_heads": 1}
WINDOW = {"sliding_window": 12}
BOTH = {"layer_types": ["sliding_attention", "full_attention"], **WINDOW}
ROPE = {"rope_theta": 10000.0}


def rope(**settings):
    return {"rope_parameters": {**ROPE, **settings}}


# name: model, settings, and what comes of its first layer and, where it differs, of its second
KINDS = {
    "bert": ("BertModel", SIZES, "ok"),
    "bert decoder": ("BertModel", {**SIZES, "is_decoder": True}, "ok"),
    "roberta": ("RobertaModel", SIZES, "ok"),
    "electra": ("ElectraModel", {**SIZES, "embedding_size": 8}, "ok"),
    "albert": ("AlbertModel", {**SIZES, "embedding_size": 8}, "ok"),
    "camembert": ("CamembertModel", SIZES, "ok"),
    "distilbert": (
        "DistilBertModel",
        {"dim": 8, "n_heads": 2, "hidden_dim": 16, "n_layers": 2, "vocab_size": 20},
        "ok",
    ),
    "gpt2": ("GPT2Model", GPT, "ok"),
    "gpt bigcode": ("GPTBigCodeModel", GPT, "ok"),
    "gpt neox": ("GPTNeoXModel", SIZES, "ok"),
    "opt": ("OPTModel", {**SIZES, "ffn_dim": 16, "word_embed_proj_dim": 8}, "ok"),
    "biogpt": ("BioGptModel", SIZES, "ok"),
    "llama": ("LlamaModel", {**SIZES, **SHARED}, "ok"),
    "llama, partial": ("LlamaModel", {**SIZES, **rope(partial_rotary_factor=0.5)}, "ok"),
    "llama, linear": ("LlamaModel", {**SIZES, **rope(rope_type="linear", factor=4.0)}, "ok"),
    "llama, dynamic": (
        "LlamaModel",
        {**SIZES, **rope(rope_type="dynamic", factor=4.0), "max_position_embeddings": 32},
        "no",
    ),
    "mistral": ("MistralModel", {**SIZES, **SHARED, "sliding_window": None}, "ok"),
    "mistral, window": ("MistralModel", {**SIZES, **SHARED, **WINDOW}, "no"),
    "qwen2": ("Qwen2Model", {**SIZES, **SHARED}, "ok"),
    "qwen2, window": (
        "Qwen2Model",
        {**SIZES, **SHARED, **WINDOW, "use_sliding_window": True, "max_window_layers": 0},
        "no",
    ),
    "qwen3": ("Qwen3Model", {**SIZES, **SHARED, "head_dim": 4}, "no"),
    "phi": ("PhiModel", SIZES, "ok"),
    "phi3": ("Phi3Model", {**SIZES, "sliding_window": None}, "ok"),
    "phi3, window": ("Phi3Model", {**SIZES, **WINDOW}, "no"),
    "starcoder2": ("Starcoder2Model", {**SIZES, **SHARED, "sliding_window": None}, "ok"),
    "starcoder2, window": ("Starcoder2Model", {**SIZES, **SHARED, **WINDOW}, "no"),
    "gemma": ("GemmaModel", {**SIZES, **SHARED, "head_dim": 4}, "ok"),
    "gemma2": (
        "Gemma2Model",
        {**SIZES, **SHARED, **BOTH, "head_dim": 4, "attn_logit_softcapping": None},
        "no",
        "ok",
    ),
    "gemma2, capped": ("Gemma2Model", {**SIZES, **SHARED, "head_dim": 4}, "no"),
    "gemma3": ("Gemma3TextModel", {**SIZES, **SHARED, **BOTH, "head_dim": 4}, "no"),
    "modernbert": ("ModernBertModel", {**SIZES, "local_attention": 12}, "no"),
    "gptj": ("GPTJModel", {**GPT, "rotary_dim": 4}, "no"),
    "bloom": ("BloomModel", {"hidden_size": 8, "n_head": 2, "n_layer": 2, "vocab_size": 20}, "no"),
    "falcon": ("FalconModel", SIZES, "ok"),
    "falcon, alibi": ("FalconModel", {**SIZES, "alibi": True}, "no"),
    "stablelm": (
        "StableLmModel",
        {**SIZES, "num_key_value_heads": 2, "partial_rotary_factor": 0.5},
        "ok",
    ),
    "xglm": (
        "XGLMModel",
        {"d_model": 8, "attention_heads": 2, "num_layers": 2, "ffn_dim": 16, "vocab_size": 20},
        "no",
    ),
    "olmo": ("OlmoModel", SIZES, "ok"),
}

# One of every way in which a model calls its attention; the others take minutes together.
QUICK = ("bert decoder", "gpt2", "bloom", "xglm", "gemma2, capped", "distilbert")


def built(name):
    """The model in float32, in evaluation mode, with weights that matter."""
    kind = getattr(transformers, KINDS[name][0])
    torch.manual_seed(0)
    model = kind(kind.config_class(**KINDS[name][1])).eval()
    with torch.no_grad():
        for each in model.parameters():
            if each.ndim > 1:
                each.normal_(std=0.5)
            else:
                each.add_(0.1 * torch.randn_like(each))
    return model


def attention_of(model):
    """The outermost modules whose class is called attention, layer by layer."""
    found = {}
    for name, module in model.named_modules():
        outermost = not any(name.startswith(f"{outer}.") for outer in found)
        if type(module).__name__.endswith("Attention") and outermost:
            found[name] = module
    return list(found.values())


def inside(model, module):
    """Tokens and outputs of the module while the model runs on 50 tokens."""
    seen = {}

    def record(_, args, kwargs, outputs):
        seen["tokens"] = args[0] if args else kwargs["hidden_states"]
        seen["outputs"] = outputs[0] if isinstance(outputs, tuple) else outputs

    hook = module.register_forward_hook(record, with_kwargs=True)
    with torch.no_grad():
        model(torch.randint(3, 20, (2, 50), generator=torch.Generator().manual_seed(1)))
    hook.remove()
    return seen["tokens"].numpy().astype(float), seen["outputs"].numpy().astype(float)


def predicted(module, found, tokens):
    """What was learned, with the normalisation that some modules end in."""
    outputs = torch.tensor(found.predict(tokens))
    for name, after in module.named_modules():
        if name.endswith("LayerNorm"):
            outputs = after.double()(outputs)
    return outputs.detach().numpy()


def examine(name):
    model, said = built(name), KINDS[name][2:]
    for number, module in enumerate(attention_of(model)[: len(said)]):
        tokens, outputs = inside(model, module)
        found, refusal = None, ""
        try:
            found = pa.learn_from_queries(module, bias=True)
        except PolyattnError as error:
            refusal = str(error)
        ok = found is not None and found.outcome.ok
        assert ok == (said[number] == "ok"), refusal or found.outcome
        if found is None:
            assert type(module).__name__ in refusal or "first called" in refusal
        if ok:
            deviation = np.abs(predicted(module, found, tokens) - outputs).max()
            assert deviation < 1e-4 * np.abs(outputs).max()


@pytest.mark.parametrize("name", QUICK)
def test_a_module_is_what_it_is_inside_its_model(name):
    examine(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in KINDS if name not in QUICK])
def test_every_kind_of_module_is_what_it_is_inside_its_model(name):
    examine(name)


def test_attention_to_other_sequences_is_refused():
    """In 0.3.0 cross-attention was recovered as self-attention."""
    sizes = {"d_model": 8, "vocab_size": 20, "pad_token_id": 0}
    for part in ("encoder", "decoder"):
        sizes |= {f"{part}_attention_heads": 2, f"{part}_layers": 1, f"{part}_ffn_dim": 16}
    model = transformers.BartModel(transformers.BartConfig(**sizes))
    with pytest.raises(PolyattnError, match=r"attends to other sequences"):
        pa.learn_from_queries(model.decoder.layers[0].encoder_attn, bias=True)
    assert (
        pa.learn_from_queries(model.decoder.layers[0].self_attn, bias=True).layer.mode == "causal"
    )


def test_an_oracle_that_fails_at_once_is_named():
    """0.3.0 let raw exceptions through."""

    def failing(_):
        raise KeyError("tokens")

    with pytest.raises(PolyattnError, match=r"KeyError when it was first called.*\(\d+, 1, 3\)"):
        pa.learn_from_queries(failing, 3)
