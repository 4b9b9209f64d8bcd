"""The layer of least norm that is right on every training row, from independent rows alone.

    minimise ||T||  such that  T . phi_i = y_i for all i

For consistent labels the independent rows say everything: T = sum_i alpha_i phi_i over them,
with K alpha = y [yau2024: Algorithm 1, in its dual form].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from polyattn.programs.learning.untied.features import Features
from polyattn.programs.learning.untied.groups import Group
from polyattn.programs.learning.untied.layer import ActiveLayer, combine

# Rounds of refinement: each gains the digits that the factorisation has.
REFINEMENTS = 2

# Labels are consistent if the layer of the independent rows misses no other by more than this.
CONSISTENT = 1e-6


def interpolate(features: Features, groups: Sequence[Group]) -> ActiveLayer:
    """The layer of least norm that fits the independent rows of all groups.

    Guarantee: where the labels are consistent, the minimum of ||T|| among all layers that are
    right on every training row, up to rounding.
    Cost: 2 r^2 e flops for each group, and products with the chosen rows.
    """
    active = features.active
    shape = features.queries.shape[1], features.targets.shape[1], len(active)
    matrices = np.zeros(shape)
    for group in groups:
        rows = features.take(group.chosen)
        scale = row_norms(rows)[:, None]
        part = np.zeros(shape)
        for _ in range(1 + REFINEMENTS):
            missing = rows.targets - ActiveLayer(active, part).outputs(rows.pairs, rows.queries)
            alpha = cho_solve((group.triangle, True), missing / scale, check_finite=False)
            part += combine(active, group.pairs, group.queries, alpha)
        matrices += part
    return ActiveLayer(active, matrices)


def largest_miss(features: Features, layer: ActiveLayer) -> float:
    """The largest |y - T . phi| over all rows, relative to labels of size one or more."""
    missed = np.abs(features.targets - layer.outputs(features.pairs, features.queries))
    return float(missed.max(initial=0.0)) / max(1.0, float(np.abs(features.targets).max(initial=0)))


def row_norms(rows: Features) -> NDArray[np.float64]:
    """The norms (N,) of the features of rows; one for a row without features."""
    of_pairs = (rows.pairs**2) @ rows.active.multiplicity
    norms = np.sqrt(of_pairs * np.sum(rows.queries**2, axis=1))
    return np.where(norms > 0, norms, 1.0)
