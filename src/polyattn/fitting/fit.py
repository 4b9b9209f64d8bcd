"""fit: sequences -> statistics -> coefficients, to the global optimum, in closed form."""

from __future__ import annotations

from dataclasses import replace
from inspect import signature
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polyattn.errors import (
    InvalidInput,
    InvalidType,
    OutOfRange,
    require_choice,
    require_flag,
    require_head_count,
    require_integer,
)
from polyattn.fitting.from_source import basis_of_source, solve_sums, with_fixed_decay
from polyattn.fitting.logistic import fit_logistic, fit_logistic_outputs, refuse_least_squares
from polyattn.fitting.one_hot.fit_symbols import fit_symbols
from polyattn.fitting.one_hot.route import stays_sparse
from polyattn.fitting.outcomes import decay_in_words, describe, describe_limited
from polyattn.fitting.proportion import Proportion
from polyattn.fitting.result import FitResult
from polyattn.fitting.training_data import kept_rows
from polyattn.form.form import PARTS, Form, require_form
from polyattn.form.unknown import refuse_unknown
from polyattn.heads.data_scale import SampleScale
from polyattn.heads.limited import limited_heads
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.random_state import RandomState, require_seed
from polyattn.numerics.scaling import EPS, as_risk, restored
from polyattn.sequences import Sequences, names_of
from polyattn.solve.decay import chosen_decay, with_decay
from polyattn.solve.feature_passes import FeaturePasses
from polyattn.solve.log_loss import LOSSES, PER_OUTPUT
from polyattn.solve.ridge import RidgePath, chosen_ridge, require_ridge, scaled_grid
from polyattn.solve.solution import Solution
from polyattn.solve.solvers import SOLVERS, solver_of
from polyattn.solve.solvers import Source as Basis
from polyattn.solve.solving import solve
from polyattn.sources.source import Source, require_alone, require_no_checkpoint
from polyattn.stats import Moments, TriangularFactor
from polyattn.stats.opening import rows_of_source
from polyattn.stats.rows import Rows
from polyattn.targets import Targets

NEEDED = (
    "fit needs both X and Y (or statistics=...); data in files are given as one source, "
    "fit(polyattn.scan(...))."
)


