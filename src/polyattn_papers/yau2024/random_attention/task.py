"""The data of the paper's figures 1 and 3: one random head with one output, Gaussian tokens.

The paper samples V (1, d) and Q (d, d) from N(0, I/√d), tokens from N(0, I/√T)
[yau2024: section 4.1].  Either these are covariances, and entries have the variances 1/√d and
1/√T, or they are standard deviations, as the random generators of most libraries take them, and
entries have the variances 1/d and 1/T.  We take the second reading: the Gram of a whole sequence is
then the identity in the mean, whatever T and d.  The first one multiplies targets by
√d T^(3/4) and features by T^(3/4): for the closed form that is a change of units, and for Adam,
whose steps do not feel the size of the loss but through its ε = 1e-8, nearly so.
"""

from __future__ import annotations

import numpy as np

from polyattn.data import random_sequences
from polyattn.model import LinearAttention
from polyattn_papers.tasks.recovery import RecoveryTask


def paper_task(
    n_dims: int, n_sequences: int, n_tokens: int, seed: int, n_validation: int
) -> RecoveryTask:
    """Sequences of one planted layer, y_t = V Z_{1:t} (Z_{1:t}^T Q z_t), and fresh ones beside."""
    rng = np.random.default_rng(seed)
    V, Q = (rng.standard_normal((rows, n_dims)) / np.sqrt(n_dims) for rows in (1, n_dims))
    # Scores are x_t^T A x_s here, and z_s^T Q z_t there.
    layer = LinearAttention(Q.T[None], V.T[None], mode="causal")
    X = np.asarray(random_sequences(n_sequences + n_validation, n_tokens, n_dims, random_state=rng))
    Y, first = layer(X), n_sequences
    return RecoveryTask(X[:first], Y[:first], X[first:], Y[first:], layer)
