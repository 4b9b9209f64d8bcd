"""pa.interop.capture: sums of what a module sees and says, while a model runs."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import polyattn as pa
from polyattn.errors import InvalidInput
from polyattn.interop import sequence_buffer
from polyattn.interop.torch.calls import arguments_of

FULL = pa.Form(mode="full", bias=True)
CAUSAL = pa.Form(mode="causal")
LENGTHS = [5, 3, 2, 5, 1, 4]


@pytest.fixture
def tokens() -> torch.Tensor:
    return torch.randn(6, 5, 4, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def attention() -> nn.MultiheadAttention:
    torch.manual_seed(1)
    return nn.MultiheadAttention(4, 2, batch_first=True).eval()


class Shared(nn.Module):
    """A model that calls one layer three times, as ALBERT does."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, attention_mask: Any = None) -> torch.Tensor:
        del attention_mask
        for _ in range(3):
            x = self.layer(x)
        return x


def real(tensor: torch.Tensor, lengths: list[int]) -> list[np.ndarray]:
    return [each[:n].detach().double().numpy() for each, n in zip(tensor, lengths, strict=True)]


def expected(form: pa.Form, X: torch.Tensor, Y: torch.Tensor, lengths: list[int]) -> pa.Moments:
    outputs: Any = real(Y, lengths)
    if form.mode == "last":
        outputs = np.stack([each[-1] for each in outputs])
    return pa.Moments(X.shape[-1], Y.shape[-1], form=form).update(real(X, lengths), outputs)


@pytest.mark.parametrize("mode", ["full", "causal", "last"])
def test_sums_are_those_of_the_sequences_in_memory(
    mode: str, attention: nn.MultiheadAttention, tokens: torch.Tensor
) -> None:
    form = pa.Form(mode=mode, bias=True)
    table = torch.ones(5, 5, dtype=torch.bool).triu(1) if mode == "causal" else None
    with pa.interop.capture(attention, form) as sums:
        Y = attention(tokens, tokens, tokens, attn_mask=table)[0]
    assert type(sums) is pa.Moments
    assert sums == expected(form, tokens, Y, 6 * [5])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e5])
def test_fit_from_sums_of_many_portions_is_that_of_all_data(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_buffer, "PORTION_NUMBERS", 500)
    task = pa.data.planted(400, 6, 3, n_heads=2, n_outputs=2, mode="causal", random_state=0)
    module = pa.interop.to_torch(task.layer)
    X = scale * torch.tensor(np.asarray(task.X))
    with pa.interop.capture(module, CAUSAL) as sums:
        for batch in X.split(37):
            module(batch)
    Y = module(X).detach().numpy()
    whole = pa.Moments(3, 2, form=CAUSAL).update(X.numpy(), Y)
    assert sums.n_sequences == whole.n_sequences == 400
    np.testing.assert_allclose(sums.gram, whole.gram, rtol=1e-12, atol=1e-13 * whole.gram.max())
    mine, theirs = pa.fit(statistics=sums), pa.fit(statistics=whole)
    size = np.abs(theirs.coef).max()
    np.testing.assert_allclose(mine.coef, theirs.coef, rtol=0, atol=1e-12 * size)
    in_memory = pa.fit(X.numpy(), Y, form=CAUSAL)
    np.testing.assert_allclose(mine.coef, in_memory.coef, rtol=0, atol=1e-9 * size)
    assert pa.certify(statistics=sums).outcome.ok


@pytest.mark.parametrize("into", ["triangular", "source"])
def test_other_things_are_fed(into: str) -> None:
    task = pa.data.planted(200, 5, 3, mode="full", random_state=1)
    module = pa.interop.to_torch(task.layer)
    form = pa.Form(mode="full")
    X = torch.tensor(np.asarray(task.X))
    with pa.interop.capture(module, form, into=into) as fed:
        for batch in X.split(50):
            module(batch)
    result = pa.fit(fed, form=form) if into == "source" else pa.fit(statistics=fed)
    assert pa.same_function(result.layer, task.layer, tolerance=1e-8)


def test_a_source_is_that_of_the_list_of_pairs(
    attention: nn.MultiheadAttention, tokens: torch.Tensor
) -> None:
    with pa.interop.capture(attention, FULL, into="source") as source:
        Y = attention(tokens, tokens, tokens)[0]
    pairs = pa.scan([(tokens.double().numpy(), Y.detach().double().numpy())])
    assert (source.n_dims, source.n_outputs) == (4, 4)
    mine = pa.Moments(4, 4, form=FULL).update(source)
    assert mine == pa.Moments(4, 4, form=FULL).update(pairs)


