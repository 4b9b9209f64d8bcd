"""fit_series: a layer that predicts the next token, fitted to sequences alone.

How exact one step is says little about many: with several lags and hardly a ridge the error over
one step is smallest, and grows fastest.  So forms and ridges are judged by what forecasts are
for: they are fitted to the first part of the tokens, and continue it from several places of the
rest, where the truth is known.  The best is fitted again to all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyattn.errors import InvalidInput
from polyattn.fitting.fit import fit
from polyattn.fitting.forecasting.next_token import NextToken
from polyattn.fitting.forecasting.roll_out import Setting, roll_out
from polyattn.fitting.result import FitResult
from polyattn.form.form import Form, require_form
from polyattn.form.in_words import form_in_words
from polyattn.form.layout import Layout
from polyattn.numerics.scaling import column_sizes
from polyattn.quoting import counted
from polyattn.sequences import SequenceBatch, equal_sequences

# How many tokens back are tried, with products and without, and ridges for each predicted position.
LAGS, LINEAR_LAGS = (1, 2, 3, 4), (1, 2, 3, 4, 8, 13)
RIDGES = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)

# Nothing larger is tried.
MOST_FEATURES = 3000

# Sequences from which whole ones are held out, tokens from which the last quarter is, and places
# from which a sequence is continued.
MANY_SEQUENCES, MANY_TOKENS, N_ORIGINS, MOST_ORIGINS = 8, 16, 10, 64

# Squared errors, in variances, count up to this: so far are two tokens of a series apart that have
# nothing to do with each other.
WORST = 2.0


@dataclass(frozen=True)
class SeriesFit:
    """A fit to increments, in units of the series: tokens less ``centre``, divided by ``scale``.

    batch : the sequences in these units; behind them, unless a form was given, a constant
    sentence : what was chosen
    """

    fit: FitResult
    batch: SequenceBatch
    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    sentence: str

    @property
    def future(self) -> NDArray[np.float64] | None:
        """What is known ahead of one step, (1, 1): the constant, where there is one."""
        return None if self.batch.n_dims == len(self.centre) else np.ones((1, 1))

    def restored(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Tokens in the units that were given."""
        return values * self.scale + self.centre


def fit_series(batch: SequenceBatch, form: Form | None, steps: int) -> SeriesFit:
    """The layer that continues held-out tokens best, for forecasts of so many steps.

    Without a form, increments are fitted in products of three coordinates, constants included:
    one of the newest token, and two of one of the last k; or linearly in the last k; k is chosen.
    Cost: that of 6 fits with a form, of 60 without, most of them small.
    """
    longest = int(batch.lengths.max())
    if longest < 3:
        raise InvalidInput(
            "to fit next tokens, sequences need at least 3 tokens; the longest has "
            f"{counted(longest, 'token')}."
        )
    standard, centre, scale = _standardised(batch)
    forms = _candidates(standard, form)
    if form is None:
        standard = _with_constant(standard)
    held = _held_out(standard, steps)
    if held is None:
        result = _fit_increments(standard, batch.n_dims, forms[0], "gcv")
        how = "too few tokens to hold some out"
    else:
        chosen, ridge = _best(held, forms, batch.n_dims)
        n_rows = int(np.sum(standard.lengths - 1))
        result = _fit_increments(standard, batch.n_dims, chosen, ridge * n_rows)
        how = f"chosen by forecasts from {counted(len(held.beginnings), 'place')} held out"
    linear = ", linear" if form is None and not result.form.bias else ""
    words = form_in_words(result.layout) or "mode causal"
    if form is None:
        words = f"the last {counted(result.form.window or 1, 'token')}{linear}"
    sentence = (
        f"Fitted to increments with {words}, "
        f"{counted(result.n_features, 'feature')}, ridge {result.ridge:.2g} ({how})."
    )
    return SeriesFit(result, standard, centre, scale, sentence)


@dataclass(frozen=True)
class _HeldOut:
    """Tokens to fit, beginnings to continue, and what followed (places, steps, d)."""

    training: SequenceBatch
    beginnings: SequenceBatch
    follows: NDArray[np.float64]


def _standardised(batch: SequenceBatch) -> tuple[SequenceBatch, NDArray, NDArray]:
    """The sequences with mean 0 and standard deviation 1, and what was taken out of them."""
    tokens, sizes = np.asarray(batch.values, dtype=np.float64), column_sizes(batch.values)
    units = np.where(sizes > 0.0, sizes, 1.0)
    relative = tokens / units
    centre = relative.mean(axis=0)
    spread = relative.std(axis=0)
    # Of a constant only rounding is left.
    scale = np.where(spread > 1e-12, spread, 1.0)
    standard = SequenceBatch((relative - centre) / scale, batch.offsets)
    return standard, centre * units, scale * units


