"""pa.interop.capture leaves padding out, by the masks that modules and models are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import polyattn as pa
from polyattn.errors import InvalidInput, InvalidType
from polyattn.interop.torch.padding import real_tokens

FULL, CAUSAL = pa.Form(mode="full"), pa.Form(mode="causal")
N_TOKENS = 5
LENGTHS = np.array([5, 3, 2, 5, 1, 4])
REAL = np.arange(N_TOKENS) < LENGTHS[:, None]  # (B, n), padding behind
LEFT = REAL[:, ::-1]
LOWEST = torch.finfo(torch.float32).min


class Masked(nn.Module):
    """A module that takes masks of any kind, and does not look at them."""

    def forward(self, x: torch.Tensor, **masks: Any) -> torch.Tensor:
        del masks
        return x[..., :2]


class Around(nn.Module):
    """A model with a mask, around a module without one."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.flat = nn.Linear(3, 2)

    def forward(self, ids: torch.Tensor, attention_mask: Any = None, **others: Any) -> torch.Tensor:
        del attention_mask, others
        tokens = torch.sin(ids[..., None] * torch.arange(1.0, 4.0))
        self.flat(tokens.reshape(-1, 3))
        return self.inner(tokens)


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randn(6, N_TOKENS, 3, generator=torch.Generator().manual_seed(0))


def additive(allowed: np.ndarray, lowest: float = LOWEST) -> torch.Tensor:
    return torch.where(torch.tensor(allowed.copy()), 0.0, lowest)


def attending(real: np.ndarray, causal: bool = False) -> np.ndarray:
    """Who attends to whom, (B, 1, n, n)."""
    table = np.tril(np.ones((N_TOKENS, N_TOKENS), bool)) | (not causal)
    return (real[:, None, :] & table)[:, None]


def letting_all(allowed: np.ndarray) -> np.ndarray:
    """Rows that would attend to nothing attend to everything."""
    return allowed | ~allowed.any(axis=-1, keepdims=True)


def reals(tensor: torch.Tensor, real: np.ndarray) -> list[np.ndarray]:
    return [each[kept].double().numpy() for each, kept in zip(tensor, real.copy(), strict=True)]


@pytest.mark.parametrize(
    ("name", "mask", "real"),
    [
        ("key_padding_mask", torch.tensor(~REAL), REAL),
        ("key_padding_mask", additive(REAL, -np.inf), REAL),
        ("src_key_padding_mask", torch.tensor(~LEFT), LEFT),
        ("attention_mask", torch.tensor(REAL), REAL),
        ("attention_mask", torch.tensor(LEFT.astype(np.int64)), LEFT),
        ("attention_mask", torch.tensor(REAL.astype(np.float32)), REAL),
        ("attention_mask", additive(REAL), REAL),
        ("attention_mask", torch.zeros(REAL.shape), np.ones_like(REAL)),
        ("attention_mask", additive(REAL[:, None, None]), REAL),
        ("attention_mask", additive(REAL[:, None, None], -10_000.0), REAL),
        ("attention_mask", torch.tensor(attending(REAL)), REAL),
        ("attention_mask", torch.tensor(attending(REAL)[:, 0]), REAL),
        ("attention_mask", torch.tensor(attending(REAL)[:, [0, 0, 0]]), REAL),
        ("attn_mask", additive(attending(LEFT)[:, [0, 0]].reshape(12, 5, 5)), LEFT),
    ],
)
def test_masks_that_are_understood(
    name: str, mask: torch.Tensor, real: np.ndarray, tokens: torch.Tensor
) -> None:
    check_real_tokens(name, mask, real, tokens, FULL)


def check_real_tokens(
    name: str, mask: torch.Tensor, real: np.ndarray, tokens: torch.Tensor, form: pa.Form
) -> None:
    module = Masked()
    # What stands in padding may be anything.
    dirty = torch.where(torch.tensor(real.copy())[..., None], tokens, torch.nan)
    with pa.interop.capture(module, form) as sums:
        module(dirty, **{name: mask})
    wanted = pa.Moments(3, 2, form=form).update(reals(tokens, real), reals(tokens[..., :2], real))
    assert sums == wanted


@pytest.mark.parametrize(
    ("mask", "real"),
    [
        (torch.tensor(attending(REAL, causal=True)), REAL),
        (additive(attending(LEFT, causal=True)), LEFT),
        (additive(attending(LEFT, causal=True)).bfloat16(), LEFT),
        (torch.tensor(letting_all(attending(LEFT, causal=True))), LEFT),
        (torch.tensor(attending(REAL[:1], causal=True)), np.ones_like(REAL)),
    ],
)
def test_causal_masks_are_those_of_causal_forms(
    mask: torch.Tensor, real: np.ndarray, tokens: torch.Tensor
) -> None:
    check_real_tokens("attention_mask", mask, real, tokens, CAUSAL)
    with (
        pytest.raises(InvalidInput, match="mode 'causal'"),
        pa.interop.capture(m := Masked(), FULL),
    ):
        m(tokens, attention_mask=mask)


