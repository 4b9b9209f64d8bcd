"""A fit in proportion: beside predicting the mean of the targets, and beside its data.

    baseline_risk    the risk of the best constant: the weighted mean of the targets for each
                     output; of log-loss, the weighted shares of the classes as probabilities,
                     whose log-loss is the entropy of these shares
    r2               1 - risk / baseline_risk

Targets that are all the same leave nothing to explain: r2 is 1 where the layer computes them up to
rounding, and minus infinity where it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from polyattn.fitting.outcomes import FIT_OUTCOMES, FitName
from polyattn.form.form import Form
from polyattn.numerics.scaling import EPS, TINY
from polyattn.outcome import Outcome
from polyattn.quoting import counted
from polyattn.sizes_in_words import data_sizes_in_words
from polyattn.solve.solvers import Source
from polyattn.stats import Moments
from polyattn.stats.passes import of_parts
from polyattn.stats.rows import Rows
from polyattn.stats.target_spread import TargetSpread

# Targets that differ by less than some roundings of their size are all the same.
CONSTANT = (8 * EPS) ** 2

# An error of half of the digits of constant targets, squared, is rounding.
ROUNDED = EPS

# A risk that is below the baseline by less than this share of it is no better.
NO_BETTER = 1e-9

# Sequences of as many coordinates, and of so many times more coordinates than tokens, look like
# channels that were given in the place of tokens.
MANY_DIMS, MANY_TIMES = 16, 4

# Fewer than so many targets for each coefficient leave much of what is explained to noise, unless
# so much is explained that there is none.
FEW, EXPLAINED = 3, 1.0 - 1e-6

# From so many outputs on, as many as there are tokens are no coincidence.
LIKE_TOKENS = 4

# The risk of sums is a difference of numbers as large as the power of the targets.
OF_SUMS = 16 * EPS

HIDDEN = (
    " But its risk is a difference of sums that are far larger than the spread of the targets "
    "around their mean, and rounding hides how much of that is explained."
)
CENTRE = "Subtract the mean from the targets before they are added up, or give X and Y to fit."

UNKNOWN_MEAN = (
    "These sums do not know the mean of their targets (an older release wrote them, or too many "
    "chunks were taken out), so that the risk is not held against predicting it."
)


class BestConstant(NamedTuple):
    """Risks of the best constant and of zero, in the units of the targets.

    None where they are unknown, or known and beyond float64 (``is_known``).
    """

    risk: float | None = None
    zero_risk: float | None = None
    is_known: bool = True

    @classmethod
    def of(cls, spread: TargetSpread | None, target_exponent: int) -> BestConstant:
        """Those of targets that were divided by 2**target_exponent."""
        if spread is None:
            return cls(is_known=False)
        risk, power = (_in_range(each, target_exponent) for each in (spread.risk, spread.power))
        return cls(risk, power)


def _in_range(scaled: float, target_exponent: int) -> float | None:
    """A risk in the units of the targets; None where float64 cannot hold it."""
    with np.errstate(over="ignore", under="ignore"):
        risk = float(np.ldexp(scaled, 2 * target_exponent))
    held = np.isfinite(risk) and (risk >= TINY or scaled == 0.0)
    return risk if held else None


def baseline_of(source: Source, made: object = None) -> BestConstant:
    """The baseline of what a fit is made from; ``made`` may be sums over the same rows."""
    spread: TargetSpread | None
    if isinstance(source, Rows):
        known = getattr(made, "n_outputs", 0) == source.n_outputs
        spread = getattr(made, "target_spread", None) if known else None
        if spread is not None:
            return BestConstant.of(spread, getattr(made, "target_exponent", 0) or 0)
        spread = reduce(TargetSpread.with_more, of_parts(source, TargetSpread.of))
    else:
        spread = source.target_spread
    return BestConstant.of(spread, source.target_exponent or 0)


def r2_of(
    risk: float, baseline: float | None, zero_risk: float | None, rounding: float | None = None
) -> float | None:
    """1 - risk / baseline; of constant targets 1 or minus infinity; None where it is unknown.

    rounding : how far that may have moved the risk
    """
    if baseline is None or zero_risk is None or hides(rounding, baseline):
        return None
    if baseline <= CONSTANT * zero_risk:
        return 1.0 if risk <= max(ROUNDED * zero_risk, baseline) else -np.inf
    return 1.0 - risk / baseline


def hides(rounding: float | None, baseline: float) -> bool:
    """Whether rounding of the risk leaves less than two digits of its ratio to the baseline."""
    return rounding is not None and rounding > 0.01 * baseline > 0.0


@dataclass(frozen=True)
class DataSizes:
    """How many sequences a fit is made from, of how many tokens and coordinates.

    min_length : tokens of the shortest; None where sums of older releases do not know it
    are_ids : whether tokens are numbers of symbols, which have no coordinates to be confused
    """

    n_sequences: int
    n_dims: int
    min_length: int | None
    max_length: int
    are_ids: bool = False

    @classmethod
    def of(cls, source: Source) -> DataSizes:
        """Those of rows or sums."""
        ends = (source.min_length, source.max_length)
        return cls(source.n_sequences, source.n_dims, *ends)

    def __str__(self) -> str:
        ends = (self.min_length, self.max_length or None)
        return data_sizes_in_words(self.n_sequences, self.n_dims, *ends)

    def doubts(self) -> str:
        """That the axes of the tokens may be exchanged, if it looks so; empty if not.

        Channels of a time series are fewer than its times, and as many in every sequence.
        """
        n, d = self.max_length, self.n_dims
        alike = self.min_length == n and n >= 2 and not self.are_ids
        if not alike or d < MANY_DIMS or d <= MANY_TIMES * n:
            return ""
        return (
            f"The sequences have {counted(n, 'token')} of {counted(d, 'coordinate')}: if the axes "
            "are (sequences, channels, time), give layout='channels_first' to an estimator, or "
            "X.transpose(0, 2, 1)."
        )


@dataclass(frozen=True)
class Proportion:
    """What a fit is held against: the best constant, and the sizes of its data.

    n_positive : predicted positions of positive weight; of a single one nothing is to be said
    risk_rounding : how far rounding may have moved the risk, where it is a difference of sums
    """

    baseline: BestConstant
    sizes: DataSizes
    n_positive: int
    risk_rounding: float | None = None

    @classmethod
    def of(cls, source: Source, made: object = None) -> Proportion:
        """That of what a fit is made from; ``made`` may be sums over the same rows."""
        baseline = baseline_of(source, made)
        rounding = None
        if isinstance(source, Moments) and baseline.zero_risk is not None:
            rounding = OF_SUMS * source.cancellation * baseline.zero_risk
        return cls(baseline, DataSizes.of(source), source.n_positive, rounding)

    @property
    def figures(self) -> dict[str, Any]:
        """The attributes of a result that say it."""
        risk, power = self.baseline.risk, self.baseline.zero_risk
        return {
            "baseline_risk": risk, "zero_risk": power, "data_sizes": str(self.sizes),
            "risk_rounding": self.risk_rounding,
        }  # fmt: skip

    def judged(
        self,
        outcome: Outcome[FitName],
        risk: float,
        form: Form,
        n_outputs: int,
        *,
        ridge: float = 0.0,
        loss: str = "squared",
        rank: int | None = None,
    ) -> Outcome[FitName]:
        """The outcome of a fit of this risk, and what is to be said beside it.

        rank : how many coefficients followed the targets, without a ridge; None: not counted
        A layer that is no better than the best constant is not ok, whatever else is proved of it.
        """
        steps = [outcome.next_step, self.sizes.doubts(), self._doubt_of_targets(form, n_outputs)]
        if rank is not None and ridge == 0.0:
            steps.append(self._doubt_of_noise(risk, rank))
        if not self.baseline.is_known:
            steps.append(UNKNOWN_MEAN)
        said, is_worse = outcome.sentence, self._is_worse(risk)
        if is_worse:
            said += f" But {self._beside_mean(risk, loss)}"
            steps.insert(0, _advice(form, ridge))
        if self._is_hidden:
            said += HIDDEN
            steps.insert(0, CENTRE)
            is_worse = True
        words = " ".join(each for each in steps if each)
        return FIT_OUTCOMES(outcome.name, said, words, doubtful=is_worse or not outcome.ok)

    def _is_worse(self, risk: float) -> bool:
        known = (self.baseline.risk, self.baseline.zero_risk)
        explained = r2_of(risk, *known, self.risk_rounding)
        return explained is not None and explained <= NO_BETTER and self.n_positive > 1

    @property
    def _is_hidden(self) -> bool:
        """Whether rounding of sums hides how much of the spread of the targets is explained."""
        return self.baseline.risk is not None and hides(self.risk_rounding, self.baseline.risk)

    def _doubt_of_noise(self, risk: float, rank: int) -> str:
        """That coefficients may follow noise, where there are not many more targets than them."""
        known = (self.baseline.risk, self.baseline.zero_risk)
        explained = r2_of(risk, *known, self.risk_rounding)
        if explained is None or explained >= EXPLAINED or self.n_positive >= FEW * rank:
            return ""
        return (
            f"There are {counted(self.n_positive, 'predicted position')} for "
            f"{counted(rank, 'coefficient')}, which follow noise as well: result.generalisation() "
            "says what to expect of fresh sequences, and ridge='loo' follows less of it."
        )

    def _beside_mean(self, risk: float, loss: str) -> str:
        least = self.baseline.risk or 0.0
        if loss == "logistic":
            best = "predicting the shares of the classes, whatever the sequence,"
        else:
            best = "predicting the mean of the targets"
        better = risk > least * (1.0 + NO_BETTER)
        does = f"would be better: risk {least:.3g}" if better else f"has the same risk, {least:.3g}"
        return f"{best} {does}" + (f", and the layer has {risk:.3g}." if better else ".")

    def _doubt_of_targets(self, form: Form, n_outputs: int) -> str:
        """That targets may be meant for tokens, where there are as many outputs as tokens."""
        n, least = self.sizes.max_length, self.sizes.min_length
        if form.mode != "last" or not n_outputs == n == least or n < LIKE_TOKENS:
            return ""
        return (
            f"Y was read as {n_outputs} outputs for each sequence, which has as many tokens: if "
            "these are targets of the tokens, give mode='causal' or mode='full'."
        )


def _advice(form: Form, ridge: float) -> str:
    """What to do about a layer that a constant beats."""
    if not (form.bias or form.intercept):
        return (
            "The layer has no constant term: bias=True or form=Form(intercept=True) adds one, or "
            "subtract the mean from the targets."
        )
    if not form.intercept:
        return (
            "What bias=True adds grows with the number of tokens: Form(intercept=True) adds a "
            "constant that does not."
        )
    if ridge > 0.0:
        return "Set a smaller ridge, or choose other tokens or another form."
    return "What this form sees of the sequences says nothing of the targets: choose another."
