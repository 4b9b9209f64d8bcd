"""Linearised attention as a torch module: the same function with gradients, in linear time.

In mode ``causal`` tokens stand in chunks: those of a chunk see each other directly, and all before
by their sums.  Denominators of single features are logarithms of sums, so that no exponential is
above one, as in the layer of numpy.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from polyattn.errors import InvalidInput, InvalidType
from polyattn.form.pairs import pair_index
from polyattn.model.feature_maps import FeatureMap, SideMap
from polyattn.model.linearised import CONSTANTS, HEADS, LEAST_DENOMINATOR, LinearisedAttention

# Tokens of a causal chunk.
CHUNK = 16


class TorchLinearisedAttention(nn.Module):
    """Softmax heads whose weights are replaced by a feature map; every array is a parameter.

    layer : LinearisedAttention, whose arrays are copied; see there for what is computed

    ``module.mixing`` is M (H, F, G'), and ``query_matrix`` and ``key_matrix`` are those of the
    feature map.  Train what you like: ``requires_grad_(False)`` keeps the rest.  A function of
    one's own as feature map is called with numpy arrays, and passes no gradient.
    Cost of a call: linear in the number of tokens.
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor
    b_K: Tensor
    b_V: Tensor
    b_O: Tensor
    mixing: Tensor
    query_matrix: Tensor
    key_matrix: Tensor
    skip: Tensor | None

    def __init__(self, layer: LinearisedAttention) -> None:
        super().__init__()
        for name, array in layer.arrays().items():
            # torch.tensor copies, so that training the module leaves the layer alone.
            self.register_parameter(name, nn.Parameter(torch.tensor(np.array(array))))
        if layer.skip is None:
            self.register_parameter("skip", None)
        self.mode, self.denominator, self.window = layer.mode, layer.denominator, layer.window
        self.feature_map = layer.feature_map
        self.n_dims = layer.n_dims

    def forward(self, X: Tensor) -> Tensor:
        """Outputs (B, e) in mode ``last`` and (B, n, e) otherwise, for X (B, n, d).

        One sequence (n, d) gives (e,) or (n, e).
        """
        if not isinstance(X, Tensor):
            raise InvalidType(f"X must be a torch.Tensor; got {type(X).__name__}.")
        if X.ndim not in (2, 3) or X.shape[-1] != self.n_dims or X.shape[-2] == 0:
            raise InvalidInput(
                f"X must have shape (B, n, {self.n_dims}) or (n, {self.n_dims}) with n >= 1; got "
                f"{tuple(X.shape)}."
            )
        tokens = X if X.ndim == 3 else X[None]
        asking = tokens[:, -1:] if self.mode == "last" else tokens
        # (B, H, T, r), (B, H, n, r), (B, H, n, v)
        queries = asking[:, None] @ self.W_Q + self.b_Q[:, None]
        keys = tokens[:, None] @ self.W_K + self.b_K[:, None]
        values = tokens[:, None] @ self.W_V + self.b_V[:, None]
        outputs = (self._heads(queries, keys, values) @ self.W_O).sum(1) + self.b_O
        if self.skip is not None:
            outputs = outputs + asking @ self.skip
        outputs = outputs[:, 0] if self.mode == "last" else outputs
        return outputs if X.ndim == 3 else outputs[0]

    def to_layer(self, mode: str | None = None) -> LinearisedAttention:
        """The layer with the present parameters; its mode is known."""
        if mode not in (None, self.mode):
            raise InvalidInput(
                f"the module has mode {self.mode!r}, but mode={mode!r} was asked for; leave it out."
            )
        own = {name: as_numpy(each) for name, each in self.named_parameters()}
        sides = (self.feature_map.query, self.feature_map.key)
        matrices = (own.pop("query_matrix"), own.pop("key_matrix"))
        query, key = (
            SideMap(side.kind, matrix, side.function)
            for side, matrix in zip(sides, matrices, strict=True)
        )
        named = {name: own[name] for name in (*HEADS, *CONSTANTS, "b_O")}
        return LinearisedAttention(
            **named, feature_map=FeatureMap(self.feature_map.name, query, key),
            mode=self.mode, denominator=self.denominator, window=self.window,
            skip=own.get("skip"),
        )  # fmt: skip

    def extra_repr(self) -> str:
        """What ``print`` shows between the parentheses."""
        return (
            f"n_heads={len(self.W_Q)}, n_dims={self.n_dims}, n_outputs={self.W_O.shape[2]}, "
            f"map={self.feature_map.name!r}, mode={self.mode!r}"
        )

    def _heads(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What replaces the means of softmax (B, H, T, v)."""
        if self.denominator == "fitted":
            values = nn.functional.pad(values, (0, 1), value=1.0)
        phi = features(self.feature_map.query, queries, self.query_matrix)
        weights = phi @ self.mixing
        of_features = weights if self.window is None else weights[..., :-1]
        side, matrix = self.feature_map.key, self.key_matrix
        if self.denominator == "features":
            logs = log_features(side, keys, matrix)
            found = (
                _causal_means(of_features, logs, values)
                if self.mode == "causal"
                else of_features @ (logs.softmax(2).transpose(2, 3) @ values)
            )
        else:
            psi = features(side, keys, matrix)
            found = _sums(of_features, psi, values, self.mode == "causal")
        if self.window is not None:
            near = _window(queries, keys, values, self.mode, self.window)
            found = found + weights[..., -1:] * near
        if self.denominator != "fitted":
            return found
        return found[..., :-1] / found[..., -1:].clamp_min(LEAST_DENOMINATOR)


def features(side: SideMap, x: Tensor, matrix: Tensor) -> Tensor:
    """Features (B, H, n, F) of queries or keys (B, H, n, r); matrix (H, r, m)."""
    if side.positive:
        return log_features(side, x, matrix).exp()
    if side.function is not None:
        found = side.features(as_numpy(x), 0)
        return torch.as_tensor(found, dtype=x.dtype, device=x.device)
    one, seen = torch.ones_like(x[..., :1]), x @ matrix
    if side.kind == "linear":
        return torch.cat([one, seen], dim=-1)
    i, j = (np.array(each) for each in pair_index(matrix.shape[2]))
    factors = torch.as_tensor(np.where(i == j, np.sqrt(0.5), 1.0)).to(x)
    return torch.cat([one, x, seen[..., i] * seen[..., j] * factors], dim=-1)


def log_features(side: SideMap, x: Tensor, matrix: Tensor) -> Tensor:
    """Logarithms (B, H, n, F) of positive features."""
    logits = x @ matrix
    if side.kind == "softmax":
        return logits.log_softmax(-1)
    if side.kind == "gaussian":
        return logits - 0.5 * (x * x).sum(-1, keepdim=True)
    if side.kind == "elu":
        return torch.where(logits > 0, torch.log1p(logits.clamp_min(0.0)), logits)
    return logits


def as_numpy(tensor: Tensor) -> np.ndarray:
    """Numbers of a tensor as float64 of their own."""
    return np.array(tensor.detach().to("cpu", torch.float64).numpy())


def _sums(weights: Tensor, psi: Tensor, values: Tensor, causal: bool) -> Tensor:
    """sum_s (weights_t . psi_s) v_s / n_t over all tokens, or over those up to t."""
    n = psi.shape[2]
    if not causal:
        return weights @ (psi.transpose(2, 3) @ values) / n
    counts = torch.arange(1, n + 1, dtype=psi.dtype, device=psi.device)[:, None]
    before, parts = torch.zeros_like(psi[:, :, :1].transpose(2, 3) @ values[:, :, :1]), []
    for first in range(0, n, CHUNK):
        some = slice(first, first + CHUNK)
        w, k, v = weights[:, :, some], psi[:, :, some], values[:, :, some]
        parts.append((w @ k.transpose(2, 3)).tril() @ v + w @ before)
        before = before + k.transpose(2, 3) @ v
    return torch.cat(parts, dim=2) / counts


def _causal_means(weights: Tensor, logs: Tensor, values: Tensor) -> Tensor:
    """sum_l weights_tl Z_t[l] with Z_t[l] the mean of v_s, s <= t, by weights exp(logs_sl)."""
    totals, parts = logs.logcumsumexp(2), []
    # Before the first chunk there is nothing, of weight exp(-inf).
    means = torch.zeros_like(logs[:, :, :1].transpose(2, 3) @ values[:, :, :1])
    last = torch.full_like(totals[:, :, :1], -torch.inf)
    for first in range(0, logs.shape[2], CHUNK):
        some = slice(first, first + CHUNK)
        w, k, v, c = weights[:, :, some], logs[:, :, some], values[:, :, some], totals[:, :, some]
        # share (t, s) of each feature, at most one for s <= t
        apart = k[:, :, None] - c[:, :, :, None]  # (B, H, t, s, G)
        later = torch.ones(apart.shape[2:4], dtype=torch.bool, device=v.device).triu(1)
        shares = apart.masked_fill(later[:, :, None], -torch.inf).exp()
        found = torch.einsum("bhtg,bhtsg,bhsv->bhtv", w, shares, v)
        own = (k - c[:, :, -1:]).exp().transpose(2, 3) @ v
        found = found + (w * (last - c).exp()) @ means
        own = own + (last - c[:, :, -1:]).exp().transpose(2, 3) * means
        means, last = own, c[:, :, -1:]
        parts.append(found)
    return torch.cat(parts, dim=2)


def _window(queries: Tensor, keys: Tensor, values: Tensor, mode: str, window: int) -> Tensor:
    """Softmax attention (B, H, T, v) over the tokens at distances below ``window``."""
    n = keys.shape[2]
    reach = min(window, n)
    offsets = torch.arange(1 - reach, reach if mode == "full" else 1, device=keys.device)
    places = torch.arange(n, device=keys.device)[:, None] + offsets
    places = places[-1:] if mode == "last" else places
    outside = (places < 0) | (places >= n)
    places = places.clamp(0, n - 1)
    logits = torch.einsum("bhtr,bhtjr->bhtj", queries, keys[:, :, places])
    weights = logits.masked_fill(outside, -torch.inf).softmax(-1)
    return torch.einsum("bhtj,bhtjv->bhtv", weights, values[:, :, places])
