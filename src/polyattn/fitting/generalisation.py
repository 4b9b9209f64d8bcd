"""Generalisation: how far a fit is from the best layer on fresh sequences, from the data alone.

The distance of a least-squares fit from the best layer, over the population, is about a sum of
squares whose mean the data show (``solve.sequence_influence``): it is compared with the quantile of
an F distribution, with the degrees of freedom of the sum and those of the estimate of its mean.
Without any assumption nothing can be promised: a rare, huge sequence that was never seen can
decide the population.  What is assumed, and what the data show of it, are the conditions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from textwrap import wrap
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, fdtri

from polyattn.display import COLUMNS, Description, Tabled, plain
from polyattn.errors import InvalidInput
from polyattn.numerics.scaling import EPS, as_risk
from polyattn.quoting import counted
from polyattn.solve.sequence_influence import FULL_LEVERAGE, Influence

# A sequence that has more of a say than this in its own fitted values is not left out reliably.
MOST_LEVERAGE = 0.8

# The estimates must rest on as many sequences as this, and as the root of all.
LEAST_EFFECTIVE = 6.0

# Means of squared errors of heavy tails vary more than the data show: as if by so many times less.
# They must rest on this multiple of the root of all.
HIDDEN_VARIANCE, ROOT_MULTIPLE = 4.0, 4.0

# Errors below this share of the targets' power are rounding: the targets are those of a layer, and
# nothing shows how large the errors of other sequences would be.
EXACT = (64.0 * EPS) ** 2

LABELS = {
    "excess_risk": "above the best layer, at most",
    "risk": "risk, at most",
    "mean_excess": "left out minus fitted, mean",
}

# Quantiles of smaller chances are lost to rounding.
LEAST_CHANCE = 1e-9

# Coefficients whose distance from the minimiser has less than this share in the bound are it.
NO_DISTANCE = 1e-12


@dataclass(frozen=True)
class GeneralisationCondition:
    """What a bound on fresh sequences rests on.

    name : what is asked
    measured : the figure that the data show; None where they show none
    needed : what it has to be, in words
    holds : whether it is so; None where no data can tell, and it is taken on trust
    concerns : "excess_risk", and with it "risk"; or "risk" alone
    """

    name: str
    measured: float | None
    needed: str
    holds: bool | None
    concerns: str = "excess_risk"

    @property
    def figure(self) -> str:
        """What was measured, for people."""
        value = 0.0 if self.measured is None else self.measured
        return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

    def __str__(self) -> str:
        mark = {True: "holds", False: "FAILS", None: "assumed"}[self.holds]
        measured = "" if self.measured is None else f"{self.figure}, "
        return f"{mark}: {self.name}: {measured}needed: {self.needed}"


@dataclass(frozen=True, repr=False)
class Generalisation(Tabled):
    """What ``FitResult.generalisation`` returns: the fit on fresh sequences of the same kind.

    Attributes
    ----------
    excess_risk : float
        Bound of the risk of the fit over the population beyond that of the best layer of the same
        form, with any number of heads; infinity where nothing can be promised.
    risk : float
        Bound of the risk of the fit over the population; infinity where nothing can be promised.
    mean_excess : float
        Risk of sequences left out minus risk of the data, of the minimiser without ridge.  Of
        independent sequences of equal length and weight its mean is at least the mean excess of
        minimisers of one sequence fewer, whatever the distribution: a theorem, but about means.
    confidence : float
        With which each of the two bounds holds.  Calibrated: by asymptotics and by simulations,
        not proved for finite data (docs/derivations/generalisation.md).
    conditions : tuple of GeneralisationCondition
        What it rests on: name, measured, needed, holds.
    n_sequences : int
        Different sequences of positive weight: equal tokens count once, whatever their targets are.
    """

    excess_risk: float
    risk: float
    mean_excess: float
    confidence: float
    conditions: tuple[GeneralisationCondition, ...]
    n_sequences: int

    @property
    def promised(self) -> bool:
        """Whether there is a bound."""
        return bool(np.isfinite(self.excess_risk))

    @property
    def sentence(self) -> str:
        """The bounds in words, or why there are none."""
        if not self.promised:
            return f"Nothing can be promised on fresh sequences: {self._why('excess_risk')}."
        risk, why = f", and at most {self.risk:.4g}, each", ""
        if np.isinf(self.risk):
            risk, why = ",", f" Of the risk itself nothing can be promised: {self._why('risk')}."
        return (
            f"On fresh sequences of the same kind the risk of the fit is at most "
            f"{self.excess_risk:.4g} above that of the best layer{risk} with confidence "
            f"{self.confidence:.4g}: calibrated from {counted(self.n_sequences, 'sequence')}, not "
            f"proved, and not for rare large sequences that none of them shows.{why}"
        )

    def _why(self, concerns: str) -> str:
        """The conditions that fail."""
        return "; ".join(
            f"{each.name} is {each.figure}, needed: {each.needed}"
            for each in self.conditions
            if each.holds is False and each.concerns == concerns
        )

    def describe(self) -> Description:
        """The bounds, and what each of them rests on."""
        names = ("excess_risk", "risk", "mean_excess", "confidence", "n_sequences")
        lines = [
            part
            for each in self.conditions
            for part in wrap(str(each), COLUMNS - 2, subsequent_indent="    ",
                             break_on_hyphens=False)
        ]  # fmt: skip
        return Description(
            "The fit on fresh sequences", f"From {counted(self.n_sequences, 'sequence')}",
            self.sentence, facts={name: getattr(self, name) for name in names},
            lines=tuple(lines), labels=LABELS,
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"Generalisation(excess_risk {self.excess_risk:.3g}, risk {self.risk:.3g}, confidence "
            f"{self.confidence:.4g}, {counted(self.n_sequences, 'sequence')})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types; null where a bound is infinite."""
        return dict(plain(asdict(self))) | {"sentence": self.sentence}


