"""Separation in part: a direction that separates some rows and leaves the outputs of others alone.

Log-loss then has no minimiser: along that direction the loss of some rows falls for ever, and that
of the others does not change.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polyattn.solve.curvature_model import SearchSpace
from polyattn.solve.direct import economic_qr
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LogLoss

Array = NDArray[np.float64]

# Leads and changes of outputs beside the sizes of row and direction: what is above the first is
# there, and what is below the second is rounding.  Between them nothing is decided.
SEEN, ROUNDING = 1e-7, 1e-11


@dataclass(frozen=True)
class Separation:
    """How many rows of positive weight are separated, of how many that have features."""

    n_separated: int
    n_rows: int


def separated_in_part(
    passes: FeaturePasses, loss: LogLoss, theta: Array, space: SearchSpace
) -> Separation | None:
    """The rows that the part of theta outside ``space`` separates, if it moves no others.

    space : the span of the features of rows whose loss has a minimum
    """
    if space.basis is None:
        return None
    counted = passes.has_features() & (loss.weights > 0.0)
    scaled = space.scale[:, None] * theta
    span = economic_qr(space.scale[:, None] * space.basis)[0]
    for _ in range(2):
        scaled = scaled - span @ (span.T @ scaled)
    outputs = passes.outputs(scaled / space.scale[:, None])
    sizes = (passes.norms(space.scale) * float(np.linalg.norm(scaled)))[counted]
    if not np.all(sizes > 0.0):
        return None
    leads = loss.at(outputs).margins[counted] / sizes
    moved = np.abs(outputs - outputs[:1]).max(axis=0) if len(outputs) > 1 else np.abs(outputs[0])
    moved = moved[counted] / sizes
    separated = leads > SEEN
    if not np.any(separated) or np.any(moved[~separated] > ROUNDING):
        return None
    return Separation(int(np.count_nonzero(separated)), len(leads))