# Idle BLAS threads spin for a while, and would take the cores from ours.
@single_threaded_blas()
def fit(
    X: Sequences | Source | None = None,
    Y: Targets | None = None,
    mode: str = "last",
    ridge: float | str = 0.0,
    n_heads: int | str | None = None,
    solver: str = "auto",
    bias: bool = False,
    sample_weight: ArrayLike | None = None,
    *,
    loss: str = "squared",
    head_rank: int | None = None,
    form: Form | None = None,
    context: Sequences | None = None,
    statistics: Moments | TriangularFactor | None = None,
    ridge_grid: ArrayLike | None = None,
    random_state: RandomState = 0,
    try_exact: bool = True,
    checkpoint: str | PathLike[str] | None = None,
    client: Any = None,
    **unknown: object,
) -> FitResult:
    """The best multi-head linear attention layer for the data: global, no step size, no seed.

    Minimises  sum_i w_i ||y_i - F(X_i)||^2 + ridge ||T||_F^2  over layers F with any number of
    heads, where i runs over predicted positions and T is the symmetric tensor of F.

    Parameters
    ----------
    X : array (N, n, d), list of arrays (n_i, d), SequenceBatch, or a source (``polyattn.scan``)
        A source holds its own targets, weights and context, and is read in parts.
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
    solver : "auto" | "primal" | "dual" | "direct" | "iterative" | "one_hot"
        All minimise the same objective; ``polyattn.solve.plan`` says what ``auto`` would take.
        ``"one_hot"``: token ids by counts of symbols, which ``auto`` takes where these are many;
        the result is a ``OneHotFit``.
    bias : bool
        Append a coordinate that is always 1 to every token.
    sample_weight : array (N,), one weight per sequence
    loss : "squared" | "logistic" | "logistic_per_output"
        ``"logistic"``: Y holds class numbers 0, ..., K-1, and w_i log-loss(y_i, F(X_i)) takes the
        place of the squared error: one output for two classes, the logarithm of their odds, and
        otherwise K, of which softmax makes probabilities.  The ridge is a number.
        ``"logistic_per_output"``: Y holds 0 and 1, and each output is a label by itself, there or
        not (any number of them at once).
    form : Form, optional
        Any other layer that is linear in its parameters, instead of ``mode`` and ``bias``.
    context : sequences, optional
        What the tokens of X attend to, one sequence for each of X (cross-attention).
    head_rank : int, optional
        The largest rank of the attn of a head.  With a limited number of heads that is a limit of
        its own, and counts in the gap; otherwise heads of higher rank are split, which is exact.
    statistics : Moments or TriangularFactor
        Instead of X and Y: fit from accumulated sums (their form is used).
    ridge_grid : array of ridges to choose from (default: a wide grid)
    random_state : int, Generator or None
        Seed of the search for few heads, kept in the result; the optimum itself needs none.  A
        generator gives a seed and advances, None takes a fresh one.
    try_exact : bool
        Before sums are made, look whether some layer computes all targets to rounding (only with
        ``solver="auto"``, ``ridge=0`` and ``n_heads=None``).  Such a result has no statistics.
    checkpoint : path, optional
        Of a source: a file in which its sums are kept; the same call goes on where one was
        interrupted, and ends in the same bits.
    client : distributed.Client, optional
        Of a source: the workers of a Dask cluster read it, and make its sums and all passes of
        ``primal``, ``iterative`` and of rules for the ridge, to the same bits.

    Guarantee: the empirical risk of ``result.coef`` is minimal over all layers with any number
    of heads, up to rounding [yau2024: Algorithm 1, Theorem 2.2]; with at most d^2 heads
    ``result.layer`` attains it.
    Cost: O(N n d^2) for the summaries, then about p^2/2 multiply-adds per predicted position
    and p^3/3 for the solution (primal, p = d^2 (d+1)/2), or N^2 (q + N/3) (dual), or 2 e p per
    position in each of some dozens of passes (iterative).
    """
    refuse_unknown("fit", unknown, signature(fit).parameters, PARTS)
    chosen = require_form(form, mode, bias)
    require_choice("solver", solver, ("auto", "one_hot", *SOLVERS))
    heads = require_head_count(n_heads)
    rank = None if head_rank is None else require_integer("head_rank", head_rank)
    seed = require_seed(random_state)
    require_flag("try_exact", try_exact)
    if require_choice("loss", loss, (*LOSSES, PER_OUTPUT)) != "squared":
        refuse_least_squares(ridge, heads, solver, statistics, chosen.decay)
    penalty = require_ridge(ridge, ridge_grid)
    source: Basis
    if statistics is None and stays_sparse(
        X, chosen, solver, n_heads=heads, head_rank=rank, context=context,
        loss=None if loss == "squared" else loss,
        ridge=penalty if isinstance(penalty, str) else None,
    ):  # fmt: skip
        require_no_checkpoint(checkpoint, client)
        return fit_symbols(X, _targets_of_ids(Y), chosen, float(penalty), sample_weight)
    if isinstance(X, Source) and statistics is None:
        require_alone(Y=Y, sample_weight=sample_weight, context=context)
        source = basis_of_source(X, chosen, solver, penalty, loss, checkpoint, client)
    else:
        require_no_checkpoint(checkpoint, client)
        given = (X, Y, sample_weight, form, context)
        source = _basis(chosen, *given, statistics, solver)
        # The short way of a form may be repeated, not contradicted.
        require_form(chosen if statistics is None else source.form, mode, bias)
    if source.total_weight == 0.0:
        raise InvalidInput("sample_weight is zero everywhere; at least one must be positive.")
    if loss != "squared" and isinstance(source, Rows):
        minimise = fit_logistic if loss == "logistic" else fit_logistic_outputs
        result = minimise(source, float(penalty), seed)
        return replace(result, head_rank=rank, coordinate_names=names_of(X))
    decays = None
    if isinstance(source, Rows) and chosen.decay == "loo":
        decays = chosen_decay(source, *_ridges(penalty, ridge_grid, source))
        source = with_decay(source, decays.best)
    value, path = chosen_ridge(penalty, ridge_grid, source)
    solution, name, source = _solved(
        X, source, value, solver, try_exact and heads is None, heads is not None, client
    )
    if solution.rank == 0 and _has_features(source):
        raise OutOfRange(
            "the squares of all features vanish in float64: the queries are too small beside the "
            "tokens that they attend to. Multiply them by a power of two."
        )
    solution = solution.judged(source.coordinate_sizes)
    # A ridge that vanished beside the data was still asked for.
    asked = float(penalty) if path is None else path.best
    solution = replace(solution, ridge=asked, note=solution.note + decay_in_words(decays))
    result = _assemble(solution, name, source, path, seed)
    result = replace(result, decay_path=decays, head_rank=rank, coordinate_names=names_of(X))
    if heads is not None:
        # The best layer of so many heads takes the place of the optimum, sought in its units.
        known, coef, risk, note = limited_heads(
            replace(solution, ridge=value), heads, source, result.risk, result.sample, seed, rank
        )
        outcome = describe_limited(result.outcome, known.n_heads, risk, result.risk, asked, note)
        result = replace(result, coef=coef, risk=risk, known_heads=known, outcome=outcome)
    beside = Proportion.of(source, solution.statistics)
    outcome = beside.judged(
        result.outcome, result.risk, result.form, result.n_outputs, ridge=asked, rank=result.rank
    )
    return replace(result, outcome=outcome, **beside.figures)


