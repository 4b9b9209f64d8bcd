"""What forms see of tokens, as torch modules: coordinates, matrices and the maps of ``pa.maps``.

Gradients pass through all of them but functions of one's own, which are called with numpy arrays.
Numbers that a map needs are buffers outside the state: they follow ``.to`` and ``.float``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from polyattn.errors import InvalidInput
from polyattn.form import ready_maps
from polyattn.form.layout import Layout
from polyattn.form.token_maps import TokenMap, applied, coordinates_of, same_map
from polyattn.interop.torch.graphs import is_traced


class SeenTokens(nn.Module):
    """Queries, keys or values of tokens (B, n, d), each with the constant of ``bias``.

    names : of query, key and value those that are made of these tokens
    """

    def __init__(self, layout: Layout, names: tuple[str, ...], n_dims: int) -> None:
        super().__init__()
        self.names, self.bias = names, layout.form.bias
        given = [getattr(layout.form, name) for name in names]
        # Equal maps are applied once: the place of the first that is the same.
        self.same = [
            next(j for j in range(i + 1) if same_map(given[j], given[i])) for i in range(len(given))
        ]
        self.maps = nn.ModuleList(
            torch_map(each, n_dims, name) for each, name in zip(given, names, strict=True)
        )

    def forward(self, tokens: Tensor) -> dict[str, Tensor]:
        """What is seen of the tokens, by name."""
        found: list[Tensor] = []
        for i, first in enumerate(self.same):
            if first < i:
                found.append(found[first])
                continue
            seen = self.maps[i](tokens)
            found.append(nn.functional.pad(seen, (0, 1), value=1.0) if self.bias else seen)
        return dict(zip(self.names, found, strict=True))


def torch_map(given: TokenMap, n_dims: int, name: str) -> nn.Module:
    """A map of tokens (..., d) -> (..., r) as a module."""
    chosen = coordinates_of(given, n_dims, name)
    if chosen == tuple(range(n_dims)):
        return nn.Identity()
    if chosen is not None:
        return _Numbers(lambda tokens, places: tokens[..., places], np.array(chosen))
    if isinstance(given, np.ndarray):
        return _Numbers(lambda tokens, matrix: tokens @ matrix, given)
    make = READY.get(type(given))
    return _OwnFunction(given, name) if make is None else make(given, n_dims)


class _Numbers(nn.Module):
    """A function of tokens and of fixed arrays, which become buffers."""

    def __init__(self, function: Callable[..., Tensor], *arrays: NDArray) -> None:
        super().__init__()
        self.function, self.count = function, len(arrays)
        for number, array in enumerate(arrays):
            self.register_buffer(f"number_{number}", torch.tensor(array), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        numbers = (getattr(self, f"number_{number}") for number in range(self.count))
        return self.function(tokens, *numbers)


class _OwnFunction(nn.Module):
    """A function of numpy arrays, through which no gradient passes to the tokens."""

    def __init__(self, function: TokenMap, name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, tokens: Tensor) -> Tensor:
        if is_traced():
            # Its numbers would be constants of the graph, wrong for all other tokens.
            raise InvalidInput(
                f"{self.name} is a function of numpy arrays, which cannot be part of a graph: a "
                "module that is traced, exported or compiled needs coordinates, a matrix or a map "
                "of pa.maps."
            )
        if tokens.requires_grad:
            raise InvalidInput(
                f"{self.name} is a function of numpy arrays, so that no gradient can pass through "
                "it to the tokens; give tokens that need none (X.detach()), or a map of pa.maps."
            )
        numbers = tokens.to("cpu", torch.float64).numpy()
        seen = applied(self.function, numbers.reshape(-1, numbers.shape[-1]), self.name)
        return torch.tensor(seen, dtype=tokens.dtype, device=tokens.device).reshape(
            *tokens.shape[:-1], -1
        )


def _polynomial(given: ready_maps.Polynomial, n_dims: int) -> nn.Module:
    steps = ready_maps.monomials(n_dims, given.degree, given.include_lower)

    def function(tokens: Tensor, *places: Tensor) -> Tensor:
        found = [torch.ones_like(tokens[..., :1])]
        for before, factor in zip(places[::2], places[1::2], strict=True):
            found.append(found[-1][..., before] * tokens[..., factor])
        return torch.cat(found, dim=-1) if given.include_lower else found[-1]

    return _Numbers(function, *(places for step in steps for places in step))


def _elu1(_: ready_maps.Elu1, __: int) -> nn.Module:
    def function(tokens: Tensor) -> Tensor:
        # torch's elu(x) + 1 has lost the digits of exp(x) where that is small.
        return torch.where(tokens > 0.0, tokens + 1.0, torch.exp(tokens.clamp(max=0.0)))

    return _Numbers(function)


def _random_fourier(given: ready_maps.RandomFourier, n_dims: int) -> nn.Module:
    waves = ready_maps.waves(n_dims, given.n_features, given.random_state)
    size = (2.0 / given.n_features) ** 0.5
    return _Numbers(
        lambda tokens, frequencies, phases: (
            size * torch.cos(tokens @ frequencies / given.scale + phases)
        ),
        *waves,
    )


def _hedgehog(given: ready_maps.Hedgehog, n_dims: int) -> nn.Module:
    def function(tokens: Tensor, weights: Tensor) -> Tensor:
        logits = tokens @ weights
        return torch.softmax(torch.cat([logits, -logits], dim=-1), dim=-1)

    return _Numbers(function, np.eye(n_dims) if given.weights is None else given.weights)


def _normalised(_: ready_maps.Normalised, __: int) -> nn.Module:
    def function(tokens: Tensor) -> Tensor:
        # The largest coordinate first: squares of the numbers as they are could overflow.
        largest = tokens.detach().abs().amax(dim=-1, keepdim=True)
        scaled = tokens / torch.where(largest == 0.0, torch.ones_like(largest), largest)
        norms = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        return scaled / torch.where(norms == 0.0, torch.ones_like(norms), norms)

    return _Numbers(function)


READY: dict[type, Callable[..., nn.Module]] = {
    ready_maps.Polynomial: _polynomial,
    ready_maps.Elu1: _elu1,
    ready_maps.RandomFourier: _random_fourier,
    ready_maps.Hedgehog: _hedgehog,
    ready_maps.Normalised: _normalised,
}
