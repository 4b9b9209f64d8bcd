"""Wrong answers of 0.3.0 about models: masks, rotary positions, sizes, labels and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyattn as pa
from polyattn.certify.check import objections
from polyattn.errors import InvalidInput, InvalidType, OutOfRange

# One worker imports transformers.
pytestmark = pytest.mark.xdist_group("transformers")

# ---------------------------------------------------------------- masks of captured modules

N_TOKENS, N_HEADS = 6, 2
ALL = np.ones((N_TOKENS, N_TOKENS), dtype=bool)
BEFORE = np.tril(ALL)
WINDOW = BEFORE & ~np.tril(ALL, -3)
DOCUMENTS = np.subtract.outer(np.arange(N_TOKENS) // 3, np.arange(N_TOKENS) // 3) == 0
DISTANCES = np.abs(np.subtract.outer(np.arange(N_TOKENS), np.arange(N_TOKENS)))


class MaskedAttention(nn.Module):
    """Linear attention to the tokens that a mask allows, which a form of this mode fits exactly."""

    def __init__(self) -> None:
        super().__init__()
        rng = np.random.default_rng(0)
        self.attn, self.value = (torch.tensor(rng.standard_normal((3, 3))) for _ in range(2))

    def forward(self, x: torch.Tensor, attn_mask: Any = None, key_padding_mask: Any = None) -> Any:
        logits = x @ self.attn @ x.transpose(1, 2)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            logits = logits.masked_fill(attn_mask, 0.0)
        elif attn_mask is not None:
            added = attn_mask.double()
            logits = torch.where(torch.isinf(added), 0.0, logits + added)
        if key_padding_mask is not None:
            logits = logits.masked_fill(key_padding_mask[:, None, :], 0.0)
        return logits @ x @ self.value


def blocked(allowed: np.ndarray) -> torch.Tensor:
    return torch.tensor(~allowed)


def added(allowed: np.ndarray) -> torch.Tensor:
    return torch.where(torch.tensor(allowed), 0.0, -torch.inf)


def for_heads(allowed: np.ndarray) -> torch.Tensor:
    return added(np.repeat(allowed[None], 20 * N_HEADS, axis=0))


PADDING = torch.arange(N_TOKENS)[None] >= torch.arange(60)[:, None] % 3 + 4

# The mode of the form, the masks of the call, and what is said where they do not fit.
MASKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "padding": ("full", {"key_padding_mask": PADDING}, ""),
    "nothing masked": ("full", {"attn_mask": blocked(ALL)}, ""),
    "zeros added": ("full", {"attn_mask": added(ALL)}, ""),
    "causal, bool": ("causal", {"attn_mask": blocked(BEFORE)}, ""),
    "causal, added": ("causal", {"attn_mask": added(BEFORE)}, ""),
    "causal and padding": (
        "causal", {"attn_mask": blocked(BEFORE), "key_padding_mask": PADDING}, "",
    ),
    "last of a causal one": ("last", {"attn_mask": added(BEFORE)}, ""),
    "causal for full": ("full", {"attn_mask": added(BEFORE)}, "mode='causal'"),
    "all for causal": ("causal", {"attn_mask": blocked(ALL)}, "mode='full'"),
    "a window": ("causal", {"attn_mask": blocked(WINDOW)}, "others than all"),
    "a window, last": ("last", {"attn_mask": added(WINDOW)}, "others than all"),
    "documents": ("full", {"attn_mask": added(DOCUMENTS)}, "others than all"),
    "by distance": ("full", {"attn_mask": torch.tensor(-0.5 * DISTANCES)}, "neither 0 nor"),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_is_that_of_the_form_or_refused(name: str) -> None:
    """0.3.0 took every table (n, n), and a fit called the wrong layer unique."""
    mode, masks, words = MASKS[name]
    form, module = pa.Form(mode=mode), MaskedAttention()
    X = torch.randn(60, N_TOKENS, 3, generator=torch.Generator().manual_seed(1)).double()
    if words:
        with pytest.raises(InvalidInput, match=words), pa.interop.capture(module, form):
            module(X, **masks)
        return
    with pa.interop.capture(module, form) as sums:
        module(X, **masks)
    found = pa.fit(statistics=sums)
    truth = pa.LinearAttention(module.attn.numpy()[None], module.value.numpy()[None], mode)
    assert found.outcome.ok
    assert pa.same_function(found.layer, truth, tolerance=1e-8)


@pytest.mark.parametrize("inner", ["", "layers.0", "layers.0.self_attn"])
def test_tables_of_torch_s_own_modules(inner: str) -> None:
    """0.3.0 also took masks of encoders, is_causal, and calls without a mask for causal forms."""
    layer = nn.TransformerEncoderLayer(4, N_HEADS, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    X = torch.randn(20, N_TOKENS, 4)

    def captured(mode: str, **masks: Any) -> bool:
        try:
            with pa.interop.capture(model, pa.Form(mode=mode), name=inner or None) as sums:
                model(X, **masks)
        except InvalidInput:
            return False
        return bool(sums.n_sequences == 20)

    assert captured("full")
    assert captured("last", mask=added(BEFORE))
    assert captured("causal", mask=added(BEFORE))
    assert captured("causal", mask=for_heads(BEFORE))
    assert captured("causal", mask=blocked(BEFORE), is_causal=True)
    assert not captured("causal")
    assert not captured("full", mask=added(BEFORE))
    assert not captured("full", mask=for_heads(BEFORE))
    assert not captured("full", mask=added(ALL), is_causal=True)
    assert not captured("causal", mask=for_heads(WINDOW))
    assert not captured("causal", mask=blocked(ALL))


def test_a_window_of_a_running_model_is_not_hidden_by_its_own_mask() -> None:
    """0.3.0 refused the module's mask, read that of the model in its place, and went on."""
    import transformers

    config = transformers.MistralConfig(**GROUPED, sliding_window=3)
    model = transformers.MistralModel(config).eval()
    ids = torch.arange(40).reshape(4, 10) % 11
    for mode, words in (("causal", "others than all"), ("full", "others than all")):
        form = pa.Form(mode=mode, query=[0], key=[0], value=[0])
        with (
            pytest.raises(InvalidInput, match=words),
            pa.interop.capture(model, form, name="layers.0.self_attn"),
        ):
            model(ids, attention_mask=torch.ones(4, 10, dtype=torch.int64), use_cache=False)


