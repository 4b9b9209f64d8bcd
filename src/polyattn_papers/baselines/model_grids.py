"""Grids of models that are trained side by side: heads, stacks, Transformers, with one output.

Linear attention is the plain sum over heads [yau2024: equation 4], without further factors.  The
paper does not say how trained models start: ours have entries N(0, 1/d), as the layer that makes
the data has.  Seeds differ in their start, rates do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from polyattn.model import LinearAttention
from polyattn_papers.baselines.forms import cubic_features
from polyattn_papers.baselines.linear import generator_of
from polyattn_papers.baselines.transformer import Transformer


class HeadGrid:
    """Single causal layers with several numbers of heads, by second moments of cubic features.

    A layer is linear in p features, so the mean squared error of a batch is a quadratic form
    c^T L c - 2 b^T c + y^2 of its coefficients c, whose L, b and y^2 are means over the sequences
    and kept for each of them.  A step then costs p^2 for each sequence instead of p for each token.
    It is computed in float64, where the cancellation at a small error does not matter.

    A layer of fewer heads has zero ones behind: both of their gradients are zero, so they stay.
    For each rate ``attn`` is (S * M, H, d^2) and ``value`` (S * M, d, H).
    """

    def __init__(self, n_dims: int, n_heads: Sequence[int], seeds: Sequence[int], n_rates: int):
        self.n_dims, self.n_heads, self.n_seeds = n_dims, tuple(n_heads), len(seeds)
        starts = [start(n_dims, 1, count, seed) for seed in seeds for count in n_heads]
        most = max(n_heads)
        attn = torch.zeros(len(starts), most, n_dims**2)
        value = torch.zeros(len(starts), n_dims, most)
        for place, (A, V) in enumerate(starts):
            attn[place, : len(A)] = A.flatten(1)
            value[place, :, : len(A)] = V[..., 0].T
        self.attn = [attn.clone().requires_grad_() for _ in range(n_rates)]
        self.value = [value.clone().requires_grad_() for _ in range(n_rates)]
        # value (j, H) times attn (H, l, k) has the places (j, l, k); features are (j <= k, l).
        places = torch.arange(n_dims**3).view(n_dims, n_dims, n_dims)
        rows, columns = torch.triu_indices(n_dims, n_dims)
        self._one = places[rows, :, columns].flatten()
        self._other = places[columns, :, rows].flatten()

    def groups(self) -> list[list[Tensor]]:
        """The parameters of each rate."""
        return [list(pair) for pair in zip(self.attn, self.value, strict=True)]

    def prepare(self, X: Tensor, Y: Tensor) -> tuple[Tensor, ...]:
        """L (S, N, p, p), b (S, N, p) and y^2 (S, N) of each sequence."""
        features = _features(X)
        weighted = features.transpose(2, 3) / X.shape[2]
        return weighted @ features, (weighted @ Y)[..., 0], Y.square().mean((2, 3))

    def losses(self, second: Tensor, cross: Tensor, power: Tensor) -> Tensor:
        """The quadratic form of a batch (S, B, ...)."""
        c = self._coefficients()
        quadratic = (c * (second.mean(1) @ c)).sum(1)
        return quadratic - 2 * (cross.mean(1)[:, None] @ c)[:, 0] + power.mean(1)[:, None]

    def errors(self, X: Tensor, Y: Tensor) -> Tensor:
        """By the outputs themselves, which have no cancellation of squares."""
        outputs = _features(X).flatten(1, 2) @ self._coefficients()
        return (outputs - Y.flatten(1, 2)).square().mean(1)

    def _coefficients(self) -> Tensor:
        """(S, p, R * M) in float64."""
        shape = (len(self.attn), self.n_seeds, len(self.n_heads), -1)
        both = torch.stack([V.double() @ A.double() for A, V in self.groups()])
        tensor = both.view(shape).transpose(0, 1).flatten(1, 2)
        return (tensor[..., self._one] + tensor[..., self._other]).transpose(1, 2)

    def layer(self, seed: int, rate: int, size: int) -> LinearAttention:
        """A layer as polyattn's, in float64, by its places in the grid."""
        place, count = seed * len(self.n_heads) + size, self.n_heads[size]
        A, V = (part[rate][place].detach().double() for part in (self.attn, self.value))
        attn = A[:count].view(count, self.n_dims, self.n_dims).numpy()
        return LinearAttention(attn, V[:, :count].T[..., None].numpy(), mode="causal")


