"""Weights of trained models as layers, and layers as weights of modules."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

import polyattn as pa
from oracle import projected, random_heads
from polyattn.errors import InvalidInput, PolyattnError
from polyattn.interop import from_weights, read_projections, to_weights
from test_layers import normal


def four(names, prefix):
    """Four nn.Linear of these names: weights (out, in), heads side by side."""

    def state(heads, prefix=prefix):
        found = {}
        for role, name in zip("QKVO", names.split(), strict=True):
            each = heads[f"W_{role}"]
            flat = np.vstack(each) if role == "O" else np.concatenate([*each], axis=1)
            found[f"{prefix}{name}.weight"] = np.ascontiguousarray(flat.T)
            if f"b_{role}" in heads:
                found[f"{prefix}{name}.bias"] = heads[f"b_{role}"].ravel()
        return found

    return state


def lens(heads, prefix="blocks.0.attn."):
    few = len(heads["W_K"]) < len(heads["W_Q"])
    return {f"{prefix}{'_' * (few and n[-1] in 'KV')}{n}": each for n, each in heads.items()}


bert = four("self.query self.key self.value output.dense", "attention.")
albert = four("query key value dense", "attention.")
llama = four("q_proj k_proj v_proj o_proj", "self_attn.")
STATES = {"bert": bert, "albert": albert, "llama": llama, "transformer_lens": lens}

X = normal(2, 5, 12, seed=1)
HEADS = random_heads(12, 3, 4)
BERT, LLAMA, LENS = bert(HEADS), llama(HEADS), lens(HEADS)
GPT2 = {"attn.c_attn.weight": normal(12, 36), "attn.c_proj.weight": normal(12, 12)}


def powers(theta, head_dim):
    return np.array([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])


def expected(heads, mode="full", **beside):
    found = np.array([projected(heads, x, {"mode": mode}, **beside) for x in X])
    return found[:, -1] if mode == "last" else found


def same(found, wanted, rtol=1e-12):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=rtol * np.abs(wanted).max())


LAYOUTS = {  # heads, heads that share keys, theta
    "bert": (3, 1, None), "llama": (3, 1, 500.0), "llama, grouped": (4, 2, 500.0),
    "llama, one key": (4, 4, None), "transformer_lens": (4, 2, None),
}  # fmt: skip


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_and_written(name, bias):
    layout, (n_heads, n_shared, theta) = name.partition(",")[0], LAYOUTS[name]
    heads = random_heads(12, n_heads, 4, n_shared=n_shared, bias=bias)
    state, grouped = STATES[layout](heads), layout != "bert"
    turned = {"rotary": theta} if layout == "llama" else {}
    told = {"n_heads": n_heads, "mode": "causal" if grouped else "full"} | turned
    found = read_projections(state, layout=layout, **told)
    for role, each in heads.items():
        every = each if role == "b_O" else np.repeat(each, n_heads // len(each), axis=0)
        np.testing.assert_array_equal(getattr(found, role), every)
    layer = from_weights(state, **told)
    assert found.to_layer() == layer
    assert (layer.n_heads, layer.bias, layer.mode) == (n_heads, bias, told["mode"])
    turns = theta and powers(theta, 4)
    same(layer(X), expected(heads, told["mode"], frequencies=turns))
    beside = {"n_kv_heads": n_heads // n_shared} if grouped else {}
    beside |= {} if theta or not turned else {"rotary": None}
    written = to_weights(layer, layout, head_dim=4, **beside)
    for tensor, each in STATES[layout](heads, "").items():
        assert (written[tensor].shape, written[tensor].dtype) == (each.shape, float)
        assert written[tensor].flags.c_contiguous  # as files need it
    same(from_weights(written, **told)(X), layer(X))


def test_heads_that_are_not_needed_are_zero():
    layer = pa.data.random_softmax_layer(12, n_heads=2, rank=3, mode="causal", random_state=0)
    more = to_weights(layer, "gpt2", 4)
    assert np.all(more["c_proj.weight"][6:] == 0.0)
    wide = to_weights(layer, "llama", 6, n_kv_heads=3, head_dim=6, rotary=None)
    for state, n_heads in ((more, 4), (to_weights(layer, "gpt2", head_dim=3), 4), (wide, 6)):
        told = {} if "c_attn.weight" in state else {"rotary": None}
        same(from_weights(state, n_heads=n_heads, **told)(X), layer(X))


def test_scale_mode_prefix_dtype_and_tolerance():
    for beside in ({"scale": 0.7, "mode": "causal"}, {"mode": "last"}):
        same(from_weights(BERT, n_heads=3, **beside)(X), expected(HEADS, **beside))
    layer = from_weights(BERT, n_heads=3)
    assert pa.same_function(from_weights(LENS, mode="full"), layer, 1e-12)
    found = to_weights(layer, "bert", prefix="encoder.layer.0.attention", dtype="float32")
    assert found.keys() == bert(HEADS, "encoder.layer.0.attention.").keys()
    assert {each.dtype for each in found.values()} == {np.dtype(np.float32)}
    same(from_weights(found, 0, n_heads=3)(X), layer(X), 1e-5)
    noise = 1e-9 * normal(*layer.attn.shape)
    spoiled = pa.SoftmaxAttention(layer.attn + noise, layer.value, bias=True)
    same(from_weights(to_weights(spoiled, "bert", tolerance=1e-7), n_heads=3)(X), layer(X), 1e-6)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("n_turned", [4, 8])
def test_pairs_and_parts_of_heads_that_turn(interleaved, n_turned):
    """Of 8 coordinates 4 or all: (0, 2), (1, 3), ..., or interleaved (0, 1), (2, 3), ..."""
    heads, turns, half = random_heads(12, 4, 8, n_shared=2), powers(9.0, n_turned), n_turned // 2
    turned, still = [*range(n_turned)], [*range(n_turned, 8)]
    turned = [*turned[0::2], *turned[1::2]] if interleaved else turned
    order = [*turned[:half], *still[: 4 - half], *turned[half:], *still[4 - half :]]
    in_halves = {n: e[..., order] if n[2] in "QK" else e for n, e in heads.items()}
    layer = from_weights(llama(heads), n_heads=4, rotary=turns, interleaved=interleaved)
    np.testing.assert_array_equal(layer.frequencies, np.pad(turns, (0, 4 - half)))
    same(layer(X), expected(in_halves, "causal", frequencies=layer.frequencies))
    for n_kv_heads in (2, 4):
        written = to_weights(layer, "llama", n_kv_heads=n_kv_heads)
        same(from_weights(written, n_heads=4, rotary=turns)(X), layer(X))
    if not interleaved:  # in the order of the module, and with its own keys
        same(written["k_proj.weight"][:8], llama(heads, "")["k_proj.weight"][:8])


def configured(**beside):
    return {"num_attention_heads": 3, "rope_theta": 500.0} | beside


def test_a_configuration_says_what_is_turned():
    plain = from_weights(LLAMA, n_heads=3, rotary=500.0)
    nested = {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    for config in (configured(), {"num_attention_heads": 3} | nested):
        assert from_weights(LLAMA, config=config) == plain
    part = from_weights(LLAMA, config=configured(partial_rotary_factor=0.5))
    np.testing.assert_array_equal(part.frequencies, [1.0, 0.0])
    # A window that no sequence sees, and layers of models that have it in others.
    kinds = {"layer_types": ["full_attention", "sliding_attention"], "model_type": "qwen2"}
    windowed = {"config": configured(sliding_window=9, **kinds)}
    state = {f"layers.{i}.{n}": e for i in (0, 1) for n, e in LLAMA.items()}
    assert from_weights(state, 1, max_length=9, **windowed) == plain
    assert from_weights(state, 0, **windowed) == plain
    off = configured(sliding_window=9, use_sliding_window=False, model_type="qwen2")
    assert from_weights(LLAMA, config=off) == plain
    # Every layer of Mistral has the window, also where settings that it does not read deny it.
    mistral = windowed["config"] | {"model_type": "mistral"}
    for layer, told in ((1, windowed), (0, {"config": mistral})):
        with pytest.raises(InvalidInput, match="sliding_window=9"):
            from_weights(state, layer, max_length=10, **told)
    # TransformerLens keeps rotary_sin beside weights whose queries are turned.
    kept = LENS | {"blocks.0.attn.rotary_sin": np.zeros((3, 4)), "blocks.0.attn.mask": np.ones(3)}
    with pytest.raises(InvalidInput, match="rotary must be given"):
        from_weights(kept, mode="causal")
    settings = {"n_heads": 3, "attention_dir": "causal", "positional_embedding_type": "rotary",
                "rotary_base": 500, "rotary_dim": 4, "attn_scale": 2.0}  # fmt: skip
    layer = from_weights(kept, config=settings)
    same(layer(X), expected(HEADS, "causal", frequencies=powers(500.0, 4)))
    adjacent = from_weights(kept, config=settings | {"rotary_adjacent_pairs": True})
    assert adjacent == from_weights(kept, mode="causal", rotary=500.0, interleaved=True)


def test_shared_keys_are_found_whatever_their_gauge():
    """Keys of a head may be turned and scaled in each plane, queries the other way round."""
    rng, heads = np.random.default_rng(3), random_heads(12, 4, 6, n_shared=2)
    del heads["b_O"]
    heads = {name: np.repeat(each, 4 // len(each), axis=0) for name, each in heads.items()}
    for h, i in np.ndindex(4, 3):
        factor = complex(*rng.standard_normal(2))
        for name, by in (("K", factor), ("Q", 1 / factor.conjugate())):
            for each in (heads[f"W_{name}"][h], heads[f"b_{name}"][h]):
                turned = (each[..., i] + 1j * each[..., i + 3]) * by
                each[..., i], each[..., i + 3] = turned.real, turned.imag
    layer = from_weights(llama(heads), n_heads=4, rotary=500.0)
    for layout in ("llama", "qwen2"):  # of which the second has no bias of outputs
        found = to_weights(layer, layout, n_kv_heads=2)
        assert ("o_proj.bias" in found) == (layout == "llama")
        same(from_weights(found, n_heads=4, n_kv_heads=2, rotary=500.0)(X), layer(X))
    heads["W_K"][1] += 1e-6
    with pytest.raises(InvalidInput, match=r"heads [01] and [01] would share keys"):
        to_weights(from_weights(llama(heads), n_heads=4, rotary=500.0), "llama", n_kv_heads=2)


def stack(n_layers, make=bert, prefix="encoder.layer.{}.attention."):
    every = (make(random_heads(12, 3, 4, seed=i), prefix.format(i)) for i in range(n_layers))
    return {name: each for state in every for name, each in state.items()}


def test_a_layer_is_chosen_by_number_or_name():
    state, one = stack(12), from_weights(bert(random_heads(12, 3, 4, seed=1)), n_heads=3)
    for layer in (1, "encoder.layer.1", "encoder.layer.1.attention", "layer.1.attention"):
        assert from_weights(state, layer, n_heads=3) == one
    assert from_weights(state, 11, n_heads=3) != one
    # Attention to another sequence and buffers are passed over.
    both = bert(HEADS, "layer.0.attention.") | bert(HEADS, "layer.0.crossattention.")
    beside = GPT2 | {"attn.bias": np.ones((1, 4)), "attn.masked_bias": -1e4}
    old = LLAMA | {"self_attn.rotary_emb.inv_freq": np.ones(2)}
    for more, fewer in ((both, BERT), (beside, GPT2), (old, LLAMA)):
        told = {"rotary": 9.0} if fewer is LLAMA else {}
        assert from_weights(more, n_heads=3, **told) == from_weights(fewer, n_heads=3, **told)
    # ALBERT shares one layer among all blocks of a group.
    groups = stack(2, albert, "encoder.albert_layer_groups.{}.albert_layers.0.attention.")
    settings = {"model_type": "albert", "num_attention_heads": 3, "num_hidden_layers": 6,
                "num_hidden_groups": 2}  # fmt: skip
    for layer in range(6):
        found = from_weights(groups, layer, config=settings)
        assert found == from_weights(groups, layer // 3, n_heads=3)
        assert (found == one) == (layer >= 3)


def test_modules_of_torch():
    torch.manual_seed(0)
    numbers, tokens = {"batch_first": True, "dtype": torch.float64}, [torch.tensor(X)] * 3
    inner = torch.nn.TransformerDecoderLayer(12, 3, 8, **numbers)
    decoder = torch.nn.TransformerDecoder(inner, 2).eval()
    part = decoder.layers[1].self_attn
    for parameter in (part.in_proj_bias, part.out_proj.bias):
        torch.nn.init.normal_(parameter)
    found, wanted = from_weights(decoder, "layers.1"), part(*tokens)[0].detach().numpy()
    same(found(X), wanted)
    assert from_weights(decoder, 1) == from_weights(part) == found
    state = {name: each.detach() for name, each in part.state_dict().items()}
    for name, each in zip("qkv", state.pop("in_proj_weight").reshape(3, 12, 12), strict=True):
        state[f"{name}_proj_weight"] = each
    assert from_weights(state, n_heads=3) == found
    written = {name: torch.tensor(each) for name, each in to_weights(found, "multihead").items()}
    part.load_state_dict(written)
    same(part(*tokens)[0].detach().numpy(), wanted)


def test_types_of_numbers_and_files(tmp_path):
    for kind in ("float16", "float32", "bfloat16", "float64"):
        state = {n: torch.tensor(each).to(getattr(torch, kind)) for n, each in BERT.items()}
        exact = {n: each.double().numpy() for n, each in state.items()}
        save_tensors(state, tmp_path / "of.safetensors")
        torch.save(state, tmp_path / "of.bin")
        wanted = from_weights(exact, n_heads=3)
        assert (wanted == from_weights(BERT, n_heads=3)) == (kind == "float64")
        for source in (state, tmp_path / "of.safetensors", str(tmp_path / "of.bin")):
            assert from_weights(source, n_heads=3) == wanted


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_folders_and_configurations_beside_them(kind, tmp_path):
    """Only the tensors of the layer are read: others may be NaN, integers, or not there."""
    spoiled = {"encoder.layer.1.attention.self.key.bias": np.full(12, np.nan)}
    state, places = stack(3) | spoiled | {"encoder.layer.1.ids": np.arange(4)}, {}
    wanted = from_weights(stack(3), 2, n_heads=3)
    for i in range(3):
        name = f"part-{i}.{kind}"
        content = {n: each for n, each in state.items() if n.split(".")[2] == str(i)}
        places |= dict.fromkeys(content, name)
        if kind == "bin":
            torch.save({n: torch.tensor(e) for n, e in content.items()}, tmp_path / name)
        else:
            save_file(content, tmp_path / name)
    stem = "model.safetensors" if kind == "safetensors" else "pytorch_model.bin"
    index, beside = tmp_path / f"{stem}.index.json", tmp_path / "config.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    beside.write_text(json.dumps({"num_attention_heads": 3, "model_type": "bert"}))
    (tmp_path / f"part-0.{kind}").unlink()
    for source, layer in ((index, 2), (tmp_path, 2), (str(tmp_path / f"part-2.{kind}"), None)):
        assert from_weights(source, layer) == wanted
    assert from_weights(state, 2, config=beside) == wanted
    # A configuration that is given takes the place of the one beside a file.
    assert from_weights(tmp_path, 2, n_heads=4, config={}).n_heads == 4
    with pytest.raises(InvalidInput, match="NaN"):
        from_weights(index, 1)
    with pytest.raises(FileNotFoundError, match="part-0"):
        from_weights(index, 0)


SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16,
    "vocab_size": 11, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    "max_position_embeddings": 64,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "rope_theta": 300.0, "attention_dropout": 0.0}
ROTARY = {
    "Llama": GROUPED, "Mistral": GROUPED | {"sliding_window": None}, "Qwen2": GROUPED,
    "Gemma": GROUPED | {"head_dim": 8},
}  # fmt: skip
SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
MODELS = ROTARY | {
    **dict.fromkeys(("Bert", "Roberta", "XLMRoberta", "Camembert"), SIZES),
    **dict.fromkeys(("Electra", "Albert"), SIZES | {"embedding_size": 8}),
    "GPT2": SMALL | {"vocab_size": 11, "bos_token_id": None, "eos_token_id": None},
    "StableLm": GROUPED | {"use_qkv_bias": True},
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
HALF_TURNED = {"rope_theta": 300.0, "partial_rotary_factor": 0.5}
RUNNING = [
    *((name, {}) for name in MODELS), *((name, {"half": True}) for name in ROTARY),
    *((name, {"partial_rotary_factor": 0.5}) for name in ROTARY), ("Bert", {"is_decoder": True}),
    ("GPT2", {"scale_attn_weights": False}), ("GPT2", {"scale_attn_by_inverse_layer_idx": True}),
    ("Llama", {"head_dim": 12}), ("Llama", {"num_key_value_heads": 1}),
    ("Llama", {"attention_bias": True}), ("Llama", {"rope_scaling": LLAMA3}),
    ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    ("StableLm", {"rope_parameters": HALF_TURNED}),
]  # fmt: skip
one_worker = pytest.mark.xdist_group("transformers")


def built(name, settings, size=0.3):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind = getattr(transformers, f"{name}Model")
    model, generator = kind(kind.config_class(**settings)).eval(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for each in model.parameters():
            each.normal_(0.0, size, generator=generator)
    return model


def attention_of(model):
    """The outermost modules whose class is called attention, layer by layer."""
    found = {}
    for name, module in model.named_modules():
        inner = any(name.startswith(f"{outer}.") for outer in found)
        if type(module).__name__.endswith("Attention") and not inner:
            found[name] = module
    return list(found.values())


def made(name, half=False, **beside):
    """A model in float64, and the attention module of its second layer."""
    model = built(name, MODELS.get(name, GROUPED) | beside)
    model = model.half().double() if half else model.double()
    return model, attention_of(model)[-1]


def attended(model, module):
    """What the module is given, and what it adds, while the model runs."""
    seen, dense = [], getattr(getattr(module, "output", module), "dense", module)

    def before(_, args, named):
        seen.append(args[0] if args else named["hidden_states"])

    def after(_, __, out):
        seen.append(out[0] if isinstance(out, tuple) else out)

    hooks = [module.register_forward_pre_hook(before, with_kwargs=True)]
    hooks.append(dense.register_forward_hook(after))
    with torch.no_grad():
        width = model.get_input_embeddings().embedding_dim
        model(inputs_embeds=torch.tensor(normal(1, 50, width)).to(model.dtype))
    for hook in hooks:
        hook.remove()
    return seen[-2].numpy(), seen[-1].numpy()


@one_worker
@pytest.mark.parametrize(("name", "beside"), RUNNING)
def test_weights_do_what_the_running_model_does(name, beside):
    """Read from it, and written into it where there are other numbers."""
    model, module = made(name, **beside)
    tokens, wanted = attended(model, module)
    told = {"layout": "llama"} if name == "StableLm" else {}
    layer, config = from_weights(model, 1, **told), model.config
    turned = layer.frequencies is not None
    # Rotary angles are float32 in all models.
    close = 1e-6 if turned else 1e-12
    same(layer(tokens), wanted, close)
    if beside not in ({"half": True}, {"partial_rotary_factor": 0.5}):
        for source in (config, config.to_dict()):
            again = from_weights(model.state_dict(), 1, config=source, **told)
            same(again(tokens), wanted, close)
    if any("scale_attn" in each for each in beside):
        return  # Of modules that divide by sqrt(head_dim) weights are written.
    groups = {"n_kv_heads": config.num_key_value_heads} if turned else {}
    layout = {"gpt2": "gpt2", "albert": "albert"}.get(config.model_type, "bert")
    layout = ("llama" if "attention_bias" in beside else "qwen2") if turned else layout
    state = {n: torch.tensor(each) for n, each in to_weights(layer, layout, **groups).items()}
    with torch.no_grad():
        for n, each in module.named_parameters():
            each.mul_(1.0 if "LayerNorm" in n else 0.0)
    said = module.load_state_dict(state, strict=False)
    assert all("LayerNorm" in each for each in said.missing_keys)
    assert all(each.endswith("bias") and not state[each].any() for each in said.unexpected_keys)
    same(attended(model, module)[1], wanted, close)


@one_worker
def test_what_models_add_is_refused():
    dynamic, yarn = ({"rope_type": kind, "factor": 2.0} for kind in ("dynamic", "yarn"))
    for name, beside, words in (
        ("Llama", {"rope_scaling": dynamic}, "'dynamic'"),
        *((each, {"rope_scaling": yarn}, "'yarn'.*attention_scaling") for each in ROTARY),
        ("Qwen3", {"head_dim": 8}, "q_norm"), ("Gemma2", {"head_dim": 8}, "model_type='gemma2'"),
    ):  # fmt: skip
        model, _ = made(name, **beside)
        for source, told in ((model, {}), (model.state_dict(), {"config": model.config})):
            with pytest.raises(InvalidInput, match=words):
                from_weights(source, 1, **told)
    with pytest.raises(InvalidInput, match="softcapping"):
        from_weights(model, 0, layout="llama")


STACK, CROSS = stack(12), bert(HEADS, "layer.0.crossattention.")
MHA, GROUPS = torch.nn.MultiheadAttention, llama(random_heads(12, 4, 4, n_shared=2))
KEY, VALUE = "attention.self.key.weight", "attention.self.value.weight"


def of(**settings):
    return {"config": configured(**settings)}


# The source, what is told beside, and what the message names; ``THREE`` with three heads.
THREE, STILL = {"n_heads": 3}, {"n_heads": 3, "rotary": None}
REFUSED = [
    (BERT | {KEY: np.ones((8, 12)), VALUE: np.ones((8, 12))}, THREE, "as many keys as queries"),
    (BERT | {"attention.self.distance_embedding.weight": np.ones((3, 4))}, THREE, "distance"),
    ({"conv.weight": np.ones((3, 3))}, {}, "no attention layer.*llama: q_proj.*conv.weight"),
    (LLAMA | {"self_attn.q_proj.lora_A.weight": np.ones((2, 12))}, STILL, "lora_A.*merged"),
    ({n: each.astype(np.int8) for n, each in BERT.items()}, THREE, "int8"),
    (BERT | {KEY: np.full((12, 12), np.nan)}, THREE, "key.weight.*NaN"),
    ({n: each.T for n, each in GPT2.items()}, THREE, "transpose"), (CROSS, THREE, "another seq"),
    (MHA(12, 3, add_zero_attn=True), {}, "add_zero_attn"),
    (MHA(12, 3, add_bias_kv=True), {}, "bias_k"),
    (GPT2, {"config": {"n_head": 3, "scale_attn_by_inverse_layer_idx": True}}, "scale must"),
    (LLAMA, of(rope_parameters={"full": {"rope_theta": 5.0}}), "rope_parameters.*one set"),
    (LLAMA, of(rope_scaling={"rope_type": "llama3", "factor": 8.0}), "low_freq_factor"),
    (LLAMA, of(model_type="cohere"), "model_type='cohere'.*layout='llama'"),
    (LLAMA, of(use_bidirectional_attention=True), "mode must"),
    (BERT, of(position_embedding_type="relative_key"), "relative_key"),
    (BERT, of(pruned_heads={"0": [1]}), "pruned"), (LLAMA, of(head_dim=6), "head_dim = 6"),
    (STACK, THREE, "12 attention layers.*'encoder.layer.2.attention', 'encoder.layer.3"),
    (BERT | GPT2, THREE, r"'attention' \(bert\).*'attn' \(gpt2\)"),
    (STACK, THREE | {"layer": "decoder.layer.1"}, "no layer 'decoder.layer.1'"),
    (STACK, THREE | {"layer": "encoder"}, "fits several"),
    (BERT, THREE | {"layout": "gpt2"}, "gpt2: c_attn.weight.*attention.self.query"),
    (BERT, {"n_heads": 4, "config": {"num_attention_heads": 3}}, "n_heads = 4.*says 3"),
    (BERT, {}, "n_heads must be given.*1, 2, 3, 4, 6, 12"), (BERT, {"n_heads": 5}, "n_heads = 5"),
    (GROUPS, {"rotary": None}, r"W_K \(12, 8\).*2, 4, 8, 16"), (LENS, {}, "mode must be given"),
    (LLAMA, STILL | {"n_kv_heads": 1}, "n_kv_heads = 1.*3 heads"), (LLAMA, THREE, "rotary must be"),
    (LLAMA, THREE | {"rotary": np.ones(3)}, "head_dim / 2 = 2"),
    (BERT, THREE | {"rotary": 500.0}, "rotary was given"),
]  # fmt: skip
FULL = pa.data.random_softmax_layer(12, n_heads=3, mode="causal")
TURNED = from_weights(LLAMA, **of())
LOW = from_weights(llama(random_heads(12, 3, 4, bias=False)), n_heads=3, rotary=None)
ONE = from_weights(llama(random_heads(12, 1, 4)), n_heads=1, rotary=500.0)
LARGE = pa.SoftmaxAttention(LOW.attn, 1e12 * LOW.value, "causal")
UNWRITTEN = [
    (LOW, ("llama",), {"n_kv_heads": 1, "head_dim": 4, "rotary": None}, "heads 0 to 2.*keys"),
    (pa.SoftmaxAttention(np.eye(3), np.ones((3, 2))), ("bert",), {}, "as many outputs"),
    (LOW, ("llama",), {"n_kv_heads": 2, "rotary": None}, "must divide n_heads = 3"),
    (FULL, ("gpt2",), {}, "head 0 has attn of rank 12, more than head_dim = 4"),
    (from_weights(BERT, n_heads=3), ("gpt2",), {}, "mode 'full'"),
    (TURNED, ("llama",), {"head_dim": 6}, "head_dim must be 4"),
    (LOW, ("llama",), {}, "rotary=None"), (LOW, ("llama",), {"rotary": 3.0}, "rotary must be"),
    (TURNED, ("bert",), {}, "turns nothing"), (ONE, ("qwen2",), {}, "'llama' has one"),
    (LOW, ("llama", 2), {"rotary": None}, "at least 3"), (LOW, ("gpt2",), {"n_kv_heads": 1}, "its"),
    (LARGE, ("gpt2",), {"dtype": "float16"}, "float16"),
]  # fmt: skip


def test_what_cannot_be_expressed_is_refused_and_named():
    for source, told, words in REFUSED:
        with pytest.raises(PolyattnError, match=f"(?s){words}"):
            from_weights(source, **told)
    for layer, places, told, words in UNWRITTEN:
        with pytest.raises(PolyattnError, match=words):
            to_weights(layer, *places, **told)


def test_files_that_are_damaged_or_would_run_code_are_refused(tmp_path):
    """Of an index that leads elsewhere nothing is opened."""
    torch.save({"x": pytest.raises}, tmp_path / "code.bin")
    torch.save({"model": {"x": torch.ones(2)}, "step": 3}, tmp_path / "inner.pt")
    save_file(BERT, tmp_path / "whole.safetensors")
    save_file({"other": np.ones(2)}, tmp_path / "part.safetensors")
    (tmp_path / "folder").mkdir()
    cut = (tmp_path / "whole.safetensors").read_bytes()[:-7]
    wrong = dict.fromkeys(BERT, "part.safetensors")
    for name, content, words in (
        ("code.bin", None, "convert it to safetensors"), ("inner.pt", None, r"\['model'\]"),
        ("cut.safetensors", cut, "truncated"), ("noise.pt", bytes(99), "truncated|more than ten"),
        ("model.pkl", b"x", "convert others"), ("folder", None, "folder without"),
        ("gone.safetensors", None, "no file"), ("a.index.json", b"{}", "'weight_map'"),
        ("b.index.json", b'{"weight_map": {"a": "../whole.safetensors"}}', "beside the index"),
        ("c.index.json", json.dumps({"weight_map": wrong}).encode(), "which it does not"),
    ):  # fmt: skip
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises((PolyattnError, FileNotFoundError), match=words):
            from_weights(tmp_path / name, n_heads=3)
    (tmp_path / "config.json").write_bytes(b"{")
    with pytest.raises(PolyattnError, match=r"config\.json"):
        from_weights(tmp_path / "whole.safetensors", n_heads=3)