def generalisation_of(
    found: Influence | None,
    confidence: float,
    n_sequences: int,
    total_weight: float,
    target_exponent: int,
    n_decays: int = 0,
) -> Generalisation:
    """The bounds from what each sequence of positive weight does to the fit.

    found : None where there are too few sequences to look at
    total_weight, target_exponent : of the rows, for the units of the risks
    n_decays : how many were tried, where the data chose the decay of the form
    """
    if 1.0 - confidence < LEAST_CHANCE:
        raise InvalidInput(
            f"confidence must leave a chance of at least {LEAST_CHANCE:.0e}: less is not "
            f"calibrated, and lost to rounding; got {confidence!r}."
        )
    if found is None:
        few = _enough_sequences(n_sequences, n_sequences)
        nothing = (np.inf, np.inf, np.inf, confidence)
        return Generalisation(*nothing, (*ASSUMED, few), n_sequences)
    conditions = (*ASSUMED, *_seen(found, n_sequences))
    if n_decays:
        conditions += (replace(CHOSEN, measured=float(n_decays)),)
    excess = risk = mean_excess = np.inf
    if found.leverage.max(initial=0.0) < FULL_LEVERAGE:
        beyond = float(np.sum(found.left_out - found.fitted)) / total_weight
        mean_excess = as_risk(beyond, target_exponent)
    failed = {each.concerns for each in conditions if each.holds is False}
    if "excess_risk" not in failed:
        of_excess, of_risk = _bounds(found, 0.5 * (1.0 - confidence), total_weight)
        excess = as_risk(of_excess, target_exponent)
        risk = np.inf if "risk" in failed else as_risk(of_risk, target_exponent)
    return Generalisation(excess, risk, mean_excess, confidence, conditions, n_sequences)


ASSUMED = (
    GeneralisationCondition(
        "sequences", None,
        "independent draws from the population, each with its targets and weight (the positions of "
        "one sequence may depend on each other)", None,
    ),
    GeneralisationCondition(
        "tails", None,
        "no sequences so rare that none was seen, and so large that they decide the risk", None,
    ),
)  # fmt: skip

