"""from_weights: every layout against plain numpy, names of layers, files, types of numbers."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

import polyattn as pa
from polyattn.interop import from_weights, read_projections
from weight_cases import (
    CAUSAL,
    STATES,
    albert_state,
    bert_state,
    gpt2_state,
    lens_state,
    llama_state,
    multihead_state,
    outputs,
    powers,
    random_heads,
    repeated,
)

X = np.random.default_rng(1).standard_normal((2, 5, 12))
HEADS = random_heads()


def expected(heads, layout, X=X, **beside):
    if layout == "llama":
        beside.setdefault("frequencies", powers(500.0, heads["W_Q"].shape[2]))
    return outputs(repeated(heads), X, causal=layout in CAUSAL, **beside)


@pytest.mark.parametrize("layout", STATES)
@pytest.mark.parametrize("bias", [True, False])
def test_every_layout_computes_what_its_weights_say(layout, bias):
    make, beside = STATES[layout]
    heads = random_heads(bias=bias)
    for given in (layout, "auto"):
        layer = from_weights(make(heads), n_heads=3, layout=given, **beside)
        assert isinstance(layer, pa.SoftmaxAttention)
        assert (layer.n_heads, layer.n_dims, layer.n_outputs) == (3, 12, 12)
        assert layer.bias is bias
        assert layer.mode == ("causal" if layout in CAUSAL else "full")
        np.testing.assert_allclose(layer(X), expected(heads, layout), rtol=0, atol=1e-12)


def test_both_forms_of_multihead_attention():
    layer = from_weights(multihead_state(HEADS, separate=True), n_heads=3)
    np.testing.assert_allclose(layer(X), expected(HEADS, "multihead"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layout", ["llama", "transformer_lens"])
@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_heads_that_share_keys_and_values(layout, n_kv_heads):
    make, beside = STATES[layout]
    heads = random_heads(n_heads=4, n_kv_heads=n_kv_heads)
    layer = from_weights(make(heads), n_heads=4, n_kv_heads=n_kv_heads, **beside)
    assert layer.n_heads == 4
    np.testing.assert_allclose(layer(X), expected(heads, layout), rtol=0, atol=1e-12)


def test_stacked_heads_need_no_number():
    layer = from_weights(lens_state(HEADS), mode="full")
    np.testing.assert_allclose(layer(X), outputs(HEADS, X), rtol=0, atol=1e-12)


def test_scale_and_mode_are_those_that_are_given():
    layer = from_weights(bert_state(HEADS), n_heads=3, scale=0.7, mode="causal")
    np.testing.assert_allclose(
        layer(X), outputs(HEADS, X, causal=True, scale=0.7), rtol=0, atol=1e-12
    )
    last = from_weights(bert_state(HEADS), n_heads=3, mode="last")
    np.testing.assert_allclose(last(X), outputs(HEADS, X)[:, -1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1e-6, 1e5])
def test_units_of_weights_do_not_matter(size):
    heads = {name: size * each for name, each in HEADS.items()}
    found = from_weights(bert_state(heads), n_heads=3)(X)
    wanted = outputs(heads, X)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-11 * np.abs(wanted).max())


def test_projections_are_kept_as_they_were_trained():
    heads = random_heads(n_heads=4, n_kv_heads=2)
    found = read_projections(llama_state(heads), n_heads=4, rotary=500.0)
    for name, each in repeated(heads).items():
        np.testing.assert_array_equal(getattr(found, name), each)
    assert found.scale == 2.0
    np.testing.assert_allclose(found.rotary, powers(500.0, 4), rtol=1e-15)
    layer = from_weights(llama_state(heads), n_heads=4, rotary=500.0)
    assert found.to_layer() == layer
    assert read_projections(bert_state(HEADS), n_heads=3).rotary is None


# ---------------------------------------------------------------- rotary positions


def test_rotary_is_a_theta_frequencies_or_none():
    state = llama_state(HEADS)
    by_theta = from_weights(state, n_heads=3, rotary=500.0)
    assert by_theta == from_weights(state, n_heads=3, rotary=powers(500.0, 4))
    none = from_weights(state, n_heads=3, rotary=None)
    assert none.frequencies is None
    np.testing.assert_allclose(none(X), outputs(HEADS, X, causal=True), rtol=0, atol=1e-12)


def test_interleaved_pairs_become_halves():
    order = [0, 2, 1, 3]  # pairs (0, 1), (2, 3) as halves
    heads = {n: each[..., order] if n[-1] in "QK" else each for n, each in HEADS.items()}
    layer = from_weights(llama_state(HEADS), n_heads=3, rotary=500.0, interleaved=True)
    np.testing.assert_allclose(layer(X), expected(heads, "llama"), rtol=0, atol=1e-12)
    plain = from_weights(llama_state(HEADS), n_heads=3, rotary=500.0)
    assert np.abs(layer(X) - plain(X)).max() > 1e-3


@pytest.mark.parametrize("interleaved", [False, True])
def test_some_coordinates_are_not_turned(interleaved):
    """Of 8 coordinates 4 are turned: (0, 2), (1, 3), or (0, 1), (2, 3)."""
    heads = random_heads(n_heads=2, head_dim=8)
    frequencies = np.array([1.0, 0.3])
    found = from_weights(llama_state(heads), n_heads=2, rotary=frequencies, interleaved=interleaved)
    pairs = [(0, 1), (2, 3)] if interleaved else [(0, 2), (1, 3)]
    logits = np.zeros((2, 5, 5))
    for h in range(2):
        q = X[0] @ heads["W_Q"][h] + heads["b_Q"][h]
        k = X[0] @ heads["W_K"][h] + heads["b_K"][h]
        for t in range(5):
            for s in range(5):
                total = q[t, 4:] @ k[s, 4:]
                for (a, b), frequency in zip(pairs, frequencies, strict=True):
                    turn = complex(q[t, a], q[t, b]) * np.exp(1j * frequency * (t - s))
                    total += (turn * complex(k[s, a], -k[s, b])).real
                logits[h, t, s] = total / np.sqrt(8)
    ones = np.append(X[0], np.ones((5, 1)), axis=1)
    for t in range(5):
        for s in range(5):
            seen = ones[t] @ found.attn_at(t - s) @ ones[s]
            np.testing.assert_allclose(seen, logits[:, t, s], rtol=0, atol=1e-12)


def config(**beside):
    return {"num_attention_heads": 3, "rope_theta": 500.0} | beside


def test_a_configuration_says_what_is_turned():
    state = llama_state(HEADS)
    plain = from_weights(state, n_heads=3, rotary=500.0)
    assert from_weights(state, config=config()) == plain
    nested = {"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}}
    assert from_weights(state, config={"num_attention_heads": 3} | nested) == plain
    slow = from_weights(state, config=config(rope_scaling={"type": "linear", "factor": 4.0}))
    np.testing.assert_allclose(slow.frequencies, powers(500.0, 4) / 4, rtol=1e-15)
    part = from_weights(state, config=config(partial_rotary_factor=0.5))
    np.testing.assert_allclose(part.frequencies, [1.0, 0.0])


def test_frequencies_of_llama3():
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    heads = random_heads(n_heads=1, head_dim=12)
    found = from_weights(llama_state(heads), config=config(num_attention_heads=1,
                                                            rope_scaling=scaling))  # fmt: skip
    wanted = []
    for frequency in powers(500.0, 12):
        length = 2 * np.pi / frequency
        if length < 64 / 4:
            wanted.append(frequency)
        elif length > 64:
            wanted.append(frequency / 8)
        else:
            smooth = (64 / length - 1) / 3
            wanted.append((1 - smooth) * frequency / 8 + smooth * frequency)
    np.testing.assert_allclose(found.frequencies, wanted, rtol=1e-14)
    assert len(set(np.round(found.frequencies / powers(500.0, 12), 6))) >= 3


def test_rotary_of_transformer_lens_is_seen_by_its_buffers():
    state = lens_state(HEADS) | {"blocks.0.attn.rotary_sin": np.zeros((3, 4)),
                                 "blocks.0.attn.mask": np.ones((3, 3))}  # fmt: skip
    with pytest.raises(pa.errors.InvalidInput, match="rotary must be given"):
        from_weights(state, mode="causal")
    layer = from_weights(state, mode="causal", rotary=500.0)
    np.testing.assert_allclose(layer(X), expected(HEADS, "llama"), rtol=0, atol=1e-12)
    settings = {"n_heads": 3, "attention_dir": "causal", "positional_embedding_type": "rotary",
                "rotary_base": 500, "rotary_dim": 4, "attn_scale": 2.0}  # fmt: skip
    assert from_weights(state, config=settings) == layer
    adjacent = from_weights(state, config=settings | {"rotary_adjacent_pairs": True})
    assert adjacent == from_weights(state, mode="causal", rotary=500.0, interleaved=True)


# ---------------------------------------------------------------- settings of models


def test_settings_of_gpt2_change_the_scale():
    state = {f"h.{i}.{name}": each for i in range(3) for name, each in gpt2_state(HEADS).items()}
    settings = {"n_head": 3, "model_type": "gpt2"}
    plain = from_weights(state, 2, config=settings)
    np.testing.assert_allclose(plain(X), outputs(HEADS, X, causal=True), rtol=0, atol=1e-12)
    for setting, scale in (
        ({"scale_attn_weights": False}, 1.0),
        ({"scale_attn_by_inverse_layer_idx": True}, 2.0 * 3),
    ):
        layer = from_weights(state, 2, config=settings | setting)
        wanted = outputs(HEADS, X, causal=True, scale=scale)
        np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-12)


def test_decoders_are_causal():
    settings = {"num_attention_heads": 3, "model_type": "bert"}
    assert from_weights(bert_state(HEADS), config=settings).mode == "full"
    assert from_weights(bert_state(HEADS), config=settings | {"is_decoder": True}).mode == "causal"


def test_a_window_that_no_sequence_sees():
    settings = config(model_type="mistral", sliding_window=9)
    plain = from_weights(llama_state(HEADS), config=config())
    assert from_weights(llama_state(HEADS), config=settings, max_length=9) == plain
    for max_length in (None, 10):
        with pytest.raises(pa.errors.InvalidInput, match="sliding_window=9"):
            from_weights(llama_state(HEADS), config=settings, max_length=max_length)
    # Mistral has the window in all layers, whatever else its configuration says.
    off = settings | {"use_sliding_window": False}
    with pytest.raises(pa.errors.InvalidInput, match="sliding_window=9"):
        from_weights(llama_state(HEADS), config=off)
    assert from_weights(llama_state(HEADS), config=off | {"model_type": "qwen2"}) == plain
    kinds = settings | {"model_type": "qwen2"}
    kinds |= {"layer_types": ["sliding_attention", "full_attention"]}
    state = {f"layers.{i}.{n}": each for i in range(2) for n, each in llama_state(HEADS).items()}
    assert from_weights(state, 1, config=kinds) == plain
    with pytest.raises(pa.errors.InvalidInput, match="sliding_window=9"):
        from_weights(state, 0, config=kinds)


# ---------------------------------------------------------------- which layer


def stack(n_layers=3, prefix="encoder.layer"):
    return {
        f"{prefix}.{i}.{name}": each
        for i in range(n_layers)
        for name, each in bert_state(random_heads(seed=i)).items()
    }


@pytest.mark.parametrize(
    "layer", [1, "encoder.layer.1", "encoder.layer.1.attention", "layer.1", "layer.1.attention"]
)
def test_a_layer_is_chosen_by_number_or_name(layer):
    found = from_weights(stack(), layer, n_heads=3)
    wanted = outputs(random_heads(seed=1), X)
    np.testing.assert_allclose(found(X), wanted, rtol=0, atol=1e-12)


def test_names_of_more_than_one_digit_are_kept_apart():
    state = stack(12)
    found = from_weights(state, "encoder.layer.1", n_heads=3)
    np.testing.assert_allclose(found(X), outputs(random_heads(seed=1), X), rtol=0, atol=1e-12)
    assert from_weights(state, 11, n_heads=3) != found


def test_attention_to_another_sequence_is_passed_over():
    decoder = torch.nn.TransformerDecoderLayer(12, 3, 8, batch_first=True, dtype=torch.float64)
    stacked = torch.nn.TransformerDecoder(decoder, 2).eval()
    tokens = torch.tensor(X)
    wanted = stacked.layers[1].self_attn(tokens, tokens, tokens)[0].detach().numpy()
    for layer in (1, "layers.1"):
        found = from_weights(stacked, layer)
        np.testing.assert_allclose(found(X), wanted, rtol=0, atol=1e-12)
    both = bert_state(HEADS, "layer.0.attention.") | bert_state(HEADS, "layer.0.crossattention.")
    assert from_weights(both, n_heads=3) == from_weights(both, "layer.0", n_heads=3)


def test_buffers_beside_the_weights_are_passed_over():
    state = gpt2_state(HEADS) | {"attn.bias": np.ones((1, 1, 4, 4)), "attn.masked_bias": -1e4}
    assert from_weights(state, n_heads=3) == from_weights(gpt2_state(HEADS), n_heads=3)
    old = llama_state(HEADS) | {"self_attn.rotary_emb.inv_freq": np.ones(2)}
    assert from_weights(old, n_heads=3, rotary=9.0) == from_weights(
        llama_state(HEADS), n_heads=3, rotary=9.0
    )


def test_an_empty_configuration_takes_the_place_of_the_one_beside_a_file(tmp_path):
    save_file(bert_state(HEADS), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 4}))
    assert from_weights(tmp_path).n_heads == 4
    assert from_weights(tmp_path, n_heads=3, config={}).n_heads == 3
    assert from_weights(tmp_path, config=tmp_path / "config.json").n_heads == 4


def test_albert_shares_one_layer_among_all_blocks():
    group = "encoder.albert_layer_groups.{}.albert_layers.0.attention."
    state = {}
    for i in range(2):
        state |= albert_state(random_heads(seed=i), group.format(i))
    settings = {"model_type": "albert", "num_attention_heads": 3, "num_hidden_layers": 6,
                "num_hidden_groups": 2}  # fmt: skip
    for layer in range(6):
        found = from_weights(state, layer, config=settings)
        wanted = outputs(random_heads(seed=layer // 3), X)
        np.testing.assert_allclose(found(X), wanted, rtol=0, atol=1e-12)
    with pytest.raises(pa.errors.InvalidInput, match="num_hidden_layers = 6"):
        from_weights(state, 6, config=settings)
    assert from_weights(state, 1, n_heads=3) == from_weights(state, 5, config=settings)


# ---------------------------------------------------------------- numbers and files


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("place", ["dict", "safetensors", "bin"])
def test_types_of_numbers(kind, place, tmp_path):
    dtype = getattr(torch, kind)
    state = {n: torch.tensor(each).to(dtype) for n, each in bert_state(HEADS).items()}
    exact = {n: each.double().numpy() for n, each in state.items()}
    source = state
    if place == "safetensors":
        source = tmp_path / "model.safetensors"
        save_tensors(state, source)
    elif place == "bin":
        source = tmp_path / "model.bin"
        torch.save(state, source)
    assert from_weights(source, n_heads=3) == from_weights(exact, n_heads=3)
    if kind in ("bfloat16", "float16"):
        assert from_weights(exact, n_heads=3) != from_weights(bert_state(HEADS), n_heads=3)


def test_arrays_of_numpy_extensions_and_read_only_ones():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    state = {n: each.astype(ml_dtypes.bfloat16) for n, each in bert_state(HEADS).items()}
    exact = {n: each.astype(np.float64) for n, each in state.items()}
    for each in exact.values():
        each.setflags(write=False)
    assert from_weights(state, n_heads=3) == from_weights(exact, n_heads=3)


def test_only_the_tensors_of_the_layer_are_read(tmp_path):
    """Another layer is full of NaN and integers, and is not looked at."""
    state = stack(2)
    for name in state:
        if name.startswith("encoder.layer.0"):
            state[name] = np.full(state[name].shape, np.nan)
    state["embeddings.position_ids"] = np.arange(4)
    path = tmp_path / "model.safetensors"
    save_file(state, path)
    found = from_weights(path, 1, n_heads=3)
    np.testing.assert_allclose(found(X), outputs(random_heads(seed=1), X), rtol=0, atol=1e-12)
    with pytest.raises(pa.errors.InvalidInput, match="NaN"):
        from_weights(path, 0, n_heads=3)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_shards_and_folders(kind, tmp_path):
    state, files = stack(3), {}
    for i in range(3):
        files[f"part-{i}.{kind}"] = {n: e for n, e in state.items() if n.split(".")[2] == str(i)}
    for name, content in files.items():
        if kind == "bin":
            torch.save({n: torch.tensor(e) for n, e in content.items()}, tmp_path / name)
        else:
            save_file(content, tmp_path / name)
    places = {tensor: name for name, content in files.items() for tensor in content}
    stem = "model.safetensors" if kind == "safetensors" else "pytorch_model.bin"
    index = tmp_path / f"{stem}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    settings = {"num_attention_heads": 3, "model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    wanted = from_weights(state, 2, n_heads=3)
    (tmp_path / f"part-0.{kind}").unlink()  # not needed for the others
    assert from_weights(index, 2) == wanted
    assert from_weights(tmp_path, 2) == wanted
    assert from_weights(str(tmp_path / f"part-2.{kind}")) == wanted
    with pytest.raises(FileNotFoundError, match="part-0"):
        from_weights(index, 0)


def test_modules_without_a_configuration():
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(module.in_proj_bias)
    torch.nn.init.normal_(module.out_proj.bias)
    layer = from_weights(module)
    tokens = torch.tensor(X)
    wanted = module(tokens, tokens, tokens)[0].detach().numpy()
    np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(layer.attn, pa.interop.from_torch(module).attn, rtol=0, atol=1e-15)
    inner = torch.nn.TransformerEncoderLayer(12, 3, 8, batch_first=True, dtype=torch.float64)
    encoder = torch.nn.TransformerEncoder(inner, 2, enable_nested_tensor=False).eval()
    found = from_weights(encoder, 1)
    part = encoder.layers[1].self_attn
    wanted = part(tokens, tokens, tokens)[0].detach().numpy()
    np.testing.assert_allclose(found(X), wanted, rtol=0, atol=1e-12)


def test_the_module_with_three_weights():
    """torch makes that form where keys or values are wider; here it is made by hand."""
    module = torch.nn.MultiheadAttention(12, 3, batch_first=True, dtype=torch.float64)
    parts = module.in_proj_weight.detach().reshape(3, 12, 12)
    module._qkv_same_embed_dim = False
    module.register_parameter("in_proj_weight", None)
    for name, part in zip("qkv", parts, strict=True):
        module.register_parameter(f"{name}_proj_weight", torch.nn.Parameter(part.clone()))
    torch.nn.init.normal_(module.in_proj_bias)
    layer = from_weights(module)
    tokens = torch.tensor(X)
    wanted = module(tokens, tokens, tokens)[0].detach().numpy()
    np.testing.assert_allclose(layer(X), wanted, rtol=0, atol=1e-12)