def test_any_object_with_update_is_fed(
    attention: nn.MultiheadAttention, tokens: torch.Tensor
) -> None:
    class Kept:
        def __init__(self) -> None:
            self.pairs: list[Any] = []

        def update(self, X: Any, Y: Any) -> None:
            self.pairs.append((X, Y))

    with pa.interop.capture(attention, FULL, into=Kept()) as kept:
        Y = attention(tokens, tokens, tokens)[0]
    ((X, found),) = kept.pairs
    assert X.dtype == found.dtype == np.float64
    np.testing.assert_array_equal(X, tokens.numpy())
    np.testing.assert_array_equal(found, Y.detach().numpy())


def test_sums_go_on_merge_and_are_saved(
    attention: nn.MultiheadAttention, tokens: torch.Tensor, tmp_path: Any
) -> None:
    first, second = tokens[:2], tokens[2:]
    with pa.interop.capture(attention, FULL) as sums:
        attention(first, first, first)
    with pa.interop.capture(attention, FULL) as others:
        attention(second, second, second)
    merged = sums + others
    sums.save(tmp_path / "sums.safetensors")
    loaded = pa.Moments.load(tmp_path / "sums.safetensors")
    with pa.interop.capture(attention, FULL, into=loaded) as same:
        attention(second, second, second)
    assert same is loaded
    assert loaded.n_sequences == merged.n_sequences == 6
    np.testing.assert_allclose(loaded.gram, merged.gram, rtol=1e-14, atol=1e-13)


def test_gradients_and_forward_passes_are_as_without(
    attention: nn.MultiheadAttention, tokens: torch.Tensor
) -> None:
    def run() -> tuple[torch.Tensor, torch.Tensor | None]:
        attention.zero_grad()
        outputs = attention(tokens, tokens, tokens)[0]
        outputs.square().sum().backward()
        return outputs, attention.in_proj_weight.grad

    plain, gradient = run()
    assert gradient is not None
    gradient = gradient.clone()
    with pa.interop.capture(attention, FULL):
        captured, other = run()
    assert other is not None
    assert torch.equal(plain, captured)
    assert torch.equal(gradient, other)


def test_batches_may_come_second(tokens: torch.Tensor) -> None:
    torch.manual_seed(1)
    module = nn.MultiheadAttention(4, 2)
    turned = tokens.transpose(0, 1)
    with pa.interop.capture(module, FULL) as sums:
        Y = module(turned, turned, turned)[0]
    assert sums == expected(FULL, tokens, Y.transpose(0, 1), 6 * [5])
    linear = nn.Linear(4, 4)
    with pa.interop.capture(linear, FULL, batch_first=False) as sums:
        Y = linear(turned)
    assert sums == expected(FULL, tokens, Y.transpose(0, 1), 6 * [5])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_numbers_of_all_types_are_taken_as_they_are(
    dtype: torch.dtype, tokens: torch.Tensor
) -> None:
    module = nn.Linear(4, 2).to(dtype)
    X = tokens.to(dtype, copy=True)
    with pa.interop.capture(module, CAUSAL) as sums:
        Y = module(X)
        X.zero_()  # what comes later changes nothing
    assert sums == expected(CAUSAL, tokens.to(dtype), Y, 6 * [5])


def test_one_sequence_without_an_axis_for_sequences(tokens: torch.Tensor) -> None:
    module = nn.Linear(4, 1)
    with pa.interop.capture(module, CAUSAL) as sums:
        Y = module(tokens[0])
        module(tokens[1][:1])
    both = torch.stack([tokens[0], tokens[1]])
    outputs = torch.stack([Y, module(tokens[1])])
    assert sums == expected(CAUSAL, both, outputs, [5, 1])


