"""Weights that are not those of a layer that can be expressed: every message helps."""

import json

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from polyattn.errors import FileFormatError, InvalidInput, InvalidType
from polyattn.interop import from_weights
from weight_cases import (
    bert_state,
    gpt2_state,
    lens_state,
    llama_state,
    multihead_state,
    random_heads,
)

HEADS = random_heads()
BERT = bert_state(HEADS)
LLAMA = llama_state(HEADS)
STACK = {f"encoder.layer.{i}.{n}": each for i in range(12) for n, each in BERT.items()}
ROPE = {"num_attention_heads": 3, "rope_theta": 500.0}


def with_entry(state, name, value):
    return state | {name: value}


def damaged(state, name, number):
    spoiled = state[name].copy()
    spoiled.flat[3] = number
    return state | {name: spoiled}


# What is given, and words that the message must have.
INVALID = {
    "no heads": (lambda: from_weights(BERT), ["n_heads must be given", "1, 2, 3, 4, 6, 12"]),
    "no heads, shared keys": (
        lambda: from_weights(llama_state(random_heads(n_heads=4, n_kv_heads=2)), rotary=None),
        ["n_heads must be given", "W_K (12, 8)", "2, 4, 8, 16"],
    ),
    "heads that do not divide": (
        lambda: from_weights(BERT, n_heads=5),
        ["n_heads = 5", "1, 2, 3, 4, 6, 12"],
    ),
    "heads against the configuration": (
        lambda: from_weights(BERT, n_heads=4, config={"num_attention_heads": 3}),
        ["n_heads = 4", "configuration says 3"],
    ),
    "no such number of heads": (lambda: from_weights(BERT, n_heads=0), ["n_heads", "got 0"]),
    "heads of a module": (
        lambda: from_weights(torch.nn.MultiheadAttention(12, 3), n_heads=4),
        ["n_heads = 4", "has 3"],
    ),
    "stacked heads": (
        lambda: from_weights(lens_state(HEADS), n_heads=4, mode="full"),
        ["n_heads = 4", "has 3"],
    ),
    "keys of another number": (
        lambda: from_weights(LLAMA, n_heads=3, n_kv_heads=1, rotary=None),
        ["n_kv_heads = 1", "3 heads"],
    ),
    "width of heads": (
        lambda: from_weights(LLAMA, config=ROPE | {"head_dim": 6}),
        ["head_dim = 6", "4 coordinates"],
    ),
    "several layers": (
        lambda: from_weights(STACK, n_heads=3),
        ["12 attention layers", "give layer", "'encoder.layer.11.attention'"],
    ),
    "no such number": (
        lambda: from_weights(STACK, 12, n_heads=3),
        ["no layer 12", "'encoder.layer.2.attention', 'encoder.layer.3.attention'"],
    ),
    "no such name": (
        lambda: from_weights(STACK, "decoder.layer.1", n_heads=3),
        ["no layer 'decoder.layer.1'", "'encoder.layer.0.attention'"],
    ),
    "a name of several": (
        lambda: from_weights(STACK, "encoder", n_heads=3),
        ["fits several layers"],
    ),
    "a number of several": (
        lambda: from_weights(
            STACK | {f"other.{n}": each for n, each in STACK.items()}, 1, n_heads=3
        ),
        ["fits several", "'other.encoder.layer.1.attention'"],
    ),
    "several layouts": (
        lambda: from_weights(BERT | gpt2_state(HEADS), n_heads=3),
        ["'attention' (bert)", "'attn' (gpt2)"],
    ),
    "a negative number": (lambda: from_weights(STACK, -1, n_heads=3), ["layer", "got -1"]),
    "another layout": (
        lambda: from_weights(BERT, n_heads=3, layout="gpt2"),
        ["gpt2: c_attn.weight, c_proj.weight", "attention.self.query.weight"],
    ),
    "no layout": (
        lambda: from_weights({"conv.weight": np.ones((3, 3))}),
        ["no attention layer", "llama: q_proj.weight", "multihead: in_proj_weight", "conv.weight"],
    ),
    "nothing": (lambda: from_weights({}), ["no tensors at all"]),
    "an unknown layout": (lambda: from_weights(BERT, layout="t5"), ["layout", "'t5'", "'bert'"]),
    "no theta": (
        lambda: from_weights(LLAMA, n_heads=3),
        ["rotary must be given", "rope_theta", "None where"],
    ),
    "rotary in words": (lambda: from_weights(LLAMA, n_heads=3, rotary="yes"), ["rotary", "'yes'"]),
    "too many frequencies": (
        lambda: from_weights(LLAMA, n_heads=3, rotary=np.ones(3)),
        ["rotary", "at most head_dim / 2 = 2"],
    ),
    "theta of zero": (lambda: from_weights(LLAMA, n_heads=3, rotary=0.0), ["rotary", "got 0"]),
    "rotary of another layout": (
        lambda: from_weights(BERT, n_heads=3, rotary=500.0),
        ["rotary was given", "'bert'"],
    ),
    "odd heads": (
        lambda: from_weights(LLAMA, n_heads=4, rotary=500.0),
        ["pairs of coordinates", "head_dim = 3"],
    ),
    "odd heads with frequencies": (
        lambda: from_weights(LLAMA, n_heads=4, rotary=[1.0]),
        ["head_dim = 3", "even"],
    ),
    "scaled in another way": (
        lambda: from_weights(LLAMA, config=ROPE | {"rope_scaling": {"type": "yarn", "factor": 2}}),
        ["'yarn'", "linear, llama3"],
    ),
    "several sets of frequencies": (
        lambda: from_weights(
            LLAMA, config=ROPE | {"rope_parameters": {"full_attention": {"rope_theta": 5.0}}}
        ),
        ["rope_parameters", "one set"],
    ),
    "llama3 without its numbers": (
        lambda: from_weights(
            LLAMA, config=ROPE | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}
        ),
        ["low_freq_factor"],
    ),
    "no mode": (lambda: from_weights(lens_state(HEADS)), ["mode must be given", "'causal'"]),
    "a mode of no name": (lambda: from_weights(BERT, n_heads=3, mode="some"), ["mode", "'some'"]),
    "both directions": (
        lambda: from_weights(LLAMA, config=ROPE | {"use_bidirectional_attention": True}),
        ["mode must be given", "use_bidirectional_attention"],
    ),
    "scale of zero": (lambda: from_weights(BERT, n_heads=3, scale=0.0), ["scale", "got 0"]),
    "another scale": (
        lambda: from_weights(LLAMA, config=ROPE | {"query_pre_attn_scalar": 7}),
        ["scale must be given", "query_pre_attn_scalar=7"],
    ),
    "relative positions": (
        lambda: from_weights(
            BERT, config={"num_attention_heads": 3, "position_embedding_type": "relative_key"}
        ),
        ["position_embedding_type='relative_key'"],
    ),
    "alibi": (lambda: from_weights(LLAMA, config=ROPE | {"alibi": True}), ["ALiBi"]),
    "softcapping": (
        lambda: from_weights(LLAMA, config=ROPE | {"attn_logit_softcapping": 50.0}),
        ["softcapping"],
    ),
    "a window that is no number": (
        lambda: from_weights(LLAMA, config=ROPE | {"sliding_window": "x"}, max_length=2),
        ["sliding_window='x'"],
    ),
    "softcapping of another name": (
        lambda: from_weights(LLAMA, config=ROPE | {"attn_scores_soft_cap": "x"}),
        ["softcapping"],
    ),
    "a scale that is no number": (
        lambda: from_weights(
            lens_state(HEADS), config={"attention_dir": "causal", "attn_scale": "x"}
        ),
        ["attn_scale", "'x'"],
    ),
    "layers without positions": (
        lambda: from_weights(LLAMA, config=ROPE | {"no_rope_layers": [1, 0]}),
        ["no_rope_layers=[1, 0]"],
    ),
    "pruned heads": (
        lambda: from_weights(BERT, config={"num_attention_heads": 3, "pruned_heads": {"0": [1]}}),
        ["pruned_heads", "n_heads"],
    ),
    "an unknown model": (
        lambda: from_weights(LLAMA, config=ROPE | {"model_type": "cohere"}),
        ["model_type='cohere'", "layout='llama'"],
    ),
    "several models": (
        lambda: from_weights(
            LLAMA, config={"model_type": "pair", "text_config": {"num_attention_heads": 3}}
        ),
        ["several models", "text_config"],
    ),
    "normalised queries": (
        lambda: from_weights(
            with_entry(LLAMA, "self_attn.q_norm.weight", np.ones(4)), n_heads=3, rotary=None
        ),
        ["q_norm.weight", "normalised"],
    ),
    "relative embeddings": (
        lambda: from_weights(
            with_entry(BERT, "attention.self.distance_embedding.weight", np.ones((3, 4))), n_heads=3
        ),
        ["distance_embedding", "relative position embeddings"],
    ),
    "an added token": (
        lambda: from_weights(torch.nn.MultiheadAttention(12, 3, add_bias_kv=True)),
        ["bias_k", "added token"],
    ),
    "an added zero": (
        lambda: from_weights(torch.nn.MultiheadAttention(12, 3, add_zero_attn=True)),
        ["add_zero_attn"],
    ),
    "keys of another sequence": (
        lambda: from_weights(torch.nn.MultiheadAttention(12, 3, kdim=5, vdim=5)),
        ["another sequence", "W_K (5, 12)"],
    ),
    "cross-attention": (
        lambda: from_weights(
            torch.nn.TransformerDecoderLayer(12, 3, 8), "multihead_attn", n_heads=3
        ),
        ["'multihead_attn' attends to another sequence"],
    ),
    "cross-attention by its name": (
        lambda: from_weights(bert_state(HEADS, "layer.0.crossattention."), "layer.0", n_heads=3),
        ["attends to another sequence"],
    ),
    "cross-attention alone": (
        lambda: from_weights(bert_state(HEADS, "layer.0.crossattention."), n_heads=3),
        ["another sequence alone"],
    ),
    "an adapter": (
        lambda: from_weights(
            with_entry(LLAMA, "self_attn.q_proj.lora_A.weight", np.ones((2, 12))), n_heads=3
        ),
        ["lora_A", "merged"],
    ),
    "NaN": (
        lambda: from_weights(damaged(BERT, "attention.self.key.weight", np.nan), n_heads=3),
        ["attention.self.key.weight", "NaN"],
    ),
    "infinity": (
        lambda: from_weights(damaged(BERT, "attention.self.key.bias", np.inf), n_heads=3),
        ["attention.self.key.bias", "inf"],
    ),
    "shapes": (
        lambda: from_weights(BERT | {"attention.self.key.weight": np.ones((12, 9))}, n_heads=3),
        ["one width", "W_K (9, 12)"],
    ),
    "shapes of keys": (
        lambda: from_weights(BERT | {"attention.self.key.weight": np.ones((8, 12)),
                                     "attention.self.value.weight": np.ones((8, 12))}, n_heads=3),
        ["as many keys as queries"],
    ),
    "a bias of another length": (
        lambda: from_weights(BERT | {"attention.self.key.bias": np.ones(5)}, n_heads=3),
        ["b_K", "(5,)"],
    ),
    "a vector": (
        lambda: from_weights(BERT | {"attention.self.key.weight": np.ones(12)}, n_heads=3),
        ["must be matrices"],
    ),
    "a third that is none": (
        lambda: from_weights(
            multihead_state(HEADS) | {"in_proj_weight": np.ones((35, 12))}, n_heads=3
        ),
        ["in_proj_weight must have shape (3 d, d)", "(35, 12)"],
    ),
    "linear weights of gpt2": (
        lambda: from_weights(
            {n: each.T for n, each in gpt2_state(HEADS).items()}, n_heads=3
        ),
        ["nn.Linear", "transpose"],
    ),
    "flat stacks": (
        lambda: from_weights({n: np.ones((3, 4)) for n in ("W_Q", "W_K", "W_V", "W_O")}),
        ["mode must be given"],
    ),
    "flat stacks with a mode": (
        lambda: from_weights({n: np.ones((3, 4)) for n in ("W_Q", "W_K", "W_V", "W_O")},
                             mode="full"),
        ["W_Q must have 3 axes"],
    ),
    "a dict of dicts": (lambda: from_weights({"model": BERT}), ["source['model']"]),
    "max_length of zero": (
        lambda: from_weights(BERT, n_heads=3, max_length=0), ["max_length", "got 0"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", INVALID)
def test_a_message_says_what_came_and_what_to_do(name):
    call, words = INVALID[name]
    with pytest.raises(InvalidInput) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


WRONG_TYPES = {
    "a number": (lambda: from_weights(3), "source must be"),
    "a name that is none": (lambda: from_weights({3: np.ones(2)}), "texts as names"),
    "integers": (
        lambda: from_weights({n: each.astype(np.int8) for n, each in BERT.items()}, n_heads=3),
        "floating-point numbers; got int8",
    ),
    "no numbers": (
        lambda: from_weights(torch.nn.MultiheadAttention(12, 3, device="meta")), "meta"
    ),
    "config": (lambda: from_weights(BERT, config=3), "config must be"),
    "rotary": (lambda: from_weights(LLAMA, n_heads=3, rotary=True), "rotary must be"),
    "a flag as a layer": (lambda: from_weights(STACK, True, n_heads=3), "layer must be"),
    "interleaved": (lambda: from_weights(LLAMA, n_heads=3, interleaved=1), "interleaved"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_things_that_hold_no_weights(name):
    call, words = WRONG_TYPES[name]
    with pytest.raises(InvalidType, match=words):
        call()


# ---------------------------------------------------------------- files


class Loaded:
    """An object that only code could make."""


def test_files_that_would_run_code_are_refused(tmp_path):
    for name, content in (("a.bin", {"x": Loaded()}), ("b.pt", Loaded())):
        torch.save(content, tmp_path / name)
        with pytest.raises(InvalidInput, match="convert it to safetensors"):
            from_weights(tmp_path / name)


@pytest.mark.parametrize("name", ["model.pkl", "model.npy", "model.npz", "model.h5", "model"])
def test_other_files_are_refused(name, tmp_path):
    (tmp_path / name).write_bytes(b"anything")
    with pytest.raises(InvalidInput, match="convert others to safetensors"):
        from_weights(tmp_path / name)


def test_damaged_files(tmp_path):
    whole = tmp_path / "model.safetensors"
    save_file(BERT, whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-7])
    with pytest.raises(FileFormatError, match="truncated"):
        from_weights(cut, n_heads=3)
    (tmp_path / "empty.bin").touch()
    (tmp_path / "noise.pt").write_bytes(bytes(range(200)))
    for name in ("empty.bin", "noise.pt"):
        with pytest.raises((FileFormatError, InvalidInput), match=r"truncated|more than tensors"):
            from_weights(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="no file"):
        from_weights(tmp_path / "gone.safetensors")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match=r"folder without model\.safetensors"):
        from_weights(tmp_path / "empty")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(FileFormatError, match=r"config\.json"):
        from_weights(whole, n_heads=3)


def test_checkpoints_with_more_than_weights(tmp_path):
    inner = {n: torch.tensor(each) for n, each in BERT.items()}
    torch.save({"model": inner, "step": 3}, tmp_path / "model.pt")
    with pytest.raises(InvalidInput, match=r"\['model'\]"):
        from_weights(tmp_path / "model.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    with pytest.raises(InvalidInput, match="tensors by name; got list"):
        from_weights(tmp_path / "list.pt")


def test_an_index_leads_nowhere_else(tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    cases = {
        "lacks 'weight_map'": {},
        "a file beside the index": {"weight_map": {"a": "../secret.safetensors"}},
        "which it does not": {"weight_map": dict.fromkeys([*BERT], "part.safetensors")},
    }
    save_file({"other": np.ones(2)}, tmp_path / "part.safetensors")
    for words, content in cases.items():
        index.write_text(json.dumps(content))
        with pytest.raises(FileFormatError, match=words):
            from_weights(index, n_heads=3)


def test_quantised_files_are_refused(tmp_path):
    save_file({n: each.astype(np.int8) for n, each in BERT.items()}, tmp_path / "m.safetensors")
    with pytest.raises(InvalidInput, match="type I8"):
        from_weights(tmp_path / "m.safetensors", n_heads=3)
