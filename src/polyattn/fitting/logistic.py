"""fit with loss="logistic": class numbers in, the minimiser of log-loss and its outcome out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, OutOfRange
from polyattn.fitting.logistic_outcomes import describe_logistic, describe_outputs
from polyattn.fitting.proportion import BestConstant, DataSizes, Proportion
from polyattn.fitting.result import FitResult
from polyattn.heads.data_scale import SampleScale
from polyattn.numerics.scaling import EPS, restored
from polyattn.solve.log_loss import PER_OUTPUT, LogLoss
from polyattn.solve.logistic import LogisticSolution, solve_logistic
from polyattn.solve.ridge import RULES, chosen_ridge
from polyattn.stats.rows import Rows


def refuse_least_squares(
    ridge: object, n_heads: object, solver: str, statistics: object, decay: object
) -> None:
    """Refuse what only squared error can do."""
    if decay == "loo":
        raise InvalidInput(
            "decay='loo' chooses the decay for squared error; with loss='logistic' give a number, "
            "such as the result.form.decay of a fit by squared error."
        )
    if ridge in RULES:
        raise InvalidInput(
            f"ridge={ridge!r} chooses the ridge for squared error; with loss='logistic' give a "
            "number, or choose one by scikit-learn's GridSearchCV of a LinearAttentionClassifier."
        )
    if n_heads is not None:
        raise InvalidInput(
            f"n_heads limits heads by squared error; got n_heads={n_heads!r} with loss='logistic'. "
            "Leave it None: result.layer has as few heads as compute the minimiser."
        )
    if solver != "auto":
        raise InvalidInput(
            f"the solvers are those of squared error; got solver={solver!r} with loss='logistic', "
            "which is minimised by Newton's method. Leave solver='auto'."
        )
    if statistics is not None:
        raise InvalidInput(
            "log-loss is no function of sums; with loss='logistic' give X and Y, not statistics."
        )


def fit_logistic(rows: Rows, ridge: float, random_state: int) -> FitResult:
    """The minimiser for rows whose targets are class numbers 0..K-1, one for each row."""
    codes, n_classes = class_numbers(rows.targets)
    return _judged(_fit_codes(rows, _inputs(rows), codes, n_classes, ridge, random_state), rows)


def fit_logistic_outputs(rows: Rows, ridge: float, random_state: int) -> FitResult:
    """The minimiser of the sum of log-losses of each output, for targets 0 and 1.

    The outputs share nothing but the features: each is a fit of its own, of two classes, one of
    which may be absent.  Risks are sums over outputs.
    """
    targets = np.asarray(rows.targets[:])
    if np.any((targets != 0) & (targets != 1)):
        raise InvalidInput(
            f"with loss={PER_OUTPUT!r} Y holds 0 and 1, one for each label; got "
            f"{targets[(targets != 0) & (targets != 1)][0]:g}."
        )
    inputs = _inputs(rows)
    fits = [
        _fit_codes(rows, inputs, column.astype(np.intp), 2, ridge, random_state)
        for column in targets.T
    ]
    coef = np.concatenate([each.coef for each in fits])
    coef.setflags(write=False)
    conditions = [each.condition for each in fits if each.condition is not None]
    bounds = [each.objective_bound for each in fits]
    sums = {
        name: sum(getattr(each, name) for each in fits)
        for name in ("risk", "optimal_risk", "baseline_risk", "zero_risk")
    }
    together = replace(
        fits[0],
        coef=coef,
        outcome=describe_outputs([each.outcome for each in fits]),
        condition=max(conditions) if len(conditions) == len(fits) else None,
        head_tolerance=max(each.head_tolerance for each in fits),
        objective_bound=None if None in bounds else sum(each or 0.0 for each in bounds),
        loss=PER_OUTPUT,
        **sums,
    )
    return _judged(together, rows)


def _inputs(rows: Rows) -> Rows:
    """The same rows without targets."""
    return replace(
        rows, targets=np.empty((rows.n_rows, 0)), target_exponent=None, output_sizes=np.empty(0)
    )


def _fit_codes(
    rows: Rows,
    inputs: Rows,
    codes: NDArray[np.intp],
    n_classes: int,
    ridge: float,
    random_state: int,
) -> FitResult:
    """The minimiser for class numbers (rows,); ``inputs`` are the rows without targets."""
    weights = np.ones(rows.n_rows) if rows.row_weights is None else rows.row_weights
    # The largest weight is between 1/2 and 1, or squares of gradients leave the range of float64.
    unit = int(np.frexp(weights.max())[1])
    loss = LogLoss(codes, np.ldexp(weights, -unit), n_classes)
    value, _ = chosen_ridge(ridge, None, rows)
    with np.errstate(over="ignore", under="ignore"):
        scaled_ridge = float(np.ldexp(value, -unit))
    if not np.isfinite(scaled_ridge):
        raise OutOfRange(
            f"ridge = {ridge:g} is beyond float64 beside a sample_weight of {weights.max():.3g}; "
            "multiply both by a constant."
        )
    solution = solve_logistic(inputs, loss, scaled_ridge)
    return _assemble(solution, rows, loss, unit, ridge, random_state)


def class_numbers(targets: NDArray) -> tuple[NDArray[np.intp], int]:
    """Classes (rows,) of targets (rows, 1), and their number K; every one of 0..K-1 must occur."""
    advice = (
        "Number the classes 0, 1, ..., or give labels of any kind to LinearAttentionClassifier."
    )
    if targets.shape[1] != 1:
        raise InvalidInput(
            "with loss='logistic' Y holds one class number for each predicted position; got "
            f"{targets.shape[1]} outputs. Of indicator columns take Y.argmax(axis=-1)."
        )
    values = targets[:, 0]
    if np.any(values != np.round(values)) or values.min() < 0:
        wrong = values[(values != np.round(values)) | (values < 0)][0]
        raise InvalidInput(
            f"with loss='logistic' Y holds class numbers 0, 1, ..., K-1; got {wrong:g}. {advice}"
        )
    found = np.unique(values)
    if len(found) == 1:
        raise InvalidInput(
            f"Y needs at least two classes to tell apart; got only class {found[0]:g}."
        )
    if found[-1] != len(found) - 1:
        missing = next(k for k, value in enumerate(found) if k != value)
        raise InvalidInput(
            f"Y has class numbers up to {found[-1]:g}, but {missing} does not occur. {advice}"
        )
    return values.astype(np.intp), len(found)


def _assemble(
    solution: LogisticSolution,
    rows: Rows,
    loss: LogLoss,
    unit: int,
    ridge: float,
    random_state: int,
) -> FitResult:
    """Back to true units, with the outcome in words."""
    layout, token = rows.layout, rows.token_exponent or 0
    sizes = layout.feature_sizes(rows.coordinate_sizes)
    coef = layout.as_coef(solution.theta)
    coef = restored(coef, -3 * token, "the coefficients", sizes)
    coef.setflags(write=False)
    total = float(loss.weights.sum())
    condition = solution.condition if np.isfinite(solution.condition) else None
    # The objective of the user counts the weights as given.
    solution = replace(
        solution,
        objective=float(np.ldexp(solution.objective, unit)),
        bound=None if solution.bound is None else float(np.ldexp(solution.bound, unit)),
    )
    return FitResult(
        coef=coef,
        outcome=describe_logistic(solution, rows, ridge, loss.n_classes),
        layout=layout,
        risk=solution.loss / total,
        optimal_risk=solution.least_loss / total,
        ridge=ridge,
        rank=solution.rank,
        condition=condition,
        solver="newton",
        head_tolerance=float(np.clip(100 * EPS * (condition or np.inf), 1e-9, 1e-6)),
        random_state=random_state,
        statistics=solution.moments,
        sample=SampleScale.of(rows),
        loss="logistic",
        objective_bound=solution.bound,
        baseline_risk=_risk_of_shares(loss),
        zero_risk=float(np.log(loss.n_classes)),
        data_sizes=str(DataSizes.of(rows)),
    )


def _judged(result: FitResult, rows: Rows) -> FitResult:
    """The result, whose outcome says where it is no better than predicting shares of classes."""
    baseline = BestConstant(result.baseline_risk, result.zero_risk)
    beside = Proportion(baseline, DataSizes.of(rows), rows.n_positive)
    given = (result.outcome, result.risk, result.form, len(result.coef))
    return replace(result, outcome=beside.judged(*given, ridge=result.ridge, loss="logistic"))


def _risk_of_shares(loss: LogLoss) -> float:
    """The log-loss of the shares of the classes, predicted everywhere."""
    shares = np.bincount(loss.codes, loss.weights, loss.n_classes) / loss.weights.sum()
    known = shares[shares > 0]
    # Of one class of positive weight alone there is nothing to predict; it is not minus zero.
    return max(-float(np.sum(known * np.log(known))), 0.0)
