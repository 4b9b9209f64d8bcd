"""Whether the columns A_i delta that are known already span the column spaces of the A_i."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from polyattn.softmax.queries.findings import HeadsAt
from polyattn.softmax.queries.pairs import Pairs

# A rank is believed when this many more differences brought nothing new.
N_CONFIRMATIONS = 4


def column_spaces(heads: list[HeadsAt], pairs: Pairs) -> NDArray[np.float64] | None:
    """Orthonormal bases (H, D, r) of the column spaces, or None while they may still grow.

    r is the largest rank of a head; heads of smaller rank get some directions they do not need.
    Singular values count as zero below 1e-11 of the largest, or what noise explains.
    """
    n_seen = len(heads)
    if n_seen <= N_CONFIRMATIONS:
        return None
    columns = np.stack([at.columns for at in heads], axis=2)
    relative = columns[:, :, 1:] - columns[:, :, :1]
    bases, spectra, _ = np.linalg.svd(relative, full_matrices=False)
    floor = max(1e-11, 3e3 * pairs.noise) * spectra[:, :1]
    rank = int(np.sum(spectra > floor, axis=1).max())
    if rank > n_seen - 1 - N_CONFIRMATIONS:
        return None
    return bases[:, :, : max(rank, 1)]
