"""The baseline of the paper's figure 4: a decoder trained on strings of symbols.

Next-token prediction with cross-entropy on the end of each string alone, AdamW, at most 100 epochs
[yau2024: Appendices G.2, G.4].
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polyattn_papers.baselines.decoder import Decoder, DecoderSizes
from polyattn_papers.baselines.train import Limit, epochs, train

# Strings that are judged together.
JUDGED_TOGETHER = 100


@dataclass(frozen=True)
class ReadTokens:
    """What of a string is predicted: its ``n_read`` last symbols, of ``n_symbols`` that there are.

    ``hard`` : places among those read, counted from 0, whose share is also looked at by itself
    """

    n_symbols: int
    n_read: int
    hard: tuple[int, ...]


@dataclass(frozen=True)
class DecoderSettings:
    """Sizes and training; ``n_epochs`` and ``n_steps`` bound the work, so a run repeats itself.

    Training ends sooner once ``enough`` of all judged tokens and of the hard ones among them were
    right at some look, or when neither share has grown for ``patience`` looks, one every ``look``
    steps.
    """

    sizes: DecoderSizes
    n_epochs: int
    n_steps: int
    batch_size: int
    learning_rate: float
    warm_up: int
    look: int
    patience: int
    enough: float
    seed: int = 0


@dataclass(frozen=True)
class DecoderRun:
    """The best shares of judged tokens that were right at any look, each by itself.

    ``accuracy``: of all tokens that are read; ``hard_accuracy``: of the hard ones alone.
    ``gave_up``: whether it ended for want of progress, before steps or epochs were used.
    """

    accuracy: float
    hard_accuracy: float
    n_steps: int
    n_parameters: int
    gave_up: bool


def train_decoder(
    strings: NDArray[np.int64],
    judged: NDArray[np.int64],
    read: ReadTokens,
    settings: DecoderSettings,
) -> DecoderRun:
    """Train on strings (N, n_tokens), look at others: the shares of next tokens that are right.

    Every token is predicted from the right ones before it.  Taking the best of all looks favours
    the baseline: nobody who trains one could choose by what it is judged on.
    """
    data, test = torch.tensor(strings), torch.tensor(judged)
    model = Decoder(read.n_symbols, settings.sizes, settings.seed)
    shares, stale = np.full(2, -1.0), 0

    def loss(batch: Tensor) -> Tensor:
        some = data[batch]
        logits = model(some[:, :-1], read.n_read)
        return functional.cross_entropy(logits.flatten(0, 1), some[:, -read.n_read :].flatten())

    def look(_: int, __: float) -> bool:
        nonlocal shares, stale
        seen = shares_right(model, test, read)
        stale = 0 if (seen > shares).any() else stale + 1
        shares = np.maximum(shares, seen)
        return bool(shares.min() < settings.enough and stale < settings.patience)

    n_steps = min(settings.n_steps, settings.n_epochs * -(-len(data) // settings.batch_size))
    run = train(
        loss,
        torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, fused=True),
        epochs(len(data), settings.batch_size, torch.Generator().manual_seed(settings.seed)),
        Limit(n_steps=n_steps),
        lambda step, _: min(1.0, (step + 1) / settings.warm_up),
        max_norm=1.0,
        looks=count(settings.look, settings.look),
        look=look,
    )
    return DecoderRun(
        float(shares[0]),
        float(shares[1]),
        run.n_steps,
        sum(parameter.numel() for parameter in model.parameters()),
        bool(shares.min() < settings.enough and stale >= settings.patience),
    )


@torch.no_grad()
def shares_right(model: Decoder, strings: Tensor, read: ReadTokens) -> NDArray[np.float64]:
    """The shares of tokens that are predicted right: of all that are read, and of the hard ones."""
    right = []
    for some in strings.split(JUDGED_TOGETHER):
        said = model(some[:, :-1], read.n_read).argmax(-1)
        right.append(said == some[:, -read.n_read :])
    found = torch.cat(right).double()
    return np.array([float(found.mean()), float(found[:, list(read.hard)].mean())])