def _targets_of_ids(Y: Targets | None) -> Targets:
    if Y is None:
        raise InvalidInput(NEEDED)
    return Y


def _basis(
    chosen: Form,
    X: Any,
    Y: Targets | None,
    sample_weight: ArrayLike | None,
    form: Form | None,
    context: Sequences | None,
    statistics: object,
    solver: str,
) -> Basis:
    """What is solved: statistics as they are given, or the rows of the data."""
    if statistics is not None:
        if any(each is not None for each in (X, Y, sample_weight, form, context)):
            raise InvalidInput("give either X and Y, or statistics, not both.")
        return _checked_statistics(statistics, solver)
    if X is None or Y is None:
        raise InvalidInput(NEEDED)
    return Rows.build(X, Y, with_fixed_decay(chosen), sample_weight, context)


def _solved(
    X: object,
    source: Basis,
    ridge: float,
    solver: str,
    try_exact: bool,
    keep_sums: bool,
    client: Any,
) -> tuple[Solution, str, Basis]:
    """The solution, the solver, and what it was found from: sums of a source may not be enough."""
    if isinstance(X, Source) and isinstance(source, Moments):
        found = solve_sums(X, source, ridge, client)
        if found is not None:
            return found[0], "primal", found[1]
        source = rows_of_source(X, source.form, None, client)
    solution, name = solve(source, ridge, solver, try_exact, keep_sums)
    return solution, name, source


def _ridges(
    penalty: float | str, grid: ArrayLike | None, rows: Rows
) -> tuple[NDArray | None, bool]:
    """The ridges with which decays are compared (None: a wide grid), and whether there is one."""
    if isinstance(penalty, str):
        return scaled_grid(grid, rows), True
    fixed, _ = chosen_ridge(penalty, None, rows)
    return (np.array([fixed]) if fixed > 0.0 else None), fixed > 0.0


def _has_features(source: Basis) -> bool:
    """Whether any feature is not zero, even if its square is."""
    if isinstance(source, Rows):
        return bool(np.any(FeaturePasses(source).has_features()))
    return not bool(np.all(source.absent))


def _checked_statistics(
    statistics: object, solver: str, *others: object
) -> Moments | TriangularFactor:
    """The statistics, if they can be solved so and nothing else (``others``) was given."""
    if any(each is not None for each in others):
        raise InvalidInput("give either X and Y, or statistics, not both.")
    if not isinstance(statistics, Moments | TriangularFactor):
        raise InvalidType(
            f"statistics must be Moments or a TriangularFactor; got {type(statistics).__name__}."
        )
    if statistics.n_rows == 0:
        raise InvalidInput("the statistics are empty; call their update(X, Y) first.")
    if statistics.n_outputs == 0:
        raise InvalidInput("the statistics hold no targets; make them with n_outputs >= 1.")
    own = solver_of(statistics)
    if solver not in ("auto", own):
        raise InvalidInput(
            f"{type(statistics).__name__} are solved by solver={own!r}; got solver={solver!r}, "
            "which needs X and Y."
        )
    return statistics


def _assemble(
    solution: Solution, solver: str, source: Basis, path: RidgePath | None, random_state: int
) -> FitResult:
    """Back to true units, with the outcome in words."""
    token, target = source.token_exponent or 0, source.target_exponent or 0
    layout = source.layout
    coef = layout.as_coef(solution.theta)
    features = layout.feature_sizes(source.coordinate_sizes)
    coef = restored(coef, target - 3 * token, "the coefficients", features)
    coef.setflags(write=False)
    risk = as_risk(solution.residual_power / source.total_weight, target)
    bound = solution.objective_bound
    with np.errstate(over="ignore", under="ignore"):
        bound = None if bound is None else float(np.nextafter(np.ldexp(bound, 2 * target), np.inf))
    condition = solution.condition if np.isfinite(solution.condition) else None
    return FitResult(
        coef=coef,
        outcome=describe(solution, source, path),
        layout=layout,
        risk=risk,
        optimal_risk=risk,
        ridge=solution.ridge,
        rank=solution.rank,
        condition=condition,
        solver=solver,
        # The coefficients themselves are known to about eps times the condition number.
        head_tolerance=float(np.clip(100 * EPS * (condition or np.inf), 1e-10, 1e-6)),
        random_state=random_state,
        statistics=solution.statistics,
        ridge_path=path,
        sample=SampleScale.of(source) if isinstance(source, Rows) else None,
        objective_bound=bound if bound is not None and np.isfinite(bound) else None,
        training=kept_rows(source),
    )
