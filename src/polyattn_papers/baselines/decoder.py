"""A decoder in the style of Llama: root-mean-square norms, rotary positions, gated perceptrons.

The parts are those of Touvron et al. (2023), which the paper trains [yau2024: Appendix G.2]: no
biases, norms in front of each part and before the reading, positions by rotation of queries and
keys alone, and a perceptron whose units are multiplied by a gate.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyattn.errors import InvalidInput, require_integer

# The slowest rotation turns by one radian in so many tokens.
ROTARY_BASE = 10_000.0

# Gated perceptrons have three matrices: with two thirds of 4 units per unit of width they have as
# many parameters as those with two.
EXPANSION = 8 / 3

# Numbers of hidden units are multiples of this.
MULTIPLE = 8

# Norms divide by the square root of the mean square and this.
EPSILON = 1e-5

# Standard deviation of the weights of the reading at the start, so that all symbols begin as
# nearly equally likely.
READING = 0.02


@dataclass(frozen=True)
class DecoderSizes:
    """Layers, heads, and the width, of which each head takes an even share."""

    n_layers: int
    n_heads: int
    width: int

    def __post_init__(self) -> None:
        for name in ("n_layers", "n_heads", "width"):
            require_integer(name, getattr(self, name))
        if self.width % (2 * self.n_heads):
            raise InvalidInput(
                f"width must be a multiple of 2 n_heads = {2 * self.n_heads}, so that rotations "
                f"find pairs in each head; got {self.width}."
            )


class Decoder(nn.Module):
    """Token ids (B, n) -> logits (B, n_read, n_symbols) of the successors of the last tokens.

    Guarantee: the logits at a token depend on it and those before it alone, and by positions only
    through differences of them.
    Cost: O(n_layers (n width² + n² width)) a string.
    """

    def __init__(self, n_symbols: int, sizes: DecoderSizes, seed: int) -> None:
        super().__init__()
        require_integer("n_symbols", n_symbols)
        self.head_width = sizes.width // sizes.n_heads
        # torch's layers draw from the global generator, which is left as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(n_symbols, sizes.width)
            self.blocks = nn.ModuleList(DecoderBlock(sizes) for _ in range(sizes.n_layers))
            self.norm = nn.RMSNorm(sizes.width, eps=EPSILON)
            self.reading = nn.Linear(sizes.width, n_symbols, bias=False)
            self._start()

    def _start(self) -> None:
        """Weights that keep the size of what comes in; at 0.02 narrow decoders learn slowly."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)
        nn.init.normal_(self.embedding.weight)
        nn.init.normal_(self.reading.weight, std=READING)

    def forward(self, ids: Tensor, n_read: int) -> Tensor:
        rotation = rotations(ids.shape[1], self.head_width)
        hidden = self.embedding(ids)
        for block in self.blocks[:-1]:
            hidden = block(hidden, rotation)
        # What is not read needs no queries of the last block.
        hidden = self.blocks[-1](hidden, rotation, n_read)
        return self.reading(self.norm(hidden))


class DecoderBlock(nn.Module):
    """Causal attention, then a gated perceptron, each added to what came in."""

    def __init__(self, sizes: DecoderSizes) -> None:
        super().__init__()
        width = sizes.width
        self.n_heads, self.head_width = sizes.n_heads, width // sizes.n_heads
        hidden = -(-round(EXPANSION * width) // MULTIPLE) * MULTIPLE
        self.attention_norm = nn.RMSNorm(width, eps=EPSILON)
        self.perceptron_norm = nn.RMSNorm(width, eps=EPSILON)
        self.queries = nn.Linear(width, width, bias=False)
        self.keys_values = nn.Linear(width, 2 * width, bias=False)
        self.outward = nn.Linear(width, width, bias=False)
        self.gate_units = nn.Linear(width, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, hidden: Tensor, rotation: Tensor, n_read: int | None = None) -> Tensor:
        """(B, n, width) -> (B, n, width), or the ``n_read`` last tokens of it."""
        first = 0 if n_read is None else hidden.shape[1] - n_read
        normed = self.attention_norm(hidden)
        hidden = hidden[:, first:] + self._attention(normed, rotation, first)
        gate, units = self.gate_units(self.perceptron_norm(hidden)).chunk(2, dim=-1)
        return hidden + self.down(functional.silu(gate) * units)

    def _attention(self, hidden: Tensor, rotation: Tensor, first: int) -> Tensor:
        queries = rotated(self._heads(self.queries(hidden[:, first:])), rotation[:, first:])
        keys, values = self.keys_values(hidden).chunk(2, dim=-1)
        keys, values = rotated(self._heads(keys), rotation), self._heads(values)
        n = hidden.shape[1]
        mask = torch.ones(n, n, dtype=torch.bool).tril()[first:] if first else None
        mixed = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=mask, is_causal=mask is None
        )
        return self.outward(mixed.transpose(1, 2).flatten(2))

    def _heads(self, flat: Tensor) -> Tensor:
        """(B, n, width) -> (B, heads, n, head width)."""
        return flat.unflatten(2, (self.n_heads, self.head_width)).transpose(1, 2)


def rotations(n_tokens: int, head_width: int) -> Tensor:
    """Cosines and sines (2, n, head width / 2) of position times frequency."""
    frequencies = ROTARY_BASE ** -(torch.arange(0, head_width, 2) / head_width)
    angles = torch.arange(n_tokens)[:, None] * frequencies
    return torch.stack((angles.cos(), angles.sin()))


def rotated(vectors: Tensor, rotation: Tensor) -> Tensor:
    """Vectors (..., n, head width) with each pair of coordinates turned by its angle."""
    first, second = vectors.chunk(2, dim=-1)
    cosine, sine = rotation.to(vectors.dtype)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
