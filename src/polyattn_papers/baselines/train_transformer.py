"""The baseline for traces: a small causal Transformer that predicts the next token.

Softmax attention, layers with norms in front, learned positions, AdamW with warm-up and cosine
decay.  It sees the very tokens that the layer sees, and is trained on those that follow a prompt
alone.  A token is predicted attribute by attribute: one of its values, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from polyattn.errors import InvalidInput
from polyattn.programs import Schema, Trace
from polyattn.programs.language.attributes import ONE_HOT
from polyattn_papers.baselines.train import Limit, cosine, epochs, train
from polyattn_papers.baselines.transformer import TransformerBlock

# Traces that are judged together.
JUDGED_TOGETHER = 256


@dataclass(frozen=True)
class TransformerSettings:
    """Sizes and training; ``n_steps`` bounds the work, so a run repeats itself bit by bit.

    Training ends sooner once ``enough`` of the judged tokens are right, or when the share has
    not grown for ``patience`` looks, one every ``look`` steps.
    """

    n_layers: int
    width: int
    n_heads: int
    n_steps: int
    batch_size: int
    learning_rate: float
    warm_up: int
    look: int
    patience: int
    enough: float
    seed: int = 0


@dataclass(frozen=True)
class TransformerRun:
    """The best share of judged tokens that were right at any look, and how long it took."""

    accuracy: float
    n_steps: int
    n_parameters: int


def train_transformer(
    traces: Sequence[Trace], judged: Sequence[Trace], settings: TransformerSettings
) -> TransformerRun:
    """Train on traces, look at others: the share of their next tokens that are right.

    All traces have the same number of tokens.  Taking the best of all looks favours the baseline:
    nobody who trains one could choose by what it is judged on.
    """
    data, test = _Tokens.of(traces), _Tokens.of(judged)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = TraceTransformer(data.tokens.shape[1], data.tokens.shape[2], data.sizes, settings)
    best, stale = 0.0, 0

    def look(_: int, __: float) -> bool:
        nonlocal best, stale
        share = _share_right(model, test)
        stale = 0 if share > best else stale + 1
        best = max(best, share)
        return best < settings.enough and stale < settings.patience

    run = train(
        lambda batch: _loss(model(data.tokens[batch]), data.classes[batch]),
        torch.optim.AdamW(model.parameters(), lr=settings.learning_rate),
        epochs(len(traces), settings.batch_size, torch.Generator().manual_seed(settings.seed)),
        Limit(n_steps=settings.n_steps),
        lambda step, share: min(1.0, (step + 1) / settings.warm_up) * cosine(step, share),
        max_norm=1.0,
        looks=count(settings.look, settings.look),
        look=look,
    )
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return TransformerRun(best, run.n_steps, n_parameters)


class TraceTransformer(nn.Module):
    """Tokens (B, n, d) to logits of the m last tokens' successors, for each attribute.

    sizes : how many values each attribute has; "none" is one more class
    """

    def __init__(
        self, n_tokens: int, n_dims: int, sizes: Sequence[int], settings: TransformerSettings
    ) -> None:
        super().__init__()
        width = settings.width
        self.sizes = [size + 1 for size in sizes]
        self.embed = nn.Linear(n_dims, width)
        self.place = nn.Parameter(0.02 * torch.randn(n_tokens, width))
        self.blocks = nn.ModuleList(
            TransformerBlock(width, settings.n_heads) for _ in range(settings.n_layers)
        )
        self.norm = nn.LayerNorm(width)
        self.read = nn.Linear(width, sum(self.sizes))

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Logits (B, n, size + 1) of each attribute."""
        hidden = self.embed(tokens) + self.place
        for block in self.blocks:
            hidden = block(hidden)
        return self.read(self.norm(hidden)).split(self.sizes, dim=-1)


@dataclass(frozen=True)
class _Tokens:
    """Traces as tensors: tokens (N, n, d) before each prediction, classes (N, m, attributes)."""

    tokens: Tensor
    classes: Tensor
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> _Tokens:
        lengths = {(len(trace.prompt), len(trace.completion)) for trace in traces}
        if len(lengths) != 1:
            raise InvalidInput(
                "traces must have as many tokens each, in prompt and completion; got "
                f"{sorted(lengths)}. Draw them with lengths=(L, L)."
            )
        tokens = np.stack([trace.tokens[:-1] for trace in traces])
        followed = np.stack([trace.completion for trace in traces])
        schema = traces[0].schema
        return cls(
            torch.tensor(tokens, dtype=torch.float32),
            torch.tensor(_classes(schema, followed)),
            tuple(len(attribute.values) for attribute in schema.attributes),
        )


def _classes(schema: Schema, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The value that a token (..., d) holds of each attribute (..., attributes); last is none."""
    held = []
    for attribute in schema.attributes:
        if attribute.rounding != ONE_HOT:
            raise InvalidInput(
                f"attribute {attribute.name} must be one-hot, so that it is one class; it is "
                f"{attribute.rounding}."
            )
        block = tokens[..., schema.blocks[attribute.name]]
        held.append(np.where(block.any(axis=-1), block.argmax(axis=-1), block.shape[-1]))
    return np.stack(held, axis=-1)


def _loss(logits: tuple[Tensor, ...], classes: Tensor) -> Tensor:
    """Cross-entropy of the tokens that follow the prompt, summed over attributes."""
    n_followed = classes.shape[1]
    losses = [
        functional.cross_entropy(each[:, -n_followed:].flatten(0, 1), classes[..., at].flatten())
        for at, each in enumerate(logits)
    ]
    return torch.stack(losses).sum()


@torch.no_grad()
def _share_right(model: TraceTransformer, test: _Tokens) -> float:
    """The share of next tokens of which every attribute is right."""
    n_followed = test.classes.shape[1]
    right = []
    for first in range(0, len(test.tokens), JUDGED_TOGETHER):
        some = slice(first, first + JUDGED_TOGETHER)
        said = [each[:, -n_followed:].argmax(-1) for each in model(test.tokens[some])]
        right.append((torch.stack(said, dim=-1) == test.classes[some]).all(-1))
    return float(torch.cat(right).double().mean())
