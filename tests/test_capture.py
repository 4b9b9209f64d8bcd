"""pa.interop.capture: sums of what a module sees and says while a model runs, without padding."""

import tracemalloc

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import polyattn as pa
from oracle import MODES
from polyattn.errors import InvalidInput, InvalidType

FULL, CAUSAL = pa.Form(mode="full"), pa.Form(mode="causal")
capture = pa.interop.capture
X = torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))
LENGTHS = np.array([5, 3, 2, 5, 1, 4])
REAL = np.arange(5) < LENGTHS[:, None]  # (B, n), padding behind
LEFT, EVERY = REAL[:, ::-1], np.ones_like(REAL)


class Module(nn.Module):
    """Takes masks and other things of any name, and does not look at them."""

    def forward(self, x=None, **others):
        found = others.get("hidden_states") if x is None else x
        return {"other": 0, "last_hidden_state": 2 * found[..., :2]}


class Around(nn.Module):
    """A model with masks that calls a layer three times, as ALBERT does, and one on flat tokens."""

    def __init__(self):
        super().__init__()
        self.layer, self.flat, self.unused = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 4)

    def forward(self, ids, attention_mask=None, **others):
        x = torch.sin(ids[..., None] * torch.arange(1.0, 5.0))
        self.flat(x.reshape(-1, 4))
        for _ in range(3):
            x = self.layer(x)
        return x


def sums_of(form, tokens, outputs, real=None):
    real = np.ones(tokens.shape[:2], dtype=bool) if real is None else real
    seen = [
        [x[kept.copy()].detach().double().numpy() for x, kept in zip(each, real, strict=True)]
        for each in (tokens, outputs)
    ]
    Y = np.stack([y[-1] for y in seen[1]]) if form.mode == "last" else seen[1]
    return pa.Moments(tokens.shape[-1], outputs.shape[-1], form=form).update(seen[0], Y)


def attention(**options):
    torch.manual_seed(1)
    return nn.MultiheadAttention(4, 2, **options)


# ------------------------------------------------------------------ sums


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

    plain, fed = run(), {}
    wanted = sums_of(form, X, plain[0])
    for into in ("moments", "triangular", "source", kept):
        with capture(module, form, into=into) as fed[type(into), str(into)[:3]]:
            found = run()
        assert all(map(torch.equal, found, plain))
    moments, triangular, source, _ = fed.values()
    assert (type(moments), moments) == (pa.Moments, wanted)
    again = pa.Moments(4, 4, form=form).update(source)
    np.testing.assert_array_equal(again.gram, wanted.gram)
    np.testing.assert_array_equal(again.cross, wanted.cross)
    fit = pa.fit(statistics=wanted, ridge=1.0)
    np.testing.assert_allclose(pa.fit(statistics=triangular, ridge=1.0).coef, fit.coef, atol=1e-9)
    assert kept[0][0].dtype == kept[0][1].dtype == np.float64
    np.testing.assert_array_equal(kept[0][0], X.numpy())
    # Sums go on where others ended, and merge.
    with capture(module, form) as first:
        run(X[:2])
    with capture(module, form) as second:
        run(X[2:])
    both = first + second
    with capture(module, form, into=first) as same:
        run(X[2:])
    assert same is first
    for each in (same, both):
        assert each.n_sequences == 6
        np.testing.assert_allclose(each.gram, wanted.gram, rtol=1e-6, atol=1e-9)


def test_a_fit_of_many_portions_is_that_of_all_data():
    task = pa.data.planted(4000, 60, 3, n_heads=2, n_outputs=2, mode="full", random_state=0)
    module, tokens = pa.interop.to_torch(task.layer), 1e5 * torch.tensor(np.asarray(task.X))
    with torch.no_grad(), capture(module, FULL) as sums:
        outputs = torch.cat([module(batch) for batch in tokens.split(370)]).numpy()
    assert sums.n_sequences == 4000
    wanted, found = pa.fit(tokens.numpy(), outputs, form=FULL).coef, pa.fit(statistics=sums).coef
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max())


