"""A full Transformer: softmax attention, perceptrons, layer norms, residual connections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from polyattn.errors import InvalidInput, require_integer

# Hidden units of a perceptron per unit of width, as in the Transformer everybody knows.
EXPANSION = 4


class Transformer(nn.Module):
    """Causal, with learned positions and norms before each part; tokens (B, n, d) -> (B, n, e).

    Positions matter to the task: a softmax head takes means, and the target is a sum whose
    number of terms grows with the position.  ``token_unit`` and ``target_unit`` are the sizes of
    the data (root mean squares): the network sees and gives numbers of order one, and starts
    from the output 0.
    """

    def __init__(
        self,
        n_dims: int,
        n_outputs: int,
        n_tokens: int,
        n_heads: int,
        n_layers: int,
        width: int,
        seed: int,
        token_unit: float = 1.0,
        target_unit: float = 1.0,
    ):
        super().__init__()
        if require_integer("width", width) % require_integer("n_heads", n_heads):
            raise InvalidInput(f"width must be a multiple of n_heads = {n_heads}; got {width}.")
        self.token_unit, self.target_unit = token_unit, target_unit
        # torch's layers draw from the global generator, which is left as it was.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Linear(n_dims, width)
            self.positions = nn.Parameter(torch.randn(n_tokens, width) / width**0.5)
            blocks = (
                TransformerBlock(width, n_heads)
                for _ in range(require_integer("n_layers", n_layers))
            )
            self.blocks = nn.Sequential(*blocks)
            self.norm, self.reading = nn.LayerNorm(width), nn.Linear(width, n_outputs)
            nn.init.zeros_(self.reading.weight)
            nn.init.zeros_(self.reading.bias)

    def prepare(self, X: Tensor) -> tuple[Tensor, ...]:
        """The sequences themselves."""
        return (X,)

    def forward(self, X: Tensor) -> Tensor:
        embedded = self.embedding(X / self.token_unit) + self.positions[: X.shape[1]]
        return self.reading(self.norm(self.blocks(embedded))) * self.target_unit


class TransformerBlock(nn.Module):
    """Causal attention, then a perceptron, each added to what came in; (B, n, width) both ways."""

    def __init__(self, width: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.attention_norm, self.perceptron_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inward, self.outward = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, EXPANSION * width), nn.GELU(), nn.Linear(EXPANSION * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self._attention(self.attention_norm(hidden))
        return hidden + self.perceptron(self.perceptron_norm(hidden))

    def _attention(self, hidden: Tensor) -> Tensor:
        split = self.inward(hidden).unflatten(2, (3, self.n_heads, -1))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.outward(mixed.transpose(1, 2).flatten(2))