def test_a_mask_without_padding_says_nothing(tokens: torch.Tensor) -> None:
    module = Masked()
    with pa.interop.capture(module, FULL) as sums:
        module(tokens, attn_mask=torch.zeros(N_TOKENS, N_TOKENS), head_mask=torch.ones(2))
        module(tokens[0], attention_mask=torch.tensor([1, 1, 0, 0, 0]))
    assert (sums.n_sequences, sums.n_rows) == (7, 32)


def windowed(width: int) -> np.ndarray:
    distance = np.subtract.outer(np.arange(N_TOKENS), np.arange(N_TOKENS))
    return np.broadcast_to((distance >= 0) & (distance < width), (6, 1, N_TOKENS, N_TOKENS)).copy()


def packed() -> np.ndarray:
    """Two documents in each row, that do not see each other."""
    which = np.array([0, 0, 0, 1, 1])
    return np.broadcast_to(which[:, None] == which, (6, 1, N_TOKENS, N_TOKENS)).copy()


@pytest.mark.parametrize(
    ("name", "mask", "message"),
    [
        ("attention_mask", torch.tensor(windowed(1)), "others than all"),
        ("attention_mask", torch.tensor(windowed(3)), "others than all"),
        ("attention_mask", torch.tensor(packed()), "others than all"),
        ("attention_mask", torch.tensor(packed() & windowed(9)), "others than all"),
        ("attention_mask", torch.arange(30).reshape(6, 5), "other numbers than 0 and 1"),
        ("attention_mask", torch.full((6, 5), -1.0), "neither 0 nor minus infinity"),
        ("attention_mask", torch.rand(6, 1, 5, 5), "neither 0 nor minus infinity"),
        ("attention_mask", torch.ones(6, 7, dtype=torch.int64), r"shape \(6, 7\)"),
        ("attention_mask", torch.ones(4, 1, 5, 5, dtype=torch.bool), r"shape \(4, 1, 5, 5\)"),
        ("attention_mask", torch.ones(6, 1, 3, 5, dtype=torch.bool), r"shape \(6, 1, 3, 5\)"),
        ("attention_mask", torch.tensor([[1, 0, 1, 1, 0]] * 6), "in the middle"),
        ("attention_mask", "causal", "is a str"),
        ("key_padding_mask", torch.ones(5, 6), r"shape \(5, 6\)"),
        ("key_padding_mask", torch.ones(6, 5, dtype=torch.int64), "int64"),
        ("attn_mask", torch.zeros(12, 5, 4), r"shape \(12, 5, 4\)"),
        ("attn_mask", torch.ones(12, 5, 5), "neither 0 nor minus infinity"),
        ("mask", torch.ones(5, 5), r"its mask has shape"),
        ("padding_mask", torch.ones(6, 5, dtype=torch.bool), "padding_mask"),
    ],
)
def test_masks_that_are_not_understood_are_refused(
    name: str, mask: Any, message: str, tokens: torch.Tensor
) -> None:
    module = Masked()
    with pytest.raises(InvalidInput, match=message) as caught, pa.interop.capture(module, FULL):
        module(tokens, **{name: mask})
    assert "while capturing Masked" in str(caught.value)
    with pa.interop.capture(module, FULL, lengths=lambda _: LENGTHS) as sums:
        module(tokens, **{name: mask})
    assert sums.n_rows == LENGTHS.sum()


def test_heads_that_see_different_tokens_are_refused() -> None:
    allowed = np.repeat(attending(REAL), 2, axis=1)
    allowed[2, 1] = True
    with pytest.raises(InvalidInput, match="head to head"):
        real_tokens(Masked(), {"attention_mask": torch.tensor(allowed)}, 6, 5, "full")


@pytest.mark.parametrize("lengths", [[5] * 5, [6] + [1] * 5, [-1] + [1] * 5, [1.5] * 6, None])
def test_lengths_are_checked(lengths: Any, tokens: torch.Tensor) -> None:
    module = Masked()
    with (
        pytest.raises(InvalidInput, match="lengths must return one integer between 0 and 5"),
        pa.interop.capture(module, FULL, lengths=lambda _: lengths),
    ):
        module(tokens)


