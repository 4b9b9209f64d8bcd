"""forecast: a layer that predicts the next token, run on its own predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput, require_flag, require_integer, require_number
from polyattn.fitting.forecasting.arguments import (
    checked_sequences,
    layer_or_none,
    require_next_tokens,
)
from polyattn.fitting.forecasting.error_trend import ErrorTrend, error_trend
from polyattn.fitting.forecasting.known_ahead import known_ahead, predicted_coordinates
from polyattn.fitting.forecasting.next_token import NextToken
from polyattn.fitting.forecasting.of_series import SeriesFit, fit_series
from polyattn.fitting.forecasting.one_step import N_STRETCHES, one_step_errors, stretches
from polyattn.fitting.forecasting.result import LARGEST, Forecast
from polyattn.fitting.forecasting.roll_out import Rolled, Setting, roll_out
from polyattn.fitting.result import FitResult
from polyattn.form.form import Form
from polyattn.model.linear import LinearAttention
from polyattn.numerics.parallel import single_threaded_blas
from polyattn.numerics.scaling import column_sizes
from polyattn.quoting import counted
from polyattn.sequences import SequenceBatch, Sequences

# With fewer predicted positions for each coefficient, errors on the data of a fit are too small.
LEAST_ROWS = 2

# What the random stretches of errors are drawn from: the same forecast has the same figures.
SEED = 0


@single_threaded_blas()
def forecast(
    result: Any,
    X: Sequences | None = None,
    steps: int | None = None,
    *,
    increments: bool = False,
    predicted: Any = None,
    future: Any = None,
    tolerance: float = 0.4,
    limit: float = 10.0,
    form: Form | None = None,
) -> Forecast:
    """Continue sequences: the layer predicts the next token, which then is one of its tokens.

    ``forecast(result, X, steps)`` continues X by a layer that was fitted to predict next tokens,
    such as ``fit(X[:, :-1], X[:, 1:], mode="causal")``.  ``forecast(X, steps)`` fits one first.

    Parameters
    ----------
    result : FitResult, LinearAttention, fitted LinearAttentionRegressor, or sequences
        What predicts the next token: as many outputs as tokens have coordinates.  In mode causal
        everything that the form remembers is remembered; in mode last a sequence keeps its
        length, and its oldest token leaves as a new one comes.  Mode full and layers with a
        context cannot be continued.
        Sequences are fitted first: increments of tokens that are centred and divided by their
        standard deviations, in products of three coordinates of the last tokens or linearly.
        Which of both, how many tokens back, and which ridge is chosen by forecasts of tokens that
        are held out.
    X : sequences to continue, as for ``fit``; one sequence may be an array (n, d), and a series of
        numbers, such as a column of a table, an array (n,): tokens of one coordinate
    steps : how many tokens each of them gains
    increments : whether the layer predicts by how much tokens change; sequences given alone are
        always fitted so
    predicted : coordinates that the outputs are, if these are fewer than a token has; by default
        the first ones.  The others have to be known ahead:
    future : array (N, steps, others), or (steps, others) for all sequences
    tolerance : float
        Errors that count, in standard deviations of each coordinate over all tokens given.
    limit : float
        A sequence is stopped when a coordinate is larger than so many times its largest
        magnitude in X.
    form : Form, optional
        Of the fit, in mode causal, where sequences are given in the place of a result.

    Returns
    -------
    Forecast
        The tokens, how errors grow along them, and for how many steps they are to be trusted.

    Guarantee: the tokens are those of calling the layer again and again, up to rounding; growth
    is the exact derivative of that (through functions of tokens by differences, to about 1e-9).
    For how many steps a forecast is valid is an estimate, and no bound: the errors of the layer
    over one step on X, in their order and as large as they are at the end, added up to first
    order; the coordinate that fares worst counts.
    Cost: a step of one sequence costs 4 e m r flops, whatever its length; in windows their length
    counts.

    >>> import numpy as np
    >>> import polyattn as pa
    >>> t = np.arange(250)
    >>> spiral = 0.99 ** t[:, None] * np.stack([np.sin(0.3 * t), np.cos(0.3 * t)], axis=1)
    >>> X = spiral[None, :200]
    >>> form = pa.Form(mode="causal", window=1, skip=True)
    >>> result = pa.fit(X[:, :-1], X[:, 1:], form=form)
    >>> ahead = pa.forecast(result, X, 50)
    >>> bool(np.abs(ahead.values[0] - spiral[200:]).max() < 1e-9)
    True
    >>> ahead.outcome.name
    'within_tolerance'
    """
    if isinstance(X, int | np.integer) and steps is None:
        X, steps = None, X
    if steps is None:
        raise InvalidInput("steps is missing: how many tokens each sequence gains, as steps=20.")
    steps = require_integer("steps", steps)
    options = _Options(
        steps, require_flag("increments", increments), predicted, future,
        require_number("tolerance", tolerance), require_number("limit", limit),
    )  # fmt: skip
    fitted = layer_or_none(result)
    if fitted is None:
        _require_alone(X, predicted, future)
        batch, single = checked_sequences(result, None, "the first argument")
        series = fit_series(batch, form, steps)
        ahead = None if series.future is None else np.repeat(series.future, steps, axis=0)
        options = replace(options, increments=True, future=ahead)
        return _continued(series.fit, series.batch, single, options, series)
    if X is None:
        raise InvalidInput("X is missing: the sequences to continue, forecast(result, X, steps).")
    if form is not None:
        raise InvalidInput(
            f"form is of a fit, and the {type(result).__name__} that was given has one; leave it "
            "out."
        )
    batch, single = checked_sequences(X, fitted.layout.n_dims, "X")
    return _continued(fitted, batch, single, options)


@dataclass(frozen=True)
class _Options:
    """Arguments of ``forecast`` beside layer and sequences."""

    steps: int
    increments: bool
    predicted: Any
    future: Any
    tolerance: float
    limit: float


def _require_alone(X: object, predicted: object, future: object) -> None:
    """Refuse what belongs to a layer where sequences stand in its place."""
    if X is not None:
        raise InvalidInput(
            "forecast takes a result and X, or sequences alone; got sequences for both: "
            "forecast(X, steps), or forecast(result, X, steps)."
        )
    for name, given in (("predicted", predicted), ("future", future)):
        if given is not None:
            raise InvalidInput(
                f"{name} needs a layer that was fitted with coordinates known ahead: "
                "forecast(result, X, steps)."
            )


def _continued(
    fitted: FitResult | LinearAttention,
    batch: SequenceBatch,
    single: bool,
    options: _Options,
    series: SeriesFit | None = None,
) -> Forecast:
    """The forecast of a layer for sequences that were checked."""
    layout, coef, steps = fitted.layout, fitted.coef, options.steps
    require_next_tokens(layout, len(coef), options.future)
    chosen = predicted_coordinates(options.predicted, layout.n_dims, len(coef))
    others = np.setdiff1d(np.arange(layout.n_dims), chosen)
    spread = _spread(batch)[chosen]
    errors = one_step_errors(layout, coef, batch, chosen, options.increments)
    trend = error_trend(errors, spread) if errors else None
    sizes = column_sizes(batch.values)[chosen]
    setting = Setting(
        n_steps=steps, predicted=chosen, others=others, increments=options.increments,
        future=known_ahead(options.future, len(batch), steps, len(others)), spread=spread,
        limits=np.where(sizes > 0.0, options.limit * sizes, np.inf),
        errors=_drawn_errors(errors, trend, fitted, spread, steps),
    )  # fmt: skip
    rolled = roll_out(NextToken.of(layout, coef, batch), batch, setting)
    one_step = None
    if setting.errors is not None:
        known = np.concatenate(errors or list(setting.errors))
        one_step = float(np.sqrt(np.mean((known / spread) ** 2, axis=0)).max())
    doubts = [_doubt(fitted), "" if trend is None else trend.sentence]
    return _as_forecast(
        rolled, one_step, options, single, fitted, series, " ".join(filter(None, doubts))
    )


def _as_forecast(
    rolled: Rolled,
    one_step: float | None,
    options: _Options,
    single: bool,
    fitted: FitResult | LinearAttention,
    series: SeriesFit | None,
    doubt: str,
) -> Forecast:
    """The steps that were made, and figures within the range of files."""
    made = np.arange(options.steps) < rolled.n_done[:, None]
    with np.errstate(over="ignore", under="ignore"):
        growth = np.minimum(np.exp(np.where(made, rolled.log_growth, -np.inf)), LARGEST)
    expected = np.where(made[..., None], np.minimum(rolled.expected, LARGEST), LARGEST)
    values = rolled.values[made]
    return Forecast(
        flat_values=values if series is None else series.restored(values),
        n_done=rolled.n_done, growth=growth,
        coordinate_errors=np.zeros_like(expected) if one_step is None else expected,
        steps=options.steps, tolerance=options.tolerance, one_step_error=one_step, single=single,
        of_fit="" if series is None else series.sentence, doubt=doubt,
        fit=fitted if isinstance(fitted, FitResult) else None,
    )  # fmt: skip


def _doubt(fitted: FitResult | LinearAttention) -> str:
    """Why a forecast by this layer should not be believed; empty where there is no reason."""
    if not isinstance(fitted, FitResult):
        return ""
    if not fitted.outcome.ok:
        return f"The fit behind it is in doubt: {fitted.outcome.sentence}"
    n_rows = None if fitted.training is None else len(fitted.training.targets)
    n_free = fitted.n_features if fitted.rank is None else fitted.rank
    if n_rows is not None and n_rows < LEAST_ROWS * n_free:
        return (
            f"The fit behind it has {counted(n_free, 'coefficient')} for each output and "
            f"{counted(n_rows, 'predicted position')}: its errors on these say little of others."
        )
    return ""


def _spread(batch: SequenceBatch) -> NDArray[np.float64]:
    """The standard deviation of each coordinate, or its size where it never changes."""
    tokens = np.asarray(batch.values, dtype=np.float64)
    sizes = column_sizes(batch.values)
    units = np.where(sizes > 0.0, sizes, 1.0)
    spread = (tokens / units).std(axis=0)
    # Of a constant only rounding is left.
    return np.where(spread > 1e-12, spread, 1.0) * units


def _drawn_errors(
    errors: list[NDArray],
    trend: ErrorTrend | None,
    fitted: FitResult | LinearAttention,
    spread: NDArray,
    steps: int,
) -> NDArray[np.float64] | None:
    """Errors (M, steps, e) to follow: those that were seen, or of the size of the fit's risk."""
    rng = np.random.default_rng(SEED)
    if trend is not None:
        return stretches(errors, steps, rng) * trend.levels(steps)
    if not isinstance(fitted, FitResult):
        return None
    # The risk is a sum over coordinates; each gets its part in its own units.
    unit = float(spread.max())
    size = np.sqrt(fitted.risk) / unit / np.sqrt(np.sum((spread / unit) ** 2))
    return size * spread * rng.standard_normal((N_STRETCHES, steps, len(spread)))
