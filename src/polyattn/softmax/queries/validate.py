"""The held-out check: fresh random sequences of several lengths."""

from __future__ import annotations

import numpy as np

from polyattn.model.softmax import SoftmaxAttention
from polyattn.softmax.queries.calibrate import Sizes
from polyattn.softmax.queries.findings import Check, HeadsAt
from polyattn.softmax.queries.pairs import Pairs

LENGTHS = (2, 3, 5, 9)
N_PER_LENGTH = 8

# Spreads of the tokens, in calibrated sizes.
SPREADS = (0.7, 2.0)

# Deviations that pass: this, and this multiple of the noise, but no more than the last.
PRECISION = 1e-7
NOISE_FACTOR = 1000
LARGEST_TOLERANCE = 1e-3


def validate(
    pairs: Pairs,
    layer: SoftmaxAttention,
    heads: list[HeadsAt],
    sizes: Sizes,
    rng: np.random.Generator,
) -> Check:
    """Compare the layer, of mode last, with the oracle on random sequences of each of LENGTHS.

    Tokens are a random query token and others around it, half with logits of order one and half
    with larger ones.  Deviations are relative to the rms of F - x' S - b: the part of the output
    that a layer without attention would also have does not flatter.
    Cost: N_PER_LENGTH queries for every length.
    """
    n_dims = pairs.oracle.n_dims
    spread = np.resize(SPREADS, N_PER_LENGTH)[:, None, None] / np.sqrt(n_dims)
    deviations, effects, outputs = [], [], []
    for length in LENGTHS:
        points = rng.standard_normal((N_PER_LENGTH, 1, n_dims)) * sizes.point * spread
        moves = rng.standard_normal((N_PER_LENGTH, length - 1, n_dims)) * sizes.delta * spread
        X = np.concatenate([points + moves, points], axis=1)
        observed = pairs.oracle(X)
        deviations.append(observed - layer(X))
        effects.append(observed - points[:, 0] @ pairs.sum_value - pairs.sum_bias)
        outputs.append(observed)
    size = float(np.sqrt(np.mean(np.square(effects)))) or 1.0
    largest = float(np.abs(outputs).max())
    error = float(np.abs(deviations).max()) / size
    by_noise = NOISE_FACTOR * pairs.noise * largest / size
    return Check(error, min(PRECISION + by_noise, LARGEST_TOLERANCE), _doubt(heads))


def _doubt(heads: list[HeadsAt]) -> float:
    """What the doubts at single differences mean for attn and value.

    These are differences of heads at delta_j and at delta_0, divided by |delta_j - delta_0|.
    """
    if len(heads) < 2:
        return heads[0].doubt if heads else 0.0
    first, others = heads[0], heads[1:]
    near = np.array([np.linalg.norm(at.delta - first.delta) for at in others])
    lever = float(np.linalg.norm(first.delta)) / near
    doubts = np.array([np.hypot(at.doubt, first.doubt) for at in others])
    return float(np.sqrt(np.mean((lever * doubts) ** 2)))