# ---------------------------------------------------------------- weights of running models

SIZES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16,
    "vocab_size": 11, "bos_token_id": None, "eos_token_id": None, "pad_token_id": 0,
    "max_position_embeddings": 64,
}  # fmt: skip
GROUPED = SIZES | {"num_key_value_heads": 2, "rope_theta": 300.0, "attention_dropout": 0.0}
ROTARY = {
    "Llama": GROUPED,
    "Mistral": GROUPED | {"sliding_window": None},
    "Qwen2": GROUPED,
    "Gemma": GROUPED | {"head_dim": 8},
}
MODELS = {
    "Bert": SIZES, "Roberta": SIZES, "XLMRoberta": SIZES, "Camembert": SIZES,
    "Electra": SIZES | {"embedding_size": 8}, "Albert": SIZES | {"embedding_size": 8},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 11, "n_positions": 64,
             "bos_token_id": None, "eos_token_id": None},
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip

# Name, settings beside those above, and whether the model is made of half precision.
RUNNING = [
    *((name, {}, False) for name in (*MODELS, *ROTARY)),
    *((name, {}, True) for name in ROTARY),
    ("Llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}, False),
    ("Llama", {"rope_scaling": LLAMA3}, False),
    ("Llama", {"head_dim": 12}, False),
    *((name, {"partial_rotary_factor": 0.5}, False) for name in ROTARY),
]


def running(name: str, settings: dict[str, Any], half: bool = False) -> tuple[Any, Any, Any]:
    """A model with random weights, and what its second layer was given and made of it."""
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**settings)
    model = getattr(transformers, f"{name}Model")(config).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.normal_(0.0, 0.3)
    model = model.half().double() if half else model.double()
    places = {"GPT2": "h.1.attn", "Albert": "encoder.albert_layer_groups.0.albert_layers.0"}
    where = places.get(name, "layers.1.self_attn" if name in ROTARY else "encoder.layer.1")
    where += "" if where.endswith("attn") else ".attention"
    module = model.get_submodule(where)
    dense = getattr(module, "dense", None) or getattr(
        getattr(module, "output", None), "dense", None
    )
    seen: list[torch.Tensor] = []

    def before(_: Any, args: Any, kwargs: Any) -> None:
        seen.append(args[0] if args else kwargs["hidden_states"])

    def after(_: Any, __: Any, out: Any) -> None:
        seen.append(out[0] if isinstance(out, tuple) else out)

    module.register_forward_pre_hook(before, with_kwargs=True)
    (dense or module).register_forward_hook(after)
    with torch.no_grad():
        model(inputs_embeds=torch.randn(1, 50, settings.get("embedding_size", 32)).double())
    return model, seen[-2].numpy(), seen[-1].numpy()