def test_tokens_are_found_and_taken_as_they_were():
    """Batches second, one sequence alone, overwritten tokens, names, number types, repeats."""
    turned = X.transpose(0, 1)
    with capture(module := attention(), FULL) as sums:
        Y = module(turned, turned, turned)[0]
    assert sums == sums_of(FULL, X, Y.transpose(0, 1))
    with capture(linear := nn.Linear(4, 4), FULL, batch_first=False) as sums:
        Y = linear(turned)
    assert sums == sums_of(FULL, X, Y.transpose(0, 1))
    with capture(linear, CAUSAL) as sums:
        Y = linear(X[0])
        linear(X[0][:1])
    assert sums == sums_of(CAUSAL, X[[0, 0]], Y[None][[0, 0]], np.arange(5) < [[5], [1]])
    before = X.clone()
    adds = type("Adds", (nn.Module,), {"forward": lambda _, x: x.add_(1.0)})()
    with capture(adds, CAUSAL) as sums:
        after = adds(given := X.clone())
        given.zero_()
    assert sums == sums_of(CAUSAL, before, before + 1.0)
    assert not after.any()
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
    pooled = type("Pooled", (nn.Module,), {"forward": lambda _, x: x.mean(dim=1)})()
    with capture(pooled, pa.Form()) as sums:
        pooled(X)
    assert sums.n_sequences == 6


def test_calls_of_a_shared_layer_and_masks_of_the_model():
    model, ids = Around(), torch.arange(30).reshape(6, 5) % 7
    x = torch.sin(ids[..., None] * torch.arange(1.0, 5.0))
    with torch.no_grad(), capture(model, CAUSAL, name="layer") as every:
        model(ids)
        model(ids, attention_mask=torch.tensor(REAL))
        model.layer(torch.randn(2, 5, 4))
    assert every.n_rows == 3 * (30 + LENGTHS.sum()) + 10
    with torch.no_grad(), capture(model, CAUSAL, name="layer", calls=2) as third:
        model(ids)
    inputs = model.layer(model.layer(x))
    assert third == sums_of(CAUSAL, inputs, model.layer(inputs))
    for words, options, call in (
        ("3 times", {"name": "layer", "calls": [1, 3]}, {}),
        ("unused", {"name": "unused"}, {}),
        ("sequences begin", {"name": "flat"}, {}),
        ("decode", {"name": "layer"}, {"decoder_input_ids": ids}),
        (r"\(6, 7\)", {"name": "layer"}, {"attention_mask": torch.ones(6, 7)}),
        ("real token", {"lengths": lambda X: np.zeros(len(X), int), "name": "layer"}, {}),
    ):
        with pytest.raises(InvalidInput, match=words), capture(model, CAUSAL, **options):
            model(ids, **call)


def test_hooks_are_gone_whatever_happened_and_errors_name_the_module():
    model, ids = Around(), torch.ones(6, 5)
    with pytest.raises(KeyError), capture(model, CAUSAL, name="layer") as sums:
        {}[model(ids)]
    assert sums.n_sequences == 18
    with (
        pytest.raises(InvalidInput, match=r"layer \(Linear\)"),
        capture(model, CAUSAL, name="layer"),
    ):
        model(ids * np.nan)
    failing = {"name": "layer", "lengths": lambda _: 1 / 0}
    with pytest.raises(ZeroDivisionError) as caught, capture(model, CAUSAL, **failing):
        model(ids)
    assert "layer (Linear)" in caught.value.__notes__[0]
    model(ids)
    model.layer(X)
    assert sums.n_sequences == 18
    for each in (model, model.layer):
        assert not each._forward_hooks
        assert not each._forward_pre_hooks


@pytest.mark.slow
def test_memory_does_not_grow_with_tokens():
    module = nn.Linear(60, 20)

    def peak(n_batches, keep=False):
        kept = []
        tracemalloc.start()
        with torch.no_grad(), capture(module, pa.Form(query=[0], key=[0], value=[0])):
            for _ in range(n_batches):
                tokens = torch.randn(16, 128, 60)
                kept += [tokens.numpy().copy()] * keep
                module(tokens)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(10)
    small = peak(20)
    assert peak(200) < 1.1 * small
    assert peak(200, keep=True) > 2 * small  # the measurement notices what is kept