def test_masks_of_the_model_hold_for_modules_inside() -> None:
    model = Around()
    ids = torch.arange(30).reshape(6, 5) % 7
    with torch.no_grad(), pa.interop.capture(model, FULL, name="inner") as sums:
        model(ids, attention_mask=torch.tensor(REAL))
        model(ids)
        model.inner(torch.randn(2, 5, 3))
    assert sums.n_rows == LENGTHS.sum() + 30 + 10
    with (
        pytest.raises(InvalidInput, match="where sequences begin"),
        pa.interop.capture(model, FULL, name="flat"),
    ):
        model(ids)
    with (
        pytest.raises(InvalidInput, match="others to decode"),
        pa.interop.capture(model, FULL, name="inner"),
    ):
        model(ids, decoder_input_ids=ids)
    with (
        pytest.raises(InvalidInput, match=r"shape \(6, 7\)"),
        pa.interop.capture(model, FULL, name="inner"),
    ):
        model(ids, attention_mask=torch.ones(6, 7))


def test_layers_of_torch_with_padding(tokens: torch.Tensor) -> None:
    torch.manual_seed(2)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    X = torch.cat([tokens, tokens[..., :1] ** 2], dim=-1)
    mask = nn.Transformer.generate_square_subsequent_mask(N_TOKENS)
    for name in ("layers.0", "layers.1.self_attn"):
        plain = model(X, mask=mask, src_key_padding_mask=additive(REAL, -np.inf))
        with pa.interop.capture(model, CAUSAL, name=name) as sums:
            outputs = model(X, mask=mask, src_key_padding_mask=additive(REAL, -np.inf))
        assert torch.equal(plain, outputs)
        assert (sums.n_sequences, sums.n_rows) == (6, LENGTHS.sum())


def test_other_sequences_and_earlier_tokens_are_refused(tokens: torch.Tensor) -> None:
    attention = nn.MultiheadAttention(3, 1, batch_first=True)
    with (
        pytest.raises(InvalidInput, match="other sequences, key"),
        pa.interop.capture(attention, FULL),
    ):
        attention(tokens, tokens + 1, tokens + 1)
    with pa.interop.capture(attention, FULL) as sums:
        attention(tokens, tokens.clone(), tokens)
    assert sums.n_sequences == 6
    with (
        pytest.raises(InvalidInput, match="encoder_hidden_states"),
        pa.interop.capture(module := Masked(), FULL),
    ):
        module(tokens, encoder_hidden_states=tokens)
    with pytest.raises(InvalidInput, match="use_cache=False"), pa.interop.capture(module, FULL):
        module(tokens, past_key_values=(tokens,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "layer.7"}, "no module 'layer.7' inside; there are .*inner"),
        ({"into": "means"}, "'moments', 'triangular', 'source'"),
        ({"into": 3}, "update"),
        ({"into": pa.Moments(3, 2)}, "was made for"),
        ({"lengths": [3, 4]}, "lengths must be a function"),
        ({"calls": 1}, "give the model, and name="),
        ({"calls": [], "name": "inner"}, "number of a call"),
        ({"calls": -1, "name": "inner"}, "at least 0"),
        ({"batch_first": 1}, "batch_first must be True or False"),
    ],
)
def test_arguments_are_checked_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidInput, InvalidType), match=message):
        pa.interop.capture(Around(), FULL, **arguments)


def test_things_that_are_no_tokens_are_refused(tokens: torch.Tensor) -> None:
    for given, message in ((torch.ones(6, 5, dtype=torch.int64), "no tokens"), (None, "a tensor")):
        with (
            pytest.raises(InvalidType, match=message),
            pa.interop.capture(module := nn.Identity(), FULL),
        ):
            module(given)
    with (
        pytest.raises(InvalidInput, match=r"shape \(6, 5, 3, 1\)"),
        pa.interop.capture(module, FULL),
    ):
        module(tokens[..., None])
    with pytest.raises(InvalidType, match="module must be"):
        pa.interop.capture(len, FULL)
    with pytest.raises(InvalidType, match="form must be"):
        pa.interop.capture(module, "full")  # type: ignore[arg-type]
    with (
        pytest.raises(InvalidInput, match="one for each token"),
        pa.interop.capture(pooled := nn.Flatten(), FULL),
    ):
        pooled(tokens)


def test_a_bert_model_with_random_weights() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    ids, mask = torch.arange(30).reshape(6, 5) % 20, torch.tensor(REAL.astype(np.int64))
    maps = np.random.default_rng(0).standard_normal((8, 2))
    form = pa.Form(mode="full", query=maps, key=maps, value=maps, skip=True)
    seen: list[Any] = []
    layer = model.encoder.layer[1].attention
    with torch.no_grad():
        plain = model(ids, attention_mask=mask).last_hidden_state
        with (
            pa.interop.capture(model, form, name="encoder.layer.1.attention") as sums,
            layer.register_forward_hook(lambda _, args, out: seen.append((args[0], out[0]))),
        ):
            captured = model(ids, attention_mask=mask).last_hidden_state
    assert torch.equal(plain, captured)
    ((X, Y),) = seen
    assert sums == pa.Moments(8, 8, form=form).update(reals(X, REAL), reals(Y, REAL))
    assert pa.fit(statistics=sums, ridge=1e-3).outcome.ok