@pytest.mark.parametrize(("name", "beside", "half"), RUNNING)
def test_weights_do_what_the_running_model_does(
    name: str, beside: dict[str, Any], half: bool
) -> None:
    """Of modules in half precision 0.3.0 took frequencies that these do not turn by."""
    model, X, wanted = running(name, (MODELS | ROTARY)[name] | beside, half)
    found = pa.interop.from_weights(model, 1)(X)
    # Rotary angles are float32 in all models.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("name", ROTARY)
@pytest.mark.parametrize(
    ("beside", "words"),
    [
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor=0.5"),
        ({"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5}}, "partial_rotary"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "'dynamic'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn'.*attention_scaling"),
    ],
)
def test_rotary_positions_that_are_not_known_are_refused(
    name: str, beside: dict[str, Any], words: str
) -> None:
    """With partial_rotary_factor layers of 0.3.0 were off by 10 to 110 %: models ignore it.

    Frequencies that a module holds are taken, those of other types would change with the length.
    """
    import transformers

    config = getattr(transformers, f"{name}Config")(**ROTARY[name] | beside)
    model = getattr(transformers, f"{name}Model")(config)
    if "partial" not in words:
        with pytest.raises(InvalidInput, match=words):
            pa.interop.from_weights(model, 1)
    with pytest.raises(InvalidInput, match=words):
        pa.interop.from_weights(model.state_dict(), 1, config=config)


@pytest.mark.parametrize(
    "beside", [{"use_sliding_window": False}, {"layer_types": ["full_attention"] * 2}]
)
def test_every_layer_of_mistral_has_the_window(beside: dict[str, Any]) -> None:
    """0.3.0 believed settings that Mistral does not read: 41 % off behind the window."""
    model, X, wanted = running("Mistral", GROUPED | {"sliding_window": 9} | beside)
    with pytest.raises(InvalidInput, match="sliding_window=9"):
        pa.interop.from_weights(model, 1)
    layer = pa.interop.from_weights(model, 1, max_length=9)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(layer(X[:, :9]), wanted[:, :9], rtol=0, atol=1e-6 * size)
    assert np.abs(layer(X) - wanted).max() > 0.1 * size


# ---------------------------------------------------------------- sizes, labels and ranks


def test_targets_in_the_place_of_a_mode_are_not_printed() -> None:
    """0.3.0 showed the numbers beside "mode must be one of"."""
    X, y = np.zeros((50, 4, 3)), np.arange(50.0)
    for given, kind in ((y, "ndarray"), (list(y), "list"), (torch.tensor(y), "Tensor")):
        with pytest.raises(InvalidInput, match=rf"got {kind} of shape \(50,\); if these are targ"):
            pa.certify(X, given)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [1e150, 1e200, 1e-200])
def test_tokens_whose_powers_leave_float64_are_refused(size: float) -> None:
    """0.3.0 raised LinAlgError of its parts, and called tiny heads constant."""
    X = np.random.default_rng(0).standard_normal((20, 4, 3))
    layer = pa.data.random_softmax_layer(3, n_heads=1, random_state=0)
    for call in (pa.linearise, pa.audit):
        with pytest.raises(OutOfRange, match="X holds numbers up to"):
            call(layer, X * size)
        with pytest.raises(OutOfRange, match="X_test holds numbers up to"):
            call(layer, X, X_test=X * size)


def test_labels_beyond_64_bits_are_named() -> None:
    """0.3.0 said of integers that labels must be integers."""
    X = np.random.default_rng(0).standard_normal((20, 4, 3))
    labels = [2**64 + i % 2 for i in range(20)]
    with pytest.raises(InvalidType, match="beyond 64 bits can be given as text"):
        pa.LinearAttentionClassifier().fit(X, labels)


def test_a_rank_of_exact_numbers_is_exact() -> None:
    """0.3.0 counted singular values above a bound that was too large, and verify said no."""
    rng = np.random.default_rng(134)
    X = 2.0**40 * rng.integers(-1, 2, (34, 3, 3)) + rng.integers(-2, 3, (34, 3, 3))
    form = pa.Form(include_query=False, skip=True, bias=True)
    certificate = pa.certify(X, form=form)
    assert (certificate.method, certificate.rank) == ("count", 34)
    assert objections(certificate, X) == []