# ------------------------------------------------------------------ padding


def additive(allowed, lowest=torch.finfo(torch.float32).min):
    return torch.where(torch.tensor(allowed.copy()), 0.0, lowest)


def attending(real, causal=False):
    """Who attends to whom, (B, 1, n, n)."""
    table = np.tril(np.ones((5, 5), bool)) | (not causal)
    return (real[:, None, :] & table)[:, None]


def without_empty_rows(allowed):
    """Rows that would attend to nothing attend to everything."""
    return allowed | ~allowed.any(axis=-1, keepdims=True)


UNDERSTOOD = [
    ("key_padding_mask", torch.tensor(~REAL), REAL),
    ("key_padding_mask", additive(REAL, -np.inf), REAL),
    ("src_key_padding_mask", torch.tensor(~LEFT), LEFT),
    ("attention_mask", torch.tensor(REAL), REAL),
    ("attention_mask", torch.tensor(LEFT.astype(np.int64)), LEFT),
    ("attention_mask", torch.tensor(REAL.astype(np.float32)), REAL),
    ("attention_mask", torch.zeros(REAL.shape), EVERY),
    ("attention_mask", additive(REAL), REAL),
    ("attention_mask", additive(REAL[:, None, None], -10_000.0), REAL),
    ("attention_mask", torch.tensor(attending(REAL)), REAL),
    ("attention_mask", torch.tensor(attending(REAL)[:, 0]), REAL),
    ("attention_mask", torch.tensor(attending(REAL)[:, [0, 0, 0]]), REAL),
    ("attn_mask", additive(attending(LEFT)[:, [0, 0]].reshape(12, 5, 5)), LEFT),
    ("attn_mask", torch.zeros(5, 5), EVERY),
    ("head_mask", torch.ones(2), EVERY),
]  # fmt: skip
OF_CAUSAL = [
    (torch.tensor(attending(REAL, causal=True)), REAL),
    (additive(attending(LEFT, causal=True)).bfloat16(), LEFT),
    (torch.tensor(without_empty_rows(attending(LEFT, causal=True))), LEFT),
    (torch.tensor(attending(REAL[:1], causal=True)), EVERY),
]


def test_masks_that_are_understood_leave_padding_out():
    module = Module()
    causal = [(CAUSAL, "attention_mask", *each) for each in OF_CAUSAL]
    for form, name, mask, real in [*((FULL, *each) for each in UNDERSTOOD), *causal]:
        # What stands in padding may be anything.
        dirty = torch.where(torch.tensor(real.copy())[..., None], X, torch.nan)
        with capture(module, form) as sums:
            module(dirty, **{name: mask})
        assert sums == sums_of(form, X, 2 * X[..., :2], real), (name, mask)
    for mask, _ in OF_CAUSAL:
        with pytest.raises(InvalidInput, match="causal"), capture(module, FULL):
            module(X, attention_mask=mask)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    call = {"mask": nn.Transformer.generate_square_subsequent_mask(5)}
    call["src_key_padding_mask"] = additive(REAL, -np.inf)
    for name in ("layers.0", "layers.1.self_attn"):
        with capture(model, CAUSAL, name=name) as sums:
            outputs = model(X, **call)
        assert torch.equal(model(X, **call), outputs)
        assert (sums.n_sequences, sums.n_rows) == (6, LENGTHS.sum())