def _candidates(batch: SequenceBatch, form: Form | None) -> list[Form]:
    if form is not None:
        chosen = require_form(form)
        if chosen.mode != "causal":
            raise InvalidInput(f"form must have mode 'causal' to fit series; got {chosen.mode!r}.")
        return [chosen]
    own, constant = slice(0, batch.n_dims), [batch.n_dims]
    seen: dict[str, Any] = {"query": own, "key": own, "value": own, "bias": True}
    forms = [Form(mode="causal", lags=lags, window=lags, **seen) for lags in LAGS]
    forms += [
        Form(mode="causal", lags=lags, window=lags, query=constant, key=constant)
        for lags in LINEAR_LAGS
    ]
    most = min(MOST_FEATURES, int(np.sum(batch.lengths - 1)) // 2)
    small = [each for each in forms if Layout.of(each, batch.n_dims + 1).n_features <= most]
    return small or [forms[len(LAGS)]]


def _with_constant(batch: SequenceBatch) -> SequenceBatch:
    """Tokens with a coordinate that is always 1, which linear forms ask for."""
    ones = np.ones((len(batch.values), 1))
    return SequenceBatch(np.concatenate([batch.values, ones], axis=1), batch.offsets)


def _held_out(batch: SequenceBatch, steps: int) -> _HeldOut | None:
    """Whole sequences of many different, or the last quarter of each; None of too little."""
    sequences = [tokens for tokens in batch if len(tokens) > 2]
    numbers = equal_sequences((SequenceBatch.from_sequences(sequences), None))
    if (n_different := numbers.max() + 1) >= MANY_SEQUENCES:
        kept = numbers < 3 * n_different // 4
        training = [tokens for tokens, here in zip(sequences, kept, strict=True) if here]
        rest = [tokens for tokens, here in zip(sequences, kept, strict=True) if not here]
        firsts = [len(tokens) // 2 for tokens in rest]
    else:
        rest = [tokens for tokens in sequences if len(tokens) >= MANY_TOKENS]
        firsts = [3 * len(tokens) // 4 for tokens in rest]
        training = [tokens[:first] for tokens, first in zip(rest, firsts, strict=True)]
    if not rest:
        return None
    ahead = min(steps, *(max(1, (len(t) - f) // 2) for t, f in zip(rest, firsts, strict=True)))
    places = [
        (tokens[:origin], tokens[origin : origin + ahead])
        for tokens, first in zip(rest, firsts, strict=True)
        for origin in np.unique(np.linspace(first, len(tokens) - ahead, N_ORIGINS, dtype=int))
    ][:: max(1, len(rest) * N_ORIGINS // MOST_ORIGINS)]
    return _HeldOut(
        SequenceBatch.from_sequences(training),
        SequenceBatch.from_sequences([before for before, _ in places]),
        np.array([after for _, after in places]),
    )


def _best(held: _HeldOut, forms: list[Form], n_outputs: int) -> tuple[Form, float]:
    """The form and the ridge, for each predicted position, of least error of forecasts."""
    n_rows = int(np.sum(held.training.lengths - 1))
    found = [
        (_error(held, _fit_increments(held.training, n_outputs, form, ridge * n_rows)), form, ridge)
        for form in forms
        for ridge in RIDGES
    ]
    _, form, ridge = min(found, key=lambda each: each[0])
    return form, ridge


def _error(held: _HeldOut, result: FitResult) -> float:
    """Mean squared error over all steps and places, no step counted above ``WORST``."""
    count, steps, n_dims = held.follows.shape
    n_outputs = result.n_outputs
    limits = 10.0 * column_sizes(held.beginnings.values)[:n_outputs] + 1.0
    setting = Setting(
        n_steps=steps, predicted=np.arange(n_outputs), others=np.arange(n_outputs, n_dims),
        increments=True, future=np.ones((count, steps, n_dims - n_outputs)),
        spread=np.ones(n_outputs), limits=limits, errors=None,
    )  # fmt: skip
    layer = NextToken.of(result.layout, result.coef, held.beginnings)
    rolled = roll_out(layer, held.beginnings, setting)
    errors = np.mean((rolled.values - held.follows[..., :n_outputs]) ** 2, axis=2)
    return float(np.mean(np.minimum(np.where(np.isnan(errors), WORST, errors), WORST)))


def _fit_increments(
    batch: SequenceBatch, n_outputs: int, form: Form, ridge: float | str
) -> FitResult:
    long = [tokens for tokens in batch if len(tokens) > 1]
    follows = [np.diff(tokens[:, :n_outputs], axis=0) for tokens in long]
    return fit([tokens[:-1] for tokens in long], follows, form=form, ridge=ridge)
