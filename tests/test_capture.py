"""pa.interop.capture: sums of what a module sees and says while a model runs, without padding."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import polyattn as pa
from oracle import MODES, behind
from polyattn.errors import InvalidInput, InvalidType

FULL, CAUSAL = pa.Form(mode="full"), pa.Form(mode="causal")
capture = pa.interop.capture
X = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
IDS = torch.arange(30).reshape(6, 5) % 7
LENGTHS = np.array([5, 3, 2, 5, 1, 4])
REAL = np.arange(5) < LENGTHS[:, None]  # (B, n), padding behind
LEFT, EVERY = REAL[:, ::-1].copy(), np.ones_like(REAL)


class Module(nn.Module):
    """Takes masks and other things of any name, and does not look at them."""

    def forward(self, x=None, **others):
        found = others.get("hidden_states") if x is None else x
        return {"other": 0, "last_hidden_state": 2 * found[..., :2]}


class Around(nn.Module):
    """A model that is given masks, and calls a layer three times, as ALBERT does."""

    def __init__(self):
        super().__init__()
        self.layer, self.flat, self.unused = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, ids, **_masks):
        x = torch.sin(ids[..., None] * torch.arange(1.0, 5.0))
        self.flat(x.reshape(-1, 4))
        return self.layer(self.layer(self.layer(x)))


def module_of(forward):
    return type("Of", (nn.Module,), {"forward": lambda _, x: forward(x)})()


def sums_of(form, tokens, outputs, real=None):
    real = np.ones(tokens.shape[:2], dtype=bool) if real is None else real
    seen = [
        [x[kept].detach().double().numpy() for x, kept in zip(each, real, strict=True)]
        for each in (tokens, outputs)
    ]
    Y = np.stack([y[-1] for y in seen[1]]) if form.mode == "last" else seen[1]
    return pa.Moments(tokens.shape[-1], outputs.shape[-1], form=form).update(seen[0], Y)


def attention(**options):
    torch.manual_seed(1)
    return nn.MultiheadAttention(4, 2, **options)


@pytest.mark.parametrize("mode", MODES)
def test_sums_are_those_of_the_sequences_in_memory_and_passes_stay_as_they_are(mode):
    form, module = pa.Form(mode=mode, bias=True), attention(batch_first=True).eval()
    table = torch.ones(5, 5, dtype=torch.bool).triu(1) if mode == "causal" else None
    kept = type("Kept", (list,), {"update": lambda self, *pair: self.append(pair)})()

    def run(tokens=X):
        module.zero_grad()
        outputs = module(tokens, tokens, tokens, attn_mask=table)[0]
        outputs.square().sum().backward()
        return outputs, module.in_proj_weight.grad.clone()

    def captured(tokens=X, into="moments"):
        with capture(module, form, into=into) as fed:
            found = run(tokens)
        assert all(map(torch.equal, found, run(tokens)))
        return fed

    wanted, sums = sums_of(form, X, run()[0]), captured()
    assert (type(sums), sums) == (pa.Moments, wanted)
    fit = pa.fit(statistics=wanted, ridge=1.0).coef
    triangular, source = captured(into="triangular"), captured(into="source")
    for found in (pa.fit(statistics=triangular, ridge=1.0), pa.fit(source, form=form, ridge=1.0)):
        np.testing.assert_allclose(found.coef, fit, atol=1e-9)
    assert captured(into=kept) is kept
    assert kept[0][0].dtype == kept[0][1].dtype == np.float64
    # Sums go on where others ended, and merge.
    first, second = captured(X[:2]), captured(X[2:])
    both = first + second
    assert captured(X[2:], into=first) is first
    for each in (first, both):
        assert each.n_sequences == 6
        np.testing.assert_allclose(each.gram, wanted.gram, rtol=1e-6, atol=1e-9)


def test_tokens_are_found_and_taken_as_they_were():
    """Batches second, one sequence alone, overwritten tokens, names, number types, repeats."""
    turned, linear = X.transpose(0, 1), nn.Linear(4, 4)
    for module, options in ((attention(), {}), (linear, {"batch_first": False})):
        with capture(module, FULL, **options) as sums:
            Y = module(turned, turned, turned)[0] if not options else module(turned)
        assert sums == sums_of(FULL, X, Y.transpose(0, 1))
    with capture(linear, CAUSAL) as sums:
        Y = linear(X[0])
        linear(X[0][:1])
    assert sums == sums_of(CAUSAL, X[[0, 0]], Y[None][[0, 0]], np.arange(5) < [[5], [1]])
    with capture(module := module_of(lambda x: x.add_(1.0)), CAUSAL) as sums:
        module(given := X.clone())
        given.zero_()
    assert sums == sums_of(CAUSAL, X, X + 1.0)
    with capture(module := Module(), CAUSAL) as sums:
        module(mine=X[..., :1], hidden_states=X)
    assert sums == sums_of(CAUSAL, X, 2 * X[..., :2])
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        with capture(module := nn.Linear(4, 2).to(dtype), CAUSAL) as sums:
            Y = module(X.to(dtype))
        assert sums == sums_of(CAUSAL, X.to(dtype), Y)
    with capture(linear, CAUSAL) as sums:
        checkpoint(linear, X, use_reentrant=False).sum().backward()
    assert sums.n_sequences == 6
    with capture(pooled := module_of(lambda x: x.mean(dim=1)), pa.Form()) as sums:
        pooled(X)
    np.testing.assert_allclose(sums.cross, sums_of(pa.Form(), X, pooled(X)[:, None] + 0 * X).cross)


def test_calls_of_a_shared_layer_and_masks_of_the_model():
    model, x = Around(), torch.sin(IDS[..., None] * torch.arange(1.0, 5.0))
    with torch.no_grad(), capture(model, CAUSAL, name="layer") as every:
        model(IDS)
        model(IDS, attention_mask=torch.tensor(REAL))
        model.layer(torch.randn(2, 5, 4))
    assert every.n_rows == 3 * (30 + LENGTHS.sum()) + 10
    with torch.no_grad(), capture(model, CAUSAL, name="layer", calls=2) as third:
        model(IDS)
    inputs = model.layer(model.layer(x))
    assert third == sums_of(CAUSAL, inputs, model.layer(inputs))
    for words, options, call in (
        ("3 times", {"name": "layer", "calls": [1, 3]}, {}), ("unused", {"name": "unused"}, {}),
        ("sequences begin", {"name": "flat"}, {}),
        ("decode", {"name": "layer"}, {"decoder_input_ids": IDS}),
        (r"\(6, 7\)", {"name": "layer"}, {"attention_mask": torch.ones(6, 7)}),
        ("real token", {"name": "layer", "lengths": lambda z: np.zeros(len(z), int)}, {}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words), capture(model, CAUSAL, **options):
            model(IDS, **call)


def test_hooks_are_gone_whatever_happened_and_errors_name_the_module():
    model, name = Around(), {"name": "layer"}
    with pytest.raises(KeyError), capture(model, CAUSAL, **name) as sums:
        {}[model(IDS)]
    with pytest.raises(InvalidInput, match=r"layer \(Linear\)"), capture(model, CAUSAL, **name):
        model(IDS * np.nan)
    failing = {"lengths": lambda _: 1 / 0}
    with pytest.raises(ZeroDivisionError) as error, capture(model, CAUSAL, **name, **failing):
        model(IDS)
    assert "layer (Linear)" in error.value.__notes__[0]
    assert sums.n_sequences == 18
    assert not any((e._forward_hooks or e._forward_pre_hooks) for e in (model, model.layer))


@pytest.mark.slow
def test_memory_does_not_grow_with_tokens():
    module, form = nn.Linear(60, 20), pa.Form(query=[0], key=[0], value=[0])

    def peak(n_batches):
        tracemalloc.start()
        with torch.no_grad(), capture(module, form):
            for _ in range(n_batches):
                module(torch.randn(16, 128, 60))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    assert peak(200) < 1.1 * peak(20)


def additive(allowed, lowest=-3e38):
    return torch.where(torch.tensor(allowed), 0.0, lowest)


def attending(real, causal=False):
    """Who attends to whom, (B, 1, n, n)."""
    return (real[:, None, :] & (np.tril(np.ones((5, 5), bool)) | (not causal)))[:, None]


NOBODY = ~attending(LEFT, causal=True).any(axis=-1, keepdims=True)  # attends to everything, then
BEFORE = np.tri(5, dtype=bool)
NEAR, PACKED = BEFORE & (behind(5) < 3), np.kron(np.eye(2), np.ones((3, 3)))[:5, :5] > 0
UNDERSTOOD = [
    (FULL, "key_padding_mask", torch.tensor(~REAL), REAL),
    (FULL, "src_key_padding_mask", additive(LEFT, -np.inf), LEFT),
    (FULL, "attention_mask", torch.tensor(REAL), REAL),
    (FULL, "attention_mask", torch.tensor(LEFT.astype(np.int64)), LEFT),
    (FULL, "attention_mask", torch.tensor(REAL.astype(np.float32)), REAL),
    (FULL, "attention_mask", additive(REAL[:, None, None], -10_000.0), REAL),
    (FULL, "attention_mask", torch.tensor(attending(REAL)[:, [0, 0, 0]]), REAL),
    (FULL, "attn_mask", additive(attending(LEFT)[:, [0, 0]].reshape(12, 5, 5)), LEFT),
    (FULL, "attn_mask", additive(BEFORE | True, -np.inf), EVERY),
    (FULL, "head_mask", torch.ones(2), EVERY),
    (pa.Form(), "key_padding_mask", torch.tensor(~REAL), REAL),
    (pa.Form(), "attn_mask", additive(BEFORE, -np.inf), EVERY),
    (CAUSAL, "attn_mask", torch.tensor(~BEFORE), EVERY),
    (CAUSAL, "src_mask", additive(BEFORE, -np.inf), EVERY),
    (CAUSAL, "attn_mask", additive(BEFORE, -np.inf).repeat(12, 1, 1), EVERY),  # for each head
    (CAUSAL, "attention_mask", torch.tensor(attending(REAL, causal=True)), REAL),
    (CAUSAL, "attention_mask", additive(attending(LEFT, causal=True)).bfloat16(), LEFT),
    (CAUSAL, "attention_mask", torch.tensor(attending(LEFT, causal=True) | NOBODY), LEFT),
    (CAUSAL, "attention_mask", torch.tensor(attending(REAL[:1], causal=True)), EVERY),
]  # fmt: skip


def test_masks_that_are_understood_leave_padding_out():
    module = Module()
    for form, name, mask, real in UNDERSTOOD:
        # What stands in padding may be anything.
        dirty = torch.where(torch.tensor(real)[..., None], X, torch.nan)
        with capture(module, form) as sums:
            module(dirty, **{name: mask})
        assert sums == sums_of(form, X, 2 * X[..., :2], real), (name, mask)
        if form == CAUSAL:
            with pytest.raises(InvalidInput, match="causal"), capture(module, FULL):
                module(X, **{name: mask})
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    call = {"mask": nn.Transformer.generate_square_subsequent_mask(5)}
    call["src_key_padding_mask"] = additive(REAL, -np.inf)
    for name in ("layers.0", "layers.1.self_attn"):
        with capture(model, CAUSAL, name=name) as sums:
            model(X, **call)
        assert (sums.n_sequences, sums.n_rows) == (6, LENGTHS.sum())
        for form, masks in ((FULL, call), (CAUSAL, {}), (CAUSAL, {"mask": additive(NEAR)})):
            refused = pytest.raises(InvalidInput, match=r"mode|others than all")
            with refused, capture(model, form, name=name):
                model(X, **masks)
    # Was: every table was taken, and a fit called the wrong layer unique.
    own = attention(batch_first=True)
    for form, masks in (
        (CAUSAL, {}), (CAUSAL, {"attn_mask": torch.zeros(5, 5, dtype=torch.bool)}),
        (CAUSAL, {"attn_mask": additive(NEAR)}), (pa.Form(), {"attn_mask": additive(NEAR)}),
        (FULL, {"attn_mask": additive(PACKED)}),
        (FULL, {"attn_mask": torch.tensor(-0.5 * abs(behind(5)), dtype=torch.float32)}),  # ALiBi
        (FULL, {"attn_mask": additive(BEFORE | True), "is_causal": True}),
    ):  # fmt: skip
        with pytest.raises(InvalidInput), capture(own, form):
            own(X, X, X, **masks)


OF_HEADS = np.concatenate([attending(REAL), attending(EVERY)], axis=1)
UNCLEAR = [
    ("attention_mask", torch.tensor(OF_HEADS), "head to head"),
    ("attention_mask", torch.arange(30).reshape(6, 5), "0 and 1"),
    ("attention_mask", torch.ones(6, 7, dtype=torch.int64), r"\(6, 7\)"),
    ("attention_mask", torch.ones(6, 1, 3, 5, dtype=torch.bool), r"\(6, 1, 3, 5\)"),
    ("attention_mask", torch.tensor([[1, 0, 1, 1, 0]] * 6), "middle"),
    ("attention_mask", "causal", "str"), ("mask", torch.ones(5, 5), "mask"),
    ("key_padding_mask", torch.ones(6, 5, dtype=torch.int64), "int64"),
    ("padding_mask", torch.ones(6, 5, dtype=torch.bool), "padding_mask"),
]  # fmt: skip


def test_masks_that_are_not_understood_are_refused_and_lengths_say_it_instead():
    module, refused = Module(), "while capturing Module.*"
    for name, mask, words in UNCLEAR:
        with pytest.raises(InvalidInput, match=refused + words), capture(module, FULL):
            module(X, **{name: mask})
        with capture(module, FULL, lengths=lambda _: LENGTHS) as sums:
            module(X, **{name: mask})
        assert sums == sums_of(FULL, X, 2 * X[..., :2], REAL)
    for lengths in ([5] * 5, [6] + [1] * 5, [-1] + [1] * 5, [1.5] * 6, None):
        given = {"lengths": lambda _, each=lengths: each}
        with pytest.raises(InvalidInput, match="lengths"), capture(module, FULL, **given):
            module(X)


def test_what_is_no_self_attention_of_whole_sequences_is_refused():
    module, own = Module(), attention(batch_first=True)
    for words, each, given, named in (
        ("key", own, (X, X + 1, X + 1), {}),
        ("encoder_hidden_states", module, (X,), {"encoder_hidden_states": X}),
        ("past_key_values", module, (X,), {"past_key_values": (X,)}),
        ("causal", module, (X,), {"is_causal": True}),
        ("int64", nn.Identity(), (IDS,), {}), ("tensor", nn.Identity(), (None,), {}),
        ("one for each token", nn.Flatten(), (X,), {}),
    ):  # fmt: skip
        with pytest.raises((InvalidInput, InvalidType), match=words), capture(each, FULL):
            each(*given, **named)
    for arguments, words in (
        ({"name": "layer.7"}, "layer.7.*layer"), ({"into": "means"}, "into"),
        ({"into": pa.Moments(3, 2)}, "into"), ({"lengths": [3, 4]}, "lengths"),
        ({"calls": 1}, "calls"), ({"calls": -1, "name": "layer"}, "calls"),
        ({"batch_first": 1}, "batch_first"), ({"module": len}, "module"),
    ):  # fmt: skip
        with pytest.raises((InvalidInput, InvalidType), match=words):
            capture(**{"module": Around(), "form": FULL} | arguments)
