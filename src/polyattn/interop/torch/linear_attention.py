"""Linear attention of every form as a torch module: the same function, with gradients.

Forward and backward cost is linear in the number of tokens.  In mode ``causal`` tokens stand in
chunks: a chunk sees itself, and those in which a window ends, by scores, and all between by sums.

A module that is traced, exported or compiled must not decide anything by the length of a sequence,
since the graph serves every length: there chunks have their full length and sums over chunks
before are products with a matrix of weights (quadratic in the number of chunks alone).
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.form.form import Form
from polyattn.interop.scale_heads import FARTHEST, HeadsOfScale, heads_by_scale
from polyattn.interop.torch.graphs import is_traced
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
        super().__init__(value, layer.mode, layer.bias, attn=attn)
        self.layout, self.head_scales = layer.layout, layer.head_scales
        # Plain numbers, which graphs can hold, in the place of properties that compute them.
        self.scale_heads = heads_by_scale(self.layout.form, self.head_scales)
        self.has_mean, self.include_query = self.form.mean, self.form.include_query
        self.most_attended = min(self.form.window or FARTHEST, FARTHEST)
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
        if is_traced():
            return
        same_count = X.ndim == context.ndim and (X.ndim == 2 or len(X) == len(context))
        if not same_count or (self.mode == "causal" and X.shape[-2] != context.shape[-2]):
            raise InvalidInput(
                "context must have one sequence for each of X, in mode 'causal' of the same "
                f"length; got {tuple(X.shape)} and {tuple(context.shape)}."
            )

    def _heads(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        total = queries.new_zeros((*queries.shape[:2], self.value.shape[2]))
        for heads in self.scale_heads:
            attn = self.attn if heads.own is None else self.attn[heads.own]
            value = self.value if heads.own is None else self.value[heads.own]
            total = total + self._scale(heads, attn, value, queries, keys, values)
        if not self.has_mean:
            return total
        attended = torch.arange(1, keys.shape[1] + 1, device=total.device)
        attended = attended if self.mode == "causal" else attended[-1:]
        attended = attended.clamp(max=self.most_attended) - (0 if self.include_query else 1)
        return total / attended.clamp(min=1)[:, None]

    def _scale(
        self, scale: HeadsOfScale, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor
    ) -> Tensor:
        """The heads of one scale."""
        if self.mode == "causal":
            return _causal(scale, attn, value, Q, K, V)
        if self.mode == "full" and not self.include_query:
            # Tokens before and tokens after: nothing is subtracted.
            after = _causal(scale, attn, value, *(each.flip(1) for each in (Q, K, V)))
            return _causal(scale, attn, value, Q, K, V) + after.flip(1)
        if self.mode == "last" and (scale.start, scale.stop, scale.decay) != (0, None, 1.0):
            n_tokens = K.shape[1]
            distances = torch.arange(n_tokens, device=V.device).flip(0)
            V = V * _weights_of(distances, scale.start, scale.stop, scale.decay, V)[:, None]
        # One (r, e) matrix per sequence serves all its tokens: sum_h A_h S V_h.
        return Q @ (attn @ (K.transpose(1, 2) @ V)[:, None] @ value).sum(1)


def _causal(
    scale: HeadsOfScale, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor
) -> Tensor:
    """Outputs (B, n, e): distances start <= t - s < stop, weights decay^(t - s)."""
    start, width = scale.start, None if scale.stop is None else scale.stop - scale.start
    # Tokens at distance ``start`` come as if they stood at the query.
    K, V = _later(K, start, 1), _later(V, start, 1)
    if width == 1:
        scores = ((Q[:, None] @ attn) * K[:, None]).sum(-1, keepdim=True)
        outputs = ((scores * V[:, None]) @ value).sum(1)
    else:
        outputs = _in_chunks(width, scale.decay, attn, value, Q, K, V)
    return outputs * scale.decay**start if start else outputs


def _in_chunks(
    width: int | None, decay: float, attn: Tensor, value: Tensor, Q: Tensor, K: Tensor, V: Tensor
) -> Tensor:
    """Distances 0 <= t - s < width, or all."""
    n_tokens = Q.shape[1]
    traced = is_traced()
    chunk = CHUNK if traced else min(CHUNK, n_tokens)
    # One or two more than needed in a graph, which takes the number one for a constant.
    n_chunks = n_tokens // chunk + 2 if traced else -(-n_tokens // chunk)
    Q, K, V = (_chunks(each, n_chunks, chunk) for each in (Q, K, V))  # (B, 1, chunks, chunk, .)
    queries = Q @ attn[:, None]  # (B, H, chunks, chunk, rk)
    cut = [0] if width is None else sorted({0, width // chunk, width // chunk + 1})
    mixed = queries.new_zeros(())
    for back in cut if traced else [each for each in cut if each < n_chunks]:
        scores = queries @ _later(K, back, 2).transpose(-1, -2)
        mixed = mixed + (scores * _weights(chunk, back, width, decay, Q)) @ _later(V, back, 2)
    most = None if width is None else width // chunk - 1
    if (most is None or most > 0) and (traced or n_chunks > 1):
        places = torch.arange(chunk, dtype=Q.dtype, device=Q.device)[:, None]
        sums = (K * decay ** (chunk - 1 - places)).transpose(-1, -2) @ V
        if traced:
            earlier = _earlier_by_weights(sums, most, decay**chunk)
        else:
            earlier = _earlier(sums, min(most or n_chunks, n_chunks - 1), decay**chunk)
        mixed = mixed + (queries @ earlier) * decay ** (places + 1)
    outputs = (mixed @ value[:, None]).sum(1)
    places = torch.arange(n_tokens, device=Q.device)
    return outputs[:, places // chunk, places % chunk]


def _earlier(sums: Tensor, n_whole: int, decay: float) -> Tensor:
    """Sums over the ``n_whole`` chunks before each one, by doubling: nothing is subtracted."""
    total, length = torch.zeros_like(sums), 0
    span, size = sums, 1  # sums over ``size`` chunks that end with each one
    while length < n_whole:
        if n_whole & size:
            total = total + decay**length * _later(span, length + 1, 2)
            length += size
        if length < n_whole:
            span, size = span + decay**size * _later(span, size, 2), 2 * size
    return total


def _earlier_by_weights(sums: Tensor, n_whole: int | None, decay: float) -> Tensor:
    """The same for any number of chunks, ``n_whole=None``: all before each one."""
    places = torch.arange(sums.shape[2], device=sums.device)
    distances = places[:, None] - places - 1
    weights = _weights_of(distances, 0, n_whole, decay, sums)
    return torch.einsum("ij,bhjkl->bhikl", weights, sums)


def _weights(chunk: int, back: int, width: int | None, decay: float, like: Tensor) -> Tensor:
    """Weights (C, C) with which a chunk sees the one that stands ``back`` chunks before it."""
    places = torch.arange(chunk, device=like.device)
    return _weights_of(back * chunk + places[:, None] - places, 0, width, decay, like)


def _weights_of(
    distances: Tensor, start: int, stop: int | None, decay: float, like: Tensor
) -> Tensor:
    """decay^distance where start <= distance < stop, else zero."""
    attended = distances >= start
    if stop is not None:
        attended = attended & (distances < stop)
    return torch.where(attended, decay ** distances.clamp(min=0).to(like.dtype), 0.0)


def _chunks(tokens: Tensor, n_chunks: int, chunk: int) -> Tensor:
    """Tokens (B, n, width) as (B, 1, chunks, C, width), with zeros behind them."""
    # By places: a graph cannot prove that a symbolic length is a multiple of the chunk.
    first = chunk * torch.arange(n_chunks, device=tokens.device)
    places = first[:, None] + torch.arange(chunk, device=tokens.device)
    found = tokens[:, places.clamp(max=tokens.shape[1] - 1)]
    return torch.where((places < tokens.shape[1])[..., None], found, 0.0)[:, None]


def _later(tensor: Tensor, back: int, axis: int) -> Tensor:
    """What stands ``back`` places before each one along an axis; zeros where there is none."""
    if back == 0:
        return tensor
    places = torch.arange(tensor.shape[axis], device=tensor.device) - back
    shape = (-1, *[1] * (tensor.ndim - 1 - axis))
    moved = tensor.index_select(axis, places.clamp(min=0))
    return torch.where((places >= 0).reshape(shape), moved, 0.0)
