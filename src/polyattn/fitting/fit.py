"""fit: sequences -> statistics -> coefficients, to the global optimum, in closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from polyattn.errors import InvalidInput, InvalidType, require_choice, require_flag
from polyattn.features.pairs import feature_sizes
from polyattn.fitting.limited import limit_heads
from polyattn.fitting.result import FitResult
from polyattn.heads import SampleScale, require_head_count
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_seed
from polyattn.numerics.scaling import as_risk, restored
from polyattn.sequences import MODES, Sequences
from polyattn.solve.auto import SOLVERS, plan
from polyattn.solve.direct import solve_direct, solve_factor
from polyattn.solve.dual import solve_dual
from polyattn.solve.exact import solve_exact
from polyattn.solve.iterative import solve_iterative
from polyattn.solve.outcomes import Solution, describe
from polyattn.solve.penalty import chosen_ridge, require_ridge
from polyattn.solve.primal import as_coef, solve_primal
from polyattn.solve.ridge_path import RidgePath
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

EPS = float(np.finfo(np.float64).eps)

# Sizes further apart than this are worth a word where they may be the cause of trouble: features
# are of third degree, so that rounding reaches sequences that are 1e5 times smaller than others.
UNLIKE_COORDINATES, UNLIKE_SEQUENCES = 30.0, 1e4


@single_threaded_blas()
def fit(
    X: Sequences | None = None,
    Y: Targets | None = None,
    mode: str = "last",
    ridge: float | str = 0.0,
    n_heads: int | str | None = None,
    solver: str = "auto",
    bias: bool = False,
    sample_weight: ArrayLike | None = None,
    *,
    statistics: Moments | TriangularFactor | None = None,
    ridge_grid: ArrayLike | None = None,
    random_state: RandomState = 0,
    try_exact: bool = True,
) -> FitResult:
    """The best multi-head linear attention layer for the data: global, no step size, no seed.

    Minimises  sum_i w_i ||y_i - F(X_i)||^2 + ridge ||T||_F^2  over layers F with any number of
    heads, where i runs over predicted positions and T is the symmetric tensor of F.

    Parameters
    ----------
    X : array (N, n, d), list of arrays (n_i, d), or SequenceBatch
    Y : targets; mode ``last``: (N, e) or (N,); ``causal``, ``full``: one per token
    mode : "last" | "causal" | "full"
        Which positions are predicted, and what they attend to.
    ridge : float, "loo" or "gcv"
        The penalty; 0 gives the minimiser of smallest norm.  ``"loo"`` chooses it by leaving
        out each sequence, ``"gcv"`` by generalised cross-validation (moments suffice).
    n_heads : None, int, or "auto"
        None: the exact optimum, with as few heads as a search finds.  An integer: the best layer
        found with so many heads, and its gap to the optimum; beyond d min(e, d) heads, which
        compute every layer, the others are zero.  ``"auto"``: the fewest heads whose gap is no
        more than the noise explains.
    solver : "auto" | "primal" | "dual" | "direct" | "iterative"
        All minimise the same objective; ``polyattn.solve.plan`` says what ``auto`` would take.
    bias : bool
        Append a coordinate that is always 1 to every token.
    sample_weight : array (N,), one weight per sequence
    statistics : Moments or TriangularFactor
        Instead of X and Y: fit from accumulated sums (their mode and bias are used).
    ridge_grid : array of ridges to choose from (default: a wide grid)
    random_state : int, Generator or None
        Seed of the search for few heads; the optimum itself needs none.
    try_exact : bool
        Before sums are made, look whether some layer computes all targets to rounding (only with
        ``solver="auto"``, ``ridge=0`` and ``n_heads=None``).  Such a result has no statistics.

    Guarantee: the empirical risk of ``result.coef`` is minimal over all layers with any number
    of heads, up to rounding [yau2024: Algorithm 1, Theorem 2.2]; with at most d^2 heads
    ``result.layer`` attains it.
    Cost: O(N n d^2) for the summaries, then about p^2/2 multiply-adds per predicted position
    and p^3/3 for the solution (primal, p = d^2 (d+1)/2), or N^2 (q + N/3) (dual).
    """
    require_choice("mode", mode, MODES)
    require_choice("solver", solver, ("auto", *SOLVERS))
    heads = require_head_count(n_heads)
    seed = require_seed(random_state)
    require_flag("try_exact", try_exact)
    penalty = require_ridge(ridge, ridge_grid)
    source: Rows | Moments | TriangularFactor
    if statistics is None:
        if X is None or Y is None:
            raise InvalidInput("fit needs both X and Y (or statistics=...).")
        source = Rows.build(X, Y, mode, bias, sample_weight)
    else:
        if X is not None or Y is not None or sample_weight is not None:
            raise InvalidInput("give either X and Y, or statistics, not both.")
        source = _checked_statistics(statistics, solver)
    if source.total_weight == 0.0:
        raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
    value, path = chosen_ridge(penalty, ridge_grid, source)
    solution, road, sums = _solve(source, value, solver, try_exact and heads is None)
    # A ridge that vanished beside the data was still asked for.
    asked = penalty
    if path is not None:
        path = _path_in_true_units(path, source)
        asked = path.best
    result = _assemble(replace(solution, ridge=float(asked)), road, source, sums, path, seed)
    return result if heads is None else limit_heads(result, heads, source)


def _checked_statistics(statistics: object, solver: str) -> Moments | TriangularFactor:
    if not isinstance(statistics, Moments | TriangularFactor):
        raise InvalidType(
            f"statistics must be Moments or a TriangularFactor; got {type(statistics).__name__}."
        )
    if statistics.n_rows == 0:
        raise InvalidInput("the statistics are empty; call their update(X, Y) first.")
    if statistics.n_outputs == 0:
        raise InvalidInput("the statistics hold no targets; make them with n_outputs >= 1.")
    own = "primal" if isinstance(statistics, Moments) else "direct"
    if solver not in ("auto", own):
        raise InvalidInput(
            f"{type(statistics).__name__} are solved by solver={own!r}; got solver={solver!r}, "
            "which needs X and Y."
        )
    return statistics


def _solve(
    source: Rows | Moments | TriangularFactor, ridge: float, solver: str, try_exact: bool
) -> tuple[Solution, str, Moments | TriangularFactor | None]:
    """One road: the solution, its name, and the sums that were made on the way."""
    if isinstance(source, TriangularFactor):
        return solve_factor(source, ridge), "direct", source
    if isinstance(source, Moments):
        return solve_primal(source, None, ridge), "primal", source
    road = plan(source.n_rows, source.width, source.n_outputs, solver).solver
    if road == "primal":
        found = solve_exact(source) if try_exact and ridge == 0.0 and solver == "auto" else None
        if found is not None:
            return found, "exact", None
        moments = Moments.of(source)
        return solve_primal(moments, source, ridge), road, moments
    solve = {"dual": solve_dual, "direct": solve_direct, "iterative": solve_iterative}[road]
    return solve(source, ridge), road, None


def _path_in_true_units(path: RidgePath, source: Rows | Moments | TriangularFactor) -> RidgePath:
    """Every ridge with its error: none may be lost, or another would be the best."""
    token, target = source.token_exponent or 0, source.target_exponent or 0
    ridges = restored(path.ridges[:, None], 6 * token, "the ridges", np.ones(1))[:, 0]
    errors = [as_risk(float(error), target, negligible=0.0) for error in path.errors]
    return replace(path, ridges=ridges, errors=np.array(errors))


def _chosen(path: RidgePath, source: Rows | Moments | TriangularFactor) -> str:
    """What is to be said of a ridge that the data chose."""
    said = f"The ridge was chosen by {path.kind!r}: see ridge_path for the others."
    if path.best != path.ridges[0] or len(path.ridges) == 1:
        return said
    sizes = source.coordinate_sizes[source.coordinate_sizes > 0]
    spread = float(sizes.max() / sizes.min()) if len(sizes) else 1.0
    said += " It is the smallest of them: a smaller one, or ridge=0, may be better."
    if spread > UNLIKE_COORDINATES:
        said += (
            f" The coordinates differ in size by a factor of about {spread:.0e}, and no ridge "
            "suits them all: bring them to a similar size."
        )
    return said


def _deficient(solution: Solution, rows: Rows) -> bool:
    return solution.rank is not None and solution.rank < rows.n_features


def _hidden(rows: Rows) -> str:
    """Whether large sequences may hide what the others say, in words; else empty."""
    sizes = np.maximum.reduceat(np.abs(rows.batch.values).max(axis=1), rows.batch.offsets[:-1])
    spread = float(sizes.max() / (np.median(sizes) or 1.0))
    if spread < UNLIKE_SEQUENCES:
        return ""
    return (
        f"the largest sequence is about {spread:.0e} times larger than most, and beside it "
        "rounding may hide what the others say"
    )


def _assemble(
    solution: Solution,
    road: str,
    source: Rows | Moments | TriangularFactor,
    sums: Moments | TriangularFactor | None,
    path: RidgePath | None,
    random_state: int,
) -> FitResult:
    """Back to true units, with the outcome in words."""
    token, target = source.token_exponent or 0, source.target_exponent or 0
    coef = as_coef(solution.theta, source.width)
    features = feature_sizes(source.coordinate_sizes)
    coef = restored(coef, target - 3 * token, "the coefficients", features)
    coef.setflags(write=False)
    risk = as_risk(solution.residual_power / source.total_weight, target)
    condition = solution.condition if np.isfinite(solution.condition) else None
    return FitResult(
        coef=coef,
        outcome=describe(
            solution,
            source.n_features,
            source.n_positive,
            "" if path is None else _chosen(path, source),
            _hidden(source) if isinstance(source, Rows) and _deficient(solution, source) else "",
        ),
        mode=source.mode,
        bias=source.bias,
        n_dims=source.n_dims,
        risk=risk,
        optimal_risk=risk,
        ridge=solution.ridge,
        rank=solution.rank,
        n_features=source.n_features,
        condition=condition,
        solver=road,
        # The coefficients themselves are known to about eps times the condition number.
        head_tolerance=float(np.clip(100 * EPS * (condition or np.inf), 1e-10, 1e-6)),
        random_state=random_state,
        statistics=sums,
        ridge_path=path,
        sample=SampleScale.of(source) if isinstance(source, Rows) else None,
    )