AHEAD = np.subtract.outer(np.arange(5), np.arange(5))
WINDOW = np.broadcast_to((AHEAD >= 0) & (AHEAD < 3), (6, 1, 5, 5)).copy()
DOCUMENT = np.array([0, 0, 0, 1, 1])  # two in each row, that do not see each other
PACKED = np.broadcast_to(DOCUMENT[:, None] == DOCUMENT, (6, 1, 5, 5)).copy()
UNCLEAR = [
    ("attention_mask", torch.tensor(WINDOW), "others"),
    ("attention_mask", torch.tensor(PACKED), "others"),
    ("attention_mask", torch.tensor(PACKED & (AHEAD >= 0)), "others"),
    ("attention_mask", torch.arange(30).reshape(6, 5), "0 and 1"),
    ("attention_mask", torch.full((6, 5), -1.0), "infinity"),
    ("attention_mask", torch.rand(6, 1, 5, 5), "infinity"),
    ("attention_mask", torch.ones(6, 7, dtype=torch.int64), r"\(6, 7\)"),
    ("attention_mask", torch.ones(4, 1, 5, 5, dtype=torch.bool), r"\(4, 1, 5, 5\)"),
    ("attention_mask", torch.ones(6, 1, 3, 5, dtype=torch.bool), r"\(6, 1, 3, 5\)"),
    ("attention_mask", torch.tensor([[1, 0, 1, 1, 0]] * 6), "middle"),
    ("attention_mask", "causal", "str"),
    ("attention_mask", torch.tensor(np.stack([attending(REAL), attending(EVERY)], 1)[:, :, 0]), "head"),
    ("key_padding_mask", torch.ones(5, 6), r"\(5, 6\)"),
    ("key_padding_mask", torch.ones(6, 5, dtype=torch.int64), "int64"),
    ("attn_mask", torch.zeros(12, 5, 4), r"\(12, 5, 4\)"),
    ("attn_mask", torch.ones(12, 5, 5), "infinity"),
    ("mask", torch.ones(5, 5), "mask"),
    ("padding_mask", torch.ones(6, 5, dtype=torch.bool), "padding_mask"),
    ("is_causal", True, "causal"),
]  # fmt: skip


def test_masks_that_are_not_understood_are_refused_and_lengths_say_it_instead():
    module = Module()
    for name, mask, words in UNCLEAR:
        with pytest.raises(InvalidInput, match=f"while capturing Module.*{words}"):
            with capture(module, FULL):
                module(X, **{name: mask})
        with capture(module, FULL, lengths=lambda _: LENGTHS) as sums:
            module(X, **{name: mask})
        assert sums == sums_of(FULL, X, 2 * X[..., :2], REAL)
    for lengths in ([5] * 5, [6] + [1] * 5, [-1] + [1] * 5, [1.5] * 6, None):
        with pytest.raises(InvalidInput, match="lengths"):
            with capture(module, FULL, lengths=lambda _, given=lengths: given):
                module(X)


def test_what_is_no_self_attention_of_whole_sequences_is_refused():
    module, own = Module(), attention(batch_first=True)
    for words, each, given, named in (
        ("key", own, (X, X + 1, X + 1), {}),
        ("encoder_hidden_states", module, (X,), {"encoder_hidden_states": X}),
        ("past_key_values", module, (X,), {"past_key_values": (X,)}),
        ("int64", nn.Identity(), (torch.ones(6, 5, dtype=torch.int64),), {}),
        ("tensor", nn.Identity(), (None,), {}),
        (r"\(6, 5, 4, 1\)", nn.Identity(), (X[..., None],), {}),
        ("one for each token", nn.Flatten(), (X,), {}),
        ("mode 'full'", own, (X, X, X), {}),
    ):
        form = CAUSAL if "mode" in words else FULL
        with pytest.raises((InvalidInput, InvalidType), match=words), capture(each, form):
            each(*given, **named)
    for arguments, words in (
        ({"name": "layer.7"}, "layer.7.*layer"), ({"into": "means"}, "into"), ({"into": 3}, "update"),
        ({"into": pa.Moments(3, 2)}, "into"), ({"lengths": [3, 4]}, "lengths"),
        ({"calls": 1}, "calls"), ({"calls": [], "name": "layer"}, "calls"),
        ({"calls": -1, "name": "layer"}, "calls"), ({"batch_first": 1}, "batch_first"),
        ({"module": len}, "module"), ({"form": "full"}, "form"),
    ):  # fmt: skip
        with pytest.raises((InvalidInput, InvalidType), match=words):
            capture(**{"module": Around(), "form": FULL} | arguments)