def test_a_module_may_overwrite_its_tokens(tokens: torch.Tensor) -> None:
    class Adds(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.add_(1.0)

    before = tokens.clone()
    module = Adds()
    with pa.interop.capture(module, CAUSAL) as sums:
        after = module(tokens)
    assert sums == expected(CAUSAL, before, after, 6 * [5])


def test_repeated_calls_of_a_backward_pass_do_not_count(tokens: torch.Tensor) -> None:
    module = nn.Linear(4, 4)
    with pa.interop.capture(module, CAUSAL) as sums:
        checkpoint(module, tokens, use_reentrant=False).sum().backward()
    assert sums.n_sequences == 6


def test_calls_of_a_shared_layer(tokens: torch.Tensor) -> None:
    model = Shared(nn.Linear(4, 4))
    with torch.no_grad(), pa.interop.capture(model, CAUSAL, name="layer") as every:
        model(tokens)
        model(tokens)
    assert every.n_sequences == 36
    with torch.no_grad(), pa.interop.capture(model, CAUSAL, name="layer", calls=2) as third:
        model(tokens)
        model(tokens)
    inputs = model.layer(model.layer(tokens))
    twice = torch.cat([inputs, inputs])
    assert third == expected(CAUSAL, twice, model.layer(twice), 12 * [5])
    with (
        pytest.raises(InvalidInput, match=r"called 3 times.* no call 3"),
        pa.interop.capture(model, CAUSAL, name="layer", calls=[1, 3]),
    ):
        model(tokens)


def test_memory_does_not_grow_with_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_buffer, "PORTION_NUMBERS", 1 << 14)
    module = nn.Linear(6, 2)

    def peak(n_batches: int, keep: bool = False) -> int:
        generator = torch.Generator().manual_seed(0)
        kept: list[Any] = []
        tracemalloc.start()
        with torch.no_grad(), pa.interop.capture(module, pa.Form()) as sums:
            for _ in range(n_batches):
                X = torch.randn(16, 32, 6, generator=generator)
                kept += [X.numpy().copy()] * keep
                module(X)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert sums.n_sequences == 16 * n_batches
        return found

    peak(2)
    small = peak(20)
    assert peak(200) < 1.1 * small
    # The measurement notices what is kept.
    assert peak(200, keep=True) > 2 * small


def test_a_module_that_is_never_called_is_an_error(tokens: torch.Tensor) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with (
        pytest.raises(InvalidInput, match=r"1 \(Linear\) was not called"),
        pa.interop.capture(model, CAUSAL, name="1") as sums,
    ):
        model[0](tokens)
    assert sums.n_rows == 0
    assert "nothing added yet" in repr(sums)
    with pytest.raises(InvalidInput, match="empty"):
        pa.fit(statistics=sums)
    with pytest.raises(AttributeError, match="first update"):
        _ = sums.gram
    with (
        pytest.raises(InvalidInput, match="no sequence with a real token"),
        pa.interop.capture(model, CAUSAL, lengths=lambda X: np.zeros(len(X), int)),
    ):
        model(tokens)


def test_hooks_are_gone_whatever_happened(tokens: torch.Tensor) -> None:
    model = Shared(nn.Linear(4, 4))
    with pytest.raises(KeyError), pa.interop.capture(model, CAUSAL, name="layer") as sums:
        {}[model(tokens)]
    assert sums.n_sequences == 18
    with pytest.raises(InvalidInput, match="NaN"), pa.interop.capture(model, CAUSAL, name="layer"):
        model(tokens * np.nan)
    for each in (model, model.layer):
        assert not each._forward_hooks
        assert not each._forward_pre_hooks


def test_errors_name_the_module(tokens: torch.Tensor) -> None:
    model = Shared(nn.Linear(4, 4))
    with (
        pytest.raises(InvalidInput, match=r"while capturing layer \(Linear\): its tokens hold"),
        pa.interop.capture(model, CAUSAL, name="layer"),
    ):
        model(tokens / 0)

    def failing(_X: Any) -> Any:
        raise ZeroDivisionError

    with (
        pytest.raises(ZeroDivisionError) as caught,
        pa.interop.capture(model, CAUSAL, name="layer", lengths=failing),
    ):
        model(tokens)
    assert caught.value.__notes__ == ["while capturing layer (Linear)"]


def test_arguments_are_found_by_their_names(tokens: torch.Tensor) -> None:
    class Named(nn.Module):
        def forward(self, first: Any = None, *rest: Any, hidden: Any = None, **more: Any) -> Any:
            return first, rest, hidden, more

    module = Named()
    given = arguments_of(module, (1, 2, 3), {"hidden": 4, "x": 5})
    assert given == {"first": 1, "rest[0]": 2, "rest[1]": 3, "hidden": 4, "x": 5}

    class ByName(nn.Module):
        def forward(self, **named: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"other": named["mine"], "last_hidden_state": 2 * named["hidden_states"]}

    by_name = ByName()
    with pa.interop.capture(by_name, CAUSAL) as sums:
        by_name(mine=tokens[..., :1], hidden_states=tokens)
    assert sums == expected(CAUSAL, tokens, 2 * tokens, 6 * [5])