CHOSEN = GeneralisationCondition(
    "number of decays tried on these data", None, "none: give the form a fixed decay", False
)


def _seen(found: Influence, n_sequences: int) -> tuple[GeneralisationCondition, ...]:
    """The conditions that data can fail."""
    largest = float(found.leverage.max(initial=0.0))
    effective = _effective_in_trace(found)
    of_risk = effective_number(found.left_out, found.rank)
    power, error = float(found.power.sum()), float(found.left_out.sum())
    root = float(np.sqrt(n_sequences))
    least, of_risk_least = max(LEAST_EFFECTIVE, root), ROOT_MULTIPLE * root
    return (
        _enough_sequences(n_sequences, found.rank),
        GeneralisationCondition(
            "largest leverage of a sequence", largest,
            f"at most {MOST_LEVERAGE:g} (at 1 a sequence alone decides its fitted values)",
            largest <= MOST_LEVERAGE,
        ),
        GeneralisationCondition(
            "share of the squared error left out in the targets", error / power if power else 0.0,
            f"more than {EXACT:.0e}, rounding (exact targets show no size of other errors)",
            error > EXACT * power,
        ),
        GeneralisationCondition(
            "effective number of sequences", effective,
            f"at least {least:.3g} (few sequences make up the estimate: heavy tails, or too few)",
            effective >= least,
        ),
        GeneralisationCondition(
            "effective number of sequences in the risk", of_risk,
            f"at least {of_risk_least:.3g} (few sequences make up the squared error)",
            of_risk >= of_risk_least, "risk",
        ),
    )  # fmt: skip


def _enough_sequences(n_sequences: int, rank: int) -> GeneralisationCondition:
    return GeneralisationCondition(
        "number of different sequences", float(n_sequences),
        f"more than the {counted(rank, 'dimension')} that their features span",
        n_sequences > rank,
    )  # fmt: skip


def _bounds(found: Influence, chance: float, total_weight: float) -> tuple[float, float]:
    """Bounds of excess risk and risk in scaled units, each to fail with at most twice ``chance``.

    Once for the minimiser, once for the distance of other coefficients from it: distances add.
    """
    trace = float(found.noise.sum())
    effective = _effective_in_trace(found)
    excess = trace * float(fdtri(found.freedom, effective, 1.0 - chance)) if trace else 0.0
    risk = float(found.left_out.sum()) * _factor(found.left_out, found.rank, chance)
    apart = float(found.apart.sum())
    if apart > NO_DISTANCE * max(excess, NO_DISTANCE * risk):
        away = apart * _factor(found.apart, found.rank, chance)
        excess = (np.sqrt(excess) + np.sqrt(away)) ** 2
        # The best layer is no worse than the minimiser.
        risk += excess
    return excess / total_weight, risk / total_weight


def effective_number(parts: NDArray[np.float64], rank: int) -> float:
    """nu such that the sum of these is as uncertain as a chi-square of nu degrees, 2 S^2 / Var S.

    At most the N - rank of residuals of a fit, however equal they are.
    """
    most = float(max(len(parts) - rank, 0))
    spread = float(np.sum((parts - parts.mean()) ** 2)) if most else 0.0
    return min(most, 2.0 * float(parts.sum()) ** 2 / spread) if spread else most


def _effective_in_trace(found: Influence) -> float:
    """The effective number of sequences in tr(W M), to which each has a part in both matrices."""
    most = float(max(len(found.noise) - found.rank, 0))
    # The parts in both add up to twice the trace, and their spread is that of the trace itself.
    return min(most, 0.25 * effective_number(found.noise + found.norm, 0))


def _factor(parts: NDArray[np.float64], rank: int, chance: float) -> float:
    """By how much a sum of these may be too small, but with this chance."""
    effective = effective_number(parts, rank) / HIDDEN_VARIANCE
    return effective / float(chdtri(effective, 1.0 - chance))
