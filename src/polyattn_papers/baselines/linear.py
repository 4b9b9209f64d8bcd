"""Linear attention as it is trained: one layer with many heads, or many layers.

Parameters start with entries N(0, 1/d), as the paper draws the layer that makes its data
[yau2024: section 4.1]; how its trained layers start, it does not say.  That scores are divided by
sqrt(d) and the mean is taken over heads is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from polyattn.errors import require_choice, require_integer
from polyattn.model import LinearAttention
from polyattn_papers.baselines.forms import (
    by_features,
    by_grams,
    by_scores,
    cubic_features,
    fastest_kept,
    linear_attention,
    running_grams,
)

FORMS: dict[str, Callable[..., Tensor]] = {
    "features": by_features,
    "grams": by_grams,
    "scores": by_scores,
}


class LinearHeads(torch.nn.Module):
    """A causal layer with H heads, computed in the form that is fastest for its sizes."""

    def __init__(
        self,
        n_dims: int,
        n_outputs: int,
        n_heads: int,
        generator: torch.Generator,
        form: str | None = None,
    ):
        super().__init__()
        d, e = require_integer("n_dims", n_dims), require_integer("n_outputs", n_outputs)
        n_heads = require_integer("n_heads", n_heads)
        self.attn = torch.nn.Parameter(torch.randn(n_heads, d, d, generator=generator) / d**0.5)
        self.value = torch.nn.Parameter(torch.randn(n_heads, d, e, generator=generator) / d**0.5)
        fastest = fastest_kept(d, n_heads)
        self.form = fastest if form is None else require_choice("form", form, tuple(FORMS))

    def prepare(self, X: Tensor) -> tuple[Tensor, ...]:
        """What the forward pass needs of sequences X (N, n, d); no parameter enters."""
        if self.form == "features":
            return (cubic_features(X),)
        return (running_grams(X), X) if self.form == "grams" else (X,)

    def forward(self, *prepared: Tensor) -> Tensor:
        return FORMS[self.form](*prepared, *self.scaled())

    def scaled(self) -> tuple[Tensor, Tensor]:
        """``attn`` and ``value`` with the factors 1/sqrt(d) and 1/H folded in."""
        n_heads, n_dims, _ = self.attn.shape
        return self.attn / n_dims**0.5, self.value / n_heads

    def as_layer(self) -> LinearAttention:
        """The layer as polyattn's, in float64."""
        attn, value = (tensor.detach().double().numpy() for tensor in self.scaled())
        return LinearAttention(attn, value, mode="causal")


class LinearStack(torch.nn.Module):
    """L layers: X <- X + F_l(X) for all but the last, whose output F_L(X) is read."""

    def __init__(
        self, n_dims: int, n_outputs: int, n_heads: int, n_layers: int, generator: torch.Generator
    ):
        super().__init__()
        widths = [n_dims] * (require_integer("n_layers", n_layers) - 1) + [n_outputs]
        self.layers = torch.nn.ModuleList(
            LinearHeads(n_dims, width, n_heads, generator) for width in widths
        )

    def prepare(self, X: Tensor) -> tuple[Tensor, ...]:
        """The sequences themselves: only the first layer sees tokens that stay the same."""
        return (X,)

    def forward(self, X: Tensor) -> Tensor:
        *inner, last = cast("list[LinearHeads]", list(self.layers))
        for layer in inner:
            X = X + linear_attention(X, *layer.scaled())
        return linear_attention(X, *last.scaled())


def generator_of(seed: int) -> torch.Generator:
    """Where starts are drawn from."""
    return torch.Generator().manual_seed(seed)
