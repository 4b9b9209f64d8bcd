"""The linear terms of a layer, skip and intercept, beside its heads.

They are free whatever the heads are.  With moments M over the features F of heads and G of linear
terms, heads that differ from the optimum by D_F have their best linear terms at
D_G = -M_GG^+ M_GF D_F, and the squared errors exceed the optimum by

    D_F^T (M_FF - M_FG M_GG^+ M_GF) D_F,

so heads are looked for in this Schur complement and linear terms follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Directions of the linear terms (at equal sizes) below this part of the largest are never taken.
UNSEEN = 1e-12


@dataclass(frozen=True)
class Elimination:
    """Moments of the heads' features after the linear terms have taken what they can.

    moments : the Schur complement (n_F, n_F)
    response : M_FG M_GG^+ (n_F, n_G), so that D_G = -response^T D_F
    """

    moments: NDArray[np.float64]
    response: NDArray[np.float64]

    @classmethod
    def of(cls, gram: NDArray, n_heads_features: int) -> Elimination:
        """From moments (p, p) whose last features are the linear terms, if there are any."""
        at = n_heads_features
        if at == len(gram):
            return cls(gram, np.zeros((at, 0)))
        # Features at equal sizes, which costs no accuracy whatever their units.
        size = np.sqrt(np.maximum(np.diag(gram)[at:], 0.0))
        inverse_size = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        equal = gram[at:, at:] * inverse_size * inverse_size[:, None]
        eigenvalues, vectors = np.linalg.eigh(equal)
        seen = eigenvalues > UNSEEN * max(eigenvalues[-1], 1.0)
        half = inverse_size[:, None] * vectors[:, seen] / np.sqrt(eigenvalues[seen])
        taken = gram[:at, at:] @ half
        return cls(gram[:at, :at] - taken @ taken.T, taken @ half.T)

    def shifts(self, difference: NDArray) -> NDArray[np.float64]:
        """D_G (e, n_G) for the difference D_F (e, n_F) of the heads from the optimum."""
        return np.asarray(-difference.reshape(len(difference), -1) @ self.response)
