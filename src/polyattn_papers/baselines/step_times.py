"""step_time: what one step of Adam takes for a single layer, by itself on one core."""

from __future__ import annotations

import time

import numpy as np
import torch

from polyattn.errors import require_choice
from polyattn_papers.baselines.forms import by_features, by_scores, cubic_features
from polyattn_papers.baselines.model_grids import start
from polyattn_papers.baselines.threads import n_threads

#: By the masked scores of the definition, or by cubic features of the tokens that are kept.
SCORES, FEATURES = "scores", "features"

BATCH_SIZE = 32

# Steps whose median time is taken, after one that is not counted.
TIMED_STEPS = 9


@n_threads(1)
def step_time(form: str, n_dims: int, n_tokens: int, n_heads: int) -> float:
    """Seconds of one step of a causal layer with one output, for a batch of 32 sequences."""
    require_choice("form", form, (SCORES, FEATURES))
    X = torch.randn(BATCH_SIZE, n_tokens, n_dims, generator=torch.Generator().manual_seed(0))
    seen = X if form == SCORES else cubic_features(X)
    forward = by_scores if form == SCORES else by_features
    layer = [part.requires_grad_() for part in start(n_dims, 1, n_heads, seed=0)]
    optimiser = torch.optim.AdamW(layer, fused=True)
    times = []
    for _ in range(1 + TIMED_STEPS):
        begin = time.thread_time()
        optimiser.zero_grad()
        forward(seen, *layer).square().mean().backward()
        optimiser.step()
        times.append(time.thread_time() - begin)
    return float(np.median(times[1:]))