class StackGrid:
    """Layers of one head, one on the other: X <- X + F_l(X), and the last one's output is read.

    The paper does not say whether layers are added to what comes in; ours are.
    """

    def __init__(self, n_dims: int, n_layers: int, seeds: Sequence[int], n_rates: int):
        self.n_seeds, self.n_rates = len(seeds), n_rates
        widths = [n_dims] * (n_layers - 1) + [1]
        generators = [generator_of(seed) for seed in seeds]
        self.layers: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(n_rates)]
        for width in widths:
            drawn = [_drawn(n_dims, width, 1, generator) for generator in generators]
            attn, value = (torch.stack(part)[:, 0] for part in zip(*drawn, strict=True))
            for layers in self.layers:
                layers.append((attn.clone().requires_grad_(), value.clone().requires_grad_()))

    def groups(self) -> list[list[Tensor]]:
        """The parameters of each rate."""
        return [[part for layer in layers for part in layer] for layers in self.layers]

    def prepare(self, X: Tensor, Y: Tensor) -> tuple[Tensor, ...]:
        """Both in float32."""
        return X.float(), Y.float()

    def losses(self, X: Tensor, Y: Tensor) -> Tensor:
        """Of a batch."""
        return (self._outputs(X) - Y.flatten(1, 2)).square().mean(1)

    def errors(self, X: Tensor, Y: Tensor) -> Tensor:
        """The same, of sequences in float64."""
        return self.losses(X, Y)

    def _outputs(self, X: Tensor) -> Tensor:
        """(S, B * n, R), in the precision of X."""
        hidden = X[None].expand(self.n_rates, *X.shape)
        *inner, last = zip(*self.layers, strict=True)
        for layers in inner:
            hidden = hidden + _by_states(hidden, *_stacked(layers, X.dtype))
        found = _by_states(hidden, *_stacked(last, X.dtype))
        return found.flatten(2).permute(1, 2, 0)


class TransformerGrid:
    """A full Transformer for each seed and rate; tokens and targets have the given units."""

    def __init__(
        self, n_dims: int, n_tokens: int, n_heads: int, n_layers: int, width: int,
        seeds: Sequence[int], n_rates: int, units: Sequence[tuple[float, float]],
    ):  # fmt: skip
        self.models = [
            [
                Transformer(n_dims, 1, n_tokens, n_heads, n_layers, width, seed, *unit)
                for seed, unit in zip(seeds, units, strict=True)
            ]
            for _ in range(n_rates)
        ]

    def groups(self) -> list[list[Tensor]]:
        """The parameters of each rate."""
        return [[one for model in models for one in model.parameters()] for models in self.models]

    def prepare(self, X: Tensor, Y: Tensor) -> tuple[Tensor, ...]:
        """Both in float32."""
        return X.float(), Y.float()

    def losses(self, X: Tensor, Y: Tensor) -> Tensor:
        """Of a batch."""
        return (self._outputs(X) - Y.flatten(1, 2)).square().mean(1)

    def errors(self, X: Tensor, Y: Tensor) -> Tensor:
        """The error of what the network gives in float32, far above its rounding."""
        return (self._outputs(X.float()).double() - Y.flatten(1, 2)).square().mean(1)

    def _outputs(self, X: Tensor) -> Tensor:
        """(S, B * n, R)."""
        found = [
            torch.stack([model(part).flatten() for model, part in zip(models, X, strict=True)])
            for models in self.models
        ]
        return torch.stack(found, dim=2)


def _features(X: Tensor) -> Tensor:
    """Cubic features (S, N, n, p) of sequences (S, N, n, d)."""
    return cubic_features(X.flatten(0, 1)).unflatten(0, X.shape[:2])


def start(n_dims: int, n_outputs: int, n_heads: int, seed: int) -> tuple[Tensor, Tensor]:
    """attn (H, d, d) and value (H, d, e) with entries N(0, 1/d)."""
    return _drawn(n_dims, n_outputs, n_heads, generator_of(seed))


def _drawn(
    n_dims: int, n_outputs: int, n_heads: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    attn = torch.randn(n_heads, n_dims, n_dims, generator=generator) / n_dims**0.5
    return attn, torch.randn(n_heads, n_dims, n_outputs, generator=generator) / n_dims**0.5


def _stacked(layers: Sequence[tuple[Tensor, Tensor]], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """One layer of all rates: attn (R, S, 1, d, d) and value (R, S, 1, d, e)."""
    attn, value = (torch.stack(part)[:, :, None] for part in zip(*layers, strict=True))
    return attn.to(dtype), value.to(dtype)


def _by_states(X: Tensor, attn: Tensor, value: Tensor) -> Tensor:
    """One head by its running sum of x_s (V^T x_s)^T, (..., n, d, e): linear in n."""
    states = (X[..., :, None] * (X @ value)[..., None, :]).cumsum(-3)
    return ((X @ attn)[..., None, :] @ states).squeeze(-2)
