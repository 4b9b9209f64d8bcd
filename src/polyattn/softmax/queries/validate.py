"""The held-out check: fresh random sequences of several lengths."""

from __future__ import annotations

from math import inf

import numpy as np

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.findings import HeadsAt, HeldOutCheck
from polyattn.softmax.queries.pairs import Pairs

LENGTHS, N_PER_LENGTH = (2, 3, 5, 9), 9

# Spreads of the tokens, in calibrated sizes; each is judged by itself.
SPREADS = (0.7, 2.0, 4.0)

# Deviations that pass: this, and this multiple of the noise, but no more than the third, and
# no more than so many times what noise and doubt explain: more is a function of the inputs, as
# heads leave over that are nearly alike and were taken for one.
PRECISION, NOISE_FACTOR, LARGEST_TOLERANCE, EXPLAINED = 1e-7, 1000, 1e-3, 10


def validate(pairs: Pairs, layer: SoftmaxAttention, heads: list[HeadsAt]) -> HeldOutCheck:
    """Compare the layer, of mode last, with the oracle on random sequences of each of LENGTHS.

    Tokens are a random query token and others around it, of three spreads: what only shows on
    large inputs is noticed, and large outputs do not cover what small ones show.  Deviations are
    relative to the rms of F - x' S - b, which a layer without attention does not explain.
    Cost: N_PER_LENGTH queries for every length.
    """
    n_dims, rng = pairs.n_dims, pairs.rng
    spread = np.resize(SPREADS, N_PER_LENGTH)[:, None, None] / np.sqrt(n_dims)
    compared = []
    for length in LENGTHS:
        points = rng.standard_normal((N_PER_LENGTH, 1, n_dims)) * pairs.point_size * spread
        moves = rng.standard_normal((N_PER_LENGTH, length - 1, n_dims)) * pairs.delta_size * spread
        X = np.concatenate([points + moves, points], axis=1)
        observed = pairs.oracle(X)
        effects = observed - points[:, 0] @ pairs.total.value - pairs.total.bias
        compared.append((observed - layer(X), effects, observed))
    whole = [np.concatenate(parts) for parts in zip(*compared, strict=True)]
    validation_error = float(np.linalg.norm(whole[0]) / (np.linalg.norm(whole[2]) or 1.0))
    checks = []
    for at in range(len(SPREADS)):
        # Every third sequence of a length has this spread.
        deviations, effects, outputs = (part[at :: len(SPREADS)] for part in whole)
        # Without any effect, deviations are relative to the outputs.
        size = float(np.sqrt(np.mean(effects**2)) or np.abs(outputs).max()) or 1.0
        by_noise = NOISE_FACTOR * pairs.total.noise * float(np.abs(outputs).max()) / size
        allowed = min(PRECISION + by_noise, LARGEST_TOLERANCE)
        deviation, doubt = float(np.abs(deviations).max()) / size, _doubt(heads)
        if deviation > EXPLAINED * (by_noise + doubt):
            # The residuals at single differences do not show how wrong the heads are.
            allowed, doubt = min(allowed, EXPLAINED * (by_noise + doubt)), inf
        checks.append(HeldOutCheck(heads, deviation, allowed, doubt, validation_error))
    return max(checks, key=lambda check: check.deviation / check.allowed)


def _doubt(heads: list[HeadsAt]) -> float:
    """The doubt about attn and value: differences of heads, divided by |delta_j - delta_0|."""
    if len(heads) < 2:
        return heads[0].doubt if heads else 0.0
    first, others = heads[0], heads[1:]
    near = np.array([np.linalg.norm(at.delta - first.delta) for at in others])
    lever = float(np.linalg.norm(first.delta)) / near
    doubts = np.array([np.hypot(at.doubt, first.doubt) for at in others])
    return float(np.sqrt(np.mean((lever * doubts) ** 2)))
