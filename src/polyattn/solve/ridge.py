"""The ridge: a number, or a rule by which the data choose it from a grid.

The default grid is ``DEFAULT_GRID`` in ``solve/decomposition.py``.  Errors of prediction are
computed for the whole grid at once.  What is left out is a whole sequence: the positions of one
sequence share their tokens, so leaving out single positions would leak.
"""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import InvalidInput, InvalidType, OutOfRange
from polyattn.numerics.arrays import real_array, require_finite
from polyattn.numerics.scaling import as_risk, restored
from polyattn.solve import decomposition
from polyattn.solve.distinct_inputs import with_distinct_inputs
from polyattn.solve.leave_one_out import errors_of_few, errors_of_many
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows

RULES = ("loo", "gcv")


@dataclass(frozen=True)
class RidgePath:
    """The estimated error of prediction (mean squared norm) for each ridge of a grid."""

    ridges: NDArray[np.float64]
    errors: NDArray[np.float64]
    kind: str

    @property
    def best(self) -> float:
        """The ridge of least error; the largest such, when several tie."""
        return float(self.ridges[np.flatnonzero(self.errors == self.errors.min())[-1]])


def require_ridge(ridge: object, grid: ArrayLike | None) -> float | str:
    """A ridge >= 0 or one of the rules; a grid, checked, only makes sense with a rule."""
    if isinstance(ridge, str) and ridge in RULES:
        if grid is not None:
            _checked_grid(grid)
        return ridge
    rules = ", ".join(repr(rule) for rule in RULES)
    if isinstance(ridge, bool) or not isinstance(ridge, numbers.Real):
        raise InvalidType(
            f"ridge must be a number >= 0 or one of {rules}; got {ridge!r}. Numbers to choose from "
            "are given as ridge_grid, with ridge='loo'."
        )
    try:
        value = float(ridge)
    except OverflowError:
        value = np.inf
    if not (0.0 <= value < np.inf):
        raise InvalidInput(f"ridge must be finite and not negative; got {value:g}.")
    if grid is not None:
        raise InvalidInput(f"ridge_grid is used only with ridge set to one of {rules}.")
    return value


def chosen_ridge(
    ridge: float | str, grid: ArrayLike | None, source: Rows | Moments | TriangularFactor
) -> tuple[float, RidgePath | None]:
    """The ridge for scaled tokens; when a rule chose it, also the errors over the true grid."""
    token = source.token_exponent or 0
    if not isinstance(ridge, str):
        return _scaled_ridge(np.array(ridge), token).item(), None
    ridges = scaled_grid(grid, source)
    if ridge == "gcv":
        if isinstance(source, TriangularFactor):
            raise InvalidInput("ridge='gcv' needs data or Moments, not a TriangularFactor.")
        path = generalised(source, ridges)
    elif isinstance(source, Rows):
        path = leave_one_out(source, ridges)
    else:
        raise InvalidInput(
            "ridge='loo' needs the sequences themselves, which statistics do not keep; "
            "give X and Y, or use ridge='gcv' with Moments."
        )
    # Every ridge with its error: none may be lost, or another would be the best.
    true_ridges = restored(path.ridges[:, None], 6 * token, "the ridges", np.ones(1))[:, 0]
    target = source.target_exponent or 0
    errors = [as_risk(float(error), target, negligible=0.0) for error in path.errors]
    return path.best, RidgePath(true_ridges, np.array(errors), path.kind)


def scaled_grid(
    grid: ArrayLike | None, source: Rows | Moments | TriangularFactor
) -> NDArray[np.float64] | None:
    """The ridges to choose from for scaled tokens; None: the default grid."""
    token = source.token_exponent or 0
    ridges = None if grid is None else _scaled_ridge(_checked_grid(grid), token)
    if ridges is not None and not np.all(ridges > 0):
        raise OutOfRange(
            f"a ridge of ridge_grid vanishes beside tokens of size about 2**{token}; choose "
            "larger ones, or rescale X so that it is of order one."
        )
    return ridges


def leave_one_out(rows: Rows, ridges: NDArray | None = None) -> RidgePath:
    """The exact error for each ridge of leaving out each sequence, together with all its copies.

    Equals ``RidgeCV`` in mode ``last`` (without intercept, on the features, those with j < k
    times sqrt 2).
    Cost: one decomposition of size min(rows, p) and, per ridge, one pass of products.
    """
    merged, within = with_distinct_inputs(rows)
    path = left_out_once(merged, ridges, "ridge")
    return replace(path, errors=path.errors + within.sum() / rows.total_weight)


def left_out_once(rows: Rows, ridges: NDArray | None, chosen: str) -> RidgePath:
    """The same of sequences of which no two of positive weight are equal; what is ``chosen`` so."""
    weights = rows.sequence_weights
    if (len(rows.batch) if weights is None else np.count_nonzero(weights)) < 2:
        raise InvalidInput(
            f"{chosen}='loo' leaves out one sequence at a time, with all its copies: X needs at "
            "least two different ones of positive weight. One long series is cut into several: "
            "see docs/guides/forms.md."
        )
    many = rows.n_rows >= rows.n_features
    grid, errors = (errors_of_many if many else errors_of_few)(rows, ridges)
    return RidgePath(grid, errors / rows.total_weight, "loo")


def generalised(source: Rows | Moments, ridges: NDArray | None = None) -> RidgePath:
    """Generalised cross-validation [Golub, Heath, Wahba 1979]; moments suffice.

        (sum ||r||^2 / W) / (1 - tr H / N)^2,    r = (I - H) y,

    written without the differences that cancel when few rows are met exactly: with u_k the
    components of y along the left singular vectors, r has components u_k ridge/(s_k + ridge),
    and N - tr H = (N - number of s_k > 0) + sum ridge/(s_k + ridge).
    """
    if isinstance(source, Moments):
        found = decomposition.of_moments(source, ridges)
    elif source.n_positive >= source.n_features:
        found = decomposition.of_features(source, ridges)
    else:
        found = decomposition.of_samples(source, ridges)
    n, grid = source.n_positive, found.grid
    left = grid / (found.values[:, None] + grid)  # (values, grid)
    nonzero = found.values > 0  # the others are counted, so that no sum rounds
    freedom = (n - np.count_nonzero(nonzero) + left[nonzero].sum(axis=0)) / n
    residual = found.outside + np.sum(found.components**2, axis=1) @ left**2
    return RidgePath(grid, residual / freedom**2 / source.total_weight, "gcv")


def _scaled_ridge(ridge: NDArray, token_exponent: int) -> NDArray[np.float64]:
    with np.errstate(over="ignore", under="ignore"):
        result = np.ldexp(ridge, -6 * token_exponent)
    if not np.all(np.isfinite(result)):
        raise OutOfRange(
            f"ridge = {np.max(ridge):g} is beyond float64 beside tokens of size about "
            f"2**{token_exponent}; rescale X so that it is of order one."
        )
    return result


def _checked_grid(grid: ArrayLike) -> NDArray[np.float64]:
    ridges = np.unique(real_array(grid, "ridge_grid").astype(np.float64))
    require_finite(ridges, "ridge_grid")
    if ridges.size == 0:
        raise InvalidInput("ridge_grid must hold at least one positive number; it is empty.")
    if ridges[0] <= 0:
        raise InvalidInput(
            f"ridge_grid must hold positive numbers; got {ridges[0]:g}. Without a penalty what is "
            "left out has no one prediction where the features of the others are dependent, so "
            "that 0 cannot be compared: put a small number in its place, or fit with ridge=0."
        )
    return ridges
