"""Linear attention of every form as a torch module: the same function, with gradients.

Forward and backward cost is linear in the number of tokens.  In mode ``causal`` tokens stand in
chunks: a chunk sees itself, and those in which a window ends, by scores, and all between by sums.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.form.form import Form, Scale
from polyattn.interop.torch.modules import TorchAttention, zeros_of
from polyattn.interop.torch.token_maps import SeenTokens
from polyattn.model import LinearAttention

# Tokens of a causal chunk: scores are formed inside a chunk only.
CHUNK = 64


class TorchLinearAttention(TorchAttention):
    """F(X) = sum_h (X A_h X^T) X V_h at the positions that ``mode`` predicts; or any other form.

    Parameters
    ----------
    attn, value : tensors (H, d, d) and (H, d, e); of a form (H, r, rk) and (H, rv, e)
    mode, bias, form, n_dims, n_context_dims, head_scales : as for ``LinearAttention``
    skip, intercept : tensors (r, e) and (e,), of forms that have them; by default zero

    Functions of one's own among the maps of a form are called with numpy arrays; gradients then
    pass to the parameters, and not to the tokens.  Cost of a call: linear in the number of tokens.
    """

    skip: nn.Parameter | None
    intercept: nn.Parameter | None

    def __init__(
        self,
        attn: Tensor,
        value: Tensor,
        mode: str = "last",
        bias: bool = False,
        *,
        form: Form | None = None,
        n_dims: int | None = None,
        n_context_dims: int | None = None,
        head_scales: ArrayLike | None = None,
        skip: Tensor | None = None,
        intercept: Tensor | None = None,
    ) -> None:
        layer = LinearAttention(
            zeros_of(attn, "attn"), zeros_of(value, "value"), mode, bias,
            form=form, n_dims=n_dims, n_context_dims=n_context_dims, head_scales=head_scales,
            skip=None if skip is None else np.zeros(tuple(skip.shape)),
            intercept=None if intercept is None else np.zeros(tuple(intercept.shape)),
        )  # fmt: skip
        super().__init__(attn, value, layer.mode, layer.bias)
        self.layout, self.head_scales = layer.layout, layer.head_scales
        for name, given in (("skip", skip), ("intercept", intercept)):
            wanted = getattr(layer, name)
            if wanted is not None:
                given = attn.new_zeros(wanted.shape) if given is None else given
            self.register_parameter(name, None if given is None else nn.Parameter(given))
        others, roles = self.layout.n_context_dims, ("query", "key", "value")
        self.seen = SeenTokens(self.layout, roles if others is None else roles[:1], self.n_dims)
        self.seen_context = None if others is None else SeenTokens(self.layout, roles[1:], others)
        for seen in filter(None, (self.seen, self.seen_context)):
            # The numbers of maps are float64 when they are made.
            seen.to(attn.device, attn.dtype)

    @property
    def form(self) -> Form:
        """What is predicted, attended to and seen of tokens."""
        return self.layout.form

    @property
    def n_dims(self) -> int:
        """Coordinates of an input token (without the constant one of ``bias``)."""
        return self.layout.n_dims

    def forward(self, X: Tensor, context: Tensor | None = None) -> Tensor:
        """Outputs (B, e) in mode ``last`` and (B, n, e) otherwise, for X (B, n, d).

        One sequence (n, d) gives (e,) or (n, e).  ``context`` (B, n_z, d_z) are the sequences
        attended to, of layers with ``n_context_dims``.
        """
        self._require(X, self.n_dims, "X")
        tokens = X if X.ndim == 3 else X[None]
        seen = self.seen(tokens)
        if (context is None) != (self.seen_context is None):
            raise InvalidInput(
                "the module attends to other sequences: give them as context."
                if context is None
                else "the module attends to the tokens of X themselves; it takes no context."
            )
        if context is not None and self.seen_context is not None:
            self._require(context, self.layout.n_context_dims or 0, "context")
            self._require_beside(X, context)
            seen |= self.seen_context(context if context.ndim == 3 else context[None])
        queries = seen["query"][:, -1:] if self.mode == "last" else seen["query"]
        outputs = self._heads(queries, seen["key"], seen["value"])
        if self.skip is not None:
            outputs = outputs + queries @ self.skip
        if self.intercept is not None:
            outputs = outputs + self.intercept
        outputs = outputs[:, 0] if self.mode == "last" else outputs
        return outputs if X.ndim == 3 else outputs[0]

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        if self.layout.is_plain:
            return super().extra_repr()
        sizes = f"n_heads={len(self.attn)}, n_dims={self.n_dims}, n_outputs={self.value.shape[2]}"
        context = (
            "" if self.seen_context is None else f"n_context_dims={self.layout.n_context_dims}, "
        )
        return f"{sizes}, {context}form={self.form!r}"

    def _require_beside(self, X: Tensor, context: Tensor) -> None:
        same_count = X.ndim == context.ndim and (X.ndim == 2 or len(X) == len(context))
        if not same_count or (self.mode == "causal" and X.shape[-2] != context.shape[-2]):
            raise InvalidInput(
                "context must have one sequence for each of X, in mode 'causal' of the same "
                f"length; got {tuple(X.shape)} and {tuple(context.shape)}."
            )

    def _heads(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        form, n_tokens = self.form, keys.shape[1]
        total = queries.new_zeros((*queries.shape[:2], self.value.shape[2]))
        for number, scale in enumerate(form.scales):
            own = np.flatnonzero(self.head_scales == number)
            if len(own):
                attn, value = self.attn[own], self.value[own]
                if len(own) == len(self.attn):
                    attn, value = self.attn, self.value
                total = total + self._scale(scale, attn, value, queries, keys, values)
        if not form.mean:
            return total
        positions = np.arange(1, n_tokens + 1) if self.mode == "causal" else np.array([n_tokens])
        attended = torch.tensor(np.maximum(form.n_attended(positions), 1), device=total.device)
        return total / attended[:, None]

    def _scale(
        self, scale: Scale, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor
    ) -> Tensor:
        """The heads of one scale."""
        if self.mode == "causal":
            return _causal(scale, attn, value, Q, K, V)
        if self.mode == "full" and not self.form.include_query:
            # Tokens before and tokens after: nothing is subtracted.
            after = _causal(scale, attn, value, *(each.flip(1) for each in (Q, K, V)))
            return _causal(scale, attn, value, Q, K, V) + after.flip(1)
        if self.mode == "last":
            n_tokens = K.shape[1]
            attended = scale.attended(n_tokens)
            K, V = K[:, attended], V[:, attended]
            weights = scale.weights(n_tokens - 1 - np.arange(attended.start, attended.stop))
            V = V if weights is None else V * torch.tensor(weights[:, None]).to(V)
        # One (r, e) matrix per sequence serves all its tokens: sum_h A_h S V_h.
        return Q @ (attn @ (K.transpose(1, 2) @ V)[:, None] @ value).sum(1)


def _causal(scale: Scale, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor) -> Tensor:
    """Outputs (B, n, e): distances start <= t - s < stop, weights decay^(t - s)."""
    n_tokens, start = Q.shape[1], scale.start
    if start >= n_tokens:
        return Q.new_zeros((*Q.shape[:2], value.shape[2]))
    width = None if scale.stop is None or scale.stop >= n_tokens else scale.stop - start
    if start:
        # Tokens at distance ``start`` come as if they stood at the query.
        Q, K, V = Q[:, start:], K[:, : n_tokens - start], V[:, : n_tokens - start]
    if width == 1:
        scores = ((Q[:, None] @ attn) * K[:, None]).sum(-1, keepdim=True)
        outputs = ((scores * V[:, None]) @ value).sum(1)
    else:
        outputs = _in_chunks(width, scale.decay, attn, value, Q, K, V)
    return nn.functional.pad(outputs * scale.decay**start, (0, 0, start, 0)) if start else outputs


def _in_chunks(
    width: int | None, decay: float, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor
) -> Tensor:
    """Distances 0 <= t - s < width, or all."""
    n_sequences, n_tokens, _ = Q.shape
    chunk = min(CHUNK, n_tokens)
    Q, K, V = (_chunks(each, chunk) for each in (Q, K, V))  # (B, 1, chunks, chunk, .)
    queries = Q @ attn[:, None]  # (B, H, chunks, chunk, rk)
    cut = [0] if width is None else sorted({0, width // chunk, width // chunk + 1})
    n_chunks = Q.shape[2]
    mixed = queries.new_zeros(())
    for back in (each for each in cut if each < n_chunks):
        scores = queries @ _later(K, back).transpose(-1, -2)
        mixed = mixed + (scores * _weights(chunk, back, width, decay, Q)) @ _later(V, back)
    n_whole = n_chunks - 1 if width is None else min(width // chunk - 1, n_chunks - 1)
    if n_whole > 0:
        places = torch.arange(chunk, dtype=Q.dtype, device=Q.device)[:, None]
        sums = (K * decay ** (chunk - 1 - places)).transpose(-1, -2) @ V
        earlier = _earlier(sums, n_whole, decay**chunk)
        mixed = mixed + (queries @ earlier) * decay ** (places + 1)
    outputs = (mixed @ value[:, None]).sum(1)
    return outputs.reshape(n_sequences, -1, value.shape[2])[:, :n_tokens]


def _earlier(sums: Tensor, n_whole: int, decay: float) -> Tensor:
    """Sums over the ``n_whole`` chunks before each one, by doubling: nothing is subtracted."""
    total, length = torch.zeros_like(sums), 0
    span, size = sums, 1  # sums over ``size`` chunks that end with each one
    while length < n_whole:
        if n_whole & size:
            total = total + decay**length * _later(span, length + 1)
            length += size
        if length < n_whole:
            span, size = span + decay**size * _later(span, size), 2 * size
    return total


def _weights(chunk: int, back: int, width: int | None, decay: float, like: Tensor) -> Tensor:
    """Weights (C, C) with which a chunk sees the one that stands ``back`` chunks before it."""
    places = torch.arange(chunk, device=like.device)
    distances = back * chunk + places[:, None] - places
    attended = distances >= 0
    if width is not None:
        attended = attended & (distances < width)
    return torch.where(attended, decay ** distances.clamp(min=0).to(like.dtype), 0.0)


def _chunks(tokens: Tensor, chunk: int) -> Tensor:
    """Tokens (B, n, width) as (B, 1, chunks, C, width), with zeros behind them."""
    padded = nn.functional.pad(tokens, (0, 0, 0, -tokens.shape[1] % chunk))
    return padded.reshape(len(tokens), 1, -1, chunk, tokens.shape[2])


def _later(chunks: Tensor, back: int) -> Tensor:
    """What stands ``back`` chunks before each one; zeros where there is none."""
    if back == 0:
        return chunks
    return nn.functional.pad(chunks[:, :, :-back], (0, 0, 0, 0, back, 0))
